"""Gymnasium's FrozenLake: cross the ice to the goal, around the holes, on ground that does not obey.

It stands for moving something over a map where the outcome of a move is uncertain in a way that is known in kind but
not in degree: a rover in sand, a boat in currents, a needle in tissue.  A move goes where it was meant to, or to its
left, or to its right; how often each happens is the unknown mixture.  Map, moves and numbering of cells are
Gymnasium's, so that a learner of this world can play the environment itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import integer
from advmdp._unroll import Step, unroll
from advmdp.adversaries import Adversary
from advmdp.adversaries.natural import Waves, amplitude
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene

#: Gymnasium's actions, and what each adds to row and column.
ACTIONS = ("left", "down", "right", "up")
_MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))


@register_world("frozen-lake")
def frozen_lake(
    *,
    map: str | Sequence[str] = "4x4",
    horizon: int = 8,
    slip: Sequence[float] = (1 / 3, 1 / 3, 1 / 3),
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
    height, width = len(rows), len(rows[0])
    letters = "".join(rows)

    def turned(turn: int) -> Step:
        def step(cell: int, action: int) -> dict[int, float]:
            if letters[cell] in "GH":
                return {cell: 1.0}
            down, right = _MOVES[(action + turn) % 4]
            row, column = divmod(cell, width)
            row, column = min(max(row + down, 0), height - 1), min(max(column + right, 0), width - 1)
            return {row * width + column: 1.0}

        return step

    # One more in Gymnasium's order of actions is to the walker's left, one less to the right.
    kernels, layers = unroll(letters.index("S"), horizon, 4, [turned(0), turned(1), turned(-1)])
    scene = Scene(states=[*layers, ["end"]], actions=ACTIONS, map=rows, natural_losses="frozen-lake")
    return LinearMixtureMDP.from_kernels(kernels, list(slip), scene=scene)


def _rows(map: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(map, str):
        from gymnasium.envs.toy_text.frozen_lake import MAPS

        if map not in MAPS:
            raise InvalidSpecError(f"map is {map!r}, should be one of {', '.join(MAPS)}, or a list of rows")
        return tuple(MAPS[map])
    rows = tuple(map)
    if not rows or any(not isinstance(row, str) or len(row) != len(rows[0]) for row in rows):
        raise InvalidSpecError(f"map is {list(rows)!r}, should be rows of the same number of letters")
    letters = "".join(rows)
    if not set(letters) <= set("SFHG") or letters.count("S") != 1:
        raise InvalidSpecError(f"map is {list(rows)!r}, should have the letters S, F, H and G, and exactly one S")
    return rows


@register_natural_losses("frozen-lake")
class Ice(Adversary):
    """A step costs 1 in a hole, 0 at the goal, and on the ice what the weather makes of it: 1/2 + drift/2 * wave.

    Every cell has a wave of its own in [-1, 1], the same in all layers: paths that were firm become hard to walk.
    Losses are in [0, 1] as they are.

    Parameters
    ----------
    drift
        How far the cost of ice moves, in [0, 1].
    period
        Of the waves, in episodes.
    """

    def __init__(
        self, mdp: LayeredMDP, episodes: int, *, drift: float = 0.6, period: float = 500.0, seed: int = 0
    ) -> None:
        super().__init__(mdp, episodes)
        assert mdp.scene.map is not None
        assert mdp.scene.states is not None
        letters = "".join(mdp.scene.map)
        cells = np.concatenate([np.asarray(layer, dtype=np.int64) for layer in mdp.scene.states[:-1]])
        self._cells = np.repeat(cells, mdp.n_actions)
        kinds = np.array(list(letters))[self._cells]
        self._level = np.where(kinds == "H", 1.0, np.where(kinds == "G", 0.0, 0.5))
        self._swing = np.where((kinds == "H") | (kinds == "G"), 0.0, 0.5 * amplitude(drift, "drift"))
        self._waves = Waves(len(letters), period, seed)

    def flat_losses(self, k: int) -> FloatArray:
        """Level and swing of every cell, with the waves of episode k."""
        losses: FloatArray = self._level + self._swing * self._waves.at(k)[self._cells]
        return losses
