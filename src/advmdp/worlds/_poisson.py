"""The Poisson distribution by its formula.  scipy.stats is slow to import, and scipy.special not quick."""

from __future__ import annotations

import numpy as np

from advmdp.layered import FloatArray, IntArray


def probability(count: IntArray | int, mean: float) -> FloatArray:
    """P(N = count), elementwise."""
    from scipy.special import gammaln, xlogy

    return np.exp(np.asarray(xlogy(count, mean) - gammaln(np.add(count, 1)) - mean, dtype=np.float64))


def width(mean: float) -> int:
    """About how many counts have a probability above 1e-18, or a few more."""
    return int(18.0 * np.sqrt(mean)) + 20


def tail(count: IntArray | int, mean: float) -> FloatArray:
    """P(N > count), elementwise."""
    from scipy.special import pdtrc

    return np.asarray(pdtrc(count, mean), dtype=np.float64)
