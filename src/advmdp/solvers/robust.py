"""The last resort of the pair-entropy mirror step: a smoothed dual, followed as the smoothing vanishes.

For tau > 0 the row problem of a block, ``min over its set of P.V``, is smoothed by the logarithmic barrier of the set,

    m_b(V) = min over chi of  (P0 + G chi).V - tau B_b(chi),   B_b = sum_i log y_i + log w - its maximum,
    y = E0 + E chi,   w = 1 - |chi|^2,

which makes the dual ``D(V) = V(s_0) - sum_b q_b``, ``q_b = prior_b exp(V(s) - cost_b - m_b(V))``, smooth.  Its
gradient is the flow residual under the minimising kernels, its negated Hessian ``sum_b q_b ((e_s - P_b)(e_s - P_b)' +
G K^-1 G')`` with K the Hessian of the row problem.  Newton's method follows the maximum of D as tau falls.  Every
evaluation solves all row problems, so this is slower than the interior-point method; but stationarity in log q holds
exactly all along, which the interior-point method loses on occupancies of exp(-900) and in sets that almost touch.

Row problems are kept on their central path, lam_i y_i = omega w = tau.  Slacks and the residual of stationarity are
carried along and not formed from chi again: of a slack of 1e-14, E0 + E chi would leave nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.balls import Balls, bound_balls
from advmdp.solvers.centring import way_to_sphere
from advmdp.solvers.certificate import (
    certify_rolled,
    expected_price,
    log_arrivals,
    log_mass,
    price_spread,
    set_scale,
    settle,
)
from advmdp.solvers.extreme_rows import block_work_size, ellipsoid_rows, sort_decreasing
from advmdp.solvers.layout import BufferSizes, Layout, copy_into, make_layout, view2, view3

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# No exponent V(s) - m_b moves by more than this in one step: beyond, the exponential has left its tangent.
LARGEST_MOVE = 4.0
# tau falls by this factor, to no less than the least value; so many Newton steps are spent in all.
REDUCTION = 0.3
LEAST_TAU = 1e-14
NEWTON_LIMIT = 400
STEPS_PER_TAU = 60
# A block whose interior is thinner than this is taken to be the point that the presolve found.
THINNEST = 1e-13


class Blocks(NamedTuple):
    """The row problems: their sets (see ``presolve``), and for each a point on its central path."""

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats
    base: Floats  # P less its slacks, where the first m rows are the entries of P less a constant
    centre: Floats  # k per block: an interior point, then the analytic centre
    chi: Floats
    y: Floats
    lam: Floats
    w: Floats  # per block: 1 - |chi|^2
    omega: Floats  # per block: its multiplier
    slope: Floats  # k per block: the residual of stationarity, G'V - E'lam + 2 omega chi
    level: Floats  # per block: sum log y + log w at the analytic centre
    free: NDArray[np.bool_]  # per block: whether it has an interior; if not, it stays at its centre


class Memory(NamedTuple):
    """Prices, occupancies and working memory."""

    V: Floats
    step: Floats
    gradient: Floats
    scale: Floats
    mass: Floats
    blur: Floats
    log_q: Floats
    q: Floats
    bound: Floats  # per block: a lower bound of P.V over its set
    kernels: Floats
    entry_rounding: Floats
    diag: Floats
    off: Floats
    stacked: Floats
    work: Floats
    scratch: Floats  # one block


def make_blocks(
    sizes: BufferSizes, P0: Floats, G: Floats, E0: Floats, E: Floats, base: Floats, centre: Floats
) -> Blocks:
    """Row problems of these sets, with interior points ``centre``."""
    return Blocks(
        P0, G, E0, E, base, centre, np.zeros(sizes.free), np.zeros(sizes.row), np.zeros(sizes.row),
        np.zeros(sizes.block), np.zeros(sizes.block), np.zeros(sizes.free), np.zeros(sizes.block),
        np.zeros(sizes.block, dtype=np.bool_),
    )  # fmt: skip


def make_memory(layout: Layout, sizes: BufferSizes) -> Memory:
    """Working memory for problems of this layout."""
    k = int(layout.free.max())
    lengths = [sizes.state] * 6 + [sizes.block] * 3 + [sizes.next] * 2 + [sizes.diag, sizes.off]
    return Memory._make(
        [
            *(np.zeros(length) for length in lengths),
            np.zeros(int((layout.blocks * (layout.free + 1) * layout.nexts).max())),
            np.zeros((4, int(layout.blocks.max()))),
            np.zeros(k * k + k + 2 * int(layout.rows.max())),
        ]
    )


# --------------------------------------------------------------------------------------------------------
# One row problem


@inner_kernel
def barrier(y: Floats, w: float) -> float:
    """sum_i log y_i + log w."""
    total = float(np.log(w))
    for i in range(y.shape[0]):
        total += np.log(y[i])
    return total


@inner_kernel
def curvature(
    E: Floats, chi: Floats, y: Floats, lam: Floats, w: float, omega: float, row: Floats, factor: Floats
) -> None:
    """Upper R with R'R = K = sum_i lam_i / y_i E_i E_i' + 2 omega I + 4 omega / w chi chi'.

    The roots of K are rotated in one by one: its eigenvalues spread over twenty decades and more, and in K itself the
    small ones would be lost.
    """
    n_rows, k = E.shape
    for j in range(k):
        for i in range(k):
            factor[j, i] = 0.0
        factor[j, j] = np.sqrt(2.0 * omega)
    for i in range(n_rows + 1):
        if i < n_rows:
            root = np.sqrt(lam[i] / y[i])
            for j in range(k):
                row[j] = root * E[i, j]
        else:
            root = 2.0 * np.sqrt(omega / w)
            for j in range(k):
                row[j] = root * chi[j]
        for j in range(k):
            if row[j] == 0.0:
                continue
            size = np.hypot(factor[j, j], row[j])
            cosine = factor[j, j] / size
            sine = row[j] / size
            factor[j, j] = size
            for o in range(j + 1, k):
                upper = factor[j, o]
                factor[j, o] = cosine * upper + sine * row[o]
                row[o] = cosine * row[o] - sine * upper


@inner_kernel
def forward(factor: Floats, x: Floats) -> None:
    """x <- R'^-1 x."""
    k = x.shape[0]
    for j in range(k):
        x[j] /= factor[j, j]
        for o in range(j + 1, k):
            x[o] -= factor[j, o] * x[j]


