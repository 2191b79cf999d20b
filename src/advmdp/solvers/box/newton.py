"""What the interior point asks of boxes, layer by layer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import body_of, inner_kernel
from advmdp.solvers import interior_point, tridiagonal
from advmdp.solvers.interior_point import Memory, arriving
from advmdp.solvers.layout import Layout, Per, fill, layer, view2

# The gap is between a quarter of the weighted complementarity and all of it.
CERTIFIABLE = 3.0


class Rows(NamedTuple):
    """Tightened intervals, 1 where an entry is free and 0 where it is fixed, and an interior point, which is also the
    value of the fixed entries."""

    low: Per.Next
    high: Per.Next
    free: Per.Next
    inside: Per.Next


class Point(NamedTuple):
    """An iterate, or a direction, in units of the block weights."""

    q: Per.Block
    y: Per.Row  # a, then b
    lam: Per.Row  # alpha, then beta
    kappa: Per.Block
    V: Per.State


class Own(NamedTuple):
    """Working memory."""

    y_residual: Per.Next
    spread: Per.Next  # d
    share: Per.Next  # p
    q_inverse: Per.Block  # 1 / Kq
    sum_inverse: Per.Block  # 1 / sum d, or 0 where every entry is fixed
    excess: Per.Block  # sum e - 1
    y_rhs: Per.Next
    q_rhs: Per.Block


@body_of(interior_point.reach_layer, Rows)
def reach_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """The kernels are given."""
    rows, memory = layer(layout, h, (rows, memory))
    m, N = rows.high.shape
    for t in range(m):
        for i in range(N):
            memory.reach[t, i] = 0.9 * memory.kernels[t, i] + 0.1 / m * rows.high[t, i]
            memory.entry_rounding[t, i] = 1e-15 * rows.high[t, i]


@body_of(interior_point.start_layer, Rows)
def start_boxes(rows: Rows, layout: Layout, h: int, mu: float, x: Point, memory: Memory, own: Own) -> float:
    """The kernels are inside their boxes."""
    rows, x, memory = layer(layout, h, (rows, x, memory))
    m, N = rows.low.shape
    n = layout[h].states
    y = x.y
    lam = x.lam
    top = memory.work[0]
    bottom = memory.work[1]
    fill(top, 0.0)
    fill(bottom, 0.0)
    count = 0.0
    for t in range(m):
        for i in range(N):
            if rows.free[t, i] > 0.0:
                y[t, i] = memory.kernels[t, i] - rows.low[t, i]
                y[m + t, i] = rows.high[t, i] - memory.kernels[t, i]
                lam[t, i] = mu / y[t, i]
                lam[m + t, i] = mu / y[m + t, i]
                d = 1.0 / (lam[t, i] / y[t, i] + lam[m + t, i] / y[m + t, i])
                top[i] += d * (x.V[n + t] - lam[t, i] + lam[m + t, i])
                bottom[i] += d
                count += 2.0
            else:
                y[t, i] = 1.0
                y[m + t, i] = 1.0
                lam[t, i] = 0.0
                lam[m + t, i] = 0.0
    for i in range(N):
        x.kappa[i] = -top[i] / bottom[i] if bottom[i] > 0.0 else 0.0
    return count


@body_of(interior_point.residual_layer, Rows)
def box_residuals(rows: Rows, layout: Layout, h: int, x: Point, memory: Memory, own: Own) -> None:
    """Entry by entry."""
    rows, x, memory, own = layer(layout, h, (rows, x, memory, own))
    m, N = rows.low.shape
    n = layout[h].states
    off = memory.work[1]
    flow = memory.work[2]
    fill(off, 0.0)
    for i in range(N):
        memory.q_residual[i] -= x.kappa[i]
    for t in range(m):
        for i in range(N):
            # A fixed entry has one free multiplier, which stationarity sets to V_t + kappa.
            ahead = x.V[n + t] + x.kappa[i]
            free = rows.free[t, i]
            fixed = (1.0 - free) * rows.inside[t, i]
            alpha = x.lam[t, i]
            beta = x.lam[m + t, i]
            low = rows.low[t, i]
            memory.q_residual[i] += low * alpha - rows.high[t, i] * beta + fixed * ahead
            y = free * (ahead - alpha + beta)
            own.y_residual[t, i] = y
            off[i] = max(off[i], abs(y))
            flow[i] = free * (low * x.q[i] + x.y[t, i]) + fixed * x.q[i]
        memory.flow_residual[n + t] -= arriving(memory.root_weight, memory.state_scale[n + t], flow)
    for i in range(N):
        off[i] = max(off[i], abs(memory.q_residual[i]))


@body_of(interior_point.eliminate_layer, Rows)
def eliminate_boxes(rows: Rows, layout: Layout, h: int, careful: bool, x: Point, memory: Memory, own: Own) -> None:
    """By the formulas of the package; diag(d) - d d' / sum d is added here."""
    there = view2(memory.diag, layout[h + 1].diag_at, layout[h].nexts, layout[h].nexts)
    rows, x, memory, own = layer(layout, h, (rows, x, memory, own))
    m, N = rows.low.shape
    n = layout[h].states
    for t in range(m):
        for i in range(N):
            memory.ready[t, i] *= rows.free[t, i]
            memory.ready[m + t, i] *= rows.free[t, i]
    eliminate_blocks(rows, x.q, memory.ratio, own, memory.work[0])
    root = memory.work[0]
    largest = memory.work[1]
    others = memory.work[2]
    rest = memory.work[3]
    stacked = view2(memory.stacked, 0, m, N)
    # It is a graph Laplacian: its diagonal, d_t (sum of the others) / sum d, must not come out of a difference.
    for i in range(N):
        root[i] = memory.root_weight[i] * np.sqrt(own.sum_inverse[i])
    all_but_largest(own.spread, largest, others)
    diagonal = memory.work[4]
    for t in range(m):
        laplacian_row(memory.state_scale[n + t], root, own.spread[t], largest, others, stacked[t], rest)
        diagonal[t] = tridiagonal.dot(stacked[t], rest[:N])
    tridiagonal.add_gram(there, stacked, N, -1.0)
    for t in range(m):
        there[t, t] = diagonal[t]
    for i in range(N):
        memory.corner[i] = np.sqrt(own.q_inverse[i])
        root[i] = memory.root_weight[i] * memory.corner[i]
    for t in range(m):
        for i in range(N):
            stacked[t, i] = root[i] * memory.state_scale[n + t] * own.share[t, i]


