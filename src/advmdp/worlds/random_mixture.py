"""A process without structure: an unknown mixture of d random kernels.

It stands for the case in which d candidate models of one system were fitted (by different teams, or on
different years of data), reality lies between them, and nothing else is known.  The standard test bed, since
every size can be set on its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advmdp._checks import above_zero, integer, kernels_fit_in_memory
from advmdp.errors import InvalidSpecError
from advmdp.layered import Layers, LinearMixtureMDP, TabularModel
from advmdp.registry import register_world
from advmdp.seeding import Stream, generator


@register_world("random-mixture")
def random_mixture(
    *,
    layer_sizes: Sequence[int] = (1, 8, 8, 8, 8, 1),
    n_actions: int = 4,
    dim: int = 3,
    concentration: float = 0.5,
    shared: bool = False,
    unavailable: float = 0.0,
    seed: int = 0,
) -> LinearMixtureMDP:
    """Mixture of ``dim`` kernels with random rows, weights drawn uniformly, by default anew for each layer.

    Parameters
    ----------
    layer_sizes
        States per layer; the first and last are 1.
    n_actions
        Actions per state.
    dim
        Base kernels, d.
    concentration
        Of the Dirichlet distribution from which the rows of base kernels are drawn; small values give nearly
        deterministic rows, 1 uniform ones.
    shared
        Whether the weights are the same in every layer, and learners are told so.
    unavailable
        Probability with which an action is unavailable in a state; one of them always is available.
    seed
        Same seed, same world.
    """
    if not 0.0 <= unavailable <= 1.0:
        raise InvalidSpecError(f"unavailable is {unavailable!r}, should be a probability in [0, 1]")
    integer(dim, "dim", 1, InvalidSpecError)
    above_zero(concentration, "concentration", InvalidSpecError)
    layers = TabularModel(layer_sizes, n_actions).layers
    entries = sum(n * n_actions * m for n, m in _steps(layers))
    kernels_fit_in_memory(entries, dim, f"{dim} kernels over layers of {layer_sizes} states", InvalidSpecError)
    rng = generator(seed, Stream.WORLD)
    kernels = [[random_rows(rng, n, n_actions, m, concentration) for n, m in _steps(layers)] for _ in range(dim)]
    weights = rng.dirichlet(np.ones(dim), size=None if shared else layers.horizon)
    if not unavailable:
        return LinearMixtureMDP.from_kernels(kernels, weights)
    masks = [rng.random((n, n_actions)) >= unavailable for n in layers.sizes[:-1]]
    for mask in masks:
        mask[np.arange(len(mask)), rng.integers(n_actions, size=len(mask))] = True
    return LinearMixtureMDP.from_kernels(kernels, weights, available=masks)


def _steps(layers: Layers) -> list[tuple[int, int]]:
    return list(zip(layers.sizes[:-1], layers.sizes[1:], strict=True))


def random_rows(
    rng: np.random.Generator, n: int, n_actions: int, m: int, concentration: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Rows ``(n, n_actions, m)`` drawn from a symmetric Dirichlet distribution."""
    # Drawn in logarithms: with small concentrations every gamma variable of a row may underflow.
    shape = (n, n_actions, m)
    logs = np.log(rng.gamma(concentration + 1.0, size=shape))
    logs += np.log1p(-rng.random(size=shape)) / concentration
    rows = np.exp(logs - logs.max(axis=2, keepdims=True))
    normalised: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = rows / rows.sum(axis=2, keepdims=True)
    return normalised
