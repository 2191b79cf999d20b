"""Newton's method on prices, for every kind of row problem whose value is smooth.

With a price V(s) per state (flow conservation; zero at the terminal state) the dual of a mirror step is

    D(V) = V(s_0) - sum_b q_b,    log q_b = log prior_b - cost_b + V(s) - m_b(V),

up to a constant, where m_b is the value of the row problem of pair b: the minimum of P.V plus a smooth function of P,
over the row set.  Its gradient is the flow residual ``e_{s_0} - sum_b q_b (e_s - P_b)`` at the minimising rows, its
negated Hessian ``sum_b q_b ((e_s - P_b)(e_s - P_b)' - m_b'')``, block tridiagonal and positive definite.  What differs
between row problems is asked of the type of ``rows``: :func:`respond` and :func:`bend`.  Known kernels
(:class:`FixedRows`) have one row per pair, and m_b = P_b.V.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp._compiled import body_of, chosen_kernel, inner_kernel, kernel, sum_kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import (
    ROW_ROUNDING,
    certify_layer,
    expected_price,
    log_arrivals,
    log_mass,
    price_layer,
    reprice_layer,
    roll_forward,
    settle,
)
from advmdp.solvers.layout import Layout, Per, copy_into, fill, record, view1, view2, whole

# No exponent V(s) - m_b moves by more than this in one step: beyond, the exponential has left its tangent.
LARGEST_MOVE = 4.0
# A step that moves no exponent by more than this is the last: what it leaves is of the order of its square.
LAST_MOVE = 3e-5
# A factored system serves until an exponent has moved by more than this multiple of the last move.
SAME_SYSTEM = 300.0
# Conjugate gradients, which the flow between wide layers needs few of, leave this share of the flow residual.
INEXACT = 1e-4
# They take as long as factors do after as many iterations as this part of the widest layer has states.
PER_ITERATION = 6
# D is a sum over all blocks: a step that lowers it by less, relatively, may well raise it.
ROUNDING_OF_DUAL = 1e-13
# Less where the dual is all but kinked, and every rise counts: that of the smoothed dual.
LEAST_ROUNDING = 1e-14
# Flow that is off by less, relative to the mass of its state, needs no step at all.
BALANCE = 1e-8
# The last attempt goes on to this share of both: second derivatives of rows may jump, and then steps leave more.
SHARPER = 0.01
# Columns that are turned together.
TOGETHER = 4
# log mass of a state: below this no square root of it takes part in Newton's systems.
RAREST = -1300.0
# Masses below this are handled by their logarithms.
LEAST_MASS = 1e-200
# Where to begin, see :func:`solve`.
WARM, SETTLED, PRIOR = range(3)
SWEEPS = 200
ENOUGH = 1e-9


@record
class Memory(NamedTuple):
    """Working memory, allocated once per shape; kernels are given its ``places``."""

    V: Per.State
    change: Per.State  # of V since the rows were last solved, free of its rounding
    prices: Per.State  # those of the certificate
    step: Per.State
    gradient: Per.State
    scale: Per.State  # per state: 1 / sqrt of its mass
    mass: Per.State
    log_q: Per.Block
    q: Per.Block
    ahead: Per.Block  # P.V
    extra: Per.Block  # what m_b has beyond it
    raised: Per.Block  # the cost with that
    kernels: Per.Next
    trial: Per.Next  # kernels as well
    residual: Per.State  # of the system, with what conjugate gradients carry along
    direction: Per.State
    product: Per.State
    inverse: Per.State
    diag: Per.Diag
    off: Per.Off
    stacked: Per.Stack
    work: Per.Work


# --------------------------------------------------------------------------------------------------------
# Row problems


@chosen_kernel
def respond(
    rows: Any, layout: Layout, h: int, V: Floats, change: Floats, kernels: Floats, ahead: Floats, extra: Floats
) -> bool:
    """Solve the row problems of layer h at the prices V: rows P, (m, N), with P.V and m_b - P.V; whether it could.

    Rows that continue from where they are are told the change of V, to more digits than V has.
    """
    raise NotImplementedError


@chosen_kernel
def bend(rows: Any, layout: Layout, h: int, places: Memory) -> None:
    """Add ``sum_b q_b (P_b P_b' - m_b'')`` of layer h to the diagonal block of the next.

    ``memory.stacked`` has the scaled sqrt(q_b) P_b, (m, N), and ``memory.gradient`` what flows into the next layer."""
    raise NotImplementedError


class FixedRows(NamedTuple):
    """One row per pair, given as tables (S_h, A, S_{h+1}) one after the other."""

    tables: Floats
    kernels: Floats  # the same, (m, N) for each layer that is packed
    packed: NDArray[np.bool_]


@body_of(respond, FixedRows)
def respond_fixed(
    rows: FixedRows, layout: Layout, h: int, V: Floats, change: Floats, kernels: Floats, ahead: Floats, extra: Floats
) -> bool:
    """P.V; the kernels are put where they belong when a layer is first asked for."""
    n = layout[h].states
    m = layout[h].nexts
    N = layout[h].blocks
    if not rows.packed[h]:
        rows.packed[h] = True
        fill(view1(extra, layout[h].block_at, N), 0.0)
        P = view2(rows.kernels, layout[h].next_at, m, N)
        same = view2(kernels, layout[h].next_at, m, N)
        for s in range(n):
            for b in range(s, N, n):
                start = layout[h].next_at + (s * (N // n) + b // n) * m
                for t in range(m):
                    P[t, b] = rows.tables[start + t]
                    same[t, b] = rows.tables[start + t]
    expected_price(layout, h, rows.kernels, V, view1(ahead, layout[h].block_at, N))
    return True


@body_of(bend, FixedRows)
def bend_fixed(rows: FixedRows, layout: Layout, h: int, places: Memory) -> None:
    """P.V is linear."""
    (memory,) = whole(layout, (places,))
    m = layout[h].nexts
    stacked = view2(memory.stacked, 0, m, layout[h].blocks)
    tridiagonal.add_gram(view2(memory.diag, layout[h + 1].diag_at, m, m), stacked, layout[h].blocks, 1.0)


# --------------------------------------------------------------------------------------------------------
# The dual


@inner_kernel
def evaluate(layout: Layout, rows: Any, log_prior: Floats, cost: Floats, places: Memory) -> float:
    """Rows, log q and q at the prices V; D(V), or -inf where a row problem could not be solved."""
    (memory,) = whole(layout, (places,))
    total = float(memory.V[0])
    solved = True
    for h in range(layout.shape[0] - 1):
        n = layout[h].states
        at = layout[h].block_at
        here = layout[h].state_at
        solved = (
            respond(rows, layout, h, memory.V, memory.change, memory.kernels, memory.ahead, memory.extra) and solved
        )
        for start in range(at, at + layout[h].blocks, n):
            for s in range(n):
                i = start + s
                value = log_prior[i] - cost[i] + memory.V[here + s] - (memory.ahead[i] + memory.extra[i])
                memory.log_q[i] = value
                memory.q[i] = np.exp(value)
        total -= tridiagonal.size_of(view1(memory.q, at, layout[h].blocks))
    return total if solved else -np.inf


@inner_kernel
def evaluate_moved(
    layout: Layout, rows: Any, log_prior: Floats, cost: Floats, length: float, step: Floats, places: Memory
) -> float:
    """:func:`evaluate`, with the prices moved by ``length`` times the step."""
    (memory,) = whole(layout, (places,))
    for i in range(step.shape[0]):
        memory.change[i] = length * step[i]
        memory.V[i] += memory.change[i]
    return evaluate(layout, rows, log_prior, cost, places)


@inner_kernel
def rescale(layout: Layout, places: Memory) -> None:
    """1 / sqrt of the mass of each state, as far as floating point goes; by logarithms only where masses underflow."""
    (memory,) = whole(layout, (places,))
    for h in range(layout.shape[0] - 1):
        n = layout[h].states
        at = layout[h].block_at
        scale = view1(memory.scale, layout[h].state_at, n)
        fill(scale, 0.0)
        for start in range(at, at + layout[h].blocks, n):
            for s in range(n):
                scale[s] += memory.q[start + s]
        least = np.inf
        for s in range(n):
            least = min(least, scale[s])
            scale[s] = 1.0 / np.sqrt(scale[s])
        if not least > LEAST_MASS:
            log_mass(layout, h, memory.log_q, scale)
            for s in range(n):
                scale[s] = np.exp(-0.5 * max(scale[s], RAREST))
    memory.scale[memory.scale.shape[0] - 1] = 0.0


@sum_kernel
def scaled_flow(row: Floats, root: Floats, scale: float, column: Floats) -> float:
    """column = scale root row, whose product with ``root`` is returned."""
    total = 0.0
    for b in range(row.shape[0]):
        column[b] = root[b] * scale * row[b]
        total += column[b] * root[b]
    return total


@inner_kernel
def newton_step(layout: Layout, rows: Any, again: bool, limit: int, places: Memory) -> tuple[float, float, float, bool]:
    """The Newton step of the prices: (gradient.step, largest flow residual relative to the mass of its state, largest
    change of an exponent, whether its system was factored); ``again`` with the factors of the last.  Otherwise they are
    made where conjugate gradients need more than ``limit`` iterations.

    The system is scaled by the square roots of the masses, which keeps states of mass 1e-400 alive.
    """
    (memory,) = whole(layout, (places,))
    H = layout.shape[0] - 1
    last = memory.step.shape[0] - 1
    scale = memory.scale
    if not again:
        rescale(layout, places)
        fill(memory.diag, 0.0)
    memory.gradient[0] = scale[0]
    for h in range(H):
        n = layout[h].states
        m = layout[h].nexts
        N = layout[h].blocks
        at = layout[h].block_at
        here = layout[h].state_at
        there = layout[h + 1].state_at
        diag = view2(memory.diag, layout[h].diag_at, n, n)
        root = memory.work[0, :N]
        share = memory.work[1, :N]
        for b in range(N):
            root[b] = np.sqrt(memory.q[at + b]) if memory.q[at + b] > LEAST_MASS else np.exp(0.5 * memory.log_q[at + b])
        for start in range(0, N, n):
            for s in range(n):
                scaled = root[start + s] * scale[here + s]
                share[start + s] = scaled
                memory.gradient[here + s] -= scaled * root[start + s]
                if not again:
                    diag[s, s] += scaled * scaled
        if h == H - 1:
            break
        P = view2(memory.kernels, layout[h].next_at, m, N)
        off = view2(memory.off, layout[h].off_at, n, m)
        stacked = view2(memory.stacked, 0, m, N)
        for t in range(m):
            column = stacked[t]
            memory.gradient[there + t] = scaled_flow(P[t], root, scale[there + t], column)
            if again:
                continue
            first = t - t % TOGETHER
            couplings = memory.work[2 + t - first]
            fill(couplings[:n], 0.0)
            for start in range(0, N, n):
                for s in range(n):
                    couplings[s] -= column[start + s] * share[start + s]
            if t == m - 1 or t == first + TOGETHER - 1:
                for s in range(n):
                    for u in range(first, t + 1):
                        off[s, u] = memory.work[2 + u - first, s]
        if not again:
            bend(rows, layout, h, places)
    flow = 0.0
    for i in range(last):
        flow = max(flow, abs(memory.gradient[i]) * scale[i])
    memory.gradient[last] = 0.0
    factored = not tridiagonal.solve_by_gradients(
        layout, memory.diag, memory.off, memory.gradient, scale, INEXACT * flow, limit, memory.residual,
        memory.direction, memory.product, memory.inverse, memory.step,
    )  # fmt: skip
    if factored:
        if not again:
            tridiagonal.factor(layout, memory.diag, memory.off, memory.stacked)
        copy_into(memory.step, memory.gradient)
        tridiagonal.solve(layout, memory.diag, memory.off, memory.step)
    slope = 0.0
    for i in range(last):
        slope += memory.gradient[i] * memory.step[i]
        memory.step[i] *= scale[i]
    largest = 0.0
    ahead = memory.work[0]
    for h in range(H):
        n = layout[h].states
        expected_price(layout, h, memory.kernels, memory.step, ahead)
        for start in range(0, layout[h].blocks, n):
            for s in range(n):
                largest = max(largest, abs(memory.step[layout[h].state_at + s] - ahead[start + s]))
    # A maximum does not see what is not a number.
    return slope, flow, largest if abs(slope) < np.inf else np.inf, factored


@inner_kernel
def imbalance(layout: Layout, places: Memory) -> float:
    """The largest |log(inflow / mass)| of a state: this sees states whose share of the dual is below its rounding."""
    (memory,) = whole(layout, (places,))
    worst = 0.0
    given = memory.work[0]
    inflow = memory.work[1]
    for h in range(layout.shape[0] - 2):
        log_arrivals(layout, h, memory.kernels, memory.log_q, memory.work[2], inflow)
        log_mass(layout, h + 1, memory.log_q, given)
        for t in range(layout[h].nexts):
            worst = max(worst, abs(inflow[t] - given[t]))
    return worst


@inner_kernel
def ascent(layout: Layout, places: Memory) -> float:
    """The derivative of D along the step, from the states whose flow is off by more than rounding.

    It shows the rarest of them, whose share of D itself is below the rounding of the others.
    """
    (memory,) = whole(layout, (places,))
    inflow = memory.gradient
    mass = memory.mass
    fill(inflow, 0.0)
    fill(mass, 0.0)
    inflow[0] = 1.0
    for h in range(layout.shape[0] - 1):
        n = layout[h].states
        N = layout[h].blocks
        P = view2(memory.kernels, layout[h].next_at, layout[h].nexts, N)
        q = view1(memory.q, layout[h].block_at, N)
        for b in range(N):
            mass[layout[h].state_at + b % n] += q[b]
        for t in range(layout[h].nexts):
            inflow[layout[h + 1].state_at + t] = tridiagonal.dot(P[t], q)
    # Exponents are rounded as the prices are.
    rounding = 1e-12
    for s in range(mass.shape[0] - 1):
        rounding = max(rounding, 1e-12 + 1e-15 * abs(memory.V[s]))
    total = 0.0
    for s in range(mass.shape[0] - 1):
        if abs(inflow[s] - mass[s]) > rounding * mass[s]:
            total += (inflow[s] - mass[s]) * memory.step[s]
    return total


@inner_kernel
def maximise(
    layout: Layout, rows: Any, log_prior: Floats, cost: Floats, dual: float, balanced: float, last_move: float,
    limit: int, places: Memory,
) -> int:  # fmt: skip
    """Newton steps with a capped length and Armijo's rule from V, where D is ``dual``; how many were made.

    They end where flow is conserved at every state up to the share ``balanced`` of its mass, or no longer improves, and
    after a step that moves no exponent by more than ``last_move``.  Short steps share a system.
    """
    (memory,) = whole(layout, (places,))
    before = np.inf
    stalled = 0
    moved = np.inf  # since the system was factored
    rounding = ROUNDING_OF_DUAL if last_move > 0.0 else LEAST_ROUNDING
    widest = 0
    for h in range(1, layout.shape[0] - 1):
        widest = max(widest, layout[h].states)
    # Information travels by a layer in each.
    gradients = widest // PER_ITERATION if widest // PER_ITERATION >= layout.shape[0] else 0
    for iteration in range(limit):
        again = gradients == 0 and moved <= SAME_SYSTEM * last_move
        slope, flow, largest, factored = newton_step(layout, rows, again, gradients, places)
        gradients = 0 if factored else gradients
        if again and flow > 0.1 * before:
            moved = np.inf
            continue
        moved = moved if again else 0.0
        stalled = stalled + 1 if flow > 0.5 * before else 0
        before = flow
        settled = flow <= balanced and largest <= max(5.0 * balanced, last_move)
        if settled or not largest < np.inf or (flow < 0.01 and stalled > 4):
            return iteration
        length = min(1.0, LARGEST_MOVE / largest)
        # What a step leaves is of the order of its product with the way from where the system was made.
        last = largest * max(largest, moved) <= last_move * last_move
        # Where D is flat up to rounding its derivative decides: it must not turn round.  Where it jumps, at a kink
        # of the rows, the step is to end in the jump, whose slope Newton's system then has.
        told = last or slope > 1e-12 * (1.0 + abs(dual))
        rise = 0.0 if told else ascent(layout, places)
        gone = 0.0
        short = 0.0
        long = np.inf
        accepted = False
        for _ in range(40):
            after = evaluate_moved(layout, rows, log_prior, cost, length - gone, memory.step, places)
            gone = length
            rises = last or after >= dual + 1e-4 * length * slope - rounding * (1.0 + abs(dual))
            along = 0.0 if told else ascent(layout, places)
            if rises and along >= -0.5 * rise:
                accepted = True
                if told or long == np.inf or along <= 0.5 * rise:
                    break
                short = length
            else:
                accepted = False
                long = length
            length = 0.5 * (short + long)
        if not accepted:
            after = evaluate_moved(layout, rows, log_prior, cost, short - gone, memory.step, places)
            if short == 0.0:
                return iteration
        dual = after
        moved += length * largest
        if last:
            return iteration + 1
    return limit


@inner_kernel
def settle_rarest(layout: Layout, places: Memory) -> bool:
    """Move the prices of states below the range of Newton's system towards balance; False if none moves.

    Raising V(s) by x raises the outflow by exp(x) and lowers the inflow by at most exp(x), so half of the imbalance in
    logarithms never overshoots.  Nothing else in double precision notices such a state.
    """
    (memory,) = whole(layout, (places,))
    moved = False
    given = memory.work[0]
    inflow = memory.work[1]
    for h in range(layout.shape[0] - 2):
        there = layout[h + 1].state_at
        largest = 0.0
        for i in range(there, there + layout[h].nexts):
            largest = max(largest, memory.scale[i])
        if largest < np.exp(-0.5 * RAREST - 10.0):
            continue
        log_arrivals(layout, h, memory.kernels, memory.log_q, memory.work[2], inflow)
        log_mass(layout, h + 1, memory.log_q, given)
        for t in range(layout[h].nexts):
            away = inflow[t] - given[t]
            if given[t] < RAREST + 20.0 and ENOUGH < abs(away) < np.inf:
                memory.V[there + t] += 0.5 * away
                moved = True
    return moved


@inner_kernel
def certify(
    layout: Layout, rows: Any, log_prior: Floats, cost: Floats, places: Memory
) -> tuple[float, float, float]:  # fmt: skip
    """Roll the policy forward under the rows; (value, gap, residual) of that occupancy measure.

    What m_b has beyond P.V is a cost of these rows.  The prices are those at which every state has the mass that is
    rolled into it; at them the row problems are solved again.
    """
    (memory,) = whole(layout, (places,))
    ahead = memory.work[0]
    bound = memory.work[1]
    exact = memory.gradient  # zero: the masses of these rows are not blurred
    fill(exact, 0.0)
    for i in range(cost.shape[0]):
        memory.raised[i] = cost[i] + memory.extra[i]
    off = roll_forward(layout, memory.kernels, memory.work, memory.log_q, memory.q, memory.mass)
    value = 0.0
    gap = 0.0
    residual = 0.0 if off <= ROW_ROUNDING else np.inf
    for h in range(layout.shape[0] - 2, -1, -1):
        respond(rows, layout, h, memory.prices, memory.change, memory.trial, memory.ahead, memory.extra)
        expected_price(layout, h, memory.kernels, memory.prices, ahead)
        for b in range(layout[h].blocks):
            i = layout[h].block_at + b
            bound[b] = min(ahead[b], memory.ahead[i] + (memory.extra[i] - (memory.raised[i] - cost[i])))
        reprice_layer(layout, h, log_prior, memory.raised, bound, memory.log_q, memory.work[2], memory.prices)
        part = certify_layer(
            layout, h, log_prior, memory.raised, memory.prices, ahead, bound, memory.log_q, memory.q, exact
        )
        value += part[0]
        gap += part[1]
        residual = max(residual, part[2])
    return value, gap, residual


@kernel
def solve(
    layout: Layout, rows: Any, log_prior: Floats, cost: Floats, begin: int, limit: int, places: Any
) -> tuple[float, float, float, int]:
    """Maximise D; (value, gap, residual, iterations).

    It begins at V if that is ``WARM``; at prices that nearly conserve flow under the rows at V = 0, ``SETTLED``; or at
    those at which every state has the mass of the prior, ``PRIOR``.
    """
    (memory,) = whole(layout, (places,))
    if begin != WARM:
        fill(memory.V, 0.0)
        for h in range(layout.shape[0] - 2, -1, -1):
            respond(rows, layout, h, memory.V, memory.change, memory.kernels, memory.ahead, memory.extra)
            if begin == PRIOR:
                given = view1(memory.mass, layout[h].state_at, layout[h].states)
                log_mass(layout, h, log_prior, given)
                at = layout[h].block_at
                for b in range(layout[h].blocks):
                    memory.work[0, b] = memory.ahead[at + b] + memory.extra[at + b]
                price_layer(layout, h, log_prior, cost, memory.work[0], given, memory.V, memory.log_q)
        if begin == SETTLED:
            copy_into(memory.log_q, log_prior)
            settle(layout, memory.kernels, log_prior, cost, 60, memory.work, memory.log_q, memory.mass, memory.V)
    dual = evaluate(layout, rows, log_prior, cost, places)
    sharper = SHARPER if begin == PRIOR else 1.0
    iterations = maximise(layout, rows, log_prior, cost, dual, sharper * BALANCE, sharper * LAST_MOVE, limit, places)
    for _ in range(SWEEPS):
        if not settle_rarest(layout, places):
            break
        evaluate(layout, rows, log_prior, cost, places)
    value, gap, residual = certify(layout, rows, log_prior, cost, places)
    return value, gap, residual, iterations
