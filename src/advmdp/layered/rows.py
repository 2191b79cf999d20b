"""Rows on their supports: what is stored of a layer where most transitions are impossible.

A row belongs to a pair (s, a) and has an entry for each next state that the pair can lead to: all of them in a dense
layer, an array ``(S_h, A, S_{h+1})``, and a few in a sparse one, :class:`SparseRows`.  Entries hold a probability, or d
features.  :class:`Rows` has those of all layers in a few flat arrays, for compiled passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import fits_in_memory
from advmdp._compiled import inner_kernel, sum_kernel
from advmdp.errors import InvalidMDPError
from advmdp.layered.shape import FloatArray, IntArray, Layers, read_only


class SparseRows:
    """The rows of a layer by their entries, in the order of pairs, then next states; immutable.

    ``np.asarray`` makes a dense array of it, if that fits into memory, and ``tocsr`` a sparse matrix of SciPy.
    """

    def __init__(
        self, pointers: IntArray, nexts: NDArray[np.int32], values: NDArray[Any], shape: tuple[int, ...]
    ) -> None:
        #: Entries ``pointers[p]`` to ``pointers[p + 1]`` are those of pair p = s A + a.
        self.pointers = pointers
        #: The next state of each entry.
        self.nexts = nexts
        #: Its probability ``(E,)``, or its features ``(E, d)``.
        self.values = values
        #: As of a dense array: ``(S_h, A, S_{h+1})``, and d.
        self.shape = shape
        for part in (pointers, nexts, values):
            part.flags.writeable = False

    @classmethod
    def of_matrix(cls, matrix: Any, n_actions: int) -> Self:
        """From a sparse matrix of SciPy ``(S_h * A, S_{h+1})``; a private copy, without zeros."""
        copy = matrix.tocsr().astype(np.float64, copy=True)
        copy.sum_duplicates()
        copy.eliminate_zeros()
        copy.sort_indices()
        shape = (copy.shape[0] // n_actions, n_actions, copy.shape[1])
        return cls(copy.indptr.astype(np.int64), copy.indices.astype(np.int32), copy.data, shape)

    @property
    def ndim(self) -> int:
        """3, or 4 with features."""
        return len(self.shape)

    @property
    def pairs(self) -> IntArray:
        """The pair of each entry."""
        return np.repeat(np.arange(self.pointers.size - 1), np.diff(self.pointers))

    def with_values(self, values: NDArray[Any]) -> SparseRows:
        """Other values on the same support."""
        return SparseRows(self.pointers, self.nexts, values, (*self.shape[:3], *values.shape[1:]))

    def taken(self, pairs: NDArray[np.intp]) -> SparseRows:
        """The rows of these pairs ``(S_h, A)`` in place of the own ones."""
        rows = pairs.ravel()
        lengths = np.diff(self.pointers)[rows]
        pointers = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        entries = np.repeat(self.pointers[rows] - pointers[:-1], lengths) + np.arange(pointers[-1])
        return SparseRows(pointers, self.nexts[entries], self.values[entries], self.shape)

    def sums(self) -> FloatArray:
        """Over the next states, ``(S_h, A)`` or ``(S_h, A, d)``."""
        some = self.pointers[1:] > self.pointers[:-1]
        values = self.values.astype(np.float64, copy=False)
        if some.all():
            found = np.add.reduceat(values, self.pointers[:-1], axis=0)
        else:
            found = np.zeros((some.size, *self.shape[3:]))
            if some.any():
                found[some] = np.add.reduceat(values, self.pointers[:-1][some], axis=0)
        return found.reshape(*self.shape[:2], *self.shape[3:])

    def place(self, entry: int) -> tuple[int, int, int]:
        """State, action and next state of an entry."""
        pair = int(np.searchsorted(self.pointers, entry, side="right")) - 1
        state, action = divmod(pair, self.shape[1])
        return state, action, int(self.nexts[entry])

    def tocsr(self) -> Any:
        """A sparse matrix of SciPy, ``(S_h * A, S_{h+1})``."""
        from scipy.sparse import csr_array

        n, n_actions, m = self.shape[:3]
        return csr_array((self.values, self.nexts, self.pointers), shape=(n * n_actions, m))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        size = int(np.prod(self.shape))
        fits_in_memory(4 * self.values.itemsize * size, f"a dense table of {size} entries", InvalidMDPError)
        dense = np.zeros((self.pointers.size - 1, *self.shape[2:]), dtype=self.values.dtype)
        dense[self.pairs, self.nexts] = self.values
        return dense.reshape(self.shape).astype(dtype or dense.dtype, copy=False)

    def __getitem__(self, index: tuple[int, ...]) -> Any:
        """The dense row of ``[s, a]``, or an entry of it."""
        state, action, *rest = index
        if not (0 <= state < self.shape[0] and 0 <= action < self.shape[1]):
            raise IndexError(f"pair ({state}, {action}) is outside {self.shape[:2]}")
        pair = state * self.shape[1] + action
        here = slice(self.pointers[pair], self.pointers[pair + 1])
        row = np.zeros(self.shape[2:], dtype=self.values.dtype)
        row[self.nexts[here]] = self.values[here]
        return row[tuple(rest)] if rest else row

    def tree(self) -> dict[str, Any]:
        """For a file."""
        return {"pointers": self.pointers, "nexts": self.nexts, "values": self.values, "shape": list(self.shape)}


#: A layer of kernels or features.
Table = FloatArray | SparseRows


def is_sparse(entry: Any) -> bool:
    """Whether this is a sparse matrix, of SciPy or ours; SciPy need not be imported to say so."""
    return hasattr(entry, "tocsr")


def sparse_table(entry: Any, n_actions: int | None, what: str) -> SparseRows:
    """Rows out of a sparse matrix of SciPy, or of ours, or of the tree of ours, checked."""
    if isinstance(entry, SparseRows):
        return entry
    if n_actions is None or entry.ndim != 2 or not entry.shape[0] or entry.shape[0] % n_actions:
        raise InvalidMDPError(
            f"{what} is a sparse matrix of shape {entry.shape}, should be (S_h * A, S_{{h+1}}), rows ordered by state, "
            "then action, and all layers alike"
        )
    return SparseRows.of_matrix(entry, n_actions)


def rows_from_tree(tree: Any, what: str) -> SparseRows:
    """The inverse of :meth:`SparseRows.tree`, or InvalidMDPError."""
    try:
        shape = tuple(int(n) for n in tree["shape"])
        pointers, nexts = (np.array(tree[name]) for name in ("pointers", "nexts"))
        values = np.array(tree["values"], dtype=np.float64)
        sound = (
            3 <= len(shape) <= 4 and min(shape) > 0
            and pointers.shape == (shape[0] * shape[1] + 1,) and pointers.dtype.kind in "iu"
            and nexts.ndim == 1 and nexts.dtype.kind in "iu" and values.shape == (nexts.size, *shape[3:])
            and pointers[0] == 0 and pointers[-1] == nexts.size
            and bool((np.diff(pointers.astype(np.int64)) >= 0).all())
            and (nexts.size == 0 or 0 <= int(nexts.min()) <= int(nexts.max()) < shape[2])
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidMDPError(f"{what} are not rows on their supports: {error}") from error
    if sound:
        rows = SparseRows(pointers.astype(np.int64), nexts.astype(np.int32), values, shape)
        keys = rows.pairs * shape[2] + rows.nexts
        sound = bool((np.diff(keys) > 0).all())
    if not sound:
        raise InvalidMDPError(f"{what} are not rows on their supports: pointers, next states and values do not fit")
    return rows


def values_of(table: Any) -> Any:
    """The stored values of a layer."""
    return table.values if isinstance(table, SparseRows) else table


def like(table: Any, values: NDArray[Any]) -> Any:
    """A layer on the same support with other values."""
    return table.with_values(values) if isinstance(table, SparseRows) else values


def sums_of(table: Any) -> FloatArray:
    """Sums over the next states, ``(S_h, A)`` or ``(S_h, A, d)``."""
    found: FloatArray = table.sums() if isinstance(table, SparseRows) else table.sum(axis=2)
    return found


def per_entry(table: Any, numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers of pairs ``(S_h, A)`` in a shape that goes with the values of a layer."""
    return numbers.ravel()[table.pairs] if isinstance(table, SparseRows) else numbers[:, :, None]


