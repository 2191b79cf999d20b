"""From base kernels to the features of their mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from advmdp.errors import InvalidMDPError
from advmdp.layered.shape import BoolArray, FloatArray, Layers, read_only
from advmdp.layered.validation import checked_kernels


def stack_kernels(
    base_kernels: Sequence[Sequence[Any]], available: Sequence[BoolArray] | None = None
) -> tuple[list[FloatArray], list[float]]:
    """Base kernels as features of norm at most one, and the scale of each layer (1 for the last)."""
    if not isinstance(base_kernels, Sequence) or len(base_kernels) == 0:
        raise InvalidMDPError(f"base_kernels is {base_kernels!r}, should hold one kernel list or more")
    shapes: list[Layers] = []
    bases: list[list[FloatArray]] = []
    for number, kernels in enumerate(base_kernels):
        try:
            shape, checked = checked_kernels(kernels, available)
        except InvalidMDPError as error:
            raise InvalidMDPError(f"base kernel {number}: {error}") from error
        shapes.append(shape)
        bases.append(checked)
        if shape != shapes[0]:
            raise InvalidMDPError(
                f"base kernel {number} has layers {shape.sizes} and {shape.n_actions} actions, base kernel 0 has "
                f"{shapes[0].sizes} and {shapes[0].n_actions}: they should be equal"
            )
    horizon = shapes[0].horizon
    features: list[FloatArray] = []
    scales: list[float] = []
    built: dict[tuple[int, ...], tuple[FloatArray, float]] = {}
    for h in range(horizon):
        # Layers that share their base kernels share their features too (time-homogeneous worlds).
        key = tuple(id(base[h]) for base in bases) if h < horizon - 1 else (-1,)
        if key not in built:
            stacked = np.stack([base[h] for base in bases], axis=3)
            scale = 1.0
            if h < horizon - 1:
                scale = float(np.sqrt(np.einsum("satd,satd->sat", stacked, stacked).max()))
            stacked /= scale
            built[key] = (read_only(stacked), scale)
        features.append(built[key][0])
        scales.append(built[key][1])
    # B must not be ruled by the last layer, whose parameter is never learnt, unless it is the only one.
    if horizon > 1:
        scales[-1] = min(scales[:-1])
        features[-1] = read_only(features[-1] / scales[-1])
    return features, scales
