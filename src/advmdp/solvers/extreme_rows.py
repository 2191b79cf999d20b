"""The largest mean that a function on the next layer can have over each row set of one layer.

One kernel per geometry, each for one layer and one function ``values`` (m,); the smallest mean is
minus the largest one of minus the function. Results go to ``means`` (N,), block (s, a) at a * n + s, and
are NaN where a row set is empty.  The kernels called ``_points`` are given rows (n, A, m) that attain them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.confidence.base import ROUNDING
from advmdp.solvers.centring import way_to_sphere
from advmdp.solvers.certificate import ROW_ROUNDING
from advmdp.solvers.layout import copy_into, view1, view2
from advmdp.solvers.tridiagonal import dot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A slope, or a cosine, below this is rounding.
FLAT = 1e-13
# No row, and the first one; typed, so that numba does not compile what takes them once more for each constant.
NONE: int = np.int64(-1)  # type: ignore[assignment]
FIRST: int = np.int64(0)  # type: ignore[assignment]


@inner_kernel
def sort_decreasing(values: Floats, order: Integers) -> None:
    """Indices of ``values`` from largest to smallest; insertion, as layers are short."""
    for i in range(values.shape[0]):
        j = i
        while j > 0 and values[order[j - 1]] < values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@inner_kernel
def box_rows(lower: Floats, upper: Floats, values: Floats, order: Integers, means: Floats) -> None:
    """Greedy: start from the lower bounds (n, A, m), fill up in decreasing order of ``values``."""
    n, n_actions, m = lower.shape
    sort_decreasing(values, order)
    for s in range(n):
        for a in range(n_actions):
            low = lower[s, a]
            high = upper[s, a]
            left = 1.0
            mean = 0.0
            for t in range(m):
                left -= low[t]
                mean += low[t] * values[t]
            empty = left < -ROUNDING
            for i in range(m):
                if left <= 0.0:
                    break
                t = order[i]
                # A negative room is an interval that misses [0, 1].
                empty = empty or high[t] < low[t]
                filled = min(high[t] - low[t], left)
                mean += filled * values[t]
                left -= filled
            means[a * n + s] = np.nan if empty or left > ROUNDING else mean


@inner_kernel
def box_points(lower: Floats, upper: Floats, order: Integers, rows: Floats) -> None:
    """The rows whose means :func:`box_rows` finds, given the order that it leaves."""
    n, n_actions, m = lower.shape
    for s in range(n):
        for a in range(n_actions):
            left = 1.0
            for t in range(m):
                rows[s, a, t] = lower[s, a, t]
                left -= lower[s, a, t]
            for i in range(m):
                t = order[i]
                filled = min(upper[s, a, t] - lower[s, a, t], max(left, 0.0))
                rows[s, a, t] += filled
                left -= filled


@inner_kernel
def l1_rows(centres: Floats, radii: Floats, values: Floats, order: Integers, means: Floats) -> None:
    """Move half the radius to the best state, taking it from the worst states first."""
    n, n_actions, m = centres.shape
    sort_decreasing(values, order)
    best = order[0]
    for s in range(n):
        for a in range(n_actions):
            centre = centres[s, a]
            mean = 0.0
            for t in range(m):
                mean += centre[t] * values[t]
            left = min(0.5 * radii[s, a], 1.0 - centre[best])
            for i in range(m - 1, 0, -1):
                if left <= 0.0:
                    break
                t = order[i]
                moved = min(centre[t], left)
                mean += moved * (values[best] - values[t])
                left -= moved
            means[a * n + s] = mean


@inner_kernel
def l1_points(centres: Floats, radii: Floats, order: Integers, rows: Floats) -> None:
    """The rows whose means :func:`l1_rows` finds, given the order that it leaves."""
    n, n_actions, m = centres.shape
    best = order[0]
    for s in range(n):
        for a in range(n_actions):
            copy_into(rows[s, a], centres[s, a])
            left = min(0.5 * radii[s, a], 1.0 - centres[s, a, best])
            for i in range(m - 1, 0, -1):
                t = order[i]
                moved = min(centres[s, a, t], max(left, 0.0))
                rows[s, a, best] += moved
                rows[s, a, t] -= moved
                left -= moved


@inner_kernel
def known_rows(kernels: Floats, values: Floats, means: Floats) -> None:
    """The mean itself."""
    n, n_actions, _m = kernels.shape
    for s in range(n):
        for a in range(n_actions):
            means[a * n + s] = dot(kernels[s, a], values)


@inner_kernel
def ellipsoid_rows(
    P0: Floats,
    G: Floats,
    E0: Floats,
    E: Floats,
    active: Integers,
    smallest: Floats,
    values: Floats,
    layer_work: Floats,
    block_work: Floats,
    rows: Integers,
    means: Floats,
    points: bool,
) -> None:
    """max values.(P0 + G chi) over |chi| <= 1, E0 + E chi >= 0.

    The ball alone gives values.P0 + |g| at chi = g / |g|, g = G' values; where that point keeps the rows
    it is the answer. The other blocks go to :func:`ball_and_rows` one by one. In every case the result is
    a value of the dual problem, hence an upper bound also where rounding or an iteration limit interferes.
    ``points``: for :func:`ellipsoid_points`.
    """
    m, k, N = G.shape
    r = E0.shape[0]
    base = view1(layer_work, 0, N)
    norm = view1(layer_work, N, N)
    least = view1(layer_work, 2 * N, N)
    slope = view2(layer_work, 3 * N, k, N)
    row = view1(layer_work, (3 + k) * N, N)
    for b in range(N):
        base[b] = 0.0
        norm[b] = 0.0
        least[b] = 0.0
    for j in range(k):
        for b in range(N):
            slope[j, b] = 0.0
    for t in range(m):
        f = values[t]
        if f == 0.0:
            continue
        for b in range(N):
            base[b] += P0[t, b] * f
        for j in range(k):
            for b in range(N):
                slope[j, b] += G[t, j, b] * f
    for j in range(k):
        for b in range(N):
            norm[b] += slope[j, b] * slope[j, b]
    for b in range(N):
        norm[b] = np.sqrt(norm[b])
    # least: the smallest row value at chi = g / |g|, times |g|.
    for i in range(r):
        for b in range(N):
            row[b] = E0[i, b] * norm[b]
        for j in range(k):
            for b in range(N):
                row[b] += E[i, j, b] * slope[j, b]
        for b in range(N):
            least[b] = min(least[b], row[b])
    ball_and_rows(E0, E, active, smallest, slope, norm, least, block_work, rows, points)
    highest = values[0]
    for t in range(1, m):
        highest = max(highest, values[t])
    for b in range(N):
        # No distribution has a mean above the largest value.
        means[b] = min(base[b] + norm[b], highest) if smallest[b] <= 1.0 + ROUNDING else np.nan


@inner_kernel
def ellipsoid_points(
    P0: Floats, G: Floats, E0: Floats, E: Floats, shortest: Floats, layer_work: Floats, rows: Floats
) -> None:
    """After :func:`ellipsoid_rows` with ``points``, from what it left in ``layer_work``: rows of the set
    that attain the means.

    A point that is outside its set by more than rounding, as where the iteration was cut short, is moved towards the
    ``shortest`` one of its block, which is in the set, until it is inside.
    """
    m, k, N = G.shape
    n = rows.shape[0]
    norm = view1(layer_work, N, N)
    least = view1(layer_work, 2 * N, N)
    slope = view2(layer_work, 3 * N, k, N)
    for b in range(N):
        square = 0.0
        along = 0.0
        length = 0.0
        inside = 1.0
        for j in range(k):
            if least[b] > -np.inf:
                slope[j, b] = slope[j, b] / norm[b] if norm[b] > FLAT and least[b] >= 0.0 else shortest[j, b]
            way = slope[j, b] - shortest[j, b]
            square += slope[j, b] * slope[j, b]
            along += shortest[j, b] * way
            length += way * way
            inside -= shortest[j, b] * shortest[j, b]
        share = 1.0
        if square > 1.0 + ROW_ROUNDING and length > 0.0:
            share = way_to_sphere(along, length, inside)
        for i in range(E0.shape[0]):
            value = E0[i, b]
            start = E0[i, b]
            for j in range(k):
                value += E[i, j, b] * slope[j, b]
                start += E[i, j, b] * shortest[j, b]
            if value < -ROW_ROUNDING:
                start = max(start, 0.0)
                share = min(share, start / (start - value))
        row = rows[b % n, b // n]
        total = 0.0
        for t in range(m):
            value = P0[t, b]
            for j in range(k):
                value += G[t, j, b] * (shortest[j, b] + share * (slope[j, b] - shortest[j, b]))
            row[t] = max(value, 0.0)
            total += row[t]
        for t in range(m):
            row[t] /= total


def block_work_size(n_rows: int, k: int) -> int:
    """Length of the ``block_work`` of :func:`ellipsoid_rows`."""
    return n_rows * (k + 2) + k + path_work_size(n_rows, k)


def path_work_size(n_rows: int, k: int) -> int:
    """Length of the ``work`` of :func:`follow_path`."""
    return 3 * n_rows + 2 * k * k + 5 * k


@inner_kernel
def ball_and_rows(
    E0: Floats,
    E: Floats,
    active: Integers,
    smallest: Floats,
    slope: Floats,
    gains: Floats,
    least: Floats,
    work: Floats,
    rows: Integers,
    points: bool,
) -> None:
    """max g.chi over |chi| <= 1, offset_i + normal_i.chi >= 0, for the blocks where some row binds.

    ``gains`` holds |g| (the answer where ``least`` >= 0) and receives a dual value.  With ``points``, ``slope``, which
    holds g, receives chi, and ``least`` is -inf then.
    """
    r, k = E0.shape[0], E.shape[1]
    normals = view2(work, 0, k, r)  # a column per row, so that loops over rows vectorise
    used = k * r
    offsets = view1(work, used, r)
    squares = view1(work, used + r, r)  # |normal_i|^2
    g = view1(work, used + 2 * r, k)
    used += 2 * r + k
    for b in range(E0.shape[1]):
        if not (least[b] < 0.0 and gains[b] > FLAT and smallest[b] <= 1.0 + ROUNDING):
            continue
        for i in range(r):
            offsets[i] = E0[i, b]
            squares[i] = 0.0
        for j in range(k):
            g[j] = slope[j, b]
            for i in range(r):
                x = E[i, j, b]
                normals[j, i] = x
                squares[i] += x * x
        n_active = FIRST
        while n_active < k and active[n_active, b] >= 0:
            rows[n_active] = active[n_active, b]
            n_active += 1
        gains[b] = follow_path(
            normals, offsets, squares, gains[b], rows, n_active, g, view1(work, used, work.shape[0] - used), points
        )
        if points:
            least[b] = -np.inf
            for j in range(k):
                slope[j, b] = g[j]


@inner_kernel
def follow_path(
    normals: Floats,
    offsets: Floats,
    squares: Floats,
    norm: float,
    rows: Integers,
    n_active: int,
    g: Floats,
    work: Floats,
    points: bool,
) -> float:
    """max g.chi over |chi| <= 1, offset_i + normal_i.chi >= 0, a dual value; ``norm`` is |g|.

    ``rows`` has the ``n_active`` rows that the shortest chi lies on.  With ``points``, g receives chi.

    chi(t), the projection of t g on the polyhedron of the rows, is piecewise linear in t >= 0; the answer is
    where |chi(t)| = 1, or where the path ends. On a piece with active rows A (orthonormalised as
    ``normals_A = Q R``, one column per row)

        chi = Q y + t (g - Q c),   R' y = -offsets_A,   c = Q'g,   multipliers = R^-1 (y - t c),

    and the piece ends where an inactive row reaches zero (it becomes active) or a multiplier does (its row
    leaves). The path starts at the shortest point, t = 0, whose active rows the presolve has kept. With
    lam = multipliers / t >= 0 the dual value is lam.offsets + |g + sum lam_i normal_i|.
    """
    k, r = normals.shape
    height = view1(work, 0, r)  # row values along the piece: height + t climb
    climb = view1(work, r, r)
    cosine = view1(work, 2 * r, r)
    used = 3 * r
    basis = view2(work, used, k, k)  # Q' and R
    triangle = view2(work, used + k * k, k, k)
    used += 2 * k * k
    moving = view1(work, used, k)  # g - Q c
    y = view1(work, used + k, k)
    c = view1(work, used + 2 * k, k)
    start = view1(work, used + 3 * k, k)  # multipliers along the piece: start + t rate
    rate = view1(work, used + 4 * k, k)
    n_active = factor_rows(normals, rows, FIRST, n_active, basis, triangle)
    start_piece(normals, offsets, g, rows, n_active, basis, triangle, moving, y, c, height, climb)
    t = 0.0
    last = NONE  # the row of the previous event, which may not take part in the next one
    for _ in range(4 * (r + k)):
        square_fixed = 0.0
        for p in range(n_active):
            square_fixed += y[p] * y[p]
        square_moving = 0.0
        for j in range(k):
            square_moving += moving[j] * moving[j]
        multipliers(triangle, y, c, n_active, start, rate)
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
        if enters >= 0:
            last = enters
            rows[min(n_active, k - 1)] = enters
            if n_active < k and append_row(normals, enters, basis, triangle, n_active):
                extend_piece(normals, offsets, rows, n_active, basis, triangle, moving, y, c, height, climb, cosine)
                n_active += 1
        elif leaves >= 0:
            last = rows[leaves]
            for p in range(leaves, n_active - 1):
                rows[p] = rows[p + 1]
            n_active = factor_rows(normals, rows, leaves, n_active - 1, basis, triangle)
            start_piece(normals, offsets, g, rows, n_active, basis, triangle, moving, y, c, height, climb)
        else:
            break

    if points:
        point_of_piece(basis, y, n_active, t, moving, c)
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
    normals: Floats,
    offsets: Floats,
    g: Floats,
    rows: Integers,
    n_active: int,
    basis: Floats,
    triangle: Floats,
    moving: Floats,
    y: Floats,
    c: Floats,
    height: Floats,
    climb: Floats,
) -> None:
    """The affine functions of the piece with these (factored) active rows, from scratch."""
    k, r = normals.shape
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
    for i in range(r):
        height[i] = offsets[i]
        climb[i] = 0.0
    for j in range(k):
        fixed_j = 0.0
        for p in range(n_active):
            fixed_j += basis[p, j] * y[p]
        moving_j = moving[j]
        for i in range(r):
            height[i] += normals[j, i] * fixed_j
            climb[i] += normals[j, i] * moving_j


@inner_kernel
def extend_piece(
    normals: Floats,
    offsets: Floats,
    rows: Integers,
    p: int,
    basis: Floats,
    triangle: Floats,
    moving: Floats,
    y: Floats,
    c: Floats,
    height: Floats,
    climb: Floats,
    cosine: Floats,
) -> None:
    """Take the p-th active row, already factored, into the affine functions of the piece."""
    k, r = normals.shape
    total = -offsets[rows[p]]
    for o in range(p):
        total -= triangle[o, p] * y[o]
    shift = total / triangle[p, p]
    inner = 0.0
    for j in range(k):
        inner += basis[p, j] * moving[j]
    for j in range(k):
        moving[j] -= inner * basis[p, j]
    y[p] = shift
    c[p] = inner
    for i in range(r):
        cosine[i] = 0.0
    for j in range(k):
        x = basis[p, j]
        for i in range(r):
            cosine[i] += normals[j, i] * x
    for i in range(r):
        height[i] += cosine[i] * shift
        climb[i] -= cosine[i] * inner


@inner_kernel
def point_of_piece(basis: Floats, y: Floats, n_active: int, t: float, moving: Floats, point: Floats) -> None:
    """``chi(t)`` on the piece.  t is large where most of g has cancelled: what is left is made orthogonal to the active
    rows once more.  Where nothing is left t may be infinite."""
    k = moving.shape[0]
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
def multipliers(triangle: Floats, y: Floats, c: Floats, n_active: int, start: Floats, rate: Floats) -> None:
    """R start = y, R rate = -c."""
    for p in range(n_active - 1, -1, -1):
        from_y = y[p]
        from_c = -c[p]
        for o in range(p + 1, n_active):
            from_y -= triangle[p, o] * start[o]
            from_c -= triangle[p, o] * rate[o]
        inverse = 1.0 / triangle[p, p]
        start[p] = from_y * inverse
        rate[p] = from_c * inverse


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
