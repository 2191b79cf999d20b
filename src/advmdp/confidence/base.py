"""What every confidence set has in common: its layers, its questions, and the checks of its tables.

A set is a product of convex row sets, one per pair (s, a), each a subset of the probability simplex
over the next layer. The last layer is a single state, so its rows are always [1.0].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.errors import InvalidMDPError
from advmdp.layered import with_copied_rows

Table = NDArray[np.float64]

ROUNDING = 1e-12
"""Sums of probabilities are compared with one up to this much, the error of adding a long row."""


ENLARGEMENT = 1.01
"""An empty set is enlarged to this much more than the smallest multiple of its radius that is not empty."""


class ConfidenceSet(ABC):
    """A product of row sets, one per pair: kernels are lists over layers of ``(S_h, A, S_{h+1})``.

    Immutable: learners replace a set, they never change one.
    """

    layer_sizes: tuple[int, ...]
    n_actions: int
    reachable: list[NDArray[np.bool_]]
    """Over layers 0..H: can the state have positive probability under some kernel of the set at all?
    Decided by the zero pattern of the data alone, so a True may still be refuted by the numbers."""
    flat_reachable: NDArray[np.bool_]
    """The same in one vector."""
    size_array: NDArray[np.int64]
    """``layer_sizes`` for compiled code."""
    kept_states: list[NDArray[np.intp]] | None
    """The reachable states of each layer, or None if all are."""

    @property
    def horizon(self) -> int:
        """H, the number of decisions in an episode."""
        return len(self.layer_sizes) - 1

    @abstractmethod
    def smallest_radius_multiple(self) -> float:
        """The smallest multiple that ``enlarged`` could be given without leaving a pair empty.

        At most one for a set without empty pairs; infinite if no multiple helps.
        """

    @abstractmethod
    def enlarged(self, multiple: float) -> Self:
        """The same set with its radius multiplied."""

    @abstractmethod
    def empty_pairs(self) -> NDArray[np.intp]:
        """Rows (layer, state, action) of reachable pairs whose row set is empty; shape (count, 3)."""

    def enlarged_if_empty(self) -> tuple[Self, float]:
        """Itself and 1; where a row set is empty, the set with a radius so much larger that none is, and the factor."""
        multiple = self.smallest_radius_multiple()
        if multiple <= 1.0:
            return self, 1.0
        return self.enlarged(ENLARGEMENT * multiple), ENLARGEMENT * multiple

    def with_rows_of(self, actions: Sequence[NDArray[np.intp]]) -> Self:
        """The set in which the row set of pair (s, a) of layer h is that of (s, ``actions[h][s, a]``)."""
        tables = self._row_data()
        copied = [[with_copied_rows(t, a) for t, a in zip(part, actions, strict=True)] for part in tables]
        same = all(
            np.array_equal(old, new)
            for part, copy in zip(tables, copied, strict=True)
            for old, new in zip(part, copy, strict=True)
        )
        return self if same else self._with_row_data(*copied)

    @abstractmethod
    def _row_data(self) -> tuple[Sequence[Table], ...]:
        """What the row sets are made of: lists over layers of tables ``(S_h, A, ...)``."""

    @abstractmethod
    def _with_row_data(self, *tables: list[Table]) -> Self:
        """The same set with other :meth:`_row_data`."""

    @abstractmethod
    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        """Does each row of a reachable state lie in its row set, up to this distance?"""

    def hull(self) -> tuple[list[Table], list[Table]]:
        """Least and greatest value of each entry over its row set, as two lists of tables.

        Exact. The rows of an empty pair are NaN.
        """
        from advmdp.solvers.occupancy_bounds import entrywise_hull

        return entrywise_hull(self)

    def _set_reachable(self, reachable: list[NDArray[np.bool_]]) -> None:
        self.reachable = reachable
        self.flat_reachable = np.concatenate(reachable)
        self.size_array = np.array(self.layer_sizes, dtype=np.int64)
        everywhere = self.flat_reachable.all()
        self.kept_states = None if everywhere else [np.flatnonzero(reached) for reached in reachable]

    def _row_tables(self, name: str, tables: Sequence[ArrayLike]) -> list[Table]:
        """Check tables (S_h, A, S_{h+1}) against the shape of this set."""
        if len(tables) != self.horizon:
            raise InvalidMDPError(f"{name} has {len(tables)} layers; this set needs {self.horizon}")
        checked = row_tables(name, tables)
        for h, table in enumerate(checked):
            expected = (self.layer_sizes[h], self.n_actions, self.layer_sizes[h + 1])
            if table.shape != expected:
                raise InvalidMDPError(f"{name}[{h}] has shape {table.shape}; this set needs {expected}")
        return checked

    def _layers(self, flat: Table) -> list[Table]:
        """Views of a flat array as tables (S_h, A, S_{h+1})."""
        tables = []
        start = 0
        for n, m in zip(self.layer_sizes[:-1], self.layer_sizes[1:], strict=True):
            end = start + n * self.n_actions * m
            tables.append(flat[start:end].reshape(n, self.n_actions, m))
            start = end
        return tables

    def _list_pairs(self, flags: Sequence[NDArray[np.bool_]]) -> NDArray[np.intp]:
        """Indices (layer, state, action) of the flagged pairs among reachable states."""
        found = []
        for h, flag in enumerate(flags):
            pairs = np.argwhere(flag & self.reachable[h][:, None])
            found.append(np.column_stack([np.full(len(pairs), h, dtype=np.intp), pairs]))
        return np.concatenate(found).astype(np.intp)


def row_tables(name: str, tables: Sequence[ArrayLike], extra: int = 0) -> list[Table]:
    """Check a list over layers of tables (S_h, A, S_{h+1}) with ``extra`` further axes; finite, and
    consistent from layer to layer."""
    if len(tables) == 0:
        raise InvalidMDPError(f"{name} is empty; at least one layer is needed")
    checked = [np.ascontiguousarray(table, dtype=np.float64) for table in tables]
    for h, table in enumerate(checked):
        if table.ndim != 3 + extra or 0 in table.shape:
            axes = "(S_h, A, S_{h+1}, d)" if extra else "(S_h, A, S_{h+1})"
            raise InvalidMDPError(f"{name}[{h}] has shape {table.shape}; it must be {axes}, none of them zero")
        if h > 0 and table.shape[0] != checked[h - 1].shape[2]:
            raise InvalidMDPError(
                f"{name}[{h}] has {table.shape[0]} states but {name}[{h - 1}] leads to {checked[h - 1].shape[2]}"
            )
        if table.shape[1] != checked[0].shape[1]:
            raise InvalidMDPError(f"{name}[{h}] has {table.shape[1]} actions but {name}[0] has {checked[0].shape[1]}")
        if extra and table.shape[3:] != checked[0].shape[3:]:
            raise InvalidMDPError(f"{name}[{h}] has dimension {table.shape[3]} but {name}[0] has {checked[0].shape[3]}")
        reject(f"{name}[{h}]", h, table, ~np.isfinite(table), "a finite number")
    if checked[0].shape[0] != 1 or checked[-1].shape[2] != 1:
        raise InvalidMDPError(
            f"{name} starts with {checked[0].shape[0]} states and ends in {checked[-1].shape[2]}; "
            "the first and the terminal layer must be single states"
        )
    return checked


def layer_sizes_of(tables: Sequence[Table]) -> tuple[int, ...]:
    """Sizes of layers 0..H of checked tables."""
    return (*(table.shape[0] for table in tables), tables[-1].shape[2])


def reject(name: str, layer: int, table: Table, wrong: NDArray[np.bool_], requirement: str) -> None:
    """Raise for the first flagged entry of a table (S_h, A, ...), naming where it stands."""
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        labels = ("state", "action", "next state", "coordinate")
        place = ", ".join(f"{label} {i}" for label, i in zip(labels, where, strict=False))
        raise InvalidMDPError(f"{name}: value {float(table[where])!r} at layer {layer}, {place} must be {requirement}")


def check_distributions(name: str, tables: Sequence[Table]) -> None:
    """Every row must be non-negative and sum to one."""
    for h, table in enumerate(tables):
        reject(f"{name}[{h}]", h, table, table < 0.0, "non-negative")
        sums = table.sum(axis=2)
        reject(f"row sums of {name}[{h}]", h, sums, np.abs(sums - 1.0) > 1e-8, "one (within 1e-8)")


def reachable_states(possible: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    """Forward closure of 'entry (s, a, s') may be positive' from the single first state.

    ``possible`` has H entries (S_h, A, S_{h+1}); the terminal state is always reached.
    """
    reached: list[NDArray[np.bool_]] = [np.ones(1, dtype=np.bool_)]
    for table in possible[:-1]:
        reached.append(np.asarray(table[reached[-1]].any(axis=(0, 1))))
    reached.append(np.ones(1, dtype=np.bool_))
    return reached
