"""The row sets of any confidence set as one bundle of flat tables, and the extreme means of one of its layers.

Occupancy bounds and the conditional step are backward passes that differ in what they do with these means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.solvers.extreme_rows import (
    block_work_size,
    box_points,
    box_rows,
    ellipsoid_points,
    ellipsoid_rows,
    known_rows,
    l1_points,
    l1_rows,
)
from advmdp.solvers.layout import copy_into, fill, view1, view2, view3

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KNOWN, BOX, L1, ELLIPSOID = range(4)


class RowData(NamedTuple):
    """The tables of a set, all layers in one flat array each, and memory for the row kernels.

    ``first`` and ``second``: lower and upper, centres and radii, kernels and nothing, or P0 and G.
    """

    kind: int
    first: Floats
    second: Floats
    E0: Floats
    E: Floats
    chi: Floats
    active: Integers
    smallest: Floats
    simplex: bool
    k: int
    order: Integers
    layer_work: Floats
    block_work: Floats


NOTHING = np.empty(0)
_NO_ROWS = np.empty(0, dtype=np.int64)


def row_data(confidence_set: ConfidenceSet) -> RowData:
    """The tables of a set, with working memory of its own."""
    widest = max(confidence_set.layer_sizes)
    if isinstance(confidence_set, EllipsoidSet):
        k = confidence_set.dim - 1
        n_rows = k + 1 if confidence_set.simplex else widest
        return RowData(
            ELLIPSOID, *confidence_set.reduced, confidence_set.simplex, k,
            order=np.empty(k, dtype=np.int64),
            layer_work=np.empty((4 + k) * widest * confidence_set.n_actions),
            block_work=np.empty(block_work_size(n_rows, k)),
        )  # fmt: skip
    if isinstance(confidence_set, BoxSet):
        kind, first, second = BOX, confidence_set.flat_lower, confidence_set.flat_upper
    elif isinstance(confidence_set, L1Set):
        kind, first, second = L1, _flat(confidence_set.centres), _flat(confidence_set.radii)
    elif isinstance(confidence_set, KnownKernels):
        kind, first, second = KNOWN, confidence_set.flat_kernels, NOTHING
    else:
        raise TypeError(f"no row problem is known for {type(confidence_set).__name__}")
    order = np.empty(widest, dtype=np.int64)
    return RowData(kind, first, second, NOTHING, NOTHING, NOTHING, _NO_ROWS, NOTHING, False, 0, order, NOTHING, NOTHING)


def _flat(tables: Sequence[Floats]) -> Floats:
    return np.concatenate([table.ravel() for table in tables])


@inner_kernel
def layer_means(
    data: RowData, n: int, n_actions: int, m: int, block: int, entry: int, values: Floats, means: Floats, rows: Floats
) -> None:
    """``means`` (N,): the largest means of ``values`` (m,) over the row sets of the layer of n states whose pairs
    begin at ``block`` and whose entries begin at ``entry``; NaN where one is empty.

    ``rows`` receives the rows that attain them, (n, A, m) from ``entry`` on, unless it has no entries.  Of ellipsoids,
    means are values of the dual problem; rows are points of the set whose means may be lower.
    """
    k = data.k
    N = n * n_actions
    wanted = rows.size > 0
    found = view3(rows, entry if wanted else 0, n if wanted else 0, n_actions, m)
    if data.kind == ELLIPSOID:
        r = k + 1 if data.simplex else m
        at = block * r if data.simplex else entry
        P0 = view2(data.first, entry, m, N)
        G = view3(data.second, entry * k, m, k, N)
        E0 = view2(data.E0, at, r, N)
        E = view3(data.E, at * k, r, k, N)
        ellipsoid_rows(
            P0, G, E0, E, view2(data.active, block * k, k, N), view1(data.smallest, block, N), values,
            data.layer_work, data.block_work, data.order, means, wanted,
        )  # fmt: skip
        if wanted:
            ellipsoid_points(P0, G, E0, E, view2(data.chi, block * k, k, N), data.layer_work, found)
    elif data.kind == BOX:
        lower = view3(data.first, entry, n, n_actions, m)
        upper = view3(data.second, entry, n, n_actions, m)
        box_rows(lower, upper, values, data.order, means)
        if wanted:
            box_points(lower, upper, data.order, found)
    elif data.kind == L1:
        centres = view3(data.first, entry, n, n_actions, m)
        radii = view2(data.second, block, n, n_actions)
        l1_rows(centres, radii, values, data.order, means)
        if wanted:
            l1_points(centres, radii, data.order, found)
    else:
        known_rows(view3(data.first, entry, n, n_actions, m), values, means)
        if wanted:
            copy_into(view1(rows, entry, N * m), view1(data.first, entry, N * m))


@inner_kernel
def row_hull(
    data: RowData,
    features: Floats,
    n: int,
    n_actions: int,
    m: int,
    block: int,
    entry: int,
    s: int,
    a: int,
    hull: Floats,
) -> None:
    """Lower and then upper bounds of the m entries of row (s, a), with the arguments of :func:`layer_means`; the other
    half of ``hull`` is working memory.

    Those of boxes and balls are attained.  Of ellipsoids they are those of the ball |chi| <= 1 and, with ``features``,
    of the rows of single simulators, of which every row is a mixture.
    """
    N = n * n_actions
    b = a * n + s
    at = entry + (s * n_actions + a) * m
    for t in range(m):
        if data.kind == ELLIPSOID:
            centre = data.first[entry + t * N + b]
            width = 0.0
            for j in range(data.k):
                slope = data.second[entry * data.k + (t * data.k + j) * N + b]
                width += slope * slope
            width = np.sqrt(width)
        elif data.kind == L1:
            centre = data.first[at + t]
            width = 0.5 * data.second[block + s * n_actions + a]
        elif data.kind == BOX:
            centre = 0.5 * (data.first[at + t] + data.second[at + t])
            width = 0.5 * (data.second[at + t] - data.first[at + t])
        else:
            centre = data.first[at + t]
            width = 0.0
        hull[t] = min(max(centre - width, 0.0), 1.0)
        hull[m + t] = min(max(centre + width, 0.0), 1.0)
    if features.size > 0:
        d = data.k + 1
        lowest = view1(hull, 2 * m, m)
        highest = view1(hull, 3 * m, m)
        fill(lowest, 1.0)
        fill(highest, 0.0)
        for i in range(d):
            mass = 0.0
            for t in range(m):
                mass += features[(at + t) * d + i]
            if mass > 0.0:  # a simulator that says nothing here adds nothing
                for t in range(m):
                    lowest[t] = min(lowest[t], features[(at + t) * d + i] / mass)
                    highest[t] = max(highest[t], features[(at + t) * d + i] / mass)
        for t in range(m):
            hull[t] = max(hull[t], lowest[t])
            hull[m + t] = min(hull[m + t], highest[t])
    least = 0.0
    most = 0.0
    for t in range(m):
        least += hull[t]
        most += hull[m + t]
    for t in range(m):  # the others of the row have the rest
        before = hull[t]
        hull[t] = max(before, 1.0 - (most - hull[m + t]))
        hull[m + t] = min(hull[m + t], max(0.0, 1.0 - (least - before)))
