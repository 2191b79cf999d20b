"""Mirror steps whose dual is smooth: over known kernels, and those with the entropy of triples (s, a, s').

The divergence of triple measures splits into that of the pairs and that of the rows,

    KL(q', P' || q, P) = sum_b q'_b log(q'_b / q_b) - q'_b + q_b  +  sum_b q'_b KL(P'_b || P_b),

so that m_b(V) of :mod:`advmdp.solvers.prices` is the minimum over the row set of p.V + KL(p || P_b), which is smooth
(:mod:`advmdp.solvers.entropic_rows`).  Over known kernels it is a step over pairs whose costs are raised by
KL(P'_b || P_b).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from advmdp._arrays import Floats
from advmdp.confidence import BoxSet, ConfidenceSet, KnownKernels, L1Set
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.solvers import prices
from advmdp.solvers.entropic_rows import LEAST_PRIOR, EntropicRows
from advmdp.solvers.layout import LINE, addresses, allocate, make_layout
from advmdp.solvers.problem import Answer, Problem, kept_bounds, kept_pairs, kept_tables, require_rows, split_kernels
from advmdp.solvers.step import SPACES, certified, size_of

# By where they begin: what to call an attempt, and its longest.
_STATUS = ("warm", "cold", "careful")
NEWTON_LIMIT = (300, 300, 1000)


class _Space:
    """Everything that steps of one shape share; results are copied out of it."""

    def __init__(self, sizes: tuple[int, ...], n_actions: int) -> None:
        nothing = [0] * (len(sizes) - 2)
        self.layout = make_layout(sizes, n_actions, nothing, nothing)
        self.memory = allocate(prices.Memory, self.layout)
        self.places = addresses(self.memory)
        entries = self.memory.kernels.size
        self.fixed, self.packed = np.zeros(entries), np.zeros(len(sizes) - 1, dtype=np.bool_)
        self.entries = entries + n_actions * sizes[-2]
        self.prior = np.zeros(entries)
        self.scratch = (
            np.zeros(entries, dtype=np.int8), np.zeros((3, max(sizes))), np.zeros((LINE, max(sizes))),
            np.zeros(self.memory.stacked.size),
        )  # fmt: skip


def _attempt(space: _Space, rows: Any, problem: Problem, begin: int) -> Answer:
    memory, status = space.memory, _STATUS[begin]
    value, gap, residual, iterations = prices.solve(
        space.layout, rows, problem.log_prior, problem.cost, begin, NEWTON_LIMIT[begin], space.places
    )
    return Answer(memory.log_q, memory.q, memory.kernels, value, gap, residual, iterations, status, {})


def _solve(space: _Space, rows: Any, problem: Problem, warm: Mapping[str, Floats], tolerance: float) -> Answer:
    """From the prices of an earlier step, if there are any; and from others, as long as these are not good enough."""
    memory, given = space.memory, warm.get("prices")
    best, smallest, iterations = None, np.inf, 0
    for begin in (prices.WARM, prices.SETTLED, prices.PRIOR):
        if begin == prices.WARM:
            if given is None or given.shape != memory.V.shape:
                continue
            memory.V[:] = given
        found = _attempt(space, rows, problem, begin)
        iterations += found.iterations
        certificate = (found.value, found.gap, found.residual)
        if certified(certificate, tolerance):
            return found._replace(iterations=iterations, warm={"prices": memory.V.copy()})
        if best is None or size_of(certificate) < smallest:
            # Another attempt writes over it.
            smallest = size_of(certificate)
            best = found._replace(log_q=found.log_q.copy(), q=found.q.copy(), kernels=found.kernels.copy())
    assert best is not None
    return best._replace(iterations=iterations)


def _space(problem: Problem) -> _Space:
    sizes, n_actions = problem.sizes, problem.n_actions
    space: _Space = SPACES.get(("prices", sizes, n_actions), lambda: _Space(sizes, n_actions))
    return space


def _fixed(confidence_set: KnownKernels, problem: Problem, space: _Space) -> prices.FixedRows:
    space.packed[:] = False
    tables = confidence_set.rows.values
    if problem.kept is not None or tables.size < space.entries:  # states are left out, or layers share a table
        tables = kept_tables(problem, confidence_set.kernels)
    return prices.FixedRows(tables, space.fixed, space.packed)


def solve_known(confidence_set: KnownKernels, problem: Problem, warm: Mapping[str, Floats], tolerance: float) -> Answer:
    """The step over pairs under known kernels; a warm start would save nothing."""
    space = _space(problem)
    return _attempt(space, _fixed(confidence_set, problem, space), problem, prices.SETTLED)


def solve_triples(
    confidence_set: ConfidenceSet, problem: Problem, kernels: Sequence[ArrayLike] | None, warm: Mapping[str, Floats],
    tolerance: float,
) -> Answer:  # fmt: skip
    """The step with the entropy of triples; ``kernels`` are those of the previous iterate.

    A prior entry of zero that the set allows counts as 1e-300.
    """
    if kernels is None:
        raise InvalidSpecError("entropy='triples' needs kernels=, those of the previous iterate")
    if not isinstance(confidence_set, BoxSet | L1Set | KnownKernels):
        raise InvalidSpecError(
            f"the step with entropy='triples' has no solver for {type(confidence_set).__name__}; use "
            "a BoxSet, an L1Set or KnownKernels, or entropy='pairs'"
        )
    tables = [np.asarray(table, dtype=np.float64) for table in kernels]
    sizes = problem.full_sizes
    shapes = [(n, problem.n_actions, m) for n, m in pairwise(sizes)]
    if [table.shape for table in tables] != shapes:
        found = [table.shape for table in tables]
        raise InvalidMDPError(f"kernels has tables of shapes {found}; this set needs {shapes}")
    space = _space(problem)
    if len(tables) > 1:
        kept_tables(problem, tables, space.prior)
    np.maximum(space.prior, LEAST_PRIOR, out=space.prior)
    if isinstance(confidence_set, KnownKernels):
        problem = _raised(confidence_set, problem, space.prior)
        return _solve(space, _fixed(confidence_set, problem, space), problem, warm, tolerance)
    if isinstance(confidence_set, BoxSet):
        require_rows(confidence_set, confidence_set.some_empty)
        (low, high), radii = kept_bounds(problem, confidence_set), np.empty(0)
        loose = kept_pairs(problem, confidence_set.loose)
    else:
        low = high = kept_tables(problem, confidence_set.centres)
        radii = kept_pairs(problem, confidence_set.radii)
        loose = radii >= 2.0
    rows = EntropicRows(low, high, radii, space.prior, loose, *space.scratch)
    return _solve(space, rows, problem, warm, tolerance)


def _raised(confidence_set: KnownKernels, problem: Problem, prior: Floats) -> Problem:
    """The step over pairs with costs raised by KL(P_b || prior_b)."""
    rows = kept_tables(problem, confidence_set.kernels)
    terms = rows * np.log(np.where(rows > 0.0, rows, prior) / prior)
    tables = split_kernels(terms, problem.sizes, problem.n_actions)[:-1]
    last = np.zeros(problem.n_actions * problem.sizes[-2])
    divergences = np.concatenate([*(table.sum(axis=2).T.ravel() for table in tables), last])
    return problem._replace(cost=problem.cost + divergences)
