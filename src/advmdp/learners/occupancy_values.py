"""Mirror descent over occupancy measures whose sets come from a regression of values, all losses seen.

*Why that is enough.*  q_k is an occupancy measure of pi_k under kernels of the set of episode k, whose rows p satisfy
p.V >= <phi_V, theta> - beta |phi_V|_{Gram^-1} for every V.  So <q_k, l_k> is at least the optimistic value V_k(s_1) of
pi_k, and what q_k leaves out of the true loss is at most what V_k does: it is summed as for POWERS.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np

from advmdp import constants
from advmdp.confidence.estimators import RidgeEstimate
from advmdp.confidence.regression import MixtureSets, joint_regression
from advmdp.episodes import CheckedEpisode
from advmdp.layered import LinearMixtureModel
from advmdp.learners.bank import BankLearner
from advmdp.learners.base import Learner
from advmdp.learners.options import FullOptions, SetOptions, require
from advmdp.learners.parts.losses import LossTable
from advmdp.learners.parts.moments import HigherMoments, WeightedValues
from advmdp.learners.parts.steps import MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner, RepsState
from advmdp.registry import register_learner


class ValueTargetedReps(RepsLearner):
    """REPS, whose estimator regresses optimistic values of the played policy under the losses of the episode."""

    feedback = "full"
    needs = LinearMixtureModel
    options: Any
    _observe = Learner._observe  # a transition without losses has no value

    def _sets_around(self, regression: WeightedValues | HigherMoments) -> MixtureSets:
        """|theta - theta_h|_Gram <= beta, theta free per pair, in the simplex where the model has it.

        There a radius that covers all mixtures is as good as any larger one, and easier for the solver.
        """
        model, scale = self._problem, self.options.radius_scale

        def beta(estimate: RidgeEstimate, k: int) -> list[float]:
            radii = [scale * radius for radius in regression.radii(k - 1)]
            if not model.simplex:
                return radii
            lengths = np.ones(1) if model.shared and self.shares else np.array(model.scales[:-1])
            away = lengths[:, None, None] * np.eye(model.dim) - estimate.centres[:, None, :]
            squares = np.einsum("hji,hik,hjk->hj", away, estimate.grams, away).max(axis=1)
            return [min(radius, (1.0 + 1e-9) * sqrt(square)) for radius, square in zip(radii, squares, strict=True)]

        return MixtureSets(model, beta, "ellipsoid", model.simplex)

    def _counted(self, state: RepsState, episode: CheckedEpisode) -> Any:
        regression = self._estimator
        if not isinstance(regression, (WeightedValues, HigherMoments)):
            return super()._counted(state, episode)
        assert episode.loss_table is not None  # checked: the feedback is full
        scale = self.options.radius_scale
        values = regression.optimistic(state.data, scale, episode.loss_table, state.policy)
        return regression.with_values(state.data, episode.states, episode.actions, state.policy, values)


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions(SetOptions):
    """``regression``: of values, weighted as in POWERS, or of the visits of all next states."""

    regression: Literal["values", "states"] = "values"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.regression in ("values", "states"), "regression", self.regression, "'values' or 'states'")


@register_learner("occupancy-ensemble")
class OccupancyEnsemble(BankLearner, ValueTargetedReps):
    """Full information, unknown transition, comparators that change (Li, Zhao and Zhou, 2024).

    The step of ``do-reps``, with eta_i = 4^i eta_0, over Delta(P_{k+1}) of a set P_{k+1} around the regression of
    ``powers``: V_k, the optimistic value of the played policy pi_k under l_k.

    Parameters
    ----------
    regression
        ``"values"`` as in the source, or ``"states"``: the sets of ``vls-o-reps``, which at feasible K are narrower.
    radius_scale, zeta
        Factor on the radii (anything but 1 has no guarantee) and failure probability, by default 0.05.
    """

    name = "occupancy-ensemble"
    status = (
        "base steps against a conic solver, weights and regression recomputed; bound on dynamic regret derived; radii "
        "as of powers, constants not read in the source"
    )
    Options = EnsembleOptions
    options: EnsembleOptions

    def _parts(self) -> Parts:
        o, model, sizes = self.options, self._problem, self._sizes()
        _, _, H, K = sizes
        etas = constants.changing_steps(*sizes, ratio=4.0)
        bank = self._bank(etas, constants.full_hedge(len(etas), H, K), 1.0 / (K + 1), self._over_sets)
        if o.regression == "states":
            return Parts(*joint_regression(model, "ellipsoid", o.zeta, o.radius_scale), LossTable(), bank)
        regression = WeightedValues(model, model.bound**-2, o.zeta)
        return Parts(regression, self._sets_around(regression), LossTable(), bank)


@register_learner("hf-o2ps")
class HfO2ps(ValueTargetedReps):
    """Full information, unknown transition, one mixture for all layers (Ji, Zhao, He, Zhang and Gu, 2024).

    The step of ``vls-o-reps`` over Delta(P_{k+1}) of a set around
    :class:`advmdp.learners.parts.moments.HigherMoments`.  Losses and values are divided by H, so that those of an
    episode add up to at most 1.  Where the model does not say that the mixture is the same in every layer, each layer
    has a regression of its own, and the bound of the source does not apply.

    Parameters
    ----------
    radius_scale
        Factor on beta; anything but 1 has no guarantee.  With 1 no set is narrower than all mixtures before 10^7 steps.
    eta, zeta
        Step size, by default sqrt(8 log(S A / H) / K), and failure probability, by default 0.05.
    """

    name = "hf-o2ps"
    status = (
        "updates against plain numpy from the full history, steps against a conic solver; radius recalled, constants "
        "not read in the source"
    )
    Options = FullOptions
    options: FullOptions

    def _parts(self) -> Parts:
        o, model = self.options, self._problem
        self._tune(constants.vls_o_reps(*self._sizes()), gamma=0.0)
        if model.shared:
            self.shares = True
        regression = HigherMoments(model, self.episodes, o.zeta)
        step = MirrorDescent(model, lambda k: self.step_size, "pairs", self.start)
        return Parts(regression, self._sets_around(regression), LossTable(), step)