def same_rows(one: Any, other: Any) -> bool:
    """Whether two layers hold the same."""
    if isinstance(one, SparseRows) and isinstance(other, SparseRows):
        same = one.shape == other.shape and np.array_equal(one.pointers, other.pointers)
        return same and np.array_equal(one.nexts, other.nexts) and np.array_equal(one.values, other.values)
    return np.array_equal(one, other)


# ------------------------------------------------------------------------------------ for compiled passes


class Rows(NamedTuple):
    """The rows of all layers; what is one object in several layers is there once.

    Pair p of a dense layer h with m next states has the entries ``places[h, 0] + p m`` and the m - 1 that follow, one
    for each next state; of a sparse layer ``at[places[h, 1] + p]`` to the next of ``at``, and the next state of entry e
    is ``nexts[e - places[h, 2]]``.
    """

    #: ``(H, 3)``: the first entry; the first row in ``at``, -1 for a dense layer; what entries are ahead of ``nexts``.
    places: IntArray
    at: IntArray
    nexts: NDArray[np.int32]
    #: ``(E,)``, or ``(E, d)`` for features.
    values: NDArray[Any]

    def with_values(self, values: NDArray[Any]) -> Rows:
        """Other values on the same supports."""
        return self._replace(values=values)


#: The same without names, which a kernel of small passes is given: they would cost as much as the pass.
RowParts = tuple[Any, ...]


