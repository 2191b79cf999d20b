"""Optimistic policy optimisation by mirror descent (Shani, Efroni, Rosenberg and Mannor, ICML 2020)."""

from __future__ import annotations

from advmdp import constants
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.policy_optimisation import CountingPolicyOptimisation, PolicyState
from advmdp.registry import register_learner
from advmdp.solvers.occupancy_bounds import extreme_values


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
    partial = True

    def _tuned(self) -> tuple[float, float]:
        A, H, K = self._layers.counted.most_actions, self._layers.horizon, self.episodes
        return constants.pomd_step(H, K), constants.pomd_exploration(A, K)

    def _compose(self) -> None:
        super()._compose()
        self._losses = UpperOccupancy(gamma=lambda k: self.exploration)

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        split, flatten = self._layers.split, self._layers.flatten
        estimate = self._losses(state, episode, state.k)
        assert state.set is not None
        return flatten(extreme_values(state.set, split(state.policy), split(estimate), maximise=False))

    def _weights(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        return self._losses.weights(state, episode.states, episode.pairs, state.k)
