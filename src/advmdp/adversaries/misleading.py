"""Losses made against planners: what looks bad at first is best ever after."""

from __future__ import annotations

import numpy as np

from advmdp._checks import integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import IndexedGenerator, Stream, generator

#: Mean losses: of the good actions when the trap is over, and of all others at all times.
GOOD, OTHERS = 0.1, 0.5


@register_adversary("misleading")
class Misleading(Adversary):
    """Bernoulli losses; one action of every state, drawn once, makes a bad first impression.

    Good actions cost 1 in the first ``trap`` episodes, and 0.1 on average afterwards; all others cost 0.5 on average.
    Whoever plans by the mean of what was seen tries good actions early and never again.  It does not react: all
    learners meet the same losses.

    Parameters
    ----------
    trap
        How many episodes, the first ones, it lasts.
    """

    def __init__(self, mdp: LayeredMDP | TabularModel, episodes: int, *, trap: int = 100, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        self._trap = integer(trap, "trap", 0, InvalidSpecError)
        order = generator(seed, Stream.ADVERSARY).random(self.layers.n_pairs)
        available = self.layers.uniform_policy > 0.0  # what nobody can do is of no use as a good action
        order = np.where(available, order, -1.0).reshape(-1, self.layers.n_actions)
        self._good = (order == order.max(axis=1, keepdims=True)).ravel()
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)

    def flat_losses(self, k: int) -> FloatArray:
        """Losses 0 or 1, drawn for episode k."""
        trapped = integer(k, "episode", 0, InvalidSpecError) < self._trap
        means = np.where(self._good, 1.0 if trapped else GOOD, OTHERS)
        drawn: FloatArray = (self._draws.at(k).random(means.size) < means).astype(np.float64)
        return drawn
