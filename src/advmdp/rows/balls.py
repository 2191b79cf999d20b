"""The part of a unit ball that lies in a polyhedron, ``|x| <= 1, offset_i + normal_i.x >= 0``: its point next to the
centre, its largest value of a linear function, and the way back into it.

What the row set of a pair is to an ellipsoid, in its own coordinates.  ``normals`` are (k, r) or wider, a column for
each of the r rows, so that loops over rows vectorise.  Both methods keep a list of active rows whose normals are
factored as Q R: of the two ``factors`` (2, k + 1, k + 1) the first has Q' in its first columns, the second R.  ``work``
is (8, w), w at least r and k + 1.
"""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel

# How far below zero a row may be and still count as satisfied.
ROW_TOLERANCE = 1e-14
# A slope, or a cosine, below this is rounding.
FLAT = 1e-13
# By how much points may be outside their set.
ROW_ROUNDING = 1e-9
# No row, and the first one; typed, so that numba does not compile what takes them once more for each constant.
NONE: int = np.int64(-1)  # type: ignore[assignment]
FIRST: int = np.int64(0)  # type: ignore[assignment]


@inner_kernel
def shortest_point(
    normals: Floats, offsets: Floats, point: Floats, active: Integers, factors: Floats, work: Floats
) -> int:
    """The shortest x with ``offsets + normals x >= 0``: Goldfarb and Idnani's dual method, unit Hessian.

    Starts from x = 0, the unconstrained minimum, and adds the most violated row until none is left, keeping the
    multipliers non-negative by dropping rows.  Returns the number of active rows, listed in ``active``, or -1 if no x
    satisfies the rows (or the method did not finish).
    """
    k, r = normals.shape[0], offsets.shape[0]
    basis, triangle = factors[0], factors[1]
    height = work[0]
    lengths = work[1]  # multipliers of the active rows
    falls = work[2]  # by how much they fall along a step
    for j in range(k):
        point[j] = 0.0
    n_active = FIRST
    for _ in range(20 * (r + k)):
        worst = NONE
        lowest = -ROW_TOLERANCE
        for i in range(r):
            height[i] = offsets[i]
        for j in range(k):
            x = point[j]
            for i in range(r):
                height[i] += x * normals[j, i]
        for i in range(r):
            if height[i] < lowest and not is_active(active, n_active, i):
                worst = i
                lowest = height[i]
        if worst < 0:
            return n_active
        gain = 0.0  # multiplier of the row that enters
        while True:
            independent = append_row(normals, worst, basis, triangle, n_active) and n_active < k
            # Dual step length: the first multiplier to vanish.
            drop = NONE
            limit = np.inf
            for p in range(n_active - 1, -1, -1):
                total = triangle[p, n_active]
                for o in range(p + 1, n_active):
                    total -= triangle[p, o] * falls[o]
                falls[p] = total / triangle[p, p]
                if falls[p] > 0.0 and lengths[p] / falls[p] < limit:
                    limit = lengths[p] / falls[p]
                    drop = p
            root = triangle[n_active, n_active]
            full = np.inf
            if independent:
                full = max(-height_of(normals, offsets, worst, point) / (root * root), 0.0)
            length = min(full, limit)
            if length == np.inf:
                return NONE
            if independent:
                for j in range(k):
                    point[j] += length * root * basis[n_active, j]
            for p in range(n_active):
                lengths[p] -= length * falls[p]
            gain += length
            if full <= limit:
                active[n_active] = worst
                lengths[n_active] = gain
                n_active += 1
                break
            for p in range(drop, n_active - 1):
                active[p] = active[p + 1]
                lengths[p] = lengths[p + 1]
            n_active = factor_rows(normals, active, drop, n_active - 1, basis, triangle)
    return NONE


