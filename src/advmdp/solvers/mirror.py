"""The mirror-descent step: minimise ``step <q, loss> + KL(q || q_previous)`` over a confidence set.

:func:`mirror_descent_step` chooses the solver by the kind of set, keeps the working memory, and never returns an
answer without its certificate: a flow-feasible occupancy measure, kernels of the set that produce it, and the
duality gap that proves how good it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import float_array
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.errors import InvalidSpecError
from advmdp.layered import checked_available, masked_layers, with_copied_rows
from advmdp.solvers import box, ellipsoid, known, robust
from advmdp.solvers.centring import place_points
from advmdp.solvers.conditional import conditional_step
from advmdp.solvers.layout import make_layout
from advmdp.solvers.masks import StandIns, stand_ins
from advmdp.solvers.presolve import EMPTY_MARGIN
from advmdp.solvers.problem import (
    Answer,
    FlatTables,
    Problem,
    Tables,
    flat_step,
    flatten,
    kept_active,
    kept_rows,
    kept_tables,
    publish,
    reproducer,
    require_rows,
    require_step,
    split_kernels,
    split_pairs,
)

Floats = NDArray[np.float64]
Warm = dict[str, Floats]
Certificate = tuple[float, float, float]  # value, gap, residual

# A certified step also has log q correct to this much, block by block: a small gap alone does not see a pair of
# small occupancy.
LARGEST_RESIDUAL = 1e-6
NEWTON_LIMIT = 300
# The first mu is at least this share of the largest cost and of the spread of the starting prices.
MU = 0.03
LEAST_COST = 0.02
# A block whose smallest slack is below this share of an even split is centred before the iteration starts.
COMFORT = 0.2
# One that is given the centres of the last step is content with less.
WARM_COMFORT = 0.1
# The first mu of a warm start: this multiple of the usual one, times the share of the way to the last step not gone.
WARM_MU = 0.05
# Steps after which a shortcut that was refused is tried again, at the latest.
LONGEST_PAUSE = 63


class _Attempt(NamedTuple):
    """One way to run the interior-point method; they are tried in order until one is certified."""

    status: str
    careful: bool  # factor the blocks by rotations
    limit: int  # iterations
    mu: float  # multiple of the usual first mu


# After these, the smoothed dual (`robust`), which is slower and solves nearly all that they leave.
_CHAIN = (_Attempt("cold", False, 40, 1.0), _Attempt("careful", True, 60, 1.0))


def _warm_attempt(share: float) -> _Attempt:
    return _Attempt("warm", False, 40, WARM_MU * (1.0 - share))


@dataclass(frozen=True)
class MirrorStep:
    """The new occupancy measure with its certificate.

    ``q`` and ``log_q``: lists over layers of (S_h, A); q is the occupancy measure of its policy under ``kernels``,
    which lie in the set.  ``log_q`` is meaningful where q has underflowed.  ``flat`` has the same three in one vector
    each.  ``value`` is the objective at q, which exceeds the minimum by at most ``gap``; ``residual`` bounds the error
    of stationarity in log q, over all pairs.  ``warm`` may be handed to the next step.
    """

    flat: FlatTables
    layer_sizes: tuple[int, ...]
    n_actions: int
    value: float
    gap: float
    residual: float
    iterations: int
    status: str
    warm: Warm
    #: The kernels as tables, where ``flat`` has those of sparse layers without their zeros.
    tables: list[Any] | None = None

    @cached_property
    def q(self) -> list[Floats]:
        """The occupancy measure."""
        return split_pairs(self.flat.q, self.layer_sizes, self.n_actions)

    @cached_property
    def log_q(self) -> list[Floats]:
        """Its logarithm."""
        return split_pairs(self.flat.log_q, self.layer_sizes, self.n_actions)

    @cached_property
    def kernels(self) -> list[Any]:
        """Kernels of the set that it comes from, sparse where the set is."""
        if self.tables is not None:
            return self.tables
        return split_kernels(self.flat.kernels, self.layer_sizes, self.n_actions)


class SolverError(RuntimeError):
    """A step whose certificate misses the tolerance.

    ``step`` is the best one that was found: an occupancy measure of the set, with the ``gap`` and ``residual`` that are
    proved of it.  It is None, and they are infinite, only where no attempt came to an occupancy measure of the set.
    """

    def __init__(self, message: str, gap: float, residual: float, problem: dict[str, Any], step: Any = None) -> None:
        super().__init__(message)
        self.gap = gap
        self.residual = residual
        self.problem = problem
        self.step = step

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the step that failed as an ``.npz`` file: the set's tables, log q, loss and step size."""
        np.savez(path, **self.problem)


