"""The mirror step whose entropy is over triples (s, a, s'): Newton's method on a smooth dual.

The divergence of triple measures splits into that of the pairs and that of the rows,

    KL(q', P' || q, P) = sum_b q'_b log(q'_b / q_b) - q'_b + q_b  +  sum_b q'_b KL(P'_b || P_b),

so with a price V(s) per state (flow conservation; zero at the terminal state) the dual is

    D(V) = V(s_0) + sum_b q_b - q*_b,    log q*_b = log q_b - cost_b + V(s) - m_b(V),
    m_b(V) = min over the row set of  p.V + KL(p || P_b).

m_b is smooth: its minimiser is P_b(t) exp(-V(t)) times one constant per group of entries that share a
multiplier (for boxes the entries strictly between their bounds; for l1 balls those above and those below
the centre), the other entries being fixed. All masses are kept as logarithms.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._compiled import kernel
from advmdp.confidence import BoxSet, ConfidenceSet, KnownKernels, L1Set
from advmdp.confidence.base import ROUNDING
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.solvers import tridiagonal
from advmdp.solvers.entropic_rows import Groups, box_row, l1_row
from advmdp.solvers.layout import Layout, copy_into, make_layout, view2
from advmdp.solvers.problem import FlatTables, Tables, require_step
from advmdp.solvers.step import LARGEST_RESIDUAL, SPACES, MirrorStep, checked_warm, required

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KNOWN, BOX, L1 = range(3)
# The prior of an entry that the set allows is at least this: a zero there would never become positive.
LEAST_LOG_PRIOR = np.log(1e-300)
# Flow is balanced when inflow and outflow of each state agree to this relative accuracy.
BALANCE = 1e-11
# Masses below this (a state that is hardly ever reached) take no part in Newton's system.
NEGLIGIBLE = 1e-280
ITERATIONS = 1000
LONGEST_STEP = 10.0
SWEEPS = 200
SETTLED = 1e-9


class _Problem(NamedTuple):
    """Flat data over layers: per state, per block s * A + a, per entry (block, next state)."""

    kind: int
    sizes: Integers  # S_0 .. S_H
    n_actions: int
    log_q: Floats  # blocks
    cost: Floats  # blocks
    log_prior: Floats  # entries
    low: Floats  # entries: lower bounds, centres, or the kernel
    high: Floats  # entries: upper bounds; unused by the others
    log_low: Floats
    log_high: Floats
    radii: Floats  # blocks; l1 balls only
    reachable: NDArray[np.bool_]  # states


class _Point(NamedTuple):
    """What the dual is made of at one V."""

    price: Floats  # states, terminal one included
    log_dual: Floats  # blocks: log q*
    least: Floats  # blocks: m_b(V)
    p: Floats  # entries: the minimising rows
    log_p: Floats
    group: Groups  # entries: 0 fixed, 1 or 2 sharing a multiplier


class _Memory(NamedTuple):
    """Working memory of one shape."""

    flow: Floats  # states: inflow, then the scaled gradient
    outflow: Floats
    log_mass: Floats
    scale: Floats
    step: Floats  # states without the terminal one
    start: Floats
    diag: Floats
    off: Floats
    rows: Floats
    group_rows: Floats
    z: Floats
    q: Floats  # blocks: exp(log q*), then the certified answer
    log_q: Floats


class _Space:
    """Everything that steps of one shape share; results are copied out of it."""

    def __init__(self, sizes: tuple[int, ...], n_actions: int) -> None:
        nothing = [0] * (len(sizes) - 1)
        self.layout, lengths = make_layout(sizes, n_actions, nothing, nothing)
        states, blocks = sum(sizes), lengths.block
        entries_of = [n * n_actions * m for n, m in itertools.pairwise(sizes)]
        entries, most = sum(entries_of), max(entries_of)
        self.point = _Point(
            np.zeros(states), np.zeros(blocks), np.zeros(blocks), np.zeros(entries),
            np.zeros(entries), np.zeros(entries, dtype=np.int8),
        )  # fmt: skip
        self.memory = _Memory(
            np.zeros(states), np.zeros(states), np.zeros(states), np.zeros(states), np.zeros(states - 1),
            np.zeros(states), np.zeros(lengths.diag), np.zeros(lengths.off), np.zeros(most),
            np.zeros(2 * most), np.zeros(max(sizes)), np.zeros(blocks), np.zeros(blocks),
        )  # fmt: skip


def _flat_tables(name: str, tables: Tables, shapes: list[tuple[int, ...]]) -> Floats:
    """Tables of all layers as one vector, their shapes checked; what is one flat vector already is taken as it is."""
    if isinstance(tables, np.ndarray) and tables.dtype == np.float64 and tables.shape == (sum(map(prod, shapes)),):
        return tables
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    found = [array.shape for array in arrays]
    if found != shapes:
        raise InvalidMDPError(f"{name} has tables of shapes {found}; this set needs {shapes}")
    return np.concatenate([array.ravel() for array in arrays])


def _problem(confidence_set: ConfidenceSet, log_q: Floats, cost: Floats, prior: Floats) -> _Problem:
    """The step in flat arrays; what the set excludes is marked by bounds of zero."""
    reachable = confidence_set.flat_reachable
    require_step(confidence_set, log_q, cost)
    none = np.empty(0)
    high, radii = none, none
    if isinstance(confidence_set, BoxSet):
        kind = BOX
        low = confidence_set.flat_lower
        high = confidence_set.flat_upper
        if not reachable.all():
            # No mass may go where the flow of a state is not accounted for.
            high = np.where(_leads_to_reachable(confidence_set), high, 0.0)
    elif isinstance(confidence_set, L1Set):
        kind = L1
        low = _flat_rows(confidence_set.centres)
        radii = _flat_rows(confidence_set.radii)
    elif isinstance(confidence_set, KnownKernels):
        kind = KNOWN
        low = _flat_rows(confidence_set.kernels)
    else:
        raise InvalidSpecError(
            f"the step with entropy='triples' has no solver for {type(confidence_set).__name__}; use "
            "a BoxSet, an L1Set or KnownKernels, or entropy='pairs'"
        )
    with np.errstate(divide="ignore"):
        log_prior = np.maximum(np.log(prior), LEAST_LOG_PRIOR)
        log_low = np.log(low)
        log_high = np.log(high)
    sizes = np.array(confidence_set.layer_sizes, dtype=np.int64)
    problem = _Problem(
        kind, sizes, confidence_set.n_actions, log_q, cost, log_prior, low, high, log_low, log_high,
        radii, reachable,
    )  # fmt: skip
    if kind == BOX and has_empty_box(problem):
        pairs = confidence_set.empty_pairs()
        raise InvalidMDPError(
            f"the confidence set has {len(pairs)} empty pairs, the first at layer {pairs[0][0]}, state "
            f"{pairs[0][1]}, action {pairs[0][2]}; a radius "
            f"{confidence_set.smallest_radius_multiple():.6g} times as large would leave none"
        )
    return problem


def _leads_to_reachable(confidence_set: ConfidenceSet) -> NDArray[np.bool_]:
    """Per entry: is its next state reachable?"""
    sizes, reached = confidence_set.layer_sizes, confidence_set.reachable
    return np.concatenate([np.tile(reached[h + 1], n * confidence_set.n_actions) for h, n in enumerate(sizes[:-1])])


def _flat_rows(tables: list[Floats]) -> Floats:
    return np.concatenate([table.ravel() for table in tables])


@kernel
def has_empty_box(problem: _Problem) -> bool:
    """Is there a reachable pair between whose bounds no distribution fits?"""
    sizes, n_actions = problem.sizes, problem.n_actions
    entry = 0
    state = 0
    for h in range(sizes.shape[0] - 1):
        m = sizes[h + 1]
        for s in range(sizes[h]):
            for _ in range(n_actions):
                least = 0.0
                most = 0.0
                crossed = False
                for t in range(m):
                    least += problem.low[entry + t]
                    most += problem.high[entry + t]
                    crossed = crossed or problem.low[entry + t] > problem.high[entry + t]
                entry += m
                empty = crossed or least > 1.0 + ROUNDING or most < 1.0 - ROUNDING
                if empty and problem.reachable[state + s]:
                    return True
        state += sizes[h]
    return False


@kernel
def evaluate(problem: _Problem, point: _Point, z: Floats) -> float:
    """Everything at ``point.price``, after adding to each layer the constant that is best for D.

    Adding x_h to the prices of layer h multiplies the masses of that layer by exp(x_h) and those of the
    layer before by exp(-x_h), so the best constants make every layer sum to one; then D(V) = V(s_0), which
    is returned.
    """
    sizes, n_actions = problem.sizes, problem.n_actions
    horizon = sizes.shape[0] - 1
    price = point.price
    block = problem.log_q.shape[0]
    entry = problem.log_prior.shape[0]
    state = price.shape[0] - 1
    shift = 0.0
    for h in range(horizon - 1, -1, -1):
        n = sizes[h]
        m = sizes[h + 1]
        block -= n * n_actions
        entry -= n * n_actions * m
        state -= n
        top = -np.inf
        for s in range(n):
            for a in range(n_actions):
                b = block + s * n_actions + a
                at = entry + (b - block) * m
                least = evaluate_row(problem, point, b, at, m, price[state + n :], z)
                point.least[b] = least
                point.log_dual[b] = -np.inf
                if problem.reachable[state + s]:
                    point.log_dual[b] = problem.log_q[b] - problem.cost[b] + price[state + s] - least
                    top = max(top, point.log_dual[b])
        total = 0.0
        for b in range(block, block + n * n_actions):
            total += np.exp(point.log_dual[b] - top)
        log_total = top + np.log(total)
        for b in range(block, block + n * n_actions):
            # Prices of the next layer have moved by `shift`, and m_b moves with them.
            point.least[b] += shift
            point.log_dual[b] -= log_total
        # In the next round the rows are evaluated at the old prices of this layer: move them last.
        if h < horizon - 1:
            for s in range(m):
                price[state + n + s] += shift
        shift -= log_total
    price[0] += shift
    return float(price[0])


@kernel
def evaluate_row(problem: _Problem, point: _Point, b: int, at: int, m: int, price: Floats, z: Floats) -> float:
    """m_b(V) for one block with entries from ``at``; fills its row."""
    p = point.p[at : at + m]
    log_p = point.log_p[at : at + m]
    group = point.group[at : at + m]
    low = problem.low[at : at + m]
    for t in range(m):
        z[t] = problem.log_prior[at + t] - price[t]
    if m == 1:
        p[0] = 1.0
        log_p[0] = 0.0
        group[0] = 0
        return float(price[0])
    if problem.kind == BOX:
        box_row(
            z[:m],
            low,
            problem.high[at : at + m],
            problem.log_low[at : at + m],
            problem.log_high[at : at + m],
            p,
            log_p,
            group,
        )
    elif problem.kind == L1:
        l1_row(z[:m], low, problem.log_low[at : at + m], problem.radii[b], p, log_p, group)
    least = 0.0
    for t in range(m):
        if p[t] > 0.0:
            least += p[t] * (log_p[t] - z[t])
    return least


@kernel
def balance(problem: _Problem, point: _Point, memory: _Memory) -> float:
    """The gradient D'(s) = inflow - outflow, divided by the scale of each state; the largest imbalance.

    ``scale`` = sqrt(max(outflow, inflow)): in the variables x(s) * scale(s) every entry of Newton's system is of
    order one, however small the mass of a state. Negligible states get the scale 0 and take no part.
    """
    sizes, n_actions = problem.sizes, problem.n_actions
    mass, flow, outflow, scale = memory.q, memory.flow, memory.outflow, memory.scale
    state = 0
    block = 0
    entry = 0
    flow[0] = 1.0
    for h in range(sizes.shape[0] - 1):
        n = sizes[h]
        m = sizes[h + 1]
        for t in range(m):
            flow[state + n + t] = 0.0
        for s in range(n):
            outflow[state + s] = 0.0
            for a in range(n_actions):
                b = block + s * n_actions + a
                at = entry + (b - block) * m
                mass[b] = np.exp(point.log_dual[b])
                outflow[state + s] += mass[b]
                for t in range(m):
                    flow[state + n + t] += mass[b] * point.p[at + t]
        block += n * n_actions
        entry += n * n_actions * m
        state += n
    imbalance = 0.0
    for s in range(state):
        larger = max(outflow[s], flow[s])
        if larger < NEGLIGIBLE:
            scale[s] = 0.0
            flow[s] = 0.0
        else:
            scale[s] = np.sqrt(larger)
            imbalance = max(imbalance, abs(flow[s] - outflow[s]) / larger)
            flow[s] = (flow[s] - outflow[s]) / scale[s]
    return imbalance


@kernel
def assemble(problem: _Problem, point: _Point, layout: Layout, memory: _Memory) -> None:
    """The matrix of Newton's system, -D''(V), in the scaled variables of :func:`balance`.

    With masses q = q*, rows p and groups g, a layer contributes to its own diagonal block, to that of the
    next layer, and to the coupling of the two

        diag(outflow),    sum_b q_b [p p' + sum_g (diag(p_g) - p_g p_g' / sum p_g)],    -sum_a q_b p.
    """
    sizes, n_actions = problem.sizes, problem.n_actions
    horizon = sizes.shape[0] - 1
    scale = memory.scale
    memory.diag[:] = 0.0
    memory.off[:] = 0.0
    state = 0
    block = 0
    entry = 0
    for h in range(horizon):
        n = sizes[h]
        m = sizes[h + 1]
        N = n * n_actions
        here = view2(memory.diag, layout.diag_at[h], n, n)
        for s in range(n):
            if scale[state + s] > 0.0:
                here[s, s] += memory.outflow[state + s] / scale[state + s] ** 2
            else:
                here[s, s] = 1.0  # a negligible state keeps its price
        if h == horizon - 1:
            break
        below = view2(memory.diag, layout.diag_at[h + 1], m, m)
        coupling = view2(memory.off, layout.off_at[h], n, m)
        full = view2(memory.rows, 0, m, N)  # sqrt(q) p, a column per block
        grouped = view2(memory.group_rows, 0, m, 2 * N)  # sqrt(q / sum p_g) p_g, a column per group
        n_grouped = 0
        for i in range(N):
            mass = memory.q[block + i]
            root = np.sqrt(mass)
            at = entry + i * m
            s = i // n_actions
            weight = mass / scale[state + s] if scale[state + s] > 0.0 else 0.0
            for t in range(m):
                scaled = point.p[at + t] / scale[state + n + t] if scale[state + n + t] > 0.0 else 0.0
                full[t, i] = root * scaled
                coupling[s, t] -= weight * scaled
            for g in (1, 2):
                total = 0.0
                for t in range(m):
                    if point.group[at + t] == g:
                        total += point.p[at + t]
                if total > 0.0:
                    inverse = 1.0 / np.sqrt(total)
                    for t in range(m):
                        grouped[t, n_grouped] = 0.0
                        if point.group[at + t] == g and scale[state + n + t] > 0.0:
                            grouped[t, n_grouped] = full[t, i] * inverse
                            below[t, t] += mass * (point.p[at + t] / scale[state + n + t] ** 2)
                    n_grouped += 1
        tridiagonal.add_gram(below, full, N, 1.0)
        tridiagonal.add_gram(below, grouped, n_grouped, -1.0)
        block += N
        entry += N * m
        state += n


@kernel
def soft_bellman(problem: _Problem, point: _Point, z: Floats) -> None:
    """Prices at which every state has the mass of the previous occupancy measure, backwards."""
    sizes, n_actions = problem.sizes, problem.n_actions
    block = problem.log_q.shape[0]
    entry = problem.log_prior.shape[0]
    state = point.price.shape[0] - 1
    point.price[state] = 0.0
    for h in range(sizes.shape[0] - 2, -1, -1):
        n = sizes[h]
        m = sizes[h + 1]
        block -= n * n_actions
        entry -= n * n_actions * m
        state -= n
        for s in range(n):
            before = -np.inf
            after = -np.inf
            for a in range(n_actions):
                i = s * n_actions + a
                b = block + i
                least = evaluate_row(problem, point, b, entry + i * m, m, point.price[state + n :], z)
                before = np.logaddexp(before, problem.log_q[b])
                after = np.logaddexp(after, problem.log_q[b] - problem.cost[b] - least)
            point.price[state + s] = before - after if problem.reachable[state + s] else 0.0


@kernel
def newton(
    problem: _Problem,
    point: _Point,
    layout: Layout,
    memory: _Memory,
) -> int:
    """Maximise D from ``point.price``; the number of iterations. The certificate judges the result."""
    price = point.price
    n_states = price.shape[0] - 1
    value = evaluate(problem, point, memory.z)
    for iteration in range(ITERATIONS):
        if not balance(problem, point, memory) > BALANCE:
            return iteration
        assemble(problem, point, layout, memory)
        step = memory.step
        copy_into(step, memory.flow)
        tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, memory.rows)
        tridiagonal.solve(
            layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, layout.state_at,
            step,
        )  # fmt: skip
        slope = 0.0
        largest = 0.0
        for s in range(n_states):
            slope += step[s] * memory.flow[s]
            step[s] = step[s] / memory.scale[s] if memory.scale[s] > 0.0 else 0.0
            largest = max(largest, abs(step[s]))
        copy_into(memory.start, price)
        # The dual is a sum of exponentials: beyond a few units its quadratic model means nothing.
        length = min(1.0, LONGEST_STEP / largest)
        rounding = 1e-14 * max(1.0, abs(value))
        accepted = False
        for _ in range(30):
            for s in range(n_states):
                price[s] = memory.start[s] + length * step[s]
            new = evaluate(problem, point, memory.z)
            if new >= value + 1e-4 * length * slope - rounding:
                accepted = True
                break
            length *= 0.5
        if not accepted:
            copy_into(price, memory.start)
            evaluate(problem, point, memory.z)
            return iteration
        value = new
    return ITERATIONS


@kernel
def certify(problem: _Problem, point: _Point, log_mass: Floats, q: Floats, log_q: Floats) -> tuple[float, float, float]:
    """Roll the policy of q* forward under its rows, so that flow holds exactly; (value, gap, residual).

    With a_b = log q_b - log q*_b, the objective at q exceeds D(V) by sum_b q_b (exp(-a_b) - 1 + a_b): every
    term is non-negative, and the rows contribute nothing because they attain m_b.
    """
    sizes, n_actions = problem.sizes, problem.n_actions
    horizon = sizes.shape[0] - 1
    block = 0
    entry = 0
    state = 0
    log_mass[0] = 0.0
    value = 0.0
    gap = 0.0
    residual = 0.0
    for h in range(horizon):
        n = sizes[h]
        m = sizes[h + 1]
        N = n * n_actions
        for s in range(n):
            total = -np.inf
            for a in range(n_actions):
                total = np.logaddexp(total, point.log_dual[block + s * n_actions + a])
            for a in range(n_actions):
                b = block + s * n_actions + a
                if not problem.reachable[state + s]:
                    log_q[b] = -np.inf
                    q[b] = 0.0
                    value += np.exp(problem.log_q[b])
                    continue
                away = log_mass[state + s] - total
                log_q[b] = away + point.log_dual[b]
                q[b] = np.exp(log_q[b])
                residual = max(residual, abs(away))
                if abs(away) < 1.0:
                    gap += q[b] * (np.expm1(-away) + away)
                else:
                    gap += np.exp(point.log_dual[b]) + q[b] * (away - 1.0)
                at = entry + (b - block) * m
                divergence = 0.0
                for t in range(m):
                    if point.p[at + t] > 0.0:
                        divergence += point.p[at + t] * (point.log_p[at + t] - problem.log_prior[at + t])
                value += q[b] * (problem.cost[b] + log_q[b] - problem.log_q[b] + divergence - 1.0)
                value += np.exp(problem.log_q[b])
        for t in range(m):
            top = -np.inf
            for i in range(N):
                top = max(top, log_q[block + i] + point.log_p[entry + i * m + t])
            total = 0.0
            if top > -np.inf:
                for i in range(N):
                    total += np.exp(log_q[block + i] + point.log_p[entry + i * m + t] - top)
                total = np.log(total)
            log_mass[state + n + t] = top + total
        block += N
        entry += N * m
        state += n
    return value, gap, residual


@kernel
def settle(problem: _Problem, point: _Point, log_mass: Floats) -> bool:
    """Move the prices of states below the range of Newton's system towards balance; False if none moves.

    Raising V(s) by x raises the outflow by exp(x) and lowers the inflow by at most exp(x), so half of the
    imbalance in logarithms never overshoots. Nothing else in double precision notices such a state.
    """
    sizes, n_actions = problem.sizes, problem.n_actions
    moved = False
    block = 0
    state = 0
    for h in range(sizes.shape[0] - 1):
        for _ in range(sizes[h]):
            if problem.reachable[state] and log_mass[state] < np.log(NEGLIGIBLE) + 1.0:
                total = -np.inf
                for a in range(n_actions):
                    total = np.logaddexp(total, point.log_dual[block + a])
                away = log_mass[state] - total
                if abs(away) > SETTLED:
                    point.price[state] += 0.5 * away
                    moved = True
            block += n_actions
            state += 1
    return moved


def _maximise(problem: _Problem, space: _Space) -> tuple[int, float, float, float]:
    """Newton's method, then the prices of negligible states; (iterations, value, gap, residual)."""
    point, memory = space.point, space.memory
    iterations = newton(problem, point, space.layout, memory)
    value, gap, residual = certify(problem, point, memory.log_mass, memory.q, memory.log_q)
    for _ in range(SWEEPS):
        if residual <= SETTLED or not settle(problem, point, memory.log_mass):
            break
        evaluate(problem, point, memory.z)
        value, gap, residual = certify(problem, point, memory.log_mass, memory.q, memory.log_q)
    return iterations, value, gap, residual


