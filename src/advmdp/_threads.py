"""Several threads for one pass over a wide layer: compiled code runs without the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from advmdp._checks import integer
from advmdp.errors import InvalidSpecError

#: Pieces of less than so many pairs take hardly longer than to hand them over.
LEAST_WORK = 15_000


class _Helpers:
    """The threads beside the one that calls; none until they are asked for."""

    def __init__(self) -> None:
        self.count = 1
        self.pool: Any = None

    def forget(self) -> None:
        """In a child process, which has the object and not its threads."""
        self.pool = None


_helpers = _Helpers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.forget)


def use_threads(count: int) -> None:
    """Use so many threads for planning and occupancies in worlds with wide layers; one is the default.

    Results are the same bits for any number.  Experiments run a process per core, and are best left with one.

    Examples
    --------
    >>> use_threads(2)
    >>> use_threads(1)
    """
    _helpers.count, _helpers.pool = integer(count, "count", 1, InvalidSpecError), None


def worth_threads(cost: int) -> bool:
    """Whether there is more than one thread, and enough to do for two."""
    return _helpers.count > 1 and cost >= 2 * LEAST_WORK


def in_pieces(work: Callable[[int, int], object], size: int, cost: int) -> None:
    """Call ``work(first, end)`` for ranges that make up ``size``, in threads if the ``cost`` of all is worth it.

    Pieces must not depend on one another, and write to different places.
    """
    pieces = min(_helpers.count, cost // LEAST_WORK)
    if pieces < 2:
        work(0, size)
        return
    from concurrent.futures import ThreadPoolExecutor, wait  # not everybody's

    if _helpers.pool is None:
        _helpers.pool = ThreadPoolExecutor(_helpers.count - 1, "advmdp")
    ends = [size * piece // pieces for piece in range(pieces + 1)]
    others = [_helpers.pool.submit(work, first, end) for first, end in pairwise(ends[1:])]
    try:
        work(0, ends[1])
    finally:
        wait(others)
    for other in others:
        other.result()