def mirror_descent_step(
    confidence_set: ConfidenceSet,
    q: Tables | None,
    loss: Tables,
    step_size: float,
    *,
    log_q: Tables | None = None,
    entropy: str = "pairs",
    kernels: Sequence[ArrayLike] | None = None,
    warm: Mapping[str, Floats] | None = None,
    tolerance: float = 1e-8,
    available: Sequence[ArrayLike] | None = None,
) -> MirrorStep:
    """argmin over occupancy measures q' of the set of ``step_size <q', loss> + KL(q' || q)``.

    ``q`` is given by itself or, where its values may leave the range of floating point, by ``log_q`` (which
    takes precedence); tables may also come as one flat vector over pairs.  Losses may have any sign.
    ``available`` masks the actions, a list over layers of ``(S_h, A)`` of bool: the others have mass zero before and
    after; so have those whose ``log_q`` is -inf, in states with mass elsewhere.
    ``entropy="pairs"`` compares occupancies of (s, a); ``"triples"`` those of (s, a, s'), and needs the previous
    ``kernels``; ``"conditional"`` the policies, sum_b q'_b ln(pi'(a | s) / pi(a | s)): of q only its policy matters
    (uniform where a state has no mass), which may have zeros, and :func:`conditional_step` is quicker where the new
    policy is all that is wanted.  ``warm`` is that of an earlier step on a set of the same shape: it saves iterations
    and changes the answer only within the tolerance.  Raises :class:`SolverError` if no certified gap within
    ``tolerance`` was found, and ``InvalidMDPError`` if the set has an empty pair.
    """
    if available is not None:
        layers = masked_layers(confidence_set.layer_sizes, confidence_set.n_actions, checked_available(available))
        every, loss = flat_step(confidence_set, q, log_q, loss)
        log_q = np.where(layers.uniform_policy > 0.0, every, -np.inf)
    if log_q is not None and entropy in ("pairs", "triples") and _has_zeros(log_q):
        every, losses = flat_step(confidence_set, q, log_q, loss)
        found = stand_ins(every, confidence_set.layer_sizes, confidence_set.n_actions)
        if found is not None:
            if kernels is not None:
                kernels = [with_copied_rows(np.asarray(p), a) for p, a in zip(kernels, found.actions, strict=True)]
            try:
                step = mirror_descent_step(
                    confidence_set.with_rows_of(found.actions), None, losses[found.pairs], step_size,
                    log_q=found.spread(every), entropy=entropy, kernels=kernels, warm=warm, tolerance=tolerance,
                )  # fmt: skip
            except SolverError as error:
                if error.step is not None:
                    error.step = _merged(error.step, found)
                raise
            return _merged(step, found)
    if entropy in ("pairs", "triples"):
        confidence_set = confidence_set.dense()
    if isinstance(confidence_set, BoxSet) and confidence_set.kept_states is not None:
        # An interval below zero at a state that is left out is empty as well, and no solver sees it.
        require_rows(confidence_set, len(confidence_set.empty_pairs()) > 0)
    if entropy == "triples":
        from advmdp.solvers.triples import triples_step

        return triples_step(
            confidence_set, q, loss, step_size,
            log_q=log_q, kernels=kernels, warm=warm, tolerance=tolerance,
        )  # fmt: skip
    if entropy == "conditional":
        return _conditional(confidence_set, *flat_step(confidence_set, q, log_q, loss), step_size, tolerance)
    if entropy != "pairs":
        raise InvalidSpecError(f"entropy is {entropy!r}; it must be 'pairs', 'triples' or 'conditional'")
    solve = _SOLVERS.get(type(confidence_set))
    if solve is None:
        raise InvalidSpecError(
            f"the step with entropy='pairs' has no solver for {type(confidence_set).__name__}; use an "
            "EllipsoidSet, a BoxSet or KnownKernels, or another entropy"
        )
    problem = flatten(confidence_set, q, log_q, loss, step_size)
    answer = solve(confidence_set, problem, _checked_warm(warm), tolerance)
    step = MirrorStep(
        publish(problem, answer), problem.full_sizes, problem.n_actions, answer.value + problem.offset,
        answer.gap, answer.residual, answer.iterations, answer.status, answer.warm,
    )  # fmt: skip
    reproduced = partial(reproducer, confidence_set, problem.log_prior, problem.cost, step_size)
    return required("mirror step", step, tolerance, reproduced)


