"""Losses that react: what past trajectories used most becomes dear."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp._checks import between, integer
from advmdp._exclusive import Exclusive
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidEpisodeError, InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import Stream, generator


class Reacting(Adversary):
    """Remembers how often each pair was used of late: the base of adversaries that react.

    After each episode u <- (1 - 1/m) u + (1/m) 1{pair visited}, with ``memory`` m: a moving average in [0, 1] of *past*
    trajectories.  A subclass defines :meth:`_react`.
    """

    oblivious = False

    def __init__(self, mdp: LayeredMDP | TabularModel, episodes: int, memory: int) -> None:
        super().__init__(mdp, episodes)
        self._rate = 1.0 / integer(memory, "memory", 1, InvalidSpecError)
        self.reset()

    def reset(self) -> None:
        """Forget all trajectories."""
        #: Episodes observed so far.
        self.observed = 0
        self._usage = np.zeros(self.layers.n_pairs)

    def observe(self, states: IntArray, actions: IntArray) -> None:
        """Take note of the trajectory of the episode that ended."""
        horizon = self.layers.horizon
        here, taken = np.asarray(states)[:horizon], np.asarray(actions)
        if here.shape != (horizon,) or taken.shape != (horizon,):
            raise InvalidEpisodeError(f"the trajectory has {here.size} states and {taken.size} actions, not {horizon}")
        wrong = (here < 0) | (here >= self.layers.size_array[:-1]) | (taken < 0) | (taken >= self.layers.n_actions)
        if wrong.any():
            h = int(wrong.argmax())
            raise InvalidEpisodeError(f"layer {h}: there is no state {here[h]} with an action {taken[h]}")
        visited = np.zeros(self.layers.n_pairs)
        visited[self.layers.pair_offsets[:horizon] + here * self.layers.n_actions + taken] = 1.0
        with Exclusive(self):
            self._usage = self._usage + self._rate * (visited - self._usage)
            self.observed += 1

    def flat_losses(self, k: int) -> FloatArray:
        """The losses of the episode that comes next, which must be number k."""
        with Exclusive(self):
            if k != self.observed:
                raise InvalidSpecError(
                    f"episode {k} is asked for after {self.observed} were observed: losses that react are known for "
                    f"episode {self.observed} only"
                )
            return self._react(k, self._usage)

    def _react(self, k: int, usage: FloatArray) -> FloatArray:
        """The losses of episode k, from how much each pair was used before."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """How many episodes were observed, and the usage."""
        return {"observed": self.observed, "usage": self._usage.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        usage = self.layers.loss_table(self.layers.flat_vector(state["usage"], "usage"), "usage")
        self.observed = integer(state["observed"], "observed", 0, InvalidSpecError)
        self._usage = usage


@register_adversary("adaptive")
class Adaptive(Reacting):
    """Raises the losses of the pairs that past trajectories visited most.

    loss = (1 - strength) base + strength * usage / (largest usage of the layer), the base drawn once, uniformly.  It
    depends on the past only, and draws nothing after its construction.

    Parameters
    ----------
    strength
        Share of the loss that reacts, in [0, 1].
    memory
        Episodes over which usage is averaged.
    """

    def __init__(
        self, mdp: LayeredMDP | TabularModel, episodes: int, *, strength: float = 0.5, memory: int = 100, seed: int = 0
    ) -> None:
        super().__init__(mdp, episodes, memory)
        self._strength = between(strength, "strength", 0.0, 1.0, InvalidSpecError)
        self._base = generator(seed, Stream.ADVERSARY).random(self.layers.n_pairs)

    def _react(self, k: int, usage: FloatArray) -> FloatArray:
        highest = np.maximum.reduceat(usage, self.layers.pair_offsets[:-1])
        per_pair = np.repeat(highest, np.diff(self.layers.pair_offsets))
        raised = np.divide(usage, per_pair, out=np.zeros_like(usage), where=per_pair > 0.0)
        losses: FloatArray = (1.0 - self._strength) * self._base + self._strength * raised
        return losses
