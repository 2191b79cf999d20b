"""The kernel that explains the transitions best: mixture weights of maximum likelihood, or counts without a model.

An estimate, not a set: nothing is promised about its error.  Planners and experts work on it; what carries a guarantee
works on the sets of :mod:`advmdp.confidence`.  Estimators are values: adding an episode returns a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import float_array, integer
from advmdp._compiled import inner_kernel, kernel
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, Layers, LinearMixtureModel, Rows, SparseRows, TabularModel
from advmdp.layered.rows import dense_supports, entry_of, own_values, row_begin, row_end
from advmdp.layered.shape import read_only

#: The log-likelihood of an estimate is within this of the largest, if the steps of one update suffice (they do but for
#: data that changes everything at once; the next update goes on).
TOLERANCE = 1e-6
#: Squared Newton decrement below which a full step needs no line search.
SAFE_DECREMENT = 0.05
#: Steps of one update.
MAX_STEPS = 50
#: Halvings that find the end of an interval for a weight.
BISECTIONS = 25
#: Decimals by which rows of base probabilities are told apart; what differs by less is rounding.
DECIMALS = 13


class BaseRows(NamedTuple):
    """Base probabilities P_j(s' | s, a), j < d, of a model, and the distinct vectors among them, in groups of layers.

    Layers with the same weights form a group: all of them, or each by itself.
    """

    #: The base probabilities ``(E, d)``, on the supports of the model.
    rows: Rows
    #: The vectors, ``(R, d)``, those of a group together, none of them zero.
    vectors: FloatArray
    #: Where the vectors of each group begin, and R.
    groups: IntArray
    #: Which vector of its group every entry of ``rows`` is, -1 where all base kernels rule the transition out.
    numbers: IntArray
    #: The estimated kernel, without its probabilities, and their parts: see ``layered.rows.own_values``.
    kernel: Rows
    parts: IntArray


def base_rows(model: LinearMixtureModel, shared: bool) -> BaseRows:
    """What :class:`MixtureWeights` needs to know of a model, worked out once."""
    rows, horizon, dim = model.feature_rows, model.horizon, model.dim
    starts = rows.places[:, 0]
    ends = {
        start: min((s for s in starts.tolist() if s > start), default=len(rows.values)) for start in starts.tolist()
    }
    # Features are base kernels divided by a number per layer; the kernels sum to one over next states.
    values = rows.values.copy()
    for start, features in {int(starts[h]): model.features[h] for h in range(horizon - 1)}.items():
        values[start : ends[start]] /= features[0, 0][:, 0].sum()
    numbers = np.full(len(values), -1, dtype=np.int64)
    vectors, groups = [np.empty((0, dim))], [0]
    known: dict[tuple[int, ...], FloatArray] = {}
    for layers in [list(range(horizon - 1))] if shared else [[h] for h in range(horizon - 1)]:
        # Each distinct table of the group once.
        tables = tuple(dict.fromkeys(starts[layers].tolist()))
        if tables not in known:
            entries = np.concatenate(
                [np.arange(start, ends[start]) for start in tables] or [np.empty(0, dtype=np.int64)]
            )
            rounded = values[entries].round(DECIMALS)
            possible = rounded.any(axis=1)
            known[tables], inverse = np.unique(rounded[possible], axis=0, return_inverse=True)
            numbers[entries[possible]] = inverse.ravel()
        vectors.append(known[tables])
        groups.append(groups[-1] + len(known[tables]))
    slots = [0] * (horizon - 1) if shared else list(range(horizon - 1))
    kernel, parts = own_values(rows, model.layers, [*slots, -1])
    return BaseRows(rows.with_values(values), np.concatenate(vectors), np.array(groups), numbers, kernel, parts)


@dataclass(frozen=True, eq=False)
class MixtureWeights:
    """Weights of the base kernels, on the simplex, that make the transitions seen most likely.

    They maximise L(w) = sum_i log <a_i, w> + prior sum_j log w_j, with a_i the vector of probabilities that the d base
    kernels gave to transition i.  With g the gradient of L and N = <g, w> (the number of transitions, and of
    imaginary ones),

        L(w') - L(w) <= <g, w' - w> <= max_j g_j - N          for all w' on the simplex,

    since L is concave: :attr:`gaps` is a certificate.  Newton's method on the face of the simplex, started at the
    weights before the episode; where data do not tell weights apart, they stay near where they were.
    """

    layers: Layers
    rows: BaseRows
    #: Imaginary transitions that each base kernel alone explains: keeps weights inside; 0 is maximum likelihood.
    prior: float
    #: The vectors seen (their numbers, increasing), and how often.
    seen: IntArray
    counts: FloatArray
    #: ``(1, d)`` where layers share them, else ``(H - 1, d)``.
    weights: FloatArray
    #: What the log-likelihood of each group can be increased by, at most.
    gaps: FloatArray
    #: Transitions that no mixture explains (where the model does not rule them out); they are left out.
    unexplained: int = 0

    @classmethod
    def empty(cls, model: LinearMixtureModel, *, shared: bool | None = None, prior: float = 0.5) -> Self:
        """Before the first episode: equal weights.

        ``shared`` is whether all layers have the same weights, by default what the model says.
        """
        if not model.simplex:
            raise InvalidSpecError("the model's parameters are not mixture weights: count transitions instead")
        if not 0.0 <= prior < np.inf:
            raise InvalidSpecError(f"prior is {prior!r}, should be a number >= 0")
        if shared is None:
            shared = bool(getattr(model, "shared", False))
        rows = base_rows(model, shared)
        groups = len(rows.groups) - 1
        return cls(
            model.layers, rows, float(prior), np.empty(0, dtype=np.int64), np.empty(0),
            np.full((groups, model.dim), 1.0 / model.dim), np.zeros(groups),
        )  # fmt: skip

    @property
    def shared(self) -> bool:
        """Whether all layers have the same weights."""
        return len(self.weights) == 1

    def add(self, states: IntArray, actions: IntArray) -> Self:
        """The estimate with one more episode: states and actions of shape (H,)."""
        steps = self.layers.horizon - 1
        seen, counts = np.empty(self.seen.size + steps, dtype=np.int64), np.empty(self.seen.size + steps)
        sizes, n_actions = self.layers.size_array, self.layers.n_actions
        size, unexplained = add_rows(
            self.rows.rows, self.rows.numbers, self.rows.groups, sizes, n_actions, states, actions, self.seen,
            self.counts, seen, counts,
        )  # fmt: skip
        return self._fitted(seen[:size], counts[:size], self.unexplained + unexplained)

    def _fitted(self, seen: IntArray, counts: FloatArray, unexplained: int) -> Self:
        weights, gaps = self.weights.copy(), self.gaps.copy()
        fit(self.rows.vectors, self.rows.groups, seen, counts, self.prior, TOLERANCE, MAX_STEPS, weights, gaps)
        return replace(self, seen=seen, counts=counts, weights=weights, gaps=gaps, unexplained=unexplained)

    @cached_property
    def kernel(self) -> Rows:
        """The estimated kernels, for compiled code."""
        rows = self.rows
        flat = np.empty(int(rows.parts[-1, 2:].sum()))
        mix(rows.rows.values, rows.parts, self.weights, flat)
        flat.flags.writeable = False
        return rows.kernel.with_values(flat)

    def kernels(self) -> list[Any]:
        """The estimated kernels, a list over layers of ``(S_h, A, S_{h+1})``, or of rows on their supports."""
        return split_kernel(self.layers, self.kernel)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "seen": self.seen, "counts": self.counts, "weights": self.weights, "gaps": self.gaps,
            "unexplained": self.unexplained,
        }  # fmt: skip

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """The estimate that :meth:`tree` was made of, from an empty one of the same model; else ValueError."""
        seen = np.asarray(tree["seen"])
        counts = float_array(tree["counts"], "counts", ValueError)
        weights = float_array(tree["weights"], "weights", ValueError)
        gaps = float_array(tree["gaps"], "gaps", ValueError)
        if seen.ndim != 1 or seen.shape != counts.shape or (seen.size and seen.dtype.kind not in "iu"):
            raise ValueError("seen and counts should be vectors of the same length")
        seen = seen.astype(np.int64)
        if (np.diff(seen) <= 0).any() or (seen.size and not 0 <= seen[0] <= seen[-1] < len(self.rows.vectors)):
            raise ValueError(f"seen should increase from 0 or more to less than {len(self.rows.vectors)}")
        if not (np.isfinite(counts).all() and (counts >= 1.0).all()):
            raise ValueError("counts should be at least 1")
        if weights.shape != self.weights.shape or not (
            (weights >= 0.0).all() and (np.abs(weights.sum(axis=1) - 1.0) <= 1e-9).all()
        ):
            raise ValueError(f"weights should be {self.weights.shape} numbers >= 0, rows summing to one")
        if gaps.shape != self.gaps.shape or not (gaps >= 0.0).all():
            raise ValueError(f"gaps should be {self.gaps.shape} numbers >= 0")
        unexplained = integer(tree["unexplained"], "unexplained", 0, ValueError)
        return replace(self, seen=seen, counts=counts, weights=weights, gaps=gaps, unexplained=unexplained)


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """Frequencies of next states, pair by pair: the estimate where there is no mixture to fit.

    The row of a pair is (n(s') + prior/m) / (n + prior) over its m possible next states; uniform while it is unseen.
    """

    layers: Layers
    prior: float
    #: Transitions seen, flat.
    counts: FloatArray
    #: The estimated kernels.
    kernel: Rows
    #: Next states that are possible, flat; empty where all are.
    possible: NDArray[np.bool_]

    @classmethod
    def empty(cls, model: TabularModel, *, prior: float = 0.0) -> Self:
        """Before the first episode: every possible next state is as likely as any other."""
        if not 0.0 <= prior < np.inf:
            raise InvalidSpecError(f"prior is {prior!r}, should be a number >= 0")
        layers, given = model.layers, model.possible_rows
        rows, parts = own_values(given or dense_supports(layers.sizes, layers.n_actions), layers, range(layers.horizon))
        size = int(parts[-1, 2:].sum())
        possible = np.empty(0, dtype=bool)
        if given is not None:
            possible = np.concatenate([given.values[start : start + count] for _, start, _, count in parts.tolist()])
        counts, flat = np.zeros(size), np.empty(size)
        every = np.ones(size, dtype=bool) if given is None else possible
        even_rows(rows, layers.size_array, layers.n_actions, every, flat)
        return cls(layers, float(prior), counts, rows.with_values(read_only(flat)), possible)

    def add(self, states: IntArray, actions: IntArray) -> Self:
        """The counts with one more episode: states and actions of shape (H,)."""
        counts, flat = self.counts.copy(), self.kernel.values.copy()
        count_transitions(
            self.kernel, self.layers.size_array, self.layers.n_actions, states, actions, self.prior, self.possible,
            counts, flat,
        )  # fmt: skip
        return replace(self, counts=counts, kernel=self.kernel.with_values(read_only(flat)))

    def kernels(self) -> list[Any]:
        """The estimated kernels, a list over layers of ``(S_h, A, S_{h+1})``, or of rows on their supports."""
        return split_kernel(self.layers, self.kernel)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"counts": self.counts}

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """The counts that :meth:`tree` was made of, from empty ones of the same model; else ValueError."""
        counts = float_array(tree["counts"], "counts", ValueError)
        if counts.shape != self.counts.shape or not (np.isfinite(counts).all() and (counts >= 0.0).all()):
            raise ValueError(f"counts should be {self.counts.size} numbers >= 0")
        if (counts != np.floor(counts)).any():
            raise ValueError("counts should be integers")
        if self.possible.size and counts[~self.possible].any():
            raise ValueError("transitions were counted that the model rules out")
        flat = self.kernel.values.copy()
        renew_rows(self.kernel, self.layers.size_array, self.layers.n_actions, counts, self.prior, flat)
        return replace(self, counts=np.array(counts), kernel=self.kernel.with_values(read_only(flat)))


def split_kernel(layers: Layers, rows: Rows) -> list[Any]:
    """Flat kernels as a list over layers of ``(S_h, A, S_{h+1})`` views, or of rows on their supports."""
    tables: list[Any] = []
    for h, (start, first, shift) in enumerate(rows.places.tolist()):
        shape = layers.sizes[h], layers.n_actions, layers.sizes[h + 1]
        if first < 0:
            tables.append(rows.values[start : start + shape[0] * shape[1] * shape[2]].reshape(shape))
        else:
            pointers = rows.at[first : first + shape[0] * shape[1] + 1] - start
            here = slice(start, start + int(pointers[-1]))
            nexts = rows.nexts[here.start - shift : here.stop - shift]
            tables.append(SparseRows(pointers, nexts, rows.values[here], shape))
    return tables


# --------------------------------------------------------------------------------------- intervals


def weight_intervals(vectors: FloatArray, counts: FloatArray, zeta: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The likeliest mixture weights, and an interval for each: valid for all times at once, with one probability.

    ``vectors`` are distinct vectors of base probabilities of transitions seen, ``(R, d)``, and ``counts`` how often
    each was.  With L the log-likelihood, w its maximiser on the simplex and n transitions, the intervals are shadows of

        { v : L(v) >= L(w) - (d - 1) / 2 ln(n + 1) - ln 2 - ln(1 / zeta) }.

    A forecaster who mixes the base kernels anew for each transition, with Dirichlet(1/2) as the prior of the weights,
    gives all of them together a probability within 2 (n + 1)^((d - 1) / 2) of exp L(w) (Cover and Ordentlich, 1996).
    That probability over exp L of the true weights is a martingale, whatever the policy, and exceeds 1 / zeta with
    probability at most zeta (Ville), so that the set holds the true weights for all n with probability 1 - zeta.
    Transitions that all kernels find equally likely say nothing, and are not counted.

    Returns the weights, the lower and the upper ends, ``(d,)`` each.
    """
    if not 0.0 < zeta < 1.0:
        raise InvalidSpecError(f"zeta is {zeta!r}, should be a probability in (0, 1)")
    dim = vectors.shape[1]
    telling = (vectors != vectors[:, :1]).any(axis=1)
    rows, seen = np.ascontiguousarray(vectors[telling]), np.ascontiguousarray(counts[telling])
    if not len(rows):
        low = np.ones(1) if dim == 1 else np.zeros(dim)
        return np.full(dim, 1.0 / dim), low, np.ones(dim)
    weights, value, _ = _likeliest(rows, seen)
    level = value - (0.5 * (dim - 1) * np.log(seen.sum() + 1.0) + np.log(2.0 / zeta))

    def inside(j: int, t: float) -> bool:
        """Whether some v with v_j = t is in the set, or may be, but for the accuracy of a fit."""
        # With v_j = t, the others mix the vectors t a_j + (1 - t) a_l: the same problem with one coordinate less.
        others = np.delete(rows, j, axis=1)
        mixed = t * rows[:, j : j + 1] + (1.0 - t) * others
        if not mixed.any(axis=1).all():
            return False
        _, best, gap = _likeliest(np.ascontiguousarray(mixed), seen)
        return bool(best + gap >= level)

    ends = np.empty((2, dim))
    for j in range(dim):
        for side, end in enumerate((0.0, 1.0)):
            # L(. | v_j = t) is concave in t, so that the set is an interval: its end by bisection, from outside.
            outer, inner = end, float(weights[j])
            if not inside(j, outer):
                for _ in range(BISECTIONS):
                    middle = 0.5 * (outer + inner)
                    outer, inner = (outer, middle) if inside(j, middle) else (middle, inner)
            ends[side, j] = outer
    return weights, ends[0], ends[1]


def _likeliest(rows: FloatArray, counts: FloatArray) -> tuple[FloatArray, float, float]:
    """Weights of maximum likelihood, its logarithm, and what that may be short of the maximum."""
    weights, gaps = np.full((1, rows.shape[1]), 1.0 / rows.shape[1]), np.zeros(1)
    if rows.shape[1] > 1:
        everything = np.arange(len(rows))
        fit(rows, np.array([0, len(rows)]), everything, counts, 0.0, TOLERANCE, MAX_STEPS, weights, gaps)
    return weights[0], float(counts @ np.log(rows @ weights[0])), float(gaps[0])


# ------------------------------------------------------------------------------------ compiled loops


@kernel
def add_rows(
    rows: Rows,
    numbers: IntArray,
    groups: IntArray,
    sizes: IntArray,
    n_actions: int,
    states: IntArray,
    actions: IntArray,
    seen: IntArray,
    counts: FloatArray,
    new_seen: IntArray,
    new_counts: FloatArray,
) -> tuple[int, int]:
    """The vectors of an episode into the increasing list of those seen; its length, and how many have no vector."""
    size = seen.size
    for i in range(size):
        new_seen[i] = seen[i]
        new_counts[i] = counts[i]
    unexplained = 0
    for h in range(sizes.size - 2):
        number = vector_of(rows, numbers, groups, sizes, n_actions, states, actions, h)
        if number < 0:
            unexplained += 1
            continue
        low, high = 0, size
        while low < high:
            middle = (low + high) // 2
            if new_seen[middle] < number:
                low = middle + 1
            else:
                high = middle
        if low == size or new_seen[low] != number:
            for i in range(size, low, -1):
                new_seen[i] = new_seen[i - 1]
                new_counts[i] = new_counts[i - 1]
            new_seen[low] = number
            new_counts[low] = 0.0
            size += 1
        new_counts[low] += 1.0
    return size, unexplained


@inner_kernel
def vector_of(
    rows: Rows,
    numbers: IntArray,
    groups: IntArray,
    sizes: IntArray,
    n_actions: int,
    states: IntArray,
    actions: IntArray,
    h: int,
) -> int:
    """The number of the vector of the transition from layer h, or -1."""
    entry = entry_of(rows, h, states[h] * n_actions + actions[h], sizes[h + 1], states[h + 1])
    if entry < 0 or numbers[entry] < 0:
        return -1
    number = groups[min(h, groups.size - 2)] + numbers[entry]
    return int(number)


@kernel
def fit(
    vectors: FloatArray,
    groups: IntArray,
    seen: IntArray,
    counts: FloatArray,
    prior: float,
    tolerance: float,
    max_steps: int,
    weights: FloatArray,
    gaps: FloatArray,
) -> None:
    """Maximise L of every group from ``weights``, in place; gaps[g] = max_j g_j - N at the end."""
    dim = weights.shape[1]
    gradient, direction, trial = np.empty(dim), np.empty(dim), np.empty(dim)
    hessian, factor = np.empty((dim, dim)), np.empty((dim, dim))
    solved, ones = np.empty(dim), np.empty(dim)
    free = np.empty(dim, dtype=np.bool_)
    begin = 0
    for group in range(groups.size - 1):
        end = begin
        total = prior * dim
        while end < seen.size and seen[end] < groups[group + 1]:
            total += counts[end]
            end += 1
        w = weights[group]
        if end == begin:
            gaps[group] = 0.0
            continue
        # A vector seen for the first time may have got no probability: a step inside mends that.
        least = np.inf
        for i in range(begin, end):
            p = 0.0
            for j in range(dim):
                p += vectors[seen[i], j] * w[j]
            least = min(least, p)
        for j in range(dim):
            if prior > 0.0:
                least = min(least, w[j])
        if least < 1e-9 / total:
            for j in range(dim):
                w[j] = (w[j] + 1.0 / (dim * (1.0 + total))) / (1.0 + 1.0 / (1.0 + total))

        for _ in range(max_steps + 1):
            value = 0.0
            for j in range(dim):
                gradient[j] = prior / w[j] if prior > 0.0 else 0.0
                value += prior * np.log(w[j]) if prior > 0.0 else 0.0
                for l in range(dim):  # noqa: E741
                    hessian[j, l] = 0.0
                hessian[j, j] = prior / (w[j] * w[j]) if prior > 0.0 else 0.0
            for i in range(begin, end):
                p = 0.0
                for j in range(dim):
                    p += vectors[seen[i], j] * w[j]
                value += counts[i] * np.log(p)
                share = counts[i] / p
                for j in range(dim):
                    gradient[j] += share * vectors[seen[i], j]
                    for l in range(j + 1):  # noqa: E741
                        hessian[j, l] += share / p * vectors[seen[i], j] * vectors[seen[i], l]
            largest = 0.0
            trace = 0.0
            for j in range(dim):
                largest = max(largest, gradient[j])
                trace += hessian[j, j]
                for l in range(j):  # noqa: E741
                    hessian[l, j] = hessian[j, l]
            gaps[group] = max(0.0, largest - total)
            if gaps[group] <= tolerance or _ == max_steps:
                break

            # Newton's direction with sum zero, among weights that are positive or want to become so.
            for j in range(dim):
                free[j] = w[j] > 0.0 or gradient[j] > total
            while True:
                for j in range(dim):
                    ones[j] = 1.0
                    solved[j] = gradient[j]
                    for l in range(dim):  # noqa: E741
                        factor[j, l] = hessian[j, l] if free[j] and free[l] else 0.0
                    factor[j, j] = hessian[j, j] + 1e-12 * trace if free[j] else 1.0
                    if not free[j]:
                        ones[j] = 0.0
                        solved[j] = 0.0
                # Cholesky in place, then two solves.
                for j in range(dim):
                    for l in range(j + 1):  # noqa: E741
                        entry = factor[j, l]
                        for i in range(l):
                            entry -= factor[j, i] * factor[l, i]
                        if l < j:
                            factor[j, l] = entry / factor[l, l]
                        else:
                            factor[j, j] = np.sqrt(max(entry, 1e-14 * trace + 1e-300))
                for column in range(2):
                    x = solved if column == 0 else ones
                    for j in range(dim):
                        for l in range(j):  # noqa: E741
                            x[j] -= factor[j, l] * x[l]
                        x[j] /= factor[j, j]
                    for j in range(dim - 1, -1, -1):
                        for l in range(j + 1, dim):  # noqa: E741
                            x[j] -= factor[l, j] * x[l]
                        x[j] /= factor[j, j]
                up, down = 0.0, 0.0
                for j in range(dim):
                    if free[j]:
                        up += solved[j]
                        down += ones[j]
                blocked = False
                for j in range(dim):
                    direction[j] = solved[j] - up / down * ones[j] if free[j] else 0.0
                    if free[j] and w[j] == 0.0 and direction[j] < 0.0:
                        free[j] = False
                        blocked = True
                if not blocked:
                    break

            slope = 0.0
            longest = np.inf
            nearest = -1
            for j in range(dim):
                slope += gradient[j] * direction[j]
                if direction[j] < 0.0 and -w[j] / direction[j] < longest:
                    longest = -w[j] / direction[j]
                    nearest = j
            step = min(1.0, longest if prior == 0.0 else 0.99 * longest)
            accepted = False
            for _halving in range(40):
                sum_trial = 0.0
                for j in range(dim):
                    trial[j] = max(0.0, w[j] + step * direction[j])
                    if step == longest and j == nearest:
                        trial[j] = 0.0
                    sum_trial += trial[j]
                new_value = 0.0
                for j in range(dim):
                    trial[j] /= sum_trial
                    new_value += prior * np.log(trial[j]) if prior > 0.0 else 0.0
                for i in range(begin, end):
                    p = 0.0
                    for j in range(dim):
                        p += vectors[seen[i], j] * trial[j]
                    new_value += counts[i] * np.log(p) if p > 0.0 else -np.inf
                # L is self-concordant (counts are at least 1): a small decrement makes the step safe, however little of
                # the gain is left beside the rounding of L.
                if new_value > value + 1e-4 * step * slope or (slope < SAFE_DECREMENT and new_value > -np.inf):
                    accepted = True
                    break
                step *= 0.5
            if accepted:
                for j in range(dim):
                    w[j] = trial[j]
            else:
                # Expectation maximisation: never worse.
                for j in range(dim):
                    w[j] *= gradient[j] / total
        begin = end


@kernel
def mix(entries: FloatArray, parts: IntArray, weights: FloatArray, flat: FloatArray) -> None:
    """Base probabilities times the weights of their group; ones in the last layer."""
    dim = weights.shape[1]
    for part in range(parts.shape[0]):
        group = parts[part, 0]
        shift = parts[part, 1] - parts[part, 2]
        for i in range(parts[part, 2], parts[part, 2] + parts[part, 3]):
            total = 1.0
            if group >= 0:
                total = 0.0
                for j in range(dim):
                    total += entries[shift + i, j] * weights[group, j]
            flat[i] = total


@kernel
def even_rows(rows: Rows, sizes: IntArray, n_actions: int, possible: NDArray[np.bool_], flat: FloatArray) -> None:
    """Every possible next state of a pair as likely as any other."""
    for h in range(sizes.size - 1):
        for pair in range(sizes[h] * n_actions):
            begin = row_begin(rows, h, pair, sizes[h + 1])
            end = row_end(rows, h, pair, sizes[h + 1])
            options = 0.0
            for e in range(begin, end):
                options += 1.0 if possible[e] else 0.0
            for e in range(begin, end):
                flat[e] = 1.0 / max(options, 1.0) if possible[e] else 0.0


@kernel
def renew_rows(rows: Rows, sizes: IntArray, n_actions: int, counts: FloatArray, prior: float, flat: FloatArray) -> None:
    """The rows of all pairs that were visited, from the even ones."""
    for h in range(sizes.size - 2):
        for pair in range(sizes[h] * n_actions):
            begin = row_begin(rows, h, pair, sizes[h + 1])
            end = row_end(rows, h, pair, sizes[h + 1])
            total = 0.0
            for e in range(begin, end):
                total += counts[e]
            if total > 0.0:
                for e in range(begin, end):
                    flat[e] = (counts[e] + prior * flat[e]) / (total + prior)


@kernel
def count_transitions(
    rows: Rows,
    sizes: IntArray,
    n_actions: int,
    states: IntArray,
    actions: IntArray,
    prior: float,
    possible: NDArray[np.bool_],
    counts: FloatArray,
    flat: FloatArray,
) -> None:
    """Count an episode, and renew the rows of the pairs that it visited."""
    for h in range(sizes.size - 2):
        m, pair = sizes[h + 1], states[h] * n_actions + actions[h]
        counts[entry_of(rows, h, pair, m, states[h + 1])] += 1.0
        begin = row_begin(rows, h, pair, m)
        end = row_end(rows, h, pair, m)
        total, options = 0.0, 0.0
        for e in range(begin, end):
            total += counts[e]
            options += 1.0 if possible.size == 0 or possible[e] else 0.0
        for e in range(begin, end):
            allowed = 1.0 if possible.size == 0 or possible[e] else 0.0
            flat[e] = (counts[e] + prior * allowed / options) / (total + prior)