@inner_kernel
def backward(factor: Floats, x: Floats) -> None:
    """x <- R^-1 x."""
    k = x.shape[0]
    for j in range(k - 1, -1, -1):
        for o in range(j + 1, k):
            x[j] -= factor[j, o] * x[o]
        x[j] /= factor[j, j]


@inner_kernel
def follow_path(
    E: Floats, tau: float, limit: int, chi: Floats, y: Floats, lam: Floats, w: Floats, omega: Floats, slope: Floats,
    scratch: Floats,
) -> bool:  # fmt: skip
    """Primal-dual Newton steps of one block towards lam_i y_i = omega w = tau; whether it was reached.

    While complementarity is above tau it is reduced at most ten-fold per step.  ``w`` and ``omega`` have one entry.
    """
    n_rows, k = E.shape
    factor = scratch[: k * k].reshape(k, k)
    dx = scratch[k * k : k * k + k]
    dy = scratch[k * k + k : k * k + k + n_rows]
    dlam = scratch[k * k + k + n_rows : k * k + k + 2 * n_rows]
    share = 0.1
    before = np.inf
    for _ in range(limit):
        mean = omega[0] * w[0]
        for i in range(n_rows):
            mean += lam[i] * y[i]
        target = max(tau, share * mean / (n_rows + 1.0))
        curvature(E, chi, y, lam, w[0], omega[0], dx, factor)
        # K dx = -(stationarity with lam_i = target / y_i and omega = target / w).
        pull = 2.0 * (target / w[0] - omega[0])
        for j in range(k):
            dx[j] = -slope[j] - pull * chi[j]
        for i in range(n_rows):
            push = target / y[i] - lam[i]
            for j in range(k):
                dx[j] += push * E[i, j]
        forward(factor, dx)
        backward(factor, dx)
        # The longest step inside, and the largest relative change.
        alpha = np.inf
        change = 0.0
        for i in range(n_rows):
            dy[i] = 0.0
            for j in range(k):
                dy[i] += E[i, j] * dx[j]
            dlam[i] = target / y[i] - lam[i] - lam[i] / y[i] * dy[i]
            if dy[i] < 0.0:
                alpha = min(alpha, -y[i] / dy[i])
            if dlam[i] < 0.0:
                alpha = min(alpha, -lam[i] / dlam[i])
            change = max(change, max(abs(dy[i]) / y[i], abs(dlam[i]) / lam[i]))
        along = 0.0
        square = 0.0
        for j in range(k):
            along += chi[j] * dx[j]
            square += dx[j] * dx[j]
        domega = target / w[0] - omega[0] + omega[0] / w[0] * 2.0 * along
        if domega < 0.0:
            alpha = min(alpha, -omega[0] / domega)
        change = max(change, max(2.0 * abs(along) / w[0], abs(domega) / omega[0]))
        root = np.sqrt(along * along + square * w[0])
        if along > 0.0:
            alpha = min(alpha, w[0] / (root + along))
        elif square > 0.0:
            alpha = min(alpha, (root - along) / square)
        alpha = min(1.0, 0.95 * alpha)
        if not (alpha > 1e-12 and change < np.inf):
            return False
        # Whatever the solve has lost is still in the residual that is carried along.
        for j in range(k):
            slope[j] += 2.0 * alpha * (omega[0] * dx[j] + domega * (chi[j] + alpha * dx[j]))
            chi[j] += alpha * dx[j]
        for i in range(n_rows):
            for j in range(k):
                slope[j] -= alpha * dlam[i] * E[i, j]
            y[i] += alpha * dy[i]
            lam[i] += alpha * dlam[i]
        w[0] -= alpha * (2.0 * along + alpha * square)
        omega[0] += alpha * domega
        if not w[0] > 0.0:
            return False
        share = 0.1 if alpha > 0.5 else 0.6
        if target == tau and alpha == 1.0:
            # What is left is of the order of the square, unless rounding has been reached.
            if change < 1e-6 or (change < 1e-2 and change > 0.5 * before):
                return True
            before = change
    return False


