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
def iterate(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, per_spread: float,
    lift: float, tolerance: float, largest_residual: float, limit: int, careful: bool, patient: bool, x: Point,
    d: Point, memory: Memory,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Interior-point iterations from a fresh start: (value, gap, residual, iterations) of the certificate that meets
    the tolerance, which ``memory`` then holds, or else of the one with the smallest gap.

    They start around the points ``memory.chi`` of the sets; with ``limit = 0`` there is no iteration, but the shortcut
    from the same points.  (On its own it would compile most of this once more.)
    """
    if limit == 0:
        value, gap, residual = carry_flow(layout, rows, log_prior, cost, x, memory)
        return value, gap, residual, 0
    mu = start(layout, rows, log_prior, cost, mu, per_spread, lift, x, memory)
    best = np.nan, np.inf, np.inf
    stuck = False
    for iteration in range(limit + 1):
        mu, weighted, flow, dual = residuals(layout, rows, log_prior, cost, x, memory)
        last = stuck or iteration == limit or not mu >= 0.0
        if last or interior_point.worth_certifying(weighted, flow, CERTIFIABLE * tolerance):
            found = certify(layout, rows, log_prior, cost, x, memory)
            good = abs(found[1]) <= tolerance and found[2] <= largest_residual
            if interior_point.closer(found, best) or good:
                best = found
            if good or last:
                break
        assemble(layout, rows, careful, x, memory)
        target = interior_point.first_target(mu, dual, patient)
        longest = 0.0
        for corrected in range(1 if patient else 2):
            if corrected:
                after = interior_point.after_predictor(mu, min(1.0, longest), second_order(layout, x, d, memory))
                target = interior_point.corrected_target(mu, dual, after)
            longest = direction(layout, rows, x, target, corrected == 1, d, memory)
        stuck = not np.isfinite(d.V[0])
        if not stuck:
            interior_point.advance(x, d, interior_point.step_along(longest, patient, target / mu, x.q, d.q))
    return best[0], best[1], best[2], iteration
