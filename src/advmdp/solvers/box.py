"""Primal-dual interior point for the mirror step over boxes of probabilities.

Per block, in units of the block's weight w_b: occupancy q, flows y with sum y = q (multiplier kappa), slacks
a = y - low q and b = high q - y with multipliers alpha and beta.  With prices V,

    log(w q / prior) + cost - V(s) + low.alpha - high.beta - kappa = 0,     V_t - alpha_t + beta_t + kappa = 0,

and alpha a = beta b = mu q on the path.  The block matrix is never factored: with

    d_t = 1 / (alpha/a + beta/b),  e_t = (low alpha/a + high beta/b) d_t,  p_t = e_t - (sum e - 1) d_t / sum d,
    Kq = 1/q + sum alpha beta / (a b) (high - low)^2 d + (sum e - 1)^2 / sum d

the Schur complement of a block is w [(e_s - p)(e_s - p)' / Kq + diag(d) - d d' / sum d].  An entry whose interval
is narrower than ``FIXED_WIDTH`` is a constant: d_t = 0 and e_t its value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import (
    ROW_SUM_ROUNDING,
    certify_layer,
    expected_price,
    logarithmic_limit,
    roll_forward,
    rounding_of_masses,
    set_scale,
    start_prices,
)
from advmdp.solvers.layout import BufferSizes, Layout, view1, view2

Floats = NDArray[np.float64]

FIXED_WIDTH = 1e-11
# Complementarity is held back while stationarity is off by more than this multiple of it.
SLACKNESS = 1e4
HOLD = 0.7
# A warm start is moved this far from the earlier kernels towards the interior point.
RETREAT = 0.2


class Rows(NamedTuple):
    """Tightened intervals (m per block), 1 where an entry is free and 0 where it is fixed, and an
    interior point, which is also the value of the fixed entries."""

    low: Floats
    high: Floats
    free: Floats
    inside: Floats


class Point(NamedTuple):
    """An iterate, or a direction, in units of the block weights."""

    q: Floats
    a: Floats
    b: Floats
    alpha: Floats
    beta: Floats
    kappa: Floats
    V: Floats


class Memory(NamedTuple):
    """Everything else that the iteration writes to; allocated once per shape."""

    log_weight: Floats
    weight: Floats
    root_weight: Floats
    state_scale: Floats  # per state: 1 / sqrt of the starting mass, scales the Schur complement
    reach: Floats  # kernels mixed with all that the sets allow
    q_residual: Floats
    y_residual: Floats
    flow_residual: Floats
    spread: Floats  # d
    share: Floats  # p
    q_inverse: Floats  # 1 / Kq
    sum_inverse: Floats  # 1 / sum d, or 0 where every entry is fixed
    excess: Floats  # sum e - 1
    alpha_term: Floats  # dalpha = alpha_term - alpha/a (dy - low dq)
    beta_term: Floats  # dbeta = beta_term - beta/b (high dq - dy)
    y_rhs: Floats
    q_rhs: Floats
    dy: Floats
    diag: Floats
    off: Floats
    stacked: Floats
    laplacian: Floats  # scratch: one diagonal
    work: Floats
    kernels: Floats
    log_q: Floats
    q: Floats
    mass: Floats
    entry_rounding: Floats  # per entry of P: how well it is known
    blur: Floats  # per state: how well the logarithm of its mass is known


def make_point(sizes: BufferSizes) -> Point:
    """Room for an iterate or a direction."""
    return Point(
        q=np.zeros(sizes.block),
        a=np.ones(sizes.next),
        b=np.ones(sizes.next),
        alpha=np.ones(sizes.next),
        beta=np.ones(sizes.next),
        kappa=np.zeros(sizes.block),
        V=np.zeros(sizes.state),
    )


def make_memory(layout: Layout, sizes: BufferSizes) -> Memory:
    """Working memory for problems of this layout."""
    block, entry = sizes.block, sizes.next
    lengths = {
        "log_weight": block, "weight": block, "root_weight": block, "state_scale": sizes.state,
        "reach": entry, "q_residual": block, "y_residual": entry,
        "flow_residual": sizes.state, "spread": entry, "share": entry, "q_inverse": block,
        "sum_inverse": block, "excess": block, "alpha_term": entry, "beta_term": entry,
        "y_rhs": entry, "q_rhs": block, "dy": entry, "diag": sizes.diag, "off": sizes.off,
        "stacked": int((layout.blocks * layout.nexts).max()),
        "laplacian": int(layout.states.max()), "kernels": entry, "log_q": block, "q": block,
        "mass": sizes.state, "entry_rounding": entry, "blur": sizes.state,
    }  # fmt: skip
    return Memory(
        work=np.zeros((8, int(layout.blocks.max()))),
        **{name: np.zeros(length) for name, length in lengths.items()},
    )


@kernel
def prepare(layout: Layout, rows: Rows) -> None:
    """Find the centre of each block, the maximum of sum log(P - low) + log(high - P) over distributions, and
    decide which entries are fixed.

    With multiplier k of the sum, P - low = width (1 - s) / 2 where s = c / (1 + sqrt(1 + c^2)), c = k width / 2; the
    sum falls with k, and Newton's method with a bracket finds its root.
    """
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        inside = view2(rows.inside, layout.next_at[h], m, N)
        for b in range(N):
            left = 1.0
            widths = 0.0
            for t in range(m):
                left -= low[t, b]
                widths += high[t, b] - low[t, b]
            left = min(max(left, 0.0), widths)
            below = -np.inf
            above = np.inf
            slope = 2.0 * (1.0 - 2.0 * left / widths) / (widths / m) if widths > 0.0 else 0.0
            for _ in range(30):
                total = 0.0
                change = 0.0
                for t in range(m):
                    half = 0.5 * (high[t, b] - low[t, b])
                    c = slope * half
                    root = np.sqrt(1.0 + c * c)
                    total += half * (1.0 - c / (1.0 + root))
                    change += half * half / (root * (1.0 + root))
                if total > left:
                    below = slope
                else:
                    above = slope
                if abs(total - left) <= 1e-3 * min(left, widths - left) or not change > 0.0:
                    break
                slope += (total - left) / change
                if slope <= below or slope >= above:
                    # A step out of the bracket: halve it, or double where it is still open.
                    if below == -np.inf:
                        slope = 2.0 * above - 1.0 / widths
                    elif above == np.inf:
                        slope = 2.0 * below + 1.0 / widths
                    else:
                        slope = 0.5 * (below + above)
            # Close the rest of the sum by a common factor, towards the nearer bounds.
            total = 0.0
            for t in range(m):
                half = 0.5 * (high[t, b] - low[t, b])
                c = slope * half
                inside[t, b] = half * (1.0 - c / (1.0 + np.sqrt(1.0 + c * c)))
                total += inside[t, b]
            shrink = total > left
            factor = left / total if shrink and total > 0.0 else 1.0
            if not shrink and widths > total:
                factor = (widths - left) / (widths - total)
            for t in range(m):
                width = high[t, b] - low[t, b]
                if shrink:
                    inside[t, b] *= factor
                else:
                    inside[t, b] = width - factor * (width - inside[t, b])
                wide = min(inside[t, b], width - inside[t, b])
                inside[t, b] += low[t, b]
                free[t, b] = 1.0 if wide > FIXED_WIDTH else 0.0


@kernel
def move_inside(layout: Layout, rows: Rows, kernels: Floats, out: Floats) -> None:
    """Kernels of another set as rows strictly inside this one: clipped, moved to the centre, and made to sum to one.

    The iteration keeps row sums as they are, so they must be right from the start: an excess is taken from what lies
    above the lower bounds, a deficit from what is left below the upper ones.
    """
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        inside = view2(rows.inside, layout.next_at[h], m, N)
        given = view2(kernels, layout.next_at[h], m, N)
        P = view2(out, layout.next_at[h], m, N)
        for i in range(N):
            total = 0.0
            bottom = 0.0
            top = 0.0
            for t in range(m):
                clipped = min(max(given[t, i], low[t, i]), high[t, i])
                P[t, i] = (1.0 - RETREAT) * clipped + RETREAT * inside[t, i]
                total += P[t, i]
                bottom += low[t, i]
                top += high[t, i]
            if total > 1.0:
                share = (1.0 - bottom) / (total - bottom)
                for t in range(m):
                    P[t, i] = low[t, i] + share * (P[t, i] - low[t, i])
            elif total < 1.0:
                share = (top - 1.0) / (top - total)
                for t in range(m):
                    P[t, i] = high[t, i] - share * (high[t, i] - P[t, i])


@inner_kernel
def start(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, lift: float,
    x: Point, memory: Memory,
) -> float:  # fmt: skip
    """Set the first iterate at the kernels that ``memory.kernels`` holds (inside the boxes); return its mu."""
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        at = layout.next_at[h]
        for i in range(at, at + m * layout.blocks[h]):
            memory.reach[i] = 0.9 * memory.kernels[i] + 0.1 / m * rows.high[i]
            memory.entry_rounding[i] = 1e-15 * rows.high[i]
    spread = start_prices(
        layout, memory.kernels, memory.reach, log_prior, cost, lift, memory.work, memory.log_q,
        memory.mass, x.V, memory.log_weight,
    )  # fmt: skip
    set_scale(layout, memory.mass, memory.state_scale)
    mu = max(mu, 0.03 * spread)
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        P = view2(memory.kernels, layout.next_at[h], m, N)
        a = view2(x.a, layout.next_at[h], m, N)
        b = view2(x.b, layout.next_at[h], m, N)
        alpha = view2(x.alpha, layout.next_at[h], m, N)
        beta = view2(x.beta, layout.next_at[h], m, N)
        top = memory.work[0]
        bottom = memory.work[1]
        for i in range(N):
            memory.weight[at + i] = np.exp(memory.log_weight[at + i])
            memory.root_weight[at + i] = np.exp(0.5 * memory.log_weight[at + i])
            x.q[at + i] = 1.0
            top[i] = 0.0
            bottom[i] = 0.0
        for t in range(m):
            price = x.V[layout.state_at[h + 1] + t]
            for i in range(N):
                if free[t, i] > 0.0:
                    a[t, i] = P[t, i] - low[t, i]
                    b[t, i] = high[t, i] - P[t, i]
                    alpha[t, i] = mu / a[t, i]
                    beta[t, i] = mu / b[t, i]
                    d = 1.0 / (alpha[t, i] / a[t, i] + beta[t, i] / b[t, i])
                    top[i] += d * (price - alpha[t, i] + beta[t, i])
                    bottom[i] += d
                else:
                    a[t, i] = 1.0
                    b[t, i] = 1.0
                    alpha[t, i] = 0.0
                    beta[t, i] = 0.0
        for i in range(N):
            x.kappa[at + i] = -top[i] / bottom[i] if bottom[i] > 0.0 else 0.0
    return mu


@inner_kernel
def residuals(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float, float]:
    """Fill the residuals of stationarity and flow; return (mean complementarity, sum of weighted
    complementarity, largest flow residual, largest residual of stationarity)."""
    H = layout.states.shape[0]
    total = 0.0
    weighted = 0.0
    count = 0.0
    flow = memory.flow_residual
    for i in range(flow.shape[0]):
        flow[i] = 0.0
    flow[0] = -memory.state_scale[0]
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        weight = view1(memory.weight, at, N)
        root_weight = view1(memory.root_weight, at, N)
        kappa = view1(x.kappa, at, N)
        q = view1(x.q, at, N)
        q_residual = view1(memory.q_residual, at, N)
        y_residual = view2(memory.y_residual, layout.next_at[h], m, N)
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        inside = view2(rows.inside, layout.next_at[h], m, N)
        a = view2(x.a, layout.next_at[h], m, N)
        b = view2(x.b, layout.next_at[h], m, N)
        alpha = view2(x.alpha, layout.next_at[h], m, N)
        beta = view2(x.beta, layout.next_at[h], m, N)
        gap = memory.work[0]
        for i in range(N):
            q_residual[i] = memory.log_weight[at + i] + np.log(q[i]) - log_prior[at + i] + cost[at + i] - kappa[i]
            gap[i] = 0.0
        for start_at in range(0, N, n):
            for s in range(n):
                q_residual[start_at + s] -= x.V[here + s]
                root = root_weight[start_at + s]
                flow[here + s] += root * memory.state_scale[here + s] * (root * q[start_at + s])
        for t in range(m):
            price = x.V[there + t]
            scale = memory.state_scale[there + t]
            arriving = 0.0
            for i in range(N):
                f = free[t, i]
                fixed = (1.0 - f) * inside[t, i]
                # A fixed entry has one free multiplier, which stationarity sets to V_t + kappa.
                q_residual[i] += low[t, i] * alpha[t, i] - high[t, i] * beta[t, i] + fixed * (price + kappa[i])
                y_residual[t, i] = f * (price - alpha[t, i] + beta[t, i] + kappa[i])
                gap[i] += alpha[t, i] * a[t, i] + beta[t, i] * b[t, i]
                count += 2.0 * f
            for i in range(N):
                y = free[t, i] * (low[t, i] * q[i] + a[t, i]) + (1.0 - free[t, i]) * inside[t, i] * q[i]
                arriving += root_weight[i] * scale * (root_weight[i] * y)
            flow[there + t] -= arriving
        for i in range(N):
            total += gap[i] / q[i]
            weighted += weight[i] * gap[i]
    worst = 0.0
    for i in range(flow.shape[0] - 1):
        worst = max(worst, abs(flow[i]) / memory.state_scale[i])
    dual = 0.0
    for i in range(memory.q_residual.shape[0]):
        dual = max(dual, abs(memory.q_residual[i]))
    for i in range(memory.y_residual.shape[0]):
        dual = max(dual, abs(memory.y_residual[i]))
    return total / max(count, 1.0), weighted, worst, dual


@inner_kernel
def eliminate_blocks(
    q: Floats, low: Floats, high: Floats, free: Floats, inside: Floats, a: Floats, b: Floats,
    alpha: Floats, beta: Floats, spread: Floats, share: Floats, q_inverse: Floats,
    sum_inverse: Floats, excess: Floats, total: Floats,
) -> None:  # fmt: skip
    """The quantities d, p, 1/Kq, 1/sum d and sum e - 1 of the module's formulas, for one layer."""
    m, N = low.shape
    for i in range(N):
        total[i] = 0.0
        excess[i] = -1.0
        q_inverse[i] = 1.0 / q[i]
    for t in range(m):
        for i in range(N):
            f = free[t, i]
            left = alpha[t, i] / a[t, i]
            right = beta[t, i] / b[t, i]
            d = f / (left + right + (1.0 - f))
            e = (low[t, i] * left + high[t, i] * right) * d + (1.0 - f) * inside[t, i]
            width = high[t, i] - low[t, i]
            spread[t, i] = d
            share[t, i] = e
            total[i] += d
            excess[i] += e
            q_inverse[i] += left * right * width * width * d
    for i in range(N):
        sum_inverse[i] = 1.0 / total[i] if total[i] > 0.0 else 0.0
        q_inverse[i] = 1.0 / (q_inverse[i] + excess[i] * excess[i] * sum_inverse[i])
    for t in range(m):
        for i in range(N):
            share[t, i] -= excess[i] * sum_inverse[i] * spread[t, i]


