"""Newton's method for the mirror step under known kernels, where the dual is smooth.

With q_b = prior_b exp(V(s) - cost_b - P_b.V) the dual is ``D(V) = V(s_0) - sum_b q_b`` up to a constant, its gradient
the flow residual ``e_{s_0} - sum_b q_b (e_s - P_b)`` and its negated Hessian ``sum_b q_b (e_s - P_b)(e_s - P_b)'``,
block tridiagonal and positive definite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import (
    certify_layer,
    expected_price,
    log_mass,
    reprice_layer,
    roll_forward,
    set_scale,
    settle,
)
from advmdp.solvers.layout import BufferSizes, Layout, copy_into, view1, view2

Floats = NDArray[np.float64]

# No exponent V(s) - P.V moves by more than this in one step: beyond, the exponential has left its tangent.
LARGEST_MOVE = 4.0


class Memory(NamedTuple):
    """Working memory, allocated once per shape; ``kernels`` holds the problem's kernels."""

    kernels: Floats
    V: Floats
    scale: Floats  # per state: 1 / sqrt of the starting mass
    gradient: Floats
    step: Floats
    move: Floats  # per block: change of the exponent along the step
    diag: Floats
    off: Floats
    stacked: Floats
    work: Floats
    log_q: Floats
    q: Floats
    mass: Floats
    prices: Floats
    blur: Floats  # zero: repriced masses are exact


def make_memory(layout: Layout, sizes: BufferSizes) -> Memory:
    """Working memory for problems of this layout."""
    return Memory(
        kernels=np.zeros(sizes.next),
        V=np.zeros(sizes.state),
        scale=np.zeros(sizes.state),
        gradient=np.zeros(sizes.state),
        step=np.zeros(sizes.state),
        move=np.zeros(sizes.block),
        diag=np.zeros(sizes.diag),
        off=np.zeros(sizes.off),
        stacked=np.zeros(int((layout.blocks * layout.nexts).max())),
        work=np.zeros((4, int(layout.blocks.max()))),
        log_q=np.zeros(sizes.block),
        q=np.zeros(sizes.block),
        mass=np.zeros(sizes.state),
        prices=np.zeros(sizes.state),
        blur=np.zeros(sizes.state),
    )


@inner_kernel
def pack_kernels(layout: Layout, tables: Floats, kernels: Floats) -> None:
    """Rows (S_h, A, S_{h+1}) into the layout (next state, block)."""
    for h in range(layout.states.shape[0] - 1):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        A = N // n
        P = view2(kernels, layout.next_at[h], m, N)
        for s in range(n):
            for a in range(A):
                start = layout.next_at[h] + (s * A + a) * m
                for t in range(m):
                    P[t, a * n + s] = tables[start + t]


@inner_kernel
def start(layout: Layout, log_prior: Floats, cost: Floats, memory: Memory) -> None:
    """Prices that nearly conserve flow, and the scale of the Newton systems."""
    copy_into(memory.log_q, log_prior)
    settle(layout, memory.kernels, log_prior, cost, 60, memory.work, memory.log_q, memory.mass, memory.V)
    set_scale(layout, memory.mass, memory.scale)


@inner_kernel
def rescale(layout: Layout, memory: Memory) -> None:
    """Scale the Newton systems by the masses of the current iterate."""
    for h in range(layout.states.shape[0]):
        at = layout.state_at[h]
        log_mass(layout, h, memory.log_q, view1(memory.mass, at, layout.states[h]))
    set_scale(layout, memory.mass, memory.scale)


