"""Rows that are mixtures of the same d simulators: those of a layer are all images of one small set.

If the features of every pair of a layer sum to the same c over the next states, in every coordinate, its row set is

    { sum_i mu_i phi_i / c :  mu in M },   M = { mu >= 0, sum mu = 1, |mu / c - centre|_Lambda <= radius },

with one M for the whole layer.  The largest mean of a function V over the row set is then the largest value of w.mu
over M, w_i = sum_t phi_i(t) V(t) / c: nothing but w depends on the pair.  M itself is a block of an ellipsoid with the
d simulators as next states: mu = P0 + G chi, |chi| <= 1, and mu >= 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import body_of, inner_kernel, kernel
from advmdp.layered.rows import Rows, row_begin, row_end
from advmdp.rows.balls import FIRST, FLAT, ROW_TOLERANCE, follow_path, pull_inside
from advmdp.rows.ellipsoid import Scratch, reduce_block, scratch_for, whitening
from advmdp.rows.layer import ROUNDING, Layer, entry_bounds, extreme_means, normalise

# Functions that differ by less than this have no direction that floating point could tell.
SMALLEST_SPREAD = 1e-100


class Weights(NamedTuple):
    """The sets M of layers 0..H-2.

    ``table`` of a layer has rows of d numbers, of which the first is P0 and the next k are G'; then, from row d on:
    the offsets of mu >= 0 in the form offset + G chi, the squares of their slopes, which vertices are in M, the point
    next to the centre (chi), and 1 / c.  With d = 3 six points of M follow, among which are all its corners.
    ``active``: the rows that the point next to the centre lies on.  ``smallest``: the smallest multiple of the radius
    that leaves M a point.
    """

    table: Floats
    active: Integers
    smallest: Floats


def weight_sets(sums: Floats, centres: Floats, grams: Floats, radius: Floats) -> Weights:
    """The sets of layers whose features have these ``sums``, c."""
    layers, d = len(sums), centres.shape[1]
    table = np.zeros((layers, d + 5 + (6 if d == 3 else 0), d))
    found = Weights(table, np.empty((layers, d - 1), dtype=np.int64), np.empty(layers))
    _fill(sums, centres, grams, radius, found, np.zeros(d * d), scratch_for(d, d))
    return found


@kernel
def _fill(
    sums: Floats, centres: Floats, grams: Floats, radius: Floats, found: Weights, features: Floats, scratch: Scratch
) -> None:
    d = centres.shape[1]
    k = d - 1
    for h in range(sums.shape[0]):
        for i in range(d):
            features[i * d + i] = sums[h]
        whitening(grams[h], radius[h], scratch.squares)
        found.smallest[h], rho, n_active = reduce_block(features, centres[h], False, scratch)
        rows = found.table[h]
        rows[d + 4, 0] = 1.0 / sums[h]
        if not found.smallest[h] <= 1.0 + ROUNDING:
            continue
        for i in range(d):
            rows[0, i] = scratch.rows[0, i]
            for j in range(k):
                x = rho * scratch.rows[2 + j, i]
                rows[1 + j, i] = x
                rows[d + 1, i] += x * x
            rows[d, i] = scratch.rows[0, i] if scratch.rows[1, i] > 0.0 else 1.0
            away = vertex_distance(scratch.squares[1], centres[h], i, 1.0 / sums[h])
            rows[d + 2, i] = 1.0 if away <= radius[h] * (1.0 + ROUNDING) else 0.0
        for j in range(k):
            rows[d + 3, j] = scratch.work[9, j] / rho if rho > 0.0 else 0.0
            found.active[h, j] = scratch.picks[j] if j < n_active else -1
        if d == 3:
            corners_of_three(rows[:8], rows[8:])


@inner_kernel
def vertex_distance(factor: Floats, centre: Floats, i: int, share: float) -> float:
    """|L' (share e_i - centre)|, L the lower triangular ``factor``."""
    d = centre.shape[0]
    square = 0.0
    for j in range(d):
        total = 0.0
        for l in range(j, d):  # noqa: E741
            total += factor[l, j] * ((share if l == i else 0.0) - centre[l])
        square += total * total
    return float(np.sqrt(square))


