"""VLSUOB-REPS (Li, Zhao and Zhou, AISTATS 2024): regression on the visits of all next states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from advmdp.confidence import radii
from advmdp.confidence.estimators import AllNextStates, SharedNextStates
from advmdp.confidence.likelihood_ratio import likelihood_ratio
from advmdp.confidence.regression import (
    MixtureSets,
    Radius,
    RidgeRegression,
    require_shared,
    shared_radius,
    vector_radius,
)
from advmdp.layered import LinearMixtureModel
from advmdp.learners.options import Entropy, RadiusOptions, require
from advmdp.learners.reps import Estimator, Parts, RepsLearner
from advmdp.learners.sharper import mixture_parts
from advmdp.registry import register_learner


@register_learner("vlsuob-reps")
class VlsuobReps(RepsLearner):
    """Algorithm 1 of the paper, with its own constants.

    Parameters
    ----------
    geometry
        ``"ellipsoid"`` (theta of each pair in the ellipsoid of Lemma 2) or ``"box"`` (each entry within its width).
    entropy
        ``"pairs"`` (the paper's), ``"triples"`` (of Jin et al.; with boxes) or ``"conditional"`` (of policies: one
        backward pass, and a bound that is larger by at most max(2, sqrt(H)) for large K).
    radius
        ``"paper"`` (Lemma 2 as printed), ``"paper-uniform"`` (valid for all episodes at once), ``"determinant"`` (the
        form of Lemma 1 that depends on the data), ``"joint"`` (from joint sub-Gaussianity; needs constant ``lam``) or
        ``"likelihood"`` (no regression: the weights whose likelihood is large enough; for mixtures of kernels).
    radius_scale
        Factor on the radius; anything but 1 has no guarantee.
    simplex
        Whether to use that theta is non-negative, where the model knows it; None: if it can be used.
    shared
        Whether to use that the weights are the same in every layer, where the model says so: one estimate for all
        layers (with the joint radius or the likelihood).  None: if it can be used.
    lam
        Regularisation; by default d log(k S) in episode k (1 in the first), and 1 with the joint radius.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability; by default those of Theorem 1 (or of the theorem for
        the conditional entropy), zeta = 0.05.
    step
        ``"fixed"``, or ``"adaptive"``: eta follows what the steps so far have cost, and gamma falls as 1 / sqrt(k).
        Neither needs K.
    predictor
        What losses are expected to be: ``"none"``, ``"mean"``, ``"last"`` or ``"forgetting"`` of those seen at the
        pair, :func:`advmdp.ridge` on features of pairs, or a function that gives the table for episode k.  Estimates
        are then predictions and corrections, optimistic whatever is predicted.
    bounds
        How occupancies are bounded: ``"exact"``, a backward pass for each visited state (with a predictor, for every
        state), or ``"forward"``, one pass for all, which is wider.
    feedback
        Which losses it is shown: ``"bandit"``, ``"actions"`` (of all actions at visited states, where an episode has
        them) or ``"full"`` (the whole table).
    seen
        Where losses are missing: the probability of seeing that of a visited pair, one number or a list over layers of
        ``(S_h, A)``.  Without it a missing loss is one of an unvisited pair, which is right without a predictor and if
        all losses are missing equally often.
    known
        A part of every loss that is known beforehand, a list over layers of ``(S_h, A)``: only the rest is estimated.
    groups
        Integers, a list over layers of ``(S_h, A)``: pairs with the same have the same loss in every episode, and an
        estimate for one is one for all.  With bandit feedback and without a predictor.
    """

    name = "vlsuob-reps"
    status = "every step against a conic solver, estimator against its full history"
    needs = LinearMixtureModel
    partial = True
    Options = RadiusOptions
    options: RadiusOptions

    def _parts(self) -> Parts:
        o, model = self.options, self._problem
        simplex = o.geometry == "ellipsoid" and model.simplex if o.simplex is None else o.simplex
        if o.shared:
            require_shared(model)
        possible = model.shared and o.radius in ("joint", "likelihood") and o.lam is None
        shared = possible if o.shared is None else o.shared
        if shared:
            self.shares = True
        estimator: Estimator
        if o.radius == "likelihood":
            estimator, sets = likelihood_ratio(model, o.geometry, o.zeta, o.radius_scale, shared, simplex)
        else:
            beta = vector_radius(o.radius, model, self._regularisation, o.zeta)
            if shared:
                beta = shared_radius(model, o.zeta)
            sums = SharedNextStates if shared else AllNextStates
            estimator = RidgeRegression(model, sums, self._regularisation)
            sets = MixtureSets(model, beta, o.geometry, simplex, o.radius_scale)
        return mixture_parts(self, estimator, sets, self.start)

    def _regularisation(self, k: int) -> float:
        if self.options.lam is not None:
            return self.options.lam
        if self.options.radius == "joint":
            return 1.0
        return radii.growing_regularisation(k, self._layers.counted.states, self._problem.dim)


@dataclass(frozen=True, kw_only=True)
class TightOptions(RadiusOptions):
    """The joint radius, and the simplex where the model has it."""

    radius: Radius = "joint"
    simplex: bool | None = None


@register_learner("vlsuob-reps-tight")
class VlsuobRepsTight(VlsuobReps):
    """VLSUOB-REPS with the joint radius, constant lambda, and the simplex of weights where the model has it."""

    name = "vlsuob-reps-tight"
    Options = TightOptions


@dataclass(frozen=True, kw_only=True)
class AnytimeOptions(TightOptions):
    """The step adapts."""

    step: Literal["fixed", "adaptive"] = "adaptive"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.step == "adaptive", "step", self.step, "'adaptive': a fixed step needs a number of episodes")


@register_learner("vlsuob-reps-anytime")
class VlsuobRepsAnytime(VlsuobReps):
    """``vlsuob-reps-tight`` for an unknown number of episodes: step sizes that adapt, gamma_k ~ 1 / sqrt(k).

    Nothing depends on ``episodes``, which may be left out; there is no warning after so many.
    """

    name = "vlsuob-reps-anytime"
    status = "steps against a conic solver, step sizes against plain numpy, bound proved"
    needs_episodes = False
    Options = AnytimeOptions


@dataclass(frozen=True, kw_only=True)
class SharpOptions(AnytimeOptions):
    """Everything that keeps a theorem."""

    entropy: Entropy = "conditional"
    shared: bool | None = None
    predictor: Any = "mean"


@register_learner("vlsuob-reps-sharp")
class VlsuobRepsSharp(VlsuobReps):
    """VLSUOB-REPS with everything that keeps a theorem.

    Joint radius, simplex and shared weights where the model has them, conditional entropy, step sizes that adapt, and
    losses that are predicted by the mean of those seen; no K.  Options as in ``vlsuob-reps``.
    """

    name = "vlsuob-reps-sharp"
    status = "updates against plain numpy, each part against enumeration or a conic solver, bound proved"
    needs_episodes = False
    Options = SharpOptions