def required(name: str, step: MirrorStep, tolerance: float, reproduced: Callable[[], dict[str, Any]]) -> MirrorStep:
    """The step if its certificate meets the tolerance; otherwise :class:`SolverError`, which carries it."""
    certificate = (step.value, step.gap, step.residual)
    if _certified(certificate, tolerance):
        return step
    raise SolverError(
        f"the {name} stopped with a duality gap of {step.gap:.3g} and a residual of {step.residual:.3g} after "
        f"{step.iterations} iterations; {tolerance:.3g} and {LARGEST_RESIDUAL:.3g} were asked for "
        "(save the step with error.save(path))",
        step.gap,
        step.residual,
        reproduced(),
        step if _size(certificate) < np.inf else None,
    )


def _checked_warm(warm: Mapping[str, Floats] | None) -> Mapping[str, Floats]:
    """A warm start, or nothing; one that is not a number would poison the step, and every later one."""
    for name, vector in (warm or {}).items():
        if not np.isfinite(vector).all():
            raise InvalidSpecError(
                f"warm[{name!r}] has {np.count_nonzero(~np.isfinite(vector))} entries that are not finite; give the "
                "`warm` of an earlier step as it is, or None"
            )
    return warm or {}


def _merged(step: MirrorStep, found: StandIns) -> MirrorStep:
    """The step over pairs and their stand-ins, for the pairs alone."""
    return replace(step, flat=found.merge(step.flat, step.layer_sizes, step.n_actions))


def _has_zeros(log_q: Tables) -> bool:
    """Whether some log q is -inf."""
    if isinstance(log_q, np.ndarray) and log_q.ndim == 1:
        return bool(log_q.size and log_q.min() == -np.inf)
    return any(np.any(np.asarray(table) == -np.inf) for table in log_q)


def _conditional(
    confidence_set: ConfidenceSet, log_q: Floats, loss: Floats, step_size: float, tolerance: float
) -> MirrorStep:
    """The step of :mod:`advmdp.solvers.conditional` from the policy of log q."""
    cost = step_size * loss
    require_step(confidence_set, log_q, cost, least_log_q=-np.inf)
    table = log_q.reshape(-1, confidence_set.n_actions)
    table = np.where((table == -np.inf).all(axis=1, keepdims=True), 0.0, table)
    log_policy = table - np.logaddexp.reduce(table, axis=1, keepdims=True)
    step = conditional_step(confidence_set, log_policy.ravel(), cost)
    found = step.occupancy
    taken = MirrorStep(
        FlatTables(*found[:3]), confidence_set.layer_sizes, confidence_set.n_actions, *found[3:], 1, "conditional", {},
        step.kernels,
    )  # fmt: skip
    reproduced = partial(reproducer, confidence_set, log_policy.ravel(), cost, step_size)
    return required("conditional mirror step", taken, tolerance, reproduced)


def restored_warm(saved: Any) -> Warm | None:
    """A warm start out of a file: what a step carries for the next is the solver's own, and ValueError if it is not."""
    if saved is None:
        return None
    warm = {name: float_array(vector, f"warm start {name!r}", ValueError) for name, vector in saved.items()}
    if not all(np.isfinite(vector).all() for vector in warm.values()):
        raise ValueError("the warm start has entries that are not finite")
    return warm


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


class _KnownSpace:
    def __init__(self, sizes: tuple[int, ...], n_actions: int) -> None:
        self.layout, self.lengths = make_layout(sizes, n_actions, [0] * (len(sizes) - 1), [0] * (len(sizes) - 1))
        self.memory = known.make_memory(self.layout, self.lengths)


# --------------------------------------------------------------------------------------------------------
# One solver per kind of set


