"""What the numbers of a world stand for: names of states and actions, a map, the losses that come with it.

A scene is plain data beside the kernels.  Learners never see it; drawings, adversaries and people do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from advmdp.errors import InvalidMDPError


@dataclass(frozen=True, eq=False)
class Scene:
    """Names for what a world is about; every part may be left out.

    Attributes
    ----------
    states
        A name for every state, a sequence over layers 0..H: a text, an integer or a tuple of integers.  For a world
        out of a Gymnasium environment this is the way back to the environment's own states.
    actions
        A name for every action.
    map
        Rows of letters, one per cell, for worlds on a grid: ``F`` free, ``S`` start, ``G`` goal, ``H`` hole.  A state
        is then named by the number of its cell, row * width + column.
    natural_losses
        The name under which the losses of this kind of world are registered
        (:func:`advmdp.register_natural_losses`); the adversary ``natural-losses`` asks for it.
    details
        What those losses need to know besides: plain data (numbers, texts, lists, arrays) by name.
    """

    states: Sequence[Sequence[Any]] | None = None
    actions: Sequence[str] | None = None
    map: Sequence[str] | None = None
    natural_losses: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("states", "actions", "map"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        object.__setattr__(self, "details", {name: _frozen(value) for name, value in self.details.items()})

    def check(self, layer_sizes: Sequence[int], n_actions: int) -> None:
        """Raise InvalidMDPError unless the names fit a world of this shape."""
        named = None if self.states is None else [len(names) for names in self.states]
        if named is not None and named != list(layer_sizes):
            raise InvalidMDPError(f"scene.states names {named} states, the layers have {list(layer_sizes)}")
        if self.actions is not None and len(self.actions) != n_actions:
            raise InvalidMDPError(f"scene.actions has {len(self.actions)} names, should have {n_actions}")
        if self.map is not None:
            self._check_map(self.map)

    def _check_map(self, rows: Sequence[str]) -> None:
        if not rows or any(len(row) != len(rows[0]) or not set(row) <= set("SFHG") for row in rows):
            raise InvalidMDPError(f"scene.map is {rows}, should be rows of the same number of letters S, F, H or G")
        cells = len(rows) * len(rows[0])
        for h, names in enumerate(self.states or ()):
            if set(map(type, names)) == {int} and 0 <= min(names) <= max(names) < cells:
                continue  # quickly, as there may be many
            for s, name in enumerate(names):
                if isinstance(name, int) and not 0 <= name < cells:
                    raise InvalidMDPError(
                        f"scene.states, layer {h}, state {s}: cell {name} is not on the map, should be below {cells}"
                    )

    def tree(self) -> dict[str, Any]:
        """The scene as plain data for :mod:`advmdp.storage`."""
        return {
            "states": self.states,
            "actions": self.actions,
            "map": self.map,
            "natural_losses": self.natural_losses,
            "details": dict(self.details),
        }


def _frozen(value: Any) -> Any:
    """Lists (out of a file, say) as tuples, all the way down; arrays as private, read-only ones."""
    if isinstance(value, np.ndarray):
        array = value.copy()
        array.flags.writeable = False
        return array
    if not isinstance(value, (list, tuple)):
        return value
    # Quickly for what is long: plain items, such as the names of states, and lists of them.
    kinds = set(map(type, value))
    if _plain(kinds):
        return tuple(value)
    if kinds <= {list, tuple} and _plain(set(map(type, chain.from_iterable(value)))):
        return tuple(map(tuple, value))
    return tuple(_frozen(item) for item in value)


def _plain(kinds: set[type]) -> bool:
    return not any(issubclass(kind, (list, tuple, np.ndarray)) for kind in kinds)
