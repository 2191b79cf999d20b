"""The linear algebra of the blocks of one layer: products with their rows, and the factors of their matrices."""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.interior_point import arriving


@inner_kernel
def row_values(E0: Floats, E: Floats, q: Floats, xi: Floats, out: Floats) -> None:
    """``out = E0 q + E xi`` for all rows and blocks of a layer."""
    for i in range(E.shape[0]):
        row_value(E0[i], E[i], q, xi, out[i])


@inner_kernel
def row_value(first: Floats, slopes: Floats, q: Floats, xi: Floats, out: Floats) -> None:
    """One row of :func:`row_values`; coordinates two by two, which halves the traffic."""
    k, N = slopes.shape
    odd = k % 2
    if odd:
        slope = slopes[0]
        coordinate = xi[0]
        for b in range(N):
            out[b] = first[b] * q[b] + slope[b] * coordinate[b]
    else:
        for b in range(N):
            out[b] = first[b] * q[b]
    for j in range(odd, k, 2):
        slope = slopes[j]
        other = slopes[j + 1]
        coordinate = xi[j]
        beside = xi[j + 1]
        for b in range(N):
            out[b] += slope[b] * coordinate[b] + other[b] * beside[b]


@inner_kernel
def add_row_sums(E0: Floats, E: Floats, values: Floats, sign: float, out: Floats) -> None:
    """``out += sign * (E'values, E0.values)``: k coordinates of xi, then that of q."""
    n_rows, k, N = E.shape
    odd = n_rows % 2
    if odd:
        add_scaled(E0[0], E[0], values[0], sign, out)
    for i in range(odd, n_rows, 2):
        value = values[i]
        below = values[i + 1]
        for j in range(k + 1):
            slope = E[i, j] if j < k else E0[i]
            under = E[i + 1, j] if j < k else E0[i + 1]
            target = out[j]
            for b in range(N):
                target[b] += sign * (slope[b] * value[b] + under[b] * below[b])


@inner_kernel
def add_scaled(first: Floats, slopes: Floats, value: Floats, sign: float, out: Floats) -> None:
    """``out += sign * value * (slopes, first)``, one row of :func:`add_row_sums`."""
    k, N = slopes.shape
    for j in range(k + 1):
        slope = slopes[j] if j < k else first
        target = out[j]
        for b in range(N):
            target[b] += sign * slope[b] * value[b]


@inner_kernel
def add_slack_sums(E0: Floats, E: Floats, ratio: Floats, slack: Floats, out: Floats, work: Floats) -> None:
    """``out += (E, E0)' (ratio slack)``; most slacks, and in the end all of them, are zero."""
    n_rows, N = slack.shape
    for i in range(n_rows):
        if tridiagonal.size_of(slack[i]) != 0.0:
            for b in range(N):
                work[b] = ratio[i, b] * slack[i, b]
            add_scaled(E0[i], E[i], work, 1.0, out)


@inner_kernel
def add_price_sums(P0: Floats, G: Floats, prices: Floats, sign: float, out: Floats) -> None:
    """``out += sign * (G'V, P0.V)``, the same for one vector of prices shared by all blocks."""
    m, k, N = G.shape
    odd = m % 2
    for j in range(k + 1):
        target = out[j]
        if odd:
            slope = G[0, j] if j < k else P0[0]
            value = sign * prices[0]
            for b in range(N):
                target[b] += slope[b] * value
        for t in range(odd, m, 2):
            slope = G[t, j] if j < k else P0[t]
            under = G[t + 1, j] if j < k else P0[t + 1]
            value = sign * prices[t]
            below = sign * prices[t + 1]
            for b in range(N):
                target[b] += slope[b] * value + under[b] * below


