"""O-REPS (Zimin and Neu, NIPS 2013): online mirror descent on the occupancy measures of known kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from advmdp import constants
from advmdp.confidence import ConfidenceSet
from advmdp.confidence.known import KnownTransition, NothingKept
from advmdp.learners.options import SharperOptions, StepOptions, number, require
from advmdp.learners.parts.losses import LossTable, OwnOccupancy, Predicted, own_occupancy
from advmdp.learners.parts.predictors import forecast_of
from advmdp.learners.parts.steps import KnownDescent
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.learners.sharper import chosen_rate, largest_divergence
from advmdp.registry import register_learner


@register_learner("o-reps")
class OReps(RepsLearner):
    """Full information: lhat_k is the loss table itself.

    Parameters
    ----------
    eta
        Step size; by default sqrt(log(S A / H) / K), with which the regret is at most 2 H sqrt(K log(S A / H)).
    """

    name = "o-reps"
    feedback: Literal["bandit", "actions", "full"] = "full"
    transition = "known"
    status = "every step against a conic solver and a plain Newton method; bound rederived"
    Options = StepOptions
    options: Any

    def _parts(self) -> Parts:
        self._tune(eta=constants.o_reps(*self._sizes()), gamma=0.0)
        sets = KnownTransition(self._problem)
        step = KnownDescent(self._problem, sets.truth, lambda k: self.step_size, self.start)
        return Parts(NothingKept(), sets, LossTable(), step)

    def _first_set(self) -> ConfidenceSet:
        return self._sets(None)


@dataclass(frozen=True, kw_only=True)
class ExplorationOptions(SharperOptions):
    """``gamma``: implicit exploration."""

    gamma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.gamma == 0.0 or number(self.gamma, 0.0), "gamma", self.gamma, "a number >= 0")


@register_learner("o-reps-bandit")
class ORepsBandit(OReps):
    """Bandit feedback: lhat_k(s, a) = l_k(s, a) / (q_k(s, a) + gamma) at the visited pairs, zero elsewhere.

    Parameters
    ----------
    eta
        Step size; by default sqrt(H log(S A / H) / (K S A)), with which the expected regret is at most
        2 sqrt(H S A K log(S A / H)).
    gamma
        Implicit exploration; 0 as in the source, whose bound is on the expected regret.  Above 0 the estimate is
        biased, and no longer unbounded.
    step
        ``"fixed"``, or ``"adaptive"``: eta follows what the steps so far have cost, and needs no K.
    predictor
        As in ``vlsuob-reps``: the estimate is m + (l - m) / q, without bias as well, and its variance that of l - m.
    """

    name = "o-reps-bandit"
    feedback = "bandit"
    partial = True
    Options = ExplorationOptions

    def _parts(self) -> Parts:
        o, sets = self.options, KnownTransition(self._problem)
        eta, divergence = constants.o_reps_bandit(*self._sizes()), largest_divergence(self._layers)
        rate = chosen_rate(self, eta, 0.0, divergence)
        step = KnownDescent(self._problem, sets.truth, rate, self.start)
        forecast = forecast_of(o.predictor, self._layers)
        if forecast is None:
            return Parts(NothingKept(), sets, OwnOccupancy(self._layers, o.gamma), step)
        losses = Predicted(self._layers, own_occupancy, self.gamma_of, lambda state, k: step.rate(state.step, k))
        return Parts(NothingKept(), sets, losses, step, forecast)
