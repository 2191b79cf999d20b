"""What bandit learners of REPS type make of the options ``step``, ``predictor`` and ``bounds``."""

from __future__ import annotations

from math import log, sqrt
from typing import Any

import numpy as np

from advmdp import constants
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, Layers
from advmdp.learners.options import Entropy
from advmdp.learners.parts.losses import AllActions, GroupOccupancy, LossTable, Predicted, UpperOccupancy, over_set
from advmdp.learners.parts.predictors import forecast_of
from advmdp.learners.parts.steps import Adaptive, ConditionalDescent, MirrorDescent, Rate
from advmdp.learners.reps import Parts, RepsLearner


def chosen_rate(learner: RepsLearner, eta: float, gamma: float, span: float, largest: float = 1.0) -> Rate:
    """eta, and gamma put in force: the options, or these.

    With ``step="adaptive"`` both need no number of episodes: ``span`` is at least D, and eta at most ``largest``.
    """
    o = learner.options
    if o.step == "fixed":
        learner._tune(eta, gamma)
        return lambda k: learner.step_size
    n = seen_at_most(learner)
    if o.gamma is None:
        S, A, H, _ = learner._sizes()
        learner.gamma_of = lambda k: constants.anytime_exploration(n, S, A, H, k + 1, o.zeta)
    else:
        learner.exploration = o.gamma
    span = max(span, log(2.0))  # with nothing to choose any will do
    return Adaptive(span, span / constants.first_step(span, n, largest))


def largest_divergence(layers: Layers, entropy: Entropy = "pairs") -> float:
    """What D(q* || q_1) can be, q_1 uniform in each layer."""
    masks = layers.split(layers.uniform_policy > 0.0)
    rows = layers.sizes[1:] if entropy == "triples" else (1,) * layers.horizon
    return sum(log(np.count_nonzero(mask) * m) for mask, m in zip(masks, rows, strict=True))


def mixture_parts(learner: RepsLearner, estimator: Any, sets: Any, start: FloatArray | None) -> Parts:
    """With the step of the option ``entropy`` from a start, and estimates by upper occupancy bounds."""
    o, layers = learner.options, learner._layers
    S, A, H, K = learner._sizes()
    K = K or 1  # not used by steps that adapt
    n, most_actions = seen_at_most(learner), layers.counted.most_actions
    step: MirrorDescent | ConditionalDescent
    if o.entropy == "conditional":
        eta = constants.conditional_step(n, most_actions, K)
        gamma = constants.conditional_exploration(n, S, A, H, K, o.zeta)
        span = constants.CONDITIONAL_SPAN * H * log(most_actions)
        rate, reach = chosen_rate(learner, eta, gamma, span, 1.0 / H), float(H)
        step = ConditionalDescent(learner._problem, rate, start)
    else:
        tuned = constants.theorem_1(S, A, H, K, o.zeta)
        if o.feedback != "bandit" or o.groups is not None:
            tuned *= sqrt(layers.counted.pairs / n)
        rate, reach = chosen_rate(learner, tuned, tuned, largest_divergence(layers, o.entropy)), 1.0
        step = MirrorDescent(learner._problem, rate, o.entropy, start)
    forecast, seen, gamma_of = forecast_of(o.predictor, layers), seen_shares(o.seen, layers), learner.gamma_of
    losses: Any
    if o.feedback == "full":
        losses = LossTable()
    elif learner.pair_groups is not None:
        losses = GroupOccupancy(gamma_of, groups=learner.pair_groups)
    elif forecast is None:
        losses = (AllActions if o.feedback == "actions" else UpperOccupancy)(gamma_of, seen, o.bounds == "exact")
    else:
        bounds = over_set(layers, o.bounds == "exact", seen)
        losses = Predicted(layers, bounds, gamma_of, lambda state, k: reach * step.rate(state.step, k), o.feedback)
    return Parts(estimator, sets, losses, step, forecast)


def seen_at_most(learner: RepsLearner) -> int:
    """n, what the second moments of the estimates of an episode add up to: pairs, states, layers, or groups."""
    counted = learner._layers.counted
    if learner.pair_groups is not None:
        return min(learner.pair_groups.spans, counted.pairs)
    levels = {"bandit": counted.pairs, "actions": counted.states - 1, "full": learner._layers.horizon}
    return levels[learner.feedback]


def seen_shares(seen: Any, layers: Layers) -> FloatArray | None:
    """The probability of seeing the loss of each visited pair, flat: of a number, or a list over layers."""
    if seen is None:
        return None
    table = np.full(layers.n_pairs, float(seen)) if np.ndim(seen) == 0 else layers.flatten(seen, "seen")
    if not ((table > 0.0) & (table <= 1.0)).all():
        raise InvalidSpecError("seen has entries that are not probabilities in (0, 1]")
    return table