@inner_kernel
def arrivals(
    P0: Floats, G: Floats, q: Floats, xi: Floats, root_weight: Floats, scale: Floats, work: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """``out_t -= scale_t sum_b w (P0_t q + G_t xi)``: what flows into the states of the next layer, scaled."""
    for t in range(P0.shape[0]):
        row_value(P0[t], G[t], q, xi, work)
        out[t] -= arriving(root_weight, scale[t], work)


@inner_kernel
def add_two(out: Floats, x: Floats, y: Floats, u: Floats, v: Floats) -> None:
    """``out += x y + u v``, entry by entry."""
    for b in range(out.shape[0]):
        out[b] += x[b] * y[b] + u[b] * v[b]


@inner_kernel
def factor_blocks(
    q: Floats, ratio: Floats, E0: Floats, E: Floats, w: Floats, scale: Floats, triangle: Floats, work: Floats
) -> None:
    """Cholesky factor of K = e_q e_q'/q + W^-2 + (E, E0)' diag(ratio) (E, E0), q as the last coordinate.

    ``triangle[i (i + 1) / 2 + j]`` holds entry (i, j) for all blocks; diagonals are stored as their inverses.
    """
    n_rows, k, N = E.shape
    for i in range(k + 1):
        for j in range(i + 1):
            entry = triangle[i * (i + 1) // 2 + j]
            sign = -2.0 if i == k and j < k else 2.0
            for b in range(N):
                entry[b] = sign * scale[b] * w[i, b] * w[j, b]
        if i < k:
            entry = triangle[i * (i + 1) // 2 + i]
            for b in range(N):
                entry[b] += scale[b]
    entry = triangle[k * (k + 1) // 2 + k]
    for b in range(N):
        # 2 w_q^2 - 1 = w_q^2 + |w_xi|^2, without the cancellation
        entry[b] = 0.5 * entry[b] + 1.0 / q[b]
    for j in range(k):
        for b in range(N):
            entry[b] += scale[b] * w[j, b] * w[j, b]
    scaled = work[0]
    lower = work[1]
    even = n_rows - n_rows % 2
    for t in range(0, n_rows, 2):
        # An odd row at the end is paired with itself at ratio zero.
        other = min(t + 1, n_rows - 1)
        counts = 1.0 if t < even else 0.0
        for i in range(k + 1):
            left = E[t, i] if i < k else E0[t]
            under = E[other, i] if i < k else E0[other]
            for b in range(N):
                scaled[b] = ratio[t, b] * left[b]
            for b in range(N):
                lower[b] = counts * ratio[other, b] * under[b]
            for j in range(i + 1):
                right = E[t, j] if j < k else E0[t]
                beside = E[other, j] if j < k else E0[other]
                add_two(triangle[i * (i + 1) // 2 + j], scaled, right, lower, beside)
    for j in range(k + 1):
        for i in range(j, k + 1):
            entry = triangle[i * (i + 1) // 2 + j]
            for l in range(j):  # noqa: E741
                left = triangle[i * (i + 1) // 2 + l]
                right = triangle[j * (j + 1) // 2 + l]
                for b in range(N):
                    entry[b] -= left[b] * right[b]
            if i == j:
                for b in range(N):
                    entry[b] = 1.0 / np.sqrt(entry[b])
            else:
                inverse = triangle[j * (j + 1) // 2 + j]
                for b in range(N):
                    entry[b] *= inverse[b]


@inner_kernel
def rotate_in(triangle: Floats, row: Floats, work: Floats) -> None:
    """Update R'R := R'R + row row' by Givens rotations, R' in the layout of :func:`factor_blocks`; row is destroyed."""
    size, N = row.shape
    cosine = work[2]
    sine = work[3]
    for j in range(size):
        corner = triangle[j * (j + 1) // 2 + j]
        entry = row[j]
        for b in range(N):
            length = np.sqrt(corner[b] * corner[b] + entry[b] * entry[b])
            inverse = 1.0 / max(length, 1e-300)
            cosine[b] = corner[b] * inverse
            sine[b] = entry[b] * inverse
            corner[b] = length
        for i in range(j + 1, size):
            upper = triangle[i * (i + 1) // 2 + j]
            other = row[i]
            for b in range(N):
                kept = upper[b]
                upper[b] = cosine[b] * kept + sine[b] * other[b]
                other[b] = cosine[b] * other[b] - sine[b] * kept


@inner_kernel
def factor_blocks_by_rotations(
    q: Floats, ratio: Floats, E0: Floats, E: Floats, w: Floats, scale: Floats, triangle: Floats, row: Floats,
    work: Floats,
) -> None:  # fmt: skip
    """The factor of :func:`factor_blocks` without forming K: its roots W^-1, sqrt(ratio) (E, E0) and e_q/sqrt(q)
    are rotated in one by one, so that small parts of K survive beside large ones."""
    n_rows, k, N = E.shape
    for i in range(triangle.shape[0]):
        for b in range(N):
            triangle[i, b] = 0.0
    root = work[0]
    for b in range(N):
        root[b] = np.sqrt(scale[b])
    for i in range(k + 1):
        for j in range(k):
            for b in range(N):
                if i < k:
                    along = w[i, b] * w[j, b] / (1.0 + w[k, b])
                    row[j, b] = root[b] * (along + 1.0 if i == j else along)
                else:
                    row[j, b] = -root[b] * w[j, b]
        for b in range(N):
            row[k, b] = root[b] * (w[k, b] if i == k else -w[i, b])
        rotate_in(triangle, row, work)
    for t in range(n_rows):
        for b in range(N):
            root[b] = np.sqrt(ratio[t, b])
        for j in range(k):
            for b in range(N):
                row[j, b] = root[b] * E[t, j, b]
        for b in range(N):
            row[k, b] = root[b] * E0[t, b]
        rotate_in(triangle, row, work)
    for j in range(k):
        for b in range(N):
            row[j, b] = 0.0
    for b in range(N):
        row[k, b] = 1.0 / np.sqrt(q[b])
    rotate_in(triangle, row, work)
    for j in range(k + 1):
        corner = triangle[j * (j + 1) // 2 + j]
        for b in range(N):
            corner[b] = 1.0 / corner[b]


@inner_kernel
def forward_substitute(triangle: Floats, x: Floats) -> None:
    """x := L^-1 x for all blocks, x (k + 1, N)."""
    size, N = x.shape
    for i in range(size):
        target = x[i]
        for j in range(i):
            entry = triangle[i * (i + 1) // 2 + j]
            other = x[j]
            for b in range(N):
                target[b] -= entry[b] * other[b]
        inverse = triangle[i * (i + 1) // 2 + i]
        for b in range(N):
            target[b] *= inverse[b]


@inner_kernel
def backward_substitute(triangle: Floats, x: Floats) -> None:
    """x := L^-T x for all blocks."""
    size, N = x.shape
    for i in range(size - 1, -1, -1):
        target = x[i]
        for j in range(i + 1, size):
            entry = triangle[j * (j + 1) // 2 + i]
            other = x[j]
            for b in range(N):
                target[b] -= entry[b] * other[b]
        inverse = triangle[i * (i + 1) // 2 + i]
        for b in range(N):
            target[b] *= inverse[b]
