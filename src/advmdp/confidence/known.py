"""The set of one kernel: the case of known dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    Supports,
    any_of_row,
    distributions,
    layer_sizes_of,
    reachable_states,
    restricted,
    row_tables,
)
from advmdp.layered import IntArray, LayeredMDP
from advmdp.layered.rows import SparseRows, flat_rows, values_of
from advmdp.layered.rows import row_tables as tables_of
from advmdp.rows.known import KnownRows


class KnownKernels(ConfidenceSet):
    """The singleton {P}: ``kernels[h]`` is the table (S_h, A, S_{h+1}) of P_h, dense or sparse.

    ``rows`` has all of them in flat arrays; what is one object in several layers is stored once.
    """

    single = True

    def __init__(self, kernels: Sequence[Any]) -> None:
        tables = distributions("kernels", row_tables("kernels", kernels))
        self.layer_sizes = layer_sizes_of(tables)
        self.n_actions = tables[0].shape[1]
        self.sparse = any(isinstance(table, SparseRows) for table in tables)
        self.rows = flat_rows(tables)
        self.kernels: list[Any] = list(tables_of(self.rows, tables))
        self._compiled_rows = KnownRows(self.rows)
        self._supports = Supports(self.kernels)
        positive = {id(table): table.with_values(table.values > 0.0) if isinstance(table, SparseRows) else table > 0.0
                    for table in self.kernels}  # fmt: skip
        self._set_reachable(reachable_states([positive[id(table)] for table in self.kernels]))

    def _row_data(self) -> tuple[Sequence[Any], ...]:
        return (self.kernels,)

    def _with_row_data(self, *tables: list[Any]) -> Self:
        return type(self)(*tables)

    def compiled_rows(self) -> KnownRows:
        return self._compiled_rows

    def empty_pairs(self) -> NDArray[np.intp]:
        return np.empty((0, 3), dtype=np.intp)

    def smallest_radius_multiple(self) -> float:
        return 0.0

    def enlarged(self, multiple: float) -> Self:
        return self

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        tables = self._row_tables("kernels", kernels)
        for table, known, reached in zip(tables, self.kernels, self.reachable, strict=False):
            row, outside = restricted(table, known)
            away = any_of_row(~(np.abs(row - values_of(known)) <= tolerance), known) | (outside > tolerance)
            if away[reached].any():
                return False
        return True


class Nothing(NamedTuple):
    """What is kept of the data."""

    version: int = 0


class NothingKept:
    """An estimator that keeps nothing."""

    def empty(self) -> Nothing:
        """Before the first episode."""
        return Nothing()

    def add(self, data: Nothing, states: IntArray, actions: IntArray, logged: bool = False) -> Nothing:
        """With one more episode: the same."""
        return data

    def tree(self, data: Nothing) -> dict[str, Any]:
        """For a checkpoint."""
        return {}

    def restore(self, tree: dict[str, Any]) -> Nothing:
        """The inverse of :meth:`tree`."""
        return Nothing()


class KnownTransition:
    """The set {P} of the true kernels."""

    def __init__(self, mdp: LayeredMDP) -> None:
        self.truth = KnownKernels(mdp.kernels)

    def __call__(self, data: Nothing) -> KnownKernels:
        """The truth, whatever the data."""
        return self.truth
