"""The two optimisation steps as textbook conic programmes: the oracle of tests and benchmarks.

Slow and independent: nothing here is shared with the solvers it judges. Blocks (s, a) are numbered in
the order of the tables, and w[b, t] = q_b P_b(t) are the triples.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy
import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set

Table = NDArray[np.float64]

SETTINGS = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11, "max_iter": 200}


@dataclass(frozen=True)
class ReferenceStep:
    """What the conic solver found; ``solve_time`` (seconds) is Clarabel's own, without modelling."""

    value: float
    q: list[Table]
    kernels: list[Table]
    solve_time: float
    status: str


def mirror_step(
    confidence_set: ConfidenceSet,
    q: Sequence[Table],
    loss: Sequence[Table],
    step_size: float,
    *,
    kernels: Sequence[Table] | None = None,
    conditional: bool = False,
    settings: dict[str, float] | None = None,
) -> ReferenceStep:
    """min step <q', loss> + KL(q' || q), over pairs or, given the previous ``kernels``, over triples.

    With ``conditional`` the divergence is sum q' ln(pi'/pi), pi the policy of q.
    """
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    horizon = confidence_set.horizon
    constraints: list[Any] = []
    objective: Any = 0.0 if conditional else sum(float(layer.sum()) for layer in q) - horizon
    occupancies, triples = [], []
    inflow: Any = np.ones(1)
    for h in range(horizon):
        reached = np.repeat(confidence_set.reachable[h], n_actions)
        mass = cvxpy.Variable(sizes[h] * n_actions, nonneg=True)
        w, rows = _rows(confidence_set, h, mass)
        constraints += rows
        constraints += [cvxpy.reshape(mass, (sizes[h], n_actions), order="C").sum(axis=1) == inflow]
        cost = step_size * loss[h].ravel()
        if conditional:
            # q' ln(q' / (pi sum_a q')) is jointly convex; pi goes into the linear term: no tiny cone data.
            policy = (q[h] / q[h].sum(axis=1, keepdims=True)).ravel()
            allowed = np.flatnonzero(reached & (policy > 0.0))
            forbidden = np.flatnonzero(reached & (policy == 0.0))
            states = np.kron(np.eye(sizes[h]), np.ones((n_actions, n_actions))) @ mass
            objective += (cost[allowed] - np.log(policy[allowed])) @ mass[allowed]
            objective += cvxpy.sum(cvxpy.rel_entr(mass[allowed], states[allowed]))
            if len(forbidden):
                constraints.append(mass[forbidden] == 0.0)
        elif kernels is None or h == horizon - 1:
            # sum q log(q / previous) with the constant inside the linear term: no tiny cone data.
            objective += (cost - np.log(q[h].ravel()))[reached] @ mass[reached]
            objective -= cvxpy.sum(cvxpy.entr(mass[reached]))
        else:
            divergence, rows = _triple_divergence(confidence_set, h, mass, w, q[h], kernels[h])
            objective += cost @ mass + divergence
            constraints += rows
        occupancies.append(mass)
        triples.append(w)
        inflow = cvxpy.sum(w, axis=0)
        unreached = np.flatnonzero(~confidence_set.reachable[h + 1])
        if len(unreached):
            constraints.append(inflow[unreached] == 0.0)
    problem = cvxpy.Problem(cvxpy.Minimize(objective), constraints)
    solve_time = _solve(problem, settings)
    return ReferenceStep(
        value=float(problem.value),
        q=[mass.value.reshape(sizes[h], n_actions) for h, mass in enumerate(occupancies)],
        kernels=[_normalised(w.value).reshape(sizes[h], n_actions, sizes[h + 1]) for h, w in enumerate(triples)],
        solve_time=solve_time,
        status=problem.status,
    )


def mirror_step_pair_by_pair(
    confidence_set: ConfidenceSet,
    q: Sequence[Table],
    loss: Sequence[Table],
    step_size: float,
    *,
    settings: dict[str, float] | None = None,
) -> ReferenceStep:
    """The step over pairs once more, written down as the formulas stand: a variable per layer and pair, a constraint
    per pair and state.  It shares no line of modelling with :func:`mirror_step`; most of its time is CVXPY's."""
    horizon, n_actions = confidence_set.horizon, confidence_set.n_actions
    sizes = confidence_set.layer_sizes
    objective: Any = 0.0
    constraints: list[Any] = []
    occupancies = []
    inflow: list[Any] = [1.0]
    kernels: list[list[list[Any]]] = []
    for h in range(horizon):
        occupancy = cvxpy.Variable((sizes[h], n_actions), nonneg=True)
        occupancies.append(occupancy)
        objective += step_size * cvxpy.sum(cvxpy.multiply(loss[h], occupancy))
        objective += cvxpy.sum(cvxpy.kl_div(occupancy, q[h]))
        arriving: list[Any] = [0.0] * sizes[h + 1]
        flows: list[list[Any]] = []
        for s in range(sizes[h]):
            constraints.append(cvxpy.sum(occupancy[s, :]) == inflow[s])
            flows.append([])
            for a in range(n_actions):
                if not confidence_set.reachable[h][s]:
                    constraints.append(occupancy[s, a] == 0.0)
                    flows[s].append(np.zeros(sizes[h + 1]))
                    continue
                flow, rows = _flow_of_pair(confidence_set, h, s, a, occupancy[s, a])
                flows[s].append(flow)
                constraints += rows
                for t in range(sizes[h + 1]):
                    arriving[t] = arriving[t] + flow[t]
        kernels.append(flows)
        inflow = arriving
    problem = cvxpy.Problem(cvxpy.Minimize(objective), constraints)
    solve_time = _solve(problem, settings)
    found = []
    for h, flows in enumerate(kernels):
        values = [[flow if isinstance(flow, np.ndarray) else flow.value for flow in row] for row in flows]
        table = np.array(values).reshape(sizes[h] * n_actions, sizes[h + 1])
        found.append(_normalised(table).reshape(sizes[h], n_actions, sizes[h + 1]))
    return ReferenceStep(
        value=float(problem.value),
        q=[np.asarray(occupancy.value) for occupancy in occupancies],
        kernels=found,
        solve_time=solve_time,
        status=problem.status,
    )


