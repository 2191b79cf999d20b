"""Policy optimisation: exponential weights in every state by itself, fed with estimated action values.

By the performance difference identity, the regret against a policy pi* is the sum over states of q*(s) times the
regret of the weights of that state with respect to the true action values.  Algorithms differ in the estimate Q_k.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from advmdp._checks import integer
from advmdp.confidence import BoxSet, ConfidenceSet
from advmdp.confidence.counts import BernsteinBoxes, VisitCounts
from advmdp.confidence.estimators import EpochCounts
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray, logarithm
from advmdp.learners.base import Learner
from advmdp.learners.options import BanditOptions, require
from advmdp.learners.parts.steps import START_SHARE
from advmdp.occupancy import exponential_weights


class PolicyState(NamedTuple):
    """What a learner of this kind knows."""

    policy: FloatArray
    log_weights: FloatArray
    #: Q_k of the last update.
    action_values: FloatArray
    #: The estimator's.
    data: Any = None
    #: P_k, for learners that have one.
    set: ConfidenceSet | None = None
    #: Episodes learned from.
    k: int = 0


class PolicyOptimisation(Learner):
    """pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)), from the uniform pi_1.

    After episode k: Q_k is computed with what was known before it (and its losses); then its transitions are
    counted or regressed on; then the policy moves.  With a start policy, pi_1 is nine parts of it and one of uniform.
    """

    takes_start = True
    #: eta in force, by default that of the theory.
    step_size: float

    @abstractmethod
    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        """Q_k, flat, under the policy that episode k was played with."""

    def _counted(self, state: PolicyState, episode: CheckedEpisode, values: FloatArray) -> PolicyState:
        """With the transitions of episode k, whose Q_k is given; the same where they are known."""
        return state

    def _begin(self) -> PolicyState:
        layers, zeros = self._layers, np.zeros(self._layers.n_pairs)
        # -inf at an action that is unavailable, for ever.
        log_weights = zeros if layers.available is None else np.where(layers.available, 0.0, -np.inf)
        if self.start is not None:
            log_weights = logarithm((1.0 - START_SHARE) * self.start + START_SHARE * layers.uniform_policy)
        return self._improved(PolicyState(zeros, log_weights, zeros), zeros)

    def _learn(self, state: PolicyState, episode: CheckedEpisode) -> PolicyState:
        values = self._values(state, episode)
        return self._improved(self._counted(state, episode, values), values)._replace(k=state.k + 1)

    def _improved(self, state: PolicyState, values: FloatArray) -> PolicyState:
        weights, policy = np.empty_like(values), np.empty_like(values)
        exponential_weights(state.log_weights, values, self.step_size, self._layers.n_actions, weights, policy)
        return state._replace(policy=policy, log_weights=weights, action_values=values)

    @property
    def action_values(self) -> list[FloatArray]:
        """Q_k of the last update (zero before the first)."""
        return self._layers.split(self._now.state.action_values.copy())

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        return {"log_weights": state.log_weights, "action_values": state.action_values, "k": state.k}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        weights, values = (self._layers.flat_vector(tree[name], name) for name in ("log_weights", "action_values"))
        unavailable = False if self._layers.available is None else ~self._layers.available & (weights == -np.inf)
        if not ((np.isfinite(weights) | unavailable).all() and np.isfinite(values).all()):
            raise ValueError("log_weights or action_values have entries that are not finite")
        return PolicyState(policy, weights, values, k=integer(tree["k"], "k", 0, ValueError))


class CountingPolicyOptimisation(PolicyOptimisation):
    """Bandit feedback, unknown transition, tabular: the counts, epochs and boxes of UOB-REPS.

    P_k holds the kernels that the counts at the beginning of the epoch leave possible; it contains the truth for
    all k with probability at least 1 - 4 zeta.
    """

    Options = BanditOptions
    options: BanditOptions
    #: gamma in force, by default that of the theory.
    exploration: float

    @abstractmethod
    def _tuned(self) -> tuple[float, float]:
        """eta of the theory, and gamma for the eta in force."""

    def _compose(self) -> None:
        o = self.options
        require(o.gamma is None or o.gamma > 0.0, "gamma", o.gamma, "a number > 0, or None")
        self.step_size = self._tuned()[0] if o.eta is None else o.eta
        self.exploration = self._tuned()[1] if o.gamma is None else o.gamma
        self._estimator = VisitCounts(self._layers, self._problem.model.support)
        self._sets = BernsteinBoxes(self._layers, self.episodes, o.zeta, o.radius_scale)

    def _begin(self) -> PolicyState:
        return self._with(super()._begin(), self._estimator.empty())

    def _with(self, state: PolicyState, counts: EpochCounts) -> PolicyState:
        if state.data is not None and counts.version == state.data.version:
            return state._replace(data=counts)  # inside an epoch the set stays
        return state._replace(data=counts, set=self._sets(counts))

    def _counted(self, state: PolicyState, episode: CheckedEpisode, values: FloatArray) -> PolicyState:
        return self._with(state, self._estimator.add(state.data, episode.states, episode.actions))

    def _observe(self, state: PolicyState, states: IntArray, actions: IntArray) -> PolicyState:
        counts = state.data
        for row, move in zip(states, actions, strict=True):
            counts = self._estimator.add(counts, row, move, logged=True)
        return self._with(state, counts)

    @property
    def confidence_set(self) -> BoxSet:
        """P_k."""
        found: BoxSet = self._now.state.set
        return found

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        return {**super()._tree(state), "counts": self._estimator.tree(state.data)}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        return self._with(super()._restore(tree, policy), self._estimator.restore(tree["counts"]))
