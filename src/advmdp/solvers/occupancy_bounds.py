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
from advmdp.layered.rows import Rows, SparseRows, entry_of, row_begin, row_end
from advmdp.occupancy import check_policy
from advmdp.solvers.layout import fill, view1
from advmdp.solvers.problem import require_rows
from advmdp.solvers.row_sets import KNOWN, NOTHING, RowData, entry_bounds, layer_means, listed_means, row_data

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

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
    first = arrivals.first[h, 0]
    start = row_begin(data.rows, h, 0, m)
    for t in range(m):
        begin = arrivals.at[first + t]
        count = arrivals.at[first + t + 1] - begin
        for j in range(count):
            data.states[j] = arrivals.states[begin + j]
        for sign in (1.0, -1.0):
            values[t] = sign
            listed_means(data, h, n, n_actions, m, block, data.states, count, values, means, nothing)
            found = high if sign > 0.0 else low
            for j in range(count):
                s = data.states[j]
                for a in range(n_actions):
                    e = entry_of(data.rows, h, s * n_actions + a, m, t)
                    if e >= 0:
                        found[e - start] = sign * means[a * n + s]
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
            next_count = ancestors(arrivals, h, here, lists[now], count, count == m, listed, lists[1 - now])
            following = values[now]
            function = values[1 - now]
            if arrivals.first[h, 0] < 0:
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
    everything: bool,
    listed: Flags,
    found: Integers,
) -> int:
    """The reachable states of layer h that lead to one of some states, into ``found``; their number.

    If these states are ``everything`` in their layer, all reachable ones are taken.
    """
    first = arrivals.first[h, 0]
    number = 0
    if first < 0 or everything:
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
    entries = 0
    slots = 0  # states that lead to next states
    for h in range(sizes.shape[0] - 2):
        n = sizes[h]
        m = sizes[h + 1]
        widest = max(widest, n, m)
        first = arrivals.first[h, 0]
        if first < 0:
            entries = max(entries, n * n_actions * (m + 1) + m)
            slots = max(slots, n * m)
        else:
            entries = max(entries, row_end(data.rows, h, n * n_actions - 1, m) - row_begin(data.rows, h, 0, m))
            slots = max(slots, arrivals.at[first + m] - arrivals.at[first])
    lowest = np.zeros(entries)  # of each entry of a layer; finite where nobody asks
    highest = np.zeros(entries)
    leads = np.empty((2, slots))
    heap = np.empty(widest, dtype=np.int64)
    room = np.empty((2, widest))
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
        lead(arrivals, data.rows, h, n_actions, m, here_high, lowest, highest, leads[0], leads[1])
        next_intervals(arrivals, h, here_low, here_high, leads[0], leads[1], heap, room, there_low, there_high)
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
def lead(
    arrivals: Arrivals, rows: Rows, h: int, n_actions: int, m: int, mass: Floats, lowest: Floats, highest: Floats,
    least: Floats, most: Floats,
) -> None:  # fmt: skip
    """How each state leads to each next state, over all its actions: slot by slot, or (m, n) of a dense layer."""
    n = mass.shape[0]
    first = arrivals.first[h, 0]
    if first < 0:
        fill(view1(least, 0, m * n), 0.0)
        fill(view1(most, 0, m * n), 0.0)
        for s in range(n):
            for pair in range(s * n_actions, (s + 1) * n_actions if mass[s] > 0.0 else 0):
                for t in range(m):
                    least[t * n + s] += lowest[pair * m + t]
                    most[t * n + s] += highest[pair * m + t]
        return
    slots = arrivals.at[first + m] - arrivals.at[first]
    fill(view1(least, 0, slots), 0.0)
    fill(view1(most, 0, slots), 0.0)
    entries = row_end(rows, h, n * n_actions - 1, m) - row_begin(rows, h, 0, m)
    which = view1(arrivals.slots, arrivals.first[h, 1], entries)
    for e in range(entries):
        least[which[e]] += lowest[e]
        most[which[e]] += highest[e]


@inner_kernel
def next_intervals(
    arrivals: Arrivals, h: int, low: Floats, high: Floats, leads_least: Floats, leads_most: Floats, heap: Integers,
    room: Floats, next_low: Floats, next_high: Floats,
) -> None:  # fmt: skip
    """Of the next states, from the states of a layer that lead to each of them; the value of the others is 0."""
    n = low.shape[0]
    first = arrivals.first[h, 0]
    left = 1.0  # mass that is free to be anywhere, and the room for it
    total = 0.0
    for s in range(n):
        left -= low[s]
        room[0, s] = high[s] - low[s]
        total += room[0, s]
    left = max(left, 0.0)
    begin = 0
    count = n
    for t in range(next_low.shape[0]):
        here = room[0]
        if first >= 0:
            begin = arrivals.at[first + t] - arrivals.at[first]
            count = arrivals.at[first + t + 1] - arrivals.at[first + t]
            here = room[1]
        least = 0.0
        most = 0.0
        full = 0.0  # as if all room of these states could be used
        space = 0.0
        for j in range(count):
            s = j
            if first >= 0:
                s = arrivals.states[arrivals.at[first] + begin + j]
                here[j] = room[0, s]
            least += low[s] * leads_least[begin + j]
            most += low[s] * leads_most[begin + j]
            full += high[s] * leads_most[begin + j]
            space += here[j]
        # What finds no room elsewhere must be here, where it leads to the next state least.
        rest = left - (total - space)
        if rest > SETTLED:
            least += placed(here, view1(leads_least, begin, count), -1.0, rest, heap)
        if space > left:
            full = most + placed(here, view1(leads_most, begin, count), 1.0, left, heap)
        next_low[t] = least
        next_high[t] = min(1.0, full)
        begin += count


@inner_kernel
def placed(room: Floats, values: Floats, sign: float, mass: float, heap: Integers) -> float:
    """The largest (or least, with sign -1) value of some mass, each unit of which has the value of where it is put."""
    count = values.shape[0]
    for i in range(count):
        heap[i] = i
    for i in range(count // 2 - 1, -1, -1):
        sift(values, sign, heap, i, count)
    total = 0.0
    while count > 0 and mass > 0.0:
        best = heap[0]
        more = min(mass, room[best])
        total += more * values[best]
        mass -= more
        count -= 1
        heap[0] = heap[count]
        sift(values, sign, heap, 0, count)
    return total


@inner_kernel
def sift(values: Floats, sign: float, heap: Integers, i: int, count: int) -> None:
    """Make ``heap`` one again where its element i may be too small."""
    while 2 * i + 1 < count:
        child = 2 * i + 1
        if child + 1 < count and sign * values[heap[child + 1]] > sign * values[heap[child]]:
            child += 1
        if not sign * values[heap[child]] > sign * values[heap[i]]:
            break
        heap[i], heap[child] = heap[child], heap[i]
        i = child
