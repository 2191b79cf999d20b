"""Rows ``Phi' theta`` with theta in an ellipsoid, pair by pair, in the form that solvers work on.

A block is one pair (s, a) of a layer, with flat index ``b = a * n_states + s``; the block index is the last axis of
every array, so that inner loops run over blocks.  With ``gram = L L'`` the row set of a block is
``P_t = phi_t.centre + g_t.z``, ``|z| <= 1``, ``g_t = radius L^-1 phi_t``.  A reflection turns ``e = sum_t g_t`` into
the first axis, where the condition ``sum_t P_t = 1`` fixes the coordinate ``z0``; what is left is a unit ball again:

    P = P0 + G chi,   |chi| <= 1,   E0 + E chi >= 0        (sum P0 = 1, sum G = 0).

The inequality rows are the entries of P, or the entries of theta where the parameter is known to be non-negative.  A
row that cannot be violated because it does not move (``|E_t| = 0``) is replaced by the harmless ``1 >= 0``, so that no
later step has to know about it.  Emptiness is decided exactly: ``smallest[b]`` is the smallest multiple of the radius
for which the block is not empty, the norm of the shortest z that satisfies all the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import body_of, inner_kernel, kernel
from advmdp.layered.rows import Rows
from advmdp.rows.balls import FLAT, ROW_TOLERANCE, combine, largest_in_block, lengths, memory_rows, project
from advmdp.rows.layer import ROUNDING, Layer, entry_bounds, extreme_means, normalise

# An entry that moves by less than this over the whole ball is a constant.
CONSTANT_ROW = 1e-14
# Emptiness: a block is empty if it needs more than this multiple of its radius.
EMPTY_MARGIN = 1.0 + 1e-12


class ReducedEllipsoid(NamedTuple):
    """Row sets P = P0 + G chi, |chi| <= 1, E0 + E chi >= 0 of layers 0..H-2, one layer after the other.

    Within a layer of N blocks (s, a), numbered a * S_h + s, with m next states, k = d - 1 coordinates and
    r rows: ``P0`` (m, N), ``G`` (m, k, N), ``E0`` (r, N), ``E`` (r, k, N) (the memory of ``G`` unless the
    parameter is non-negative), ``chi`` (k, N) the shortest feasible point, ``smallest`` (N,) the smallest multiple of
    the radius that leaves the block a row.  Where that is above ``EMPTY_MARGIN`` the block is empty, and the others are
    meaningless.
    """

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats
    chi: Floats
    smallest: Floats


def reduce_ellipsoid(
    features: Floats, states: Integers, nexts: Integers, n_actions: int, centres: Floats, grams: Floats,
    radius: Floats, simplex: bool,
) -> ReducedEllipsoid:  # fmt: skip
    """The reduced form of layers with these numbers of ``states`` and ``nexts``, features one layer after the other."""
    d = centres.shape[1]
    k = d - 1
    blocks = [n * n_actions for n in states.tolist()]
    total, entries = sum(blocks), sum(n * m for n, m in zip(blocks, nexts.tolist(), strict=True))
    n_rows = d * total if simplex else entries
    slope = np.empty(entries * k)
    reduced = ReducedEllipsoid(
        P0=np.empty(entries),
        G=slope,
        E0=np.empty(n_rows),
        E=np.empty(n_rows * k) if simplex else slope,
        chi=np.empty(total * k),
        smallest=np.empty(total),
    )
    # What is written must be there once: without E where that is G.
    found = reduced if simplex else reduced._replace(E=slope[:0])
    scratch = scratch_for(d, max(nexts.tolist(), default=1))
    _reduce(features, states, nexts, n_actions, centres, grams, radius, simplex, found, scratch)
    return reduced


class Scratch(NamedTuple):
    """What :func:`reduce_block` works in, and where it leaves a block: d features, m next states or more.

    Of ``rows`` the first is P0, and the last d - 1 are the slopes of its entries in the reflected z, in between there
    are ones for entries that move and zeros for others; ``theta`` has the same of the parameter.
    """

    rows: Floats  # (1 + d, m)
    theta: Floats  # (1 + d, d)
    squares: Floats  # (2, d, d): the whitener and the Cholesky factor
    active: Integers  # (d,)
    work: Floats  # the fourth is the shortest point that satisfies all rows


def scratch_for(d: int, m: int) -> Scratch:
    """For blocks with at most m next states."""
    work = np.empty((3 + memory_rows(d - 1), max(m, d)))
    return Scratch(
        np.empty((1 + d, m)), np.empty((1 + d, d)), np.empty((2, d, d)), np.empty(d, dtype=np.int64), work
    )  # fmt: skip


@kernel
def _reduce(
    features: Floats, states: Integers, nexts: Integers, n_actions: int, centres: Floats, grams: Floats,
    radius: Floats, simplex: bool, reduced: ReducedEllipsoid, scratch: Scratch,
) -> None:  # fmt: skip
    d = centres.shape[1]
    k = d - 1
    rows = scratch.rows
    bounded = scratch.theta if simplex else rows
    entry = 0
    block = 0
    for h in range(states.shape[0]):
        n = states[h]
        m = nexts[h]
        N = n * n_actions
        row = block * d if simplex else entry
        whitening(grams[h], radius[h], scratch.squares)
        for pair in range(N):
            begin = (entry + pair * m) * d
            b = pair % n_actions * n + pair // n_actions
            smallest, rho = reduce_block(features[begin : begin + m * d], centres[h], simplex, scratch)
            reduced.smallest[block + b] = smallest
            if not smallest <= EMPTY_MARGIN:
                continue
            for t in range(m):
                reduced.P0[entry + t * N + b] = rows[0, t]
                for j in range(k):
                    reduced.G[(entry + t * N) * k + j * N + b] = rho * rows[2 + j, t]
            for i in range(d if simplex else m):
                moves = m > 1 and bounded[1, i] > 0.0
                reduced.E0[row + i * N + b] = bounded[0, i] if moves else 1.0
                for j in range(k if simplex else 0):
                    reduced.E[(row + i * N) * k + j * N + b] = rho * bounded[2 + j, i] if moves else 0.0
            for j in range(k):
                reduced.chi[block * k + j * N + b] = scratch.work[3, j] / rho if rho > 0.0 else 0.0
        entry += N * m
        block += N


@inner_kernel
def reduce_block(features: Floats, centre: Floats, simplex: bool, scratch: Scratch) -> tuple[float, float]:
    """One block, its features (m, d) in one vector, whose whitener is there: the smallest multiple of its radius that
    leaves it a row, and the radius of the ball that the last coordinates of the reflected z are in.

    One-dimensional features leave no such coordinates: some arrays then have an axis of length 0.
    """
    d = centre.shape[0]
    m = features.shape[0] // d
    rows, whitener, mirror, sums = scratch.rows, scratch.squares[0], scratch.work[0], scratch.work[1]
    point = scratch.work[3]
    for i in range(d):
        sums[i] = 0.0
    for t in range(m):
        rows[0, t] = 0.0
        for i in range(d):
            x = features[t * d + i]
            rows[1 + i, t] = x
            sums[i] += x
    missing = 1.0
    square = 0.0
    for j in range(d - 1, -1, -1):
        missing -= centre[j] * sums[j]
        mirror[j] = whitener[j, j] * sums[j]
        for t in range(m):
            rows[0, t] += centre[j] * rows[1 + j, t]
            rows[1 + j, t] *= whitener[j, j]
        for i in range(j):
            mirror[j] += whitener[j, i] * sums[i]
            for t in range(m):
                rows[1 + j, t] += whitener[j, i] * rows[1 + i, t]
        square += mirror[j] * mirror[j]
    # ``mirror`` is e: I - 2 v v'/v'v with v = e + sign(e_1) |e| axis_1 turns it into the first axis.
    size = np.sqrt(square)
    none = 0.0 if abs(missing) <= 1e-12 else np.inf
    z0 = missing / size if size > 1e-300 else none
    if not abs(z0) < np.inf:
        return np.inf, 0.0
    first = -z0 if mirror[0] >= 0.0 else z0
    mirror[0] += size if mirror[0] >= 0.0 else -size
    reflect(mirror[:d], first, rows, m, scratch.work[1:3])
    if m == 1:
        # The only distribution on one state; the equality decides, apart from the sign rows of theta.
        for j in range(1 + d):
            rows[j, 0] = 1.0 if j == 0 else 0.0
    # Rounding leaves sum P0 at 1 +- 1e-16 m; spread the rest where it is largest.
    largest = 0
    shift = 0.0
    for t in range(m):
        shift += rows[0, t]
        if rows[0, t] > rows[0, largest]:
            largest = t
    rows[0, largest] += 1.0 - shift
    bounded = rows
    n_rows = m
    if simplex:
        # theta = centre + radius L^-T z.
        bounded = scratch.theta
        n_rows = d
        for i in range(d):
            bounded[0, i] = centre[i]
            for j in range(d):
                bounded[1 + j, i] = whitener[j, i]
        reflect(mirror[:d], first, bounded, d, scratch.work[1:3])
    worst = 0.0
    for i in range(n_rows):
        worst = min(worst, bounded[0, i])
    square = z0 * z0
    possible = True
    for j in range(d):
        point[j] = 0.0
    if worst < -ROW_TOLERANCE:
        for j in range(d - 1):
            mirror[j] = 0.0
        _, possible = project(
            bounded[2:], bounded[0, :n_rows], mirror[: d - 1], 1.0, 1.0, scratch.active, scratch.work[3:]
        )  # fmt: skip
        for j in range(d - 1):
            square += point[j] * point[j]
    return np.sqrt(square) if possible else np.inf, np.sqrt(max(0.0, 1.0 - z0 * z0))


@inner_kernel
def reflect(mirror: Floats, first: float, table: Floats, r: int, work: Floats) -> None:
    """Reflect the slopes in the last d rows of a table, in the first r columns, and fix their first coordinate; a one
    is left in its place.  What hardly moves is a constant: all its coordinates become zero."""
    d = mirror.shape[0]
    inner, size = work[0], work[1]
    square = 0.0
    for t in range(r):
        inner[t] = 0.0
        size[t] = 0.0
    for j in range(d):
        square += mirror[j] * mirror[j]
        for t in range(r):
            inner[t] += table[1 + j, t] * mirror[j]
    twice = 2.0 / square if square > 0.0 else 0.0
    for j in range(d):
        x = twice * mirror[j]
        for t in range(r):
            table[1 + j, t] -= x * inner[t]
            size[t] = max(size[t], abs(table[1 + j, t]) if j > 0 else 0.0)
    for t in range(r):
        table[0, t] += first * table[1, t]
        table[1, t] = 1.0
        for j in range(d if size[t] <= CONSTANT_ROW else 0):
            table[1 + j, t] = 0.0


@inner_kernel
def whitening(gram: Floats, radius: float, squares: Floats) -> None:
    """``radius L^-1``, lower triangular, of ``gram = L L'``, and L; NaN if that is not positive definite."""
    d = gram.shape[0]
    whitener, factor = squares[0], squares[1]
    for i in range(d):
        for j in range(i + 1):
            total = gram[i, j]
            for l in range(j):  # noqa: E741
                total -= factor[i, l] * factor[j, l]
            factor[i, j] = np.sqrt(total) if i == j else total / factor[j, j]
        for j in range(d):
            total = radius if i == j else 0.0
            for l in range(j, i):  # noqa: E741
                total -= factor[i, l] * whitener[l, j]
            whitener[i, j] = total / factor[i, i] if j <= i else 0.0


