"""The iteration: start, then Newton systems with predictor and corrector until a certificate holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import kernel
from advmdp.solvers.ellipsoid.certify import certify
from advmdp.solvers.ellipsoid.memory import Memory, Point, Rows
from advmdp.solvers.ellipsoid.newton import assemble, complementarity_after, direction, residuals
from advmdp.solvers.ellipsoid.start import start
from advmdp.solvers.interior_point import (
    advance,
    corrected_target,
    first_target,
    step_along,
    worth_certifying,
)
from advmdp.solvers.layout import Layout

Floats = NDArray[np.float64]


@kernel
def iterate(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, per_spread: float,
    lift: float, tolerance: float, largest_residual: float, limit: int, careful: bool, patient: bool, x: Point,
    d: Point, memory: Memory,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Interior-point iterations from a fresh start; (value, gap, residual, iterations) of the last certificate."""
    mu = start(layout, rows, log_prior, cost, mu, per_spread, lift, x, memory)
    value = np.nan
    gap = np.inf
    residual = np.inf
    for iteration in range(limit):
        mu, weighted, flow, dual = residuals(layout, rows, log_prior, cost, x, memory)
        if worth_certifying(weighted, flow, tolerance):
            value, gap, residual = certify(layout, rows, log_prior, cost, x, memory)
            if gap <= tolerance and residual <= largest_residual:
                return value, gap, residual, iteration
        if not mu >= 0.0:
            return value, gap, residual, iteration
        assemble(layout, rows, careful, x, memory)
        target = first_target(mu, dual, patient)
        longest = 0.0
        for corrected in range(1 if patient else 2):
            if corrected:
                after = complementarity_after(layout, x, d, min(1.0, longest), memory)
                target = corrected_target(mu, dual, after)
            longest = direction(layout, rows, x, target, corrected == 1, d, memory)
        if not np.isfinite(d.V[0]):
            return value, gap, residual, iteration
        advance(x, d, step_along(longest, patient, x.q, d.q))
    return value, gap, residual, limit