def flat_rows(tables: Sequence[Table | NDArray[Any]]) -> Rows:
    """The rows of these layers."""
    distinct: dict[int, Any] = {}
    for table in tables:
        distinct.setdefault(id(table), table)
    entry = row = sparse = 0
    found: dict[int, tuple[int, int, int]] = {}
    at, nexts, values = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)], []
    for key, table in distinct.items():
        if isinstance(table, SparseRows):
            found[key] = entry, row, entry - sparse
            at.append(entry + table.pointers)
            nexts.append(table.nexts)
            row += table.pointers.size
            sparse += table.nexts.size
            values.append(table.values)
        else:
            found[key] = entry, -1, 0
            values.append(table.reshape(-1, *table.shape[3:]))
        entry += len(values[-1])
    places = np.array([found[id(table)] for table in tables], dtype=np.int64)
    flat = np.concatenate(values)
    return Rows(*(read_only(part) for part in (places, np.concatenate(at), np.concatenate(nexts), flat)))


def row_tables(rows: Rows, tables: Sequence[Any]) -> tuple[Any, ...]:
    """These layers once more, as views of the flat values that were made of them."""
    views: dict[int, Any] = {}
    for table, (start, _, _) in zip(tables, rows.places.tolist(), strict=True):
        if id(table) not in views:
            count = len(table.values) if isinstance(table, SparseRows) else int(np.prod(table.shape[:3]))
            part = rows.values[start : start + count]
            views[id(table)] = table.with_values(part) if isinstance(table, SparseRows) else part.reshape(table.shape)
    return tuple(views[id(table)] for table in tables)


@lru_cache(maxsize=64)
def dense_supports(sizes: tuple[int, ...], n_actions: int) -> Rows:
    """The supports of layers in which everything is possible, without values."""
    counts = [n * n_actions * m for n, m in pairwise(sizes)]
    places = np.zeros((len(counts), 3), dtype=np.int64)
    places[:, 0], places[:, 1] = np.cumsum([0, *counts])[:-1], -1
    nothing = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0)
    return Rows(*(read_only(part) for part in (places, *nothing)))


