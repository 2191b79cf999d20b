"""Named problems: each file builds one kind of world and says which real problem it stands for."""

from __future__ import annotations

from typing import Any

from advmdp.layered import LayeredMDP
from advmdp.registry import worlds
from advmdp.worlds import (
    bow_tie,
    file,
    frozen_lake,
    grid,
    hard,
    inventory,
    linear_mdp,
    pricing,
    queue,
    random_mixture,
    river_swim,
    routing,
)

__all__ = [
    "bow_tie",
    "file",
    "frozen_lake",
    "grid",
    "hard",
    "inventory",
    "linear_mdp",
    "make_world",
    "pricing",
    "queue",
    "random_mixture",
    "river_swim",
    "routing",
    "worlds",
]


def make_world(name: str, **options: Any) -> LayeredMDP:
    """Build a world by name; ``advmdp list`` prints the names with their options.

    Examples
    --------
    >>> world = make_world("grid", height=3, width=3)
    >>> world.layer_sizes, world.n_actions
    ((1, 2, 3, 2, 1), 2)
    """
    world: LayeredMDP = worlds.make(name, **options)
    return world
