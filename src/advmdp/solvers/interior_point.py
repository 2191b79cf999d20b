"""The mirror step over row sets whose row problems have kinks: Newton's method on prices along a central path.

For prices V the dual of a step is D(V) = V(s_0) - sum_b q_b with log q_b = log prior_b - cost_b + V(s) - m_b(V), where
m_b, the minimum of P.V over the row set of pair b, has kinks.  With the logarithmic barrier B_b of the set, shifted to
be zero at the point where the iteration starts, it is smoothed by tau,

    m_b(V) = min over the set of P.V - tau B_b(P),     -m_b'' = G K^-1 G',  K the Hessian of the row problem,

and so is D.  As tau falls to zero prices and rows move together: each step is one of Newton's on all of V, points of
the row sets, and multipliers of their inequalities, with Mehrotra's predictor and corrector.  Neither occupancies nor
their logarithms are unknowns, so that log q satisfies its equation at every iterate, however small q is; and the row
problem does not know q, so that pairs with the same row set have one between them.  With Q the mass of the pairs of a
set, the system in the prices is ``sum Q ((e_s - P)(e_s - P)' + G K^-1 G')``, block tridiagonal.

The kernels at the top are what a kind of set answers for the row sets of one layer: bodies are chosen by the type of
``rows``, and only those of the kind that is used are compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import chosen_kernel, inlined_kernel, inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import certify_rolled, log_mass, start_prices
from advmdp.solvers.layout import Layout, Per, copy_into, fill, layer, record, view1, view2, whole

# The share of the way to the boundary that a step leaves: it shrinks with what the corrector leaves of complementarity,
# or near the end steps would gain no more than two digits.
BOLD = 0.01
BOLDEST = 1e-4
# No exponent V(s) - P.V moves by more than this in one step: beyond, the exponential has left its tangent.
LARGEST_MOVE = 4.0
# Complementarity falls to no smaller share than that of the mass of a state by which flow is off, or than this one.
UNHURRIED = 0.3
# Complementarity need not become less than this share of the tolerance, nor a slack's than this one of the largest
# residual: rounding would spoil the rows.  No tolerance is taken to be smaller than the last of these.
ENOUGH = 0.05
CERTAIN = 1e-3
SHARPEST = 1e-12
# After a step shorter than this a careful iteration aims at the path, and no further along it.
SHORT = 0.2
# After two in turn that are shorter than this another start is the better one.
HOPELESS = 1e-3
# See :func:`near_path`.
FAR = 1000.0
# Masses below this are handled by their logarithms, down to the rarest.
LEAST_MASS = 1e-200
RAREST = -1300.0
# So many slacks are multiplied before a logarithm is taken.
FACTORS = 12


@record
class Step(NamedTuple):
    """The objective: minimise sum of q cost + q log(q / prior)."""

    log_prior: Per.Block
    cost: Per.Block


@record
class Memory(NamedTuple):
    """What the iteration works on, whatever the kind of set; allocated once per shape."""

    V: Per.State
    dV: Per.State
    flow: Per.State  # what flows into a state less what flows out, times its scale
    scale: Per.State  # 1 / sqrt of its mass
    mass: Per.State
    blur: Per.State
    diag: Per.Diag
    off: Per.Off
    stacked: Per.Stack
    work: Per.Work
    place: Per.Index  # of each pair: its row set
    log_q: Per.Block
    q: Per.Block
    half: Per.Block  # sqrt(q)
    found_log_q: Per.Block  # what the certificate is about
    found_q: Per.Block
    kept_log_q: Per.Block  # the answer of the best certificate so far
    kept_q: Per.Block
    bound: Per.Block
    kernels: Per.Next
    kept_kernels: Per.Next
    entry_rounding: Per.Next  # how well an entry of P is known
    P: Per.Entry
    entries: Per.Entry  # tables on their way to pairs
    root: Per.Set  # sqrt of the mass of the pairs of a set
    ahead: Per.Set  # P.V, and later its lower bound over the set
    barrier: Per.Set  # B
    level: Per.Set  # of the logarithms at the first points
    shift: Per.Set  # what the aim changes of log q
    room: Per.Set  # the longest step that stays inside, and then how far a set goes
    y: Per.Row  # slacks, multipliers, and how both move
    lam: Per.Row
    dy: Per.Row
    dlam: Per.Row
    inverse: Per.Row  # 1 / y
    pull: Per.Row  # the multipliers that the aim asks for at these slacks
    second: Per.Row  # dlam dy


# --------------------------------------------------------------------------------------------------------
# What a kind of set answers.  ``own`` is memory of its own.


@chosen_kernel
def begin_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> float:
    """Slacks ``y`` and entries ``P`` of the first points; the number of complementarity products beyond the slacks.
    An inequality that does not count has a slack that is not positive."""
    raise NotImplementedError


@chosen_kernel
def reach_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> float:
    """``entries``: the largest of each entry over its set; the share of it by which rounding may change an entry."""
    raise NotImplementedError


@chosen_kernel
def open_layer(rows: Any, layout: Layout, h: int, tau: float, memory: Any, own: Any) -> None:
    """Multipliers beyond those of slacks, with products tau."""
    raise NotImplementedError


@chosen_kernel
def look_layer(rows: Any, layout: Layout, h: int, tau: float, memory: Any, own: Any) -> None:
    """``P``, and of ``barrier`` what is not the logarithms of slacks; other complementarity products are added to
    ``work[0]``."""
    raise NotImplementedError


@chosen_kernel
def factor_layer(rows: Any, layout: Layout, h: int, careful: bool, memory: Any, own: Any) -> None:
    """Factor K."""
    raise NotImplementedError


@chosen_kernel
def bend_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> None:
    """``stacked`` (m, k, R) such that ``stacked stacked'`` is G K^-1 G', scaled by ``root`` and the scales of the next
    states, but for what is added to their diagonal block here."""
    raise NotImplementedError


@chosen_kernel
def aim_layer(rows: Any, layout: Layout, h: int, target: float, second_order: float, memory: Any, own: Any) -> None:
    """Newton's step of the row problems at dV = 0 towards complementarity ``target``: its product with the gradient
    into ``shift``, its change of P into ``entries``.  ``second_order``: 1 with the terms of the last moves, else 0."""
    raise NotImplementedError


@chosen_kernel
def move_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> None:
    """Moves of the points and ``dy``, from those of the prices, and ``room``, as cones have it.  ``work[0]`` receives
    the sum of second-order terms of their products."""
    raise NotImplementedError


@chosen_kernel
def advance_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> None:
    """Move the points of each set by ``room`` times their moves."""
    raise NotImplementedError


@chosen_kernel
def answer_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> bool:
    """``entries`` of the points, inside their sets, and ``ahead``, lower bounds of P.V from the multipliers; whether
    the points are in their sets."""
    raise NotImplementedError


# --------------------------------------------------------------------------------------------------------
# The iteration


@kernel
def iterate(
    layout: Layout, rows: Any, step: Step, tau: float, per_spread: float, tolerance: float, promising: float,
    largest_residual: float, limit: int, settled: bool, careful: bool, memory: Memory, own: Any,
) -> tuple[float, float, float, int]:  # fmt: skip
    """(value, gap, residual, iterations) of the certificate that meets the tolerance, or else of the one with the
    smallest gap and residual together; ``kept_log_q`` and its like then hold its answer.

    Points of the row sets are given.  Certificates are tried where the weighted complementarity, which bounds the gap
    from above, is ``promising``; what is left of flow, they repair.
    """
    (every,) = whole(layout, (memory,))
    tau, count = start(layout, rows, step, tau, per_spread, settled, memory, own)
    best = np.nan, np.inf, np.inf
    stuck = False
    gone = 1.0
    for iteration in range(limit + 1):
        mu, weighted, flow = look(layout, rows, step, tau, iteration == 0, memory, own)
        mu /= count
        last = stuck or iteration == limit or not mu >= 0.0
        if last or (weighted < max(promising, SHARPEST) and flow < 1e-6):
            found = certify(layout, rows, step, memory, own)
            good = abs(found[1]) <= tolerance and found[2] <= largest_residual
            best = better(found, best, good, every)
            if good or last:
                break
        assemble(layout, rows, careful, memory, own)
        target = mu if careful and gone < SHORT else UNHURRIED * mu
        if not careful:
            # Mehrotra's rule: the less complementarity the predictor leaves, the closer the aim.
            longest, second, largest = direction(layout, rows, tau, 0.0, 0.0, memory, own)
            length = min(1.0, longest)
            after = max((1.0 - length) * mu + length * length * (second / count), 0.0)
            target = max((after / mu) ** 3 * mu if mu > 0.0 else 0.0, min(target, flow * mu))
        target = min(max(target, enough(mu, weighted, tolerance, largest_residual)), mu)
        longest, second, largest = direction(layout, rows, tau, target, 0.0 if careful else 1.0, memory, own)
        stuck = not largest < np.inf
        if not stuck:
            short = min(BOLD, max(BOLDEST, 10.0 * target / mu))
            before = gone
            gone = min(1.0, (1.0 - short) * longest)
            gone = min(gone, LARGEST_MOVE / largest) if largest > 0.0 else gone
            advance(layout, rows, gone, memory, own)
            tau += gone * (target - tau)
            stuck = max(gone, before) < HOPELESS and not careful
    return best[0], best[1], best[2], iteration


@inlined_kernel
def enough(mu: float, weighted: float, tolerance: float, largest_residual: float) -> float:
    """Complementarity that need not become less, where ``mu`` has this weight."""
    return min(ENOUGH * max(tolerance, SHARPEST) / weighted * mu, CERTAIN * largest_residual)


@inlined_kernel
def better(
    found: tuple[float, float, float], best: tuple[float, float, float], good: bool, every: Any
) -> tuple[float, float, float]:
    """The better of two certificates, whose answer is kept."""
    if not (good or (found[2] < np.inf and abs(found[1]) + found[2] < abs(best[1]) + best[2])):
        return best
    copy_into(every.kept_log_q, every.found_log_q)
    copy_into(every.kept_q, every.found_q)
    copy_into(every.kept_kernels, every.kernels)
    return found


@inlined_kernel
def start(
    layout: Layout, rows: Any, step: Step, tau: float, per_spread: float, settled: bool, memory: Memory, own: Any
) -> tuple[float, float]:
    """Prices to start from, and multipliers with products tau, which is returned; the number of these products."""
    given, every = whole(layout, (step, memory))
    fill(every.second, 0.0)
    count = 0.0
    for h in range(layout.shape[0] - 2):
        count += begin_layer(rows, layout, h, memory, own)
        (here,) = layer(layout, h, (memory,))
        hand_out(here.place, here.P, here.kernels)
        rounding = reach_layer(rows, layout, h, memory, own)
        hand_out(here.place, here.entries, here.entry_rounding)
        m, N = here.kernels.shape
        for t in range(m):
            for b in range(N):
                here.entry_rounding[t, b] *= rounding
    spread = start_prices(
        layout, every.kernels, given.log_prior, given.cost, settled, every.work, every.mass, every.V, every.log_q
    )  # fmt: skip
    tau = max(tau, per_spread * spread)
    for h in range(layout.shape[0] - 2):
        (here,) = layer(layout, h, (memory,))
        count += open_multipliers(tau, here.y, here.lam)
        open_layer(rows, layout, h, tau, memory, own)
    return tau, max(count, 1.0)


@inlined_kernel
def look(
    layout: Layout, rows: Any, step: Step, tau: float, first: bool, memory: Memory, own: Any
) -> tuple[float, float, float]:
    """log q, q, and the flow at the prices and points; (sum of complementarity products, the same weighted by the
    masses of their sets, largest flow residual relative to the mass of a state).  Barriers are zero at the ``first``
    points."""
    (every,) = whole(layout, (memory,))
    total = 0.0
    weighted = 0.0
    products = every.work[0]
    for h in range(layout.shape[0] - 1):
        given, here = layer(layout, h, (step, memory))
        n = layout[h].states
        R = layout[h].sets
        for start_at in range(0, here.q.shape[0], n):
            for s in range(n):
                b = start_at + s
                here.log_q[b] = given.log_prior[b] - given.cost[b] + here.V[s]
        if R > 0:
            fill(products, 0.0)
            look_at_slacks(tau, here.y, here.lam, here.inverse, products)
            look_layer(rows, layout, h, tau, memory, own)
            add_logarithms(here.y, every.work[1], here.barrier)
            mean_of_entries(here.P, view1(here.V, n, layout[h].nexts), here.ahead)
            for j in range(R):
                here.level[j] = here.barrier[j] if first else here.level[j]
                here.barrier[j] -= here.level[j]
                here.ahead[j] -= tau * here.barrier[j]
            for b in range(here.q.shape[0]):
                here.log_q[b] -= here.ahead[here.place[b]]
        for b in range(here.q.shape[0]):
            here.q[b] = np.exp(here.log_q[b])
        weigh(layout, h, every.log_q, here.log_q, here.q, here.place, here.half, here.root, here.scale, every.work[1])
        for j in range(R):
            total += products[j]
            weighted += here.root[j] * here.root[j] * products[j]
    every.scale[every.scale.shape[0] - 1] = 0.0
    every.flow[0] = every.scale[0] - 1.0 / every.scale[0]
    worst = 0.0
    for h in range(layout.shape[0] - 2):
        (here,) = layer(layout, h, (memory,))
        n = layout[h].states
        for t in range(layout[h].nexts):
            scale = here.scale[n + t]
            here.flow[n + t] = arriving(here.root, scale, here.P[t], every.work[1]) - 1.0 / scale
    for i in range(every.flow.shape[0] - 1):
        worst = max(worst, abs(every.flow[i]) * every.scale[i])
    return total, weighted, worst


@inner_kernel
def weigh(
    layout: Layout, h: int, every_log_q: Floats, log_q: Floats, q: Floats, place: Any, half: Floats, root: Floats,
    scale: Floats, work: Floats,
) -> None:  # fmt: skip
    """Roots of the masses of pairs and row sets, scales of states; by logarithms where masses underflow."""
    n = layout[h].states
    N = q.shape[0]
    for b in range(N):
        half[b] = np.sqrt(q[b])
    for s in range(n):
        scale[s] = 0.0
    for start_at in range(0, N, n):
        for s in range(n):
            scale[s] += q[start_at + s]
    least = np.inf
    for s in range(n):
        least = min(least, scale[s])
        scale[s] = 1.0 / np.sqrt(scale[s])
    if not least > LEAST_MASS:
        log_mass(layout, h, every_log_q, work)
        for s in range(n):
            scale[s] = np.exp(-0.5 * max(work[s], RAREST))
    for b in range(N):
        if not q[b] > LEAST_MASS:
            half[b] = np.exp(0.5 * log_q[b])
    if root.shape[0] == N:
        copy_into(root, half)
        return
    fill(root, 0.0)
    for b in range(N if root.shape[0] > 0 else 0):
        root[place[b]] += q[b]
    for j in range(root.shape[0]):
        root[j] = np.sqrt(root[j])


@inlined_kernel
def assemble(layout: Layout, rows: Any, careful: bool, memory: Memory, own: Any) -> None:
    """Form and factor the system in the prices, scaled."""
    (every,) = whole(layout, (memory,))
    fill(every.diag, 0.0)
    fill(every.off, 0.0)
    share = every.work[0]
    for h in range(layout.shape[0] - 1):
        n = layout[h].states
        m = layout[h].nexts
        R = layout[h].sets
        (here,) = layer(layout, h, (memory,))
        N = here.q.shape[0]
        for start_at in range(0, N, n):
            for s in range(n):
                b = start_at + s
                share[b] = here.half[b] * here.scale[s]
                here.diag[s, s] += share[b] * share[b]
        if m == 0:
            break
        for b in range(N if R < N else 0):  # of what a set has by its root, the share of a pair
            share[b] *= here.half[b] / max(here.root[here.place[b]], 1e-200)
        for t in range(m):
            column = here.stacked[t, here.stacked.shape[1] - 1]
            for j in range(R):
                column[j] = here.root[j] * here.scale[n + t] * here.P[t, j]
            if R == N:
                for start_at in range(0, N, n):
                    for s in range(n):
                        here.off[s, t] -= column[start_at + s] * share[start_at + s]
            else:
                for start_at in range(0, N, n):
                    for s in range(n):
                        here.off[s, t] -= column[here.place[start_at + s]] * share[start_at + s]
        factor_layer(rows, layout, h, careful, memory, own)
        bend_layer(rows, layout, h, memory, own)
        depth = here.stacked.shape[1] * R
        there = view2(every.diag, layout[h + 1].diag_at, m, m)
        tridiagonal.add_gram(there, view2(every.stacked, 0, m, depth), depth, 1.0)
    tridiagonal.factor(layout, every.diag, every.off, every.stacked)


@inlined_kernel
def direction(
    layout: Layout, rows: Any, tau: float, target: float, second_order: float, memory: Memory, own: Any
) -> tuple[float, float, float]:
    """The direction towards complementarity ``target``: (the longest step along it that stays inside, the sum of its
    second-order terms, the largest move of an exponent V(s) - P.V).

    The second-order terms of the last direction are added ``second_order`` times: once, or not at all.  (A number, as
    numba compiles what is given a constant flag once more for it.)
    """
    (every,) = whole(layout, (memory,))
    dV = every.dV
    copy_into(dV, every.flow)
    for h in range(layout.shape[0] - 2):
        (here,) = layer(layout, h, (memory,))
        n = layout[h].states
        aim_multipliers(target, second_order, here.second, here.inverse, here.pull)
        aim_layer(rows, layout, h, target, second_order, memory, own)
        for j in range(here.shift.shape[0]):
            here.shift[j] = -0.5 * here.shift[j] - (tau - target) * here.barrier[j]
        for t in range(layout[h].nexts):
            for j in range(here.shift.shape[0]):
                here.entries[t, j] += here.shift[j] * here.P[t, j]
            here.dV[n + t] += arriving(here.root, here.scale[n + t], here.entries[t], every.work[1])
        for start_at in range(0, layout[h].blocks, n):
            for s in range(n):
                b = start_at + s
                here.dV[s] -= here.half[b] * here.scale[s] * (here.half[b] * here.shift[here.place[b]])
    tridiagonal.solve(layout, every.diag, every.off, dV)
    for i in range(dV.shape[0]):
        dV[i] *= every.scale[i]
    dV[dV.shape[0] - 1] = 0.0
    longest = np.inf
    second = 0.0
    largest = 0.0
    ahead = every.work[2]
    for h in range(layout.shape[0] - 1):
        (here,) = layer(layout, h, (memory,))
        n = layout[h].states
        N = layout[h].blocks
        R = layout[h].sets
        fill(ahead, 0.0)
        if R > 0:
            mean_of_entries(here.P, view1(here.dV, n, layout[h].nexts), ahead)
            for j in range(R):
                ahead[j] -= here.shift[j]
            move_layer(rows, layout, h, memory, own)
            move_multipliers(
                here.y, here.inverse, here.pull, here.lam, here.dy, here.dlam, here.second, here.room, every.work[0]
            )
            for j in range(R):
                second += every.work[0, j]
                longest = min(longest, here.room[j])
        for start_at in range(0, N, n):
            for s in range(n):
                j = here.place[start_at + s] if R > 0 else 0
                largest = max(largest, abs(here.dV[s] - ahead[j]))
    # A maximum does not see what is not a number.
    return longest, second, largest if abs(dV[0] + second) < np.inf else np.inf


@inlined_kernel
def advance(layout: Layout, rows: Any, length: float, memory: Memory, own: Any) -> None:
    """Move everything by ``length`` times its direction."""
    (every,) = whole(layout, (memory,))
    for i in range(every.V.shape[0]):
        every.V[i] += length * every.dV[i]
    for h in range(layout.shape[0] - 2):
        (here,) = layer(layout, h, (memory,))
        fill(here.room, length)
        advance_sets(here.room, here.y, here.dy)
        advance_sets(here.room, here.lam, here.dlam)
        advance_layer(rows, layout, h, memory, own)


@inlined_kernel
def certify(layout: Layout, rows: Any, step: Step, memory: Memory, own: Any) -> tuple[float, float, float]:
    """Repair the iterate into a flow-feasible (q, P), and return its (value, gap, residual).

    The policy and the kernels of the iterate are rolled forward and compared with the iterate's prices.  The residual
    is infinite where kernels are not in their sets.
    """
    inside = True
    for h in range(layout.shape[0] - 2):
        good = answer_layer(rows, layout, h, memory, own)
        inside = inside and good
        (here,) = layer(layout, h, (memory,))
        hand_out(here.place, here.entries, here.kernels)
        for b in range(here.bound.shape[0]):
            here.bound[b] = here.ahead[here.place[b]]
    value, gap, residual = certify_bounded(layout, step, False, memory)
    return value, gap, residual if inside else np.inf


@inlined_kernel
def certify_bounded(layout: Layout, step: Step, exact: bool, memory: Memory) -> tuple[float, float, float]:
    """With the bounds and kernels that are there."""
    given, every = whole(layout, (step, memory))
    copy_into(every.found_log_q, every.log_q)
    found = certify_rolled(
        layout, given.log_prior, given.cost, every.V, every.bound, exact, every.kernels, every.entry_rounding,
        every.work, every.found_log_q, every.found_q, every.mass, every.blur,
    )  # fmt: skip
    return found[0], found[1], found[2]


@kernel
def certify_exactly(layout: Layout, step: Step, memory: Memory) -> tuple[float, float, float]:
    """With the minima of P.V in ``bound``: where multipliers are large, what they say of them drowns in rounding."""
    (every,) = whole(layout, (memory,))
    found = certify_bounded(layout, step, True, memory)
    return better(found, (np.nan, np.inf, np.inf), True, every)


# --------------------------------------------------------------------------------------------------------
# Its parts


@inner_kernel
def hand_out(place: Any, table: Floats, out: Floats) -> None:
    """``out`` (m, N) of the pairs, from that of their row sets (m, R)."""
    m, N = out.shape
    for t in range(m):
        for b in range(N):
            out[t, b] = table[t, place[b]]


@inner_kernel
def mean_of_entries(P: Floats, V: Floats, out: Floats) -> None:
    """``out = P.V``."""
    m, R = P.shape
    for j in range(R):
        out[j] = 0.0
    for t in range(m):
        price = V[t]
        for j in range(R):
            out[j] += P[t, j] * price


@inner_kernel
def arriving(root: Floats, scale: float, amount: Floats, work: Floats) -> float:
    """``scale sum Q amount``, of what the row sets of a layer send to one next state."""
    R = root.shape[0]
    for j in range(R):
        work[j] = root[j] * scale * amount[j]
    return tridiagonal.dot(root, work)


@inner_kernel
def open_multipliers(product: float, y: Floats, lam: Floats) -> float:
    """Multipliers with this product; how many there are.  A slack without one is negative, and becomes one."""
    r, R = y.shape
    count = 0.0
    for i in range(r):
        for j in range(R):
            if y[i, j] > 0.0:
                lam[i, j] = product / y[i, j]
                count += 1.0
            else:
                y[i, j] = 1.0
                lam[i, j] = 0.0
    return count


@inner_kernel
def look_at_slacks(tau: float, y: Floats, lam: Floats, inverse: Floats, products: Floats) -> None:
    """1 / y, multipliers that are not too far from the path, and the sums of lam y."""
    r, R = y.shape
    for i in range(r):
        for j in range(R):
            inverse[i, j] = 1.0 / y[i, j]
            lam[i, j] = near_path(lam[i, j], tau * inverse[i, j])
            products[j] += lam[i, j] * y[i, j]


@inner_kernel
def near_path(multiplier: float, there: float) -> float:
    """A multiplier that counts, at most so many times below what it is on the path.

    Steps of the points do not depend on it but for the curvature K: where that has collapsed they overshoot, and it
    would not recover.  One above the path is left there: it balances the prices while its slack is on the way.
    """
    if multiplier == 0.0:
        return 0.0
    return max(multiplier, there / FAR)


@inner_kernel
def add_logarithms(y: Floats, work: Floats, out: Floats) -> None:
    """``out += sum_i log y_i``, by logarithms of products."""
    r, R = y.shape
    fill(work, 1.0)
    for i in range(r):
        for j in range(R):
            work[j] *= y[i, j]
        if i % FACTORS == FACTORS - 1 or i == r - 1:
            for j in range(R):
                out[j] += np.log(work[j])
                work[j] = 1.0


@inner_kernel
def aim_multipliers(target: float, second_order: float, second: Floats, inverse: Floats, pull: Floats) -> None:
    """``pull = (target - dlam dy) / y``, with or without the product."""
    r, R = pull.shape
    for i in range(r):
        for j in range(R):
            pull[i, j] = (target - second_order * second[i, j]) * inverse[i, j]


@inner_kernel
def move_multipliers(
    y: Floats, inverse: Floats, pull: Floats, lam: Floats, dy: Floats, dlam: Floats, second: Floats, room: Floats,
    products: Floats,
) -> None:  # fmt: skip
    """Moves of the multipliers from those of their slacks, and the products of both, whose sums are added to
    ``products``; ``room`` shrinks to the longest step that keeps all of them positive.

    A multiplier that does not count is zero, and stays so.
    """
    r, R = y.shape
    for j in range(R):
        room[j] = 1.0 / room[j]
    for i in range(r):
        for j in range(R):
            counts = 1.0 if lam[i, j] > 0.0 else 0.0
            change = counts * (pull[i, j] - lam[i, j] - lam[i, j] * inverse[i, j] * dy[i, j])
            dlam[i, j] = change
            second[i, j] = change * dy[i, j]
            products[j] += second[i, j]
            room[j] = max(room[j], max(-dy[i, j] * inverse[i, j], -change / max(lam[i, j], 1e-300)))
    for j in range(R):
        room[j] = 1.0 / max(room[j], 1e-30)


@inner_kernel
def advance_sets(room: Floats, x: Floats, change: Floats) -> None:
    """``x += room change``, tables with a column for each set."""
    for i in range(x.shape[0]):
        for j in range(room.shape[0]):
            x[i, j] += room[j] * change[i, j]
