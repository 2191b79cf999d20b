"""One Newton system: residuals, the elimination of the blocks, the Schur complement, and its directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers import interior_point, tridiagonal
from advmdp.solvers.box.memory import Memory, Point, Rows
from advmdp.solvers.layout import Layout, copy_into, fill, view1, view2

Floats = NDArray[np.float64]


@inner_kernel
def residuals(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float, float]:
    """Fill the residuals of stationarity and flow; return (mean complementarity, sum of weighted
    complementarity, largest flow residual, largest residual of stationarity)."""
    H = layout.states.shape[0]
    total = 0.0
    weighted = 0.0
    dual = 0.0
    flow = memory.flow_residual
    fill(flow, 0.0)
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
        arriving = memory.work[1]
        off = memory.work[2]
        for i in range(N):
            q_residual[i] = memory.log_weight[at + i] + np.log(q[i]) - log_prior[at + i] + cost[at + i] - kappa[i]
            gap[i] = 0.0
            off[i] = 0.0
        for start_at in range(0, N, n):
            for s in range(n):
                q_residual[start_at + s] -= x.V[here + s]
                root = root_weight[start_at + s]
                flow[here + s] += root * memory.state_scale[here + s] * (root * q[start_at + s])
        for t in range(m):
            entry_residuals(
                x.V[there + t], memory.state_scale[there + t], root_weight, kappa, q, low[t], high[t], free[t],
                inside[t], a[t], b[t], alpha[t], beta[t], q_residual, y_residual[t], gap, off, arriving,
            )  # fmt: skip
            flow[there + t] -= tridiagonal.dot(root_weight, arriving)
        for i in range(N):
            total += gap[i] / q[i]
            weighted += weight[i] * gap[i]
            dual = max(dual, max(off[i], abs(q_residual[i])))
    worst = 0.0
    for i in range(flow.shape[0] - 1):
        worst = max(worst, abs(flow[i]) / memory.state_scale[i])
    return total / memory.products[0], weighted, worst, dual


@inner_kernel
def entry_residuals(
    price: float, scale: float, root_weight: Floats, kappa: Floats, q: Floats, low: Floats, high: Floats,
    free: Floats, inside: Floats, a: Floats, b: Floats, alpha: Floats, beta: Floats, q_residual: Floats,
    y_residual: Floats, gap: Floats, off: Floats, arriving: Floats,
) -> None:  # fmt: skip
    """The part of one next state in the residuals of a layer; ``arriving`` is what flows into it, scaled."""
    for i in range(q.shape[0]):
        # A fixed entry has one free multiplier, which stationarity sets to V_t + kappa.
        ahead = price + kappa[i]
        fixed = (1.0 - free[i]) * inside[i]
        q_residual[i] += low[i] * alpha[i] - high[i] * beta[i] + fixed * ahead
        y = free[i] * (ahead - alpha[i] + beta[i])
        y_residual[i] = y
        off[i] = max(off[i], abs(y))
        gap[i] += alpha[i] * a[i] + beta[i] * b[i]
        arriving[i] = root_weight[i] * scale * (free[i] * (low[i] * q[i] + a[i]) + fixed * q[i])


@inner_kernel
def eliminate_blocks(
    q: Floats, low: Floats, high: Floats, free: Floats, inside: Floats, alpha_ratio: Floats, beta_ratio: Floats,
    spread: Floats, share: Floats, q_inverse: Floats, sum_inverse: Floats, excess: Floats, total: Floats,
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
            d = f / (alpha_ratio[t, i] + beta_ratio[t, i] + (1.0 - f))
            edges = low[t, i] * alpha_ratio[t, i] + high[t, i] * beta_ratio[t, i]
            e = edges * d + (1.0 - f) * inside[t, i]
            width = high[t, i] - low[t, i]
            spread[t, i] = d
            share[t, i] = e
            total[i] += d
            excess[i] += e
            q_inverse[i] += alpha_ratio[t, i] * beta_ratio[t, i] * width * width * d
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
        q = view1(x.q, at, N)
        first = layout.next_at[h]
        alpha_ratio = view2(memory.alpha_ratio, first, m, N)
        beta_ratio = view2(memory.beta_ratio, first, m, N)
        interior_point.invert_slacks(
            q, view2(x.a, first, m, N), view2(x.alpha, first, m, N), view2(memory.a_inverse, first, m, N), alpha_ratio,
            view2(memory.a_ready, first, m, N),
        )  # fmt: skip
        interior_point.invert_slacks(
            q, view2(x.b, first, m, N), view2(x.beta, first, m, N), view2(memory.b_inverse, first, m, N), beta_ratio,
            view2(memory.b_ready, first, m, N),
        )  # fmt: skip
        for i in range(first, first + m * N):
            memory.a_ready[i] *= rows.free[i]
            memory.b_ready[i] *= rows.free[i]
        eliminate_blocks(
            q, view2(rows.low, first, m, N), view2(rows.high, first, m, N), view2(rows.free, first, m, N),
            view2(rows.inside, first, m, N), alpha_ratio, beta_ratio, spread, share, q_inverse, sum_inverse,
            view1(memory.excess, at, N), memory.work[0],
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
        stacked = view2(memory.stacked, 0, m, N)
        root = memory.work[1]
        own = memory.work[2]
        for i in range(N):
            root[i] = root_weight[i] * np.sqrt(q_inverse[i])
        for start_at in range(0, N, n):
            for s in range(n):
                own[start_at + s] = root[start_at + s] * here[s]
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            row = stacked[t]
            for i in range(N):
                row[i] = root[i] * ahead * share[t, i]
            for start_at in range(0, N, n):
                for s in range(n):
                    off[s, t] -= own[start_at + s] * row[start_at + s]
        tridiagonal.add_gram(there, stacked, N, 1.0)
        # diag(d) - d d'/sum d is a graph Laplacian: its diagonal, d_t (sum of the others) / sum d, must not
        # come out of a difference.
        laplacian = memory.laplacian[:m]
        largest = memory.work[2]
        others = memory.work[3]
        rest = memory.work[4]
        for i in range(N):
            root[i] = root_weight[i] * np.sqrt(sum_inverse[i])
        all_but_largest(spread, largest, others)
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            row = stacked[t]
            laplacian_row(ahead, root, spread[t], largest, others, row, rest)
            laplacian[t] = there[t, t] + tridiagonal.dot(row, rest)
        tridiagonal.add_gram(there, stacked, N, -1.0)
        for t in range(m):
            there[t, t] = laplacian[t]
    return tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, memory.stacked)


@inner_kernel
def block_rhs(
    low: Floats, high: Floats, free: Floats, spread: Floats, share: Floats, alpha_term: Floats, beta_term: Floats,
    y_residual: Floats, y_rhs: Floats, q_rhs: Floats, inner: Floats,
) -> None:  # fmt: skip
    """Right-hand sides g of y, and of q with y eliminated (added), for the blocks of a layer; ``inner = d.g``."""
    m, N = low.shape
    for i in range(N):
        inner[i] = 0.0
    for t in range(m):
        for i in range(N):
            g = alpha_term[t, i] - beta_term[t, i] - y_residual[t, i]
            y_rhs[t, i] = g
            inner[i] += spread[t, i] * g
            own = high[t, i] * beta_term[t, i] - low[t, i] * alpha_term[t, i]
            q_rhs[i] += own + free[t, i] * share[t, i] * g


@inner_kernel
def scaled_flow(
    scale: float, root_weight: Floats, spread: Floats, share: Floats, y_rhs: Floats, inner: Floats, goal: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """What the blocks' own answers move into one next state, times the root of the weight and ``scale``."""
    for i in range(spread.shape[0]):
        out[i] = root_weight[i] * scale * (spread[i] * (y_rhs[i] - inner[i]) + share[i] * goal[i])


