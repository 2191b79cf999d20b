"""UOB-REPS (Jin, Jin, Luo, Sra and Yu, ICML 2020): counts, Bernstein boxes, doubling epochs."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp.confidence import ConfidenceSet
from advmdp.confidence.estimators import EpochCounts
from advmdp.episodes import CheckedEpisode
from advmdp.layered import TabularModel
from advmdp.learners.counting import bernstein_boxes, checked_counts
from advmdp.learners.reps import RepsLearner, require
from advmdp.registry import register_learner


@register_learner("uob-reps")
class UobReps(RepsLearner[EpochCounts]):
    """The tabular algorithm: nothing of the dynamics is known but the layers.

    Parameters
    ----------
    radius_scale
        Factor on the half-widths; anything but 1 has no guarantee.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability (delta in the source); by default
        eta = gamma = sqrt(H log(H S A / zeta) / (K S A)), zeta = 0.05.
    """

    name = "uob-reps"
    status = "every step against a conic solver, counts against their full history; constants recalled"

    def __init__(
        self,
        problem: TabularModel,
        episodes: int,
        *,
        radius_scale: float = 1.0,
        eta: float | None = None,
        gamma: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        require(0.0 < radius_scale < np.inf, "radius_scale", radius_scale, "a number > 0")
        self.radius_scale = radius_scale
        self._epoch_of_set = 0
        super().__init__(problem, episodes, eta=eta, gamma=gamma, zeta=zeta, entropy="triples", seed=seed)

    def _empty_estimator(self) -> EpochCounts:
        return EpochCounts.empty(self._layers.sizes, self._layers.n_actions)

    def _estimator_with(self, episode: CheckedEpisode) -> EpochCounts:
        return self._estimator.add(episode.states, episode.actions)

    def _set_of(self, estimator: EpochCounts, k: int) -> ConfidenceSet:
        if estimator.epoch == self._epoch_of_set:
            return self._set  # inside an epoch the set stays
        self._epoch_of_set = estimator.epoch
        return bernstein_boxes(estimator, self._layers, self.episodes, self.zeta, self.radius_scale)

    def _estimator_tree(self) -> dict[str, Any]:
        return self._estimator.tree()

    def _estimator_from(self, tree: dict[str, Any]) -> EpochCounts:
        return checked_counts(tree, self._layers)
