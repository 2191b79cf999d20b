"""VLSUOB-REPS (Li, Zhao and Zhou, AISTATS 2024): regression on the visits of all next states."""

from __future__ import annotations

from typing import Literal

from advmdp.confidence import radii
from advmdp.confidence.estimators import AllNextStates, RidgeEstimate
from advmdp.episodes import CheckedEpisode
from advmdp.layered import LinearMixtureModel
from advmdp.learners.linear_mixture import Geometry, LinearMixtureReps, Regression
from advmdp.learners.reps import require
from advmdp.registry import register_learner

Radius = Literal["paper", "paper-uniform", "determinant", "joint"]


@register_learner("vlsuob-reps")
class VlsuobReps(LinearMixtureReps):
    """Algorithm 1 of the paper, with its own constants.

    Parameters
    ----------
    geometry
        ``"ellipsoid"`` (theta of each pair in the ellipsoid of Lemma 2) or ``"box"`` (each entry within its width).
    entropy
        ``"pairs"`` (the paper's) or ``"triples"`` (of Jin et al.; with boxes).
    radius
        ``"paper"`` (Lemma 2 as printed), ``"paper-uniform"`` (valid for all episodes at once), ``"determinant"`` (the
        form of Lemma 1 that depends on the data) or ``"joint"`` (from joint sub-Gaussianity; needs constant ``lam``).
    radius_scale
        Factor on the radius; anything but 1 has no guarantee.
    simplex
        Whether to use that theta is non-negative, where the model knows it.
    lam
        Regularisation; by default d log(k S) in episode k (1 in the first), and 1 with the joint radius.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability; by default those of Theorem 1, zeta = 0.05.
    """

    name = "vlsuob-reps"
    status = "every step against a conic solver, estimator against its full history"
    _sums_class = AllNextStates

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        geometry: Geometry = "ellipsoid",
        entropy: Literal["pairs", "triples"] = "pairs",
        radius: Radius = "paper",
        radius_scale: float = 1.0,
        simplex: bool = False,
        lam: float | None = None,
        eta: float | None = None,
        gamma: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.radius = radius
        names = ("paper", "paper-uniform", "determinant", "joint")
        require(radius in names, "radius", radius, f"one of {', '.join(names)}")
        super().__init__(
            problem, episodes, geometry=geometry, entropy=entropy, radius_scale=radius_scale, simplex=simplex, lam=lam,
            eta=eta, gamma=gamma, zeta=zeta, seed=seed,
        )  # fmt: skip

    def _regularisation(self, k: int) -> float:
        if self.lam is not None:
            return self.lam
        if self.radius == "joint":
            return 1.0
        return radii.growing_regularisation(k, self._layers.n_states, self._problem.dim)

    def _radii(self, estimate: RidgeEstimate, k: int) -> list[float]:
        horizon, dim = self._layers.horizon, self._problem.dim
        lam, bound, values = self._regularisation(k), self._problem.bound, estimate.log_determinants.tolist()
        if self.radius in ("paper", "paper-uniform"):
            form = radii.paper if self.radius == "paper" else radii.paper_uniform
            return [form(k, self._layers.n_states, horizon, dim, lam, self.zeta, bound)] * (horizon - 1)
        if self.radius == "determinant":
            return [radii.determinant(value, horizon, dim, lam, self.zeta, bound) for value in values]
        # The failure probability is shared by the H - 1 layers that are regressed.
        return [radii.joint(value, max(1, horizon - 1), dim, lam, self.zeta, bound) for value in values]

    def _estimator_with(self, episode: CheckedEpisode) -> Regression:
        sums = self._estimator.sums
        assert isinstance(sums, AllNextStates)
        grown = sums.add(self._problem, episode.states, episode.actions)
        return self._with_estimate(grown, self.episodes_seen + 2)


@register_learner("vlsuob-reps-tight")
class VlsuobRepsTight(VlsuobReps):
    """VLSUOB-REPS with the joint radius, constant lambda, and the simplex of weights where the model has it."""

    name = "vlsuob-reps-tight"

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        geometry: Geometry = "ellipsoid",
        entropy: Literal["pairs", "triples"] = "pairs",
        radius: Radius = "joint",
        radius_scale: float = 1.0,
        simplex: bool | None = None,
        lam: float | None = None,
        eta: float | None = None,
        gamma: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        if simplex is None:
            simplex = geometry == "ellipsoid" and getattr(problem, "simplex", False)
        super().__init__(
            problem, episodes, geometry=geometry, entropy=entropy, radius=radius, radius_scale=radius_scale,
            simplex=simplex, lam=lam, eta=eta, gamma=gamma, zeta=zeta, seed=seed,
        )  # fmt: skip


class VlsuobRepsExtension(VlsuobRepsTight):
    """What the extensions build on: the learner above, with the options that concern them too."""

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        geometry: Geometry = "ellipsoid",
        radius_scale: float = 1.0,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, geometry=geometry, radius_scale=radius_scale, zeta=zeta, seed=seed)
