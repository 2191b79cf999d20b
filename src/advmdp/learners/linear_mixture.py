"""What the linear-mixture learners of REPS type share: ridge regression and the sets that it gives."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from advmdp._checks import float_array
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet
from advmdp.confidence.estimators import RidgeEstimate, RidgeSums
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.reps import RepsLearner, require

Geometry = Literal["ellipsoid", "box"]


@dataclass(frozen=True, eq=False)
class Regression:
    """The sums over past episodes, and the estimate in force that was made from them."""

    sums: RidgeSums
    estimate: RidgeEstimate


class LinearMixtureReps(RepsLearner[Regression]):
    """Sets around a ridge estimate of theta_h: |theta - theta_h|_Gram <= beta, valid rows, theta free per pair.

    The paper's set shares one theta_h among all pairs of a layer, which makes both optimisation steps non-convex
    (and the proof incomplete); these supersets of it keep the theorem, see ``docs/relaxed-sets.md``.
    """

    needs = LinearMixtureModel
    _problem: LinearMixtureModel
    _sums_class: ClassVar[type[RidgeSums]]

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        geometry: Geometry,
        simplex: bool,
        entropy: Literal["pairs", "triples"],
        lam: float | None,
        radius_scale: float,
        eta: float | None,
        gamma: float | None,
        zeta: float,
        seed: int,
    ) -> None:
        self.geometry, self.simplex, self.lam, self.radius_scale = geometry, simplex, lam, radius_scale
        require(geometry in ("ellipsoid", "box"), "geometry", geometry, "'ellipsoid' or 'box'")
        require(isinstance(simplex, bool), "simplex", simplex, "True or False")
        require(lam is None or 0.0 < lam < np.inf, "lam", lam, "a number > 0, or None")
        require(0.0 < radius_scale < np.inf, "radius_scale", radius_scale, "a number > 0")
        if entropy == "triples" and geometry == "ellipsoid":
            raise InvalidSpecError("entropy 'triples' goes with geometry 'box', not with 'ellipsoid'")
        super().__init__(problem, episodes, eta=eta, gamma=gamma, zeta=zeta, entropy=entropy, seed=seed)
        if simplex and (geometry == "box" or not problem.simplex):
            raise InvalidSpecError(
                "simplex=True needs geometry 'ellipsoid' and a model whose parameters are mixture weights"
            )
        # Static parts of the sets, and the place of the terminal layer, whose parameter nobody needs.
        features, horizon, dim = problem.features, problem.horizon, problem.dim
        self._last_centre, self._last_gram = np.zeros((1, dim)), np.eye(dim)[None]
        self._ellipsoids = EllipsoidSet(features, [np.zeros(dim)] * horizon, [np.eye(dim)] * horizon, 0.0, simplex)

    # ---------------------------------------------------------------------------- the parts

    @abstractmethod
    def _regularisation(self, k: int) -> float:
        """lambda_k."""

    @abstractmethod
    def _radii(self, estimate: RidgeEstimate, k: int) -> list[float]:
        """beta_k of layers 0..H-2, before ``radius_scale``."""

    def _empty_estimator(self) -> Regression:
        sums = self._sums_class.empty(self._layers.horizon, self._problem.dim)
        return Regression(sums, sums.estimate(self._regularisation(1)))

    def _set_of(self, estimator: Regression, k: int) -> ConfidenceSet:
        estimate = estimator.estimate
        radii = self._radii_of(estimate, k)
        if self.geometry == "ellipsoid":
            return self._ellipsoids.with_estimate(
                np.concatenate((estimate.centres, self._last_centre)),
                np.concatenate((estimate.grams, self._last_gram)),
                np.array([*radii, 0.0]),
            )
        return self._boxes(estimate, radii)

    def _boxes(self, estimate: RidgeEstimate, radii: FloatArray) -> BoxSet:
        """Entries in [c - w, c + w], c = <phi, theta_h> unclipped and w = beta |phi|_{Gram^-1}."""
        lower, upper = [], []
        for h, radius in enumerate(radii):
            features = self._problem.features[h]
            rows = features.reshape(-1, features.shape[3])
            scaled = rows @ np.linalg.inv(np.linalg.cholesky(estimate.grams[h])).T
            width = radius * np.sqrt(np.einsum("rd,rd->r", scaled, scaled)).reshape(features.shape[:3])
            centre = features @ estimate.centres[h]
            lower.append(centre - width)
            upper.append(centre + width)
        last = np.ones((self._layers.sizes[-2], self._layers.n_actions, 1))
        return BoxSet([*lower, last], [*upper, last])

    # ----------------------------------------------------------------------- its quantities

    @property
    def estimate(self) -> RidgeEstimate:
        """theta_{k,h}, Gram matrices and their log-determinants, from the episodes so far."""
        return self._estimator.estimate

    @property
    def radii(self) -> FloatArray | None:
        """beta of each layer 0..H-2 as in force: scaled, and enlarged where the set was empty.

        None in the first episode, whose set holds all kernels.
        """
        if self.episodes_seen == 0:
            return None
        return self._enlargement * self._radii_of(self.estimate, self.episodes_seen + 1)

    def _radii_of(self, estimate: RidgeEstimate, k: int) -> FloatArray:
        return self.radius_scale * np.array(self._radii(estimate, k))

    # -------------------------------------------------------------------------- persistence

    def _estimator_tree(self) -> dict[str, Any]:
        return self._estimator.sums.tree()

    def _estimator_from(self, tree: dict[str, Any]) -> Regression:
        sums = checked_sums(self._sums_class, tree, self._layers.horizon, self._problem.dim)
        return self._with_estimate(sums, self.episodes_seen + 1)

    def _with_estimate(self, sums: RidgeSums, k: int) -> Regression:
        return Regression(sums, sums.estimate(self._regularisation(k)))


Sums = TypeVar("Sums", bound=RidgeSums)


def checked_sums(kind: type[Sums], tree: dict[str, Any], horizon: int, dim: int) -> Sums:
    """Sums of a regression out of a file, or ValueError where they cannot be those of any history."""
    sums = kind(
        float_array(tree["moments"], "moments", ValueError), float_array(tree["targets"], "targets", ValueError)
    )
    expected = kind.empty(horizon, dim)
    for name in ("moments", "targets"):
        array = getattr(sums, name)
        if array.shape != getattr(expected, name).shape or not np.isfinite(array).all():
            raise ValueError(f"{name} of shape {array.shape}: wrong shape, or entries that are not finite")
    if not np.array_equal(sums.moments, sums.moments.transpose(0, 2, 1)):
        raise ValueError("moments are not symmetric")
    if sums.moments.size and np.linalg.eigvalsh(sums.moments).min() < -1e-9 * max(1.0, np.abs(sums.moments).max()):
        raise ValueError("moments have a negative eigenvalue")
    return sums
