"""Bounds of boxes that are attained, for the mirror step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.rows.ellipsoid import EMPTY_MARGIN

__all__ = ["EMPTY_MARGIN", "presolve_box_layer"]

Floats = NDArray[np.float64]


@inner_kernel
def presolve_box_layer(lower: Floats, upper: Floats, low: Floats, high: Floats, excess: Floats) -> int:
    """Bounds that every distribution between ``lower`` and ``upper`` (n, A, m) keeps, per block (m, N).

    ``low_t = max(lower_t, 1 - sum of the other uppers)`` and the mirror image for ``high_t``; after this each
    bound is attained.  ``excess[b]`` is by how much sum(lower) exceeds one or sum(upper) falls short of it
    (positive: empty).  The number of empty blocks is returned.
    """
    n, A, m = lower.shape
    n_empty = 0
    for a in range(A):
        for s in range(n):
            b = a * n + s
            sum_low = 0.0
            sum_high = 0.0
            for t in range(m):
                sum_low += max(lower[s, a, t], 0.0)
                sum_high += min(upper[s, a, t], 1.0)
            excess[b] = max(sum_low - 1.0, 1.0 - sum_high)
            for t in range(m):
                # An interval that misses [0, 1] altogether.
                excess[b] = max(excess[b], max(lower[s, a, t], 0.0) - min(upper[s, a, t], 1.0))
            if excess[b] > 1e-12:
                n_empty += 1
            for t in range(m):
                l = max(lower[s, a, t], 0.0)  # noqa: E741
                u = min(upper[s, a, t], 1.0)
                low[t, b] = max(l, 1.0 - (sum_high - u))
                high[t, b] = max(min(u, 1.0 - (sum_low - l)), low[t, b])
    return n_empty
