"""LSUOB-REPS (Zhao, Yang, Wang and Li, ICLR 2023): regression on one imaginary next state."""

from __future__ import annotations

from typing import Literal

from advmdp.confidence import radii
from advmdp.confidence.estimators import OneNextState, RidgeEstimate
from advmdp.episodes import CheckedEpisode
from advmdp.layered import LinearMixtureModel
from advmdp.learners.linear_mixture import Geometry, LinearMixtureReps, Regression
from advmdp.learners.reps import require
from advmdp.registry import register_learner


@register_learner("lsuob-reps")
class LsuobReps(LinearMixtureReps):
    """VLSUOB-REPS's predecessor: in each step only the visit of the most uncertain next state is regressed.

    Parameters
    ----------
    geometry, entropy, radius_scale, simplex, eta, gamma, zeta
        As in ``vlsuob-reps``.
    lam
        Regularisation, constant; 1 by default.
    """

    name = "lsuob-reps"
    status = "every step against a conic solver, estimator against its full history; radius rederived"
    _sums_class = OneNextState

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        geometry: Geometry = "ellipsoid",
        entropy: Literal["pairs", "triples"] = "pairs",
        radius_scale: float = 1.0,
        simplex: bool = False,
        lam: float = 1.0,
        eta: float | None = None,
        gamma: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        require(lam is not None, "lam", lam, "a number > 0: the radius needs a constant regularisation")
        super().__init__(
            problem, episodes, geometry=geometry, entropy=entropy, radius_scale=radius_scale, simplex=simplex, lam=lam,
            eta=eta, gamma=gamma, zeta=zeta, seed=seed,
        )  # fmt: skip

    def _regularisation(self, k: int) -> float:
        assert self.lam is not None
        return self.lam

    def _radii(self, estimate: RidgeEstimate, k: int) -> list[float]:
        layers, dim, bound = max(1, self._layers.horizon - 1), self._problem.dim, self._problem.bound
        lam, values = self._regularisation(k), estimate.log_determinants.tolist()
        return [radii.scalar(value, layers, dim, lam, self.zeta, bound) for value in values]

    def _estimator_with(self, episode: CheckedEpisode) -> Regression:
        sums = self._estimator.sums
        assert isinstance(sums, OneNextState)
        grown = sums.add(self._problem, episode.states, episode.actions, self._estimator.estimate)
        return self._with_estimate(grown, self.episodes_seen + 2)
