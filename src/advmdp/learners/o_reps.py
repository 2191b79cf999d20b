"""O-REPS (Zimin and Neu, NIPS 2013): online mirror descent on the occupancy measures of known kernels."""

from __future__ import annotations

from abc import abstractmethod
from math import log, sqrt
from typing import Any

import numpy as np

from advmdp.confidence import KnownKernels
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidEpisodeError
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners.known import KnownTransitionLearner
from advmdp.learners.reps import checked_log_q, require
from advmdp.registry import register_learner
from advmdp.solvers.repeated import FlatStep, RepeatedStep

#: Nothing is divided by less, so that no estimate overflows.
SMALLEST = 1e-300


class OccupancyDescent(KnownTransitionLearner):
    """q_{k+1} = argmin over q in Delta(P) of eta <q, lhat_k> + D(q || q_k), P the true kernels.

    q_1 is the element of Delta(P) nearest to the measure that is uniform in each layer.  (The occupancy measure of the
    uniform policy is another one; from it D(q* || q_1) can exceed sum_h log(S_h A), where states are rarely reached.)
    """

    def __init__(self, problem: LayeredMDP, episodes: int, *, eta: float | None, seed: int) -> None:
        super().__init__(problem, episodes, seed=seed)
        self.eta = eta
        require(eta is None or 0.0 < eta < np.inf, "eta", eta, "a number > 0, or None")
        layers = self._layers
        #: eta in force.
        self.step_size = self._tuned() if eta is None else eta
        self._kernels = KnownKernels(problem.kernels)
        self._step = RepeatedStep(self._kernels)
        self._loss_estimate = np.zeros(layers.n_pairs)
        sizes, n_actions = layers.sizes, layers.n_actions
        uniform = np.concatenate([np.full(n * n_actions, -log(n * n_actions)) for n in sizes[:-1]])
        first = self._step.cold(uniform, self._loss_estimate)
        self._log_q = first.log_q
        self._set_policy(first.policy)
        #: The last mirror step with its certificate; None before the first update.
        self.last_step: FlatStep | None = None

    def _descend(self, estimate: FloatArray) -> None:
        step = self._step(self._log_q, self.step_size * estimate)
        self.last_step, self._log_q, self._loss_estimate = step, step.log_q, estimate
        self._set_policy(step.policy)

    @abstractmethod
    def _tuned(self) -> float:
        """The eta of the theorem."""

    @property
    def q(self) -> list[FloatArray]:
        """q_k, the true occupancy measure of the policy."""
        return self._layers.split(np.exp(self._log_q))

    @property
    def confidence_set(self) -> KnownKernels:
        """The true kernels alone."""
        return self._kernels

    @property
    def loss_estimate(self) -> list[FloatArray]:
        """lhat of the last update (zero before the first)."""
        return self._layers.split(self._loss_estimate)

    def _state(self) -> dict[str, Any]:
        return {"log_q": self._log_q, "loss_estimate": self._loss_estimate}

    def _set_state(self, state: dict[str, Any]) -> None:
        self._log_q = checked_log_q(self._layers, state["log_q"])
        self._loss_estimate = self._layers.flat_vector(state["loss_estimate"], "loss_estimate")


@register_learner("o-reps")
class OReps(OccupancyDescent):
    """Full information: lhat_k is the loss table itself.

    Parameters
    ----------
    eta
        Step size; by default sqrt(log(S A / H) / K), with which the regret is at most 2 H sqrt(K log(S A / H)).
    """

    name = "o-reps"
    feedback = "full"
    status = "every step against a conic solver and a plain Newton method; bound rederived"

    def __init__(self, problem: LayeredMDP, episodes: int, *, eta: float | None = None, seed: int = 0) -> None:
        super().__init__(problem, episodes, eta=eta, seed=seed)

    def _tuned(self) -> float:
        layers = self._layers
        return sqrt(log(layers.n_states * layers.n_actions / layers.horizon) / self.episodes)

    def _learn(self, episode: CheckedEpisode) -> None:
        self._warn_at_the_end()
        assert episode.loss_table is not None  # checked: the feedback is full
        self._descend(episode.loss_table)


@register_learner("o-reps-bandit")
class ORepsBandit(OccupancyDescent):
    """Bandit feedback: lhat_k(s, a) = l_k(s, a) / (q_k(s, a) + gamma) at the visited pairs, zero elsewhere.

    Parameters
    ----------
    eta
        Step size; by default sqrt(H log(S A / H) / (K S A)), with which the expected regret is at most
        2 sqrt(H S A K log(S A / H)).
    gamma
        Implicit exploration; 0 as in the source, whose bound is on the expected regret.  Above 0 the estimate is
        biased, and no longer unbounded.
    """

    name = "o-reps-bandit"
    status = "every step against a conic solver and a plain Newton method; bound rederived"

    def __init__(
        self,
        problem: LayeredMDP,
        episodes: int,
        *,
        eta: float | None = None,
        gamma: float = 0.0,
        seed: int = 0,
    ) -> None:
        require(0.0 <= gamma < np.inf, "gamma", gamma, "a number >= 0")
        self.gamma = gamma
        super().__init__(problem, episodes, eta=eta, seed=seed)

    def _tuned(self) -> float:
        n_states, n_actions, horizon = self._layers.n_states, self._layers.n_actions, self._layers.horizon
        return sqrt(horizon * log(n_states * n_actions / horizon) / (self.episodes * n_states * n_actions))

    def _learn(self, episode: CheckedEpisode) -> None:
        self._warn_at_the_end()
        visited = np.exp(self._log_q[episode.pairs]) + self.gamma
        if (visited < SMALLEST).any():
            h = int(visited.argmin())
            raise InvalidEpisodeError(
                f"layer {h}, state {episode.states[h]}, action {episode.actions[h]}: the policy in force gets there "
                f"with probability {visited[h]:.3g}, too little to divide the loss by; tell episodes of this policy, "
                "or use gamma > 0"
            )
        estimate = np.zeros(self._layers.n_pairs)
        estimate[episode.pairs] = episode.losses / visited
        self._descend(estimate)
