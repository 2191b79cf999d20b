"""The primal-dual interior point of the mirror step, over ellipsoids and boxes of probabilities.

Per block, in units of the block's weight w_b: occupancy q, slacks y with multipliers lam, and what else a kind of set
needs.  Stationarity and flow are linear but for log q; on the central path every complementarity product of a block is
mu times its occupancy, which makes the method indifferent to the size of q_b.  Weights appear in the Schur complement
only, which is block tridiagonal in the prices V.  Steps are Mehrotra's predictor and corrector.

The kernels at the top are what a kind of set answers for the blocks of one layer: bodies are chosen by the type of
``rows``, and only those of the kind that is used are compiled.  They look at what :func:`layer` has of each record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import chosen_kernel, inner_kernel, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import certify_rolled, set_scale, start_prices
from advmdp.solvers.layout import Layout, Per, copy_into, fill, layer, view1, view2, whole

# Complementarity is held back while stationarity is off by more than this multiple of it.
SLACKNESS = 1e4
HOLD = 0.7
# The share of the way to the boundary that a step leaves: it shrinks with what the corrector leaves of complementarity,
# or near the end steps would gain no more than two digits.
BOLD = 0.01
BOLDEST = 1e-4
# Where the corrector overshoots, complementarity can go round in circles: after a step shorter than SHORT, a careful
# iteration makes one without predictor and corrector, to the share PLAIN of mu.
SHORT = 0.2
PLAIN = 0.3


class Step(NamedTuple):
    """The objective: minimise sum of q cost + q log(q / prior)."""

    log_prior: Per.Block
    cost: Per.Block


class Memory(NamedTuple):
    """What the iteration writes to besides the iterate, whatever the kind of set; allocated once per shape."""

    log_weight: Per.Block
    weight: Per.Block
    root_weight: Per.Block
    state_scale: Per.State  # 1 / sqrt of the starting mass, scales the Schur complement
    reach: Per.Next  # kernels mixed with all that the sets allow
    q_residual: Per.Block
    flow_residual: Per.State
    inverse: Per.Row  # 1 / y
    ratio: Per.Row  # lam / y
    ready: Per.Row  # q / y
    term: Per.Row  # dlam = term - ratio dy
    second: Per.Row  # dlam dy
    curvature: Per.Block  # the sum of these, and of the products of the moves of a cone
    corner: Per.Block  # the root of dq / dV(s), V of other states fixed
    goal: Per.Block  # dq at dV = 0
    diag: Per.Diag
    off: Per.Off
    stacked: Per.Stack
    work: Per.Work
    fastest: Per.Line
    products: Per.Line  # one entry: the number of complementarity products
    kernels: Per.Next
    bound: Per.Block  # a lower bound of P.V over the set
    log_q: Per.Block
    q: Per.Block
    kept_log_q: Per.Block  # the answer of the best certificate so far, if that was not good enough
    kept_q: Per.Block
    kept_kernels: Per.Next
    mass: Per.State
    entry_rounding: Per.Next  # how well an entry of P is known
    blur: Per.State  # how well the logarithm of the mass is known


# --------------------------------------------------------------------------------------------------------
# What a kind of set answers.  ``own`` is working memory of its own.


@chosen_kernel
def reach_layer(rows: Any, layout: Layout, h: int, memory: Any, own: Any) -> None:
    """``kernels`` to start from, what they ``reach`` if mixed with all that the sets allow, and ``entry_rounding``."""
    raise NotImplementedError


@chosen_kernel
def start_layer(rows: Any, layout: Layout, h: int, mu: float, x: Any, memory: Any, own: Any) -> float:
    """The first iterate around these kernels, with products ``mu``; how many of them there are.  Prices and q = 1 are
    set.  A slack that is missing (a point outside its set, or on the edge) is given a floor, and made good on the way.
    """
    raise NotImplementedError


@chosen_kernel
def residual_layer(rows: Any, layout: Layout, h: int, x: Any, memory: Any, own: Any) -> None:
    """Residuals of stationarity and of rows, and what arrives in the next states taken off ``flow_residual``.

    ``q_residual`` has the part of q, its state's price included.  Complementarity beyond slacks times multipliers is
    added to ``work[0]``; ``work[1]`` receives the largest residual of stationarity of a block.
    """
    raise NotImplementedError


@chosen_kernel
def eliminate_layer(rows: Any, layout: Layout, h: int, careful: bool, x: Any, memory: Any, own: Any) -> None:
    """Factor the blocks: ``corner``, and m rows ``stacked`` whose last N entries couple the next states to q, and
    whose Gram matrix is the part of the Schur complement in their prices, but for what is added to that here."""
    raise NotImplementedError


@chosen_kernel
def aim_layer(
    rows: Any, layout: Layout, h: int, x: Any, target: float, corrected: bool, d: Any, memory: Any, own: Any
) -> None:
    """The blocks' own answer at dV = 0: ``goal``, and what arrives in the next states taken off ``d.V``.

    ``corrected`` adds the second-order terms of the direction that ``d`` holds (the predictor).
    """
    raise NotImplementedError


@chosen_kernel
def move_layer(rows: Any, layout: Layout, h: int, x: Any, d: Any, memory: Any, own: Any) -> float:
    """Moves of the blocks but for ``d.lam``, from those of the prices; the longest step that cones allow.  The products
    of their moves are added to ``curvature``, which is zero."""
    raise NotImplementedError


@chosen_kernel
def answer_layer(rows: Any, layout: Layout, h: int, x: Any, memory: Any, own: Any) -> bool:
    """``kernels`` of the iterate, and row ``bound`` from its multipliers; whether the kernels are in their sets."""
    raise NotImplementedError


# --------------------------------------------------------------------------------------------------------
# The iteration


@kernel
def iterate(
    layout: Layout, rows: Any, step: Step, mu: float, per_spread: float, tolerance: float, promising: float,
    largest_residual: float, limit: int, careful: bool, x: Any, d: Any, memory: Memory, own: Any,
) -> tuple[float, float, float, int]:  # fmt: skip
    """(value, gap, residual, iterations) of the certificate that meets the tolerance, or else of the one with the
    smallest gap and residual together; ``memory`` then holds its answer.

    Certificates are tried where the weighted complementarity, which bounds the gap from above by a factor that the
    kinds of set know, is ``promising``; what is left of flow, they repair.
    """
    mu = start(layout, rows, step, mu, per_spread, careful, x, memory, own)
    every_x, every_d, every = whole(layout, (x, d, memory))
    best = np.nan, np.inf, np.inf
    good = False
    stuck = False
    length = 1.0
    for iteration in range(limit + 1):
        mu, weighted, flow, dual = residuals(layout, rows, step, x, memory, own)
        last = stuck or iteration == limit or not mu >= 0.0
        if last or (weighted < promising and flow < 1e-6):
            found = certify(layout, rows, step, x, memory, own)
            good = abs(found[1]) <= tolerance and found[2] <= largest_residual
            if good or (found[2] < np.inf and abs(found[1]) + found[2] < abs(best[1]) + best[2]):
                best = found
                if not good:
                    keep(every)
            if good or last:
                break
        assemble(layout, rows, careful, x, memory, own)
        plain = careful and length < SHORT
        target = PLAIN * mu
        if not plain:
            longest = direction(layout, rows, x, 0.0, False, d, memory, own)
            target = corrected_target(mu, dual, min(1.0, longest), every_x.q, every.curvature, every.products[0])
        longest = direction(layout, rows, x, target, not plain, d, memory, own)
        stuck = not np.isfinite(every_d.V[0])
        if not stuck:
            length = step_along(longest, target / mu, every_x.q, every_d.q)
            advance(every_x, every_d, length)
    if not good and best[1] < np.inf:
        recall(every)
    return best[0], best[1], best[2], iteration


@inner_kernel
def start(
    layout: Layout, rows: Any, step: Step, mu: float, per_spread: float, careful: bool, x: Any, memory: Memory,
    own: Any,
) -> float:  # fmt: skip
    """Set the first iterate and return its mu.  ``careful``: with masses that satisfy the flow equations."""
    H = layout.shape[0] - 1
    given, every_x, every = whole(layout, (step, x, memory))
    for h in range(H):
        reach_layer(rows, layout, h, memory, own)
    spread = start_prices(
        layout, every.kernels, every.reach, given.log_prior, given.cost, careful, every.work, every.log_q,
        every.mass, every_x.V, every.log_weight,
    )  # fmt: skip
    set_scale(layout, every.mass, every.state_scale)
    mu = max(mu, per_spread * spread)
    for b in range(every_x.q.shape[0]):
        every.weight[b] = np.exp(every.log_weight[b])
        every.root_weight[b] = np.exp(0.5 * every.log_weight[b])
        every_x.q[b] = 1.0
    count = 0.0
    for h in range(H):
        count += start_layer(rows, layout, h, mu, x, memory, own)
    every.products[0] = max(count, 1.0)
    return mu


@inner_kernel
def residuals(
    layout: Layout, rows: Any, step: Step, x: Any, memory: Memory, own: Any
) -> tuple[float, float, float, float]:
    """Fill the residuals of stationarity, rows and flow; return (mean complementarity, sum of weighted
    complementarity, largest flow residual, largest residual of stationarity)."""
    total = 0.0
    weighted = 0.0
    dual = 0.0
    (every,) = whole(layout, (memory,))
    flow = every.flow_residual
    fill(flow, 0.0)
    flow[0] = -every.state_scale[0]
    gap = every.work[0]
    off = every.work[1]
    for h in range(layout.shape[0] - 1):
        step_h, x_h, memory_h = layer(layout, h, (step, x, memory))
        q = x_h.q
        residual = memory_h.q_residual
        for b in range(q.shape[0]):
            residual[b] = memory_h.log_weight[b] + np.log(q[b]) - step_h.log_prior[b] + step_h.cost[b]
        add_price(layout[h].states, -1.0, x_h.V, residual)
        leave(layout[h].states, memory_h.root_weight, memory_h.state_scale, q, memory_h.flow_residual)
        slack_products(x_h.y, x_h.lam, gap)
        residual_layer(rows, layout, h, x, memory, own)
        for b in range(q.shape[0]):
            total += gap[b] / q[b]
            weighted += memory_h.weight[b] * gap[b]
            dual = max(dual, off[b])
    worst = 0.0
    for i in range(flow.shape[0] - 1):
        worst = max(worst, abs(flow[i]) / every.state_scale[i])
    return total / every.products[0], weighted, worst, dual


@inner_kernel
def assemble(layout: Layout, rows: Any, careful: bool, x: Any, memory: Memory, own: Any) -> int:
    """Eliminate every block, and form and factor the Schur complement in the prices."""
    (every,) = whole(layout, (memory,))
    fill(every.diag, 0.0)
    fill(every.off, 0.0)
    scaled = every.fastest
    for h in range(layout.shape[0] - 1):
        n = layout[h].states
        m = layout[h].nexts
        N = layout[h].blocks
        depth = layout[h].cones * N
        x_h, memory_h = layer(layout, h, (x, memory))
        there = view2(memory.diag, layout[h + 1].diag_at, m, m)
        invert_slacks(x_h.q, x_h.y, x_h.lam, memory_h.inverse, memory_h.ratio, memory_h.ready)
        eliminate_layer(rows, layout, h, careful, x, memory, own)
        for start_at in range(0, N, n):
            for s in range(n):
                b = start_at + s
                scaled[b] = memory_h.root_weight[b] * memory_h.state_scale[s] * memory_h.corner[b]
                memory_h.diag[s, s] += scaled[b] * scaled[b]
        for t in range(m):
            last = view1(memory.stacked, (t + 1) * depth - N, N)
            for start_at in range(0, N, n):
                for s in range(n):
                    memory_h.off[s, t] -= scaled[start_at + s] * last[start_at + s]
        tridiagonal.add_gram(there, view2(memory.stacked, 0, m, depth), depth, 1.0)
    return tridiagonal.factor(layout, memory.diag, memory.off, memory.stacked)


@inner_kernel
def direction(
    layout: Layout, rows: Any, x: Any, target: float, corrected: bool, d: Any, memory: Memory, own: Any
) -> float:
    """The Newton direction towards complementarity ``target``, after :func:`assemble`.

    ``corrected`` adds the second-order terms of the direction that ``d`` holds on entry (the predictor).  Returned is
    the largest common step along it that keeps occupancies, slacks, multipliers and cone points inside.
    """
    H = layout.shape[0] - 1
    every_x, every_d, every = whole(layout, (x, d, memory))
    V = every_d.V
    copy_into(V, every.flow_residual)
    aim_multipliers(target, corrected, every_x.lam, every.inverse, every.ready, every.second, every.term)
    for h in range(H):
        d_h, memory_h = layer(layout, h, (d, memory))
        aim_layer(rows, layout, h, x, target, corrected, d, memory, own)
        leave(layout[h].states, memory_h.root_weight, memory_h.state_scale, memory_h.goal, d_h.V)
    tridiagonal.solve(layout, memory.diag, memory.off, V)
    for i in range(V.shape[0]):
        V[i] *= -every.state_scale[i]
    V[V.shape[0] - 1] = 0.0
    longest = np.inf
    largest = 0.0
    for h in range(H):
        x_h, d_h, memory_h = layer(layout, h, (x, d, memory))
        fill(memory_h.curvature, 0.0)
        longest = min(longest, move_layer(rows, layout, h, x, d, memory, own))
        for b in range(layout[h].blocks):
            memory_h.fastest[b] = -d_h.q[b] / x_h.q[b]
        decrease = move_multipliers(
            memory_h.term, memory_h.ratio, memory_h.inverse, x_h.lam, d_h.y, d_h.lam, memory_h.second,
            memory_h.curvature, memory_h.fastest,
        )  # fmt: skip
        largest = max(largest, decrease)
    return min(longest, 1.0 / largest if largest > 0.0 else np.inf)


@inner_kernel
def certify(layout: Layout, rows: Any, step: Step, x: Any, memory: Memory, own: Any) -> tuple[float, float, float]:
    """Repair the iterate into a flow-feasible (q, P) and return its (value, gap, residual).

    The policy and the kernels of the iterate are rolled forward and compared with the iterate's prices.  The residual
    is infinite where kernels are not in their sets.
    """
    inside = True
    given, every_x, every = whole(layout, (step, x, memory))
    for h in range(layout.shape[0] - 1):
        good = answer_layer(rows, layout, h, x, memory, own)
        inside = inside and good
    for b in range(every_x.q.shape[0]):
        every.log_q[b] = every.log_weight[b] + np.log(every_x.q[b])
    value, gap, residual = certify_rolled(
        layout, given.log_prior, given.cost, every_x.V, every.bound, False, every.kernels, every.entry_rounding,
        every.work, every.log_q, every.q, every.mass, every.blur,
    )  # fmt: skip
    return value, gap, residual if inside else np.inf


# --------------------------------------------------------------------------------------------------------
# Its parts


@inner_kernel
def add_price(n: int, sign: float, V: Floats, out: Floats) -> None:
    """``out_b += sign V(s)`` for the blocks of a layer with n states."""
    for start_at in range(0, out.shape[0], n):
        for s in range(n):
            out[start_at + s] += sign * V[s]


@inner_kernel
def leave(n: int, root_weight: Floats, scale: Floats, amount: Floats, out: Floats) -> None:
    """``out_s += scale_s sum_a w amount``: what leaves the n states of a layer, scaled."""
    for start_at in range(0, amount.shape[0], n):
        for s in range(n):
            root = root_weight[start_at + s]
            out[s] += root * scale[s] * (root * amount[start_at + s])


@inner_kernel
def arriving(root_weight: Floats, scale: float, amount: Floats) -> float:
    """``scale sum_b w amount``, of what the blocks of a layer send to one next state; ``amount`` is destroyed."""
    for b in range(root_weight.shape[0]):
        amount[b] = root_weight[b] * scale * amount[b]
    return tridiagonal.dot(root_weight, amount)


@inner_kernel
def slack_products(y: Floats, lam: Floats, out: Floats) -> None:
    """``out_b``: the sum of the products of the slacks (rows, N) of block b and their multipliers."""
    n_rows, N = y.shape
    fill(out, 0.0)
    for i in range(n_rows):
        for b in range(N):
            out[b] += lam[i, b] * y[i, b]


@inner_kernel
def keep(memory: Any) -> None:
    """Remember the answer of a certificate, which the next one writes over."""
    copy_into(memory.kept_log_q, memory.log_q)
    copy_into(memory.kept_q, memory.q)
    copy_into(memory.kept_kernels, memory.kernels)


@inner_kernel
def recall(memory: Any) -> None:
    """The answer that was kept last."""
    copy_into(memory.log_q, memory.kept_log_q)
    copy_into(memory.q, memory.kept_q)
    copy_into(memory.kernels, memory.kept_kernels)


@inner_kernel
def corrected_target(mu: float, dual: float, length: float, q: Floats, curvature: Floats, count: float) -> float:
    """Mehrotra's rule: the less mean complementarity ``length`` of the predictor leaves, the closer the aim.

    The predictor aims at zero: to first order every product falls in proportion.
    """
    second = 0.0
    for b in range(q.shape[0]):
        second += curvature[b] / q[b]
    after = max((1.0 - length) * mu + length * length * (second / count), 0.0)
    sigma = (after / mu) ** 3 if mu > 0.0 else 0.0
    if dual > SLACKNESS * mu:
        sigma = max(sigma, HOLD)
    return sigma * mu


@inner_kernel
def step_along(longest: float, left: float, q: Floats, dq: Floats) -> float:
    """The step to take, given the longest that stays inside and the share of complementarity that it aims at.

    No occupancy grows five-fold or falls to a tenth: beyond, log q in the stationarity condition has left its tangent,
    and the step would not reduce the residual it aims at.
    """
    ratio = 0.0
    for i in range(q.shape[0]):
        change = dq[i] / q[i]
        ratio = max(ratio, max(0.25 * change, -change / 0.9))
    short = min(BOLD, max(BOLDEST, 10.0 * left))
    length = min(1.0, (1.0 - short) * longest)
    return min(length, 1.0 / ratio) if ratio > 0.0 else length


@inner_kernel
def invert_slacks(q: Floats, slack: Floats, multiplier: Floats, inverse: Floats, ratio: Floats, ready: Floats) -> None:
    """For the complementary pairs (rows, N) of the blocks of a layer: 1 / slack, multiplier / slack, q / slack."""
    n_rows, N = slack.shape
    for i in range(n_rows):
        for b in range(N):
            one = 1.0 / slack[i, b]
            inverse[i, b] = one
            ratio[i, b] = multiplier[i, b] * one
            ready[i, b] = q[b] * one


@inner_kernel
def aim_multipliers(
    target: float, corrected: bool, multiplier: Floats, inverse: Floats, ready: Floats, second: Floats, term: Floats
) -> None:
    """``term = (target q - second) / slack - multiplier``, of all pairs: a multiplier moves by ``term`` less its ratio
    times the move of its slack.  ``second``, the product of both moves, counts where the direction is ``corrected``."""
    if corrected:
        for i in range(term.shape[0]):
            term[i] = target * ready[i] - second[i] * inverse[i] - multiplier[i]
    else:
        for i in range(term.shape[0]):
            term[i] = target * ready[i] - multiplier[i]


@inner_kernel
def move_multipliers(
    term: Floats, ratio: Floats, inverse: Floats, multiplier: Floats, slack_move: Floats, move: Floats,
    second: Floats, curvature: Floats, fastest: Floats,
) -> float:  # fmt: skip
    """Moves of the multipliers (rows, N) from those of their slacks, and the products of both, which are added to
    ``curvature``; the largest relative decrease of a slack, of a multiplier, or that ``fastest`` has for a block.

    The multiplier of a pair that does not count is zero, and so is its move; it limits nothing.
    """
    n_rows, N = term.shape
    for i in range(n_rows):
        for b in range(N):
            dy = slack_move[i, b]
            dlam = term[i, b] - ratio[i, b] * dy
            move[i, b] = dlam
            second[i, b] = dlam * dy
            curvature[b] += dlam * dy
            speed = max(-dy * inverse[i, b], -dlam / max(multiplier[i, b], 1e-300))
            fastest[b] = max(fastest[b], speed)
    largest = 0.0
    for b in range(N):
        largest = max(largest, fastest[b])
    return largest


@inner_kernel
def advance(x: Any, d: Any, length: float) -> None:
    """x += length d, part by part; x and d are iterate and direction of either family."""
    for part in range(len(x)):
        target = x[part]
        change = d[part]
        for i in range(target.shape[0]):
            target[i] += length * change[i]
