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


def float_array(value: Any, what: str, error: type[ValueError]) -> NDArray[np.float64]:
    """``value`` as a float64 array; text, complex numbers and objects are refused."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as problem:
        raise error(f"{what} is not an array of numbers: {problem}") from problem
    if array.dtype.kind not in "fiub":
        raise error(f"{what} is not an array of numbers: its type is {array.dtype}")
    return array.astype(np.float64, copy=False)
