"""Learners that misbehave, as another package would provide them: found by entry points, also in worker processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numba

from advmdp.learners.uniform import Uniform


class _Plugin(Uniform):
    def __init__(self, problem, episodes, *, marker="", seed=0):
        self.marker = marker
        super().__init__(problem, episodes, seed=seed)

    def _learn(self, state, episode):
        self.misbehave()
        return state


class Killed(_Plugin):
    """Its process is killed at the sixth episode, but only once if it has a marker file to leave."""

    def misbehave(self):
        if self.episodes_seen == 5 and not (self.marker and Path(self.marker).exists()):
            if self.marker:
                Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Failing(_Plugin):
    """Fails at the sixth episode as long as its marker file is missing."""

    def misbehave(self):
        if self.episodes_seen == 5 and not (self.marker and Path(self.marker).exists()):
            raise RuntimeError("no more ideas")


class Slow(_Plugin):
    """Takes its time, unless the environment of its process says otherwise."""

    def misbehave(self):
        time.sleep(float(os.environ.get("ADVMDP_TEST_SLEEP", "0.01")))


class Deaf(_Plugin):
    """Computes for ever, in a kernel in which Python calls no handler of signals; touches its marker before."""

    def misbehave(self):
        for_ever = numba.njit(nogil=True)(_count)
        for_ever(1)
        Path(self.marker).touch()
        for_ever(2**62)


def _count(last):
    total = 0
    for i in range(last):
        total = (total * 31 + i) % 1_000_003
    return total
