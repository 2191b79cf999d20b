"""Linear mixtures: ridge regression of theta_h, and the sets of kernels around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import radii
from advmdp.confidence.base import ConfidenceSet
from advmdp.confidence.box import BoxSet
from advmdp.confidence.ellipsoid import EllipsoidSet
from advmdp.confidence.estimators import AllNextStates, OneNextState, RidgeEstimate, RidgeSums, SharedNextStates
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel
from advmdp.layered.rows import like, values_of

Geometry = Literal["ellipsoid", "box"]
Radius = Literal["paper", "paper-uniform", "determinant", "joint", "likelihood"]


#: Radii of layers 0..H-2 from an estimate and the number of the episode, from 1.
Beta = Callable[[Any, int], list[float]]


class Regression(NamedTuple):
    """Sums over past episodes, the estimate that they give, and how many episodes they are of."""

    sums: AllNextStates | SharedNextStates | OneNextState
    estimate: RidgeEstimate
    version: int = 0

    @property
    def shared(self) -> bool:
        """Whether the estimate is one of the weights, for all layers."""
        return isinstance(self.sums, SharedNextStates)


@dataclass(frozen=True)
class RidgeRegression:
    """theta_h = (sum phi phi' + lambda_k I)^-1 sum phi 1{next state}, layer by layer.

    ``targets`` says which next states are regressed on: all of them (``AllNextStates``, the paper's equations 5 and 6)
    one imaginary one per step (``OneNextState``, LSUOB-REPS), or all of them in one regression for all layers
    (``SharedNextStates``).  ``regularisation(k)`` is lambda of episode k >= 1.
    """

    model: LinearMixtureModel
    targets: type[AllNextStates] | type[SharedNextStates] | type[OneNextState]
    regularisation: Callable[[int], float]

    def empty(self) -> Regression:
        """Before the first episode."""
        sums = self.targets.empty(self.model.horizon, self.model.dim)
        return Regression(sums, sums.estimate(self.regularisation(1)))

    def add(self, data: Regression, states: IntArray, actions: IntArray, logged: bool = False) -> Regression:
        """With one more episode."""
        sums = data.sums.add(self.model, states, actions, data.estimate)
        return self._estimated(sums, data.version + 1)

    def _estimated(self, sums: Any, episodes: int) -> Regression:
        return Regression(sums, sums.estimate(self.regularisation(episodes + 1)), episodes)

    def tree(self, data: Regression) -> dict[str, Any]:
        """For a checkpoint."""
        return {**data.sums.tree(), "episodes": data.version}

    def restore(self, tree: dict[str, Any]) -> Regression:
        """The inverse of :meth:`tree`, or ValueError."""
        sums = checked_sums(self.targets, tree, self.model.horizon, self.model.dim)
        return self._estimated(sums, integer(tree["episodes"], "episodes", 0, ValueError))


class MixtureSets:
    """|theta - theta_h|_Gram <= beta, rows that are distributions, theta free per pair.

    The paper's set shares one theta_h among all pairs of a layer, which makes both optimisation steps non-convex
    (and the proof incomplete); these supersets of it keep the theorem, see ``docs/relaxed-sets.md``.

    Parameters
    ----------
    model
        Features and bound.
    beta
        ``beta(estimate, k)``: the radii of layers 0..H-2 in episode k.
    geometry
        ``"ellipsoid"``, or ``"box"``: entries in [c - w, c + w], c = <phi, theta_h> and w = beta |phi|_{Gram^-1}.
    simplex
        Whether theta is also held in the simplex of weights (ellipsoids).
    scale
        Factor on the radii.
    """

    def __init__(
        self,
        model: LinearMixtureModel,
        beta: Beta,
        geometry: Geometry = "ellipsoid",
        simplex: bool = False,
        scale: float = 1.0,
    ) -> None:
        if simplex and (geometry == "box" or not model.simplex):
            raise InvalidSpecError(
                "simplex=True needs geometry 'ellipsoid' and a model whose parameters are mixture weights"
            )
        self.model, self.beta, self.geometry, self.scale = model, beta, geometry, scale
        # The terminal layer has a place, and a parameter that nobody needs.
        horizon, dim = model.horizon, model.dim
        self._last_centre, self._last_gram = np.zeros((1, dim)), np.eye(dim)[None]
        nowhere, unit = [np.zeros(dim)] * horizon, [np.eye(dim)] * horizon
        self._ellipsoids = EllipsoidSet(model.features, nowhere, unit, 0.0, simplex)

    def radii(self, data: Any) -> FloatArray:
        """beta of layers 0..H-2, scaled."""
        return self.scale * np.array(self.beta(data.estimate, data.version + 1))

    def __call__(self, data: Any) -> ConfidenceSet:
        """The kernels that the data leaves possible."""
        estimate, radii = data.estimate, self.radii(data)
        centres, grams = estimate.centres, estimate.grams
        if data.shared:
            # theta_h = c_h w, so that |w - w_k|_Lambda is |theta_h - c_h w_k| in the norm of Lambda / c_h^2.
            scales = np.array(self.model.scales[:-1])
            centres, grams = scales[:, None] * centres, grams / (scales**2)[:, None, None]
            radii = np.broadcast_to(radii, scales.shape)
        if self.geometry == "ellipsoid":
            return self._ellipsoids.with_estimate(
                np.concatenate((centres, self._last_centre)),
                np.concatenate((grams, self._last_gram)),
                np.append(radii, 0.0),
            )
        lower, upper = [], []
        for h, radius in enumerate(radii):
            features = self.model.features[h]
            values = values_of(features)
            rows = values.reshape(-1, values.shape[-1])
            scaled = rows @ np.linalg.inv(np.linalg.cholesky(grams[h])).T
            width = radius * np.sqrt(np.einsum("rd,rd->r", scaled, scaled)).reshape(values.shape[:-1])
            centre = values @ centres[h]
            lower.append(like(features, centre - width))
            upper.append(like(features, centre + width))
        last = np.ones((self.model.layer_sizes[-2], self.model.n_actions, 1))
        return BoxSet([*lower, last], [*upper, last])


def shared_radius(model: LinearMixtureModel, zeta: float) -> Beta:
    """The joint radius of one regression for all layers: no union over them, and |w| <= 1 for mixture weights."""
    bound = 1.0 if model.simplex else model.bound / min(model.scales[:-1], default=1.0)

    def beta(estimate: RidgeEstimate, k: int) -> list[float]:
        return [radii.joint(value, 1, model.dim, 1.0, zeta, bound) for value in estimate.log_determinants.tolist()]

    return beta


def vector_radius(kind: Radius, model: LinearMixtureModel, lam: Callable[[int], float], zeta: float) -> Beta:
    """The radii of regression on all next states: see :mod:`advmdp.confidence.radii`."""
    S, H, d, B = model.layers.counted.states, model.horizon, model.dim, model.bound

    def beta(estimate: RidgeEstimate, k: int) -> list[float]:
        if kind in ("paper", "paper-uniform"):
            form = radii.paper if kind == "paper" else radii.paper_uniform
            return [form(k, S, H, d, lam(k), zeta, B)] * (H - 1)
        values = estimate.log_determinants.tolist()
        if kind == "determinant":
            return [radii.determinant(value, H, d, lam(k), zeta, B) for value in values]
        # The failure probability is shared by the H - 1 layers that are regressed.
        return [radii.joint(value, max(1, H - 1), d, lam(k), zeta, B) for value in values]

    return beta


def scalar_radius(model: LinearMixtureModel, lam: float, zeta: float) -> Beta:
    """The radii of regression on one next state per step."""
    layers, d, B = max(1, model.horizon - 1), model.dim, model.bound

    def beta(estimate: RidgeEstimate, k: int) -> list[float]:
        return [radii.scalar(value, layers, d, lam, zeta, B) for value in estimate.log_determinants.tolist()]

    return beta


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


def joint_regression(
    model: LinearMixtureModel,
    geometry: Geometry = "ellipsoid",
    zeta: float = 0.05,
    scale: float = 1.0,
    shared: bool = False,
) -> tuple[RidgeRegression, MixtureSets]:
    """The estimator and the sets of ``vlsuob-reps-tight``: joint radius, lambda = 1, the simplex where there is one."""
    beta = shared_radius(model, zeta) if shared else vector_radius("joint", model, lambda k: 1.0, zeta)
    targets = SharedNextStates if shared else AllNextStates
    simplex = geometry == "ellipsoid" and model.simplex
    return RidgeRegression(model, targets, lambda k: 1.0), MixtureSets(model, beta, geometry, simplex, scale)


def require_shared(model: LinearMixtureModel) -> None:
    """Raise InvalidSpecError unless the model says that the weights are the same in every layer."""
    if not model.shared:
        raise InvalidSpecError("shared=True needs a model that says so, such as from_kernels(..., shared=True)")
