"""What the tabular learners of REPS type share: visit counts, and sets that change with their doubling epochs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from advmdp.confidence import ConfidenceSet
from advmdp.confidence.estimators import EpochCounts
from advmdp.episodes import CheckedEpisode
from advmdp.layered import TabularModel
from advmdp.learners.counting import checked_counts
from advmdp.learners.reps import RepsLearner, require


class TabularReps(RepsLearner[EpochCounts]):
    """Sets around empirical frequencies, rebuilt when a visited pair has doubled its visits; entropy of triples."""

    def __init__(
        self,
        problem: TabularModel,
        episodes: int,
        *,
        radius_scale: float,
        eta: float | None,
        gamma: float | None,
        zeta: float,
        seed: int,
    ) -> None:
        require(0.0 < radius_scale < np.inf, "radius_scale", radius_scale, "a number > 0")
        self.radius_scale = radius_scale
        self._epoch_of_set = 0
        super().__init__(problem, episodes, eta=eta, gamma=gamma, zeta=zeta, entropy="triples", seed=seed)

    @abstractmethod
    def _set_of_epoch(self, counts: EpochCounts) -> ConfidenceSet:
        """The kernels that the counts at the beginning of the epoch leave possible."""

    def _empty_estimator(self) -> EpochCounts:
        return EpochCounts.empty(self._layers.sizes, self._layers.n_actions)

    def _estimator_with(self, episode: CheckedEpisode) -> EpochCounts:
        return self._estimator.add(episode.states, episode.actions)

    def _set_of(self, estimator: EpochCounts, k: int) -> ConfidenceSet:
        if estimator.epoch == self._epoch_of_set:
            return self._set  # inside an epoch the set stays
        self._epoch_of_set = estimator.epoch
        return self._set_of_epoch(estimator)

    def _estimator_tree(self) -> dict[str, Any]:
        return self._estimator.tree()

    def _estimator_from(self, tree: dict[str, Any]) -> EpochCounts:
        return checked_counts(tree, self._layers)
