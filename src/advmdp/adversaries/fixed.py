"""The same losses in every episode."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from advmdp.adversaries.base import Adversary
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import Stream, generator


@register_adversary("fixed")
class Fixed(Adversary):
    """One table for all episodes: ``losses``, a list over layers of ``(S_h, A)``, or drawn uniformly from [0, 1]."""

    def __init__(
        self, mdp: LayeredMDP | TabularModel, episodes: int, *, losses: Sequence[ArrayLike] | None = None, seed: int = 0
    ) -> None:
        super().__init__(mdp, episodes)
        if losses is None:
            self._table = generator(seed, Stream.ADVERSARY).random(self.layers.n_pairs)
        else:
            self._table = self.layers.loss_table(losses)
        self._table.flags.writeable = False

    def flat_losses(self, k: int) -> FloatArray:
        """The table, whatever k is."""
        return self._table
