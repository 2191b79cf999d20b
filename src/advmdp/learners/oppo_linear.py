"""Optimistic policy optimisation in linear MDPs (Zhong and Zhang, NeurIPS 2023): OPPO with least-squares values."""

from __future__ import annotations

from typing import Any

from advmdp import constants
from advmdp.confidence.linear_mdp import LeastSquares, Transitions, value_pass
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray, LinearMDPModel
from advmdp.learners.options import FullOptions
from advmdp.learners.policy_optimisation import PolicyOptimisation, PolicyState
from advmdp.registry import register_learner


class LinearPolicyOptimisation(PolicyOptimisation):
    """Unknown transition, linear MDP: policy optimisation with a regression of the measures (lambda = 1)."""

    needs = LinearMDPModel
    _problem: LinearMDPModel

    def _compose(self) -> None:
        self._estimator = LeastSquares(self._problem)

    def _begin(self) -> PolicyState:
        return super()._begin()._replace(data=self._estimator.empty())

    def _counted(self, state: PolicyState, episode: CheckedEpisode, values: FloatArray) -> PolicyState:
        return state._replace(data=self._estimator.add(state.data, episode.states, episode.actions))

    def _observe(self, state: PolicyState, states: IntArray, actions: IntArray) -> PolicyState:
        data = state.data
        for row, move in zip(states, actions, strict=True):
            data = self._estimator.add(data, row, move, logged=True)
        return state._replace(data=data)

    def _beta(self, state: PolicyState) -> FloatArray:
        """beta_h of layers 0..H-2 in force, for values in [0, 1]."""
        return self.options.radius_scale * self._estimator.radii(state.data, self.options.zeta)  # type: ignore[no-any-return]

    @property
    def estimate(self) -> Transitions:
        """Gram matrices and measures, from the episodes so far."""
        found: Transitions = self._now.state.data
        return found

    @property
    def radii(self) -> FloatArray:
        """beta_h of layers 0..H-2 in force, for values in [0, 1]."""
        return self._beta(self._now.state)

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        return {**super()._tree(state), "sums": self._estimator.tree(state.data)}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        return super()._restore(tree, policy)._replace(data=self._estimator.restore(tree["sums"]))


@register_learner("oppo-linear")
class OppoLinear(LinearPolicyOptimisation):
    """Full information, unknown transition: exponential weights on optimistic action values of the current policy.

    After episode k, with muhat_h, Lambda_h and beta_h from the episodes before it, V of the terminal state zero and
    M_h = H - 1 - h:

    1. Q_k(s, a) = l_k(s, a) + clip(<phi(s, a), muhat_h V_k> - beta_h M_h |phi(s, a)|_{Lambda_h^-1}, 0, M_h),
       V_k(s) = sum_a pi_k(a | s) Q_k(s, a);
    2. the transitions enter Lambda_h and muhat_h (:mod:`advmdp.confidence.linear_mdp`);
    3. pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)).

    Parameters
    ----------
    radius_scale
        Factor on beta_h; anything but 1 has no guarantee.
    eta, zeta
        Step size and failure probability; by default sqrt(2 log A / (H^2 K)) and 0.05.
    """

    name = "oppo-linear"
    feedback = "full"
    status = "every update against plain numpy from the full history; coverage; bound with derived constants"
    Options = FullOptions
    options: FullOptions

    def _compose(self) -> None:
        super()._compose()
        tuned = constants.oppo(self._layers.counted.most_actions, self._layers.horizon, self.episodes)
        self.step_size = tuned if self.options.eta is None else self.options.eta

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        layers, widths = self._layers, self._estimator.widths(state.data)
        values = value_pass(
            self._problem, state.data, widths, self._beta(state), layers.split(episode.loss_table),
            layers.split(state.policy), sign=-1.0, most=range(layers.horizon, -1, -1),
        )  # fmt: skip
        return layers.flatten(values)
