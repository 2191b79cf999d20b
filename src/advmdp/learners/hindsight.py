"""The comparator itself: the best fixed policy, chosen with the whole loss sequence in hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from advmdp.adversaries import Adversary
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidSpecError
from advmdp.learners.known import KnownTransitionLearner, best_for
from advmdp.learners.options import NoOptions
from advmdp.learners.uniform import Fixed
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class HindsightOptions(NoOptions):
    """``losses``: all of them."""

    losses: Any


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
    Options = HindsightOptions

    def _compose(self) -> None:
        losses = self.options.losses
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
        #: The losses of all episodes, summed.
        self.losses = self._layers.split(total)

    def _begin(self) -> Fixed:
        return Fixed(best_for(self._problem, self._layers.flatten(self.losses)))

    def _learn(self, state: Fixed, episode: CheckedEpisode) -> Fixed:
        return state
