"""Extensions: VLSUOB-REPS that starts afresh, after fixed periods (changing losses) or doubling ones (unknown K)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil, log
from typing import Any

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


class RestartingReps(RepsLearner):
    """VLSUOB-REPS (joint radius) in blocks of episodes; eta = gamma of Theorem 1 for as many as the block has."""

    needs = LinearMixtureModel
    partial = True
    options: Any

    @abstractmethod
    def _block(self, k: int) -> tuple[int, int]:
        """First episode and length of the block in which episode k (from 0) lies."""

    def _tuned(self, k: int) -> float:
        S, A, H, _ = self._sizes()
        return constants.theorem_1(S, A, H, self._block(k)[1], self.options.zeta)

    def _parts(self) -> Parts:
        o, model = self.options, self._problem
        return Parts(
            *joint_regression(model, o.geometry, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=self._tuned),
            step=Blocks(model, self._tuned, first_policy=self.start, block=self._block),
        )

    @property
    def step_size(self) -> float:  # type: ignore[override]
        """eta = gamma of the current block."""
        return self._tuned(self.episodes_seen)

    exploration = step_size


@dataclass(frozen=True, kw_only=True)
class RestartOptions(GeometryOptions):
    """``switches``: how many changes of the best policy to be prepared for."""

    switches: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        integer(self.switches, "switches", 1, InvalidSpecError)


@register_learner("vlsuob-reps-restart")
class VlsuobRepsRestart(RestartingReps):
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
    Options = RestartOptions

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


@register_learner("vlsuob-reps-anytime")
class VlsuobRepsAnytime(RestartingReps):
    """An extension for an unknown number of episodes: blocks of 1, 2, 4, 8, ... episodes.

    Nothing depends on ``episodes``, which may be left out; there is no warning after so many.

    Parameters
    ----------
    geometry, radius_scale, zeta
        As in ``vlsuob-reps-tight``.
    """

    name = "vlsuob-reps-anytime"
    status = (
        "extension, no bound proved (a doubling argument is sketched); steps against a conic solver, restarts against "
        "a fresh learner"
    )
    needs_episodes = False
    Options = GeometryOptions

    def _block(self, k: int) -> tuple[int, int]:
        length = 1 << ((k + 1).bit_length() - 1)
        return length - 1, length
