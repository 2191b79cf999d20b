"""Extension: VLSUOB-REPS that starts afresh after fixed periods, for losses that change."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log

from advmdp import constants
from advmdp._checks import integer
from advmdp.confidence.regression import joint_regression
from advmdp.errors import InvalidSpecError
from advmdp.layered import LinearMixtureModel
from advmdp.learners.options import GeometryOptions
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import Blocks
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class RestartOptions(GeometryOptions):
    """``switches``: how many changes of the best policy to be prepared for."""

    switches: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.switches, "switches", 1, InvalidSpecError)


@register_learner("vlsuob-reps-restart")
class VlsuobRepsRestart(RepsLearner):
    """An extension for losses that change: it forgets them every ``restart_period`` episodes.

    Parameters
    ----------
    switches
        m, how many changes of the best policy to be prepared for.  It sets the period,
        (K / m)^(2/3) (S A log(H S A / zeta) / H)^(1/3), which balances what restarts and what changes cost.
    geometry, radius_scale, zeta
        As in ``vlsuob-reps-tight``.
    """

    name = "vlsuob-reps-restart"
    status = "extension, no bound proved; steps against a conic solver, restarts against a fresh learner"
    needs = LinearMixtureModel
    partial = True
    Options = RestartOptions
    options: RestartOptions

    def _parts(self) -> Parts:
        o, model = self.options, self._problem
        S, A, H, _ = self._sizes()
        # Those of Theorem 1 for as many episodes as a block has.
        self.step_size = self.exploration = constants.theorem_1(S, A, H, self.restart_period, o.zeta)
        return Parts(
            *joint_regression(model, o.geometry, o.zeta, o.radius_scale),
            losses=UpperOccupancy(self.gamma_of),
            step=Blocks(model, lambda k: self.step_size, first_policy=self.start, block=self._block),
        )

    @property
    def restart_period(self) -> int:
        """Episodes from one restart to the next, at most K."""
        S, A, H, K = self._sizes()
        volume = S * A * log(H * S * A / self.options.zeta) / H
        period: float = (K / self.options.switches) ** (2 / 3) * volume ** (1 / 3)
        return min(K, ceil(period))

    def _block(self, k: int) -> tuple[int, int]:
        period = self.restart_period
        return k // period * period, period
