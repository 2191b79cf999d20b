"""Loss estimates: what a learner makes of the losses that it saw.

An estimate is a flat vector lhat over pairs.  What it divides by is known before the episode: the set and the policy
with which it was played.  Losses that come late are divided by the larger of the weights then and now.

With predictions m, any function of the past, an estimate is m and a correction where a loss was seen, and its variance
that of l - m.  :class:`Predicted` is optimistic whatever m is, as long as the truth is in the set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from advmdp.confidence import ConfidenceSet
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidEpisodeError
from advmdp.layered import FloatArray, IntArray, Layers
from advmdp.learners.parts.known_losses import Groups
from advmdp.solvers.occupancy_bounds import occupancy_intervals, visited_upper_occupancy

#: Nothing is divided by less, so that no estimate overflows.
SMALLEST = 1e-300


def upper_visits(confidence_set: ConfidenceSet, policy: FloatArray, states: IntArray, exact: bool = True) -> FloatArray:
    """u of the visited states, ``(H,)``: the maximum, a backward pass for each, or more, by one forward pass for all.

    ``policy`` is flat over pairs, and ``states`` ``(H,)``.
    """
    if exact:
        return visited_upper_occupancy(confidence_set, policy, states)
    sizes = confidence_set.size_array[:-1]
    found: FloatArray = occupancy_intervals(confidence_set, policy, exact=False)[1][np.cumsum(sizes) - sizes + states]
    return found


class ImportanceWeights:
    """lhat(s, a) = l(s, a) / divisor(s, a) at the visited pairs, zero elsewhere and where no loss was seen."""

    feedback: Literal["bandit", "actions", "full"] = "bandit"

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
    implicit exploration of episode k (from 0).  With ``seen``, the probability of seeing the loss of each pair that is
    visited (flat), the weight is that of seeing it.
    """

    gamma: Callable[[int], float]
    seen: FloatArray | None = None
    #: As in :func:`upper_visits`.
    exact: bool = True

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """u at the visited pairs."""
        weights: FloatArray = state.policy[pairs] * upper_visits(state.set, state.policy, states, self.exact)
        return weights if self.seen is None else self.seen[pairs] * weights

    def divisors(self, weights: FloatArray, episode: CheckedEpisode, k: int) -> FloatArray:
        """u + gamma."""
        return weights + self.gamma(k)


@dataclass(frozen=True)
class AllActions(UpperOccupancy):
    """The same where the losses of all actions at visited states are seen: lhat(s, a) = l(s, a) / (u(s) + gamma).

    An episode that has only those of the actions taken is one with bandit feedback.
    """

    feedback: Literal["bandit", "actions", "full"] = "actions"

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """lhat of episode k (from 0), with the learner in this state."""
        if episode.action_losses is None:
            return super().__call__(state, episode, k)
        unseen = episode._replace(losses=np.full_like(episode.losses, np.nan), complete=False)
        estimate = super().__call__(state, unseen, k)
        played = episode.played_in(state)
        n_actions = episode.action_losses.shape[1]
        pairs = (episode.pairs - episode.actions)[:, None] + np.arange(n_actions)
        weights = upper_visits(played.set, played.policy, episode.states, self.exact)
        weights = np.repeat(weights[:, None], n_actions, 1)
        if self.seen is not None:
            weights *= self.seen[pairs]
        estimate[pairs] += np.nan_to_num(episode.action_losses / (weights + self.gamma(k)))
        return estimate


@dataclass(frozen=True)
class GroupOccupancy(UpperOccupancy):
    """Where pairs share their losses: lhat = l / (U_G + gamma) at all pairs of every group G whose loss was seen.

    U_G is the largest probability over the set of meeting the group at least once.
    """

    groups: Groups | None = None

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """U_G of the groups of the visited pairs."""
        assert self.groups is not None
        return self.groups.upper_hits(state.set, state.policy, pairs)

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """lhat of episode k (from 0), with the learner in this state."""
        assert self.groups is not None
        weights = self.weights(episode.played_in(state), episode.states, episode.pairs, k)
        told = [(episode.pairs, episode.losses, weights)]
        for late in episode.late:
            told.append(
                (late.pairs, late.losses, np.maximum(late.weights, self.weights(state, late.states, late.pairs, k)))
            )
        estimate = np.zeros(state.policy.size)
        for pairs, losses, divisors in told:
            members, sources = self.groups.spread(pairs, losses)
            estimate[members] += (losses / self.divisors(divisors, episode, k))[sources]
        return estimate


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
        require_visits(divisors, episode)
        return divisors