@inner_kernel
def assemble(layout: Layout, rows: Rows, x: Point, memory: Memory) -> int:
    """Eliminate every block, and form and factor the Schur complement in the prices."""
    H = layout.states.shape[0]
    for i in range(memory.diag.shape[0]):
        memory.diag[i] = 0.0
    for i in range(memory.off.shape[0]):
        memory.off[i] = 0.0
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        root_weight = view1(memory.root_weight, at, N)
        here = view1(memory.state_scale, layout.state_at[h], n)
        spread = view2(memory.spread, layout.next_at[h], m, N)
        share = view2(memory.share, layout.next_at[h], m, N)
        q_inverse = view1(memory.q_inverse, at, N)
        sum_inverse = view1(memory.sum_inverse, at, N)
        eliminate_blocks(
            view1(x.q, at, N),
            view2(rows.low, layout.next_at[h], m, N),
            view2(rows.high, layout.next_at[h], m, N),
            view2(rows.free, layout.next_at[h], m, N),
            view2(rows.inside, layout.next_at[h], m, N),
            view2(x.a, layout.next_at[h], m, N),
            view2(x.b, layout.next_at[h], m, N),
            view2(x.alpha, layout.next_at[h], m, N),
            view2(x.beta, layout.next_at[h], m, N),
            spread, share, q_inverse, sum_inverse,
            view1(memory.excess, at, N),
            memory.work[0],
        )  # fmt: skip
        diag = view2(memory.diag, layout.diag_at[h], n, n)
        for start_at in range(0, N, n):
            for s in range(n):
                scaled = root_weight[start_at + s] * here[s]
                diag[s, s] += scaled * scaled * q_inverse[start_at + s]
        if h == H - 1:
            break
        off = view2(memory.off, layout.off_at[h], n, m)
        there = view2(memory.diag, layout.diag_at[h + 1], m, m)
        stacked = view2(memory.stacked, 0, N, m)
        root = memory.work[1]
        for i in range(N):
            root[i] = root_weight[i] * np.sqrt(q_inverse[i])
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            for start_at in range(0, N, n):
                for s in range(n):
                    i = start_at + s
                    stacked[i, t] = root[i] * ahead * share[t, i]
                    off[s, t] -= root[i] * here[s] * stacked[i, t]
        tridiagonal.add_gram(there, stacked, N, 1.0)
        # diag(d) - d d'/sum d is a graph Laplacian: its diagonal, d_t (sum of the others) / sum d, must not
        # come out of a difference.
        laplacian = memory.laplacian[:m]
        largest = memory.work[2]
        others = memory.work[3]
        for i in range(N):
            root[i] = root_weight[i] * np.sqrt(sum_inverse[i])
            largest[i] = 0.0
            others[i] = 0.0
        for t in range(m):
            for i in range(N):
                d = spread[t, i]
                others[i] += min(d, largest[i])
                largest[i] = max(d, largest[i])
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            total = 0.0
            for i in range(N):
                d = spread[t, i]
                rest = others[i] if d == largest[i] else others[i] + (largest[i] - d)
                scaled = root[i] * ahead
                total += scaled * scaled * d * rest
                stacked[i, t] = scaled * d
            laplacian[t] = there[t, t] + total
        tridiagonal.add_gram(there, stacked, N, -1.0)
        for t in range(m):
            there[t, t] = laplacian[t]
    return tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at)


