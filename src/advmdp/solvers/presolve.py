"""Bring the row sets of one layer into the form that the solvers work on.

A block is one pair (s, a) of a layer, with flat index ``b = a * n_states + s``; the block index is the
last axis of every array, so that inner loops run over blocks.

Ellipsoid.  With ``gram = L L'`` the row set of a block is ``P_t = phi_t.centre + g_t.z``, ``|z| <= 1``,
``g_t = radius L^-1 phi_t``.  A reflection turns ``e = sum_t g_t`` into the first axis, where the condition
``sum_t P_t = 1`` fixes the coordinate ``z0``; what is left is a unit ball again:

    P = P0 + G chi,   |chi| <= 1,   E0 + E chi >= 0        (sum P0 = 1, sum G = 0).

The inequality rows are the entries of P, or the entries of theta where the parameter is known to be
non-negative.  A row that cannot be violated because it does not move (``|E_t| = 0``) is replaced by the
harmless ``1 >= 0``, so that no later step has to know about it.

Emptiness is decided exactly: ``smallest[b]`` is the smallest multiple of the radius for which the block is
not empty, i.e. the norm of the shortest z that satisfies all the rows, from a dual active-set method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers.layout import fill, view1, view2, view3

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# An entry that moves by less than this over the whole ball is a constant.
CONSTANT_ROW = 1e-14
# How far below zero a row may be and still count as satisfied.
ROW_TOLERANCE = 1e-14
# Emptiness: a block is empty if it needs more than this multiple of its radius.
EMPTY_MARGIN = 1.0 + 1e-12


def ellipsoid_scratch(blocks: int, next_states: int, dim: int) -> Floats:
    """Working memory for :func:`presolve_ellipsoid_layer` of layers up to this size."""
    rows = max(next_states, dim)
    layer = blocks * (next_states * dim + 2 * dim + 6)
    return np.empty(layer + rows * (dim + 1) + 3 * dim * dim + 5 * dim)


@inner_kernel
def cholesky_small(matrix: Floats, factor: Floats) -> bool:
    """Lower Cholesky factor of a small dense matrix; False if it is not positive definite."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = matrix[i, j]
            for l in range(j):  # noqa: E741
                total -= factor[i, l] * factor[j, l]
            if i == j:
                if not total > 0.0:
                    return False
                factor[i, i] = np.sqrt(total)
            else:
                factor[i, j] = total / factor[j, j]
    return True


