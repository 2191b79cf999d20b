"""Judge a mirror step by routes that share nothing with the solver: flow, membership, and its own gap."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import cvxpy
import numpy as np
import scipy.sparse as sparse
from scipy.linalg import solve_triangular
from scipy.optimize import brentq, linprog

from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.solvers import MirrorStep
from advmdp.solvers.occupancy_bounds import extreme_rows
from tests.solvers import reference
from tests.solvers.instances import Instance

RowMinimum = Callable[[ConfidenceSet, int, np.ndarray], np.ndarray]
LayerMinimum = Callable[[int, np.ndarray], np.ndarray]

# A gap that prices read off q leave above this is worth the time of a conic solver.
COARSE = 1e-9
ROUNDS = 3
FLOOR = -40.0


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
    """(gap, error of the reported value): primal minus a dual value, in plain numpy.

    Any prices give a lower bound of the minimum, so a small difference proves the step.  The first prices are read off
    q.  Where hardly any mass goes they are as coarse as that mass, and the dual has kinks there: if they prove too
    little, a conic solver looks for better ones.
    """
    least = _row_minima(instance, triples, row_minimum)
    primal = primal_value(instance, step, triples=triples)
    prices = prices_read_off(instance, step, least)
    gap = primal - dual_value(instance, prices, least)
    for _ in range(0 if triples else ROUNDS):
        if gap <= COARSE:
            break
        prices = improved_prices(instance, prices, least)
        gap = min(gap, primal - dual_value(instance, prices, least))
    return gap, abs(primal - step.value)


def _row_minima(instance: Instance, triples: bool, row_minimum: RowMinimum | None) -> LayerMinimum:
    """The smallest cost of going on from each pair of a layer, given the prices of the next."""
    confidence_set = instance.confidence_set
    minimum = row_minimum or smallest_means

    @lru_cache
    def minima(layer: int, values: bytes) -> np.ndarray:
        if triples:
            return smallest_divergences(confidence_set, layer, np.frombuffer(values), instance.kernels[layer])
        return minimum(confidence_set, layer, np.frombuffer(values))

    def least(layer: int, values: np.ndarray) -> np.ndarray:
        last = layer == confidence_set.horizon - 1
        return np.zeros(instance.log_q[layer].shape) if last else minima(layer, values.tobytes())

    return least


def primal_value(instance: Instance, step: MirrorStep, *, triples: bool = False) -> float:
    """step <q, loss> + KL(q || previous).  A pair of an unreachable state has q = 0; its previous mass counts."""
    total = 0.0
    for h, reached in enumerate(instance.confidence_set.reachable[:-1]):
        q, previous = step.q[h][reached], instance.log_q[h]
        ratio = step.log_q[h][reached] - previous[reached] + instance.step_size * instance.loss[h][reached]
        total += float((q * ratio).sum() + np.exp(previous).sum() - q.sum())
        if triples:
            total += float((q * row_divergences(step.kernels[h], instance.kernels[h])[reached]).sum())
    return total


def prices_read_off(instance: Instance, step: MirrorStep, least: LayerMinimum) -> list[np.ndarray]:
    """At the optimum V(s) = log(q / previous) + cost + m(s, a) for every action; the mean over the policy of q."""
    prices = [np.zeros(1)]
    for h in range(instance.confidence_set.horizon - 1, -1, -1):
        reached = instance.confidence_set.reachable[h]
        log_q = step.log_q[h][reached]
        ahead = (instance.step_size * instance.loss[h] - instance.log_q[h] + least(h, prices[0]))[reached]
        share = np.exp(log_q - log_q.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        price = np.zeros(len(reached))
        price[reached] = (share * (log_q + ahead)).sum(axis=1)
        prices.insert(0, price)
    return prices


def dual_value(instance: Instance, prices: list[np.ndarray], least: LayerMinimum) -> float:
    """V(first state) + sum of previous (1 - exp(V(s) - cost - m(s, a))): no occupancy measure costs less."""
    total = float(prices[0][0])
    for h, exponent in enumerate(_log_dual_masses(instance, prices, least)):
        with np.errstate(over="ignore"):
            total += float(np.exp(instance.log_q[h]).sum() - np.exp(exponent).sum())
    return total


def _log_dual_masses(instance: Instance, prices: list[np.ndarray], least: LayerMinimum) -> list[np.ndarray]:
    """log previous + V(s) - cost - m(s, a) of the reachable states of each layer."""
    tables = []
    for h, reached in enumerate(instance.confidence_set.reachable[:-1]):
        ahead = instance.step_size * instance.loss[h] + least(h, prices[h + 1])
        tables.append((instance.log_q[h] + prices[h][:, None] - ahead)[reached])
    return tables


def improved_prices(instance: Instance, prices: list[np.ndarray], least: LayerMinimum) -> list[np.ndarray]:
    """Maximise the dual over changes x of the prices, by Clarabel; what it finds is only ever used as prices.

    With e the logarithms of the dual masses and y a lower bound of the change of m, what counts is x(first state) -
    sum exp(e + x(s) - y).  Masses below exp(FLOOR) are taken to be that: they cost nothing either way.
    """
    confidence_set = instance.confidence_set
    reachable = confidence_set.reachable
    changes = [cvxpy.Variable(size) for size in confidence_set.layer_sizes]
    constraints = [
        change[~reached] == 0.0 for change, reached in zip(changes, reachable, strict=True) if not all(reached)
    ]
    constraints.append(changes[-1] == 0.0)
    objective = changes[0][0]
    for h, masses in enumerate(_log_dual_masses(instance, prices, least)):
        here = np.flatnonzero(reachable[h])
        state = np.repeat(here, confidence_set.n_actions)
        exponent = np.maximum(masses.ravel(), FLOOR) + changes[h][state]
        if h < confidence_set.horizon - 1:
            there = reachable[h + 1]
            known = least(h, prices[h + 1])[here].ravel()
            # Measured from the old minimum of its pair: the differences are small where the prices are good.
            moved = (prices[h + 1][there] - known[:, None]) + _rows_of(changes[h + 1][there], len(state))
            exponent -= _lower_bounds(confidence_set, h, moved)
        objective -= cvxpy.sum(cvxpy.exp(exponent))
    problem = cvxpy.Problem(cvxpy.Maximize(objective), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # often 'inaccurate': nothing relies on its word
        try:
            problem.solve(solver=cvxpy.CLARABEL, **reference.SETTINGS)
        except cvxpy.SolverError:
            return prices
    if changes[0].value is None:
        return prices
    return [price + change.value for price, change in zip(prices, changes, strict=True)]


def _rows_of(vector: Any, count: int) -> Any:
    return cvxpy.reshape(vector, (1, vector.size), order="C") + np.zeros((count, vector.size))


def _lower_bounds(confidence_set: ConfidenceSet, layer: int, values: Any) -> Any:
    """Lower bounds, sharp if maximised, of min P.values_b over the rows of each pair b of a reachable state.

    With kappa for the sum of a row and mu >= 0 for its signs, r = values - kappa - mu: the bound is kappa plus
    sum(lower r+ - upper r-) over a box, centre.r - radius max |r| over a ball in the l1 norm, centre.g - radius
    |g|_inverse Gram with g = Phi'r over an ellipsoid.
    """
    here, there = confidence_set.reachable[layer], confidence_set.reachable[layer + 1]
    blocks, m = values.shape

    def kept(table: np.ndarray) -> np.ndarray:
        return table[here][:, :, there].reshape(blocks, m, *table.shape[3:])

    if isinstance(confidence_set, KnownKernels):
        return cvxpy.sum(cvxpy.multiply(kept(confidence_set.kernels[layer]), values), axis=1)
    kappa = cvxpy.Variable((blocks, 1))
    rest = values - kappa @ np.ones((1, m))
    if isinstance(confidence_set, BoxSet):
        low, high = np.maximum(kept(confidence_set.lower[layer]), 0.0), kept(confidence_set.upper[layer])
        return kappa[:, 0] + cvxpy.sum(cvxpy.multiply(low, rest) - cvxpy.multiply(high - low, cvxpy.neg(rest)), axis=1)
    if isinstance(confidence_set, L1Set):
        rest -= cvxpy.Variable((blocks, m), nonneg=True)
        radii = confidence_set.radii[layer][here].ravel()
        centred = cvxpy.sum(cvxpy.multiply(kept(confidence_set.centres[layer]), rest), axis=1)
        return kappa[:, 0] + centred - cvxpy.multiply(radii, cvxpy.max(cvxpy.abs(rest), axis=1))
    assert isinstance(confidence_set, EllipsoidSet)
    dim = confidence_set.dim
    if not confidence_set.simplex:
        rest -= cvxpy.Variable((blocks, m), nonneg=True)
    transposed = sparse.block_diag([phi.T for phi in kept(confidence_set.features[layer])], format="csr")
    slope = cvxpy.reshape(transposed @ cvxpy.vec(rest, order="C"), (blocks, dim), order="C")
    if confidence_set.simplex:
        slope -= cvxpy.Variable((blocks, dim), nonneg=True)
    factor = np.linalg.cholesky(confidence_set.grams[layer])
    spread = float(confidence_set.radius[layer]) * solve_triangular(factor, np.eye(dim), lower=True).T
    return kappa[:, 0] + slope @ confidence_set.centres[layer] - cvxpy.norm(slope @ spread, axis=1)


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
