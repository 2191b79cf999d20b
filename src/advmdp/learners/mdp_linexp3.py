"""MDP-LinExp3 (Neu and Olkhovskaya, arXiv 2007.01612, 2020): exponential weights on fitted action values."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp import constants
from advmdp._checks import integer
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMDP, LinearMDPModel
from advmdp.learners.known import KnownTransitionLearner
from advmdp.learners.options import LinearOptions
from advmdp.learners.parts.linear import LinearFits
from advmdp.learners.policy_optimisation import PolicyOptimisation, PolicyState
from advmdp.occupancy import exponential_weights
from advmdp.registry import register_learner


@register_learner("mdp-linexp3")
class MdpLinExp3(PolicyOptimisation, KnownTransitionLearner):
    """Known transition, bandit feedback, losses that are linear in features: so are all action values.

    pi_k(a | s) is proportional to exp(-eta sum_{i<k} <phi(s, a), thetahat_{i,h}>).  With probability 1 - gamma it is
    played in episode k; otherwise a layer t is drawn, actions are uniform up to t, and of pi_k after it.  Such an
    episode counts for layer t alone, a usual one for all layers, so that with q_k and q_0 the occupancy measures of
    pi_k and of the uniform policy, and L_h the losses from layer h on:

    1. Sigma_h = (1 - gamma) sum q_k phi phi' + (gamma / H) sum q_0 phi phi';
    2. thetahat_{k,h} = Sigma_h^-1 phi(s_h, a_h) L_h if the episode counts for layer h, otherwise 0.

    Parameters
    ----------
    resamples
        Draws M of matrix geometric resampling in place of the inverse of Sigma_h, as in the source; by default none:
        the inverse itself, as kernels are known.
    eta, gamma
        Step size and share of exploring episodes; by default those that minimise the bound (K^(2/3)) of
        :func:`advmdp.constants.mdp_linexp3`.
    """

    name = "mdp-linexp3"
    needs = LinearMDPModel
    status = "estimates and the bias of resampling against enumeration; exploration reconstructed; bound derived here"
    Options = LinearOptions
    options: LinearOptions
    _problem: LinearMDP

    def _compose(self) -> None:
        o, counted = self.options, self._layers.counted
        self._fits = LinearFits(self._problem)
        #: L, the largest phi' Sigma^-1 phi under uniform play.
        self.leverage = self._fits.leverage
        eta, gamma = constants.mdp_linexp3(counted.most_actions, self._layers.horizon, self.episodes, self.leverage)
        self.step_size = eta if o.eta is None else o.eta
        #: gamma in force.
        self.exploration = gamma if o.gamma is None else o.gamma

    def _begin(self) -> PolicyState:
        return self._turned(super()._begin(), 0)

    def _learn(self, state: PolicyState, episode: CheckedEpisode) -> PolicyState:
        return self._turned(super()._learn(state, episode), state.k + 1)

    def _turned(self, state: PolicyState, k: int) -> PolicyState:
        """With what is played in episode k: ``data`` is t, or H where nothing is explored."""
        rng, horizon, offsets = self._draws.at(2 * k), self._layers.horizon, self._layers.pair_offsets
        explores, layer = rng.random() < self.exploration, int(rng.integers(horizon))
        if not explores:
            return state._replace(data=horizon)
        until = int(offsets[layer + 1])
        policy = np.concatenate([self._layers.uniform_policy[:until], state.policy[until:]])
        return state._replace(policy=policy, data=layer)

    def _values(self, state: PolicyState, episode: CheckedEpisode) -> FloatArray:
        horizon, gamma = self._layers.horizon, self.exploration
        own, weights = np.empty_like(state.policy), np.empty_like(state.policy)
        exponential_weights(state.log_weights, np.zeros_like(own), 0.0, self._layers.n_actions, weights, own)
        mass = (1.0 - gamma) * self._fits.occupancy(own) + gamma / horizon * self._fits.uniform
        counts = (state.data == horizon) | (np.arange(horizon) == state.data)
        to_go = episode.losses[::-1].cumsum()[::-1] * counts
        if self.options.resamples is None:
            return self._fits.exact(mass, episode.pairs, to_go)
        draws = self._draws.at(2 * state.k + 1)
        return self._fits.resampled(mass, episode.pairs, to_go, self.options.resamples, draws)

    def _tree(self, state: PolicyState) -> dict[str, Any]:
        return {**super()._tree(state), "turn": state.data}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PolicyState:
        turn = integer(tree["turn"], "turn", 0, ValueError)
        if turn > self._layers.horizon:
            raise ValueError(f"turn is {turn}, should be a layer, or {self._layers.horizon}")
        return super()._restore(tree, policy)._replace(data=turn)
