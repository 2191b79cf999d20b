"""A grid that is crossed from one corner to the opposite one, east or south at every step.

It stands for a vehicle (or a packet, or a hiker with a map) that makes progress with every step but is not
obeyed exactly: sometimes it slips the other way, sometimes a current carries it east or south whatever it
does.  How often each of these happens is the unknown mixture.  Layers are the anti-diagonals, so the grid has
no loops; at the far edges only one move is left and every action makes it.  Its own losses are ``terrain``: the ground
of every cell is hard or easy to cross, and that drifts with the weather.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advmdp._checks import between, integer, kernels_fit_in_memory
from advmdp._unroll import Unrolled, certain
from advmdp.errors import InvalidSpecError
from advmdp.layered import LinearMixtureMDP
from advmdp.registry import register_world
from advmdp.scene import Scene

EAST, SOUTH = 0, 1

#: Noise models: the move that is made where east is intended, and where south is.
_NOISE = {"slip": (SOUTH, EAST), "east": (EAST, EAST), "south": (SOUTH, SOUTH)}


@register_world("grid")
def grid(*, height: int = 6, width: int = 6, noise: Mapping[str, float] | None = None) -> LinearMixtureMDP:
    """Two actions, east and south; H = height + width - 2 steps.

    Parameters
    ----------
    height, width
        Cells in each direction, at least 2 in one of them.
    noise
        Probability of each noise model, out of ``slip`` (the other move is made), ``east`` and ``south``
        (that move is made whatever is intended); what is left to 1 is the probability that the intended move
        is made.  Each model, and obedience, is one coordinate of the features.  Default: slip and east, 0.1
        each.  The plain grid of the literature is ``height=10, width=10, noise={"slip": 0.1}``.
    """
    shares: Mapping[str, float] = {"slip": 0.1, "east": 0.1} if noise is None else noise
    if not isinstance(shares, Mapping):
        raise InvalidSpecError(f"noise is {noise!r}, should give a probability to each of: {', '.join(_NOISE)}")
    for name, share in shares.items():
        if name not in _NOISE:
            raise InvalidSpecError(f"noise has no model {name!r}; it has: {', '.join(_NOISE)}")
        between(share, f"noise {name!r}", 0.0, 1.0, InvalidSpecError)
    obeyed = 1.0 - sum(shares.values())
    if obeyed < -1e-12:
        raise InvalidSpecError(f"noise sums to {sum(shares.values())}, should be at most 1")
    integer(height, "height", 1, InvalidSpecError)
    integer(width, "width", 1, InvalidSpecError)
    if height + width < 3:
        raise InvalidSpecError(f"height {height}, width {width}: need at least two cells in one direction")
    what = f"a grid of {height} x {width} cells"
    kernels_fit_in_memory(2 * height * width, 1 + len(shares), what, InvalidSpecError)
    row, column = np.divmod(np.arange(height * width), width)
    at_wall = np.stack([column == width - 1, row == height - 1])
    # At a wall the other move is the only one; nothing leads on from the corner.
    ahead = np.arange(height * width) + np.where(at_wall, [[width], [1]], [[1], [width]])
    ahead[:, -1] = height * width - 1
    moves = [(EAST, SOUTH), *(_NOISE[name] for name in shares)]
    unrolled = Unrolled([certain(ahead[list(move)].T) for move in moves], 0, height + width - 2)
    corner = height * width - 1
    letters = ["S" if cell == 0 else "G" if cell == corner else "F" for cell in range(height * width)]
    scene = Scene(
        states=[*unrolled.named()[:-1], [corner]],
        actions=("east", "south"),
        map=["".join(letters[row * width : (row + 1) * width]) for row in range(height)],
        natural_losses="terrain",
    )
    return unrolled.mixture(np.array([max(obeyed, 0.0), *shares.values()]), scene)
