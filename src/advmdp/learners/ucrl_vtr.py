"""UCRL-VTR (Ayoub, Jia, Szepesvari, Wang and Yang, ICML 2020): optimistic planning for linear mixtures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advmdp._checks import integer
from advmdp.confidence.estimators import RidgeEstimate
from advmdp.confidence.values import GREEDY, OptimisticValues, Targets
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.base import Learner
from advmdp.learners.options import ValueOptions
from advmdp.registry import register_learner


class Plan(NamedTuple):
    """What was seen, and the plan that follows."""

    policy: FloatArray
    action_values: FloatArray
    total_loss: FloatArray
    data: Targets
    k: int = 0


@register_learner("ucrl-vtr")
class UcrlVtr(Learner):
    """Full information, unknown transition, *stochastic* losses: plan greedily for the mean loss so far.

    Before episode k, with mean_k the mean of the loss tables seen and theta_h, Gram_h, beta_h from the episodes before:

    1. Q_k(s, a) = mean_k(s, a) + clip(<phi_V(s, a), theta_h> - beta_h |phi_V(s, a)|_{Gram_h^-1}, 0, H - 1 - h),
       V_k(s) = min_a Q_k(s, a), phi_V(s, a) = sum_s' phi(s' | s, a) V_k(s');
    2. pi_k takes the best action for Q_k;
    3. after the episode, V_k(s') of the next states is regressed on phi_V of the visited pairs.

    Like every learner that follows the leader it has linear regret on losses that alternate.

    Parameters
    ----------
    lam
        Regularisation, 1 by default.  None stands for 1 / B^2.
    radius_scale
        Factor on beta_h; anything but 1 has no guarantee.
    zeta
        Failure probability, 0.05 by default.
    """

    name = "ucrl-vtr"
    status = "every plan against plain numpy from the full history; coverage; linear regret on alternating losses"

    feedback = "full"
    needs = LinearMixtureModel
    needs_episodes = False
    Options = ValueOptions
    options: ValueOptions

    def _compose(self) -> None:
        #: lambda in force.
        self.regularisation = self.options.regularisation(self._problem)
        self._targets = OptimisticValues(self._problem, self.regularisation)

    def _begin(self) -> Plan:
        return self._planned(np.zeros(self._layers.n_pairs), self._targets.empty(), 0)

    def _planned(self, total_loss: FloatArray, data: Targets, k: int) -> Plan:
        """Q_k and the policy that is best for it, after k loss tables."""
        beta = self.options.radius_scale * self._targets.scalar_radii(data, self.options.zeta)
        values = self._targets(data, beta, self._layers.barred(total_loss / max(1, k)), GREEDY)
        rows = values.reshape(-1, self._layers.n_actions)
        return Plan(np.eye(self._layers.n_actions)[rows.argmin(axis=1)].ravel(), values, total_loss, data, k)

    def _learn(self, state: Plan, episode: CheckedEpisode) -> Plan:
        assert episode.loss_table is not None  # checked: the feedback is full
        targets = self._targets.targets(episode.states, episode.actions, state.policy, state.action_values)
        data = self._targets.add(state.data, *targets)
        return self._planned(state.total_loss + episode.loss_table, data, state.k + 1)

    @property
    def action_values(self) -> list[FloatArray]:
        """Q_k, for which the policy is best."""
        return self._layers.split(self._now.state.action_values.copy())

    @property
    def estimate(self) -> RidgeEstimate:
        """theta_h, Gram matrices and their log-determinants, from the episodes so far."""
        found: RidgeEstimate = self._now.state.data.estimate
        return found

    @property
    def radii(self) -> FloatArray:
        """beta_h of layers 0..H-2 in force."""
        return self.options.radius_scale * self._targets.scalar_radii(self._now.state.data, self.options.zeta)

    def _tree(self, state: Plan) -> dict[str, Any]:
        return {"total_loss": state.total_loss, "sums": state.data.sums.tree(), "k": state.k}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> Plan:
        k, total = integer(tree["k"], "k", 0, ValueError), self._layers.flat_vector(tree["total_loss"], "total_loss")
        if not ((total >= 0.0) & (total <= k)).all():
            raise ValueError(f"total_loss has entries outside [0, {k}], the number of episodes seen")
        return self._planned(total, self._targets.restore(tree["sums"]), k)
