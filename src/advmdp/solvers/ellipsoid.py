"""What the interior point asks of ellipsoidal row sets P = P0 + G chi, |chi| <= 1, E0 + E chi >= 0, layer by layer.

With slacks y of the inequalities and w = 1 - |chi|^2, and multipliers lam and omega, a point is stationary where
G'V - E'lam + 2 omega chi = 0, and on the path where lam y = omega w = tau.  The Hessian of the row problem is
K = E' diag(lam / y) E + 2 omega I + 4 omega / w chi chi'.  A set without interior keeps its point.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import body_of, inlined_kernel, inner_kernel, kernel
from advmdp.solvers import interior_point, tridiagonal
from advmdp.solvers.certificate import ROW_ROUNDING
from advmdp.solvers.interior_point import Memory
from advmdp.solvers.layout import Layout, Per, fill, layer, record, view1

# The gap is seldom less than nine tenths of the weighted complementarity.
CERTIFIABLE = 1.25
# Slacks below this leave a set no interior.
THINNEST = 1e-14
# Less than this share of a diagonal entry of K is what rounding left of it.
PIVOT = 1e-15
# Where the iteration starts a slack is no less than this share of what the set, as far as its ball says, leaves it; and
# after so many steps a point that is not inside never will be.
COMFORT = 0.2
LIMIT = 25
# The slack of a point counts where it is not less than this share of the one that is carried along.
NEAR = 0.9


@record
class Rows(NamedTuple):
    """The presolved sets."""

    P0: Per.Entry
    G: Per.Slope
    E0: Per.Row
    E: Per.RowSlope


@record
class Own(NamedTuple):
    """Points with their cones, how they move, and working memory."""

    given: Per.Free  # points of the sets, which may lie on their edges
    chi: Per.Free
    dchi: Per.Free
    aim: Per.Free  # dchi at dV = 0
    free: Per.Set  # 1, or 0 where a set keeps its point
    w: Per.Set
    omega: Per.Set
    dw: Per.Set  # to first order
    domega: Per.Set
    pull: Per.Set  # the multiplier that the aim asks for at this w
    second: Per.Set  # second-order terms of omega w
    triangle: Per.Triangle  # Cholesky factors of K, diagonals inverted
    column: Per.Column


@body_of(interior_point.begin_layer, Rows)
def begin_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> float:
    """From the points ``own.chi``, moved inside their sets where they are not; where that fails, a set keeps the point
    that is given.

    A start on the boundary of its set costs many iterations, and in a thin set it is fatal.
    """
    rows, memory, own = layer(layout, h, (rows, memory, own))
    r, k, R = rows.E.shape
    size = memory.work[0]
    row_lengths(rows.E, memory.y)
    sum_products(own.given, own.given, size)
    for i in range(r):
        for j in range(R):
            memory.y[i, j] *= COMFORT * max(1.0 - np.sqrt(size[j]), THINNEST)
    for attempt in range(LIMIT + 1):
        outside = look_outside(rows, memory, own)
        if outside == 0.0 or attempt == LIMIT:
            break
        move_inside(rows, memory, own)
    for j in range(R):
        own.free[j] = 1.0 - own.free[j] if k > 0 else 0.0
    for i in range(k):
        for j in range(R):
            own.chi[i, j] = own.chi[i, j] if own.free[j] > 0.0 else own.given[i, j]
            own.dchi[i, j] = 0.0
    for i in range(r):
        for j in range(R):
            memory.y[i, j] = memory.y[i, j] if own.free[j] > 0.0 else -1.0
    fill(own.domega, 0.0)
    fill(own.second, 0.0)
    affine(rows.P0, rows.G, own.chi, 0.0, memory.P)
    return tridiagonal.sum_of(own.free)


@inlined_kernel
def look_outside(rows: Any, memory: Any, own: Any) -> float:
    """Where the slacks of points are not much smaller than ``y``, they take its place; the number of sets that are left
    with others, of which ``free`` is 1.  ``dlam`` receives how much too large these slacks are."""
    sum_products(own.chi, own.chi, own.w)
    fill(own.free, 0.0)
    for j in range(own.w.shape[0]):
        own.w[j] = max(1.0 - own.w[j], THINNEST)
        own.omega[j] = 1.0 / own.w[j]
    affine(rows.E0, rows.E, own.chi, -np.inf, memory.dlam)
    for i in range(memory.y.shape[0]):
        for j in range(own.w.shape[0]):
            slack = memory.dlam[i, j]
            # So written, a point that is no number is outside.
            good = slack > max(NEAR * memory.y[i, j], THINNEST)
            memory.y[i, j] = slack if good else memory.y[i, j]
            own.free[j] = own.free[j] if good else 1.0
            inverse = 1.0 / memory.y[i, j]
            memory.dlam[i, j] = memory.y[i, j] - slack
            memory.inverse[i, j] = inverse
            memory.pull[i, j] = inverse + inverse * inverse * memory.dlam[i, j]
    return tridiagonal.sum_of(own.free)


@inlined_kernel
def move_inside(rows: Any, memory: Any, own: Any) -> None:
    """A step of Newton's method for the minimum of -sum log y - log w in each set that is ``free``; others stay.  By
    how much slacks are too large shrinks with the length of the step."""
    factor_blocks(rows.E, memory.inverse, memory.inverse, own, memory.work)
    for i in range(own.chi.shape[0]):
        for j in range(own.w.shape[0]):
            own.dchi[i, j] = -2.0 * own.omega[j] * own.chi[i, j]
    add_sums(rows.E, memory.pull, own.dchi)
    forward_substitute(own.triangle, own.dchi)
    backward_substitute(own.triangle, own.dchi)
    stay_in_ball(own, memory.work, memory.room)
    add_products(rows.E, own.dchi, memory.dy)
    for i in range(memory.y.shape[0]):
        for j in range(own.w.shape[0]):
            memory.dy[i, j] -= memory.dlam[i, j]
            if memory.dy[i, j] < 0.0:
                memory.room[j] = min(memory.room[j], -memory.y[i, j] / memory.dy[i, j])
    for j in range(own.w.shape[0]):
        memory.room[j] = min(1.0, 0.9 * memory.room[j])
    interior_point.advance_sets(memory.room, memory.y, memory.dy)
    interior_point.advance_sets(memory.room, own.chi, own.dchi)


@body_of(interior_point.reach_layer, Rows)
def reach_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> float:
    """At most |P0| + |G|."""
    rows, memory = layer(layout, h, (rows, memory))
    row_lengths(rows.G, memory.entries)
    for t in range(rows.P0.shape[0]):
        for j in range(rows.P0.shape[1]):
            memory.entries[t, j] += abs(rows.P0[t, j])
    return 1e-14


@body_of(interior_point.open_layer, Rows)
def open_ellipsoids(rows: Rows, layout: Layout, h: int, tau: float, memory: Memory, own: Own) -> None:
    """omega = tau / w."""
    (own,) = layer(layout, h, (own,))
    for j in range(own.w.shape[0]):
        own.omega[j] = own.free[j] * tau / own.w[j]


@body_of(interior_point.look_layer, Rows)
def look_at_ellipsoids(rows: Rows, layout: Layout, h: int, tau: float, memory: Memory, own: Own) -> None:
    """P = P0 + G chi."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    affine(rows.P0, rows.G, own.chi, 0.0, memory.P)
    for j in range(own.w.shape[0]):
        memory.barrier[j] = own.free[j] * np.log(own.w[j])
        own.omega[j] = interior_point.near_path(own.omega[j], tau / own.w[j])
        memory.work[0, j] += own.omega[j] * own.w[j]


