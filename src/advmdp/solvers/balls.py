"""Balls in the l1 norm as polyhedra, in the form in which the interior-point method takes its row sets.

A row is P = centre - v + u, with what is taken away, 0 <= v <= centre, and what is added, u >= 0, of equal sums, at
most half the radius: |P - centre|_1 <= radius exactly where there are such u and v.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats
from advmdp.confidence import L1Set
from advmdp.solvers.ellipsoid import Rows
from advmdp.solvers.layout import Layout, allocate, layer_views
from advmdp.solvers.problem import Problem

# Less of a centre or of a radius is none: the set would be too thin for floating point.
THINNEST = 1e-13


class Balls(NamedTuple):
    """Centres (m, N) and radii (N) of each layer but the last, blocks a-major."""

    centres: list[Floats]
    radii: list[Floats]

    @classmethod
    def of(cls, confidence_set: L1Set, problem: Problem) -> Balls:
        """Of the reachable states of a step."""
        centres, radii = [], []
        for h in range(len(problem.sizes) - 2):
            centre, radius = confidence_set.centres[h], confidence_set.radii[h]
            if problem.kept is not None:
                centre = centre[problem.kept[h]][:, :, problem.kept[h + 1]]
                radius = radius[problem.kept[h]]
            centres.append(centre.transpose(2, 1, 0).reshape(centre.shape[2], -1))
            radii.append(radius.T.ravel())
        return cls(centres, radii)

    @property
    def rows(self) -> list[int]:
        """Inequalities per block: of v twice, of u, and of its sum."""
        return [3 * len(centre) + 1 for centre in self.centres]

    @property
    def free(self) -> list[int]:
        """Coordinates: u and v, whose sums are equal."""
        return [2 * len(centre) - 1 for centre in self.centres]

    def polyhedra(self, layout: Layout) -> Rows:
        """P = P0 + G chi, E0 + E chi >= 0, around rows inside; the ball |chi| <= 1 cuts nothing off.

        What cannot move has slopes of zero and slacks of one.
        """
        made: Rows = allocate(Rows, layout)
        made.E0[:] = 1.0
        for h, (centres, radii) in enumerate(zip(self.centres, self.radii, strict=True)):
            m, N = centres.shape
            ((rows, slopes, offsets, normals),) = layer_views(layout, h, (made,))
            rows[:] = centres
            for b in range(N):
                moving = np.flatnonzero(centres[:, b] > THINNEST)
                centre, half = centres[moving, b], min(0.5 * radii[b], 1.0)
                if half <= THINNEST or m == 1:
                    continue
                # Half of what may be moved, or of what there is, taken evenly and handed out evenly.
                taken = 0.5 * min(half, 1.0) * centre
                added = np.full(m, taken.sum() / m)
                count = len(moving)
                equal = np.concatenate([np.ones(count), -np.ones(m)])
                steps = np.linalg.qr(np.column_stack([equal, np.eye(count + m)]))[0][:, 1 : count + m]
                steps = 4.0 * half * steps  # longer than any u and v are
                v, u = steps[:count], steps[count:]
                free = count + m - 1
                rows[moving, b] -= taken
                rows[:, b] += added
                slopes[:, :free, b] += u
                slopes[moving, :free, b] -= v
                offsets[moving, b], normals[moving, :free, b] = taken, v
                offsets[m + moving, b], normals[m + moving, :free, b] = centre - taken, -v
                offsets[2 * m : 3 * m, b], normals[2 * m : 3 * m, :free, b] = added, u
                offsets[3 * m, b], normals[3 * m, :free, b] = half - added.sum(), -u.sum(axis=0)
        return made
