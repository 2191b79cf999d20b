"""Losses that wander: each table is the one before plus a little noise."""

from __future__ import annotations

import numpy as np

from advmdp._checks import between, integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import IndexedGenerator, Stream, generator

#: Episodes that are drawn at once, from one random stream.
BLOCK = 64
#: Positions of the walk that are kept; beyond, every other one is dropped.
CHECKPOINTS = 256


@register_adversary("random-walk")
class RandomWalk(Adversary):
    """Gaussian steps, independent for every pair, reflected at 0 and 1.

    The walk itself is unbounded; the loss is its reflection into [0, 1].  It is sequential, but any episode may be
    asked for: positions are kept at up to 256 checkpoints, from the nearest of which the walk is replayed, with the
    same numbers whatever was asked before.

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
        # ... and after the block that was asked for last, so that going forward never replays.
        self._next = (0, self._checkpoints[0])
        # What threads that share the adversary see of each other is whole: values are put in place, never changed.
        self._block: tuple[int, FloatArray | None] = -1, None

    def flat_losses(self, k: int) -> FloatArray:
        """The reflected walk at episode k."""
        number, place = divmod(integer(k, "episode", 0, InvalidSpecError), BLOCK)
        known, tables = self._block
        if tables is None or number != known:
            tables = _reflect(self._walk_through(number))
            tables.flags.writeable = False
            self._block = number, tables
        table: FloatArray = tables[place]
        return table

    def _walk_through(self, number: int) -> FloatArray:
        """The walk during block ``number``, replayed from the nearest position before it."""
        checkpoints, last = self._checkpoints, self._next
        block = max(block for block in checkpoints if block <= number)
        position = checkpoints[block]
        if block < last[0] <= number:
            block, position = last
        while True:
            steps = self._step * self._draws.at(block).standard_normal((BLOCK, self.layers.n_pairs))
            steps[0] += position
            walk: FloatArray = np.cumsum(steps, axis=0)
            block, position = block + 1, walk[-1].copy()
            self._keep(block, position)
            if block > number:
                self._next = (block, position)
                return walk

    def _keep(self, block: int, position: FloatArray) -> None:
        checkpoints, spacing = self._checkpoints, self._spacing
        if block % spacing == 0:
            checkpoints = {**checkpoints, block: position}
        if len(checkpoints) > CHECKPOINTS:
            self._spacing = spacing = 2 * spacing
            checkpoints = {b: p for b, p in checkpoints.items() if b % spacing == 0}
        self._checkpoints = checkpoints


def _reflect(walk: FloatArray) -> FloatArray:
    """The real line folded onto [0, 1]: there and back again with period 2."""
    folded = np.mod(walk, 2.0)
    return np.minimum(folded, 2.0 - folded)
