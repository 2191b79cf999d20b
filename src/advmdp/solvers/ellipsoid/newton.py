"""What the interior point asks of ellipsoids, layer by layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import body_of, inner_kernel
from advmdp.solvers import interior_point
from advmdp.solvers.centring import tightest
from advmdp.solvers.certificate import ROW_ROUNDING
from advmdp.solvers.ellipsoid import blocks, cone
from advmdp.solvers.interior_point import Memory
from advmdp.solvers.layout import Layout, Per, copy_into, fill, layer, view1

# The gap is seldom less than nine tenths of the weighted complementarity.
CERTIFIABLE = 1.25


class Rows(NamedTuple):
    """The presolved sets: P = P0 + G chi, rows E0 + E chi >= 0, |chi| <= 1 (see ``presolve``)."""

    P0: Per.Next
    G: Per.Slope
    E0: Per.Row
    E: Per.RowSlope


class Point(NamedTuple):
    """An iterate, or a direction, in units of the block weights."""

    q: Per.Block
    xi: Per.Free
    y: Per.Row
    lam: Per.Row
    u: Per.Cone  # u_xi, then u_q
    V: Per.State


class Own(NamedTuple):
    """Working memory; cone vectors have q last."""

    dual_residual: Per.Cone
    row_residual: Per.Row
    rounding: Per.Row  # the size of a row's residual that rounding explains
    scaling: Per.Cone  # the point w of the NT scaling
    scale: Per.Block  # eta^-2, the factor of W^-2
    triangle: Per.Triangle  # Cholesky factors of the block matrices K
    rhs: Per.Cone
    cone_term: Per.Cone  # du = cone_term - W^-2 dx
    chi: Per.Free  # where the iteration starts; xi / q of the certified iterate
    column: Per.Column
    scaled: Per.Column  # the point, and both factors of the correction, scaled by W
    left: Per.Column
    right: Per.Column
    scratch: Per.Room  # for the centring of one block


@inner_kernel
def kernels_of(rows: Rows, chi: Floats, P: Floats) -> None:
    """P = P0 + G chi, entries below zero (by rounding, or because chi violates a row) set to zero."""
    m, k, N = rows.G.shape
    for t in range(m):
        for b in range(N):
            P[t, b] = rows.P0[t, b]
        for j in range(k):
            for b in range(N):
                P[t, b] += rows.G[t, j, b] * chi[j, b]
        for b in range(N):
            P[t, b] = max(P[t, b], 0.0)


@body_of(interior_point.reach_layer, Rows)
def reach_ellipsoids(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """At the points ``own.chi``; an entry is at most P0 + |G| over its set."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, k, N = rows.G.shape
    square = memory.work[0]
    kernels_of(rows, own.chi, memory.kernels)
    for t in range(m):
        fill(square, 0.0)
        for j in range(k):
            for b in range(N):
                square[b] += rows.G[t, j, b] * rows.G[t, j, b]
        for b in range(N):
            size = np.sqrt(square[b])
            upper = min(1.0, max(0.0, rows.P0[t, b] + size))
            memory.entry_rounding[t, b] = 1e-14 * (abs(rows.P0[t, b]) + size)
            memory.reach[t, b] = 0.9 * memory.kernels[t, b] + 0.1 / m * upper


@body_of(interior_point.start_layer, Rows)
def start_ellipsoids(rows: Rows, layout: Layout, h: int, mu: float, x: Point, memory: Memory, own: Own) -> float:
    """Around the points ``own.chi``."""
    rows, x, memory, own = layer(layout, h, (rows, x, memory, own))
    n_rows, k, N = rows.E.shape
    size = memory.work[0]
    shrink = memory.work[1]
    value = memory.work[2]
    u = x.u
    cone.inner_products(own.chi, own.chi, k, size)
    for b in range(N):
        shrink[b] = min(1.0, (1.0 - 1e-9) / np.sqrt(size[b])) if size[b] > 0.0 else 1.0
        u[k, b] = mu / (1.0 - size[b] * shrink[b] * shrink[b])
    for j in range(k):
        for b in range(N):
            x.xi[j, b] = shrink[b] * own.chi[j, b]
            u[j, b] = -u[k, b] * x.xi[j, b]
    floor = 0.1 / max(n_rows, 1)
    for i in range(n_rows):
        for b in range(N):
            value[b] = rows.E0[i, b]
            size[b] = abs(rows.E0[i, b])
        for j in range(k):
            for b in range(N):
                value[b] += rows.E[i, j, b] * x.xi[j, b]
                size[b] += abs(rows.E[i, j, b])
        for b in range(N):
            own.rounding[i, b] = 1e-14 * size[b]
            x.y[i, b] = value[b] if value[b] > 1e-14 else floor
            x.lam[i, b] = mu / x.y[i, b]
    return float(N * (n_rows + 1))


