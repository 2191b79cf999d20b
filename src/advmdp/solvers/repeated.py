"""Mirror steps under the same known kernels, again and again: what O-REPS does in every episode.

The dual is that of :mod:`advmdp.solvers.prices`, in the same notation.  Here all that depends on the kernels alone is
prepared once, tables are flat, kernels are sparse, and the prior is taken to be an occupancy measure of these kernels,
so that V = 0 is a good start.  Steps that are too large for this, and masses that are too small, are left to
:func:`advmdp.solvers.mirror_descent_step`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel, kernel
from advmdp.confidence import KnownKernels
from advmdp.occupancy import condition
from advmdp.solvers import sparse, tridiagonal
from advmdp.solvers.mirror import mirror_descent_step
from advmdp.solvers.sparse import Indices
from advmdp.solvers.step import LARGEST_RESIDUAL, MirrorStep, SolverError

# Relative difference of inflow and outflow at which a step is done, shared by the layers: errors of log q add up along
# them.  The duality gap is of the order of its square.
BALANCE = 1e-9
ITERATIONS = 30
# Masses below this are not for products and quotients of floating-point numbers.
LEAST_MASS = 1e-200
# Newton's systems are factored entry by entry where that takes at most so many products, otherwise in dense blocks.
MOST_PRODUCTS = 30_000


class FlatStep(NamedTuple):
    """A mirror step on flat vectors over pairs, with the certificate of :class:`advmdp.solvers.MirrorStep`."""

    log_q: Floats
    policy: Floats
    value: float
    gap: float
    residual: float
    iterations: int
    status: str


class _Kernels(NamedTuple):
    """The kernels by rows: entries ``row_at[b]`` to ``row_at[b + 1]`` are those of pair b.

    And by columns: entries ``column_at[s]`` to ``column_at[s + 1]`` are of the pairs that lead to state s.
    """

    row_at: Indices
    following: Indices  # state, counted through all layers
    column_at: Indices
    leading: Indices  # pair
    reachable: Indices
    probability: Floats  # by rows
    arriving: Floats  # the same by columns
    n_actions: int


class _Blocks(NamedTuple):
    """Where the blocks of :mod:`advmdp.solvers.tridiagonal` lie."""

    sizes: Integers
    diag_at: Integers
    off_at: Integers
    state_at: Integers


class _Memory(NamedTuple):
    V: Floats  # states, the terminal one included
    step: Floats
    inflow: Floats
    outflow: Floats
    shift: Floats  # pairs: V(s) - cost - P.V
    mass: Floats  # pairs
    entries: Floats  # of the system, if it is sparse; otherwise:
    diag: Floats
    off: Floats
    scratch: Floats  # as long as the longest part of off


class RepeatedStep:
    """argmin over the occupancy measures q' of known kernels of <q', cost> + KL(q' || q), for one q after the other."""

    def __init__(self, confidence_set: KnownKernels) -> None:
        self._set = confidence_set = confidence_set.dense()
        sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
        state_at = np.concatenate([[0], np.cumsum(sizes)])
        row_at, following, probability = [0], [], []
        for h, table in enumerate(confidence_set.kernels):
            for row in table.reshape(-1, table.shape[2]):
                # The last transition leads to the terminal state, whose price is zero.
                entries = np.flatnonzero(row) if h + 1 < len(sizes) - 1 else np.empty(0, dtype=np.intp)
                following.append(state_at[h + 1] + entries)
                probability.append(row[entries] / row.sum())
                row_at.append(row_at[-1] + entries.size)
        states, pairs = int(state_at[-1]), len(row_at) - 1
        pattern = sparse.find_pattern([rows.tolist() for rows in following], states - 1, n_actions, MOST_PRODUCTS)
        n = np.array(sizes[:-1])
        if pattern is None:
            pattern = sparse.no_pattern()
            lengths = (0, int((n * n).sum()), int((n[:-1] * n[1:]).sum()), int(n.max()) ** 2)
        else:
            lengths = (pattern.column.size, 0, 0, 0)
        rows, columns = np.repeat(np.arange(pairs), np.diff(row_at)), np.concatenate(following)
        values, by_column = np.concatenate(probability), np.argsort(columns, kind="stable")
        column_at = np.searchsorted(columns[by_column], np.arange(states + 1))
        diag_at, off_at = (np.concatenate([[0], np.cumsum(part)]) for part in (n * n, n[:-1] * n[1:]))
        memory = [np.zeros(size) for size in (states, states, states, states, pairs, pairs, *lengths)]
        reachable = confidence_set.flat_reachable
        # One vector of each kind: a compiled function spends a fifth of a microsecond on every argument.
        self._indices, self._indices_at = _pack(
            [row_at, columns, column_at, rows[by_column], reachable, *pattern], np.uint32
        )
        self._integers, self._integers_at = _pack([n, diag_at, off_at, state_at], np.int64)
        self._numbers, self._numbers_at = _pack([values, values[by_column], *memory], np.float64)

    def __call__(self, log_q: Floats, cost: Floats, tolerance: float = 1e-8) -> FlatStep:
        """The step from ``log_q``, which must be that of an occupancy measure of the kernels (-inf: unreachable)."""
        new_log_q, policy = np.empty_like(log_q), np.empty_like(log_q)
        value, gap, residual, iterations = descend(
            self._indices, self._indices_at, self._integers, self._integers_at, self._numbers, self._numbers_at,
            self._set.n_actions, log_q, cost, new_log_q, policy,
        )  # fmt: skip
        if gap <= tolerance and residual <= LARGEST_RESIDUAL:
            return FlatStep(new_log_q, policy, value, gap, residual, iterations, "repeated")
        return self.cold(log_q, cost, tolerance)

    def cold(self, log_q: Floats, cost: Floats, tolerance: float = 1e-8) -> FlatStep:
        """The same step, from any positive ``log_q``, by the general solver."""
        try:
            step = mirror_descent_step(self._set, None, cost, 1.0, log_q=log_q, tolerance=tolerance)
        except SolverError as error:
            if error.step is not None:
                error.step = self._flat(error.step)
            raise
        return self._flat(step)

    def _flat(self, step: MirrorStep) -> FlatStep:
        policy = np.empty_like(step.flat.log_q)
        condition(step.flat.log_q, self._set.n_actions, policy)
        return FlatStep(step.flat.log_q, policy, step.value, step.gap, step.residual, step.iterations, step.status)


def _pack(parts: Sequence[ArrayLike], kind: Any) -> tuple[NDArray[Any], Integers]:
    """All parts in one vector, and where each begins and the last ends."""
    arrays = [np.asarray(part, dtype=kind).ravel() for part in parts]
    return np.concatenate(arrays), np.concatenate([[0], np.cumsum([array.size for array in arrays])]).astype(np.int64)


@kernel
def descend(
    indices: Indices, indices_at: Integers, integers: Integers, integers_at: Integers, numbers: Floats,
    numbers_at: Integers, n_actions: int, log_q: Floats, cost: Floats, new_log_q: Floats, policy: Floats,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Newton's method from V = 0; (value, gap, residual, iterations), an infinite gap where it gave up."""
    i, at = indices, indices_at
    x, x_at = numbers, numbers_at
    kernels = _Kernels(
        i[at[0] : at[1]], i[at[1] : at[2]], i[at[2] : at[3]], i[at[3] : at[4]], i[at[4] : at[5]],
        x[x_at[0] : x_at[1]], x[x_at[1] : x_at[2]], n_actions,
    )  # fmt: skip
    pattern = sparse.Pattern(i[at[5] : at[6]], i[at[6] : at[7]], i[at[7] : at[8]], i[at[8] : at[9]])
    n, n_at = integers, integers_at
    blocks = _Blocks(n[n_at[0] : n_at[1]], n[n_at[1] : n_at[2]], n[n_at[2] : n_at[3]], n[n_at[3] : n_at[4]])
    memory = _Memory(
        x[x_at[2] : x_at[3]], x[x_at[3] : x_at[4]], x[x_at[4] : x_at[5]], x[x_at[5] : x_at[6]], x[x_at[6] : x_at[7]],
        x[x_at[7] : x_at[8]], x[x_at[8] : x_at[9]], x[x_at[9] : x_at[10]], x[x_at[10] : x_at[11]],
        x[x_at[11] : x_at[12]],
    )  # fmt: skip
    V, step, sizes = memory.V, memory.step, blocks.sizes
    is_sparse = memory.entries.size > 0
    last = V.size - 1
    for s in range(V.size):
        V[s] = 0.0
    imbalance = evaluate(kernels, log_q, cost, memory)
    enough = BALANCE / sizes.size
    factored_at = np.inf
    for iteration in range(ITERATIONS):
        if imbalance <= enough:
            value, gap, residual = certify(kernels, log_q, cost, memory, new_log_q, policy)
            return value, gap, residual, iteration
        if not imbalance < np.inf:
            break
        # A step with an old factorisation multiplies the imbalance by about what it was then.
        if not imbalance * factored_at <= enough:
            if is_sparse:
                assemble_sparse(kernels, pattern, memory)
                sparse.factor(pattern, memory.entries)
            else:
                assemble(kernels, blocks, memory)
                tridiagonal.factor(sizes, memory.diag, blocks.diag_at, memory.off, blocks.off_at, memory.scratch)
            factored_at = imbalance
        before = imbalance
        for s in range(last):
            step[s] = memory.inflow[s] - memory.outflow[s]
        if is_sparse:
            sparse.solve(pattern, memory.entries, step)
        else:
            tridiagonal.solve(
                sizes, memory.diag, blocks.diag_at, memory.off, blocks.off_at, blocks.state_at, step
            )  # fmt: skip
        for s in range(last):
            V[s] += step[s]
        imbalance = evaluate(kernels, log_q, cost, memory)
        if imbalance > before:
            break
    return np.nan, np.inf, np.inf, ITERATIONS


@inner_kernel
def evaluate(kernels: _Kernels, log_q: Floats, cost: Floats, memory: _Memory) -> float:
    """Masses of the dual at V with their inflow and outflow; the largest relative imbalance (inf: masses too small)."""
    V, mass, n_actions = memory.V, memory.mass, kernels.n_actions
    imbalance = 0.0
    for s in range(V.size - 1):
        # All that leads here came before.
        inflow = 1.0 if s == 0 else 0.0
        for e in range(kernels.column_at[s], kernels.column_at[s + 1]):
            inflow += kernels.arriving[e] * mass[kernels.leading[e]]
        total = 0.0
        for b in range(s * n_actions, (s + 1) * n_actions):
            shift = V[s] - cost[b]
            for e in range(kernels.row_at[b], kernels.row_at[b + 1]):
                shift -= kernels.probability[e] * V[kernels.following[e]]
            memory.shift[b] = shift
            mass[b] = np.exp(log_q[b] + shift)
            total += mass[b]
        memory.inflow[s] = inflow
        memory.outflow[s] = total
        if kernels.reachable[s]:
            larger = max(total, inflow)
            if not min(total, inflow) > LEAST_MASS or not larger < np.inf:
                return np.inf
            imbalance = max(imbalance, abs(total - inflow) / larger)
    return imbalance


@inner_kernel
def assemble(kernels: _Kernels, blocks: _Blocks, memory: _Memory) -> None:
    """The negated Hessian sum_b q_b (e_s - P_b)(e_s - P_b)', in blocks of layers.

    Unscaled: Cholesky's factorisation does not care, as long as no mass underflows.
    """
    n_actions, sizes = kernels.n_actions, blocks.sizes
    diag, off = memory.diag, memory.off
    for i in range(diag.size):
        diag[i] = 0.0
    for i in range(off.size):
        off[i] = 0.0
    for h in range(sizes.size):
        n = sizes[h]
        here = blocks.state_at[h]
        there = here + n
        m = sizes[h + 1] if h + 1 < sizes.size else 0
        for s in range(n):
            # A state without mass keeps its price.
            diag[blocks.diag_at[h] + s * n + s] += (
                memory.outflow[here + s] if kernels.reachable[here + s] else 1.0
            )  # fmt: skip
            for b in range((here + s) * n_actions, (here + s + 1) * n_actions):
                mass = memory.mass[b]
                if not mass > 0.0:
                    continue
                first = kernels.row_at[b]
                end = kernels.row_at[b + 1]
                for e in range(first, end):
                    t = kernels.following[e] - there
                    flow = mass * kernels.probability[e]
                    off[blocks.off_at[h] + s * m + t] -= flow
                    row = blocks.diag_at[h + 1] + t * m
                    for f in range(e, end):
                        diag[row + kernels.following[f] - there] += flow * kernels.probability[f]


@inner_kernel
def assemble_sparse(kernels: _Kernels, pattern: sparse.Pattern, memory: _Memory) -> None:
    """The same system by its entries, in the places that the pattern gives."""
    n_actions, entries, place = kernels.n_actions, memory.entries, pattern.place
    for i in range(entries.size):
        entries[i] = 0.0
    at = 0
    for s in range(memory.outflow.size - 1):
        # A state without mass keeps its price.
        entries[pattern.row_at[s]] += memory.outflow[s] if kernels.reachable[s] else 1.0
        for b in range(s * n_actions, (s + 1) * n_actions):
            mass = memory.mass[b]
            end = kernels.row_at[b + 1]
            for e in range(kernels.row_at[b], end):
                flow = mass * kernels.probability[e]
                entries[place[at]] -= flow
                at += 1
                for f in range(e, end):
                    entries[place[at]] += flow * kernels.probability[f]
                    at += 1


@inner_kernel
def certify(
    kernels: _Kernels, log_q: Floats, cost: Floats, memory: _Memory, new_log_q: Floats, policy: Floats
) -> tuple[float, float, float]:
    """Roll the policy of the dual's masses forward, so that flow holds exactly; (value, gap, residual).

    With a(s) = log q(s) minus that of the dual, the objective at q exceeds the dual by sum_s q(s) (exp(-a) - 1 + a).
    """
    n_actions = kernels.n_actions
    rolled = memory.mass  # overwritten pair by pair, once the dual's mass has been used
    value = 0.0
    gap = 0.0
    residual = 0.0
    for s in range(memory.outflow.size - 1):
        if not kernels.reachable[s]:
            for b in range(s * n_actions, (s + 1) * n_actions):
                new_log_q[b] = -np.inf
                policy[b] = 1.0 / n_actions
                rolled[b] = 0.0
            continue
        reached = 1.0 if s == 0 else 0.0
        for e in range(kernels.column_at[s], kernels.column_at[s + 1]):
            reached += kernels.arriving[e] * rolled[kernels.leading[e]]
        away = np.log(reached / memory.outflow[s])
        gap += reached * (np.expm1(-away) + away)
        residual = max(residual, abs(away))
        for b in range(s * n_actions, (s + 1) * n_actions):
            share = memory.mass[b] / memory.outflow[s]
            policy[b] = share
            moved = memory.shift[b] + away
            new_log_q[b] = log_q[b] + moved
            q = reached * share
            value += q * (cost[b] + moved)
            rolled[b] = q
    return value, gap, residual
