"""Cholesky factorisation of the block-tridiagonal systems that flow conservation leads to.

Layer h contributes a diagonal block ``D_h`` (S_h, S_h) and couples to the next layer by ``O_h``
(S_h, S_{h+1}); prices live on layers 0..H-1.  All blocks lie in two flat buffers, row-major; only the upper
triangle of ``D_h`` is used.  Loops are arranged as updates of contiguous rows, which vectorise without
re-ordering any sum.
"""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel, sum_kernel
from advmdp.solvers.layout import Layout, view1, view2

# Columns of a Gram product that are finished before the next: all rows of a panel then stay in the second cache.
PANEL = 512
# Rows that are eliminated together: the others are then read and written once for all of them.
PIVOTS = 4


@sum_kernel
def dot(x: Floats, y: Floats) -> float:
    """sum_i x_i y_i."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@sum_kernel
def sum_of(x: Floats) -> float:
    """sum_i x_i."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i]
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
def factor_upper(matrix: Floats, beside: Floats) -> int:
    """``matrix = U' U`` in place (upper triangle, the diagonal inverted), and ``beside := U'^-1 beside``, its rows
    (n, m); the number of pivots that had to be replaced.

    A pivot that rounding has made non-positive belongs to a price that the system does not determine; a
    huge pivot in its place leaves that price where it is.
    """
    n = matrix.shape[0]
    replaced = 0
    for first in range(0, n, PIVOTS):
        end = min(first + PIVOTS, n)
        for j in range(first, end):
            row = matrix[j]
            pivot = row[j]
            if not pivot > 1e-290:
                pivot = 1e200
                replaced += 1
            inverse = 1.0 / np.sqrt(pivot)
            row[j] = inverse
            scale(row[j + 1 :], inverse)
            scale(beside[j], inverse)
            for i in range(j + 1, end):
                subtract_row(matrix[i, i:], row[i], row[i:])
                subtract_row(beside[i], row[i], beside[j])
        # Two of the other rows at a time: they share their loads.
        for i in range(end, n - 1, 2):
            x, y = matrix[first:end, i], matrix[first:end, i + 1]
            for rows, begin in ((matrix, i), (beside, 0)):
                a, b, c, d = rows[first], rows[first + 1], rows[first + 2], rows[first + 3]
                subtract_four(
                    rows[i, begin:], rows[i + 1, begin:], x, y, a[begin:], b[begin:], c[begin:], d[begin:]
                )  # fmt: skip
        if (n - end) % 2 == 1:
            for j in range(first, end):
                subtract_row(matrix[n - 1, n - 1 :], matrix[j, n - 1], matrix[j, n - 1 :])
                subtract_row(beside[n - 1], matrix[j, n - 1], beside[j])
    return replaced


@inner_kernel
def scale(x: Floats, factor: float) -> None:
    """x := factor x."""
    for u in range(x.shape[0]):
        x[u] *= factor


@sum_kernel
def subtract_row(target: Floats, factor: float, row: Floats) -> None:
    """target -= factor row."""
    for u in range(target.shape[0]):
        target[u] -= factor * row[u]


@sum_kernel
def subtract_four(one: Floats, other: Floats, x: Floats, y: Floats, a: Floats, b: Floats, c: Floats, d: Floats) -> None:
    """one -= x.(a, b, c, d), other -= y.(a, b, c, d)."""
    xa, xb, xc, xd = x[0], x[1], x[2], x[3]
    ya, yb, yc, yd = y[0], y[1], y[2], y[3]
    for u in range(one.shape[0]):
        one[u] -= xa * a[u] + xb * b[u] + xc * c[u] + xd * d[u]
        other[u] -= ya * a[u] + yb * b[u] + yc * c[u] + yd * d[u]


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
def factor(layout: Layout, diag: Floats, off: Floats, scratch: Floats) -> int:
    """Overwrite D_h by U_h and O_h by B_h = U_h^-T O_h, with D_{h+1} - B_h' B_h = U_{h+1}' U_{h+1}.

    ``scratch`` has room for the largest O_h.
    """
    replaced = 0
    last = layout.shape[0] - 2
    for h in range(last + 1):
        n = layout[h].states
        m = layout[h].nexts
        upper = view2(diag, layout[h].diag_at, n, n)
        coupling = view2(off, layout[h].off_at, n, m)
        replaced += factor_upper(upper, coupling)
        if h < last:
            turned = view2(scratch, 0, m, n)
            for j in range(n):
                for u in range(m):
                    turned[u, j] = coupling[j, u]
            add_gram(view2(diag, layout[h + 1].diag_at, m, m), turned, n, -1.0)
    return replaced


