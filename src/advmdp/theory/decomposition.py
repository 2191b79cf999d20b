"""The regret of a run, split as the paper's section 5 splits it, each part beside the bound of its lemma.

    regret = sum_k <qhat_k - q*, lhat_k>      REGRET   of the mirror descent on estimated losses
           + sum_k <q_k - qhat_k, l_k>        ERROR    of the learner's idea of where it goes
           + sum_k <qhat_k, l_k - lhat_k>     BIAS-I   of the estimated losses, seen by the learner
           + sum_k <q*, lhat_k - l_k>         BIAS-II  of the estimated losses, seen by the comparator

with q_k the true occupancy measure of the policy, qhat_k the learner's, q* that of the best fixed policy.
Everything is exact: it takes the true kernels, so it is for simulations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any, cast

import numpy as np
import pandas as pd

from advmdp._checks import between, integer, numbers
from advmdp._summation import CompensatedSum
from advmdp.confidence import ConfidenceSet
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, Layers, LinearMixtureMDP
from advmdp.occupancy import best_policy, occupancy_measure
from advmdp.theory import bounds

#: The columns of :attr:`Decomposition.frame` whose sum is the regret.
TERMS = ("REGRET", "ERROR", "BIAS-I", "BIAS-II")


class Decomposition:
    """Looks on while a run goes on (``run(..., watch=Decomposition(mdp, episodes))``), then tells.

    Parameters
    ----------
    mdp
        The world, with its true kernels.
    episodes
        K of the run.
    logged
        The numbers of played episodes after which a row is kept; by default the powers of two, and K.
    zeta
        Failure probability in the bounds of BIAS-I and BIAS-II (each).

    Notes
    -----
    Memory grows with the number of logged episodes only: q* is not known before the end, so the summed losses
    and summed loss estimates are kept there.
    """

    def __init__(self, mdp: LayeredMDP, episodes: int, logged: Sequence[int] | None = None, zeta: float = 0.05) -> None:
        self._mdp = mdp
        self._layers = mdp.layers
        self._zeta = zeta
        if logged is None:
            powers = {2**i for i in range(int(episodes).bit_length())}
            logged = sorted({k for k in powers if k <= episodes} | {episodes})
        if list(logged) != sorted(set(logged)) or logged[-1] != episodes:
            raise InvalidSpecError(f"logged {list(logged)} should increase and end with {episodes}")
        self._logged = list(logged)
        # One running sum: <q_k, l_k>, <qhat_k, l_k>, <qhat_k, lhat_k>, <qhat_k, lhat_k^2>, the bounds on
        # <q_k - qhat_k, l_k> and on |u_k - q_k|; then l_k and lhat_k themselves.
        self._sums = CompensatedSum(6 + 2 * self._layers.n_pairs)
        self._rows: list[FloatArray] = []
        self._later_layers, self._later_states = later(self._layers)
        self._pending: tuple[FloatArray, FloatArray, FloatArray, float, float] | None = None
        self._covered = True
        self._played = 0
        self._step_size = self._exploration = 0.0
        self._entropy = "pairs"

    def before(self, k: int, learner: Any, q: FloatArray, losses: FloatArray) -> None:
        """Remember what the update of episode k (from 0) will replace."""
        if learner.q is None or not hasattr(learner, "loss_estimate"):
            raise InvalidSpecError(
                f"learner {learner.name!r} has no occupancy measure and loss estimate, so its regret has no "
                "such decomposition"
            )
        weighted = layer_sums(self._layers, q * self._layers.flatten(row_widths(learner.confidence_set)))
        narrow = 0.5 * float(self._later_layers @ weighted)
        wide = 0.5 * float(self._later_states @ weighted)
        self._covered = self._covered and covers(learner.confidence_set, self._mdp)
        self._pending = q.copy(), losses.copy(), self._layers.flatten(learner.q), narrow, wide

    def after(self, k: int, learner: Any) -> None:
        """Add episode k."""
        assert self._pending is not None, "after() without before()"
        q, losses, q_hat, narrow, wide = self._pending
        self._pending = None
        estimate = self._layers.flatten(learner.loss_estimate)
        numbers = (q @ losses, q_hat @ losses, q_hat @ estimate, q_hat @ estimate**2, narrow, wide)
        self._sums.add(np.concatenate([numbers, losses, estimate]))
        self._played = k + 1
        self._step_size = float(getattr(learner, "step_size", 0.0))
        self._exploration = float(getattr(learner, "exploration", 0.0))
        self._entropy = getattr(learner, "entropy", "pairs")
        if self._played == self._logged[len(self._rows)]:
            self._rows.append(self._sums.value)

    def state(self) -> dict[str, Any]:
        """What was seen so far, as a tree for :mod:`advmdp.storage`, between two episodes."""
        return {
            "total": self._sums.total.copy(),
            "carry": self._sums.carry.copy(),
            "rows": [row.copy() for row in self._rows],
            "covered": self._covered,
            "played": self._played,
            "step_size": self._step_size,
            "exploration": self._exploration,
            "entropy": self._entropy,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned, of one with the same arguments."""
        played, shape = integer(state["played"], "played", 0, ValueError), self._sums.total.shape
        logged = [count for count in self._logged if count <= played]
        if len(state["rows"]) != len(logged) or not isinstance(state["entropy"], str):
            raise ValueError(f"it has {len(state['rows'])} rows, should have {len(logged)}")
        rows = [numbers(row, "rows", shape) for row in state["rows"]]
        total, carry = (numbers(state[name], name, shape) for name in ("total", "carry"))
        step, exploration = (between(state[n], n, 0.0, np.inf, ValueError) for n in ("step_size", "exploration"))
        self._sums.total[:], self._sums.carry[:], self._rows = total, carry, rows
        self._covered, self._played = bool(state["covered"]), played
        self._step_size, self._exploration, self._entropy = step, exploration, state["entropy"]

    @property
    def covered(self) -> bool:
        """Whether the true kernels were in the set of every episode: the event on which the lemmas hold."""
        return self._covered

    @property
    def frame(self) -> pd.DataFrame:
        """One row per logged episode: the regret, its four parts, and the bound of each part.

        The comparator q* is that of all K episodes.  The bounds use the widths that the sets of this run had,
        not their worst case, and hold on the event :attr:`covered`: ERROR and REGRET always, BIAS-II with
        probability 1 - zeta for all rows at once, BIAS-I with probability 1 - zeta for each row by itself (its
        concentration step is for a number of episodes fixed in advance).  They are NaN for a learner without
        step size and exploration, and that of REGRET for the conditional entropy: what is proved of it speaks of
        another measure than the learner's q (``docs/strong-learners.md``).
        """
        if not self._rows or self._played != self._logged[-1]:
            raise InvalidSpecError(
                f"{self._played} of {self._logged[-1]} episodes were played; the comparator needs all"
            )
        rows = np.array(self._rows)
        n_pairs = self._layers.n_pairs
        own, own_hat, hat_hat, second_moment, narrow, wide = rows[:, :6].T
        losses, estimates = rows[:, 6 : 6 + n_pairs], rows[:, 6 + n_pairs :]
        policy, _ = best_policy(self._mdp, self._layers.split(losses[-1]))
        comparator = self._layers.flatten(occupancy_measure(self._mdp, policy))
        best, best_hat = losses @ comparator, estimates @ comparator
        frame = pd.DataFrame(
            {
                "episode": self._logged,
                "regret": own - best,
                "REGRET": hat_hat - best_hat,
                "ERROR": own - own_hat,
                "BIAS-I": own_hat - hat_hat,
                "BIAS-II": best_hat - best,
            }
        )
        for name, bound in self._bounds(second_moment, narrow, wide).items():
            frame[f"{name} bound"] = bound
        return frame

    def _bounds(self, second_moment: FloatArray, narrow: FloatArray, wide: FloatArray) -> dict[str, FloatArray]:
        layers, horizon, zeta = self._layers, self._layers.horizon, self._zeta
        eta, gamma = self._step_size or np.nan, self._exploration or np.nan
        initial = nan
        if self._entropy in ("pairs", "triples"):
            initial = bounds.initial_divergence(layers.sizes, layers.n_actions, cast(bounds.Entropy, self._entropy))
        rows = list(zip(self._logged, second_moment, wide, strict=True))
        pairs = layers.n_pairs
        return {
            "REGRET": np.array([bounds.mirror_descent(initial, eta, moment) for _, moment, _ in rows]),
            "ERROR": narrow,
            "BIAS-I": np.array([bounds.bias_one(d, pairs, horizon, k, gamma, zeta) for k, _, d in rows]),
            "BIAS-II": np.full(len(rows), bounds.bias_two(pairs, horizon, gamma, zeta)),
        }


