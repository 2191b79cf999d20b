"""Loss sequences: what the environment charges in each episode, oblivious or reacting."""

from __future__ import annotations

from typing import Any

from advmdp.adversaries import natural
from advmdp.adversaries.adaptive import Adaptive, Reacting
from advmdp.adversaries.base import Adversary
from advmdp.adversaries.corrupted import Corrupted
from advmdp.adversaries.drifting import Drifting
from advmdp.adversaries.fixed import Fixed
from advmdp.adversaries.from_array import FromArray
from advmdp.adversaries.from_file import FromFile
from advmdp.adversaries.misleading import Misleading
from advmdp.adversaries.random_walk import RandomWalk
from advmdp.adversaries.stochastic import Stochastic
from advmdp.adversaries.switching import Switching
from advmdp.layered import LayeredMDP, TabularModel
from advmdp.registry import adversaries

__all__ = [
    "Adaptive",
    "Adversary",
    "Corrupted",
    "Drifting",
    "Fixed",
    "FromArray",
    "FromFile",
    "Misleading",
    "RandomWalk",
    "Reacting",
    "Stochastic",
    "Switching",
    "adversaries",
    "make_adversary",
    "natural",
]


def make_adversary(
    name: str, mdp: LayeredMDP | TabularModel, episodes: int, *, seed: int = 0, **options: Any
) -> Adversary:
    """Build an adversary by name; ``advmdp list`` prints the names with their options.

    ``mdp`` gives the shape (a world, or a model), ``episodes`` is K.  Losses lie in [0, 1]; those of episode k are
    ``adversary.losses(k)``, a list over layers of ``(S_h, A)``.

    Examples
    --------
    >>> from advmdp import make_world
    >>> adversary = make_adversary("switching", make_world("grid", height=3, width=3), 100, period=20)
    >>> [table.shape for table in adversary.losses(0)]
    [(1, 2), (2, 2), (3, 2), (2, 2)]
    """
    adversary: Adversary = adversaries.make(name, mdp, episodes, seed=seed, **options)
    return adversary
