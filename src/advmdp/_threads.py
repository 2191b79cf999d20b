"""Several threads for one pass over wide layers: compiled code runs without the interpreter lock.

To wake a thread takes as long as a layer of ten thousand states.  So threads are woken once per pass, and wait for one
another between its layers by looking, in compiled code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from advmdp._checks import integer
from advmdp._compiled import inner_kernel
from advmdp._interpreted import INTERPRETED
from advmdp.errors import InvalidSpecError

#: A pass over fewer pairs per thread takes hardly longer than to wake a thread.
LEAST_WORK = 60_000
#: Numbers of a place in memory that is fetched as a whole: two threads do not write to the same one.
_APART = 8
#: A time after all others: nobody waits for a piece that has ended, or failed.
_OVER = 2**62


class _Helpers:
    """The threads beside the one that calls; none until they are asked for."""

    def __init__(self) -> None:
        self.count = 1
        self.forget()

    def forget(self) -> None:
        """In a child process, which has the object and not its threads."""
        self.pool: Any = None
        self.busy = threading.Lock()


_helpers = _Helpers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.forget)


def use_threads(count: int) -> None:
    """Use so many threads for planning in worlds with wide layers; one is the default.

    They wait for one another without sleeping: give each a processor of its own.

    Results are the same bits for any number.  Experiments run a process per core, and are best left with one.

    Examples
    --------
    >>> use_threads(2)
    >>> use_threads(1)
    """
    count = integer(count, "count", 1, InvalidSpecError)
    with _helpers.busy:
        _helpers.count, _helpers.pool = count, None


def in_pieces(work: Callable[[int, int, int], object], most: int, cost: int) -> None:
    """Call ``work(piece, pieces, meeting)`` for each of some pieces, at most ``most``, at the same time.

    There is one piece unless the ``cost``, in pairs, is worth more.  Pieces write to different places, and those that
    need what others wrote wait for them with :func:`meet`: so they all run at once, or one thread does it all.
    """
    pieces = 1 if INTERPRETED else min(_helpers.count, most, cost // LEAST_WORK)
    if pieces < 2 or not _helpers.busy.acquire(blocking=False):
        work(0, 1, 0)
        return
    try:
        from concurrent.futures import ThreadPoolExecutor, wait  # not everybody's

        if _helpers.pool is None:
            _helpers.pool = ThreadPoolExecutor(_helpers.count - 1, "advmdp")
        places = np.zeros(pieces * _APART, dtype=np.int64)

        def guarded(piece: int) -> None:
            try:
                work(piece, pieces, places.ctypes.data)
            finally:
                places[piece * _APART] = _OVER

        others = [_helpers.pool.submit(guarded, piece) for piece in range(1, pieces)]
        try:
            guarded(0)
        finally:
            places[0] = _OVER  # also if Ctrl-C came before the first piece began
            wait(others)
        for other in others:
            other.result()
    finally:
        _helpers.busy.release()


_NUMBER = types.CPointer(types.int64)


@intrinsic
def _publish(typing: Any, address: Any, number: Any) -> Any:
    """Write a number, after all that the thread wrote before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], context.get_value_type(_NUMBER))
        builder.store_atomic(arguments[1], place, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _look(typing: Any, address: Any) -> Any:
    """Read a number that another thread may have written, and with it all that it wrote before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], context.get_value_type(_NUMBER))
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(types.int64), generate


@inner_kernel
def meet(meeting: int, piece: int, pieces: int, time: int) -> None:
    """Wait until all pieces have come to this time; times grow."""
    if pieces > 1:
        _publish(meeting + 8 * _APART * piece, time)  # type: ignore[call-arg]  # the first one is not given
        for other in range(pieces):
            while _look(meeting + 8 * _APART * other) < time:
                pass
