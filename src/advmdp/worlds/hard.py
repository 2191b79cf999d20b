"""The instance behind lower bounds for linear mixtures: transitions that K episodes cannot tell apart.

It stands for the worst case.  While searching, action a (a vector of d - 1 signs) finds with probability
delta + <mu_h, a>, delta = 1 / H, where mu_h is Delta times an unknown vector of signs; whoever found is free of loss
until the end.  After Zhou, Gu and Szepesvari (2021), with

    Delta = sqrt(delta / K) / (4 sqrt 2).

*Indistinguishable.*  Two vectors mu_h that differ in one sign change the chance to find by 2 Delta.  As long as
(d - 1) Delta <= delta / 2, a chance p lies in [delta / 2, 3 delta / 2], and for H >= 4 one observation carries

    KL <= (2 Delta)^2 / (p (1 - p)) <= 16 Delta^2 / delta = 1 / (2 K),

at most 1/2 in K episodes, whatever is played: no learner is right about a sign with probability above 3/4 under
both.  *Yet it matters.*  With the right signs in all layers the chance is delta + (d - 1)
Delta, and the expected loss of an episode, sum_h (1 - chance)^h, is smaller than that of the uniform policy, to first
order by (d - 1) Delta sum_h h (1 - delta)^(h - 1): a gap of order d / sqrt(K) for fixed H, and H^(3/2) d / sqrt(K) with
it.  docs/worlds/hard.md has the steps.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from advmdp._checks import LAYER, fits_in_memory, integer
from advmdp.adversaries import Adversary, Fixed
from advmdp.errors import InvalidSpecError
from advmdp.layered import LayeredMDP, LinearMixtureMDP
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import Stream, generator

SEARCHING, FOUND = 0, 1


def margin(horizon: int, episodes: int) -> float:
    """Delta, what one right sign adds to the chance to find."""
    return math.sqrt(1.0 / (horizon * episodes)) / (4.0 * math.sqrt(2.0))


@register_world("hard")
def hard(*, horizon: int = 16, dim: int = 4, episodes: int = 10_000, seed: int = 0) -> LinearMixtureMDP:
    """Two states per layer, searching and found; 2^(dim - 1) actions, of which one per layer is right.

    Parameters
    ----------
    horizon
        H, at least 4.
    dim
        d, from 2 to 9.
    episodes
        K, the number of episodes in which transitions shall be hard to tell apart; at least (d - 1)^2 H / 8.
    seed
        Of the unknown signs.
    """
    integer(horizon, "horizon", 4, InvalidSpecError)
    if integer(dim, "dim", 2, InvalidSpecError) > 9:
        raise InvalidSpecError(f"dim is {dim}, should be at most 9: there are 2^(dim - 1) actions")
    integer(episodes, "episodes", max(1, math.ceil((dim - 1) ** 2 * horizon / 8)), InvalidSpecError)
    fits_in_memory(LAYER * horizon, f"a world of {horizon} layers", InvalidSpecError)
    found, delta = 1.0 / horizon, margin(horizon, episodes)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=dim - 1)))

    # P = <phi, theta>: alpha and beta share the norms out so that |phi| <= 1 and |theta| = 1 + (d - 1) Delta.
    total = 1.0 + (dim - 1) * delta
    alpha, beta = math.sqrt(1.0 / total), math.sqrt(delta / total)
    features = np.zeros((2, len(signs), 2, dim))
    features[SEARCHING, :, FOUND, 0] = alpha * found
    features[SEARCHING, :, FOUND, 1:] = beta * signs
    features[SEARCHING, :, SEARCHING, 0] = alpha * (1.0 - found)
    features[SEARCHING, :, SEARCHING, 1:] = -beta * signs
    features[FOUND, :, FOUND, 0] = alpha
    last = np.zeros((2, len(signs), 1, dim))
    last[..., 0] = alpha
    middle = [features] * (horizon - 2)

    mu = delta * generator(seed, Stream.WORLD).choice((-1.0, 1.0), size=(horizon, dim - 1))
    theta = [np.concatenate([[1.0 / alpha], row / beta]) for row in mu]
    scene = Scene(
        states=[["searching"], *([["searching", "found"]] * (horizon - 1)), ["end"]],
        actions=["".join("+" if sign > 0 else "-" for sign in row) for row in signs],
        natural_losses="hard",
    )
    return LinearMixtureMDP([features[:1], *middle, last], theta, bound=total, scene=scene)


@register_natural_losses("hard")
def search_losses(mdp: LayeredMDP, episodes: int, *, seed: int = 0) -> Adversary:
    """Loss 1 while searching, 0 once found, in every episode: the difficulty is in the transitions alone."""
    assert mdp.scene.states is not None
    tables = [
        np.array([[float(name == "searching")] * mdp.n_actions for name in layer]) for layer in mdp.scene.states[:-1]
    ]
    return Fixed(mdp, episodes, losses=tables, seed=seed)
