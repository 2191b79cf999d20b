"""The set of one kernel: the case of known dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    Table,
    check_distributions,
    layer_sizes_of,
    reachable_states,
    row_tables,
)
from advmdp.layered import IntArray, LayeredMDP


class KnownKernels(ConfidenceSet):
    """The singleton {P}: ``kernels[h]`` is the table (S_h, A, S_{h+1}) of P_h."""

    def __init__(self, kernels: Sequence[ArrayLike]) -> None:
        tables = row_tables("kernels", kernels)
        check_distributions("kernels", tables)
        self.layer_sizes = layer_sizes_of(tables)
        self.n_actions = tables[0].shape[1]
        self.flat_kernels = np.concatenate(tables, axis=None)
        self.kernels = self._layers(self.flat_kernels)
        self._set_reachable(reachable_states([kernel > 0.0 for kernel in self.kernels]))

    def _row_data(self) -> tuple[Sequence[Table], ...]:
        return (self.kernels,)

    def _with_row_data(self, *tables: list[Table]) -> Self:
        return type(self)(*tables)

    def empty_pairs(self) -> NDArray[np.intp]:
        return np.empty((0, 3), dtype=np.intp)

    def smallest_radius_multiple(self) -> float:
        return 0.0

    def enlarged(self, multiple: float) -> Self:
        return self

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        rows = self._row_tables("kernels", kernels)
        return all(
            bool(np.all(np.abs(row - known)[reached] <= tolerance))
            for row, known, reached in zip(rows, self.kernels, self.reachable, strict=False)
        )


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
