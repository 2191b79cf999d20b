"""Intervals around each entry of each row."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    RowTable,
    Supports,
    Table,
    any_of_row,
    layer_sizes_of,
    reject,
    restricted,
    row_tables,
    sum_of_row,
)
from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import SparseRows, dense_supports, flat_rows, like, sums_of, values_of
from advmdp.layered.rows import row_tables as tables_of
from advmdp.rows.box import BoxRows, least_multiples, mark_reachable
from advmdp.rows.layer import ROUNDING


class BoxSet(ConfidenceSet):
    """Rows {p in the simplex : lower <= p <= upper}, tables (S_h, A, S_{h+1}).

    Bounds may be given unclipped, as centre minus and plus width: the attributes ``lower`` and
    ``upper`` are their intersection with [0, 1], while ``enlarged`` scales the given intervals. (An
    interval that misses [0, 1] leaves lower > upper, an empty pair.)  Layers may be sparse: what ``upper`` does not
    store is impossible, and ``lower`` may have fewer entries, which are zero then.

    ``rows`` has ``lower`` in flat arrays, and ``flat_upper`` the upper bounds of the same entries.  ``some_empty``:
    whether a pair of a reachable state has no distribution; ``loose``, (S_h, A) per layer: which of them have every.
    """

    def __init__(self, lower: Sequence[Any], upper: Sequence[Any]) -> None:
        upper = row_tables("upper", upper)
        lower = row_tables("lower", lower)
        self.layer_sizes = layer_sizes_of(lower)
        self.n_actions = lower[0].shape[1]
        upper = self._row_tables("upper", upper)
        for h, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if isinstance(low, SparseRows) or isinstance(high, SparseRows):
                lower[h] = _on_support(h, low, high)
            reject(f"lower[{h}]", h, lower[h], values_of(lower[h]) > values_of(high),
                   "at most the upper bound of that entry")  # fmt: skip
        self.sparse = any(isinstance(table, SparseRows) for table in upper)
        self._supports = Supports(upper)
        self._set_intervals(lower, upper)

    def _set_intervals(self, lower: list[Any], upper: list[Any]) -> None:
        self._given: tuple[list[RowTable], list[RowTable]] = lower, upper
        # The one entry of a terminal row is one whatever the caller wrote there.
        last = np.ones((self.layer_sizes[-2], self.n_actions, 1))
        bounds = [[*tables[:-1], last] for tables in (lower, upper)]
        flat = [np.concatenate([values_of(table) for table in tables], axis=None) for tables in bounds]
        np.maximum(flat[0], 0.0, out=flat[0])
        np.minimum(flat[1], 1.0, out=flat[1])
        if self.sparse:
            # Bounds differ from layer to layer even where supports are shared: each has its own entries.
            tables = [t.with_values(t.values) if isinstance(t, SparseRows) else t.view() for t in bounds[0]]
            self.rows = flat_rows(tables).with_values(flat[0])
        else:
            tables = bounds[0]
            self.rows = dense_supports(self.layer_sizes, self.n_actions).with_values(flat[0])
        self.flat_lower, self.flat_upper = flat
        self.lower = list(tables_of(self.rows, tables))
        self.upper = list(tables_of(self.rows.with_values(self.flat_upper), tables))
        reached = np.zeros(sum(self.layer_sizes), dtype=np.bool_)
        sizes = np.array(self.layer_sizes, dtype=np.int64)
        loose = np.zeros(self.n_actions * len(reached), dtype=np.bool_)
        self.some_empty = mark_reachable(self.rows, self.flat_upper, sizes, self.n_actions, reached, loose)
        self.loose = np.split(loose.reshape(-1, self.n_actions), np.cumsum(self.layer_sizes[:-1]))[:-1]
        self._set_reachable(np.split(reached, np.cumsum(self.layer_sizes[:-1])))

    def with_estimate(self, lower: list[Any], upper: list[Any]) -> Self:
        """The set of new intervals, trusted to be of this shape and support and ordered: what a learner calls."""
        new = copy(self)
        new._set_intervals(lower, upper)
        return new

    def _row_data(self) -> tuple[Sequence[Any], ...]:
        return self._given

    def _with_row_data(self, *tables: list[Any]) -> Self:
        new = copy(self)
        new.sparse = any(isinstance(table, SparseRows) for table in tables[0])
        new._supports = Supports(tables[0])
        new._set_intervals(*tables)
        return new

    def compiled_rows(self) -> BoxRows:
        widest = max(self.layer_sizes)
        return BoxRows(self.rows, self.flat_upper, np.empty(widest), np.empty(widest, dtype=np.int64))

    def _entry_ranges(self) -> tuple[list[Any], list[Any]]:
        return self.lower, self.upper

    def empty_pairs(self) -> NDArray[np.intp]:
        return self._list_pairs(
            [
                (sums_of(low) > 1.0 + ROUNDING)
                | (sums_of(high) < 1.0 - ROUNDING)
                | any_of_row(values_of(low) > values_of(high), low)
                for low, high in zip(self.lower, self.upper, strict=True)
            ]
        )

    def empty_out_of_sight(self) -> bool:
        # By an interval below zero.
        return self.kept_states is not None and self.some_empty

    def enlarged_if_empty(self) -> tuple[Self, float]:
        return super().enlarged_if_empty() if self.some_empty else (self, 1.0)

    def smallest_radius_multiple(self) -> float:
        worst = 0.0
        for h in range(self.horizon - 1):
            low, high = (_padded(bounds[h])[self.reachable[h]] for bounds in self._given)
            multiples = least_multiples(0.5 * (low + high), 0.5 * (high - low))
            worst = max(worst, float(multiples.max(initial=0.0)))
        return worst

    def enlarged(self, multiple: float) -> Self:
        lower, upper = [], []
        for low, high in zip(*self._given, strict=True):
            middle = 0.5 * (values_of(low) + values_of(high))
            half = 0.5 * multiple * (values_of(high) - values_of(low))
            lower.append(low.with_values(middle - half) if isinstance(low, SparseRows) else middle - half)
            upper.append(low.with_values(middle + half) if isinstance(low, SparseRows) else middle + half)
        return self.with_estimate(lower, upper)

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        tables = self._row_tables("kernels", kernels)
        for table, low, high, reached in zip(tables, self.lower, self.upper, self.reachable, strict=False):
            row, outside = restricted(table, low)
            wrong = ~((row >= values_of(low) - tolerance) & (row <= values_of(high) + tolerance))
            inside = (
                ~any_of_row(wrong, low)
                & (outside <= tolerance)
                & (np.abs(sum_of_row(row, low) - 1.0) <= tolerance)
            )  # fmt: skip
            if not inside[reached].all():
                return False
        return True


def _on_support(h: int, low: Any, high: Any) -> RowTable:
    """Lower bounds on the support of the upper ones."""
    values, outside = restricted(low, high)
    if outside.any():
        state, action = np.argwhere(outside)[0].tolist()
        raise InvalidMDPError(
            f"lower[{h}] has an entry at layer {h}, state {state}, action {action} that upper[{h}] does not store"
        )
    return high.with_values(values) if isinstance(high, SparseRows) else np.ascontiguousarray(values)


def _padded(table: RowTable) -> Table:
    """Rows (S_h, A, longest): those of a sparse table in front, and zeros, which change no sum."""
    if not isinstance(table, SparseRows):
        return table
    lengths = np.diff(table.pointers)
    found = np.zeros((len(lengths), int(lengths.max(initial=1))))
    found[np.arange(found.shape[1]) < lengths[:, None]] = table.values
    return found.reshape(*table.shape[:2], -1)


def all_kernels(layer_sizes: Sequence[int], n_actions: int, support: Sequence[Any] | None = None) -> BoxSet:
    """The set of all kernels, on a support if there is one: what is known before the first episode."""
    if support is not None:
        tables = {id(table): (table, values_of(table).shape) for table in support}
        low, high = ({key: like(t, make(n)) for key, (t, n) in tables.items()} for make in (np.zeros, np.ones))
        return BoxSet([low[id(table)] for table in support], [high[id(table)] for table in support])
    shapes = [(n, n_actions, m) for n, m in pairwise(layer_sizes)]
    return BoxSet([np.zeros(shape) for shape in shapes], [np.ones(shape) for shape in shapes])
