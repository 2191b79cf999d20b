"""Extension: a bank of VLSUOB-REPS with different step sizes under one meta learner, for losses that change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2

import numpy as np

from advmdp import constants
from advmdp.confidence.regression import joint_regression
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.options import GeometryOptions
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import Bank, KnownDescent, MirrorDescent, Rate
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner

Base = MirrorDescent | KnownDescent


class BankLearner(RepsLearner):
    """What learners whose step is a bank have in common."""

    #: eta_i, of the base learners.
    step_sizes: FloatArray
    #: epsilon, of Hedge over the base learners.
    meta_step_size: float

    def _bank(self, etas: Sequence[float], epsilon: float, mu: float, base: Callable[[Rate], Base]) -> Bank:
        """Base learners with these step sizes, which are put in force."""
        self.step_sizes, self.meta_step_size, self.step_size = np.array(etas), epsilon, etas[0]
        return Bank(self._layers, tuple(base(lambda k, eta=eta: eta) for eta in etas), epsilon, mu)  # type: ignore[misc]

    def _over_sets(self, rate: Rate) -> MirrorDescent:
        """A base learner over the sets."""
        return MirrorDescent(self._problem, rate, "pairs", self.start)

    @property
    def weights(self) -> FloatArray:
        """w, the weight of each base learner."""
        weights: FloatArray = np.exp(self._now.state.step.log_weights)
        return weights

    @property
    def base_q(self) -> list[list[FloatArray]]:
        """q^i, the occupancy measure of each base learner."""
        return [self._layers.split(np.exp(base.log_q)) for base in self._now.state.step.base]


@register_learner("vlsuob-reps-bank")
class VlsuobRepsBank(BankLearner):
    """Hedge over base learners q^i with step sizes eta_i = 4^i eta; the played q is their weighted average.

    lhat_k and P_{k+1} are those of VLSUOB-REPS (joint radius) for the *played* policy; the step is
    :class:`advmdp.learners.parts.steps.Bank` with epsilon = sqrt(2 log N / (H S A K)) and mu = 1 / K.  eta is that of
    Theorem 1, for a comparator that never changes; the largest step size is for one that always does.

    Parameters
    ----------
    geometry, radius_scale, zeta
        As in ``vlsuob-reps-tight``.
    """

    name = "vlsuob-reps-bank"
    status = "extension, no bound proved; every base step against a conic solver, weights recomputed"
    needs = LinearMixtureModel
    partial = True
    Options = GeometryOptions
    options: GeometryOptions

    def _parts(self) -> Parts:
        o, model, sizes = self.options, self._problem, self._sizes()
        self.step_size = self.exploration = constants.theorem_1(*sizes, o.zeta)
        # From that of a comparator that never changes to that of one that always does.
        etas = self.step_size * 4.0 ** np.arange(1 + ceil(log2(self.episodes) / 4.0))
        return Parts(
            *joint_regression(model, o.geometry, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=lambda k: self.exploration),
            step=self._bank(etas.tolist(), constants.hedge(len(etas), *sizes), 1.0 / self.episodes, self._over_sets),
        )
