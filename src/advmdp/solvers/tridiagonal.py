"""Cholesky factorisation of the block-tridiagonal systems that flow conservation leads to.

Layer h contributes a diagonal block ``D_h`` (S_h, S_h) and couples to the next layer by ``O_h``
(S_h, S_{h+1}); prices live on layers 0..H-1.  All blocks lie in two flat buffers, row-major; only the upper
triangle of ``D_h`` is used.  Loops are arranged as updates of contiguous rows, which vectorise without
re-ordering any sum.
"""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel, sum_kernel
from advmdp.solvers.layout import view1, view2

# Columns of a Gram product that are finished before the next: all rows of a panel then stay in the second cache.
PANEL = 512


@sum_kernel
def dot(x: Floats, y: Floats) -> float:
    """sum_i x_i y_i."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@sum_kernel
def size_of(x: Floats) -> float:
    """sum_i |x_i|."""
    total = 0.0
    for i in range(x.shape[0]):
        total += abs(x[i])
    return total


@sum_kernel
def add_gram(target: Floats, rows: Floats, depth: int, sign: float) -> None:
    """``target += sign * rows rows'`` (upper triangle, and some of the lower), over the first ``depth`` columns of
    rows (m, at least depth); two by two dot products share their loads."""
    m = target.shape[0]
    even = m - m % 2
    for start in range(0, depth, PANEL):
        length = min(PANEL, depth - start)
        for t in range(0, even, 2):
            left = rows[t, start : start + length]
            under = rows[t + 1, start : start + length]
            for u in range(t, even, 2):
                right = rows[u, start : start + length]
                beside = rows[u + 1, start : start + length]
                s00 = 0.0
                s01 = 0.0
                s10 = 0.0
                s11 = 0.0
                for i in range(length):
                    s00 += left[i] * right[i]
                    s01 += left[i] * beside[i]
                    s10 += under[i] * right[i]
                    s11 += under[i] * beside[i]
                target[t, u] += sign * s00
                target[t, u + 1] += sign * s01
                target[t + 1, u] += sign * s10
                target[t + 1, u + 1] += sign * s11
    if even < m:
        for t in range(m):
            target[t, even] += sign * dot(rows[t, :depth], rows[even, :depth])


@inner_kernel
def factor_upper(matrix: Floats) -> int:
    """``matrix = U' U`` in place (upper triangle, the diagonal inverted); the number of pivots that had to be replaced.

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
        inverse = 1.0 / np.sqrt(pivot)
        row[j] = inverse
        for u in range(j + 1, n):
            row[u] *= inverse
        for i in range(j + 1, n):
            x = row[i]
            lower = matrix[i]
            for u in range(i, n):
                lower[u] -= x * row[u]
    return replaced


@inner_kernel
def solve_lower(upper: Floats, x: Floats) -> None:
    """x := U'^-1 x."""
    n = upper.shape[0]
    for j in range(n):
        x[j] *= upper[j, j]
        value = x[j]
        for u in range(j + 1, n):
            x[u] -= upper[j, u] * value


@inner_kernel
def solve_upper(upper: Floats, x: Floats) -> None:
    """x := U^-1 x."""
    n = upper.shape[0]
    for j in range(n - 1, -1, -1):
        total = x[j]
        for u in range(j + 1, n):
            total -= upper[j, u] * x[u]
        x[j] = total * upper[j, j]


@inner_kernel
def factor(sizes: Integers, diag: Floats, diag_at: Integers, off: Floats, off_at: Integers, scratch: Floats) -> int:
    """Overwrite D_h by U_h and O_h by B_h = U_h^-T O_h, with D_{h+1} - B_h' B_h = U_{h+1}' U_{h+1}.

    ``scratch`` has room for the largest O_h.
    """
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
                for u in range(m):
                    row[u] *= upper[j, j]
                for i in range(j + 1, n):
                    x = upper[j, i]
                    below = coupling[i]
                    for u in range(m):
                        below[u] -= x * row[u]
            turned = view2(scratch, 0, m, n)
            for j in range(n):
                for u in range(m):
                    turned[u, j] = coupling[j, u]
            add_gram(view2(diag, diag_at[h + 1], m, m), turned, n, -1.0)
    return replaced


@inner_kernel
def solve(
    sizes: Integers, diag: Floats, diag_at: Integers, off: Floats, off_at: Integers, state_at: Integers, x: Floats
) -> None:
    """Solve in place for one right-hand side over the states, after :func:`factor`."""
    last = sizes.shape[0] - 1
    for h in range(last + 1):
        n = sizes[h]
        here = view1(x, state_at[h], n)
        solve_lower(view2(diag, diag_at[h], n, n), here)
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
        solve_upper(view2(diag, diag_at[h], n, n), here)
