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
from advmdp._compiled import allocating_kernel, body_of, inner_kernel
from advmdp.layered.rows import Rows
from advmdp.rows.balls import FIRST, FLAT, ROW_TOLERANCE, follow_path, pull_inside, shortest_point
from advmdp.rows.layer import ROUNDING, Layer, entry_bounds, extreme_means, normalise

# An entry that moves by less than this over the whole ball is a constant.
CONSTANT_ROW = 1e-14
# Emptiness: a block is empty if it needs more than this multiple of its radius.
EMPTY_MARGIN = 1.0 + 1e-12


class ReducedEllipsoid(NamedTuple):
    """Row sets P = P0 + G chi, |chi| <= 1, E0 + E chi >= 0 of layers 0..H-2, one layer after the other.

    Within a layer of N blocks (s, a), numbered a * S_h + s, with m next states, k = d - 1 coordinates and
    r rows: ``P0`` (m, N), ``G`` (m, k, N), ``E0`` (r, N), ``E`` (r, k, N) (the memory of ``G`` unless the
    parameter is non-negative), ``chi`` (k, N) the shortest feasible point, ``active`` (k, N) the rows it
    lies on, -1 beyond their number, ``smallest`` (N,) the smallest multiple of the radius that leaves the block a row.
    Where that is above ``EMPTY_MARGIN`` the block is empty, and the others are meaningless.
    """

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats
    chi: Floats
    active: Integers
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
        active=np.empty(total * k, dtype=np.int64),
        smallest=np.empty(total),
    )
    # What is written must be there once: without E where that is G.
    found = reduced if simplex else reduced._replace(E=slope[:0])
    _reduce(features, states, nexts, n_actions, centres, grams, radius, simplex, found)
    return reduced


class Scratch(NamedTuple):
    """What :func:`reduce_layer` works in: N blocks, m next states, d features, r rows of inequalities, k = d - 1."""

    rows: Floats  # (m, d, N)
    e: Floats  # (d, N), as mirror
    mirror: Floats
    blocks: Floats  # (5, N)
    whitener: Floats  # (d, d), as factor
    factor: Floats
    factors: Floats  # (2, d, d)
    normals: Floats  # (k, r)
    offsets: Floats  # (r,)
    point: Floats  # (k,)
    work: Floats  # (8, max(r, d))
    picks: Integers  # (d,)


@allocating_kernel
def _reduce(
    features: Floats, states: Integers, nexts: Integers, n_actions: int, centres: Floats, grams: Floats,
    radius: Floats, simplex: bool, reduced: ReducedEllipsoid,
) -> None:  # fmt: skip
    d = centres.shape[1]
    entry = 0
    block = 0
    for h in range(states.shape[0]):
        n = states[h]
        m = nexts[h]
        N = n * n_actions
        r = d if simplex else m
        scratch = Scratch(
            np.empty((m, d, N)), np.empty((d, N)), np.empty((d, N)), np.empty((5, N)), np.empty((d, d)),
            np.empty((d, d)), np.empty((2, d, d)), np.empty((d - 1, r)), np.empty(r), np.empty(d - 1),
            np.empty((8, max(r, d))), np.empty(d, dtype=np.int64),
        )  # fmt: skip
        some = features[entry * d : (entry + N * m) * d].reshape((n, n_actions, m, d))
        reduce_part(some, centres[h], grams[h], radius[h], simplex, reduced, entry, block, scratch)
        entry += N * m
        block += N


@inner_kernel
def reduce_part(
    features: Floats, centre: Floats, gram: Floats, radius: float, simplex: bool, sets: ReducedEllipsoid,
    entry: int, block: int, scratch: Scratch,
) -> None:  # fmt: skip
    """:func:`reduce_layer` with so many entries and blocks ahead.  Its views are made here: a kernel that allocates
    would count references to them."""
    n, A, m, d = features.shape
    N = n * A
    k = d - 1
    r = d if simplex else m
    row = block * r if simplex else entry
    slopes = r if simplex else 0
    at = block * k
    found = ReducedEllipsoid(
        sets.P0[entry : entry + m * N].reshape((m, N)), sets.G[entry * k : (entry + m * N) * k].reshape((m, k, N)),
        sets.E0[row : row + r * N].reshape((r, N)), sets.E[row * k : (row + slopes * N) * k].reshape((slopes, k, N)),
        sets.chi[at : at + k * N].reshape((k, N)), sets.active[at : at + k * N].reshape((k, N)),
        sets.smallest[block : block + N],
    )  # fmt: skip
    reduce_layer(features, centre, gram, radius, simplex, found, scratch)


