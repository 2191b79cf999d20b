"""The row sets of any confidence set as one bundle of flat tables, and the extreme means of its layers and pairs.

Occupancy bounds and the conditional step are backward passes that differ in what they do with these means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.confidence.base import ROUNDING, Table, dense_rows
from advmdp.layered.rows import Rows, SparseRows, flat_rows, row_begin, row_end, row_mean
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
from advmdp.solvers.weights import largest, largest_work_size

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

KNOWN, BOX, L1, ELLIPSOID, WEIGHTS = range(5)


class RowData(NamedTuple):
    """The tables of a set, all layers in flat arrays, and memory for the row kernels.

    ``rows`` and ``second``: lower and upper, centres and radii, kernels and nothing, or, of ellipsoids pair by pair, P0
    and G (see ``reduction``); of mixtures of simulators, the features and the ``table`` of their weights.  ``active``
    and ``smallest`` belong to either kind of ellipsoid.
    """

    kind: int
    rows: Rows
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
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    widest = max(sizes)
    if isinstance(confidence_set, EllipsoidSet):
        k = confidence_set.dim - 1
        weights = confidence_set.weights
        if weights is not None:
            return RowData(
                WEIGHTS, confidence_set.feature_tables.rows, weights.table.ravel(), NOTHING, NOTHING, NOTHING,
                weights.active.ravel(), weights.smallest, True, k,
                order=np.empty(k + 1, dtype=np.int64),
                layer_work=np.empty((k + 1) * (1 + (widest * n_actions if _some_dense(confidence_set) else 0))),
                block_work=np.empty(largest_work_size(k + 1)),
            )  # fmt: skip
        P0, slope, *others = confidence_set.reduced
        n_rows = k + 1 if confidence_set.simplex else widest
        return RowData(
            ELLIPSOID, dense_rows(sizes[:-1], n_actions, P0), slope, *others, confidence_set.simplex, k,
            order=np.empty(k, dtype=np.int64),
            layer_work=np.empty((4 + k) * widest * n_actions),
            block_work=np.empty(block_work_size(n_rows, k)),
        )  # fmt: skip
    if isinstance(confidence_set, BoxSet):
        kind, rows, second = BOX, confidence_set.rows, confidence_set.flat_upper
    elif isinstance(confidence_set, L1Set):
        kind, rows, second = L1, _rows_of(confidence_set), np.concatenate(confidence_set.radii, axis=None)
    elif isinstance(confidence_set, KnownKernels):
        kind, rows, second = KNOWN, confidence_set.rows, NOTHING
    else:
        raise TypeError(f"no row problem is known for {type(confidence_set).__name__}")
    order, layer_work = np.empty(widest, dtype=np.int64), np.empty(widest + 1)
    return RowData(
        kind, rows, second, NOTHING, NOTHING, NOTHING, _NO_ROWS, NOTHING, False, 0, order, layer_work, NOTHING
    )


def _rows_of(balls: L1Set) -> Rows:
    if balls.sparse:
        return flat_rows(balls.centres)
    return dense_rows(balls.layer_sizes, balls.n_actions, np.concatenate(balls.centres, axis=None))


def _some_dense(ellipsoids: EllipsoidSet) -> bool:
    return not all(isinstance(table, SparseRows) for table in ellipsoids.features[:-1])


def table_length(confidence_set: ConfidenceSet) -> int:
    """Entries of the row tables of all layers but the last, each layer by itself."""
    return sum(
        len(table.values) if isinstance(table, SparseRows) else int(np.prod(table.shape[:3]))
        for table in confidence_set._row_data()[0][:-1]
    )


def split_tables(confidence_set: ConfidenceSet, flat: Floats) -> list[Table | SparseRows]:
    """Entries of all layers but the last, in this order, as tables on the supports of the set; the last has ones."""
    tables: list[Table | SparseRows] = []
    start = 0
    for table in confidence_set._row_data()[0][:-1]:
        shape = table.shape[:3]
        size = len(table.values) if isinstance(table, SparseRows) else int(np.prod(shape))
        part = flat[start : start + size]
        tables.append(table.with_values(part) if isinstance(table, SparseRows) else part.reshape(shape))
        start += size
    return [*tables, np.ones((confidence_set.layer_sizes[-2], confidence_set.n_actions, 1))]


@inner_kernel
def layer_means(
    data: RowData, h: int, n: int, n_actions: int, m: int, block: int, reachable: Flags, values: Floats, means: Floats,
    rows: Floats,
) -> None:  # fmt: skip
    """``means`` (N,): the largest means of ``values`` (m,) over the row sets of layer h of n states, whose pairs begin
    at ``block``; NaN where one is empty.  In sparse layers those of states that are not ``reachable`` are left out.

    ``rows`` receives the rows that attain them, (n, A, m) or those of the entries of a sparse layer, unless it has no
    entries.  Of ellipsoids, means are values of the dual problem; rows are points of the set whose means may be lower.
    """
    k = data.k
    N = n * n_actions
    wanted = rows.size > 0
    if data.rows.places[h, 1] >= 0:
        first = row_begin(data.rows, h, 0, m)
        for s in range(n):
            if reachable[s]:
                for a in range(n_actions):
                    pair = s * n_actions + a
                    at = row_begin(data.rows, h, pair, m)
                    size = row_end(data.rows, h, pair, m) - at if wanted else 0
                    means[a * n + s] = pair_mean(
                        data, h, block, pair, m, values, view1(rows, at - first if wanted else 0, size)
                    )
        return
    entry = data.rows.places[h, 0]
    found = view3(rows, 0, n if wanted else 0, n_actions, m)
    if data.kind == WEIGHTS:
        d = k + 1
        w = view2(data.layer_work, d, d, N)
        one = view1(data.layer_work, 0, d)
        for i in range(d):
            fill(w[i], 0.0)
        for t in range(m):
            f = values[t]
            if f != 0.0:
                features = view2(data.rows.values, (entry + t * N) * d, d, N)
                for i in range(d):
                    add_multiple(w[i], f, features[i])
        width = data.second.shape[0] // data.smallest.shape[0]
        table = view1(data.second, h * width, width)
        active = view1(data.active, h * k, k)
        empty = not data.smallest[h] <= 1.0 + ROUNDING
        for b in range(N):
            for i in range(d):
                one[i] = table[0] * w[i, b]
            means[b] = np.nan if empty else largest(table, active, one, data.order, data.block_work, wanted)
            if wanted:
                row = found[b % n, b // n]
                for t in range(m):
                    row[t] = 0.0
                    for i in range(d):
                        share = table[0] * data.block_work[i]
                        row[t] += share * data.rows.values[((entry + t * N) * d + i * N) + b]
                normalise(row)
    elif data.kind == ELLIPSOID:
        r = k + 1 if data.simplex else m
        at = block * r if data.simplex else entry
        P0 = view2(data.rows.values, entry, m, N)
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
        lower = view3(data.rows.values, entry, n, n_actions, m)
        upper = view3(data.second, entry, n, n_actions, m)
        box_rows(lower, upper, values, data.order, means)
        if wanted:
            box_points(lower, upper, data.order, found)
    elif data.kind == L1:
        centres = view3(data.rows.values, entry, n, n_actions, m)
        radii = view2(data.second, block, n, n_actions)
        l1_rows(centres, radii, values, data.order, means)
        if wanted:
            l1_points(centres, radii, data.order, found)
    else:
        known_rows(view3(data.rows.values, entry, n, n_actions, m), values, means)
        if wanted:
            copy_into(view1(rows, 0, N * m), view1(data.rows.values, entry, N * m))


@inner_kernel
def add_multiple(total: Floats, factor: float, x: Floats) -> None:
    """``total += factor x``."""
    for b in range(total.shape[0]):
        total[b] += factor * x[b]


@inner_kernel
def normalise(row: Floats) -> None:
    """Make the positive part of a row sum to one."""
    total = 0.0
    for t in range(row.shape[0]):
        row[t] = max(row[t], 0.0)
        total += row[t]
    for t in range(row.shape[0]):
        row[t] /= total


@inner_kernel
def pair_mean(data: RowData, h: int, block: int, pair: int, m: int, values: Floats, row: Floats) -> float:
    """The largest mean of ``values`` over the row set of one pair of a sparse layer, with the arguments of
    :func:`layer_means`; ``row`` receives the entries of the row that attains it, if it has any."""
    rows = data.rows
    begin = row_begin(rows, h, pair, m)
    end = row_end(rows, h, pair, m)
    shift = rows.places[h, 2]
    size = end - begin
    wanted = row.size > 0
    if data.kind == WEIGHTS:
        if not data.smallest[h] <= 1.0 + ROUNDING:
            return np.nan
        d = data.k + 1
        width = data.second.shape[0] // data.smallest.shape[0]
        table = view1(data.second, h * width, width)
        w = view1(data.layer_work, 0, d)
        weigh(rows, begin, end, shift, values, table[0], w)
        mean = largest(table, view1(data.active, h * data.k, data.k), w, data.order, data.block_work, wanted)
        if wanted:
            for t in range(size):
                row[t] = 0.0
                for i in range(d):
                    row[t] += table[0] * data.block_work[i] * rows.values[(begin + t) * d + i]
            normalise(row)
        return mean
    if data.kind == KNOWN:
        if wanted:
            copy_into(row, view1(rows.values, begin, size))
        return row_mean(rows, h, pair, m, values)
    # The few values that the row can lead to, as a layer of one pair.
    few = view1(data.layer_work, 1, size)
    one = view1(data.layer_work, 0, 1)
    for t in range(size):
        few[t] = values[rows.nexts[begin + t - shift]]
    first = view3(rows.values, begin, 1, 1, size)
    found = view3(row, 0, 1 if wanted else 0, 1, size)
    if size == 0:
        return np.nan
    if data.kind == BOX:
        upper = view3(data.second, begin, 1, 1, size)
        box_rows(first, upper, few, data.order, one)
        if wanted:
            box_points(first, upper, data.order, found)
    else:
        radii = view2(data.second, block + pair, 1, 1)
        l1_rows(first, radii, few, data.order, one)
        if wanted:
            l1_points(first, radii, data.order, found)
    return one[0]


@inner_kernel
def weigh(rows: Rows, begin: int, end: int, shift: int, values: Floats, scale: float, w: Floats) -> None:
    """``w_i = scale sum_t phi_i(t) values(t)`` of a sparse row of features."""
    d = w.shape[0]
    if d == 3:  # as many noise models have
        x = 0.0
        y = 0.0
        z = 0.0
        for e in range(begin, end):
            f = values[rows.nexts[e - shift]]
            x += rows.values[3 * e] * f
            y += rows.values[3 * e + 1] * f
            z += rows.values[3 * e + 2] * f
        w[0] = scale * x
        w[1] = scale * y
        w[2] = scale * z
        return
    fill(w, 0.0)
    for e in range(begin, end):
        f = values[rows.nexts[e - shift]]
        for i in range(d):
            w[i] += rows.values[e * d + i] * f
    for i in range(d):
        w[i] *= scale


@inner_kernel
def row_hull(
    data: RowData,
    features: Floats,
    h: int,
    n: int,
    n_actions: int,
    m: int,
    block: int,
    s: int,
    a: int,
    hull: Floats,
) -> int:
    """Lower and then upper bounds of the entries of row (s, a), with the arguments of :func:`layer_means`; their number,
    of which the other half of ``hull`` is working memory.

    Those of boxes and balls are attained.  Of ellipsoids they are those of the ball |chi| <= 1 and of the rows of single
    simulators, of which every row is a mixture: ``features`` has theirs where sums of features differ.
    """
    N = n * n_actions
    b = a * n + s
    d = data.k + 1
    entry = data.rows.places[h, 0]
    sparse = data.rows.places[h, 1] >= 0
    at = row_begin(data.rows, h, s * n_actions + a, m)
    size = row_end(data.rows, h, s * n_actions + a, m) - at
    first = data.rows.values
    if data.kind == WEIGHTS:
        length = data.second.shape[0] // data.smallest.shape[0]
        table = view1(data.second, h * length, length)
        for t in range(size):
            begin = (at + t) * d if sparse else (entry + t * N) * d + b
            mixture_bounds(table, d, first, begin, 1 if sparse else N, view1(hull, t, size + 1))
    else:
        for t in range(size):
            if data.kind == ELLIPSOID:
                centre = first[entry + t * N + b]
                width = 0.0
                for j in range(data.k):
                    slope = data.second[entry * data.k + (t * data.k + j) * N + b]
                    width += slope * slope
                width = np.sqrt(width)
            elif data.kind == L1:
                centre = first[at + t]
                width = 0.5 * data.second[block + s * n_actions + a]
            elif data.kind == BOX:
                centre = 0.5 * (first[at + t] + data.second[at + t])
                width = 0.5 * (data.second[at + t] - first[at + t])
            else:
                centre = first[at + t]
                width = 0.0
            hull[t] = min(max(centre - width, 0.0), 1.0)
            hull[size + t] = min(max(centre + width, 0.0), 1.0)
    if features.size > 0:
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
    for t in range(size):
        least += hull[t]
        most += hull[size + t]
    for t in range(size):  # the others of the row have the rest
        before = hull[t]
        hull[t] = max(before, 1.0 - (most - hull[size + t]))
        hull[size + t] = min(hull[size + t], max(0.0, 1.0 - (least - before)))
    return size


@inner_kernel
def mixture_bounds(table: Floats, d: int, features: Floats, begin: int, stride: int, bounds: Floats) -> None:
    """First and last of ``bounds``: between which a mixture of d features is, by the ball and by the simplex."""
    k = d - 1
    lowest = np.inf
    highest = -np.inf
    centre = 0.0
    for i in range(d):
        x = table[0] * features[begin + i * stride]
        lowest = min(lowest, x)
        highest = max(highest, x)
        centre += table[1 + i] * x
    square = 0.0
    if highest > lowest:
        for j in range(k):
            slope = 0.0
            for i in range(d):
                slope += table[1 + d + j * d + i] * features[begin + i * stride]
            square += slope * slope
    width = table[0] * np.sqrt(square)
    bounds[0] = min(max(centre - width, lowest), highest)
    bounds[bounds.shape[0] - 1] = max(min(centre + width, highest), lowest)