@inner_kernel
def shortest_point(
    offsets: Floats,
    normals: Floats,
    n_rows: int,
    dim: int,
    point: Floats,
    active: Integers,
    multipliers: Floats,
    basis: Floats,
    triangle: Floats,
    step: Floats,
) -> int:
    """The shortest x with ``offsets + normals x >= 0``: Goldfarb and Idnani's dual method, unit Hessian.

    Starts from x = 0 (the unconstrained minimum) and adds the most violated row until none is left, keeping
    the multipliers non-negative by dropping rows.  ``basis`` (dim, dim) and ``triangle`` hold a QR
    factorisation of the active normals.  Returns the number of active rows, listed in ``active`` with
    their ``multipliers``, or -1 if no x satisfies the rows (or the method did not finish).
    """
    for j in range(dim):
        point[j] = 0.0
    n_active = 0
    for _ in range(20 * (n_rows + dim)):
        worst = -1
        worst_value = -ROW_TOLERANCE
        for i in range(n_rows):
            value = offsets[i]
            norm = 0.0
            for j in range(dim):
                value += normals[i, j] * point[j]
                norm += normals[i, j] * normals[i, j]
            if value < worst_value:
                skip = False
                for p in range(n_active):
                    if active[p] == i:
                        skip = True
                if not skip:
                    worst = i
                    worst_value = value
        if worst < 0:
            return n_active
        gain = 0.0  # multiplier of the row that enters
        while True:
            # Split its normal into the span of the active normals (coordinates in `triangle`'s next
            # column) and the rest; twice, so that the rest is orthogonal to working accuracy.
            norm = 0.0
            for j in range(dim):
                step[j] = normals[worst, j]
                norm += step[j] * step[j]
            for p in range(n_active):
                triangle[p, n_active] = 0.0
            for _sweep in range(2):
                for p in range(n_active):
                    inner = 0.0
                    for j in range(dim):
                        inner += basis[p, j] * step[j]
                    triangle[p, n_active] += inner
                    for j in range(dim):
                        step[j] -= inner * basis[p, j]
            rest = 0.0
            for j in range(dim):
                rest += step[j] * step[j]
            independent = n_active < dim and rest > 1e-24 * norm and norm > 0.0
            # Dual step length: the first multiplier to vanish along r = R^-1 (coordinates).
            drop = -1
            limit = np.inf
            for p in range(n_active - 1, -1, -1):
                total = triangle[p, n_active]
                for o in range(p + 1, n_active):
                    total -= triangle[p, o] * step[dim + o]
                step[dim + p] = total / triangle[p, p]
                if step[dim + p] > 0.0:
                    ratio = multipliers[p] / step[dim + p]
                    if ratio < limit:
                        limit = ratio
                        drop = p
            full = np.inf
            if independent:
                value = offsets[worst]
                for j in range(dim):
                    value += normals[worst, j] * point[j]
                full = -value / rest
                if full < 0.0:
                    full = 0.0
            length = min(full, limit)
            if length == np.inf:
                return -1
            if independent:
                for j in range(dim):
                    point[j] += length * step[j]
            for p in range(n_active):
                multipliers[p] -= length * step[dim + p]
            gain += length
            if full <= limit:
                root = np.sqrt(rest)
                triangle[n_active, n_active] = root
                for j in range(dim):
                    basis[n_active, j] = step[j] / root
                active[n_active] = worst
                multipliers[n_active] = gain
                n_active += 1
                break
            # Drop the blocking row and rebuild the factorisation (rare, and at most dim rows).
            for p in range(drop, n_active - 1):
                active[p] = active[p + 1]
                multipliers[p] = multipliers[p + 1]
            n_active -= 1
            for p in range(n_active):
                row = active[p]
                for j in range(dim):
                    basis[p, j] = normals[row, j]
                for o in range(p):
                    triangle[o, p] = 0.0
                for _sweep in range(2):
                    for o in range(p):
                        inner = 0.0
                        for j in range(dim):
                            inner += basis[o, j] * basis[p, j]
                        triangle[o, p] += inner
                        for j in range(dim):
                            basis[p, j] -= inner * basis[o, j]
                total = 0.0
                for j in range(dim):
                    total += basis[p, j] * basis[p, j]
                root = np.sqrt(total)
                triangle[p, p] = root
                for j in range(dim):
                    basis[p, j] /= root
    return -1


