"""The mirror step where the kernels do not bind: exact, and much cheaper than an interior-point solve.

Without the condition that its flow comes from kernels of the set, the optimum is q_h proportional to
``prior_h exp(-cost_h)`` layer by layer, with prices that are constant on each layer.  Where kernels of the set do carry
that flow, it is the optimum of the step itself.  Flow is linear in the kernels once q is given, so a layer needs

    the smallest change of chi with  sum_b q_b G_b dchi_b = mass_next - sum_b q_b P_b,

measured block by block in the Hessian H_b of the barrier of its set and weighted by q_b: dchi_b = H_b^-1 G_b' nu, where
nu solves a system with one row per next state.  The answer is certified like any other.
"""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import log_mass, set_scale
from advmdp.solvers.ellipsoid import blocks, cone
from advmdp.solvers.ellipsoid.newton import Own, Point, Rows, reach_ellipsoids
from advmdp.solvers.interior_point import Memory, Step, certify
from advmdp.solvers.layout import Layout, copy_into, fill, layer, view1, view2

# At most this many changes per layer, each as long as the sets allow; one shorter than SHORTEST gives up.
STEPS = 8
SHORTEST = 0.1
# How far the mass of a next state may be off, relative to it, before the certificate decides.
MASS_TOLERANCE = 1e-9


@inner_kernel
def unconstrained(layout: Layout, log_prior: Floats, cost: Floats, prices: Floats, log_q: Floats, mass: Floats) -> None:
    """``q_h = prior_h exp(-cost_h) / Z_h``, its log masses per state, and prices V_h = V_{h+1} - log Z_h."""
    H = layout.states.shape[0]
    prices[prices.shape[0] - 1] = 0.0
    price = 0.0
    for h in range(H - 1, -1, -1):
        N = layout.blocks[h]
        at = layout.block_at[h]
        largest = -np.inf
        for i in range(at, at + N):
            log_q[i] = log_prior[i] - cost[i]
            largest = max(largest, log_q[i])
        total = 0.0
        for i in range(at, at + N):
            total += np.exp(log_q[i] - largest)
        log_total = largest + np.log(total)
        for i in range(at, at + N):
            log_q[i] -= log_total
        price -= log_total
        here = layout.state_at[h]
        for s in range(layout.states[h]):
            prices[here + s] = price
        log_mass(layout, h, log_q, view1(mass, here, layout.states[h]))


@inner_kernel
def barrier_metric(
    E0: Floats, E: Floats, chi: Floats, q: Floats, y: Floats, ratio: Floats, w: Floats, scale: Floats,
    triangle: Floats, work: Floats,
) -> bool:  # fmt: skip
    """Slacks y, and the Cholesky factor of (I + 2 chi chi'/c) / c + E' diag(y^-2) E, c = 1 - |chi|^2, for all blocks.

    The metric is the leading part of the block matrix of the interior-point method at a point of its path.  False if
    a point is not inside its set.
    """
    k, N = chi.shape
    blocks.row_values(E0, E, q, chi, y)
    lowest = np.inf
    for i in range(y.shape[0]):
        for b in range(N):
            lowest = min(lowest, y[i, b])
            ratio[i, b] = 1.0 / (y[i, b] * y[i, b])
    for b in range(N):
        scale[b] = 1.0
    for j in range(k):
        for b in range(N):
            scale[b] -= chi[j, b] * chi[j, b]
    for b in range(N):
        lowest = min(lowest, scale[b])
        scale[b] = 1.0 / scale[b]
        w[k, b] = np.sqrt(scale[b])
    for j in range(k):
        for b in range(N):
            w[j, b] = chi[j, b] * w[k, b]
    if not lowest > 0.0:
        return False
    blocks.factor_blocks(q, ratio, E0, E, w, scale, triangle, work)
    return True


