"""Confidence sets of mixture weights from ratios of likelihoods: statements and proofs in ``docs/likelihood-sets.md``.

The weights that explain the transitions not much worse than a forecaster did, who knew each one only afterwards.  The
ellipsoid around them has the form that the solvers of ridge regression's ellipsoids take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import lgamma, log
from typing import Any, NamedTuple, Self

import numpy as np

from advmdp._checks import float_array, integer
from advmdp._compiled import kernel
from advmdp.confidence.likelihood import MAX_STEPS, MixtureWeights, fit, vector_of
from advmdp.confidence.regression import Geometry, MixtureSets
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel, Rows

#: Imaginary transitions per base kernel that keep the forecaster's weights inside the simplex.
PRIOR = 0.5
#: How far its weights may be from the best, in nats: any will do, as long as they are from the past.
FORECAST_TOLERANCE = 0.01
#: A multiple of the unit matrix makes the ellipsoid's matrix regular; it adds this share to the squared radius.
REGULAR = 0.01
#: Times that the bounds on single transitions are renewed; a third time brings 1 percent at most.
ROUNDS = 2


def dirichlet_regret(n: float, dim: int) -> float:
    """What the Dirichlet(1/2) mixture of all weights loses, at most, against the best ones: nats after n transitions.

    log[Gamma(n + d/2) Gamma(1/2) / (Gamma(n + 1/2) Gamma(d/2))]: attained where one kernel explains everything and the
    others nothing (Cover and Ordentlich 1996 bound it by (d - 1)/2 log(n + 1) + log 2).
    """
    return lgamma(n + 0.5 * dim) - lgamma(n + 0.5) + lgamma(0.5) - lgamma(0.5 * dim)


class LikelihoodEstimate(NamedTuple):
    """Ellipsoids |theta - centre|_gram <= radius, one per layer 0..H-2 (one of the weights where they are shared)."""

    centres: FloatArray
    grams: FloatArray
    radii: FloatArray
    #: Log of an e-value against the model: how much better the forecaster was than any weights, at least.
    evidence: FloatArray


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Transitions, the weights that explain them best, and how well a forecaster foresaw them."""

    likeliest: MixtureWeights
    #: The weights of the next forecast, a row per group of layers.
    forecaster: FloatArray
    #: Log-probability that the forecaster gave to the transitions of each group.
    log_forecast: FloatArray
    #: log(number of groups / zeta).
    confidence: float
    #: What the weights of each group are multiplied by in the estimate: theta_h / w, or 1 where all layers share w.
    units: FloatArray
    shared: bool
    version: int = 0

    def add(self, states: IntArray, actions: IntArray) -> Self:
        """With one more episode: states and actions of shape (H,)."""
        layers, rows = self.likeliest.layers, self.likeliest.rows
        likeliest = self.likeliest.add(states, actions)
        log_forecast, forecaster = self.log_forecast.copy(), self.forecaster.copy()
        foresee(
            rows.rows, rows.numbers, rows.groups, layers.size_array, layers.n_actions, states, actions, rows.vectors,
            forecaster, log_forecast,
        )  # fmt: skip
        gaps, counts = np.empty(len(forecaster)), likeliest.counts
        fit(rows.vectors, rows.groups, likeliest.seen, counts, PRIOR, FORECAST_TOLERANCE, MAX_STEPS, forecaster, gaps)
        return replace(
            self, likeliest=likeliest, forecaster=forecaster, log_forecast=log_forecast, version=self.version + 1
        )

    @property
    def refuted(self) -> bool:
        """Whether no weights of some group are likely enough: an event of probability zeta if some are right.

        The set is then one around the likeliest.
        """
        return bool((self.estimate.evidence > self.confidence).any())

    @cached_property
    def estimate(self) -> LikelihoodEstimate:
        """The ellipsoids that contain all weights whose likelihood is large enough."""
        found, weights = self.likeliest, self.likeliest.weights
        groups, dim = weights.shape
        log_likelihood, totals = np.empty(groups), np.empty(groups)
        data = found.rows.vectors, found.rows.groups, found.seen, found.counts, weights
        likelihoods(*data, log_likelihood, totals)
        worst = np.array([dirichlet_regret(n, dim) for n in totals.tolist()])
        # The mean of two forecasters is one: of that whose forecasts were added up, and of the mixture of all weights,
        # of which a bound is known.
        regret = log(2.0) - np.logaddexp(self.log_forecast - log_likelihood, -worst)
        thresholds = np.maximum(regret, 0.0) + found.gaps + self.confidence
        grams, radii = np.empty((groups, dim, dim)), np.empty(groups)
        outer_ellipsoids(*data, thresholds, found.gaps, grams, radii)
        units = self.units[:, None]
        return LikelihoodEstimate(units * weights, grams / units[:, :, None] ** 2, radii, -regret - found.gaps)


