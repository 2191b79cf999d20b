"""The row sets of a layer where they are mixtures of the same d simulators: all of them are images of one small set.

If the features of every pair of a layer sum to the same c over the next states, in every coordinate, its row set is

    { sum_i mu_i phi_i / c :  mu in M },   M = { mu >= 0, sum mu = 1, |mu / c - centre|_Lambda <= radius },

with one M for the whole layer.  The largest mean of a function V over the row set is then the largest value of w.mu
over M, w_i = sum_t phi_i(t) V(t) / c: nothing but w depends on the pair.  M itself is what the presolve calls a block,
with the d simulators as next states: mu = P0 + G chi, |chi| <= 1, and mu >= 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.confidence.base import ROUNDING
from advmdp.solvers.centring import way_to_sphere
from advmdp.solvers.certificate import ROW_ROUNDING
from advmdp.solvers.extreme_rows import FIRST, FLAT, follow_path, path_work_size
from advmdp.solvers.layout import fill, view1, view2, view3, view4
from advmdp.solvers.presolve import ROW_TOLERANCE, cholesky_small, ellipsoid_scratch, presolve_ellipsoid_layer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Functions that differ by less than this have no direction that floating point could tell.
SMALLEST_SPREAD = 1e-100


class Weights(NamedTuple):
    """The sets M of layers 0..H-2, one row each.

    ``table``: 1 / c, then P0 (d), G' (k, d), the rows of mu >= 0 in the form offset + G chi (d offsets) with their
    squared and inverse lengths (d each), how far from the centre their planes are and what radius the ball has in them
    (d each), which vertices are in M (d), and the point of the set that is next to the centre, chi (k); with d = 3, six
    points of M among which are all its corners.  ``active``: the rows that the point next to the centre lies on.
    ``smallest``: the smallest multiple of the radius that leaves M a point.
    """

    table: Floats
    active: Integers
    smallest: Floats


def table_width(d: int) -> int:
    """Entries of a row of :class:`Weights`."""
    return 1 + 7 * d + d * (d - 1) + (d - 1) + (18 if d == 3 else 0)


def largest_work_size(d: int) -> int:
    """Length of the ``work`` of :func:`largest`."""
    return 3 * d + path_work_size(d, d - 1)


def weight_sets(sums: Floats, centres: Floats, grams: Floats, radius: Floats) -> Weights:
    """The sets of layers whose features have these ``sums``, c."""
    layers, d = len(sums), centres.shape[1]
    found = Weights(np.zeros((layers, table_width(d))), np.empty((layers, d - 1), dtype=np.int64), np.empty(layers))
    scratch = np.empty(2 * d * d + 3 * d + d * d * d + len(ellipsoid_scratch(1, d, d)))
    prepare(sums, centres, grams, radius, *found, scratch)
    return found


@kernel
def prepare(
    sums: Floats,
    centres: Floats,
    grams: Floats,
    radius: Floats,
    table: Floats,
    active: Integers,
    smallest: Floats,
    scratch: Floats,
) -> None:
    """Fill the rows of :class:`Weights`."""
    d = centres.shape[1]
    k = d - 1
    features = view4(scratch, 0, 1, 1, d, d)
    used = d * d
    G = view3(scratch, used, d, k, 1)
    used += d * k
    nothing = view3(scratch, used, 0, k, 1)
    P0 = view2(scratch, used, d, 1)
    E0 = view2(scratch, used + d, d, 1)
    chi = view2(scratch, used + 2 * d, k, 1)
    factor = view2(scratch, used + 3 * d, d, d)
    used += 3 * d + d * d
    work = view1(scratch, used, scratch.size - used)
    for h in range(sums.shape[0]):
        fill(view1(scratch, 0, d * d), 0.0)
        for i in range(d):
            features[0, 0, i, i] = sums[h]
        presolve_ellipsoid_layer(
            features, centres[h], grams[h], radius[h], False, P0, G, E0, nothing, chi, view2(active[h], 0, k, 1),
            view1(smallest, h, 1), work,
        )  # fmt: skip
        row = table[h]
        row[0] = 1.0 / sums[h]
        if not smallest[h] <= 1.0 + ROUNDING:
            continue
        cholesky_small(grams[h], factor)
        offsets = 1 + d + k * d
        for i in range(d):
            row[1 + i] = P0[i, 0]
            square = 0.0
            for j in range(k):
                row[1 + d + j * d + i] = G[i, j, 0]
                square += G[i, j, 0] * G[i, j, 0]
            inverse = 1.0 / np.sqrt(square) if square > 0.0 else 0.0
            away = -E0[i, 0] * inverse
            row[offsets + i] = E0[i, 0]
            row[offsets + d + i] = square
            row[offsets + 2 * d + i] = inverse
            row[offsets + 3 * d + i] = away
            row[offsets + 4 * d + i] = np.sqrt(max(0.0, (1.0 - away) * (1.0 + away))) if inverse > 0.0 else 0.0
            # |factor' (e_i / c - centre)|, the distance of a vertex.
            distance = 0.0
            for j in range(d):
                total = 0.0
                for l in range(j, d):  # noqa: E741
                    total += factor[l, j] * ((row[0] if l == i else 0.0) - centres[h, l])
                distance += total * total
            row[offsets + 5 * d + i] = 1.0 if np.sqrt(distance) <= radius[h] * (1.0 + ROUNDING) else 0.0
        for j in range(k):
            row[offsets + 6 * d + j] = chi[j, 0]
        if d == 3:
            corners_of_three(view1(row, 0, 28), view1(row, 28, 2), view2(row, 30, 6, 3))


@inner_kernel
def corners_of_three(table: Floats, shortest: Floats, corners: Floats) -> None:
    """The ends of the sides mu_i = 0 of M with d = 3; where a side has none, the point next to the centre."""
    for i in range(6):
        point_of(table, shortest, corners[i])
    for i in range(3):
        inverse, away, radius = table[16 + i], table[19 + i], table[22 + i]
        if inverse > 0.0 and abs(away) <= 1.0:
            j = (i + 1) % 3
            across = inverse * (table[4 + j] * table[7 + i] - table[7 + j] * table[4 + i])
            along = inverse * (table[4 + j] * table[4 + i] + table[7 + j] * table[7 + i])
            middle = table[10 + j] + away * along
            reach = radius * abs(across)
            if middle - reach <= 1.0 + ROW_TOLERANCE and middle + reach >= -ROW_TOLERANCE:
                for end in range(2):
                    share = min(max(middle + (2 * end - 1) * reach, 0.0), 1.0)
                    corners[2 * i + end, i] = 0.0
                    corners[2 * i + end, j] = share
                    corners[2 * i + end, (i + 2) % 3] = 1.0 - share


@inner_kernel
def largest(table: Floats, active: Integers, w: Floats, picks: Integers, work: Floats, points: bool) -> float:
    """max of w.mu over the set M of a row of :class:`Weights`, which must not be empty; w is overwritten.

    A value of the dual problem, so an upper bound also where rounding interferes.  With ``points``, the first d entries
    of ``work`` receive a mu that attains it.  Most of the time one of three guesses is right: the best vertex; the
    point of the ball in the plane sum mu = 1; and that of the ball in one of its sides mu_i = 0.  With d <= 3 there is
    no other case but for rounding.
    """
    d = w.shape[0]
    k = d - 1
    top = w[0]
    low = w[0]
    best = 0
    for i in range(1, d):
        if w[i] > top:
            top = w[i]
            best = i
        low = min(low, w[i])
    spread = top - low
    offsets = 1 + d + k * d
    if not spread > SMALLEST_SPREAD or table[offsets + 5 * d + best] > 0.0:
        if points:
            if spread > SMALLEST_SPREAD:
                for i in range(d):
                    work[i] = 1.0 if i == best else 0.0
            else:
                point_of(table, view1(table, offsets + 6 * d, k), view1(work, 0, d))
        return float(top)
    g = view1(work, d, k)
    climb = view1(work, 2 * d, d)
    base = 0.0
    for i in range(d):
        w[i] -= top  # what is the same for all simulators is exact
        base += table[1 + i] * w[i]
    square = 0.0
    for j in range(k):
        total = 0.0
        for i in range(d):
            total += table[1 + d + j * d + i] * w[i]
        g[j] = total
        square += total * total
    norm = np.sqrt(square)
    if norm <= FLAT * spread:
        if points:
            point_of(table, view1(table, offsets + 6 * d, k), view1(work, 0, d))
        return float(top + min(base + norm, 0.0))
    least = 0.0
    for i in range(d):
        total = 0.0
        for j in range(k):
            total += table[1 + d + j * d + i] * g[j]
        climb[i] = total
        least = min(least, total + table[offsets + i] * norm)
    if least >= 0.0:
        if points:
            for j in range(k):
                g[j] /= norm
            point_inside(table, g, view1(work, 0, d))
        return float(top + min(base + norm, 0.0))
    for i in range(d):
        inverse = table[offsets + 2 * d + i]
        if climb[i] + table[offsets + i] * norm >= 0.0 or inverse == 0.0:
            continue
        # On the side mu_i = 0: chi = away n + radius m / |m|, with n the unit normal and m = g - (g.n) n.
        away = table[offsets + 3 * d + i]
        radius = table[offsets + 4 * d + i]
        along = climb[i] * inverse
        square = 0.0
        for j in range(k):
            x = g[j] - along * inverse * table[1 + d + j * d + i]
            square += x * x
        moving = np.sqrt(square)
        # Its multiplier is away |m| / radius - along.
        if not (away * moving >= along * radius and moving > FLAT * norm):
            continue
        inside = True
        for l in range(d):  # noqa: E741
            if l != i:
                cosine = 0.0
                for j in range(k):
                    cosine += table[1 + d + j * d + l] * table[1 + d + j * d + i]
                cosine *= inverse
                height = table[offsets + l] + away * cosine
                if height * moving + radius * (climb[l] - along * cosine) < -ROW_TOLERANCE * moving:
                    inside = False
        if inside:
            if points:
                for j in range(k):
                    n = inverse * table[1 + d + j * d + i]
                    g[j] = away * n + radius * (g[j] - along * n) / moving
                point_inside(table, g, view1(work, 0, d))
            return float(top + min(base + along * away + moving * radius, 0.0))
    n_active = FIRST
    while n_active < k and active[n_active] >= 0:
        picks[n_active] = active[n_active]
        n_active += 1
    gain = follow_path(
        view2(table, 1 + d, k, d), view1(table, offsets, d), view1(table, offsets + d, d), norm, picks, n_active, g,
        view1(work, 3 * d, work.shape[0] - 3 * d), points,
    )  # fmt: skip
    if points:
        point_inside(table, g, view1(work, 0, d))
    return float(top + min(base + gain, 0.0))


@inner_kernel
def largest_of_three(table: Floats, w: Floats, means: Floats) -> None:
    """:func:`largest` for d = 3 and many functions w ``(3, N)``: M is part of a disc.

    A linear function is largest in a corner or, if that point is in M, where the whole disc would have it.
    """
    # Everything in registers: that is what makes a loop which takes several pairs at a time.
    px, py, pz = table[1], table[2], table[3]
    ax, ay, az, bx, by, bz = table[4], table[5], table[6], table[7], table[8], table[9]
    ex, ey, ez = table[10], table[11], table[12]
    x1, y1, z1, x2, y2, z2 = table[30], table[31], table[32], table[33], table[34], table[35]
    x3, y3, z3, x4, y4, z4 = table[36], table[37], table[38], table[39], table[40], table[41]
    x5, y5, z5, x6, y6, z6 = table[42], table[43], table[44], table[45], table[46], table[47]
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
        point[i] = table[1 + i]
        for j in range(d - 1):
            point[i] += table[1 + d + j * d + i] * chi[j]


@inner_kernel
def point_inside(table: Floats, chi: Floats, point: Floats) -> None:
    """mu = P0 + G chi; if it is outside M by more than rounding, moved towards the point next to the centre."""
    d = point.shape[0]
    k = d - 1
    offsets = 1 + d + k * d
    square = 0.0
    along = 0.0
    length = 0.0
    room = 1.0
    for j in range(k):
        shortest = table[offsets + 6 * d + j]
        way = chi[j] - shortest
        square += chi[j] * chi[j]
        along += shortest * way
        length += way * way
        room -= shortest * shortest
    share = 1.0
    if square > 1.0 + ROW_ROUNDING and length > 0.0:
        share = way_to_sphere(along, length, room)
    for i in range(d):
        value = table[offsets + i]
        start = table[offsets + i]
        for j in range(k):
            value += table[1 + d + j * d + i] * chi[j]
            start += table[1 + d + j * d + i] * table[offsets + 6 * d + j]
        if value < -ROW_ROUNDING:
            start = max(start, 0.0)
            share = min(share, start / (start - value))
    for j in range(k):
        shortest = table[offsets + 6 * d + j]
        chi[j] = shortest + share * (chi[j] - shortest)
    point_of(table, chi, point)