@inner_kernel
def carry_layer(rows: Rows, layout: Layout, h: int, x: Point, memory: Memory, own: Own) -> bool:
    """Move ``x.xi`` (chi, as q = 1) of layer h until the masses of the next one are met; False if they are not."""
    system = view2(memory.diag, layout.diag_at[h + 1], layout.nexts[h], layout.nexts[h])
    (P0, G, E0, E), x, memory, own = layer(layout, h, (rows, x, memory, own))
    m, k, N = G.shape
    n_rows = E0.shape[0]
    n = layout.states[h]
    chi = x.xi
    inverse = x.lam
    weight = memory.root_weight
    missing = view1(memory.flow_residual, n, m)
    scale = view1(memory.state_scale, n, m)
    stacked = view2(memory.stacked, 0, m, k * N)
    column = view2(own.column, 0, k + 1, N)
    change = view2(own.column, 0, k, N)
    for step in range(STEPS + 1):
        # What is missing, in units of the root of the mass: sqrt(mass) - arriving / sqrt(mass).
        for t in range(m):
            missing[t] = 1.0 / scale[t]
        blocks.arrivals(P0, G, x.q, chi, weight, scale, memory.work[0], missing)
        worst = 0.0
        for t in range(m):
            worst = max(worst, abs(missing[t]) * scale[t])
        if worst <= MASS_TOLERANCE:
            return True
        if step == STEPS or not worst < np.inf:
            return False
        if not barrier_metric(E0, E, chi, x.q, x.y, inverse, own.scaling, own.scale, own.triangle, memory.work):
            return False
        for t in range(m):
            for j in range(k):
                for b in range(N):
                    stacked[t, j * N + b] = weight[b] * scale[t] * G[t, j, b]
            blocks.forward_substitute(own.triangle, view2(memory.stacked, t * k * N, k, N))
        # Masses sum to one whatever nu does along the vector of their roots: fill that direction in.
        for t in range(m):
            for u in range(m):
                system[t, u] = 1.0 / (scale[t] * scale[u])
        tridiagonal.add_gram(system, stacked, k * N, 1.0)
        if tridiagonal.factor_upper(system) > 0:
            return False
        tridiagonal.solve_lower(system, missing)
        tridiagonal.solve_upper(system, missing)
        for t in range(m):
            missing[t] *= scale[t]
        for j in range(k + 1):
            fill(column[j], 0.0)
        blocks.add_price_sums(P0, G, missing, 1.0, column)
        blocks.forward_substitute(own.triangle, change)
        blocks.backward_substitute(own.triangle, change)
        fill(column[k], 0.0)
        longest = cone.longest_step(k, chi, x.q, change, column[k], memory.work)
        blocks.row_values(E0, E, column[k], change, inverse)
        for i in range(n_rows):
            for b in range(N):
                if inverse[i, b] < 0.0:
                    longest = min(longest, -x.y[i, b] / inverse[i, b])
        length = min(1.0, 0.9 * longest)
        if not length >= SHORTEST:
            return False
        for j in range(k):
            for b in range(N):
                chi[j, b] += length * change[j, b]
    return False


@kernel
def shortcut(layout: Layout, rows: Rows, step: Step, x: Point, memory: Memory, own: Own) -> tuple[float, float, float]:
    """(value, gap, residual) of the optimum without the kernel condition, carried by kernels near ``own.chi``.

    The gap is infinite where none were found; ``memory`` holds the answer otherwise.
    """
    unconstrained(layout, step.log_prior, step.cost, x.V, memory.log_weight, memory.mass)
    set_scale(layout, memory.mass, memory.state_scale)
    for b in range(x.q.shape[0]):
        x.q[b] = 1.0
        memory.root_weight[b] = np.exp(0.5 * memory.log_weight[b])
    copy_into(x.xi, own.chi)
    for h in range(layout.states.shape[0] - 1):
        if not carry_layer(rows, layout, h, x, memory, own):
            return np.nan, np.inf, np.inf
        reach_ellipsoids(rows, layout, h, memory, own)
    fill(x.lam, 0.0)
    return certify(layout, rows, step, x, memory, own)
