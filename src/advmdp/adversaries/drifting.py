"""Losses that swing: every pair rises and falls at its own time."""

from __future__ import annotations

import numpy as np

from advmdp._checks import above_zero, between, integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import Stream, generator


@register_adversary("drifting")
class Drifting(Adversary):
    """loss = level + amplitude * sin(2 pi k / period + phase), level and phase drawn for every pair.

    Parameters
    ----------
    amplitude
        In [0, 1/2]; levels are uniform on [amplitude, 1 - amplitude].
    period
        Episodes of one swing.
    """

    def __init__(
        self,
        mdp: LayeredMDP | TabularModel,
        episodes: int,
        *,
        amplitude: float = 0.3,
        period: float = 500.0,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        self._amplitude = between(amplitude, "amplitude", 0.0, 0.5, InvalidSpecError)
        self._speed = 2.0 * np.pi / above_zero(period, "period", InvalidSpecError)
        rng = generator(seed, Stream.ADVERSARY)
        self._level = rng.uniform(amplitude, 1.0 - amplitude, size=self.layers.n_pairs)
        self._phase = rng.uniform(0.0, 2.0 * np.pi, size=self.layers.n_pairs)

    def flat_losses(self, k: int) -> FloatArray:
        """The swings at episode k."""
        integer(k, "episode", 0, InvalidSpecError)
        losses = self._level + self._amplitude * np.sin(self._speed * k + self._phase)
        return np.clip(losses, 0.0, 1.0)  # rounding may lead out of [0, 1] by one unit in the last place
