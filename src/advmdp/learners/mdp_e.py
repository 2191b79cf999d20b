"""MDP-E (Even-Dar, Kakade and Mansour 2009), in its episodic form: an expert algorithm in every state."""

from __future__ import annotations

import numpy as np

from advmdp import constants
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.known import KnownTransitionLearner
from advmdp.learners.options import StepOptions
from advmdp.learners.policy_optimisation import PolicyOptimisation, PolicyState
from advmdp.occupancy import backward
from advmdp.registry import register_learner


@register_learner("mdp-e")
class MdpE(PolicyOptimisation, KnownTransitionLearner):
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
    Options = StepOptions
    options: StepOptions

    def _compose(self) -> None:
        tuned = constants.mdp_e(self._layers.counted.most_actions, self._layers.horizon, self.episodes)
        self.step_size = tuned if self.options.eta is None else self.options.eta

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        layers, values = self._layers, np.empty(self._layers.n_pairs)
        backward(
            self._problem.rows, layers.size_array, layers.n_actions, episode.loss_table, state.policy,
            np.empty(layers.n_states), values,
        )  # fmt: skip
        return values
