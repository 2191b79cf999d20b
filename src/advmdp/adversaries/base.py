"""What every adversary has."""

from __future__ import annotations

from typing import Any, ClassVar

from advmdp._checks import integer
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LayeredMDP, Layers, TabularModel


class Adversary:
    """A sequence of loss tables with entries in [0, 1].

    A subclass defines :meth:`losses` (a list over layers of ``(S_h, A)``) or, cheaper inside the simulator,
    :meth:`flat_losses` (the same as one flat vector; see :class:`advmdp.layered.Layers`).
    """

    #: Oblivious: the losses of episode k depend on k and the seed alone, and may be asked for in any order.
    #: Otherwise they also depend on what :meth:`observe` was told, and are asked for in order.
    oblivious: ClassVar[bool] = True

    def __init__(self, mdp: LayeredMDP | TabularModel, episodes: int) -> None:
        self.layers: Layers = mdp.layers
        self.episodes = integer(episodes, "episodes", 1, InvalidSpecError)

    def losses(self, k: int) -> list[FloatArray]:
        """The losses of episode k (from 0)."""
        return self.layers.split(self.flat_losses(k))

    def flat_losses(self, k: int) -> FloatArray:
        """The losses of episode k as one vector over pairs; not to be changed by the caller."""
        if type(self).losses is Adversary.losses:
            raise NotImplementedError(f"{type(self).__name__} should define losses or flat_losses")
        return self.layers.flatten(self.losses(k), "losses")

    def reset(self) -> None:
        """Forget what was observed: a run begins.  Oblivious adversaries have nothing to forget."""

    def observe(self, states: IntArray, actions: IntArray) -> None:
        """Be told the trajectory of the episode that ended; only reacting adversaries listen."""

    def state(self) -> dict[str, Any]:
        """What :meth:`observe` left behind, as a tree for :mod:`advmdp.storage`; oblivious adversaries have nothing."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} saves {sorted(state)} and should define set_state")
