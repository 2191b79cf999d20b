"""Worlds once more with their layers on supports, whatever their size."""

import numpy as np

from advmdp.layered import LayeredMDP, LinearMixtureMDP, SparseRows


def sparse_table(table):
    """A dense layer (S_h, A, S_{h+1}[, d]) without its zeros."""
    rows = table.reshape(-1, *table.shape[2:])
    pairs, nexts = np.nonzero(rows if rows.ndim == 2 else rows.any(axis=2))
    pointers = np.searchsorted(pairs, np.arange(len(rows) + 1)).astype(np.int64)
    return SparseRows(pointers, nexts.astype(np.int32), rows[pairs, nexts], table.shape)


def sparse_tables(tables):
    """All layers but the last, which is one column of ones."""
    made = {}
    for table in tables[:-1]:
        made.setdefault(id(table), sparse_table(table))
    return [*(made[id(table)] for table in tables[:-1]), tables[-1]]


def sparse_world(world):
    """The same world, stored sparse."""
    masks = None if world.layers.available is None else world.available
    if not isinstance(world, LinearMixtureMDP):
        return LayeredMDP(sparse_tables(world.kernels), masks, scene=world.scene)
    model = world.model
    return LinearMixtureMDP(
        sparse_tables(world.features), world.theta, model.bound, model.simplex, shared=model.shared,
        scales=model.scales, available=masks, scene=world.scene,
    )  # fmt: skip