@inner_kernel
def start_path(
    G: Floats, E0: Floats, E: Floats, prices: Floats, tau: float, limit: int, centre: Floats, chi: Floats, y: Floats,
    lam: Floats, w: Floats, omega: Floats, slope: Floats, scratch: Floats,
) -> bool:  # fmt: skip
    """:func:`follow_path` from the centre of the block, with complementarity as large as the gradient there."""
    n_rows, k = E.shape
    mu = tau
    w[0] = 1.0
    for j in range(k):
        chi[j] = centre[j]
        w[0] -= chi[j] * chi[j]
        slope[j] = 0.0
        for t in range(G.shape[0]):
            slope[j] += G[t, j] * prices[t]
        mu = max(mu, abs(slope[j]))
    omega[0] = mu / w[0]
    for i in range(n_rows):
        y[i] = E0[i]
        for j in range(k):
            y[i] += E[i, j] * chi[j]
        lam[i] = mu / y[i]
        for j in range(k):
            slope[j] -= lam[i] * E[i, j]
    for j in range(k):
        slope[j] += 2.0 * omega[0] * chi[j]
    return follow_path(E, tau, limit, chi, y, lam, w, omega, slope, scratch)


# --------------------------------------------------------------------------------------------------------
# All row problems


@inner_kernel
def centre_rows(layout: Layout, blocks: Blocks, memory: Memory) -> None:
    """Analytic centres, and which blocks have one: those whose given point is inside by more than rounding."""
    memory.V[:] = 0.0
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        G = view3(blocks.G, layout.slope_at[h], m, k, N)
        E0 = view2(blocks.E0, layout.row_at[h], n_rows, N)
        E = view3(blocks.E, layout.row_slope_at[h], n_rows, k, N)
        centre = view2(blocks.centre, layout.free_at[h], k, N)
        chi = view2(blocks.chi, layout.free_at[h], k, N)
        slope = view2(blocks.slope, layout.free_at[h], k, N)
        y = view2(blocks.y, layout.row_at[h], n_rows, N)
        lam = view2(blocks.lam, layout.row_at[h], n_rows, N)
        for b in range(N):
            at = layout.block_at[h] + b
            inside = 1.0
            for j in range(k):
                inside -= centre[j, b] * centre[j, b]
            for i in range(n_rows):
                value = E0[i, b]
                for j in range(k):
                    value += E[i, j, b] * centre[j, b]
                inside = min(inside, value)
            blocks.free[at] = (
                k > 0
                and inside > THINNEST
                and start_path(
                    G[:, :, b], E0[:, b], E[:, :, b], memory.V[:m], 1.0, 200, centre[:, b], chi[:, b], y[:, b],
                    lam[:, b], blocks.w[at : at + 1], blocks.omega[at : at + 1], slope[:, b], memory.scratch,
                )
            )  # fmt: skip
            if blocks.free[at]:
                blocks.level[at] = barrier(y[:, b], blocks.w[at])
                for j in range(k):
                    centre[j, b] = chi[j, b]
            else:
                for j in range(k):
                    chi[j, b] = centre[j, b]


