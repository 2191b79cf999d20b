"""From a process that is described state by state to layers: which states can be where after h steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import LAYER, fits_in_memory, kernels_fit_in_memory
from advmdp.errors import InvalidSpecError

#: Bytes of one probable next state, in a dictionary.
OUTCOME = 100
#: One step of a process: for a state and an action, the probability of each next state.
Step = Callable[[Any, int], Mapping[Any, float]]


def unroll(
    start: Hashable,
    horizon: int,
    n_actions: int,
    steps: Sequence[Step],
    available: Callable[[Any], NDArray[np.bool_]] | None = None,
) -> tuple[list[list[NDArray[np.float64]]], list[list[Any]]]:
    """The kernels of each process over ``horizon`` steps, and the states of layers 0..H-1.

    Layer h holds, in sorted order, what *any* of the processes can reach in h steps, so that layers tell nothing of the
    weights with which processes are mixed.  Layers with the same states share one array.  ``available`` says which
    actions a state has; of the others the rows are zero.
    """
    fits_in_memory(horizon * (LAYER + 8 * n_actions * len(steps)), f"a world of {horizon} layers", InvalidSpecError)
    known: dict[Any, list[list[Mapping[Any, float]]]] = {}

    def outcomes(state: Any) -> list[list[Mapping[Any, float]]]:
        if state not in known:
            able = np.ones(n_actions) if available is None else available(state)
            known[state] = [[step(state, a) if able[a] else {} for a in range(n_actions)] for step in steps]
        return known[state]

    layers: list[list[Any]] = [[start]]
    for _ in range(horizon - 1):
        reached = {
            target
            for state in layers[-1]
            for process in outcomes(state)
            for row in process
            for target, probability in row.items()
            if probability > 0.0
        }
        layers.append(sorted(reached))

    sizes = {(tuple(here), tuple(there)): len(here) * len(there) for here, there in itertools.pairwise(layers)}
    what = f"a world with {max(map(len, layers))} states in a layer"
    kernels_fit_in_memory(n_actions * sum(sizes.values()), len(steps), what, InvalidSpecError)
    built: dict[tuple[tuple[Any, ...], tuple[Any, ...]], list[NDArray[np.float64]]] = {}
    kernels: list[list[NDArray[np.float64]]] = [[] for _ in steps]
    for h in range(horizon - 1):
        here, there = layers[h], layers[h + 1]
        key = (tuple(here), tuple(there))
        if key not in built:
            place = {state: i for i, state in enumerate(there)}
            built[key] = [np.zeros((len(here), n_actions, len(there))) for _ in steps]
            for i, state in enumerate(here):
                for array, process in zip(built[key], outcomes(state), strict=True):
                    for action, row in enumerate(process):
                        for target, probability in row.items():
                            if probability > 0.0:
                                array[i, action, place[target]] += probability
        for entry, array in zip(kernels, built[key], strict=True):
            entry.append(array)
    for entry in kernels:
        entry.append(np.ones((len(layers[-1]), n_actions, 1)))
    return kernels, layers
