"""Certainty equivalence: estimate the kernel, average the losses, plan.  What people do instead; no promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import integer
from advmdp.confidence.likelihood import MixtureWeights, TransitionCounts
from advmdp.confidence.regression import require_shared
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel, TabularModel
from advmdp.learners.base import Belief, Learner, stacked
from advmdp.learners.options import LossOptions, number, require
from advmdp.learners.parts.known_losses import known_losses, require_known
from advmdp.learners.parts.planning import plans
from advmdp.learners.parts.predictors import Predictions, forgetting, with_late, with_losses
from advmdp.registry import register_learner

KernelEstimate = MixtureWeights | TransitionCounts


def shares_weights(model: TabularModel, wanted: bool | None) -> bool:
    """Whether the layers of a mixture share their weights: what the model says, unless less is wanted."""
    if wanted and isinstance(model, LinearMixtureModel):
        require_shared(model)
    return isinstance(model, LinearMixtureModel) and model.shared and wanted is not False


def kernel_estimate(model: TabularModel, shared: bool | None = None) -> KernelEstimate:
    """The likeliest mixture where the model is one of known kernels, and counts where it is not."""
    if isinstance(model, LinearMixtureModel) and model.simplex:
        return MixtureWeights.empty(model, shared=shared)
    return TransitionCounts.empty(model)


def with_logs(kernel: KernelEstimate, states: IntArray, actions: IntArray) -> KernelEstimate:
    """The estimate with the transitions of n episodes; states and actions have shape ``(n, H)``."""
    for row, move in zip(states, actions, strict=True):
        kernel = kernel.add(row, move)
    return kernel


def restored_count(tree: dict[str, Any]) -> int:
    """The number of episodes out of a file."""
    return integer(tree["k"], "k", 0, ValueError)


@dataclass(frozen=True, kw_only=True)
class FeedbackOptions(LossOptions):
    """``feedback``: which losses it is shown in a run; ``shared``: whether layers share their weights."""

    feedback: Literal["bandit", "actions", "full"] = "bandit"
    shared: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        levels = ("bandit", "actions", "full")
        require(self.feedback in levels, "feedback", self.feedback, "'bandit', 'actions' or 'full'")
        require(self.shared is None or isinstance(self.shared, bool), "shared", self.shared, "True, False or None")


@dataclass(frozen=True, kw_only=True)
class PlannerOptions(FeedbackOptions):
    """``forgetting``: what an older loss counts beside a newer one at the same pair."""

    forgetting: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = number(self.forgetting, -1.0) and 0.0 <= self.forgetting <= 1.0
        require(valid, "forgetting", self.forgetting, "a number from 0 to 1")


class PlannerState(NamedTuple):
    """The estimated kernel, the predicted losses, and the plan."""

    policy: FloatArray
    kernel: KernelEstimate
    predictions: Predictions
    k: int = 0


@register_learner("planner")
class Planner(Learner):
    """Plan exactly for the likeliest kernel and the mean of the losses seen; optimistic where nothing was seen.

    After episode k:

    1. the kernel is that of the mixture weights on the simplex that make all transitions so far most likely (without a
       mixture: of the frequencies of transitions);
    2. m(s, a) <- m(s, a) + (l - m(s, a)) / min(N(s, a), 1 / (1 - forgetting)) at the visited pairs, N their visits;
       m = 0 where no loss was seen;
    3. the policy is the best one for m under that kernel; actions that are equally good share the probability.

    It has no guarantee: losses that make the current plan expensive give it regret that is linear in K.

    Parameters
    ----------
    forgetting
        What an older loss counts beside the next one seen at the same pair: 1 for the mean of all, 0 for the last.
    shared
        Whether to use that the mixture weights are the same in every layer; by default, if the model says so.
    feedback
        Which losses it is shown: ``"bandit"``, ``"actions"`` (of all actions at visited states, where an episode has
        them), or ``"full"`` (the whole table).
    known
        A part of every loss that is known beforehand, a list over layers of ``(S_h, A)``: what is expected of a pair
        whose loss was never seen.
    groups
        Integers, a list over layers of ``(S_h, A)``: pairs with the same have the same loss in every episode, so that
        what is seen at one is seen at all.
    """

    name = "planner"
    status = "no guarantee; weights against a conic solver, plans against enumeration; linear regret where it must be"
    needs_episodes = False
    partial = True
    uses_mixture = True
    predicts = True
    Options = PlannerOptions
    options: PlannerOptions

    def _compose(self) -> None:
        self.shares = shares_weights(self._problem, self.options.shared)
        self.known_part, self.pair_groups = known_losses(self)

    def _begin(self) -> PlannerState:
        kernel = kernel_estimate(self._problem, self.shares)
        least = None if self.known_part is None else self.known_part.table
        rules = [forgetting(self.options.forgetting)]
        return self._planned(kernel, Predictions.empty(rules, self._layers.n_pairs, least), 0)

    def _planned(self, kernel: KernelEstimate, predictions: Predictions, k: int) -> PlannerState:
        policies = plans(self._layers, kernel.kernel, predictions.tables, np.array([np.inf]))
        return PlannerState(policies[0], kernel, predictions, k)

    def _learn(self, state: PlannerState, episode: CheckedEpisode) -> PlannerState:
        require_known(self.known_part, episode)
        kernel = state.kernel.add(episode.states, episode.actions)
        predictions = with_losses(state.predictions, episode, self._layers, self.pair_groups)
        return self._planned(kernel, predictions, state.k + 1)

    def _observe(self, state: PlannerState, states: IntArray, actions: IntArray) -> PlannerState:
        return self._planned(with_logs(state.kernel, states, actions), state.predictions, state.k)

    def _observe_played(self, state: PlannerState, episodes: Sequence[CheckedEpisode]) -> PlannerState:
        predictions = state.predictions
        for episode in episodes:
            require_known(self.known_part, episode)
            predictions = with_losses(predictions, episode, self._layers, self.pair_groups)
        return self._planned(with_logs(state.kernel, *stacked(episodes)), predictions, state.k)

    def _with_prior(self, state: PlannerState, among: NDArray[np.bool_]) -> PlannerState:
        return self._planned(state.kernel, state.predictions.with_prior(self._layers, among), state.k)

    def _observe_losses(self, state: PlannerState, episode: CheckedEpisode) -> PlannerState:
        predictions = with_late(state.predictions, episode.pairs, episode.losses, self.pair_groups)
        return self._planned(state.kernel, predictions, state.k)

    def _belief(self, state: PlannerState) -> Belief:
        policies, weights = state.policy[None], np.ones(1)
        return Belief(state.kernel.kernel, state.predictions.known(0), policies, weights)

    @property
    def mixture_weights(self) -> FloatArray | None:
        """The likeliest weights of the base kernels, a row per layer or one for all; None without a mixture."""
        kernel = self._now.state.kernel
        return kernel.weights.copy() if isinstance(kernel, MixtureWeights) else None

    @property
    def predicted_losses(self) -> list[FloatArray]:
        """m."""
        return self._layers.split(self._now.state.predictions.tables[0].copy())

    def _tree(self, state: PlannerState) -> dict[str, Any]:
        return {"kernel": state.kernel.tree(), "predictions": state.predictions.tree(), "k": state.k}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PlannerState:
        first = self._begin()
        kernel, predictions = first.kernel.from_tree(tree["kernel"]), first.predictions.from_tree(tree["predictions"])
        return PlannerState(policy, kernel, predictions, restored_count(tree))
