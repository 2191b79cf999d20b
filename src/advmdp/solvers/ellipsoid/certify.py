"""From an iterate to an answer: its kernels, its flow repaired, and its duality gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers.centring import tightest
from advmdp.solvers.certificate import ROW_ROUNDING, certify_rolled
from advmdp.solvers.ellipsoid.blocks import add_price_sums, add_row_sums
from advmdp.solvers.ellipsoid.memory import Memory, Point, Rows
from advmdp.solvers.layout import Layout, view1, view2, view3

Floats = NDArray[np.float64]


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
    bounds d_b = P0.V - E0.lam - |G'V - E'lam| from its multipliers.  The residual is infinite where kernels are not in
    their sets.
    """
    displacement(layout, x, memory.chi)
    for i in range(x.q.shape[0]):
        memory.log_q[i] = memory.log_weight[i] + np.log(x.q[i])
    kernels_of(layout, rows, memory.chi, memory.kernels)
    inside = True
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        E0 = view2(rows.E0, layout.row_at[h], n_rows, N)
        E = view3(rows.E, layout.row_slope_at[h], n_rows, k, N)
        lowest = memory.work[0]
        size = memory.work[1]
        tightest(E0, E, view2(memory.chi, layout.free_at[h], k, N), lowest, size, memory.work[2])
        for b in range(N):
            # So written, a point that is no number is outside.
            if not (size[b] - 1.0 <= ROW_ROUNDING and lowest[b] >= -ROW_ROUNDING):
                inside = False
        bound = view1(memory.bound, layout.block_at[h], N)
        slope = view2(memory.column, 0, k + 1, N)
        for j in range(k + 1):
            for b in range(N):
                slope[j, b] = 0.0
        add_price_sums(
            view2(rows.P0, layout.next_at[h], m, N), view3(rows.G, layout.slope_at[h], m, k, N),
            view1(x.V, layout.state_at[h + 1], m), 1.0, slope,
        )  # fmt: skip
        add_row_sums(E0, E, view2(x.lam, layout.row_at[h], n_rows, N), -1.0, slope)
        for b in range(N):
            bound[b] = 0.0
        for j in range(k):
            for b in range(N):
                bound[b] += slope[j, b] * slope[j, b]
        for b in range(N):
            bound[b] = slope[k, b] - np.sqrt(bound[b])
    value, gap, residual = certify_rolled(
        layout, log_prior, cost, x.V, memory.bound, False, memory.kernels, memory.entry_rounding, memory.work,
        memory.log_q, memory.q, memory.mass, memory.blur,
    )  # fmt: skip
    return value, gap, residual if inside else np.inf