def _flow_of_pair(confidence_set: ConfidenceSet, h: int, s: int, a: int, mass: Any) -> tuple[Any, list[Any]]:
    """q(s, a) P(. | s, a) as an expression in variables of its own, and the constraints on them."""
    size = confidence_set.layer_sizes[h + 1]
    if h == confidence_set.horizon - 1:
        return mass * np.ones(1), []
    if isinstance(confidence_set, KnownKernels):
        return mass * confidence_set.kernels[h][s, a], []
    if isinstance(confidence_set, BoxSet):
        flow = cvxpy.Variable(size, nonneg=True)
        low, high = confidence_set.lower[h][s, a], confidence_set.upper[h][s, a]
        return flow, [flow >= mass * low, flow <= mass * high, cvxpy.sum(flow) == mass]
    if isinstance(confidence_set, EllipsoidSet):
        theta = cvxpy.Variable(confidence_set.dim)  # the parameter times the mass
        root = np.linalg.cholesky(confidence_set.grams[h]).T
        flow = confidence_set.features[h][s, a] @ theta
        distance = cvxpy.norm(root @ (theta - mass * confidence_set.centres[h]))
        rows = [distance <= float(confidence_set.radius[h]) * mass, flow >= 0.0, cvxpy.sum(flow) == mass]
        return flow, [*rows, theta >= 0.0] if confidence_set.simplex else rows
    raise TypeError(f"no reference for {type(confidence_set).__name__}")


def extreme_rows(confidence_set: ConfidenceSet, layer: int, values: Table, *, maximise: bool = True) -> Table:
    """Largest (smallest) mean of ``values`` on the next layer over each row set; shape (S_h, A)."""
    if isinstance(confidence_set, KnownKernels):
        return np.asarray(confidence_set.kernels[layer] @ values)
    size, n_actions = confidence_set.layer_sizes[layer], confidence_set.n_actions
    w, constraints = _rows(confidence_set, layer, np.ones(size * n_actions))
    means = w @ values
    goal = cvxpy.Maximize(cvxpy.sum(means)) if maximise else cvxpy.Minimize(cvxpy.sum(means))
    _solve(cvxpy.Problem(goal, constraints), None)
    return np.asarray(means.value).reshape(size, n_actions)


def occupancy_bound(
    confidence_set: ConfidenceSet,
    policy: Sequence[Table],
    layer: int,
    state: int,
    *,
    maximise: bool = True,
) -> float:
    """Largest (smallest) probability of visiting a state, by dynamic programming over conic rows."""
    values = np.zeros(confidence_set.layer_sizes[layer])
    values[state] = 1.0
    for h in range(layer - 1, -1, -1):
        rows = extreme_rows(confidence_set, h, values, maximise=maximise)
        values = (policy[h] * rows).sum(axis=1)
    return float(values[0])


def _solve(problem: Any, settings: dict[str, float] | None) -> float:
    chosen = SETTINGS if settings is None else settings
    with warnings.catch_warnings():
        # Asked for more than double precision gives, Clarabel often stops at 'almost': see status.
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver=cvxpy.CLARABEL, **chosen)
    if problem.value is None or not np.isfinite(problem.value):
        raise RuntimeError(f"the reference solver ended with status {problem.status}")
    return float(problem.solver_stats.solve_time)