@inner_kernel
def presolve_ellipsoid_layer(
    features: Floats,
    centre: Floats,
    gram: Floats,
    radius: float,
    simplex: bool,
    P0: Floats,
    G: Floats,
    E0: Floats,
    E: Floats,
    chi: Floats,
    active: Integers,
    smallest: Floats,
    scratch: Floats,
) -> int:
    """Fill the reduced form of every block of one layer; the number of empty blocks is returned.

    ``features`` (n, A, m, d).  Written: ``P0`` (m, N), ``G`` (m, k, N) with k = d-1, ``E0`` (rows, N) and, if
    ``simplex``, ``E`` (rows, k, N) with rows = d (else rows = m, their slopes are ``G``, and ``E`` is empty);
    ``chi`` (k, N) the shortest point of the block and ``active`` (k, N) the rows it lies on (-1 beyond their
    number); ``smallest`` (N,), see the module.  A block is empty where ``smallest > EMPTY_MARGIN``; its other
    arrays are then meaningless.  -1 is returned if ``gram`` is not positive definite.

    A last layer (m = 1) or one-dimensional features need k = 0: the arrays then have a middle axis of length 0.
    """
    n, A, m, d = features.shape
    k = d - 1
    N = n * A
    n_rows = d if simplex else m
    # The scratch memory: vectors over the blocks, then the pieces that one block needs.
    rows = view3(scratch, 0, m, d, N)
    used = m * d * N
    e = view2(scratch, used, d, N)
    mirror = view2(scratch, used + d * N, d, N)
    used += 2 * d * N
    missing = view1(scratch, used, N)
    norm = view1(scratch, used + N, N)
    twice = view1(scratch, used + 2 * N, N)
    first = view1(scratch, used + 3 * N, N)
    rho = view1(scratch, used + 4 * N, N)
    inner = view1(scratch, used + 5 * N, N)
    used += 6 * N
    factor = view2(scratch, used, d, d)
    used += d * d

    if not cholesky_small(gram, factor):
        return -1
    for i in range(d):
        factor[i, i] = 1.0 / factor[i, i]
    fill2(e, 0.0)
    fill(missing, 1.0)
    for t in range(m):
        whiten(features, t, centre, factor, radius, rows[t], P0[t], e)
        for b in range(N):
            missing[b] -= P0[t, b]
    reflection(e, missing, norm, mirror, twice, first, rho)
    for t in range(m):
        if m > 1:
            reflect(rows[t], mirror, twice, inner)
            reduce_row(rows[t], first, rho, P0[t], G[t])
        else:
            # The only distribution on one state; the equality decides, apart from the sign rows of theta.
            fill(P0[t], 1.0)
            fill2(G[t], 0.0)

    # Block by block: the rows, and whether anything satisfies them.
    most = max(m, d)
    normals = view2(scratch, used, most, d)
    used += most * d
    offsets = view1(scratch, used, most)
    used += most
    basis = view2(scratch, used, d, d)
    triangle = view2(scratch, used + d * d, d, d)
    used += 2 * d * d
    step = view1(scratch, used, 2 * d)
    point = view1(scratch, used + 2 * d, d)
    multipliers = view1(scratch, used + 3 * d, d)
    weights = view1(scratch, used + 4 * d, d)
    n_empty = 0
    for b in range(N):
        z0 = abs(first[b])
        if not z0 < np.inf:
            smallest[b] = np.inf
            n_empty += 1
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
        if simplex:
            # theta = centre + radius L^-T z: rows of radius L^-T, reflected in the same way.
            for i in range(d):
                # Row i of L^-T is column i of L^-1: solve L x = unit_i.
                total = 0.0
                for j in range(d):
                    value = 1.0 if j == i else 0.0
                    for l in range(j):  # noqa: E741
                        value -= factor[j, l] * weights[l]
                    weights[j] = value * factor[j, j]
                    total += radius * weights[j] * mirror[j, b]
                total *= twice[b]
                offsets[i] = centre[i] + first[b] * (radius * weights[0] - total * mirror[0, b])
                for j in range(k):
                    normals[i, j] = radius * weights[j + 1] - total * mirror[j + 1, b]
                    E[i, j, b] = rho[b] * normals[i, j]
                worst = min(worst, offsets[i])
        else:
            for t in range(m):
                worst = min(worst, P0[t, b])
        n_active = 0
        length = 0.0
        picks = active[:, b]
        for j in range(k):
            point[j] = 0.0
        if worst < -ROW_TOLERANCE:
            if not simplex:
                for t in range(m):
                    offsets[t] = P0[t, b]
                    for j in range(k):
                        normals[t, j] = rows[t, j + 1, b]
            n_active = shortest_point(offsets, normals, n_rows, k, point, picks, multipliers, basis, triangle, step)
            for j in range(k):
                length += point[j] * point[j]
        smallest[b] = np.sqrt(z0 * z0 + length) if n_active >= 0 else np.inf
        if not smallest[b] <= EMPTY_MARGIN:
            n_empty += 1
            continue
        for j in range(k):
            chi[j, b] = point[j] / rho[b] if rho[b] > 0.0 else 0.0
            if j >= n_active:
                picks[j] = -1
        for i in range(n_rows):
            size = 0.0
            for j in range(k):
                size = max(size, abs(normals[i, j] if simplex else rows[i, j + 1, b]))
            value = offsets[i] if simplex else P0[i, b]
            E0[i, b] = 1.0 if size <= CONSTANT_ROW or m == 1 else value
            if m == 1 and simplex:
                for j in range(k):
                    E[i, j, b] = 0.0
    return n_empty


@inner_kernel
def fill2(x: Floats, value: float) -> None:
    """Set every entry of a table."""
    for i in range(x.shape[0]):
        fill(x[i], value)


@inner_kernel
def whiten(
    features: Floats, t: int, centre: Floats, factor: Floats, radius: float, rows: Floats, P0: Floats, e: Floats
) -> None:
    """Next state t of all blocks: ``P0 = phi.centre``, ``rows = radius L^-1 phi`` (d, N), which ``e`` grows by.

    ``factor`` is L with the inverses of its diagonal.
    """
    n, A, _m, d = features.shape
    N = n * A
    fill(P0, 0.0)
    for i in range(d):
        row = rows[i]
        for a in range(A):
            for s in range(n):
                row[a * n + s] = features[s, a, t, i]
        weight = centre[i]
        for b in range(N):
            P0[b] += row[b] * weight
        for j in range(i):
            subtract(row, factor[i, j], rows[j])
        pivot = factor[i, i]
        for b in range(N):
            row[b] *= pivot
    for i in range(d):
        row = rows[i]
        total = e[i]
        for b in range(N):
            row[b] *= radius
        for b in range(N):
            total[b] += row[b]