@inner_kernel
def corners_of_three(table: Floats, corners: Floats) -> None:
    """The ends of the sides mu_i = 0 of M with d = 3; where a side has none, the point next to the centre."""
    for i in range(6):
        point_of(table, table[6], corners[i])
    for i in range(3):
        square = table[4, i]
        inverse = 1.0 / np.sqrt(square) if square > 0.0 else 0.0
        away = -table[3, i] * inverse  # of the side from the centre of the ball
        if square > 0.0 and abs(away) <= 1.0:
            j = (i + 1) % 3
            across = inverse * (table[1, j] * table[2, i] - table[2, j] * table[1, i])
            along = inverse * (table[1, j] * table[1, i] + table[2, j] * table[2, i])
            middle = table[3, j] + away * along
            reach = np.sqrt((1.0 - away) * (1.0 + away)) * abs(across)
            if middle - reach <= 1.0 + ROW_TOLERANCE and middle + reach >= -ROW_TOLERANCE:
                for end in range(2):
                    share = min(max(middle + (2 * end - 1) * reach, 0.0), 1.0)
                    corners[2 * i + end, i] = 0.0
                    corners[2 * i + end, j] = share
                    corners[2 * i + end, (i + 2) % 3] = 1.0 - share


@inner_kernel
def largest(
    table: Floats, active: Integers, w: Floats, picks: Integers, factors: Floats, work: Floats, points: bool
) -> float:
    """max of w.mu over the set M of a layer of :class:`Weights`, which must not be empty; w is overwritten.

    A value of the dual problem, so an upper bound also where rounding interferes.  With ``points``, the first row of
    ``work`` (10, d) receives a mu that attains it.  Most of the time one of two guesses is right: the best vertex, and
    the point of the ball in the plane sum mu = 1.  With d = 3 there is no other case but the corners.
    """
    d = w.shape[0]
    k = d - 1
    mu = work[0]
    g = work[1]
    best = 0
    top = w[0]
    low = w[0]
    for i in range(1, d):
        if w[i] > top:
            top = w[i]
            best = i
        low = min(low, w[i])
    spread = top - low
    if spread > SMALLEST_SPREAD and table[d + 2, best] > 0.0:
        for i in range(d if points else 0):
            mu[i] = 1.0 if i == best else 0.0
        return float(top)
    base = 0.0
    for i in range(d):
        w[i] -= top  # what is the same for all simulators is exact
        base += table[0, i] * w[i]
    square = 0.0
    for j in range(k):
        g[j] = 0.0
        for i in range(d):
            g[j] += table[1 + j, i] * w[i]
        square += g[j] * g[j]
    gain = np.sqrt(square)
    if not spread > SMALLEST_SPREAD or gain <= FLAT * spread:
        base = base if spread > SMALLEST_SPREAD else 0.0
        for j in range(k):
            g[j] = table[d + 3, j]
    else:
        least = 0.0
        for i in range(d):
            climb = table[d, i] * gain
            for j in range(k):
                climb += table[1 + j, i] * g[j]
            least = min(least, climb)
        if least >= 0.0:
            for j in range(k):
                g[j] /= gain
        elif d == 3:  # a corner, as in the function below
            gain = -np.inf
            for i in range(6):
                corner = table[8 + i]
                value = corner[0] * w[0] + corner[1] * w[1] + corner[2] * w[2]
                if value > gain:
                    gain = value
                    best = i
            for i in range(3):
                mu[i] = table[8 + best, i]
            return float(top + min(gain, 0.0))
        else:
            n_active = FIRST
            while n_active < k and active[n_active] >= 0:
                picks[n_active] = active[n_active]
                n_active += 1
            gain = follow_path(table[1:d], table[d], table[d + 1], gain, picks, n_active, g, factors, work[2:], points)
    if points:
        pull_inside(table[1:d], table[d], table[d + 3], g)
        point_of(table, g, mu)
    return float(top + min(base + gain, 0.0))


