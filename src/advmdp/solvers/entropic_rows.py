"""The row problems of the triple entropy: min over a row set of p.V + KL(p || prior), for one pair.

With weights w_t = prior_t exp(-V_t) this is min sum_t p_t log(p_t / w_t).  Each row kernel fills the minimiser ``p``
and ``group``: entries of group 0 are fixed, those of another group are w_t times a constant of the group, so they move
together when V does, and the Hessian of the minimum is ``-sum_g (diag(p_g) - p_g p_g' / sum p_g)``.

Exponentials are taken of prices, once per layer, and not of entries.  Where prices differ by so much that a weight
could leave the range of floating point, each group has weights of its own, by logarithms (:func:`weigh`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp._compiled import body_of, inner_kernel, kernel, sum_kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.layout import LINE, Layout, view2, whole
from advmdp.solvers.prices import Memory, bend, respond

Groups = NDArray[np.int8]

# A prior is at least this: a zero where the set allows more would never become positive.
LEAST_PRIOR = 1e-300
# Prices of a layer that differ by less leave every weight, and the sum of a row of them, a normal number.
LARGEST_SPREAD = 690.0


class EntropicRows(NamedTuple):
    """Tables (S_h, A, S_{h+1}) one after the other, and memory; a set of l1 balls has radii, one of boxes has none."""

    low: Floats  # or centres
    high: Floats
    radii: Floats  # (S_h, A)
    prior: Floats
    loose: NDArray[np.bool_]  # (S_h, A): the row set has every distribution
    group: Groups  # of each entry of the other rows
    row: Floats  # exp(level - V), that times level - V, and weights
    found: Floats  # as many rows as numbers in a cache line
    columns: Floats  # m by N of one layer


@body_of(respond, EntropicRows)
def respond_entropic(
    rows: EntropicRows, layout: Layout, h: int, V: Floats, change: Floats, kernels: Floats, ahead: Floats, extra: Floats
) -> bool:
    """The minimising rows of layer h; what the minima have beyond P.V is the divergence."""
    n = layout[h].states
    m = layout[h].nexts
    N = layout[h].blocks
    at = layout[h].block_at
    price = V[layout[h + 1].state_at : layout[h + 1].state_at + m]
    P = view2(kernels, layout[h].next_at, m, N)
    factor = rows.row[0, :m]
    below = rows.row[1, :m]
    w = rows.row[2, :m]
    level = -np.inf
    lowest = np.inf
    for t in range(m):
        level = max(level, price[t])
        lowest = min(lowest, price[t])
    if m > 0 and not level - lowest < LARGEST_SPREAD:
        level = np.inf
    for t in range(m):
        factor[t] = np.exp(level - price[t])
        below[t] = factor[t] * (level - price[t])
    for first in range(0, N if m > 0 else 0, LINE):
        last = min(first + LINE, N)
        for b in range(first, last):
            pair = b % n * (N // n) + b // n
            start = layout[h].next_at + pair * m
            end = start + m
            prior = rows.prior[start:end]
            p = rows.found[b - first, :m]
            if rows.loose[at + pair] and level < np.inf:
                total = tridiagonal.dot(prior, factor)
                inverse = 1.0 / total
                for t in range(m):
                    p[t] = prior[t] * factor[t] * inverse
                mean = tridiagonal.dot(prior, below) * inverse
                ahead[at + b] = level - mean
                extra[at + b] = mean - np.log(total)
                continue
            for t in range(m):
                w[t] = prior[t] * factor[t]
            low = rows.low[start:end]
            group = rows.group[start:end]
            if rows.radii.size > 0:
                extra[at + b] = l1_row(prior, price, level, low, rows.radii[at + pair], w, p, group)
            else:
                extra[at + b] = box_row(prior, price, level, low, rows.high[start:end], w, p, group)
            ahead[at + b] = tridiagonal.dot(p, price)
        for t in range(m):
            for b in range(first, last):
                P[t, b] = rows.found[b - first, t]
    return True


@body_of(bend, EntropicRows)
def bend_entropic(rows: EntropicRows, layout: Layout, h: int, places: Memory) -> None:
    """``sum_b q_b (P P' + sum_g (diag(p_g) - p_g p_g' / sum p_g))``: only the diagonal is left of rows that move as a
    whole, which nearly all do before their pairs have been visited often."""
    (memory,) = whole(layout, (places,))
    n = layout[h].states
    m = layout[h].nexts
    N = layout[h].blocks
    there = layout[h + 1].state_at
    P = view2(memory.kernels, layout[h].next_at, m, N)
    stacked = view2(memory.stacked, 0, m, N)
    target = view2(memory.diag, layout[h + 1].diag_at, m, m)
    columns = view2(rows.columns, 0, m, N)
    for t in range(m):
        target[t, t] += memory.gradient[there + t] * memory.scale[there + t]  # that of what flows into t
    for which in range(3):  # 0: all groups
        count = 0
        for b in range(N):
            pair = b % n * (N // n) + b // n
            if rows.loose[layout[h].block_at + pair]:
                continue
            group = rows.group[layout[h].next_at + pair * m :][:m]
            together = True
            total = 1.0 if which == 0 else 0.0
            for t in range(m):
                together = together and group[t] == 1
                if group[t] == which and which > 0:
                    total += P[t, b]
            if together or not total > 0.0:
                continue
            inverse = 1.0 / np.sqrt(total)
            for t in range(m):
                columns[t, count] = stacked[t, b] * inverse if which == 0 or group[t] == which else 0.0
                if which == 0 and group[t] == 0 and P[t, b] > 0.0:
                    target[t, t] -= stacked[t, b] * (stacked[t, b] / P[t, b])
            count += 1
        tridiagonal.add_gram(target, columns, count, 1.0 if which == 0 else -1.0)


@inner_kernel
def weigh(prior: Floats, price: Floats, group: Groups, which: int, w: Floats) -> float:
    """The weights prior exp(level - V) of one group, with the level at which the largest is one."""
    level = np.inf
    for t in range(w.shape[0]):
        if group[t] == which:
            w[t] = price[t] - np.log(prior[t])
            level = min(level, w[t])
    for t in range(w.shape[0]):
        if group[t] == which:
            w[t] = np.exp(level - w[t])
    return level


@sum_kernel
def sum_of(x: Floats, group: Groups, which: int) -> float:
    """Over the entries of one group."""
    total = 0.0
    for t in range(x.shape[0]):
        total += x[t] if group[t] == which else 0.0
    return total


@inner_kernel
def divergence(prior: Floats, price: Floats, p: Floats, group: Groups, first: float, second: float) -> float:
    """KL(p || prior), where entries of groups 1 and 2 are prior exp(first - V) and prior exp(second - V)."""
    total = 0.0
    for t in range(p.shape[0]):
        if p[t] > 0.0:
            if group[t] == 0:
                total += p[t] * np.log(p[t] / prior[t])
            else:
                total += p[t] * ((first if group[t] == 1 else second) - price[t])
    return total


@kernel
def box_row(
    prior: Floats, price: Floats, level: float, low: Floats, high: Floats, w: Floats, p: Floats, group: Groups
) -> float:
    """min KL(p || prior) + p.V between bounds, sum one: p = clip(c w, low, high).  The divergence is returned.

    Given are the weights prior exp(level - V), or an infinite level.  Variable fixing: with c from the free entries
    alone, compare the excess over upper bounds with the shortfall under lower ones.  The larger of the two tells on
    which side of c the solution lies, hence which entries stay at their bounds for good; each round fixes at least one.
    """
    m = w.shape[0]
    given = level < np.inf
    for t in range(m):
        group[t] = 1 if low[t] < high[t] else 0
        p[t] = low[t]
    left = 1.0 - sum_of(low, group, 0)
    c = 0.0
    for _ in range(m + 1):
        if not given:
            level = weigh(prior, price, group, 1, w)
        total = sum_of(w, group, 1)
        if not total > 0.0:
            break  # every entry is fixed
        c = max(left, 0.0) / total
        over, under = outside(c, w, low, high, group)
        if over == 0.0 and under == 0.0:
            break
        for t in range(m):
            if group[t] == 1:
                if over >= under and c * w[t] > high[t]:
                    group[t] = 0
                    p[t] = high[t]
                    left -= high[t]
                elif over < under and c * w[t] < low[t]:
                    group[t] = 0
                    left -= low[t]
    for t in range(m):
        if group[t] == 1:
            p[t] = c * w[t]
    return divergence(prior, price, p, group, level + np.log(c), 0.0)


@sum_kernel
def outside(c: float, w: Floats, low: Floats, high: Floats, group: Groups) -> tuple[float, float]:
    """By how much the free entries of c w exceed upper bounds, and fall short of lower ones."""
    over = 0.0
    under = 0.0
    for t in range(w.shape[0]):
        x = c * w[t]
        over += x - high[t] if group[t] == 1 and x > high[t] else 0.0
        under += low[t] - x if group[t] == 1 and x < low[t] else 0.0
    return over, under


@kernel
def l1_row(
    prior: Floats, price: Floats, level: float, centre: Floats, radius: float, w: Floats, p: Floats, group: Groups
) -> float:
    """min KL(p || prior) + p.V over distributions with |p - centre|_1 <= radius.  The divergence is returned.

    Given are the weights prior exp(level - V), or an infinite level.  If the multiple of w that sums to one is too far,
    half the radius is gained and half is lost: entries above the centre are c_1 w, entries below it c_2 w, the others
    stay, and the two constants separate,

        sum_t (c_1 w_t - centre_t)_+ = radius / 2 = sum_t (centre_t - c_2 w_t)_+.

    Each is found by starting with every entry in the sum and dropping those of the wrong sign, which are
    wrong at the solution too because the constant only moves away from them.
    """
    m = w.shape[0]
    given = level < np.inf
    for t in range(m):
        group[t] = 1
    if not given:
        level = weigh(prior, price, group, 1, w)
    c = 1.0 / sum_of(w, group, 1)
    distance = 0.0
    for t in range(m):
        p[t] = c * w[t]
        distance += abs(p[t] - centre[t])
    if distance <= radius:
        return divergence(prior, price, p, group, level + np.log(c), 0.0)
    half = 0.5 * radius
    for t in range(m):
        group[t] = 1 if half > 0.0 else 0
        p[t] = centre[t]
    first = 0.0
    for which in (1, 2):
        dropped = True
        while dropped:
            dropped = False
            if not given:
                level = weigh(prior, price, group, which, w)
            total = sum_of(w, group, which)
            if not total > 0.0:
                break
            c = max(sum_of(centre, group, which) + (half if which == 1 else -half), 0.0) / total
            for t in range(m):
                gained = c * w[t] - centre[t]
                if group[t] == which and (gained <= 0.0 if which == 1 else gained >= 0.0):
                    group[t] = 2 if which == 1 else 0
                    dropped = True
        for t in range(m):
            if group[t] == which:
                p[t] = c * w[t]
        if which == 1:
            first = level + np.log(c)
    return divergence(prior, price, p, group, first, level + np.log(c))
