"""Policy optimisation with dilated bonuses (Luo, Wei and Lee, NeurIPS 2021)."""

from __future__ import annotations

from math import sqrt

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.policy_optimisation import CountingPolicyOptimisation, extreme_values
from advmdp.registry import register_learner
from advmdp.solvers import lower_occupancy, upper_occupancy


@register_learner("dilated-bonus")
class DilatedBonus(CountingPolicyOptimisation):
    """Bandit feedback, unknown transition: the losses that follow a visit, less a bonus that looks further ahead.

    After episode k, with P_k the set of kernels, u_k and v_k the largest and the smallest probability of a pair under
    pi_k over P_k, and L_h the losses of the episode from layer h on:

    1. Qhat_k(s, a) = L_{h(s)} / (u_k(s, a) + gamma) at the visited pairs, zero elsewhere;
    2. b_k(s) = sum_a pi_k(a | s) (3 gamma H + H (u_k(s, a) - v_k(s, a))) / (u_k(s, a) + gamma);
    3. B_k(s, a) = b_k(s) + (1 + 1/H) max_{p in P_k(s, a)} sum_s' p(s') sum_a' pi_k(a' | s') B_k(s', a');
    4. pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta (Qhat_k(s, a) - B_k(s, a))).

    Parameters
    ----------
    radius_scale
        Factor on the half-widths of the set; anything but 1 has no guarantee.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability; by default min(1 / (24 H^3), 1 / sqrt(S A H K)),
        2 eta H and 0.05.
    """

    name = "dilated-bonus"
    status = "every update against plain numpy that lists vertices; constants recalled, and consistent"

    def _tuned(self) -> float:
        horizon = self._layers.horizon
        pairs = self._layers.n_states * self._layers.n_actions
        return min(1.0 / (24.0 * horizon**3), 1.0 / sqrt(pairs * horizon * self.episodes))

    @property
    def exploration(self) -> float:
        """gamma in force; by default 2 eta H."""
        return 2.0 * self.step_size * self._layers.horizon if self.gamma is None else self.gamma

    def _evaluate(self, episode: CheckedEpisode) -> FloatArray:
        layers, policy, gamma = self._layers, self.policy, self.exploration
        horizon = layers.horizon
        upper = [u[:, None] * pi for u, pi in zip(upper_occupancy(self._set, policy), policy, strict=True)]
        lower = [v[:, None] * pi for v, pi in zip(lower_occupancy(self._set, policy), policy, strict=True)]

        values = np.zeros(layers.n_pairs)
        to_go = episode.losses[::-1].cumsum()[::-1]
        values[episode.pairs] = to_go / (layers.flatten(upper)[episode.pairs] + gamma)

        bonus = []
        for pi, u, v in zip(policy, upper, lower, strict=True):
            local = (pi * horizon * (3.0 * gamma + u - v) / (u + gamma)).sum(axis=1, keepdims=True)
            bonus.append(np.broadcast_to(local, pi.shape))
        dilated = extreme_values(self._set, policy, bonus, maximise=True, dilation=1.0 + 1.0 / horizon)
        return values - layers.flatten(dilated)
