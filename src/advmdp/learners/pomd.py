"""Optimistic policy optimisation by mirror descent (Shani, Efroni, Rosenberg and Mannor, ICML 2020)."""

from __future__ import annotations

from math import sqrt

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.policy_optimisation import CountingPolicyOptimisation, extreme_values
from advmdp.registry import register_learner
from advmdp.solvers.occupancy_bounds import visited_upper_occupancy


@register_learner("pomd")
class Pomd(CountingPolicyOptimisation):
    """Bandit feedback, unknown transition: exponential weights on optimistic action values.

    After episode k, with P_k the set of kernels and u_k(s) = max_{P in P_k} q^{P, pi_k}(s):

    1. lhat_k(s, a) = l_k(s, a) / (u_k(s) pi_k(a | s) + gamma) at the visited pairs, zero elsewhere;
    2. Q_k(s, a) = lhat_k(s, a) + min_{p in P_k(s, a)} p.V_k,  V_k(s) = sum_a pi_k(a | s) Q_k(s, a);
    3. pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)).

    Parameters
    ----------
    radius_scale
        Factor on the half-widths of the set; anything but 1 has no guarantee.
    eta, gamma, zeta
        Step size (t_K in the source), implicit exploration and failure probability; by default K^(-2/3) / H,
        K^(-1/3) / sqrt(A) and 0.05.
    """

    name = "pomd"
    status = "every update against plain numpy that lists vertices; constants are orders, without logarithms"

    def _tuned(self) -> float:
        return float(self.episodes ** (-2.0 / 3.0)) / self._layers.horizon

    @property
    def exploration(self) -> float:
        """gamma in force; by default K^(-1/3) / sqrt(A)."""
        if self.gamma is not None:
            return self.gamma
        return float(self.episodes ** (-1.0 / 3.0)) / sqrt(self._layers.n_actions)

    def _evaluate(self, episode: CheckedEpisode) -> FloatArray:
        layers = self._layers
        upper = visited_upper_occupancy(self._set, self._flat_policy, episode.states)
        estimate = np.zeros(layers.n_pairs)
        estimate[episode.pairs] = episode.losses / (upper * self._flat_policy[episode.pairs] + self.exploration)
        return layers.flatten(extreme_values(self._set, self.policy, layers.split(estimate), maximise=False))