@inner_kernel
def reduce_layer(
    features: Floats, centre: Floats, gram: Floats, radius: float, simplex: bool, found: ReducedEllipsoid,
    scratch: Scratch,
) -> None:  # fmt: skip
    """One layer, features (n, A, m, d).

    One-dimensional features need k = 0: the arrays then have a middle axis of length 0.
    """
    n, A, m, d = features.shape
    k = d - 1
    N = n * A
    n_rows = d if simplex else m
    P0, G = found.P0, found.G
    rows, e, mirror, whitener = scratch.rows, scratch.e, scratch.mirror, scratch.whitener
    missing, twice, first, rho, inner = (
        scratch.blocks[0], scratch.blocks[1], scratch.blocks[2], scratch.blocks[3], scratch.blocks[4],
    )  # fmt: skip
    normals, offsets, point = scratch.normals, scratch.offsets, scratch.point
    whitening(gram, radius, scratch.factor, whitener)
    for i in range(d):
        set_to(e[i], 0.0)
    set_to(missing, 1.0)
    for t in range(m):
        set_to(P0[t], 0.0)
        for i in range(d):
            take_feature(features, t, i, inner)
            add_multiple(P0[t], centre[i], inner)
            if i == 0:
                for j in range(d):
                    multiply(rows[t, j], whitener[j, 0], inner)
            for j in range(i if i > 0 else d, d):
                add_multiple(rows[t, j], whitener[j, i], inner)
        for i in range(d):
            add_multiple(e[i], 1.0, rows[t, i])
        add_multiple(missing, -1.0, P0[t])
    reflection(e, missing, mirror, twice, first, rho)
    for t in range(m):
        if m > 1:
            reduce_row(rows[t], mirror, twice, first, rho, inner, P0[t], G[t])
        else:
            # The only distribution on one state; the equality decides, apart from the sign rows of theta.
            set_to(P0[t], 1.0)
            for j in range(k):
                set_to(G[t, j], 0.0)

    # Block by block: the rows, and whether anything satisfies them.
    for b in range(N):
        z0 = abs(first[b])
        if not z0 < np.inf:
            found.smallest[b] = np.inf
            continue
        if m > 1:
            # Rounding leaves sum P0 at 1 +- 1e-16 m; spread the rest where it is largest.
            largest = 0
            shift = 0.0
            for t in range(m):
                shift += P0[t, b]
                if P0[t, b] > P0[largest, b]:
                    largest = t
            P0[largest, b] += 1.0 - shift
        worst = 0.0
        for i in range(n_rows):
            if simplex:
                # theta = centre + radius L^-T z: rows of radius L^-T, reflected in the same way.
                total = 0.0
                for j in range(i, d):
                    total += whitener[j, i] * mirror[j, b]
                total *= twice[b]
                offsets[i] = centre[i] + first[b] * (whitener[0, i] - total * mirror[0, b])
                for j in range(k):
                    normals[j, i] = whitener[j + 1, i] - total * mirror[j + 1, b]
                    found.E[i, j, b] = rho[b] * normals[j, i] if m > 1 else 0.0
            else:
                offsets[i] = P0[i, b]
            worst = min(worst, offsets[i])
        n_active = FIRST
        length = 0.0
        for j in range(k):
            point[j] = 0.0
        if worst < -ROW_TOLERANCE:
            for i in range(n_rows if not simplex else 0):
                for j in range(k):
                    normals[j, i] = rows[i, j + 1, b]
            n_active = shortest_point(normals, offsets, point, scratch.picks, scratch.factors, scratch.work)
            for j in range(k):
                length += point[j] * point[j]
        found.smallest[b] = np.sqrt(z0 * z0 + length) if n_active >= 0 else np.inf
        if not found.smallest[b] <= EMPTY_MARGIN:
            continue
        for j in range(k):
            found.chi[j, b] = point[j] / rho[b] if rho[b] > 0.0 else 0.0
            found.active[j, b] = scratch.picks[j] if j < n_active else -1
        for i in range(n_rows):
            size = 0.0
            for j in range(k):
                size = max(size, abs(normals[j, i] if simplex else rows[i, j + 1, b]))
            found.E0[i, b] = 1.0 if size <= CONSTANT_ROW or m == 1 else offsets[i]


@inner_kernel
def whitening(gram: Floats, radius: float, factor: Floats, whitener: Floats) -> None:
    """``radius L^-1``, lower triangular, of ``gram = L L'``; NaN if that is not positive definite."""
    d = gram.shape[0]
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


@inner_kernel
def take_feature(features: Floats, t: int, i: int, found: Floats) -> None:
    """One coordinate of one next state, of all blocks."""
    n, A, _m, _d = features.shape
    for a in range(A):
        for s in range(n):
            found[a * n + s] = features[s, a, t, i]


