"""Flow-feasible occupancy measures from an iterate, and the duality gap they carry.

For prices V (zero at the terminal state) and any lower bounds ``d_b <= min over the row set of P.V``, a
flow-feasible q with kernels P_b in their sets satisfies, with a_b = log(q_b / prior_b) + cost_b - V(s) + d_b,

    primal - dual = sum_b q_b (P_b.V - d_b) + q_b (exp(-a_b) - 1 + a_b),

a sum of non-negative terms: nothing cancels, and a small sum proves that q is nearly optimal.  Everything
is done on log q, because q may lie outside the range of floating-point numbers.
"""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inlined_kernel, inner_kernel
from advmdp.solvers.layout import Layout, copy_into, view1, view2
from advmdp.solvers.tridiagonal import dot

# Rows of an iterate's kernels may be outside their sets by this much, from rounding and from entries cut off at zero:
# their sums, their entries, and their squared length in units of the radius.
ROW_ROUNDING = 1e-9


@inner_kernel
def expected_price(layout: Layout, h: int, kernels: Floats, prices: Floats, out: Floats) -> None:
    """``out_b = P_b.V`` over the next layer, for the blocks of layer h."""
    m = layout[h].nexts
    N = layout[h].blocks
    P = view2(kernels, layout[h].next_at, m, N)
    at = layout[h + 1].state_at
    for b in range(N):
        out[b] = 0.0
    for t in range(m):
        price = prices[at + t]
        row = P[t]
        for b in range(N):
            out[b] += row[b] * price


@inner_kernel
def log_mass(layout: Layout, h: int, log_q: Floats, out: Floats) -> None:
    """``out_s = log sum_a exp(log_q(s, a))`` for the states of layer h."""
    n = layout[h].states
    N = layout[h].blocks
    at = layout[h].block_at
    for s in range(n):
        largest = -np.inf
        for b in range(s, N, n):
            largest = max(largest, log_q[at + b])
        total = 0.0
        if largest > -np.inf:
            for b in range(s, N, n):
                total += np.exp(log_q[at + b] - largest)
            out[s] = largest + np.log(total)
        else:
            out[s] = -np.inf


@inner_kernel
def price_layer(
    layout: Layout, h: int, log_prior: Floats, cost: Floats, ahead: Floats, mass: Floats, prices: Floats,
    log_q: Floats,
) -> None:  # fmt: skip
    """Soft Bellman step: ``log q = log prior + V(s) - cost - ahead`` with V(s) such that q(s) has ``mass``.

    ``ahead`` (blocks of the layer) is the expected price of the next state, ``mass`` (states of the layer)
    a logarithm.
    """
    n = layout[h].states
    N = layout[h].blocks
    at = layout[h].block_at
    here = view1(prices, layout[h].state_at, n)
    for b in range(N):
        log_q[at + b] = log_prior[at + b] - cost[at + b] - ahead[b]
    log_mass(layout, h, log_q, here)
    for s in range(n):
        here[s] = mass[s] - here[s]
        for b in range(s, N, n):
            log_q[at + b] += here[s]


@inner_kernel
def reprice_layer(
    layout: Layout, h: int, log_prior: Floats, cost: Floats, bound: Floats, log_q: Floats, work: Floats, prices: Floats
) -> None:
    """V(s) such that the dual's mass of s, ``sum_a prior exp(V(s) - cost - bound)``, equals that of q."""
    n = layout[h].states
    N = layout[h].blocks
    at = layout[h].block_at
    log_mass(layout, h, log_q, work)
    for s in range(n):
        largest = -np.inf
        for b in range(s, N, n):
            largest = max(largest, log_prior[at + b] - cost[at + b] - bound[b])
        total = 0.0
        for b in range(s, N, n):
            total += np.exp(log_prior[at + b] - cost[at + b] - bound[b] - largest)
        prices[layout[h].state_at + s] = work[s] - largest - np.log(total)


