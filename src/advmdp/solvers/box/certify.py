"""From an iterate to an answer: its kernels, its flow repaired, and its duality gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers.box.memory import Memory, Point, Rows
from advmdp.solvers.certificate import certify_rolled
from advmdp.solvers.layout import Layout, view1, view2

Floats = NDArray[np.float64]


@inner_kernel
def certify(
    layout: Layout, rows: Rows, log_prior: Floats, cost: Floats, x: Point, memory: Memory
) -> tuple[float, float, float]:
    """Repair the iterate into a flow-feasible (q, P) and return its (value, gap, residual).

    Row bounds: d_b = -kappa + sum_t (V_t + kappa) (low_t if V_t + kappa >= 0 else high_t), for any kappa.
    """
    for h in range(layout.states.shape[0]):
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
        bound = view1(memory.bound, at, N)
        for i in range(N):
            memory.log_q[at + i] = memory.log_weight[at + i] + np.log(x.q[at + i])
            bound[i] = -x.kappa[at + i] if m > 0 else 0.0
        for t in range(m):
            price = x.V[layout.state_at[h + 1] + t]
            for i in range(N):
                above = price + x.kappa[at + i]
                bound[i] += above * (low[t, i] if above >= 0.0 else high[t, i])
    return certify_rolled(
        layout, log_prior, cost, x.V, memory.bound, False, memory.kernels, memory.entry_rounding, memory.work,
        memory.log_q, memory.q, memory.mass, memory.blur,
    )  # fmt: skip
