"""Policy optimisation: exponential weights in every state by itself, fed with estimated action values.

By the performance difference identity, the regret against a policy pi* is the sum over states of q*(s) times the
regret of the weights of that state with respect to the true action values.  Algorithms differ in the estimate Q_k.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from advmdp._compiled import kernel
from advmdp.confidence import BoxSet, ConfidenceSet
from advmdp.confidence.estimators import EpochCounts
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.learners.base import Learner
from advmdp.learners.counting import bernstein_boxes, checked_counts
from advmdp.learners.reps import require
from advmdp.solvers.occupancy_bounds import extreme_rows


class PolicyOptimisationLearner(Learner):
    """pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)), from the uniform pi_1.

    After episode k: Q_k is computed with what was known before it (and its losses); then its transitions are
    counted or regressed on; then the policy moves.
    """

    def __init__(
        self, problem: TabularModel | LayeredMDP, episodes: int, *, eta: float | None, seed: int, **parts: Any
    ) -> None:
        super().__init__(problem, episodes, seed=seed, **parts)
        self.eta = eta
        require(eta is None or 0.0 < eta < np.inf, "eta", eta, "a number > 0, or None")
        self._action_values = np.zeros(self._layers.n_pairs)
        self._log_weights = np.zeros(self._layers.n_pairs)
        self._improve(self._action_values)

    @abstractmethod
    def _tuned(self) -> float:
        """eta of the theory."""

    @abstractmethod
    def _evaluate(self, episode: CheckedEpisode) -> FloatArray:
        """Q_k, flat, under the policy that episode k was played with."""

    def _observe(self, episode: CheckedEpisode, values: FloatArray) -> None:
        """Take in the transitions of episode k, whose Q_k is given; nothing where they are known."""

    def _learn(self, episode: CheckedEpisode) -> None:
        self._warn_at_the_end()
        values = self._evaluate(episode)
        self._observe(episode, values)
        self._improve(values)

    def _improve(self, values: FloatArray) -> None:
        weights, policy = np.empty_like(values), np.empty_like(values)
        exponential_weights(self._log_weights, values, self.step_size, self._layers.n_actions, weights, policy)
        self._log_weights, self._action_values = weights, values
        self._set_policy(policy)

    @property
    def step_size(self) -> float:
        """eta in force."""
        return self._tuned() if self.eta is None else self.eta

    @property
    def action_values(self) -> list[FloatArray]:
        """Q_k of the last update (zero before the first)."""
        return self._layers.split(self._action_values.copy())

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "log_weights": self._log_weights, "action_values": self._action_values}

    def _set_state(self, state: dict[str, Any]) -> None:
        own = {name: self._layers.flat_vector(state.pop(name), name) for name in ("log_weights", "action_values")}
        for name, vector in own.items():
            if not np.isfinite(vector).all():
                raise ValueError(f"{name} has entries that are not finite")
        self._log_weights, self._action_values = own["log_weights"], own["action_values"]
        super()._set_state(state)


class CountingPolicyOptimisation(PolicyOptimisationLearner):
    """Bandit feedback, unknown transition, tabular: the counts, epochs and boxes of UOB-REPS.

    P_k holds the kernels that the counts at the beginning of the epoch leave possible; it contains the truth for
    all k with probability at least 1 - 4 zeta.
    """

    feedback = "bandit"
    _counts: EpochCounts
    _set: BoxSet

    def __init__(
        self,
        problem: TabularModel,
        episodes: int,
        *,
        radius_scale: float = 1.0,
        eta: float | None = None,
        gamma: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        require(0.0 < radius_scale < np.inf, "radius_scale", radius_scale, "a number > 0")
        require(gamma is None or 0.0 < gamma < np.inf, "gamma", gamma, "a number > 0, or None")
        require(0.0 < zeta < 1.0, "zeta", zeta, "a probability in (0, 1)")
        self.radius_scale, self.gamma, self.zeta = radius_scale, gamma, zeta
        super().__init__(problem, episodes, eta=eta, seed=seed)
        self._take_counts(EpochCounts.empty(self._layers.sizes, self._layers.n_actions))

    @property
    @abstractmethod
    def exploration(self) -> float:
        """gamma in force."""

    def _observe(self, episode: CheckedEpisode, values: FloatArray) -> None:
        counts = self._counts.add(episode.states, episode.actions)
        if counts.epoch == self._counts.epoch:
            self._counts = counts  # inside an epoch the set stays
        else:
            self._take_counts(counts)

    def _take_counts(self, counts: EpochCounts) -> None:
        self._counts = counts
        self._set = bernstein_boxes(counts, self._layers, self.episodes, self.zeta, self.radius_scale)

    @property
    def confidence_set(self) -> BoxSet:
        """P_k."""
        return self._set

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "counts": self._counts.tree()}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._take_counts(checked_counts(state.pop("counts"), self._layers))
        super()._set_state(state)


def extreme_values(
    confidence_set: ConfidenceSet,
    policy: Sequence[FloatArray],
    losses: Sequence[FloatArray],
    *,
    maximise: bool,
    dilation: float = 1.0,
) -> list[FloatArray]:
    """Action values of a policy under the kernel of the set that makes them largest (or smallest).

    Q(s, a) = l(s, a) + dilation max_{p in P(s, a)} p.V,  V(s) = sum_a policy(a | s) Q(s, a).
    """
    following = np.zeros(1)
    values = []
    for h in range(confidence_set.horizon - 1, -1, -1):
        table = losses[h] + dilation * extreme_rows(confidence_set, h, following, maximise=maximise)
        following = np.einsum("sa,sa->s", policy[h], table)
        values.append(table)
    return values[::-1]


@kernel
def exponential_weights(
    log_weights: FloatArray,
    values: FloatArray,
    step_size: float,
    n_actions: int,
    new_log_weights: FloatArray,
    policy: FloatArray,
) -> None:
    """log w <- log w - eta Q, shifted so that the largest of each state is 0; the policy is w normalised."""
    for first in range(0, values.size, n_actions):
        largest = -np.inf
        for i in range(first, first + n_actions):
            new_log_weights[i] = log_weights[i] - step_size * values[i]
            largest = max(largest, new_log_weights[i])
        total = 0.0
        for i in range(first, first + n_actions):
            new_log_weights[i] -= largest
            policy[i] = np.exp(new_log_weights[i])
            total += policy[i]
        for i in range(first, first + n_actions):
            policy[i] /= total
