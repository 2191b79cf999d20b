"""The reduced form of a whole ellipsoid set, computed once per set and shared by both solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import kernel
from advmdp.solvers.layout import view1, view2, view3, view4
from advmdp.solvers.presolve import ellipsoid_scratch, presolve_ellipsoid_layer

if TYPE_CHECKING:
    from advmdp.confidence import EllipsoidSet

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class ReducedEllipsoid(NamedTuple):
    """Row sets P = P0 + G chi, |chi| <= 1, E0 + E chi >= 0 of layers 0..H-2, one layer after the other.

    Within a layer of N blocks (s, a), numbered a * S_h + s, with m next states, k = d - 1 coordinates and
    r rows: ``P0`` (m, N), ``G`` (m, k, N), ``E0`` (r, N), ``E`` (r, k, N) (the memory of ``G`` unless the
    parameter is non-negative), ``chi`` (k, N) the shortest feasible point, ``active`` (k, N) the rows it
    lies on, ``smallest`` (N,) the smallest multiple of the radius that leaves the block a row.
    """

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats
    chi: Floats
    active: Integers
    smallest: Floats


def reduce_ellipsoid(confidence_set: EllipsoidSet) -> ReducedEllipsoid:
    """Run the presolve on every layer but the last, whose rows are [1.0]."""
    sizes, n_actions, dim = (
        confidence_set.layer_sizes, confidence_set.n_actions, confidence_set.dim,
    )  # fmt: skip
    blocks = [size * n_actions for size in sizes[:-2]]
    entries = sum(m * n for m, n in zip(sizes[1:-1], blocks, strict=True))
    total, k = sum(blocks), dim - 1
    rows = dim * total if confidence_set.simplex else entries
    slope = np.empty(entries * k)
    reduced = ReducedEllipsoid(
        P0=np.empty(entries),
        G=slope,
        E0=np.empty(rows),
        E=np.empty(rows * k) if confidence_set.simplex else slope,
        chi=np.empty(total * k),
        active=np.empty(total * k, dtype=np.int64),
        smallest=np.empty(total),
    )
    if total:
        _reduce_layers(
            confidence_set.flat_features,
            confidence_set.size_array,
            n_actions,
            np.asarray(confidence_set.centres),
            np.asarray(confidence_set.grams),
            confidence_set.radius,
            confidence_set.simplex,
            *reduced,
            ellipsoid_scratch(max(blocks), max(sizes[1:-1]), dim),
        )
    return reduced


@kernel
def _reduce_layers(
    features: Floats,
    sizes: Integers,
    n_actions: int,
    centres: Floats,
    grams: Floats,
    radius: Floats,
    simplex: bool,
    P0: Floats,
    G: Floats,
    E0: Floats,
    E: Floats,
    chi: Floats,
    active: Integers,
    smallest: Floats,
    scratch: Floats,
) -> None:
    d = centres.shape[1]
    k = d - 1
    entry = 0
    row = 0
    block = 0
    for h in range(sizes.shape[0] - 2):
        n = sizes[h]
        m = sizes[h + 1]
        N = n * n_actions
        r = d if simplex else m
        presolve_ellipsoid_layer(
            view4(features, entry * d, n, n_actions, m, d),
            centres[h],
            grams[h],
            radius[h],
            simplex,
            view2(P0, entry, m, N),
            view3(G, entry * k, m, k, N),
            view2(E0, row, r, N),
            view3(E, row * k, r if simplex else 0, k, N),
            view2(chi, block * k, k, N),
            view2(active, block * k, k, N),
            view1(smallest, block, N),
            scratch,
        )
        entry += N * m
        row += N * r
        block += N
