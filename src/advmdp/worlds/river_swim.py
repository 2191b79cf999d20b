"""RiverSwim: swim upstream against a current of unknown strength, or drift back.

The classic test of exploration (Strehl and Littman, 2008), layered over a number of strokes.  It stands for effort that
pays late and is undone by rest: training, marketing of a new product, pushing a reform.  Swimming with the
current always works; against it a stroke gains ground, holds, or loses ground, and how often each happens is the
unknown mixture.  The default numbers are those of the interior of the chain in Osband and Van Roy's version; at the two
ends a stroke that would lead off the chain stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import integer
from advmdp._unroll import Step, unroll
from advmdp.adversaries import Adversary
from advmdp.adversaries.natural import Waves, share
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import Stream, generator
from advmdp.worlds._options import probabilities

DOWNSTREAM, UPSTREAM = 0, 1


@register_world("river-swim")
def river_swim(*, length: int = 6, horizon: int = 12, current: Sequence[float] = (0.35, 0.6, 0.05)) -> LinearMixtureMDP:
    """A chain of ``length`` places, entered at the lowest one; actions downstream and upstream.

    Parameters
    ----------
    length
        Places along the river, at least 2.
    horizon
        Strokes.
    current
        Probabilities that a stroke upstream gains ground, holds, loses ground.
    """
    integer(length, "length", 2, InvalidSpecError)
    integer(horizon, "horizon", 1, InvalidSpecError)
    weights = probabilities(current, "current", 3)

    def stroke(gain: int) -> Step:
        def step(place: int, action: int) -> dict[int, float]:
            moved = place + (gain if action == UPSTREAM else -1)
            return {min(max(moved, 0), length - 1): 1.0}

        return step

    unrolled, _ = unroll(0, horizon, 2, [stroke(1), stroke(0), stroke(-1)])
    scene = Scene(
        states=unrolled.named(),
        actions=("downstream", "upstream"),
        natural_losses="river-swim",
        details={"length": length},
    )
    return unrolled.mixture(weights, scene)


@register_natural_losses("river-swim")
class Prizes(Adversary):
    """Loss 1, less a small prize for resting at the lowest place and a large one for swimming at the highest.

    The small prize is 0.005, the large one 1 - drift/2 + drift/2 * wave: it shrinks and grows with the seasons, by up
    to ``drift``.  Losses are in [0, 1] as they are.

    Parameters
    ----------
    drift
        How much of the large prize can vanish, in [0, 1].
    period
        Of the seasons, in episodes.
    """

    def __init__(
        self, mdp: LayeredMDP, episodes: int, *, drift: float = 0.5, period: float = 500.0, seed: int = 0
    ) -> None:
        super().__init__(mdp, episodes)
        assert mdp.scene.states is not None
        places = np.concatenate([np.asarray(layer, dtype=np.int64) for layer in mdp.scene.states[:-1]])
        losses = np.ones((places.size, 2))
        losses[places == 0, DOWNSTREAM] = 1.0 - 0.005
        self._base = losses.ravel()
        top = np.zeros((places.size, 2), dtype=bool)
        top[places == mdp.scene.details["length"] - 1, UPSTREAM] = True
        self._top = top.ravel()
        self._drift = share(drift, "drift")
        self._wave = Waves(1, period, generator(seed, Stream.ADVERSARY))

    def flat_losses(self, k: int) -> FloatArray:
        """The base, with the large prize of episode k."""
        prize = 1.0 - 0.5 * self._drift * (1.0 - self._wave.at(k)[0])
        return np.where(self._top, 1.0 - prize, self._base)