@inner_kernel
def set_to(x: Floats, value: float) -> None:
    """Set every entry of a vector."""
    for b in range(x.shape[0]):
        x[b] = value


@inner_kernel
def add_multiple(x: Floats, factor: float, y: Floats) -> None:
    """``x += factor y``."""
    for b in range(x.shape[0]):
        x[b] += factor * y[b]


@inner_kernel
def multiply(x: Floats, factor: float, y: Floats) -> None:
    """``x = factor y``."""
    for b in range(x.shape[0]):
        x[b] = factor * y[b]


@inner_kernel
def add_product(x: Floats, y: Floats, z: Floats) -> None:
    """``x += y z``, entry by entry."""
    for b in range(x.shape[0]):
        x[b] += y[b] * z[b]


@inner_kernel
def reflection(e: Floats, missing: Floats, mirror: Floats, twice: Floats, first: Floats, rho: Floats) -> None:
    """H = I - 2 v v'/v'v with H e = -sign(e_1) |e| axis_1, per block: v is ``mirror`` and 2 / v'v is ``twice``.

    ``first`` is the coordinate along the reflected first axis that makes the row sum to one, infinite where none does,
    and ``rho`` the radius of the ball that is left.
    """
    d, N = e.shape
    set_to(twice, 0.0)
    for i in range(d):
        add_product(twice, e[i], e[i])
        multiply(mirror[i], 1.0, e[i])
    for b in range(N):
        size = np.sqrt(twice[b])
        sign = 1.0 if e[0, b] >= 0.0 else -1.0
        mirror[0, b] += sign * size
        none = 0.0 if abs(missing[b]) <= 1e-12 else np.inf
        z0 = missing[b] / size if size > 1e-300 else none
        first[b] = -sign * z0
        rho[b] = np.sqrt(max(0.0, 1.0 - z0 * z0))
    set_to(twice, 0.0)
    for i in range(d):
        add_product(twice, mirror[i], mirror[i])
    for b in range(N):
        twice[b] = 2.0 / twice[b] if twice[b] > 0.0 else 0.0


@inner_kernel
def reduce_row(
    rows: Floats, mirror: Floats, twice: Floats, first: Floats, rho: Floats, inner: Floats, P0: Floats, G: Floats
) -> None:
    """Reflect rows (d, N), fix their first coordinate, in P0, and scale the others, G (d - 1, N), to a unit ball.

    A row that hardly moves is a constant: its coordinates become zero, in ``rows`` as well.
    """
    d, N = rows.shape
    set_to(inner, 0.0)
    for i in range(d):
        add_product(inner, rows[i], mirror[i])
    for b in range(N):
        inner[b] *= -twice[b]
    for i in range(d):
        add_product(rows[i], inner, mirror[i])
    add_product(P0, first, rows[0])
    for b in range(N):
        size = 0.0
        for j in range(1, d):
            size = max(size, abs(rows[j, b]))
        if size <= CONSTANT_ROW:
            for j in range(1, d):
                rows[j, b] = 0.0
    for j in range(d - 1):
        for b in range(N):
            G[j, b] = rho[b] * rows[j + 1, b]


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
    picks: Integers
    layer_work: Floats
    block_work: Floats
    factors: Floats


def ellipsoid_rows_of(
    reduced: ReducedEllipsoid, supports: Rows, features: Floats, k: int, widest: int, n_actions: int
) -> EllipsoidRows:
    """For passes, with memory of their own."""
    return EllipsoidRows(
        supports, reduced, features, k, np.empty(k, dtype=np.int64),
        np.empty((4 + k, widest * n_actions)), np.empty((12 + k, max(widest, k + 1))), np.empty((2, k + 1, k + 1)),
    )  # fmt: skip


