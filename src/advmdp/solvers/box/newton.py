"""One Newton system: residuals, the elimination of the blocks, the Schur complement, and its directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.box.memory import Memory, Point, Rows
from advmdp.solvers.layout import Layout, view1, view2

Floats = NDArray[np.float64]


# Loops write one array each: with more, LLVM gives up telling them apart and does not vectorise.


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
            price = x.V[there + t]
            scale = memory.state_scale[there + t]
            for i in range(N):
                # A fixed entry has one free multiplier, which stationarity sets to V_t + kappa.
                fixed = (1.0 - free[t, i]) * inside[t, i]
                q_residual[i] += low[t, i] * alpha[t, i] - high[t, i] * beta[t, i] + fixed * (price + kappa[i])
            for i in range(N):
                y_residual[t, i] = free[t, i] * (price - alpha[t, i] + beta[t, i] + kappa[i])
            for i in range(N):
                gap[i] += alpha[t, i] * a[t, i] + beta[t, i] * b[t, i]
            for i in range(N):
                off[i] = max(off[i], abs(y_residual[t, i]))
            for i in range(N):
                y = free[t, i] * (low[t, i] * q[i] + a[t, i]) + (1.0 - free[t, i]) * inside[t, i] * q[i]
                arriving[i] = root_weight[i] * scale * y
            flow[there + t] -= tridiagonal.dot(root_weight, arriving[:N])
        for i in range(N):
            total += gap[i] / q[i]
            weighted += weight[i] * gap[i]
            dual = max(dual, max(off[i], abs(q_residual[i])))
    worst = 0.0
    for i in range(flow.shape[0] - 1):
        worst = max(worst, abs(flow[i]) / memory.state_scale[i])
    return total / memory.products[0], weighted, worst, dual


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
            spread[t, i] = f / (alpha_ratio[t, i] + beta_ratio[t, i] + (1.0 - f))
        for i in range(N):
            edges = low[t, i] * alpha_ratio[t, i] + high[t, i] * beta_ratio[t, i]
            share[t, i] = edges * spread[t, i] + (1.0 - free[t, i]) * inside[t, i]
        for i in range(N):
            total[i] += spread[t, i]
        for i in range(N):
            excess[i] += share[t, i]
        for i in range(N):
            width = high[t, i] - low[t, i]
            q_inverse[i] += alpha_ratio[t, i] * beta_ratio[t, i] * width * width * spread[t, i]
    for i in range(N):
        sum_inverse[i] = 1.0 / total[i] if total[i] > 0.0 else 0.0
    for i in range(N):
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
    for i in range(x.a.shape[0]):
        memory.a_inverse[i] = 1.0 / x.a[i]
    for i in range(x.a.shape[0]):
        memory.alpha_ratio[i] = x.alpha[i] * memory.a_inverse[i]
    for i in range(x.b.shape[0]):
        memory.b_inverse[i] = 1.0 / x.b[i]
    for i in range(x.b.shape[0]):
        memory.beta_ratio[i] = x.beta[i] * memory.b_inverse[i]
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
            view2(memory.alpha_ratio, layout.next_at[h], m, N),
            view2(memory.beta_ratio, layout.next_at[h], m, N),
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
        for i in range(N):
            root[i] = root_weight[i] * np.sqrt(sum_inverse[i])
            largest[i] = 0.0
            others[i] = 0.0
        for t in range(m):
            for i in range(N):
                others[i] += min(spread[t, i], largest[i])
            for i in range(N):
                largest[i] = max(spread[t, i], largest[i])
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            row = stacked[t]
            rest = memory.work[4]
            for i in range(N):
                row[i] = root[i] * ahead * spread[t, i]
            for i in range(N):
                d = spread[t, i]
                rest[i] = root[i] * ahead * (others[i] if d == largest[i] else others[i] + (largest[i] - d))
            laplacian[t] = there[t, t] + tridiagonal.dot(row, rest[:N])
        tridiagonal.add_gram(there, stacked, N, -1.0)
        for t in range(m):
            there[t, t] = laplacian[t]
    return tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, memory.stacked)


@inner_kernel
def direction(layout: Layout, rows: Rows, x: Point, target: float, corrected: bool, d: Point, memory: Memory) -> float:
    """The Newton direction towards complementarity ``target``, after :func:`assemble`.

    ``corrected`` adds the second-order terms of the direction that ``d`` holds on entry (the predictor).  Returned is
    the largest common step along it that keeps occupancies, slacks and multipliers non-negative.
    """
    H = layout.states.shape[0]
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
        a_inverse = view2(memory.a_inverse, layout.next_at[h], m, N)
        b_inverse = view2(memory.b_inverse, layout.next_at[h], m, N)
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
                alpha_term[t, i] = goal[i]
            for i in range(N):
                beta_term[t, i] = goal[i]
            if corrected:
                for i in range(N):
                    alpha_term[t, i] -= dalpha[t, i] * da[t, i]
                for i in range(N):
                    beta_term[t, i] -= dbeta[t, i] * db[t, i]
            for i in range(N):
                alpha_term[t, i] = free[t, i] * (alpha_term[t, i] * a_inverse[t, i] - alpha[t, i])
            for i in range(N):
                beta_term[t, i] = free[t, i] * (beta_term[t, i] * b_inverse[t, i] - beta[t, i])
            for i in range(N):
                y_rhs[t, i] = alpha_term[t, i] - beta_term[t, i] - y_residual[t, i]
            for i in range(N):
                inner[i] += spread[t, i] * y_rhs[t, i]
            for i in range(N):
                own = high[t, i] * beta_term[t, i] - low[t, i] * alpha_term[t, i]
                q_rhs[i] += own + free[t, i] * share[t, i] * y_rhs[t, i]
        # The block's own answer at dV = 0: dq0 = (g_q + p.g) / Kq, dy0 = d (g - (d.g) / sum d) + p dq0.
        for start_at in range(0, N, n):
            for s in range(n):
                i = start_at + s
                root = root_weight[i]
                d.V[here + s] += root * memory.state_scale[here + s] * (root * q_rhs[i] * q_inverse[i])
        for i in range(N):
            inner[i] *= sum_inverse[i]
        for i in range(N):
            goal[i] = q_rhs[i] * q_inverse[i]
        arriving = memory.work[2]
        for t in range(m):
            scale = memory.state_scale[there + t]
            for i in range(N):
                y = spread[t, i] * (y_rhs[t, i] - inner[i]) + share[t, i] * goal[i]
                arriving[i] = root_weight[i] * scale * y
            d.V[there + t] -= tridiagonal.dot(root_weight, arriving[:N])
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
        price = d.V[there + t]
        for i in range(N):
            dq[i] -= share[t, i] * price
        for i in range(N):
            inner[i] += spread[t, i] * (y_rhs[t, i] - price)
    for i in range(N):
        dq[i] *= q_inverse[i]
    for i in range(N):
        dkappa[i] = (inner[i] + excess[i] * dq[i]) * sum_inverse[i]
    for i in range(N):
        inner[i] *= sum_inverse[i]
    low = view2(rows.low, layout.next_at[h], m, N)
    high = view2(rows.high, layout.next_at[h], m, N)
    free = view2(rows.free, layout.next_at[h], m, N)
    a_inverse = view2(memory.a_inverse, layout.next_at[h], m, N)
    b_inverse = view2(memory.b_inverse, layout.next_at[h], m, N)
    alpha_ratio = view2(memory.alpha_ratio, layout.next_at[h], m, N)
    beta_ratio = view2(memory.beta_ratio, layout.next_at[h], m, N)
    alpha = view2(x.alpha, layout.next_at[h], m, N)
    beta = view2(x.beta, layout.next_at[h], m, N)
    da = view2(d.a, layout.next_at[h], m, N)
    db = view2(d.b, layout.next_at[h], m, N)
    dalpha = view2(d.alpha, layout.next_at[h], m, N)
    dbeta = view2(d.beta, layout.next_at[h], m, N)
    alpha_term = view2(memory.alpha_term, layout.next_at[h], m, N)
    beta_term = view2(memory.beta_term, layout.next_at[h], m, N)
    move = memory.work[1]
    fastest = memory.work[2]
    for i in range(N):
        fastest[i] = -dq[i] / x.q[at + i]
    for t in range(m):
        price = d.V[there + t]
        for i in range(N):
            move[i] = spread[t, i] * (y_rhs[t, i] - price - inner[i]) + share[t, i] * dq[i]
        for i in range(N):
            da[t, i] = free[t, i] * (move[i] - low[t, i] * dq[i])
        for i in range(N):
            db[t, i] = free[t, i] * (high[t, i] * dq[i] - move[i])
        for i in range(N):
            dalpha[t, i] = alpha_term[t, i] - alpha_ratio[t, i] * da[t, i]
        for i in range(N):
            dbeta[t, i] = beta_term[t, i] - beta_ratio[t, i] * db[t, i]
        for i in range(N):
            fastest[i] = max(fastest[i], max(-da[t, i] * a_inverse[t, i], -db[t, i] * b_inverse[t, i]))
        # A fixed entry has multipliers 0 and steps 0, which must not limit anything.
        for i in range(N):
            fastest[i] = max(fastest[i], -dalpha[t, i] / max(alpha[t, i], 1e-300))
        for i in range(N):
            fastest[i] = max(fastest[i], -dbeta[t, i] / max(beta[t, i], 1e-300))
    largest = 0.0
    for i in range(N):
        largest = max(largest, fastest[i])
    return largest


@inner_kernel
def complementarity_after(layout: Layout, x: Point, d: Point, step: float, memory: Memory) -> float:
    """Mean complementarity at x + step d, relative to the occupancies of x."""
    total = memory.work[0]
    result = 0.0
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        N = layout.blocks[h]
        for i in range(N):
            total[i] = 0.0
        a = view2(x.a, layout.next_at[h], m, N)
        b = view2(x.b, layout.next_at[h], m, N)
        alpha = view2(x.alpha, layout.next_at[h], m, N)
        beta = view2(x.beta, layout.next_at[h], m, N)
        da = view2(d.a, layout.next_at[h], m, N)
        db = view2(d.b, layout.next_at[h], m, N)
        dalpha = view2(d.alpha, layout.next_at[h], m, N)
        dbeta = view2(d.beta, layout.next_at[h], m, N)
        for t in range(m):
            for i in range(N):
                total[i] += (a[t, i] + step * da[t, i]) * (alpha[t, i] + step * dalpha[t, i])
            for i in range(N):
                total[i] += (b[t, i] + step * db[t, i]) * (beta[t, i] + step * dbeta[t, i])
        for i in range(N):
            result += total[i] / x.q[layout.block_at[h] + i]
    return float(result / memory.products[0])
