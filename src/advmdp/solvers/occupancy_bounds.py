"""How likely a policy can be to visit a state, at most and at least, over a confidence set.

Row choices at different pairs are independent and each layer is visited once, so backward dynamic
programming is exact: with f the indicator of the target,

    f(s) <- sum_a policy(a | s) max_{p in row set (s, a)} p.f,     layer by layer up to the first state.

That is a pass for each target.  One forward pass gives bounds for all states that are valid and wider: with
[low, high] around every entry of every row, and [l, u] around the probability of every state of a layer,

    u(s') = max over d in [l, u], sum d = 1 of sum_s d(s) sum_a policy(a | s) high(s' | s, a),     and l(s') likewise.

In sparse layers a backward pass goes through the states that can lead to its target, and no others: f is zero there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._compiled import allocating_kernel, inner_kernel, kernel
from advmdp.confidence import ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.confidence.base import Arrivals
from advmdp.errors import InvalidMDPError
from advmdp.layered import Layers
from advmdp.layered.rows import SparseRows
from advmdp.occupancy import check_policy
from advmdp.solvers.layout import view1
from advmdp.solvers.problem import require_rows
from advmdp.solvers.row_sets import KNOWN, NOTHING, RowData, entry_bounds, layer_means, listed_means, row_data

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: So many values are sorted by insertion.
FEW = 48
#: Mass below this need not be placed: to leave it out makes a lower bound smaller.
SETTLED = 1e-13


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
    means = np.full(sizes[layer] * n_actions, np.nan)
    # In sparse layers the states that nobody reaches are asked for as well.
    _layer(row_data(confidence_set), layer, *_shape_of(confidence_set, layer), sign * function, means)
    return sign * means.reshape(n_actions, sizes[layer]).T


def _shape_of(confidence_set: ConfidenceSet, layer: int) -> tuple[int, int, int, int, Flags]:
    """States, actions and next states of a layer, the pairs ahead of it, and its states."""
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    everywhere = np.ones(sizes[layer], dtype=np.bool_)
    return sizes[layer], n_actions, sizes[layer + 1], n_actions * sum(sizes[:layer]), everywhere


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


def entrywise_hull(confidence_set: ConfidenceSet) -> tuple[list[Any], list[Any]]:
    """Least and greatest value of each entry over its row set; NaN for empty pairs."""
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    lower: list[Any] = []
    upper: list[Any] = []
    for h, table in enumerate(confidence_set._row_data()[0]):
        if isinstance(table, SparseRows) and h < confidence_set.horizon - 1:
            low, high = np.empty((2, len(table.values)))
            _sparse_hull(
                row_data(confidence_set), h, *_shape_of(confidence_set, h)[:4], confidence_set.arrivals,
                np.zeros(sizes[h + 1]), np.empty(sizes[h] * n_actions), low, high,
            )  # fmt: skip
            lower.append(table.with_values(np.maximum(low, 0.0)))
            upper.append(table.with_values(np.maximum(high, 0.0)))
            continue
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
    if isinstance(confidence_set, EllipsoidSet) and confidence_set.simplex and confidence_set.weights is None:
        features = confidence_set.flat_features
    low, high = np.zeros((2, sum(sizes)))
    forward_intervals(
        row_data(confidence_set), confidence_set.arrivals, features, confidence_set.size_array,
        confidence_set.n_actions, policy, low, high,
    )  # fmt: skip
    return low[:-1], high[:-1]


def _extreme(confidence_set: ConfidenceSet, policy: Floats, layers: Integers, states: Integers, sign: float) -> Floats:
    """sign times the largest mean of sign times the indicator of each of some states."""
    widest = max(confidence_set.layer_sizes)
    data = row_data(confidence_set)
    shape = confidence_set.size_array, confidence_set.n_actions, policy, confidence_set.flat_reachable
    if confidence_set.sparse and confidence_set.layer_sizes[1:-1]:
        found = np.empty(len(states))
        _backward_from(
            data, confidence_set.arrivals, *shape, layers, states, sign, np.zeros((2, widest)),
            np.empty(widest * confidence_set.n_actions), np.empty((2, widest), dtype=np.int64),
            np.zeros(widest, dtype=np.bool_), found,
        )  # fmt: skip
    else:
        functions = np.zeros((len(states), widest))
        functions[np.arange(len(states)), states] = sign
        _backward(data, *shape, layers, functions, np.empty(widest * confidence_set.n_actions))
        found = functions[:, 0]
    bounds: Floats = sign * found
    require_rows(confidence_set, bool(np.isnan(bounds).any()))
    return bounds.clip(0.0, 1.0)


@kernel
def _layer(
    data: RowData, h: int, n: int, n_actions: int, m: int, block: int, reachable: Flags, values: Floats, means: Floats
) -> None:
    """:func:`layer_means` for a call from Python."""
    layer_means(data, h, n, n_actions, m, block, reachable, values, means, view1(values, 0, 0))


@kernel
def _sparse_hull(
    data: RowData,
    h: int,
    n: int,
    n_actions: int,
    m: int,
    block: int,
    arrivals: Arrivals,
    values: Floats,
    means: Floats,
    low: Floats,
    high: Floats,
) -> None:
    """Extremes of each entry of a sparse layer; ``values`` (m,) is zero before and after, ``means`` has N entries."""
    nothing = view1(values, 0, 0)
    first = arrivals.first[h]
    for t in range(m):
        begin = arrivals.at[first + t]
        end = arrivals.at[first + t + 1]
        count = 0
        for x in range(begin, end):
            s = arrivals.states[x]
            if count == 0 or data.states[count - 1] != s:
                data.states[count] = s
                count += 1
        values[t] = 1.0
        listed_means(data, h, n, n_actions, m, block, data.states, count, values, means, nothing)
        for x in range(begin, end):
            high[arrivals.entries[x]] = means[arrivals.pairs[x] % n_actions * n + arrivals.states[x]]
        values[t] = -1.0
        listed_means(data, h, n, n_actions, m, block, data.states, count, values, means, nothing)
        for x in range(begin, end):
            low[arrivals.entries[x]] = -means[arrivals.pairs[x] % n_actions * n + arrivals.states[x]]
        values[t] = 0.0


@kernel
def _backward(
    data: RowData,
    sizes: Integers,
    n_actions: int,
    policy: Floats,
    reachable: Flags,
    layers: Integers,
    values: Floats,
    means: Floats,
) -> None:
    """Replace each function (row of ``values``, on the layer in ``layers``) by its value on the first layer.

    Layer by layer for all functions, so that a layer's data stays in cache.
    """
    nothing = view1(means, 0, 0)
    state = 0
    block = 0
    for h in range(sizes.shape[0] - 2):
        state += sizes[h]
        block += sizes[h] * n_actions
    for h in range(sizes.shape[0] - 3, -1, -1):
        n = sizes[h]
        m = sizes[h + 1]
        state -= n
        block -= n * n_actions
        here = view1(reachable, state, n)
        for i in range(layers.shape[0]):
            if layers[i] <= h:
                continue
            function = values[i]
            layer_means(data, h, n, n_actions, m, block, here, view1(function, 0, m), means, nothing)
            for s in range(n):
                function[s] = 0.0
                if here[s]:
                    for a in range(n_actions):
                        function[s] += policy[block + s * n_actions + a] * means[a * n + s]


@kernel
def _backward_from(
    data: RowData,
    arrivals: Arrivals,
    sizes: Integers,
    n_actions: int,
    policy: Floats,
    reachable: Flags,
    layers: Integers,
    targets: Integers,
    sign: float,
    values: Floats,
    means: Floats,
    lists: Integers,
    listed: Flags,
    found: Floats,
) -> None:
    """The value on the first layer of ``sign`` times the indicator of each target, by way of its ancestors.

    ``values`` (2, widest), zero before and after, has the functions of two layers, and ``lists`` the states where they
    may not be zero.
    """
    nothing = view1(values[0], 0, 0)
    for i in range(targets.shape[0]):
        state = 0
        block = 0
        for h in range(layers[i]):
            state += sizes[h]
            block += sizes[h] * n_actions
        now = 0
        count = 1
        lists[0, 0] = targets[i]
        values[0, targets[i]] = sign
        for h in range(layers[i] - 1, -1, -1):
            n = sizes[h]
            m = sizes[h + 1]
            state -= n
            block -= n * n_actions
            here = view1(reachable, state, n)
            next_count = ancestors(arrivals, h, here, lists[now], count, listed, lists[1 - now])
            following = values[now]
            function = values[1 - now]
            if arrivals.first[h] < 0:
                layer_means(data, h, n, n_actions, m, block, here, view1(following, 0, m), means, nothing)
            else:
                listed_means(
                    data, h, n, n_actions, m, block, lists[1 - now], next_count, following, means, nothing
                )  # fmt: skip
            for j in range(next_count):
                s = lists[1 - now, j]
                function[s] = 0.0
                for a in range(n_actions):
                    function[s] += policy[block + s * n_actions + a] * means[a * n + s]
            for j in range(count):
                following[lists[now, j]] = 0.0
            now = 1 - now
            count = next_count
        found[i] = values[now, 0]
        for j in range(count):
            values[now, lists[now, j]] = 0.0


@inner_kernel
def ancestors(
    arrivals: Arrivals,
    h: int,
    reachable: Flags,
    states: Integers,
    count: int,
    listed: Flags,
    found: Integers,
) -> int:
    """The reachable states of layer h that lead to one of some states, into ``found``; their number."""
    first = arrivals.first[h]
    number = 0
    if first < 0:
        for s in range(reachable.shape[0]):
            if reachable[s]:
                found[number] = s
                number += 1
        return number
    for j in range(count):
        t = first + states[j]
        for x in range(arrivals.at[t], arrivals.at[t + 1]):
            s = arrivals.states[x]
            if reachable[s] and not listed[s]:
                listed[s] = True
                found[number] = s
                number += 1
    for j in range(number):
        listed[found[j]] = False
    return number


@allocating_kernel
def forward_intervals(
    data: RowData,
    arrivals: Arrivals,
    features: Floats,
    sizes: Integers,
    n_actions: int,
    policy: Floats,
    low: Floats,
    high: Floats,
) -> None:
    """[low, high] around the probability of each state, into their places; the terminal one has one too."""
    widest = 0
    dense = 0
    entries = 0
    for h in range(sizes.shape[0] - 2):
        widest = max(widest, sizes[h], sizes[h + 1])
        if arrivals.first[h] < 0:
            dense = max(dense, sizes[h], sizes[h + 1])
            entries = max(entries, sizes[h] * n_actions * (sizes[h + 1] + 1) + sizes[h + 1])
        else:
            first = arrivals.first[h]
            entries = max(entries, arrivals.at[first + sizes[h + 1]] - arrivals.at[first])
    least = np.empty((dense, dense))  # of each next state, from each state of a layer
    most = np.empty((dense, dense))
    lowest = np.zeros(entries)  # of each entry of a layer; finite where nobody asks
    highest = np.zeros(entries)
    order = np.empty(widest, dtype=np.int64)
    another = np.empty(widest, dtype=np.int64)
    work = np.empty((3, widest))
    low[0] = 1.0
    high[0] = 1.0
    state = 0
    block = 0
    for h in range(sizes.shape[0] - 2):
        n = sizes[h]
        m = sizes[h + 1]
        here = policy[block : block + n * n_actions]
        here_low = low[state : state + n]
        here_high = high[state : state + n]
        there_low = low[state + n : state + n + m]
        there_high = high[state + n : state + n + m]
        entry_bounds(data, features, h, n, n_actions, m, block, here, here_high, lowest, highest)
        if arrivals.first[h] >= 0:
            sparse_intervals(
                arrivals, h, here_low, here_high, lowest, highest, order, another, work, there_low, there_high
            )
        else:
            least[:m, :n] = 0.0
            most[:m, :n] = 0.0
            for s in range(n):
                for a in range(n_actions if here_high[s] > 0.0 else 0):
                    at = (s * n_actions + a) * m
                    for t in range(m):
                        least[t, s] -= lowest[at + t]
                        most[t, s] += highest[at + t]
            for t in range(m):
                if n <= FEW:
                    insertion_sort(least[t, :n], order)
                    insertion_sort(most[t, :n], another)
                else:
                    order[:n] = np.argsort(least[t, :n])
                    another[:n] = np.argsort(most[t, :n])
                there_low[t] = -largest_mean(here_low, here_high, least[t, :n], order)
                there_high[t] = min(1.0, largest_mean(here_low, here_high, most[t, :n], another))
        least_sum = 0.0
        most_sum = 0.0
        for t in range(m):
            least_sum += there_low[t]
            most_sum += there_high[t]
        for t in range(m if data.kind != KNOWN else 0):  # the others of the layer have the rest
            before = there_low[t]
            there_low[t] = max(before, 1.0 - (most_sum - there_high[t]))
            there_high[t] = min(there_high[t], max(0.0, 1.0 - (least_sum - before)))
        state += n
        block += n * n_actions


@inner_kernel
def sparse_intervals(
    arrivals: Arrivals,
    h: int,
    low: Floats,
    high: Floats,
    lowest: Floats,
    highest: Floats,
    order: Integers,
    another: Integers,
    work: Floats,
    next_low: Floats,
    next_high: Floats,
) -> None:
    """Of the next states, from the states of a sparse layer that lead to each of them; the value of the others is 0."""
    first = arrivals.first[h]
    left = 1.0  # mass that is free to be anywhere, and the room for it
    room = 0.0
    for s in range(low.shape[0]):
        left -= low[s]
        room += high[s] - low[s]
    left = max(left, 0.0)
    for t in range(next_low.shape[0]):
        begin = arrivals.at[first + t]
        end = arrivals.at[first + t + 1]
        least = 0.0
        most = 0.0
        full = 0.0  # as if all room of the states that lead here could be used
        space = 0.0
        last = -1
        for x in range(begin, end):
            s = arrivals.states[x]
            e = arrivals.entries[x]
            least += low[s] * lowest[e]
            most += low[s] * highest[e]
            full += high[s] * highest[e]
            if s != last:
                last = s
                space += high[s] - low[s]
        # What finds no room elsewhere must be here, where it leads to the next state least.
        rest = left - (room - space)
        if space <= left and rest <= SETTLED:
            next_low[t] = least
            next_high[t] = min(1.0, full)
            continue
        count = 0
        last = -1
        for x in range(begin, end):
            s = arrivals.states[x]
            if s != last:
                last = s
                work[0, count] = high[s] - low[s]
                work[1, count] = 0.0
                work[2, count] = 0.0
                count += 1
            work[1, count - 1] += lowest[arrivals.entries[x]]
            work[2, count - 1] += highest[arrivals.entries[x]]
        if rest > 0.0:
            insertion_sort(view1(work[1], 0, count), another)
            for j in range(count):
                more = min(max(rest, 0.0), work[0, another[j]])
                least += more * work[1, another[j]]
                rest -= more
        rest = left
        if space > left:
            insertion_sort(view1(work[2], 0, count), order)
            for j in range(count - 1, -1, -1):
                more = min(rest, work[0, order[j]])
                most += more * work[2, order[j]]
                rest -= more
        next_low[t] = least
        next_high[t] = min(1.0, most if space > left else full)


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
