"""Stochastic losses of which an adversary may spoil a share: between the two worlds."""

from __future__ import annotations

import math

import numpy as np

from advmdp._checks import between, integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import IndexedGenerator, Stream, generator

#: The budget is spent evenly over blocks of this many episodes.
BLOCK = 100


@register_adversary("corrupted")
class Corrupted(Adversary):
    """Bernoulli losses with fixed means; in corrupted episodes the means are turned round, to 1 - mean.

    What is best by the means looks worst in a corrupted episode.  Which episodes these are is drawn from the seed
    alone: of every hundred in a row a share of ``fraction`` (the remainder carried over), at random places.

    Parameters
    ----------
    fraction
        The budget: share of episodes that are corrupted, in [0, 1].
    """

    def __init__(self, mdp: LayeredMDP | TabularModel, episodes: int, *, fraction: float = 0.1, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        self._fraction = between(fraction, "fraction", 0.0, 1.0, InvalidSpecError)
        self._means = generator(seed, Stream.ADVERSARY).random(self.layers.n_pairs)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        # The block that was looked at last, and its corrupted episodes: one value, as threads may share the adversary.
        self._chosen: tuple[int, frozenset[int]] = -1, frozenset()

    def is_corrupted(self, k: int) -> bool:
        """Whether the adversary spends its budget on episode k."""
        block, place = divmod(integer(k, "episode", 0, InvalidSpecError), BLOCK)
        known, chosen = self._chosen
        if block != known:
            count = self._budget(block + 1) - self._budget(block)
            # Odd streams choose the episodes, even ones draw their losses.
            order = self._draws.at(2 * block + 1).permutation(BLOCK)
            chosen = frozenset(order[:count].tolist())
            self._chosen = block, chosen
        return place in chosen

    def _budget(self, blocks: int) -> int:
        """Episodes that may be spoilt in the first ``blocks`` blocks."""
        # A little more than rounding takes away: 0.29 of a hundred is 28.999999999999996 in binary, and means 29.
        return math.floor(blocks * BLOCK * self._fraction * (1.0 + 1e-12))

    def flat_losses(self, k: int) -> FloatArray:
        """Losses 0 or 1, drawn for episode k."""
        means = 1.0 - self._means if self.is_corrupted(k) else self._means
        drawn: FloatArray = (self._draws.at(2 * k).random(means.size) < means).astype(np.float64)
        return drawn
