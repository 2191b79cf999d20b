"""UC-O-REPS (Rosenberg and Mansour, ICML 2019) and its bandit version (NeurIPS 2019): counts and l1 balls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from advmdp import constants
from advmdp.confidence.counts import L1Balls, ShiftedBoxes, VisitCounts
from advmdp.episodes import CheckedEpisode
from advmdp.learners.options import FullOptions, number, require
from advmdp.learners.parts.losses import LossTable, OwnOccupancy
from advmdp.learners.parts.steps import MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner, RepsState
from advmdp.registry import register_learner

#: No estimate exceeds this over eta, so that one step divides an occupancy by at most exp(10): the learner visits
#: pairs that its own measure deems impossible, and there 1 / q would overflow.
LARGEST_COST = 10.0


@register_learner("uc-o-reps")
class UcOReps(RepsLearner):
    """Full information: lhat_k is the loss table itself.

    There is no upper occupancy bound: optimism comes from the kernel, which the mirror step chooses inside the set.

    Parameters
    ----------
    radius_scale
        Factor on the radii; anything but 1 has no guarantee.
    eta, zeta
        Step size, by default sqrt(log(S^2 A / H^2) / K), and failure probability (delta in the source).
    """

    name = "uc-o-reps"
    feedback = "full"
    status = "runs against a second implementation in plain numpy; radius and bound rederived"
    Options = FullOptions
    options: FullOptions

    def _parts(self) -> Parts:
        o, layers = self.options, self._layers
        self._tune(eta=constants.uc_o_reps(*self._sizes()), gamma=0.0)
        return Parts(
            estimator=VisitCounts(layers, self._problem.model.support),
            sets=L1Balls(layers, self.episodes, o.zeta, o.radius_scale),
            losses=LossTable(),
            step=MirrorDescent(self._problem, lambda k: self.step_size, "triples", self.start),
        )


@dataclass(frozen=True, kw_only=True)
class BanditUcOptions(FullOptions):
    """``shift``: how far the kernels of the set are moved towards uniform ones."""

    shift: float | Literal["theory"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.shift == "theory" or (number(self.shift, -1.0) and 0.0 <= self.shift <= 1.0)
        require(valid, "shift", self.shift, "a number from 0 to 1, or 'theory'")


@register_learner("bandit-uc-o-reps")
class BanditUcOReps(RepsLearner):
    """Bandit feedback: lhat_k = l_k / q_k at the visited pairs, q_k the learner's own occupancy measure.

    It is that of a kernel of the set, not of the true one, so that the estimate may be too large or too small.

    Parameters
    ----------
    shift
        alpha: every kernel P of the set becomes (1 - alpha) P + alpha / S_{h+1}, so that q_k(s) >= alpha / S_h.  0 is
        the plain version, whose guarantee needs that every policy reaches every state; ``"theory"`` is
        min(1, S A^(1/4) / (H^(1/2) K^(1/4))), the shifted version as reconstructed in ``docs/learners/counting.md``.
    radius_scale
        Factor on the radii; anything but 1 has no guarantee.
    eta, zeta
        Step size, by default sqrt(H log(S^2 A / H^2) / (K S A)), and failure probability.
    """

    name = "bandit-uc-o-reps"
    status = (
        "runs against a second implementation in plain numpy; step size derived, q floored at eta/10 in the estimate "
        "(not in the source), shifted version reconstructed"
    )
    partial = True
    Options = BanditUcOptions
    options: BanditUcOptions

    def _parts(self) -> Parts:
        o, layers, sizes = self.options, self._layers, self._sizes()
        self._tune(eta=constants.bandit_uc_o_reps(*sizes), gamma=0.0)
        #: alpha in force.
        self.shift_in_force = constants.bandit_uc_o_reps_shift(*sizes) if isinstance(o.shift, str) else o.shift
        balls = layers, self.episodes, o.zeta, o.radius_scale
        return Parts(
            estimator=VisitCounts(layers, self._problem.model.support),
            sets=ShiftedBoxes(*balls, self.shift_in_force) if self.shift_in_force > 0.0 else L1Balls(*balls),
            losses=OwnOccupancy(layers, floor=self.step_size / LARGEST_COST),
            step=MirrorDescent(self._problem, lambda k: self.step_size, "triples", self.start),
        )

    def _learn(self, state: RepsState, episode: CheckedEpisode) -> RepsState:
        log_q = episode.played_in(state).step.log_q
        floored = int((np.exp(log_q[episode.pairs]) < self.step_size / LARGEST_COST).sum())
        return super()._learn(state, episode)._replace(floored=state.floored + floored)

    @property
    def floored(self) -> int:
        """How often the floor eta / 10 on q, for numerical sanity, acted so far."""
        return int(self._now.state.floored)
