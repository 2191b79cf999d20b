"""From a process that is described state by state to layers: which states can be where after h steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import LAYER, fits_in_memory, kernels_fit_in_memory
from advmdp.errors import InvalidSpecError
from advmdp.layered import validation
from advmdp.layered.mdps import LinearMixtureMDP
from advmdp.layered.mixtures import stack
from advmdp.layered.rows import SparseRows
from advmdp.layered.shape import FloatArray, IntArray
from advmdp.scene import Scene

#: Outcomes that are less probable than this are impossible: they are below the rounding of what sums to one.
NEGLIGIBLE = 1e-18
#: A layer with so few entries is an array even among sparse ones.
TINY = 1000
#: One step of a process: for a state and an action, the probability of each next state.
Step = Callable[[Any, int], Mapping[Any, float]]


class Unrolled:
    """Processes over states 0, 1, ... with the same actions, as layers of an episode.

    Layer h holds, in ascending order, what *any* of the processes can reach in h steps, so that layers tell nothing of
    the weights with which processes are mixed.  Layers with the same states share what is built of them.
    """

    def __init__(self, processes: Sequence[SparseRows], start: int, horizon: int) -> None:
        table = stack(processes)
        assert isinstance(table, SparseRows)
        n_states, self.n_actions, _, self._dim = table.shape
        fits_in_memory(
            horizon * (LAYER + 8 * self.n_actions * self._dim), f"a world of {horizon} layers", InvalidSpecError
        )
        self._table = table
        #: The states of layers 0..H-1.
        self.layers: list[IntArray] = [np.array([start])]
        # Of each layer but the last: rows on their supports, and their places in the table of all states.
        self._rows: list[tuple[SparseRows, IntArray]] = []
        place = np.empty(n_states, dtype=np.int32)
        known: dict[bytes, int] = {}
        entries = 0
        self._some_sparse = False
        while len(self.layers) < horizon:
            h, here = len(self.layers) - 1, self.layers[-1]
            before = known.setdefault(here.tobytes(), h)
            if before < h:  # from here on layers repeat
                while len(self.layers) < horizon:
                    self._rows.append(self._rows[before])
                    self.layers[-1] = self.layers[before]
                    before += 1
                    self.layers.append(self.layers[before])
                break
            pairs = (here[:, None] * self.n_actions + np.arange(self.n_actions)).ravel()
            lengths = table.pointers[pairs + 1] - table.pointers[pairs]
            pointers = np.concatenate([[0], np.cumsum(lengths)])
            places = np.repeat(table.pointers[pairs] - pointers[:-1], lengths) + np.arange(pointers[-1])
            targets = table.nexts.take(places)
            counted = np.arange(targets.size, dtype=np.int32)
            place[targets] = counted  # of equal ones the last stays
            there = np.sort(targets[place.take(targets) == counted]).astype(np.int64)
            place[there] = counted[: there.size]
            nexts = place.take(targets)
            shape = (here.size, self.n_actions, there.size, self._dim)
            rows = SparseRows(pointers, nexts, np.empty((nexts.size, 0)), shape)
            size = int(np.prod(shape[:3]))
            mostly_zeros = nexts.size < validation.DENSE_SHARE * size
            self._some_sparse |= mostly_zeros and size > validation.DENSE_ENTRIES
            entries += nexts.size if mostly_zeros else size
            what = f"a world with {there.size} states in a layer"
            kernels_fit_in_memory(entries, self._dim, what, InvalidSpecError)
            self._rows.append((rows, places))
            self.layers.append(there)

    @property
    def states(self) -> IntArray:
        """The states of all layers 0..H-1, one after the other."""
        return np.concatenate(self.layers)

    def named(self, names: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """The states of each layer, and the end: their numbers, or what they are called."""
        built: dict[int, tuple[Any, ...]] = {}
        for layer in self.layers:
            if id(layer) not in built:
                numbers = layer.tolist()
                built[id(layer)] = tuple(numbers if names is None else [names[i] for i in numbers])
        return [*(built[id(layer)] for layer in self.layers), ("end",)]

    def kernels(self) -> list[list[Any]]:
        """Of each process a list over layers: arrays, or sparse rows where that is much less."""
        built: dict[int, list[Any]] = {}
        for rows, places in self._rows:
            if id(rows) not in built:
                values = self._table.values[places]
                tables = [SparseRows(rows.pointers, rows.nexts, v, rows.shape[:3]) for v in np.array(values.T)]
                built[id(rows)] = tables if self._is_sparse(rows) else [np.array(table) for table in tables]
        last = np.ones((self.layers[-1].size, self.n_actions, 1))
        return [[*(built[id(rows)][i] for rows, _ in self._rows), last] for i in range(self._dim)]

    def _is_sparse(self, rows: SparseRows) -> bool:
        """Whether a layer is stored sparse: some large one is, and this one is mostly zeros too, and not tiny."""
        size = int(np.prod(rows.shape[:3]))
        least = min(validation.DENSE_ENTRIES, TINY)
        return self._some_sparse and size > least and rows.nexts.size < validation.DENSE_SHARE * size

    def mixture(
        self, weights: FloatArray, scene: Scene, available: Sequence[ArrayLike] | None = None
    ) -> LinearMixtureMDP:
        """The world in which the processes are mixed with these weights."""
        if not self._some_sparse:
            return LinearMixtureMDP.from_kernels(self.kernels(), weights, available=available, scene=scene)
        # What `from_kernels` does for each layer, done once for all states: layers are parts of one table.
        parts = [self._table.with_values(values) for values in np.array(self._table.values.T)]
        values = np.stack([validation.probability_rows(part, 0).values for part in parts], axis=1)
        norms = np.einsum("ed,ed->e", values, values)
        divided: dict[float, FloatArray] = {}
        built: dict[tuple[int, bytes], tuple[Any, float]] = {}
        features, scales = [], []
        for h, (rows, places) in enumerate(self._rows):
            mask = None if available is None else np.asarray(available[h])
            key = (id(rows), b"" if mask is None else mask.tobytes())
            if key not in built:
                counted = norms.take(places) if mask is None else norms[places[mask.ravel()[rows.pairs]]]
                scale = float(np.sqrt(counted.max()))
                if scale not in divided:
                    divided[scale] = values / scale
                table = rows.with_values(divided[scale].take(places, axis=0))
                built[key] = table if self._is_sparse(rows) else np.array(table), scale
            features.append(built[key][0])
            scales.append(built[key][1])
        scales.append(min(scales))
        features.append(np.full((self.layers[-1].size, self.n_actions, 1, self._dim), 1.0 / scales[-1]))
        return LinearMixtureMDP(
            features, [scale * weights for scale in scales], max(scales), True,
            shared=True, scales=scales, available=available, scene=scene,
        )  # fmt: skip


def certain(nexts: IntArray) -> SparseRows:
    """A process without chance: ``nexts`` ``(S, A)`` is where each pair leads."""
    n, n_actions = nexts.shape
    flat = nexts.ravel().astype(np.int32)
    return SparseRows(np.arange(flat.size + 1), flat, np.ones(flat.size), (n, n_actions, n))


def chance(rows: Sequence[tuple[IntArray, FloatArray]], n_actions: int) -> SparseRows:
    """A process whose pairs, state by state, have these next states, ascending, and probabilities."""
    pointers = np.cumsum([0, *(nexts.size for nexts, _ in rows)])
    n = len(rows) // n_actions
    nexts, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    return SparseRows(pointers, nexts.astype(np.int32), values, (n, n_actions, n))


def unroll(
    start: Hashable,
    horizon: int,
    n_actions: int,
    steps: Sequence[Step],
    available: Callable[[Any], NDArray[np.bool_]] | None = None,
) -> tuple[Unrolled, list[Any]]:
    """Processes whose states are anything that can be sorted, and what each number of a state stands for.

    ``available`` says which actions a state has; of the others the rows are zero.
    """
    fits_in_memory(horizon * (LAYER + 8 * n_actions * len(steps)), f"a world of {horizon} layers", InvalidSpecError)
    known: dict[Any, list[list[Mapping[Any, float]]]] = {}
    new, again = {start}, False
    for _ in range(horizon - 1):
        for state in new:
            able = np.ones(n_actions) if available is None else available(state)
            known[state] = [[step(state, a) if able[a] else {} for a in range(n_actions)] for step in steps]
        reached = {
            target for state in new for process in known[state] for row in process for target, p in row.items() if p > 0
        }
        again |= start in reached
        new = reached - known.keys()
        if not new:
            break
    # A start to which nothing leads back may be of another kind than all others.
    names = sorted({*known, *new} - {start})
    names = sorted([start, *names]) if again else [start, *names]
    numbers = {name: i for i, name in enumerate(names)}
    nothing: list[Mapping[Any, float]] = [{}] * n_actions
    processes = []
    for i in range(len(steps)):
        rows = []
        for name in names:
            for row in known[name][i] if name in known else nothing:
                found = sorted((numbers[target], p) for target, p in row.items() if p > 0.0)
                rows.append((np.array([t for t, _ in found], dtype=np.int64), np.array([p for _, p in found])))
        processes.append(chance(rows, n_actions))
    return Unrolled(processes, numbers[start], horizon), names
