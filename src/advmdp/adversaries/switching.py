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

    def __init__(
        self,
        mdp: LayeredMDP | TabularModel,
        episodes: int,
        *,
        period: int = 200,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        self._period = integer(period, "period", 1, InvalidSpecError)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        self._drawn: int | None = None
        self._table: FloatArray

    def flat_losses(self, k: int) -> FloatArray:
        """The table of the period in which episode k lies."""
        number = k // self._period
        if number != self._drawn:
            self._table = self._draws.at(number).random(self.layers.n_pairs)
            self._table.flags.writeable = False
            self._drawn = number
        return self._table
