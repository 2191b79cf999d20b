"""VLSUOB-REPS (Li, Zhao and Zhou, AISTATS 2024): regression on the visits of all next states."""

from __future__ import annotations

from dataclasses import dataclass

from advmdp import constants
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
from advmdp.learners.options import Entropy, RadiusOptions
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import ConditionalDescent, MirrorDescent
from advmdp.learners.reps import Estimator, Parts, RepsLearner, Step
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
        layers (with the joint radius or the likelihood).
    lam
        Regularisation; by default d log(k S) in episode k (1 in the first), and 1 with the joint radius.
    eta, gamma, zeta
        Step size, implicit exploration and failure probability; by default those of Theorem 1 (or of the theorem for
        the conditional entropy), zeta = 0.05.
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
            self.shares = True
        estimator: Estimator
        if o.radius == "likelihood":
            estimator, sets = likelihood_ratio(model, o.geometry, o.zeta, o.radius_scale, o.shared, simplex)
        else:
            beta = vector_radius(o.radius, model, self._regularisation, o.zeta)
            if o.shared:
                beta = shared_radius(model, o.zeta)
            sums = SharedNextStates if o.shared else AllNextStates
            estimator = RidgeRegression(model, sums, self._regularisation)
            sets = MixtureSets(model, beta, o.geometry, simplex, o.radius_scale)
        losses = UpperOccupancy(gamma=lambda k: self.exploration)
        return Parts(estimator, sets, losses, self._step_of(o.entropy))

    def _step_of(self, entropy: Entropy) -> Step:
        S, A, H, K = self._sizes()
        if entropy == "conditional":
            counted, zeta = self._layers.counted, self.options.zeta
            gamma = constants.conditional_exploration(counted.pairs, S, A, H, K, zeta)
            self._tune(eta=constants.conditional_step(counted.pairs, counted.most_actions, K), gamma=gamma)
            return ConditionalDescent(self._problem, lambda k: self.step_size, self.start)
        tuned = constants.theorem_1(S, A, H, K, self.options.zeta)
        self._tune(eta=tuned, gamma=tuned)
        return MirrorDescent(self._problem, lambda k: self.step_size, entropy, self.start)

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
