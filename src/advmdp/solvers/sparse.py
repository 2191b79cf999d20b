"""Cholesky factorisation of small sparse systems whose pattern never changes: an index for every product, made once.

Where each pair leads to few states, as on a grid, most of the blocks of :mod:`advmdp.solvers.tridiagonal` are zeros,
also after elimination.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel

# Unsigned, so that compiled code need not ask whether an index counts from the end.
Indices = NDArray[np.uint32]


class Pattern(NamedTuple):
    """Row i of the upper triangle, fill-in included, has the entries from ``row_at[i]`` on, the diagonal first."""

    row_at: Indices
    column: Indices  # of each entry
    target: Indices  # of each product of the factorisation, in its order: the entry that it is subtracted from
    place: Indices  # of each term of the system, in the order in which it is assembled: its entry


def no_pattern() -> Pattern:
    """That of a system that is not sparse."""
    empty = np.empty(0, dtype=np.uint32)
    return Pattern(empty, empty, empty, empty)


def find_pattern(
    following: Sequence[Sequence[int]], n_states: int, n_actions: int, most_products: int
) -> Pattern | None:
    """The pattern of sum_b (e_s - P_b)(e_s - P_b)' where pair b, of state b // n_actions, leads to ``following[b]``.

    None if the factorisation would take more products than ``most_products``.  The terms are ordered by pair; within a
    pair (s, t) comes before all (t, u) with u >= t, t by t.
    """
    later: list[set[int]] = [set() for _ in range(n_states)]
    for b, states in enumerate(following):
        later[b // n_actions].update(states)
        for e, t in enumerate(states):
            later[t].update(states[e + 1 :])
    columns, products = [], 0
    for i in range(n_states):
        columns.append(sorted(later[i]))
        products += len(later[i]) * (len(later[i]) + 1) // 2
        if products > most_products:
            return None
        if later[i]:
            # What row i fills in is filled in by its first neighbour too, and from there on.
            later[columns[i][0]].update(columns[i][1:])
    row_at = np.concatenate([[0], np.cumsum([1 + len(row) for row in columns])])
    where = [
        {i: start} | {u: start + 1 + p for p, u in enumerate(row)}
        for i, (start, row) in enumerate(zip(row_at.tolist(), columns, strict=False))
    ]
    target = [where[t][u] for row in columns for p, t in enumerate(row) for u in row[p:]]
    place = []
    for b, states in enumerate(following):
        for e, t in enumerate(states):
            place.append(where[b // n_actions][t])
            place.extend(where[t][u] for u in states[e:])
    column = [u for i, row in enumerate(columns) for u in (i, *row)]
    return Pattern(*(np.array(part, dtype=np.uint32) for part in (row_at, column, target, place)))


@inner_kernel
def factor(pattern: Pattern, entries: Floats) -> None:
    """U' D^-1 U in place, D the diagonal of U: its entries are left as they are, on the diagonal their inverses.

    A pivot that rounding has made non-positive belongs to a price that the system does not determine; a huge pivot in
    its place leaves that price where it is.
    """
    row_at, target = pattern.row_at, pattern.target
    at = 0
    for i in range(row_at.size - 1):
        first = row_at[i]
        end = row_at[i + 1]
        inverse = 1.0 / entries[first] if entries[first] > 1e-290 else 1e-200
        entries[first] = inverse
        for p in range(first + 1, end):
            x = entries[p] * inverse
            for r in range(p, end):
                entries[target[at]] -= x * entries[r]
                at += 1


@inner_kernel
def solve(pattern: Pattern, entries: Floats, x: Floats) -> None:
    """Solve in place for one right-hand side, after :func:`factor`."""
    row_at, column = pattern.row_at, pattern.column
    for i in range(row_at.size - 1):
        first = row_at[i]
        value = x[i] * entries[first]
        for p in range(first + 1, row_at[i + 1]):
            x[column[p]] -= entries[p] * value
    for i in range(row_at.size - 2, -1, -1):
        first = row_at[i]
        total = x[i]
        for p in range(first + 1, row_at[i + 1]):
            total -= entries[p] * x[column[p]]
        x[i] = total * entries[first]