def triples_step(
    confidence_set: ConfidenceSet,
    q: Tables | None,
    loss: Tables,
    step_size: float,
    *,
    log_q: Tables | None = None,
    kernels: Sequence[ArrayLike] | None = None,
    warm: Mapping[str, Floats] | None = None,
    tolerance: float = 1e-8,
) -> MirrorStep:
    """argmin step_size <q', loss> + KL(q', P' || q, P) over occupancies q' and kernels P' of the set.

    The arguments are those of :func:`advmdp.solvers.mirror_descent_step` with ``entropy="triples"``;
    ``kernels`` are the P of the previous iterate. A prior entry of zero that the set allows counts as 1e-300.
    """
    if kernels is None:
        raise InvalidSpecError("entropy='triples' needs kernels=, those of the previous iterate")
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    pairs: list[tuple[int, ...]] = [(n, n_actions) for n in sizes[:-1]]
    triples: list[tuple[int, ...]] = [(n, n_actions, m) for n, m in pairwise(sizes)]
    if log_q is not None:
        flat_log_q = _flat_tables("log_q", log_q, pairs)
    elif q is not None:
        with np.errstate(divide="ignore"):
            flat_log_q = np.log(_flat_tables("q", q, pairs))
    else:
        raise InvalidSpecError("the step needs q or log_q, the occupancy measure to start from")
    problem = _problem(
        confidence_set,
        flat_log_q,
        step_size * _flat_tables("loss", loss, pairs),
        _flat_tables("kernels", kernels, triples),
    )
    space: _Space = SPACES.get(("triples", sizes, n_actions), lambda: _Space(sizes, n_actions))
    point, memory = space.point, space.memory
    if problem.kind == KNOWN:
        point.p[:] = problem.low
        point.log_p[:] = problem.log_low
        point.group[:] = 0
    warm = checked_warm(warm)
    if "prices" in warm and warm["prices"].shape == point.price.shape:
        status = "warm"
        point.price[:] = warm["prices"]
    else:
        status = "cold"
        soft_bellman(problem, point, memory.z)

    def found(status: str, used: int, value: float, gap: float, residual: float) -> MirrorStep:
        flat = FlatTables(memory.q.copy(), memory.log_q.copy(), point.p[: -prod(triples[-1])].copy())
        warm = {"prices": point.price.copy()}
        return MirrorStep(flat, sizes, n_actions, value, gap, residual, used, status, warm)

    step = found(status, *_maximise(problem, space))
    if status == "warm" and not (step.gap <= tolerance and step.residual <= LARGEST_RESIDUAL):
        soft_bellman(problem, point, memory.z)
        used, *certificate = _maximise(problem, space)
        second = found("cold", used + step.iterations, *certificate)
        step = second if not step.gap <= second.gap else step
    return required(
        "mirror step over triples", step, tolerance,
        lambda: {"set": type(confidence_set).__name__, **problem._asdict()},
    )  # fmt: skip
