"""UOB-REPS (Jin, Jin, Luo, Sra and Yu, ICML 2020): counts, Bernstein boxes, doubling epochs."""

from __future__ import annotations

from dataclasses import dataclass

from advmdp import constants
from advmdp.confidence.counts import BernsteinBoxes, VisitCounts
from advmdp.learners.options import BanditOptions, number, require
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner


@register_learner("uob-reps")
class UobReps(RepsLearner):
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
    partial = True
    Options = BanditOptions
    options: BanditOptions

    def _parts(self) -> Parts:
        o, layers = self.options, self._layers
        tuned = self._tuned()
        self._tune(eta=tuned, gamma=tuned)
        return Parts(
            estimator=VisitCounts(layers, self._problem.model.support),
            sets=BernsteinBoxes(layers, self.episodes, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=lambda k: self.exploration),
            step=MirrorDescent(self._problem, lambda k: self.step_size, "triples", self.start),
        )

    def _tuned(self) -> float:
        """eta = gamma of the theory."""
        return constants.theorem_1(*self._sizes(), self.options.zeta)


@dataclass(frozen=True, kw_only=True)
class DelayOptions(BanditOptions):
    """``delay``: how many episodes losses are late on average."""

    delay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.delay == 0.0 or number(self.delay, 0.0), "delay", self.delay, "a number >= 0")


@register_learner("delayed-uob-reps")
class DelayedUobReps(UobReps):
    """UOB-REPS for losses that come late, tuned for their delay (Jin, Lancewicki, Luo, Mansour, Rosenberg 2022).

    The loss of a pair that was visited in episode j and comes after episode k - 1 enters the step of episode k as
    l_j(s, a) / (max(u_j(s, a), u_k(s, a)) + gamma): each learner of REPS type does that.  This one has smaller steps.

    Parameters
    ----------
    delay
        How many episodes losses are late on average; with 0 it is ``uob-reps``.
    radius_scale
        Factor on the half-widths; anything but 1 has no guarantee.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability; by default, with D = delay K,
        eta = gamma = sqrt(H log(H S A / zeta) / (S A K + H sqrt(H S A) D)), zeta = 0.05.
    """

    name = "delayed-uob-reps"
    status = "as uob-reps, and late losses against a second implementation; constants not read in the source"
    Options = DelayOptions
    options: DelayOptions

    def _tuned(self) -> float:
        return constants.delayed(*self._sizes(), self.options.zeta, self.options.delay)
