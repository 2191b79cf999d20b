"""EXP3 over all deterministic policies (Auer, Cesa-Bianchi, Freund and Schapire 2002): a yardstick for tiny worlds."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from advmdp import constants
from advmdp._checks import float_array, integer
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray
from advmdp.learners.base import Learner
from advmdp.learners.options import StepOptions
from advmdp.registry import register_learner

#: A world with more deterministic policies than this is refused.
MOST_POLICIES = 2**17


class Arms(NamedTuple):
    """Log-weights of all policies, and the one that is played."""

    policy: FloatArray
    log_weights: FloatArray
    arm: int
    k: int = 0


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

    Options = StepOptions
    options: StepOptions

    def _compose(self) -> None:
        layers = self._layers
        rows = layers.uniform_policy.reshape(-1, layers.n_actions)
        #: The available actions of every state.
        self._choices = [np.flatnonzero(row).tolist() for row in rows]
        #: n, the number of deterministic policies.
        self.n_policies = prod(len(choices) for choices in self._choices)
        if self.n_policies > MOST_POLICIES:
            up_to = "" if layers.available is None else "up to "
            raise InvalidSpecError(
                f"learner 'exp3-policies' is for tiny worlds: {up_to}{layers.n_actions} actions in {len(rows)} states "
                f"make {up_to}{layers.n_actions}^{len(rows)} policies, should be at most {MOST_POLICIES}"
            )
        eta = self.options.eta
        #: eta in force.
        self.step_size = constants.exp3(self.n_policies, layers.horizon, self.episodes) if eta is None else eta

    @property
    def weights(self) -> FloatArray:
        """w_k: the probability of each policy, in the order of :meth:`policy_number`."""
        return _softmax(self._now.state.log_weights)

    def policy_number(self, arm: int) -> list[FloatArray]:
        """Policy number ``arm``: its digits are the actions of the states, first layer first.

        The base of a digit is the number of available actions, A where all are.
        """
        return self._layers.split(self._table(arm))

    def _table(self, arm: int) -> FloatArray:
        actions = []
        for choices in self._choices:
            arm, digit = divmod(arm, len(choices))
            actions.append(choices[digit])
        table: FloatArray = np.eye(self._layers.n_actions)[actions].ravel()
        return table

    def _begin(self) -> Arms:
        return self._drawn(np.zeros(self.n_policies), 0)

    def _drawn(self, log_weights: FloatArray, k: int) -> Arms:
        """With the policy of episode k."""
        cumulative = np.cumsum(_softmax(log_weights))
        arm = int(np.searchsorted(cumulative, self._draws.at(k).random() * cumulative[-1], side="right"))
        arm = min(arm, self.n_policies - 1)
        return Arms(self._table(arm), log_weights, arm, k)

    def _learn(self, state: Arms, episode: CheckedEpisode) -> Arms:
        log_weights = state.log_weights.copy()
        weight = float(_softmax(log_weights)[state.arm])
        log_weights[state.arm] -= self.step_size * float(episode.losses.sum()) / weight
        return self._drawn(log_weights, state.k + 1)

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> Arms:
        log_weights = float_array(tree["log_weights"], "log_weights", ValueError)
        if log_weights.shape != (self.n_policies,) or not np.isfinite(log_weights).all():
            raise ValueError(f"log_weights of shape {log_weights.shape}: wrong shape, or entries that are not finite")
        arm, k = integer(tree["arm"], "arm", 0, ValueError), integer(tree["k"], "k", 0, ValueError)
        if arm >= self.n_policies:
            raise ValueError(f"arm is {arm}, should be below {self.n_policies}")
        return Arms(policy, np.array(log_weights), arm, k)


def _softmax(log_weights: FloatArray) -> FloatArray:
    weights = np.exp(log_weights - log_weights.max())
    normalised: FloatArray = weights / weights.sum()
    return normalised
