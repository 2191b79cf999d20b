"""The iteration: start, then Newton systems with predictor and corrector until a certificate holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import kernel
from advmdp.solvers import interior_point
from advmdp.solvers.ellipsoid.certify import certify
from advmdp.solvers.ellipsoid.memory import Memory, Point, Rows
from advmdp.solvers.ellipsoid.newton import assemble, direction, residuals, second_order
from advmdp.solvers.ellipsoid.shortcut import carry_flow
from advmdp.solvers.ellipsoid.start import start
from advmdp.solvers.layout import Layout

Floats = NDArray[np.float64]

# The gap is seldom less than nine tenths of the weighted complementarity.
CERTIFIABLE = 1.25


@kernel
def shortcut(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float]:
    """(value, gap, residual) of the step if the kernels do not bind, found near the points ``memory.chi``; the gap is
    infinite where they do.  ``memory`` holds the answer."""
    return carry_flow(layout, rows, log_prior, cost, x, memory)


@kernel
def iterate(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, per_spread: float, tolerance: float,
    largest_residual: float, limit: int, careful: bool, x: Point, d: Point, memory: Memory,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Interior-point iterations around the points ``memory.chi`` of the sets: (value, gap, residual, iterations) of the
    certificate that meets the tolerance, or else of the one with the smallest gap.  ``memory`` then holds its answer.
    """
    mu = start(layout, rows, log_prior, cost, mu, per_spread, careful, x, memory)
    best = np.nan, np.inf, np.inf
    good = False
    stuck = False
    length = 1.0
    for iteration in range(limit + 1):
        mu, weighted, flow, dual = residuals(layout, rows, log_prior, cost, x, memory)
        last = stuck or iteration == limit or not mu >= 0.0
        if last or interior_point.worth_certifying(weighted, flow, CERTIFIABLE * tolerance):
            found = certify(layout, rows, log_prior, cost, x, memory)
            good = abs(found[1]) <= tolerance and found[2] <= largest_residual
            if interior_point.closer(found, best) or good:
                best = found
                if not good:
                    interior_point.keep(memory)
            if good or last:
                break
        assemble(layout, rows, careful, x, memory)
        plain = careful and length < interior_point.SHORT
        target = interior_point.PLAIN * mu
        if not plain:
            longest = direction(layout, rows, x, 0.0, False, d, memory)
            after = interior_point.after_predictor(mu, min(1.0, longest), second_order(layout, x, d, memory))
            target = interior_point.corrected_target(mu, dual, after)
        longest = direction(layout, rows, x, target, not plain, d, memory)
        stuck = not np.isfinite(d.V[0])
        if not stuck:
            length = interior_point.step_along(longest, target / mu, x.q, d.q)
            interior_point.advance(x, d, length)
    if not good and best[1] < np.inf:
        interior_point.recall(memory)
    return best[0], best[1], best[2], iteration
