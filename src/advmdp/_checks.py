"""Checks of plain values that many parts need; each raises the error class of its caller's domain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def integer(value: Any, what: str, low: int, error: type[ValueError]) -> int:
    """``value`` as an int if it is an integer (not a bool, not 3.0) of at least ``low``."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= low:
        return int(value)
    raise error(f"{what} is {value!r}, should be an integer >= {low}")


def between(value: Any, what: str, low: float, high: float, error: type[ValueError]) -> float:
    """``value`` as a float if it is a number (not a bool, not a text) in [low, high]."""
    if (
        isinstance(value, (int, float, np.integer, np.floating))
        and not isinstance(value, bool)
        and low <= value <= high
    ):
        return float(value)
    raise error(f"{what} is {value!r}, should be a number in [{low:g}, {high:g}]")


def above_zero(value: Any, what: str, error: type[ValueError]) -> float:
    """``value`` as a float if it is a finite number > 0."""
    if (
        isinstance(value, (int, float, np.integer, np.floating))
        and not isinstance(value, bool)
        and 0.0 < value < np.inf
    ):
        return float(value)
    raise error(f"{what} is {value!r}, should be a finite number > 0")


def float_array(value: Any, what: str, error: type[ValueError]) -> NDArray[np.float64]:
    """``value`` as a float64 array; text, complex numbers and objects are refused."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as problem:
        raise error(f"{what} is not an array of numbers: {problem}") from problem
    if array.dtype.kind not in "fiub":
        raise error(f"{what} is not an array of numbers: its type is {array.dtype}")
    return array.astype(np.float64, copy=False)