@body_of(interior_point.factor_layer, Rows)
def factor_ellipsoids(rows: Rows, layout: Layout, h: int, careful: bool, memory: Memory, own: Own) -> None:
    """K = L L'."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    if careful:
        factor_by_rotations(rows.E, memory.lam, memory.inverse, own, memory.work)
    else:
        factor_blocks(rows.E, memory.lam, memory.inverse, own, memory.work)


@body_of(interior_point.bend_layer, Rows)
def bend_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """Columns of G L^-T."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, k, R = rows.G.shape
    n = layout[h].states
    for t in range(m):
        ahead = memory.scale[n + t]
        column = memory.stacked[t, :k]
        for i in range(k):
            for j in range(R):
                column[i, j] = rows.G[t, i, j] * (memory.root[j] * ahead)
        forward_substitute(own.triangle, column)


@body_of(interior_point.aim_layer, Rows)
def aim_ellipsoids(
    rows: Rows, layout: Layout, h: int, target: float, second_order: float, memory: Memory, own: Own
) -> None:
    """``aim = -K^-1 g`` with g = G'V - E'pull + 2 pull chi, and to second order 2 domega dchi."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, k, R = rows.G.shape
    for j in range(R):
        own.pull[j] = own.free[j] * (target - second_order * own.second[j]) / own.w[j]
    for i in range(k):
        for j in range(R):
            change = second_order * own.domega[j] * own.dchi[i, j]
            own.aim[i, j] = -2.0 * (own.pull[j] * own.chi[i, j] + change)
    add_sums(rows.E, memory.pull, own.aim)
    add_price_sums(rows.G, view1(memory.V, layout[h].states, m), own.aim)
    forward_substitute(own.triangle, own.aim)
    sum_products(own.aim, own.aim, memory.shift)
    for j in range(R):
        memory.shift[j] = -memory.shift[j]
    backward_substitute(own.triangle, own.aim)
    add_products(rows.G, own.aim, memory.entries)


@body_of(interior_point.move_layer, Rows)
def move_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """``dchi = aim - K^-1 G'dV``."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, k, R = rows.G.shape
    fill_table(own.dchi, 0.0)
    add_price_sums(rows.G, view1(memory.dV, layout[h].states, m), own.dchi)
    forward_substitute(own.triangle, own.dchi)
    backward_substitute(own.triangle, own.dchi)
    for i in range(k):
        for j in range(R):
            own.dchi[i, j] += own.aim[i, j]
    along, square = memory.work[0], memory.work[1]
    stay_in_ball(own, memory.work, memory.room)
    add_products(rows.E, own.dchi, memory.dy)
    for j in range(R):
        own.dw[j] = -2.0 * along[j]
        own.domega[j] = own.pull[j] - own.omega[j] - own.omega[j] / own.w[j] * own.dw[j]
        own.second[j] = own.domega[j] * own.dw[j] - own.omega[j] * square[j]
        if own.domega[j] < 0.0:
            memory.room[j] = min(memory.room[j], -own.omega[j] / own.domega[j])
        along[j] = own.second[j]


