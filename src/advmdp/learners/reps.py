"""Relative entropy policy search: one loop, and the parts that make an algorithm of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from advmdp._checks import integer
from advmdp.confidence import ConfidenceSet
from advmdp.confidence.box import all_kernels
from advmdp.confidence.estimators import RidgeEstimate
from advmdp.confidence.likelihood_ratio import LikelihoodEstimate
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray
from advmdp.learners.base import Learner
from advmdp.learners.parts.known_losses import Groups, KnownPart, known_losses
from advmdp.learners.parts.predictors import Forecast, Ridge, with_losses
from advmdp.learners.parts.steps import OccupancyStep
from advmdp.solvers import MirrorStep
from advmdp.solvers.conditional import ConditionalStep
from advmdp.solvers.known import FlatStep


class Estimator(Protocol):
    """What is kept of the transitions: values with a ``version`` that changes when the set does."""

    def empty(self) -> Any:
        """Before the first episode."""

    def add(self, data: Any, states: IntArray, actions: IntArray, logged: bool = False) -> Any:
        """With one more episode, played or read in a log: states and actions ``(H,)``."""

    def tree(self, data: Any) -> dict[str, Any]:
        """For a checkpoint."""

    def restore(self, tree: dict[str, Any]) -> Any:
        """The inverse of :meth:`tree`, or ValueError."""


class Step(Protocol):
    """How the occupancy measure moves: values with ``policy``, ``last`` (the solver's step), ``gap`` and ``missed``."""

    #: Whether the step is over the set that the episode was played with, and not the one that it gave.
    over_played_set: bool

    def start(self) -> Any:
        """q_1."""

    def advance(self, state: Any, confidence_set: ConfidenceSet, estimate: FloatArray, k: int) -> Any:
        """From q_k to q_{k+1}, with a flat estimate of shape ``(n_pairs,)``.

        With a predictor there is a fifth argument: the estimate is lhat_k - m_k, and the ``hint`` m_{k+1}.
        """

    def project(self, state: Any, confidence_set: ConfidenceSet) -> Any:
        """To the nearest measure over a set that changed without an episode."""

    def occupancy(self, state: Any, confidence_set: ConfidenceSet) -> FloatArray:
        """The occupancy measure behind the policy, flat."""

    def tree(self, state: Any) -> dict[str, Any]:
        """For a checkpoint."""

    def restore(self, tree: dict[str, Any]) -> Any:
        """The inverse of :meth:`tree`, or ValueError."""


class Parts(NamedTuple):
    """What makes an algorithm of the loop."""

    #: What is kept of the transitions.
    estimator: Estimator
    #: Which kernels that leaves possible.
    sets: Callable[[Any], ConfidenceSet]
    #: What is made of the losses: ``losses(state, episode, k)`` is lhat, flat.
    losses: Any
    #: How the occupancy measure moves.
    step: Step
    #: What the losses are expected to be, before the first episode.
    forecast: Forecast | None = None


class RepsState(NamedTuple):
    """What a learner of this kind knows."""

    policy: FloatArray
    #: Where the step stands.
    step: Any
    #: The estimator's.
    data: Any
    #: P_k, and the factor by which its radius was enlarged because it was empty.
    set: ConfidenceSet
    enlargement: float
    #: lhat of the last update.
    loss_estimate: FloatArray
    #: Episodes learned from.
    k: int = 0
    #: Times that a set was empty and had to be enlarged.
    empty_sets: int = 0
    #: Sum of the duality gaps of all steps, and how many were not within the tolerance of the solver.
    gaps: float = 0.0
    missed: int = 0
    #: Times that a floor on q acted, for estimates that have one.
    floored: int = 0
    #: m_k, what the losses are expected to be, if anything.
    predictions: Forecast | None = None


class RepsLearner(Learner):
    """Algorithm 1 of the paper, in the order that its proof needs.

    With q_k the learner's occupancy measure, pi_k its policy and P_k its set of kernels, after episode k:

    1. the losses give lhat_k, with what was known before the episode (u_k, from P_k and pi_k);
    2. the transitions of episode k enter the estimator, which gives P_{k+1};
    3. q_{k+1} = argmin over q in Delta(P_{k+1}) of eta <q, lhat_k> + D(q || q_k), and pi_{k+1}(a | s) is q_{k+1}(s, a)
       / q_{k+1}(s).  (The step with conditional entropy is over P_k.)

    P_1 holds all kernels.  The main text of the paper prints P_k in step 3; with it q_{k+1} <= u_{k+1} fails, on which
    the analysis rests.  With predictions m_k of the losses, lhat_k is m_k and a correction, and lhat_k - m_k + m_{k+1}
    takes its place in step 3.  A subclass names its parts in :meth:`_parts`.
    """

    takes_start = True
    options: Any
    _eta: float | None = None
    #: What is known of the losses beforehand, and which pairs share them.
    known_part: KnownPart | None = None
    pair_groups: Groups | None = None
    #: gamma of episode k, from 0.
    gamma_of: Callable[[int], float]

    @property
    def step_size(self) -> float:
        """eta in force, by default that of the theorem, or what a step that adapts has come to."""
        if self._eta is not None:
            return self._eta
        state = self._now.state
        return float(self._step.rate(state.step, state.k))  # type: ignore[attr-defined]

    @step_size.setter
    def step_size(self, eta: float) -> None:
        self._eta = eta

    @property
    def exploration(self) -> float:
        """gamma in force, by default that of the theorem."""
        return self.gamma_of(self._now.state.k if "_now" in self.__dict__ else 0)

    @exploration.setter
    def exploration(self, gamma: float) -> None:
        self.gamma_of = lambda k: gamma

    @abstractmethod
    def _parts(self) -> Parts:
        """Estimator, set, loss estimate and step of this algorithm."""

    def _compose(self) -> None:
        self.known_part, self.pair_groups = known_losses(self)
        self._estimator, self._sets, self._losses, self._step, self._forecast = self.parts = self._parts()
        predictor = getattr(self.options, "predictor", None)
        if isinstance(predictor, Ridge):  # what is saved
            self.predictor = {"features": list(predictor.features), "forgetting": predictor.forgetting}
        if self._losses.feedback != self.feedback:
            raise TypeError(f"{type(self).__name__}.feedback is {self.feedback!r}, that of its losses is another")

    def _sizes(self) -> tuple[int, float, int, int]:
        """S, A, H, K, the first two as :class:`advmdp.layered.shape.Counted` counts them."""
        counted = self._layers.counted
        return counted.states, counted.actions, self._layers.horizon, self.episodes

    def _tune(self, eta: float, gamma: float) -> None:
        """Put step size and exploration in force: the options, or these."""
        self.step_size = eta if self.options.eta is None else self.options.eta
        self.exploration = gamma if getattr(self.options, "gamma", None) is None else self.options.gamma

    def _begin(self) -> RepsState:
        first_set = self._first_set()
        if isinstance(self._step, OccupancyStep):
            # Before the first episode, not after it.
            first_set.require_narrow("entropy='conditional' works on the possible transitions alone")
        first = self._step.start()
        data = self._estimator.empty()
        zeros = np.zeros(self._layers.n_pairs)
        return RepsState(first.policy, first, data, first_set, 1.0, zeros, predictions=self._forecast)

    def _learn(self, state: RepsState, episode: CheckedEpisode) -> RepsState:
        if self.known_part is not None:
            episode = self.known_part.rest(episode)
        estimate = self._losses(state, episode, state.k)
        if self.known_part is not None:
            estimate = estimate + self.known_part.table
        data = self._counted(state, episode)
        new = self._renewed(state, data)
        chosen_from = state.set if self._step.over_played_set else new.set
        predictions, expected, surprise, hints = state.predictions, self._expected(state.predictions), estimate, {}
        if expected is not None:
            # The first policy was chosen without a hint.
            surprise = estimate - expected if state.k else estimate
            if predictions is not None:
                predictions = with_losses(predictions, episode, self._layers)
            hints = {"hint": self._expected(predictions)}
        step = self._step.advance(state.step, chosen_from, surprise, state.k, **hints)
        return RepsState(
            step.policy, step, data, new.set, new.enlargement, estimate, state.k + 1, new.empty_sets,
            state.gaps + step.gap, state.missed + step.missed, state.floored, predictions,
        )  # fmt: skip

    def _expected(self, predictions: Forecast | None) -> FloatArray | None:
        """m: what is known of the losses and what is predicted of the rest; None for nothing."""
        if self.known_part is None:
            return None if predictions is None else predictions.table
        return self.known_part.table if predictions is None else self.known_part.table + predictions.table

    def _counted(self, state: RepsState, episode: CheckedEpisode) -> Any:
        """The estimator's data with the transitions of the episode."""
        return self._estimator.add(state.data, episode.states, episode.actions)

    def _renewed(self, state: RepsState, data: Any) -> RepsState:
        """With the set of these data, if they changed it."""
        if data.version == state.data.version:
            return state._replace(data=data)
        confidence_set, enlargement = self._sets(data).enlarged_if_empty()
        # Sets of likelihood are never left empty, and say where they would have been.
        empty = state.empty_sets + int(enlargement > 1.0 or getattr(data, "refuted", False))
        return state._replace(data=data, set=confidence_set, enlargement=enlargement, empty_sets=empty)

    def _observe(self, state: RepsState, states: IntArray, actions: IntArray) -> RepsState:
        data = state.data
        for row, move in zip(states, actions, strict=True):
            data = self._estimator.add(data, row, move, logged=True)
        if data is state.data:
            return super()._observe(state, states, actions)  # type: ignore[no-any-return]  # it keeps nothing
        new = self._renewed(state, data)
        step = self._step.project(state.step, new.set)
        paid = {"gaps": state.gaps + step.gap, "missed": state.missed + step.missed} if step is not state.step else {}
        return new._replace(policy=step.policy, step=step, **paid)

    def _weights(self, state: RepsState, episode: CheckedEpisode) -> FloatArray:
        if not self.partial:
            return super()._weights(state, episode)
        weights: FloatArray = self._losses.weights(state, episode.states, episode.pairs, state.k)
        return weights

    def _first_set(self) -> ConfidenceSet:
        """All kernels."""
        return all_kernels(self._layers.sizes, self._layers.n_actions, self._problem.model.support)

    @property
    def q(self) -> list[FloatArray]:
        """q_k, the occupancy measure behind the policy, under a kernel of the confidence set."""
        state = self._now.state
        return self._layers.split(self._step.occupancy(state.step, state.set))

    @property
    def confidence_set(self) -> ConfidenceSet:
        """P_k, the set that q_k was chosen from."""
        found: ConfidenceSet = self._now.state.set
        return found

    @property
    def loss_estimate(self) -> list[FloatArray]:
        """lhat of the last update (zero before the first)."""
        return self._layers.split(self._now.state.loss_estimate)

    @property
    def predicted_losses(self) -> list[FloatArray] | None:
        """m_k, what the losses of the next episode are expected to be, of learners with a predictor or a known part."""
        expected = self._expected(self._now.state.predictions)
        return None if expected is None else self._layers.split(expected.copy())

    @property
    def last_step(self) -> MirrorStep | FlatStep | ConditionalStep | None:
        step: MirrorStep | FlatStep | ConditionalStep | None = self._now.state.step.last
        return step

    @property
    def certificate(self) -> float:
        """What inexact steps can have cost so far: gaps, and the cost of steps that miss the tolerance
        (docs/certificates.md)."""
        return float(self._now.state.gaps)

    @property
    def missed_tolerance(self) -> int:
        """Steps so far that the solver could not certify to its tolerance; :attr:`certificate` counts their cost."""
        return int(self._now.state.missed)

    @property
    def empty_sets(self) -> int:
        """Times that a confidence set was empty and had to be enlarged."""
        return int(self._now.state.empty_sets)

    @property
    def estimate(self) -> RidgeEstimate | LikelihoodEstimate:
        """theta_{k,h} and Gram matrices, with their log-determinants where they are of a regression."""
        found: RidgeEstimate | LikelihoodEstimate = self._now.state.data.estimate
        return found

    @property
    def radii(self) -> FloatArray | None:
        """beta of each layer 0..H-2 as in force (scaled, and enlarged where the set was empty), of the same learners.

        None in the first episode, whose set holds all kernels.
        """
        state, sets = self._now.state, self._sets
        scaled: FloatArray = state.enlargement * sets.radii(state.data)  # type: ignore[attr-defined]
        return scaled if state.data.version else None

    def _tree(self, state: RepsState) -> dict[str, Any]:
        return {
            "step": self._step.tree(state.step),
            "data": self._estimator.tree(state.data),
            "loss_estimate": state.loss_estimate,
            "k": state.k,
            "empty_sets": state.empty_sets,
            "gaps": state.gaps,
            "missed": state.missed,
            "floored": state.floored,
            "predictions": None if state.predictions is None else state.predictions.tree(),
        }

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> RepsState:
        data = self._estimator.restore(tree["data"])
        estimate = self._layers.flat_vector(tree["loss_estimate"], "loss_estimate")
        first = self._begin()
        found = (first.set, 1.0) if data.version == first.data.version else self._sets(data).enlarged_if_empty()
        if not tree["gaps"] >= 0.0:
            raise ValueError(f"gaps is {tree['gaps']!r}, should be a number >= 0")
        names = ("k", "empty_sets", "missed", "floored")
        k, empty, missed, floored = (integer(({"missed": 0} | tree)[name], name, 0, ValueError) for name in names)
        step = self._step.restore(tree["step"])._replace(policy=policy)
        predictions = None if self._forecast is None else self._forecast.from_tree(tree["predictions"])
        return RepsState(
            policy, step, data, *found, estimate, k, empty, float(tree["gaps"]), missed, floored, predictions
        )
