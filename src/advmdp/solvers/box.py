"""What the interior point asks of boxes of probabilities, layer by layer.

Slacks are a = P - low and b = high - P, one after the other in the rows of a layer, with multipliers alpha and beta.
With d_t = 1 / (alpha / a + beta / b), the Hessian's inverse on rows that sum to nothing is diag(d) - d d' / sum d.  An
entry whose interval is narrower than ``FIXED_WIDTH`` is a constant, with d_t = 0.  Pairs whose boxes hold every
distribution share one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import body_of, inner_kernel, kernel
from advmdp.solvers import interior_point, tridiagonal
from advmdp.solvers.interior_point import Memory
from advmdp.solvers.layout import Layout, Per, copy_into, fill, layer, record, view2, whole

# The gap is between a quarter of the weighted complementarity and all of it.
CERTIFIABLE = 3.0
FIXED_WIDTH = 1e-11


@record
class Rows(NamedTuple):
    """Tightened intervals, 1 where an entry is free and 0 where it is fixed, and an interior point, which is also the
    value of the fixed entries."""

    low: Per.Entry
    high: Per.Entry
    free: Per.Entry
    inside: Per.Entry


@record
class Own(NamedTuple):
    """Working memory."""

    spread: Per.Entry  # d
    scaled: Per.Entry
    gradient: Per.Entry
    dP: Per.Entry
    sum_inverse: Per.Set  # 1 / sum d, or 0 where every entry is fixed


@body_of(interior_point.begin_layer, Rows)
def begin_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> float:
    """The points ``P`` are given."""
    rows, memory = layer(layout, h, (rows, memory))
    m, R = rows.low.shape
    for t in range(m):
        for j in range(R):
            free = rows.free[t, j] > 0.0
            memory.y[t, j] = memory.P[t, j] - rows.low[t, j] if free else -1.0
            memory.y[m + t, j] = rows.high[t, j] - memory.P[t, j] if free else -1.0
    return 0.0


@body_of(interior_point.reach_layer, Rows)
def reach_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> float:
    """The upper bounds."""
    rows, memory = layer(layout, h, (rows, memory))
    for t in range(rows.high.shape[0]):
        copy_into(memory.entries[t], rows.high[t])
    return 1e-15


@body_of(interior_point.open_layer, Rows)
def open_boxes(rows: Rows, layout: Layout, h: int, tau: float, memory: Memory, own: Own) -> None:
    """There is nothing beyond the slacks."""


@body_of(interior_point.look_layer, Rows)
def look_at_boxes(rows: Rows, layout: Layout, h: int, tau: float, memory: Memory, own: Own) -> None:
    """P is what is carried along."""
    (memory,) = layer(layout, h, (memory,))
    fill(memory.barrier, 0.0)


@body_of(interior_point.factor_layer, Rows)
def factor_boxes(rows: Rows, layout: Layout, h: int, careful: bool, memory: Memory, own: Own) -> None:
    """d and 1 / sum d."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, R = rows.low.shape
    fill(own.sum_inverse, 0.0)
    for t in range(m):
        for j in range(R):
            free = rows.free[t, j]
            up = memory.lam[t, j] * memory.inverse[t, j]
            down = memory.lam[m + t, j] * memory.inverse[m + t, j]
            own.spread[t, j] = free / (up + down + (1.0 - free))
            own.sum_inverse[j] += own.spread[t, j]
    for j in range(R):
        own.sum_inverse[j] = 1.0 / own.sum_inverse[j] if own.sum_inverse[j] > 0.0 else 0.0


@body_of(interior_point.bend_layer, Rows)
def bend_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """``sum Q (diag(d) - d d' / sum d)``, a graph Laplacian: its diagonal, d_t (sum of the others) / sum d, must not
    come out of a difference."""
    (every,) = whole(layout, (memory,))
    there = view2(every.diag, layout[h + 1].diag_at, layout[h].nexts, layout[h].nexts)
    memory, own = layer(layout, h, (memory, own))
    m, R = own.spread.shape
    n = layout[h].states
    root, largest, others, rest = memory.work[0], memory.work[1], memory.work[2], memory.work[3]
    fill(largest, 0.0)
    fill(others, 0.0)
    for t in range(m):
        for j in range(R):
            d = own.spread[t, j]
            others[j] += min(d, largest[j])
            largest[j] = max(d, largest[j])
    for j in range(R):
        root[j] = memory.root[j] * np.sqrt(own.sum_inverse[j])
    for t in range(m):
        ahead = memory.scale[n + t]
        for j in range(R):
            d = own.spread[t, j]
            own.scaled[t, j] = root[j] * ahead * d
            rest[j] = root[j] * ahead * (others[j] if d == largest[j] else others[j] + (largest[j] - d))
        memory.dV[n + t] = tridiagonal.dot(own.scaled[t], rest)
    tridiagonal.add_gram(there, own.scaled, R, -1.0)
    for t in range(m):
        there[t, t] = memory.dV[n + t]


