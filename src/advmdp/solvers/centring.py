"""Interior points of the ellipsoidal row sets: where the interior-point method starts.

A start on the boundary of its block costs many iterations, and in a thin block it is fatal.  Blocks whose
given point is not well inside are moved towards the minimum of ``-sum log y_i - 1/2 log(1 - |chi|^2)``,
y = E0 + E chi, by Newton's method with slacks that may start infeasible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.solvers.layout import Layout, view1, view2, view3

Floats = NDArray[np.float64]


@kernel
def centre_blocks(
    layout: Layout, E0: Floats, E: Floats, comfort: float, limit: int, chi: Floats, scratch: Floats
) -> int:
    """Centre, in place, the points chi of all blocks that have a slack below ``comfort / rows``.

    ``scratch`` needs 3 rows + k (k + 3) entries of the largest layer.  The number of blocks for which no
    interior point was found is returned; their points are left as they were.
    """
    missed = 0
    for h in range(layout.states.shape[0]):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        if k == 0:
            continue
        rows0 = view2(E0, layout.row_at[h], n_rows, N)
        rows = view3(E, layout.row_slope_at[h], n_rows, k, N)
        points = view2(chi, layout.free_at[h], k, N)
        for b in range(N):
            lowest = np.inf
            size = 0.0
            for j in range(k):
                size += points[j, b] * points[j, b]
            for i in range(n_rows):
                value = rows0[i, b]
                for j in range(k):
                    value += rows[i, j, b] * points[j, b]
                lowest = min(lowest, value)
            if lowest < comfort / n_rows or size > 0.81:
                missed += centre_block(rows0[:, b], rows[:, :, b], points[:, b], n_rows, k, limit, scratch)
    return missed


@kernel
def move_towards(layout: Layout, E0: Floats, E: Floats, share: float, goal: Floats, chi: Floats) -> None:
    """Move the points chi, inside their blocks, by ``share`` of the way to ``goal``, or to the edge if it is nearer."""
    for h in range(layout.states.shape[0]):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        rows0 = view2(E0, layout.row_at[h], n_rows, N)
        rows = view3(E, layout.row_slope_at[h], n_rows, k, N)
        points = view2(chi, layout.free_at[h], k, N)
        goals = view2(goal, layout.free_at[h], k, N)
        for b in range(N):
            along = 0.0
            length = 0.0
            inside = 1.0
            for j in range(k):
                move = goals[j, b] - points[j, b]
                along += points[j, b] * move
                length += move * move
                inside -= points[j, b] * points[j, b]
            if not length > 0.0:
                continue
            longest = min(1.0, (np.sqrt(along * along + length * max(inside, 0.0)) - along) / length)
            for i in range(n_rows):
                value = rows0[i, b]
                change = 0.0
                for j in range(k):
                    value += rows[i, j, b] * points[j, b]
                    change += rows[i, j, b] * (goals[j, b] - points[j, b])
                if value + longest * change < 0.0:
                    longest = max(-value / change, 0.0)
            for j in range(k):
                points[j, b] += share * longest * (goals[j, b] - points[j, b])


@inner_kernel
def centre_block(E0: Floats, E: Floats, point: Floats, n_rows: int, k: int, limit: int, scratch: Floats) -> int:
    """Newton's method for one block; 0 if an interior point was found (and written to ``point``), else 1."""
    y = view1(scratch, 0, n_rows)
    dy = view1(scratch, n_rows, n_rows)
    miss = view1(scratch, 2 * n_rows, n_rows)
    at = 3 * n_rows
    x = view1(scratch, at, k)
    dx = view1(scratch, at + k, k)
    matrix = view2(scratch, at + 2 * k, k, k)
    size = 0.0
    for j in range(k):
        size += point[j] * point[j]
    shrink = min(1.0, 0.99 / np.sqrt(size)) if size > 0.0 else 1.0
    for j in range(k):
        x[j] = shrink * point[j]
    floor = 0.1 / n_rows
    for i in range(n_rows):
        value = E0[i]
        for j in range(k):
            value += E[i, j] * x[j]
        y[i] = max(value, floor)
        miss[i] = value - y[i]
    feasible = False
    for _ in range(limit):
        # Ball: gradient x / c and Hessian I / c + 2 x x' / c^2, c = 1 - |x|^2.
        c = 1.0
        for j in range(k):
            c -= x[j] * x[j]
        for j in range(k):
            dx[j] = -x[j] / c
            for l in range(j + 1):  # noqa: E741
                matrix[j, l] = 2.0 * x[j] * x[l] / (c * c)
            matrix[j, j] += 1.0 / c
        for i in range(n_rows):
            inverse = 1.0 / y[i]
            push = inverse - inverse * inverse * miss[i]
            for j in range(k):
                dx[j] += push * E[i, j]
                scaled = inverse * inverse * E[i, j]
                for l in range(j + 1):  # noqa: E741
                    matrix[j, l] += scaled * E[i, l]
        for j in range(k):
            before = matrix[j, j]
            for l in range(j + 1):  # noqa: E741
                total = matrix[j, l]
                for o in range(l):
                    total -= matrix[j, o] * matrix[l, o]
                if l == j:
                    matrix[j, j] = np.sqrt(max(total, 1e-14 * before))
                else:
                    matrix[j, l] = total / matrix[l, l]
        for j in range(k):
            for l in range(j):  # noqa: E741
                dx[j] -= matrix[j, l] * dx[l]
            dx[j] /= matrix[j, j]
        decrement = 0.0
        for j in range(k):
            decrement += dx[j] * dx[j]
        for j in range(k - 1, -1, -1):
            for l in range(j + 1, k):  # noqa: E741
                dx[j] -= matrix[l, j] * dx[l]
            dx[j] /= matrix[j, j]
        if feasible and decrement < 0.25:
            break
        # Longest step inside: slacks, and the root of |x + alpha dx| = 1.
        alpha = np.inf
        for i in range(n_rows):
            value = miss[i]
            for j in range(k):
                value += E[i, j] * dx[j]
            dy[i] = value
            if value < 0.0:
                alpha = min(alpha, -y[i] / value)
        along = 0.0
        length = 0.0
        for j in range(k):
            along += x[j] * dx[j]
            length += dx[j] * dx[j]
        if length > 0.0:
            alpha = min(alpha, (np.sqrt(along * along + length * c) - along) / length)
        alpha = min(1.0, 0.9 * alpha)
        if not alpha > 0.0:
            return 1
        for j in range(k):
            x[j] += alpha * dx[j]
        feasible = True
        for i in range(n_rows):
            value = E0[i]
            for j in range(k):
                value += E[i, j] * x[j]
            miss[i] *= 1.0 - alpha
            if value > 0.0 and miss[i] <= 0.0 and abs(miss[i]) <= 1e-3 * value:
                # The true slack is positive by itself: nothing is missing any more.
                miss[i] = 0.0
                y[i] = value
            elif miss[i] == 0.0:
                y[i] = value
                feasible = feasible and value > 0.0
            else:
                y[i] += alpha * dy[i]
                feasible = False
    if not feasible:
        return 1
    for j in range(k):
        point[j] = x[j]
    return 0