@inner_kernel
def log_arrivals(layout: Layout, h: int, kernels: Floats, log_q: Floats, work: Floats, out: Floats) -> None:
    """``out_t = log sum_b q_b P_b(t)`` over the blocks of layer h, also where the sum itself would underflow."""
    m = layout[h].nexts
    N = layout[h].blocks
    at = layout[h].block_at
    P = view2(kernels, layout[h].next_at, m, N)
    largest = -np.inf
    for b in range(N):
        largest = max(largest, log_q[at + b])
    for b in range(N):
        work[b] = np.exp(log_q[at + b] - largest)
    for t in range(m):
        row = P[t]
        total = dot(row, work[:N])
        if total > 1e-200:
            out[t] = largest + np.log(total)
        else:
            top = -np.inf
            for b in range(N):
                if row[b] > 0.0:
                    top = max(top, log_q[at + b] + np.log(row[b]))
            total = 0.0
            for b in range(N):
                if row[b] > 0.0:
                    total += np.exp(log_q[at + b] + np.log(row[b]) - top)
            out[t] = top + np.log(total) if top > -np.inf else -np.inf


@inlined_kernel
def roll_forward(layout: Layout, kernels: Floats, work: Floats, log_q: Floats, q: Floats, mass: Floats) -> float:
    """Keep the policy of ``log_q`` and make q its occupancy measure under ``kernels``, in place.

    ``mass`` (states) receives log q(s).  A state that the kernels do not reach keeps the mass that ``log_q``
    gives it, and has q = 0.  Rows of kernels are made to sum to one; returned is by how much one of them did not:
    where that is more than rounding, the kernels were not in the set and nothing may be certified.
    """
    H = layout.shape[0] - 1
    mass[0] = 0.0
    off = 0.0
    for h in range(H):
        n = layout[h].states
        N = layout[h].blocks
        at = layout[h].block_at
        here = view1(mass, layout[h].state_at, n)
        given = work[0]
        log_mass(layout, h, log_q, given)
        for s in range(n):
            reached = here[s] > -np.inf
            if not reached:
                here[s] = given[s]
            shift = here[s] - given[s]
            for b in range(s, N, n):
                log_q[at + b] += shift
                q[at + b] = np.exp(log_q[at + b]) if reached else 0.0
        # Layer sums are one up to rounding, which must not build up from layer to layer.
        total = 0.0
        for b in range(N):
            total += q[at + b]
        for b in range(N):
            q[at + b] /= total
            log_q[at + b] -= np.log(total)
        if h < H - 1:
            off = max(off, normalise_rows(view2(kernels, layout[h].next_at, layout[h].nexts, N), work[1]))
            there = layout[h + 1].state_at
            log_arrivals(layout, h, kernels, log_q, work[1], view1(mass, there, layout[h].nexts))
    return off


@inner_kernel
def normalise_rows(P: Floats, total: Floats) -> float:
    """Divide each row (a column of P) by its sum; the largest distance of a sum from one is returned."""
    m, N = P.shape
    for b in range(N):
        total[b] = 0.0
    for t in range(m):
        for b in range(N):
            total[b] += P[t, b]
    off = 0.0
    for b in range(N):
        off = max(off, abs(total[b] - 1.0))
        total[b] = 1.0 / total[b] if total[b] > 0.0 else 1.0
    for t in range(m):
        for b in range(N):
            P[t, b] *= total[b]
    return off


@inlined_kernel
def rounding_of_masses(
    layout: Layout, log_q: Floats, mass: Floats, entry_rounding: Floats, work: Floats, blur: Floats
) -> None:
    """``blur_t = sum_b q_b rounding_b(t) / mass_t``: how well log mass is determined at all, given how well the
    entries of the kernels are known.  A state that almost nothing flows into is known in absolute terms only."""
    blur[0] = 0.0
    for h in range(layout.shape[0] - 2):
        there = layout[h + 1].state_at
        log_arrivals(layout, h, entry_rounding, log_q, work, view1(blur, there, layout[h].nexts))
        for t in range(there, there + layout[h].nexts):
            blur[t] = np.exp(min(blur[t] - mass[t], 300.0))