@inner_kernel
def combine(factors: Floats, w: Floats, first: int, count: int, found: Floats) -> None:
    """``found[b] = sum_i factors_i w[i, first + b]``, three at a time, which makes fewer loops."""
    d = w.shape[0]
    for i in range(0, d, 3):
        j, k = min(i + 1, d - 1), min(i + 2, d - 1)
        x = factors[i]
        y = factors[j] if j > i else 0.0
        z = factors[k] if k > j else 0.0
        if i > 0 and x == 0.0 and y == 0.0 and z == 0.0:
            continue
        # Views: where an index might count from the end, a loop does not vectorise.
        one, two, three = w[i, first : first + count], w[j, first : first + count], w[k, first : first + count]
        if i == 0:
            for b in range(count):
                found[b] = x * one[b] + y * two[b] + z * three[b]
        else:
            for b in range(count):
                found[b] += x * one[b] + y * two[b] + z * three[b]


@inner_kernel
def lengths(vectors: Floats, count: int, norm: Floats) -> None:
    """Of the first ``count`` columns."""
    for b in range(count):
        norm[b] = 0.0
    for j in range(vectors.shape[0]):
        for b in range(count):
            norm[b] += vectors[j, b] * vectors[j, b]
    for b in range(count):
        norm[b] = np.sqrt(norm[b])


@inner_kernel
def largest_in_block(
    normals: Floats, offsets: Floats, squares: Floats, shortest: Floats, norm: float, steep: bool, binding: bool,
    g: Floats, rows: Integers, factors: Floats, work: Floats, points: bool,
) -> float:  # fmt: skip
    """max g.x over |x| <= 1, offset_i + normal_i.x >= 0, where ``norm`` is |g|; with ``points``, g receives x.

    Unless a row is ``binding`` the ball decides; where the function is not ``steep`` all points are alike, and the
    ``shortest`` one is taken.  ``rows`` are those that it lies on, -1 beyond their number.
    """
    k = normals.shape[0]
    if binding:
        n_active = FIRST
        while n_active < k and rows[n_active] >= 0:
            n_active += 1
        norm = follow_path(normals, offsets, squares, norm, rows, n_active, g, factors, work, points)
    elif points:
        for j in range(k):
            g[j] = g[j] / norm if steep else shortest[j]
    if points:
        pull_inside(normals, offsets, shortest, g)
    return norm


@inner_kernel
def height_of(normals: Floats, offsets: Floats, i: int, point: Floats) -> float:
    """``offset_i + normal_i.x``."""
    value = offsets[i]
    for j in range(normals.shape[0]):
        value += normals[j, i] * point[j]
    return float(value)


