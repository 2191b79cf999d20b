"""UOB-REPS over the sets of a linear MDP: the counts of Jin et al. (ICML 2020) replaced by least squares."""

from __future__ import annotations

from advmdp import constants
from advmdp.confidence.linear_mdp import LeastSquares, LeastSquaresBoxes
from advmdp.layered import LinearMDPModel
from advmdp.learners.options import BanditOptions
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner


@register_learner("uob-reps-linear")
class UobRepsLinear(RepsLearner):
    """Bandit feedback, unknown transition, linear MDP; losses may be any.

    The sets are boxes around <phi(s, a), muhat_h(s')> (:class:`advmdp.confidence.linear_mdp.LeastSquaresBoxes`); all
    else is ``vlsuob-reps`` with boxes, whose theorem asks of a set only that it holds the truth and has small widths.

    Parameters
    ----------
    radius_scale
        Factor on the half-widths; anything but 1 has no guarantee.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability; by default eta = gamma = sqrt(H log(H S A / zeta) /
        (K S A)), zeta = 0.05.
    """

    name = "uob-reps-linear"
    status = "sets against the full history; coverage; steps as in vlsuob-reps; bound derived here"
    partial = True
    needs = LinearMDPModel
    Options = BanditOptions
    options: BanditOptions

    def _parts(self) -> Parts:
        o = self.options
        tuned = constants.theorem_1(*self._sizes(), o.zeta)
        self._tune(eta=tuned, gamma=tuned)
        estimator = LeastSquares(self._problem)
        return Parts(
            estimator=estimator,
            sets=LeastSquaresBoxes(estimator, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=lambda k: self.exploration),
            step=MirrorDescent(self._problem, lambda k: self.step_size, "pairs", self.start),
        )
