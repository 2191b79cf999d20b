"""POWERS (He, Zhou and Gu, AISTATS 2022): OPPO with weighted regression and a Bernstein bonus."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from advmdp.confidence import radii
from advmdp.confidence.estimators import RidgeEstimate, ValueTargets
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.linear_mixture import checked_sums
from advmdp.learners.oppo import Oppo
from advmdp.registry import register_learner


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

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        lam: float | None = None,
        radius_scale: float = 1.0,
        eta: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, lam=lam, radius_scale=radius_scale, eta=eta, zeta=zeta, seed=seed)
        self._largest_feature = largest_feature(problem)
        self._take_square_sums(ValueTargets.empty(self._layers.horizon, problem.dim))

    def _bernstein(self, deviation: float, largest: float, length: float) -> float:
        """A radius of Zhou, Gu and Szepesvari (2021), for regressors of length at most ``length`` max |phi_V|."""
        return radii.self_normalised_bernstein(
            self.episodes_seen + 1,
            self._layers.horizon,
            self._problem.dim,
            self.regularisation,
            self.zeta,
            self._problem.bound,
            deviation=deviation,
            largest=largest,
            length=length * self._largest_feature,
        )

    def _radius(self, h: int) -> float:
        """betahat: after division by sigma >= H / sqrt(d), variance at most 1, noise and length at most sqrt(d)."""
        root = sqrt(self._problem.dim)
        return self._bernstein(1.0, root, root)

    def _observe(self, episode: CheckedEpisode, values: FloatArray) -> None:
        dim, horizon = self._problem.dim, self._layers.horizon
        root, square = sqrt(dim), float(horizon**2)
        betacheck = self._bernstein(root, root, root)  # no variance known: d in place of 1
        betatilde = self._bernstein(square, square, square)

        phi, targets = self._targets(episode, values)
        phi_square, square_targets = self._targets(episode, values, power=2)
        mean, width = _predict(phi, self._estimate)
        mean_square, width_square = _predict(phi_square, self._square_estimate)

        variance = mean_square.clip(0.0, square) - mean.clip(0.0, horizon) ** 2
        error = np.minimum(square, betatilde * width_square) + np.minimum(square, 2.0 * horizon * betacheck * width)
        weights = 1.0 / np.maximum(square / dim, variance + error)
        self._take_sums(self._sums.add(phi, targets, weights))
        self._take_square_sums(self._square_sums.add(phi_square, square_targets))

    def _take_square_sums(self, sums: ValueTargets) -> None:
        self._square_sums = sums
        self._square_estimate = sums.estimate(self.regularisation)

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "square_sums": self._square_sums.tree()}

    def _set_state(self, state: dict[str, Any]) -> None:
        tree = state.pop("square_sums")
        self._take_square_sums(checked_sums(ValueTargets, tree, self._layers.horizon, self._problem.dim))
        super()._set_state(state)


def _predict(rows: FloatArray, estimate: RidgeEstimate) -> tuple[FloatArray, FloatArray]:
    """<x, theta_h> and |x|_{Gram_h^-1} of one vector per layer."""
    squares = np.einsum("hi,hij,hj->h", rows, estimate.inverse_grams, rows)
    return np.einsum("hi,hi->h", rows, estimate.centres), np.sqrt(np.maximum(squares, 0.0))


def largest_feature(problem: LinearMixtureModel) -> float:
    """max |phi_V(s, a)| over pairs and V in [0, 1], which the source assumes to be 1; our features promise |phi| <= 1.

    Coordinate i of phi_V is at most the sum of the positive phi_i, and at least that of the negative ones; for
    non-negative features this is exact, with V = 1.
    """
    largest = 0.0
    for features in problem.features[:-1]:
        above, below = features.clip(min=0.0).sum(axis=2), features.clip(max=0.0).sum(axis=2)
        largest = max(largest, float(np.linalg.norm(np.maximum(above, -below), axis=2).max()))
    return largest
