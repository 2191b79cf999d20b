"""The mirror-descent step: minimise ``step <q, loss> + KL(q || q_previous)`` over a confidence set.

:func:`mirror_descent_step` chooses the solver by the kind of set, keeps the working memory, and never returns an
answer without its certificate: a flow-feasible occupancy measure, kernels of the set that produce it, and the
duality gap that proves how good it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._compiled import kernel
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.solvers import box, ellipsoid, known, robust, shortcut
from advmdp.solvers.centring import centre_blocks
from advmdp.solvers.layout import Layout, make_layout, view1, view2, view3
from advmdp.solvers.presolve import presolve_box_layer

Floats = NDArray[np.float64]
Warm = dict[str, Floats]

# A certified step also has log q correct to this much, block by block: a small gap alone does not see a pair of
# small occupancy.
LARGEST_RESIDUAL = 1e-6
NEWTON_LIMIT = 300
# A block whose smallest slack is below this share of an even split is centred before the iteration starts.
COMFORT = 0.2
WARM_COMFORT = 0.01
# A warm start lies between the last iterate (1) and an early one (0), and lower on the path.
WARM_EDGE = 0.95
WARM_MU = 0.1
# Steps after which a shortcut that was refused is tried again, at the latest.
LONGEST_PAUSE = 63


class _Attempt(NamedTuple):
    """One way to run the interior-point method; they are tried in order until one is certified."""

    status: str
    lift: float  # see certificate.start_prices; 0 starts from flow-consistent masses
    careful: bool  # factor the blocks by rotations
    patient: bool  # short steps along the path instead of a predictor and a corrector
    limit: int
    mu: float = 1.0  # multiple of the usual first mu


# After these, the smoothed dual (`robust`), which is slower and solves nearly all that they leave.
_CHAIN = (
    _Attempt("cold", -14.0, False, False, 40),
    _Attempt("careful", -14.0, True, False, 60),
    _Attempt("settled", 0.0, True, False, 80),
    _Attempt("patient", 0.0, True, True, 400),
    _Attempt("patient", -14.0, True, True, 400),
)


@dataclass(frozen=True, slots=True)
class MirrorStep:
    """The new occupancy measure with its certificate.

    ``q`` and ``log_q``: lists over layers of (S_h, A); q is the occupancy measure of its policy under ``kernels``,
    which lie in the set.  ``log_q`` is meaningful where q has underflowed.  ``value`` is the objective at q, which
    exceeds the minimum by at most ``gap``; ``residual`` bounds the error of stationarity in log q, over all pairs.
    ``warm`` may be handed to the next step.
    """

    q: list[Floats]
    log_q: list[Floats]
    kernels: list[Floats]
    value: float
    gap: float
    residual: float
    iterations: int
    status: str
    warm: Warm


class SolverError(RuntimeError):
    """A step whose certificate misses the tolerance.  ``gap`` and ``residual`` are those of the last attempt."""

    def __init__(self, message: str, gap: float, residual: float, problem: dict[str, Any]) -> None:
        super().__init__(message)
        self.gap = gap
        self.residual = residual
        self.problem = problem

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the step that failed as an ``.npz`` file: the set's tables, log q, loss and step size."""
        np.savez(path, **self.problem)


