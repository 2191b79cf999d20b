"""POWERS (He, Zhou and Gu, AISTATS 2022): OPPO with weighted regression and a Bernstein bonus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from advmdp import constants
from advmdp.confidence.estimators import RidgeEstimate
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMixtureModel, logarithm
from advmdp.learners.options import ValueStepOptions, number, require
from advmdp.learners.parts.moments import WeightedValues
from advmdp.learners.policy_optimisation import PolicyOptimisation, PolicyState
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class PowersOptions(ValueStepOptions):
    """``lam`` is 1 / B^2, as in the source."""

    lam: float | None = None


@register_learner("powers")
class Powers(PolicyOptimisation):
    """Full information, unknown transition: OPPO, each step of whose regression is weighted by its variance.

    Steps 1 and 3 are OPPO's, with the radius betahat.  Step 2 is
    :class:`advmdp.learners.parts.moments.WeightedValues`.

    Parameters
    ----------
    lam
        Regularisation; by default 1 / B^2, as in the source.
    radius_scale
        Factor on betahat; anything but 1 has no guarantee.
    eta, zeta
        Step size and failure probability; by default sqrt(2 log A / (H^2 K)) and 0.05.
    """

    name = "powers"
    status = "every update against plain numpy from the full history; coverage; radii recalled and rederived"

    feedback = "full"
    needs = LinearMixtureModel
    Options = PowersOptions
    options: PowersOptions

    def _compose(self) -> None:
        o = self.options
        self.step_size = self._tuned() if o.eta is None else o.eta
        #: lambda in force.
        self.regularisation = o.regularisation(self._problem)
        self._regression = WeightedValues(self._problem, self.regularisation, o.zeta)

    def _tuned(self) -> float:
        """eta of the theory."""
        return constants.oppo(self._layers.counted.most_actions, self._layers.horizon, self.episodes)

    def _begin(self) -> PolicyState:
        return super()._begin()._replace(data=self._regression.empty())

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        return self._regression.optimistic(state.data, self.options.radius_scale, episode.loss_table, state.policy)

    def _counted(self, state: PolicyState, episode: CheckedEpisode, values: FloatArray) -> PolicyState:
        data = self._regression.with_values(state.data, episode.states, episode.actions, state.policy, values)
        return state._replace(data=data)

    @property
    def estimate(self) -> RidgeEstimate:
        """thetahat_h, Gram matrices and their log-determinants, from the episodes so far."""
        found: RidgeEstimate = self._now.state.data.estimate
        return found

    @property
    def radii(self) -> FloatArray:
        """betahat of layers 0..H-2 in force."""
        return self.options.radius_scale * np.array(self._regression.radii(self._now.state.k))

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        sums = self._regression.tree(state.data)
        del sums["episodes"]  # k
        return {**super()._tree(state), **sums}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        state = super()._restore(tree, policy)
        return state._replace(data=self._regression.restore({**tree, "episodes": state.k}))


@dataclass(frozen=True, kw_only=True)
class PowersDynamicOptions(PowersOptions):
    """``path_length`` of the comparator."""

    path_length: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.path_length is None or self.path_length == 0.0 or number(self.path_length, 0.0)
        require(valid, "path_length", self.path_length, "a number >= 0, or None")


@register_learner("powers-dynamic")
class PowersDynamic(Powers):
    """POWERS whose policies are mixed with the uniform one, for comparators that change (Li, Zhao and Zhou, 2023).

    pi_{k+1}(a | s) = (1 - mu) pi'(a | s) + mu / A with pi' proportional to pi_k(a | s) exp(-eta Q_k(s, a)), and
    mu = 1 / (K + 1): an action that was bad for long is at most log(A / mu) away from being good.

    Parameters
    ----------
    path_length
        P, what the path length sum_k |q*_k - q*_{k-1}|_1 of the comparator is thought to be; by default 2 H, one change
        of everything.
    eta
        Step size; by default the best for P, sqrt(8 Lambda / (K sum_h (H - h)^2)) with
        Lambda = H log A + H + (P / 2) log(A (K + 1)).
    lam, radius_scale, zeta
        As in ``powers``.
    """

    name = "powers-dynamic"
    status = (
        "every update against plain numpy from the full history; bound on dynamic regret derived; radii as of powers, "
        "constants not read in the source"
    )

    Options = PowersDynamicOptions
    options: PowersDynamicOptions

    @property
    def path_in_force(self) -> float:
        """P."""
        told = self.options.path_length
        return 2.0 * self._layers.horizon if told is None else float(told)

    @property
    def share(self) -> float:
        """mu."""
        return 1.0 / (self.episodes + 1.0)

    def _tuned(self) -> float:
        most_actions, H = self._layers.counted.most_actions, self._layers.horizon
        return constants.powers_dynamic(most_actions, H, self.episodes, self.path_in_force)

    def _improved(self, state: PolicyState, values: FloatArray) -> PolicyState:
        new = super()._improved(state, values)
        policy = (1.0 - self.share) * new.policy + self.share * self._layers.uniform_policy
        return new._replace(policy=policy, log_weights=logarithm(policy))
