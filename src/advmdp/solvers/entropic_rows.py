"""The row problems of the triple entropy: min over a row set of p.V + KL(p || prior), for one pair.

With z = log prior - V this is min sum_t p_t (log p_t - z_t). Each row kernel fills the minimiser ``p``, its logarithm
(finite where p underflows) and ``group``: entries of group 0 are fixed, those of another group are exp(z_t) times a
constant of the group, so they share a multiplier and move together when V does.  So the Hessian of the minimum is
``-sum_g (diag(p_g) - p_g p_g' / sum p_g)``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp._compiled import body_of, kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.layout import Layout, view2
from advmdp.solvers.prices import Memory, bend, respond

Groups = NDArray[np.int8]


class EntropicRows(NamedTuple):
    """Tables (S_h, A, S_{h+1}) one after the other, and memory; a set of l1 balls has radii, one of boxes has none."""

    log_prior: Floats
    low: Floats  # or centres
    high: Floats
    log_low: Floats
    log_high: Floats
    radii: Floats  # (S_h, A)
    group: Groups  # of each entry
    row: Floats  # z, p and log p of one row
    columns: Floats  # m by 2 N of one layer


@body_of(respond, EntropicRows)
def respond_entropic(
    rows: EntropicRows, layout: Layout, h: int, V: Floats, change: Floats, kernels: Floats, ahead: Floats, extra: Floats
) -> bool:
    """The minimising rows of layer h; what the minima have beyond P.V is the divergence."""
    n = layout.states[h]
    m = layout.nexts[h]
    N = layout.blocks[h]
    at = layout.block_at[h]
    price = V[layout.state_at[h + 1] : layout.state_at[h + 1] + m]
    P = view2(kernels, layout.next_at[h], m, N)
    z = rows.row[0, :m]
    p = rows.row[1, :m]
    log_p = rows.row[2, :m]
    for b in range(N):
        pair = b % n * (N // n) + b // n
        start = layout.next_at[h] + pair * m
        end = start + m
        for t in range(m):
            z[t] = rows.log_prior[start + t] - price[t]
        group = rows.group[start:end]
        low = rows.low[start:end]
        log_low = rows.log_low[start:end]
        if m > 0:
            if rows.radii.size > 0:
                l1_row(z, low, log_low, rows.radii[at + pair], p, log_p, group)
            else:
                box_row(z, low, rows.high[start:end], log_low, rows.log_high[start:end], p, log_p, group)
        mean = 0.0
        divergence = 0.0
        for t in range(m):
            P[t, b] = p[t]
            if p[t] > 0.0:
                mean += p[t] * price[t]
                divergence += p[t] * (log_p[t] - rows.log_prior[start + t])
        ahead[at + b] = mean
        extra[at + b] = divergence
    return True


@body_of(bend, EntropicRows)
def bend_entropic(rows: EntropicRows, layout: Layout, h: int, memory: Memory) -> None:
    """``sum_b q_b sum_g (diag(p_g) - p_g p_g' / sum p_g)``."""
    n = layout.states[h]
    m = layout.nexts[h]
    N = layout.blocks[h]
    P = view2(memory.kernels, layout.next_at[h], m, N)
    stacked = view2(memory.stacked, 0, m, N)
    target = view2(memory.diag, layout.diag_at[h + 1], m, m)
    grouped = view2(rows.columns, 0, m, 2 * N)
    count = 0
    for b in range(N):
        group = rows.group[layout.next_at[h] + (b % n * (N // n) + b // n) * m :][:m]
        for g in (1, 2):
            total = 0.0
            for t in range(m):
                if group[t] == g:
                    total += P[t, b]
            if total > 0.0:
                inverse = 1.0 / np.sqrt(total)
                for t in range(m):
                    grouped[t, count] = 0.0
                    if group[t] == g and P[t, b] > 0.0:
                        grouped[t, count] = stacked[t, b] * inverse
                        target[t, t] += stacked[t, b] * (stacked[t, b] / P[t, b])
                count += 1
    tridiagonal.add_gram(target, grouped, count, -1.0)


@kernel
def log_sum_group(z: Floats, group: Groups, which: int) -> float:
    """log sum of exp(z) over the entries of one group; -inf if there are none."""
    top = -np.inf
    for t in range(z.shape[0]):
        if group[t] == which and z[t] > top:
            top = z[t]
    if top == -np.inf:
        return top
    total = 0.0
    for t in range(z.shape[0]):
        if group[t] == which:
            total += np.exp(z[t] - top)
    return float(top + np.log(total))


@kernel
def box_row(
    z: Floats,
    low: Floats,
    high: Floats,
    log_low: Floats,
    log_high: Floats,
    p: Floats,
    log_p: Floats,
    group: Groups,
) -> None:
    """min sum_t p_t (log p_t - z_t) between bounds, sum one: p = clip(exp(c + z), low, high).

    Variable fixing: with c from the free entries alone, compare the excess over upper bounds with the
    shortfall under lower ones. The larger of the two tells on which side of c the solution lies, hence
    which entries stay at their bounds for good; each round fixes at least one.
    """
    m = z.shape[0]
    left = 1.0
    for t in range(m):
        group[t] = 1
        if not low[t] < high[t]:
            group[t] = 0
            p[t] = low[t]
            log_p[t] = log_low[t]
            left -= low[t]
    for _ in range(m + 1):
        top = -np.inf
        for t in range(m):
            if group[t] == 1:
                top = max(top, z[t])
        total = 0.0
        for t in range(m):
            if group[t] == 1:
                p[t] = np.exp(z[t] - top)
                total += p[t]
        if not total > 0.0:
            break  # every entry is fixed
        ratio = max(left, 0.0) / total
        c = np.log(ratio) - top
        over = 0.0
        under = 0.0
        for t in range(m):
            if group[t] == 1:
                log_p[t] = c + z[t]
                p[t] *= ratio
                if log_p[t] > log_high[t]:
                    over += p[t] - high[t]
                elif log_p[t] < log_low[t]:
                    under += low[t] - p[t]
        if over == 0.0 and under == 0.0:
            break
        for t in range(m):
            if group[t] == 1:
                if over >= under and log_p[t] > log_high[t]:
                    group[t] = 0
                    p[t] = high[t]
                    log_p[t] = log_high[t]
                    left -= high[t]
                elif over < under and log_p[t] < log_low[t]:
                    group[t] = 0
                    p[t] = low[t]
                    log_p[t] = log_low[t]
                    left -= low[t]


@kernel
def l1_row(
    z: Floats,
    centre: Floats,
    log_centre: Floats,
    radius: float,
    p: Floats,
    log_p: Floats,
    group: Groups,
) -> None:
    """min sum_t p_t (log p_t - z_t) over distributions with |p - centre|_1 <= radius.

    If the soft-max of z is too far, half the radius is gained and half is lost: entries above the
    centre are exp(above + z), entries below it exp(below + z), the others stay, and the two constants
    separate,

        sum_t (exp(above + z_t) - centre_t)_+ = radius / 2 = sum_t (centre_t - exp(below + z_t))_+.

    Each is found by starting with every entry in the sum and dropping those of the wrong sign, which are
    wrong at the solution too because the constant only moves away from them.
    """
    m = z.shape[0]
    for t in range(m):
        group[t] = 1
    c = -log_sum_group(z, group, 1)
    distance = 0.0
    for t in range(m):
        log_p[t] = c + z[t]
        p[t] = np.exp(log_p[t])
        distance += abs(p[t] - centre[t])
    if distance <= radius:
        return
    half = 0.5 * radius
    above = -np.inf
    if half > 0.0:
        while True:
            mass = half
            for t in range(m):
                if group[t] == 1:
                    mass += centre[t]
            above = np.log(mass) - log_sum_group(z, group, 1)
            dropped = False
            for t in range(m):
                if group[t] == 1 and log_centre[t] >= above + z[t]:
                    group[t] = 0
                    dropped = True
            if not dropped:
                break
    else:
        for t in range(m):
            group[t] = 0
    # Entries below the centre: group 2, among those that are not above.
    for t in range(m):
        if group[t] == 0 and half > 0.0:
            group[t] = 2
    while half > 0.0:
        mass = -half
        for t in range(m):
            if group[t] == 2:
                mass += centre[t]
        below = np.log(max(mass, 0.0)) - log_sum_group(z, group, 2)
        dropped = False
        for t in range(m):
            if group[t] == 2 and log_centre[t] <= below + z[t]:
                group[t] = 0
                dropped = True
        if not dropped:
            break
    for t in range(m):
        if group[t] == 0:
            log_p[t] = log_centre[t]
            p[t] = centre[t]
        else:
            log_p[t] = z[t] + (above if group[t] == 1 else below)
            p[t] = np.exp(log_p[t])
