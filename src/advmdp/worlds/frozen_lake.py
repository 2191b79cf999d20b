"""Gymnasium's FrozenLake: cross the ice to the goal, around the holes, on ground that does not obey.

It stands for moving something over a map where the outcome of a move is uncertain in a way that is known in kind but
not in degree: a rover in sand, a boat in currents, a needle in tissue.  A move goes where it was meant to, or to its
left, or to its right; how often each happens is the unknown mixture.  Map, moves and numbering of cells are
Gymnasium's, so that a learner of this world can play the environment itself.  Its own losses are ``terrain``:
1 in a hole, 0 at the goal, drifting on the ice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import integer
from advmdp._unroll import Unrolled, certain
from advmdp.errors import InvalidSpecError
from advmdp.layered import LinearMixtureMDP
from advmdp.registry import register_world
from advmdp.scene import Scene
from advmdp.worlds._options import probabilities

#: Gymnasium's actions, and what each adds to row and column.
ACTIONS = ("left", "down", "right", "up")
#: Gymnasium's maps, which a test compares with these: importing it takes as long as all of this library.
MAPS = {
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
}
_MOVES = np.array([(0, -1), (1, 0), (0, 1), (-1, 0)])


@register_world("frozen-lake")
def frozen_lake(
    *, map: str | Sequence[str] = "4x4", horizon: int = 8, slip: Sequence[float] = (1 / 3, 1 / 3, 1 / 3)
) -> LinearMixtureMDP:
    """FrozenLake over ``horizon`` steps: the intended move, the one to its left, the one to its right.

    Parameters
    ----------
    map
        ``"4x4"`` or ``"8x8"``, Gymnasium's own maps, or rows of the letters S (start), F (ice), H (hole), G (goal).
    horizon
        Steps.  Holes and the goal hold whoever reaches them until the end.
    slip
        Probabilities of the intended move, the left one and the right one; Gymnasium's are a third each.
    """
    rows = _rows(map)
    integer(horizon, "horizon", 1, InvalidSpecError)
    weights = probabilities(slip, "slip", 3)
    height, width = len(rows), len(rows[0])
    letters = "".join(rows)
    cells = np.arange(height * width)
    row, column = (part[:, None] + step for part, step in zip(np.divmod(cells, width), _MOVES.T, strict=True))
    moved = np.clip(row, 0, height - 1) * width + np.clip(column, 0, width - 1)
    nexts = np.where(np.isin(list(letters), ["G", "H"])[:, None], cells[:, None], moved)
    # One more in Gymnasium's order of actions is to the walker's left, one less to the right.
    turned = [certain(np.roll(nexts, -turn, axis=1)) for turn in (0, 1, -1)]
    unrolled = Unrolled(turned, letters.index("S"), horizon)
    scene = Scene(states=unrolled.named(), actions=ACTIONS, map=rows, natural_losses="terrain")
    return unrolled.mixture(weights, scene)


def _rows(map: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(map, str):
        if map not in MAPS:
            raise InvalidSpecError(f"map is {map!r}, should be one of {', '.join(MAPS)}, or a list of rows")
        return MAPS[map]
    if not isinstance(map, Sequence):
        raise InvalidSpecError(f"map is {map!r}, should be the name of a map, or a list of rows")
    rows = tuple(map)
    if not rows or any(not isinstance(row, str) or len(row) != len(rows[0]) for row in rows):
        raise InvalidSpecError(f"map is {list(rows)!r}, should be rows of the same number of letters")
    letters = "".join(rows)
    if not set(letters) <= set("SFHG") or letters.count("S") != 1:
        raise InvalidSpecError(f"map is {list(rows)!r}, should have the letters S, F, H and G, and exactly one S")
    return rows
