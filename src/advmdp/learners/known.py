"""What learners with known transition share."""

from __future__ import annotations

import numpy as np

from advmdp.confidence import KnownKernels
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners.base import Learner
from advmdp.occupancy import backward_greedy, occupancy_measure


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

    def _follow(self, losses: FloatArray) -> None:
        """Take the best policy for a flat table of losses."""
        policy = np.empty(self._layers.n_pairs)
        backward_greedy(
            *self._problem.flat_kernels,
            self._layers.size_array,
            self._layers.n_actions,
            losses,
            policy,
        )
        self._set_policy(policy)