@inner_kernel
def kernels_of(layout: Layout, blocks: Blocks, entries: bool, kernels: Floats) -> None:
    """Kernels at the points chi.  With ``entries``, the first m rows are the entries of P less a constant: then the
    slacks give them to full relative accuracy."""
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        P0 = view2(blocks.P0, layout.next_at[h], m, N)
        G = view3(blocks.G, layout.slope_at[h], m, k, N)
        base = view2(blocks.base, layout.next_at[h], m, N)
        y = view2(blocks.y, layout.row_at[h], n_rows, N)
        chi = view2(blocks.chi, layout.free_at[h], k, N)
        P = view2(kernels, layout.next_at[h], m, N)
        for t in range(m):
            for b in range(N):
                value = P0[t, b]
                moves = False
                for j in range(k):
                    moves = moves or G[t, j, b] != 0.0
                    value += G[t, j, b] * chi[j, b]
                if entries and moves and blocks.free[layout.block_at[h] + b]:
                    value = base[t, b] + y[t, b]
                P[t, b] = max(value, 0.0)


@kernel
def solve_rows(layout: Layout, blocks: Blocks, tau: float, length: float, afresh: bool, memory: Memory) -> bool:
    """Solve every row problem for tau, after the prices have moved by ``length`` times the step; whether all were.

    Each continues from where it is, if it can and unless ``afresh``, else from its centre.
    """
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        G = view3(blocks.G, layout.slope_at[h], m, k, N)
        E0 = view2(blocks.E0, layout.row_at[h], n_rows, N)
        E = view3(blocks.E, layout.row_slope_at[h], n_rows, k, N)
        centre = view2(blocks.centre, layout.free_at[h], k, N)
        chi = view2(blocks.chi, layout.free_at[h], k, N)
        slope = view2(blocks.slope, layout.free_at[h], k, N)
        y = view2(blocks.y, layout.row_at[h], n_rows, N)
        lam = view2(blocks.lam, layout.row_at[h], n_rows, N)
        there = layout.state_at[h + 1]
        for b in range(N):
            at = layout.block_at[h] + b
            if not blocks.free[at]:
                continue
            w = blocks.w[at : at + 1]
            omega = blocks.omega[at : at + 1]
            found = False
            if not afresh:
                for t in range(m):
                    change = length * memory.step[there + t]
                    for j in range(k):
                        slope[j, b] += change * G[t, j, b]
                found = follow_path(
                    E[:, :, b], tau, 25, chi[:, b], y[:, b], lam[:, b], w, omega, slope[:, b], memory.scratch
                )
            if not found and not start_path(
                G[:, :, b], E0[:, b], E[:, :, b], memory.V[there : there + m], tau, 200, centre[:, b], chi[:, b],
                y[:, b], lam[:, b], w, omega, slope[:, b], memory.scratch,
            ):  # fmt: skip
                return False
    return True


# --------------------------------------------------------------------------------------------------------
# The smoothed dual


@kernel
def start(layout: Layout, blocks: Blocks, entries: bool, log_prior: Floats, cost: Floats, memory: Memory) -> float:
    """Prices that nearly conserve flow under the kernels at the centres; the largest spread of them in a layer."""
    centre_rows(layout, blocks, memory)
    for h in range(layout.states.shape[0]):
        m = layout.nexts[h]
        k = layout.free[h]
        N = layout.blocks[h]
        P0 = view2(blocks.P0, layout.next_at[h], m, N)
        G = view3(blocks.G, layout.slope_at[h], m, k, N)
        rounding = view2(memory.entry_rounding, layout.next_at[h], m, N)
        for t in range(m):
            for b in range(N):
                square = 0.0
                for j in range(k):
                    square += G[t, j, b] * G[t, j, b]
                rounding[t, b] = 1e-14 * (abs(P0[t, b]) + np.sqrt(square))
    kernels_of(layout, blocks, entries, memory.kernels)
    copy_into(memory.log_q, log_prior)
    settle(layout, memory.kernels, log_prior, cost, 60, memory.work, memory.log_q, memory.mass, memory.V)
    return price_spread(layout, memory.V)


