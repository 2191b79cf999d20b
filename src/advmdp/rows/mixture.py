"""Rows that are mixtures of the same d simulators: those of a layer are all images of one small set.

If the features of every pair of a layer sum to the same c over the next states, in every coordinate, its row set is

    { sum_i mu_i phi_i / c :  mu in M },   M = { mu >= 0, sum mu = 1, |mu / c - centre|_Lambda <= radius },

with one M for the whole layer.  The largest mean of a function V over the row set is then the largest value of w.mu
over M, w_i = sum_t phi_i(t) V(t) / c: nothing but w depends on the pair.  M itself is a block of an ellipsoid with the
d simulators as next states: mu = P0 + G chi, |chi| <= 1, and mu >= 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import body_of, inlined_kernel, inner_kernel, kernel
from advmdp.layered.rows import Rows, row_begin, row_end
from advmdp.rows.balls import FLAT, combine, largest_in_block, lengths, memory_rows
from advmdp.rows.ellipsoid import Scratch, reduce_block, scratch_for, whitening
from advmdp.rows.layer import ROUNDING, Layer, entries_of, entry_bounds, extreme_means, normalise

# So many pairs, or a state's, are asked about at a time: what is known of them stays in the fastest memory.
AT_A_TIME = 128


class Weights(NamedTuple):
    """The sets M of layers 0..H-2.

    ``table`` of a layer has rows of d numbers, of which the first is P0 and the next k are G'; then, from row d on:
    the offsets of mu >= 0 in the form offset + G chi, the point next to the centre (chi), for each vertex of the
    simplex 0 if M has it and -inf if not, and 1 / c, NaN where M is empty.  ``smallest``: the smallest multiple of the
    radius that leaves M a point.
    """

    table: Floats
    smallest: Floats


def weight_sets(sums: Floats, centres: Floats, grams: Floats, radius: Floats) -> Weights:
    """The sets of layers whose features have these ``sums``, c."""
    layers, d = len(sums), centres.shape[1]
    found = Weights(np.zeros((layers, d + 4, d)), np.empty(layers))
    _fill(sums, centres, grams, radius, found, np.zeros(d * d), scratch_for(d, d))
    return found


@kernel
def _fill(
    sums: Floats, centres: Floats, grams: Floats, radius: Floats, found: Weights, features: Floats, scratch: Scratch
) -> None:
    """Each of them is a block, with the simulators as next states."""
    d = centres.shape[1]
    factor, rows = scratch.squares[1], scratch.rows
    for h in range(sums.shape[0]):
        for i in range(d):
            features[i * d + i] = sums[h]
        whitening(grams[h], radius[h], scratch.squares)
        found.smallest[h], rho = reduce_block(features, centres[h], False, scratch)
        table, centre, share = found.table[h], centres[h], 1.0 / sums[h]
        table[d + 3, 0] = share if found.smallest[h] <= 1.0 + ROUNDING else np.nan
        if not found.smallest[h] <= 1.0 + ROUNDING:
            continue
        for i in range(d):
            table[0, i] = rows[0, i]
            table[d, i] = rows[0, i] if rows[1, i] > 0.0 else 1.0
            square = 0.0  # of the length of L' (share e_i - centre)
            for j in range(d):
                total = share * factor[i, j] if i >= j else 0.0
                for l in range(j, d):  # noqa: E741
                    total -= factor[l, j] * centre[l]
                square += total * total
                if j > 0:
                    table[j, i] = rho * rows[1 + j, i]
            table[d + 2, i] = 0.0 if np.sqrt(square) <= radius[h] * (1.0 + ROUNDING) else -np.inf
        for j in range(d - 1):
            table[d + 1, j] = scratch.work[3, j] / rho if rho > 0.0 else 0.0


@inner_kernel
def over_ball(table: Floats, w: Floats, first: int, count: int, base: Floats, norm: Floats, slopes: Floats) -> None:
    """Of functions w (d, at least first + count): w.P0, |G'w| and G'w."""
    combine(table[0], w, first, count, base)
    for j in range(w.shape[0] - 1):
        combine(table[1 + j], w, first, count, slopes[j])
    lengths(slopes[: w.shape[0] - 1], count, norm)


@inlined_kernel
def largest(table: Floats, w: Floats, count: int, work: Floats, slopes: Floats) -> None:
    """max of w.mu over the set M of a layer of :class:`Weights`, for ``count`` functions w (d, at least count).

    With d <= 3 it is the least of three kinds of bounds: over the ball, over the ball and a row that is violated there,
    and the largest entry of w.  Else one of the first and the last is right, most of the time.  Left in ``work`` (6, at
    least count) are what :func:`over_ball` says of w less its largest entry, which w is then; the least entry of the
    best point of the ball, times the norm; the maximum, NaN where it is neither bound; and the largest entry.
    """
    d = w.shape[0]
    base, norm, least, best, top, row = work[0], work[1], work[2], work[3], work[4], work[5]
    for i in range(d):
        for b in range(count):
            top[b] = max(top[b], w[i, b]) if i > 0 else w[i, b]
    for i in range(d):
        for b in range(count):
            w[i, b] -= top[b]  # what is the same for all simulators is exact
    over_ball(table, w, 0, count, base, norm, slopes)
    for b in range(count):
        least[b] = 0.0
        best[b] = norm[b]
    for i in range(d if d > 1 else 0):  # the only simulator has all the weight
        offset = table[d, i]
        combine(table[1:d, i], slopes, 0, count, row)
        for b in range(count):
            least[b] = min(least[b], row[b] + offset * norm[b])
        square = table[1, i] * table[1, i] + table[2, i] * table[2, i] if d == 3 else 0.0
        if square > 0.0:
            away, reach = -offset / square, np.sqrt(max(1.0 - offset * offset / square, 0.0) / square)
            for b in range(count):
                side = away * row[b] + reach * abs(table[2, i] * slopes[0, b] - table[1, i] * slopes[1, b])
                best[b] = min(best[b], side if row[b] + offset * norm[b] < 0.0 else np.inf)
    for b in range(count):
        best[b] = min(base[b] + best[b], 0.0) if d <= 3 or least[b] >= 0.0 else np.nan
    for i in range(d if d > 3 else 0):
        for b in range(count):
            best[b] = best[b] if w[i, b] + table[d + 2, i] < 0.0 else 0.0


@inlined_kernel
def attained(
    table: Floats, w: Floats, work: Floats, slopes: Floats, b: int, points: bool, active: Integers, memory: Floats
) -> float:
    """The maximum that :func:`largest` was asked for, also where it is neither bound.

    A value of the dual problem, so an upper bound also where rounding interferes.  With ``points``, the first row of
    ``memory``, which needs three more than :func:`project`, receives a mu that attains it.
    """
    d = w.shape[0]
    mu, g, chi = memory[0, :d], memory[1, : d - 1], memory[2]
    base, norm, binding, top = work[0, b], work[1, b], work[2, b] < 0.0, work[4, b]
    spread = 0.0
    vertex = -1
    for i in range(d):
        spread = max(spread, -w[i, b])
        vertex = i if w[i, b] + table[d + 2, i] >= 0.0 else vertex
    if binding and vertex >= 0:
        for i in range(d):
            mu[i] = 1.0 if i == vertex else 0.0
        return float(top)
    for j in range(d - 1):
        g[j] = slopes[j, b]
        chi[j] = g[j] / norm if norm > FLAT * spread else table[d + 1, j]
    gain = norm
    if norm > FLAT * spread and binding:
        gain = largest_in_block(table[1:d], table[d], table[d + 1], g, norm, points, chi, active, memory[3:])
    for i in range(d if points else 0):
        mu[i] = table[0, i]
        for j in range(d - 1):
            mu[i] += table[1 + j, i] * chi[j]
    return float(top + min(base + gain, 0.0))


# --------------------------------------------------------------------------------------------------------
# What passes ask


class MixtureRows(NamedTuple):
    """Features on their supports, (d, E) for the E entries of a sparse layer and (m, d, N) for the N pairs of a dense
    one, the :class:`Weights`, and memory."""

    rows: Rows
    weights: Weights
    active: Integers
    work: Floats
    memory: Floats


def mixture_rows_of(weights: Weights, features: Rows, n_actions: int) -> MixtureRows:
    """For passes, with memory of their own."""
    d = weights.table.shape[2]
    width = max(AT_A_TIME, n_actions)
    return MixtureRows(
        features, weights, np.empty(d, dtype=np.int64), np.empty((2 * d + 5, width)),
        np.empty((3 + memory_rows(d - 1), d)),
    )  # fmt: skip


@body_of(extreme_means, MixtureRows)
def mixture_means(
    data: MixtureRows, layer: Layer, states: Integers, count: int, values: Floats, means: Floats, found: Floats
) -> None:
    """Of some states at a time, all of a dense layer: the functions of the weights first, then their largest values."""
    rows, h, n_actions, m = data.rows, layer.h, layer.n_actions, layer.m
    table = data.weights.table[h]
    d = table.shape[1]
    N = layer.n * n_actions
    dense = rows.places[h, 1] < 0
    start, _, stop = entries_of(rows, layer, 0, layer.n)
    size = stop - start
    features = rows.values[start * d : stop * d]
    scale = table[d + 3, 0]
    w, slopes, work = data.work[:d], data.work[d : 2 * d - 1], data.work[2 * d - 1 :]
    points = found.shape[0] > 0
    if dense:
        count = layer.n
    some = max(AT_A_TIME // n_actions, 1)
    for begin in range(0, count, some):
        end = min(begin + some, count)
        number = (end - begin) * n_actions
        for i in range(d if dense else 0):
            combine(values, features.reshape((m, d * N)), i * N + begin * n_actions, number, w[i])
        if not dense:
            sparse_functions(rows, layer, features.reshape((d, size)), states[begin:end], values, w)
        largest(table, w, number, work, slopes)
        for j in range(begin, end):
            first = (j if dense else states[j]) * n_actions
            shift = (j - begin) * n_actions
            for a in range(n_actions):
                pair, b = first + a, shift + a
                means[pair] = scale * (work[4, b] + work[3, b])
                if points or not work[3, b] <= 0.0:
                    means[pair] = scale * attained(table, w, work, slopes, b, points, data.active, data.memory)
                if points:
                    at = row_begin(rows, h, pair, m) - start
                    row = found[at : row_end(rows, h, pair, m) - start]
                    place, step, stride = (pair, N, d * N) if dense else (at, size, 1)
                    for e in range(row.shape[0]):
                        row[e] = 0.0
                        for i in range(d):
                            row[e] += data.memory[0, i] * features[place + i * step + e * stride]
                    normalise(row)


@inner_kernel
def sparse_functions(rows: Rows, layer: Layer, features: Floats, states: Integers, values: Floats, w: Floats) -> None:
    """``w[i, b] = sum_e features[i, e] V(e)`` over the entries of the row of the b-th pair of some states."""
    h, n_actions, m = layer.h, layer.n_actions, layer.m
    d = features.shape[0]
    start = row_begin(rows, h, 0, m)
    nexts = rows.nexts[start - rows.places[h, 2] :]
    for i in range(0, d, 3):  # three simulators at a time: they have the values in common
        k, l = min(i + 1, d - 1), min(i + 2, d - 1)  # noqa: E741
        b = 0
        for j in range(states.shape[0]):
            for pair in range(states[j] * n_actions, (states[j] + 1) * n_actions):
                x = 0.0
                y = 0.0
                z = 0.0
                for e in range(row_begin(rows, h, pair, m) - start, row_end(rows, h, pair, m) - start):
                    f = values[nexts[e]]
                    x += features[i, e] * f
                    y += features[k, e] * f
                    z += features[l, e] * f
                w[i, b] = x
                w[k, b] = y
                w[l, b] = z
                b += 1


@body_of(entry_bounds, MixtureRows)
def mixture_bounds(data: MixtureRows, layer: Layer, first: int, end: int, low: Floats, high: Floats) -> None:
    """By the ball |chi| <= 1 and by single simulators; all entries of a sparse layer at a time, or all pairs of a dense
    one for each of its next states."""
    rows, table = data.rows, data.weights.table[layer.h]
    d = table.shape[1]
    scale = table[d + 3, 0]
    base, norm, least, most = data.work[0], data.work[1], data.work[2], data.work[3]
    start, _, size = entries_of(rows, layer, 0, layer.n)
    _, begin, stop = entries_of(rows, layer, first, end)
    step = layer.m if rows.places[layer.h, 1] < 0 else 1
    size, begin, stop = (size - start) // step, (begin - start) // step, (stop - start) // step
    for t in range(step):
        slab = (start + t * size) * d
        features = rows.values[slab : slab + d * size].reshape((d, size))
        for some in range(begin, stop, AT_A_TIME):
            count = min(AT_A_TIME, stop - some)
            over_ball(table, features, some, count, base, norm, data.work[4:])
            for i in range(d):
                one = features[i, some : some + count]
                for e in range(count):
                    least[e] = min(least[e], one[e]) if i > 0 else one[e]
                    most[e] = max(most[e], one[e]) if i > 0 else one[e]
            at = some * step + t
            for e in range(count):
                low[at + e * step] = scale * max(least[e], base[e] - norm[e])
                high[at + e * step] = scale * min(most[e], base[e] + norm[e])
