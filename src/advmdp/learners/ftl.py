"""Follow the leader: a negative control, not a recommendation."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners.known import KnownTransitionLearner
from advmdp.registry import register_learner


@register_learner("ftl")
class FollowTheLeader(KnownTransitionLearner):
    """argmin over policies of <q, l_0 + ... + l_{k-1}>; alternating losses make its regret linear."""

    name = "ftl"
    feedback = "full"
    status = "exact (recomputed from the whole history)"

    def __init__(self, problem: LayeredMDP, episodes: int, *, seed: int = 0) -> None:
        super().__init__(problem, episodes, seed=seed)
        self._total: FloatArray = np.zeros(self._layers.n_pairs)
        self._follow(self._total)

    def _learn(self, episode: CheckedEpisode) -> None:
        assert episode.loss_table is not None  # checked: the feedback is full
        self._total = self._total + episode.loss_table
        self._follow(self._total)

    def _state(self) -> dict[str, Any]:
        return {"total": self._total}

    def _set_state(self, state: dict[str, Any]) -> None:
        total = self._layers.flat_vector(state["total"], "total")
        if not np.isfinite(total).all():
            raise ValueError("total has entries that are not finite")
        self._total = total
