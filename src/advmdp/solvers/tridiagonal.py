"""Cholesky factorisation of the block-tridiagonal systems that flow conservation leads to.

Layer h contributes a diagonal block ``D_h`` (S_h, S_h) and couples to the next layer by ``O_h``
(S_h, S_{h+1}); prices live on layers 0..H-1.  All blocks lie in two flat buffers, row-major; only the upper
triangle of ``D_h`` is used.  Loops are arranged as updates of contiguous rows, which vectorise without
re-ordering any sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers.layout import view1, view2

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PANEL = 32


@inner_kernel
def add_gram(target: Floats, rows: Floats, depth: int, sign: float) -> None:
    """``target += sign * rows' rows`` (upper triangle), rows (depth, m); four rows per sweep.

    ``PANEL`` rows are finished for one row of the target before the next: both then stay in the first cache.
    """
    m = target.shape[0]
    whole = depth - depth % 4
    for panel in range(0, whole, PANEL):
        end = min(panel + PANEL, whole)
        for t in range(m):
            first = t - t % 4
            for i in range(panel, end, 4):
                r0 = rows[i]
                r1 = rows[i + 1]
                r2 = rows[i + 2]
                r3 = rows[i + 3]
                x0 = sign * r0[t]
                x1 = sign * r1[t]
                x2 = sign * r2[t]
                x3 = sign * r3[t]
                for u in range(first, m):
                    target[t, u] += (x0 * r0[u] + x1 * r1[u]) + (x2 * r2[u] + x3 * r3[u])
    for i in range(whole, depth):
        r0 = rows[i]
        for t in range(m):
            x0 = sign * r0[t]
            for u in range(t - t % 4, m):
                target[t, u] += x0 * r0[u]


@inner_kernel
def factor_upper(matrix: Floats) -> int:
    """``matrix = U' U`` in place (upper triangle); the number of pivots that had to be replaced.

    A pivot that rounding has made non-positive belongs to a price that the system does not determine; a
    huge pivot in its place leaves that price where it is.
    """
    n = matrix.shape[0]
    replaced = 0
    for j in range(n):
        row = matrix[j]
        pivot = row[j]
        if not pivot > 1e-290:
            pivot = 1e200
            replaced += 1
        root = np.sqrt(pivot)
        row[j] = root
        inverse = 1.0 / root
        for u in range(j + 1, n):
            row[u] *= inverse
        for i in range(j + 1, n):
            x = row[i]
            lower = matrix[i]
            for u in range(i, n):
                lower[u] -= x * row[u]
    return replaced


@inner_kernel
def solve_upper(upper: Floats, x: Floats) -> None:
    """Solve ``U' U x = x`` in place, after :func:`factor_upper`."""
    n = upper.shape[0]
    for j in range(n):
        x[j] /= upper[j, j]
        for u in range(j + 1, n):
            x[u] -= upper[j, u] * x[j]
    for j in range(n - 1, -1, -1):
        total = x[j]
        for u in range(j + 1, n):
            total -= upper[j, u] * x[u]
        x[j] = total / upper[j, j]


@inner_kernel
def factor(sizes: Integers, diag: Floats, diag_at: Integers, off: Floats, off_at: Integers) -> int:
    """Overwrite D_h by U_h and O_h by B_h = U_h^-T O_h, with D_{h+1} - B_h' B_h = U_{h+1}' U_{h+1}."""
    replaced = 0
    last = sizes.shape[0] - 1
    for h in range(last + 1):
        n = sizes[h]
        upper = view2(diag, diag_at[h], n, n)
        replaced += factor_upper(upper)
        if h < last:
            m = sizes[h + 1]
            coupling = view2(off, off_at[h], n, m)
            for j in range(n):
                row = coupling[j]
                inverse = 1.0 / upper[j, j]
                for u in range(m):
                    row[u] *= inverse
                for i in range(j + 1, n):
                    x = upper[j, i]
                    below = coupling[i]
                    for u in range(m):
                        below[u] -= x * row[u]
            add_gram(view2(diag, diag_at[h + 1], m, m), coupling, n, -1.0)
    return replaced


@inner_kernel
def solve(
    sizes: Integers,
    diag: Floats,
    diag_at: Integers,
    off: Floats,
    off_at: Integers,
    state_at: Integers,
    x: Floats,
) -> None:
    """Solve in place for one right-hand side over the states, after :func:`factor`."""
    last = sizes.shape[0] - 1
    for h in range(last + 1):
        n = sizes[h]
        upper = view2(diag, diag_at[h], n, n)
        here = view1(x, state_at[h], n)
        for j in range(n):
            here[j] /= upper[j, j]
            value = here[j]
            for u in range(j + 1, n):
                here[u] -= upper[j, u] * value
        if h < last:
            m = sizes[h + 1]
            coupling = view2(off, off_at[h], n, m)
            there = view1(x, state_at[h + 1], m)
            for j in range(n):
                value = here[j]
                for u in range(m):
                    there[u] -= coupling[j, u] * value
    for h in range(last, -1, -1):
        n = sizes[h]
        upper = view2(diag, diag_at[h], n, n)
        here = view1(x, state_at[h], n)
        if h < last:
            m = sizes[h + 1]
            coupling = view2(off, off_at[h], n, m)
            there = view1(x, state_at[h + 1], m)
            for j in range(n):
                total = here[j]
                for u in range(m):
                    total -= coupling[j, u] * there[u]
                here[j] = total
        for j in range(n - 1, -1, -1):
            total = here[j]
            for u in range(j + 1, n):
                total -= upper[j, u] * here[u]
            here[j] = total / upper[j, j]
