"""OPPO (Cai, Yang, Jin and Wang, ICML 2020): optimistic policy optimisation for linear mixtures."""

from __future__ import annotations

from math import log, sqrt

from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMixtureModel
from advmdp.learners.policy_optimisation import PolicyOptimisationLearner
from advmdp.learners.value_targeted import ValueTargetedLearner
from advmdp.registry import register_learner


@register_learner("oppo")
class Oppo(PolicyOptimisationLearner, ValueTargetedLearner):
    """Full information, unknown transition: exponential weights on optimistic action values of the current policy.

    After episode k, with theta_h, Gram_h and beta_h from the episodes before it, V of the terminal state zero:

    1. Q_k(s, a) = l_k(s, a) + clip(<phi_V(s, a), theta_h> - beta_h |phi_V(s, a)|_{Gram_h^-1}, 0, H - 1 - h),
       V_k(s) = sum_a pi_k(a | s) Q_k(s, a), phi_V(s, a) = sum_s' phi(s' | s, a) V_k(s');
    2. V_k(s') of the next states is regressed on phi_V of the visited pairs;
    3. pi_{k+1}(a | s) proportional to pi_k(a | s) exp(-eta Q_k(s, a)).

    Parameters
    ----------
    lam
        Regularisation; 1 as in the source.  None stands for 1 / B^2.
    radius_scale
        Factor on beta_h; anything but 1 has no guarantee.
    eta, zeta
        Step size (alpha in the source) and failure probability; by default sqrt(2 log A / (H^2 K)) and 0.05.
    """

    name = "oppo"
    status = "every update against plain numpy from the full history; coverage; bound with derived constants"

    def __init__(
        self,
        problem: LinearMixtureModel,
        episodes: int,
        *,
        lam: float | None = 1.0,
        radius_scale: float = 1.0,
        eta: float | None = None,
        zeta: float = 0.05,
        seed: int = 0,
    ) -> None:
        super().__init__(problem, episodes, eta=eta, lam=lam, radius_scale=radius_scale, zeta=zeta, seed=seed)

    def _tuned(self) -> float:
        return sqrt(2.0 * log(self._layers.n_actions) / self.episodes) / self._layers.horizon

    def _evaluate(self, episode: CheckedEpisode) -> FloatArray:
        assert episode.loss_table is not None  # checked: the feedback is full
        return self._optimistic_values(episode.loss_table, self._flat_policy)

    def _observe(self, episode: CheckedEpisode, values: FloatArray) -> None:
        self._regress(episode, values)
