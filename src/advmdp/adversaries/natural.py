"""The losses that come with a world: every practical world says what its steps cost, and how that changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp._checks import above_zero, between, integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import natural_losses, register_adversary, register_natural_losses
from advmdp.seeding import Stream, generator


@register_adversary("natural-losses")
def natural(mdp: LayeredMDP | TabularModel, episodes: int, *, seed: int = 0, **options: Any) -> Adversary:
    """The losses of the world itself: costs that drift, congestion that reacts, prices that switch.

    Options are those of the world's losses, which ``advmdp list`` prints as well.  A world of yours names its own in
    its scene; see :func:`advmdp.register_natural_losses`.
    """
    name = mdp.scene.natural_losses if isinstance(mdp, LayeredMDP) else None
    if name is None:
        raise InvalidSpecError(
            f"this {type(mdp).__name__} has no natural losses (its scene names none); there are natural losses for: "
            f"{', '.join(natural_losses.names())}"
        )
    adversary: Adversary = natural_losses.make(name, mdp, episodes, seed=seed, **options)
    return adversary


class Waves:
    """Signals in [-1, 1] that drift smoothly: each the mean of two sines of random phase.

    The two periods are in the golden ratio, so that no signal repeats itself.  Episode k is computed at once.
    """

    def __init__(self, count: int, period: float, rng: np.random.Generator) -> None:
        above_zero(period, "period", InvalidSpecError)
        self._phases = rng.random((2, count)) * (2.0 * np.pi)
        self._speeds = 2.0 * np.pi / period * np.array([[1.0], [(1.0 + np.sqrt(5.0)) / 2.0]])

    def at(self, k: int) -> FloatArray:
        """All signals in episode k."""
        integer(k, "episode", 0, InvalidSpecError)
        signals: FloatArray = np.sin(self._speeds * k + self._phases).mean(axis=0)
        return signals


def share(value: float, what: str) -> float:
    """``value`` if it is a number in [0, 1]."""
    return between(value, what, 0.0, 1.0, InvalidSpecError)


@register_natural_losses("terrain")
class Terrain(Adversary):
    """A step on a map costs 1 in a hole, 0 at the goal, elsewhere level + drift/2 * wave, as the weather makes it.

    Every cell has a level, uniform on [drift/2, 1 - drift/2], and a wave in [-1, 1] of its own, the same in all layers:
    ground that was firm becomes hard to walk.  Losses are in [0, 1] as they are.

    Parameters
    ----------
    drift
        How far the cost of open ground moves, in [0, 1].
    period
        Of the waves, in episodes.
    """

    def __init__(
        self, mdp: LayeredMDP, episodes: int, *, drift: float = 0.5, period: float = 500.0, seed: int = 0
    ) -> None:
        super().__init__(mdp, episodes)
        assert mdp.scene.map is not None
        assert mdp.scene.states is not None
        letters = np.array(list("".join(mdp.scene.map)))
        swing = 0.5 * share(drift, "drift")
        rng = generator(seed, Stream.ADVERSARY)
        self._waves = Waves(letters.size, period, rng)
        levels = rng.uniform(swing, 1.0 - swing, size=letters.size)
        self._level = np.where(letters == "H", 1.0, np.where(letters == "G", 0.0, levels))
        self._swing = np.where((letters == "H") | (letters == "G"), 0.0, swing)
        cells = np.concatenate([np.asarray(layer, dtype=np.int64) for layer in mdp.scene.states[:-1]])
        self._cells = np.repeat(cells, mdp.n_actions)

    def flat_losses(self, k: int) -> FloatArray:
        """Level and swing of every cell, with the waves of episode k."""
        cells = np.clip(self._level + self._swing * self._waves.at(k), 0.0, 1.0)  # of rounding only
        losses: FloatArray = cells[self._cells]
        return losses
