"""Dilated bonuses in linear MDPs, after Luo, Wei and Lee (NeurIPS 2021): a version without epochs or a cover."""

from __future__ import annotations

import numpy as np

from advmdp import constants
from advmdp.confidence.linear_mdp import Transitions, value_pass
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.oppo_linear import LinearPolicyOptimisation
from advmdp.learners.options import BanditOptions, require
from advmdp.learners.policy_optimisation import PolicyState
from advmdp.registry import register_learner


@register_learner("dilated-bonus-linear")
class DilatedBonusLinear(LinearPolicyOptimisation):
    """Bandit feedback, unknown transition, losses that are linear in features: fitted action values less a bonus.

    After episode k, with muhat_h and Lambda_h from the episodes before it, Phat(s' | s, a) = <phi(s, a), muhat_h(s')>
    made a distribution, qhat_k the occupancy measure of pi_k under Phat, and L_h the losses from layer h on:

    1. Sigma_h = gamma I + sum over layer h of qhat_k phi phi',  n(s, a) = phi(s, a)' Sigma_h^-1 phi(s, a);
    2. Qhat_k(s, a) = phi(s, a)' Sigma_h^-1 phi(s_h, a_h) L_h;
    3. b_k(s, a) = 2 eta H^2 (n(s, a) + sum_a' pi_k(a' | s) n(s, a'));
    4. B_k(s, a) = b_k(s, a) + (1 + 1/H) clip(<phi(s, a), muhat_h W_k> + beta_h m |phi(s, a)|_{Lambda_h^-1}, 0, m),
       W_k(s) = sum_a pi_k(a | s) B_k(s, a), m the largest value that W_k can have in the next layer;
    5. pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta (Qhat_k(s, a) - B_k(s, a))).

    Parameters
    ----------
    radius_scale
        Factor on beta_h.
    eta, gamma, zeta
        Step size, regularisation of Sigma_h and failure probability; by default min(1 / (24 H^3), 1 / (H sqrt(d K))),
        2 eta H and 0.05.
    """

    name = "dilated-bonus-linear"
    status = "every update against plain numpy from the full history; no bound is proved for this version"
    Options = BanditOptions
    options: BanditOptions

    def _compose(self) -> None:
        super()._compose()
        o, horizon = self.options, self._layers.horizon
        require(o.gamma is None or o.gamma > 0.0, "gamma", o.gamma, "a number > 0, or None")
        tuned = constants.dilated_bonus_linear(horizon, self.episodes, self._problem.dim)
        self.step_size = tuned if o.eta is None else o.eta
        #: gamma in force.
        self.exploration = 2.0 * self.step_size * horizon if o.gamma is None else o.gamma

    def _occupancy(self, data: Transitions, policy: list[FloatArray]) -> list[FloatArray]:
        """qhat of a policy, (S_h, A) per layer."""
        visits, tables = np.ones(1), []
        for h, pi in enumerate(policy):
            tables.append(visits[:, None] * pi)
            if h < len(policy) - 1:
                rows = np.maximum(self._problem.features[h] @ data.measures[h], 0.0)
                mass = rows.sum(axis=2, keepdims=True)
                rows = np.where(mass > 0.0, rows / np.where(mass > 0.0, mass, 1.0), 1.0 / rows.shape[2])
                visits = np.einsum("sa,sat->t", tables[-1], rows)
        return tables

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        layers, features, H = self._layers, self._problem.features, self._layers.horizon
        policy = layers.split(state.policy)
        to_go = episode.losses[::-1].cumsum()[::-1]
        values, bonuses = [], []
        for h, (phi, q, pi) in enumerate(zip(features, self._occupancy(state.data, policy), policy, strict=True)):
            sigma = np.einsum("sa,sai,saj->ij", q, phi, phi) + self.exploration * np.eye(phi.shape[2])
            inverse = np.linalg.inv(sigma)
            values.append(phi @ (inverse @ phi[episode.states[h], episode.actions[h]]) * to_go[h])
            n = np.einsum("sai,ij,saj->sa", phi, inverse, phi)
            bonuses.append(2.0 * self.step_size * H**2 * (n + (pi * n).sum(axis=1, keepdims=True)))
        dilation, most = 1.0 + 1.0 / H, [0.0]
        for bonus in bonuses[::-1]:
            most.insert(0, float(bonus.max()) + dilation * most[0])
        dilated = value_pass(
            self._problem, state.data, self._estimator.widths(state.data), self._beta(state), bonuses, policy,
            sign=1.0, most=most, dilation=dilation,
        )  # fmt: skip
        return layers.flatten(values) - layers.flatten(dilated)
