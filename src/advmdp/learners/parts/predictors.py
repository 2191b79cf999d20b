"""What losses will be next, from what they were: tables that planners plan with and estimates are centred at.

A predictor may be any function of the past; no promise depends on it.  Those of a learner that has several are kept
together, one row each, so that an episode updates them in one pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import float_array, integer
from advmdp._compiled import kernel
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, IntArray, Layers
from advmdp.learners.parts.known_losses import Groups

#: Episodes over which the error of a predictor is averaged, for doubt.
ERROR_WINDOW = 20.0


@dataclass(frozen=True)
class Predictor:
    """The rule of one predictor; m is its table, zero (optimism), or what is known of the loss, where none was seen.

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


class Forecast(Protocol):
    """A predictor at work: a value, adding an episode returns a new one."""

    @property
    def table(self) -> FloatArray:
        """m, the losses to expect in the next episode: flat over pairs, in [0, 1]."""

    def add(self, pairs: IntArray, losses: FloatArray, *, late: bool = False) -> Self:
        """With one more episode: the pairs (flat) whose losses were seen, NaN where they were not."""

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """What :meth:`tree` was made of, from an empty one with the same rule; else ValueError."""


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
    #: The least that losses can be, flat: what is expected where none was seen, and what predictions fade to.
    least: FloatArray

    @classmethod
    def empty(cls, rules: Sequence[Predictor], n_pairs: int, least: FloatArray | None = None) -> Self:
        """Before the first episode: the least losses, by default zero."""
        settings = np.array([(rule.window, rule.decay, rule.doubt) for rule in rules]).reshape(-1, 3)
        least = np.zeros(n_pairs) if least is None else least
        tables = np.tile(least, (len(rules), 1))
        return cls(tuple(rules), settings, tables, np.zeros(n_pairs), np.zeros(len(rules)), least)

    @property
    def table(self) -> FloatArray:
        """m of the first rule."""
        first: FloatArray = self.tables[0]
        return first

    def add(self, pairs: IntArray, losses: FloatArray, *, late: bool = False) -> Self:
        """With one more episode: its pairs (flat) and their losses; those that are NaN were not seen.

        Losses that come ``late`` are averaged in, and nothing fades: it did when their episode was added without them.
        """
        tables, visits, errors = self.tables.copy(), self.visits.copy(), self.errors.copy()
        settings = self.settings
        if late:
            settings = settings.copy()
            settings[:, 1:] = 0.0
        learn_losses(settings, pairs, losses, self.least, tables, visits, errors)
        return replace(self, tables=tables, visits=visits, errors=errors)

    def with_prior(self, layers: Layers, among: NDArray[np.bool_]) -> Self:
        """With the mean of the layer in place of zero where no loss was seen, of these pairs alone (flat)."""
        tables, seen = self.tables.copy(), self.visits > 0.0
        for start, end in itertools.pairwise(layers.pair_offsets):
            part, known = tables[:, start:end], (seen & among)[start:end]
            if known.any():
                part[:, (~seen & among)[start:end]] = part[:, known].mean(axis=1, keepdims=True)
        return replace(self, tables=tables)

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


@dataclass(frozen=True, eq=False)
class Ridge:
    """A rule: losses are linear in known features of pairs, with one vector of weights for all layers.

    See :func:`ridge`.
    """

    #: A table ``(S_h, A, p)`` for each layer.
    features: tuple[FloatArray, ...]
    forgetting: float = 1.0


def ridge(features: Sequence[ArrayLike], forgetting: float = 1.0) -> Ridge:
    """Predict losses by ridge regression on features of pairs: the option ``predictor`` of learners that predict.

    m = <phi, w>, cut off at 0 and 1, with w the minimiser of |w|^2 + sum (l - <phi, w>)^2 over the losses seen: one
    regression for all layers, so that what is seen in one helps in all.

    Parameters
    ----------
    features
        phi, a list over layers of ``(S_h, A, p)``.
    forgetting
        What an older episode counts beside the next one.

    Examples
    --------
    >>> import advmdp
    >>> world = advmdp.make_world("grid", height=2, width=2)
    >>> prices = [np.ones((n, world.n_actions, 1)) for n in world.layer_sizes[:-1]]  # one price for every step
    >>> learner = advmdp.make_learner("vlsuob-reps-tight", world, 10, predictor=advmdp.ridge(prices))
    """
    tables = tuple(float_array(table, f"features[{h}]", InvalidSpecError) for h, table in enumerate(features))
    for h, table in enumerate(tables):
        if table.ndim != 3 or table.shape[2] != tables[0].shape[2] or not np.isfinite(table).all():
            raise InvalidSpecError(f"features[{h}] of shape {table.shape} should be finite, (S_h, A, p), one p for all")
    if not 0.0 <= forgetting <= 1.0:
        raise InvalidSpecError(f"forgetting is {forgetting!r}, should be a number in [0, 1]")
    return Ridge(tables, float(forgetting))