@inner_kernel
def direction(layout: Layout, rows: Rows, x: Point, target: float, corrected: bool, d: Point, memory: Memory) -> float:
    """The Newton direction towards complementarity ``target``, after :func:`assemble`.

    ``corrected`` adds the second-order terms of the direction that ``d`` holds on entry (the predictor).  Returned is
    the largest common step along it that keeps occupancies, slacks and multipliers non-negative.
    """
    H = layout.states.shape[0]
    copy_into(d.V, memory.flow_residual)
    interior_point.aim_multipliers(
        target, corrected, x.alpha, memory.a_inverse, memory.a_ready, memory.a_second, memory.alpha_term
    )
    interior_point.aim_multipliers(
        target, corrected, x.beta, memory.b_inverse, memory.b_ready, memory.b_second, memory.beta_term
    )
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        first = layout.next_at[h]
        root_weight = view1(memory.root_weight, at, N)
        q_inverse = view1(memory.q_inverse, at, N)
        sum_inverse = view1(memory.sum_inverse, at, N)
        spread = view2(memory.spread, first, m, N)
        share = view2(memory.share, first, m, N)
        y_rhs = view2(memory.y_rhs, first, m, N)
        q_rhs = view1(memory.q_rhs, at, N)
        inner = memory.work[0]
        goal = memory.work[1]
        arriving = memory.work[2]
        for i in range(N):
            q_rhs[i] = -memory.q_residual[at + i]
        block_rhs(
            view2(rows.low, first, m, N), view2(rows.high, first, m, N), view2(rows.free, first, m, N), spread, share,
            view2(memory.alpha_term, first, m, N), view2(memory.beta_term, first, m, N),
            view2(memory.y_residual, first, m, N), y_rhs, q_rhs, inner,
        )  # fmt: skip
        # The block's own answer at dV = 0: dq0 = (g_q + p.g) / Kq, dy0 = d (g - (d.g) / sum d) + p dq0.
        for i in range(N):
            inner[i] *= sum_inverse[i]
        for i in range(N):
            goal[i] = q_rhs[i] * q_inverse[i]
        for start_at in range(0, N, n):
            for s in range(n):
                root = root_weight[start_at + s]
                d.V[here + s] += root * memory.state_scale[here + s] * (root * goal[start_at + s])
        for t in range(m):
            scaled_flow(
                memory.state_scale[there + t], root_weight, spread[t], share[t], y_rhs[t], inner, goal, arriving
            )
            d.V[there + t] -= tridiagonal.dot(root_weight, arriving)
    tridiagonal.solve(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, layout.state_at, d.V)
    for i in range(d.V.shape[0]):
        d.V[i] *= -memory.state_scale[i]
    d.V[d.V.shape[0] - 1] = 0.0
    fastest = 0.0
    for h in range(H):
        fastest = max(fastest, back_substitute_layer(layout, h, rows, x, d, memory))
    return 1.0 / fastest if fastest > 0.0 else np.inf


