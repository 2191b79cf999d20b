"""The last resort of the pair-entropy mirror step: rows as mixtures of extreme ones, for every kind of set.

With a few rows P_j in the set of pair b, and weights w_j of an earlier mixture of them, the minimum of P.V over the set
is replaced by the least value of ``P.V + tau KL(w' || w)`` over mixtures P = sum_j w'_j P_j,

    m_b(V) = -tau log sum_j w_j exp(-P_j.V / tau),     -m_b'' = sum_j w'_j (P_j - P)(P_j - P)' / tau,

which makes the dual smooth: the Newton method of :mod:`advmdp.solvers.prices` maximises it.  The mixtures found are the
next to start from, and a row that minimises P.V joins those of its pair if it is better than its mixture.  This is a
proximal point method, so that tau need not vanish; and it asks of a set nothing but extreme rows.  Mixtures are sums of
what is not negative: entries of 1e-300 are as exact as others, where the interior-point method loses its way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import body_of, kernel
from advmdp.confidence import ConfidenceSet
from advmdp.rows.layer import layer_extremes
from advmdp.solvers import tridiagonal
from advmdp.solvers.certificate import certify_rolled, price_spread, settle
from advmdp.solvers.layout import Layout, addresses, allocate, fill, length_of, make_layout, view1, view2, whole
from advmdp.solvers.prices import Memory, bend, evaluate, imbalance, maximise, respond
from advmdp.solvers.problem import Problem
from advmdp.solvers.step import Certificate, certified, size_of

# So many rows of each pair are kept; one that joins takes the place of the one with the least weight.
ATOMS = 48
# The weight of a row that joins, and the logarithm of the least one that a row keeps.
SHARE = 0.1
LEAST_LOG_WEIGHT = -700.0
# tau falls by the first factor, to no less than the second, unless a certificate is more than so many times as large as
# the one before: then it rises.
REDUCTION = 0.5
LEAST_TAU = 5e-9
WORSE = 3.0
# At most so many times rows join, each time with so many Newton steps.
ROUNDS = 100
NEWTON_LIMIT = 100
BALANCED = 1e-9
# Rows that differ by less are the same; means by less, relative to prices, are equal.
SAME_ROW = 1e-8
SAME_MEAN = 1e-13
# Entries of rows are known this well.
ROUNDING = 1e-14


class Mixtures(NamedTuple):
    """For each layer (ATOMS, m, N) rows, and tables (ATOMS, N) of weights."""

    atoms: Floats
    centre: Floats  # logarithms of the weights to start from
    level: Floats  # of the weights of the mixtures
    weight: Floats
    tau: Floats  # one entry
    columns: Floats  # m by N of one layer


@body_of(respond, Mixtures)
def respond_mixed(
    rows: Mixtures, layout: Layout, h: int, V: Floats, change: Floats, kernels: Floats, ahead: Floats, extra: Floats
) -> bool:
    """The mixtures of a layer.  Weights follow the changes of prices, which have more digits than prices over tau."""
    m = layout[h].nexts
    N = layout[h].blocks
    if m == 0:
        return True
    there = layout[h + 1].state_at
    P = view2(kernels, layout[h].next_at, m, N)
    atoms = view2(rows.atoms, ATOMS * layout[h].next_at, ATOMS * m, N)
    at = ATOMS * layout[h].block_at
    centre, level, weight = view2(rows.centre, at, ATOMS, N), view2(rows.level, at, ATOMS, N), view1(rows.weight, 0, N)
    means = view1(ahead, layout[h].block_at, N)
    beyond = view1(extra, layout[h].block_at, N)
    tau = rows.tau[0]
    for b in range(N):
        top = -np.inf
        for j in range(ATOMS):
            for t in range(m):
                level[j, b] -= atoms[j * m + t, b] * (change[there + t] / tau)
            top = max(top, level[j, b])
        weight[b] = 0.0
        for j in range(ATOMS):
            weight[b] += np.exp(level[j, b] - top)
        weight[b] = top + np.log(weight[b])
        means[b] = 0.0
        beyond[b] = 0.0
        for t in range(m):
            P[t, b] = 0.0
        for j in range(ATOMS):
            level[j, b] -= weight[b]
            share = np.exp(level[j, b])
            if share > 0.0:
                beyond[b] += tau * share * (level[j, b] - centre[j, b])
                for t in range(m):
                    P[t, b] += share * atoms[j * m + t, b]
        for t in range(m):
            means[b] += P[t, b] * V[there + t]
    return True


@body_of(bend, Mixtures)
def bend_mixed(rows: Mixtures, layout: Layout, h: int, places: Memory) -> None:
    """``sum_b q_b (P P' + sum_j w_j (P_j - P)(P_j - P)' / tau)``."""
    (memory,) = whole(layout, (places,))
    m = layout[h].nexts
    N = layout[h].blocks
    there = layout[h + 1].state_at
    P = view2(memory.kernels, layout[h].next_at, m, N)
    atoms = view2(rows.atoms, ATOMS * layout[h].next_at, ATOMS * m, N)
    level = view2(rows.level, ATOMS * layout[h].block_at, ATOMS, N)
    root = view1(rows.weight, 0, N)
    target = view2(memory.diag, layout[h + 1].diag_at, m, m)
    columns = view2(rows.columns, 0, m, N)
    tridiagonal.add_gram(target, view2(memory.stacked, 0, m, N), N, 1.0)
    for j in range(ATOMS):
        for b in range(N):
            root[b] = np.exp(0.5 * (memory.log_q[layout[h].block_at + b] + level[j, b])) / np.sqrt(rows.tau[0])
        for t in range(m):
            for b in range(N):
                columns[t, b] = root[b] * memory.scale[there + t] * (atoms[j * m + t, b] - P[t, b])
        tridiagonal.add_gram(target, columns, N, 1.0)


@kernel
def rebalance(layout: Layout, log_prior: Floats, cost: Floats, off: float, places: Memory) -> float:
    """Prices that nearly conserve flow under the kernels, where the logarithm of a mass is ``off`` by more; their
    spread.  Newton's method needs many steps for the rarest states, or gets stuck."""
    (memory,) = whole(layout, (places,))
    if off < imbalance(layout, places) < np.inf:
        settle(layout, memory.kernels, log_prior, cost, 60, memory.work, memory.log_q, memory.mass, memory.V)
    return price_spread(layout, memory.V)


