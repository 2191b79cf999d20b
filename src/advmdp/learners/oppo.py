"""OPPO (Cai, Yang, Jin and Wang, ICML 2020): optimistic policy optimisation for linear mixtures."""

from __future__ import annotations

from typing import Any

from advmdp import constants
from advmdp.confidence.estimators import RidgeEstimate
from advmdp.confidence.values import OptimisticValues
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.options import ValueStepOptions
from advmdp.learners.policy_optimisation import PolicyOptimisation, PolicyState
from advmdp.registry import register_learner


@register_learner("oppo")
class Oppo(PolicyOptimisation):
    """Full information, unknown transition: exponential weights on optimistic action values of the current policy.

    After episode k, with theta_h, Gram_h and beta_h from the episodes before it, V of the terminal state zero:

    1. Q_k(s, a) = l_k(s, a) + clip(<phi_V(s, a), theta_h> - beta_h |phi_V(s, a)|_{Gram_h^-1}, 0, H - 1 - h),
       V_k(s) = sum_a pi_k(a | s) Q_k(s, a), phi_V(s, a) = sum_s' phi(s' | s, a) V_k(s');
    2. V_k(s') of the next states is regressed on phi_V of the visited pairs;
    3. pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)).

    Parameters
    ----------
    lam
        Regularisation; 1 as in the source.  None stands for 1 / B^2.
    radius_scale
        Factor on beta_h; anything but 1 has no guarantee.
    eta, zeta
        Step size (alpha in the source) and failure probability; by default sqrt(2 log A / (H^2 K)) and 0.05.
    """

    name = "oppo"
    status = "every update against plain numpy from the full history; coverage; bound with derived constants"

    feedback = "full"
    needs = LinearMixtureModel
    Options = ValueStepOptions
    options: ValueStepOptions

    def _compose(self) -> None:
        tuned = constants.oppo(self._layers.counted.most_actions, self._layers.horizon, self.episodes)
        self.step_size = tuned if self.options.eta is None else self.options.eta
        #: lambda in force.
        self.regularisation = self.options.regularisation(self._problem)
        self._targets = OptimisticValues(self._problem, self.regularisation)

    def _begin(self) -> PolicyState:
        return super()._begin()._replace(data=self._targets.empty())

    def _beta(self, state: PolicyState) -> FloatArray:
        """beta_h of layers 0..H-2 in force."""
        return self.options.radius_scale * self._targets.scalar_radii(state.data, self.options.zeta)

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        return self._targets(state.data, self._beta(state), episode.loss_table, state.policy)

    def _counted(self, state: PolicyState, episode: CheckedEpisode, values: FloatArray) -> PolicyState:
        targets = self._targets.targets(episode.states, episode.actions, state.policy, values)
        return state._replace(data=self._targets.add(state.data, *targets))

    @property
    def estimate(self) -> RidgeEstimate:
        """theta_h, Gram matrices and their log-determinants, from the episodes so far."""
        found: RidgeEstimate = self._now.state.data.estimate
        return found

    @property
    def radii(self) -> FloatArray:
        """beta_h of layers 0..H-2 in force."""
        return self._beta(self._now.state)

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        return {**super()._tree(state), "sums": state.data.sums.tree()}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        return super()._restore(tree, policy)._replace(data=self._targets.restore(tree["sums"]))
