"""One seed, separate random streams: the same number may be given to a world, an adversary, a learner and
the simulator, and their draws stay independent."""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any

import numpy as np

from advmdp._checks import integer
from advmdp.errors import InvalidSpecError


class Stream(IntEnum):
    """Who draws; each has a branch of its own below the root seed."""

    WORLD = 1
    ADVERSARY = 2
    TRANSITIONS = 3
    LEARNER = 4
    SIMULATORS = 5
    AGENT = 6


def sequence(seed: int, purpose: Stream) -> np.random.SeedSequence:
    """The seed sequence of one purpose; the seed is an integer >= 0, so that results can be repeated."""
    integer(seed, "seed", 0, InvalidSpecError)
    return np.random.SeedSequence(seed, spawn_key=(int(purpose),))


def generator(seed: int, purpose: Stream) -> np.random.Generator:
    """The random generator of one purpose."""
    return np.random.default_rng(sequence(seed, purpose))


class IndexedGenerator(threading.local):
    """A generator that can be put at the start of stream number k, for any k, at once.

    Oblivious adversaries draw the losses of episode k from stream k, so that they need not remember
    anything, and can answer in any order.  Every thread has one of its own, so that they may answer several at once.
    """

    def __init__(self, seed: int, purpose: Stream) -> None:
        self._arguments = seed, purpose
        key = sequence(seed, purpose).generate_state(2, np.uint64)
        self._bits = np.random.Philox(key=key)
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def __reduce__(self) -> tuple[Any, ...]:
        return IndexedGenerator, self._arguments

    def at(self, index: int) -> np.random.Generator:
        """The generator, at the start of its stream ``index`` (valid until the next call)."""
        integer(index, "episode", 0, InvalidSpecError)
        # Philox counts blocks in four 64-bit words; each stream owns 2^128 blocks.
        self._start["state"]["counter"][:] = (0, 0, index, 0)
        self._bits.state = self._start
        return self._generator
