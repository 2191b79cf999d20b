"""Rows in a ball of the l1 norm around a distribution: never empty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import body_of, inner_kernel
from advmdp.layered.rows import Rows, row_begin, row_end
from advmdp.rows.layer import Layer, entry_bounds, extreme_means, mass_and_mean, row_by_row


class L1Rows(NamedTuple):
    """Centres on their supports, the radii of all pairs, and memory for the values of one row and their order."""

    rows: Rows
    radii: Floats
    some: Floats
    order: Integers


@inner_kernel
def l1_row(
    data: L1Rows, pair: int, begin: int, end: int, values: Floats, order: Integers, found: Floats, at: int
) -> float:
    """Move half the radius to the best state, taking it from the worst states first."""
    centre, m = data.rows.values[begin:end], end - begin
    if m == 0:
        return np.nan
    _mass, mean = mass_and_mean(centre, values)
    wanted = found.shape[0] > 0
    for t in range(m if wanted else 0):
        found[at + t] = centre[t]
    best = order[0]
    left = min(0.5 * data.radii[pair], 1.0 - centre[best])
    for i in range(m - 1, 0, -1):
        if left <= 0.0:
            break
        t = order[i]
        moved = min(centre[t], left)
        mean += moved * (values[best] - values[t])
        left -= moved
        if wanted:
            found[at + best] += moved
            found[at + t] -= moved
    return float(mean)


@body_of(entry_bounds, L1Rows)
def l1_bounds(data: L1Rows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """No entry moves by more than half the radius."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    start = row_begin(rows, h, 0, m)
    for pair in range(first * n_actions, end * n_actions):
        width = 0.5 * data.radii[layer.block + pair]
        for e in range(row_begin(rows, h, pair, m), row_end(rows, h, pair, m)):
            low[e - start] = max(rows.values[e] - width, 0.0)
            high[e - start] = min(rows.values[e] + width, 1.0)


body_of(extreme_means, L1Rows)(row_by_row(l1_row))