@kernel
def evaluate(
    layout: Layout, blocks: Blocks, entries: bool, log_prior: Floats, cost: Floats, tau: float, memory: Memory
) -> float:
    """Kernels and log q at the prices, whose row problems are solved; the smoothed dual."""
    kernels_of(layout, blocks, entries, memory.kernels)
    total = float(memory.V[0])
    ahead = memory.work[0]
    for h in range(layout.states.shape[0]):
        n = layout.states[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        y = view2(blocks.y, layout.row_at[h], layout.rows[h], N)
        expected_price(layout, h, memory.kernels, memory.V, ahead)
        for b in range(N):
            if blocks.free[at + b]:
                ahead[b] -= tau * (barrier(y[:, b], blocks.w[at + b]) - blocks.level[at + b])
            value = log_prior[at + b] - cost[at + b] + memory.V[layout.state_at[h] + b % n] - ahead[b]
            memory.log_q[at + b] = value
            total -= np.exp(value)
    return total


@kernel
def newton_step(layout: Layout, blocks: Blocks, memory: Memory) -> tuple[float, float, float]:
    """The Newton step of the prices: (gradient.step, largest flow residual relative to the mass of its state, largest
    change of an exponent).  The system is scaled by the square roots of the masses."""
    H = layout.states.shape[0]
    for h in range(H):
        log_mass(layout, h, memory.log_q, memory.mass[layout.state_at[h] : layout.state_at[h + 1]])
    scale = memory.scale
    set_scale(layout, memory.mass, scale)
    memory.diag[:] = 0.0
    memory.off[:] = 0.0
    memory.gradient[:] = 0.0
    memory.gradient[0] = scale[0]
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        diag = view2(memory.diag, layout.diag_at[h], n, n)
        off = view2(memory.off, layout.off_at[h], n, m)
        P = view2(memory.kernels, layout.next_at[h], m, N)
        G = view3(blocks.G, layout.slope_at[h], m, k, N)
        E = view3(blocks.E, layout.row_slope_at[h], n_rows, k, N)
        chi = view2(blocks.chi, layout.free_at[h], k, N)
        y = view2(blocks.y, layout.row_at[h], n_rows, N)
        lam = view2(blocks.lam, layout.row_at[h], n_rows, N)
        stacked = view2(memory.stacked, 0, m, N * (k + 1))
        factor = memory.scratch[: k * k].reshape(k, k)
        column = memory.scratch[k * k : k * k + k]
        for b in range(N):
            s = b % n
            root = np.exp(0.5 * memory.log_q[at + b])
            own = root * scale[here + s]
            diag[s, s] += own * own
            memory.gradient[here + s] -= own * root
            for t in range(m):
                entry = root * scale[there + t] * P[t, b]
                off[s, t] -= entry * own
                memory.gradient[there + t] += entry * root
                stacked[t, b * (k + 1)] = entry
            free = blocks.free[at + b]
            if free:
                curvature(
                    E[:, :, b], chi[:, b], y[:, b], lam[:, b], blocks.w[at + b], blocks.omega[at + b], column, factor
                )
            for t in range(m):
                for j in range(k):
                    column[j] = root * scale[there + t] * G[t, j, b] if free else 0.0
                if free:
                    forward(factor, column)
                for j in range(k):
                    stacked[t, b * (k + 1) + 1 + j] = column[j]
        if h < H - 1:
            tridiagonal.add_gram(view2(memory.diag, layout.diag_at[h + 1], m, m), stacked, N * (k + 1), 1.0)
    tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, memory.stacked)
    last = memory.step.shape[0] - 1
    flow = 0.0
    for i in range(last):
        memory.step[i] = memory.gradient[i]
        flow = max(flow, abs(memory.gradient[i]) * scale[i])
    memory.step[last] = 0.0
    tridiagonal.solve(
        layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, layout.state_at, memory.step
    )
    slope = 0.0
    for i in range(last):
        slope += memory.gradient[i] * memory.step[i]
        memory.step[i] *= scale[i]
    largest = 0.0
    ahead = memory.work[0]
    for h in range(H):
        expected_price(layout, h, memory.kernels, memory.step, ahead)
        for b in range(layout.blocks[h]):
            move = memory.step[layout.state_at[h] + b % layout.states[h]] - ahead[b]
            largest = max(largest, abs(move)) if np.isfinite(move) else np.inf
    return slope, flow, largest


@kernel
def imbalance(layout: Layout, memory: Memory) -> float:
    """The largest |log(inflow / mass)| of a state: this sees states whose share of the dual is below its rounding."""
    worst = 0.0
    given = memory.work[0]
    inflow = memory.work[1]
    for h in range(layout.states.shape[0] - 1):
        log_arrivals(layout, h, memory.kernels, memory.log_q, memory.work[2], inflow)
        log_mass(layout, h + 1, memory.log_q, given)
        for t in range(layout.nexts[h]):
            worst = max(worst, abs(inflow[t] - given[t]))
    return worst


# --------------------------------------------------------------------------------------------------------
# Certificate