@inner_kernel
def follow_path(
    normals: Floats, offsets: Floats, squares: Floats, norm: float, rows: Integers, n_active: int, g: Floats,
    factors: Floats, work: Floats, points: bool,
) -> float:  # fmt: skip
    """max g.x over |x| <= 1, offset_i + normal_i.x >= 0, a dual value; ``norm`` is |g|, ``squares`` are |normal_i|^2.

    ``rows`` has the ``n_active`` rows that the shortest x lies on.  With ``points``, g receives x.

    x(t), the projection of t g on the polyhedron of the rows, is piecewise linear in t >= 0; the answer is
    where |x(t)| = 1, or where the path ends. On a piece with active rows A (``normals_A = Q R``)

        x = Q y + t (g - Q c),   R' y = -offsets_A,   c = Q'g,   multipliers = R^-1 (y - t c),

    and the piece ends where an inactive row reaches zero (it becomes active) or a multiplier does (its row
    leaves). The path starts at the shortest point, t = 0. With lam = multipliers / t >= 0 the dual value is
    lam.offsets + |g + sum lam_i normal_i|.
    """
    k, r = normals.shape[0], offsets.shape[0]
    height, climb = work[0], work[1]  # row values along the piece: height + t climb
    basis, triangle = factors[0], factors[1]
    moving, y, c = work[3], work[4], work[5]  # moving: g - Q c
    start, rate = work[6], work[7]  # multipliers along the piece: start + t rate
    n_active = factor_rows(normals, rows, FIRST, n_active, basis, triangle)
    t = 0.0
    last = NONE  # the row of the previous event, which may not take part in the next one
    for pieces_left in range(4 * (r + k), 0, -1):
        start_piece(normals, offsets, g, rows, n_active, basis, triangle, moving, y, c, height, climb, start, rate)
        square_fixed = 0.0
        for p in range(n_active):
            square_fixed += y[p] * y[p]
        square_moving = 0.0
        for j in range(k):
            square_moving += moving[j] * moving[j]
        still = square_moving <= FLAT * FLAT * norm * norm
        end = np.inf
        if not still:
            end = np.sqrt(max(0.0, 1.0 - square_fixed) / square_moving)
        enters = leaves = NONE
        for p in range(n_active):
            if rate[p] < 0.0 and rows[p] != last and -start[p] > rate[p] * end:
                falls = rate[p] * rate[p] * squares[rows[p]] > FLAT * FLAT * norm * norm
                if falls:
                    leaves = p
                    end = max(-start[p] / rate[p], t)
        if not still:
            for i in range(r):
                v = climb[i]
                # height + end * climb < 0: the row would be violated at the end of the piece.
                if v < 0.0 and height[i] + end * v < 0.0:
                    moves = v * v > FLAT * FLAT * squares[i] * square_moving
                    if moves and i != last and not is_active(rows, n_active, i):
                        enters, leaves = i, NONE
                        end = max(-height[i] / v, t)
        t = end
        if pieces_left == 1 or (enters < 0 and leaves < 0):
            break
        if enters >= 0:
            last = enters
            rows[min(n_active, k - 1)] = enters
            if n_active < k and append_row(normals, enters, basis, triangle, n_active):
                n_active += 1
        else:
            last = rows[leaves]
            for p in range(leaves, n_active - 1):
                rows[p] = rows[p + 1]
            n_active = factor_rows(normals, rows, leaves, n_active - 1, basis, triangle)

    if points:
        point_of_piece(basis, y, n_active, t, moving, k, c)
    # Where the ball only touches the polyhedron, t = 0 and the dual has no maximiser: stop just before.
    t = max(t, 1e-8 / norm)
    for j in range(k):
        moving[j] = g[j]
    gain = 0.0
    for p in range(n_active):
        lam = max(start[p] / t + rate[p], 0.0)
        i = rows[p]
        gain += lam * offsets[i]
        for j in range(k):
            moving[j] += lam * normals[j, i]
    square = 0.0
    for j in range(k):
        square += moving[j] * moving[j]
    if points:
        for j in range(k):
            g[j] = c[j]
    return float(min(gain + np.sqrt(square), norm))


@inner_kernel
def start_piece(
    normals: Floats, offsets: Floats, g: Floats, rows: Integers, n_active: int, basis: Floats, triangle: Floats,
    moving: Floats, y: Floats, c: Floats, height: Floats, climb: Floats, start: Floats, rate: Floats,
) -> None:  # fmt: skip
    """The affine functions of the piece with these (factored) active rows: R start = y, R rate = -c."""
    k, r = normals.shape[0], offsets.shape[0]
    for j in range(k):
        moving[j] = g[j]
    for p in range(n_active):
        total = -offsets[rows[p]]
        for o in range(p):
            total -= triangle[o, p] * y[o]
        y[p] = total / triangle[p, p]
        inner = 0.0
        for j in range(k):
            inner += basis[p, j] * moving[j]
        for j in range(k):
            moving[j] -= inner * basis[p, j]
        c[p] = inner
    for p in range(n_active - 1, -1, -1):
        from_y = y[p]
        from_c = -c[p]
        for o in range(p + 1, n_active):
            from_y -= triangle[p, o] * start[o]
            from_c -= triangle[p, o] * rate[o]
        start[p] = from_y / triangle[p, p]
        rate[p] = from_c / triangle[p, p]
    for i in range(r):
        height[i] = offsets[i]
        climb[i] = 0.0
    for j in range(k):
        fixed = 0.0
        for p in range(n_active):
            fixed += basis[p, j] * y[p]
        slope = moving[j]
        for i in range(r):
            height[i] += normals[j, i] * fixed
            climb[i] += normals[j, i] * slope


