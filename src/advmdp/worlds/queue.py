"""A queue with a server of variable speed: how fast to run, not knowing what will arrive.

It stands for a processor that scales its clock, a call centre that adds agents, a clinic that opens rooms.  The state
is the number of jobs; the action is the speed.  At speed v up to v jobs are worked on in a slot, each of which is
finished with probability 0.9 (the others need another slot); then jobs arrive, and those beyond the buffer are turned
away.  Arrivals are an unknown mixture of known distributions, such as calm, usual and rush.  Costs by nature: energy at
a drifting price, waiting, and jobs turned away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import float_array, integer, kernels_fit_in_memory
from advmdp._unroll import NEGLIGIBLE, Unrolled, chance
from advmdp.adversaries import Adversary
from advmdp.adversaries.natural import Waves, share
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import Stream, generator
from advmdp.worlds import _poisson
from advmdp.worlds._options import positive, probabilities

#: Probability that a job which is worked on is finished within the slot.
FINISHED = 0.9


@register_world("queue")
def queue(
    *,
    buffer: int = 7,
    speeds: Sequence[int] = (0, 1, 2, 3),
    slots: int = 8,
    waiting: int = 2,
    arrival_means: Sequence[float] = (0.5, 1.5, 3.0),
    mix: Sequence[float] = (0.5, 0.35, 0.15),
) -> LinearMixtureMDP:
    """0 to ``buffer`` jobs; actions are speeds; arrivals a mixture of Poisson distributions.

    Parameters
    ----------
    buffer
        Jobs that fit in.
    speeds
        Jobs that can be worked on in a slot, one number per action.
    slots
        H.
    waiting
        Jobs in the first slot.
    arrival_means
        Of the known arrival distributions; d is their number.
    mix
        Their true weights.
    """
    from scipy.stats import binom  # slow to import; its last digits are part of the world

    integer(buffer, "buffer", 1, InvalidSpecError)
    integer(slots, "slots", 1, InvalidSpecError)
    levels = float_array(speeds, "speeds", InvalidSpecError)
    if levels.ndim != 1 or not levels.size or (levels % 1.0 != 0.0).any() or levels.min() < 0.0 or levels.max() < 1.0:
        raise InvalidSpecError(f"speeds is {speeds!r}, should be integers >= 0, at least one of them >= 1")
    speeds = [int(level) for level in levels]
    if integer(waiting, "waiting", 0, InvalidSpecError) > buffer:
        raise InvalidSpecError(f"waiting is {waiting}, should be at most buffer = {buffer}")
    means = positive(arrival_means, "arrival_means")
    weights = probabilities(mix, "mix", means.size)
    widest = min(buffer, max(speeds) + _poisson.width(float(means.max()))) + 1
    entries = len(speeds) * (buffer + 1) * widest
    kernels_fit_in_memory(entries, means.size, f"a queue of {buffer} jobs", InvalidSpecError)
    finish = {
        worked_on: [binom.pmf(finished, worked_on, FINISHED) for finished in range(worked_on + 1)]
        for worked_on in {min(jobs, speed) for jobs in range(min(buffer, max(speeds)) + 1) for speed in speeds}
    }
    pairs = [(jobs, min(jobs, speed)) for jobs in range(buffer + 1) for speed in speeds]

    def slot(mean: float) -> list[tuple[IntArray, FloatArray]]:
        arrivals = _poisson.probability(np.arange(buffer), mean)
        arrivals = arrivals[: np.flatnonzero(arrivals > NEGLIGIBLE).max(initial=0) + 1]
        rows = []
        for jobs, worked_on in pairs:
            row = np.zeros(buffer + 1)
            for finished, probability in enumerate(finish[worked_on]):
                left = jobs - finished
                come = arrivals[: buffer - left]
                row[left : left + come.size] += probability * come
            row[buffer] = max(1.0 - row[:buffer].sum(), 0.0)
            possible = np.flatnonzero(row > NEGLIGIBLE)
            rows.append((possible, row[possible]))
        return rows

    processes = [slot(mean) for mean in means]
    unrolled = Unrolled([chance(rows, len(speeds)) for rows in processes], waiting, slots)
    # Jobs are conserved: what was there, less what is finished, plus what comes, stays or is turned away.
    came = np.array([jobs - FINISHED * worked_on for jobs, worked_on in pairs]) + float(weights @ means)
    stay = [
        np.cumsum(np.concatenate([w * nexts * p for w, (nexts, p) in zip(weights, rows, strict=True)]))[-1]
        for rows in zip(*processes, strict=True)
    ]
    rejected = np.maximum(came - stay, 0.0).reshape(buffer + 1, len(speeds))
    scene = Scene(
        states=unrolled.named(),
        actions=[f"speed {speed}" for speed in speeds],
        natural_losses="queue",
        details={
            "speed": np.tile(np.array(speeds, dtype=np.float64), unrolled.states.size),
            "jobs": np.repeat(unrolled.states.astype(np.float64), len(speeds)),
            "turned_away": rejected[unrolled.states].ravel(),
        },
    )
    return unrolled.mixture(weights, scene)


@register_natural_losses("queue")
class ServiceCosts(Adversary):
    """Energy, waiting and rejection: price * v^2 + waiting * jobs + rejection * E[jobs turned away].

    Power grows with the square of the speed; its price is its base times 1 + drift * wave.  The expectation is over the
    true arrivals.  Costs are divided by the largest that is possible, so losses lie in [0, 1].

    Parameters
    ----------
    energy, waiting, rejection
        Base price of energy, cost per job and slot, cost per job turned away.
    drift
        How far the price of energy moves, relative to its base, in [0, 1].
    period
        Of its wave, in episodes.
    """

    def __init__(
        self,
        mdp: LayeredMDP,
        episodes: int,
        *,
        energy: float = 1.0,
        waiting: float = 1.0,
        rejection: float = 4.0,
        drift: float = 0.8,
        period: float = 500.0,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        rates = positive((energy, waiting, rejection), "(energy, waiting, rejection)")
        details = mdp.scene.details
        self._drift = share(drift, "drift")
        self._power = rates[0] * np.asarray(details["speed"]) ** 2
        self._other = rates[1] * np.asarray(details["jobs"]) + rates[2] * np.asarray(details["turned_away"])
        largest = ((1.0 + self._drift) * self._power + self._other).max()
        self._power, self._other = self._power / largest, self._other / largest
        self._wave = Waves(1, period, generator(seed, Stream.ADVERSARY))

    def flat_losses(self, k: int) -> FloatArray:
        """The costs at the price of energy of episode k."""
        price = 1.0 + self._drift * self._wave.at(k)[0]
        losses: FloatArray = price * self._power + self._other
        return np.clip(losses, 0.0, 1.0)  # of rounding only
