"""EXP3 over all deterministic policies (Auer, Cesa-Bianchi, Freund and Schapire 2002): a yardstick for tiny worlds."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.learners.base import Learner
from advmdp.learners.reps import require
from advmdp.registry import register_learner
from advmdp.seeding import IndexedGenerator, Stream

#: A world with more deterministic policies than this is refused.
MOST_POLICIES = 2**17


@register_learner("exp3-policies")
class Exp3Policies(Learner):
    """Every deterministic policy is an arm: w(pi) proportional to exp(-eta sum_k Lhat_k(pi)).

    In each episode one policy is drawn from w and played; Lhat_k(pi) = 1{pi was played} L_k / w_k(pi), L_k the loss
    of the whole episode.  Nothing else of the structure is used.

    Parameters
    ----------
    eta
        Step size; by default sqrt(2 log n / (n K H^2)), n the number of policies, with which the expected regret is at
        most H sqrt(2 n K log n).
    """

    name = "exp3-policies"
    status = "weights recomputed from the whole history; expectation over all draws on a tiny world"

    def __init__(
        self, problem: TabularModel | LayeredMDP, episodes: int, *, eta: float | None = None, seed: int = 0
    ) -> None:
        super().__init__(problem, episodes, seed=seed)
        require(eta is None or 0.0 < eta < np.inf, "eta", eta, "a number > 0, or None")
        self.eta = eta
        layers = self._layers
        states = layers.n_states - 1
        #: n, the number of deterministic policies.
        self.n_policies = layers.n_actions**states
        if self.n_policies > MOST_POLICIES:
            raise InvalidSpecError(
                f"learner 'exp3-policies' is for tiny worlds: {layers.n_actions} actions in {states} states make "
                f"{layers.n_actions}^{states} policies, should be at most {MOST_POLICIES}"
            )
        n, horizon = self.n_policies, layers.horizon
        #: eta in force.
        self.step_size = sqrt(2.0 * log(n) / (n * self.episodes * horizon**2)) if eta is None else eta
        self._log_weights: FloatArray = np.zeros(n)
        # Draws are numbered by episode, apart from those of ``act``, which may be called any number of times.
        self._draws = IndexedGenerator(seed, Stream.LEARNER)
        self._arm = 0
        self._draw(self._log_weights, 0)

    @property
    def weights(self) -> FloatArray:
        """w_k: the probability of each policy, in the order of :meth:`policy_number`."""
        return _softmax(self._log_weights)

    def policy_number(self, arm: int) -> list[FloatArray]:
        """Policy number ``arm``: its digits to base A are the actions of the states, first layer first."""
        return self._layers.split(self._table(arm))

    def _table(self, arm: int) -> FloatArray:
        n_actions, states = self._layers.n_actions, self._layers.n_states - 1
        actions = [arm // n_actions**s % n_actions for s in range(states)]
        table: FloatArray = np.eye(n_actions)[actions].ravel()
        return table

    def _draw(self, log_weights: FloatArray, k: int) -> None:
        """Draw the policy of episode k."""
        cumulative = np.cumsum(_softmax(log_weights))
        arm = int(np.searchsorted(cumulative, self._draws.at(k).random() * cumulative[-1], side="right"))
        self._log_weights, self._arm = log_weights, min(arm, self.n_policies - 1)
        self._set_policy(self._table(self._arm))

    def _learn(self, episode: CheckedEpisode) -> None:
        self._warn_at_the_end()
        log_weights = self._log_weights.copy()
        log_weights[self._arm] -= self.step_size * float(episode.losses.sum()) / float(self.weights[self._arm])
        self._draw(log_weights, self.episodes_seen + 1)

    def _state(self) -> dict[str, Any]:
        return {"log_weights": self._log_weights, "arm": self._arm}

    def _set_state(self, state: dict[str, Any]) -> None:
        log_weights = float_array(state["log_weights"], "log_weights", ValueError)
        if log_weights.shape != (self.n_policies,) or not np.isfinite(log_weights).all():
            raise ValueError(f"log_weights of shape {log_weights.shape}: wrong shape, or entries that are not finite")
        self._log_weights = np.array(log_weights)
        self._arm = integer(state["arm"], "arm", 0, ValueError)
        if self._arm >= self.n_policies:
            raise ValueError(f"arm is {self._arm}, should be below {self.n_policies}")


def _softmax(log_weights: FloatArray) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    normalised: FloatArray = weights / weights.sum()
    return normalised
