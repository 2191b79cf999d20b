"""Checks of options that several worlds have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import float_array
from advmdp.errors import InvalidSpecError
from advmdp.layered import TOLERANCE, FloatArray


def positive(values: Sequence[float], what: str) -> FloatArray:
    """``values`` as a vector, if they are finite numbers > 0."""
    array = float_array(values, what, InvalidSpecError)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or array.min() <= 0.0:
        raise InvalidSpecError(f"{what} is {values!r}, should be numbers > 0")
    return array


def probabilities(values: Sequence[float], what: str, count: int) -> FloatArray:
    """``values`` as a vector, if they are ``count`` probabilities that sum to one."""
    array = float_array(values, what, InvalidSpecError)
    if array.shape != (count,) or not (array.min() >= 0.0 and abs(array.sum() - 1.0) <= TOLERANCE):
        raise InvalidSpecError(f"{what} is {values!r}, should be {count} probabilities that sum to 1")
    return array
