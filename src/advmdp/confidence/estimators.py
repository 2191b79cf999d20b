"""What the data says about the kernel: sums over episodes, kept small and never recomputed from history.

Estimators are values: adding an episode returns a new one, so that a learner whose update fails keeps the old.
The transition into the terminal state is deterministic and is not regressed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel, kernel
from advmdp.layered import LinearMixtureModel, Rows, SparseRows
from advmdp.layered.rows import entry_of, like, next_state, per_entry, row_begin, row_end, sums_of, values_of


@dataclass(frozen=True, eq=False)
class RidgeEstimate:
    """The solution of a ridge regression in every layer 0..H-2: arrays of shape (H - 1, ...)."""

    #: theta_h, shape (H - 1, d).
    centres: Floats
    #: Gram matrices, the regularisation included, shape (H - 1, d, d).
    grams: Floats
    #: log det of each Gram matrix, shape (H - 1,).
    log_determinants: Floats

    @cached_property
    def inverse_grams(self) -> Floats:
        """Inverses of the Gram matrices, shape (H - 1, d, d)."""
        return np.linalg.inv(self.grams).astype(np.float64, copy=False)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """<x, theta_h> and |x|_{Gram_h^-1} of one vector x per layer."""
        squares = np.einsum("hi,hij,hj->h", rows, self.inverse_grams, rows)
        return np.einsum("hi,hi->h", rows, self.centres), np.sqrt(np.maximum(squares, 0.0))


@dataclass(frozen=True, eq=False)
class RidgeSums:
    """What a ridge regression of theta_h needs to know of the past, for any regularisation.

    ``moments`` (H - 1, d, d) is the sum of outer products of regressors, ``targets`` (H - 1, d) the sum of
    regressors times targets.
    """

    moments: Floats
    targets: Floats

    @classmethod
    def empty(cls, horizon: int, dim: int) -> Self:
        """Before the first episode."""
        return cls(np.zeros((horizon - 1, dim, dim)), np.zeros((horizon - 1, dim)))

    def estimate(self, regularisation: float) -> RidgeEstimate:
        """theta_h = (moments + lambda I)^-1 targets: exact for any lambda, which may change every episode."""
        horizon, dim = self.targets.shape
        centres, grams, log_determinants = np.empty((horizon, dim)), np.empty((horizon, dim, dim)), np.empty(horizon)
        if not ridge(self.moments, self.targets, regularisation, centres, grams, log_determinants):
            # A Gram matrix that rounding has made indefinite: lambda is tiny beside the moments.
            centres = np.linalg.solve(grams, self.targets[:, :, None])[:, :, 0].astype(np.float64, copy=False)
            log_determinants = np.linalg.slogdet(grams)[1]
        return RidgeEstimate(centres, grams, log_determinants)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"moments": self.moments, "targets": self.targets}


class AllNextStates(RidgeSums):
    """Regression on the visits of *all* next states: the paper's equations (5) and (6).

    Lambda_h = sum_i sum_{s'} phi(s' | s_i, a_i) phi(s' | s_i, a_i)' + lambda I,  b_h = sum_i phi(s_{i+1} | s_i, a_i).
    """

    def add(
        self, model: LinearMixtureModel, states: Integers, actions: Integers, estimate: RidgeEstimate | None = None
    ) -> Self:
        """The sums with one more episode: states and actions of shape (H,); the estimate in force is not needed."""
        moments, targets = self.moments.copy(), self.targets.copy()
        layers = model.layers
        add_all(model.feature_rows, layers.size_array, layers.n_actions, states, actions, moments, targets)
        return type(self)(moments, targets)


class SharedNextStates(RidgeSums):
    """The same for weights w = theta_h / c_h that do not change from layer to layer: one regression for all of them.

    Lambda = sum_i sum_h sum_{s'} p p' + lambda I, b = sum_i sum_h p(s_{h+1}), with p = c_h phi the features in units of
    the weights (the probabilities under the base kernels).  Arrays have one entry in place of H - 1.
    """

    @classmethod
    def empty(cls, horizon: int, dim: int) -> Self:
        """Before the first episode."""
        return super().empty(2, dim)

    def add(
        self, model: LinearMixtureModel, states: Integers, actions: Integers, estimate: RidgeEstimate | None = None
    ) -> Self:
        """The sums with one more episode."""
        by_layer = AllNextStates.empty(model.horizon, model.dim).add(model, states, actions)
        scales = np.array(model.scales[:-1])
        moments = np.tensordot(scales**2, by_layer.moments, 1)
        # The mean with the transpose keeps the moments symmetric to the last bit.
        return type(self)(
            self.moments + 0.5 * (moments + moments.T)[None], self.targets + (scales @ by_layer.targets)[None]
        )


class OneNextState(RidgeSums):
    """Regression on the visits of one *imaginary* next state per step (LSUOB-REPS).

    It is the state whose feature is longest in the inverse Gram matrix of the episodes before, so it is fixed
    before the transition is seen; choosing it afterwards would destroy the martingale.
    """

    def add(self, model: LinearMixtureModel, states: Integers, actions: Integers, estimate: RidgeEstimate) -> Self:
        """The sums with one more episode; ``estimate`` is the one that was in force during it."""
        moments, targets = self.moments.copy(), self.targets.copy()
        layers = model.layers
        add_imaginary(
            model.feature_rows, layers.size_array, layers.n_actions, states, actions, estimate.inverse_grams,
            moments, targets,
        )  # fmt: skip
        return type(self)(moments, targets)


class ValueTargets(RidgeSums):
    """Regression of the value of the next state, V(s'), on phi_V(s, a) = sum_{s'} phi(s' | s, a) V(s')."""

    def add(self, regressors: Floats, targets: Floats, weights: Floats | float = 1.0) -> Self:
        """The sums with one more episode: regressors (H - 1, d), targets (H - 1,), weights of the squares alike."""
        # The root on both sides keeps the moments symmetric to the last bit.
        root = np.sqrt(np.broadcast_to(weights, targets.shape))
        rows = root[:, None] * regressors
        return type(self)(
            self.moments + rows[:, :, None] * rows[:, None, :], self.targets + (root * targets)[:, None] * rows
        )


@dataclass(frozen=True, eq=False)
class EpochCounts:
    """Visit counts with doubling epochs (UOB-REPS and its relatives).

    The set of an epoch is built from the counts at its beginning; a new epoch begins when some pair has been visited
    at least max(1, 2 N) times, N its visits at the beginning of the current one.  Pairs of the last decision layer are
    not counted, unlike in the source: their next state is certain, so that no width depends on them, and what proofs
    use, that N is at least half of the visits, is about widths (``docs/learners/counting.md``).
    """

    #: Transitions seen, per layer 0..H-2 ``(S_h, A, S_{h+1})``, or on the supports of sparse layers.
    transitions: tuple[Any, ...]
    #: The same at the beginning of the current epoch.
    at_epoch: tuple[Any, ...]
    epoch: int = 1
    #: How many of the episodes were read in logs.
    logged: int = 0

    @property
    def version(self) -> int:
        """What sets are made from changes with this number."""
        return self.epoch

    @classmethod
    def empty(cls, layer_sizes: Sequence[int], n_actions: int, support: Sequence[Any] | None = None) -> Self:
        """Before the first episode; ``support`` says which transitions are possible, where layers are sparse."""
        if support is None:
            zeros = tuple(np.zeros((n, n_actions, m)) for n, m in itertools.pairwise(layer_sizes[:-1]))
        else:
            zeros = tuple(like(table, np.zeros(values_of(table).shape)) for table in support[:-1])
        return cls(zeros, zeros)

    def add(self, states: Integers, actions: Integers, logged: bool = False) -> Self:
        """The counts with one more episode; the epoch changes where a visited pair has doubled."""
        transitions = []
        doubled = False
        for h, (now, then) in enumerate(zip(self.transitions, self.at_epoch, strict=True)):
            pair, values = (int(states[h]), int(actions[h])), values_of(now).copy()
            if isinstance(now, SparseRows):
                begin, end = now.pointers[pair[0] * now.shape[1] + pair[1] :][:2]
                values[begin + np.searchsorted(now.nexts[begin:end], states[h + 1])] += 1.0
            else:
                values[(*pair, states[h + 1])] += 1.0
            counts = like(now, values)
            transitions.append(counts)
            doubled = doubled or bool(counts[pair].sum() >= max(1.0, 2.0 * then[pair].sum()))
        counted = replace(self, transitions=tuple(transitions), logged=self.logged + logged)
        if not doubled:
            return counted
        return replace(counted, at_epoch=counted.transitions, epoch=self.epoch + 1)

    def frequencies(self) -> list[tuple[Any, Floats]]:
        """(empirical kernel, visits) per layer, at the beginning of the epoch; zero where never visited."""
        pairs = []
        for counts in self.at_epoch:
            visits = sums_of(counts)
            pairs.append((like(counts, values_of(counts) / per_entry(counts, np.maximum(1.0, visits))), visits))
        return pairs

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "transitions": [values_of(table) for table in self.transitions],
            "at_epoch": [values_of(table) for table in self.at_epoch],
            "epoch": self.epoch,
            "logged": self.logged,
        }


# ------------------------------------------------------------------------------------ compiled loops


@kernel
def ridge(
    moments: Floats,
    targets: Floats,
    regularisation: float,
    centres: Floats,
    grams: Floats,
    log_determinants: Floats,
) -> bool:
    """Gram = moments + lambda I, Gram^-1 targets and log det Gram of every layer; False if a pivot is not positive."""
    layers, dim = targets.shape
    factor = np.empty((dim, dim))
    definite = True
    for h in range(layers):
        log_determinants[h] = 0.0
        for i in range(dim):
            for j in range(dim):
                grams[h, i, j] = moments[h, i, j]
            grams[h, i, i] += regularisation
        for i in range(dim):
            value = targets[h, i]
            for j in range(i + 1):
                total = grams[h, i, j]
                for l in range(j):  # noqa: E741
                    total -= factor[i, l] * factor[j, l]
                if j < i:
                    factor[i, j] = total / factor[j, j]
                    value -= factor[i, j] * centres[h, j]
                else:
                    definite = definite and total > 0.0
                    factor[i, i] = np.sqrt(total)
                    log_determinants[h] += np.log(total)
            centres[h, i] = value / factor[i, i]
        for i in range(dim - 1, -1, -1):
            value = centres[h, i]
            for j in range(i + 1, dim):
                value -= factor[j, i] * centres[h, j]
            centres[h, i] = value / factor[i, i]
    return definite


@kernel
def add_all(
    features: Rows,
    sizes: Integers,
    n_actions: int,
    states: Integers,
    actions: Integers,
    moments: Floats,
    targets: Floats,
) -> None:
    """moments += sum_{s'} phi phi', targets += phi of the next state, in all layers but the last."""
    layers, dim = targets.shape
    for h in range(layers):
        pair, m = states[h] * n_actions + actions[h], sizes[h + 1]
        rows = features.values  # phi(. | s, a) of the visited pair is a part of it
        for e in range(row_begin(features, h, pair, m), row_end(features, h, pair, m)):
            for i in range(dim):
                for j in range(dim):
                    moments[h, i, j] += rows[e, i] * rows[e, j]
        entry = entry_of(features, h, pair, m, states[h + 1])
        if entry >= 0:  # elsewhere features are zero
            for i in range(dim):
                targets[h, i] += rows[entry, i]


@kernel
def add_imaginary(
    features: Rows,
    sizes: Integers,
    n_actions: int,
    states: Integers,
    actions: Integers,
    inverse_grams: Floats,
    moments: Floats,
    targets: Floats,
) -> None:
    """The same for the one next state whose feature is longest in the inverse Gram matrix."""
    layers, dim = targets.shape
    for h in range(layers):
        pair, m = states[h] * n_actions + actions[h], sizes[h + 1]
        rows = features.values  # phi(. | s, a) of the visited pair is a part of it
        begin = row_begin(features, h, pair, m)
        end = row_end(features, h, pair, m)
        longest = 0.0
        for e in range(begin, end):
            longest = max(longest, squared_length(rows[e], inverse_grams[h]))
        imaginary = begin
        # The first of those that are longest but for rounding, which differs between processors.
        while squared_length(rows[imaginary], inverse_grams[h]) < (1.0 - 1e-9) * longest:
            imaginary += 1
        for i in range(dim):
            for j in range(dim):
                moments[h, i, j] += rows[imaginary, i] * rows[imaginary, j]
            if states[h + 1] == next_state(features, h, begin, imaginary):
                targets[h, i] += rows[imaginary, i]


@inner_kernel
def squared_length(x: Floats, inverse_gram: Floats) -> float:
    """|x|^2 in the inverse Gram matrix."""
    total = 0.0
    for i in range(x.size):
        for j in range(x.size):
            total += x[i] * inverse_gram[i, j] * x[j]
    return total