@body_of(interior_point.advance_layer, Rows)
def advance_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """w is carried along: near the sphere 1 - |chi|^2 would leave nothing of it."""
    memory, own = layer(layout, h, (memory, own))
    k, R = own.chi.shape
    for j in range(R):
        own.w[j] += memory.room[j] * own.dw[j]
        own.omega[j] += memory.room[j] * own.domega[j]
    for i in range(k):
        for j in range(R):
            move = memory.room[j] * own.dchi[i, j]
            own.w[j] -= move * move
            own.chi[i, j] += move


@body_of(interior_point.answer_layer, Rows)
def answer_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> bool:
    """Row bounds P0.V - E0.lam - |G'V - E'lam|."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, k, R = rows.G.shape
    affine(rows.P0, rows.G, own.chi, 0.0, memory.entries)
    affine(rows.E0, rows.E, own.chi, -np.inf, memory.dy)
    size = memory.work[0]
    sum_products(own.chi, own.chi, size)
    # So written, a point that is no number is outside.
    inside = True
    for j in range(R):
        inside = inside and size[j] - 1.0 <= ROW_ROUNDING
    for i in range(rows.E0.shape[0]):
        for j in range(R):
            inside = inside and memory.dy[i, j] >= -ROW_ROUNDING
    slope = own.column[:k]
    fill_table(slope, 0.0)
    add_sums(rows.E, memory.lam, slope)
    add_price_sums(rows.G, view1(memory.V, layout[h].states, m), slope)
    sum_products(slope, slope, size)
    interior_point.mean_of_entries(rows.P0, view1(memory.V, layout[h].states, m), memory.ahead)
    for i in range(rows.E0.shape[0]):
        for j in range(R):
            memory.ahead[j] -= rows.E0[i, j] * memory.lam[i, j]
    for j in range(R):
        memory.ahead[j] -= np.sqrt(size[j])
    return inside


# --------------------------------------------------------------------------------------------------------
# Linear algebra of all sets of a layer


@inner_kernel
def fill_table(table: Floats, value: float) -> None:
    """Set every entry."""
    for i in range(table.shape[0]):
        fill(table[i], value)


@kernel
def way_to_sphere(along: float, length: float, inside: float) -> float:
    """The positive root alpha of ``|x + alpha d|^2 = 1``, given x.d, |d|^2 > 0 and 1 - |x|^2.

    The same root in two forms: near the sphere the other one cancels, and would step outside.
    """
    room = max(inside, 0.0)
    root = np.sqrt(along * along + length * room)
    return float(room / (root + along) if along > 0.0 else (root - along) / length)


@inner_kernel
def stay_in_ball(own: Any, work: Floats, room: Floats) -> None:
    """``room``: the longest step along dchi within the ball; chi.dchi and |dchi|^2 into the first rows of ``work``."""
    sum_products(own.chi, own.dchi, work[0])
    sum_products(own.dchi, own.dchi, work[1])
    for j in range(room.shape[0]):
        room[j] = way_to_sphere(work[0, j], work[1, j], own.w[j]) if work[1, j] > 0.0 else 1e30


@inner_kernel
def sum_products(x: Floats, y: Floats, out: Floats) -> None:
    """``out_j = sum_i x_ij y_ij``."""
    for j in range(x.shape[1]):
        out[j] = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j] * y[i, j]


@inner_kernel
def row_lengths(slopes: Floats, out: Floats) -> None:
    """``out_i = |slopes_i|``."""
    for i in range(slopes.shape[0]):
        sum_products(slopes[i], slopes[i], out[i])
        for j in range(out.shape[1]):
            out[i, j] = np.sqrt(out[i, j])


@inner_kernel
def affine(base: Floats, slopes: Floats, x: Floats, least: float, out: Floats) -> None:
    """``out_i = base_i + slopes_i . x``, or ``least`` where that is more (rounding takes entries of P below zero)."""
    add_products(slopes, x, out)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = max(out[i, j] + base[i, j], least)


@inner_kernel
def add_products(slopes: Floats, x: Floats, out: Floats) -> None:
    """``out_i = slopes_i . x``, coordinates two by two, which halves the traffic."""
    r, k, R = slopes.shape
    odd = k % 2
    for i in range(r):
        target = out[i]
        for j in range(R):
            target[j] = slopes[i, 0, j] * x[0, j] if odd else 0.0
        for o in range(odd, k, 2):
            slope, other = slopes[i, o], slopes[i, o + 1]
            for j in range(R):
                target[j] += slope[j] * x[o, j] + other[j] * x[o + 1, j]


@inner_kernel
def add_sums(slopes: Floats, values: Floats, out: Floats) -> None:
    """``out += slopes' values``, rows two by two."""
    r, k, R = slopes.shape
    for i in range(0, r, 2):
        # An odd row at the end counts once.
        other = min(i + 1, r - 1)
        counts = 1.0 if other > i else 0.0
        for o in range(k):
            slope, under, target = slopes[i, o], slopes[other, o], out[o]
            for j in range(R):
                target[j] += slope[j] * values[i, j] + counts * (under[j] * values[other, j])