@kernel
def advance(layout: Layout, rows: Mixtures, log_prior: Floats, cost: Floats, places: Memory) -> int:
    """Newton's method with these rows, centres and tau; the number of steps."""
    (memory,) = whole(layout, (places,))
    fill(memory.change, 0.0)
    dual = evaluate(layout, rows, log_prior, cost, places)
    return maximise(layout, rows, log_prior, cost, dual, BALANCED, 0.0, NEWTON_LIMIT, places)


@kernel
def certify(
    layout: Layout, log_prior: Floats, cost: Floats, bound: Floats, places: Memory
) -> tuple[float, float, float]:
    """Roll the policy forward under the kernels; (value, gap, residual) at the prices, with the minima ``bound``."""
    (memory,) = whole(layout, (places,))
    fill(memory.trial, ROUNDING)
    return certify_rolled(
        layout, log_prior, cost, memory.V, bound, True, memory.kernels, memory.trial, memory.work, memory.log_q,
        memory.q, memory.mass, memory.prices,
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


def mixed_step(confidence_set: ConfidenceSet, problem: Problem, tolerance: float) -> Result:
    """The mirror step over any set that has extreme rows."""
    sizes, nothing = problem.sizes, [0] * (len(problem.sizes) - 2)
    layout = make_layout(sizes, problem.n_actions, nothing, nothing)
    memory, step = allocate(Memory, layout), (problem.log_prior, problem.cost)
    places = addresses(memory)
    blocks, widest = ATOMS * length_of(layout, "block"), int(layout["blocks"].max())
    lengths = (ATOMS * length_of(layout, "next"), blocks, blocks, widest, 1, widest * max(sizes))
    rows = Mixtures(*map(np.zeros, lengths))
    rows.level[:] = -np.inf
    layers = []
    for h, (m, N) in enumerate(zip(layout["nexts"][:-2], layout["blocks"][:-2], strict=True)):
        entry, block, state = (int(layout[name][h]) for name in ("next_at", "block_at", "state_at"))
        atoms = rows.atoms[ATOMS * entry :][: ATOMS * m * N].reshape(ATOMS, m, N)
        centre, level = (each[ATOMS * block :][: ATOMS * N].reshape(ATOMS, N) for each in (rows.centre, rows.level))
        layers.append((atoms, centre, level, memory.V[state + sizes[h] :][:m]))
    # No extreme row may lead to all next states.  The first ones are means of those that lead to each of them most.
    place = np.concatenate([np.arange(n) for n in sizes])
    for t in range(max(sizes)):
        _, found = extremes(confidence_set, problem, -1.0 * (place == t))
        for (atoms, _, level, _), extreme in zip(layers, found, strict=True):
            atoms[0] += extreme / max(sizes)
            level[0] = 0.0
    memory.kernels[:] = np.concatenate([np.empty(0), *(atoms[0].ravel() for atoms, *_ in layers)])
    memory.log_q[:] = problem.log_prior
    rows.tau[0] = max(rebalance(layout, *step, -1.0, places), 0.01)
    best, before, iterations = None, np.inf, 0
    for _ in range(ROUNDS):
        bound, found = extremes(confidence_set, problem, memory.V)
        certificate = certify(layout, *step, bound, places)
        size = size_of(certificate)
        if best is None or certified(certificate, tolerance) or size < size_of(best.certificate):
            best = Result(certificate, 0, memory.log_q.copy(), memory.q.copy(), memory.kernels.copy())
        if certified(certificate, tolerance) or not np.isfinite(memory.V).all():
            break
        better = size <= WORSE * before
        rows.tau[0] = max(REDUCTION * rows.tau[0], LEAST_TAU) if better else rows.tau[0] / REDUCTION
        before = size
        for part, extreme in zip(layers, found, strict=True):
            _join(*part, extreme, rows.tau[0])
        iterations += advance(layout, rows, *step, places)
        rebalance(layout, *step, 1.0, places)
    assert best is not None
    return best._replace(iterations=iterations)


def _join(atoms: Floats, centre: Floats, level: Floats, V: Floats, rows: Floats, tau: float) -> None:
    """Let the mixtures of a layer be the ones to start from, and extreme rows that are better join them.

    A row that is there already is given more weight if its mean is less than that of the mixture by tau."""
    pairs = np.arange(rows.shape[1])
    gain = V @ (np.einsum("jb,jtb->tb", np.exp(level), atoms) - rows)
    away = np.where(level > -np.inf, np.abs(atoms - rows).max(axis=1), np.inf)
    near = away.argmin(axis=0)
    known = away[near, pairs] < SAME_ROW
    # The first row stays: without it there might be none that leads to some next state.
    slot = np.where(known, near, 1 + level[1:].argmin(axis=0))
    weight = np.maximum(np.where(known, level[near, pairs], -np.inf), np.log(SHARE))
    new = np.flatnonzero(gain > np.where(known, tau, SAME_MEAN * (1.0 + np.abs(V).max())))
    atoms[slot[new], :, new] = rows[:, new].T
    level[slot[new], new] = weight[new]
    level -= np.log(np.exp(level).sum(axis=0))
    np.maximum(level, LEAST_LOG_WEIGHT, out=level, where=level > -np.inf)
    centre[:] = level
    level -= np.einsum("jtb,t->jb", atoms - rows, V) / tau


def extremes(confidence_set: ConfidenceSet, problem: Problem, V: Floats) -> tuple[Floats, list[Floats]]:
    """The minimum of P.V over each row set, in the order of blocks, and rows that attain it: (m, N) for each layer."""
    data, means, tables, sizes, at = confidence_set.compiled_rows(), [], [], problem.sizes, 0
    for h in range(len(sizes) - 2):
        at += sizes[h]
        layer, prices = confidence_set.layer(h), V[at : at + sizes[h + 1]]
        states, nexts = (np.arange(layer.n), np.arange(layer.m)) if problem.kept is None else problem.kept[h : h + 2]
        # A state that no row leads to is not worth going to.
        values, found = np.full(layer.m, -prices.max()), np.empty(layer.n * layer.n_actions)
        values[nexts] = -prices
        rows = np.empty((layer.n, layer.n_actions, layer.m))
        layer_extremes(data, layer, states, values, found, rows.ravel())
        means.append(-found.reshape(layer.n, -1)[states].T.ravel())
        tables.append(rows[states][:, :, nexts].transpose(2, 1, 0).reshape(len(nexts), -1))
    return np.concatenate([*means, np.zeros(sizes[-2] * problem.n_actions)]), tables
