"""Extensions: VLSUOB-REPS that starts afresh, after fixed periods (changing losses) or doubling ones (unknown K)."""

from __future__ import annotations

from abc import abstractmethod
from math import ceil, log

import numpy as np

from advmdp._checks import integer
from advmdp.confidence import ConfidenceSet
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.linear_mixture import Geometry
from advmdp.learners.vlsuob_reps import VlsuobRepsExtension
from advmdp.registry import register_learner


class Restarting(VlsuobRepsExtension):
    """VLSUOB-REPS (joint radius) in blocks of episodes: each begins with the q nearest to the uniform measure.

    Only q is forgotten: the transition does not change, so that the regression, and the sets, go on.  Step size and
    exploration are those of Theorem 1 for as many episodes as the block has.
    """

    @abstractmethod
    def _block(self, k: int) -> tuple[int, int]:
        """First episode and length of the block in which episode k (from 0) lies."""

    def _tuned(self) -> float:
        return self._tuned_to(self._block(self.episodes_seen)[1])

    def _advance(self, confidence_set: ConfidenceSet, estimate: FloatArray) -> None:
        following = self.episodes_seen + 1
        if self._block(following)[0] == following:
            # The losses of the past are forgotten, those of this last episode with them.
            self._log_q, self._kernels = self._uniform_start()
            self._warm = None
            estimate = np.zeros_like(estimate)
        super()._advance(confidence_set, estimate)


@register_learner("vlsuob-reps-restart")
class VlsuobRepsRestart(Restarting):
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

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        switches: int = 4,
        geometry: Geometry = "ellipsoid",
        radius_scale: float = 1.0,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.switches = integer(switches, "switches", 1, InvalidSpecError)
        super().__init__(problem, episodes, geometry=geometry, radius_scale=radius_scale, zeta=zeta, seed=seed)

    @property
    def restart_period(self) -> int:
        """Episodes from one restart to the next, at most K."""
        S, A, H = self._layers.n_states, self._layers.n_actions, self._layers.horizon
        volume = S * A * log(H * S * A / self.zeta) / H
        period: float = (self.episodes / self.switches) ** (2 / 3) * volume ** (1 / 3)
        return min(self.episodes, ceil(period))

    def _block(self, k: int) -> tuple[int, int]:
        period = self.restart_period
        return k // period * period, period


@register_learner("vlsuob-reps-anytime")
class VlsuobRepsAnytime(Restarting):
    """An extension for an unknown number of episodes: blocks of 1, 2, 4, 8, ... episodes.

    Nothing depends on ``episodes``, which may be any number; there is no warning after so many.

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

    def _block(self, k: int) -> tuple[int, int]:
        length = 1 << ((k + 1).bit_length() - 1)
        return length - 1, length

    def _warn_at_the_end(self) -> None:
        """There is no end."""