@inner_kernel
def direction(layout: Layout, rows: Rows, x: Point, target: float, corrected: bool, d: Point, memory: Memory) -> None:
    """The Newton direction towards complementarity ``target``, after :func:`assemble`.

    ``corrected`` adds the second-order terms of the direction that ``d`` holds on entry (the predictor).
    """
    H = layout.states.shape[0]
    second = 1.0 if corrected else 0.0
    for i in range(d.V.shape[0]):
        d.V[i] = memory.flow_residual[i]
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        root_weight = view1(memory.root_weight, at, N)
        q_inverse = view1(memory.q_inverse, at, N)
        sum_inverse = view1(memory.sum_inverse, at, N)
        spread = view2(memory.spread, layout.next_at[h], m, N)
        share = view2(memory.share, layout.next_at[h], m, N)
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        a = view2(x.a, layout.next_at[h], m, N)
        b = view2(x.b, layout.next_at[h], m, N)
        alpha = view2(x.alpha, layout.next_at[h], m, N)
        beta = view2(x.beta, layout.next_at[h], m, N)
        da = view2(d.a, layout.next_at[h], m, N)
        db = view2(d.b, layout.next_at[h], m, N)
        dalpha = view2(d.alpha, layout.next_at[h], m, N)
        dbeta = view2(d.beta, layout.next_at[h], m, N)
        alpha_term = view2(memory.alpha_term, layout.next_at[h], m, N)
        beta_term = view2(memory.beta_term, layout.next_at[h], m, N)
        y_rhs = view2(memory.y_rhs, layout.next_at[h], m, N)
        y_residual = view2(memory.y_residual, layout.next_at[h], m, N)
        q_rhs = view1(memory.q_rhs, at, N)
        inner = memory.work[0]
        goal = memory.work[1]
        for i in range(N):
            q_rhs[i] = -memory.q_residual[at + i]
            inner[i] = 0.0
            goal[i] = target * x.q[at + i]
        for t in range(m):
            for i in range(N):
                alpha_term[t, i] = goal[i] - second * dalpha[t, i] * da[t, i]
                beta_term[t, i] = goal[i] - second * dbeta[t, i] * db[t, i]
            for i in range(N):
                alpha_term[t, i] = free[t, i] * (alpha_term[t, i] / a[t, i] - alpha[t, i])
            for i in range(N):
                beta_term[t, i] = free[t, i] * (beta_term[t, i] / b[t, i] - beta[t, i])
            for i in range(N):
                y_rhs[t, i] = alpha_term[t, i] - beta_term[t, i] - y_residual[t, i]
                inner[i] += spread[t, i] * y_rhs[t, i]
            for i in range(N):
                q_rhs[i] += high[t, i] * beta_term[t, i] - low[t, i] * alpha_term[t, i]
            for i in range(N):
                q_rhs[i] += free[t, i] * share[t, i] * y_rhs[t, i]
        # The block's own answer at dV = 0: dq0 = (g_q + p.g) / Kq, dy0 = d (g - (d.g) / sum d) + p dq0.
        for start_at in range(0, N, n):
            for s in range(n):
                i = start_at + s
                root = root_weight[i]
                d.V[here + s] += root * memory.state_scale[here + s] * (root * q_rhs[i] * q_inverse[i])
        for t in range(m):
            total = 0.0
            scale = memory.state_scale[there + t]
            for i in range(N):
                total += (
                    root_weight[i]
                    * scale
                    * root_weight[i]
                    * (spread[t, i] * (y_rhs[t, i] - inner[i] * sum_inverse[i]) + share[t, i] * q_rhs[i] * q_inverse[i])
                )
            d.V[there + t] -= total
    tridiagonal.solve(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, layout.state_at, d.V)
    for i in range(d.V.shape[0]):
        d.V[i] *= -memory.state_scale[i]
    d.V[d.V.shape[0] - 1] = 0.0
    for h in range(H):
        back_substitute_layer(layout, h, rows, x, d, memory)


