"""Follow the leader: a negative control, not a recommendation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.known import KnownTransitionLearner, best_for
from advmdp.registry import register_learner


class Leader(NamedTuple):
    """The losses so far, and the policy that is best for them."""

    policy: FloatArray
    total: FloatArray


@register_learner("ftl")
class FollowTheLeader(KnownTransitionLearner):
    """argmin over policies of <q, l_0 + ... + l_{k-1}>; alternating losses make its regret linear."""

    name = "ftl"
    feedback = "full"
    needs_episodes = False
    status = "exact (recomputed from the whole history)"

    def _begin(self) -> Leader:
        return self._follow(np.zeros(self._layers.n_pairs))

    def _follow(self, total: FloatArray) -> Leader:
        return Leader(best_for(self._problem, total), total)

    def _learn(self, state: Leader, episode: CheckedEpisode) -> Leader:
        assert episode.loss_table is not None  # checked: the feedback is full
        return self._follow(state.total + episode.loss_table)
