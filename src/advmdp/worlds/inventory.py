"""Periodic-review inventory with lost sales: how much to order each day, not knowing what customers will ask for.

It stands for a shop, a blood bank, a spare-parts store.  The state is the stock in the morning; the action is the
order, which arrives at once (what does not fit on the shelf is not taken); then demand comes, and what cannot be
served is lost.  Demand is an unknown mixture of known distributions, such as slack, usual and busy days.  Costs by
nature: purchase price, holding and shortage, each of which drifts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import integer, kernels_fit_in_memory
from advmdp._unroll import NEGLIGIBLE, Unrolled, chance
from advmdp.adversaries import Adversary
from advmdp.adversaries.natural import Waves, share
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LayeredMDP, LinearMixtureMDP, SparseRows
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import Stream, generator
from advmdp.worlds import _poisson
from advmdp.worlds._options import positive, probabilities


@register_world("inventory")
def inventory(
    *,
    capacity: int = 8,
    max_order: int = 4,
    days: int = 7,
    stock: int = 4,
    demand_means: Sequence[float] = (1.0, 3.0, 6.0),
    mix: Sequence[float] = (0.5, 0.3, 0.2),
    only_what_fits: bool = False,
) -> LinearMixtureMDP:
    """Stock 0 to ``capacity``, orders 0 to ``max_order``, demand a mixture of Poisson distributions.

    Parameters
    ----------
    capacity
        Units that fit on the shelf.
    max_order
        Largest order; there are ``max_order + 1`` actions.
    days
        H.
    stock
        On the first morning.
    demand_means
        Of the known demand distributions; d is their number.
    mix
        Their true weights.
    only_what_fits
        Whether an order that would not fit on the shelf is unavailable, instead of being cut.
    """
    integer(capacity, "capacity", 1, InvalidSpecError)
    integer(max_order, "max_order", 1, InvalidSpecError)
    integer(days, "days", 1, InvalidSpecError)
    if integer(stock, "stock", 0, InvalidSpecError) > capacity:
        raise InvalidSpecError(f"stock is {stock}, should be at most capacity = {capacity}")
    means = positive(demand_means, "demand_means")
    weights = probabilities(mix, "mix", means.size)
    reached = min(stock + days * max_order, capacity) + 1
    entries = (max_order + 1) * reached * min(reached, _poisson.width(float(means.max()))) + capacity
    kernels_fit_in_memory(entries, means.size, f"an inventory of {reached} units", InvalidSpecError)
    # Whoever could have more than `reached` units in the next morning is not reached.
    shelves = np.minimum(np.arange(reached)[:, None] + np.arange(max_order + 1), reached - 1)

    def day(mean: float) -> SparseRows:
        demand = _poisson.probability(np.arange(shelves[-1, -1]), mean)
        demand[demand <= NEGLIGIBLE] = 0.0
        rows: list[tuple[IntArray, FloatArray]] = []
        for shelf, sold_out in enumerate([1.0, *_poisson.tail(np.arange(shelves[-1, -1]), mean)]):
            left = np.append(sold_out if sold_out > NEGLIGIBLE else 0.0, demand[:shelf][::-1])
            possible = np.flatnonzero(left)
            rows.append((possible, left[possible]))
        return chance([rows[shelf] for shelf in shelves.ravel()], max_order + 1)

    unrolled = Unrolled([day(mean) for mean in means], stock, days)
    morning = unrolled.states[:, None]
    shelf = np.minimum(morning + np.arange(max_order + 1), capacity)
    # E[min(demand, shelf)] = sum_{n < shelf} P(demand > n)
    counts = np.arange(capacity)
    tails = sum(weight * _poisson.tail(counts, mean) for weight, mean in zip(weights, means, strict=True))
    sold = np.concatenate([[0.0], np.cumsum(tails)])[shelf]
    scene = Scene(
        states=unrolled.named(),
        actions=[f"order {order}" for order in range(max_order + 1)],
        natural_losses="inventory",
        details={
            "bought": (shelf - morning).ravel().astype(np.float64),
            "leftover": (shelf - sold).ravel(),
            "lost": (float(weights @ means) - sold).ravel(),
        },
    )
    orders = np.arange(max_order + 1)
    fits = [layer[:, None] + orders <= capacity for layer in unrolled.layers] if only_what_fits else None
    return unrolled.mixture(weights, scene, fits)


@register_natural_losses("inventory")
class StockCosts(Adversary):
    """Purchase, holding and shortage: price * bought + holding * E[left over] + shortage * E[lost sales].

    Each of the three rates is its base times 1 + drift * wave, with a wave of its own.  Expectations are over the true
    demand.  Costs are divided by the largest that is possible, so losses lie in [0, 1].

    Parameters
    ----------
    price, holding, shortage
        Base rates per unit.
    drift
        How far the rates move, relative to their bases, in [0, 1].
    period
        Of the waves, in episodes.
    """

    def __init__(
        self,
        mdp: LayeredMDP,
        episodes: int,
        *,
        price: float = 1.0,
        holding: float = 0.3,
        shortage: float = 2.0,
        drift: float = 0.5,
        period: float = 500.0,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        rates = positive((price, holding, shortage), "(price, holding, shortage)")
        details = mdp.scene.details
        self._costs = rates[:, None] * np.array([details["bought"], details["leftover"], details["lost"]])
        self._drift = share(drift, "drift")
        self._costs /= (1.0 + self._drift) * self._costs.sum(axis=0).max()
        self._waves = Waves(3, period, generator(seed, Stream.ADVERSARY))

    def flat_losses(self, k: int) -> FloatArray:
        """The costs at the rates of episode k."""
        losses: FloatArray = (1.0 + self._drift * self._waves.at(k)) @ self._costs
        return np.clip(losses, 0.0, 1.0)  # of rounding only
