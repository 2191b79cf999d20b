"""Rows in a ball of the l1 norm around a distribution: never empty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._compiled import inner_kernel
from advmdp.layered.rows import Rows, row_begin, row_end
from advmdp.rows.layer import BOUNDS, MEANS, Floats, Integers, Layer, gather, mass_and_mean, sort_decreasing


class L1Rows(NamedTuple):
    """Centres on their supports, the radii of all pairs, and memory for the values of one row and their order."""

    rows: Rows
    radii: Floats
    some: Floats
    order: Integers


@inner_kernel
def l1_means(
    data: L1Rows, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """Row by row; the values of a dense layer are sorted once."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    dense = rows.places[h, 1] < 0
    start = row_begin(rows, h, 0, m)
    here = values
    if dense:
        sort_decreasing(values, data.order)
    for j in range(count):
        end = row_begin(rows, h, states[j] * n_actions, m)
        for pair in range(states[j] * n_actions, (states[j] + 1) * n_actions):
            begin, end = end, row_end(rows, h, pair, m)
            if not dense:
                here = data.some[: end - begin]
                gather(rows, h, begin, values, here, data.order)
            means[pair] = l1_row(
                rows.values[begin:end], data.radii[layer.block + pair], here, data.order, found, begin - start
            )


@inner_kernel
def l1_row(centre: Floats, radius: float, values: Floats, order: Integers, found: Floats, at: int) -> float:
    """Move half the radius to the best state, taking it from the worst states first; the row goes to ``found``."""
    m = centre.shape[0]
    if m == 0:
        return np.nan
    _mass, mean = mass_and_mean(centre, values)
    wanted = found.shape[0] > 0
    for t in range(m if wanted else 0):
        found[at + t] = centre[t]
    best = order[0]
    left = min(0.5 * radius, 1.0 - centre[best])
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


@inner_kernel
def l1_bounds(data: L1Rows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """No entry moves by more than half the radius."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    start = row_begin(rows, h, 0, m)
    for pair in range(first * n_actions, end * n_actions):
        width = 0.5 * data.radii[layer.block + pair]
        for e in range(row_begin(rows, h, pair, m), row_end(rows, h, pair, m)):
            low[e - start] = max(rows.values[e] - width, 0.0)
            high[e - start] = min(rows.values[e] + width, 1.0)


MEANS[L1Rows] = l1_means
BOUNDS[L1Rows] = l1_bounds
