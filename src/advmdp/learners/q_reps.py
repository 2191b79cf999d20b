"""Q-REPS for linear losses (Neu and Olkhovskaya, NeurIPS 2021): O-REPS, fed with losses fitted to features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from advmdp import constants
from advmdp.confidence import ConfidenceSet
from advmdp.confidence.known import KnownTransition, NothingKept
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, LinearMDP, LinearMDPModel, logarithm
from advmdp.learners.options import LinearOptions
from advmdp.learners.parts.linear import LinearFits
from advmdp.learners.parts.steps import Descent, KnownDescent, policy_of
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.registry import register_learner
from advmdp.seeding import IndexedGenerator


class MixedDescent(KnownDescent):
    """Mirror descent over Delta(P), whose policy is that of (1 - gamma) q_k + gamma q^uniform."""

    uniform: FloatArray
    gamma: float

    def mixed(self, state: Descent) -> FloatArray:
        """The occupancy measure that is played, flat."""
        return (1.0 - self.gamma) * np.exp(state.log_q) + self.gamma * self.uniform

    def _played(self, state: Descent) -> Descent:
        return state._replace(policy=policy_of(logarithm(self.mixed(state)), self.mdp.layers))

    def start(self) -> Descent:
        """q_1."""
        return self._played(super().start())

    def advance(self, state: Descent, *arguments: Any, **hints: Any) -> Descent:
        """From q_k to q_{k+1}."""
        return self._played(super().advance(state, *arguments, **hints))

    def occupancy(self, state: Descent, confidence_set: ConfidenceSet) -> FloatArray:
        """That of the policy."""
        return self.mixed(state)


@dataclass(frozen=True)
class FittedLosses:
    """lhat(s, a) = phi(s, a)' Sigma_h^-1 phi(s_h, a_h) l_h, Sigma_h the covariance of the features that are played."""

    fits: LinearFits
    step: MixedDescent
    resamples: int | None
    draws: IndexedGenerator
    feedback: Literal["bandit", "actions", "full"] = "bandit"

    def __call__(self, state: Any, episode: CheckedEpisode, k: int) -> FloatArray:
        """lhat of episode k."""
        mass = self.step.mixed(state.step)
        if self.resamples is None:
            return self.fits.exact(mass, episode.pairs, episode.losses)
        return self.fits.resampled(mass, episode.pairs, episode.losses, self.resamples, self.draws.at(k))


@register_learner("q-reps")
class QReps(RepsLearner):
    """Known transition, bandit feedback, losses that are linear in features: l_k(s, a) = <phi(s, a), g_{k,h}>.

    With q_0 the occupancy measure of the uniform policy, episode k is played with the policy of qtilde_k = (1 - gamma)
    q_k + gamma q_0.  After it, with Sigma_h = sum over layer h of qtilde_k phi phi':

    1. lhat_k(s, a) = phi(s, a)' Sigma_h^-1 phi(s_h, a_h) l_k(s_h, a_h), for *all* pairs of layer h;
    2. q_{k+1} = argmin over q in Delta(P) of eta <q, lhat_k> + KL(q || q_k).

    Parameters
    ----------
    resamples
        Draws M of matrix geometric resampling in place of the inverse of Sigma_h; by default none: the inverse itself,
        as kernels are known.
    eta, gamma
        Step size and share of uniform play; by default min(sqrt(log(S A / H) / (K (L + 2 d))), 1 / (2 L)) and eta L,
        where L is the largest phi' Sigma^-1 phi under uniform play.  Then the expected regret is at most
        H (log(S A / H) / eta + eta K (L + 2 d)).
    """

    name = "q-reps"
    feedback = "bandit"
    transition = "known"
    needs = LinearMDPModel
    status = "estimates against enumeration, every step against a second implementation; bound derived here"
    Options = LinearOptions
    options: LinearOptions
    _problem: LinearMDP

    def _parts(self) -> Parts:
        fits, sets = LinearFits(self._problem), KnownTransition(self._problem)
        #: L, the largest phi' Sigma^-1 phi under uniform play.
        self.leverage = fits.leverage
        eta, gamma = constants.q_reps(*self._sizes(), self._problem.dim, fits.leverage)
        if self.options.eta is not None:
            gamma = min(0.5, self.options.eta * fits.leverage)
        self._tune(eta, gamma)
        step = MixedDescent(self._problem, sets.truth, lambda k: self.step_size, self.start)
        step.uniform, step.gamma = fits.uniform, self.exploration
        return Parts(NothingKept(), sets, FittedLosses(fits, step, self.options.resamples, self._draws), step)

    def _first_set(self) -> ConfidenceSet:
        return self._sets(None)
