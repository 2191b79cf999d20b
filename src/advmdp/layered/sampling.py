"""From simulators to kernels: by sampling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from advmdp._checks import integer
from advmdp.errors import InvalidMDPError
from advmdp.layered.shape import FloatArray, Layers


def sampled_kernels(
    step: Callable[[int, int, int, np.random.Generator], int],
    number: int,
    layers: Layers,
    samples: int,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """The frequencies of next states in ``samples`` calls of a simulator for every pair, the last layer apart."""
    kernels = []
    for h in range(layers.horizon - 1):
        counts = np.zeros((layers.sizes[h], layers.n_actions, layers.sizes[h + 1]))
        for state in range(layers.sizes[h]):
            for action in range(layers.n_actions):
                for _ in range(samples):
                    following = step(h, state, action, rng)
                    where = f"simulator {number}, layer {h}, state {state}, action {action}: next state"
                    integer(following, where, 0, InvalidMDPError)
                    if following >= layers.sizes[h + 1]:
                        raise InvalidMDPError(f"{where} is {following!r}, should be at most {layers.sizes[h + 1] - 1}")
                    counts[state, action, following] += 1.0
        kernels.append(counts / samples)
    kernels.append(np.ones((layers.sizes[-2], layers.n_actions, 1)))
    return kernels
