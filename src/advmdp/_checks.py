"""Checks of plain values that many parts need; each raises the error class of its caller's domain."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
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


def numbers(
    value: Any,
    what: str,
    shape: tuple[int, ...],
    low: float = -np.inf,
    high: float = np.inf,
    error: type[ValueError] = ValueError,
) -> NDArray[np.float64]:
    """A private copy of an array (out of a file, say) of that shape, finite, with entries in [low, high]."""
    array = float_array(value, what, error)
    if array.shape != shape or not (np.isfinite(array) & (array >= low) & (array <= high)).all():
        raise error(f"{what} of shape {array.shape} should be finite, of shape {shape}, in [{low:g}, {high:g}]")
    return np.array(array)


def kernels_fit_in_memory(entries: int, dim: int, what: str, error: type[ValueError]) -> None:
    """The same for a mixture of ``dim`` kernels with so many entries each: kernels, features, and copies for checks."""
    fits_in_memory(8 * entries * (3 * dim + 2), what, error)


def fits_in_memory(size: int, what: str, error: type[ValueError]) -> None:
    """Refuse what would take more bytes than there are, before the system ends the process that asks for them."""
    if size > memory():
        raise error(f"{what} would take {size / 2**30:,.1f} GiB of memory, there are {memory() / 2**30:,.1f} GiB")


#: Bytes that a layer takes at least, in lists, shapes and names.
LAYER = 2000


@cache
def memory() -> int:
    """Bytes that this process may have: those of the machine, or of the container that it runs in."""
    limits = []
    with suppress(AttributeError, ValueError, OSError):  # not on every system
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # "max": no limit
            limits.append(int(Path(limit).read_text()))
    return min(limits, default=sys.maxsize)