@inner_kernel
def certify_layer(
    layout: Layout, h: int, log_prior: Floats, cost: Floats, prices: Floats, ahead: Floats, bound: Floats,
    log_q: Floats, q: Floats, blur: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Contributions of layer h to (value, gap), and its residual; see the module.

    ``ahead_b = P_b.V`` and ``bound_b = d_b`` for the blocks of the layer.  The residual is the largest |a_b|, where the
    part of it that all actions of a state share counts only as far as it exceeds ``blur``.
    """
    n = layout[h].states
    N = layout[h].blocks
    at = layout[h].block_at
    value = 0.0
    gap = 0.0
    residual = 0.0
    for s in range(n):
        price = prices[layout[h].state_at + s]
        low = np.inf
        high = -np.inf
        for b in range(s, N, n):
            i = at + b
            above = log_q[i] - log_prior[i] + cost[i]
            a = above - price + bound[b]
            value += q[i] * (above - 1.0) + np.exp(log_prior[i])
            # q exp(-a) is prior exp(V - cost - d): never formed from a q that has underflowed, or that is zero because
            # the rolled kernels do not lead here.
            if q[i] > 0.0 and a > -1.0:
                gap += q[i] * (np.expm1(-a) + a)
            else:
                gap += np.exp(log_prior[i] + price - cost[i] - bound[b]) + (q[i] * (a - 1.0) if q[i] > 0.0 else 0.0)
            gap += q[i] * (ahead[b] - bound[b])
            low = min(low, a)
            high = max(high, a)
            if not abs(a) < np.inf:
                residual = np.inf
        shared = max(0.0, max(abs(low), abs(high)) - blur[layout[h].state_at + s])
        residual = max(residual, max(high - low, shared))
    return value, gap, residual


@inlined_kernel
def certify_rolled(
    layout: Layout, log_prior: Floats, cost: Floats, prices: Floats, bound: Floats, exact: bool, kernels: Floats,
    entry_rounding: Floats, work: Floats, log_q: Floats, q: Floats, mass: Floats, blur: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """Roll the policy of ``log_q`` forward under ``kernels``; (value, gap, residual) of that occupancy measure.

    ``bound`` (blocks): lower bounds of P.V over the sets.  With ``exact`` they are minima, above P.V by rounding at
    most, and P.V is taken where it is less.
    """
    off = roll_forward(layout, kernels, work, log_q, q, mass)
    rounding_of_masses(layout, log_q, mass, entry_rounding, work[0], blur)
    value = 0.0
    gap = 0.0
    residual = 0.0 if off <= ROW_ROUNDING else np.inf
    ahead = work[0]
    for h in range(layout.shape[0] - 1):
        below = view1(bound, layout[h].block_at, layout[h].blocks)
        expected_price(layout, h, kernels, prices, ahead)
        if exact:
            for b in range(layout[h].blocks):
                below[b] = min(below[b], ahead[b])
        part = certify_layer(layout, h, log_prior, cost, prices, ahead, below, log_q, q, blur)
        value += part[0]
        gap += part[1]
        residual = max(residual, part[2])
    return value, gap, residual


@inlined_kernel
def start_prices(
    layout: Layout, kernels: Floats, log_prior: Floats, cost: Floats, settled: bool, work: Floats, mass: Floats,
    prices: Floats, log_q: Floats,
) -> float:  # fmt: skip
    """Prices to start from, by a soft Bellman recursion under ``kernels``; the largest spread of them within a layer.

    The masses of states, whose logarithms ``mass`` receives, are those of the prior, or, if ``settled``, those that the
    policy rolls forward (:func:`settle`).
    """
    prices[prices.shape[0] - 1] = 0.0
    if settled:
        copy_into(log_q, log_prior)
        settle(layout, kernels, log_prior, cost, 60, work, log_q, mass, prices)
    else:
        for h in range(layout.shape[0] - 1):
            log_mass(layout, h, log_prior, view1(mass, layout[h].state_at, layout[h].states))
        price_masses(layout, kernels, log_prior, cost, work[0], mass, prices, log_q)
    return price_spread(layout, prices)


@inner_kernel
def price_masses(
    layout: Layout, kernels: Floats, log_prior: Floats, cost: Floats, ahead: Floats, mass: Floats, prices: Floats,
    log_q: Floats,
) -> None:  # fmt: skip
    """:func:`price_layer` of all layers, with the masses of all states."""
    for h in range(layout.shape[0] - 2, -1, -1):
        expected_price(layout, h, kernels, prices, ahead)
        price_layer(layout, h, log_prior, cost, ahead, view1(mass, layout[h].state_at, layout[h].states), prices, log_q)


@inner_kernel
def roll_layer(
    layout: Layout, h: int, kernels: Floats, log_q: Floats, given: Floats, here: Floats, work: Floats, there: Floats
) -> None:
    """Give the states of layer h the masses that have arrived in them, ``here``, in place of those that log q has
    (``given``), which are left to states that nothing has arrived in; what they lead to arrives ``there``."""
    n = layout[h].states
    log_mass(layout, h, log_q, given)
    for s in range(n):
        if not here[s] > -np.inf:
            here[s] = given[s]
        for b in range(layout[h].block_at + s, layout[h].block_at + layout[h].blocks, n):
            log_q[b] += here[s] - given[s]
    if h < layout.shape[0] - 2:
        log_arrivals(layout, h, kernels, log_q, work, there)


@inner_kernel
def price_spread(layout: Layout, prices: Floats) -> float:
    """The largest difference of two prices of a layer."""
    spread = 0.0
    for h in range(1, layout.shape[0] - 1):
        low = np.inf
        high = -np.inf
        for i in range(layout[h].state_at, layout[h + 1].state_at):
            low = min(low, prices[i])
            high = max(high, prices[i])
        spread = max(spread, high - low)
    return spread


@inlined_kernel
def settle(
    layout: Layout, kernels: Floats, log_prior: Floats, cost: Floats, limit: int, work: Floats,
    log_q: Floats, mass: Floats, prices: Floats,
) -> float:  # fmt: skip
    """Prices whose masses agree with what the policy they induce rolls forward under fixed ``kernels``.

    Forward for the masses of the policy of ``log_q`` (start it at the prior), backward for the prices of these
    masses, and so on, moving half of the way in log mass, or less: full moves swing to and fro where a state is
    reached by one pair only.  Stops when no log mass is off by more than one, a good place for Newton's method to
    start; returns the largest that is left.  ``log_q`` and ``mass`` (logarithms) belong to the prices.
    """
    H = layout.shape[0] - 1
    given = work[1]
    worst = np.inf
    share = 0.5
    for sweep in range(limit):
        mass[0] = 0.0
        before = worst
        worst = 0.0
        for h in range(H):
            here = view1(mass, layout[h].state_at, layout[h].states)
            there = view1(mass, layout[h + 1].state_at, layout[h].nexts if h < H - 1 else 0)
            roll_layer(layout, h, kernels, log_q, given, here, work[2], there)
            for s in range(layout[h].states):
                worst = max(worst, abs(here[s] - given[s]))
                if sweep > 0:
                    here[s] = given[s] + share * (here[s] - given[s])
        if sweep > 2 and worst > 0.9 * before:
            share = max(0.1, 0.7 * share)
        price_masses(layout, kernels, log_prior, cost, work[0], mass, prices, log_q)
        if sweep > 0 and worst < 1.0:
            break
    return worst