@inner_kernel
def eliminate_blocks(rows: Rows, q: Floats, ratio: Floats, own: Own, total: Floats) -> None:
    """The quantities d, p, 1/Kq, 1/sum d and sum e - 1 of the package's formulas."""
    low, high, free, inside = rows
    spread, share = own.spread, own.share
    q_inverse, sum_inverse, excess = own.q_inverse, own.sum_inverse, own.excess
    m, N = low.shape
    for i in range(N):
        total[i] = 0.0
        excess[i] = -1.0
        q_inverse[i] = 1.0 / q[i]
    for t in range(m):
        for i in range(N):
            f = free[t, i]
            d = f / (ratio[t, i] + ratio[m + t, i] + (1.0 - f))
            edges = low[t, i] * ratio[t, i] + high[t, i] * ratio[m + t, i]
            e = edges * d + (1.0 - f) * inside[t, i]
            width = high[t, i] - low[t, i]
            spread[t, i] = d
            share[t, i] = e
            total[i] += d
            excess[i] += e
            q_inverse[i] += ratio[t, i] * ratio[m + t, i] * width * width * d
    for i in range(N):
        sum_inverse[i] = 1.0 / total[i] if total[i] > 0.0 else 0.0
        total[i] = excess[i] * sum_inverse[i]
        q_inverse[i] = 1.0 / (q_inverse[i] + excess[i] * total[i])
    for t in range(m):
        for i in range(N):
            share[t, i] -= total[i] * spread[t, i]


@inner_kernel
def all_but_largest(x: Floats, largest: Floats, others: Floats) -> None:
    """Per block: the largest of its entries x (m, N), and the sum of all the others."""
    m, N = x.shape
    fill(largest, 0.0)
    fill(others, 0.0)
    for t in range(m):
        for i in range(N):
            d = x[t, i]
            others[i] += min(d, largest[i])
            largest[i] = max(d, largest[i])


