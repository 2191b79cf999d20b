"""Extension: a bank of VLSUOB-REPS with different step sizes under one meta learner, for losses that change."""

from __future__ import annotations

from math import ceil, log, log2, sqrt
from typing import Any

import numpy as np

from advmdp._checks import float_array
from advmdp.confidence import ConfidenceSet
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.linear_mixture import Geometry
from advmdp.learners.reps import checked_log_q, checked_warm
from advmdp.learners.vlsuob_reps import VlsuobRepsExtension
from advmdp.registry import register_learner
from advmdp.solvers import mirror_descent_step


@register_learner("vlsuob-reps-bank")
class VlsuobRepsBank(VlsuobRepsExtension):
    """Hedge over base learners q^i with step sizes eta_i = 4^i eta; the played q is their weighted average.

    After episode k, with lhat_k and P_{k+1} of VLSUOB-REPS (joint radius) for the *played* policy, and mu = 1 / K:

    1. w_i is multiplied by exp(-epsilon <q^i_k, lhat_k>), epsilon = sqrt(2 log N / (H S A K));
    2. q^i_{k+1} = argmin over q in Delta(P_{k+1}) of eta_i <q, lhat_k> + D(q || (1 - mu) q^i_k + mu uniform);
    3. q_{k+1} = sum_i w_i q^i_{k+1}, an element of the convex set Delta(P_{k+1}), and its policy.

    eta is that of Theorem 1, for a comparator that never changes; the largest step size is for one that always does.

    Parameters
    ----------
    geometry, radius_scale, zeta
        As in ``vlsuob-reps-tight``.
    """

    name = "vlsuob-reps-bank"
    status = "extension, no bound proved; every base step against a conic solver, weights recomputed"

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        geometry: Geometry = "ellipsoid",
        radius_scale: float = 1.0,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, geometry=geometry, radius_scale=radius_scale, zeta=zeta, seed=seed)
        count = 1 + ceil(log2(self.episodes) / 4.0)
        #: eta_i, from that of a comparator that never changes to that of one that always does.
        self.step_sizes = self.step_size * 4.0 ** np.arange(count)
        self._base_log_q: list[FloatArray] = [self._log_q] * count
        self._base_warm: list[dict[str, FloatArray] | None] = [None] * count
        self._log_weights: FloatArray = np.full(count, -log(count))

    @property
    def meta_step_size(self) -> float:
        """epsilon, of Hedge over the base learners."""
        S, A, H = self._layers.n_states, self._layers.n_actions, self._layers.horizon
        return sqrt(2.0 * log(len(self.step_sizes)) / (H * S * A * self.episodes))

    @property
    def weights(self) -> FloatArray:
        """w, the weight of each base learner."""
        return np.exp(self._log_weights)

    @property
    def base_q(self) -> list[list[FloatArray]]:
        """q^i, the occupancy measure of each base learner."""
        return [self._layers.split(np.exp(log_q)) for log_q in self._base_log_q]

    def _advance(self, confidence_set: ConfidenceSet, estimate: FloatArray) -> None:
        uniform, _ = self._uniform_start()
        seen = np.flatnonzero(estimate)
        losses = np.array([np.exp(log_q[seen]) @ estimate[seen] for log_q in self._base_log_q])
        log_weights = self._log_weights - self.meta_step_size * losses
        log_weights = log_weights - np.logaddexp.reduce(log_weights)
        share = 1.0 / self.episodes
        base_log_q: list[FloatArray] = []
        base_warm: list[dict[str, FloatArray] | None] = []
        for log_q, warm, eta in zip(self._base_log_q, self._base_warm, self.step_sizes, strict=True):
            with np.errstate(divide="ignore"):
                prior = np.logaddexp(np.log1p(-share) + log_q, log(share) + uniform)
            step = mirror_descent_step(confidence_set, None, estimate, float(eta), log_q=prior, warm=warm)
            base_log_q.append(step.flat.log_q)
            base_warm.append(step.warm)
        self.last_step = step
        self._base_log_q, self._base_warm, self._log_weights = base_log_q, base_warm, log_weights
        self._log_q = np.logaddexp.reduce([w + log_q for w, log_q in zip(log_weights, base_log_q, strict=True)])
        self._condition()

    def _state(self) -> dict[str, Any]:
        return {
            **super()._state(),
            "base_log_q": list(self._base_log_q),
            "base_warm": list(self._base_warm),
            "log_weights": self._log_weights,
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        count = len(self.step_sizes)
        if len(state["base_log_q"]) != count or len(state["base_warm"]) != count:
            raise ValueError(f"there should be {count} base learners")
        log_weights = float_array(state["log_weights"], "log_weights", ValueError)
        if log_weights.shape != (count,) or not abs(np.exp(log_weights).sum() - 1.0) <= 1e-9:
            raise ValueError(f"log_weights are not those of {count} weights that sum to 1")
        self._log_weights = np.array(log_weights)
        self._base_log_q = [checked_log_q(self._layers, log_q) for log_q in state["base_log_q"]]
        self._base_warm = [checked_warm(warm) for warm in state["base_warm"]]
        super()._set_state(state)
