"""Kernels without a compiler: a guard for what inner kernels promise, for use with ``NUMBA_DISABLE_JIT=1``.

A compiled inner kernel assumes that what it writes through one argument it never reaches through another.  Where the
assumption is wrong the optimiser may reorder reads and writes, and answers are wrong without a word.  Interpreted, the
same kernels can be watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numba import config

_CONFIG: Any = config
INTERPRETED = bool(_CONFIG.DISABLE_JIT)

F = TypeVar("F", bound=Callable[..., Any])


def without_overlap(function: F) -> F:
    """The function, with those of its array arguments read-only that share memory with another: a write through one
    of them raises ``ValueError``.  Arrays inside tuples count as arguments, as they do for the compiler."""

    @wraps(function)
    def guarded(*arguments: Any) -> Any:
        shared = _overlapping(list(_arrays(arguments)))
        return function(*(_frozen(argument, shared) for argument in arguments) if shared else arguments)

    return cast(F, guarded)


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)


def _overlapping(arrays: list[np.ndarray]) -> set[int]:
    """The ids of the arrays that share memory with another one of the list."""
    spans = sorted((*np.lib.array_utils.byte_bounds(array), i) for i, array in enumerate(arrays) if array.size)
    found: set[int] = set()
    for place, (_, end, i) in enumerate(spans):
        for start, _, j in spans[place + 1 :]:
            if start >= end:
                break
            if np.shares_memory(arrays[i], arrays[j]):
                found |= {id(arrays[i]), id(arrays[j])}
    return found


def _frozen(value: Any, shared: set[int]) -> Any:
    if isinstance(value, np.ndarray) and id(value) in shared:
        value = value.view()
        value.flags.writeable = False
    elif isinstance(value, tuple):
        parts = [_frozen(part, shared) for part in value]
        value = value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value


def view(buffer: np.ndarray, start: int, *shape: int) -> np.ndarray:
    """What ``solvers.layout.view1`` and its like are to compiled kernels."""
    return buffer[start : start + int(np.prod(shape))].reshape(shape)
