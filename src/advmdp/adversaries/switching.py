"""Losses that stay for a while and then change altogether."""

from __future__ import annotations

from advmdp._checks import integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import IndexedGenerator, Stream


@register_adversary("switching")
class Switching(Adversary):
    """A new table, drawn uniformly from [0, 1], every ``period`` episodes."""

    def __init__(self, mdp: LayeredMDP | TabularModel, episodes: int, *, period: int = 200, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        self._period = integer(period, "period", 1, InvalidSpecError)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        # The table that was drawn last, and its number: one value, so that threads may share the adversary.
        self._drawn: tuple[int, FloatArray | None] = -1, None

    def flat_losses(self, k: int) -> FloatArray:
        """The table of the period in which episode k lies."""
        number = k // self._period
        drawn, table = self._drawn
        if table is None or number != drawn:
            table = self._draws.at(number).random(self.layers.n_pairs)
            table.flags.writeable = False
            self._drawn = number, table
        return table
