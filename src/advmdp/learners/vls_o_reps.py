"""REPS with all losses seen, over the sets of VLSUOB-REPS: no upper occupancy bound, and no bias of an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advmdp import constants
from advmdp.confidence.regression import joint_regression
from advmdp.layered import LinearMixtureModel
from advmdp.learners.options import FullOptions, GeometryOptions, require
from advmdp.learners.parts.losses import LossTable
from advmdp.learners.parts.steps import ConditionalDescent, MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class VlsOptions(GeometryOptions, FullOptions):
    """``entropy`` of the step."""

    entropy: Literal["pairs", "conditional"] = "pairs"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.entropy in ("pairs", "conditional"), "entropy", self.entropy, "'pairs' or 'conditional'")


@register_learner("vls-o-reps")
class VlsOReps(RepsLearner):
    """Full information, unknown transition: q_{k+1} = argmin over Delta(P_{k+1}) of eta <q, l_k> + D(q || q_k).

    P_{k+1} is the set of ``vlsuob-reps-tight``: regression on all next states, joint radius, the simplex of weights
    where the model has it.  What is left of its regret is REGRET and ERROR.

    Parameters
    ----------
    geometry, radius_scale, zeta
        As in ``vlsuob-reps-tight``.
    entropy
        ``"pairs"``, or ``"conditional"``: one backward pass, over P_k, and a bound on REGRET that is larger by
        sqrt(H log A / log(S A / H)).
    eta
        Step size; by default sqrt(8 log(S A / H) / K), or sqrt(8 log A / (H K)) with conditional entropy.
    """

    name = "vls-o-reps"
    status = "steps against a conic solver, sets against those of vlsuob-reps-tight, bound proved"
    feedback = "full"
    needs = LinearMixtureModel
    Options = VlsOptions
    options: VlsOptions

    def _parts(self) -> Parts:
        o, model, sizes = self.options, self._problem, self._sizes()
        conditional = o.entropy == "conditional"
        most_actions, (_, _, H, K) = self._layers.counted.most_actions, sizes
        eta = constants.vls_o_reps_conditional(most_actions, H, K) if conditional else constants.vls_o_reps(*sizes)
        self._tune(eta, gamma=0.0)
        step = (ConditionalDescent if conditional else MirrorDescent)(
            model, lambda k: self.step_size, first_policy=self.start
        )
        return Parts(*joint_regression(model, o.geometry, o.zeta, o.radius_scale), LossTable(), step)