def correction(surprise: FloatArray, divisors: FloatArray, gamma: float) -> FloatArray:
    """X, what a loss that was seen adds to what was predicted, from r = l - m', of any shape: NaN where r is.

    X = r / (u + gamma) for r >= 0, otherwise -Y (1 + 2 gamma Y) with Y = -r / (u + gamma): that much more, so that
    E exp(2 gamma X) is what it would be without the convexity of the exponential function.
    """
    Y = np.abs(surprise) / divisors
    return np.where(surprise < 0.0, -Y * (1.0 + 2.0 * gamma * Y), Y)


@dataclass(frozen=True)
class Predicted(ImportanceWeights):
    """lhat = m' l / (u + gamma) + 1{seen} X, with l <= P(seen) <= u at all pairs, and X of :func:`correction`.

    m' = min(m, (u + gamma) / max(c eta, 4 gamma)) is the prediction, cut off so that no step is too large.  Whatever m
    is, E exp(2 gamma (lhat - loss)) <= 1 and u E(loss - lhat) <= u - l + 2 gamma (``docs/sharper-parts.md``).  With
    l = u, as where the kernel is known, and gamma = 0 the estimate has no bias.
    """

    layers: Layers
    #: l and u of all pairs, flat, of a state of the learner, and of whether all actions at visited states are seen.
    interval: Callable[[Any, bool], tuple[FloatArray, FloatArray]]
    gamma: Callable[[int], float]
    #: c eta of episode k, from the state of the learner.
    rate: Callable[[Any, int], float]
    feedback: Literal["bandit", "actions", "full"] = "bandit"

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """lhat of episode k (from 0), with the learner in this state."""
        gamma, played = self.gamma(k), episode.played_in(state)
        lower, upper = self.interval(played, episode.action_losses is not None)
        predicted = self._cut_off(played, upper, k)
        divisors = np.maximum(upper + gamma, SMALLEST)
        estimate: FloatArray = predicted * lower / divisors
        require_visits(divisors[episode.pairs], episode)
        pairs, losses = episode.seen(self.layers)
        estimate[pairs] += np.nan_to_num(correction(losses - predicted[pairs], divisors[pairs], gamma))
        for late in episode.late:
            then, expected = late.weights.T
            now = np.maximum(then, upper[late.pairs]) + gamma
            estimate[late.pairs] += np.nan_to_num(correction(late.losses - expected, now, gamma))
        return estimate

    def _cut_off(self, state: Any, upper: FloatArray, k: int) -> FloatArray:
        """m'."""
        gamma = self.gamma(k)
        found: FloatArray = np.minimum(
            state.predictions.table, (upper + gamma) / max(self.rate(state, k), 4.0 * gamma, SMALLEST)
        )
        return found

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """u and m' at the visited pairs, ``(H, 2)``."""
        _, upper = self.interval(state, False)
        return np.stack([upper[pairs], self._cut_off(state, upper, k)[pairs]], axis=1)


def over_set(
    layers: Layers, exact: bool, seen: FloatArray | None = None
) -> Callable[[Any, bool], tuple[FloatArray, FloatArray]]:
    """Bounds on the probability of seeing the loss of each pair, flat, over the learner's set.

    They are the least and greatest, or those of one forward pass.  A loss is seen with probability ``seen`` where its
    pair, or its state if the losses of all actions are shown, is visited.
    """

    def interval(state: Any, all_actions: bool) -> tuple[FloatArray, FloatArray]:
        shares = 1.0 if all_actions else state.policy
        if seen is not None:
            shares = shares * seen
        low, high = occupancy_intervals(state.set, state.policy, exact)
        return shares * np.repeat(low, layers.n_actions), shares * np.repeat(high, layers.n_actions)

    return interval


def own_occupancy(state: Any, all_actions: bool) -> tuple[FloatArray, FloatArray]:
    """l = u = q, the learner's own occupancy measure, flat: where the kernel is known, that of its policy."""
    q = np.exp(state.step.log_q)
    return q, q


def require_visits(divisors: FloatArray, episode: CheckedEpisode) -> None:
    """Raise InvalidEpisodeError where a visited pair was impossible, but for rounding: of divisors ``(H,)``."""
    if (divisors <= SMALLEST).any():
        h = int(divisors.argmin())
        raise InvalidEpisodeError(
            f"layer {h}, state {episode.states[h]}, action {episode.actions[h]}: the policy in force gets there "
            f"with probability {divisors[h]:.3g}, too little to divide the loss by; tell episodes of this policy, "
            "or use gamma > 0"
        )


class LossTable:
    """lhat is the loss table itself: full information."""

    feedback: Literal["bandit", "actions", "full"] = "full"

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """The table."""
        assert episode.loss_table is not None  # checked: the feedback is full
        return episode.loss_table