@dataclass(frozen=True)
class LikelihoodRatio:
    """The estimator: see :class:`Likelihood`.  ``zeta`` is the probability that a set ever misses the truth."""

    model: LinearMixtureModel
    zeta: float = 0.05
    shared: bool = False

    def __post_init__(self) -> None:
        if not self.model.simplex:
            raise InvalidSpecError(
                "likelihood-ratio sets need a model whose parameters are mixture weights, such as from_kernels(...)"
            )

    def empty(self) -> Likelihood:
        """Before the first episode."""
        model = self.model
        likeliest = MixtureWeights.empty(model, shared=self.shared, prior=0.0)
        groups = len(likeliest.weights)
        # Features are base kernels divided by a number per layer; the kernels sum to one over next states.
        sums = np.array([table[0, 0][:, 0].sum() for table in model.features[:-1]])
        if self.shared:
            sums = np.append(model.scales[:-1] * sums, 1.0)[:1]
        confidence = log(max(1, groups) / self.zeta)
        return Likelihood(likeliest, likeliest.weights, np.zeros(groups), confidence, 1.0 / sums, self.shared)

    def add(self, data: Likelihood, states: IntArray, actions: IntArray, logged: bool = False) -> Likelihood:
        """With one more episode."""
        return data.add(states, actions)

    def tree(self, data: Likelihood) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            **data.likeliest.tree(), "forecaster": data.forecaster, "log_forecast": data.log_forecast,
            "episodes": data.version,
        }  # fmt: skip

    def restore(self, tree: dict[str, Any]) -> Likelihood:
        """The inverse of :meth:`tree`, or ValueError."""
        empty = self.empty()
        forecaster = float_array(tree["forecaster"], "forecaster", ValueError)
        log_forecast = float_array(tree["log_forecast"], "log_forecast", ValueError)
        if forecaster.shape != empty.forecaster.shape or not (
            (forecaster > 0.0).all() and (np.abs(forecaster.sum(axis=1) - 1.0) <= 1e-9).all()
        ):
            raise ValueError(f"forecaster should be {empty.forecaster.shape} numbers > 0, rows summing to one")
        if log_forecast.shape != empty.log_forecast.shape or not (
            np.isfinite(log_forecast).all() and (log_forecast <= 1e-6).all()
        ):
            raise ValueError(f"log_forecast should be {empty.log_forecast.shape} logarithms of probabilities")
        likeliest, episodes = empty.likeliest.from_tree(tree), integer(tree["episodes"], "episodes", 0, ValueError)
        if likeliest.counts.sum() + likeliest.unexplained != episodes * (self.model.horizon - 1):
            raise ValueError(f"counts do not add up to the transitions of {episodes} episodes")
        return replace(
            empty, likeliest=likeliest, forecaster=np.array(forecaster), log_forecast=np.array(log_forecast),
            version=episodes,
        )  # fmt: skip


def likelihood_ratio(
    model: LinearMixtureModel,
    geometry: Geometry = "ellipsoid",
    zeta: float = 0.05,
    scale: float = 1.0,
    shared: bool = False,
    simplex: bool | None = None,
) -> tuple[LikelihoodRatio, MixtureSets]:
    """Estimator and sets, with the arguments of ``joint_regression``; ``simplex`` None: with ellipsoids."""

    def beta(estimate: LikelihoodEstimate, k: int) -> list[float]:
        return estimate.radii.tolist()  # type: ignore[no-any-return]

    held = geometry == "ellipsoid" if simplex is None else simplex
    return LikelihoodRatio(model, zeta, shared), MixtureSets(model, beta, geometry, held, scale)


# ------------------------------------------------------------------------------------ compiled loops


@kernel
def foresee(
    rows: Rows,
    numbers: IntArray,
    groups: IntArray,
    sizes: IntArray,
    n_actions: int,
    states: IntArray,
    actions: IntArray,
    vectors: FloatArray,
    weights: FloatArray,
    log_forecast: FloatArray,
) -> None:
    """log_forecast += log <a, w> for the transitions of an episode, but for those that no mixture explains."""
    for h in range(sizes.size - 2):
        number = vector_of(rows, numbers, groups, sizes, n_actions, states, actions, h)
        if number >= 0:
            group = min(h, weights.shape[0] - 1)
            p = 0.0
            for j in range(weights.shape[1]):
                p += vectors[number, j] * weights[group, j]
            log_forecast[group] += np.log(p)


