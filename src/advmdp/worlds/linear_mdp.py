"""A linear MDP: every pair of a state and an action is a mixture of d kinds, and each kind goes on in its own way.

It stands for the case in which a step belongs, by known shares, to some of d kinds (segments of customers, regimes of a
machine, regions), and nobody knows how a kind goes on.  A learner has d unknown distributions per layer to learn, of
which no feature tells anything: with a linear *mixture*, features tell what each of d simulators would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from advmdp._checks import above_zero, integer, kernels_fit_in_memory
from advmdp.adversaries import Adversary
from advmdp.adversaries.natural import Waves
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, LinearMDP, TabularModel
from advmdp.registry import register_natural_losses, register_world
from advmdp.scene import Scene
from advmdp.seeding import IndexedGenerator, Stream, generator
from advmdp.worlds.random_mixture import random_rows


@register_world("linear-mdp")
def linear_mdp(
    *,
    layer_sizes: Sequence[int] = (1, 8, 8, 8, 8, 1),
    n_actions: int = 4,
    dim: int = 4,
    concentration: float = 0.3,
    seed: int = 0,
) -> LinearMDP:
    """Features drawn from the simplex of ``dim`` shares, and ``dim`` random distributions per layer.

    Parameters
    ----------
    layer_sizes
        States per layer; the first and last are 1.
    n_actions
        Actions per state.
    dim
        Kinds, d.
    concentration
        Of the Dirichlet distributions from which shares and distributions are drawn; small values make a pair belong to
        nearly one kind, and a kind go on nearly deterministically.
    seed
        Same seed, same world.
    """
    integer(dim, "dim", 1, InvalidSpecError)
    above_zero(concentration, "concentration", InvalidSpecError)
    layers = TabularModel(layer_sizes, n_actions).layers
    most = max(layers.sizes) * (n_actions + 1)
    kernels_fit_in_memory(
        sum(layers.sizes) * most, dim, f"features over layers of {layer_sizes} states", InvalidSpecError
    )
    rng = generator(seed, Stream.WORLD)
    features = [random_rows(rng, n, n_actions, dim, concentration) for n in layers.sizes[:-1]]
    measures = [random_rows(rng, dim, 1, m, concentration)[:, 0] for m in layers.sizes[1:]]
    return LinearMDP(features, measures, scene=Scene(natural_losses="linear"))


@register_natural_losses("linear")
class LinearLosses(Adversary):
    """Losses that are linear in the features, l_k(s, a) = <phi(s, a), g_k>: a kind costs g_k in [0, 1] in its layer.

    Parameters
    ----------
    kind
        How g_k changes: ``"drifting"`` (level + swing of random phase), ``"switching"`` (new levels every ``period``
        episodes), ``"stochastic"`` (0 or 1, drawn around fixed levels) or ``"fixed"``.
    period
        Of the swings, or between switches, in episodes.
    """

    def __init__(
        self,
        mdp: LayeredMDP,
        episodes: int,
        *,
        kind: Literal["drifting", "switching", "stochastic", "fixed"] = "drifting",
        period: float = 500.0,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        if kind not in ("drifting", "switching", "stochastic", "fixed"):
            raise InvalidSpecError(f"kind is {kind!r}, should be 'drifting', 'switching', 'stochastic' or 'fixed'")
        if not isinstance(mdp, LinearMDP) or not all(
            (f >= 0.0).all() and (f.sum(2) <= 1 + 1e-9).all() for f in mdp.features
        ):
            raise InvalidSpecError(
                "losses that are linear in features need a LinearMDP whose features are shares: >= 0, of sum <= 1"
            )
        self._features = mdp.features
        self._kind, self._period = kind, above_zero(period, "period", InvalidSpecError)
        self._draws = IndexedGenerator(seed, Stream.ADVERSARY)
        rng = generator(seed, Stream.ADVERSARY)
        self._levels = rng.random((mdp.horizon, mdp.dim))
        self._waves = Waves(self._levels.size, period, rng)

    def weights(self, k: int) -> FloatArray:
        """g_k of all layers, ``(H, d)``."""
        if self._kind == "fixed":
            return self._levels
        if self._kind == "drifting":
            waves: FloatArray = self._waves.at(k).reshape(self._levels.shape)
            return 0.25 + 0.5 * self._levels + 0.25 * waves
        if self._kind == "switching":
            levels: FloatArray = self._draws.at(int(k // self._period)).random(self._levels.shape)
            return levels
        drawn: FloatArray = (self._draws.at(k).random(self._levels.shape) < self._levels).astype(np.float64)
        return drawn

    def flat_losses(self, k: int) -> FloatArray:
        """<phi, g_k>."""
        g = self.weights(k)
        tables = [(array @ row).ravel() for array, row in zip(self._features, g, strict=True)]
        losses: FloatArray = np.clip(np.concatenate(tables), 0.0, 1.0)  # of rounding only
        return losses