@inner_kernel
def laplacian_row(
    ahead: float, root: Floats, spread: Floats, largest: Floats, others: Floats, row: Floats, rest: Floats
) -> None:
    """d_t and the sum of the other d of each block, both scaled."""
    for i in range(spread.shape[0]):
        d = spread[i]
        scaled = root[i] * ahead
        row[i] = scaled * d
        rest[i] = scaled * (others[i] if d == largest[i] else others[i] + (largest[i] - d))


@body_of(interior_point.aim_layer, Rows)
def aim_boxes(
    rows: Rows, layout: Layout, h: int, x: Point, target: float, corrected: bool, d: Point, memory: Memory, own: Own
) -> None:
    """dq0 = (g_q + p.g) / Kq, dy0 = d (g - (d.g) / sum d) + p dq0, with right-hand sides g of y and g_q of q."""
    rows, x, d, memory, own = layer(layout, h, (rows, x, d, memory, own))
    m, N = rows.low.shape
    n = layout[h].states
    inner = memory.work[0]
    flow = memory.work[1]
    for i in range(N):
        inner[i] = 0.0
        own.q_rhs[i] = -memory.q_residual[i]
    for t in range(m):
        for i in range(N):
            up = memory.term[t, i]
            down = memory.term[m + t, i]
            g = up - down - own.y_residual[t, i]
            own.y_rhs[t, i] = g
            inner[i] += own.spread[t, i] * g
            edges = rows.high[t, i] * down - rows.low[t, i] * up
            own.q_rhs[i] += edges + rows.free[t, i] * own.share[t, i] * g
    for i in range(N):
        inner[i] *= own.sum_inverse[i]
        memory.goal[i] = own.q_rhs[i] * own.q_inverse[i]
    for t in range(m):
        for i in range(N):
            flow[i] = own.spread[t, i] * (own.y_rhs[t, i] - inner[i]) + own.share[t, i] * memory.goal[i]
        d.V[n + t] -= arriving(memory.root_weight, memory.state_scale[n + t], flow)


@body_of(interior_point.move_layer, Rows)
def move_boxes(rows: Rows, layout: Layout, h: int, x: Point, d: Point, memory: Memory, own: Own) -> float:
    """``dy = d (g - dV - mean) + p dq``; a box has no cone."""
    rows, x, d, memory, own = layer(layout, h, (rows, x, d, memory, own))
    m, N = rows.low.shape
    n = layout[h].states
    inner = memory.work[0]
    for i in range(N):
        inner[i] = 0.0
        d.q[i] = own.q_rhs[i]
    interior_point.add_price(n, 1.0, d.V, d.q)
    for t in range(m):
        for i in range(N):
            d.q[i] -= own.share[t, i] * d.V[n + t]
            inner[i] += own.spread[t, i] * (own.y_rhs[t, i] - d.V[n + t])
    for i in range(N):
        d.q[i] *= own.q_inverse[i]
        d.kappa[i] = (inner[i] + own.excess[i] * d.q[i]) * own.sum_inverse[i]
        inner[i] *= own.sum_inverse[i]
    for t in range(m):
        for i in range(N):
            g = own.y_rhs[t, i] - d.V[n + t] - inner[i]
            dy = own.spread[t, i] * g + own.share[t, i] * d.q[i]
            d.y[t, i] = rows.free[t, i] * (dy - rows.low[t, i] * d.q[i])
            d.y[m + t, i] = rows.free[t, i] * (rows.high[t, i] * d.q[i] - dy)
    return np.inf


@body_of(interior_point.answer_layer, Rows)
def box_answer(rows: Rows, layout: Layout, h: int, x: Point, memory: Memory, own: Own) -> bool:
    """Row bounds -kappa + sum_t (V_t + kappa) (low_t if V_t + kappa >= 0 else high_t), which hold for any kappa."""
    rows, x, memory = layer(layout, h, (rows, x, memory))
    m, N = rows.low.shape
    n = layout[h].states
    for i in range(N):
        memory.bound[i] = -x.kappa[i] if m > 0 else 0.0
    for t in range(m):
        for i in range(N):
            low = rows.low[t, i]
            high = rows.high[t, i]
            free = rows.free[t, i] > 0.0
            memory.kernels[t, i] = min(low + x.y[t, i] / x.q[i], high) if free else rows.inside[t, i]
            above = x.V[n + t] + x.kappa[i]
            memory.bound[i] += above * (low if above >= 0.0 else high)
    return True
