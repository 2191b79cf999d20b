"""Occupancy measures, policies, expected losses, and the best policy in hindsight, exactly.

Every quantity is one pass over the layers: forward for occupancies, backward for values.  Arguments are
ragged lists as in the public contract; the compiled passes underneath work on the flat vectors of
:class:`advmdp.layered.Layers` and are shared with the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from advmdp._checks import float_array
from advmdp._compiled import kernel
from advmdp._threads import in_pieces, meet
from advmdp.errors import InvalidMDPError
from advmdp.layered import (
    FloatArray,
    IntArray,
    LayeredMDP,
    Layers,
    Rows,
    checked_available,
    flat_rows,
    layer_sizes,
    masked_layers,
)
from advmdp.layered.rows import RowParts, is_sparse, layer_means, next_state, row_begin, row_end, sparse_table
from advmdp.layered.shape import read_only

#: Kernels in any form that the functions of this module take.
Kernels = Sequence[Any] | LayeredMDP


def occupancy_measure(kernels: Kernels, policy: Sequence[ArrayLike]) -> list[FloatArray]:
    """Probability that a policy visits each pair, q(s, a), as a list over layers of ``(S_h, A)``.

    ``kernels`` is a list of ``(S_h, A, S_{h+1})``, or of sparse matrices ``(S_h * A, S_{h+1})``, or the world itself,
    which spares a copy.

    Examples
    --------
    >>> kernels = [[[[0.8, 0.2], [0.1, 0.9]]], [[[1.0], [1.0]], [[1.0], [1.0]]]]  # layers of 1, 2 and 1 states
    >>> policy = [[[0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]]
    >>> [q.round(3).tolist() for q in occupancy_measure(kernels, policy)]
    [[[0.5, 0.5]], [[0.45, 0.0], [0.0, 0.55]]]
    """
    layers, rows = _flat(kernels)
    flat_policy = read_only(layers.flatten(policy, "policy"))  # like those of learners: nothing is compiled twice
    check_policy(layers, flat_policy)
    q = np.empty(layers.n_pairs)
    forward(tuple(rows), layers.size_array, layers.n_actions, flat_policy, q)
    return layers.split(q)


def policy_of(q: Sequence[ArrayLike], available: Sequence[ArrayLike] | None = None) -> list[FloatArray]:
    """The policy pi(a | s) = q(s, a) / q(s) of an occupancy measure; uniform over the available where q(s) is zero.

    All are lists over layers of ``(S_h, A)``.
    """
    policy = []
    for h, entry in enumerate(q):
        table = np.asarray(entry, dtype=np.float64)
        mask = np.ones(table.shape) if available is None else np.asarray(available[h], dtype=np.float64)
        mass = table.sum(axis=1, keepdims=True)
        share = table / np.where(mass > 0.0, mass, 1.0)
        policy.append(np.where(mass > 0.0, share, mask / mask.sum(axis=1, keepdims=True)))
    return policy


def expected_loss(kernels: Kernels, policy: Sequence[ArrayLike], losses: Sequence[ArrayLike]) -> float:
    """Expected loss of one episode, <q, l>; ``policy`` and ``losses`` are lists over layers of ``(S_h, A)``."""
    layers, _ = _flat(kernels)
    q = layers.flatten(occupancy_measure(kernels, policy))
    return float(q @ _finite(layers, losses))


def best_policy(
    kernels: Kernels, losses: Sequence[ArrayLike], available: Sequence[ArrayLike] | None = None
) -> tuple[list[FloatArray], float]:
    """A deterministic policy with the smallest expected loss (ties: the lowest action), and that loss.

    ``losses`` and the policy are lists over layers of ``(S_h, A)``.  With losses summed over episodes this is the best
    fixed policy in hindsight.  ``available`` masks the actions; by default a world's own mask, and no other.

    Examples
    --------
    >>> kernels = [[[[0.8, 0.2], [0.1, 0.9]]], [[[1.0], [1.0]], [[1.0], [1.0]]]]
    >>> policy, loss = best_policy(kernels, [[[0.0, 0.0]], [[1.0, 0.5], [0.2, 0.4]]])
    >>> [table.tolist() for table in policy], round(loss, 3)
    ([[[0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]], 0.23)
    """
    layers, rows = _flat(kernels)
    if available is not None:
        layers = masked_layers(layers.sizes, layers.n_actions, checked_available(available))
    flat = layers.barred(_finite(layers, losses))
    policy = np.empty(layers.n_pairs)
    value = greedy(layers, rows, flat, policy)
    return layers.split(policy), value


def worst_policy(
    kernels: Kernels, losses: Sequence[ArrayLike], available: Sequence[ArrayLike] | None = None
) -> tuple[list[FloatArray], float]:
    """A deterministic policy with the largest expected loss, ``(S_h, A)`` per layer, and that loss.

    Arguments as for :func:`best_policy`.
    """
    negated = [-float_array(entry, f"losses[{h}]", InvalidMDPError) for h, entry in enumerate(losses)]
    policy, value = best_policy(kernels, negated, available)
    return policy, -value


def uniform_policy(
    layer_sizes: Sequence[int], n_actions: int, available: Sequence[ArrayLike] | None = None
) -> list[FloatArray]:
    """The policy that takes every available action with the same probability: a list over layers of ``(S_h, A)``."""
    layers = masked_layers(tuple(layer_sizes), n_actions, checked_available(available))
    return layers.split(layers.uniform_policy.copy())


def random_policy(
    layer_sizes: Sequence[int], n_actions: int, rng: np.random.Generator, available: Sequence[ArrayLike] | None = None
) -> list[FloatArray]:
    """A policy drawn uniformly from the simplex of available actions in every state, ``(S_h, A)`` per layer."""
    layers = masked_layers(tuple(layer_sizes), n_actions, checked_available(available))
    # A distribution drawn uniformly is one of independent exponentials, normalised.
    rows = rng.dirichlet(np.ones(n_actions), size=layers.n_pairs // n_actions)
    if layers.available is not None:
        rows *= layers.available.reshape(rows.shape)
        rows /= rows.sum(axis=1, keepdims=True)
    return layers.split(rows.ravel())


def check_policy(layers: Layers, flat: FloatArray, what: str = "policy") -> None:
    """Raise InvalidMDPError, naming layer and state, unless a flat policy is a distribution over available actions."""
    if layers.available is not None:
        taken = (flat != 0.0) & ~layers.available
        if taken.any():
            pair = int(taken.argmax())
            raise InvalidMDPError(
                f"{what}, {layers.name_pair(pair)}: probability {flat[pair]} of an unavailable action, should be 0"
            )
    pair = first_non_distribution(flat, layers.n_actions)
    if pair >= 0:
        row = flat[pair : pair + layers.n_actions]
        where = layers.name_pair(pair).rsplit(", action", 1)[0]
        raise InvalidMDPError(f"{what}, {where}: probabilities {row} should be non-negative and sum to 1")


def _flat(kernels: Kernels) -> tuple[Layers, Rows]:
    if isinstance(kernels, LayeredMDP):
        return kernels.layers, kernels.rows
    tables: list[Any] = []
    for h, entry in enumerate(kernels):
        if is_sparse(entry):
            tables.append(sparse_table(entry, tables[0].shape[1] if tables else entry.shape[0], f"kernels[{h}]"))
        else:
            tables.append(float_array(entry, f"kernels[{h}]", InvalidMDPError))
        if tables[h].ndim != 3:
            raise InvalidMDPError(f"kernels[{h}] has shape {tables[h].shape}, should be (S_h, A, S_{{h+1}})")
    if not tables:
        raise InvalidMDPError("kernels is empty, should have one array per layer 0 to H-1")
    return Layers(layer_sizes(tables, "kernels"), tables[0].shape[1]), flat_rows(tables)


def _finite(layers: Layers, losses: Sequence[ArrayLike]) -> FloatArray:
    flat = layers.flatten(losses, "losses")
    if not np.isfinite(flat).all():
        pair = int(np.argmin(np.isfinite(flat)))
        raise InvalidMDPError(f"losses, {layers.name_pair(pair)}: {flat[pair]} is not a finite number")
    return flat


#: Dense layers with more entries than this are multiplied by BLAS, which makes better use of the memory.
LARGE_LAYER = 20_000


def greedy(layers: Layers, rows: Rows, losses: FloatArray, policy: FloatArray) -> float:
    """The best policy for flat losses, into its place, and its value."""
    widest, parts = max(layers.sizes), tuple(rows)
    values = np.empty((2, widest))

    def work(piece: int, pieces: int, meeting: int) -> None:
        backward_greedy(parts, layers.size_array, layers.n_actions, losses, policy, values, piece, pieces, meeting)

    in_pieces(work, widest, losses.size)
    return float(values[layers.horizon % 2, 0])


# ------------------------------------------------------------------------------------ compiled passes


@kernel
def forward(parts: RowParts, sizes: IntArray, n_actions: int, policy: FloatArray, q: FloatArray) -> None:
    """q(s_0, a) = pi(a | s_0);  q(s', a') = pi(a' | s') sum_{s, a} q(s, a) P(s' | s, a)."""
    rows = Rows(parts[0], parts[1], parts[2], parts[3])
    horizon = sizes.size - 1
    for a in range(n_actions):
        q[a] = policy[a]
    here = 0
    for h in range(horizon - 1):
        n, m = sizes[h], sizes[h + 1]
        following = here + n * n_actions
        # The inflow of state t is gathered in the place of its first pair, then shared out.
        for t in range(m):
            q[following + t * n_actions] = 0.0
        for pair in range(n * n_actions):
            mass = q[here + pair]
            if mass > 0.0:
                begin = row_begin(rows, h, pair, m)
                for e in range(begin, row_end(rows, h, pair, m)):
                    q[following + next_state(rows, h, begin, e) * n_actions] += mass * rows.values[e]
        for t in range(m):
            first = following + t * n_actions
            inflow = q[first]
            for a in range(n_actions):
                q[first + a] = inflow * policy[first + a]
        here = following


@kernel
def condition(log_q: FloatArray, n_actions: int, policy: FloatArray) -> None:
    """pi(a | s) = q(s, a) / sum_a' q(s, a') from logarithms; uniform where q(s) is exactly zero."""
    for first in range(0, log_q.size, n_actions):
        largest = -np.inf
        for a in range(n_actions):
            largest = max(largest, log_q[first + a])
        total = 0.0
        for a in range(n_actions):
            share = 1.0 if largest == -np.inf else np.exp(log_q[first + a] - largest)
            policy[first + a] = share
            total += share
        for a in range(n_actions):
            policy[first + a] /= total


@kernel
def choose(first: int, end: int, n_actions: int, losses: FloatArray, value: FloatArray, policy: FloatArray) -> None:
    """V(s) = min_a [ l(s, a) + m(s, a) ] of states of a layer; ``policy`` holds m, and receives the minimiser."""
    for s in range(first, end):
        best, best_pair = np.inf, s * n_actions
        for pair in range(s * n_actions, (s + 1) * n_actions):
            total = losses[pair] + policy[pair]
            policy[pair] = 0.0
            if total < best:
                best, best_pair = total, pair
        policy[best_pair] = 1.0
        value[s] = best


@kernel
def backward_greedy(
    parts: RowParts, sizes: IntArray, n_actions: int, losses: FloatArray, policy: FloatArray, values: FloatArray,
    piece: int, pieces: int, meeting: int,
) -> float:  # fmt: skip
    """V(s) = min_a [ l(s, a) + sum_{s'} P(s' | s, a) V(s') ] from the last layer to the first; that of the first state.

    The minimiser becomes the policy.  ``values`` ``(2, widest)`` has V of two layers.  Threads share the states of
    each layer.
    """
    rows = Rows(parts[0], parts[1], parts[2], parts[3])
    here = losses.size
    values[0, 0] = 0.0
    for time in range(1, sizes.size):
        h = sizes.size - 1 - time
        n, m = sizes[h], sizes[h + 1]
        here -= n * n_actions
        value, value_here = values[1 - time % 2], values[time % 2]
        start, size = rows.places[h, 0], n * n_actions * m
        first, end = n * piece // pieces, n * (piece + 1) // pieces
        if rows.places[h, 1] < 0 and size >= LARGE_LAYER:
            # Not in pieces: BLAS would add in another order.
            first, end = 0, n if piece == 0 else 0
            if piece == 0:
                table = rows.values[start : start + size].reshape(n * n_actions, m)
                np.dot(table, value[:m], policy[here : here + n * n_actions])
        else:
            layer_means(rows, h, first * n_actions, end * n_actions, m, value, policy[here:])
        choose(first, end, n_actions, losses[here:], value_here, policy[here:])
        meet(meeting, piece, pieces, time)
    least: float = values[(sizes.size - 1) % 2, 0]
    return least


@kernel
def backward(
    rows: Rows,
    sizes: IntArray,
    n_actions: int,
    losses: FloatArray,
    policy: FloatArray,
    value: FloatArray,
    values: FloatArray,
) -> None:
    """Q(s, a) = l(s, a) + sum_{s'} P(s' | s, a) V(s'),  V(s) = sum_a pi(a | s) Q(s, a); V of all states is kept."""
    here, following = losses.size, value.size - 1
    value[following] = 0.0
    for h in range(sizes.size - 2, -1, -1):
        n, m = sizes[h], sizes[h + 1]
        here -= n * n_actions
        layer_means(rows, h, 0, n * n_actions, m, value[following:], values[here:])
        following -= n
        for s in range(n):
            first = here + s * n_actions
            value[following + s] = 0.0
            for pair in range(first, first + n_actions):
                values[pair] += losses[pair]
                value[following + s] += policy[pair] * values[pair]


@kernel
def first_non_distribution(policy: FloatArray, n_actions: int) -> int:
    """First pair of a state whose action probabilities are not a distribution (1e-9), or -1."""
    for first in range(0, policy.size, n_actions):
        total = 0.0
        valid = True
        for a in range(n_actions):
            valid = valid and policy[first + a] >= 0.0
            total += policy[first + a]
        if not (valid and abs(total - 1.0) <= 1e-9):
            return first
    return -1


@kernel
def exponential_weights(
    log_weights: FloatArray,
    values: FloatArray,
    step_size: float,
    n_actions: int,
    new_log_weights: FloatArray,
    policy: FloatArray,
) -> None:
    """log w <- log w - eta Q, shifted so that the largest of each state is 0; the policy is w normalised."""
    for first in range(0, values.size, n_actions):
        largest = -np.inf
        for i in range(first, first + n_actions):
            new_log_weights[i] = log_weights[i] - step_size * values[i]
            largest = max(largest, new_log_weights[i])
        total = 0.0
        for i in range(first, first + n_actions):
            new_log_weights[i] -= largest
            policy[i] = np.exp(new_log_weights[i])
            total += policy[i]
        for i in range(first, first + n_actions):
            policy[i] /= total