@kernel
def bound_ellipsoids(
    layout: Layout, blocks: Blocks, active: Integers, smallest: Floats, layer_work: Floats, block_work: Floats,
    order: Integers, memory: Memory,
) -> None:  # fmt: skip
    """``memory.bound``: the minimum of P.V over each set by the active-set method, which is a value of its dual."""
    for h in range(layout.states.shape[0] - 1):
        m = layout.nexts[h]
        n_rows = layout.rows[h]
        k = layout.free[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        values = layer_work[:m]
        for t in range(m):
            values[t] = -memory.V[layout.state_at[h + 1] + t]
        bound = memory.bound[at : at + N]
        ellipsoid_rows(
            view2(blocks.P0, layout.next_at[h], m, N),
            view3(blocks.G, layout.slope_at[h], m, k, N),
            view2(blocks.E0, layout.row_at[h], n_rows, N),
            view3(blocks.E, layout.row_slope_at[h], n_rows, k, N),
            active[at * k : (at + N) * k].reshape(k, N),
            smallest[at : at + N], values, layer_work[m:], block_work, order, bound, False,
        )  # fmt: skip
        for b in range(N):
            bound[b] = -bound[b]


@kernel
def bound_boxes(layout: Layout, low: Floats, high: Floats, order: Integers, memory: Memory) -> None:
    """``memory.bound``: the minimum of P.V over each box, filled from below in increasing order of V."""
    for h in range(layout.states.shape[0] - 1):
        m = layout.nexts[h]
        N = layout.blocks[h]
        lower = view2(low, layout.next_at[h], m, N)
        upper = view2(high, layout.next_at[h], m, N)
        prices = memory.V[layout.state_at[h + 1] : layout.state_at[h + 1] + m]
        sort_decreasing(prices, order)
        for b in range(N):
            left = 1.0
            total = 0.0
            for t in range(m):
                left -= lower[t, b]
                total += lower[t, b] * prices[t]
            for i in range(m - 1, -1, -1):
                t = order[i]
                filled = min(upper[t, b] - lower[t, b], max(left, 0.0))
                total += filled * prices[t]
                left -= filled
            memory.bound[layout.block_at[h] + b] = total


@kernel
def certify(layout: Layout, log_prior: Floats, cost: Floats, memory: Memory) -> tuple[float, float, float]:
    """Roll the policy forward under the kernels; (value, gap, residual) at the prices, with ``memory.bound``."""
    return certify_rolled(
        layout, log_prior, cost, memory.V, memory.bound, True, memory.kernels, memory.entry_rounding, memory.work,
        memory.log_q, memory.q, memory.mass, memory.blur,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------
# Driver


class Result(NamedTuple):
    """The certificate (value, gap, residual) that meets the tolerance, or else the one with the smallest gap, with its
    answer in the working memory."""

    certificate: tuple[float, float, float]
    iterations: int
    blocks: Blocks
    memory: Memory


def solve_ellipsoids(
    layout: Layout, sizes: BufferSizes, sets: tuple[Floats, Floats, Floats, Floats], inside: Floats, active: Integers,
    smallest: Floats, simplex: bool, log_prior: Floats, cost: Floats, tolerance: float, largest_residual: float,
) -> Result:  # fmt: skip
    """The mirror step over reduced ellipsoids ``sets = (P0, G, E0, E)`` with points ``inside`` them."""
    k = int(layout.free.max())
    layer_work = np.empty((4 + k) * int(layout.blocks.max()) + int(layout.nexts.max()))
    block_work = np.empty(block_work_size(int(layout.rows.max()), k))
    order = np.empty(max(k, 1), dtype=np.int64)
    _push_inside(layout, *sets[2:], inside)
    blocks = make_blocks(sizes, *sets, np.zeros(sizes.next), inside)

    def bounds(memory: Memory) -> None:
        bound_ellipsoids(layout, blocks, active, smallest, layer_work, block_work, order, memory)

    return _follow(layout, sizes, blocks, not simplex, log_prior, cost, tolerance, largest_residual, bounds)


def solve_balls(
    layout: Layout, sizes: BufferSizes, balls: Balls, inside: Floats, log_prior: Floats, cost: Floats, tolerance: float,
    largest_residual: float,
) -> Result:  # fmt: skip
    """The mirror step over l1 balls, with points ``inside`` their polyhedra."""
    order = np.empty(int(layout.nexts.max(initial=1)), dtype=np.int64)

    def bounds(memory: Memory) -> None:
        memory.bound[layout.block_at[-1] :] = 0.0
        for h, (centres, radii) in enumerate(zip(balls.centres, balls.radii, strict=True)):
            prices = memory.V[layout.state_at[h + 1] : layout.state_at[h + 2]]
            bound_balls(layout, h, centres, radii, prices, order, memory.bound)

    blocks = make_blocks(sizes, *balls.polyhedra(layout, sizes), np.zeros(sizes.next), inside)
    return _follow(layout, sizes, blocks, False, log_prior, cost, tolerance, largest_residual, bounds)


def solve_boxes(
    layer_sizes: tuple[int, ...], n_actions: int, low: Floats, high: Floats, inside: Floats, log_prior: Floats,
    cost: Floats, tolerance: float, largest_residual: float,
) -> Result:  # fmt: skip
    """The mirror step over boxes, (m, N) per layer, with points ``inside`` them.

    In the coordinates of :mod:`presolve`, with a ball that is too large to cut anything off.
    """
    layout, sizes = make_layout(
        layer_sizes, n_actions, [2 * m for m in layer_sizes[1:-1]] + [0], [m - 1 for m in layer_sizes[1:-1]] + [0]
    )
    G, E0, E = np.zeros(sizes.slope), np.ones(sizes.row), np.zeros(sizes.row_slope)
    for h, (m, k, N) in enumerate(zip(layout.nexts, layout.free, layout.blocks, strict=True)):
        if k <= 0:
            continue
        here = slice(layout.next_at[h], layout.next_at[h] + m * N)
        below, above = ((inside - low)[here].reshape(m, N), (high - inside)[here].reshape(m, N))
        slope = np.zeros((m, k, N))
        offset = np.ones((2 * m, N))
        for b in range(N):
            moving = np.flatnonzero(np.minimum(below[:, b], above[:, b]) > THINNEST)
            size = len(moving)
            if size < 2:
                continue
            # Differences from the first of the entries that move, orthonormalised: they sum to zero.
            steps = np.vstack([-np.ones(size - 1), np.eye(size - 1)])
            reach = 2.0 * np.linalg.norm((below + above)[moving, b])
            slope[moving, : size - 1, b] = reach * np.linalg.qr(steps)[0]
            offset[moving, b] = below[moving, b]
            offset[m + moving, b] = above[moving, b]
        G[layout.slope_at[h] : layout.slope_at[h] + slope.size] = slope.ravel()
        E0[layout.row_at[h] : layout.row_at[h] + offset.size] = offset.ravel()
        rows = np.concatenate([slope, -slope])
        E[layout.row_slope_at[h] : layout.row_slope_at[h] + rows.size] = rows.ravel()
    order = np.empty(max(layer_sizes), dtype=np.int64)

    def bounds(memory: Memory) -> None:
        bound_boxes(layout, low, high, order, memory)

    blocks = make_blocks(sizes, inside, G, E0, E, low, np.zeros(sizes.free))
    return _follow(layout, sizes, blocks, True, log_prior, cost, tolerance, largest_residual, bounds)


def _push_inside(layout: Layout, E0: Floats, E: Floats, inside: Floats) -> None:
    """Move points that lie on rows off them, half of the way to the sphere or to another row.

    Such a point is the shortest of its block, for which no centre was found: where the set is only just not empty,
    Newton's method from elsewhere does not find in.
    """
    for h, (n_rows, k, N) in enumerate(zip(layout.rows, layout.free, layout.blocks, strict=True)):
        if k == 0:
            continue
        row, slope, free = layout.row_at[h], layout.row_slope_at[h], layout.free_at[h]
        offsets = E0[row : row + n_rows * N].reshape(n_rows, N)
        normals = E[slope : slope + n_rows * k * N].reshape(n_rows, k, N)
        points = inside[free : free + k * N].reshape(k, N)
        slacks = offsets + np.einsum("ijb,jb->ib", normals, points)
        for b in np.flatnonzero((slacks <= THINNEST).any(axis=0)):
            point, rows, slack = points[:, b], normals[:, :, b], slacks[:, b]
            lying = slack <= THINNEST
            # As far from each of them as the length of its normal: all by the same distance.
            direction = np.linalg.lstsq(rows[lying], np.linalg.norm(rows[lying], axis=1), rcond=None)[0]
            gain = rows @ direction
            along, square, room = float(point @ direction), float(direction @ direction), float(1.0 - point @ point)
            if not (gain[lying] > 0.0).all() or not room > 0.0:
                continue
            closing = ~lying & (gain < 0.0)
            points[:, b] += (
                0.5
                * min(way_to_sphere(along, square, room), np.min(-slack[closing] / gain[closing], initial=np.inf))
                * direction
            )


def _follow(
    layout: Layout, sizes: BufferSizes, blocks: Blocks, entries: bool, log_prior: Floats, cost: Floats,
    tolerance: float, largest_residual: float, bounds: Callable[[Memory], None],
) -> Result:  # fmt: skip
    """Follow the maximum of the smoothed dual as tau falls, until a certificate holds."""
    memory = make_memory(layout, sizes)
    tau = max(start(layout, blocks, entries, log_prior, cost, memory), 0.01)
    # Smoothing costs about tau per row and unit of occupancy.
    certified_from = tolerance / (4.0 * len(layout.states) * (int(layout.rows.max()) + 1))
    best = (np.nan, np.inf, np.inf)
    kept: list[Floats] = []
    iterations = 0
    solved = solve_rows(layout, blocks, tau, 0.0, True, memory)
    prices = memory.V.copy()
    while solved:
        last = iterations >= NEWTON_LIMIT or tau * REDUCTION <= LEAST_TAU
        closing = last or tau <= certified_from
        iterations += _maximise(layout, blocks, entries, log_prior, cost, tau, 1e-8 if closing else 0.1, memory)
        if closing:
            bounds(memory)
            found = certify(layout, log_prior, cost, memory)
            good = abs(found[1]) <= tolerance and found[2] <= largest_residual
            if good or (found[2] < np.inf and abs(found[1]) < best[1]):
                best, kept = found, [table.copy() for table in (memory.log_q, memory.q, memory.kernels)]
            if good or last:
                break
        earlier, prices = prices, memory.V.copy()
        tau *= REDUCTION
        solved = _predict(layout, blocks, entries, log_prior, cost, tau, REDUCTION * (prices - earlier), memory)
    if best[1] < np.inf:
        memory.log_q[:], memory.q[:], memory.kernels[:] = kept
    else:
        # The prices and kernels of the last tau are an answer too, if a poor one.
        bounds(memory)
        best = certify(layout, log_prior, cost, memory)
    return Result(best, iterations, blocks, memory)


class _Saved:
    """The prices and the points of the row problems, to come back to."""

    def __init__(self, blocks: Blocks, memory: Memory) -> None:
        self.tables = (memory.V, blocks.chi, blocks.y, blocks.lam, blocks.w, blocks.omega, blocks.slope)
        self.values = [table.copy() for table in self.tables]

    def restore(self) -> None:
        for table, value in zip(self.tables, self.values, strict=True):
            table[:] = value


def _predict(
    layout: Layout, blocks: Blocks, entries: bool, log_prior: Floats, cost: Floats, tau: float, move: Floats,
    memory: Memory,
) -> bool:  # fmt: skip
    """Solve the row problems for a new tau, with the prices moved along the path or where they are, whichever
    conserves flow better; whether they could be.  Close to its end the path is a straight line in tau."""
    before = _Saved(blocks, memory)
    chosen, worst = None, np.inf
    for change in (move, 0.0):
        before.restore()
        memory.step[:] = change
        memory.V[:] += memory.step
        if solve_rows(layout, blocks, tau, 1.0, False, memory):
            evaluate(layout, blocks, entries, log_prior, cost, tau, memory)
            off = imbalance(layout, memory)
            if chosen is None or off < worst:
                chosen, worst = _Saved(blocks, memory), off
    if chosen is None:
        return False
    chosen.restore()
    return True


def _maximise(
    layout: Layout, blocks: Blocks, entries: bool, log_prior: Floats, cost: Floats, tau: float, enough: float,
    memory: Memory,
) -> int:  # fmt: skip
    """Newton steps with Armijo's rule at fixed tau, until flow is conserved at every state up to the share ``enough``
    of its mass, or no longer improves; the number of steps."""
    dual = evaluate(layout, blocks, entries, log_prior, cost, tau, memory)
    before = np.inf
    stalled = 0
    for iteration in range(1, STEPS_PER_TAU + 1):
        slope, flow, largest = newton_step(layout, blocks, memory)
        stalled = stalled + 1 if flow > 0.5 * before else 0
        before = flow
        settled = flow < enough and largest < 5.0 * enough
        if settled or not largest < np.inf or (flow < 0.01 and stalled > 4):
            return iteration
        kept = _Saved(blocks, memory)
        length = min(1.0, LARGEST_MOVE / largest)
        # Where the dual cannot tell, the flow of the rarest states decides; Newton's direction need not improve the
        # worst of them, so that this is tried a few times only.
        visible = slope > 1e-12 * (1.0 + abs(dual))
        off = imbalance(layout, memory)
        for trial in range(25):
            memory.V[:] += length * memory.step
            after = -np.inf
            if solve_rows(layout, blocks, tau, length, False, memory):
                after = evaluate(layout, blocks, entries, log_prior, cost, tau, memory)
            rises = after >= dual + 1e-4 * length * slope - 1e-14 * (1.0 + abs(dual))
            if rises and (visible or trial >= 6 or imbalance(layout, memory) < off):
                break
            length *= 0.5
            kept.restore()
        else:
            evaluate(layout, blocks, entries, log_prior, cost, tau, memory)
            return iteration
        dual = after
    return STEPS_PER_TAU
