"""Rows between two bounds of each entry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats, Integers
from advmdp._compiled import body_of, inner_kernel, kernel, sum_kernel
from advmdp.layered.rows import Rows, next_state, row_begin, row_end
from advmdp.rows.layer import ROUNDING, Layer, entries_of, entry_bounds, extreme_means, mass_and_mean, row_by_row


class BoxRows(NamedTuple):
    """Lower bounds on their supports, upper bounds, and memory for the values of one row and their order."""

    rows: Rows
    upper: Floats
    some: Floats
    order: Integers


@inner_kernel
def box_row(
    data: BoxRows, pair: int, begin: int, end: int, values: Floats, order: Integers, found: Floats, at: int
) -> float:
    """Greedy: start from the lower bounds, fill up in decreasing order of ``values``."""
    low, high = data.rows.values[begin:end], data.upper[begin:end]
    mass, mean = mass_and_mean(low, values)
    left = 1.0 - mass
    wanted = found.shape[0] > 0
    for t in range(low.shape[0] if wanted else 0):
        found[at + t] = low[t]
    empty = left < -ROUNDING
    for i in range(low.shape[0]):
        if left <= 0.0:
            break
        t = order[i]
        # A negative room is an interval that misses [0, 1].
        empty = empty or high[t] < low[t]
        filled = min(high[t] - low[t], left)
        mean += filled * values[t]
        left -= filled
        if wanted:
            found[at + t] += filled
    return np.nan if empty or left > ROUNDING else float(mean)


@body_of(entry_bounds, BoxRows)
def box_bounds(data: BoxRows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """The bounds as they are, in [0, 1]."""
    start, begin, stop = entries_of(data.rows, layer, first, end)
    for e in range(begin, stop):
        low[e - start] = min(data.rows.values[e], 1.0)
        high[e - start] = max(data.upper[e], 0.0)


body_of(extreme_means, BoxRows)(row_by_row(box_row))


@sum_kernel
def look_at_row(low: Floats, high: Floats) -> tuple[bool, bool, float]:
    """Whether no distribution fits between these bounds, whether each does, and what the lower ones leave of one."""
    least = most = 0.0
    crossed = inside = 0
    for t in range(low.shape[0]):
        least += low[t]
        most += high[t]
        crossed += low[t] > high[t]
        inside += low[t] > 0.0 or high[t] < 1.0
    return crossed > 0 or least > 1.0 + ROUNDING or most < 1.0 - ROUNDING, inside == 0, 1.0 - least


@kernel
def mark_reachable(
    lower: Rows, upper: Floats, sizes: Integers, n_actions: int, reached: NDArray[np.bool_], loose: NDArray[np.bool_]
) -> bool:
    """Forward closure of 'may be positive', from the single first state; whether a pair of such a state is empty, and
    which of them are ``loose``: every distribution is between their bounds.

    An entry is held at zero by its own upper bound or by the lower bounds of the others, if they sum to
    one: a price for such a state's flow would be without bound.
    """
    reached[0] = True
    reached[reached.shape[0] - 1] = True
    some_empty = False
    state = 0
    for h in range(sizes.shape[0] - 2):
        n = sizes[h]
        m = sizes[h + 1]
        missing = m
        for pair in range(n * n_actions):
            if reached[state + pair // n_actions]:
                begin = row_begin(lower, h, pair, m)
                end = row_end(lower, h, pair, m)
                empty, loose[state * n_actions + pair], room = look_at_row(lower.values[begin:end], upper[begin:end])
                some_empty = some_empty or empty
                for e in range(begin, end if missing > 0 else begin):
                    most = min(upper[e], room + lower.values[e])
                    there = state + n + next_state(lower, h, begin, e)
                    if most > ROUNDING and not reached[there]:
                        reached[there] = True
                        missing -= 1
        state += n
    return some_empty


def least_multiples(middle: Floats, half: Floats) -> Floats:
    """Least t >= 0 per row with a distribution in [middle - t half, middle + t half].

    The conditions sum_j max(0, middle - t half) <= 1 <= sum_j min(1, middle + t half) are a convex
    decreasing and a concave increasing function of t, both piecewise linear: Newton's method from
    t = 0 climbs to each root from below, past at least one breakpoint per step.
    """
    # Every single interval must meet [0, 1]: this bounds t from below.
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(middle < 0.0, -middle, np.where(middle > 1.0, middle - 1.0, 0.0))
        multiple = np.where(need > 0.0, need / half, 0.0).max(axis=-1)
        for _ in range(2 * middle.shape[-1] + 2):
            t = multiple[..., None]
            low, high = middle - t * half, middle + t * half
            too_high = np.maximum(low, 0.0).sum(axis=-1) - 1.0
            too_low = 1.0 - np.minimum(high, 1.0).sum(axis=-1)
            fall = np.where(low > 0.0, half, 0.0).sum(axis=-1)
            rise = np.where(high < 1.0, half, 0.0).sum(axis=-1)
            step = np.maximum(
                np.where(too_high > ROUNDING, too_high / fall, 0.0),
                np.where(too_low > ROUNDING, too_low / rise, 0.0),
            )
            if not np.any(step > 0.0):
                break
            multiple = multiple + step
    return np.asarray(multiple)
