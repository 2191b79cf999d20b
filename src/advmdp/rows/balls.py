"""The part of a unit ball that lies in a polyhedron, ``|x| <= 1, offset_i + normal_i.x >= 0``: its point next to the
centre, its largest value of a linear function, and the way back into it.

What the row set of a pair is to an ellipsoid, in its own coordinates.  ``normals`` are (k, r) or wider, a column for
each of the r rows, so that loops over rows vectorise.
"""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import inlined_kernel, inner_kernel

# How far below zero a row may be and still count as satisfied.
ROW_TOLERANCE = 1e-14
# A slope, or a cosine, below this is rounding.
FLAT = 1e-13
# By how much points may be outside their set.
ROW_ROUNDING = 1e-9
# Between which bounds the scale of g, times its length, is sought: where the ball only touches the polyhedron there is
# none that makes |x| = 1, nor where one face of it is best.
NEAREST, FARTHEST = 1e-8, 1e10
# No row, and the first one; typed, so that numba does not compile what takes them once more for each constant.
NONE: int = np.int64(-1)  # type: ignore[assignment]
FIRST: int = np.int64(0)  # type: ignore[assignment]


def memory_rows(k: int) -> int:
    """How many vectors, as long as r and k + 1, :func:`project` works in: the first are the point and the multipliers
    of the ``active`` rows, whose normals are Q R; the last Q', then R."""
    return 9 + 2 * k


@inner_kernel
def project(
    normals: Floats, offsets: Floats, g: Floats, least: float, most: float, active: Integers, work: Floats
) -> tuple[int, bool]:
    """x, the projection of t g on ``offsets + normals'x >= 0``, with |x| = 1 if a t between ``least`` and ``most`` can
    make it so.  The number of active rows; and whether there is an x at all.

    A dual active-set method: where multipliers lam are free, the least ``lam.offsets + |g + normals lam|`` is a formula
    (:func:`best_of_span`).  The most violated row gets a multiplier; all of them go to the best ones of their span, but
    for a row whose multiplier vanishes on the way: it leaves.  The dual value falls, so that no rows are active twice.
    Beyond the limits of t, |.| is a parabola; with g = 0 and t = 1 everywhere: x is next to zero.
    """
    k, r = normals.shape[0], offsets.shape[0]
    x, lam, height, way = work[0], work[1], work[2], work[3]
    n = FIRST
    best_of_span(g, least, most, n, work)
    for _ in range(20 * (r + k)):
        for i in range(r):
            height[i] = offsets[i]
        for j in range(k):
            along = x[j]
            for i in range(r):
                height[i] += along * normals[j, i]
        for p in range(n):
            height[active[p]] = 0.0
        worst = NONE
        lowest = -ROW_TOLERANCE
        for i in range(r):
            if height[i] < lowest:
                worst = i
                lowest = height[i]
        if worst < 0:
            break
        active[n] = worst
        lam[n] = 0.0
        if not append_row(normals, offsets, worst, n, work):  # what it adds to normals.lam, others take away
            for p in range(n):
                way[p] = -work[8 + k + p, n]
            solve_triangle(work[8 + k :], n, way)
            way[n] = 1.0
            if advance(normals, offsets, n + 1, np.inf, active, work) > n:
                return n, False
            n -= 1
        n += 1
        before = NONE
        while before != n:
            best_of_span(g, least, most, n, work)
            before = n
            n = advance(normals, offsets, n, 1.0, active, work)
    return n, True


@inner_kernel
def advance(normals: Floats, offsets: Floats, n: int, most: float, active: Integers, work: Floats) -> int:
    """Move the n multipliers along their way, ``most`` times at most, to where the first vanishes; its row is no longer
    active: n - 1 are.  All n are where none vanishes; if that is without end nothing moves."""
    lam, way = work[1], work[3]
    drop = NONE
    for p in range(n):
        if lam[p] + most * way[p] < 0.0:
            most = -lam[p] / way[p]
            drop = p
    for p in range(n if most < np.inf else 0):
        lam[p] = max(lam[p] + most * way[p], 0.0)
    if drop < 0:
        return n
    for p in range(drop, n - 1):
        active[p], lam[p] = active[p + 1], lam[p + 1]
        append_row(normals, offsets, active[p], p, work)
    return n - 1