@dataclass(frozen=True, eq=False)
class RidgePredictions:
    """A ridge regression at work: a value, adding an episode returns a new one."""

    #: ``(n_pairs, p)``.
    features: FloatArray
    forgetting: float
    #: Sums of phi phi' and of phi l, the older the less.
    moments: FloatArray
    targets: FloatArray
    #: m.
    table: FloatArray

    @classmethod
    def empty(cls, rule: Ridge, layers: Layers) -> Self:
        """Before the first episode: all zero."""
        shapes = [(n, layers.n_actions) for n in layers.sizes[:-1]]
        if [table.shape[:2] for table in rule.features] != shapes:
            raise InvalidSpecError(f"features are of tables {[t.shape[:2] for t in rule.features]}, should be {shapes}")
        features = np.concatenate([table.reshape(-1, table.shape[2]) for table in rule.features])
        p = features.shape[1]
        return cls(features, rule.forgetting, np.zeros((p, p)), np.zeros(p), np.zeros(len(features)))

    def add(self, pairs: IntArray, losses: FloatArray, *, late: bool = False) -> Self:
        """With one more episode; late losses are added, and nothing is forgotten."""
        seen = ~np.isnan(losses)
        rows, kept = self.features[pairs[seen]], 1.0 if late else self.forgetting
        return self._solved(kept * self.moments + rows.T @ rows, kept * self.targets + rows.T @ losses[seen])

    def _solved(self, moments: FloatArray, targets: FloatArray) -> Self:
        weights = np.linalg.solve(moments + np.eye(len(targets)), targets)
        table = np.clip(self.features @ weights, 0.0, 1.0)
        return replace(self, moments=moments, targets=targets, table=table)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"moments": self.moments, "targets": self.targets}

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """What :meth:`tree` was made of, from an empty one with the same features; else ValueError."""
        moments, targets = (np.array(float_array(tree[name], name, ValueError)) for name in ("moments", "targets"))
        if moments.shape != self.moments.shape or targets.shape != self.targets.shape:
            raise ValueError(f"moments {moments.shape} and targets {targets.shape} are of another number of features")
        if not (np.isfinite(moments).all() and np.isfinite(targets).all() and np.array_equal(moments, moments.T)):
            raise ValueError("moments should be finite and symmetric, targets finite")
        if moments.size and np.linalg.eigvalsh(moments).min() < -1e-9 * max(1.0, np.abs(moments).max()):
            raise ValueError("moments have a negative eigenvalue")
        return self._solved(moments, targets)


@dataclass(frozen=True, eq=False)
class GivenPredictions:
    """The user's own: ``forecast(k)`` are the losses to expect in episode k (from 0), a list over layers."""

    forecast: Callable[[int], Sequence[ArrayLike]]
    layers: Layers
    k: int
    table: FloatArray

    @classmethod
    def at(cls, forecast: Callable[[int], Sequence[ArrayLike]], layers: Layers, k: int = 0) -> Self:
        """Before episode k."""
        try:
            table = layers.loss_table(forecast(k), f"the prediction for episode {k}")
        except InvalidMDPError as error:
            raise InvalidSpecError(str(error)) from error
        return cls(forecast, layers, k, table)

    def add(self, pairs: IntArray, losses: FloatArray, *, late: bool = False) -> Self:
        """Nothing is learnt: the next forecast."""
        return self if late else self.at(self.forecast, self.layers, self.k + 1)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"k": self.k}

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """The inverse of :meth:`tree`, or ValueError."""
        return self.at(self.forecast, self.layers, integer(tree["k"], "k", 0, ValueError))


#: The predictors that have a name.
NAMED = {"mean": mean(), "last": last(), "forgetting": forgetting(0.9, doubt=0.03)}


def forecast_of(predictor: Any, layers: Layers) -> Forecast | None:
    """The predictor that an option names, at work; None for ``"none"``."""
    if isinstance(predictor, Mapping):  # out of a file
        predictor = ridge(predictor["features"], predictor["forgetting"])
    if isinstance(predictor, Ridge):
        return RidgePredictions.empty(predictor, layers)
    if callable(predictor):
        return GivenPredictions.at(predictor, layers)
    return None if predictor == "none" else Predictions.empty([NAMED[predictor]], layers.n_pairs)


def with_losses(predictions: Any, episode: CheckedEpisode, layers: Layers, groups: Groups | None = None) -> Any:
    """Predictions after the losses of an episode, all that were told, and those that came late.

    With ``groups``, what was seen at one pair was seen at all that share its loss.
    """
    for late in episode.late:
        predictions = with_late(predictions, late.pairs, late.losses, groups)
    told = episode.seen(layers)
    return predictions.add(*(told if groups is None else groups.seen(*told)))


def with_late(predictions: Any, pairs: IntArray, losses: FloatArray, groups: Groups | None = None) -> Any:
    """Predictions with losses of an earlier episode at these pairs (flat), NaN where none came: both ``(H,)``."""
    told = (pairs, losses) if groups is None else groups.seen(pairs, losses)
    return predictions.add(*told, late=True)


@kernel
def learn_losses(
    settings: FloatArray,
    pairs: IntArray,
    losses: FloatArray,
    least: FloatArray,
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
                tables[p, i] = least[i] + kept * (tables[p, i] - least[i])
        for h in range(pairs.size):
            if not np.isnan(losses[h]):
                tables[p, pairs[h]] += (losses[h] - tables[p, pairs[h]]) / min(visits[pairs[h]] + 1.0, window)
    for h in range(pairs.size):
        if not np.isnan(losses[h]):
            visits[pairs[h]] += 1.0
