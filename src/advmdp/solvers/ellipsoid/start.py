"""The first iterate, around given points of the sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers.certificate import set_scale, start_prices
from advmdp.solvers.ellipsoid.certify import kernels_of
from advmdp.solvers.ellipsoid.cone import inner_products
from advmdp.solvers.ellipsoid.memory import Memory, Point, Rows
from advmdp.solvers.layout import Layout, view2, view3

Floats = NDArray[np.float64]


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
    careful: bool, x: Point, memory: Memory,
) -> float:  # fmt: skip
    """Set the first iterate around the points ``memory.chi`` of the sets and return its mu.

    ``careful``: with masses that satisfy the flow equations.  A slack that is missing (a point outside its set, or on
    the edge) is given a floor, and made good on the way.
    """
    largest = 1.0 - 1e-9
    H = layout.states.shape[0]
    kernels_of(layout, rows, memory.chi, memory.kernels)
    reach_of(layout, rows, 0.0 if careful else 0.1, memory)
    spread = start_prices(
        layout, memory.kernels, memory.reach, log_prior, cost, careful, memory.work, memory.log_q,
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
        size = memory.work[0]
        shrink = memory.work[1]
        value = memory.work[2]
        for b in range(N):
            memory.weight[at + b] = np.exp(memory.log_weight[at + b])
            memory.root_weight[at + b] = np.exp(0.5 * memory.log_weight[at + b])
            x.q[at + b] = 1.0
        inner_products(chi, chi, k, size)
        for b in range(N):
            shrink[b] = min(1.0, largest / np.sqrt(size[b])) if size[b] > 0.0 else 1.0
            u[k, b] = mu / (1.0 - size[b] * shrink[b] * shrink[b])
        for j in range(k):
            for b in range(N):
                xi[j, b] = shrink[b] * chi[j, b]
                u[j, b] = -u[k, b] * xi[j, b]
        floor = 0.1 / n_rows
        for i in range(n_rows):
            for b in range(N):
                value[b] = E0[i, b]
                size[b] = abs(E0[i, b])
            for j in range(k):
                for b in range(N):
                    value[b] += E[i, j, b] * xi[j, b]
                    size[b] += abs(E[i, j, b])
            for b in range(N):
                rounding[i, b] = 1e-14 * size[b]
                y[i, b] = value[b] if value[b] > 1e-14 else floor
                lam[i, b] = mu / y[i, b]
    return mu