@inner_kernel
def best_of_span(g: Floats, least: float, most: float, n: int, work: Floats) -> None:
    """The way to the best multipliers of n active rows, whatever their sign, and x = t (g + normals lam) there.

    ``x = Q y + t moving``,  ``R' y = -offsets``,  ``moving = g - Q c``,  ``c = Q'g``,  ``R lam = y / t - c``.
    """
    k = g.shape[0]
    x, lam, way, moving, y, c = work[0], work[1], work[3], work[4], work[5], work[6]
    basis, triangle = work[7 : 8 + k], work[8 + k :]
    before = 0.0
    for j in range(k):
        moving[j] = g[j]
        before += g[j] * g[j]
    room = 1.0
    for p in range(n):
        c[p] = 0.0
        room -= y[p] * y[p]
    square = before
    for _ in range(2 if n > 0 else 0):
        for p in range(n):
            inner = 0.0
            for j in range(k):
                inner += basis[p, j] * moving[j]
            for j in range(k):
                moving[j] -= inner * basis[p, j]
            c[p] += inner
        square = 0.0
        for j in range(k):
            square += moving[j] * moving[j]
        if square > 1e-4 * before or n == k:
            break  # little was cancelled: one sweep leaves it orthogonal enough
    if n == k:
        square = 0.0  # all was
    t = min(max(np.sqrt(room / square), least), most) if room > 0.0 else least
    for j in range(k):
        total = t * moving[j] if n < k else 0.0
        for p in range(n):
            total += y[p] * basis[p, j]
        x[j] = total
    share = 1.0 / t
    for p in range(n):
        way[p] = share * y[p] - c[p]
    solve_triangle(triangle, n, way)
    for p in range(n):
        way[p] -= lam[p]


@inner_kernel
def solve_triangle(triangle: Floats, n: int, b: Floats) -> None:
    """``R x = b``, in place; the diagonal of R is inverted."""
    for p in range(n - 1, -1, -1):
        total = b[p]
        for o in range(p + 1, n):
            total -= triangle[p, o] * b[o]
        b[p] = total * triangle[p, p]


@inner_kernel
def append_row(normals: Floats, offsets: Floats, i: int, p: int, work: Floats) -> bool:
    """Extend ``Q R``, of p rows, by row i (Gram-Schmidt, again if needed), and y; False if it depends on the others."""
    k = normals.shape[0]
    y, basis, triangle = work[5], work[7 : 8 + k], work[8 + k :]
    before = 0.0
    for j in range(k):
        basis[p, j] = normals[j, i]
        before += normals[j, i] * normals[j, i]
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
    inverse = 1.0 / np.sqrt(after)
    triangle[p, p] = inverse
    for j in range(k):
        basis[p, j] *= inverse
    total = -offsets[i]
    for o in range(p):
        total -= triangle[o, p] * y[o]
    y[p] = total * inverse
    return p < k and after > FLAT * FLAT * before


@inlined_kernel
def largest_in_block(
    normals: Floats, offsets: Floats, shortest: Floats, g: Floats, norm: float, points: bool, x: Floats,
    active: Integers, work: Floats,
) -> float:  # fmt: skip
    """max g.x over |x| <= 1, offset_i + normal_i.x >= 0, a dual value; ``norm``, not zero, is |g|.  With ``points``, x
    attains it."""
    k = normals.shape[0]
    lam, way, sums = work[1], work[3], work[4]
    n, _ = project(normals, offsets, g[:k], NEAREST / norm, FARTHEST / norm, active, work)
    if points:
        for j in range(k):
            x[j] = work[0, j]
        pull_inside(normals, offsets, shortest, x)
    square = 0.0
    for j in range(k):
        square += work[0, j] * work[0, j]
    if square < 1.0 - ROW_ROUNDING:  # a face is best: its multipliers are those of an infinite scale
        for p in range(n):
            way[p] = work[5, p] * norm / FARTHEST
        solve_triangle(work[8 + k :], n, way)
        for p in range(n):
            lam[p] = max(lam[p] - way[p], 0.0)
    value = 0.0
    square = 0.0
    for p in range(n):
        value += lam[p] * offsets[active[p]]
    for j in range(k):
        sums[j] = g[j]
        for p in range(n):
            sums[j] += lam[p] * normals[j, active[p]]
        square += sums[j] * sums[j]
    return float(min(value + np.sqrt(square), norm))


@inner_kernel
def combine(factors: Floats, w: Floats, first: int, count: int, found: Floats) -> None:
    """``found[b] = sum_i factors_i w[i, first + b]``."""
    for i in range(w.shape[0]):
        # Views: where an index might count from the end, a loop does not vectorise.
        x, row = factors[i], w[i, first : first + count]
        if i == 0:
            for b in range(count):
                found[b] = x * row[b]
        elif x != 0.0:
            for b in range(count):
                found[b] += x * row[b]


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
def pull_inside(normals: Floats, offsets: Floats, shortest: Floats, x: Floats) -> None:
    """A point that is outside the set by more than rounding, as where an iteration was cut short, is moved towards the
    ``shortest`` one, which is in the set, until it is inside."""
    k = normals.shape[0]
    square = along = before = 0.0
    for j in range(k):
        away = x[j] - shortest[j]
        square += away * away
        along += away * shortest[j]
        before += shortest[j] * shortest[j]
    share = 1.0
    if square + 2.0 * along + before > 1.0 + ROW_ROUNDING:
        share = (np.sqrt(along * along + square * max(1.0 - before, 0.0)) - along) / square
    for i in range(offsets.shape[0]):
        there = offsets[i]
        for j in range(k):
            there += normals[j, i] * x[j]
        if there < -ROW_ROUNDING:
            here = offsets[i]
            for j in range(k):
                here += normals[j, i] * shortest[j]
            share = min(share, max(here, 0.0) / (max(here, 0.0) - there))
    for j in range(k if share < 1.0 else 0):
        x[j] = shortest[j] + share * (x[j] - shortest[j])
