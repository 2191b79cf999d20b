"""UOB-REPS (Jin, Jin, Luo, Sra and Yu, ICML 2020): counts, Bernstein boxes, doubling epochs."""

from __future__ import annotations

from advmdp.confidence import ConfidenceSet
from advmdp.confidence.estimators import EpochCounts
from advmdp.layered import TabularModel
from advmdp.learners.counting import bernstein_boxes
from advmdp.learners.tabular import TabularReps
from advmdp.registry import register_learner


@register_learner("uob-reps")
class UobReps(TabularReps):
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
        super().__init__(problem, episodes, radius_scale=radius_scale, eta=eta, gamma=gamma, zeta=zeta, seed=seed)

    def _set_of_epoch(self, counts: EpochCounts) -> ConfidenceSet:
        return bernstein_boxes(counts, self._layers, self.episodes, self.zeta, self.radius_scale)