class _Search:
    """The best answer of the attempts so far."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.iterations = 0
        self.best: Answer | None = None

    def offer(self, found: Certificate, used: int, status: str, memory: Any, warm: Callable[[], Warm]) -> bool:
        """Whether this attempt, whose answer is in the working memory, meets the tolerance.

        Only then is ``warm`` kept: after an answer that does not, the next step starts anew.
        """
        self.iterations += used
        good = _certified(found, self.tolerance)
        best = self.best
        if best is None or good or _size(found) < _size((best.value, best.gap, best.residual)):
            # Another attempt would write over it.
            log_q, q, kernels = (table if good else table.copy() for table in (memory.log_q, memory.q, memory.kernels))
            self.best = Answer(log_q, q, kernels, *found, 0, status, warm() if good else {})
        return good

    @property
    def answer(self) -> Answer:
        """The best, good or not."""
        assert self.best is not None
        return self.best._replace(iterations=self.iterations)


def _certified(certificate: Certificate, tolerance: float) -> bool:
    """Is this (value, gap, residual) good enough?  A gap below zero by more than rounding would mean that the point is
    not feasible."""
    return abs(certificate[1]) <= tolerance and certificate[2] <= LARGEST_RESIDUAL


def _size(certificate: Certificate) -> float:
    """|gap|, or infinity where there is none, or for kernels that are not in the set."""
    gap = abs(certificate[1])
    return gap if gap < np.inf and certificate[2] < np.inf else np.inf


def _given(warm: Mapping[str, Floats], name: str, like: Floats) -> Floats | None:
    """What ``warm`` has under this name, if it belongs to a problem of this shape."""
    vector = warm.get(name)
    return None if vector is None or vector.shape != like.shape else vector


def _kept(name: str, rows: Floats, before: Floats | None) -> Warm:
    """What the next step starts from: where this one ended, and the one before it."""
    return {name: rows.copy()} if before is None else {name: rows.copy(), "before": before}


def _solve_ellipsoid(
    confidence_set: EllipsoidSet, problem: Problem, warm: Mapping[str, Floats], tolerance: float
) -> Answer:
    dim, simplex = confidence_set.dim, confidence_set.simplex
    space: _EllipsoidSpace = _LOCAL.get(
        ("ellipsoid", problem.sizes, problem.n_actions, dim, simplex),
        lambda: _EllipsoidSpace(problem.sizes, problem.n_actions, dim, simplex),
    )
    P0, G, E0, E, chi, smallest = kept_rows(problem, dim, simplex, confidence_set.reduced)
    require_rows(confidence_set, bool((smallest > EMPTY_MARGIN).any()))
    rows = ellipsoid.Rows(P0, G, E0, E)
    memory = space.memory
    mu = MU * max(problem.highest_cost, LEAST_COST)
    last, before, known = (_given(warm, name, chi) for name in ("chi", "before", "centre"))
    centre = (chi if known is None else known).copy()
    pause, left = _pause(warm)
    search = _Search(tolerance)

    def place(comfort: float, last: Floats, before: Floats) -> float:
        return place_points(space.layout, E0, E, comfort, last, before, centre, memory.chi, memory.work, space.scratch)

    def kept() -> Warm:
        waiting = np.array([pause, left], dtype=np.float64)
        return _kept("chi", memory.chi, last) | {"centre": centre.copy(), "pause": waiting}

    def solved(attempt: _Attempt) -> bool:
        value, gap, residual, used = ellipsoid.iterate(
            space.layout, rows, problem.log_prior, problem.cost, attempt.mu * mu, attempt.mu * MU,
            tolerance, LARGEST_RESIDUAL, attempt.limit, attempt.careful, space.point, space.direction, memory,
        )  # fmt: skip
        return search.offer((value, gap, residual), used, attempt.status, memory, kept)

    if last is not None:
        share = place(COMFORT if known is None else WARM_COMFORT, last, centre if before is None else before)
        # After each refusal the shortcut waits twice as long: where it never works it costs next to nothing.
        if left == 0:
            found = ellipsoid.shortcut(space.layout, rows, problem.log_prior, problem.cost, space.point, memory)
            refused = not _certified(found, tolerance)
            pause = left = min(2 * pause + 1, LONGEST_PAUSE) if refused else 0
            if not refused:
                search.offer(found, 0, "shortcut", memory, kept)
                return search.answer
        else:
            left -= 1
        if solved(_warm_attempt(share)):
            return search.answer
    for attempt in _CHAIN:
        centre[:] = chi
        place(COMFORT, centre, centre)
        if solved(attempt):
            return search.answer
    centre[:] = chi
    place(np.inf, centre, centre)  # where the smoothed dual starts from, and a later warm step returns to
    resort = robust.solve_ellipsoids(
        space.layout, space.lengths, (P0, G, E0, E), memory.chi, kept_active(problem, confidence_set), smallest,
        simplex, problem.log_prior, problem.cost, tolerance, LARGEST_RESIDUAL,
    )  # fmt: skip
    search.offer(resort.certificate, resort.iterations, "smoothed", resort.memory, kept)
    return search.answer


def _pause(warm: Mapping[str, Floats]) -> tuple[int, int]:
    """How long the shortcut pauses after a refusal, and how many steps of that are left."""
    saved = warm.get("pause")
    if saved is None or saved.shape != (2,):
        return 0, 0
    return int(min(max(saved[0], 0.0), LONGEST_PAUSE)), int(min(max(saved[1], 0.0), LONGEST_PAUSE))


def _solve_box(confidence_set: BoxSet, problem: Problem, warm: Mapping[str, Floats], tolerance: float) -> Answer:
    space: _BoxSpace = _LOCAL.get(
        ("box", problem.sizes, problem.n_actions),
        lambda: _BoxSpace(problem.sizes, problem.n_actions),
    )
    memory, rows = space.memory, space.rows
    lower, upper = confidence_set.flat_lower, confidence_set.flat_upper
    if problem.kept is not None:
        lower, upper = (kept_tables(problem, bounds) for bounds in (confidence_set.lower, confidence_set.upper))
    require_rows(confidence_set, box.prepare(space.layout, lower, upper, rows, memory) > 0)
    mu = MU * max(problem.highest_cost, LEAST_COST)
    last, before = _given(warm, "kernels", memory.kernels), _given(warm, "before", memory.kernels)
    search = _Search(tolerance)

    def solved(attempt: _Attempt) -> bool:
        value, gap, residual, used = box.iterate(
            space.layout, rows, problem.log_prior, problem.cost, attempt.mu * mu, attempt.mu * MU,
            tolerance, LARGEST_RESIDUAL, attempt.limit, space.point, space.direction, memory,
        )  # fmt: skip
        kept = _kept("kernels", memory.kernels, last)
        return search.offer((value, gap, residual), used, attempt.status, memory, lambda: kept)

    if last is not None:
        share = box.move_inside(space.layout, rows, last, rows.inside if before is None else before, memory.kernels)
        if solved(_warm_attempt(share)):
            return search.answer
    for attempt in _CHAIN:
        if not attempt.careful:  # boxes have no blocks to factor
            memory.kernels[:] = rows.inside
            if solved(attempt):
                return search.answer
    resort = robust.solve_boxes(
        problem.sizes, problem.n_actions, rows.low, rows.high, rows.inside, problem.log_prior, problem.cost,
        tolerance, LARGEST_RESIDUAL,
    )  # fmt: skip
    kernels = resort.memory.kernels.copy()
    search.offer(resort.certificate, resort.iterations, "smoothed", resort.memory, lambda: {"kernels": kernels})
    return search.answer


def _solve_known(
    confidence_set: KnownKernels, problem: Problem, warm: Mapping[str, Floats], tolerance: float
) -> Answer:
    space: _KnownSpace = _LOCAL.get(
        ("known", problem.sizes, problem.n_actions),
        lambda: _KnownSpace(problem.sizes, problem.n_actions),
    )
    memory = space.memory
    value, gap, residual, iterations = known.iterate(
        space.layout, kept_tables(problem, confidence_set.kernels), problem.log_prior, problem.cost,
        tolerance, LARGEST_RESIDUAL, NEWTON_LIMIT, memory,
    )  # fmt: skip
    return Answer(
        memory.log_q, memory.q, memory.kernels, value, gap, residual, iterations,
        "cold", {},
    )  # fmt: skip


_SOLVERS: dict[type, Callable[..., Answer]] = {
    EllipsoidSet: _solve_ellipsoid,
    BoxSet: _solve_box,
    KnownKernels: _solve_known,
}
