"""Primal-dual interior point for the mirror step over ellipsoidal row sets.

Per block, in units of the block's weight w_b: occupancy q, displacement xi = q chi, slacks
y = E0 q + E xi >= 0 with multipliers lam, and the cone |xi| <= q with multiplier u = (u_q, u_xi).  With prices V,

    stationarity   log(w q / prior) + cost - V(s) + P0.V - E0.lam - u_q = 0,     G'V - E'lam - u_xi = 0,
    flow           sum_a w q(s, a) = sum of w (P0_s q + G_s xi) over the blocks of the layer before,
    path           lam_t y_t = mu q,   (q, xi) o u = mu q (1, 0).

The weights, and the factor q of the path, make the method indifferent to the size of q_b: lam_t P_t = mu however
rarely the pair is played.  Weights appear in the Schur complement only, which is block tridiagonal in V.  Cone
scaling is Nesterov and Todd's, the step Mehrotra's predictor and corrector.
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
from advmdp.solvers.layout import BufferSizes, Layout, view1, view2, view3

Floats = NDArray[np.float64]


# Complementarity is held back while stationarity is off by more than this multiple of it.
SLACKNESS = 1e4
HOLD = 0.7
# Iterates down to this mu are far enough from the edges of their sets to start a later step from.
WARM_MU = 1e-3


class Rows(NamedTuple):
    """The presolved sets: P = P0 + G chi, rows E0 + E chi >= 0, |chi| <= 1 (see ``presolve``)."""

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats


class Point(NamedTuple):
    """An iterate, or a direction, in units of the block weights."""

    q: Floats
    xi: Floats
    y: Floats
    lam: Floats
    u: Floats  # (k + 1) per block: u_xi, then u_q last
    V: Floats


class Memory(NamedTuple):
    """Everything else that the iteration writes to; allocated once per shape."""

    log_weight: Floats
    weight: Floats
    root_weight: Floats
    state_scale: Floats  # per state: 1 / sqrt of the starting mass, scales the Schur complement
    reach: Floats  # kernels mixed with all that the sets allow
    dual_residual: Floats  # (k + 1) per block, q last
    row_residual: Floats
    rounding: Floats  # per row: the size of a residual that rounding explains
    flow_residual: Floats  # per state
    scaling: Floats  # (k + 1) per block: the point w of the NT scaling, q last
    scale: Floats  # per block: eta^-2, the factor of W^-2
    triangle: Floats  # Cholesky factors of the block matrices K
    rhs: Floats  # (k + 1) per block
    diag: Floats
    off: Floats
    stacked: Floats  # scratch: sqrt(w) L^-1 C', one row per block and cone coordinate
    column: Floats  # scratch: one column of L^-1 C' for all blocks of a layer
    work: Floats  # scratch: rows of blocks of the widest layer
    row_term: Floats  # dlam = row_term - (lam / y) E dx
    cone_term: Floats  # du = cone_term - W^-2 dx
    cone_scratch: Floats  # scratch: three cone vectors for all blocks of a layer
    chi: Floats  # where the iteration starts; xi / q of the certified iterate
    inner_chi: Floats  # xi / q of an earlier iterate, not yet at the edge: where a next step may start
    kernels: Floats
    bound: Floats
    log_q: Floats
    q: Floats
    mass: Floats
    entry_rounding: Floats  # per entry of P: how well it is known
    blur: Floats  # per state: how well the logarithm of its mass is known


def make_point(sizes: BufferSizes) -> Point:
    """Room for an iterate or a direction."""
    return Point(
        np.zeros(sizes.block),
        np.zeros(sizes.free),
        np.zeros(sizes.row),
        np.zeros(sizes.row),
        np.zeros(sizes.cone),
        np.zeros(sizes.state),
    )


def make_memory(layout: Layout, sizes: BufferSizes) -> Memory:
    """Working memory for problems of this layout."""
    widest = int(layout.blocks.max())
    stacked = int((layout.blocks * (layout.free + 1) * layout.nexts).max())
    return Memory(
        log_weight=np.zeros(sizes.block),
        weight=np.zeros(sizes.block),
        root_weight=np.zeros(sizes.block),
        state_scale=np.zeros(sizes.state),
        reach=np.zeros(sizes.next),
        dual_residual=np.zeros(sizes.cone),
        row_residual=np.zeros(sizes.row),
        rounding=np.zeros(sizes.row),
        flow_residual=np.zeros(sizes.state),
        scaling=np.zeros(sizes.cone),
        scale=np.zeros(sizes.block),
        triangle=np.zeros(sizes.triangle),
        rhs=np.zeros(sizes.cone),
        diag=np.zeros(sizes.diag),
        off=np.zeros(sizes.off),
        stacked=np.zeros(stacked),
        column=np.zeros(int((layout.blocks * (layout.free + 1)).max())),
        work=np.zeros((8, widest)),
        row_term=np.zeros(sizes.row),
        cone_term=np.zeros(sizes.cone),
        cone_scratch=np.zeros(3 * int((layout.blocks * (layout.free + 1)).max())),
        chi=np.zeros(sizes.free),
        inner_chi=np.zeros(sizes.free),
        kernels=np.zeros(sizes.next),
        bound=np.zeros(sizes.block),
        log_q=np.zeros(sizes.block),
        q=np.zeros(sizes.block),
        mass=np.zeros(sizes.state),
        entry_rounding=np.zeros(sizes.next),
        blur=np.zeros(sizes.state),
    )


# --------------------------------------------------------------------------------------------------------
# Start


@inner_kernel
def kernels_of(layout: Layout, rows: Rows, chi: Floats, kernels: Floats) -> None:
    """P = P0 + G chi, entries below zero (by rounding, or because chi violates a row) set to zero."""
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        k = layout.free[h]
        N = layout.blocks[h]
        P0 = view2(rows.P0, layout.next_at[h], m, N)
        G = view3(rows.G, layout.slope_at[h], m, k, N)
        x = view2(chi, layout.free_at[h], k, N)
        P = view2(kernels, layout.next_at[h], m, N)
        for t in range(m):
            for b in range(N):
                P[t, b] = P0[t, b]
            for j in range(k):
                for b in range(N):
                    P[t, b] += G[t, j, b] * x[j, b]
            for b in range(N):
                P[t, b] = max(P[t, b], 0.0)


@inner_kernel
def reach_of(layout: Layout, rows: Rows, mix: float, memory: Memory) -> None:
    """``reach = (1 - mix) P + mix upper / m``, with upper the bound P0 + |G| on each entry over its set."""
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        k = layout.free[h]
        N = layout.blocks[h]
        P0 = view2(rows.P0, layout.next_at[h], m, N)
        G = view3(rows.G, layout.slope_at[h], m, k, N)
        P = view2(memory.kernels, layout.next_at[h], m, N)
        reach = view2(memory.reach, layout.next_at[h], m, N)
        rounding = view2(memory.entry_rounding, layout.next_at[h], m, N)
        square = memory.work[0]
        for t in range(m):
            for b in range(N):
                square[b] = 0.0
            for j in range(k):
                for b in range(N):
                    square[b] += G[t, j, b] * G[t, j, b]
            for b in range(N):
                upper = min(1.0, max(0.0, P0[t, b] + np.sqrt(square[b])))
                rounding[t, b] = 1e-14 * (abs(P0[t, b]) + np.sqrt(square[b]))
                reach[t, b] = (1.0 - mix) * P[t, b] + mix / m * upper


@inner_kernel
def start(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, per_spread: float,
    lift: float, x: Point, memory: Memory,
) -> float:  # fmt: skip
    """Set the first iterate around the points ``memory.chi`` of the sets and return its mu.

    A slack that is missing (a point outside its set, or on the edge) is given a floor, and made good on the way.
    """
    largest = 1.0 - 1e-9
    H = layout.states.shape[0]
    kernels_of(layout, rows, memory.chi, memory.kernels)
    reach_of(layout, rows, 0.1 if lift < 0.0 else 0.0, memory)
    spread = start_prices(
        layout, memory.kernels, memory.reach, log_prior, cost, lift, memory.work, memory.log_q,
        memory.mass, x.V, memory.log_weight,
    )  # fmt: skip
    set_scale(layout, memory.mass, memory.state_scale)
    mu = max(mu, per_spread * spread)
    for h in range(H):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        chi = view2(memory.chi, layout.free_at[h], k, N)
        xi = view2(x.xi, layout.free_at[h], k, N)
        u = view2(x.u, layout.cone_at[h], k + 1, N)
        E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
        E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
        y = view2(x.y, layout.row_at[h], n_rows, N)
        lam = view2(x.lam, layout.row_at[h], n_rows, N)
        rounding = view2(memory.rounding, layout.row_at[h], n_rows, N)
        for b in range(N):
            memory.weight[at + b] = np.exp(memory.log_weight[at + b])
            memory.root_weight[at + b] = np.exp(0.5 * memory.log_weight[at + b])
            x.q[at + b] = 1.0
            size = 0.0
            for j in range(k):
                size += chi[j, b] * chi[j, b]
            shrink = min(1.0, largest / np.sqrt(size)) if size > 0.0 else 1.0
            det = 1.0 - size * shrink * shrink
            for j in range(k):
                xi[j, b] = shrink * chi[j, b]
                u[j, b] = -mu * xi[j, b] / det
            u[k, b] = mu / det
        floor = 0.1 / n_rows
        for i in range(n_rows):
            for b in range(N):
                value = E0[i, b]
                size = abs(E0[i, b])
                for j in range(k):
                    value += E[i, j, b] * xi[j, b]
                    size += abs(E[i, j, b])
                rounding[i, b] = 1e-14 * size
                y[i, b] = value if value > 1e-14 else floor
                lam[i, b] = mu / y[i, b]
    return mu


# --------------------------------------------------------------------------------------------------------
# One Newton system


@inner_kernel
def row_values(E0: Floats, E: Floats, q: Floats, xi: Floats, out: Floats) -> None:
    """``out = E0 q + E xi`` for all rows and blocks of a layer."""
    n_rows, k, N = E.shape
    for i in range(n_rows):
        target = out[i]
        first = E0[i]
        for b in range(N):
            target[b] = first[b] * q[b]
        for j in range(k):
            slope = E[i, j]
            coordinate = xi[j]
            for b in range(N):
                target[b] += slope[b] * coordinate[b]


@inner_kernel
def add_row_sums(E0: Floats, E: Floats, values: Floats, sign: float, out: Floats) -> None:
    """``out += sign * (E'values, E0.values)``: k coordinates of xi, then that of q."""
    n_rows, k, N = E.shape
    for i in range(n_rows):
        value = values[i]
        for j in range(k):
            slope = E[i, j]
            target = out[j]
            for b in range(N):
                target[b] += sign * slope[b] * value[b]
        first = E0[i]
        last = out[k]
        for b in range(N):
            last[b] += sign * first[b] * value[b]


@inner_kernel
def add_price_sums(P0: Floats, G: Floats, prices: Floats, sign: float, out: Floats) -> None:
    """``out += sign * (G'V, P0.V)``, the same for one vector of prices shared by all blocks."""
    m, k, N = G.shape
    for t in range(m):
        value = sign * prices[t]
        for j in range(k):
            slope = G[t, j]
            target = out[j]
            for b in range(N):
                target[b] += slope[b] * value
        first = P0[t]
        last = out[k]
        for b in range(N):
            last[b] += first[b] * value


@inner_kernel
def residuals(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float, float]:
    """Fill the residuals of stationarity, rows and flow; return (mean complementarity, sum of weighted
    complementarity, largest flow residual, largest residual of stationarity)."""
    H = layout.states.shape[0]
    total = 0.0
    weighted = 0.0
    count = 0
    flow = memory.flow_residual
    for i in range(flow.shape[0]):
        flow[i] = 0.0
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
        row_values(E0, E, q, xi, slack)
        for b in range(N):
            gap[b] = u[k, b] * q[b]
        for j in range(k):
            for b in range(N):
                gap[b] += u[j, b] * xi[j, b]
        for i in range(n_rows):
            for b in range(N):
                # A residual of the size of rounding is not there: divided by a small slack it would be noise.
                miss = slack[i, b] - y[i, b]
                slack[i, b] = miss if abs(miss) > rounding[i, b] * q[b] else 0.0
                gap[b] += lam[i, b] * y[i, b]
        for b in range(N):
            total += gap[b] / q[b]
            weighted += weight[b] * gap[b]
        count += N * (n_rows + 1)
        if h < H - 1:
            scale = view1(memory.state_scale, there, m)
            arrivals(P0, G, q, xi, root_weight, scale, memory.work[1], view1(flow, there, m))
    worst = 0.0
    for i in range(flow.shape[0] - 1):
        worst = max(worst, abs(flow[i]) / memory.state_scale[i])
    dual_worst = 0.0
    for i in range(memory.dual_residual.shape[0]):
        dual_worst = max(dual_worst, abs(memory.dual_residual[i]))
    return total / count, weighted, worst, dual_worst


@inner_kernel
def arrivals(
    P0: Floats, G: Floats, q: Floats, xi: Floats, root_weight: Floats, scale: Floats, work: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """``out_t -= scale_t sum_b w (P0_t q + G_t xi)``: what flows into the states of the next layer, scaled."""
    m, k, N = G.shape
    for t in range(m):
        for b in range(N):
            work[b] = P0[t, b] * q[b]
        for j in range(k):
            slope = G[t, j]
            coordinate = xi[j]
            for b in range(N):
                work[b] += slope[b] * coordinate[b]
        total = 0.0
        for b in range(N):
            total += root_weight[b] * scale[t] * (root_weight[b] * work[b])
        out[t] -= total


@inner_kernel
def scale_cone(q: Floats, xi: Floats, u: Floats, w: Floats, scale: Floats, work: Floats) -> None:
    """Nesterov-Todd scaling of (q, xi) and u: W^-2 = scale (2 (Jw)(Jw)' - J), with w'Jw = 1."""
    k, N = xi.shape
    xx = work[0]
    uu = work[1]
    xu = work[2]
    for b in range(N):
        xx[b] = 0.0
        uu[b] = 0.0
        xu[b] = q[b] * u[k, b]
    for j in range(k):
        for b in range(N):
            xx[b] += xi[j, b] * xi[j, b]
            uu[b] += u[j, b] * u[j, b]
            xu[b] += xi[j, b] * u[j, b]
    for b in range(N):
        norm_x = np.sqrt(xx[b])
        norm_u = np.sqrt(uu[b])
        root_x = np.sqrt((q[b] - norm_x) * (q[b] + norm_x))
        root_u = np.sqrt((u[k, b] - norm_u) * (u[k, b] + norm_u))
        twice = np.sqrt(2.0 + 2.0 * xu[b] / (root_x * root_u))
        scale[b] = root_u / root_x
        xx[b] = 1.0 / (root_x * twice)
        uu[b] = 1.0 / (root_u * twice)
    for j in range(k):
        for b in range(N):
            w[j, b] = xi[j, b] * xx[b] - u[j, b] * uu[b]
    for b in range(N):
        w[k, b] = q[b] * xx[b] + u[k, b] * uu[b]


@inner_kernel
def factor_blocks(
    q: Floats, y: Floats, lam: Floats, E0: Floats, E: Floats, w: Floats, scale: Floats,
    triangle: Floats, work: Floats,
) -> None:  # fmt: skip
    """Cholesky factor of K = e_q e_q'/q + W^-2 + (E, E0)' diag(lam / y) (E, E0), q as the last coordinate.

    ``triangle[i (i + 1) / 2 + j]`` holds entry (i, j) for all blocks; diagonals are stored as their inverses.
    """
    n_rows, k, N = E.shape
    for i in range(k + 1):
        for j in range(i + 1):
            entry = triangle[i * (i + 1) // 2 + j]
            sign = -2.0 if i == k and j < k else 2.0
            for b in range(N):
                entry[b] = sign * scale[b] * w[i, b] * w[j, b]
        if i < k:
            entry = triangle[i * (i + 1) // 2 + i]
            for b in range(N):
                entry[b] += scale[b]
    entry = triangle[k * (k + 1) // 2 + k]
    for b in range(N):
        # 2 w_q^2 - 1 = w_q^2 + |w_xi|^2, without the cancellation
        entry[b] = 0.5 * entry[b] + 1.0 / q[b]
    for j in range(k):
        for b in range(N):
            entry[b] += scale[b] * w[j, b] * w[j, b]
    ratio = work[0]
    scaled = work[1]
    for t in range(n_rows):
        for b in range(N):
            ratio[b] = lam[t, b] / y[t, b]
        for i in range(k + 1):
            left = E[t, i] if i < k else E0[t]
            for b in range(N):
                scaled[b] = ratio[b] * left[b]
            for j in range(i):
                entry = triangle[i * (i + 1) // 2 + j]
                right = E[t, j]
                for b in range(N):
                    entry[b] += scaled[b] * right[b]
            entry = triangle[i * (i + 1) // 2 + i]
            for b in range(N):
                entry[b] += scaled[b] * left[b]
    for j in range(k + 1):
        for i in range(j, k + 1):
            entry = triangle[i * (i + 1) // 2 + j]
            for l in range(j):  # noqa: E741
                left = triangle[i * (i + 1) // 2 + l]
                right = triangle[j * (j + 1) // 2 + l]
                for b in range(N):
                    entry[b] -= left[b] * right[b]
            if i == j:
                for b in range(N):
                    entry[b] = 1.0 / np.sqrt(entry[b])
            else:
                inverse = triangle[j * (j + 1) // 2 + j]
                for b in range(N):
                    entry[b] *= inverse[b]


@inner_kernel
def rotate_in(triangle: Floats, row: Floats, work: Floats) -> None:
    """Update R'R := R'R + row row' by Givens rotations, R' in the layout of :func:`factor_blocks`; row is destroyed."""
    size, N = row.shape
    cosine = work[2]
    sine = work[3]
    for j in range(size):
        corner = triangle[j * (j + 1) // 2 + j]
        entry = row[j]
        for b in range(N):
            length = np.sqrt(corner[b] * corner[b] + entry[b] * entry[b])
            inverse = 1.0 / max(length, 1e-300)
            cosine[b] = corner[b] * inverse
            sine[b] = entry[b] * inverse
            corner[b] = length
        for i in range(j + 1, size):
            upper = triangle[i * (i + 1) // 2 + j]
            other = row[i]
            for b in range(N):
                kept = upper[b]
                upper[b] = cosine[b] * kept + sine[b] * other[b]
                other[b] = cosine[b] * other[b] - sine[b] * kept


@inner_kernel
def factor_blocks_by_rotations(
    q: Floats, y: Floats, lam: Floats, E0: Floats, E: Floats, w: Floats, scale: Floats,
    triangle: Floats, row: Floats, work: Floats,
) -> None:  # fmt: skip
    """The factor of :func:`factor_blocks` without forming K: its roots W^-1, sqrt(lam/y) (E, E0) and e_q/sqrt(q)
    are rotated in one by one, so that small parts of K survive beside large ones."""
    n_rows, k, N = E.shape
    for i in range(triangle.shape[0]):
        for b in range(N):
            triangle[i, b] = 0.0
    root = work[0]
    for b in range(N):
        root[b] = np.sqrt(scale[b])
    for i in range(k + 1):
        for j in range(k):
            for b in range(N):
                if i < k:
                    along = w[i, b] * w[j, b] / (1.0 + w[k, b])
                    row[j, b] = root[b] * (along + 1.0 if i == j else along)
                else:
                    row[j, b] = -root[b] * w[j, b]
        for b in range(N):
            row[k, b] = root[b] * (w[k, b] if i == k else -w[i, b])
        rotate_in(triangle, row, work)
    for t in range(n_rows):
        for b in range(N):
            root[b] = np.sqrt(lam[t, b] / y[t, b])
        for j in range(k):
            for b in range(N):
                row[j, b] = root[b] * E[t, j, b]
        for b in range(N):
            row[k, b] = root[b] * E0[t, b]
        rotate_in(triangle, row, work)
    for j in range(k):
        for b in range(N):
            row[j, b] = 0.0
    for b in range(N):
        row[k, b] = 1.0 / np.sqrt(q[b])
    rotate_in(triangle, row, work)
    for j in range(k + 1):
        corner = triangle[j * (j + 1) // 2 + j]
        for b in range(N):
            corner[b] = 1.0 / corner[b]


@inner_kernel
def forward_substitute(triangle: Floats, x: Floats) -> None:
    """x := L^-1 x for all blocks, x (k + 1, N)."""
    size, N = x.shape
    for i in range(size):
        target = x[i]
        for j in range(i):
            entry = triangle[i * (i + 1) // 2 + j]
            other = x[j]
            for b in range(N):
                target[b] -= entry[b] * other[b]
        inverse = triangle[i * (i + 1) // 2 + i]
        for b in range(N):
            target[b] *= inverse[b]


@inner_kernel
def backward_substitute(triangle: Floats, x: Floats) -> None:
    """x := L^-T x for all blocks."""
    size, N = x.shape
    for i in range(size - 1, -1, -1):
        target = x[i]
        for j in range(i + 1, size):
            entry = triangle[j * (j + 1) // 2 + i]
            other = x[j]
            for b in range(N):
                target[b] -= entry[b] * other[b]
        inverse = triangle[i * (i + 1) // 2 + i]
        for b in range(N):
            target[b] *= inverse[b]


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
        y = view2(x.y, layout.row_at[h], n_rows, N)
        lam = view2(x.lam, layout.row_at[h], n_rows, N)
        if careful:
            column = view2(memory.column, 0, k + 1, N)
            factor_blocks_by_rotations(q, y, lam, E0, E, w, scale, triangle, column, work)
        else:
            factor_blocks(q, y, lam, E0, E, w, scale, triangle, work)
        diag = view2(memory.diag, layout.diag_at[h], n, n)
        corner = triangle[(k + 1) * (k + 2) // 2 - 1]
        for start_at in range(0, N, n):
            for s in range(n):
                scaled = root_weight[start_at + s] * here[s] * corner[start_at + s]
                diag[s, s] += scaled * scaled
        if h == H - 1:
            break
        # Columns of L^-1 C', one next state at a time, scaled by sqrt(w) and laid out for the Gram product.
        P0 = view2(rows.P0, layout.next_at[h], m, N)
        G = view3(rows.G, layout.slope_at[h], m, k, N)
        off = view2(memory.off, layout.off_at[h], n, m)
        stacked = view2(memory.stacked, 0, (k + 1) * N, m)
        column = view2(memory.column, 0, k + 1, N)
        for t in range(m):
            ahead = memory.state_scale[layout.state_at[h + 1] + t]
            for j in range(k):
                for b in range(N):
                    column[j, b] = G[t, j, b]
            for b in range(N):
                column[k, b] = P0[t, b]
            forward_substitute(triangle, column)
            for j in range(k + 1):
                for b in range(N):
                    column[j, b] *= root_weight[b] * ahead
            last = column[k]
            for start_at in range(0, N, n):
                for s in range(n):
                    b = start_at + s
                    off[s, t] -= last[b] * (root_weight[b] * here[s] * corner[b])
            for j in range(k + 1):
                for b in range(N):
                    stacked[j * N + b, t] = column[j, b]
        there = view2(memory.diag, layout.diag_at[h + 1], m, m)
        tridiagonal.add_gram(there, stacked, (k + 1) * N, 1.0)
    return tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at)


@inner_kernel
def apply_scaling(w: Floats, x: Floats, factor: Floats, sign: float, out: Floats, work: Floats) -> None:
    """``out = W x`` (sign 1) or ``W^-1 x`` (sign -1): factor (w_q, +-w_xi'; +-w_xi, I + w_xi w_xi' / (1 + w_q)).

    ``factor`` is eta (or 1/eta for the inverse) per block; q is the last coordinate.
    """
    size, N = x.shape
    k = size - 1
    inner = work
    for b in range(N):
        inner[b] = 0.0
    for j in range(k):
        for b in range(N):
            inner[b] += w[j, b] * x[j, b]
    for j in range(k):
        for b in range(N):
            along = inner[b] / (1.0 + w[k, b]) + sign * x[k, b]
            out[j, b] = factor[b] * (x[j, b] + along * w[j, b])
    for b in range(N):
        out[k, b] = factor[b] * (w[k, b] * x[k, b] + sign * inner[b])


@inner_kernel
def cone_corrector(
    q: Floats, u: Floats, dq: Floats, dxi: Floats, du: Floats, w: Floats, scale: Floats,
    target: float, scratch: Floats, work: Floats, out: Floats,
) -> None:  # fmt: skip
    """``out = W^-1 z - u`` with l o z = target q e - (W^-1 dx) o (W du), l = W u = W^-1 x the scaled point."""
    k, N = dxi.shape
    eta = work[4]
    inverse = work[5]
    for b in range(N):
        eta[b] = 1.0 / np.sqrt(scale[b])
        inverse[b] = np.sqrt(scale[b])
    point = view2(scratch, 0, k + 1, N)
    left = view2(scratch, (k + 1) * N, k + 1, N)
    right = view2(scratch, 2 * (k + 1) * N, k + 1, N)
    for j in range(k):
        for b in range(N):
            out[j, b] = dxi[j, b]
    for b in range(N):
        out[k, b] = dq[b]
    apply_scaling(w, out, inverse, -1.0, left, work[0])
    apply_scaling(w, du, eta, 1.0, right, work[0])
    apply_scaling(w, u, eta, 1.0, point, work[0])
    # left := target e - left o right
    inner = work[0]
    det = work[1]
    for b in range(N):
        inner[b] = left[k, b] * right[k, b]
        det[b] = 0.0
    for j in range(k):
        for b in range(N):
            inner[b] += left[j, b] * right[j, b]
            left[j, b] = -(left[k, b] * right[j, b] + right[k, b] * left[j, b])
            det[b] += point[j, b] * point[j, b]
    # right := l \ left, the solution of the arrow system of l
    for b in range(N):
        norm = np.sqrt(det[b])
        det[b] = (point[k, b] - norm) * (point[k, b] + norm)
        left[k, b] = target * q[b] - inner[b]
        inner[b] = point[k, b] * left[k, b]
    for j in range(k):
        for b in range(N):
            inner[b] -= point[j, b] * left[j, b]
    for b in range(N):
        right[k, b] = inner[b] / det[b]
    for j in range(k):
        for b in range(N):
            right[j, b] = (left[j, b] - right[k, b] * point[j, b]) / point[k, b]
    apply_scaling(w, right, inverse, -1.0, out, work[0])
    for j in range(k + 1):
        for b in range(N):
            out[j, b] -= u[j, b]


@inner_kernel
def centring_terms(layout: Layout, x: Point, target: float, memory: Memory) -> None:
    """The multipliers' part of a direction towards complementarity ``target``, to first order:
    ``row_term = target q / y - lam (1 + slack residual / y)`` and ``cone_term = target q x^-1 - u``."""
    for h in range(layout.states.shape[0]):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        q = view1(x.q, layout.block_at[h], N)
        xi = view2(x.xi, layout.free_at[h], k, N)
        u = view2(x.u, layout.cone_at[h], k + 1, N)
        y = view2(x.y, layout.row_at[h], n_rows, N)
        lam = view2(x.lam, layout.row_at[h], n_rows, N)
        slack = view2(memory.row_residual, layout.row_at[h], n_rows, N)
        row_term = view2(memory.row_term, layout.row_at[h], n_rows, N)
        cone_term = view2(memory.cone_term, layout.cone_at[h], k + 1, N)
        for i in range(n_rows):
            for b in range(N):
                goal = target * q[b] - lam[i, b] * slack[i, b]
                row_term[i, b] = goal / y[i, b] - lam[i, b]
        # W^-1 (l \ e) is the inverse of x in the cone's algebra, J x / x'Jx.
        det = memory.work[0]
        for b in range(N):
            det[b] = 0.0
        for j in range(k):
            for b in range(N):
                det[b] += xi[j, b] * xi[j, b]
        for b in range(N):
            norm = np.sqrt(det[b])
            det[b] = target * q[b] / ((q[b] - norm) * (q[b] + norm))
            cone_term[k, b] = det[b] * q[b] - u[k, b]
        for j in range(k):
            for b in range(N):
                cone_term[j, b] = -det[b] * xi[j, b] - u[j, b]


@inner_kernel
def corrector_terms(layout: Layout, x: Point, target: float, d: Point, memory: Memory) -> None:
    """The terms of :func:`centring_terms` with the second-order terms of the direction d (the predictor)."""
    for h in range(layout.states.shape[0]):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        q = view1(x.q, at, N)
        y = view2(x.y, layout.row_at[h], n_rows, N)
        lam = view2(x.lam, layout.row_at[h], n_rows, N)
        dy = view2(d.y, layout.row_at[h], n_rows, N)
        dlam = view2(d.lam, layout.row_at[h], n_rows, N)
        slack = view2(memory.row_residual, layout.row_at[h], n_rows, N)
        row_term = view2(memory.row_term, layout.row_at[h], n_rows, N)
        for i in range(n_rows):
            for b in range(N):
                goal = target * q[b] - dlam[i, b] * dy[i, b] - lam[i, b] * slack[i, b]
                row_term[i, b] = goal / y[i, b] - lam[i, b]
        cone_corrector(
            q,
            view2(x.u, layout.cone_at[h], k + 1, N),
            view1(d.q, at, N),
            view2(d.xi, layout.free_at[h], k, N),
            view2(d.u, layout.cone_at[h], k + 1, N),
            view2(memory.scaling, layout.cone_at[h], k + 1, N),
            view1(memory.scale, at, N),
            target, memory.cone_scratch, memory.work,
            view2(memory.cone_term, layout.cone_at[h], k + 1, N),
        )  # fmt: skip


@inner_kernel
def direction(layout: Layout, rows: Rows, x: Point, d: Point, memory: Memory) -> None:
    """The Newton direction for the given row and cone terms, after :func:`assemble`."""
    H = layout.states.shape[0]
    for i in range(d.V.shape[0]):
        d.V[i] = memory.flow_residual[i]
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        root_weight = view1(memory.root_weight, at, N)
        dual = view2(memory.dual_residual, layout.cone_at[h], k + 1, N)
        row_term = view2(memory.row_term, layout.row_at[h], n_rows, N)
        cone_term = view2(memory.cone_term, layout.cone_at[h], k + 1, N)
        rhs = view2(memory.rhs, layout.cone_at[h], k + 1, N)
        for j in range(k + 1):
            for b in range(N):
                rhs[j, b] = cone_term[j, b] - dual[j, b]
        E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
        E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
        add_row_sums(E0, E, row_term, 1.0, rhs)
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
    for h in range(H):
        back_substitute_layer(layout, h, rows, x, d, memory)


@inner_kernel
def back_substitute_layer(layout: Layout, h: int, rows: Rows, x: Point, d: Point, memory: Memory) -> None:
    """Block directions of layer h from the price direction: dx = K^-1 (g + e_q dV(s) - C'dV), and dy, dlam, du."""
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
    dlam = view2(d.lam, layout.row_at[h], n_rows, N)
    y = view2(x.y, layout.row_at[h], n_rows, N)
    lam = view2(x.lam, layout.row_at[h], n_rows, N)
    slack = view2(memory.row_residual, layout.row_at[h], n_rows, N)
    row_term = view2(memory.row_term, layout.row_at[h], n_rows, N)
    E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
    E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
    row_values(E0, E, dq, dxi, dy)
    for i in range(n_rows):
        for b in range(N):
            dlam[i, b] = row_term[i, b] - lam[i, b] / y[i, b] * dy[i, b]
            dy[i, b] += slack[i, b]
    # du = cone_term - scale (2 (Jw) (Jw)'dx - J dx)
    w = view2(memory.scaling, layout.cone_at[h], k + 1, N)
    scale = view1(memory.scale, at, N)
    cone_term = view2(memory.cone_term, layout.cone_at[h], k + 1, N)
    du = view2(d.u, layout.cone_at[h], k + 1, N)
    inner = memory.work[0]
    for b in range(N):
        inner[b] = w[k, b] * dq[b]
    for j in range(k):
        for b in range(N):
            inner[b] -= w[j, b] * dxi[j, b]
    for j in range(k):
        for b in range(N):
            du[j, b] = cone_term[j, b] + scale[b] * (2.0 * inner[b] * w[j, b] - dxi[j, b])
    for b in range(N):
        du[k, b] = cone_term[k, b] - scale[b] * (2.0 * inner[b] * w[k, b] - dq[b])


@inner_kernel
def cone_step(point: Floats, head: Floats, step: Floats, step_head: Floats, work: Floats) -> float:
    """Largest alpha for which (head, point) + alpha (step_head, step) stays in the cone, over all blocks."""
    N = head.shape[0]
    k = step.shape[0]
    pp = work[0]
    ps = work[1]
    ss = work[2]
    for b in range(N):
        pp[b] = 0.0
        ps[b] = head[b] * step_head[b]
        ss[b] = 0.0
    for j in range(k):
        for b in range(N):
            pp[b] += point[j, b] * point[j, b]
            ps[b] -= point[j, b] * step[j, b]
            ss[b] += step[j, b] * step[j, b]
    best = np.inf
    for b in range(N):
        norm = np.sqrt(pp[b])
        size = np.sqrt(ss[b])
        c = (head[b] - norm) * (head[b] + norm)
        a = (step_head[b] - size) * (step_head[b] + size)
        half = ps[b]
        disc = half * half - a * c
        if disc >= 0.0 and (half < 0.0 or a < 0.0):
            root = np.sqrt(disc)
            alpha = c / (root - half) if half < 0.0 else (half + root) / (-a)
            best = min(best, alpha)
    return best


@inner_kernel
def step_length(layout: Layout, x: Point, d: Point, work: Floats) -> float:
    """Largest common step that keeps every slack, multiplier and cone point non-negative."""
    best = np.inf
    ratio = 0.0
    for i in range(x.y.shape[0]):
        ratio = max(ratio, -d.y[i] / x.y[i])
    for i in range(x.lam.shape[0]):
        ratio = max(ratio, -d.lam[i] / x.lam[i])
    if ratio > 0.0:
        best = 1.0 / ratio
    for h in range(layout.states.shape[0]):
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        xi = view2(x.xi, layout.free_at[h], k, N)
        dxi = view2(d.xi, layout.free_at[h], k, N)
        best = min(best, cone_step(xi, view1(x.q, at, N), dxi, view1(d.q, at, N), work))
        u = view2(x.u, layout.cone_at[h], k + 1, N)
        du = view2(d.u, layout.cone_at[h], k + 1, N)
        best = min(best, cone_step(u[:k], u[k], du[:k], du[k], work))
    return best


@inner_kernel
def complementarity_after(layout: Layout, x: Point, d: Point, alpha: float, total: Floats) -> float:
    """Mean complementarity at x + alpha d, relative to the occupancies of x."""
    mean = 0.0
    for h in range(layout.states.shape[0]):
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        u = view2(x.u, layout.cone_at[h], k + 1, N)
        du = view2(d.u, layout.cone_at[h], k + 1, N)
        xi = view2(x.xi, layout.free_at[h], k, N)
        dxi = view2(d.xi, layout.free_at[h], k, N)
        y = view2(x.y, layout.row_at[h], n_rows, N)
        dy = view2(d.y, layout.row_at[h], n_rows, N)
        lam = view2(x.lam, layout.row_at[h], n_rows, N)
        dlam = view2(d.lam, layout.row_at[h], n_rows, N)
        for b in range(N):
            total[b] = (x.q[at + b] + alpha * d.q[at + b]) * (u[k, b] + alpha * du[k, b])
        for j in range(k):
            for b in range(N):
                total[b] += (xi[j, b] + alpha * dxi[j, b]) * (u[j, b] + alpha * du[j, b])
        for i in range(n_rows):
            for b in range(N):
                total[b] += (y[i, b] + alpha * dy[i, b]) * (lam[i, b] + alpha * dlam[i, b])
        for b in range(N):
            mean += total[b] / x.q[at + b]
    return mean / float(x.y.shape[0] + x.q.shape[0])


@inner_kernel
def advance(x: Point, d: Point, alpha: float) -> None:
    """x += alpha d."""
    for i in range(x.q.shape[0]):
        x.q[i] += alpha * d.q[i]
    for i in range(x.xi.shape[0]):
        x.xi[i] += alpha * d.xi[i]
    for i in range(x.y.shape[0]):
        x.y[i] += alpha * d.y[i]
        x.lam[i] += alpha * d.lam[i]
    for i in range(x.u.shape[0]):
        x.u[i] += alpha * d.u[i]
    for i in range(x.V.shape[0]):
        x.V[i] += alpha * d.V[i]


# --------------------------------------------------------------------------------------------------------
# Certificate and driver


@inner_kernel
def displacement(layout: Layout, x: Point, chi: Floats) -> None:
    """chi = xi / q."""
    for h in range(layout.states.shape[0]):
        N = layout.blocks[h]
        at = layout.block_at[h]
        for j in range(layout.free[h]):
            i = layout.free_at[h] + j * N
            for b in range(N):
                chi[i + b] = x.xi[i + b] / x.q[at + b]


@inner_kernel
def certify(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float]:
    """Repair the iterate into a flow-feasible (q, P) and return its (value, gap, residual).

    The policy and the kernels of the iterate are rolled forward and compared with the iterate's prices, with row
    bounds d_b = P0.V - E0.lam - |G'V - E'lam| from its multipliers.
    """
    H = layout.states.shape[0]
    displacement(layout, x, memory.chi)
    for i in range(x.q.shape[0]):
        memory.log_q[i] = memory.log_weight[i] + np.log(x.q[i])
    kernels_of(layout, rows, memory.chi, memory.kernels)
    off = roll_forward(layout, memory.kernels, memory.work, memory.log_q, memory.q, memory.mass)
    rounding_of_masses(layout, memory.log_q, memory.mass, memory.entry_rounding, memory.blur)
    value = 0.0
    gap = 0.0
    residual = 0.0 if off <= ROW_SUM_ROUNDING else np.inf
    for h in range(H - 1, -1, -1):
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        ahead = memory.work[0]
        bound = memory.work[1]
        expected_price(layout, h, memory.kernels, x.V, ahead)
        slope = view2(memory.column, 0, k + 1, N)
        for j in range(k + 1):
            for b in range(N):
                slope[j, b] = 0.0
        there = layout.state_at[h + 1]
        add_price_sums(
            view2(rows.P0, layout.next_at[h], m, N),
            view3(rows.G, layout.slope_at[h], m, k, N),
            view1(x.V, there, m),
            1.0,
            slope,
        )
        add_row_sums(
            view2(rows.E0, layout.row_at[h], n_rows, N),
            view3(rows.E, layout.row_slope_at[h], n_rows, k, N),
            view2(x.lam, layout.row_at[h], n_rows, N),
            -1.0,
            slope,
        )
        for b in range(N):
            norm = 0.0
            for j in range(k):
                norm += slope[j, b] * slope[j, b]
            bound[b] = slope[k, b] - np.sqrt(norm)
        part = certify_layer(layout, h, log_prior, cost, x.V, ahead, bound, memory.log_q, memory.q, memory.blur)
        value += part[0]
        gap += part[1]
        residual = max(residual, part[2])
    return value, gap, residual


@kernel
def iterate(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, mu: float, per_spread: float,
    lift: float, tolerance: float, largest_residual: float, limit: int, careful: bool, patient: bool, x: Point,
    d: Point, memory: Memory,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Interior-point iterations from a fresh start; (value, gap, residual, iterations) of the last certificate."""
    mu = start(layout, rows, log_prior, cost, mu, per_spread, lift, x, memory)
    displacement(layout, x, memory.inner_chi)
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
        if mu > WARM_MU:
            displacement(layout, x, memory.inner_chi)
        if not mu > 0.0:
            return value, gap, residual, iteration
        assemble(layout, rows, careful, x, memory)
        # Complementarity must not run ahead of stationarity, whose logarithm Newton follows slowly.
        behind = dual > SLACKNESS * mu
        target = 0.0
        if patient:
            target = 0.9 * mu if behind else 0.3 * mu
        centring_terms(layout, x, target, memory)
        direction(layout, rows, x, d, memory)
        longest = step_length(layout, x, d, memory.work)
        if not patient:
            after = complementarity_after(layout, x, d, min(1.0, longest), memory.work[0])
            sigma = (after / mu) ** 3
            if behind:
                sigma = max(sigma, HOLD)
            corrector_terms(layout, x, sigma * mu, d, memory)
            direction(layout, rows, x, d, memory)
            longest = step_length(layout, x, d, memory.work)
        alpha = min(1.0, (0.9 if patient else 0.99) * longest, logarithmic_limit(x.q, d.q))
        if not np.isfinite(d.V[0]):
            return value, gap, residual, iteration
        advance(x, d, alpha)
    return value, gap, residual, limit
