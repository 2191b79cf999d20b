"""What every confidence set has in common: its layers, its questions, and the checks of its tables.

A set is a product of convex row sets, one per pair (s, a), each a subset of the probability simplex
over the next layer. The last layer is a single state, so its rows are always [1.0].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered import with_copied_rows
from advmdp.layered.rows import SparseRows, is_sparse, like, per_entry, sparse_table, sums_of, values_of
from advmdp.rows.layer import ROUNDING as ROUNDING
from advmdp.rows.layer import Layer, layer_hull

#: Dense: ``(S_h, A, ...)``.
Table = NDArray[np.float64]
#: Of a layer, ``(S_h, A, S_{h+1})`` and perhaps d: what a sparse one does not store is zero in every kernel of the set.
RowTable = Table | SparseRows

ENLARGEMENT = 1.01
"""An empty set is enlarged to this much more than the smallest multiple of its radius that is not empty."""


LARGEST_DENSE = 2 * 10**7
"""So many entries may the dense tables of a sparse set have, where dense ones are needed."""


class Arrivals(NamedTuple):
    """The states that lead to each next state of sparse layers; what is one table in several layers is there once.

    Those of next state t are ``states[at[f + t]:at[f + t + 1]]``, f = ``first[h, 0]``, in ascending order.
    """

    #: ``(H, 2)``: the place of a layer in ``at``, -1 for a dense layer, and in ``slots``.
    first: NDArray[np.int64]
    at: NDArray[np.int64]
    states: NDArray[np.int32]
    #: For each entry of a layer, which of its states and next states it belongs to: counted from ``at[f]`` on.
    slots: NDArray[np.int32]


class Supports:
    """Which transitions are possible in each layer, and what follows from that alone: shared by the sets of later
    estimates, whichever of them asks first."""

    def __init__(self, tables: Sequence[Any]) -> None:
        self.tables = tables

    @cached_property
    def arrivals(self) -> Arrivals:
        """The entries of sparse layers by their next states."""
        return _arrivals(self.tables)

    @cached_property
    def ends(self) -> list[int]:
        """Where the entries of each layer but the last end, one layer after the other; with a zero ahead."""
        return list(
            accumulate(
                (len(t.values) if isinstance(t, SparseRows) else int(np.prod(t.shape[:3])) for t in self.tables[:-1]),
                initial=0,
            )
        )


class ConfidenceSet(ABC):
    """A product of row sets, one per pair: kernels are lists over layers of ``(S_h, A, S_{h+1})``.

    Immutable: learners replace a set, they never change one.
    """

    single = False
    """Whether there is one kernel in the set, by what it is."""
    sparse: bool
    """Whether some layer is stored by its possible transitions alone."""
    _supports: Supports

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

    def empty_out_of_sight(self) -> bool:
        """Whether a pair is empty by its probability of a state that is not reachable, which solvers leave out."""
        return False

    def enlarged_if_empty(self) -> tuple[Self, float]:
        """Itself and 1; where a row set is empty, the set with a radius so much larger that none is, and the factor."""
        multiple = self.smallest_radius_multiple()
        if multiple <= 1.0:
            return self, 1.0
        return self.enlarged(ENLARGEMENT * multiple), ENLARGEMENT * multiple

    def with_rows_of(self, actions: Sequence[NDArray[np.intp]]) -> Self:
        """The set in which the row set of pair (s, a) of layer h is that of (s, ``actions[h][s, a]``)."""
        if all((table == np.arange(self.n_actions)).all() for table in actions):
            return self
        return self._with_row_data(
            *([with_copied_rows(table, taken) for table, taken in zip(part, actions, strict=True)]
              for part in self._row_data())
        )  # fmt: skip

    def dense(self) -> Self:
        """The same set with dense tables, for what needs them; ``InvalidSpecError`` if one would be too large."""
        if not self.sparse:
            return self
        self.require_narrow("entropy='conditional' works on the possible transitions alone")
        return self._with_row_data(*([np.asarray(table) for table in part] for part in self._row_data()))

    def require_narrow(self, instead: str) -> None:
        """Raise if dense tables would be too large for what needs them, and say what does not."""
        if not self.sparse:
            return
        sizes = [n * self.n_actions * m for n, m in pairwise(self.layer_sizes)]
        if sum(sizes) > LARGEST_DENSE:
            h = int(np.argmax(sizes))
            n, m = self.layer_sizes[h : h + 2]
            raise InvalidSpecError(
                f"this needs dense tables of {sum(sizes):.3g} entries, {8 * sum(sizes) / 2**30:.1f} GiB each (layer "
                f"{h} has {n} states and leads to {m}), and steps over pairs or triples about "
                f"{float(max(n, m)) ** 3:.0e} operations per iteration and layer; {instead}"
            )

    @property
    def arrivals(self) -> Arrivals:
        """The transposed supports of sparse layers."""
        return self._supports.arrivals

    @property
    def n_entries(self) -> int:
        """Possible transitions of all layers but the last."""
        return self._supports.ends[-1]

    @abstractmethod
    def _row_data(self) -> tuple[Sequence[Any], ...]:
        """What the row sets are made of: lists over layers of tables ``(S_h, A, ...)``, rows first."""

    @abstractmethod
    def _with_row_data(self, *tables: list[Any]) -> Self:
        """The same set with other :meth:`_row_data`."""

    @abstractmethod
    def compiled_rows(self) -> Any:
        """The rows of all layers as a named tuple of :mod:`advmdp.rows`, for compiled passes; its memory is new."""

    @abstractmethod
    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        """Does each row of a reachable state lie in its row set, up to this distance?"""

    def contains_mixture(self, theta: Sequence[Table], kernels: Sequence[ArrayLike]) -> bool:
        """:meth:`contains`, of mixtures with these parameters; a set of parameters asks whether they are in it."""
        return self.contains(kernels)

    def row_diameters(self) -> list[Table]:
        """A bound on the l1 distance of two rows of each pair, (S_h, A): the sum of the ranges of its entries."""
        return [(high - low).sum(axis=2) for low, high in zip(*self._entry_ranges(), strict=True)]

    def row_distances(self, kernels: Sequence[Table]) -> list[Table]:
        """A bound on the l1 distance of these rows from any of the set, (S_h, A): each entry at its largest."""
        ranges = zip(*self._entry_ranges(), kernels, strict=True)
        return [np.maximum(high - row, row - low).sum(axis=2) for low, high, row in ranges]

    def _entry_ranges(self) -> tuple[list[Any], list[Any]]:
        """Between which bounds each entry lies."""
        return self.hull()

    def hull(self) -> tuple[list[Any], list[Any]]:
        """Least and greatest value of each entry over its row set, as two lists of tables, sparse where the set is.

        Exact. The rows of an empty pair are NaN.
        """
        data = self.compiled_rows()
        low, high = np.empty((2, self.n_entries))
        for h, (begin, end) in enumerate(pairwise(self._supports.ends)):
            layer = self.layer(h)
            layer_hull(
                data, layer, self.arrivals, np.arange(layer.n), np.zeros(layer.m), np.empty(layer.n * layer.n_actions),
                low[begin:end], high[begin:end],
            )  # fmt: skip
        return self.tables(np.maximum(low, 0.0)), self.tables(np.maximum(high, 0.0))

    def tables(self, flat: NDArray[np.float64]) -> list[Any]:
        """Entries of all layers but the last, in this order, as tables on the supports of the set, then ones."""
        found = []
        for table, (begin, end) in zip(self._supports.tables, pairwise(self._supports.ends), strict=False):
            part = flat[begin:end]
            found.append(like(table, part) if isinstance(table, SparseRows) else part.reshape(table.shape[:3]))
        return [*found, np.ones((self.layer_sizes[-2], self.n_actions, 1))]

    def layer(self, h: int) -> Layer:
        """Where layer h lies, for compiled passes."""
        n, m = self.layer_sizes[h : h + 2]
        return Layer(h, n, self.n_actions, m, self.n_actions * sum(self.layer_sizes[:h]))

    def _set_reachable(self, reachable: list[NDArray[np.bool_]]) -> None:
        self.reachable = reachable
        self.flat_reachable = np.concatenate(reachable)
        self.size_array = np.array(self.layer_sizes, dtype=np.int64)
        everywhere = self.flat_reachable.all()
        self.kept_states = None if everywhere else [np.flatnonzero(reached) for reached in reachable]

    def _row_tables(self, name: str, tables: Sequence[Any]) -> list[Any]:
        """Check tables (S_h, A, S_{h+1}) against the shape of this set."""
        if len(tables) != self.horizon:
            raise InvalidMDPError(f"{name} has {len(tables)} layers; this set needs {self.horizon}")
        checked = row_tables(name, tables, n_actions=self.n_actions)
        for h, table in enumerate(checked):
            expected = (self.layer_sizes[h], self.n_actions, self.layer_sizes[h + 1])
            if table.shape != expected:
                raise InvalidMDPError(f"{name}[{h}] has shape {table.shape}; this set needs {expected}")
        return checked

    def _list_pairs(self, flags: Sequence[NDArray[np.bool_]]) -> NDArray[np.intp]:
        """Indices (layer, state, action) of the flagged pairs among reachable states."""
        found = []
        for h, flag in enumerate(flags):
            pairs = np.argwhere(flag & self.reachable[h][:, None])
            found.append(np.column_stack([np.full(len(pairs), h, dtype=np.intp), pairs]))
        return np.concatenate(found).astype(np.intp)


def _arrivals(tables: Sequence[Any]) -> Arrivals:
    first: dict[int, tuple[int, int]] = {}
    at, states, slots = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.int32)]
    row = slot = entry = 0
    for table in tables:
        if isinstance(table, SparseRows) and id(table) not in first:
            first[id(table)] = row, entry
            n, n_actions, m = table.shape[:3]
            # Which of all (next state, state) are there, and which of them each entry is.
            found, which = np.unique(table.nexts * np.int64(n) + table.pairs // n_actions, return_inverse=True)
            at.append(slot + np.searchsorted(found, np.arange(m + 1) * n))
            states.append((found % n).astype(np.int32))
            slots.append(which.astype(np.int32))
            row, slot, entry = row + m + 1, slot + found.size, entry + which.size
    places = np.array([first.get(id(table), (-1, 0)) for table in tables], dtype=np.int64)
    return Arrivals(places, np.concatenate(at), np.concatenate(states), np.concatenate(slots))


def restricted(table: Any, support: Any) -> tuple[NDArray[np.float64], Table]:
    """The entries of a table on the support of another one, and the sum of the absolute values of the others, (S_h, A).

    On that of a dense one, ``support`` may be anything of its shape, all entries count.
    """
    if not isinstance(support, SparseRows):
        return np.asarray(table), np.zeros(table.shape[:2])
    if isinstance(table, SparseRows) and table.nexts is support.nexts and table.pointers is support.pointers:
        return table.values, np.zeros(table.shape[:2])
    n, n_actions, m = support.shape[:3]
    pairs = support.pairs
    if not isinstance(table, SparseRows):
        others = np.abs(table).reshape(n * n_actions, m)
        others[pairs, support.nexts] = 0.0
        return table.reshape(n * n_actions, m)[pairs, support.nexts], others.sum(axis=1).reshape(n, n_actions)
    keys, places = table.pairs * m + table.nexts, pairs * m + support.nexts
    inside = np.isin(keys, places)
    values = np.zeros(len(places))
    values[np.searchsorted(places, keys[inside])] = table.values[inside]
    outside = np.bincount(table.pairs[~inside], np.abs(table.values[~inside]), minlength=n * n_actions)
    return values, outside.astype(np.float64).reshape(n, n_actions)


def any_of_row(flags: NDArray[np.bool_], support: Any) -> NDArray[np.bool_]:
    """Whether an entry of the row is flagged, (S_h, A)."""
    if not isinstance(support, SparseRows):
        return np.asarray(flags.any(axis=2))
    found = np.zeros(support.shape[0] * support.shape[1], dtype=np.bool_)
    found[support.pairs[flags]] = True
    return found.reshape(support.shape[:2])


def sum_of_row(values: NDArray[np.float64], support: Any) -> Table:
    """Of entries on a support, (S_h, A)."""
    return sums_of(like(support, values))


def row_tables(name: str, tables: Sequence[Any], extra: int = 0, n_actions: int | None = None) -> list[Any]:
    """Check a list over layers of tables (S_h, A, S_{h+1}) with ``extra`` further axes; finite, and
    consistent from layer to layer.  Sparse ones stay sparse, and what is one object stays one."""
    if len(tables) == 0:
        raise InvalidMDPError(f"{name} is empty; at least one layer is needed")
    found: dict[int, Any] = {}
    if n_actions is None and is_sparse(tables[0]):  # the rows of a sparse matrix of the first state are its actions
        n_actions = tables[0].shape[1 if isinstance(tables[0], SparseRows) else 0]
    for h, table in enumerate(tables):
        if id(table) not in found:
            found[id(table)] = (
                sparse_table(table, n_actions, f"{name}[{h}]")
                if is_sparse(table)
                else np.ascontiguousarray(table, dtype=np.float64)
            )
    checked = [found[id(table)] for table in tables]
    seen: set[int] = set()
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
        if id(table) not in seen:
            reject(f"{name}[{h}]", h, table, ~np.isfinite(values_of(table)), "a finite number")
        seen.add(id(table))
    if checked[0].shape[0] != 1 or checked[-1].shape[2] != 1:
        raise InvalidMDPError(
            f"{name} starts with {checked[0].shape[0]} states and ends in {checked[-1].shape[2]}; "
            "the first and the terminal layer must be single states"
        )
    return checked


def layer_sizes_of(tables: Sequence[RowTable]) -> tuple[int, ...]:
    """Sizes of layers 0..H of checked tables."""
    return (*(table.shape[0] for table in tables), tables[-1].shape[2])


def reject(name: str, layer: int, table: RowTable, wrong: NDArray[np.bool_], requirement: str) -> None:
    """Raise for the first flagged entry of a table (S_h, A, ...), naming where it stands."""
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        value = float(values_of(table)[place])
        where = (*table.place(place[0]), *place[1:]) if isinstance(table, SparseRows) else place
        labels = ("state", "action", "next state", "coordinate")
        words = ", ".join(f"{label} {i}" for label, i in zip(labels, where, strict=False))
        raise InvalidMDPError(f"{name}: value {value!r} at layer {layer}, {words} must be {requirement}")


def distributions(name: str, tables: Sequence[RowTable]) -> list[RowTable]:
    """Tables whose rows must be non-negative and sum to one; where they do so up to 1e-8 only, their rows divided by
    their sums.  What is one object stays one."""
    found: dict[int, RowTable] = {}
    for h, table in enumerate(tables):
        if id(table) in found:
            continue
        reject(f"{name}[{h}]", h, table, values_of(table) < 0.0, "non-negative")
        sums = sums_of(table)
        reject(f"row sums of {name}[{h}]", h, sums, np.abs(sums - 1.0) > 1e-8, "one (within 1e-8)")
        exact = np.abs(sums - 1.0).max(initial=0.0) <= ROUNDING
        found[id(table)] = table if exact else like(table, values_of(table) / per_entry(table, sums))
    return [found[id(table)] for table in tables]


def reachable_states(possible: Sequence[Any]) -> list[NDArray[np.bool_]]:
    """Forward closure of 'entry (s, a, s') may be positive' from the single first state.

    ``possible`` has H tables of bool (S_h, A, S_{h+1}); the terminal state is always reached.
    """
    reached: list[NDArray[np.bool_]] = [np.ones(1, dtype=np.bool_)]
    pairs: dict[int, NDArray[np.intp]] = {}
    for table in possible[:-1]:
        if isinstance(table, SparseRows):
            if id(table.pointers) not in pairs:
                pairs[id(table.pointers)] = table.pairs
            from_reached = reached[-1][pairs[id(table.pointers)] // table.shape[1]]
            following = np.zeros(table.shape[2], dtype=np.bool_)
            following[table.nexts[from_reached & table.values]] = True
            reached.append(following)
        else:
            reached.append(np.asarray(table[reached[-1]].any(axis=(0, 1))))
    reached.append(np.ones(1, dtype=np.bool_))
    return reached
