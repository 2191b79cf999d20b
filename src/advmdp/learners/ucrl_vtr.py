"""UCRL-VTR (Ayoub, Jia, Szepesvari, Wang and Yang, ICML 2020): optimistic planning for linear mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.value_targeted import GREEDY, ValueTargetedLearner
from advmdp.registry import register_learner


@register_learner("ucrl-vtr")
class UcrlVtr(ValueTargetedLearner):
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

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        lam: float | None = 1.0,
        radius_scale: float = 1.0,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, lam=lam, radius_scale=radius_scale, zeta=zeta, seed=seed)
        self._total_loss = np.zeros(self._layers.n_pairs)
        self._plan(0)

    def _plan(self, tables: int) -> None:
        """Q_k and the policy that is best for it, after that many loss tables."""
        self._action_values = self._optimistic_values(self._total_loss / max(1, tables), GREEDY)
        rows = self._action_values.reshape(-1, self._layers.n_actions)
        self._set_policy(np.eye(self._layers.n_actions)[rows.argmin(axis=1)].ravel())

    def _learn(self, episode: CheckedEpisode) -> None:
        assert episode.loss_table is not None  # checked: the feedback is full
        self._regress(episode, self._action_values)
        self._total_loss = self._total_loss + episode.loss_table
        self._plan(self.episodes_seen + 1)

    @property
    def action_values(self) -> list[FloatArray]:
        """Q_k, for which the policy is best."""
        return self._layers.split(self._action_values.copy())

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "total_loss": self._total_loss}

    def _set_state(self, state: dict[str, Any]) -> None:
        total = self._layers.flat_vector(state.pop("total_loss"), "total_loss")
        if not ((total >= 0.0) & (total <= self.episodes_seen)).all():
            raise ValueError(f"total_loss has entries outside [0, {self.episodes_seen}], the number of episodes seen")
        self._total_loss = total
        super()._set_state(state)
        self._plan(self.episodes_seen)