@inner_kernel
def add_price_sums(G: Floats, prices: Floats, out: Floats) -> None:
    """``out -= G'V``, the same for one vector of prices shared by all sets."""
    m, k, R = G.shape
    for t in range(0, m, 2):
        other = min(t + 1, m - 1)
        value = -prices[t]
        below = -prices[other] if other > t else 0.0
        for o in range(k):
            slope, under, target = G[t, o], G[other, o], out[o]
            for j in range(R):
                target[j] += slope[j] * value + under[j] * below


@inner_kernel
def factor_blocks(E: Floats, lam: Floats, inverse: Floats, own: Own, work: Floats) -> None:
    """Cholesky factors of K; ``triangle[i (i + 1) / 2 + o]`` holds entry (i, o) of all sets, diagonals are inverted.
    The inverse of a set that keeps its point is zero."""
    r, k, R = E.shape
    triangle, chi = own.triangle, own.chi
    curve = work[0]
    for j in range(R):
        curve[j] = 4.0 * own.omega[j] / own.w[j]
    for i in range(k):
        for o in range(i + 1):
            entry = triangle[i * (i + 1) // 2 + o]
            for j in range(R):
                entry[j] = curve[j] * chi[i, j] * chi[o, j]
        for j in range(R):
            entry[j] += 2.0 * own.omega[j]
    scaled, lower = work[1], work[2]
    for t in range(0, r, 2):
        other = min(t + 1, r - 1)
        counts = 1.0 if other > t else 0.0
        for i in range(k):
            left, under = E[t, i], E[other, i]
            for j in range(R):
                scaled[j] = lam[t, j] * inverse[t, j] * left[j]
                lower[j] = counts * lam[other, j] * inverse[other, j] * under[j]
            for o in range(i + 1):
                add_two(triangle[i * (i + 1) // 2 + o], scaled, E[t, o], lower, E[other, o])
    for o in range(k):
        for i in range(o, k):
            entry = triangle[i * (i + 1) // 2 + o]
            for j in range(R if i == o else 0):
                scaled[j] = PIVOT * entry[j]
            for l in range(o):  # noqa: E741
                left, right = triangle[i * (i + 1) // 2 + l], triangle[o * (o + 1) // 2 + l]
                for j in range(R):
                    entry[j] -= left[j] * right[j]
            if i == o:
                for j in range(R):
                    entry[j] = own.free[j] / np.sqrt(max(entry[j], scaled[j]) + (1.0 - own.free[j]))
            else:
                scale = triangle[o * (o + 1) // 2 + o]
                for j in range(R):
                    entry[j] *= scale[j]


@inlined_kernel
def factor_by_rotations(E: Floats, lam: Floats, inverse: Floats, own: Own, work: Floats) -> None:
    """The same without forming K: its roots are rotated in one by one, so that small parts of it survive beside large
    ones; its eigenvalues may spread over twenty decades and more."""
    r, k, R = E.shape
    triangle, row = own.triangle, own.column
    for i in range(triangle.shape[0]):
        fill(triangle[i], 0.0)
    for i in range(k):
        for j in range(R):
            triangle[i * (i + 1) // 2 + i, j] = np.sqrt(2.0 * own.omega[j])
    for t in range(r + 1):
        for i in range(k):
            for j in range(R):
                if t < r:
                    row[i, j] = np.sqrt(lam[t, j] * inverse[t, j]) * E[t, i, j]
                else:
                    row[i, j] = 2.0 * np.sqrt(own.omega[j] / own.w[j]) * own.chi[i, j]
        for o in range(k):
            corner = triangle[o * (o + 1) // 2 + o]
            cosine, sine = work[0], work[1]
            for j in range(R):
                length = np.sqrt(corner[j] * corner[j] + row[o, j] * row[o, j])
                cosine[j] = corner[j] / max(length, 1e-300)
                sine[j] = row[o, j] / max(length, 1e-300)
                corner[j] = length
            for i in range(o + 1, k):
                under = triangle[i * (i + 1) // 2 + o]
                for j in range(R):
                    kept = under[j]
                    under[j] = cosine[j] * kept + sine[j] * row[i, j]
                    row[i, j] = cosine[j] * row[i, j] - sine[j] * kept
    for o in range(k):
        corner = triangle[o * (o + 1) // 2 + o]
        for j in range(R):
            corner[j] = own.free[j] / max(corner[j], 1e-300)


@inner_kernel
def add_two(out: Floats, x: Floats, y: Floats, u: Floats, v: Floats) -> None:
    """``out += x y + u v``, entry by entry."""
    for j in range(out.shape[0]):
        out[j] += x[j] * y[j] + u[j] * v[j]


@inner_kernel
def forward_substitute(triangle: Floats, x: Floats) -> None:
    """x := L^-1 x for all sets, x (k, R)."""
    k, R = x.shape
    for i in range(k):
        target = x[i]
        for o in range(i):
            entry, other = triangle[i * (i + 1) // 2 + o], x[o]
            for j in range(R):
                target[j] -= entry[j] * other[j]
        scale = triangle[i * (i + 1) // 2 + i]
        for j in range(R):
            target[j] *= scale[j]


@inner_kernel
def backward_substitute(triangle: Floats, x: Floats) -> None:
    """x := L^-T x for all sets."""
    k, R = x.shape
    for i in range(k - 1, -1, -1):
        target = x[i]
        for o in range(i + 1, k):
            entry, other = triangle[o * (o + 1) // 2 + i], x[o]
            for j in range(R):
                target[j] -= entry[j] * other[j]
        scale = triangle[i * (i + 1) // 2 + i]
        for j in range(R):
            target[j] *= scale[j]
