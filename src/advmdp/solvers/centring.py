"""Interior points of the ellipsoidal row sets: where the interior-point method starts.

A start on the boundary of its block costs many iterations, and in a thin block it is fatal.  Blocks whose
given point is not well inside are moved towards the minimum of ``-sum log y_i - 1/2 log(1 - |chi|^2)``,
y = E0 + E chi, by Newton's method with slacks that may start infeasible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inlined_kernel, inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.layout import Layout, Per, copy_into, fill, layer, record, view1, view2, whole

# A warm start goes a share of the way from the centre of each block to where the last step ended, the further the less
# the rows have moved in that step: the share loses PER_MOVE times their relative move.
PER_MOVE = 1.25
LEAST_SHARE = 0.2
LARGEST_SHARE = 0.95
# Points of an ellipsoid are centred by at most so many steps.
LIMIT = 40
# Slacks start from no less than the first of these over the number of rows, a tenth of it off the sphere.  Into a set
# that is only just not empty Newton's method does not find from so far: where it finds no point, the next is tried.
FLOORS = (0.1, 1e-4, 1e-8, 1e-12)


@record
class Points(NamedTuple):
    """Points of all blocks."""

    centre: Per.Free  # where to centre from, and then the centres
    last: Per.Free  # where a step ended
    before: Per.Free  # what that step had been given
    chi: Per.Free  # where to start


@kernel
def place_points(layout: Layout, rows: Any, comfort: float, points: Points, work: Floats, scratch: Floats) -> float:
    """Where to start over the ``rows`` of ellipsoids: the centres, found where that is needed, moved towards ``last``.
    The share of the way is returned.

    A point needs centring that has a slack below ``comfort / rows``.  ``work`` has rows of blocks; ``scratch`` needs
    3 rows + k (k + 3) entries of the largest layer.
    """
    for h in range(layout.shape[0] - 1):
        rows_h, points_h = layer(layout, h, (rows, points))
        centre_layer(rows_h.E0, rows_h.E, comfort, points_h.centre, work, scratch)
    (every,) = whole(layout, (points,))
    share = warm_share(every.centre, every.before, every.last)
    copy_into(every.chi, every.centre)
    for h in range(layout.shape[0] - 1):
        rows_h, points_h = layer(layout, h, (rows, points))
        move_towards(rows_h.E0, rows_h.E, share, points_h.last, points_h.chi, work)
    return share


@inlined_kernel
def warm_share(centre: Floats, before: Floats, last: Floats) -> float:
    """How far to go from ``centre`` back to ``last``, given how far that had moved from ``before``."""
    moved = 0.0
    away = 0.0
    for i in range(last.shape[0]):
        moved += (last[i] - before[i]) ** 2
        away += (last[i] - centre[i]) ** 2
    share = 1.0 - PER_MOVE * np.sqrt(moved / away) if moved < away else 0.0
    return min(max(share, LEAST_SHARE), LARGEST_SHARE)


@inlined_kernel
def centre_layer(E0: Floats, E: Floats, comfort: float, points: Floats, work: Floats, scratch: Floats) -> None:
    """Centre, in place, the points of a layer that have a slack below ``comfort / rows``, as far as possible."""
    n_rows, k, N = E.shape
    lowest = work[0]
    size = work[1]
    tightest(E0, E, points, lowest, size, work[2])
    for b in range(N if k > 0 else 0):
        if lowest[b] < comfort / n_rows or size[b] > 0.81:
            for floor in FLOORS:
                if centre_block(E0[:, b], E[:, :, b], points[:, b], n_rows, k, floor, scratch):
                    break


@inner_kernel
def tightest(E0: Floats, E: Floats, points: Floats, lowest: Floats, size: Floats, work: Floats) -> None:
    """The smallest slack and |chi|^2 of the points of a layer."""
    n_rows, k, N = E.shape
    fill(size, 0.0)
    fill(lowest, np.inf)
    for j in range(k):
        for b in range(N):
            size[b] += points[j, b] * points[j, b]
    for i in range(n_rows):
        for b in range(N):
            work[b] = E0[i, b]
        for j in range(k):
            for b in range(N):
                work[b] += E[i, j, b] * points[j, b]
        for b in range(N):
            lowest[b] = min(lowest[b], work[b])


@kernel
def way_to_sphere(along: float, length: float, inside: float) -> float:
    """The positive root alpha of ``|x + alpha d|^2 = 1``, given x.d, |d|^2 > 0 and 1 - |x|^2.

    The same root in two forms: near the sphere the other one cancels, and would step outside.
    """
    room = max(inside, 0.0)
    root = np.sqrt(along * along + length * room)
    return float(room / (root + along) if along > 0.0 else (root - along) / length)


@inlined_kernel
def move_towards(E0: Floats, E: Floats, share: float, goals: Floats, points: Floats, work: Floats) -> None:
    """Move the points of a layer, inside their blocks, by ``share`` of the way to the goals, or to the edge where it is
    nearer."""
    n_rows, k, N = E.shape
    along = work[0]
    length = work[1]
    inside = work[2]
    longest = work[3]
    value = work[4]
    change = work[5]
    for b in range(N):
        along[b] = 0.0
        length[b] = 0.0
        inside[b] = 1.0
    for j in range(k):
        for b in range(N):
            move = goals[j, b] - points[j, b]
            along[b] += points[j, b] * move
            length[b] += move * move
            inside[b] -= points[j, b] * points[j, b]
    for b in range(N):
        longest[b] = min(1.0, way_to_sphere(along[b], length[b], inside[b])) if length[b] > 0.0 else 0.0
    for i in range(n_rows):
        for b in range(N):
            value[b] = E0[i, b]
            change[b] = 0.0
        for j in range(k):
            for b in range(N):
                value[b] += E[i, j, b] * points[j, b]
                change[b] += E[i, j, b] * (goals[j, b] - points[j, b])
        for b in range(N):
            if change[b] < 0.0 and value[b] + longest[b] * change[b] < 0.0:
                longest[b] = max(-value[b] / change[b], 0.0)
    for j in range(k):
        for b in range(N):
            points[j, b] += share * longest[b] * (goals[j, b] - points[j, b])


@inlined_kernel
def centre_block(E0: Floats, E: Floats, point: Floats, n_rows: int, k: int, floor: float, scratch: Floats) -> bool:
    """Newton's method for one block; whether an interior point is found, else ``point`` is left as it was."""
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
    shrink = min(1.0, (1.0 - 0.1 * floor) / np.sqrt(size)) if size > 0.0 else 1.0
    for j in range(k):
        x[j] = shrink * point[j]
    for i in range(n_rows):
        value = E0[i]
        for j in range(k):
            value += E[i, j] * x[j]
        y[i] = max(value, floor / n_rows)
        miss[i] = value - y[i]
    feasible = False
    for _ in range(LIMIT):
        # Ball: gradient x / c and Hessian I / c + 2 x x' / c^2, c = 1 - |x|^2.
        c = 1.0
        for j in range(k):
            c -= x[j] * x[j]
        for j in range(k):
            dx[j] = -x[j] / c
            for o in range(j, k):
                matrix[j, o] = 2.0 * x[j] * x[o] / (c * c)
            matrix[j, j] += 1.0 / c
        for i in range(n_rows):
            inverse = 1.0 / y[i]
            push = inverse - inverse * inverse * miss[i]
            for j in range(k):
                dx[j] += push * E[i, j]
                scaled = inverse * inverse * E[i, j]
                for o in range(j, k):
                    matrix[j, o] += scaled * E[i, o]
        for j in range(k):
            matrix[j, j] *= 1.0 + 1e-14  # so that no pivot is lost to rounding
        tridiagonal.factor_upper(matrix, view2(scratch, 0, k, 0))
        tridiagonal.solve_lower(matrix, dx)
        decrement = 0.0
        for j in range(k):
            decrement += dx[j] * dx[j]
        tridiagonal.solve_upper(matrix, dx)
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
            alpha = min(alpha, way_to_sphere(along, length, c))
        alpha = min(1.0, 0.9 * alpha)
        if not alpha > 0.0:
            return False
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
    size = 0.0
    for j in range(k):
        size += x[j] * x[j]
    if feasible and size < 1.0:
        for j in range(k):
            point[j] = x[j]
        return True
    return False
