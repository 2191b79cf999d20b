"""The last resort of the pair-entropy mirror step: a smoothed dual, followed as the smoothing vanishes.

For tau > 0 the row problem of a block, ``min over its set of P.V``, is smoothed by the logarithmic barrier of the set,

    m_b(V) = min over chi of  (P0 + G chi).V - tau B_b(chi),   B_b = sum_i log y_i + log w - its maximum,
    y = E0 + E chi,   w = 1 - |chi|^2,

which makes the dual smooth: ``-m_b'' = G K^-1 G'`` with K the Hessian of the row problem.  The Newton method of
:mod:`advmdp.solvers.prices` follows its maximum as tau falls.  Every evaluation solves all row problems, so this is
slower than the interior-point method; but stationarity in log q holds exactly all along, which the interior-point
method loses on occupancies of exp(-900) and in sets that almost touch.

Row problems are kept on their central path, lam_i y_i = omega w = tau.  Slacks and the residual of stationarity are
carried along and not formed from chi again: of a slack of 1e-14, E0 + E chi would leave nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Flags, Floats
from advmdp._compiled import body_of, inner_kernel, kernel
from advmdp.confidence import ConfidenceSet
from advmdp.rows.layer import layer_extremes
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import certify_rolled, price_spread, settle
from advmdp.solvers.ellipsoid import Rows, way_to_sphere
from advmdp.solvers.layout import (
    Layout,
    addresses,
    allocate,
    copy_into,
    fill,
    layer_views,
    length_of,
    view1,
    view2,
    whole,
)
from advmdp.solvers.prices import Memory, bend, evaluate_moved, imbalance, maximise, respond
from advmdp.solvers.problem import Problem
from advmdp.solvers.step import Certificate, certified, size_of

# tau falls by this factor, to no less than the least value; so many Newton steps are spent in all.
REDUCTION = 0.3
LEAST_TAU = 1e-14
NEWTON_LIMIT = 400
STEPS_PER_TAU = 60
# Flow is conserved up to this share of the mass of a state: on the way, and for a certificate.
ROUGHLY = 0.1
BALANCED = 1e-8
# A block whose interior is thinner than this is taken to be the point that the presolve found.
THINNEST = 1e-13


class SmoothedRows(NamedTuple):
    """The row problems, block by block: their sets, and for each a point on its central path."""

    P0: Floats
    G: Floats
    E0: Floats
    E: Floats
    base: Floats  # P less its slacks, where the first m rows are the entries of P less a constant; elsewhere NaN
    centre: Floats  # an interior point, then the analytic centre
    chi: Floats
    slope: Floats  # the residual of stationarity, G'V - E'lam + 2 omega chi
    y: Floats
    lam: Floats
    ball: Floats  # w = 1 - |chi|^2 and its multiplier omega
    level: Floats  # sum log y + log w at the analytic centre
    free: Flags  # whether a block has an interior; if not, it stays at its centre
    lost: Flags  # whether it must start from its centre
    tau: Floats  # one entry
    columns: Floats
    scratch: Floats


class Block(NamedTuple):
    """The part of one block."""

    G: Floats  # (m, k)
    E0: Floats
    E: Floats  # (rows, k)
    centre: Floats
    chi: Floats
    slope: Floats
    y: Floats
    lam: Floats
    ball: Floats
    factor: Floats  # working memory of all blocks
    dx: Floats
    dy: Floats
    dlam: Floats


@inner_kernel
def block_of(rows: SmoothedRows, layout: Layout, h: int, b: int) -> Block:
    """Block b of layer h."""
    m = layout[h].nexts
    r = layout[h].rows
    k = layout[h].free
    row = layout[h].row_at + b * r
    free = layout[h].free_at + b * k
    return Block(
        view2(rows.G, layout[h].slope_at + b * m * k, m, k), view1(rows.E0, row, r),
        view2(rows.E, layout[h].row_slope_at + b * r * k, r, k), view1(rows.centre, free, k), view1(rows.chi, free, k),
        view1(rows.slope, free, k), view1(rows.y, row, r), view1(rows.lam, row, r),
        view1(rows.ball, 2 * (layout[h].block_at + b), 2), view2(rows.scratch, 0, k, k), view1(rows.scratch, k * k, k),
        view1(rows.scratch, k * k + k, r), view1(rows.scratch, k * k + k + r, r),
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------
# One row problem


@inner_kernel
def barrier(block: Block) -> float:
    """sum_i log y_i + log w."""
    total = float(np.log(block.ball[0]))
    for i in range(block.y.shape[0]):
        total += np.log(block.y[i])
    return total


@inner_kernel
def curvature(block: Block) -> None:
    """``factor``: upper R with R'R = K = sum_i lam_i / y_i E_i E_i' + 2 omega I + 4 omega / w chi chi'.

    The roots of K are rotated in one by one: its eigenvalues spread over twenty decades and more, and in K itself the
    small ones would be lost.
    """
    n_rows, k = block.E.shape
    factor = block.factor
    row = block.dx
    w = block.ball[0]
    omega = block.ball[1]
    for j in range(k):
        for i in range(k):
            factor[j, i] = 0.0
        factor[j, j] = np.sqrt(2.0 * omega)
    for i in range(n_rows + 1):
        if i < n_rows:
            root = np.sqrt(block.lam[i] / block.y[i])
            for j in range(k):
                row[j] = root * block.E[i, j]
        else:
            root = 2.0 * np.sqrt(omega / w)
            for j in range(k):
                row[j] = root * block.chi[j]
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
def follow_path(block: Block, tau: float, limit: int) -> bool:
    """Primal-dual Newton steps of one block towards lam_i y_i = omega w = tau; whether it was reached.

    While complementarity is above tau it is reduced at most ten-fold per step.
    """
    n_rows, k = block.E.shape
    E, chi, y, lam, slope = block.E, block.chi, block.y, block.lam, block.slope
    dx, dy, dlam = block.dx, block.dy, block.dlam
    share = 0.1
    before = np.inf
    for _ in range(limit):
        w = block.ball[0]
        omega = block.ball[1]
        mean = omega * w
        for i in range(n_rows):
            mean += lam[i] * y[i]
        target = max(tau, share * mean / (n_rows + 1.0))
        curvature(block)
        # K dx = -(stationarity with lam_i = target / y_i and omega = target / w).
        pull = 2.0 * (target / w - omega)
        for j in range(k):
            dx[j] = -slope[j] - pull * chi[j]
        for i in range(n_rows):
            push = target / y[i] - lam[i]
            for j in range(k):
                dx[j] += push * E[i, j]
        forward(block.factor, dx)
        backward(block.factor, dx)
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
        domega = target / w - omega + omega / w * 2.0 * along
        if domega < 0.0:
            alpha = min(alpha, -omega / domega)
        change = max(change, max(2.0 * abs(along) / w, abs(domega) / omega))
        if square > 0.0:
            alpha = min(alpha, way_to_sphere(along, square, w))
        alpha = min(1.0, 0.95 * alpha)
        if not (alpha > 1e-12 and change < np.inf):
            return False
        # Whatever the solve has lost is still in the residual that is carried along.
        for j in range(k):
            slope[j] += 2.0 * alpha * (omega * dx[j] + domega * (chi[j] + alpha * dx[j]))
            chi[j] += alpha * dx[j]
        for i in range(n_rows):
            for j in range(k):
                slope[j] -= alpha * dlam[i] * E[i, j]
            y[i] += alpha * dy[i]
            lam[i] += alpha * dlam[i]
        block.ball[0] -= alpha * (2.0 * along + alpha * square)
        block.ball[1] += alpha * domega
        if not block.ball[0] > 0.0:
            return False
        share = 0.1 if alpha > 0.5 else 0.6
        if target == tau and alpha == 1.0:
            # What is left is of the order of the square, unless rounding has been reached.
            if change < 1e-6 or (change < 1e-2 and change > 0.5 * before):
                return True
            before = change
    return False


@inner_kernel
def start_path(block: Block, prices: Floats, tau: float) -> bool:
    """:func:`follow_path` from the centre of the block, with complementarity as large as the gradient there."""
    n_rows, k = block.E.shape
    chi, slope, y = block.chi, block.slope, block.y
    mu = tau
    w = 1.0
    for j in range(k):
        chi[j] = block.centre[j]
        w -= chi[j] * chi[j]
        slope[j] = 0.0
        for t in range(block.G.shape[0]):
            slope[j] += block.G[t, j] * prices[t]
        mu = max(mu, abs(slope[j]))
    block.ball[0] = w
    block.ball[1] = mu / w
    for i in range(n_rows):
        y[i] = block.E0[i]
        for j in range(k):
            y[i] += block.E[i, j] * chi[j]
        block.lam[i] = mu / y[i]
        for j in range(k):
            slope[j] -= block.lam[i] * block.E[i, j]
    for j in range(k):
        slope[j] += 2.0 * block.ball[1] * chi[j]
    return follow_path(block, tau, 200)


# --------------------------------------------------------------------------------------------------------
# All row problems


@body_of(respond, SmoothedRows)
def respond_smoothed(
    rows: SmoothedRows, layout: Layout, h: int, V: Floats, change: Floats, kernels: Floats, ahead: Floats, extra: Floats
) -> bool:
    """Solve the row problems of a layer for tau, each from where it is, if it can, else from its centre."""
    m = layout[h].nexts
    k = layout[h].free
    N = layout[h].blocks
    there = layout[h + 1].state_at
    prices = view1(V, there, m)
    moves = view1(change, there, m)
    P = view2(kernels, layout[h].next_at, m, N)
    P0 = view2(rows.P0, layout[h].next_at, N, m)
    base = view2(rows.base, layout[h].next_at, N, m)
    tau = rows.tau[0]
    solved = True
    for b in range(N):
        at = layout[h].block_at + b
        block = block_of(rows, layout, h, b)
        free = rows.free[at]
        extra[at] = 0.0
        if free:
            found = False
            if not rows.lost[at]:
                for t in range(m):
                    for j in range(k):
                        block.slope[j] += moves[t] * block.G[t, j]
                found = follow_path(block, tau, 25)
            rows.lost[at] = not found and not start_path(block, prices, tau)
            solved = solved and not rows.lost[at]
            extra[at] = -tau * (barrier(block) - rows.level[at])
        mean = 0.0
        for t in range(m):
            value = P0[b, t]
            for j in range(k):
                value += block.G[t, j] * block.chi[j]
            if free and base[b, t] >= 0.0:
                value = base[b, t] + block.y[t]
            P[t, b] = max(value, 0.0)
            mean += P[t, b] * prices[t]
        ahead[at] = mean
    return solved


@body_of(bend, SmoothedRows)
def bend_smoothed(rows: SmoothedRows, layout: Layout, h: int, places: Memory) -> None:
    """``sum_b q_b (P P' + G K^-1 G')``."""
    (memory,) = whole(layout, (places,))
    m = layout[h].nexts
    k = layout[h].free
    N = layout[h].blocks
    there = layout[h + 1].state_at
    columns = view2(rows.columns, 0, m, N * k)
    for b in range(N):
        at = layout[h].block_at + b
        block = block_of(rows, layout, h, b)
        root = np.exp(0.5 * memory.log_q[at])
        if rows.free[at]:
            curvature(block)
        for t in range(m):
            for j in range(k):
                block.dx[j] = root * memory.scale[there + t] * block.G[t, j] if rows.free[at] else 0.0
            if rows.free[at]:
                forward(block.factor, block.dx)
            for j in range(k):
                columns[t, b * k + j] = block.dx[j]
    target = view2(memory.diag, layout[h + 1].diag_at, m, m)
    tridiagonal.add_gram(target, view2(memory.stacked, 0, m, N), N, 1.0)
    tridiagonal.add_gram(target, columns, N * k, 1.0)


@kernel
def start(layout: Layout, rows: SmoothedRows, log_prior: Floats, cost: Floats, places: Memory) -> float:
    """Analytic centres of the blocks that have one: those whose given point is inside by more than rounding.  Then
    prices that nearly conserve flow under the kernels there; the largest spread of them in a layer."""
    (memory,) = whole(layout, (places,))
    fill(memory.V, 0.0)
    for h in range(layout.shape[0] - 1):
        for b in range(layout[h].blocks):
            at = layout[h].block_at + b
            block = block_of(rows, layout, h, b)
            n_rows, k = block.E.shape
            inside = 1.0
            for j in range(k):
                inside -= block.centre[j] * block.centre[j]
            for i in range(n_rows):
                value = block.E0[i]
                for j in range(k):
                    value += block.E[i, j] * block.centre[j]
                inside = min(inside, value)
            prices = view1(memory.V, 0, layout[h].nexts)
            rows.free[at] = k > 0 and inside > THINNEST and start_path(block, prices, 1.0)
            if rows.free[at]:
                rows.level[at] = barrier(block)
                copy_into(block.centre, block.chi)
            else:
                copy_into(block.chi, block.centre)
            rows.lost[at] = False
    rows.tau[0] = 1.0
    evaluate_moved(layout, rows, log_prior, cost, 0.0, memory.step, places)
    copy_into(memory.log_q, log_prior)
    settle(layout, memory.kernels, log_prior, cost, 60, memory.work, memory.log_q, memory.mass, memory.V)
    for at in range(rows.lost.shape[0]):
        rows.lost[at] = True
    return price_spread(layout, memory.V)


@kernel
def advance(
    layout: Layout, rows: SmoothedRows, log_prior: Floats, cost: Floats, move: Floats, balanced: float, places: Memory
) -> int:
    """Newton's method for a new tau, with the prices moved along the path or where they are, whichever conserves flow
    better; the number of steps, or -1 where row problems could not be solved.

    Close to its end the path is a straight line in tau.
    """
    off = np.inf
    for length in (0.0, 1.0, -1.0):
        dual = evaluate_moved(layout, rows, log_prior, cost, length, move, places)
        if length == 0.0:
            off = imbalance(layout, places) if dual > -np.inf else np.inf
        elif dual > -np.inf and imbalance(layout, places) < off:
            break
    if not dual > -np.inf:
        return -1
    return maximise(layout, rows, log_prior, cost, dual, balanced, 0.0, STEPS_PER_TAU, places)


@kernel
def certify(
    layout: Layout, log_prior: Floats, cost: Floats, bound: Floats, entry_rounding: Floats, blur: Floats, places: Memory
) -> tuple[float, float, float]:
    """Roll the policy forward under the kernels; (value, gap, residual) at the prices, with the minima ``bound``."""
    (memory,) = whole(layout, (places,))
    return certify_rolled(
        layout, log_prior, cost, memory.V, bound, True, memory.kernels, entry_rounding, memory.work, memory.log_q,
        memory.q, memory.mass, blur,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------
# Driver


class Result(NamedTuple):
    """The certificate that meets the tolerance, or else the smallest one (``size_of``), and its answer."""

    certificate: Certificate
    iterations: int
    log_q: Floats
    q: Floats
    kernels: Floats


def smoothed_step(
    confidence_set: ConfidenceSet, problem: Problem, layout: Layout,
    sets: Sequence[Floats], base: Floats | None, inside: Floats, tolerance: float,
) -> Result:  # fmt: skip
    """The mirror step over row sets ``(P0, G, E0, E)`` with points ``inside`` them.

    ``base`` is P less its first m slacks, if these are the entries of P less a constant: they give entries to full
    relative accuracy.
    """
    (P0, G, E0, E), (m, r, k, N) = sets, (layout[name][:-1] for name in ("nexts", "rows", "free", "blocks"))
    spans = zip(layout["slope_at"], m, k, N, strict=False)
    reach = np.concatenate(
        [np.linalg.norm(G[at:][: a * b * c].reshape(a, b, c), axis=1).ravel() for at, a, b, c in spans]
    )
    base = np.where(reach > 0.0, np.nan if base is None else base, np.nan)
    by_block = [
        np.concatenate([part.reshape(-1, n).T.ravel() for part, n in zip(_split(table, w * N), N, strict=True)])
        for table, w in ((P0, m), (G, m * k), (E0, r), (E, r * k), (base, m), (inside, k))
    ]
    blocks = length_of(layout, "block")
    lengths = (inside.size, inside.size, E0.size, E0.size, 2 * blocks, blocks)
    flags = (np.zeros(blocks, dtype=np.bool_) for _ in range(2))
    scratch = (1, int((m * k * N).max()), int((k * k + k + 2 * r).max()))
    rows = SmoothedRows(*by_block, *map(np.zeros, lengths), *flags, *map(np.zeros, scratch))
    return _follow(confidence_set, problem, layout, rows, 1e-14 * (np.abs(P0) + reach), tolerance)


def _split(table: Floats, lengths: NDArray[np.int64]) -> list[Floats]:
    return np.split(table, np.cumsum(lengths)[:-1])


def _follow(
    confidence_set: ConfidenceSet, problem: Problem, layout: Layout, rows: SmoothedRows,
    entry_rounding: Floats, tolerance: float,
) -> Result:  # fmt: skip
    """Follow the maximum of the smoothed dual as tau falls, until a certificate holds."""
    memory, step = allocate(Memory, layout), (problem.log_prior, problem.cost)
    places = addresses(memory)
    tau = max(start(layout, rows, *step, places), 0.01)
    # Smoothing costs about tau per row and unit of occupancy.
    certified_from = tolerance / (4.0 * (len(layout) - 1) * (int(layout["rows"].max()) + 1))
    best, iterations, used = None, 0, 0
    prices, move = memory.V.copy(), np.zeros_like(memory.V)
    while True:
        last = iterations >= NEWTON_LIMIT or tau * REDUCTION <= LEAST_TAU
        closing = last or tau <= certified_from
        rows.tau[0] = tau
        used = advance(layout, rows, *step, move, BALANCED if closing else ROUGHLY, places)
        iterations += max(used, 0)
        # Where row problems could not be solved, what there is is an answer too, if a poor one.
        if closing or used < 0:
            bound = least_means(confidence_set, problem, memory.V)
            found = certify(layout, *step, bound, entry_rounding, np.zeros_like(memory.V), places)
            good = certified(found, tolerance)
            if best is None or good or size_of(found) < size_of(best.certificate):
                best = Result(found, 0, memory.log_q.copy(), memory.q.copy(), memory.kernels.copy())
            if good or last or used < 0:
                return best._replace(iterations=iterations)
        move, prices = REDUCTION * (memory.V - prices), memory.V.copy()
        tau *= REDUCTION


def least_means(confidence_set: ConfidenceSet, problem: Problem, V: Floats) -> Floats:
    """The minimum of P.V over each row set, in the order of blocks."""
    data, found, sizes, at = confidence_set.compiled_rows(), [], problem.sizes, 0
    for h in range(len(sizes) - 2):
        at += sizes[h]
        layer, prices = confidence_set.layer(h), V[at : at + sizes[h + 1]]
        states, nexts = (np.arange(layer.n), np.arange(layer.m)) if problem.kept is None else problem.kept[h : h + 2]
        # A state that no row leads to is not worth going to.
        values, means = np.full(layer.m, -prices.max()), np.empty(layer.n * layer.n_actions)
        values[nexts] = -prices
        layer_extremes(data, layer, states, values, means)
        found.append(-means.reshape(layer.n, -1)[states].T.ravel())
    return np.concatenate([*found, np.zeros(sizes[-2] * problem.n_actions)])


def box_sets(layout: Layout, boxes: Any) -> Rows:
    """Boxes as rows P0 + G chi around their points inside, with a ball that cuts nothing off."""
    made: Rows = allocate(Rows, layout)
    made.P0[:] = boxes.inside
    made.E0[:] = 1.0
    for h in range(len(layout) - 1):
        (low, high, _, inside), (_, slope, offset, normals) = layer_views(layout, h, (boxes, made))
        below, above = inside - low, high - inside
        m = len(low)
        for b in range(low.shape[1]):
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
        normals[:m], normals[m:] = slope, -slope
    return made
