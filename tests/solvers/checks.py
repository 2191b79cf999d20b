"""Judge a mirror step by routes that share nothing with the solver: flow, membership, and its own gap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, linprog

from advmdp.confidence import BoxSet, ConfidenceSet, KnownKernels, L1Set
from advmdp.solvers import MirrorStep
from advmdp.solvers.occupancy_bounds import extreme_rows
from tests.solvers.instances import Instance

RowMinimum = Callable[[ConfidenceSet, int, np.ndarray], np.ndarray]


def flow_error(step: MirrorStep, confidence_set: ConfidenceSet) -> float:
    """Largest violation of: the first state has mass one, and q is the occupancy of its kernels."""
    inflow = np.ones(1)
    worst = 0.0
    for h in range(confidence_set.horizon):
        worst = max(worst, float(np.abs(step.q[h].sum(axis=1) - inflow).max()), float(-step.q[h].min()))
        inflow = np.einsum("sa,sat->t", step.q[h], step.kernels[h])
    return max(worst, abs(float(inflow[0]) - 1.0))


def recomputed_gap(
    instance: Instance,
    step: MirrorStep,
    *,
    triples: bool = False,
    row_minimum: RowMinimum | None = None,
) -> tuple[float, float]:
    """(gap, error of the reported value): primal minus a dual value with prices read off q, in plain numpy.

    At the optimum V(s) = log(q / previous) + cost + m(s, a) for every action; the mean over actions gives
    prices of the returned q. Any prices give a lower bound, so a small difference proves the step.
    """
    confidence_set = instance.confidence_set
    horizon = confidence_set.horizon
    minimum = row_minimum or smallest_means
    price = np.zeros(1)
    primal = dual = 0.0
    for h in range(horizon - 1, -1, -1):
        reached = confidence_set.reachable[h]
        previous, cost = instance.log_q[h], instance.step_size * instance.loss[h]
        if h == horizon - 1:
            least = np.zeros(previous.shape)
        elif triples:
            least = smallest_divergences(confidence_set, h, price, instance.kernels[h])
        else:
            least = minimum(confidence_set, h, price)
        log_q, q = step.log_q[h][reached], step.q[h][reached]
        ratio = log_q - previous[reached] + cost[reached]
        top = log_q.max(axis=1, keepdims=True)
        share = np.exp(log_q - top)
        share /= share.sum(axis=1, keepdims=True)
        price = np.zeros(len(reached))
        price[reached] = (share * (ratio + least[reached])).sum(axis=1)
        exponent = (previous - cost - least)[reached] + price[reached][:, None]
        # A pair of an unreachable state has q = 0; the divergence still counts its previous mass.
        primal += float((q * ratio).sum() + np.exp(previous).sum() - q.sum())
        if triples:
            primal += float((q * row_divergences(step.kernels[h], instance.kernels[h])[reached]).sum())
        with np.errstate(over="ignore"):
            dual += float(np.exp(previous).sum() - np.exp(exponent).sum())
    dual += float(price[0])
    return primal - dual, abs(primal - step.value)


def row_divergences(kernel: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """KL(kernel || prior) per pair, the prior floored as the solver documents."""
    log_prior = np.log(np.maximum(prior, 1e-300))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(kernel > 0.0, kernel * (np.log(kernel) - log_prior), 0.0)
    return terms.sum(axis=2)


def smallest_means(confidence_set: ConfidenceSet, layer: int, values: np.ndarray) -> np.ndarray:
    """min p.values per pair, by the compiled row problems (which have their own tests)."""
    return extreme_rows(confidence_set, layer, values, maximise=False)


def smallest_means_by_linear_programme(confidence_set: ConfidenceSet, layer: int, values: np.ndarray) -> np.ndarray:
    """min p.values per pair over box or l1 rows, by HiGHS."""
    size, n_actions = confidence_set.layer_sizes[layer], confidence_set.n_actions
    means = np.zeros((size, n_actions))
    m = len(values)
    for s in range(size):
        for a in range(n_actions):
            if isinstance(confidence_set, BoxSet):
                bounds = list(zip(confidence_set.lower[layer][s, a], confidence_set.upper[layer][s, a],
                                  strict=True))  # fmt: skip
                found = linprog(values, A_eq=np.ones((1, m)), b_eq=[1.0], bounds=bounds)
            elif isinstance(confidence_set, L1Set):
                centre, radius = confidence_set.centres[layer][s, a], confidence_set.radii[layer][s, a]
                away = np.block([[np.eye(m), -np.eye(m)], [-np.eye(m), -np.eye(m)]])
                found = linprog(
                    np.concatenate([values, np.zeros(m)]),
                    A_ub=np.vstack([away, np.concatenate([np.zeros(m), np.ones(m)])]),
                    b_ub=np.concatenate([centre, -centre, [radius]]),
                    A_eq=[np.concatenate([np.ones(m), np.zeros(m)])], b_eq=[1.0],
                )  # fmt: skip
            else:
                raise TypeError(type(confidence_set).__name__)
            means[s, a] = found.fun
    return means


def smallest_divergences(
    confidence_set: ConfidenceSet, layer: int, values: np.ndarray, prior: np.ndarray
) -> np.ndarray:
    """min p.values + KL(p || prior) per pair, by bisection on the multipliers."""
    z = np.log(np.maximum(prior, 1e-300)) - values
    if isinstance(confidence_set, KnownKernels):
        return row_divergences(confidence_set.kernels[layer], prior) + confidence_set.kernels[layer] @ values
    least = np.zeros(z.shape[:2])
    for s in range(z.shape[0]):
        for a in range(z.shape[1]):
            if isinstance(confidence_set, BoxSet):
                low, high = confidence_set.lower[layer][s, a], confidence_set.upper[layer][s, a]
                high = np.where(confidence_set.reachable[layer + 1], high, 0.0)
                p = _box_minimiser(z[s, a], low, np.maximum(low, high))
            else:
                assert isinstance(confidence_set, L1Set)
                p = _ball_minimiser(
                    z[s, a], confidence_set.centres[layer][s, a], float(confidence_set.radii[layer][s, a])
                )
            positive = p > 0.0
            least[s, a] = (p[positive] * (np.log(p[positive]) - z[s, a][positive])).sum()
    return least


def _box_minimiser(z: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """clip(exp(c + z), low, high) with the c that makes it sum to one."""

    def row(c: float) -> np.ndarray:
        return np.clip(np.exp(np.minimum(c + z, 1.0)), low, high)

    left, right = -2000.0 - z.max(), 2000.0 - z.min()
    if row(left).sum() >= 1.0 - 1e-15 or row(right).sum() <= 1.0 + 1e-15:
        return low if row(left).sum() >= 1.0 - 1e-15 else high
    return row(brentq(lambda c: row(c).sum() - 1.0, left, right, xtol=1e-14, rtol=1e-15, maxiter=500))


def _ball_minimiser(z: np.ndarray, centre: np.ndarray, radius: float) -> np.ndarray:
    """The centre moved into [exp(c - mu + z), exp(c + mu + z)]; mu from the radius, c from the sum."""

    def row(mu: float) -> np.ndarray:
        def moved(c: float) -> np.ndarray:
            low = np.exp(np.minimum(c - mu + z, 1.0))
            high = np.exp(np.minimum(c + mu + z, 1.0))
            return np.clip(centre, low, high)

        left, right = -z.max() - 2.0 * mu - 800.0, -z.min() + 2.0 * mu + 800.0
        c = brentq(lambda c: moved(c).sum() - 1.0, left, right, xtol=1e-14, rtol=1e-15, maxiter=500)
        return moved(c)

    if radius == 0.0:
        return centre
    if np.abs(row(0.0) - centre).sum() <= radius:
        return row(0.0)
    top = 2000.0
    return row(brentq(lambda mu: np.abs(row(mu) - centre).sum() - radius, 0.0, top, xtol=1e-13, maxiter=500))