def mirror_descent_step(
    confidence_set: ConfidenceSet,
    q: Sequence[ArrayLike] | None,
    loss: Sequence[ArrayLike],
    step_size: float,
    *,
    log_q: Sequence[ArrayLike] | None = None,
    entropy: str = "pairs",
    kernels: Sequence[ArrayLike] | None = None,
    warm: Mapping[str, Floats] | None = None,
    tolerance: float = 1e-8,
) -> MirrorStep:
    """argmin over occupancy measures q' of the set of ``step_size <q', loss> + KL(q' || q)``.

    ``q`` is given by itself or, where its values may leave the range of floating point, by ``log_q`` (which
    takes precedence).  ``entropy="pairs"`` compares occupancies of (s, a); ``"triples"`` those of (s, a, s'), and needs
    the previous ``kernels``.  ``warm`` is that of an earlier step on a set of the same shape: it saves iterations and
    changes the answer only within the tolerance.  Raises :class:`SolverError` if no certified gap within ``tolerance``
    was found, and ``InvalidMDPError`` if the set has an empty pair.
    """
    if entropy == "triples":
        from advmdp.solvers.triples import triples_step

        return triples_step(
            confidence_set, q, loss, step_size,
            log_q=log_q, kernels=kernels, warm=warm, tolerance=tolerance,
        )  # fmt: skip
    if entropy != "pairs":
        raise InvalidSpecError(f"entropy is {entropy!r}; it must be 'pairs' or 'triples'")
    solve = _SOLVERS.get(type(confidence_set))
    if solve is None:
        raise InvalidSpecError(
            f"the step with entropy='pairs' has no solver for {type(confidence_set).__name__}; use an "
            "EllipsoidSet, a BoxSet or KnownKernels, or entropy='triples'"
        )
    problem = _problem(confidence_set, q, log_q, loss, step_size)
    answer = solve(confidence_set, problem, warm or {}, tolerance)
    # A gap below zero by more than rounding would mean that the point is not feasible.
    if not (abs(answer.gap) <= tolerance and answer.residual <= LARGEST_RESIDUAL):
        raise SolverError(
            f"the mirror step stopped with a duality gap of {answer.gap:.3g} and a residual of "
            f"{answer.residual:.3g}; {tolerance:.3g} and {LARGEST_RESIDUAL:.3g} were asked for "
            "(save the step with error.save(path))",
            answer.gap,
            answer.residual,
            _reproducer(confidence_set, problem, step_size),
        )
    return _publish(problem, answer)


# --------------------------------------------------------------------------------------------------------
# The problem, flat and without unreachable states


class _Problem(NamedTuple):
    """One step in the kernels' layout: blocks a-major within a layer, unreachable states left out."""

    sizes: tuple[int, ...]
    n_actions: int
    log_prior: Floats
    cost: Floats
    kept: list[NDArray[np.intp]] | None  # reachable states per layer, or None if all are
    full_sizes: tuple[int, ...]
    dropped_mass: float  # what q had on the states left out: the divergence counts it


class _Answer(NamedTuple):
    """What a solver found, in its own working memory."""

    layout: Layout
    log_q: Floats
    q: Floats
    kernels: Floats
    value: float
    gap: float
    residual: float
    iterations: int
    status: str
    warm: Warm


