"""Pricing along a customer funnel: which price to show, not knowing who is looking.

It stands for a web shop, an airline, an insurer.  A customer comes, looks around, compares, fills the cart, buys or
goes; at every contact the shop shows a price.  A low price moves customers on, a high one drives them off, and how
strongly depends on the segment: bargain hunters, regulars, the loyal.  The crowd is an unknown mixture of known
segments.  The shop promises to match the competitor's price, which switches from time to time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advmdp._checks import integer
from advmdp._unroll import Step, unroll
from advmdp.adversaries import Adversary
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import IndexedGenerator, Stream
from advmdp.worlds._options import positive, probabilities

STAGES = ("visit", "look", "compare", "cart", "bought", "gone")
CART, BOUGHT, GONE = 3, 4, 5

#: Segments: the probability to move on at price 0, and the share of it that the full price takes away.
SEGMENTS: Mapping[str, tuple[float, float]] = {"bargain": (0.9, 0.9), "regular": (0.8, 0.5), "loyal": (0.85, 0.15)}


@register_world("pricing")
def pricing(
    *,
    prices: Sequence[float] = (0.25, 0.5, 0.75, 1.0),
    contacts: int = 8,
    mix: Sequence[float] = (0.4, 0.4, 0.2),
) -> LinearMixtureMDP:
    """A funnel of four stages (visit, look, compare, cart), then bought or gone; actions are prices.

    In a stage a customer of a segment with appeal a and sensitivity b who is shown price p moves on with probability
    a (1 - b p), goes with probability 0.3 b p, and stays otherwise.  Whoever bought or went stays that way.

    Parameters
    ----------
    prices
        In (0, 1], as shares of the list price.
    contacts
        H.
    mix
        True shares of the segments ``bargain``, ``regular`` and ``loyal``.
    """
    levels = positive(prices, "prices")
    if levels.max() > 1.0:
        raise InvalidSpecError(f"prices is {prices!r}, should be at most 1 (the list price)")
    weights = probabilities(mix, "mix", len(SEGMENTS))
    integer(contacts, "contacts", 1, InvalidSpecError)

    def segment(appeal: float, sensitivity: float) -> Step:
        def step(stage: int, action: int) -> dict[int, float]:
            if stage >= BOUGHT:
                return {stage: 1.0}
            on = appeal * (1.0 - sensitivity * levels[action])
            off = 0.3 * sensitivity * levels[action]
            return {stage + 1: on, GONE: off, stage: 1.0 - on - off}

        return step

    steps = [segment(*numbers) for numbers in SEGMENTS.values()]
    kernels, layers = unroll(0, contacts, levels.size, steps)
    buys = [[step(CART, action)[BOUGHT] for step in steps] for action in range(levels.size)]
    scene = Scene(
        states=[*([STAGES[stage] for stage in layer] for layer in layers), ["end"]],
        actions=[f"{price:g}" for price in levels],
        natural_losses="pricing",
        details={"prices": levels, "chance": np.asarray(buys) @ weights},
    )
    return LinearMixtureMDP.from_kernels(kernels, weights, scene=scene)


@register_natural_losses("pricing")
class Competition(Adversary):
    """Revenue that is not earned: 1 - min(price, competitor's price) * P(buys) in the cart, 1 everywhere else.

    The shop matches the competitor, whose price is drawn anew from [floor, 1] every ``period`` episodes.  Prices are
    shares of the list price, so losses lie in [0, 1] as they are.

    Parameters
    ----------
    floor
        Lowest price of the competitor, in [0, 1].
    period
        Episodes between two of its prices.
    """

    def __init__(self, mdp: LayeredMDP, episodes: int, *, floor: float = 0.3, period: int = 200, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        if not 0.0 <= floor <= 1.0:
            raise InvalidSpecError(f"floor is {floor}, should be in [0, 1]")
        assert mdp.scene.states is not None
        self._floor = float(floor)
        self._period = integer(period, "period", 1, InvalidSpecError)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        in_cart = np.array([name == STAGES[CART] for layer in mdp.scene.states[:-1] for name in layer])
        self._prices = np.asarray(mdp.scene.details["prices"])
        self._sales = in_cart[:, None] * np.asarray(mdp.scene.details["chance"])

    def competitor(self, k: int) -> float:
        """The competitor's price in episode k."""
        return float(self._draws.at(k // self._period).uniform(self._floor, 1.0))

    def flat_losses(self, k: int) -> FloatArray:
        """Revenue that is missed at the competitor's price of episode k."""
        losses: FloatArray = 1.0 - np.minimum(self._prices, self.competitor(k)) * self._sales
        return losses.ravel()
