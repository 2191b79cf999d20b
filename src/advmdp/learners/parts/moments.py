"""Regressions of values that are weighted by estimated variances: of values and their squares, or of many powers.

All are of values V_k of the played policy under the losses of the episode, optimistic with what was known before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log, log2, sqrt
from typing import Any, NamedTuple

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import radii
from advmdp.confidence.estimators import RidgeEstimate, RidgeSums, ValueTargets
from advmdp.confidence.regression import checked_sums
from advmdp.confidence.values import OptimisticValues, Targets, largest_feature
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel


class TwoTargets(NamedTuple):
    """The weighted regression of V, that of V^2, and how many episodes they are of."""

    sums: ValueTargets
    estimate: RidgeEstimate
    squares: Targets
    version: int = 0
    shared: bool = False


@dataclass(frozen=True)
class WeightedValues:
    """The regression of POWERS: V_k on phi_V, weighted by the variance that one of V_k^2 estimates.

    With thetahat, Gramhat from the weighted regression of V_k and thetatilde, Gramtilde from the one of V_k^2, from
    earlier episodes, at each visited pair:

    1. variance = clip(<phi_{V^2}, thetatilde>, 0, H^2) - clip(<phi_V, thetahat>, 0, H)^2;
    2. error = min(H^2, betatilde |phi_{V^2}|_{Gramtilde^-1}) + min(H^2, 2 H betacheck |phi_V|_{Gramhat^-1});
    3. sigma^2 = max(H^2 / d, variance + error);
    4. Gramhat += phi_V phi_V' / sigma^2, bhat += phi_V V_k(s') / sigma^2; the same for V_k^2 without weights.
    """

    model: LinearMixtureModel
    regularisation: float
    zeta: float

    @cached_property
    def values(self) -> OptimisticValues:
        """Q_k, and the targets."""
        return OptimisticValues(self.model, self.regularisation)

    @cached_property
    def _largest_feature(self) -> float:
        return largest_feature(self.model)

    def empty(self) -> TwoTargets:
        """Before the first episode."""
        nothing = self.values.empty()
        return TwoTargets(nothing.sums, nothing.estimate, nothing)

    def _bernstein(self, k: int, deviation: float, largest: float, length: float) -> float:
        """A radius of Zhou, Gu and Szepesvari (2021), for regressors of length at most ``length`` max |phi_V|."""
        model = self.model
        return radii.self_normalised_bernstein(
            k + 1, model.horizon, model.dim, self.regularisation, self.zeta, model.bound,
            deviation=deviation, largest=largest, length=length * self._largest_feature,
        )  # fmt: skip

    def radii(self, k: int) -> list[float]:
        """betahat of layers 0..H-2 after k episodes: divided by sigma >= H / sqrt(d), the variance is at most 1, and
        noise and length are at most sqrt(d)."""
        root = sqrt(self.model.dim)
        return [self._bernstein(k, 1.0, root, root)] * (self.model.horizon - 1)

    def optimistic(self, data: TwoTargets, scale: float, losses: FloatArray, policy: FloatArray) -> FloatArray:
        """Q_k, flat, with a factor on betahat."""
        beta = scale * np.array(self.radii(data.version))
        return self.values(Targets(data.sums, data.estimate), beta, losses, policy)

    def with_values(
        self, data: TwoTargets, states: IntArray, actions: IntArray, policy: FloatArray, values: FloatArray
    ) -> TwoTargets:
        """With one more episode, and Q_k."""
        dim, horizon, k = self.model.dim, self.model.horizon, data.version
        root, square = sqrt(dim), float(horizon**2)
        betacheck = self._bernstein(k, root, root, root)  # no variance known: d in place of 1
        betatilde = self._bernstein(k, square, square, square)

        phi, targets = self.values.targets(states, actions, policy, values)
        phi_square, square_targets = self.values.targets(states, actions, policy, values, power=2)
        mean, width = data.estimate.predict(phi)
        mean_square, width_square = data.squares.estimate.predict(phi_square)

        variance = mean_square.clip(0.0, square) - mean.clip(0.0, horizon) ** 2
        error = np.minimum(square, betatilde * width_square) + np.minimum(square, 2.0 * horizon * betacheck * width)
        weights = 1.0 / np.maximum(square / dim, variance + error)
        weighted = self.values.add(Targets(data.sums, data.estimate), phi, targets, weights)
        squares = self.values.add(data.squares, phi_square, square_targets)
        return TwoTargets(weighted.sums, weighted.estimate, squares, k + 1)

    def add(self, data: TwoTargets, states: IntArray, actions: IntArray, logged: bool = False) -> TwoTargets:
        """Transitions without losses teach it nothing."""
        return data

    def tree(self, data: TwoTargets) -> dict[str, Any]:
        """For a checkpoint."""
        return {"sums": data.sums.tree(), "square_sums": data.squares.sums.tree(), "episodes": data.version}

    def restore(self, tree: dict[str, Any]) -> TwoTargets:
        """The inverse of :meth:`tree`, or ValueError."""
        weighted, squares = self.values.restore(tree["sums"]), self.values.restore(tree["square_sums"])
        return TwoTargets(*weighted, squares, integer(tree["episodes"], "episodes", 0, ValueError))


class MomentTargets(NamedTuple):
    """The sums of the regressions of V^(2^m), m = 0, ..., M - 1, for each layer or for all together."""

    moments: FloatArray  # (layers or 1, M, d, d)
    targets: FloatArray  # (layers or 1, M, d)
    #: Of each, in that order: arrays of shape (layers M, ...).
    levels: RidgeEstimate
    #: Of V itself.
    estimate: RidgeEstimate
    #: Whether one regression is for all layers.
    shared: bool
    version: int = 0


@dataclass(frozen=True)
class HigherMoments:
    """The regression of HF-O2PS: V_k, in units of H and so in [0, 1], weighted by variances and by what is uncertain.

    There is one for each power V^(2^m), m = 0, ..., M - 1, since the variance of V^(2^m) is the mean of V^(2^(m+1))
    less a square.  At each visited pair, with x_m = phi_{V^(2^m)}, theta_m and Gram_m from earlier episodes, and Now_m,
    which is Gram_m with the earlier steps of this one:

    1. variance_m = clip(<x_{m+1}, theta_{m+1}>, 0, 1) - clip(<x_m, theta_m>, 0, 1)^2;
    2. error_m = min(1, 2 beta |x_m|_{Gram_m^-1}) + min(1, beta |x_{m+1}|_{Gram_{m+1}^-1});
    3. sigma_m^2 = max(variance_m + error_m, alpha^2, gamma^2 |x_m|_{Now_m^-1}), for m = M - 1 with 1 for the sum;
    4. Now_m += x_m x_m' / sigma_m^2, b_m += x_m V(s')^(2^m) / sigma_m^2.

    Where the model says that weights are the same in every layer there is one regression, in units of the weights.
    """

    model: LinearMixtureModel
    episodes: int
    zeta: float

    @cached_property
    def scales(self) -> FloatArray:
        """Features times these are in units of the parameter that is regressed."""
        kept = self.model.horizon - 1
        return np.array(self.model.scales[:-1]) if self.model.shared else np.ones(kept)

    @cached_property
    def bound(self) -> float:
        """On the norm of that parameter."""
        model = self.model
        if not model.shared:
            return model.bound
        return 1.0 if model.simplex else model.bound / min(model.scales[:-1], default=1.0)

    @property
    def regularisation(self) -> float:
        """lambda = 1 / B^2."""
        return self.bound**-2

    @property
    def count(self) -> int:
        """M = 1 + ceil(log_2(7 K H)), recalled: V^(2^M) is then small or V near one."""
        return 1 + ceil(log2(7.0 * self.episodes * self.model.horizon))

    @property
    def alpha(self) -> float:
        """Least sigma, sqrt(d / (K H))."""
        return sqrt(self.model.dim / (self.episodes * self.model.horizon))

    @property
    def gamma(self) -> float:
        """d^(-1/4): how much uncertainty weighs."""
        return float(self.model.dim**-0.25)

    @cached_property
    def values(self) -> OptimisticValues:
        """Q_k, and the targets."""
        return OptimisticValues(self.model, self.regularisation)

    @cached_property
    def _length(self) -> float:
        return largest_feature(self.model) * float(self.scales.max(initial=0.0))

    def radius(self, k: int) -> float:
        """beta after k episodes, as recalled of Zhou and Gu (2022), of regressors of length at most L:

        B sqrt(lambda) + 12 sqrt(d log(1 + n L^2 / (alpha^2 d lambda)) iota) + 30 iota / gamma^2, n = (k + 1) H and
        iota = log(32 (1 + log(gamma^2 / alpha)) n^2 M / zeta), zeta shared by the M levels (and by the layers).
        """
        d, n, lam = self.model.dim, (k + 1) * self.model.horizon, self.regularisation
        each = self.zeta / (self.count * (1 if self.model.shared else max(1, self.model.horizon - 1)))
        confidence = log(32.0 * (1.0 + max(0.0, log(self.gamma**2 / self.alpha))) * n * n / each)
        growth = d * log(1.0 + n * self._length**2 / (self.alpha**2 * d * lam))
        return self.bound * sqrt(lam) + 12.0 * sqrt(growth * confidence) + 30.0 * confidence / self.gamma**2

    def radii(self, k: int) -> list[float]:
        """The same for every regression."""
        return [self.radius(k)] * (1 if self.model.shared else self.model.horizon - 1)

    def empty(self) -> MomentTargets:
        """Before the first episode."""
        regressions, d = 1 if self.model.shared else self.model.horizon - 1, self.model.dim
        shape = (regressions, self.count, d)
        return self._estimated(np.zeros((*shape, d)), np.zeros(shape), 0)

    def _estimated(self, moments: FloatArray, targets: FloatArray, version: int) -> MomentTargets:
        d = self.model.dim
        levels = RidgeSums(moments.reshape(-1, d, d), targets.reshape(-1, d)).estimate(self.regularisation)
        step = self.count
        first = RidgeEstimate(levels.centres[::step], levels.grams[::step], levels.log_determinants[::step])
        return MomentTargets(moments, targets, levels, first, self.model.shared, version)

    def optimistic(self, data: MomentTargets, scale: float, losses: FloatArray, policy: FloatArray) -> FloatArray:
        """Q_k, flat, in units of the losses, with a factor on beta."""
        kept, d, scales = self.model.horizon - 1, self.model.dim, self.scales[:, None]
        first = data.estimate
        centres = scales * np.broadcast_to(first.centres, (kept, d))
        grams = np.broadcast_to(first.grams, (kept, d, d)) / scales[:, :, None] ** 2
        estimate = RidgeEstimate(centres, grams, np.broadcast_to(first.log_determinants, kept))
        beta = np.full(kept, scale * self.radius(data.version))
        return self.values(Targets(ValueTargets.empty(kept + 1, d), estimate), beta, losses, policy)

    def with_values(
        self, data: MomentTargets, states: IntArray, actions: IntArray, policy: FloatArray, values: FloatArray
    ) -> MomentTargets:
        """With one more episode, and Q_k."""
        d, horizon, M, beta = self.model.dim, self.model.horizon, self.count, self.radius(data.version)
        pairs = [self.values.targets(states, actions, policy, values / horizon, power=2**m) for m in range(M)]
        phi = np.stack([regressors for regressors, _ in pairs], axis=1) * self.scales[:, None, None]  # (H - 1, M, d)
        targets = np.stack([target for _, target in pairs], axis=1)
        centres, inverses = data.levels.centres.reshape(-1, M, d), data.levels.inverse_grams.reshape(-1, M, d, d)
        moments, sums = data.moments.copy(), data.targets.copy()
        for h, (x, y) in enumerate(zip(phi, targets, strict=True)):
            at = 0 if data.shared else h
            mean = np.einsum("mi,mi->m", x, centres[at]).clip(0.0, 1.0)
            now = np.linalg.inv(self._grams(moments[at])).astype(np.float64, copy=False)
            width, uncertain = lengths(x, inverses[at]), lengths(x, now)
            square = np.ones(M)  # of the highest power nothing is known
            square[:-1] = mean[1:] - mean[:-1] ** 2
            square[:-1] += np.minimum(1.0, 2.0 * beta * width[:-1]) + np.minimum(1.0, beta * width[1:])
            square = np.maximum(square, np.maximum(self.alpha**2, self.gamma**2 * uncertain))
            rows = x / np.sqrt(square)[:, None]
            moments[at] += rows[:, :, None] * rows[:, None, :]
            sums[at] += rows * (y / np.sqrt(square))[:, None]
        return self._estimated(moments, sums, data.version + 1)

    def _grams(self, moments: FloatArray) -> FloatArray:
        grams: FloatArray = moments + self.regularisation * np.eye(self.model.dim)
        return grams

    def add(self, data: MomentTargets, states: IntArray, actions: IntArray, logged: bool = False) -> MomentTargets:
        """Transitions without losses teach it nothing."""
        return data

    def tree(self, data: MomentTargets) -> dict[str, Any]:
        """For a checkpoint."""
        return {"moments": data.moments, "targets": data.targets, "episodes": data.version}

    def restore(self, tree: dict[str, Any]) -> MomentTargets:
        """The inverse of :meth:`tree`, or ValueError."""
        shape, d = self.empty().targets.shape, self.model.dim
        arrays = {name: float_array(tree[name], name, ValueError) for name in ("moments", "targets")}
        if arrays["moments"].shape != (*shape, d) or arrays["targets"].shape != shape:
            raise ValueError(f"moments or targets are not those of regressions of shape {shape}")
        flat = {"moments": arrays["moments"].reshape(-1, d, d), "targets": arrays["targets"].reshape(-1, d)}
        checked_sums(RidgeSums, flat, shape[0] * shape[1] + 1, d)
        return self._estimated(
            arrays["moments"].copy(), arrays["targets"].copy(), integer(tree["episodes"], "episodes", 0, ValueError)
        )


def lengths(x: FloatArray, inverses: FloatArray) -> FloatArray:
    """|x_m| in each inverse Gram matrix."""
    squares = np.einsum("mi,mij,mj->m", x, inverses, x)
    found: FloatArray = np.sqrt(np.maximum(squares, 0.0))
    return found
