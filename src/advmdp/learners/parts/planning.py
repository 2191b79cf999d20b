"""Plans for several tables of losses at once under one estimated kernel: greedy ones, and soft ones that learn.

Everything here trusts the estimate and promises nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Any, Self

import numpy as np

from advmdp._checks import float_array, integer
from advmdp._compiled import inner_kernel, kernel
from advmdp._threads import in_pieces
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, Layers, Rows
from advmdp.layered.rows import layer_means, next_state, row_begin, row_end

#: Actions whose values differ by less than this are equally good: a plan shares its probability among them.
TIES = 1e-9


def plans(
    layers: Layers,
    kernel: Rows,
    tables: Sequence[FloatArray] | FloatArray,
    rates: FloatArray,
    policies: FloatArray | None = None,
) -> FloatArray:
    """A policy for every table of losses, flat, ``(M, n_pairs)``: one exact backward pass each.

    Where the rate eta is infinite the best one, V(s) = min_a x(s, a), x(s, a) = l(s, a) + sum_{s'} P(s' | s, a) V(s');
    else the soft one, which minimises <q, l> + (1 / eta) sum q ln(A pi):

        V(s) = -(1 / eta) ln( (1 / A) sum_a exp(-eta x(s, a)) ),      pi(a | s) = exp(eta (V(s) - x(s, a))) / A,

    A the number of actions that are available in s.  Where a place for ``policies`` is given, they are put there.
    """
    found = np.empty((len(tables), layers.n_pairs)) if policies is None else policies

    def work(piece: int, pieces: int, meeting: int) -> None:
        for i in range(piece, len(tables), pieces):
            plan(kernel, layers.size_array, layers.n_actions, layers.barred(tables[i]), rates[i], found[i])

    in_pieces(work, len(tables), found.size)
    return found


def mixed_occupancy(layers: Layers, kernel: Rows, policies: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_i w_i q^i, flat: how likely each pair is when one of the policies ``(M, n_pairs)`` is drawn and played."""
    q = np.empty(layers.n_pairs)
    forward_mixed(kernel, layers.size_array, layers.n_actions, policies, weights, q)
    return q


@dataclass(frozen=True)
class Learning:
    """The rule of one learner with predictions, in plug-in form; n is the number of pairs.

    It plans softly for L + m with rate eta_k = multiple * sqrt(H ln A / (n k)), where m predicts the next losses and L
    sums estimates of the past ones,

        L <- (1 - fading) L + m + 1{visited} (l - m) / (q + gamma),      gamma = sqrt(ln A / (n k)),

    q the occupancy under the estimated kernel of what was played: all of the draw of experts, not the learner alone.
    """

    multiple: float
    #: Share of the past that is forgotten per episode.
    fading: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.multiple < np.inf:
            raise InvalidSpecError(f"multiple is {self.multiple!r}, should be a number > 0")
        if not 0.0 <= self.fading < 1.0:
            raise InvalidSpecError(f"fading is {self.fading!r}, should be a number in [0, 1)")


@dataclass(frozen=True, eq=False)
class PlugInLearners:
    """Several of them: a value, adding an episode returns a new one."""

    layers: Layers
    rules: tuple[Learning, ...]
    episodes: int
    #: L of each, ``(P, n_pairs)``.
    totals: FloatArray

    @classmethod
    def empty(cls, layers: Layers, rules: Sequence[Learning]) -> Self:
        """Before the first episode: nothing was lost yet."""
        return cls(layers, tuple(rules), 0, np.zeros((len(rules), layers.n_pairs)))

    @property
    def _unit(self) -> float:
        """sqrt(ln A / (n k)) of the next episode."""
        counted = self.layers.counted
        return sqrt(log(counted.most_actions) / (counted.pairs * (self.episodes + 1)))

    @property
    def rates(self) -> FloatArray:
        """eta of each for the next episode."""
        unit = sqrt(self.layers.horizon) * self._unit
        # With one action there is nothing to learn: any rate will do.
        return np.array([rule.multiple for rule in self.rules]) * (unit or 1.0)

    def add(self, pairs: IntArray, losses: FloatArray, predicted: FloatArray, occupancy: FloatArray) -> Self:
        """With one more episode; losses that are NaN were not seen, and are as predicted.

        ``predicted`` has m of each learner as it was before the episode, ``(P, n_pairs)``, and ``occupancy`` q.
        """
        totals = self.totals.copy()
        gamma, fading = self._unit, np.array([rule.fading for rule in self.rules])
        add_estimates(pairs, losses, predicted, occupancy, gamma, fading, totals)
        return replace(self, episodes=self.episodes + 1, totals=totals)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"episodes": self.episodes, "totals": self.totals}

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """What :meth:`tree` was made of, from empty ones with the same rules; else ValueError."""
        totals = np.array(float_array(tree["totals"], "totals", ValueError))
        if totals.shape != self.totals.shape or not np.isfinite(totals).all():
            raise ValueError(f"totals should be {self.totals.shape} finite numbers")
        return replace(self, episodes=integer(tree["episodes"], "episodes", 0, ValueError), totals=totals)


