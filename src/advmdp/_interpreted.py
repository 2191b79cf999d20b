"""Kernels without a compiler, with ``NUMBA_DISABLE_JIT=1``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config

_CONFIG: Any = config
INTERPRETED = bool(_CONFIG.DISABLE_JIT)


def view(buffer: np.ndarray, start: int, *shape: int) -> np.ndarray:
    """What ``solvers.layout.view1`` and its like are to compiled kernels."""
    return buffer[start : start + int(np.prod(shape))].reshape(shape)
