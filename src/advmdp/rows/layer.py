"""What passes ask of the rows of one layer, whatever their kind."""

from __future__ import annotations

from typing import Any, NamedTuple

from advmdp._arrays import Flags, Floats, Integers
from advmdp._compiled import chosen_kernel, inner_kernel, kernel, sum_kernel
from advmdp.layered.rows import Rows, entry_of, row_begin, row_end

ROUNDING = 1e-12
"""Sums of probabilities are compared with one up to this much, the error of adding a long row."""


class Layer(NamedTuple):
    """Layer h: n states that lead to m, and the number of pairs ahead of it."""

    h: int
    n: int
    n_actions: int
    m: int
    block: int


@chosen_kernel
def extreme_means(
    data: Any, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """``means`` (n A,): the largest means of ``values`` (m,) over the row sets of the first ``count`` of some states;
    NaN where one is empty.  The smallest mean is minus the largest one of minus the function.

    ``found`` receives the rows that attain them, (n, A, m) or the entries of a sparse layer, unless it has no entries.
    Of ellipsoids, means are values of the dual problem; rows are points of the set whose means may be lower.
    """
    raise NotImplementedError


@chosen_kernel
def entry_bounds(data: Any, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """Bounds of each entry of the states from ``first`` to ``end``, in the order of ``found``; work may follow them.

    They are what a single entry says, without what the others of its row leave to it.
    """
    raise NotImplementedError


@inner_kernel
def entries_of(rows: Rows, layer: Layer, first: int, end: int) -> tuple[int, int, int]:
    """The first entry of a layer, and that of some states of it and the one after theirs."""
    h, n_actions, m = layer.h, layer.n_actions, layer.m
    return row_begin(rows, h, 0, m), row_begin(rows, h, first * n_actions, m), row_end(rows, h, end * n_actions - 1, m)


@kernel
def layer_extremes(data: Any, layer: Layer, states: Integers, values: Floats, means: Floats, found: Floats) -> None:
    """:func:`extreme_means` of all these states."""
    extreme_means(data, layer, states, states.shape[0], values, means, found)


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


@inner_kernel
def list_flagged(flags: Flags, found: Integers) -> int:
    """The indices of the flags that are set; their number."""
    count = 0
    for s in range(flags.shape[0]):
        if flags[s]:
            found[count] = s
            count += 1
    return count


@inner_kernel
def sort_decreasing(values: Floats, order: Integers) -> None:
    """Indices of ``values`` from largest to smallest; insertion, as layers are short."""
    for i in range(values.shape[0]):
        j = i
        while j > 0 and values[order[j - 1]] < values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


def row_by_row(one_row: Any) -> Any:
    """The kernel for :func:`extreme_means` that asks ``one_row`` about each row, whose entries are ``begin`` to ``end``
    of all tables and go to ``found`` from ``at`` on, with the values of its next states and their order.

    ``data`` has memory for these two, ``some`` and ``order``; the values of a dense layer are sorted once.
    """

    def row_means(
        data: Any, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
    ) -> None:
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
                    shift = begin - rows.places[h, 2]
                    for t in range(end - begin):
                        here[t] = values[rows.nexts[shift + t]]
                    sort_decreasing(here, data.order)
                means[pair] = one_row(data, layer.block + pair, begin, end, here, data.order, found, begin - start)

    return row_means


@sum_kernel
def mass_and_mean(row: Floats, values: Floats) -> tuple[float, float]:
    """``sum_t row_t`` and ``sum_t row_t values_t``."""
    mass = 0.0
    mean = 0.0
    for t in range(row.shape[0]):
        mass += row[t]
        mean += row[t] * values[t]
    return mass, mean


@sum_kernel
def mean_of_row(support: Rows, h: int, begin: int, row: Floats, values: Floats) -> float:
    """Of values of the next states, under a row with the support of the one that begins there."""
    total = 0.0
    if support.places[h, 1] < 0:
        for t in range(row.shape[0]):
            total += row[t] * values[t]
    else:
        shift = begin - support.places[h, 2]
        for t in range(row.shape[0]):
            total += row[t] * values[support.nexts[shift + t]]
    return total


@inner_kernel
def normalise(row: Floats) -> None:
    """Make the positive part of a row sum to one."""
    for t in range(row.shape[0]):
        row[t] = max(row[t], 0.0)
    rescale(row)


@inner_kernel
def rescale(row: Floats) -> float:
    """Make a row sum to one; what it did sum to."""
    total = 0.0
    for t in range(row.shape[0]):
        total += row[t]
    for t in range(row.shape[0]):
        row[t] /= total
    return total
