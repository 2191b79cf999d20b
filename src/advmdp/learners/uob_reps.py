"""UOB-REPS (Jin, Jin, Luo, Sra and Yu, ICML 2020): counts, Bernstein boxes, doubling epochs."""

from __future__ import annotations

from advmdp import constants
from advmdp.confidence.counts import BernsteinBoxes, VisitCounts
from advmdp.learners.options import BanditOptions
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
        tuned = constants.theorem_1(*self._sizes(), o.zeta)
        self._tune(eta=tuned, gamma=tuned)
        return Parts(
            estimator=VisitCounts(layers, self._problem.model.support),
            sets=BernsteinBoxes(layers, self.episodes, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=lambda k: self.exploration),
            step=MirrorDescent(self._problem, lambda k: self.step_size, "triples", self.start),
        )
