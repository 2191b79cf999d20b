"""How likely a policy can be to visit a state, at most and at least, over a confidence set.

Row choices at different pairs are independent and each layer is visited once, so backward dynamic
programming is exact: with f the indicator of the target,

    f(s) <- sum_a policy(a | s) max_{p in row set (s, a)} p.f,     layer by layer up to the first state.

That is a pass for each target.  One forward pass gives bounds for all states that are valid and wider: with
[low, high] around every entry of every row, and [l, u] around the probability of every state of a layer,

    u(s') = max over d in [l, u], sum d = 1 of sum_s d(s) sum_a policy(a | s) high(s' | s, a),     and l(s') likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._compiled import allocating_kernel, inner_kernel, kernel
from advmdp.confidence import ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.errors import InvalidMDPError
from advmdp.layered import Layers
from advmdp.occupancy import check_policy
from advmdp.solvers.layout import view1
from advmdp.solvers.problem import require_rows
from advmdp.solvers.row_sets import NOTHING, RowData, layer_means, row_data, row_hull

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: So many values are sorted by insertion.
FEW = 48


@overload
def upper_occupancy(confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: None = None) -> list[Floats]: ...


@overload
def upper_occupancy(confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: ArrayLike) -> Floats: ...


def upper_occupancy(
    confidence_set: ConfidenceSet,
    policy: Sequence[Floats],
    targets: ArrayLike | None = None,
) -> list[Floats] | Floats:
    """u(s) = max over the set's kernels of the probability that ``policy`` visits s.

    Without ``targets``: a list over layers 0..H-1 of arrays (S_h,). With ``targets``, rows (layer, state):
    an array of their bounds in that order. For ellipsoids the result is a dual value, so it is an upper
    bound (to rounding) even where it is not the maximum.
    """
    return _bounds(confidence_set, policy, targets, 1.0)


@overload
def lower_occupancy(confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: None = None) -> list[Floats]: ...


@overload
def lower_occupancy(confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: ArrayLike) -> Floats: ...


def lower_occupancy(
    confidence_set: ConfidenceSet,
    policy: Sequence[Floats],
    targets: ArrayLike | None = None,
) -> list[Floats] | Floats:
    """The smallest probability of a visit, with the arguments of :func:`upper_occupancy`."""
    return _bounds(confidence_set, policy, targets, -1.0)


def extreme_rows(confidence_set: ConfidenceSet, layer: int, values: Floats, *, maximise: bool = True) -> Floats:
    """Largest (or smallest) mean of ``values`` (S_{h+1},) over each row set of a layer; (S_h, A).

    NaN where the row set is empty.
    """
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    function = np.asarray(values, dtype=np.float64)
    if function.shape != (sizes[layer + 1],):
        raise InvalidMDPError(f"values has shape {function.shape}; layer {layer + 1} has {sizes[layer + 1]} states")
    if layer == confidence_set.horizon - 1:
        return np.full((sizes[layer], n_actions), function[0])
    sign = 1.0 if maximise else -1.0
    functions = np.empty((1, max(sizes)))
    functions[0, : len(function)] = sign * function
    means = np.empty(max(sizes) * n_actions)
    _backward(
        row_data(confidence_set),
        confidence_set.size_array,
        n_actions,
        np.zeros(sum(sizes) * n_actions),
        confidence_set.flat_reachable,
        np.array([layer + 1]),
        layer,
        functions,
        means,
    )
    return sign * means[: sizes[layer] * n_actions].reshape(n_actions, sizes[layer]).T


def extreme_values(
    confidence_set: ConfidenceSet,
    policy: Sequence[Floats],
    losses: Sequence[Floats],
    *,
    maximise: bool,
    dilation: float = 1.0,
) -> list[Floats]:
    """Action values of a policy under the kernel of the set that makes them largest (or smallest).

    Q(s, a) = l(s, a) + dilation max_{p in P(s, a)} p.V,  V(s) = sum_a policy(a | s) Q(s, a).
    """
    following = np.zeros(1)
    values = []
    for h in range(confidence_set.horizon - 1, -1, -1):
        table = losses[h] + dilation * extreme_rows(confidence_set, h, following, maximise=maximise)
        following = np.einsum("sa,sa->s", policy[h], table)
        values.append(table)
    return values[::-1]


def entrywise_hull(confidence_set: ConfidenceSet) -> tuple[list[Floats], list[Floats]]:
    """Least and greatest value of each entry over its row set; NaN for empty pairs."""
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    lower, upper = [], []
    for h in range(confidence_set.horizon):
        low, high = np.empty((2, sizes[h], n_actions, sizes[h + 1]))
        for t, unit in enumerate(np.eye(sizes[h + 1])):
            low[:, :, t] = extreme_rows(confidence_set, h, unit, maximise=False)
            high[:, :, t] = extreme_rows(confidence_set, h, unit)
        lower.append(np.maximum(low, 0.0))
        upper.append(np.maximum(high, 0.0))
    return lower, upper


def _bounds(
    confidence_set: ConfidenceSet,
    policy: Sequence[Floats],
    targets: ArrayLike | None,
    sign: float,
) -> list[Floats] | Floats:
    """The two public functions: the largest mean of sign * indicator, times the sign."""
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    if len(policy) != confidence_set.horizon:
        raise InvalidMDPError(f"policy has {len(policy)} layers; this set needs {confidence_set.horizon}")
    for h, table in enumerate(policy):
        if table.shape != (sizes[h], n_actions):
            raise InvalidMDPError(f"policy[{h}] has shape {table.shape}; this set needs ({sizes[h]}, {n_actions})")
    flat_policy = np.concatenate(policy, axis=None)
    check_policy(Layers(sizes, n_actions), flat_policy)
    if targets is None:
        wanted = np.array([(h, s) for h, size in enumerate(sizes[:-1]) for s in range(size)])
    else:
        wanted = np.asarray(targets, dtype=np.int64).reshape(-1, 2)
        for h, s in wanted.tolist():
            if not (0 <= h < confidence_set.horizon and 0 <= s < sizes[h]):
                raise InvalidMDPError(
                    f"target (layer {h}, state {s}) does not exist: layers 0 to "
                    f"{confidence_set.horizon - 1} have {sizes[:-1]} states"
                )
    bounds = _extreme(confidence_set, flat_policy, np.ascontiguousarray(wanted[:, 0]), wanted[:, 1], sign)
    if targets is not None:
        return bounds
    return np.split(bounds, np.cumsum(sizes[:-2]))


def visited_upper_occupancy(confidence_set: ConfidenceSet, policy: Floats, states: Integers) -> Floats:
    """:func:`upper_occupancy` of one state per layer 0..H-1, from a flat policy, both trusted to be of the right shape:
    what a learner calls."""
    return _extreme(confidence_set, policy, np.arange(len(states)), states, 1.0)


def occupancy_intervals(confidence_set: ConfidenceSet, policy: Floats, exact: bool = True) -> tuple[Floats, Floats]:
    """Between which bounds the probability of visiting each state lies, flat over the states of layers 0..H-1.

    ``exact``: the least and greatest over the set, a backward pass for each state; otherwise wider bounds, by one
    forward pass.  From a flat policy, trusted to be one: what a learner calls.

    Examples
    --------
    >>> from advmdp.confidence import BoxSet
    >>> boxes = BoxSet([[[[0.2, 0.5]]], [[[1.0]], [[1.0]]]], [[[[0.4, 0.9]]], [[[1.0]], [[1.0]]]])
    >>> [bound.round(3).tolist() for bound in occupancy_intervals(boxes, np.ones(3))]
    [[1.0, 0.2, 0.6], [1.0, 0.4, 0.8]]
    """
    sizes = confidence_set.layer_sizes
    if exact and not isinstance(confidence_set, KnownKernels):
        layers = np.repeat(np.arange(len(sizes) - 1), sizes[:-1])
        states = np.concatenate([np.arange(size) for size in sizes[:-1]])
        low, high = (_extreme(confidence_set, policy, layers, states, sign) for sign in (-1.0, 1.0))
        return low, high
    features = NOTHING
    if isinstance(confidence_set, EllipsoidSet) and confidence_set.simplex:
        features = confidence_set.flat_features
    low, high = np.zeros((2, sum(sizes)))
    forward_intervals(
        row_data(confidence_set), features, confidence_set.size_array, confidence_set.n_actions, policy, low, high
    )
    return low[:-1], high[:-1]


def _extreme(confidence_set: ConfidenceSet, policy: Floats, layers: Integers, states: Integers, sign: float) -> Floats:
    """sign times the largest mean of sign times the indicator of each of some states."""
    widest = max(confidence_set.layer_sizes)
    functions = np.zeros((len(states), widest))
    functions[np.arange(len(states)), states] = sign
    _backward(
        row_data(confidence_set),
        confidence_set.size_array,
        confidence_set.n_actions,
        policy,
        confidence_set.flat_reachable,
        layers,
        0,
        functions,
        np.empty(widest * confidence_set.n_actions),
    )
    bounds: Floats = sign * functions[:, 0]
    require_rows(confidence_set, bool(np.isnan(bounds).any()))
    return bounds.clip(0.0, 1.0)


@kernel
def _backward(
    data: RowData,
    sizes: Integers,
    n_actions: int,
    policy: Floats,
    reachable: Flags,
    layers: Integers,
    lowest: int,
    values: Floats,
    means: Floats,
) -> None:
    """Replace each function (row of ``values``, on the layer in ``layers``) by its value on layer ``lowest``.

    Layer by layer for all functions, so that a layer's data stays in cache. ``means`` is left with the row means of
    the last function at the last layer.
    """
    nothing = view1(means, 0, 0)
    state = 0
    block = 0
    entry = 0
    for h in range(sizes.shape[0] - 2):
        state += sizes[h]
        block += sizes[h] * n_actions
        entry += sizes[h] * n_actions * sizes[h + 1]
    for h in range(sizes.shape[0] - 3, lowest - 1, -1):
        n = sizes[h]
        m = sizes[h + 1]
        N = n * n_actions
        state -= n
        block -= N
        entry -= N * m
        for i in range(layers.shape[0]):
            if layers[i] <= h:
                continue
            function = values[i]
            layer_means(data, n, n_actions, m, block, entry, view1(function, 0, m), means, nothing)
            for s in range(n):
                function[s] = 0.0
                if reachable[state + s]:
                    for a in range(n_actions):
                        function[s] += policy[block + s * n_actions + a] * means[a * n + s]


@allocating_kernel
def forward_intervals(
    data: RowData, features: Floats, sizes: Integers, n_actions: int, policy: Floats, low: Floats, high: Floats
) -> None:
    """[low, high] around the probability of each state, into their places; the terminal one has one too."""
    widest = 0
    for h in range(sizes.shape[0]):
        widest = max(widest, sizes[h])
    least = np.empty((widest, widest))  # of each next state, from each state of a layer
    most = np.empty((widest, widest))
    hull = np.empty(4 * widest)
    order = np.empty(widest, dtype=np.int64)
    another = np.empty(widest, dtype=np.int64)
    low[0] = 1.0
    high[0] = 1.0
    state = 0
    block = 0
    entry = 0
    for h in range(sizes.shape[0] - 2):
        n = sizes[h]
        m = sizes[h + 1]
        least[:m, :n] = 0.0
        most[:m, :n] = 0.0
        for s in range(n):
            for a in range(n_actions):
                share = policy[block + s * n_actions + a]
                if share > 0.0:
                    row_hull(data, features, n, n_actions, m, block, entry, s, a, hull)
                    for t in range(m):
                        least[t, s] -= share * hull[t]
                        most[t, s] += share * hull[m + t]
        here_low = low[state : state + n]
        here_high = high[state : state + n]
        state += n
        least_sum = 0.0
        most_sum = 0.0
        for t in range(m):
            if n <= FEW:
                insertion_sort(least[t, :n], order)
                insertion_sort(most[t, :n], another)
            else:
                order[:n] = np.argsort(least[t, :n])
                another[:n] = np.argsort(most[t, :n])
            low[state + t] = -largest_mean(here_low, here_high, least[t, :n], order)
            high[state + t] = min(1.0, largest_mean(here_low, here_high, most[t, :n], another))
            least_sum += low[state + t]
            most_sum += high[state + t]
        for t in range(m):  # the others of the layer have the rest
            before = low[state + t]
            low[state + t] = max(before, 1.0 - (most_sum - high[state + t]))
            high[state + t] = min(high[state + t], max(0.0, 1.0 - (least_sum - before)))
        block += n * n_actions
        entry += n * n_actions * m


@inner_kernel
def insertion_sort(values: Floats, order: Integers) -> None:
    """Indices of the values, the least first."""
    for i in range(values.size):
        j = i
        while j > 0 and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@inner_kernel
def largest_mean(low: Floats, high: Floats, values: Floats, order: Integers) -> float:
    """max of sum d values over low <= d <= high with sum d = 1; ``order`` sorts the values."""
    left = 1.0
    total = 0.0
    for s in range(low.size):
        left -= low[s]
        total += low[s] * values[s]
    for i in range(low.size - 1, -1, -1):
        s = order[i]
        more = min(max(left, 0.0), high[s] - low[s])
        total += more * values[s]
        left -= more
    return total
