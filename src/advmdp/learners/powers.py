"""POWERS (He, Zhou and Gu, AISTATS 2022): OPPO with weighted regression and a Bernstein bonus."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from advmdp.confidence import radii
from advmdp.confidence.estimators import RidgeEstimate, ValueTargets
from advmdp.confidence.values import Targets, largest_feature
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.oppo import Oppo
from advmdp.learners.options import ValueStepOptions
from advmdp.learners.policy_optimisation import PolicyState
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class PowersOptions(ValueStepOptions):
    """``lam`` is 1 / B^2, as in the source."""

    lam: float | None = None


class TwoTargets(NamedTuple):
    """The weighted regression of V, and that of V^2."""

    sums: ValueTargets
    estimate: RidgeEstimate
    squares: Targets


@register_learner("powers")
class Powers(Oppo):
    """Full information, unknown transition: OPPO, each step of whose regression is weighted by its variance.

    Steps 1 and 3 are OPPO's, with the radius betahat.  In step 2, at each visited pair, with thetahat, Gramhat from the
    weighted regression of V_k and thetatilde, Gramtilde from one of V_k^2, all from earlier episodes:

    1. variance = clip(<phi_{V^2}, thetatilde>, 0, H^2) - clip(<phi_V, thetahat>, 0, H)^2;
    2. error = min(H^2, betatilde |phi_{V^2}|_{Gramtilde^-1}) + min(H^2, 2 H betacheck |phi_V|_{Gramhat^-1});
    3. sigma^2 = max(H^2 / d, variance + error);
    4. Gramhat += phi_V phi_V' / sigma^2, bhat += phi_V V_k(s') / sigma^2; the same for V_k^2 without weights.

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

    Options = PowersOptions

    def _compose(self) -> None:
        super()._compose()
        self._largest_feature = largest_feature(self._problem)

    def _begin(self) -> PolicyState:
        empty = self._targets.empty()
        return super()._begin()._replace(data=TwoTargets(empty.sums, empty.estimate, empty))

    def _bernstein(self, k: int, deviation: float, largest: float, length: float) -> float:
        """A radius of Zhou, Gu and Szepesvari (2021), for regressors of length at most ``length`` max |phi_V|."""
        model = self._problem
        return radii.self_normalised_bernstein(
            k + 1, model.horizon, model.dim, self.regularisation, self.options.zeta, model.bound,
            deviation=deviation, largest=largest, length=length * self._largest_feature,
        )  # fmt: skip

    def _beta(self, state: PolicyState) -> FloatArray:
        """betahat: after division by sigma >= H / sqrt(d), variance at most 1, noise and length at most sqrt(d)."""
        root = sqrt(self._problem.dim)
        return np.full(self._layers.horizon - 1, self.options.radius_scale * self._bernstein(state.k, 1.0, root, root))

    def _counted(self, state: PolicyState, episode: CheckedEpisode, values: FloatArray) -> PolicyState:
        dim, horizon, k = self._problem.dim, self._layers.horizon, state.k
        root, square = sqrt(dim), float(horizon**2)
        betacheck = self._bernstein(k, root, root, root)  # no variance known: d in place of 1
        betatilde = self._bernstein(k, square, square, square)

        phi, targets = self._targets.targets(episode.states, episode.actions, state.policy, values)
        phi_square, square_targets = self._targets.targets(
            episode.states, episode.actions, state.policy, values, power=2
        )
        mean, width = state.data.estimate.predict(phi)
        mean_square, width_square = state.data.squares.estimate.predict(phi_square)

        variance = mean_square.clip(0.0, square) - mean.clip(0.0, horizon) ** 2
        error = np.minimum(square, betatilde * width_square) + np.minimum(square, 2.0 * horizon * betacheck * width)
        weights = 1.0 / np.maximum(square / dim, variance + error)
        weighted = self._targets.add(state.data, phi, targets, weights)
        squares = self._targets.add(state.data.squares, phi_square, square_targets)
        return state._replace(data=TwoTargets(weighted.sums, weighted.estimate, squares))

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        return {**super()._tree(state), "square_sums": state.data.squares.sums.tree()}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        state = super()._restore(tree, policy)
        sums, estimate = state.data
        return state._replace(data=TwoTargets(sums, estimate, self._targets.restore(tree["square_sums"])))
