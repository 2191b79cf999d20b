"""UOB-REPS (Jin, Jin, Luo, Sra and Yu, ICML 2020): counts, Bernstein boxes, doubling epochs."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import BoxSet, ConfidenceSet, radii
from advmdp.confidence.estimators import EpochCounts
from advmdp.episodes import CheckedEpisode
from advmdp.layered import TabularModel
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
        lower, upper = [], []
        for frequency, visits in estimator.frequencies():
            width = self.radius_scale * radii.bernstein(
                frequency, visits, self.episodes, self._layers.n_states, self._layers.n_actions, self.zeta
            )
            # Nothing is known of a pair that was never visited, however small the scale: all distributions.
            width = np.where(visits[..., None] > 0.0, width, 1.0)
            lower.append(frequency - width)
            upper.append(frequency + width)
        last = np.ones((self._layers.sizes[-2], self._layers.n_actions, 1))
        return BoxSet([*lower, last], [*upper, last])

    def _estimator_tree(self) -> dict[str, Any]:
        return self._estimator.tree()

    def _estimator_from(self, tree: dict[str, Any]) -> EpochCounts:
        empty = self._empty_estimator()
        tables = []
        for name in ("transitions", "at_epoch"):
            counts = [float_array(table, name, ValueError) for table in tree[name]]
            if [table.shape for table in counts] != [table.shape for table in empty.transitions]:
                raise ValueError(f"{name} have shapes {[table.shape for table in counts]}")
            if not all((table >= 0.0).all() and (table == np.floor(table)).all() for table in counts):
                raise ValueError(f"{name} are not counts")
            tables.append(tuple(counts))
        if not all((then <= now).all() for now, then in zip(*tables, strict=True)):
            raise ValueError("an epoch began with more visits than there are now")
        return EpochCounts(tables[0], tables[1], integer(tree["epoch"], "epoch", 1, ValueError))
