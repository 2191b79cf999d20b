"""Balls in the l1 norm around estimated rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    Supports,
    Table,
    any_of_row,
    distributions,
    layer_sizes_of,
    reachable_states,
    reject,
    restricted,
    row_tables,
    sum_of_row,
)
from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import SparseRows, dense_supports, flat_rows, values_of
from advmdp.rows.l1 import L1Rows


class L1Set(ConfidenceSet):
    """Rows {p in the simplex : |p - centre|_1 <= radius} (UC-O-REPS).

    ``centres[h]`` holds distributions (S_h, A, S_{h+1}), ``radii[h]`` is (S_h, A). The centre is itself a
    distribution, so no row set is ever empty.  Where centres are sparse, what they do not store is impossible.
    """

    def __init__(self, centres: Sequence[Any], radii: Sequence[ArrayLike]) -> None:
        self.centres: list[Any] = distributions("centres", row_tables("centres", centres))
        self.layer_sizes = layer_sizes_of(self.centres)
        self.n_actions = self.centres[0].shape[1]
        self.sparse = any(isinstance(table, SparseRows) for table in self.centres)
        self._supports = Supports(self.centres)
        if len(radii) != self.horizon:
            raise InvalidMDPError(f"radii has {len(radii)} layers; centres has {self.horizon}")
        self.radii: list[Table] = []
        for h, given in enumerate(radii):
            radius = np.ascontiguousarray(given, dtype=np.float64)
            expected = (self.layer_sizes[h], self.n_actions)
            if radius.shape != expected:
                raise InvalidMDPError(f"radii[{h}] has shape {radius.shape}; it must be {expected}")
            wrong = ~(np.isfinite(radius) & (radius >= 0.0))
            reject(f"radii[{h}]", h, radius, wrong, "a finite number, not negative")
            self.radii.append(radius)
        self._set_reachable(self._reachable())

    def _reachable(self) -> list[NDArray[np.bool_]]:
        return reachable_states(
            [
                centre.with_values((centre.values > 0.0) | np.repeat(radius.ravel() > 0.0, np.diff(centre.pointers)))
                if isinstance(centre, SparseRows)
                else (centre > 0.0) | (radius > 0.0)[:, :, None]
                for centre, radius in zip(self.centres, self.radii, strict=True)
            ]
        )

    def with_estimate(self, centres: list[Any], radii: list[Table]) -> Self:
        """The set of a new estimate, trusted to be of this shape, on these supports and valid: what a learner calls."""
        new = copy(self)
        new.centres, new.radii = centres, radii
        new._set_reachable(new._reachable())
        return new

    def _row_data(self) -> tuple[Sequence[Any], ...]:
        return self.centres, self.radii

    def _with_row_data(self, *tables: list[Any]) -> Self:
        return type(self)(*tables)

    def compiled_rows(self) -> L1Rows:
        supports = dense_supports(self.layer_sizes, self.n_actions) if not self.sparse else None
        rows = supports.with_values(np.concatenate(self.centres, axis=None)) if supports else flat_rows(self.centres)
        widest = max(self.layer_sizes)
        return L1Rows(rows, np.concatenate(self.radii, axis=None), np.empty(widest), np.empty(widest, dtype=np.int64))

    def row_diameters(self) -> list[Table]:
        return [2.0 * radius for radius in self.radii]

    def row_distances(self, kernels: Sequence[Table]) -> list[Table]:
        around = zip(self.radii, self.centres, kernels, strict=True)
        return [radius + np.abs(centre - row).sum(axis=2) for radius, centre, row in around]

    def empty_pairs(self) -> NDArray[np.intp]:
        return np.empty((0, 3), dtype=np.intp)

    def smallest_radius_multiple(self) -> float:
        return 0.0

    def enlarged(self, multiple: float) -> Self:
        return self.with_estimate(self.centres, [multiple * radius for radius in self.radii])

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        tables = self._row_tables("kernels", kernels)
        for table, centre, radius, reached in zip(tables, self.centres, self.radii, self.reachable, strict=False):
            row, outside = restricted(table, centre)
            inside = (
                ~any_of_row(row < -tolerance, centre)
                & (outside <= tolerance)
                & (np.abs(sum_of_row(row, centre) - 1.0) <= tolerance)
                & (sum_of_row(np.abs(row - values_of(centre)), centre) <= radius + tolerance)
            )
            if not inside[reached].all():
                return False
        return True
