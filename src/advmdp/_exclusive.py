"""One thread at a time: a second one is refused, and does no harm."""

from __future__ import annotations

from typing import Any

from advmdp.errors import ConcurrentUseError


def in_use(owner: Any) -> ConcurrentUseError:
    """What another thread is told."""
    return ConcurrentUseError(f"learner {owner.name!r} is being updated by another thread: give it to one thread alone")


class Exclusive:
    """Refuses all other threads until it is left; a context manager without the cost of a generator."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        try:
            # One atomic operation, so that of two threads only one gets through; not a lock, which could not be copied.
            if self._owner.__dict__.setdefault("_busy", self) is not self:
                raise in_use(self._owner)
        except BaseException:  # an interrupt may come right after that operation
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._owner.__dict__.get("_busy") is self:
            del self._owner.__dict__["_busy"]
