"""Losses that wander: each table is the one before plus a little noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp._checks import between, integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import IndexedGenerator, Stream, generator

#: Episodes that are drawn from one random stream ...
BLOCK = 64
#: ... so many at once as have this many losses, at least one.
AT_ONCE = 2**20
#: Positions of the walk that are kept, and the bytes that they may take; beyond, every other one is dropped.
CHECKPOINTS = 256
MOST_BYTES = 2**27


@register_adversary("random-walk")
class RandomWalk(Adversary):
    """Gaussian steps, independent for every pair, reflected at 0 and 1.

    The walk itself is unbounded; the loss is its reflection into [0, 1].  It is sequential, but any episode may be
    asked for: positions are kept at up to 256 checkpoints (fewer where worlds are large), from the nearest of which the
    walk is replayed, with the same numbers whatever was asked before.

    Parameters
    ----------
    step
        Standard deviation of a step, in [0, 1].
    """

    def __init__(self, mdp: LayeredMDP | TabularModel, episodes: int, *, step: float = 0.03, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        self._step = between(step, "step", 0.0, 1.0, InvalidSpecError)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        # Where the walk stands at the beginning of a block: at every block that is a multiple of the spacing ...
        self._checkpoints = {0: generator(seed, Stream.ADVERSARY).random(self.layers.n_pairs)}
        self._spacing = 1
        # ... and after what was asked for last (episode, position, state of the stream): going forward never replays.
        self._next: tuple[int, FloatArray, Any] = 0, self._checkpoints[0], None
        # What threads that share the adversary see of each other is whole: values are put in place, never changed.
        self._tables: tuple[int, FloatArray] = 0, np.empty((0, self.layers.n_pairs))

    def flat_losses(self, k: int) -> FloatArray:
        """The reflected walk at episode k."""
        integer(k, "episode", 0, InvalidSpecError)
        first, tables = self._tables
        if not first <= k < first + len(tables):
            first, walk = self._walk_to(k)
            tables = _reflect(walk)
            tables.flags.writeable = False
            self._tables = first, tables
        table: FloatArray = tables[k - first]
        return table

    def _walk_to(self, k: int) -> tuple[int, FloatArray]:
        """The walk during some episodes, k among them, and the first of them; replayed from the nearest position."""
        checkpoints, (episode, position, stream) = self._checkpoints, self._next
        block = max(block for block in checkpoints if block * BLOCK <= k)
        if not block * BLOCK < episode <= k:
            episode, position, stream = block * BLOCK, checkpoints[block], None
        most = max(AT_ONCE // self.layers.n_pairs, 1)
        while True:
            number, place = divmod(episode, BLOCK)
            rng = self._draws.at(number)
            if place:
                rng.bit_generator.state = stream
            steps = self._step * rng.standard_normal((min(most, BLOCK - place), self.layers.n_pairs))
            steps[0] += position
            walk: FloatArray = np.cumsum(steps, axis=0, out=steps)
            first, episode = episode, episode + len(walk)
            position, stream = walk[-1].copy(), rng.bit_generator.state
            if episode % BLOCK == 0:
                self._keep(episode // BLOCK, position)
            if episode > k:
                self._next = episode, position, stream
                return first, walk

    def _keep(self, block: int, position: FloatArray) -> None:
        checkpoints, spacing = self._checkpoints, self._spacing
        if block % spacing == 0:
            checkpoints = {**checkpoints, block: position}
        if len(checkpoints) > min(CHECKPOINTS, max(MOST_BYTES // position.nbytes, 2)):
            self._spacing = spacing = 2 * spacing
            checkpoints = {b: p for b, p in checkpoints.items() if b % spacing == 0}
        self._checkpoints = checkpoints


def _reflect(walk: FloatArray) -> FloatArray:
    """The real line folded onto [0, 1]: there and back again with period 2."""
    folded = walk - 2.0 * np.floor(0.5 * walk)  # np.mod, sooner
    return np.minimum(folded, 2.0 - folded)
