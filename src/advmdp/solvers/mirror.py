"""The mirror-descent step: minimise ``step <q, loss> + KL(q || q_previous)`` over a confidence set.

:func:`mirror_descent_step` chooses the solver by the kind of set, keeps the working memory, and never returns an
answer without its certificate: a flow-feasible occupancy measure, kernels of the set that produce it, and the
duality gap that proves how good it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import ArrayLike, NDArray

from advmdp._arrays import Floats
from advmdp._checks import float_array
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.errors import InvalidSpecError
from advmdp.layered import checked_available, masked_layers, with_copied_rows
from advmdp.rows.ellipsoid import EMPTY_MARGIN
from advmdp.solvers import box, ellipsoid, interior_point, mixtures
from advmdp.solvers.balls import Balls
from advmdp.solvers.conditional import conditional_step
from advmdp.solvers.layout import addresses, allocate, make_layout
from advmdp.solvers.masks import StandIns, stand_ins
from advmdp.solvers.problem import (
    Answer,
    FlatTables,
    Problem,
    Tables,
    flat_step,
    flatten,
    kept_bounds,
    kept_pairs,
    kept_rows,
    publish,
    reproducer,
    require_rows,
    require_step,
)
from advmdp.solvers.step import (
    LARGEST_RESIDUAL,
    SPACES,
    Certificate,
    MirrorStep,
    SolverError,
    Warm,
    certified,
    checked_warm,
    required,
    size_of,
)
from advmdp.solvers.triples import solve_known, solve_triples

# The first mu is at least this share of the largest cost and of the spread of the starting prices.
MU = 0.03
LEAST_COST = 0.02
# A warm start goes a share of the way from the point that is known of each row set to where the last step ended, the
# further the less the rows have moved in that step: the share loses PER_MOVE times their relative move.
PER_MOVE = 1.25
LEAST_SHARE = 0.2
LARGEST_SHARE = 0.95
# The first mu of a warm start: this multiple of the usual one, times the share of the way to the last step not gone.
WARM_MU = 0.3


class _Attempt(NamedTuple):
    """One way to run the interior-point method; they are tried in order until one is certified."""

    status: str
    limit: int  # iterations
    mu: float  # multiple of the usual first mu


# After these, the smoothed dual (`mixtures`), which is slower and solves all known steps that they leave.
_CHAIN = (_Attempt("cold", 40, 1.0), _Attempt("careful", 100, 1.0))


def _warm_attempt(share: float) -> _Attempt:
    """One that takes longer than a cold one does would rather have begun as that."""
    return _Attempt("warm", 25, WARM_MU * (1.0 - share))


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
    require_rows(confidence_set, confidence_set.empty_out_of_sight())
    if entropy == "conditional":
        return _conditional(confidence_set, *flat_step(confidence_set, q, log_q, loss), step_size, tolerance)
    if entropy not in ("pairs", "triples"):
        raise InvalidSpecError(f"entropy is {entropy!r}; it must be 'pairs', 'triples' or 'conditional'")
    problem = flatten(confidence_set, q, log_q, loss, step_size)
    if entropy == "triples":
        answer = solve_triples(confidence_set, problem, kernels, checked_warm(warm), tolerance)
    else:
        answer = _solve(confidence_set, problem, checked_warm(warm), tolerance)
    step = MirrorStep(
        publish(problem, answer), problem.full_sizes, problem.n_actions, answer.value + problem.offset,
        answer.gap, answer.residual, answer.iterations, answer.status, answer.warm,
    )  # fmt: skip

    def reproduced() -> dict[str, Any]:
        return reproducer(confidence_set, *flat_step(confidence_set, q, log_q, loss), step_size, entropy, kernels)

    return required("mirror step", step, tolerance, reproduced)


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
    reproduced = partial(reproducer, confidence_set, log_q, loss, step_size, "conditional")
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


class _Space:
    """Of the interior point over ``box`` or ``ellipsoid`` rows, with so many inequalities and free coordinates."""

    def __init__(self, kind: Any, sizes: tuple[int, ...], n_actions: int, rows: list[int], free: list[int]) -> None:
        self.shape = sizes, n_actions, rows, free
        self.layout = make_layout(*self.shape)
        self.memory = allocate(interior_point.Memory, self.layout)
        self.own = allocate(kind.Own, self.layout)
        #: As the iteration takes them.
        self.places = addresses(self.memory), addresses(self.own)
        self.kind = kind
        self.alone = np.concatenate([np.arange(n) for n in self.layout["blocks"][:-1]])
        self.memory.place[:] = self.alone
        #: The last layout in which pairs share row sets, and how many of these its layers have.
        self.shared, self.counts = self.layout, list[int]()

    @cached_property
    def rows(self) -> Any:
        """Room for rows."""
        return allocate(self.kind.Rows, self.layout)


# --------------------------------------------------------------------------------------------------------
# One solver per kind of set


@singledispatch
def _solve(confidence_set: ConfidenceSet, problem: Problem, warm: Mapping[str, Floats], tolerance: float) -> Answer:
    raise InvalidSpecError(f"there is no mirror step with entropy='pairs' over a {type(confidence_set).__name__}")


class _Search:
    """The attempts of a step by the interior point, and the best answer of those so far."""

    def __init__(
        self, confidence_set: ConfidenceSet, space: _Space, layout: Any, rows: Any, problem: Problem, tolerance: float,
        kept: Callable[[], Warm],
    ) -> None:  # fmt: skip
        """``kept``: what the next step may start from, where the answer in the working memory is good."""
        self.confidence_set, self.space, self.layout, self.problem = confidence_set, space, layout, problem
        self.tolerance, self.kept = tolerance, kept
        self.rows = addresses(rows)
        self.step = addresses(interior_point.Step(problem.log_prior, problem.cost))
        self.mu = MU * max(problem.highest_cost, LEAST_COST)
        self.iterations = 0
        self.best: Answer | None = None

    def solved(self, attempt: _Attempt) -> bool:
        """Whether this attempt, from where the working memory says, meets the tolerance."""
        space, memory = self.space, self.space.memory
        value, gap, residual, used = interior_point.iterate(
            self.layout, self.rows, self.step, attempt.mu * self.mu, attempt.mu * MU, self.tolerance,
            space.kind.CERTIFIABLE * self.tolerance, LARGEST_RESIDUAL, attempt.limit, attempt.status != "warm",
            attempt.status == "careful", *space.places,
        )  # fmt: skip
        found = memory.kept_log_q, memory.kept_q, memory.kept_kernels
        return self.offer((value, gap, residual), used, attempt.status, *found)

    def offer(self, found: Certificate, used: int, status: str, *tables: Floats) -> bool:
        """Whether an answer that is in this working memory meets the tolerance.

        Only then is a warm start kept: after an answer that does not, the next step starts anew.
        """
        self.iterations += used
        good = certified(found, self.tolerance)
        best = self.best
        if best is None or good or size_of(found) < size_of((best.value, best.gap, best.residual)):
            # Another attempt would write over it.
            log_q, q, kernels = (table if good else table.copy() for table in tables)
            self.best = Answer(log_q, q, kernels, *found, 0, status, self.kept() if good else {})
        return good

    def from_anew(self, restart: Callable[[], None]) -> Answer:
        """The attempts that take nothing from the step before, the last of them judged by exact minima as well; and
        then the last resort."""
        memory = self.space.memory
        for attempt in _CHAIN:
            restart()
            if self.solved(attempt):
                return self.answer
        if _CHAIN:
            memory.bound[:] = mixtures.extremes(self.confidence_set, self.problem, memory.V)[0]
            exact = interior_point.certify_exactly(self.layout, self.step, self.space.places[0])
            if self.offer(exact, 0, "careful", memory.kept_log_q, memory.kept_q, memory.kept_kernels):
                return self.answer
        restart()  # for a warm step after this one
        found = mixtures.mixed_step(self.confidence_set, self.problem, self.tolerance)
        memory.kept_kernels[:] = found.kernels
        self.offer(found.certificate, found.iterations, "smoothed", found.log_q, found.q, found.kernels)
        return self.answer

    @property
    def answer(self) -> Answer:
        """The best, good or not."""
        assert self.best is not None
        return self.best._replace(iterations=self.iterations)


def _given(warm: Mapping[str, Floats], name: str, like: Floats) -> Floats | None:
    """What ``warm`` has under this name, if it belongs to a problem of this shape: rows, or points of unit balls."""
    vector = warm.get(name)
    fits = vector is not None and vector.shape == like.shape and np.abs(vector).max(initial=0.0) <= 1.001
    return vector if fits else None


def _warm_share(centre: Floats, before: Floats | None, last: Floats) -> float:
    """How far to go from ``centre`` back to ``last``, given how far that had moved from ``before``."""
    moved, away = (norm(last - (centre if other is None else other)) for other in (before, centre))
    return min(max(1.0 - PER_MOVE * float(moved / away), LEAST_SHARE), LARGEST_SHARE) if moved < away else LEAST_SHARE


def _kept(name: str, rows: Floats, before: Floats | None) -> Warm:
    """What the next step starts from: where this one ended, and the one before it."""
    return {name: rows.copy()} if before is None else {name: rows.copy(), "before": before}


@_solve.register
def _solve_ellipsoid(
    confidence_set: EllipsoidSet, problem: Problem, warm: Mapping[str, Floats], tolerance: float
) -> Answer:
    dim, simplex = confidence_set.dim, confidence_set.simplex
    *sets, chi, smallest = kept_rows(problem, confidence_set)
    require_rows(confidence_set, bool((smallest > EMPTY_MARGIN).any()))
    widths = list(problem.sizes[1:-1])
    space = _space(ellipsoid, problem, [dim] * len(widths) if simplex else widths, [dim - 1] * len(widths))
    return _solve_polyhedra(confidence_set, space, ellipsoid.Rows(*sets), chi, problem, warm, tolerance)


@_solve.register
def _solve_l1(confidence_set: L1Set, problem: Problem, warm: Mapping[str, Floats], tolerance: float) -> Answer:
    balls = Balls.of(confidence_set, problem)
    space = _space(ellipsoid, problem, balls.rows, balls.free)
    rows, chi = balls.polyhedra(space.layout), np.zeros_like(space.own.chi)
    return _solve_polyhedra(confidence_set, space, rows, chi, problem, warm, tolerance)


def _space(kind: Any, problem: Problem, rows: list[int], free: list[int]) -> _Space:
    key = (kind.__name__, problem.sizes, problem.n_actions, *rows, *free)
    space: _Space = SPACES.get(key, lambda: _Space(kind, problem.sizes, problem.n_actions, rows, free))
    return space


def _solve_polyhedra(
    confidence_set: ConfidenceSet, space: _Space, rows: ellipsoid.Rows, chi: Floats, problem: Problem,
    warm: Mapping[str, Floats], tolerance: float,
) -> Answer:  # fmt: skip
    """The attempts over row sets P0 + G chi, E0 + E chi >= 0, |chi| <= 1, with points chi of them."""
    last, before = (_given(warm, name, chi) for name in ("chi", "before"))
    space.own.given[:] = chi

    def restart() -> None:
        space.own.chi[:] = chi

    search = _Search(
        confidence_set, space, space.layout, rows, problem, tolerance, lambda: _kept("chi", space.own.chi, last)
    )
    if last is not None:
        share = _warm_share(chi, before, last)
        space.own.chi[:] = chi + share * (last - chi)
        if search.solved(_warm_attempt(share)):
            return search.answer
    return search.from_anew(restart)


@_solve.register
def _solve_box(confidence_set: BoxSet, problem: Problem, warm: Mapping[str, Floats], tolerance: float) -> Answer:
    widths = problem.sizes[1:-1]
    space = _space(box, problem, [2 * m for m in widths], [0] * len(widths))
    memory, rows = space.memory, space.rows
    bounds = kept_bounds(problem, confidence_set)
    require_rows(confidence_set, confidence_set.some_empty)
    layout, memory.place[:] = _shared(space, kept_pairs(problem, confidence_set.loose))
    places = addresses(rows)
    box.prepare(layout, problem.n_actions, *bounds, places, space.places[0])
    last, before = _given(warm, "kernels", memory.kernels), _given(warm, "before", memory.kernels)

    def restart() -> None:
        memory.P[:] = rows.inside

    search = _Search(
        confidence_set, space, layout, rows, problem, tolerance, lambda: _kept("kernels", memory.kept_kernels, last)
    )
    if last is not None:
        share = _warm_share(memory.kernels, before, last)
        box.move_inside(layout, places, last, share, space.places[0])
        if search.solved(_warm_attempt(share)):
            return search.answer
    return search.from_anew(restart)


def _shared(space: _Space, loose: NDArray[np.bool_]) -> tuple[Any, NDArray[np.int64]]:
    """Where pairs whose boxes hold every distribution share one: the layout, and the row set of each pair.

    ``loose`` is in the order of tables (S_h, A).
    """
    sizes, n_actions = space.shape[:2]
    if not loose.any():
        return space.layout, space.alone
    places, counts, at = [], [], 0
    for n in sizes[:-1]:
        shared = loose[at : at + n * n_actions].reshape(n, n_actions).T.ravel()
        at += n * n_actions
        first = np.argmax(shared)
        own = ~shared
        own[first] = True
        place = np.cumsum(own) - 1
        place[shared] = place[first]
        places.append(place)
        counts.append(int(place.max()) + 1)
    if counts != space.counts:  # as long as no other pair is known well enough the layout stays
        space.counts, space.shared = counts, make_layout(*space.shape, counts[:-1])
    return space.shared, np.concatenate(places)


_solve.register(KnownKernels)(solve_known)
