"""One thread at a time: a second one is refused, and does no harm."""

from __future__ import annotations

import os
from typing import Any

from advmdp.errors import ConcurrentUseError


def in_use(owner: Any) -> ConcurrentUseError:
    """What another thread is told."""
    name = getattr(owner, "name", type(owner).__name__)
    return ConcurrentUseError(f"{name!r} is being updated by another thread: give it to one thread alone")


#: Those that were entered and not left, in any thread.
_entered: set[Exclusive] = set()


def _free() -> None:
    """In a process that was forked: the threads that would leave are not in it, and what they updated is as before."""
    for exclusive in list(_entered):
        exclusive.__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


class Exclusive:
    """Refuses all other threads until it is left; a context manager without the cost of a generator."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        try:
            # One atomic operation, so that of two threads only one gets through; not a lock, which could not be copied.
            _entered.add(self)
            if self._owner.__dict__.setdefault("_busy", self) is not self:
                raise in_use(self._owner)
        except BaseException:  # an interrupt may come right after that operation
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._owner.__dict__.get("_busy") is self:
            del self._owner.__dict__["_busy"]
        _entered.discard(self)
