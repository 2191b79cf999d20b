"""What the tabular learners make of visit counts: boxes of kernels around empirical frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import BoxSet, radii
from advmdp.confidence.estimators import EpochCounts
from advmdp.layered import Layers


def bernstein_boxes(counts: EpochCounts, layers: Layers, episodes: int, zeta: float, scale: float) -> BoxSet:
    """Empirical Bernstein intervals around the frequencies at the beginning of the epoch (Jin et al. 2020, eq. 7)."""
    lower, upper = [], []
    for frequency, visits in counts.frequencies():
        width = scale * radii.bernstein(frequency, visits, episodes, layers.n_states, layers.n_actions, zeta)
        # Nothing is known of a pair that was never visited, however small the scale: all distributions.
        width = np.where(visits[..., None] > 0.0, width, 1.0)
        lower.append(frequency - width)
        upper.append(frequency + width)
    last = np.ones((layers.sizes[-2], layers.n_actions, 1))
    return BoxSet([*lower, last], [*upper, last])


def checked_counts(tree: dict[str, Any], layers: Layers) -> EpochCounts:
    """Counts out of a file, or ValueError where they cannot be those of any history."""
    empty = EpochCounts.empty(layers.sizes, layers.n_actions)
    tables = []
    for name in ("transitions", "at_epoch"):
        counts = [float_array(table, name, ValueError) for table in tree[name]]
        if [table.shape for table in counts] != [table.shape for table in empty.transitions]:
            raise ValueError(f"{name} have shapes {[table.shape for table in counts]}")
        if not all((table >= 0.0).all() and (table == np.floor(table)).all() for table in counts):
            raise ValueError(f"{name} are not counts")
        tables.append(tuple(counts))
    if not all((then <= now).all() for now, then in zip(*tables, strict=True)):
        raise ValueError("an epoch began with more visits than there are now")
    return EpochCounts(tables[0], tables[1], integer(tree["epoch"], "epoch", 1, ValueError))
