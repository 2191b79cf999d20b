"""Intervals around each entry of each row."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._compiled import kernel
from advmdp.confidence.base import (
    ROUNDING,
    ConfidenceSet,
    Table,
    layer_sizes_of,
    reject,
    row_tables,
)
from advmdp.layered.rows import like, values_of


class BoxSet(ConfidenceSet):
    """Rows {p in the simplex : lower <= p <= upper}, tables (S_h, A, S_{h+1}).

    Bounds may be given unclipped, as centre minus and plus width: the attributes ``lower`` and
    ``upper`` are their intersection with [0, 1], while ``enlarged`` scales the given intervals. (An
    interval that misses [0, 1] leaves lower > upper, an empty pair.)
    """

    def __init__(self, lower: Sequence[ArrayLike], upper: Sequence[ArrayLike]) -> None:
        lower = row_tables("lower", lower)
        self.layer_sizes = layer_sizes_of(lower)
        self.n_actions = lower[0].shape[1]
        upper = self._row_tables("upper", upper)
        for h, (low, high) in enumerate(zip(lower, upper, strict=True)):
            reject(f"lower[{h}]", h, low, low > high, "at most the upper bound of that entry")
        self._set_intervals(lower, upper)

    def _set_intervals(self, lower: list[Table], upper: list[Table]) -> None:
        self._given = lower, upper
        # The one entry of a terminal row is one whatever the caller wrote there.
        ones = np.ones(self.layer_sizes[-2] * self.n_actions)
        self.flat_lower = np.concatenate([*(table.ravel() for table in lower[:-1]), ones])
        self.flat_upper = np.concatenate([*(table.ravel() for table in upper[:-1]), ones])
        np.maximum(self.flat_lower, 0.0, out=self.flat_lower)
        np.minimum(self.flat_upper, 1.0, out=self.flat_upper)
        self.lower = self._layers(self.flat_lower)
        self.upper = self._layers(self.flat_upper)
        reached = np.zeros(sum(self.layer_sizes), dtype=np.bool_)
        sizes = np.array(self.layer_sizes, dtype=np.int64)
        mark_reachable(self.flat_lower, self.flat_upper, sizes, self.n_actions, reached)
        self._set_reachable(np.split(reached, np.cumsum(self.layer_sizes[:-1])))

    def with_estimate(self, lower: list[Table], upper: list[Table]) -> Self:
        """The set of new intervals, trusted to be of this shape and ordered: what a learner calls."""
        new = copy(self)
        new._set_intervals(lower, upper)
        return new

    def _row_data(self) -> tuple[Sequence[Table], ...]:
        return self._given

    def _with_row_data(self, *tables: list[Table]) -> Self:
        return self.with_estimate(*tables)

    def empty_pairs(self) -> NDArray[np.intp]:
        return self._list_pairs(
            [
                (low.sum(axis=2) > 1.0 + ROUNDING) | (high.sum(axis=2) < 1.0 - ROUNDING) | (low > high).any(axis=2)
                for low, high in zip(self.lower, self.upper, strict=True)
            ]
        )

    def smallest_radius_multiple(self) -> float:
        worst = 0.0
        for h in range(self.horizon - 1):
            low, high = (bounds[h][self.reachable[h]] for bounds in self._given)
            multiples = _least_multiples(0.5 * (low + high), 0.5 * (high - low))
            worst = max(worst, float(multiples.max(initial=0.0)))
        return worst

    def enlarged(self, multiple: float) -> Self:
        lower, upper = [], []
        for low, high in zip(*self._given, strict=True):
            middle, half = 0.5 * (low + high), 0.5 * multiple * (high - low)
            lower.append(middle - half)
            upper.append(middle + half)
        return self.with_estimate(lower, upper)

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        rows = self._row_tables("kernels", kernels)
        for row, low, high, reached in zip(rows, self.lower, self.upper, self.reachable, strict=False):
            inside = (
                (row >= low - tolerance).all(axis=2)
                & (row <= high + tolerance).all(axis=2)
                & (np.abs(row.sum(axis=2) - 1.0) <= tolerance)
            )
            if not inside[reached].all():
                return False
        return True


def all_kernels(layer_sizes: Sequence[int], n_actions: int, support: Sequence[Any] | None = None) -> BoxSet:
    """The set of all kernels, on a support if there is one: what is known before the first episode."""
    if support is not None:
        shapes = [values_of(table).shape for table in support]
        low, high = ([like(t, make(n)) for t, n in zip(support, shapes, strict=True)] for make in (np.zeros, np.ones))
        return BoxSet(low, high)
    shapes = [(n, n_actions, m) for n, m in pairwise(layer_sizes)]
    return BoxSet([np.zeros(shape) for shape in shapes], [np.ones(shape) for shape in shapes])


@kernel
def mark_reachable(
    lower: Table,
    upper: Table,
    sizes: NDArray[np.int64],
    n_actions: int,
    reached: NDArray[np.bool_],
) -> None:
    """Forward closure of 'may be positive', from the single first state.

    An entry is held at zero by its own upper bound or by the lower bounds of the others, if they sum to
    one: a price for such a state's flow would be without bound.
    """
    reached[0] = True
    reached[reached.shape[0] - 1] = True
    state = 0
    entry = 0
    for h in range(sizes.shape[0] - 2):
        n = sizes[h]
        m = sizes[h + 1]
        for s in range(n):
            for _ in range(n_actions):
                if reached[state + s]:
                    room = 1.0
                    for t in range(m):
                        room -= lower[entry + t]
                    for t in range(m):
                        most = min(upper[entry + t], room + lower[entry + t])
                        if most > ROUNDING:
                            reached[state + n + t] = True
                entry += m
        state += n


def _least_multiples(middle: Table, half: Table) -> Table:
    """Least t >= 0 per row with a distribution in [middle - t half, middle + t half].

    The conditions sum_j max(0, middle - t half) <= 1 <= sum_j min(1, middle + t half) are a convex
    decreasing and a concave increasing function of t, both piecewise linear: Newton's method from
    t = 0 climbs to each root from below, past at least one breakpoint per step.
    """
    # Every single interval must meet [0, 1]: this bounds t from below.
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.where(middle < 0.0, -middle, np.where(middle > 1.0, middle - 1.0, 0.0))
        multiple = np.where(need > 0.0, need / half, 0.0).max(axis=-1)
        for _ in range(2 * middle.shape[-1] + 2):
            t = multiple[..., None]
            low, high = middle - t * half, middle + t * half
            too_high = np.maximum(low, 0.0).sum(axis=-1) - 1.0
            too_low = 1.0 - np.minimum(high, 1.0).sum(axis=-1)
            fall = np.where(low > 0.0, half, 0.0).sum(axis=-1)
            rise = np.where(high < 1.0, half, 0.0).sum(axis=-1)
            step = np.maximum(
                np.where(too_high > ROUNDING, too_high / fall, 0.0),
                np.where(too_low > ROUNDING, too_low / rise, 0.0),
            )
            if not np.any(step > 0.0):
                break
            multiple = multiple + step
    return np.asarray(multiple)
