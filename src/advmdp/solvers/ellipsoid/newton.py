"""One Newton system: residuals, the factors of the blocks and of the Schur complement, and its directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers import interior_point, tridiagonal
from advmdp.solvers.ellipsoid.blocks import (
    add_price_sums,
    add_row_sums,
    add_slack_sums,
    arrivals,
    backward_substitute,
    factor_blocks,
    factor_blocks_by_rotations,
    forward_substitute,
    row_values,
)
from advmdp.solvers.ellipsoid.cone import (
    cone_corrector,
    cone_predictor,
    cone_step,
    inner_products,
    move_cone,
    scale_cone,
)
from advmdp.solvers.ellipsoid.memory import Memory, Point, Rows
from advmdp.solvers.layout import Layout, copy_into, fill, view1, view2, view3

Floats = NDArray[np.float64]


@inner_kernel
def residuals(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float, float]:
    """Fill the residuals of stationarity, rows and flow; return (mean complementarity, sum of weighted
    complementarity, largest flow residual, largest residual of stationarity)."""
    H = layout.states.shape[0]
    total = 0.0
    weighted = 0.0
    dual_worst = 0.0
    count = 0
    flow = memory.flow_residual
    fill(flow, 0.0)
    flow[0] = -memory.state_scale[0]
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        q = view1(x.q, at, N)
        weight = view1(memory.weight, at, N)
        root_weight = view1(memory.root_weight, at, N)
        xi = view2(x.xi, layout.free_at[h], k, N)
        u = view2(x.u, layout.cone_at[h], k + 1, N)
        y = view2(x.y, layout.row_at[h], n_rows, N)
        lam = view2(x.lam, layout.row_at[h], n_rows, N)
        P0 = view2(rows.P0, layout.next_at[h], m, N)
        G = view3(rows.G, layout.slope_at[h], m, k, N)
        E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
        E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
        dual = view2(memory.dual_residual, layout.cone_at[h], k + 1, N)
        gap = memory.work[0]
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        for j in range(k):
            for b in range(N):
                dual[j, b] = -u[j, b]
        for b in range(N):
            dual[k, b] = memory.log_weight[at + b] + np.log(q[b]) - log_prior[at + b] + cost[at + b] - u[k, b]
        for start_at in range(0, N, n):
            for s in range(n):
                dual[k, start_at + s] -= x.V[here + s]
                root = root_weight[start_at + s]
                flow[here + s] += root * memory.state_scale[here + s] * root * q[start_at + s]
        add_price_sums(P0, G, view1(x.V, there, m), 1.0, dual)
        add_row_sums(E0, E, lam, -1.0, dual)
        slack = view2(memory.row_residual, layout.row_at[h], n_rows, N)
        rounding = view2(memory.rounding, layout.row_at[h], n_rows, N)
        inner_products(u, xi, k, gap)
        for b in range(N):
            gap[b] += u[k, b] * q[b]
        row_values(E0, E, q, xi, slack)
        slack_residuals(q, y, lam, rounding, slack, gap)
        off = memory.work[2]
        for b in range(N):
            off[b] = 0.0
        for j in range(k + 1):
            for b in range(N):
                off[b] = max(off[b], abs(dual[j, b]))
        for b in range(N):
            total += gap[b] / q[b]
            weighted += weight[b] * gap[b]
            dual_worst = max(dual_worst, off[b])
        count += N * (n_rows + 1)
        if h < H - 1:
            scale = view1(memory.state_scale, there, m)
            arrivals(P0, G, q, xi, root_weight, scale, memory.work[1], view1(flow, there, m))
    worst = 0.0
    for i in range(flow.shape[0] - 1):
        worst = max(worst, abs(flow[i]) / memory.state_scale[i])
    return total / count, weighted, worst, dual_worst


@inner_kernel
def slack_residuals(q: Floats, y: Floats, lam: Floats, rounding: Floats, slack: Floats, gap: Floats) -> None:
    """``slack``, which holds the values of the rows, less y; the complementarity of the rows is added to ``gap``.

    A residual of the size of rounding is not there: divided by a small slack it would be noise.
    """
    n_rows, N = y.shape
    for i in range(n_rows):
        for b in range(N):
            miss = slack[i, b] - y[i, b]
            slack[i, b] = miss if abs(miss) > rounding[i, b] * q[b] else 0.0
            gap[b] += lam[i, b] * y[i, b]


@inner_kernel
def assemble(layout: Layout, rows: Rows, careful: bool, x: Point, memory: Memory) -> int:
    """Factor every block and the Schur complement sum_b w (e_s e_q' - C) K^-1 (e_s e_q' - C)', C = (G, P0)."""
    H = layout.states.shape[0]
    for i in range(memory.diag.shape[0]):
        memory.diag[i] = 0.0
    for i in range(memory.off.shape[0]):
        memory.off[i] = 0.0
    work = memory.work
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        q = view1(x.q, at, N)
        root_weight = view1(memory.root_weight, at, N)
        here = view1(memory.state_scale, layout.state_at[h], n)
        scale = view1(memory.scale, at, N)
        w = view2(memory.scaling, layout.cone_at[h], k + 1, N)
        E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
        E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
        triangle = view2(memory.triangle, layout.triangle_at[h], (k + 1) * (k + 2) // 2, N)
        scale_cone(
            q,
            view2(x.xi, layout.free_at[h], k, N),
            view2(x.u, layout.cone_at[h], k + 1, N),
            w,
            scale,
            work,
        )
        ratio = view2(memory.ratio, layout.row_at[h], n_rows, N)
        interior_point.invert_slacks(
            q, view2(x.y, layout.row_at[h], n_rows, N), view2(x.lam, layout.row_at[h], n_rows, N),
            view2(memory.inverse, layout.row_at[h], n_rows, N), ratio, view2(memory.ready, layout.row_at[h], n_rows, N),
        )  # fmt: skip
        # What is missing of a slack moves its multiplier whatever the direction aims at.
        add_slack_sums(
            E0, E, ratio, view2(memory.row_residual, layout.row_at[h], n_rows, N),
            view2(memory.dual_residual, layout.cone_at[h], k + 1, N), work[0],
        )  # fmt: skip
        if careful:
            column = view2(memory.column, 0, k + 1, N)
            factor_blocks_by_rotations(q, ratio, E0, E, w, scale, triangle, column, work)
        else:
            factor_blocks(q, ratio, E0, E, w, scale, triangle, work)
        diag = view2(memory.diag, layout.diag_at[h], n, n)
        corner = triangle[(k + 1) * (k + 2) // 2 - 1]
        for start_at in range(0, N, n):
            for s in range(n):
                entry = root_weight[start_at + s] * here[s] * corner[start_at + s]
                diag[s, s] += entry * entry
        if h == H - 1:
            break
        # Rows of C L^-T, one per next state, scaled by sqrt(w) and the masses of both sides.
        P0 = view2(rows.P0, layout.next_at[h], m, N)
        G = view3(rows.G, layout.slope_at[h], m, k, N)
        off = view2(memory.off, layout.off_at[h], n, m)
        own = work[0]
        for start_at in range(0, N, n):
            for s in range(n):
                own[start_at + s] = root_weight[start_at + s] * here[s] * corner[start_at + s]
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            column = view2(memory.stacked, t * (k + 1) * N, k + 1, N)
            for j in range(k + 1):
                slope = G[t, j] if j < k else P0[t]
                target = column[j]
                for b in range(N):
                    target[b] = slope[b] * (root_weight[b] * ahead)
            forward_substitute(triangle, column)
            last = column[k]
            for start_at in range(0, N, n):
                for s in range(n):
                    off[s, t] -= last[start_at + s] * own[start_at + s]
        there = view2(memory.diag, layout.diag_at[h + 1], m, m)
        tridiagonal.add_gram(there, view2(memory.stacked, 0, m, (k + 1) * N), (k + 1) * N, 1.0)
    return tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, memory.stacked)


@inner_kernel
def cone_terms(layout: Layout, h: int, x: Point, target: float, corrected: bool, d: Point, memory: Memory) -> None:
    """``cone_term = target q x^-1 - u`` of layer h, to first order; ``corrected`` adds the second-order terms of d."""
    k = layout.free[h]
    N = layout.blocks[h]
    at = layout.block_at[h]
    q = view1(x.q, at, N)
    xi = view2(x.xi, layout.free_at[h], k, N)
    u = view2(x.u, layout.cone_at[h], k + 1, N)
    cone_term = view2(memory.cone_term, layout.cone_at[h], k + 1, N)
    if corrected:
        cone_corrector(
            q, u, view1(d.q, at, N), view2(d.xi, layout.free_at[h], k, N), view2(d.u, layout.cone_at[h], k + 1, N),
            view2(memory.scaling, layout.cone_at[h], k + 1, N), view1(memory.scale, at, N),
            target, memory.cone_scratch, memory.work, cone_term,
        )  # fmt: skip
    else:
        cone_predictor(q, xi, u, target, memory.work[0], cone_term)


@inner_kernel
def direction(layout: Layout, rows: Rows, x: Point, target: float, corrected: bool, d: Point, memory: Memory) -> float:
    """The Newton direction towards complementarity ``target``, after :func:`assemble`.

    ``corrected`` adds the second-order terms of the direction that ``d`` holds on entry (the predictor).  Returned is
    the largest common step along it that keeps every slack, multiplier and cone point inside.
    """
    H = layout.states.shape[0]
    copy_into(d.V, memory.flow_residual)
    interior_point.aim_multipliers(
        target, corrected, x.lam, memory.inverse, memory.ready, memory.second, memory.row_term
    )
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        root_weight = view1(memory.root_weight, at, N)
        rhs = view2(memory.rhs, layout.cone_at[h], k + 1, N)
        cone_terms(layout, h, x, target, corrected, d, memory)
        first = layout.cone_at[h]
        for i in range(first, first + (k + 1) * N):
            memory.rhs[i] = memory.cone_term[i] - memory.dual_residual[i]
        add_row_sums(
            view2(rows.E0, layout.row_at[h], n_rows, N), view3(rows.E, layout.row_slope_at[h], n_rows, k, N),
            view2(memory.row_term, layout.row_at[h], n_rows, N), 1.0, rhs,
        )  # fmt: skip
        triangle = view2(memory.triangle, layout.triangle_at[h], (k + 1) * (k + 2) // 2, N)
        forward_substitute(triangle, rhs)
        backward_substitute(triangle, rhs)
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        last = rhs[k]
        for start_at in range(0, N, n):
            for s in range(n):
                root = root_weight[start_at + s]
                d.V[here + s] += root * memory.state_scale[here + s] * (root * last[start_at + s])
        if h < H - 1:
            P0 = view2(rows.P0, layout.next_at[h], m, N)
            G = view3(rows.G, layout.slope_at[h], m, k, N)
            scale = view1(memory.state_scale, there, m)
            arrivals(P0, G, last, rhs, root_weight, scale, memory.work[0], view1(d.V, there, m))
    tridiagonal.solve(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, layout.state_at, d.V)
    for i in range(d.V.shape[0]):
        d.V[i] *= -memory.state_scale[i]
    d.V[d.V.shape[0] - 1] = 0.0
    longest = np.inf
    for h in range(H):
        longest = min(longest, back_substitute_layer(layout, h, rows, x, d, memory))
    return longest


@inner_kernel
def back_substitute_layer(layout: Layout, h: int, rows: Rows, x: Point, d: Point, memory: Memory) -> float:
    """Block directions of layer h from the price direction: dx = K^-1 (g + e_q dV(s) - C'dV), and dy, dlam, du.

    Returned is the largest step that the blocks of the layer allow.
    """
    n = layout.states[h]
    m = layout.nexts[h]
    n_rows = layout.rows[h]
    k = layout.free[h]
    N = layout.blocks[h]
    at = layout.block_at[h]
    here = layout.state_at[h]
    there = layout.state_at[h + 1]
    rhs = view2(memory.rhs, layout.cone_at[h], k + 1, N)
    triangle = view2(memory.triangle, layout.triangle_at[h], (k + 1) * (k + 2) // 2, N)
    P0 = view2(rows.P0, layout.next_at[h], m, N)
    G = view3(rows.G, layout.slope_at[h], m, k, N)
    dx = view2(memory.column, 0, k + 1, N)
    for j in range(k):
        for b in range(N):
            dx[j, b] = 0.0
    for start_at in range(0, N, n):
        for s in range(n):
            dx[k, start_at + s] = d.V[here + s]
    add_price_sums(P0, G, view1(d.V, there, m), -1.0, dx)
    forward_substitute(triangle, dx)
    backward_substitute(triangle, dx)
    dq = view1(d.q, at, N)
    dxi = view2(d.xi, layout.free_at[h], k, N)
    for j in range(k):
        for b in range(N):
            dxi[j, b] = dx[j, b] + rhs[j, b]
    for b in range(N):
        dq[b] = dx[k, b] + rhs[k, b]
    dy = view2(d.y, layout.row_at[h], n_rows, N)
    E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
    E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
    row_values(E0, E, dq, dxi, dy)
    first = layout.row_at[h]
    for i in range(first, first + n_rows * N):
        d.y[i] += memory.row_residual[i]
    fastest = view1(memory.fastest, 0, N)
    fill(fastest, 0.0)
    interior_point.move_multipliers(
        view2(memory.row_term, first, n_rows, N), view2(memory.ratio, first, n_rows, N),
        view2(memory.inverse, first, n_rows, N), view2(x.lam, first, n_rows, N), dy, view2(d.lam, first, n_rows, N),
        view2(memory.second, first, n_rows, N), fastest,
    )  # fmt: skip
    largest = interior_point.largest_of(fastest)
    longest = 1.0 / largest if largest > 0.0 else np.inf
    du = view2(d.u, layout.cone_at[h], k + 1, N)
    move_cone(
        view2(memory.scaling, layout.cone_at[h], k + 1, N), view1(memory.scale, at, N),
        view2(memory.cone_term, layout.cone_at[h], k + 1, N), dq, dxi, memory.work[0], du,
    )  # fmt: skip
    xi = view2(x.xi, layout.free_at[h], k, N)
    u = view2(x.u, layout.cone_at[h], k + 1, N)
    longest = min(longest, cone_step(k, xi, view1(x.q, at, N), dxi, dq, memory.work))
    return min(longest, cone_step(k, u, u[k], du, du[k], memory.work))


@inner_kernel
def second_order(layout: Layout, x: Point, d: Point, memory: Memory) -> float:
    """The mean product of the moves of a slack and its multiplier, relative to the occupancies of x."""
    total = memory.fastest
    mean = 0.0
    for h in range(layout.states.shape[0]):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        du = view2(d.u, layout.cone_at[h], k + 1, N)
        inner_products(du, view2(d.xi, layout.free_at[h], k, N), k, total)
        interior_point.add_products(view2(memory.second, layout.row_at[h], n_rows, N), total)
        for b in range(N):
            mean += (total[b] + d.q[at + b] * du[k, b]) / x.q[at + b]
    return mean / float(x.y.shape[0] + x.q.shape[0])