@inner_kernel
def subtract(x: Floats, factor: float, y: Floats) -> None:
    """``x -= factor y``."""
    for b in range(x.shape[0]):
        x[b] -= factor * y[b]


@inner_kernel
def reflection(
    e: Floats, missing: Floats, norm: Floats, mirror: Floats, twice: Floats, first: Floats, rho: Floats
) -> None:
    """H = I - 2 v v'/v'v with H e = -sign(e_1) |e| axis_1, per block: v is ``mirror`` and 2 / v'v is ``twice``.

    ``first`` is the coordinate along the reflected first axis that makes the row sum to one, infinite where none does,
    and ``rho`` the radius of the ball that is left.
    """
    d, N = e.shape
    fill(norm, 0.0)
    for i in range(d):
        for b in range(N):
            norm[b] += e[i, b] * e[i, b]
        for b in range(N):
            mirror[i, b] = e[i, b]
    for b in range(N):
        size = np.sqrt(norm[b])
        sign = 1.0 if e[0, b] >= 0.0 else -1.0
        mirror[0, b] += sign * size
        none = 0.0 if abs(missing[b]) <= 1e-12 else np.inf
        z0 = missing[b] / size if size > 1e-300 else none
        first[b] = -sign * z0
        rho[b] = np.sqrt(max(0.0, 1.0 - z0 * z0))
    fill(twice, 0.0)
    for i in range(d):
        for b in range(N):
            twice[b] += mirror[i, b] * mirror[i, b]
    for b in range(N):
        twice[b] = 2.0 / twice[b] if twice[b] > 0.0 else 0.0


@inner_kernel
def reflect(rows: Floats, mirror: Floats, twice: Floats, inner: Floats) -> None:
    """``rows := H rows``, rows (d, N)."""
    d, N = rows.shape
    fill(inner, 0.0)
    for i in range(d):
        for b in range(N):
            inner[b] += rows[i, b] * mirror[i, b]
    for b in range(N):
        inner[b] *= twice[b]
    for i in range(d):
        for b in range(N):
            rows[i, b] -= inner[b] * mirror[i, b]


@inner_kernel
def reduce_row(rows: Floats, first: Floats, rho: Floats, P0: Floats, G: Floats) -> None:
    """Fix the first coordinate of reflected rows (d, N), in P0, and scale the others, G (d - 1, N), to a unit ball.

    A row that hardly moves is a constant: its coordinates become zero, in ``rows`` as well.
    """
    d, N = rows.shape
    for b in range(N):
        P0[b] += first[b] * rows[0, b]
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


@inner_kernel
def presolve_box_layer(lower: Floats, upper: Floats, low: Floats, high: Floats, excess: Floats) -> int:
    """Bounds that every distribution between ``lower`` and ``upper`` (n, A, m) keeps, per block (m, N).

    ``low_t = max(lower_t, 1 - sum of the other uppers)`` and the mirror image for ``high_t``; after this each
    bound is attained.  ``excess[b]`` is by how much sum(lower) exceeds one or sum(upper) falls short of it
    (positive: empty).  The number of empty blocks is returned.
    """
    n, A, m = lower.shape
    n_empty = 0
    for a in range(A):
        for s in range(n):
            b = a * n + s
            sum_low = 0.0
            sum_high = 0.0
            for t in range(m):
                sum_low += max(lower[s, a, t], 0.0)
                sum_high += min(upper[s, a, t], 1.0)
            excess[b] = max(sum_low - 1.0, 1.0 - sum_high)
            for t in range(m):
                # An interval that misses [0, 1] altogether.
                excess[b] = max(excess[b], max(lower[s, a, t], 0.0) - min(upper[s, a, t], 1.0))
            if excess[b] > 1e-12:
                n_empty += 1
            for t in range(m):
                l = max(lower[s, a, t], 0.0)  # noqa: E741
                u = min(upper[s, a, t], 1.0)
                low[t, b] = max(l, 1.0 - (sum_high - u))
                high[t, b] = max(min(u, 1.0 - (sum_low - l)), low[t, b])
    return n_empty
