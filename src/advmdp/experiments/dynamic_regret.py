"""Dynamic regret: against comparators that change with the episodes, by exact dynamic programming.

Two kinds: the best policy of *each* episode, and the best sequence of policies with at most m switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from advmdp._checks import integer, numbers
from advmdp._compiled import kernel
from advmdp._summation import CompensatedSum
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray, LayeredMDP, Rows
from advmdp.occupancy import backward_greedy, best_policy, greedy, occupancy_measure

#: What a run may be compared with: the best policy of each episode, or a number of switches.
Comparator = Literal["per-episode"] | int

#: Switches happen at multiples of K / 128: at any episode where K <= 128.
SEGMENTS = 128


def check_comparators(comparators: Sequence[Comparator]) -> tuple[Comparator, ...]:
    """The comparators, without repetitions; InvalidSpecError where one is none."""
    for comparator in comparators:
        if comparator != "per-episode":
            integer(comparator, "comparators: 'per-episode' or a number of switches, which", 0, InvalidSpecError)
    return tuple(dict.fromkeys(comparators))


class DynamicRegret:
    """Collects during a run what changing comparators need; memory O(n_pairs * (128 + log K)).

    Parameters
    ----------
    mdp
        The world, with its true kernels.
    logged
        The numbers of played episodes at which the run writes rows; the last is K.
    comparators
        ``"per-episode"``, or m for the best sequence with at most m switches: exact among the sequences that switch at
        multiples of K / 128 (rounded), which are all of them where K <= 128.
    """

    def __init__(self, mdp: LayeredMDP, logged: Sequence[int], comparators: Sequence[Comparator]) -> None:
        self.comparators = check_comparators(comparators)
        self._mdp, self._logged = mdp, np.asarray(logged)
        episodes = int(logged[-1])
        segments = min(SEGMENTS, episodes)
        #: Episodes before which the comparator may switch, 0 and K included.
        self.grid = np.round(np.arange(segments + 1) * (episodes / segments)).astype(np.int64)
        self._prefix = np.zeros((segments + 1, mdp.layers.n_pairs))
        self._best = CompensatedSum(1)
        self._best_at_rows: list[float] = []
        self._filled = 1
        self._scratch = np.empty(mdp.layers.n_pairs)

    def add(self, played: int, losses: FloatArray, total: CompensatedSum) -> None:
        """One more episode: how many were played, its losses, and the sum of all so far (and perhaps more, behind)."""
        layers = self._mdp.layers
        if "per-episode" in self.comparators:
            value = greedy(layers, self._mdp.rows, layers.barred(losses), self._scratch)
            self._best.add(np.array([value]))
            if played == self._logged[len(self._best_at_rows)]:
                self._best_at_rows.append(float(self._best.value[0]))
        if played == self.grid[self._filled]:
            self._prefix[self._filled] = total.value[: layers.n_pairs]
            self._filled += 1

    def columns(self, own: FloatArray, summed_losses: FloatArray) -> dict[str, FloatArray]:
        """Regret at the logged episodes, by name of column.

        ``own`` is the learner's cumulative loss and ``summed_losses`` the losses summed up, at each of them.
        """
        columns = {}
        for comparator in self.comparators:
            if comparator == "per-episode":
                columns["regret_per_episode"] = own - np.array(self._best_at_rows)
            else:
                columns[f"regret_{comparator}_switches"] = own - self._comparator_loss(int(comparator), summed_losses)
        return columns

    def best_switches(self, switches: int) -> tuple[list[int], float]:
        """Episodes (from 0) before which the best sequence with at most so many switches does switch, and its loss."""
        layers, segments = self._mdp.layers, len(self.grid) - 1
        values = np.full((segments + 1, segments + 1), np.inf)
        segment_values(
            self._mdp.rows, layers.size_array, layers.n_actions, self._prefix,
            layers.barred(np.zeros(layers.n_pairs)), values,
        )  # fmt: skip
        # least[j]: the least loss of the first j segments; each round allows one more switch.
        least, came_from = values[0].copy(), []
        least[0] = 0.0
        for _ in range(min(switches, segments - 1)):  # there is no room for more switches than that
            through = least[:, None] + values
            start = np.argmin(through, axis=0)
            better = through[start, np.arange(segments + 1)] < least
            came_from.append(np.where(better, start, -1))
            least = np.where(better, through[start, np.arange(segments + 1)], least)
        ends, j = [], segments
        for start in reversed(came_from):
            if start[j] >= 0:
                j = int(start[j])
                ends.append(int(self.grid[j]))
        return sorted(ends), float(least[segments])

    def _comparator_loss(self, switches: int, summed_losses: FloatArray) -> FloatArray:
        """The cumulative loss of the best sequence at the logged episodes."""
        layers = self._mdp.layers
        ends, _ = self.best_switches(switches)
        loss = np.zeros(len(self._logged))
        for first, last in zip([0, *ends], [*ends, int(self.grid[-1])], strict=True):
            before, after = (self._prefix[np.searchsorted(self.grid, k)] for k in (first, last))
            best, _ = best_policy(self._mdp, layers.split(after - before))
            q = layers.flatten(occupancy_measure(self._mdp, best))
            # Rows before the segment see nothing of it, rows behind it all of it.
            seen = np.where((self._logged < last)[:, None], summed_losses, after)
            loss += np.where(self._logged > first, (seen - before) @ q, 0.0)
        return loss

    def state(self) -> dict[str, Any]:
        """What was collected, as a tree for :mod:`advmdp.storage`."""
        return {
            "prefix": self._prefix[: self._filled].copy(),
            "best": np.concatenate([self._best.total, self._best.carry]),
            "best_at_rows": list(self._best_at_rows),
        }

    def set_state(self, state: dict[str, Any], played: int) -> None:
        """Go on from there, after so many episodes; ValueError where that cannot be."""
        filled, most = int(np.count_nonzero(self.grid <= played)), played + 1.0
        prefix = numbers(state["prefix"], "prefix", (filled, self._prefix.shape[1]), 0.0, most)
        best = numbers(state["best"], "best", (2,), -1.0, self._mdp.layers.horizon * most)
        rows = int(np.count_nonzero(self._logged <= played)) if "per-episode" in self.comparators else 0
        at_rows = numbers(state["best_at_rows"], "best_at_rows", (rows,), 0.0, self._mdp.layers.horizon * most)
        self._filled, self._prefix[:filled], self._best_at_rows = filled, prefix, at_rows.tolist()
        self._best.total[:], self._best.carry[:] = np.split(best, 2)


@kernel
def segment_values(
    rows: Rows, sizes: IntArray, n_actions: int, prefix: FloatArray, barrier: FloatArray, values: FloatArray
) -> None:
    """``values[i, j]``: the least loss of one policy on the losses summed from grid point i to j > i.

    ``barrier`` is added to them: infinite where an action is unavailable, else zero.
    """
    policy = np.empty(prefix.shape[1])
    losses = np.empty(prefix.shape[1])
    working = np.empty((2, sizes.max()))
    for i in range(prefix.shape[0]):
        for j in range(i + 1, prefix.shape[0]):
            for pair in range(losses.size):
                losses[pair] = prefix[j, pair] - prefix[i, pair] + barrier[pair]
            values[i, j] = backward_greedy(rows, sizes, n_actions, losses, policy, working, 0, 1, 0)