# ------------------------------------------------------------------------------------ compiled passes


@kernel
def plan(rows: Rows, sizes: IntArray, n_actions: int, losses: FloatArray, rate: float, policy: FloatArray) -> None:
    """See :func:`plans`."""
    widest = 1
    for h in range(sizes.size):
        widest = max(widest, sizes[h])
    value, value_here = np.zeros(widest), np.zeros(widest)
    here = losses.size
    for h in range(sizes.size - 2, -1, -1):
        n, m = sizes[h], sizes[h + 1]
        here -= n * n_actions
        share = policy[here:]  # holds x first
        layer_means(rows, h, 0, n * n_actions, m, value, share)
        for s in range(n):
            least = np.inf
            for i in range(s * n_actions, (s + 1) * n_actions):
                share[i] += losses[here + i]
                least = min(least, share[i])
            total, choices = 0.0, 0.0
            for i in range(s * n_actions, (s + 1) * n_actions):
                if rate == np.inf:
                    share[i] = 1.0 if share[i] <= least + TIES else 0.0
                else:
                    choices += 1.0 if share[i] < np.inf else 0.0
                    share[i] = np.exp(rate * (least - share[i]))
                total += share[i]
            if total != 1.0:
                for i in range(s * n_actions, (s + 1) * n_actions):
                    share[i] /= total
            value_here[s] = least if rate == np.inf else least - np.log(total / choices) / rate
        value, value_here = value_here, value


@kernel
def forward_mixed(
    rows: Rows, sizes: IntArray, n_actions: int, policies: FloatArray, weights: FloatArray, q: FloatArray
) -> None:
    """See :func:`mixed_occupancy`.  All policies together, so that each row of the kernel is read once."""
    widest = 1
    for h in range(sizes.size):
        widest = max(widest, sizes[h])
    count = weights.size
    mass, mass_next = np.zeros((widest, count)), np.zeros((widest, count))
    share = np.empty(count)
    for i in range(count):
        mass[0, i] = weights[i]
    here = 0
    for h in range(sizes.size - 1):
        n, m = sizes[h], sizes[h + 1]
        mass_next[:m] = 0.0
        for s in range(n):
            for pair in range(s * n_actions, (s + 1) * n_actions):
                total = 0.0
                for i in range(count):
                    share[i] = mass[s, i] * policies[i, here + pair]
                    total += share[i]
                q[here + pair] = total
                if h < sizes.size - 2 and total > 0.0:
                    begin = row_begin(rows, h, pair, m)
                    for e in range(begin, row_end(rows, h, pair, m)):
                        add_multiple(mass_next[next_state(rows, h, begin, e)], rows.values[e], share)
        mass, mass_next = mass_next, mass
        here += n * n_actions


@inner_kernel
def add_multiple(x: FloatArray, factor: float, y: FloatArray) -> None:
    """x += factor y."""
    for i in range(x.size):
        x[i] += factor * y[i]


@kernel
def add_estimates(
    pairs: IntArray,
    losses: FloatArray,
    predicted: FloatArray,
    occupancy: FloatArray,
    gamma: float,
    fading: FloatArray,
    totals: FloatArray,
) -> None:
    """L <- (1 - fading) L + m + 1{visited} (l - m) / (q + gamma), in place."""
    for i in range(totals.shape[0]):
        for pair in range(totals.shape[1]):
            totals[i, pair] = (1.0 - fading[i]) * totals[i, pair] + predicted[i, pair]
        for h in range(pairs.size):
            weight = occupancy[pairs[h]] + gamma
            if weight > 0.0 and not np.isnan(losses[h]):
                totals[i, pairs[h]] += (losses[h] - predicted[i, pairs[h]]) / weight