@inner_kernel
def back_substitute_layer(layout: Layout, h: int, rows: Rows, x: Point, d: Point, memory: Memory) -> None:
    """Block directions of layer h from the price direction."""
    n = layout.states[h]
    m = layout.nexts[h]
    N = layout.blocks[h]
    at = layout.block_at[h]
    here = layout.state_at[h]
    there = layout.state_at[h + 1]
    q_inverse = view1(memory.q_inverse, at, N)
    sum_inverse = view1(memory.sum_inverse, at, N)
    excess = view1(memory.excess, at, N)
    spread = view2(memory.spread, layout.next_at[h], m, N)
    share = view2(memory.share, layout.next_at[h], m, N)
    y_rhs = view2(memory.y_rhs, layout.next_at[h], m, N)
    q_rhs = view1(memory.q_rhs, at, N)
    dq = view1(d.q, at, N)
    inner = memory.work[0]
    for start_at in range(0, N, n):
        for s in range(n):
            dq[start_at + s] = q_rhs[start_at + s] + d.V[here + s]
    for i in range(N):
        inner[i] = 0.0
    for t in range(m):
        price = d.V[there + t]
        for i in range(N):
            dq[i] -= share[t, i] * price
            inner[i] += spread[t, i] * (y_rhs[t, i] - price)
    for i in range(N):
        dq[i] *= q_inverse[i]
        d.kappa[at + i] = (inner[i] + excess[i] * dq[i]) * sum_inverse[i]
        inner[i] *= sum_inverse[i]
    low = view2(rows.low, layout.next_at[h], m, N)
    high = view2(rows.high, layout.next_at[h], m, N)
    free = view2(rows.free, layout.next_at[h], m, N)
    a = view2(x.a, layout.next_at[h], m, N)
    b = view2(x.b, layout.next_at[h], m, N)
    alpha = view2(x.alpha, layout.next_at[h], m, N)
    beta = view2(x.beta, layout.next_at[h], m, N)
    da = view2(d.a, layout.next_at[h], m, N)
    db = view2(d.b, layout.next_at[h], m, N)
    dalpha = view2(d.alpha, layout.next_at[h], m, N)
    dbeta = view2(d.beta, layout.next_at[h], m, N)
    alpha_term = view2(memory.alpha_term, layout.next_at[h], m, N)
    beta_term = view2(memory.beta_term, layout.next_at[h], m, N)
    move = memory.work[1]
    for t in range(m):
        price = d.V[there + t]
        for i in range(N):
            move[i] = spread[t, i] * (y_rhs[t, i] - price - inner[i]) + share[t, i] * dq[i]
        for i in range(N):
            da[t, i] = free[t, i] * (move[i] - low[t, i] * dq[i])
            db[t, i] = free[t, i] * (high[t, i] * dq[i] - move[i])
        for i in range(N):
            dalpha[t, i] = alpha_term[t, i] - alpha[t, i] / a[t, i] * da[t, i]
        for i in range(N):
            dbeta[t, i] = beta_term[t, i] - beta[t, i] / b[t, i] * db[t, i]


