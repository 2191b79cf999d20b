"""Tabular dynamics: visit counts with doubling epochs, and the sets of kernels around their frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import radii
from advmdp.confidence.box import BoxSet
from advmdp.confidence.estimators import EpochCounts
from advmdp.confidence.l1 import L1Set
from advmdp.layered import FloatArray, IntArray, Layers
from advmdp.layered.rows import like, per_entry, values_of


@dataclass(frozen=True)
class VisitCounts:
    """N(s, a, s'); a new epoch begins when a visited pair has doubled its visits, and sets change with epochs only.

    The last decision layer is left out: see :class:`EpochCounts`.
    """

    layers: Layers
    #: Which transitions are possible, where layers are stored sparse: ``TabularModel.support``.
    support: tuple[Any, ...] | None = None

    def empty(self) -> EpochCounts:
        """Before the first episode."""
        return EpochCounts.empty(self.layers.sizes, self.layers.n_actions, self.support)

    def add(self, data: EpochCounts, states: IntArray, actions: IntArray, logged: bool = False) -> EpochCounts:
        """With one more episode."""
        return data.add(states, actions, logged)

    def tree(self, data: EpochCounts) -> dict[str, Any]:
        """For a checkpoint."""
        return data.tree()

    def restore(self, tree: dict[str, Any]) -> EpochCounts:
        """The inverse of :meth:`tree`, or ValueError where it cannot be of any history."""
        empty = self.empty()
        tables = []
        for name in ("transitions", "at_epoch"):
            counts = [float_array(table, name, ValueError) for table in tree[name]]
            if [table.shape for table in counts] != [values_of(table).shape for table in empty.transitions]:
                raise ValueError(f"{name} have shapes {[table.shape for table in counts]}")
            # Nobody has counted further than floating-point numbers do.
            if not all(((table >= 0.0) & (table == np.floor(table)) & (table < 2.0**53)).all() for table in counts):
                raise ValueError(f"{name} are not counts")
            tables.append(tuple(counts))
        if not all((then <= now).all() for now, then in zip(*tables, strict=True)):
            raise ValueError("an epoch began with more visits than there are now")
        epoch = integer(tree["epoch"], "epoch", 1, ValueError)
        tables = [tuple(map(like, empty.transitions, values)) for values in tables]
        return EpochCounts(tables[0], tables[1], epoch, integer(tree["logged"], "logged", 0, ValueError))


@dataclass(frozen=True)
class BernsteinBoxes:
    """Empirical Bernstein intervals around the frequencies at the beginning of the epoch (Jin et al. 2020, eq. 7).

    ``episodes`` is K, over which the failure probability is shared; None: whatever K is.
    """

    layers: Layers
    episodes: int | None
    zeta: float
    scale: float = 1.0

    def __call__(self, counts: EpochCounts) -> BoxSet:
        """The kernels that the counts leave possible."""
        S, A = self.layers.counted[:2]
        if self.episodes is None:
            # For all numbers N of visits at once, failure zeta / (N (N + 1)) each, and N is at most that of episodes.
            # That at the beginning of the epoch, like the frequencies: a set does not change before the next one.
            k = float(values_of(counts.at_epoch[0]).sum()) if counts.at_epoch else 1.0
            K = 2.0 * max(1.0, k) ** 2
        else:
            K = float(self.episodes + counts.logged)
        lower, upper = [], []
        for frequency, visits in counts.frequencies():
            rows = values_of(frequency)
            seen = visits if rows.ndim == 3 else per_entry(frequency, visits)
            # Nothing is known of a pair that was never visited, however small the scale: all distributions.
            known, low, high = seen > 0.0, np.full(rows.shape, -1.0), np.ones(rows.shape)
            width = self.scale * radii.bernstein(rows[known], seen[known], K, S, A, self.zeta)
            low[known], high[known] = rows[known] - width, rows[known] + width
            lower.append(like(frequency, low))
            upper.append(like(frequency, high))
        last = np.ones((self.layers.sizes[-2], self.layers.n_actions, 1))
        return BoxSet([*lower, last], [*upper, last])


@dataclass(frozen=True)
class L1Balls:
    """Rows within eps(s, a) = sqrt(2 S_{h+1} log(K S A / zeta) / max(1, N(s, a))) of their frequency, in l1 norm."""

    layers: Layers
    episodes: int
    zeta: float
    scale: float = 1.0

    def balls(self, counts: EpochCounts) -> tuple[list[FloatArray], list[FloatArray]]:
        """Centres and radii of all layers; every distribution where a pair was never visited."""
        (S, A), K = self.layers.counted[:2], self.episodes + counts.logged
        centres, widths = [], []
        for table, visits in counts.frequencies():
            frequency = np.asarray(table)  # balls are over all next states
            seen = visits > 0.0
            radius = self.scale * radii.weissman(visits, frequency.shape[2], K, S, A, self.zeta)
            centres.append(np.where(seen[..., None], frequency, 1.0 / frequency.shape[2]))
            widths.append(np.where(seen, np.minimum(radius, 2.0), 2.0))
        last = self.layers.sizes[-2], self.layers.n_actions
        return [*centres, np.ones((*last, 1))], [*widths, np.zeros(last)]

    def __call__(self, counts: EpochCounts) -> L1Set | BoxSet:
        """The kernels that the counts leave possible."""
        return L1Set(*self.balls(counts))


@dataclass(frozen=True)
class ShiftedBoxes(L1Balls):
    """(1 - alpha) P + alpha / S_{h+1}, P in the smallest boxes around the balls, so that q(s) >= alpha / S_h."""

    alpha: float = 0.0

    def __call__(self, counts: EpochCounts) -> L1Set | BoxSet:
        """The kernels that the counts leave possible, shifted."""
        # Entries of a difference that sums to zero are at most half its norm.
        lower, upper = [], []
        for centre, radius in zip(*self.balls(counts), strict=True):
            even = self.alpha / centre.shape[2]
            lower.append((1.0 - self.alpha) * np.maximum(centre - 0.5 * radius[..., None], 0.0) + even)
            upper.append((1.0 - self.alpha) * np.minimum(centre + 0.5 * radius[..., None], 1.0) + even)
        return BoxSet(lower, upper)