@inner_kernel
def point_of_piece(basis: Floats, y: Floats, n_active: int, t: float, moving: Floats, k: int, point: Floats) -> None:
    """``x(t)`` on the piece.  t is large where most of g has cancelled: what is left is made orthogonal to the active
    rows once more.  Where nothing is left t may be infinite."""
    for p in range(n_active):
        inner = 0.0
        for j in range(k):
            inner += basis[p, j] * moving[j]
        for j in range(k):
            moving[j] -= inner * basis[p, j]
    for j in range(k):
        point[j] = 0.0 if t == np.inf else t * moving[j]
        for p in range(n_active):
            point[j] += basis[p, j] * y[p]


@inner_kernel
def is_active(rows: Integers, n_active: int, i: int) -> bool:
    """Is row i in the list?"""
    for p in range(n_active):  # noqa: SIM110
        if rows[p] == i:
            return True
    return False


@inner_kernel
def factor_rows(normals: Floats, rows: Integers, first: int, n_active: int, basis: Floats, triangle: Floats) -> int:
    """``normals_A = Q R`` from the ``first`` active row on; the number of independent rows, kept in front."""
    kept = first
    for p in range(first, n_active):
        if append_row(normals, rows[p], basis, triangle, kept):
            rows[kept] = rows[p]
            kept += 1
    return kept


@inner_kernel
def append_row(normals: Floats, i: int, basis: Floats, triangle: Floats, p: int) -> bool:
    """Extend ``normals_A = Q R`` by row i (Gram-Schmidt, again if needed); False if it depends on the others."""
    k = normals.shape[0]
    before = 0.0
    for j in range(k):
        x = normals[j, i]
        basis[p, j] = x
        before += x * x
    for o in range(p):
        triangle[o, p] = 0.0
    after = before
    for _ in range(2 if p > 0 else 0):
        for o in range(p):
            inner = 0.0
            for j in range(k):
                inner += basis[o, j] * basis[p, j]
            triangle[o, p] += inner
            for j in range(k):
                basis[p, j] -= inner * basis[o, j]
        after = 0.0
        for j in range(k):
            after += basis[p, j] * basis[p, j]
        if after > 0.25 * before:
            break  # little was cancelled: one sweep leaves it orthogonal to working accuracy
    if after <= FLAT * FLAT * before:
        return False
    root = np.sqrt(after)
    triangle[p, p] = root
    for j in range(k):
        basis[p, j] /= root
    return True


@inner_kernel
def pull_inside(normals: Floats, offsets: Floats, shortest: Floats, x: Floats) -> None:
    """A point that is outside the set by more than rounding, as where an iteration was cut short, is moved towards the
    ``shortest`` one, which is in the set, until it is inside."""
    k, r = normals.shape[0], offsets.shape[0]
    square = 0.0
    along = 0.0
    length = 0.0
    room = 1.0
    for j in range(k):
        way = x[j] - shortest[j]
        square += x[j] * x[j]
        along += shortest[j] * way
        length += way * way
        room -= shortest[j] * shortest[j]
    share = 1.0
    if square > 1.0 + ROW_ROUNDING and length > 0.0:
        # The positive root of |shortest + share way| = 1, in the form in which nothing cancels.
        room = max(room, 0.0)
        root = np.sqrt(along * along + length * room)
        share = room / (root + along) if along > 0.0 else (root - along) / length
    for i in range(r):
        value = height_of(normals, offsets, i, x)
        if value < -ROW_ROUNDING:
            start = max(height_of(normals, offsets, i, shortest), 0.0)
            share = min(share, start / (start - value))
    for j in range(k):
        x[j] = shortest[j] + share * (x[j] - shortest[j])
