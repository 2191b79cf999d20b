"""What simple learners with known transition share."""

from __future__ import annotations

import numpy as np

from advmdp.confidence import KnownKernels
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners.base import Learner
from advmdp.occupancy import greedy, occupancy_measure


class KnownTransitionLearner(Learner):
    """A learner that is given the world and may look at its kernels."""

    transition = "known"
    _problem: LayeredMDP

    @property
    def q(self) -> list[FloatArray]:
        """The true occupancy measure of the policy."""
        return occupancy_measure(self._problem, self.policy)

    @property
    def confidence_set(self) -> KnownKernels:
        """The true kernels alone."""
        return KnownKernels(self._problem.kernels)


def best_for(mdp: LayeredMDP, losses: FloatArray) -> FloatArray:
    """The best policy for a flat table of losses, flat."""
    policy, layers = np.empty(mdp.layers.n_pairs), mdp.layers
    greedy(layers, mdp.rows, layers.barred(losses), policy)
    return policy
