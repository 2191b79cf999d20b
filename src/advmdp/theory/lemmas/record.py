"""A run of a learner, with everything written down that a check asks for; and wrong learners.

Runs are on small random worlds with losses that change sides half-way.  Upper occupancy bounds, estimates, sets and
steps are the learner's own: nothing is computed in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import log, sqrt
from typing import Any

import numpy as np

from advmdp.confidence import ConfidenceSet
from advmdp.episodes import check_episode, play
from advmdp.layered import FloatArray, IntArray, Layers, LinearMixtureMDP
from advmdp.learners.lsuob_reps import LsuobReps
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import Adaptive, MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner, RepsState
from advmdp.learners.vlsuob_reps import VlsuobReps, VlsuobRepsTight
from advmdp.occupancy import best_policy, occupancy_measure
from advmdp.solvers import lower_occupancy
from advmdp.solvers.occupancy_bounds import visited_upper_occupancy
from advmdp.theory import bounds
from advmdp.theory.decomposition import covers, row_widths
from advmdp.theory.lemmas.coverage import small_world

ZETA = 0.05
EPISODES = 240
#: In turn: with the printed, the joint and the LSUOB radius, each with the bound that is proved for it.
SHIPPED: tuple[tuple[type[RepsLearner], bounds.BoundFunction], ...] = (
    (VlsuobReps, bounds.vlsuob_reps),
    (VlsuobRepsTight, bounds.vlsuob_reps_tight),
    (LsuobReps, bounds.lsuob_reps),
)


@dataclass(frozen=True, eq=False)
class Record:
    """A run, episode by episode; tables are (K, pairs)."""

    mdp: LinearMixtureMDP
    #: The name of the learner.
    name: str
    policies: FloatArray
    q: FloatArray
    q_hat: FloatArray
    #: What the learner itself takes for u, at all pairs.
    upper: FloatArray
    widths: FloatArray
    losses: FloatArray
    estimates: FloatArray
    #: P_k, and the kernels that the step to q_k found in it (none for q_1).
    sets: list[ConfidenceSet]
    kernels: list[list[FloatArray] | None]
    #: Visited states and flat indices of visited pairs, (K, H).
    states: IntArray
    visited: IntArray
    comparator: FloatArray
    #: The regret bound that is proved for this learner.
    bound: bounds.Bound
    #: Whether the truth was in the set of every episode.
    covered: bool

    @property
    def tuned(self) -> float:
        """eta = gamma of Theorem 1, whatever the learner took."""
        S, A, H = self.mdp.n_states, self.mdp.n_actions, self.mdp.horizon
        return sqrt(H * log(H * S * A / ZETA) / (len(self.q) * S * A))


def own_upper_occupancy(learner: RepsLearner) -> FloatArray:
    """u of all pairs as the learner's loss estimate would take it if they were visited next."""
    layers, state = learner._layers, learner._now.state
    upper = np.empty(layers.n_pairs)
    for s in range(max(layers.sizes)):
        states = np.minimum(s, np.array(layers.sizes[:-1]) - 1)
        for a in range(layers.n_actions):
            pairs = layers.pair_offsets[:-1] + states * layers.n_actions + a
            upper[pairs] = learner.parts.losses.weights(state, states, pairs, state.k)
    return upper


def record_run(
    learner: RepsLearner, mdp: LinearMixtureMDP, rng: np.random.Generator, bound: bounds.BoundFunction
) -> Record:
    """Play all episodes of a learner and write everything down."""
    layers, episodes = mdp.layers, learner.episodes
    means = rng.random((2, layers.n_pairs))
    halves = np.arange(episodes) >= episodes // 2
    losses = (rng.random((episodes, layers.n_pairs)) < means[halves.astype(int)]).astype(np.float64)
    policies, q, q_hat, upper, widths, estimates = np.empty((6, episodes, layers.n_pairs))
    states, visited = np.empty((2, episodes, layers.horizon), dtype=np.int64)
    sets, kernels = [], []
    for k in range(episodes):
        sets.append(learner.confidence_set)
        kernels.append(getattr(learner.last_step, "kernels", None))
        policies[k] = layers.flatten(learner.policy)
        q[k] = layers.flatten(occupancy_measure(mdp, learner.policy))
        q_hat[k] = layers.flatten(learner.q)
        widths[k] = layers.flatten(row_widths(sets[k]))
        upper[k] = own_upper_occupancy(learner)
        episode = play(mdp, learner.policy, layers.split(losses[k]), rng, k)
        learner.update(episode)
        estimates[k] = layers.flatten(learner.loss_estimate)
        checked = check_episode(episode, layers)
        states[k], visited[k] = checked.states[: layers.horizon], checked.pairs
    best, _ = best_policy(mdp, layers.split(losses.sum(axis=0)))
    star = layers.flatten(occupancy_measure(mdp, best))
    proved = bound(mdp.n_states, mdp.n_actions, mdp.horizon, episodes, mdp.dim, ZETA, mdp.bound)
    covered = all(covers(confidence_set, mdp) for confidence_set in sets)
    return Record(
        mdp, learner.name, policies, q, q_hat, upper, widths, losses, estimates, sets, kernels, states, visited, star,
        proved, covered,
    )  # fmt: skip