@inner_kernel
def solve(layout: Layout, diag: Floats, off: Floats, x: Floats) -> None:
    """Solve in place for one right-hand side over the states, after :func:`factor`."""
    last = layout.shape[0] - 2
    for h in range(last + 1):
        n = layout[h].states
        here = view1(x, layout[h].state_at, n)
        solve_lower(view2(diag, layout[h].diag_at, n, n), here)
        if h < last:
            m = layout[h].nexts
            coupling = view2(off, layout[h].off_at, n, m)
            there = view1(x, layout[h + 1].state_at, m)
            for j in range(n):
                value = here[j]
                for u in range(m):
                    there[u] -= coupling[j, u] * value
    for h in range(last, -1, -1):
        n = layout[h].states
        here = view1(x, layout[h].state_at, n)
        if h < last:
            m = layout[h].nexts
            coupling = view2(off, layout[h].off_at, n, m)
            there = view1(x, layout[h + 1].state_at, m)
            for j in range(n):
                total = here[j]
                for u in range(m):
                    total -= coupling[j, u] * there[u]
                here[j] = total
        solve_upper(view2(diag, layout[h].diag_at, n, n), here)


@sum_kernel
def dot_and_add(row: Floats, x: Floats, factor: float, y: Floats) -> float:
    """row.x, and y += factor row."""
    total = 0.0
    for u in range(row.shape[0]):
        total += row[u] * x[u]
        y[u] += factor * row[u]
    return total


@inner_kernel
def multiply(layout: Layout, diag: Floats, off: Floats, x: Floats, out: Floats) -> None:
    """The product of the system, before :func:`factor`, with x."""
    last = layout.shape[0] - 2
    for i in range(out.shape[0]):
        out[i] = 0.0
    for h in range(last + 1):
        n = layout[h].states
        at = layout[h].state_at
        for j in range(n):
            right = view1(diag, layout[h].diag_at + j * n + j, n - j)
            total = dot_and_add(right, view1(x, at + j, n - j), x[at + j], view1(out, at + j, n - j))
            out[at + j] += total - right[0] * x[at + j]
        m = layout[h].nexts
        for j in range(n if h < last else 0):
            coupling = view1(off, layout[h].off_at + j * m, m)
            out[at + j] += dot_and_add(coupling, view1(x, at + n, m), x[at + j], view1(out, at + n, m))


@inner_kernel
def solve_by_gradients(
    layout: Layout, diag: Floats, off: Floats, given: Floats, scale: Floats, tolerance: float, limit: int,
    residual: Floats, direction: Floats, product: Floats, inverse: Floats, x: Floats,
) -> bool:  # fmt: skip
    """Solve for the right-hand side ``given`` before :func:`factor`, by conjugate gradients in units of the diagonal;
    whether ``limit`` iterations leave no residual, times its scale, above the tolerance."""
    if limit < 1:
        return False
    for h in range(layout.shape[0] - 1):
        n = layout[h].states
        for j in range(n):
            inverse[layout[h].state_at + j] = 1.0 / diag[layout[h].diag_at + j * n + j]
    size = 0.0
    for i in range(x.shape[0]):
        x[i] = 0.0
        residual[i] = given[i]
        direction[i] = 0.0
    for iteration in range(limit):
        before = size
        size = 0.0
        worst = 0.0
        for i in range(x.shape[0]):
            size += residual[i] * residual[i] * inverse[i]
            worst = max(worst, abs(residual[i]) * scale[i])
        if worst <= tolerance:
            return True
        share = size / before if iteration > 0 else 0.0
        for i in range(x.shape[0]):
            direction[i] = residual[i] * inverse[i] + share * direction[i]
        multiply(layout, diag, off, direction, product)
        length = size / dot(direction, product)
        for i in range(x.shape[0]):
            x[i] += length * direction[i]
            residual[i] -= length * product[i]
    return False
