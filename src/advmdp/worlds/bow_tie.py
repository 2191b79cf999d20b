"""The smallest world in which a shared parameter makes the set of occupancy measures fail to be convex.

One state, two actions, a good and a bad next state: P(good | first) = 1/2 + x, P(good | second) = 1/2 - x, one unknown
x for both.  It stands for no practical problem but for a gap in a proof.  With |x| <= r, p the probability of the first
action and m that of the good state, the occupancy measures are |m - 1/2| <= r |2 p - 1|: two triangles that touch
in a point.  Confidence sets that share the parameter among pairs are of this kind, and the regret proof needs convex
ones; those of this library let every pair have its own parameter, and give the full band |m - 1/2| <= r.  See
docs/relaxed-sets.md.
"""

from __future__ import annotations

import numpy as np

from advmdp._checks import between
from advmdp.adversaries import Adversary, Fixed
from advmdp.errors import InvalidSpecError
from advmdp.layered import LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene

#: Norm of (1/2, 1), by which the features are divided.
SCALE = float(np.sqrt(1.25))


@register_world("bow-tie")
def bow_tie(*, lean: float = 0.2) -> LinearMixtureMDP:
    """H = 2, four states, two actions, d = 2: a counter-example, not a benchmark.

    Parameters
    ----------
    lean
        x, in [-1/2, 1/2].
    """
    between(lean, "lean", -0.5, 0.5, InvalidSpecError)
    first = np.array([[[[0.5, 1.0], [0.5, -1.0]], [[0.5, -1.0], [0.5, 1.0]]]]) / SCALE
    last = np.zeros((2, 2, 1, 2))
    last[..., 0] = 1.0 / SCALE
    theta = SCALE * np.array([1.0, lean])
    scene = Scene(states=[["start"], ["good", "bad"], ["end"]], actions=("first", "second"), natural_losses="bow-tie")
    # The largest parameter with |x| <= 1/2 has norm SCALE * sqrt(1 + 1/4).
    return LinearMixtureMDP([first, last], [theta, theta], bound=SCALE**2, shared=True, scene=scene)


@register_natural_losses("bow-tie")
def bad_is_bad(mdp: LayeredMDP, episodes: int, *, seed: int = 0) -> Adversary:
    """Loss 1 in the bad state, 0 elsewhere, in every episode."""
    return Fixed(mdp, episodes, losses=[[[0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]], seed=seed)
