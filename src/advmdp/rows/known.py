"""Rows that are known."""

from __future__ import annotations

from typing import NamedTuple

from advmdp._arrays import Floats, Integers
from advmdp._compiled import body_of
from advmdp.layered.rows import Rows, row_begin, row_end
from advmdp.rows.layer import Layer, entries_of, entry_bounds, extreme_means, mean_of_row


class KnownRows(NamedTuple):
    """Their entries."""

    rows: Rows


@body_of(extreme_means, KnownRows)
def known_means(
    data: KnownRows, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """The means themselves."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    for j in range(count):
        for pair in range(states[j] * n_actions, (states[j] + 1) * n_actions):
            begin = row_begin(rows, h, pair, m)
            means[pair] = mean_of_row(rows, h, begin, rows.values[begin : row_end(rows, h, pair, m)], values)
    start = row_begin(rows, h, 0, m)
    for e in range(found.shape[0]):
        found[e] = rows.values[start + e]


@body_of(entry_bounds, KnownRows)
def known_bounds(data: KnownRows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """Each entry by itself."""
    start, begin, stop = entries_of(data.rows, layer, first, end)
    for e in range(begin, stop):
        low[e - start] = high[e - start] = data.rows.values[e]
