"""MDP-E (Even-Dar, Kakade and Mansour 2009), in its episodic form: an expert algorithm in every state."""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners.known import KnownTransitionLearner
from advmdp.learners.policy_optimisation import PolicyOptimisationLearner
from advmdp.occupancy import backward
from advmdp.registry import register_learner


@register_learner("mdp-e")
class MdpE(PolicyOptimisationLearner, KnownTransitionLearner):
    """Known transition, full information: Q_k are the true action values of pi_k under l_k.

    Q_k(s, a) = l_k(s, a) + sum_s' P(s' | s, a) V_k(s'),  V_k(s) = sum_a pi_k(a | s) Q_k(s, a),
    pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)).

    Parameters
    ----------
    eta
        Step size; by default sqrt(8 log A / (K H^2)), with which the regret is at most H^2 sqrt(K log(A) / 2).
    """

    name = "mdp-e"
    feedback = "full"
    status = "every update against plain numpy; regret below its bound, which is rederived"
    _problem: LayeredMDP

    def __init__(self, problem: LayeredMDP, episodes: int, *, eta: float | None = None, seed: int = 0) -> None:
        super().__init__(problem, episodes, eta=eta, seed=seed)

    def _tuned(self) -> float:
        return sqrt(8.0 * log(self._layers.n_actions) / self.episodes) / self._layers.horizon

    def _evaluate(self, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        values = np.empty(self._layers.n_pairs)
        backward(
            *self._problem.flat_kernels,
            self._layers.size_array,
            self._layers.n_actions,
            episode.loss_table,
            self._flat_policy,
            values,
        )
        return values