# ------------------------------------------------------------------------------------------ widths of sets


def row_widths(confidence_set: ConfidenceSet) -> list[FloatArray]:
    """e(s, a): a bound on the l1 distance of two rows of the set, tables (S_h, A), at most 2.

    The sum over s' of the exact range of each entry; for a set around centres in l1, twice the radius.
    """
    return _capped(confidence_set.row_diameters(), confidence_set)


def row_errors(confidence_set: ConfidenceSet, mdp: LayeredMDP) -> list[FloatArray]:
    """A bound on the l1 distance of the true row from any row of the set, tables (S_h, A), at most 2.

    The sum over s' of the largest |P'(s'|s,a) - P(s'|s,a)| in the set, each of which the paper's Lemma 4 bounds.
    """
    return _capped(confidence_set.row_distances(mdp.kernels), confidence_set)


def _capped(sums: Sequence[FloatArray], confidence_set: ConfidenceSet) -> list[FloatArray]:
    """At most 2, and 0 in the last layer, whose step is certain."""
    last = np.zeros((confidence_set.layer_sizes[-2], confidence_set.n_actions))
    return [*(np.minimum(2.0, table) for table in sums[:-1]), last]


def covers(confidence_set: ConfidenceSet, mdp: LayeredMDP) -> bool:
    """Whether the true kernels are in the set.

    Where the truth is a mixture, by its parameter: that it is in the ellipsoid is what the lemmas are about.
    """
    if isinstance(mdp, LinearMixtureMDP):
        return confidence_set.contains_mixture(mdp.theta, mdp.kernels)
    return confidence_set.contains(mdp.kernels)


def layer_sums(layers: Layers, table: FloatArray) -> FloatArray:
    """Sums over the pairs of each layer: (..., pairs) becomes (..., H)."""
    return np.asarray(np.add.reduceat(table, layers.pair_offsets[:-1], axis=-1))


def later(layers: Layers) -> tuple[FloatArray, FloatArray]:
    """How many layers with actions come after each layer, and how many states they have; two arrays of shape (H,)."""
    sizes = np.array(layers.sizes[:-1], dtype=np.float64)
    states = sizes.sum() - np.cumsum(sizes)
    return np.arange(layers.horizon - 1, -1, -1, dtype=np.float64), states
