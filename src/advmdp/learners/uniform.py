"""The baseline that learns nothing."""

from __future__ import annotations

from typing import NamedTuple

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray
from advmdp.learners.base import Learner
from advmdp.registry import register_learner


class Fixed(NamedTuple):
    """A policy that never changes."""

    policy: FloatArray


@register_learner("uniform")
class Uniform(Learner):
    """Every action with the same probability, for ever."""

    name = "uniform"
    status = "exact (closed form)"
    needs_episodes = False
    partial = True

    def _begin(self) -> Fixed:
        return Fixed(self._layers.uniform_policy)

    def _learn(self, state: Fixed, episode: CheckedEpisode) -> Fixed:
        return state