@body_of(extreme_means, EllipsoidRows)
def ellipsoid_means(
    data: EllipsoidRows, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """All blocks at a time."""
    n, m, k, work, sets = layer.n, layer.m, data.k, data.layer_work, data.sets
    N = n * layer.n_actions
    entry = data.rows.places[layer.h, 0]
    P0 = sets.P0[entry : entry + m * N].reshape((m, N))
    G = sets.G[entry * k : (entry + m * N) * k].reshape((m, k, N))
    r = m
    row = entry
    E = G
    if data.features.size > 0:
        r = k + 1
        row = layer.block * r
        E = sets.E[row * k : (row + r * N) * k].reshape((r, k, N))
    at = layer.block * k
    points = found.shape[0] > 0
    extremes(
        P0, G, sets.E0[row : row + r * N].reshape((r, N)), E, sets.chi[at : at + k * N].reshape((k, N)),
        sets.active[at : at + k * N].reshape((k, N)), sets.smallest[layer.block : layer.block + N], values, work,
        data.block_work, data.factors, data.picks, points,
    )  # fmt: skip
    b = 0
    for a in range(layer.n_actions):
        for s in range(n):
            means[s * layer.n_actions + a] = work[0, b]
            if points:
                row = found[(s * layer.n_actions + a) * m : (s * layer.n_actions + a + 1) * m]
                for t in range(m):
                    row[t] = P0[t, b]
                    for j in range(k):
                        row[t] += G[t, j, b] * work[4 + j, b]
                normalise(row)
            b += 1


@inner_kernel
def extremes(
    P0: Floats, G: Floats, E0: Floats, E: Floats, chi: Floats, active: Integers, smallest: Floats, values: Floats,
    layer_work: Floats, block_work: Floats, factors: Floats, picks: Integers, points: bool,
) -> None:  # fmt: skip
    """max values.(P0 + G chi) over |chi| <= 1, E0 + E chi >= 0.

    The ball alone gives values.P0 + |g| at chi = g / |g|, g = G' values; where that point keeps the rows it is the
    answer, and other blocks follow their paths one by one.  In every case the result is a value of the dual problem,
    hence an upper bound also where rounding or an iteration limit interferes.
    The means are left in the first row of ``layer_work`` (4 + k, at least N) and, with ``points``, the points that
    attain them in the last k; ``block_work`` is (12 + k, w), w at least the number of rows and k + 1.
    """
    m, k, N = G.shape
    base, norm, least, row = layer_work[0], layer_work[1], layer_work[2], layer_work[3]
    slope = layer_work[4:]
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
    for i in range(E0.shape[0]):
        for b in range(N):
            row[b] = E0[i, b] * norm[b]
        for j in range(k):
            for b in range(N):
                row[b] += E[i, j, b] * slope[j, b]
        for b in range(N):
            least[b] = min(least[b], row[b])
    # Where a row binds, block by block; with points, every block.
    r = E0.shape[0]
    offsets, squares, g, shortest, normals = (
        block_work[0, :r],
        block_work[1],
        block_work[2],
        block_work[3],
        block_work[12:],
    )
    for b in range(N):
        steep = norm[b] > FLAT and smallest[b] <= 1.0 + ROUNDING
        binding = steep and least[b] < 0.0
        if not (binding or points):
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
        if binding:
            n_active = FIRST
            while n_active < k and active[n_active, b] >= 0:
                picks[n_active] = active[n_active, b]
                n_active += 1
            norm[b] = follow_path(
                normals, offsets, squares, norm[b], picks, n_active, g, factors, block_work[4:12], points
            )
        if points:
            for j in range(k):
                shortest[j] = chi[j, b]
                if not steep:
                    g[j] = chi[j, b]
                elif not binding:
                    g[j] /= norm[b]
            pull_inside(normals, offsets, shortest, g)
            for j in range(k):
                slope[j, b] = g[j]
    highest = values[0]
    for t in range(1, m):
        highest = max(highest, values[t])
    for b in range(N):
        # No distribution has a mean above the largest value.
        base[b] = min(base[b] + norm[b], highest) if smallest[b] <= 1.0 + ROUNDING else np.nan


@body_of(entry_bounds, EllipsoidRows)
def ellipsoid_bounds(data: EllipsoidRows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """Those of the ball |chi| <= 1 and, where every row is a mixture of simulators, those of their rows."""
    n, n_actions, m, k = layer.n, layer.n_actions, layer.m, data.k
    d = k + 1
    N = n * n_actions
    entry = data.rows.places[layer.h, 0]
    for pair in range(first * n_actions, end * n_actions):
        b = pair % n_actions * n + pair // n_actions
        for t in range(m):
            centre = data.sets.P0[entry + t * N + b]
            square = 0.0
            for j in range(k):
                slope = data.sets.G[entry * k + (t * k + j) * N + b]
                square += slope * slope
            low[pair * m + t] = max(centre - np.sqrt(square), 0.0)
            high[pair * m + t] = min(centre + np.sqrt(square), 1.0)
        if data.features.size > 0:
            begin = (entry + pair * m) * d
            cut_to_simulators(
                data.features[begin : begin + m * d].reshape((m, d)), low[pair * m : (pair + 1) * m],
                high[pair * m : (pair + 1) * m], data.layer_work[0, :m], data.layer_work[1, :m],
            )  # fmt: skip


@inner_kernel
def cut_to_simulators(features: Floats, low: Floats, high: Floats, lowest: Floats, highest: Floats) -> None:
    """Cut [low, high] of a row with features (m, d) to what single simulators say; two working vectors."""
    m, d = features.shape
    set_to(lowest, 1.0)
    set_to(highest, 0.0)
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
