"""Pricing along a customer funnel: which price to show, not knowing who is looking.

It stands for a web shop, an airline, an insurer.  A customer comes, looks around, compares, fills the cart, buys or
goes; at every contact the shop offers a price.  A low price moves customers on, a high one drives them off, and how
strongly depends on the segment: bargain hunters, regulars, the loyal.  The crowd is an unknown mixture of known
segments.  An offer stands: a customer who was offered less before pays that, so that a low price which moves people
through the funnel is a low price in the till.  The shop also promises to match the competitor, whose price switches
from time to time.

As in every linear mixture the segment is that of the crowd at each contact, not of one customer for good: a segment
that stayed the same through an episode would be a hidden state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from advmdp._checks import integer
from advmdp._unroll import Step, unroll
from advmdp.adversaries import Adversary
from advmdp.adversaries.natural import share
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import IndexedGenerator, Stream
from advmdp.worlds._options import positive, probabilities

STAGES = ("visit", "look", "compare", "cart", "bought", "gone")
CART, BOUGHT, GONE = 3, 4, 5
#: A stage and the lowest price offered so far (0 once it does not matter any more).
State = tuple[int, float]

#: Segments: the probability to move on at price 0, and the share of it that the full price takes away.
SEGMENTS: Mapping[str, tuple[float, float]] = {"bargain": (0.9, 0.9), "regular": (0.8, 0.5), "loyal": (0.85, 0.15)}


@register_world("pricing")
def pricing(
    *, prices: Sequence[float] = (0.5, 0.75, 1.0), contacts: int = 6, mix: Sequence[float] = (0.4, 0.4, 0.2)
) -> LinearMixtureMDP:
    """A funnel of four stages (visit, look, compare, cart), then bought or gone; actions are offers.

    A state is a stage with the lowest price that was offered so far; a higher offer changes nothing.  In stage i (1 to
    4) a customer of a segment with appeal a and sensitivity b who can have price p moves on with probability a (1 - x),
    x = b p i / 4, goes with probability 0.3 x, and stays otherwise: the closer to paying, the more the price counts.
    Whoever bought or went stays that way.

    Parameters
    ----------
    prices
        In (0, 1], as shares of the list price; the highest is the one that customers come with.
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
        def step(state: State, action: int) -> dict[State, float]:
            stage, before = state
            if stage >= BOUGHT:
                return {state: 1.0}
            price = min(before, float(levels[action]))
            deterred = sensitivity * price * (stage + 1) / 4
            on, off = appeal * (1.0 - deterred), 0.3 * deterred
            after = (stage + 1, price if stage + 1 < BOUGHT else 0.0)
            return {after: on, (GONE, 0.0): off, (stage, price): 1.0 - on - off}

        return step

    steps = [segment(*numbers) for numbers in SEGMENTS.values()]
    unrolled, states = unroll((0, float(levels.max())), contacts, levels.size, steps)
    # What a cart brings in: who buys, and at which price.
    pairs = [(states[i], action) for i in unrolled.states.tolist() for action in range(levels.size)]
    paid = [min(state[1], float(levels[action])) if state[0] == CART else 0.0 for state, action in pairs]
    buys = [
        [step(state, action)[BOUGHT, 0.0] if state[0] == CART else 0.0 for step in steps] for state, action in pairs
    ]
    scene = Scene(
        states=unrolled.named([_name(*state) for state in states]),
        actions=[f"{price:g}" for price in levels],
        natural_losses="pricing",
        details={"paid": np.array(paid), "chance": np.array(buys) @ weights},
    )
    return unrolled.mixture(weights, scene)


def _name(stage: int, price: float) -> str:
    return STAGES[stage] if stage >= BOUGHT else f"{STAGES[stage]} {price:g}"


@register_natural_losses("pricing")
class Competition(Adversary):
    """Revenue that is not earned: 1 - min(offer, competitor's price) * P(buys) in the cart, 1 everywhere else.

    The offer is the lowest so far.  The shop matches the competitor, whose price is drawn anew from [floor, 1] every
    ``period`` episodes.  Prices are shares of the list price, so losses lie in [0, 1] as they are.

    Parameters
    ----------
    floor
        Lowest price of the competitor, in [0, 1].
    period
        Episodes between two of its prices.
    """

    def __init__(self, mdp: LayeredMDP, episodes: int, *, floor: float = 0.3, period: int = 200, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        self._floor = share(floor, "floor")
        self._period = integer(period, "period", 1, InvalidSpecError)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        self._paid = np.asarray(mdp.scene.details["paid"])
        self._chance = np.asarray(mdp.scene.details["chance"])

    def competitor(self, k: int) -> float:
        """The competitor's price in episode k."""
        return float(self._draws.at(k // self._period).uniform(self._floor, 1.0))

    def flat_losses(self, k: int) -> FloatArray:
        """Revenue that is missed at the competitor's price of episode k."""
        losses: FloatArray = 1.0 - np.minimum(self._paid, self.competitor(k)) * self._chance
        return losses
