"""Extension: a bank of VLSUOB-REPS with different step sizes under one meta learner, for losses that change."""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from advmdp import constants
from advmdp.confidence.regression import joint_regression
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.options import GeometryOptions
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import Bank
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner


@register_learner("vlsuob-reps-bank")
class VlsuobRepsBank(RepsLearner):
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
        #: eta_i, from that of a comparator that never changes to that of one that always does.
        self.step_sizes = self.step_size * 4.0 ** np.arange(1 + ceil(log2(self.episodes) / 4.0))
        #: epsilon, of Hedge over the base learners.
        self.meta_step_size = constants.hedge(len(self.step_sizes), *sizes)
        return Parts(
            *joint_regression(model, o.geometry, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=lambda k: self.exploration),
            step=Bank(model, tuple(self.step_sizes.tolist()), self.meta_step_size, 1.0 / self.episodes, self.start),
        )

    @property
    def weights(self) -> FloatArray:
        """w, the weight of each base learner."""
        weights: FloatArray = np.exp(self._now.state.step.log_weights)
        return weights

    @property
    def base_q(self) -> list[list[FloatArray]]:
        """q^i, the occupancy measure of each base learner."""
        return [self._layers.split(np.exp(base.log_q)) for base in self._now.state.step.base]
