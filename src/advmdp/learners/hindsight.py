"""The comparator itself: the best fixed policy, chosen with the whole loss sequence in hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from advmdp.adversaries import Adversary
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidSpecError
from advmdp.layered import LayeredMDP
from advmdp.learners.known import KnownTransitionLearner
from advmdp.registry import register_learner


@register_learner("hindsight")
class Hindsight(KnownTransitionLearner):
    """argmin over policies of sum_k <q, l_k>: regret 0 against oblivious losses, by definition.

    Parameters
    ----------
    losses
        An oblivious adversary, or its losses summed over all episodes as a list over layers of ``(S_h, A)``.
    """

    name = "hindsight"
    feedback = "full"
    status = "exact (brute-force enumeration on tiny worlds)"

    def __init__(
        self,
        problem: LayeredMDP,
        episodes: int,
        *,
        losses: Adversary | Sequence[ArrayLike],
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, seed=seed)
        if isinstance(losses, Adversary):
            if not losses.oblivious:
                raise InvalidSpecError(
                    "learner 'hindsight' needs an oblivious adversary: losses that react do not exist before the run"
                )
            total = np.zeros(self._layers.n_pairs)
            for k in range(self.episodes):
                total += losses.flat_losses(k)
        else:
            total = self._layers.flatten(losses, "losses")
            if not np.isfinite(total).all():
                raise InvalidSpecError("losses: an entry is not a finite number")
        self.losses = self._layers.split(total)
        self._follow(total)

    def _learn(self, episode: CheckedEpisode) -> None:
        """Nothing to learn: everything was known."""
