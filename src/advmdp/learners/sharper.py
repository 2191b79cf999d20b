"""What bandit learners of REPS type make of the options ``step``, ``predictor`` and ``bounds``."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import numpy as np

from advmdp import constants
from advmdp.learners.options import Entropy
from advmdp.learners.parts.losses import Predicted, UpperOccupancy, over_set
from advmdp.learners.parts.predictors import forecast_of
from advmdp.learners.parts.steps import Adaptive, ConditionalDescent, MirrorDescent, Rate
from advmdp.learners.reps import Parts, RepsLearner

Exploration = Callable[[int], float]


class SharperReps(RepsLearner):
    """Loss estimates around predictions, and steps that adapt, as the options say (``docs/sharper-parts.md``)."""

    options: Any

    @property
    def step_size(self) -> float:  # type: ignore[override]
        """eta of the next episode."""
        state = self._now.state
        return float(self._step.rate(state.step, state.k))  # type: ignore[attr-defined]

    @property
    def exploration(self) -> float:  # type: ignore[override]
        """gamma of the next episode."""
        return self._gamma(self._now.state.k)

    def _rates(self, eta: float, gamma: float, span: float, largest: float = 1.0) -> Rate:
        """eta, and gamma put in force: the options, or these; or both adaptive, D = ``span`` and eta <= ``largest``."""
        o, counted = self.options, self._layers.counted
        given = getattr(o, "gamma", None)
        if o.step == "fixed":
            fixed = eta if o.eta is None else o.eta
            self._gamma: Exploration = lambda k: gamma if given is None else given
            return lambda k: fixed
        sizes = counted.pairs, counted.states, counted.actions, self._layers.horizon
        self._gamma = lambda k: constants.anytime_exploration(*sizes, k + 1, o.zeta) if given is None else given
        span = max(span, log(2.0))  # with nothing to choose any will do
        return Adaptive(span, span / constants.first_step(span, counted.pairs, largest))

    def _mixture_parts(self, estimator: Any, sets: Any) -> Parts:
        """A mixture learner with these: the step of its ``entropy``, and estimates by upper occupancy bounds."""
        o, layers = self.options, self._layers
        S, A, H, K = self._sizes()
        n, most_actions, zeta = layers.counted.pairs, layers.counted.most_actions, o.zeta
        K = K or 1  # not used by steps that adapt
        step: MirrorDescent | ConditionalDescent
        if o.entropy == "conditional":
            eta = constants.conditional_step(n, most_actions, K)
            gamma = constants.conditional_exploration(n, S, A, H, K, zeta)
            rate, reach = self._rates(eta, gamma, H * log(most_actions), 1.0 / H), float(H)
            step = ConditionalDescent(self._problem, rate, self.start)
        else:
            tuned = constants.theorem_1(S, A, H, K, zeta)
            rate, reach = self._rates(tuned, tuned, self._divergence(o.entropy)), 1.0
            step = MirrorDescent(self._problem, rate, o.entropy, self.start)
        forecast = forecast_of(o.predictor, layers)
        if forecast is None:
            return Parts(estimator, sets, UpperOccupancy(self._gamma), step)
        bounds = over_set(layers, o.bounds == "exact")
        losses = Predicted(bounds, self._gamma, lambda state, k: reach * step.rate(state.step, k))
        return Parts(estimator, sets, losses, step, forecast)

    def _divergence(self, entropy: Entropy = "pairs") -> float:
        """What D(q* || q_1) can be."""
        layers = self._layers
        masks = layers.split(layers.uniform_policy > 0.0)
        rows = layers.sizes[1:] if entropy == "triples" else (1,) * layers.horizon
        return sum(log(np.count_nonzero(mask) * m) for mask, m in zip(masks, rows, strict=True))
