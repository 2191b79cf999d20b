"""From base kernels to the features of their mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import SparseRows, Table
from advmdp.layered.shape import BoolArray, Layers, read_only
from advmdp.layered.validation import checked_kernels


def stack_kernels(
    base_kernels: Sequence[Sequence[Any]], available: Sequence[BoolArray] | None = None
) -> tuple[list[Table], list[float]]:
    """Base kernels as features of norm at most one, and the scale of each layer (1 for the last)."""
    if not isinstance(base_kernels, Sequence) or len(base_kernels) == 0:
        raise InvalidMDPError(f"base_kernels is {base_kernels!r}, should hold one kernel list or more")
    shapes: list[Layers] = []
    bases: list[list[Table]] = []
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
    features: list[Table] = []
    scales: list[float] = []
    built: dict[tuple[int, ...], tuple[Table, float]] = {}
    for h in range(horizon):
        # Layers that share their base kernels share their features too (time-homogeneous worlds).
        key = tuple(id(base[h]) for base in bases) if h < horizon - 1 else (-1,)
        if key not in built:
            stacked = stack([base[h] for base in bases])
            values = stacked.values if isinstance(stacked, SparseRows) else stacked
            scale = 1.0
            if h < horizon - 1:
                scale = float(np.sqrt(np.einsum("...d,...d->...", values, values).max()))
            built[key] = (divided(stacked, scale), scale)
        features.append(built[key][0])
        scales.append(built[key][1])
    # B must not be ruled by the last layer, whose parameter is never learnt, unless it is the only one.
    if horizon > 1:
        scales[-1] = min(scales[:-1])
        features[-1] = divided(features[-1], scales[-1])
    return features, scales


def divided(table: Table, scale: float) -> Table:
    """The same layer of features divided by a number."""
    if isinstance(table, SparseRows):
        return table.with_values(table.values / scale)
    return read_only(table / scale)


def stack(tables: Sequence[Table]) -> Table:
    """Probabilities of d kernels as features; sparse, on the union of the supports, if one of them is."""
    if not any(isinstance(table, SparseRows) for table in tables):
        return np.stack(tables, axis=3)
    shape = tables[0].shape
    parts = [table if isinstance(table, SparseRows) else _on_support(table) for table in tables]
    keys = [part.pairs * shape[2] + part.nexts for part in parts]
    union = np.sort(np.concatenate(keys))  # np.unique is ten times slower
    union = union[np.append(True, union[1:] > union[:-1])]
    values = np.zeros((union.size, len(tables)))
    for i, (part, key) in enumerate(zip(parts, keys, strict=True)):
        values[np.searchsorted(union, key), i] = part.values
    pairs, nexts = np.divmod(union, shape[2])
    pointers = np.searchsorted(pairs, np.arange(shape[0] * shape[1] + 1)).astype(np.int64)
    return SparseRows(pointers, nexts.astype(np.int32), values, (*shape[:3], len(tables)))


def _on_support(table: NDArray[np.float64]) -> SparseRows:
    rows = table.reshape(-1, table.shape[2])
    pairs, nexts = np.nonzero(rows)
    pointers = np.searchsorted(pairs, np.arange(len(rows) + 1)).astype(np.int64)
    return SparseRows(pointers, nexts.astype(np.int32), rows[pairs, nexts], table.shape)