def own_values(rows: Rows, layers: Layers, slots: Sequence[int]) -> tuple[Rows, IntArray]:
    """The same supports for other values, which layers share where their ``slots`` are equal (and supports too).

    Returned are those rows, still without values, and ``parts`` ``(P, 4)``: for each stretch of values the slot, the
    first entry of ``rows``, the first of the new ones, and how many they are.  The last part ends where the values do.
    """
    places, at, parts = np.empty_like(rows.places), [np.empty(0, dtype=np.int64)], []
    found: dict[tuple[int, int], int] = {}
    entry = row = 0
    for h, (start, first, shift) in enumerate(rows.places.tolist()):
        pairs = layers.sizes[h] * layers.n_actions
        key = (slots[h], start)
        if key not in found:
            found[key] = h
            places[h] = entry, -1, 0
            count = pairs * layers.sizes[h + 1]
            if first >= 0:
                pointers = rows.at[first : first + pairs + 1] - start
                count = int(pointers[-1])
                places[h] = entry, row, entry - start + shift
                at.append(entry + pointers)
                row += pointers.size
            parts.append((slots[h], start, entry, count))
            entry += count
        places[h] = places[found[key]]
    numbers = read_only(np.array(parts, dtype=np.int64))
    return Rows(read_only(places), read_only(np.concatenate(at)), rows.nexts, read_only(np.empty(0))), numbers


@inner_kernel
def row_begin(rows: Rows, h: int, pair: int, width: int) -> int:
    """The first entry of a pair of layer h, which has ``width`` next states."""
    first = rows.places[h, 1]
    begin = rows.places[h, 0] + pair * width if first < 0 else rows.at[first + pair]
    return int(begin)


@inner_kernel
def row_end(rows: Rows, h: int, pair: int, width: int) -> int:
    """One more than the last entry of a pair."""
    first = rows.places[h, 1]
    end = rows.places[h, 0] + (pair + 1) * width if first < 0 else rows.at[first + pair + 1]
    return int(end)


@inner_kernel
def next_state(rows: Rows, h: int, begin: int, entry: int) -> int:
    """The next state of an entry of the row that begins at ``begin``."""
    state = entry - begin if rows.places[h, 1] < 0 else rows.nexts[entry - rows.places[h, 2]]
    return int(state)


@inner_kernel
def entry_of(rows: Rows, h: int, pair: int, width: int, state: int) -> int:
    """The entry of a next state in the row of a pair, or -1 where it is not in the support."""
    begin = row_begin(rows, h, pair, width)
    if rows.places[h, 1] < 0:
        return begin + state
    shift = rows.places[h, 2]
    low, high = begin, row_end(rows, h, pair, width)
    while low < high:
        middle = (low + high) // 2
        if rows.nexts[middle - shift] < state:
            low = middle + 1
        else:
            high = middle
    if low < row_end(rows, h, pair, width) and rows.nexts[low - shift] == state:
        return low
    return -1


@sum_kernel
def layer_means(rows: Rows, h: int, first: int, end: int, width: int, value: FloatArray, means: FloatArray) -> None:
    """sum_{s'} P(s' | s, a) V(s') of the pairs from ``first`` to ``end`` of layer h, V from its first state on."""
    row = rows.places[h, 1]
    if row < 0:
        begin = rows.places[h, 0] + first * width
        for pair in range(first, end):
            total = 0.0
            for t in range(width):
                total += rows.values[begin + t] * value[t]
            means[pair] = total
            begin += width
    else:
        shift = rows.places[h, 2]
        begin = rows.at[row + first]
        for pair in range(first, end):
            stop = rows.at[row + pair + 1]
            total = 0.0
            for e in range(begin, stop):
                total += rows.values[e] * value[rows.nexts[e - shift]]
            means[pair] = total
            begin = stop