@inner_kernel
def largest_of_three(table: Floats, w: Floats, means: Floats) -> None:
    """:func:`largest` for d = 3 and many functions w ``(3, N)``: M is part of a disc.

    A linear function is largest in a corner or, if that point is in M, where the whole disc would have it.
    """
    # Everything in registers: that is what makes a loop which takes several pairs at a time.
    px, py, pz = table[0, 0], table[0, 1], table[0, 2]
    ax, ay, az, bx, by, bz = table[1, 0], table[1, 1], table[1, 2], table[2, 0], table[2, 1], table[2, 2]
    ex, ey, ez = table[3, 0], table[3, 1], table[3, 2]
    x1, y1, z1, x2, y2, z2 = table[8, 0], table[8, 1], table[8, 2], table[9, 0], table[9, 1], table[9, 2]
    x3, y3, z3, x4, y4, z4 = table[10, 0], table[10, 1], table[10, 2], table[11, 0], table[11, 1], table[11, 2]
    x5, y5, z5, x6, y6, z6 = table[12, 0], table[12, 1], table[12, 2], table[13, 0], table[13, 1], table[13, 2]
    for b in range(means.shape[0]):
        top = max(w[0, b], max(w[1, b], w[2, b]))
        x = w[0, b] - top  # what is the same for all simulators is exact
        y = w[1, b] - top
        z = w[2, b] - top
        first = ax * x + ay * y + az * z
        second = bx * x + by * y + bz * z
        norm = np.sqrt(first * first + second * second)
        sides = min(ax * first + bx * second + ex * norm, ay * first + by * second + ey * norm)
        sides = min(sides, az * first + bz * second + ez * norm)
        best = px * x + py * y + pz * z + norm if sides >= 0.0 else -np.inf
        best = max(best, max(x1 * x + y1 * y + z1 * z, x2 * x + y2 * y + z2 * z))
        best = max(best, max(x3 * x + y3 * y + z3 * z, x4 * x + y4 * y + z4 * z))
        best = max(best, max(x5 * x + y5 * y + z5 * z, x6 * x + y6 * y + z6 * z))
        means[b] = top + min(best, 0.0)


@inner_kernel
def point_of(table: Floats, chi: Floats, point: Floats) -> None:
    """mu = P0 + G chi."""
    d = point.shape[0]
    for i in range(d):
        point[i] = table[0, i]
        for j in range(d - 1):
            point[i] += table[1 + j, i] * chi[j]


# --------------------------------------------------------------------------------------------------------
# What passes ask


class MixtureRows(NamedTuple):
    """Features on their supports, (d, E) for the E entries of a sparse layer and (m, d, N) for the N pairs of a dense
    one, the :class:`Weights`, and memory."""

    rows: Rows
    table: Floats
    active: Integers
    smallest: Floats
    picks: Integers
    factors: Floats
    layer_work: Floats
    block_work: Floats


def mixture_rows_of(weights: Weights, features: Rows, pairs: int) -> MixtureRows:
    """For passes over layers of at most so many pairs, with memory of their own."""
    d = weights.table.shape[2]
    return MixtureRows(
        features, *weights, np.empty(d, dtype=np.int64), np.empty((2, d, d)), np.empty((d + 1) * pairs + d),
        np.empty((10, d)),
    )  # fmt: skip