@inner_kernel
def step_length(x: Point, d: Point) -> float:
    """Largest common step that keeps occupancies, slacks and multipliers non-negative."""
    ratio = 0.0
    for i in range(x.q.shape[0]):
        ratio = max(ratio, -d.q[i] / x.q[i])
    for i in range(x.a.shape[0]):
        ratio = max(ratio, max(-d.a[i] / x.a[i], -d.b[i] / x.b[i]))
    for i in range(x.a.shape[0]):
        # A fixed entry has multipliers 0 and steps 0, which must not limit anything.
        ratio = max(ratio, -d.alpha[i] / max(x.alpha[i], 1e-300))
        ratio = max(ratio, -d.beta[i] / max(x.beta[i], 1e-300))
    return 1.0 / ratio if ratio > 0.0 else np.inf


@inner_kernel
def complementarity_after(layout: Layout, x: Point, d: Point, step: float, total: Floats) -> float:
    """Sum of the complementarity products at x + step d, relative to the occupancies of x."""
    result = 0.0
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        for i in range(N):
            total[i] = 0.0
        for t in range(m):
            at = layout.next_at[h] + t * N
            for i in range(N):
                j = at + i
                total[i] += (x.a[j] + step * d.a[j]) * (x.alpha[j] + step * d.alpha[j])
                total[i] += (x.b[j] + step * d.b[j]) * (x.beta[j] + step * d.beta[j])
        for i in range(N):
            result += total[i] / x.q[layout.block_at[h] + i]
    return result