@body_of(interior_point.residual_layer, Rows)
def ellipsoid_residuals(rows: Rows, layout: Layout, h: int, x: Point, memory: Memory, own: Own) -> None:
    """The dual residual of xi and q together."""
    rows, x, memory, own = layer(layout, h, (rows, x, memory, own))
    m, k, N = rows.G.shape
    n = layout[h].states
    dual = own.dual_residual
    for j in range(k):
        for b in range(N):
            dual[j, b] = -x.u[j, b]
    for b in range(N):
        dual[k, b] = memory.q_residual[b] - x.u[k, b]
    blocks.add_price_sums(rows.P0, rows.G, view1(x.V, n, m), 1.0, dual)
    blocks.add_row_sums(rows.E0, rows.E, x.lam, -1.0, dual)
    gap = memory.work[0]
    off = memory.work[1]
    product = memory.work[2]
    cone.inner_products(x.u, x.xi, k, product)
    for b in range(N):
        gap[b] += product[b] + x.u[k, b] * x.q[b]
        off[b] = 0.0
    blocks.row_values(rows.E0, rows.E, x.q, x.xi, own.row_residual)
    slack_residuals(x.q, x.y, own.rounding, own.row_residual)
    for j in range(k + 1):
        for b in range(N):
            off[b] = max(off[b], abs(dual[j, b]))
    blocks.arrivals(
        rows.P0, rows.G, x.q, x.xi, memory.root_weight, view1(memory.state_scale, n, m), product,
        view1(memory.flow_residual, n, m),
    )  # fmt: skip


@inner_kernel
def slack_residuals(q: Floats, y: Floats, rounding: Floats, slack: Floats) -> None:
    """``slack``, which holds the values of the rows, less y.

    A residual of the size of rounding is not there: divided by a small slack it would be noise.
    """
    n_rows, N = y.shape
    for i in range(n_rows):
        for b in range(N):
            miss = slack[i, b] - y[i, b]
            slack[i, b] = miss if abs(miss) > rounding[i, b] * q[b] else 0.0


@body_of(interior_point.eliminate_layer, Rows)
def eliminate_ellipsoids(rows: Rows, layout: Layout, h: int, careful: bool, x: Point, memory: Memory, own: Own) -> None:
    """By the Cholesky factors L of the block matrices: rows of C L^-T, C = (G, P0), scaled by sqrt(w) and the masses
    of both sides."""
    rows, x, memory, own = layer(layout, h, (rows, x, memory, own))
    m, k, N = rows.G.shape
    n = layout[h].states
    work = memory.work
    cone.find_scaling(x.q, x.xi, x.u, own.scaling, own.scale, work)
    # What is missing of a slack moves its multiplier whatever the direction aims at.
    blocks.add_slack_sums(rows.E0, rows.E, memory.ratio, own.row_residual, own.dual_residual, work[0])
    if careful:
        row = own.column
        blocks.factor_blocks_by_rotations(
            x.q, memory.ratio, rows.E0, rows.E, own.scaling, own.scale, own.triangle, row, work
        )
    else:
        blocks.factor_blocks(x.q, memory.ratio, rows.E0, rows.E, own.scaling, own.scale, own.triangle, work)
    copy_into(memory.corner, own.triangle[own.triangle.shape[0] - 1])
    for t in range(m):
        ahead = memory.state_scale[n + t]
        column = memory.stacked[t]
        for j in range(k + 1):
            slope = rows.G[t, j] if j < k else rows.P0[t]
            target = column[j]
            for b in range(N):
                target[b] = slope[b] * (memory.root_weight[b] * ahead)
        blocks.forward_substitute(own.triangle, column)


