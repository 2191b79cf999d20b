"""LSUOB-REPS (Zhao, Yang, Wang and Li, ICLR 2023): regression on one imaginary next state."""

from __future__ import annotations

from dataclasses import dataclass

from advmdp.confidence.estimators import OneNextState
from advmdp.confidence.regression import MixtureSets, RidgeRegression, scalar_radius
from advmdp.layered import LinearMixtureModel
from advmdp.learners.options import MixtureOptions, require
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.learners.sharper import mixture_parts
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class LsuobOptions(MixtureOptions):
    """The regularisation is constant."""

    lam: float | None = 1.0

    def __post_init__(self) -> None:
        require(self.entropy != "conditional", "entropy", self.entropy, "'pairs' or 'triples'")
        require(self.lam is not None, "lam", self.lam, "a number > 0: the radius needs a constant regularisation")
        super().__post_init__()


@register_learner("lsuob-reps")
class LsuobReps(RepsLearner):
    """VLSUOB-REPS's predecessor: in each step only the visit of the most uncertain next state is regressed.

    Parameters
    ----------
    geometry, entropy, radius_scale, simplex, eta, gamma, zeta, step, predictor, bounds, feedback, seen
        As in ``vlsuob-reps``.
    lam
        Regularisation, constant; 1 by default.
    """

    name = "lsuob-reps"
    status = "every step against a conic solver, estimator against its full history; radius rederived"
    needs = LinearMixtureModel
    partial = True
    Options = LsuobOptions
    options: LsuobOptions

    def _parts(self) -> Parts:
        o, model, lam = self.options, self._problem, float(self.options.lam or 1.0)
        beta = scalar_radius(model, lam, o.zeta)
        return mixture_parts(
            self,
            RidgeRegression(model, OneNextState, lambda k: lam),
            MixtureSets(model, beta, o.geometry, bool(o.simplex), o.radius_scale),
            self.start,
        )