@inner_kernel
def advance(x: Point, d: Point, alpha: float) -> None:
    """x += alpha d."""
    for i in range(x.q.shape[0]):
        x.q[i] += alpha * d.q[i]
        x.kappa[i] += alpha * d.kappa[i]
    for i in range(x.a.shape[0]):
        x.a[i] += alpha * d.a[i]
        x.b[i] += alpha * d.b[i]
        x.alpha[i] += alpha * d.alpha[i]
        x.beta[i] += alpha * d.beta[i]
    for i in range(x.V.shape[0]):
        x.V[i] += alpha * d.V[i]


@inner_kernel
def certify(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float]:
    """Repair the iterate into a flow-feasible (q, P) and return its (value, gap, residual).

    Row bounds: d_b = -kappa + sum_t (V_t + kappa) (low_t if V_t + kappa >= 0 else high_t), for any kappa.
    """
    H = layout.states.shape[0]
    for h in range(H):
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        free = view2(rows.free, layout.next_at[h], m, N)
        inside = view2(rows.inside, layout.next_at[h], m, N)
        a = view2(x.a, layout.next_at[h], m, N)
        P = view2(memory.kernels, layout.next_at[h], m, N)
        for t in range(m):
            for i in range(N):
                if free[t, i] > 0.0:
                    P[t, i] = min(low[t, i] + a[t, i] / x.q[at + i], high[t, i])
                else:
                    P[t, i] = inside[t, i]
        for i in range(N):
            memory.log_q[at + i] = memory.log_weight[at + i] + np.log(x.q[at + i])
    off = roll_forward(layout, memory.kernels, memory.work, memory.log_q, memory.q, memory.mass)
    rounding_of_masses(layout, memory.log_q, memory.mass, memory.entry_rounding, memory.blur)
    value = 0.0
    gap = 0.0
    residual = 0.0 if off <= ROW_SUM_ROUNDING else np.inf
    ahead = memory.work[0]
    bound = memory.work[1]
    for h in range(H - 1, -1, -1):
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        low = view2(rows.low, layout.next_at[h], m, N)
        high = view2(rows.high, layout.next_at[h], m, N)
        expected_price(layout, h, memory.kernels, x.V, ahead)
        for i in range(N):
            bound[i] = -x.kappa[at + i] if m > 0 else 0.0
        for t in range(m):
            price = x.V[layout.state_at[h + 1] + t]
            for i in range(N):
                above = price + x.kappa[at + i]
                bound[i] += above * (low[t, i] if above >= 0.0 else high[t, i])
        part = certify_layer(layout, h, log_prior, cost, x.V, ahead, bound, memory.log_q, memory.q, memory.blur)
        value += part[0]
        gap += part[1]
        residual = max(residual, part[2])
    return value, gap, residual


