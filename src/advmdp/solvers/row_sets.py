"""The row sets of any confidence set as one bundle of flat tables, and the extreme means of its layers and pairs.

Occupancy bounds and the conditional step are backward passes that differ in what they do with these means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.confidence.base import ROUNDING, Table
from advmdp.layered.rows import Rows, SparseRows, dense_supports, flat_rows, next_state, row_begin, row_end
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
from advmdp.solvers.weights import largest, largest_of_three, largest_work_size

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
    states: Integers  # of a layer, at most
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
                states=np.empty(widest if confidence_set.sparse else 0, dtype=np.int64),
                order=np.empty(k + 1, dtype=np.int64),
                layer_work=np.empty(k + 1 + (k + 2) * widest * n_actions),
                block_work=np.empty(largest_work_size(k + 1)),
            )  # fmt: skip
        P0, slope, E0, E, chi, active, smallest = confidence_set.reduced
        n_rows = k + 1 if confidence_set.simplex else widest
        return RowData(
            ELLIPSOID, dense_supports(sizes[:-1], n_actions).with_values(P0), slope, E0, E, chi, active, smallest,
            confidence_set.simplex, k,
            states=_NO_ROWS,
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
    order, states = np.empty((2, widest), dtype=np.int64)
    return RowData(
        kind, rows, second, NOTHING, NOTHING, NOTHING, _NO_ROWS, NOTHING, False, 0, states, order, np.empty(widest),
        NOTHING,
    )  # fmt: skip


def _rows_of(balls: L1Set) -> Rows:
    if balls.sparse:
        return flat_rows(balls.centres)
    return dense_supports(balls.layer_sizes, balls.n_actions).with_values(np.concatenate(balls.centres, axis=None))


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
        count = 0
        for s in range(n):
            if reachable[s]:
                data.states[count] = s
                count += 1
        listed_means(data, h, n, n_actions, m, block, data.states, count, values, means, rows)
        return
    entry = data.rows.places[h, 0]
    found = view3(rows, 0, n if wanted else 0, n_actions, m)
    if data.kind == WEIGHTS:
        d = k + 1
        w = view2(data.layer_work, d, d, N)
        one = view1(data.layer_work, 0, d)
        for i in range(d):
            fill(w[i], 0.0)
        width = data.second.shape[0] // data.smallest.shape[0]
        table = view1(data.second, h * width, width)
        for t in range(m):
            f = table[0] * values[t]
            if f != 0.0:
                features = view2(data.rows.values, (entry + t * N) * d, d, N)
                for i in range(d):
                    add_multiple(w[i], f, features[i])
        active = view1(data.active, h * k, k)
        if not data.smallest[h] <= 1.0 + ROUNDING:
            fill(view1(means, 0, N), np.nan)
            return
        if d == 3 and not wanted:
            largest_of_three(table, w, view1(means, 0, N))
            return
        for b in range(N):
            for i in range(d):
                one[i] = w[i, b]
            means[b] = largest(table, active, one, data.order, data.block_work, wanted)
            for i in range(d if wanted else 0):
                w[i, b] = table[0] * data.block_work[i]
        for a in range(n_actions if wanted else 0):
            for s in range(n):
                row = found[s, a]
                for t in range(m):
                    total = 0.0
                    for i in range(d):
                        total += w[i, a * n + s] * data.rows.values[(entry + t * N) * d + i * N + a * n + s]
                    row[t] = total
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
def listed_means(
    data: RowData, h: int, n: int, n_actions: int, m: int, block: int, states: Integers, count: int, values: Floats,
    means: Floats, rows: Floats,
) -> None:  # fmt: skip
    """:func:`layer_means` of some states of a sparse layer."""
    if data.kind == WEIGHTS:
        width = data.second.shape[0] // data.smallest.shape[0]
        mixture_means(
            data.rows, h, n, n_actions, m, view1(data.second, h * width, width), view1(data.active, h * data.k, data.k),
            data.smallest[h] <= 1.0 + ROUNDING, states, count, values, data.order, data.layer_work, data.block_work,
            means, rows,
        )  # fmt: skip
    elif data.kind == KNOWN:
        known_means(data.rows, h, n, n_actions, m, states, count, values, means, rows)
    else:
        few_means(
            data.kind == BOX, data.rows, data.second, h, n, n_actions, m, block, states, count, values, data.order,
            data.layer_work, means, rows,
        )  # fmt: skip


@inner_kernel
def mixture_means(
    rows: Rows, h: int, n: int, n_actions: int, m: int, table: Floats, active: Integers, possible: bool,
    states: Integers, count: int, values: Floats, picks: Integers, work: Floats, block_work: Floats, means: Floats,
    found: Floats,
) -> None:  # fmt: skip
    """Of mixtures of simulators, which none is ``possible`` of where the set is empty."""
    d = active.shape[0] + 1
    w = view1(work, 0, d)
    N = n * n_actions
    start = row_begin(rows, h, 0, m)
    E = row_end(rows, h, N - 1, m) - start
    features = view2(rows.values, start * d, d, E)
    nexts = view1(rows.nexts, start - rows.places[h, 2], E)
    wanted = found.size > 0
    scale = table[0]
    if d == 3 and possible and not wanted:  # three noise models: many pairs at a time
        many = view2(work, d, d, count * n_actions)
        largest_means = view1(work, d + d * count * n_actions, count * n_actions)
        b = 0
        for j in range(count):
            for pair in range(states[j] * n_actions, (states[j] + 1) * n_actions):
                x = 0.0
                y = 0.0
                z = 0.0
                for e in range(row_begin(rows, h, pair, m) - start, row_end(rows, h, pair, m) - start):
                    f = values[nexts[e]]
                    x += features[0, e] * f
                    y += features[1, e] * f
                    z += features[2, e] * f
                many[0, b] = scale * x
                many[1, b] = scale * y
                many[2, b] = scale * z
                b += 1
        largest_of_three(table, many, largest_means)
        for j in range(count):
            for a in range(n_actions):
                means[a * n + states[j]] = largest_means[j * n_actions + a]
        return
    for j in range(count):
        s = states[j]
        for a in range(n_actions):
            begin = row_begin(rows, h, s * n_actions + a, m) - start
            end = row_end(rows, h, s * n_actions + a, m) - start
            for i in range(d):
                total = 0.0
                for e in range(begin, end):
                    total += features[i, e] * values[nexts[e]]
                w[i] = scale * total
            mean = largest(table, active, w, picks, block_work, wanted) if possible else np.nan
            means[a * n + s] = mean
            if wanted:
                row = view1(found, begin, end - begin)
                fill(row, 0.0)
                for i in range(d):
                    add_multiple(row, scale * block_work[i], view1(features[i], begin, end - begin))
                normalise(row)


@inner_kernel
def known_means(
    rows: Rows, h: int, n: int, n_actions: int, m: int, states: Integers, count: int, values: Floats, means: Floats,
    found: Floats,
) -> None:  # fmt: skip
    """Of known kernels."""
    start = row_begin(rows, h, 0, m)
    for j in range(count):
        s = states[j]
        for a in range(n_actions):
            mean = 0.0
            begin = row_begin(rows, h, s * n_actions + a, m)
            for e in range(begin, row_end(rows, h, s * n_actions + a, m)):
                mean += rows.values[e] * values[next_state(rows, h, begin, e)]
                if found.size > 0:
                    found[e - start] = rows.values[e]
            means[a * n + s] = mean


@inner_kernel
def few_means(
    boxes: bool, rows: Rows, second: Floats, h: int, n: int, n_actions: int, m: int, block: int, states: Integers,
    count: int, values: Floats, order: Integers, few: Floats, means: Floats, found: Floats,
) -> None:  # fmt: skip
    """Of boxes or balls: the few values that a row can lead to are those of a layer of one pair."""
    start = row_begin(rows, h, 0, m)
    wanted = found.size > 0
    for j in range(count):
        s = states[j]
        for a in range(n_actions):
            pair = s * n_actions + a
            begin = row_begin(rows, h, pair, m)
            size = row_end(rows, h, pair, m) - begin
            mean = view1(means, a * n + s, 1)
            if size == 0:
                mean[0] = np.nan
                continue
            some = view1(few, 0, size)
            for t in range(size):
                some[t] = values[rows.nexts[begin + t - rows.places[h, 2]]]
            first = view3(rows.values, begin, 1, 1, size)
            row = view3(found, begin - start if wanted else 0, 1 if wanted else 0, 1, size)
            if boxes:
                upper = view3(second, begin, 1, 1, size)
                box_rows(first, upper, some, order, mean)
                if wanted:
                    box_points(first, upper, order, row)
            else:
                radii = view2(second, block + pair, 1, 1)
                l1_rows(first, radii, some, order, mean)
                if wanted:
                    l1_points(first, radii, order, row)


@inner_kernel
def entry_bounds(
    data: RowData, features: Floats, h: int, n: int, n_actions: int, m: int, block: int, policy: Floats, mass: Floats,
    low: Floats, high: Floats,
) -> None:  # fmt: skip
    """Bounds of each entry of a layer with the arguments of :func:`layer_means`, (n, A, m) or those of a sparse layer,
    times the ``policy`` of the pair; those of states without ``mass`` are of no use.

    Those of boxes and balls are attained.  Of ellipsoids they are those of the ball |chi| <= 1 and of the rows of
    single simulators, of which every row is a mixture: ``features`` has theirs where sums of features differ.
    """
    k = data.k
    d = k + 1
    N = n * n_actions
    start = row_begin(data.rows, h, 0, m)
    size = row_end(data.rows, h, N - 1, m) - start
    first = view1(data.rows.values, start, size if data.kind != WEIGHTS else 0)
    if data.kind == WEIGHTS:
        length = data.second.shape[0] // data.smallest.shape[0]
        table = view1(data.second, h * length, length)
        if data.rows.places[h, 1] >= 0:
            first_state = 0
            while first_state < n and not mass[first_state] > 0.0:
                first_state += 1
            last_state = n
            while last_state > first_state and not mass[last_state - 1] > 0.0:
                last_state -= 1
            begin = row_begin(data.rows, h, first_state * n_actions, m) - start
            end = row_begin(data.rows, h, last_state * n_actions, m) - start
            mixture_bounds(table, view2(data.rows.values, start * d, d, size), begin, end, low, high)
        else:
            # Next state by next state, each in the order of pairs a n + s.
            for t in range(m):
                mixture_bounds(
                    table, view2(data.rows.values, (start + t * N) * d, d, N), 0, N, view1(low, size, N),
                    view1(high, size, N),
                )  # fmt: skip
                for b in range(N):
                    at = (b % n * n_actions + b // n) * m + t
                    low[at] = low[size + b]
                    high[at] = high[size + b]
    elif data.kind == ELLIPSOID:
        for b in range(N):
            for t in range(m):
                centre = first[t * N + b]
                width = 0.0
                for j in range(k):
                    slope = data.second[start * k + (t * k + j) * N + b]
                    width += slope * slope
                at = (b % n * n_actions + b // n) * m + t
                low[at] = centre - np.sqrt(width)
                high[at] = centre + np.sqrt(width)
    elif data.kind == L1:
        for pair in range(N):
            width = 0.5 * data.second[block + pair]
            for e in range(row_begin(data.rows, h, pair, m) - start, row_end(data.rows, h, pair, m) - start):
                low[e] = first[e] - width
                high[e] = first[e] + width
    else:
        copy_into(view1(low, 0, size), first)
        copy_into(view1(high, 0, size), view1(data.second, start, size) if data.kind == BOX else first)
    for e in range(size if data.kind != WEIGHTS else 0):
        low[e] = min(max(low[e], 0.0), 1.0)
        high[e] = min(max(high[e], 0.0), 1.0)
    for s in range(n):
        for pair in range(s * n_actions, (s + 1) * n_actions if mass[s] > 0.0 else 0):
            begin = row_begin(data.rows, h, pair, m) - start
            end = row_end(data.rows, h, pair, m) - start
            if features.size > 0:
                simulator_bounds(
                    view2(features, (start + begin) * d, m, d), view1(low, begin, m), view1(high, begin, m),
                    view1(low, size, m), view1(high, size, m),
                )  # fmt: skip
            least = 0.0
            most = 0.0
            if data.kind == KNOWN:
                # Nothing to gain, and differences of sums would carry rounding from layer to layer.
                least = -np.inf
                most = np.inf
            for e in range(begin, end):
                least += low[e]
                most += high[e]
            for e in range(begin, end):  # the others of the row have the rest
                before = low[e]
                low[e] = policy[pair] * max(before, 1.0 - (most - high[e]))
                high[e] = policy[pair] * min(high[e], max(0.0, 1.0 - (least - before)))


@inner_kernel
def simulator_bounds(features: Floats, low: Floats, high: Floats, lowest: Floats, highest: Floats) -> None:
    """Cut [low, high] of a row with features (m, d) to what single simulators say; two working vectors."""
    m, d = features.shape
    fill(lowest, 1.0)
    fill(highest, 0.0)
    for i in range(d):
        mass = 0.0
        for t in range(m):
            mass += features[t, i]
        if mass > 0.0:  # a simulator that says nothing here adds nothing
            for t in range(m):
                lowest[t] = min(lowest[t], features[t, i] / mass)
                highest[t] = max(highest[t], features[t, i] / mass)
    for t in range(m):
        low[t] = max(low[t], lowest[t])
        high[t] = min(high[t], highest[t])


@inner_kernel
def mixture_bounds(table: Floats, features: Floats, begin: int, end: int, low: Floats, high: Floats) -> None:
    """Between which bounds mixtures of some features (d, E) are, by the ball and by the simplex."""
    d = features.shape[0]
    k = d - 1
    scale = table[0]
    if d == 3:
        p, q, r = scale * table[1], scale * table[2], scale * table[3]
        a, b, c = scale * table[4], scale * table[5], scale * table[6]
        f, g, l = scale * table[7], scale * table[8], scale * table[9]  # noqa: E741
        for e in range(begin, end):
            x = features[0, e]
            y = features[1, e]
            z = features[2, e]
            centre = p * x + q * y + r * z
            one = a * x + b * y + c * z
            two = f * x + g * y + l * z
            width = np.sqrt(one * one + two * two)
            low[e] = max(centre - width, scale * min(x, min(y, z)))
            high[e] = min(centre + width, scale * max(x, max(y, z)))
        return
    for e in range(begin, end):
        lowest = np.inf
        highest = -np.inf
        centre = 0.0
        for i in range(d):
            x = features[i, e]
            lowest = min(lowest, x)
            highest = max(highest, x)
            centre += table[1 + i] * x
        square = 0.0
        for j in range(k):
            slope = 0.0
            for i in range(d):
                slope += table[1 + d + j * d + i] * features[i, e]
            square += slope * slope
        width = np.sqrt(square)
        low[e] = scale * max(centre - width, lowest)
        high[e] = scale * min(centre + width, highest)