# --------------------------------------------------------------------------------------------------------
# What passes ask


class EllipsoidRows(NamedTuple):
    """The supports, the reduced form, and memory for a layer and for one block.

    ``features`` are those of simulators, if the parameter is known to be non-negative, and empty otherwise.
    """

    rows: Rows
    sets: ReducedEllipsoid
    features: Floats
    k: int
    active: Integers
    work: Floats


def ellipsoid_rows_of(
    reduced: ReducedEllipsoid, supports: Rows, features: Floats, k: int, widest: int, n_actions: int
) -> EllipsoidRows:
    """For passes, with memory of their own."""
    return EllipsoidRows(
        supports, reduced, features, k, np.empty(k + 1, dtype=np.int64),
        np.empty((8 + 2 * k + memory_rows(k), max(widest * n_actions, k + 1))),
    )  # fmt: skip


@body_of(extreme_means, EllipsoidRows)
def ellipsoid_means(
    data: EllipsoidRows, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """max values.(P0 + G chi) over |chi| <= 1, E0 + E chi >= 0, of all blocks.

    The ball alone gives values.P0 + |g| at chi = g / |g|, g = G' values; where that point keeps the rows it is the
    answer, and other blocks are searched one by one.  In every case the result is a value of the dual problem, hence an
    upper bound also where rounding or an iteration limit interferes.
    """
    n, n_actions, m, k, sets = layer.n, layer.n_actions, layer.m, data.k, data.sets
    N = n * n_actions
    entry = data.rows.places[layer.h, 0]
    r, row = (k + 1, layer.block * (k + 1)) if data.features.size > 0 else (m, entry)
    at = layer.block * k
    P0 = sets.P0[entry : entry + m * N].reshape((m, N))
    G = sets.G[entry * k : (entry + m * N) * k].reshape((m, k * N))
    E0 = sets.E0[row : row + r * N].reshape((r, N))
    E = sets.E[row * k : (row + r * N) * k].reshape((r, k, N))
    chi = sets.chi[at : at + k * N].reshape((k, N))
    work = data.work
    base, norm, least, height, offsets, g, x, shortest = (
        work[0], work[1], work[2], work[3], work[4, :r], work[5], work[6], work[7]
    )  # fmt: skip
    slopes, normals, memory = work[8 : 8 + k], work[8 + k : 8 + 2 * k], work[8 + 2 * k :]
    points = found.shape[0] > 0
    combine(values, P0, 0, N, base)
    for j in range(k):
        combine(values, G, j * N, N, slopes[j])
    lengths(slopes, N, norm)
    # least: the smallest row value at chi = g / |g|, times |g|.
    for b in range(N):
        least[b] = 0.0
    for i in range(r):
        for b in range(N):
            height[b] = E0[i, b] * norm[b]
        for j in range(k):
            for b in range(N):
                height[b] += E[i, j, b] * slopes[j, b]
        for b in range(N):
            least[b] = min(least[b], height[b])
    highest = values[0]
    for t in range(1, m):
        highest = max(highest, values[t])
    for b in range(N):
        pair = b % n * n_actions + b // n
        possible = sets.smallest[layer.block + b] <= 1.0 + ROUNDING
        steep = norm[b] > FLAT and possible
        binding = steep and least[b] < 0.0
        if binding or points:
            for i in range(r):
                offsets[i] = E0[i, b]
            for j in range(k):
                g[j] = slopes[j, b]
                shortest[j] = chi[j, b]
                x[j] = g[j] / norm[b] if steep else shortest[j]
                for i in range(r):
                    normals[j, i] = E[i, j, b]
            if binding:
                norm[b] = largest_in_block(normals, offsets, shortest, g, norm[b], points, x, data.active, memory)
        if points:
            row_found = found[pair * m : (pair + 1) * m]
            for t in range(m):
                row_found[t] = P0[t, b]
                for j in range(k):
                    row_found[t] += G[t, j * N + b] * x[j]
            normalise(row_found)
        # No distribution has a mean above the largest value.
        means[pair] = min(base[b] + norm[b], highest) if possible else np.nan


@body_of(entry_bounds, EllipsoidRows)
def ellipsoid_bounds(data: EllipsoidRows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """Those of the ball |chi| <= 1 and, where every row is a mixture of simulators, those of their rows."""
    n, n_actions, m, k = layer.n, layer.n_actions, layer.m, data.k
    N = n * n_actions
    entry = data.rows.places[layer.h, 0]
    mass = data.work[0]
    mixed = data.features.size > 0
    for pair in range(first * n_actions, end * n_actions):
        b = pair % n_actions * n + pair // n_actions
        some = data.features[(entry + pair * m) * (k + 1) :]
        for i in range(k + 1 if mixed else 0):
            mass[i] = 0.0
            for t in range(m):
                mass[i] += some[t * (k + 1) + i]
        for t in range(m):
            least, most = (1.0, 0.0) if mixed else (0.0, 1.0)
            for i in range(k + 1 if mixed else 0):
                if mass[i] > 0.0:  # a simulator that says nothing here adds nothing
                    least = min(least, some[t * (k + 1) + i] / mass[i])
                    most = max(most, some[t * (k + 1) + i] / mass[i])
            centre = data.sets.P0[entry + t * N + b]
            square = 0.0
            for j in range(k):
                slope = data.sets.G[entry * k + (t * k + j) * N + b]
                square += slope * slope
            low[pair * m + t] = max(centre - np.sqrt(square), least)
            high[pair * m + t] = min(centre + np.sqrt(square), most)