@lru_cache(maxsize=4)
def records(seed: int, trials: int, radius_scale: float = 1.0) -> tuple[Record, ...]:
    """The runs of shipped learners that all checks share."""
    rng = np.random.default_rng(seed)
    result = []
    for i in range(trials):
        mdp = small_world(rng)
        kind, bound = SHIPPED[i % len(SHIPPED)]
        learner = kind(mdp.model, EPISODES, radius_scale=radius_scale, zeta=ZETA)
        result.append(record_run(learner, mdp, rng, bound))
    return tuple(result)


# ------------------------------------------------------------------------------------------- wrong learners


#: No wrong u is smaller: estimates are to stay within reach of solvers where a fault in the source drops gamma too.
LEAST = 0.01


@dataclass(frozen=True)
class WrongWeights(UpperOccupancy):
    """Something else in place of u: a function of the state of the learner, visited states and pairs."""

    rule: Callable[[RepsState, IntArray, IntArray], FloatArray] = field(kw_only=True)

    def weights(self, state: Any, states: IntArray, pairs: IntArray, k: int) -> FloatArray:
        """What the rule says."""
        return self.rule(state, states, pairs)


def _lower(state: RepsState, states: IntArray, pairs: IntArray) -> FloatArray:
    policy = Layers(state.set.layer_sizes, state.set.n_actions).split(state.policy)
    lower = state.policy[pairs] * lower_occupancy(state.set, policy, list(enumerate(states.tolist())))
    return np.maximum(lower, LEAST)


def _ahead(parts: Parts) -> Parts:
    def rule(state: RepsState, states: IntArray, pairs: IntArray) -> FloatArray:
        data = parts.estimator.add(state.data, states, pairs % state.set.n_actions)
        upper: FloatArray = parts.losses.weights(state._replace(set=parts.sets(data)), states, pairs, state.k)
        return upper

    return parts._replace(losses=WrongWeights(parts.losses.gamma, rule=rule))


class OverPlayedSet(MirrorDescent):
    """The step of the paper's main text, over the set *before* the last episode."""

    over_played_set = True


def _with_eta(parts: Parts, factor: float) -> Parts:
    step = parts.step
    assert isinstance(step, MirrorDescent)
    eta = step.eta
    assert not isinstance(eta, Adaptive)
    return parts._replace(step=replace(step, eta=lambda k: factor * eta(k)))


def _wider(parts: Parts) -> Parts:
    sets: Any = copy(parts.sets)
    sets.scale *= 2.0
    return parts._replace(sets=sets)


def _with_lambda_one(parts: Parts) -> Parts:
    estimator: Any = parts.estimator
    return parts._replace(estimator=replace(estimator, regularisation=lambda k: 1.0))


#: What makes a learner wrong: a change of its parts.  Each must be noticed (docs/mutants.md has more).
FAULTS: dict[str, Callable[[Parts], Parts]] = {
    "no gamma in the estimates": lambda p: p._replace(losses=UpperOccupancy(gamma=lambda k: 0.0)),
    "no u in the estimates": lambda p: p._replace(
        losses=WrongWeights(p.losses.gamma, rule=lambda state, states, pairs: np.full(len(pairs), LEAST))
    ),
    "lower bound for u": lambda p: p._replace(losses=WrongWeights(p.losses.gamma, rule=_lower)),
    "no pi(a|s) in u": lambda p: p._replace(
        losses=WrongWeights(
            p.losses.gamma, rule=lambda state, s, pairs: visited_upper_occupancy(state.set, state.policy, s)
        )
    ),
    "u of the set that holds the episode": _ahead,
    "steps four times as long": lambda p: _with_eta(p, 4.0),
    "steps uphill": lambda p: _with_eta(p, -1.0),
    "steps over the set before the episode": lambda p: p._replace(step=OverPlayedSet(**vars(p.step))),
    "radii twice as large": _wider,
    "lambda that does not grow": _with_lambda_one,
}


def wrong_learner(name: str, mdp: LinearMixtureMDP, episodes: int, **options: Any) -> VlsuobReps:
    """A shipped learner with one fault (not for use)."""
    # The joint radius makes sets narrow enough for faults to show, but has a constant lambda.
    shipped = VlsuobReps if name == "lambda that does not grow" else VlsuobRepsTight

    class Wrong(shipped):  # type: ignore[valid-type,misc]
        def _parts(self) -> Parts:
            return FAULTS[name](super()._parts())

    learner: VlsuobReps = Wrong(mdp.model, episodes, zeta=ZETA, **options)
    return learner


@lru_cache(maxsize=16)
def wrong_records(name: str, seed: int, trials: int) -> tuple[Record, ...]:
    """Runs of a learner with one fault; a few are enough."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(trials):
        mdp = small_world(rng)
        result.append(record_run(wrong_learner(name, mdp, EPISODES), mdp, rng, bounds.vlsuob_reps_tight))
    return tuple(result)
