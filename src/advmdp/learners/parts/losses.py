"""Loss estimates: what a learner makes of the losses that it saw.

An estimate is a flat vector lhat over pairs.  What it divides by is known before the episode: the set and the policy
with which it was played.  Losses that come late are divided by the larger of the weights then and now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidEpisodeError
from advmdp.layered import FloatArray, IntArray, Layers
from advmdp.solvers.occupancy_bounds import visited_upper_occupancy

#: Nothing is divided by less, so that no estimate overflows.
SMALLEST = 1e-300


class ImportanceWeights:
    """lhat(s, a) = l(s, a) / divisor(s, a) at the visited pairs, zero elsewhere and where no loss was seen."""

    feedback: Literal["bandit", "full"] = "bandit"

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """How likely the visited pairs were, in the eyes of the learner, before exploration is added."""
        raise NotImplementedError

    def divisors(self, weights: FloatArray, episode: CheckedEpisode, k: int) -> FloatArray:
        """What to divide by, from these weights."""
        raise NotImplementedError

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """lhat of episode k (from 0), with the learner in this state."""
        weights = self.weights(episode.played_in(state), episode.states, episode.pairs, k)
        estimate = episode.scatter(episode.losses / self.divisors(weights, episode, k), state.policy.size)
        for late in episode.late:
            now = self.weights(state, late.states, late.pairs, k)
            divisors = self.divisors(np.maximum(late.weights, now), episode, k)
            estimate[late.pairs] += np.nan_to_num(late.losses / divisors)
        return estimate


@dataclass(frozen=True)
class UpperOccupancy(ImportanceWeights):
    """lhat(s, a) = l(s, a) / (u(s, a) + gamma), u(s, a) = pi(a | s) max over the set of q^{P, pi}(s): equation (11).

    It is optimistic: u is at least the true probability of a visit while the truth is in the set.  ``gamma(k)`` is the
    implicit exploration of episode k (from 0).
    """

    gamma: Callable[[int], float]

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """u at the visited pairs."""
        policy: FloatArray = state.policy
        return policy[pairs] * visited_upper_occupancy(state.set, policy, states)

    def divisors(self, weights: FloatArray, episode: CheckedEpisode, k: int) -> FloatArray:
        """u + gamma."""
        return weights + self.gamma(k)


@dataclass(frozen=True)
class OwnOccupancy(ImportanceWeights):
    """lhat(s, a) = l(s, a) / max(q(s, a) + gamma, floor), q the learner's own occupancy measure.

    With known kernels it is that of the policy, and the estimate unbiased for gamma = floor = 0 (equation 9).
    """

    layers: Layers
    gamma: float = 0.0
    floor: float = 0.0

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """q at the visited pairs."""
        q: FloatArray = np.exp(state.step.log_q[pairs])
        return q

    def divisors(self, weights: FloatArray, episode: CheckedEpisode, k: int) -> FloatArray:
        """max(q + gamma, floor); an error where that is zero but for rounding."""
        divisors = np.maximum(weights + self.gamma, self.floor)
        if (divisors < SMALLEST).any():
            h = int(divisors.argmin())
            raise InvalidEpisodeError(
                f"layer {h}, state {episode.states[h]}, action {episode.actions[h]}: the policy in force gets there "
                f"with probability {divisors[h]:.3g}, too little to divide the loss by; tell episodes of this policy, "
                "or use gamma > 0"
            )
        return divisors


class LossTable:
    """lhat is the loss table itself: full information."""

    feedback: Literal["bandit", "full"] = "full"

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """The table."""
        assert episode.loss_table is not None  # checked: the feedback is full
        return episode.loss_table
