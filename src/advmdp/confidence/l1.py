"""Balls in the l1 norm around estimated rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    Table,
    check_distributions,
    layer_sizes_of,
    reachable_states,
    reject,
    row_tables,
)
from advmdp.errors import InvalidMDPError


class L1Set(ConfidenceSet):
    """Rows {p in the simplex : |p - centre|_1 <= radius} (UC-O-REPS).

    ``centres[h]`` holds distributions (S_h, A, S_{h+1}), ``radii[h]`` is (S_h, A). The centre is itself a
    distribution, so no row set is ever empty.
    """

    def __init__(self, centres: Sequence[ArrayLike], radii: Sequence[ArrayLike]) -> None:
        self.centres = row_tables("centres", centres)
        check_distributions("centres", self.centres)
        self.layer_sizes = layer_sizes_of(self.centres)
        self.n_actions = self.centres[0].shape[1]
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
                (centre > 0.0) | (radius > 0.0)[:, :, None]
                for centre, radius in zip(self.centres, self.radii, strict=True)
            ]
        )

    def with_estimate(self, centres: list[Table], radii: list[Table]) -> Self:
        """The set of a new estimate, trusted to be of this shape and valid: what a learner calls."""
        new = copy(self)
        new.centres, new.radii = centres, radii
        new._set_reachable(new._reachable())
        return new

    def _row_data(self) -> tuple[Sequence[Table], ...]:
        return self.centres, self.radii

    def _with_row_data(self, *tables: list[Table]) -> Self:
        return self.with_estimate(*tables)

    def empty_pairs(self) -> NDArray[np.intp]:
        return np.empty((0, 3), dtype=np.intp)

    def smallest_radius_multiple(self) -> float:
        return 0.0

    def enlarged(self, multiple: float) -> Self:
        return self.with_estimate(self.centres, [multiple * radius for radius in self.radii])

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        rows = self._row_tables("kernels", kernels)
        for row, centre, radius, reached in zip(rows, self.centres, self.radii, self.reachable, strict=False):
            inside = (
                (row.min(axis=2) >= -tolerance)
                & (np.abs(row.sum(axis=2) - 1.0) <= tolerance)
                & (np.abs(row - centre).sum(axis=2) <= radius + tolerance)
            )
            if not inside[reached].all():
                return False
        return True