def _problem(
    confidence_set: ConfidenceSet,
    q: Sequence[ArrayLike] | None,
    log_q: Sequence[ArrayLike] | None,
    loss: Sequence[ArrayLike],
    step_size: float,
) -> _Problem:
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    kept = None
    if not all(reached.all() for reached in confidence_set.reachable):
        kept = [np.flatnonzero(reached) for reached in confidence_set.reachable]
    if log_q is None and q is None:
        raise InvalidMDPError("the step needs q or log_q, the occupancy measure to start from")
    dropped = 0.0
    if log_q is not None:
        log_prior = _flat("log_q", log_q, sizes, n_actions, kept)
        if kept is not None:
            dropped = float(np.exp(_flat("log_q", log_q, sizes, n_actions, None)).sum() - np.exp(log_prior).sum())
    elif q is not None:
        prior = _flat("q", q, sizes, n_actions, kept)
        if kept is not None:
            dropped = float(_flat("q", q, sizes, n_actions, None).sum() - prior.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            log_prior = np.log(prior)
    cost = step_size * _flat("loss", loss, sizes, n_actions, kept)
    problem = _Problem(
        sizes if kept is None else tuple(len(states) for states in kept),
        n_actions, log_prior, cost, kept, sizes, dropped,
    )  # fmt: skip
    _reject(problem, ~np.isfinite(log_prior), "log q", log_prior, "finite (give log_q where q underflows)")
    _reject(problem, ~((cost >= 0.0) & (cost < np.inf)), "step_size * loss", cost, "finite and not negative")
    return problem


def _flat(
    name: str,
    tables: Sequence[ArrayLike],
    sizes: tuple[int, ...],
    n_actions: int,
    kept: list[NDArray[np.intp]] | None,
) -> Floats:
    """Tables (S_h, A) of all layers as one vector in the order of the kernels."""
    if len(tables) != len(sizes) - 1:
        raise InvalidMDPError(f"{name} has {len(tables)} layers; this set needs {len(sizes) - 1}")
    parts = []
    for h, given in enumerate(tables):
        table = np.asarray(given, dtype=np.float64)
        if table.shape != (sizes[h], n_actions):
            raise InvalidMDPError(f"{name}[{h}] has shape {table.shape}; this set needs ({sizes[h]}, {n_actions})")
        parts.append((table if kept is None else table[kept[h]]).T.ravel())
    return np.concatenate(parts)


def _reject(problem: _Problem, wrong: NDArray[np.bool_], name: str, values: Floats, requirement: str) -> None:
    """Raise for the first flagged entry, naming its layer, state and action."""
    if not wrong.any():
        return
    index = int(np.argmax(wrong))
    value = float(values[index])
    h = 0
    while index >= problem.sizes[h] * problem.n_actions:
        index -= problem.sizes[h] * problem.n_actions
        h += 1
    action, state = divmod(index, problem.sizes[h])
    if problem.kept is not None:
        state = int(problem.kept[h][state])
    raise InvalidMDPError(f"{name} is {value} at layer {h}, state {state}, action {action}; it must be {requirement}")


def _require_rows(confidence_set: ConfidenceSet, empty: bool) -> None:
    if empty:
        pairs = confidence_set.empty_pairs()
        where = "layer {}, state {}, action {}".format(*pairs[0]) if len(pairs) else "a pair"
        raise InvalidMDPError(
            f"the confidence set has {max(len(pairs), 1)} empty pairs, the first at {where}; a radius "
            f"{confidence_set.smallest_radius_multiple():.6g} times as large would leave none"
        )


def _reproducer(confidence_set: ConfidenceSet, problem: _Problem, step_size: float) -> dict[str, Any]:
    """The tables of the set and of the step, by name and layer, for a file that needs no pickle."""
    saved: dict[str, Any] = {
        "set": type(confidence_set).__name__,
        "log_prior": problem.log_prior,
        "cost": problem.cost,
        "step_size": step_size,
        "n_actions": problem.n_actions,
        "layer_sizes": np.array(problem.full_sizes),
    }
    for name, value in vars(confidence_set).items():
        if name in ("features", "centres", "grams", "lower", "upper", "kernels", "reachable"):
            saved |= {f"{name}_{h}": table for h, table in enumerate(value)}
        elif name in ("radius", "simplex"):
            saved[name] = value
    return saved


def _publish(problem: _Problem, answer: _Answer) -> MirrorStep:
    """Copy the answer out of the working memory, into tables over all states."""
    entries = answer.kernels.shape[0]
    blocks = answer.q.shape[0]
    out = np.empty(entries + 2 * blocks)
    _unpack(answer.layout, answer.q, answer.log_q, answer.kernels, out)
    sizes, A = problem.sizes, problem.n_actions
    q, log_q, kernels = [], [], []
    at_block, at_entry = 0, 2 * blocks
    for h in range(len(sizes) - 1):
        n, m = sizes[h], sizes[h + 1]
        N = n * A
        q.append(out[at_block : at_block + N].reshape(n, A))
        log_q.append(out[blocks + at_block : blocks + at_block + N].reshape(n, A))
        at_block += N
        if h < len(sizes) - 2:
            kernels.append(out[at_entry : at_entry + N * m].reshape(n, A, m))
            at_entry += N * m
        else:
            kernels.append(np.ones((n, A, 1)))
    if problem.kept is not None:
        full = problem.full_sizes
        for h, states in enumerate(problem.kept[:-1]):
            here = q[h], log_q[h], kernels[h]
            q[h] = np.zeros((full[h], A))
            log_q[h] = np.full((full[h], A), -np.inf)
            # A state that no kernel of the set reaches: its rows matter to nobody, and are uniform.
            kernels[h] = np.full((full[h], A, full[h + 1]), 1.0 / full[h + 1])
            q[h][states], log_q[h][states] = here[0], here[1]
            rows = np.zeros((len(states), A, full[h + 1]))
            rows[:, :, problem.kept[h + 1]] = here[2]
            kernels[h][states] = rows
    return MirrorStep(
        q, log_q, kernels, answer.value + problem.dropped_mass, answer.gap, answer.residual, answer.iterations,
        answer.status, answer.warm,
    )  # fmt: skip


@kernel
def _unpack(layout: Layout, q: Floats, log_q: Floats, kernels: Floats, out: Floats) -> None:
    """q, then log q, then the kernels, each layer in C order of (state, action[, next state])."""
    blocks = q.shape[0]
    for h in range(layout.states.shape[0]):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        A = N // n
        at = layout.block_at[h]
        P = view2(kernels, layout.next_at[h], m, N)
        for s in range(n):
            for a in range(A):
                b = a * n + s
                out[at + s * A + a] = q[at + b]
                out[blocks + at + s * A + a] = log_q[at + b]
                start = 2 * blocks + layout.next_at[h] + (s * A + a) * m
                for t in range(m):
                    out[start + t] = P[t, b]


# --------------------------------------------------------------------------------------------------------
# Working memory


class _Local(threading.local):
    """Working memory by shape, one collection per thread: kernels run without the interpreter lock."""

    def __init__(self) -> None:
        self.spaces: dict[tuple[Any, ...], Any] = {}

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        space = self.spaces.get(key)
        if space is None:
            if len(self.spaces) >= 16:
                self.spaces.clear()
            space = self.spaces[key] = make()
        return space


_LOCAL = _Local()


class _EllipsoidSpace:
    def __init__(self, sizes: tuple[int, ...], n_actions: int, dim: int, simplex: bool) -> None:
        last = len(sizes) - 2
        self.layout, self.lengths = make_layout(
            sizes,
            n_actions,
            [dim if simplex else m for m in sizes[1:-1]] + [0],
            [dim - 1] * last + [0],
        )
        self.point = ellipsoid.make_point(self.lengths)
        self.direction = ellipsoid.make_point(self.lengths)
        self.memory = ellipsoid.make_memory(self.layout, self.lengths)
        rows = int(self.layout.rows.max())
        self.scratch = np.zeros(3 * rows + dim * (dim + 3))


class _BoxSpace:
    def __init__(self, sizes: tuple[int, ...], n_actions: int) -> None:
        self.layout, self.lengths = make_layout(sizes, n_actions, [*sizes[1:-1], 0], [0] * (len(sizes) - 1))
        self.point = box.make_point(self.lengths)
        self.direction = box.make_point(self.lengths)
        self.memory = box.make_memory(self.layout, self.lengths)
        self.rows = box.Rows(*(np.zeros(self.lengths.next) for _ in range(4)))
        self.excess = np.zeros(self.lengths.block)


class _KnownSpace:
    def __init__(self, sizes: tuple[int, ...], n_actions: int) -> None:
        self.layout, self.lengths = make_layout(sizes, n_actions, [0] * (len(sizes) - 1), [0] * (len(sizes) - 1))
        self.memory = known.make_memory(self.layout, self.lengths)


# --------------------------------------------------------------------------------------------------------
# One solver per kind of set


def _kept_tables(problem: _Problem, tables: Sequence[Floats]) -> Floats:
    """Tables (S_h, A, S_{h+1}) of all layers but the last as one vector, reachable states only."""
    kept = problem.kept
    if kept is None:
        parts = [table.ravel() for table in tables[:-1]]
    else:
        parts = [table[kept[h]][:, :, kept[h + 1]].ravel() for h, table in enumerate(tables[:-1])]
    return np.concatenate(parts) if parts else np.empty(0)


def _kept_rows(problem: _Problem, dim: int, simplex: bool, reduced: Any) -> tuple[Floats, ...]:
    """(P0, G, E0, E, chi, smallest) of a reduced ellipsoid set, reachable states only."""
    P0, G, E0, E, chi, _, smallest = reduced
    if problem.kept is None:
        return P0, G, E0, E, chi, smallest
    A, k = problem.n_actions, dim - 1
    parts: list[list[Floats]] = [[], [], [], [], [], []]
    entry = row = block = 0
    for h in range(len(problem.full_sizes) - 2):
        n, m = problem.full_sizes[h], problem.full_sizes[h + 1]
        N, r = n * A, dim if simplex else m
        blocks = (np.arange(A)[:, None] * n + problem.kept[h]).ravel()
        nexts = problem.kept[h + 1]
        rows = np.arange(dim) if simplex else nexts
        cuts = (
            P0[entry : entry + m * N].reshape(m, N)[nexts][:, blocks],
            G[entry * k : (entry + m * N) * k].reshape(m, k, N)[nexts][:, :, blocks],
            E0[row : row + r * N].reshape(r, N)[rows][:, blocks],
            E[row * k : (row + r * N) * k].reshape(r, k, N)[rows][:, :, blocks],
            chi[block * k : (block + N) * k].reshape(k, N)[:, blocks],
            smallest[block : block + N][blocks],
        )
        for part, cut in zip(parts, cuts, strict=True):
            part.append(cut.ravel())
        entry, row, block = entry + m * N, row + r * N, block + N
    return tuple(np.concatenate(part) if part else np.empty(0) for part in parts)


def _kept_active(problem: _Problem, confidence_set: EllipsoidSet) -> NDArray[np.int64]:
    """The active rows of the shortest points of a reduced ellipsoid set, reachable states only."""
    active: NDArray[np.int64] = confidence_set.reduced.active
    if problem.kept is None:
        return active
    A, k = problem.n_actions, confidence_set.dim - 1
    parts = [active[:0]]
    block = 0
    for h in range(len(problem.full_sizes) - 2):
        n, m = problem.full_sizes[h], problem.full_sizes[h + 1]
        blocks = (np.arange(A)[:, None] * n + problem.kept[h]).ravel()
        part = active[block * k : (block + n * A) * k].reshape(k, n * A)[:, blocks]
        if not confidence_set.simplex:
            # Rows are next states, which are counted anew; -1 stays what it is.
            place = np.full(m + 1, -1)
            place[problem.kept[h + 1]] = np.arange(len(problem.kept[h + 1]))
            part = place[part]
        parts.append(part.ravel())
        block += n * A
    return np.concatenate(parts)


def _smoothed(layout: Layout, found: robust.Result, iterations: int, warm: Warm) -> _Answer:
    """The answer of the last resort, after so many iterations of the others."""
    memory = found.memory
    return _Answer(
        layout, memory.log_q, memory.q, memory.kernels, found.value, found.gap, found.residual,
        iterations + found.iterations, "smoothed", warm,
    )  # fmt: skip


def _solve_ellipsoid(
    confidence_set: EllipsoidSet, problem: _Problem, warm: Mapping[str, Floats], tolerance: float
) -> _Answer:
    from advmdp.solvers.presolve import EMPTY_MARGIN

    dim, simplex = confidence_set.dim, confidence_set.simplex
    space: _EllipsoidSpace = _LOCAL.get(
        ("ellipsoid", problem.sizes, problem.n_actions, dim, simplex),
        lambda: _EllipsoidSpace(problem.sizes, problem.n_actions, dim, simplex),
    )
    P0, G, E0, E, chi, smallest = _kept_rows(problem, dim, simplex, confidence_set.reduced)
    _require_rows(confidence_set, bool((smallest > EMPTY_MARGIN).any()))
    rows = ellipsoid.Rows(P0, G, E0, E)
    memory = space.memory
    mu = 0.03 * max(float(problem.cost.max()), 0.02)
    iterations = 0
    best = (np.nan, np.inf, np.inf)
    chain: tuple[_Attempt, ...] = _CHAIN
    # After each refusal the shortcut waits twice as long: where it never works it costs next to nothing.
    pause, left = _pause(warm)
    if "chi" in warm and warm["chi"].shape == memory.chi.shape:
        memory.chi[:] = warm["chi"]
        centre_blocks(space.layout, E0, E, WARM_COMFORT, 40, memory.chi, space.scratch)
        if left == 0:
            value, gap, residual = shortcut.carry_flow(
                space.layout, rows, problem.log_prior, problem.cost, memory.chi, space.point, memory,
            )  # fmt: skip
            if gap <= tolerance and residual <= LARGEST_RESIDUAL:
                return _Answer(
                    space.layout, memory.log_q, memory.q, memory.kernels, value, gap, residual, 0, "shortcut",
                    {"chi": memory.chi.copy(), "pause": np.zeros(2)},
                )  # fmt: skip
            pause = left = min(2 * pause + 1, LONGEST_PAUSE)
        else:
            left -= 1
        chain = (_CHAIN[0]._replace(status="warm"), *_CHAIN)
    waiting = np.array([pause, left], dtype=np.float64)
    for attempt in chain:
        warmed = attempt.status == "warm"
        if not warmed:
            memory.chi[:] = chi
            centre_blocks(space.layout, E0, E, COMFORT, 40, memory.chi, space.scratch)
        value, gap, residual, used = ellipsoid.iterate(
            space.layout, rows, problem.log_prior, problem.cost, WARM_MU * mu if warmed else attempt.mu * mu,
            0.03 * WARM_MU if warmed else 0.03 * attempt.mu, attempt.lift, tolerance,
            LARGEST_RESIDUAL, attempt.limit, attempt.careful, attempt.patient, space.point,
            space.direction, memory,
        )  # fmt: skip
        iterations += used
        if gap <= tolerance and residual <= LARGEST_RESIDUAL:
            best = value, gap, residual
            break
    else:
        memory.chi[:] = chi
        centre_blocks(space.layout, E0, E, np.inf, 40, memory.chi, space.scratch)
        found = robust.solve_ellipsoids(
            space.layout, space.lengths, (P0, G, E0, E), memory.chi, _kept_active(problem, confidence_set), smallest,
            simplex, problem.log_prior, problem.cost, tolerance, LARGEST_RESIDUAL,
        )  # fmt: skip
        edge = WARM_EDGE * found.blocks.chi + (1.0 - WARM_EDGE) * found.blocks.centre
        return _smoothed(space.layout, found, iterations, {"chi": edge, "pause": waiting})
    return _Answer(
        space.layout, memory.log_q, memory.q, memory.kernels, *best, iterations, attempt.status,
        {"chi": WARM_EDGE * memory.chi + (1.0 - WARM_EDGE) * memory.inner_chi, "pause": waiting},
    )  # fmt: skip


def _pause(warm: Mapping[str, Floats]) -> tuple[int, int]:
    """How long the shortcut pauses after a refusal, and how many steps of that are left."""
    saved = warm.get("pause")
    if saved is None or saved.shape != (2,):
        return 0, 0
    return int(min(max(saved[0], 0.0), LONGEST_PAUSE)), int(min(max(saved[1], 0.0), LONGEST_PAUSE))


def _solve_box(confidence_set: BoxSet, problem: _Problem, warm: Mapping[str, Floats], tolerance: float) -> _Answer:
    space: _BoxSpace = _LOCAL.get(
        ("box", problem.sizes, problem.n_actions),
        lambda: _BoxSpace(problem.sizes, problem.n_actions),
    )
    memory, rows = space.memory, space.rows
    n_empty = _presolve_boxes(
        space.layout,
        _kept_tables(problem, confidence_set.lower),
        _kept_tables(problem, confidence_set.upper),
        rows.low, rows.high, space.excess,
    )  # fmt: skip
    # An interval below zero at a state left out is empty as well, and not among these rows.
    unseen = problem.kept is not None and len(confidence_set.empty_pairs()) > 0
    _require_rows(confidence_set, n_empty > 0 or unseen)
    box.prepare(space.layout, rows)
    mu = 0.03 * max(float(problem.cost.max()), 0.02)
    iterations = 0
    best = (np.nan, np.inf, np.inf)
    chain = [attempt for attempt in _CHAIN if attempt.status != "careful"]
    if "kernels" in warm and warm["kernels"].shape == memory.kernels.shape:
        chain.insert(0, _CHAIN[0]._replace(status="warm"))
    for attempt in chain:
        if attempt.status == "warm":
            box.move_inside(space.layout, rows, warm["kernels"], memory.kernels)
        else:
            memory.kernels[:] = rows.inside
        value, gap, residual, used = box.iterate(
            space.layout, rows, problem.log_prior, problem.cost, attempt.mu * mu, attempt.lift, tolerance,
            LARGEST_RESIDUAL, attempt.limit, attempt.patient, space.point, space.direction, memory,
        )  # fmt: skip
        iterations += used
        if gap <= tolerance and residual <= LARGEST_RESIDUAL:
            best = value, gap, residual
            break
    else:
        found = robust.solve_boxes(
            problem.sizes, problem.n_actions, rows.low, rows.high, rows.inside, problem.log_prior, problem.cost,
            tolerance, LARGEST_RESIDUAL,
        )  # fmt: skip
        return _smoothed(space.layout, found, iterations, {"kernels": found.memory.kernels.copy()})
    return _Answer(
        space.layout, memory.log_q, memory.q, memory.kernels, *best, iterations, attempt.status,
        {"kernels": memory.kernels.copy()},
    )  # fmt: skip


@kernel
def _presolve_boxes(layout: Layout, lower: Floats, upper: Floats, low: Floats, high: Floats, excess: Floats) -> int:
    n_empty = 0
    for h in range(layout.states.shape[0] - 1):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        A = N // n
        at = layout.next_at[h]
        n_empty += presolve_box_layer(
            view3(lower, at, n, A, m),
            view3(upper, at, n, A, m),
            view2(low, at, m, N),
            view2(high, at, m, N),
            view1(excess, layout.block_at[h], N),
        )
    return n_empty


def _solve_known(
    confidence_set: KnownKernels, problem: _Problem, warm: Mapping[str, Floats], tolerance: float
) -> _Answer:
    space: _KnownSpace = _LOCAL.get(
        ("known", problem.sizes, problem.n_actions),
        lambda: _KnownSpace(problem.sizes, problem.n_actions),
    )
    memory = space.memory
    _pack_kernels(space.layout, _kept_tables(problem, confidence_set.kernels), memory.kernels)
    value, gap, residual, iterations = known.iterate(
        space.layout, problem.log_prior, problem.cost, tolerance, LARGEST_RESIDUAL,
        NEWTON_LIMIT, memory,
    )  # fmt: skip
    return _Answer(
        space.layout, memory.log_q, memory.q, memory.kernels, value, gap, residual, iterations,
        "cold", {},
    )  # fmt: skip


@kernel
def _pack_kernels(layout: Layout, tables: Floats, kernels: Floats) -> None:
    """Rows (S_h, A, S_{h+1}) into the layout (next state, block)."""
    for h in range(layout.states.shape[0] - 1):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        A = N // n
        P = view2(kernels, layout.next_at[h], m, N)
        for s in range(n):
            for a in range(A):
                start = layout.next_at[h] + (s * A + a) * m
                for t in range(m):
                    P[t, a * n + s] = tables[start + t]


_SOLVERS: dict[type, Callable[..., _Answer]] = {
    EllipsoidSet: _solve_ellipsoid,
    BoxSet: _solve_box,
    KnownKernels: _solve_known,
}
