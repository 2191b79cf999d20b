"""UC-O-REPS (Rosenberg and Mansour, ICML 2019) and its bandit version (NeurIPS 2019): counts and l1 balls."""

from __future__ import annotations

from math import log, sqrt
from numbers import Real
from typing import Any, Literal

import numpy as np

from advmdp._checks import integer
from advmdp.confidence import BoxSet, ConfidenceSet, L1Set, radii
from advmdp.confidence.estimators import EpochCounts
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, TabularModel
from advmdp.learners.reps import require
from advmdp.learners.tabular import TabularReps
from advmdp.registry import register_learner

#: No estimate exceeds this over eta, so that one step divides an occupancy by at most exp(10): the learner visits
#: pairs that its own measure deems impossible, and there 1 / q would overflow.
LARGEST_COST = 10.0


class UpperConfidenceReps(TabularReps):
    """Rows within eps(s, a) = sqrt(2 S_{h+1} log(K S A / zeta) / max(1, N(s, a))) of their frequency, in l1 norm.

    There is no upper occupancy bound: optimism comes from the kernel, which the mirror step chooses inside the set.
    """

    def _balls(self, counts: EpochCounts) -> tuple[list[FloatArray], list[FloatArray]]:
        """Centres and radii of all layers; every distribution where a pair was never visited."""
        centres, widths = [], []
        for frequency, visits in counts.frequencies():
            seen = visits > 0.0
            radius = self.radius_scale * radii.weissman(
                visits, frequency.shape[2], self.episodes, self._layers.n_states, self._layers.n_actions, self.zeta
            )
            centres.append(np.where(seen[..., None], frequency, 1.0 / frequency.shape[2]))
            widths.append(np.where(seen, np.minimum(radius, 2.0), 2.0))
        last = self._layers.sizes[-2], self._layers.n_actions
        return [*centres, np.ones((*last, 1))], [*widths, np.zeros(last)]

    def _set_of_epoch(self, counts: EpochCounts) -> ConfidenceSet:
        return L1Set(*self._balls(counts))

    @property
    def _divergence(self) -> float:
        """log(S^2 A / H^2): D(q* || q_1) over triples is at most H times this."""
        layers = self._layers
        return log(layers.n_states**2 * layers.n_actions / layers.horizon**2)


@register_learner("uc-o-reps")
class UcOReps(UpperConfidenceReps):
    """Full information: lhat_k is the loss table itself.

    Parameters
    ----------
    radius_scale
        Factor on the radii; anything but 1 has no guarantee.
    eta, zeta
        Step size, by default sqrt(log(S^2 A / H^2) / K), and failure probability (delta in the source).
    """

    name = "uc-o-reps"
    feedback = "full"
    status = "runs against a second implementation in plain numpy; radius and bound rederived"

    def __init__(
        self,
        problem: TabularModel,
        episodes: int,
        *,
        radius_scale: float = 1.0,
        eta: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, radius_scale=radius_scale, eta=eta, gamma=0.0, zeta=zeta, seed=seed)

    def _tuned(self) -> float:
        return sqrt(self._divergence / self.episodes)

    def _estimated_losses(self, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        return episode.loss_table


@register_learner("bandit-uc-o-reps")
class BanditUcOReps(UpperConfidenceReps):
    """Bandit feedback: lhat_k = l_k / q_k at the visited pairs, q_k the learner's own occupancy measure.

    It is that of a kernel of the set, not of the true one, so that the estimate may be too large or too small.

    Parameters
    ----------
    shift
        alpha: every kernel P of the set becomes (1 - alpha) P + alpha / S_{h+1}, so that q_k(s) >= alpha / S_h.  0 is
        the plain version, whose guarantee needs that every policy reaches every state; ``"theory"`` is
        min(1, S A^(1/4) / (H^(1/2) K^(1/4))), the shifted version as reconstructed in ``docs/learners/uc-o-reps.md``.
    radius_scale
        Factor on the radii; anything but 1 has no guarantee.
    eta, zeta
        Step size, by default sqrt(H log(S^2 A / H^2) / (K S A)), and failure probability.
    """

    name = "bandit-uc-o-reps"
    status = (
        "runs against a second implementation in plain numpy; step size derived, q floored at eta/10 in the estimate "
        "(not in the source), shifted version reconstructed"
    )

    def __init__(
        self,
        problem: TabularModel,
        episodes: int,
        *,
        shift: float | Literal["theory"] = 0.0,
        radius_scale: float = 1.0,
        eta: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        number = isinstance(shift, Real) and not isinstance(shift, bool)
        valid = shift == "theory" or (number and 0.0 <= shift <= 1.0)
        require(valid, "shift", shift, "a number from 0 to 1, or 'theory'")
        self.shift = shift
        #: How often the floor eta / 10 on q, for numerical sanity, acted so far.
        self.floored = 0
        super().__init__(problem, episodes, radius_scale=radius_scale, eta=eta, gamma=0.0, zeta=zeta, seed=seed)

    @property
    def shift_in_force(self) -> float:
        """alpha."""
        if not isinstance(self.shift, str):
            return self.shift
        layers = self._layers
        return min(1.0, layers.n_states * sqrt(sqrt(layers.n_actions / self.episodes) / layers.horizon))

    def _tuned(self) -> float:
        layers = self._layers
        return sqrt(layers.horizon * self._divergence / (self.episodes * layers.n_states * layers.n_actions))

    def _set_of_epoch(self, counts: EpochCounts) -> ConfidenceSet:
        alpha = self.shift_in_force
        if alpha == 0.0:
            return super()._set_of_epoch(counts)
        # The smallest box that holds the ball: entries of a difference that sums to zero are at most half its norm.
        lower, upper = [], []
        for centre, radius in zip(*self._balls(counts), strict=True):
            even = alpha / centre.shape[2]
            lower.append((1.0 - alpha) * np.maximum(centre - 0.5 * radius[..., None], 0.0) + even)
            upper.append((1.0 - alpha) * np.minimum(centre + 0.5 * radius[..., None], 1.0) + even)
        return BoxSet(lower, upper)

    def _estimated_losses(self, episode: CheckedEpisode) -> FloatArray:
        q, floor = np.exp(self._log_q[episode.pairs]), self.step_size / LARGEST_COST
        self.floored += int((q < floor).sum())
        estimate = np.zeros(self._layers.n_pairs)
        estimate[episode.pairs] = episode.losses / np.maximum(q, floor)
        return estimate

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "floored": self.floored}

    def _set_state(self, state: dict[str, Any]) -> None:
        self.floored = integer(state["floored"], "floored", 0, ValueError)
        super()._set_state(state)