@kernel
def iterate(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, lift: float,
    tolerance: float, largest_residual: float, limit: int, patient: bool, x: Point, d: Point,
    memory: Memory,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Interior-point iterations from a fresh start; (value, gap, residual, iterations) of the last certificate."""
    start(layout, rows, log_prior, cost, mu, lift, x, memory)
    value = np.nan
    gap = np.inf
    residual = np.inf
    for iteration in range(limit):
        mu, weighted, flow, dual = residuals(layout, rows, log_prior, cost, x, memory)
        # The weighted sum bounds the gap from above, as a rule by a factor of a few.
        if weighted < 3.0 * tolerance and flow < 1e-6:
            value, gap, residual = certify(layout, rows, log_prior, cost, x, memory)
            if gap <= tolerance and residual <= largest_residual:
                return value, gap, residual, iteration
        if not mu >= 0.0:
            return value, gap, residual, iteration
        assemble(layout, rows, x, memory)
        if patient:
            sigma = 0.9 if dual > SLACKNESS * mu else 0.3
            direction(layout, rows, x, sigma * mu, False, d, memory)
            alpha = min(1.0, 0.9 * step_length(x, d))
        else:
            direction(layout, rows, x, 0.0, False, d, memory)
            alpha = min(1.0, step_length(x, d))
            before = complementarity_after(layout, x, d, 0.0, memory.work[0])
            after = complementarity_after(layout, x, d, alpha, memory.work[0])
            sigma = (after / before) ** 3 if before > 0.0 else 0.0
            if dual > SLACKNESS * mu:
                # Complementarity must not run ahead of stationarity, whose logarithm Newton follows slowly.
                sigma = max(sigma, HOLD)
            direction(layout, rows, x, sigma * mu, True, d, memory)
            alpha = min(1.0, 0.99 * step_length(x, d))
        alpha = min(alpha, logarithmic_limit(x.q, d.q))
        if not np.isfinite(d.V[0]):
            return value, gap, residual, iteration
        advance(x, d, alpha)
    return value, gap, residual, limit