@kernel
def likelihoods(
    vectors: FloatArray,
    groups: IntArray,
    seen: IntArray,
    counts: FloatArray,
    weights: FloatArray,
    log_likelihood: FloatArray,
    totals: FloatArray,
) -> None:
    """sum_i log <a_i, w> of every group, and its number of transitions."""
    i = 0
    for group in range(groups.size - 1):
        log_likelihood[group] = 0.0
        totals[group] = 0.0
        while i < seen.size and seen[i] < groups[group + 1]:
            p = 0.0
            for j in range(weights.shape[1]):
                p += vectors[seen[i], j] * weights[group, j]
            log_likelihood[group] += counts[i] * np.log(p)
            totals[group] += counts[i]
            i += 1


@kernel
def outer_ellipsoids(
    vectors: FloatArray,
    groups: IntArray,
    seen: IntArray,
    counts: FloatArray,
    weights: FloatArray,
    thresholds: FloatArray,
    gaps: FloatArray,
    grams: FloatArray,
    radii: FloatArray,
) -> None:
    """An ellipsoid around {w on the simplex: L(w) >= L(w^) + gap - B} for every group, B its threshold.

    With p_i = <a_i, w^> and t_i = <a_i, w - w^> / p_i, sum_i [t_i - log(1 + t_i)] + sum_j s_j w_j <= B there, s_j >= 0
    what weight j costs per unit.  Since t - log(1 + t) >= t^2 / (2 + 4 T / 3) for t <= T, T >= 0, bounds T_i on t_i
    make an ellipsoid of that, and the ellipsoid bounds the t_i anew: every round is valid.
    """
    dim = weights.shape[1]
    factor, solved, slack = np.empty((dim, dim)), np.empty(dim), np.empty(dim)
    begin = 0
    for group in range(groups.size - 1):
        end = begin
        while end < seen.size and seen[end] < groups[group + 1]:
            end += 1
        w, gram, threshold = weights[group], grams[group], thresholds[group]
        # a_i / p_i, N_i and T_i.
        rows, numbers, largest = np.empty((end - begin, dim)), counts[begin:end], np.empty(end - begin)
        total, length, least = 0.0, 0.0, np.inf
        for j in range(dim):
            slack[j] = 0.0
            length += w[j] * w[j]
            least = min(least, w[j])
        for i in range(numbers.size):
            p, top = 0.0, 0.0
            for j in range(dim):
                p += vectors[seen[begin + i], j] * w[j]
            total += numbers[i]
            for j in range(dim):
                rows[i, j] = vectors[seen[begin + i], j] / p
                slack[j] -= numbers[i] * rows[i, j]
                top = max(top, rows[i, j])
            # One transition alone: N [t - log(1 + t)] <= B; and at a vertex of the simplex t is largest.
            share = threshold / numbers[i]
            alone = 2.0 * share / 3.0 + np.sqrt(4.0 * share * share / 9.0 + 2.0 * share)
            largest[i] = max(0.0, min(alone, top - 1.0))
        # Over the squared distance of w^ from the farthest vertex, which is 1/2 or more but for one kernel.
        ridge = 2.0 * REGULAR * threshold / max(0.5, 1.0 - 2.0 * least + length)
        radius = np.sqrt(2.0 * (1.0 + REGULAR) * threshold)
        for turn in range(ROUNDS + 1):
            for j in range(dim):
                for l in range(dim):  # noqa: E741
                    gram[j, l] = 0.0
                gram[j, j] = ridge
                # s w_j <= B and w_j <= 1 make s w_j at least s max(1, s / B) w_j^2.
                cost = max(0.0, slack[j] + total + gaps[group])
                if w[j] == 0.0:
                    gram[j, j] += 2.0 * cost * max(1.0, cost / threshold)
            for i in range(numbers.size):
                weight = numbers[i] / (1.0 + 2.0 * largest[i] / 3.0)
                for j in range(dim):
                    for l in range(j + 1):  # noqa: E741
                        gram[j, l] += weight * rows[i, j] * rows[i, l]
            for j in range(dim):
                for l in range(j):  # noqa: E741
                    gram[l, j] = gram[j, l]
            if turn == ROUNDS:
                break
            for j in range(dim):
                for l in range(j + 1):  # noqa: E741
                    entry = gram[j, l]
                    for m in range(l):
                        entry -= factor[j, m] * factor[l, m]
                    if l < j:
                        factor[j, l] = entry / factor[l, l]
                    else:
                        factor[j, j] = np.sqrt(max(entry, ridge))
            for i in range(numbers.size):
                square = 0.0
                for j in range(dim):
                    entry = rows[i, j]
                    for l in range(j):  # noqa: E741
                        entry -= factor[j, l] * solved[l]
                    solved[j] = entry / factor[j, j]
                    square += solved[j] * solved[j]
                largest[i] = min(largest[i], radius * np.sqrt(square))
        radii[group] = radius
        begin = end
