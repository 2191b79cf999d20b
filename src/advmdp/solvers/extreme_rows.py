"""Where the mirror step looks for the extreme rows of ellipsoids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.rows.ellipsoid import extremes
from advmdp.rows.layer import sort_decreasing

__all__ = ["block_work_size", "ellipsoid_rows", "sort_decreasing"]

Floats = NDArray[np.float64]


def block_work_size(n_rows: int, k: int) -> int:
    """Length of the ``block_work`` of :func:`ellipsoid_rows`."""
    return (12 + k) * max(n_rows, k + 1) + 2 * (k + 1) ** 2


@inner_kernel
def ellipsoid_rows(
    P0: Floats, G: Floats, E0: Floats, E: Floats, active: NDArray[np.int64], smallest: Floats, values: Floats,
    layer_work: Floats, block_work: Floats, picks: NDArray[np.int64], means: Floats, points: bool,
) -> None:  # fmt: skip
    """The means of :func:`extremes` alone."""
    r, k, N = E.shape
    most = max(r, k + 1)
    used = (12 + k) * most
    work = layer_work[: (4 + k) * N].reshape((4 + k, N))
    extremes(
        P0, G, E0, E, G[0], active, smallest, values, work, block_work[:used].reshape((12 + k, most)),
        block_work[used : used + 2 * (k + 1) ** 2].reshape((2, k + 1, k + 1)), picks, False,
    )  # fmt: skip
    for b in range(N):
        means[b] = work[0, b]
