"""What ``docs/sharper-parts.md`` proves: estimates around predictions, and step sizes that adapt.

All of it is about the code that learners run.  Expectations are exact, by enumeration of all trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from advmdp.confidence import ConfidenceSet, KnownKernels
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray, LayeredMDP
from advmdp.learners.parts.known_losses import Groups
from advmdp.learners.parts.losses import GroupOccupancy, Predicted, UpperOccupancy, over_set
from advmdp.learners.parts.steps import Adaptive, ConditionalDescent, MirrorDescent
from advmdp.occupancy import best_policy, random_policy
from advmdp.solvers.conditional import certified_occupancy, conditional_step
from advmdp.theory.lemmas.base import Check, Ratios, each_trial
from advmdp.theory.lemmas.coverage import small_world
from advmdp.theory.lemmas.strong import TINY, around, occupancies, trajectories

# ------------------------------------------------------------------------------------ predictions


class Naive(Predicted):
    """m + 1{visit} (l - m) / (u + gamma), as if the kernel were known (not for use)."""

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        _, upper = self.interval(state, False)
        estimate: FloatArray = state.predictions.table.copy()
        estimate[episode.pairs] += (episode.losses - estimate[episode.pairs]) / (upper[episode.pairs] + self.gamma(k))
        return estimate


class Moments(SimpleNamespace):
    """Of the estimates of one episode, pair by pair: losses, mean, exponential, lower, upper, gamma."""


def moments(rng: np.random.Generator, kind: type[Predicted]) -> Moments:
    """By enumeration, for any predictions, and a set that holds the truth, or only the truth."""
    mdp = small_world(rng, TINY)
    layers = mdp.layers
    # Every other time the truth is all there is in the set: the estimates are largest then.
    confidence_set: ConfidenceSet = KnownKernels(mdp.kernels) if rng.random() < 0.5 else around(mdp, rng, 0.3)
    policy = layers.flatten(random_policy(layers.sizes, layers.n_actions, rng))
    losses, predicted = rng.random((2, layers.n_pairs))
    if rng.random() < 0.5:
        losses, predicted = losses.round(), predicted.round()
    gamma, eta = float(rng.uniform(0.01, 0.5)), float(rng.uniform(0.01, 1.0))
    state = SimpleNamespace(policy=policy, set=confidence_set, predictions=SimpleNamespace(table=predicted))
    part = kind(layers, over_set(layers, True), lambda k: gamma, lambda state, k: eta)
    mean, exponential = np.zeros((2, layers.n_pairs))
    for episode, chance in trajectories(mdp):
        likelihood = chance * float(policy[episode.pairs].prod())
        if likelihood > 0.0:
            estimate = part(state, episode._replace(losses=losses[episode.pairs]), 0)
            mean += likelihood * estimate
            exponential += likelihood * np.exp(2.0 * gamma * (estimate - losses))
    lower, upper = part.interval(state, False)
    return Moments(losses=losses, mean=mean, exponential=exponential, lower=lower, upper=upper, gamma=gamma)


def _optimism(kind: type[Predicted]) -> Ratios:
    """max over pairs of E exp(2 gamma (lhat - l))."""
    return lambda rng, trials: np.array([moments(rng, kind).exponential.max() for _ in range(trials)])


@each_trial
def _price(rng: np.random.Generator, explorations: float) -> float:
    """max over pairs of u (l - E lhat) over u - u_ + that many gamma."""
    found = moments(rng, Predicted)
    allowed = found.upper - found.lower + explorations * found.gamma
    return float((found.upper * (found.losses - found.mean) / allowed).max())


# ------------------------------------------------------------------------------------------ groups


class PairByPair(GroupOccupancy):
    """Spread over the group, and divided by the weight of the visited pair alone (not for use)."""

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        return UpperOccupancy.weights(self, state, states, pairs, k)


@each_trial
def _grouped(rng: np.random.Generator, kind: type[GroupOccupancy]) -> float:
    """max over pairs of E exp(2 gamma (lhat - l)), of three groups at random."""
    mdp = small_world(rng, TINY)
    layers = mdp.layers
    groups = Groups(layers, layers.split(rng.integers(0, 3, layers.n_pairs)))
    losses, gamma = rng.random(groups.count).round()[groups.of_pair], float(rng.uniform(0.01, 0.5))
    policy = layers.flatten(random_policy(layers.sizes, layers.n_actions, rng))
    state = SimpleNamespace(policy=policy, set=around(mdp, rng, 0.3))
    part = kind(lambda k, gamma=gamma: gamma, groups=groups)  # type: ignore[misc]
    exponential = np.zeros(layers.n_pairs)
    for episode, chance in trajectories(mdp):
        likelihood = chance * float(policy[episode.pairs].prod())
        estimate = part(state, episode._replace(losses=losses[episode.pairs]), 0)
        exponential += likelihood * np.exp(2.0 * gamma * (estimate - losses))
    return float(exponential.max())


# -------------------------------------------------------------------------------- adaptive steps


@dataclass(frozen=True)
class Unstabilised(Adaptive):
    """It goes on from q_k, with a smaller step (not for use)."""

    def turn(self, scale: float, gap: float, log_q: FloatArray, log_first: FloatArray) -> tuple[float, FloatArray]:
        return scale + gap, log_q


def estimates(mdp: LayeredMDP, rng: np.random.Generator, episodes: int) -> FloatArray:
    """y_k: one policy is good, then a shock makes the steps small, then another policy is good."""
    layers = mdp.layers
    policies = [layers.flatten(random_policy(layers.sizes, layers.n_actions, rng)).round() for _ in range(2)]
    y = np.empty((episodes, layers.n_pairs))
    for k in range(episodes):
        y[k] = policies[int(k > episodes // 4)] + 0.1 * rng.normal(size=layers.n_pairs)
    y[episodes // 4] += 30.0 * rng.normal(size=layers.n_pairs)
    return y


@each_trial
def _adaptive(rng: np.random.Generator, kind: type[Adaptive], conditional: bool, episodes: int = 120) -> float:
    """sum <q_k - q*, y_k + m_k> over 2 Delta_K - Delta_0, with hints m_k, over sets that are not nested."""
    mdp = small_world(rng, TINY)
    layers = mdp.layers
    sizes = np.array([n * (1 if conditional else layers.n_actions) for n in layers.sizes[:-1]])
    span = layers.horizon * np.log(layers.n_actions) if conditional else float(np.log(sizes).sum())
    rate = kind(span, span / float(rng.uniform(0.3, 1.0)))
    step: Any = (ConditionalDescent if conditional else MirrorDescent)(mdp.model, rate)
    y, hints = estimates(mdp, rng, episodes), rng.random((episodes + 1, layers.n_pairs))
    hints[0] = hints[-1] = 0.0
    if conditional:
        hints[:] = 0.0  # rows of different sets would be compared: a width, and not the step's
    state, suffered = step.start(), 0.0
    for k in range(episodes):
        confidence_set = around(mdp, rng, 0.2 * float(rng.random()))
        losses = y[k] + hints[k]
        if conditional:
            best = conditional_step(confidence_set, state.log_policy, step.rate(state, k) * y[k])
            q = certified_occupancy(best, state.log_policy).q
        else:
            q = np.exp(state.log_q)
        suffered += float(q @ losses)
        state = step.advance(state, confidence_set, y[k], k, hints[k + 1])
    total = (y + hints[:-1]).sum(axis=0)
    chosen = layers.flatten(best_policy(mdp, layers.split(total))[0])
    best_total = float(occupancies(mdp, chosen[None])[0] @ total)
    return float((suffered - best_total) / (2.0 * state.scale - rate.first))


CHECKS = (
    Check(
        "Predictions: optimistic estimates",
        "E exp(2 gamma (lhat - l)) <= 1 at every pair, whatever is predicted, while the truth is in the set; by "
        "enumeration",
        _optimism(Predicted),
        "m + 1{visit} (l - m) / (u + gamma)",
        _optimism(Naive),
        60,
    ),
    Check(
        "Predictions: price of optimism",
        "u (l - E lhat) <= u - u_ + 2 gamma at every pair, whatever is predicted; by enumeration",
        _price(2.0),
        "gamma in place of 2 gamma",
        _price(1.0),
        60,
    ),
    Check(
        "Groups: optimistic estimates",
        "E exp(2 gamma (lhat - l)) <= 1 at every pair of a group that shares its loss; by enumeration",
        _grouped(GroupOccupancy),
        "divided by the weight of the visited pair alone",
        _grouped(PairByPair),
        20,
    ),
    Check(
        "Adaptive steps: entropy of pairs",
        "sum_k <q_k - q*, y_k + m_k> <= 2 Delta_K - Delta_0 on every path, with hints m_k, sets that are not nested",
        _adaptive(Adaptive, conditional=False),
        "steps from q_k itself while eta falls",
        _adaptive(Unstabilised, conditional=False),
        12,
    ),
    Check(
        "Adaptive steps: conditional entropy",
        "sum_k <q_ - q*, y_k> <= 2 Delta_K - Delta_0 on every path, q_ of pi_k and the rows of the step with y_k",
        _adaptive(Adaptive, conditional=True),
        "steps from pi_k itself while eta falls",
        _adaptive(Unstabilised, conditional=True),
        20,
    ),
)