@inner_kernel
def back_substitute_layer(layout: Layout, h: int, rows: Rows, x: Point, d: Point, memory: Memory) -> float:
    """Block directions of layer h from the price direction; the largest relative decrease is returned."""
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
    dkappa = view1(d.kappa, at, N)
    inner = memory.work[0]
    for start_at in range(0, N, n):
        for s in range(n):
            dq[start_at + s] = q_rhs[start_at + s] + d.V[here + s]
    for i in range(N):
        inner[i] = 0.0
    for t in range(m):
        add_prices(d.V[there + t], spread[t], share[t], y_rhs[t], inner, dq)
    for i in range(N):
        dq[i] *= q_inverse[i]
    for i in range(N):
        dkappa[i] = (inner[i] + excess[i] * dq[i]) * sum_inverse[i]
    for i in range(N):
        inner[i] *= sum_inverse[i]
    first = layout.next_at[h]
    da = view2(d.a, first, m, N)
    db = view2(d.b, first, m, N)
    low = view2(rows.low, first, m, N)
    high = view2(rows.high, first, m, N)
    free = view2(rows.free, first, m, N)
    for t in range(m):
        move_slacks(d.V[there + t], spread[t], share[t], y_rhs[t], inner, dq, low[t], high[t], free[t], da[t], db[t])
    fastest = view1(memory.fastest, 0, N)
    for i in range(N):
        fastest[i] = -dq[i] / x.q[at + i]
    interior_point.move_multipliers(
        view2(memory.alpha_term, first, m, N), view2(memory.alpha_ratio, first, m, N),
        view2(memory.a_inverse, first, m, N), view2(x.alpha, first, m, N), da, view2(d.alpha, first, m, N),
        view2(memory.a_second, first, m, N), fastest,
    )  # fmt: skip
    interior_point.move_multipliers(
        view2(memory.beta_term, first, m, N), view2(memory.beta_ratio, first, m, N),
        view2(memory.b_inverse, first, m, N), view2(x.beta, first, m, N), db, view2(d.beta, first, m, N),
        view2(memory.b_second, first, m, N), fastest,
    )  # fmt: skip
    return interior_point.largest_of(fastest)


@inner_kernel
def add_prices(price: float, spread: Floats, share: Floats, y_rhs: Floats, inner: Floats, dq: Floats) -> None:
    """One next state's part in ``dq`` and in ``inner = d.(g - dV)``."""
    for i in range(spread.shape[0]):
        dq[i] -= share[i] * price
        inner[i] += spread[i] * (y_rhs[i] - price)


@inner_kernel
def move_slacks(
    price: float, spread: Floats, share: Floats, y_rhs: Floats, inner: Floats, dq: Floats, low: Floats, high: Floats,
    free: Floats, da: Floats, db: Floats,
) -> None:  # fmt: skip
    """``dy = d (g - dV - mean) + p dq`` of one next state, and the moves of both slacks."""
    for i in range(spread.shape[0]):
        dy = spread[i] * (y_rhs[i] - price - inner[i]) + share[i] * dq[i]
        da[i] = free[i] * (dy - low[i] * dq[i])
        db[i] = free[i] * (high[i] * dq[i] - dy)


@inner_kernel
def second_order(layout: Layout, x: Point, memory: Memory) -> float:
    """The mean product of the moves of a slack and its multiplier, relative to the occupancies of x."""
    total = memory.fastest
    mean = 0.0
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        fill(total, 0.0)
        interior_point.add_products(view2(memory.a_second, layout.next_at[h], m, N), total)
        interior_point.add_products(view2(memory.b_second, layout.next_at[h], m, N), total)
        for i in range(N):
            mean += total[i] / x.q[layout.block_at[h] + i]
    return float(mean / memory.products[0])
