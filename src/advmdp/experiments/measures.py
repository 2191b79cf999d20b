"""What a run can record beside its regret: each measure looks on and adds columns to the frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd

from advmdp._checks import float_array, integer
from advmdp.experiments.runner import ResumableWatcher, logged_episodes
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners import Learner
from advmdp.solvers import upper_occupancy
from advmdp.theory.decomposition import TERMS, Decomposition, covers, row_errors, row_widths

#: How the columns of :class:`TrustMeasure` begin.
TRUST = "trust in "


class Measure(ResumableWatcher, Protocol):
    """A watcher with columns, one value for each logged episode."""

    def columns(self) -> dict[str, FloatArray]:
        """After the run; NaN where the learner has nothing of the kind."""


class DecompositionMeasure:
    """The regret split as in section 5 of the paper: the columns of :class:`advmdp.theory.decomposition.Decomposition`.

    NaN for learners without loss estimates.
    """

    names: ClassVar[tuple[str, ...]] = (*TERMS, *(f"{term} bound" for term in TERMS))

    def __init__(self, mdp: LayeredMDP, learner: Learner, episodes: int) -> None:
        self._rows = logged_episodes(episodes)
        applies = learner.q is not None and hasattr(learner, "loss_estimate")
        self._split = Decomposition(mdp, episodes, self._rows) if applies else None
        self._learner = learner

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Before the update."""
        if self._split is not None:
            self._split.before(k, learner, q, losses)

    def after(self, k: int, learner: Learner) -> None:
        """After the update."""
        if self._split is not None:
            self._split.after(k, learner)

    def columns(self) -> dict[str, FloatArray]:
        """The four parts and their bounds."""
        if self._split is None:
            return {name: np.full(len(self._rows), np.nan) for name in self.names}
        frame = self._split.frame
        return {name: frame[name].to_numpy() for name in self.names}

    def state(self) -> dict[str, Any]:
        """Of the decomposition."""
        return {} if self._split is None else self._split.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Of the decomposition."""
        if self._split is not None:
            if state["played"] != self._learner.episodes_seen:
                raise ValueError(f"its decomposition is of {state['played']} episodes")
            self._split.set_state(state)


class WidthsMeasure:
    """How much the learner knows, at the logged episodes, as the policy of the episode meets it.

    ``width``: e(s, a), the bound on the l1 distance of two next-state distributions of the confidence set, averaged
    over the pairs of an episode.  ``upper_occupancy`` and ``true_occupancy``: u(s) and q(s), averaged over the states
    of an episode.  ``transition_error``: the largest l1 error that the set allows a row, averaged as the width is.
    ``occupancy_difference``: the sum over (s, a) of |u - q|, which Lemma 3 of the paper bounds (summed over episodes).
    Averages are expectations under the true occupancy measure, exact.  NaN without a confidence set.
    """

    names: ClassVar[tuple[str, ...]] = (
        "width",
        "upper_occupancy",
        "true_occupancy",
        "transition_error",
        "occupancy_difference",
    )

    def __init__(self, mdp: LayeredMDP, learner: Learner, episodes: int) -> None:
        self._mdp, self._layers, self._learner = mdp, mdp.layers, learner
        self._logged = logged_episodes(episodes)
        self._rows: list[list[float]] = []

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Look at the set with which episode k is played."""
        if k + 1 == self._logged[len(self._rows)]:
            self._rows.append(self._row(learner, q))

    def _row(self, learner: Learner, q: FloatArray) -> list[float]:
        confidence_set, layers = learner.confidence_set, self._layers
        if confidence_set is None:
            return [float("nan")] * len(self.names)
        width, error = (
            q @ layers.flatten(table) for table in (row_widths(confidence_set), row_errors(confidence_set, self._mdp))
        )
        true = np.concatenate([table.sum(axis=1) for table in layers.split(q)])
        upper = np.concatenate(upper_occupancy(confidence_set, list(learner.policy)))
        averages = [float(value) / layers.horizon for value in (width, true @ upper, true @ true, error)]
        # u(s, a) - q(s, a) is pi(a|s) times that of the state, so the sum over pairs is one over states.
        return [*averages, float(np.abs(upper - true).sum())]

    def after(self, k: int, learner: Learner) -> None:
        """Nothing: the set of the next episode is that episode's business."""

    def columns(self) -> dict[str, FloatArray]:
        """The averages, and the difference of occupancy measures."""
        return dict(zip(self.names, np.array(self._rows).T, strict=True))

    def state(self) -> dict[str, Any]:
        """The rows so far."""
        return {"rows": [list(row) for row in self._rows]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after those rows."""
        self._rows = _written(state["rows"], self._logged, self._learner, len(self.names))


class CoverageMeasure:
    """Whether the truth was in the sets, up to the logged episodes; NaN without a confidence set.

    ``covered``: the share of the episodes so far that were played with a set that holds the true kernels (where they
    are a mixture: the true parameter).  ``empty_sets``: how many sets so far were empty and had to be enlarged.
    """

    def __init__(self, mdp: LayeredMDP, learner: Learner, episodes: int) -> None:
        self._mdp, self._learner = mdp, learner
        self._logged = logged_episodes(episodes)
        self._last: tuple[Any, bool] = (None, False)
        self._count = 0
        self._rows: list[list[float]] = []

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Look for the truth in the set with which episode k is played."""
        confidence_set = learner.confidence_set
        if confidence_set is not None and confidence_set is not self._last[0]:
            self._last = confidence_set, covers(confidence_set, self._mdp)
        self._count += self._last[1]
        if k + 1 == self._logged[len(self._rows)]:
            nothing = confidence_set is None
            row = [self._count / (k + 1), float(getattr(learner, "empty_sets", 0))]
            self._rows.append([float("nan")] * 2 if nothing else row)

    def after(self, k: int, learner: Learner) -> None:
        """Nothing: the set of the next episode is that episode's business."""

    def columns(self) -> dict[str, FloatArray]:
        """Share and count."""
        return dict(zip(("covered", "empty_sets"), np.array(self._rows).T, strict=True))

    def state(self) -> dict[str, Any]:
        """The count and the rows so far."""
        return {"count": self._count, "rows": [list(row) for row in self._rows]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after those."""
        self._rows = _written(state["rows"], self._logged, self._learner, 2)
        self._count = integer(state["count"], "count", 0, ValueError)


class ModelTestMeasure:
    """``log_e``: the log e-value against the mixture model, at the logged episodes; NaN for learners that assume none.

    See :meth:`advmdp.learners.Learner.misspecification`: if reality is a mixture, the probability that this ever
    reaches log(1 / level) is at most the level.
    """

    def __init__(self, mdp: LayeredMDP, learner: Learner, episodes: int) -> None:
        self._learner = learner
        self._logged = logged_episodes(episodes)
        self._values: list[float] = []

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Nothing: the episode has not been told yet."""

    def after(self, k: int, learner: Learner) -> None:
        """Weigh the evidence of the episodes up to this one."""
        if k + 1 == self._logged[len(self._values)]:
            result = learner.misspecification()
            self._values.append(float("nan") if result is None else result.log_e_total)

    def columns(self) -> dict[str, FloatArray]:
        """One column."""
        return {"log_e": np.array(self._values)}

    def state(self) -> dict[str, Any]:
        """The values so far."""
        return {"values": list(self._values)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after those values."""
        self._values = [row[0] for row in _written([[x] for x in state["values"]], self._logged, self._learner, 1)]


class TrustMeasure:
    """``trust in <expert>``: the probability with which each expert was drawn for a logged episode.

    No columns for learners that draw no experts (those without ``expert_names`` and ``weights``).
    """

    def __init__(self, mdp: LayeredMDP, learner: Learner, episodes: int) -> None:
        self._learner = learner
        self._names = tuple(getattr(learner, "expert_names", ()))
        self._logged = logged_episodes(episodes)
        self._rows: list[list[float]] = []

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Look at the weights with which the expert of episode k was drawn."""
        if self._names and k + 1 == self._logged[len(self._rows)]:
            self._rows.append([float(weight) for weight in getattr(learner, "weights")])  # noqa: B009, of some learners

    def after(self, k: int, learner: Learner) -> None:
        """Nothing: the weights of the next episode are that episode's business."""

    def columns(self) -> dict[str, FloatArray]:
        """One for each expert."""
        names = [f"{TRUST}{name}" for name in self._names]
        return dict(zip(names, np.array(self._rows).T, strict=True))

    def state(self) -> dict[str, Any]:
        """The rows so far."""
        return {"rows": [list(row) for row in self._rows]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on after those rows."""
        if self._names:
            self._rows = _written(state["rows"], self._logged, self._learner, len(self._names))


def _written(rows: Any, logged: Sequence[int], learner: Learner, width: int) -> list[list[float]]:
    """Rows out of a file, as many as the learner, which is restored first, has seen logged episodes."""
    count = sum(episode <= learner.episodes_seen for episode in logged)
    table, shape = float_array(rows, "rows", ValueError), (count, width) if count else (0,)
    if table.shape != shape:
        raise ValueError(f"rows of shape {table.shape}, should be {shape}")
    return [list(map(float, row)) for row in table]


MEASURES: dict[str, Callable[[LayeredMDP, Learner, int], Measure]] = {
    "coverage": CoverageMeasure,
    "decomposition": DecompositionMeasure,
    "model-test": ModelTestMeasure,
    "trust": TrustMeasure,
    "widths": WidthsMeasure,
}


class Measures:
    """Several measures as one watcher."""

    def __init__(self, names: Sequence[str], mdp: LayeredMDP, learner: Learner, episodes: int) -> None:
        self._parts = {name: MEASURES[name](mdp, learner, episodes) for name in names}

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Tell all."""
        for part in self._parts.values():
            part.before(k, learner, q, losses)

    def after(self, k: int, learner: Learner) -> None:
        """Tell all."""
        for part in self._parts.values():
            part.after(k, learner)

    def add_to(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The frame of a run with the columns of all measures."""
        return frame.assign(**{n: v for part in self._parts.values() for n, v in part.columns().items()})

    def state(self) -> dict[str, Any]:
        """Of all."""
        return {name: part.state() for name, part in self._parts.items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Of all."""
        for name, part in self._parts.items():
            part.set_state(state[name])