@inner_kernel
def evaluate(layout: Layout, log_prior: Floats, cost: Floats, memory: Memory) -> float:
    """log q and q at the prices V; returns D(V)."""
    total = float(memory.V[0])
    ahead = memory.work[0]
    for h in range(layout.states.shape[0]):
        n = layout.states[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        here = layout.state_at[h]
        expected_price(layout, h, memory.kernels, memory.V, ahead)
        for start_at in range(0, N, n):
            for s in range(n):
                i = at + start_at + s
                value = log_prior[i] - cost[i] + memory.V[here + s] - ahead[start_at + s]
                memory.log_q[i] = value
                memory.q[i] = np.exp(value)
                total -= memory.q[i]
    return total


@inner_kernel
def newton_step(layout: Layout, memory: Memory) -> float:
    """Gradient, Newton step and the changes of the exponents along it; returns gradient.step.

    The system is scaled by the square roots of the starting masses, which keeps states of mass 1e-400 alive.
    """
    H = layout.states.shape[0]
    scale = memory.scale
    for i in range(memory.diag.shape[0]):
        memory.diag[i] = 0.0
    for i in range(memory.off.shape[0]):
        memory.off[i] = 0.0
    for i in range(memory.gradient.shape[0]):
        memory.gradient[i] = 0.0
    memory.gradient[0] = scale[0]
    for h in range(H):
        n = layout.states[h]
        m = layout.nexts[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        here = layout.state_at[h]
        there = layout.state_at[h + 1]
        P = view2(memory.kernels, layout.next_at[h], m, N)
        diag = view2(memory.diag, layout.diag_at[h], n, n)
        root = memory.work[0]
        for b in range(N):
            root[b] = np.exp(0.5 * memory.log_q[at + b])
        for start_at in range(0, N, n):
            for s in range(n):
                scaled = root[start_at + s] * scale[here + s]
                diag[s, s] += scaled * scaled
                memory.gradient[here + s] -= scaled * root[start_at + s]
        if h == H - 1:
            break
        off = view2(memory.off, layout.off_at[h], n, m)
        stacked = view2(memory.stacked, 0, m, N)
        for t in range(m):
            total = 0.0
            for start_at in range(0, N, n):
                for s in range(n):
                    b = start_at + s
                    scaled = root[b] * scale[there + t] * P[t, b]
                    off[s, t] -= scaled * (root[b] * scale[here + s])
                    total += scaled * root[b]
                    stacked[t, b] = scaled
            memory.gradient[there + t] += total
        tridiagonal.add_gram(view2(memory.diag, layout.diag_at[h + 1], m, m), stacked, N, 1.0)
    tridiagonal.factor(layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, memory.stacked)
    copy_into(memory.step, memory.gradient)
    memory.step[memory.step.shape[0] - 1] = 0.0
    tridiagonal.solve(
        layout.states, memory.diag, layout.diag_at, memory.off, layout.off_at, layout.state_at,
        memory.step,
    )  # fmt: skip
    slope = 0.0
    for i in range(memory.step.shape[0] - 1):
        slope += memory.gradient[i] * memory.step[i]
        memory.step[i] *= scale[i]
    for h in range(H):
        n = layout.states[h]
        N = layout.blocks[h]
        at = layout.block_at[h]
        move = view1(memory.move, at, N)
        expected_price(layout, h, memory.kernels, memory.step, move)
        for start_at in range(0, N, n):
            for s in range(n):
                move[start_at + s] = memory.step[layout.state_at[h] + s] - move[start_at + s]
    return slope


@inner_kernel
def certify(layout: Layout, log_prior: Floats, cost: Floats, memory: Memory) -> tuple[float, float, float]:
    """Roll the policy forward under the kernels; (value, gap, residual) of that occupancy measure."""
    roll_forward(layout, memory.kernels, memory.work, memory.log_q, memory.q, memory.mass)
    value = 0.0
    gap = 0.0
    residual = 0.0
    ahead = memory.work[0]
    for h in range(layout.states.shape[0] - 1, -1, -1):
        expected_price(layout, h, memory.kernels, memory.prices, ahead)
        reprice_layer(layout, h, log_prior, cost, ahead, memory.log_q, memory.work[2], memory.prices)
        part = certify_layer(
            layout,
            h,
            log_prior,
            cost,
            memory.prices,
            ahead,
            ahead,
            memory.log_q,
            memory.q,
            memory.blur,
        )
        value += part[0]
        gap += part[1]
        residual = max(residual, part[2])
    return value, gap, residual


@kernel
def iterate(
    layout: Layout, tables: Floats, log_prior: Floats, cost: Floats, tolerance: float, largest_residual: float,
    limit: int, memory: Memory,
) -> tuple[float, float, float, int]:  # fmt: skip
    """Newton iterations with a capped step and Armijo's rule; (value, gap, residual, iterations).

    ``tables``: the kernels (S_h, A, S_{h+1}) of all layers but the last.
    """
    pack_kernels(layout, tables, memory.kernels)
    start(layout, log_prior, cost, memory)
    value = np.nan
    gap = np.inf
    residual = np.inf
    dual = evaluate(layout, log_prior, cost, memory)
    for iteration in range(limit):
        slope = newton_step(layout, memory)
        largest = 0.0
        for i in range(memory.move.shape[0]):
            largest = max(largest, abs(memory.move[i]))
        if largest <= 1e-3 * np.sqrt(largest_residual):
            # The full step leaves an error of the order of its square.
            for i in range(memory.V.shape[0]):
                memory.V[i] += memory.step[i]
            evaluate(layout, log_prior, cost, memory)
            value, gap, residual = certify(layout, log_prior, cost, memory)
            if gap <= tolerance and residual <= largest_residual:
                return value, gap, residual, iteration + 1
            dual = evaluate(layout, log_prior, cost, memory)
            continue
        length = min(1.0, LARGEST_MOVE / largest)
        if largest > 1.0:
            # Masses are still far from where they started: so is the scale of the systems.
            rescale(layout, memory)
        for i in range(memory.V.shape[0]):
            memory.V[i] += length * memory.step[i]
        after = -np.inf
        for _ in range(40):
            after = evaluate(layout, log_prior, cost, memory)
            if after >= dual + 1e-4 * length * slope - 1e-14 * (1.0 + abs(dual)):
                break
            length *= 0.5
            for i in range(memory.V.shape[0]):
                memory.V[i] -= length * memory.step[i]
        dual = after
    # An answer too, if a poor one.
    value, gap, residual = certify(layout, log_prior, cost, memory)
    return value, gap, residual, limit
