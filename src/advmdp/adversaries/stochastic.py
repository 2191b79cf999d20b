"""Losses drawn independently in every episode around fixed means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from advmdp._checks import above_zero
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import IndexedGenerator, Stream, generator


@register_adversary("stochastic")
class Stochastic(Adversary):
    """Bernoulli or Beta losses.

    Parameters
    ----------
    means
        Means in [0, 1], a list over layers of ``(S_h, A)``; by default drawn uniformly.
    distribution
        ``"bernoulli"`` (losses 0 or 1) or ``"beta"``.
    concentration
        a + b of the Beta distribution: the larger, the closer losses stay to their means.
    """

    def __init__(
        self,
        mdp: LayeredMDP | TabularModel,
        episodes: int,
        *,
        means: Sequence[ArrayLike] | None = None,
        distribution: Literal["bernoulli", "beta"] = "bernoulli",
        concentration: float = 4.0,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        if distribution not in ("bernoulli", "beta"):
            raise InvalidSpecError(f"distribution is {distribution!r}, should be 'bernoulli' or 'beta'")
        self._beta = distribution == "beta"
        self._concentration = above_zero(concentration, "concentration", InvalidSpecError)
        if means is None:
            self._means = generator(seed, Stream.ADVERSARY).random(self.layers.n_pairs)
        else:
            self._means = self.layers.loss_table(means, "means")
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)

    @property
    def means(self) -> list[FloatArray]:
        """The table of mean losses."""
        return self.layers.split(self._means.copy())

    def flat_losses(self, k: int) -> FloatArray:
        """A fresh draw for episode k, the same whenever k is asked for."""
        rng = self._draws.at(k)
        if not self._beta:
            drawn: FloatArray = (rng.random(self._means.size) < self._means).astype(np.float64)
            return drawn
        # A Beta law needs both parameters > 0; means 0 and 1 are the constants 0 and 1.
        tiny = np.finfo(np.float64).tiny
        a = np.maximum(self._concentration * self._means, tiny)
        b = np.maximum(self._concentration * (1.0 - self._means), tiny)
        sample = rng.beta(a, b)
        return np.where((self._means > 0.0) & (self._means < 1.0), sample, self._means)