@body_of(interior_point.aim_layer, Rows)
def aim_boxes(rows: Rows, layout: Layout, h: int, target: float, second_order: float, memory: Memory, own: Own) -> None:
    """``-d (g - mean g)`` with g = V - pull of a + pull of b, the mean weighted by d."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, R = rows.low.shape
    n = layout[h].states
    mean = memory.work[0]
    fill(mean, 0.0)
    fill(memory.shift, 0.0)
    for t in range(m):
        price = memory.V[n + t]
        for j in range(R):
            own.gradient[t, j] = price - memory.pull[t, j] + memory.pull[m + t, j]
            mean[j] += own.spread[t, j] * own.gradient[t, j]
    for j in range(R):
        mean[j] *= own.sum_inverse[j]
    for t in range(m):
        for j in range(R):
            away = own.gradient[t, j] - mean[j]
            move = own.spread[t, j] * away
            memory.entries[t, j] = -move
            memory.shift[j] -= move * away


@body_of(interior_point.move_layer, Rows)
def move_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """``dP = -d (g + dV - mean)``; a box has no cone."""
    rows, memory, own = layer(layout, h, (rows, memory, own))
    m, R = rows.low.shape
    n = layout[h].states
    mean, total = memory.work[0], memory.work[1]
    fill(mean, 0.0)
    fill(total, 0.0)
    for t in range(m):
        for j in range(R):
            mean[j] += own.spread[t, j] * (own.gradient[t, j] + memory.dV[n + t])
    for j in range(R):
        mean[j] *= own.sum_inverse[j]
    for t in range(m):
        for j in range(R):
            own.dP[t, j] = -own.spread[t, j] * (own.gradient[t, j] + memory.dV[n + t] - mean[j])
            total[j] += own.dP[t, j]
    for j in range(R):
        total[j] *= own.sum_inverse[j]
    for t in range(m):
        for j in range(R):
            # Where d is large the moves do not sum to zero up to rounding, unless they are told to.
            own.dP[t, j] -= own.spread[t, j] * total[j]
            memory.dy[t, j] = own.dP[t, j]
            memory.dy[m + t, j] = -own.dP[t, j]
    fill(mean, 0.0)
    fill(memory.room, 1e30)


@body_of(interior_point.advance_layer, Rows)
def advance_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> None:
    """P moves as its slacks do."""
    memory, own = layer(layout, h, (memory, own))
    interior_point.advance_sets(memory.room, memory.P, own.dP)


@body_of(interior_point.answer_layer, Rows)
def answer_boxes(rows: Rows, layout: Layout, h: int, memory: Memory, own: Own) -> bool:
    """Row bounds -kappa + sum_t (V_t + kappa) (low_t if V_t + kappa >= 0 else high_t), which hold for any kappa: that
    at which V - alpha + beta + kappa is zero in the mean."""
    rows, memory = layer(layout, h, (rows, memory))
    m, R = rows.low.shape
    n = layout[h].states
    kappa, total = memory.work[0], memory.work[1]
    fill(kappa, 0.0)
    fill(total, 1e-300)
    for t in range(m):
        price = memory.V[n + t]
        for j in range(R):
            free = rows.free[t, j]
            alpha, beta = memory.lam[t, j], memory.lam[m + t, j]
            d = free / (alpha / memory.y[t, j] + beta / memory.y[m + t, j] + (1.0 - free))
            kappa[j] -= d * (price - alpha + beta)
            total[j] += d
            value = min(rows.low[t, j] + memory.y[t, j], rows.high[t, j])
            memory.entries[t, j] = value if free > 0.0 else rows.inside[t, j]
    for j in range(R):
        kappa[j] /= total[j]
        memory.ahead[j] = -kappa[j]
    for t in range(m):
        price = memory.V[n + t]
        for j in range(R):
            above = price + kappa[j]
            memory.ahead[j] += above * (rows.low[t, j] if above >= 0.0 else rows.high[t, j])
    return True


# --------------------------------------------------------------------------------------------------------
# Where the iteration starts


@kernel
def prepare(layout: Layout, n_actions: int, lower: Floats, upper: Floats, rows: Rows, memory: Memory) -> None:
    """Tighten the bounds of the row sets, given as tables (S_h, A, S_{h+1}) one after the other, and find a point
    inside each, for ``kernels`` too: at the same share of the way from low to high in every entry.

    The bounds keep every distribution between the given ones, and each of them is attained.  (The analytic centre would
    save half an iteration at most, and takes as long to find.)
    """
    for h in range(layout.shape[0] - 2):
        rows_h, memory_h = layer(layout, h, (rows, memory))
        n = layout[h].states
        m = layout[h].nexts
        low, high = rows_h.low, rows_h.high
        last = -1
        for b in range(layout[h].blocks):
            # Sets are numbered as they first occur.
            j = memory_h.place[b]
            if j <= last:
                continue
            last = j
            start = layout[h].next_at + (b % n * n_actions + b // n) * m
            least = 0.0
            most = 0.0
            for t in range(m):
                low[t, j] = max(lower[start + t], 0.0)
                high[t, j] = min(upper[start + t], 1.0)
                least += low[t, j]
                most += high[t, j]
            left = 1.0
            widths = 0.0
            for t in range(m):
                bottom = max(low[t, j], 1.0 - (most - high[t, j]))
                high[t, j] = max(min(high[t, j], 1.0 - (least - low[t, j])), bottom)
                low[t, j] = bottom
                left -= bottom
                widths += high[t, j] - bottom
            share = min(max(left / widths, 0.0), 1.0) if widths > 0.0 else 0.0
            for t in range(m):
                width = high[t, j] - low[t, j]
                rows_h.inside[t, j] = low[t, j] + share * width
                rows_h.free[t, j] = 1.0 if width * min(share, 1.0 - share) > FIXED_WIDTH else 0.0
        interior_point.hand_out(memory_h.place, rows_h.inside, memory_h.kernels)


@kernel
def move_inside(layout: Layout, rows: Rows, last: Floats, share: float, memory: Memory) -> None:
    """``P`` from kernels where a step ended, as rows strictly inside this set: clipped, moved to the point inside
    except for a ``share`` of the way, and made to sum to one.

    The iteration keeps row sums as they are, so they must be right from the start: an excess is taken from what lies
    above the lower bounds, a deficit from what is left below the upper ones.
    """
    for h in range(layout.shape[0] - 2):
        rows_h, memory_h = layer(layout, h, (rows, memory))
        move_layer_inside(rows_h, view2(last, layout[h].next_at, layout[h].nexts, layout[h].blocks), share, memory_h)


@inner_kernel
def move_layer_inside(rows: Rows, given: Floats, share: float, memory: Memory) -> None:
    """A set begins where the first of its pairs is."""
    m, N = given.shape
    low, high, P = rows.low, rows.high, memory.P
    last = -1
    for b in range(N):
        j = memory.place[b]
        if j <= last:
            continue
        last = j
        total = 0.0
        bottom = 0.0
        top = 0.0
        for t in range(m):
            inside = rows.inside[t, j]
            row = inside + share * (min(max(given[t, b], low[t, j]), high[t, j]) - inside)
            P[t, j] = row if rows.free[t, j] > 0.0 else inside
            total += P[t, j]
            bottom += low[t, j] if rows.free[t, j] > 0.0 else P[t, j]
            top += high[t, j] if rows.free[t, j] > 0.0 else P[t, j]
        for t in range(m):
            if rows.free[t, j] == 0.0:
                continue
            if total > 1.0:
                P[t, j] = low[t, j] + (1.0 - bottom) / (total - bottom) * (P[t, j] - low[t, j])
            elif total < 1.0:
                P[t, j] = high[t, j] - (top - 1.0) / (top - total) * (high[t, j] - P[t, j])