@body_of(interior_point.aim_layer, Rows)
def aim_ellipsoids(
    rows: Rows, layout: Layout, h: int, x: Point, target: float, corrected: bool, d: Point, memory: Memory, own: Own
) -> None:
    """K^-1 (cone_term - dual residual + (E, E0)' term), where cone_term = target q x^-1 - u to first order."""
    rows, x, d, memory, own = layer(layout, h, (rows, x, d, memory, own))
    m, k, N = rows.G.shape
    n = layout[h].states
    rhs = own.rhs
    if corrected:
        cone.corrector(
            x.q, x.u, d.q, d.xi, d.u, own.scaling, own.scale, target, own.scaled, own.left, own.right, memory.work,
            own.cone_term,
        )  # fmt: skip
    else:
        cone.predictor(x.q, x.xi, x.u, target, memory.work[0], own.cone_term)
    for j in range(k + 1):
        for b in range(N):
            rhs[j, b] = own.cone_term[j, b] - own.dual_residual[j, b]
    blocks.add_row_sums(rows.E0, rows.E, memory.term, 1.0, rhs)
    blocks.forward_substitute(own.triangle, rhs)
    blocks.backward_substitute(own.triangle, rhs)
    copy_into(memory.goal, rhs[k])
    blocks.arrivals(
        rows.P0, rows.G, memory.goal, rhs, memory.root_weight, view1(memory.state_scale, n, m), memory.work[0],
        view1(d.V, n, m),
    )  # fmt: skip


@body_of(interior_point.move_layer, Rows)
def move_ellipsoids(rows: Rows, layout: Layout, h: int, x: Point, d: Point, memory: Memory, own: Own) -> float:
    """dx = K^-1 (g + e_q dV(s) - C'dV), and from it dy and du."""
    rows, x, d, memory, own = layer(layout, h, (rows, x, d, memory, own))
    n_rows, k, N = rows.E.shape
    m = rows.G.shape[0]
    n = layout[h].states
    dx = own.column
    for j in range(k + 1):
        fill(dx[j], 0.0)
    interior_point.add_price(n, 1.0, d.V, dx[k])
    blocks.add_price_sums(rows.P0, rows.G, view1(d.V, n, m), -1.0, dx)
    blocks.forward_substitute(own.triangle, dx)
    blocks.backward_substitute(own.triangle, dx)
    for j in range(k):
        for b in range(N):
            d.xi[j, b] = dx[j, b] + own.rhs[j, b]
    for b in range(N):
        d.q[b] = dx[k, b] + own.rhs[k, b]
    blocks.row_values(rows.E0, rows.E, d.q, d.xi, d.y)
    for i in range(n_rows):
        for b in range(N):
            d.y[i, b] += own.row_residual[i, b]
    cone.move(own.scaling, own.scale, own.cone_term, d.q, d.xi, memory.work[0], d.u)
    cone.inner_products(d.u, d.xi, k, memory.curvature)
    for b in range(N):
        memory.curvature[b] += d.q[b] * d.u[k, b]
    longest = cone.longest_step(k, x.xi, x.q, d.xi, d.q, memory.work)
    return min(longest, cone.longest_step(k, x.u, x.u[k], d.u, d.u[k], memory.work))


@body_of(interior_point.answer_layer, Rows)
def ellipsoid_answer(rows: Rows, layout: Layout, h: int, x: Point, memory: Memory, own: Own) -> bool:
    """Row bounds P0.V - E0.lam - |G'V - E'lam|."""
    rows, x, memory, own = layer(layout, h, (rows, x, memory, own))
    m, k, N = rows.G.shape
    n = layout[h].states
    for j in range(k):
        for b in range(N):
            own.chi[j, b] = x.xi[j, b] / x.q[b]
    kernels_of(rows, own.chi, memory.kernels)
    inside = True
    lowest = memory.work[0]
    size = memory.work[1]
    tightest(rows.E0, rows.E, own.chi, lowest, size, memory.work[2])
    for b in range(N):
        # So written, a point that is no number is outside.
        if not (size[b] - 1.0 <= ROW_ROUNDING and lowest[b] >= -ROW_ROUNDING):
            inside = False
    slope = own.column
    for j in range(k + 1):
        fill(slope[j], 0.0)
    blocks.add_price_sums(rows.P0, rows.G, view1(x.V, n, m), 1.0, slope)
    blocks.add_row_sums(rows.E0, rows.E, x.lam, -1.0, slope)
    cone.inner_products(slope, slope, k, memory.bound)
    for b in range(N):
        memory.bound[b] = slope[k, b] - np.sqrt(memory.bound[b])
    return inside
