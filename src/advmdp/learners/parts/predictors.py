"""What losses will be next, from what they were: tables that planners plan with and estimates are centred at.

A predictor may be any function of the past; no promise depends on it.  All those of a learner are kept together, one
row each, so that an episode updates them in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from advmdp._checks import float_array
from advmdp._compiled import kernel
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, IntArray

#: Episodes over which the error of a predictor is averaged, for doubt.
ERROR_WINDOW = 20.0


@dataclass(frozen=True)
class Predictor:
    """The rule of one predictor; m is its table, zero (optimism) where nothing was seen.

    After an episode, first at all pairs, then at those whose loss l was seen, N times by now:

        m <- (1 - decay - doubt * error) m,          m <- m + (l - m) / min(N, window).

    ``error`` is the mean of |l - m| over recent episodes, at pairs that had been seen before: with ``doubt``, old
    knowledge fades as fast as predictions fail, so that a planner looks again at what it has not seen for long when
    losses change, and only then.  With a long window all pairs that are visited fade alike, at whatever rate they are
    visited (with a mean, m is about l (1 - exp(-x)) / x, x = k doubt error, after k episodes), which changes no plan:
    those that are not visited become attractive beside them.
    """

    #: Visits that are averaged; from then on older ones are forgotten by the factor 1 - 1 / window.
    window: float = np.inf
    #: Share of every prediction that is forgotten per episode.
    decay: float = 0.0
    #: The same for each unit of prediction error.
    doubt: float = 0.0

    def __post_init__(self) -> None:
        if not self.window >= 1.0:
            raise InvalidSpecError(f"window is {self.window!r}, should be a number >= 1")
        for name in ("decay", "doubt"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidSpecError(f"{name} is {getattr(self, name)!r}, should be a number in [0, 1]")


def mean(*, decay: float = 0.0, doubt: float = 0.0) -> Predictor:
    """m = (sum of the losses seen at the pair) / N."""
    return Predictor(np.inf, decay, doubt)


def last(*, decay: float = 0.0, doubt: float = 0.0) -> Predictor:
    """m = the loss seen last at the pair."""
    return Predictor(1.0, decay, doubt)


def forgetting(factor: float, *, decay: float = 0.0, doubt: float = 0.0) -> Predictor:
    """m <- m + (l - m) / min(N, 1 / (1 - factor)): older losses at the pair count ``factor`` times as much per visit.

    1 is the mean of all, 0 the last.
    """
    if not 0.0 <= factor <= 1.0:
        raise InvalidSpecError(f"forgetting is {factor!r}, should be a number in [0, 1]")
    return Predictor(np.inf if factor == 1.0 else 1.0 / (1.0 - factor), decay, doubt)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Several predictors at work: a value, adding an episode returns a new one."""

    rules: tuple[Predictor, ...]
    #: ``(P, 3)``: window, decay and doubt of each rule.
    settings: FloatArray
    #: m of each rule, ``(P, n_pairs)``, in [0, 1].
    tables: FloatArray
    #: How often the loss of each pair was seen.
    visits: FloatArray
    #: The mean absolute error of each rule, recently.
    errors: FloatArray

    @classmethod
    def empty(cls, rules: Sequence[Predictor], n_pairs: int) -> Self:
        """Before the first episode: all zero."""
        settings = np.array([(rule.window, rule.decay, rule.doubt) for rule in rules]).reshape(-1, 3)
        return cls(tuple(rules), settings, np.zeros((len(rules), n_pairs)), np.zeros(n_pairs), np.zeros(len(rules)))

    def add(self, pairs: IntArray, losses: FloatArray, *, late: bool = False) -> Self:
        """With one more episode: its pairs (flat) and their losses; those that are NaN were not seen.

        Losses that come ``late`` are averaged in, and nothing fades: it did when their episode was added without them.
        """
        tables, visits, errors = self.tables.copy(), self.visits.copy(), self.errors.copy()
        settings = self.settings
        if late:
            settings = settings.copy()
            settings[:, 1:] = 0.0
        learn_losses(settings, pairs, losses, tables, visits, errors)
        return replace(self, tables=tables, visits=visits, errors=errors)

    def known(self, rule: int) -> FloatArray:
        """m of one rule where some loss was seen, NaN elsewhere."""
        return np.where(self.visits > 0.0, self.tables[rule], np.nan)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"tables": self.tables, "visits": self.visits, "errors": self.errors}

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """What :meth:`tree` was made of, from empty ones with the same rules; else ValueError."""
        arrays: dict[str, Any] = {}
        for name in ("tables", "visits", "errors"):
            array = np.array(float_array(tree[name], name, ValueError))
            if array.shape != getattr(self, name).shape:
                raise ValueError(f"{name} has shape {array.shape}, should be {getattr(self, name).shape}")
            highest = np.inf if name == "visits" else 1.0
            if not ((array >= 0.0).all() and (array <= highest).all() and np.isfinite(array).all()):
                raise ValueError(f"{name} has entries that are not numbers from 0 to {highest}")
            arrays[name] = array
        return replace(self, **arrays)


@kernel
def learn_losses(
    settings: FloatArray,
    pairs: IntArray,
    losses: FloatArray,
    tables: FloatArray,
    visits: FloatArray,
    errors: FloatArray,
) -> None:
    """One episode into all tables, see :class:`Predictor`; in place."""
    for p in range(tables.shape[0]):
        window, decay, doubt = settings[p, 0], settings[p, 1], settings[p, 2]
        if doubt > 0.0:
            surprise, known = 0.0, 0
            for h in range(pairs.size):
                if visits[pairs[h]] > 0.0 and not np.isnan(losses[h]):
                    surprise += abs(losses[h] - tables[p, pairs[h]])
                    known += 1
            if known > 0:
                errors[p] += (surprise / known - errors[p]) / ERROR_WINDOW
        kept = max(0.0, 1.0 - decay - doubt * errors[p])
        if kept < 1.0:
            for i in range(tables.shape[1]):
                tables[p, i] *= kept
        for h in range(pairs.size):
            if not np.isnan(losses[h]):
                tables[p, pairs[h]] += (losses[h] - tables[p, pairs[h]]) / min(visits[pairs[h]] + 1.0, window)
    for h in range(pairs.size):
        if not np.isnan(losses[h]):
            visits[pairs[h]] += 1.0
