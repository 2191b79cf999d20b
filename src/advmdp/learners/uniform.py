"""The baseline that learns nothing."""

from __future__ import annotations

import numpy as np

from advmdp.episodes import CheckedEpisode
from advmdp.layered import LayeredMDP, TabularModel
from advmdp.learners.base import Learner
from advmdp.registry import register_learner


@register_learner("uniform")
class Uniform(Learner):
    """Every action with the same probability, for ever."""

    name = "uniform"
    status = "exact (closed form)"

    def __init__(self, problem: TabularModel | LayeredMDP, episodes: int, *, seed: int = 0) -> None:
        super().__init__(problem, episodes, seed=seed)
        self._set_policy(np.full(self._layers.n_pairs, 1.0 / self._layers.n_actions))

    def _learn(self, episode: CheckedEpisode) -> None:
        """Nothing to learn."""
