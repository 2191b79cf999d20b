"""Policy optimisation with dilated bonuses (Luo, Wei and Lee, NeurIPS 2021)."""

from __future__ import annotations

import numpy as np

from advmdp import constants
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.policy_optimisation import CountingPolicyOptimisation, PolicyState
from advmdp.registry import register_learner
from advmdp.solvers import lower_occupancy, upper_occupancy
from advmdp.solvers.occupancy_bounds import extreme_values


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

    def _tuned(self) -> tuple[float, float]:
        return tuned(self)

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        return dilated_values(self, state, episode, episode.losses[::-1].cumsum()[::-1])


@register_learner("dilated-bonus-total")
class DilatedBonusTotal(CountingPolicyOptimisation):
    """The same where only the total loss of an episode is seen: it takes the place of all L_h.

    Given that a state is visited, what was lost before does not depend on the action that is taken in it.  So the total
    adds to Qhat_k(s, a), in expectation and but for gamma, a number that depends on s alone, and the weights of a state
    do not change by that.  Totals lie in [0, H], as the bonus supposes of the losses that follow.

    Parameters
    ----------
    radius_scale
        Factor on the half-widths of the set; anything but 1 has no guarantee.
    eta, gamma, zeta
        As of ``dilated-bonus``.
    """

    name = "dilated-bonus-total"
    feedback = "total"
    status = "every update against plain numpy, estimates by enumeration; constants not read in the source"

    def _tuned(self) -> tuple[float, float]:
        return tuned(self)

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        total = float(episode.losses.sum()) if episode.total is None else episode.total
        return dilated_values(self, state, episode, np.full(self._layers.horizon, total))


def tuned(learner: CountingPolicyOptimisation) -> tuple[float, float]:
    """eta, and gamma for the eta in force."""
    counted, H = learner._layers.counted, learner._layers.horizon
    eta = constants.dilated_bonus(counted.states, counted.actions, H, learner.episodes)
    return eta, 2.0 * (eta if learner.options.eta is None else learner.options.eta) * H


def dilated_values(
    learner: CountingPolicyOptimisation, state: PolicyState, episode: CheckedEpisode, charged: FloatArray
) -> FloatArray:
    """Qhat - B, flat, where each visited pair is charged so much, ``(H,)``."""
    layers, gamma = learner._layers, learner.exploration
    policy, horizon = layers.split(state.policy), layers.horizon
    assert state.set is not None
    upper = [u[:, None] * pi for u, pi in zip(upper_occupancy(state.set, policy), policy, strict=True)]
    lower = [v[:, None] * pi for v, pi in zip(lower_occupancy(state.set, policy), policy, strict=True)]
    values = episode.scatter(charged / (layers.flatten(upper)[episode.pairs] + gamma), layers.n_pairs)

    bonus = []
    for pi, u, v in zip(policy, upper, lower, strict=True):
        local = (pi * horizon * (3.0 * gamma + u - v) / (u + gamma)).sum(axis=1, keepdims=True)
        bonus.append(np.broadcast_to(local, pi.shape))
    dilated = extreme_values(state.set, policy, bonus, maximise=True, dilation=1.0 + 1.0 / horizon)
    return values - layers.flatten(dilated)