@body_of(extreme_means, MixtureRows)
def mixture_means(
    data: MixtureRows, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """The functions of the weights of all pairs first, then their largest values."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    table = data.table[h]
    d = table.shape[1]
    N = layer.n * n_actions
    dense = rows.places[h, 1] < 0
    start = row_begin(rows, h, 0, m)
    size = row_end(rows, h, N - 1, m) - start
    features = rows.values[start * d : (start + size) * d]
    scale = table[d + 4, 0]
    number = N if dense else count * n_actions  # of a sparse layer, the pairs of the states in question alone
    w = data.layer_work[: d * number].reshape((d, number))
    best = data.layer_work[d * number : (d + 1) * number]
    one = data.layer_work[(d + 1) * number : (d + 1) * number + d]
    if dense:
        for x in range(d * N):
            data.layer_work[x] = 0.0
        for t in range(m):
            if values[t] != 0.0:
                for x in range(d * N):
                    data.layer_work[x] += scale * values[t] * features[t * d * N + x]
    else:
        sparse_functions(rows, layer, features.reshape((d, size)), states, count, scale, values, w)
    active = data.active[h]
    points = found.shape[0] > 0
    possible = data.smallest[h] <= 1.0 + ROUNDING
    if d == 3 and possible and not points:
        largest_of_three(table, w, best)
        for j in range(count):
            first = states[j] * n_actions
            shift = 0 if dense else j * n_actions - first
            for pair in range(first, first + n_actions):
                means[pair] = best[pair + shift]
        return
    for j in range(count):
        for a in range(n_actions):
            pair = states[j] * n_actions + a
            for i in range(d):
                one[i] = w[i, pair if dense else j * n_actions + a]
            means[pair] = np.nan
            if possible:
                means[pair] = largest(table, active, one, data.picks, data.factors, data.block_work, points)
            if points:
                begin = row_begin(rows, h, pair, m) - start
                row = found[begin : row_end(rows, h, pair, m) - start]
                if dense:
                    mix(features, pair, N, d * N, data.block_work[0], row)
                else:
                    mix(features, begin, size, 1, data.block_work[0], row)


@inner_kernel
def sparse_functions(
    rows: Rows, layer: Layer, features: Floats, states: Integers, count: int, scale: float, values: Floats, w: Floats
) -> None:
    """``w[i, b] = scale sum_e features[i, e] V(e)`` over the entries of the row of the b-th pair of some states."""
    h, n_actions, m = layer.h, layer.n_actions, layer.m
    d = features.shape[0]
    start = row_begin(rows, h, 0, m)
    nexts = rows.nexts[start - rows.places[h, 2] :]
    b = 0
    for j in range(count):
        for pair in range(states[j] * n_actions, (states[j] + 1) * n_actions):
            begin = row_begin(rows, h, pair, m) - start
            end = row_end(rows, h, pair, m) - start
            if d == 3:  # three noise models: all at once
                x = 0.0
                y = 0.0
                z = 0.0
                for e in range(begin, end):
                    f = values[nexts[e]]
                    x += features[0, e] * f
                    y += features[1, e] * f
                    z += features[2, e] * f
                w[0, b] = scale * x
                w[1, b] = scale * y
                w[2, b] = scale * z
            for i in range(d if d != 3 else 0):
                total = 0.0
                for e in range(begin, end):
                    total += features[i, e] * values[nexts[e]]
                w[i, b] = scale * total
            b += 1


@inner_kernel
def mix(features: Floats, first: int, step: int, stride: int, mu: Floats, row: Floats) -> None:
    """A mixture of simulators: ``step`` from one of them to the next, ``stride`` from one entry to the next."""
    for e in range(row.shape[0]):
        row[e] = 0.0
        for i in range(mu.shape[0]):
            row[e] += mu[i] * features[first + i * step + e * stride]
    normalise(row)


@body_of(entry_bounds, MixtureRows)
def mixture_bounds(data: MixtureRows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """All entries of a sparse layer at a time, or all pairs of a dense one."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    table = data.table[h]
    d = table.shape[1]
    N = layer.n * n_actions
    start = row_begin(rows, h, 0, m)
    size = row_end(rows, h, N - 1, m) - start
    features = rows.values[start * d : (start + size) * d]
    if rows.places[h, 1] >= 0:
        begin = row_begin(rows, h, first * n_actions, m) - start
        stop = row_end(rows, h, end * n_actions - 1, m) - start
        bounds_of_mixtures(table, features.reshape((d, size)), begin, stop, 1, 0, low, high)
        return
    for t in range(m):
        some = features[t * d * N : (t + 1) * d * N].reshape((d, N))
        bounds_of_mixtures(table, some, first * n_actions, end * n_actions, m, t, low, high)


@inner_kernel
def bounds_of_mixtures(
    table: Floats, features: Floats, begin: int, end: int, step: int, shift: int, low: Floats, high: Floats
) -> None:
    """Of entries with features (d, E), by the ball |chi| <= 1 and by single simulators; of e at e step + shift."""
    d = features.shape[0]
    scale = table[d + 4, 0]
    if d == 3:
        p, q, r = scale * table[0, 0], scale * table[0, 1], scale * table[0, 2]
        a, b, c = scale * table[1, 0], scale * table[1, 1], scale * table[1, 2]
        f, g, l = scale * table[2, 0], scale * table[2, 1], scale * table[2, 2]  # noqa: E741
        for e in range(begin, end):
            x = features[0, e]
            y = features[1, e]
            z = features[2, e]
            centre = p * x + q * y + r * z
            one = a * x + b * y + c * z
            two = f * x + g * y + l * z
            width = np.sqrt(one * one + two * two)
            low[e * step + shift] = max(centre - width, scale * min(x, min(y, z)))
            high[e * step + shift] = min(centre + width, scale * max(x, max(y, z)))
        return
    for e in range(begin, end):
        lowest = np.inf
        highest = -np.inf
        centre = 0.0
        for i in range(d):
            x = features[i, e]
            lowest = min(lowest, x)
            highest = max(highest, x)
            centre += table[0, i] * x
        square = 0.0
        for j in range(d - 1):
            slope = 0.0
            for i in range(d):
                slope += table[1 + j, i] * features[i, e]
            square += slope * slope
        low[e * step + shift] = scale * max(centre - np.sqrt(square), lowest)
        high[e * step + shift] = scale * min(centre + np.sqrt(square), highest)
