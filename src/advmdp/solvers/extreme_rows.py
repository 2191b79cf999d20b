"""Where the mirror step looks for the extreme rows of ellipsoids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.rows.ellipsoid import block_work_size, extremes
from advmdp.rows.layer import sort_decreasing

__all__ = ["block_work_size", "ellipsoid_rows", "sort_decreasing"]

Floats = NDArray[np.float64]


@inner_kernel
def ellipsoid_rows(
    P0: Floats, G: Floats, E0: Floats, E: Floats, active: NDArray[np.int64], smallest: Floats, values: Floats,
    layer_work: Floats, block_work: Floats, picks: NDArray[np.int64], means: Floats, points: bool,
) -> None:  # fmt: skip
    """The means of :func:`extremes` alone."""
    extremes(P0, G, E0, E, G[0], active, smallest, values, layer_work, block_work, picks, means, False)
