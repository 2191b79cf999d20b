"""The set of one kernel: the case of known dynamics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    check_distributions,
    layer_sizes_of,
    reachable_states,
    row_tables,
)


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
