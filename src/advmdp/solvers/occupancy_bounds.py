"""How likely a policy can be to visit a state, at most and at least, over a confidence set.

Row choices at different pairs are independent and each layer is visited once, so backward dynamic
programming is exact: with f the indicator of the target,

    f(s) <- sum_a policy(a | s) max_{p in row set (s, a)} p.f,     layer by layer up to the first state.

That is a pass for each target.  One forward pass gives bounds for all states that are valid and wider: with
[low, high] around every entry of every row, and [l, u] around the probability of every state of a layer,

    u(s') = max over d in [l, u], sum d = 1 of sum_s d(s) sum_a policy(a | s) high(s' | s, a),     and l(s') likewise.

A backward pass goes through the states that can lead to its target, and no others: f is zero there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from advmdp._arrays import Flags, Floats, Integers
from advmdp._checks import float_array
from advmdp._compiled import inner_kernel, kernel
from advmdp.confidence import ConfidenceSet
from advmdp.confidence.base import Arrivals
from advmdp.errors import InvalidMDPError
from advmdp.layered import Layers
from advmdp.layered.rows import row_begin, row_end
from advmdp.occupancy import check_policy
from advmdp.rows.layer import Layer, entry_bounds, extreme_means, layer_extremes, list_flagged
from advmdp.solvers.problem import require_rows

#: Mass below this need not be placed: to leave it out makes a lower bound smaller.
SETTLED = 1e-13
#: So many targets share a pass.
AT_A_TIME = 64


@overload
def upper_occupancy(confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: None = None) -> list[Floats]: ...


@overload
def upper_occupancy(confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: ArrayLike) -> Floats: ...


def upper_occupancy(
    confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: ArrayLike | None = None
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
    confidence_set: ConfidenceSet, policy: Sequence[Floats], targets: ArrayLike | None = None
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
    means = np.empty((sizes[layer], n_actions))
    here = confidence_set.layer(layer)
    data = confidence_set.compiled_rows()
    layer_extremes(data, here, np.arange(here.n), sign * function, means.ravel(), np.empty(0))
    return sign * means


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


def largest_excess(confidence_set: ConfidenceSet, q: Sequence[Floats], losses: Sequence[Floats]) -> float:
    """The largest <q - q*, losses> over the occupancy measures q* of the set, or (ellipsoids) a little more.

    A loss may be infinite where q is zero: q* stays away from there.  A state whose losses all are counts as free
    (zero times infinity is no number), which makes the answer larger, if anything.
    """
    value, following = 0.0, np.zeros(1)
    for h in range(confidence_set.horizon - 1, -1, -1):
        following = (losses[h] + extreme_rows(confidence_set, h, following, maximise=False)).min(axis=1)
        # Rows of states that nothing leads to may be empty: no number.
        following = np.where(confidence_set.reachable[h] & (following < np.inf), following, 0.0)
        value += float(q[h][q[h] > 0.0] @ losses[h][q[h] > 0.0])
    return value - float(following[0])


def _bounds(
    confidence_set: ConfidenceSet, policy: Sequence[ArrayLike], targets: ArrayLike | None, sign: float
) -> list[Floats] | Floats:
    """The two public functions: the largest mean of sign * indicator, times the sign."""
    layers = Layers(confidence_set.layer_sizes, confidence_set.n_actions)
    flat = layers.flatten(list(policy), "policy")
    check_policy(layers, flat)
    if targets is not None:
        return _extreme(confidence_set, flat, *_checked_targets(confidence_set, targets), sign)
    return np.split(_extreme(confidence_set, flat, *_all_states(layers.sizes), sign), np.cumsum(layers.sizes[:-2]))


def _checked_targets(confidence_set: ConfidenceSet, targets: ArrayLike) -> tuple[Integers, Integers]:
    """Layers and states, from rows (layer, state) of integers, none of them twice."""
    given = float_array(targets, "targets", InvalidMDPError)
    if given.size == 0:
        given = np.empty((0, 2))
    if given.ndim != 2 or given.shape[1] != 2:
        raise InvalidMDPError(f"targets has shape {given.shape}; it must be rows (layer, state), shape (n, 2)")
    sizes, seen = confidence_set.layer_sizes, set()
    for h, s in given.tolist():
        if not (h.is_integer() and s.is_integer()):
            raise InvalidMDPError(f"target (layer {h:g}, state {s:g}) must be two integers")
        if not (0 <= h < confidence_set.horizon and 0 <= s < sizes[int(h)]):
            raise InvalidMDPError(
                f"target (layer {h:g}, state {s:g}) does not exist: layers 0 to "
                f"{confidence_set.horizon - 1} have {sizes[:-1]} states"
            )
        if (h, s) in seen:
            raise InvalidMDPError(f"target (layer {h:g}, state {s:g}) is there twice; each may be asked for once")
        seen.add((h, s))
    layers, states = given.T.astype(np.int64, order="C")
    return layers, states


def _all_states(sizes: Sequence[int]) -> tuple[Integers, Integers]:
    """The layer and number of every state but the terminal one."""
    return np.repeat(np.arange(len(sizes) - 1), sizes[:-1]), np.concatenate([np.arange(size) for size in sizes[:-1]])


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
    if exact and not confidence_set.single:
        states = _all_states(confidence_set.layer_sizes)
        low, high = (_extreme(confidence_set, policy, *states, sign) for sign in (-1.0, 1.0))
        return low, high
    low, high = np.zeros((2, sum(confidence_set.layer_sizes)))
    widest, entries = max(confidence_set.layer_sizes), confidence_set.n_entries
    forward_intervals(
        confidence_set.compiled_rows(), confidence_set.arrivals, confidence_set.size_array, confidence_set.n_actions,
        not confidence_set.single, policy, np.zeros((4, entries)), np.empty(widest, dtype=np.int64), np.empty(widest),
        low, high,
    )  # fmt: skip
    return low[:-1], high[:-1]


def _extreme(confidence_set: ConfidenceSet, policy: Floats, layers: Integers, states: Integers, sign: float) -> Floats:
    """sign times the largest mean of sign times the indicator of each of some states."""
    widest = max(confidence_set.layer_sizes)
    data, found = confidence_set.compiled_rows(), np.empty(len(states))
    means, listed = np.empty(widest * confidence_set.n_actions), np.zeros(widest, dtype=np.bool_)
    for begin in range(0, len(states), AT_A_TIME):
        some = slice(begin, begin + AT_A_TIME)
        number = len(states[some])
        _backward(
            data, confidence_set.arrivals, confidence_set.size_array, confidence_set.n_actions, policy,
            confidence_set.flat_reachable, layers[some], states[some], sign, np.zeros((number, 2, widest)),
            np.empty((number, 2, widest), dtype=np.int64), np.ones(number, dtype=np.int64), listed, means, found[some],
        )  # fmt: skip
    bounds: Floats = sign * found
    require_rows(confidence_set, bool(np.isnan(bounds).any()))
    return bounds.clip(0.0, 1.0)


@kernel
def _backward(
    data: Any, arrivals: Arrivals, sizes: Integers, n_actions: int, policy: Floats, reachable: Flags, layers: Integers,
    targets: Integers, sign: float, values: Floats, lists: Integers, counts: Integers, listed: Flags, means: Floats,
    found: Floats,
) -> None:  # fmt: skip
    """The value on the first layer of ``sign`` times the indicator of each target, by way of its ancestors.

    ``values`` (targets, 2, widest), zero at first, has the functions of two layers, and ``lists`` the states where they
    may not be zero, ``counts`` of them.  Layer by layer for all targets, so that a layer's data stays in cache.
    """
    for i in range(targets.shape[0]):
        lists[i, 0, 0] = targets[i]
        values[i, 0, targets[i]] = sign
    state = 0
    for h in range(sizes.shape[0] - 2):
        state += sizes[h]
    for h in range(sizes.shape[0] - 3, -1, -1):
        state -= sizes[h]
        layer = Layer(h, sizes[h], n_actions, sizes[h + 1], state * n_actions)
        here = reachable[state : state + layer.n]
        for i in range(targets.shape[0]):
            if layers[i] <= h:
                continue
            now = (layers[i] - h - 1) % 2
            following, function = values[i, now], values[i, 1 - now]
            after, before = lists[i, now], lists[i, 1 - now]
            count = ancestors(arrivals, h, here, after, counts[i], counts[i] == layer.m, listed, before)
            extreme_means(data, layer, before, count, following[: layer.m], means, means[:0])
            for j in range(count):
                first = before[j] * n_actions
                total = 0.0
                for pair in range(first, first + n_actions):
                    total += policy[layer.block + pair] * means[pair]
                function[before[j]] = total
            for j in range(counts[i]):
                following[after[j]] = 0.0
            counts[i] = count
    for i in range(targets.shape[0]):
        found[i] = values[i, layers[i] % 2, 0]


@inner_kernel
def ancestors(
    arrivals: Arrivals, h: int, reachable: Flags, states: Integers, count: int, everything: bool, listed: Flags,
    found: Integers,
) -> int:  # fmt: skip
    """The reachable states of layer h that lead to one of some states, into ``found``; their number.

    If these states are ``everything`` in their layer, all reachable ones are taken.
    """
    first = arrivals.first[h, 0]
    if first < 0 or everything:
        return list_flagged(reachable, found)
    number = 0
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


@kernel
def forward_intervals(
    data: Any, arrivals: Arrivals, sizes: Integers, n_actions: int, share: bool, policy: Floats, memory: Floats,
    order: Integers, room: Floats, low: Floats, high: Floats,
) -> None:  # fmt: skip
    """[low, high] around the probability of each state, into their places; the terminal one has one too.

    With ``share`` what others have left is used, of a row and of a layer.  Where rows are known nothing is to gain, and
    differences of sums would carry rounding from layer to layer.  ``memory``, finite at first, is for the bounds of
    each entry of a layer and for how each state leads to each next state.
    """
    bounds, leads = memory[:2], memory[2:]
    low[0] = 1.0
    high[0] = 1.0
    state = 0
    for h in range(sizes.shape[0] - 2):
        layer = Layer(h, sizes[h], n_actions, sizes[h + 1], state * n_actions)
        there = state + layer.n
        here_low, next_low = low[state:there], low[there : there + layer.m]
        here_high, next_high = high[state:there], high[there : there + layer.m]
        lead(data, layer, arrivals, share, policy[layer.block :], here_high, bounds, leads)
        next_intervals(arrivals, h, here_low, here_high, leads, order, room, next_low, next_high)
        if share:
            take_the_rest(next_low, next_high, 1.0)
        state = there


@inner_kernel
def take_the_rest(low: Floats, high: Floats, factor: float) -> None:
    """Cut bounds of parts of one to what the others leave, and multiply them."""
    least = 0.0
    most = 0.0
    for t in range(low.shape[0]):
        least += low[t]
        most += high[t]
    for t in range(low.shape[0]):
        before = low[t]
        low[t] = factor * max(before, 1.0 - (most - high[t]))
        high[t] = factor * min(high[t], max(0.0, 1.0 - (least - before)))


@inner_kernel
def lead(
    data: Any,
    layer: Layer,
    arrivals: Arrivals,
    share: bool,
    policy: Floats,
    mass: Floats,
    bounds: Floats,
    leads: Floats,
) -> None:
    """How each state leads to each next state, over all its actions: slot by slot, or (m, n) of a dense layer; those of
    states without ``mass`` are of no use."""
    rows, h, n, n_actions, m = data.rows, layer.h, layer.n, layer.n_actions, layer.m
    low, high, least, most = bounds[0], bounds[1], leads[0], leads[1]
    first = 0
    while first < n and not mass[first] > 0.0:
        first += 1
    last = n
    while last > first and not mass[last - 1] > 0.0:
        last -= 1
    if first < last:
        entry_bounds(data, layer, first, last, low, high)
    start = row_begin(rows, h, 0, m)
    at = arrivals.first[h, 0]
    slots = n * m if at < 0 else arrivals.at[at + m] - arrivals.at[at]
    for slot in range(slots):
        least[slot] = 0.0
        most[slot] = 0.0
    for s in range(first, last):
        for pair in range(s * n_actions, (s + 1) * n_actions if mass[s] > 0.0 else 0):
            begin = row_begin(rows, h, pair, m) - start
            end = row_end(rows, h, pair, m) - start
            chance = policy[pair]
            if share:
                take_the_rest(low[begin:end], high[begin:end], chance)
                chance = 1.0
            for e in range(begin, end):
                slot = (e - begin) * n + s if at < 0 else arrivals.slots[arrivals.first[h, 1] + e]
                least[slot] += chance * low[e]
                most[slot] += chance * high[e]


@inner_kernel
def next_intervals(
    arrivals: Arrivals, h: int, low: Floats, high: Floats, leads: Floats, order: Integers, room: Floats,
    next_low: Floats, next_high: Floats,
) -> None:  # fmt: skip
    """Of the next states, from the states of a layer that lead to each of them; the value of the others is 0."""
    n = low.shape[0]
    leads_least, leads_most = leads[0], leads[1]
    first = arrivals.first[h, 0]
    left = 1.0  # mass that is free to be anywhere, and the room for it
    total = 0.0
    for s in range(n):
        left -= low[s]
        total += high[s] - low[s]
    left = max(left, 0.0)
    begin = 0
    count = n
    for t in range(next_low.shape[0]):
        if first >= 0:
            begin = arrivals.at[first + t] - arrivals.at[first]
            count = arrivals.at[first + t + 1] - arrivals.at[first + t]
        least = 0.0
        most = 0.0
        full = 0.0  # as if all room of these states could be used
        space = 0.0
        for j in range(count):
            s = j if first < 0 else arrivals.states[arrivals.at[first] + begin + j]
            room[j] = high[s] - low[s]
            least += low[s] * leads_least[begin + j]
            most += low[s] * leads_most[begin + j]
            full += high[s] * leads_most[begin + j]
            space += room[j]
        # What finds no room elsewhere must be here, where it leads to the next state least.
        rest = left - (total - space)
        if rest > SETTLED:
            least += placed(room, leads_least[begin : begin + count], -1.0, rest, order)
        if space > left:
            full = most + placed(room, leads_most[begin : begin + count], 1.0, left, order)
        next_low[t] = least
        next_high[t] = min(1.0, full)
        begin += count


@inner_kernel
def placed(room: Floats, values: Floats, sign: float, mass: float, order: Integers) -> float:
    """The largest (or least, with sign -1) value of some mass, each unit of which has the value of where it is put.

    Places are partitioned: what is better than a pivot has room for all that is left, or is full.
    """
    first, last = 0, values.shape[0]
    for i in range(last):
        order[i] = i
    total = 0.0
    while first < last and mass > 0.0:
        pivot = values[order[(first + last) // 2]]
        above = i = first
        below = last
        better = level = value = 0.0  # the room, what fills the better places, and the room that is as good
        while i < below:
            s = order[i]
            gain = sign * (values[s] - pivot)
            if gain < 0.0:
                below -= 1
                order[i], order[below] = order[below], s
                continue
            if gain > 0.0:
                order[i], order[above] = order[above], s
                above += 1
                better += room[s]
                value += room[s] * values[s]
            else:
                level += room[s]
            i += 1
        if better >= mass:
            last = above
        else:
            more = min(mass - better, level)
            total += value + more * pivot
            mass -= better + more
            first = below
    return total