def _rows(confidence_set: ConfidenceSet, h: int, mass: Any) -> tuple[Any, list[Any]]:
    """Triples w (blocks, S_{h+1}) and the constraints that say w[b] lies in mass[b] * row set."""
    size = confidence_set.layer_sizes[h + 1]
    blocks = confidence_set.layer_sizes[h] * confidence_set.n_actions
    if h == confidence_set.horizon - 1:
        return cvxpy.reshape(mass, (blocks, 1), order="C"), []
    column = cvxpy.reshape(mass, (blocks, 1), order="C")
    if isinstance(confidence_set, KnownKernels):
        return cvxpy.multiply(confidence_set.kernels[h].reshape(blocks, size), column), []
    if isinstance(confidence_set, EllipsoidSet):
        return _ellipsoid_rows(confidence_set, h, mass)
    w = cvxpy.Variable((blocks, size), nonneg=True)
    constraints = [cvxpy.sum(w, axis=1) == mass]
    if isinstance(confidence_set, BoxSet):
        low = confidence_set.lower[h].reshape(blocks, size)
        high = confidence_set.upper[h].reshape(blocks, size)
        constraints += [w >= cvxpy.multiply(low, column), w <= cvxpy.multiply(high, column)]
    elif isinstance(confidence_set, L1Set):
        centre = confidence_set.centres[h].reshape(blocks, size)
        away = cvxpy.Variable((blocks, size))
        offset = w - cvxpy.multiply(centre, column)
        constraints += [away >= offset, away >= -offset]
        constraints.append(cvxpy.sum(away, axis=1) <= cvxpy.multiply(confidence_set.radii[h].ravel(), mass))
    else:
        raise TypeError(f"no reference for {type(confidence_set).__name__}")
    return w, constraints


def _triple_divergence(
    confidence_set: ConfidenceSet, h: int, mass: Any, w: Any, q: Table, kernel: Table
) -> tuple[Any, list[Any]]:
    """sum w log(w / (q kernel)); an entry with equal bounds is a multiple of its mass and needs no cone."""
    size = confidence_set.layer_sizes[h + 1]
    prior = kernel.reshape(-1, size) * q.reshape(-1, 1)
    kept = np.repeat(confidence_set.reachable[h], confidence_set.n_actions)[:, None]
    low, high = np.zeros_like(prior), np.ones_like(prior)
    if isinstance(confidence_set, BoxSet):
        low, high = (bound[h].reshape(-1, size) for bound in (confidence_set.lower, confidence_set.upper))
    elif isinstance(confidence_set, KnownKernels):
        low = high = confidence_set.kernels[h].reshape(-1, size)
    fixed = kept & (high <= low)
    positive = fixed & (low > 0.0)
    share = np.where(positive, low, 0.0)
    linear = np.zeros_like(prior)
    linear[positive] = low[positive] * np.log(low[positive] / prior[positive])
    divergence = linear.sum(axis=1) @ mass - share.sum(axis=1) @ cvxpy.entr(mass)
    moving = kept & ~fixed & (prior > 0.0) & confidence_set.reachable[h + 1]
    forbidden = kept & ~fixed & ~moving
    vector = cvxpy.reshape(w, w.size, order="C")
    if moving.any():
        inner = vector[np.flatnonzero(moving)]
        divergence += -np.log(prior[moving]) @ inner - cvxpy.sum(cvxpy.entr(inner))
    return divergence, [vector[np.flatnonzero(forbidden)] == 0.0] if forbidden.any() else []


def _ellipsoid_rows(confidence_set: EllipsoidSet, h: int, mass: Any) -> tuple[Any, list[Any]]:
    """theta = centre + radius L^{-T} x with |x| <= 1, times the mass: a second-order cone per block."""
    dim, size = confidence_set.dim, confidence_set.layer_sizes[h + 1]
    blocks = confidence_set.layer_sizes[h] * confidence_set.n_actions
    phi = confidence_set.features[h].reshape(blocks, size, dim)
    centre, radius = confidence_set.centres[h], float(confidence_set.radius[h])
    factor = np.linalg.cholesky(confidence_set.grams[h])
    whitened = radius * solve_triangular(factor, phi.reshape(-1, dim).T, lower=True).T
    whitened = whitened.reshape(blocks, size, dim)
    kept = np.flatnonzero(np.repeat(confidence_set.reachable[h], confidence_set.n_actions))
    x = cvxpy.Variable((dim, blocks))
    moved = sparse.block_diag(list(whitened), format="csr") @ cvxpy.reshape(x, dim * blocks, order="F")
    column = cvxpy.reshape(mass, (blocks, 1), order="C")
    w = cvxpy.multiply(phi @ centre, column) + cvxpy.reshape(moved, (blocks, size), order="C")
    # Pairs of unreachable states may have no valid row: they carry no mass and no condition.
    lost = np.setdiff1d(np.arange(blocks), kept)
    if len(lost):
        keep = np.zeros((blocks, 1))
        keep[kept] = 1.0
        w = cvxpy.multiply(keep, w)
    constraints = [
        cvxpy.SOC(mass[kept], x[:, kept], axis=0),
        w[kept] >= 0.0,
        cvxpy.sum(w[kept], axis=1) == mass[kept],
    ]
    if confidence_set.simplex:
        spread = radius * solve_triangular(factor, np.eye(dim), lower=True).T
        theta = cvxpy.multiply(centre[:, None], cvxpy.reshape(mass, (1, blocks), order="C"))
        constraints.append((theta + spread @ x)[:, kept] >= 0.0)
    return w, constraints


def _normalised(w: Table) -> Table:
    """Rows of conditional probabilities; a row without mass becomes uniform."""
    w = np.maximum(w, 0.0)
    totals = w.sum(axis=1, keepdims=True)
    return np.where(totals > 0.0, w / np.where(totals > 0.0, totals, 1.0), 1.0 / w.shape[1])
