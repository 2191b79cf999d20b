"""Ellipsoids of mixture parameters: the confidence set of linear mixture models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence.base import (
    ConfidenceSet,
    RowTable,
    Supports,
    Table,
    any_of_row,
    layer_sizes_of,
    reachable_states,
    reject,
    restricted,
    row_tables,
    sum_of_row,
)
from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import Rows, SparseRows, dense_supports, flat_rows, sums_of, values_of
from advmdp.rows.ellipsoid import EllipsoidRows, ReducedEllipsoid, ellipsoid_rows_of, reduce_ellipsoid
from advmdp.rows.layer import ROUNDING
from advmdp.rows.mixture import MixtureRows, Weights, mixture_rows_of, weight_sets


class FeatureTables:
    """Features, and what follows from them alone: shared by the sets of all estimates."""

    def __init__(self, tables: list[RowTable]) -> None:
        self.tables = tables

    @cached_property
    def flat(self) -> Table:
        """Those of all layers but the last in one flat array, dense."""
        return np.concatenate([np.empty(0), *(np.asarray(table).ravel() for table in self.tables[:-1])])

    @cached_property
    def rows(self) -> Rows:
        """In flat arrays for compiled passes, what is one object in several layers once: d values for each entry, as
        (d, E) in sparse layers and (S_{h+1}, d, pairs) in dense ones, where inner loops are over entries or pairs."""
        rows = flat_rows(self.tables)
        distinct = {id(table): table for table in self.tables}.values()
        values = [
            table.values.T.ravel() if isinstance(table, SparseRows)
            else table.reshape(-1, *table.shape[2:]).transpose(1, 2, 0).ravel()
            for table in distinct
        ]  # fmt: skip
        return rows.with_values(np.concatenate(values))


class EllipsoidSet(ConfidenceSet):
    """Rows {Phi^T theta : |theta - centre|_Lambda <= radius, a distribution}, theta free per pair.

    ``features[h]`` is (S_h, A, S_{h+1}, d), ``centres[h]`` is (d,), ``grams[h]`` is Lambda_h (d, d),
    and ``radius`` one number or one per layer. ``simplex=True`` adds theta >= 0, for mixtures of d
    simulators. The terminal layer's features, centre and Gram matrix are ignored.

    Layers of features may be sparse, :class:`~advmdp.layered.rows.SparseRows` with d values per entry.  They stay so
    where the rows are mixtures of simulators, as ``weights`` says; other sets make dense tables of them.
    """

    def __init__(
        self,
        features: Sequence[Any],
        centres: Sequence[ArrayLike],
        grams: Sequence[ArrayLike],
        radius: ArrayLike,
        simplex: bool = False,
    ) -> None:
        self.features: list[Any] = row_tables("features", features, extra=1)
        self.layer_sizes = layer_sizes_of(self.features)
        self.n_actions = self.features[0].shape[1]
        self.dim = self.features[0].shape[3]
        self.simplex = simplex
        distinct = {id(table): (h, table) for h, table in reversed(list(enumerate(self.features[:-1])))}.values()
        possible = {}
        for h, table in distinct:
            if simplex:
                reject(f"features[{h}]", h, table, values_of(table) < 0.0, "non-negative when simplex=True")
            positive = (values_of(table) != 0.0).any(axis=-1)
            possible[id(table)] = table.with_values(positive) if isinstance(table, SparseRows) else positive
        # A row that starts in a reachable state can put mass where its feature is not zero.
        self._set_reachable(reachable_states([*(possible[id(table)] for table in self.features[:-1]), None]))
        self.sums = self._common_sums() if simplex else None
        self.sparse = any(isinstance(table, SparseRows) for table in self.features)
        if self.sparse and self.sums is None:
            self.require_narrow("mixtures of simulators, simplex=True with the same sums everywhere, need none")
            self.features, self.sparse = [np.asarray(table) for table in self.features], False
        self.centres, self.grams = self._checked_estimate(centres, grams)
        self.radius = self._per_layer(radius)
        self.feature_tables = FeatureTables(self.features)
        self._supports = Supports(self.features)
        self._reduced: ReducedEllipsoid | None = None
        self._weights: Weights | None = None

    def _common_sums(self) -> Table | None:
        """What the features of each layer but the last sum to over the next states, if that is the same number for all
        coordinates and reachable pairs of the layer."""
        sums: dict[int, Table] = {}
        found = np.empty(self.horizon - 1)
        for h, table in enumerate(self.features[:-1]):
            if id(table) not in sums:
                sums[id(table)] = sums_of(table)
            here = sums[id(table)][self.reachable[h]]
            found[h] = here.mean()
            if not (found[h] > 0.0 and np.abs(here - found[h]).max() <= ROUNDING * found[h]):
                return None
        return found

    def _checked_estimate(
        self, centres: Sequence[ArrayLike], grams: Sequence[ArrayLike]
    ) -> tuple[Sequence[Table] | Table, Sequence[Table] | Table]:
        for name, given in (("centres", centres), ("grams", grams)):
            if len(given) != self.horizon:
                raise InvalidMDPError(f"{name} has {len(given)} layers; features has {self.horizon}")
        checked_centres = [np.ascontiguousarray(centre, dtype=np.float64) for centre in centres]
        checked_grams = [np.ascontiguousarray(gram, dtype=np.float64) for gram in grams]
        for h, (centre, gram) in enumerate(zip(checked_centres, checked_grams, strict=True)):
            if centre.shape != (self.dim,) or gram.shape != (self.dim, self.dim):
                raise InvalidMDPError(
                    f"centres[{h}] has shape {centre.shape} and grams[{h}] {gram.shape}; they must "
                    f"be ({self.dim},) and ({self.dim}, {self.dim})"
                )
            if h == self.horizon - 1:
                continue
            if not np.isfinite(centre).all():
                raise InvalidMDPError(f"centres[{h}] = {centre}: layer {h} needs finite coordinates")
            if not np.isfinite(gram).all() or not np.allclose(gram, gram.T, rtol=1e-10, atol=0.0):
                raise InvalidMDPError(f"grams[{h}] (layer {h}) must be finite and symmetric")
            try:
                np.linalg.cholesky(gram)
            except np.linalg.LinAlgError:
                raise InvalidMDPError(
                    f"grams[{h}] (layer {h}) must be positive definite; its smallest eigenvalue is "
                    f"{np.linalg.eigvalsh(gram)[0]:.3g}"
                ) from None
        return checked_centres, checked_grams

    def _per_layer(self, radius: ArrayLike) -> Table:
        values = np.asarray(radius, dtype=np.float64)
        if values.shape not in ((), (self.horizon,)):
            raise InvalidMDPError(
                f"radius has shape {values.shape}; it must be one number or one per layer ({self.horizon})"
            )
        values = np.array(np.broadcast_to(values, self.horizon))
        for h, value in enumerate(values):
            if not (np.isfinite(value) and value >= 0.0):
                raise InvalidMDPError(f"radius at layer {h} is {value}; it must be finite and not negative")
        return values

    def with_estimate(
        self, centres: Sequence[Table] | Table, grams: Sequence[Table] | Table, radius: float | Table
    ) -> Self:
        """The set of a new estimate, trusted to be of this shape and valid: what a learner calls.

        Features, and what follows from them alone, are shared with this set.
        """
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.centres, new.grams = centres, grams
        new.radius = np.full(self.horizon, radius, dtype=np.float64)
        new._reduced = new._weights = None
        return new

    def _row_data(self) -> tuple[Sequence[Any], ...]:
        return (self.features,)

    def _with_row_data(self, *tables: list[Any]) -> Self:
        (features,) = tables
        return type(self)(features, list(self.centres), list(self.grams), self.radius, self.simplex)

    def enlarged(self, multiple: float) -> Self:
        return self.with_estimate(self.centres, self.grams, multiple * self.radius)

    @property
    def flat_features(self) -> Table:
        """The features of all layers but the last in one flat array, dense; computed once."""
        self.require_narrow("entropy='conditional' works on the possible transitions alone")
        return self.feature_tables.flat

    @property
    def reduced(self) -> ReducedEllipsoid:
        """The row sets pair by pair in the form that the mirror step works on; computed once per set."""
        if self._reduced is None:
            self._reduced = reduce_ellipsoid(
                self.flat_features, self.size_array[:-2], self.size_array[1:-1], self.n_actions,
                np.asarray(self.centres), np.asarray(self.grams), self.radius, self.simplex,
            )  # fmt: skip
        return self._reduced

    @property
    def weights(self) -> Weights | None:
        """The mixture weights of each layer, which all of its row sets are images of, once per set; None where rows
        are no mixtures, or sums of features differ."""
        if self._weights is None and self.sums is not None:
            self._weights = weight_sets(self.sums, np.asarray(self.centres), np.asarray(self.grams), self.radius)
        return self._weights

    def compiled_rows(self) -> MixtureRows | EllipsoidRows:
        widest = max(self.layer_sizes)
        if self.weights is not None:
            return mixture_rows_of(self.weights, self.feature_tables.rows, self.n_actions)
        features = self.flat_features if self.simplex else np.empty(0)
        supports = dense_supports(self.layer_sizes[:-1], self.n_actions)
        return ellipsoid_rows_of(self.reduced, supports, features, self.dim - 1, widest, self.n_actions)

    def _smallest_multiples(self) -> list[Table]:
        """Per pair (S_h, A): the smallest multiple of the radius that leaves it a valid row."""
        last = np.zeros((self.layer_sizes[-2], self.n_actions))
        if self.weights is not None:
            return [
                *(np.full((size, self.n_actions), multiple)
                  for size, multiple in zip(self.layer_sizes, self.weights.smallest, strict=False)),
                last,
            ]  # fmt: skip
        multiples = []
        start = 0
        for size in self.layer_sizes[:-2]:
            blocks = self.reduced.smallest[start : start + size * self.n_actions]
            multiples.append(blocks.reshape(self.n_actions, size).T)
            start += len(blocks)
        return [*multiples, last]

    def empty_pairs(self) -> NDArray[np.intp]:
        return self._list_pairs([multiple > 1.0 + ROUNDING for multiple in self._smallest_multiples()])

    def smallest_radius_multiple(self) -> float:
        if self.weights is not None:
            return float(self.weights.smallest.max(initial=0.0))
        if self.kept_states is None:
            return float(self.reduced.smallest.max(initial=0.0))
        return max(
            float(multiple[reached].max(initial=0.0))
            for multiple, reached in zip(self._smallest_multiples(), self.reachable, strict=False)
        )

    def contains_mixture(self, theta: Sequence[Table], kernels: Sequence[ArrayLike]) -> bool:
        for h in range(self.horizon - 1):
            apart = theta[h] - self.centres[h]
            if apart @ self.grams[h] @ apart > self.radius[h] ** 2 * (1.0 + 1e-9):
                return False
        return True

    def contains(self, kernels: Sequence[ArrayLike], tolerance: float = 1e-9) -> bool:
        tables = self._row_tables("kernels", kernels)
        for h in range(self.horizon - 1):
            away = ~self._surely_contained(h, tables[h], tolerance) & self.reachable[h][:, None]
            for s, a in np.argwhere(away).tolist():
                if self._distance_to_row(h, s, a, tables[h][s, a]) > tolerance:
                    return False
        return True

    def _surely_contained(self, h: int, table: Any, tolerance: float) -> NDArray[np.bool_]:
        """Pairs (S_h, A) whose rows are those of one parameter of the set, the one that fits all of them best."""
        features = self.features[h]
        row, outside = restricted(table, features)
        phi = values_of(features).reshape(-1, self.dim)
        theta = np.linalg.lstsq(phi, row.ravel(), rcond=None)[0]
        apart = theta - self.centres[h]
        if apart @ self.grams[h] @ apart > self.radius[h] ** 2 or (self.simplex and theta.min() < 0.0):
            return np.zeros(features.shape[:2], dtype=np.bool_)
        missing = (row.ravel() - phi @ theta) ** 2
        if isinstance(features, SparseRows):
            squares = np.bincount(features.pairs, missing, minlength=outside.size).reshape(outside.shape)
        else:
            squares = missing.reshape(features.shape[:3]).sum(axis=2)
        valid = ~any_of_row(row < -tolerance, features) & (np.abs(sum_of_row(row, features) - 1.0) <= tolerance)
        return np.asarray(valid & (np.sqrt(squares) + outside <= 0.5 * tolerance))

    def _distance_to_row(self, h: int, s: int, a: int, row: Table) -> float:
        """Euclidean distance of a row from this pair's set (a distribution is not assumed).

        The nearest point solves min |Phi^T theta - row|^2 + mu |theta - centre|_Lambda^2 (theta >= 0)
        for the least mu that keeps theta in the ellipsoid; its norm falls as mu grows.
        """
        from scipy.optimize import nnls  # slow to import

        phi, centre = self.features[h][s, a], self.centres[h]  # of sparse features the dense row
        factor = np.linalg.cholesky(self.grams[h]).T
        radius = float(self.radius[h])
        off_simplex = max(abs(float(row.sum()) - 1.0), -float(row.min()), 0.0)

        def nearest(mu: float) -> tuple[float, float]:
            matrix = np.vstack([phi, np.sqrt(mu) * factor])
            target = np.concatenate([row, np.sqrt(mu) * (factor @ centre)])
            theta = nnls(matrix, target)[0] if self.simplex else np.linalg.lstsq(matrix, target, rcond=None)[0]
            return float(np.linalg.norm(factor @ (theta - centre))), float(np.linalg.norm(phi @ theta - row))

        scale = max(float(np.abs(phi).max()) ** 2, 1e-300) / float(self.grams[h].trace())
        low, high = np.log(scale) - 60.0, np.log(scale) + 60.0
        norm, distance = nearest(np.exp(low))
        if norm > radius:
            for _ in range(80):
                middle = 0.5 * (low + high)
                norm, distance = nearest(np.exp(middle))
                low, high = (middle, high) if norm > radius else (low, middle)
            distance = nearest(np.exp(high))[1]
        return max(distance, off_simplex)
