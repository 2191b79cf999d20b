"""Questions about whole layers from outside compiled passes."""

from __future__ import annotations

from typing import Any

from advmdp._arrays import Floats, Integers
from advmdp._compiled import kernel
from advmdp.layered.rows import entry_of, row_begin
from advmdp.rows.layer import Layer, extreme_means


@kernel
def layer_extremes(data: Any, layer: Layer, states: Integers, values: Floats, means: Floats) -> None:
    """:func:`extreme_means` of all these states."""
    extreme_means(data, layer, states, states.shape[0], values, means, values[:0])


@kernel
def layer_hull(
    data: Any, layer: Layer, arrivals: Any, states: Integers, values: Floats, means: Floats, low: Floats, high: Floats
) -> None:
    """Extremes of each entry of a layer, by the means of indicators over the states that lead to them.

    ``values`` (m,) is zero before and after; ``states`` has all states of the layer and is overwritten if it is sparse.
    """
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    first = arrivals.first[h, 0]
    start = row_begin(rows, h, 0, m)
    count = layer.n
    for t in range(m):
        if first >= 0:
            begin = arrivals.at[first + t]
            count = arrivals.at[first + t + 1] - begin
            for j in range(count):
                states[j] = arrivals.states[begin + j]
        for sign in (1.0, -1.0):
            values[t] = sign
            extreme_means(data, layer, states, count, values, means, values[:0])
            found = high if sign > 0.0 else low
            for j in range(count):
                for pair in range(states[j] * n_actions, (states[j] + 1) * n_actions):
                    e = entry_of(rows, h, pair, m, t)
                    if e >= 0:
                        found[e - start] = sign * means[pair]
        values[t] = 0.0
