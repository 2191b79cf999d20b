"""The safe expert of a portfolio: a learner with a regret bound that is played with a probability of its own."""

from __future__ import annotations

from math import log, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from advmdp.confidence import ConfidenceSet
from advmdp.confidence.counts import BernsteinBoxes, VisitCounts
from advmdp.confidence.likelihood_ratio import likelihood_ratio
from advmdp.confidence.regression import joint_regression
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel, TabularModel
from advmdp.learners.parts.losses import upper_visits
from advmdp.occupancy import check_policy
from advmdp.solvers.conditional import conditional_step

#: Nothing is divided by less.
LEAST = 1e-300
#: In larger worlds u is a bound by one forward pass, not the maximum: a pass for each visited state would take longer
#: than all the rest.
EXACT_PAIRS = 20_000


class SafeState(NamedTuple):
    """Where the safe expert stands."""

    policy: FloatArray
    log_policy: FloatArray
    #: Sum of the instabilities of its steps, from which the step size follows.
    scale: float
    data: Any
    set: ConfidenceSet


class SafeBase:
    """Mirror descent with the conditional entropy over confidence sets, with a step size that adapts.

    It is played with probability w >= mu, and rho_h is its posterior over its weight after step h.  After episode k,
    with D = H ln A, n pairs, u(s, a) its upper occupancy bound over P_k:

    1. lhat = l / (u / rho + gamma) at the visited pairs, gamma = sqrt(mu ln A / (n k));
    2. Delta <- Delta + min{(eta H / 2) sum u lhat^2, sum u lhat}, eta' = D / Delta, from Delta = sqrt(D n);
    3. pi' by one backward pass over P_k from pi^r pi_1^(1 - r), r = eta' / eta, with the costs eta' lhat;
    4. the transitions give P_{k+1}: joint radius (or ``radius="likelihood"``) for mixtures, Bernstein's boxes for
       counts, each for all k at once.
    """

    def __init__(
        self, model: TabularModel, shared: bool, zeta: float, radius: Literal["joint", "likelihood"] = "joint"
    ) -> None:
        self.model, self.layers = model, model.layers
        counted = self.layers.counted
        #: ln A; with one action there is nothing to learn, and any will do.
        self._log_actions = log(max(counted.most_actions, 2))
        #: D.
        self.range = self.layers.horizon * self._log_actions
        self.first_scale = sqrt(self.range * counted.pairs)
        self._log_first = self.layers.log_uniform_policy
        self.estimator: Any
        self.sets: Any
        if isinstance(model, LinearMixtureModel):
            sets_of = likelihood_ratio if radius == "likelihood" else joint_regression
            self.estimator, self.sets = sets_of(model, zeta=zeta, shared=shared)
        else:
            self.estimator, self.sets = VisitCounts(self.layers, model.support), BernsteinBoxes(self.layers, None, zeta)

    def start(self) -> SafeState:
        """The uniform policy, and the set of no data: all kernels, or all mixtures of the simulators."""
        # Numba would compile passes for read-only policies as well, which later ones are not.
        policy, data = self.layers.uniform_policy.copy(), self.estimator.empty()
        return SafeState(policy, self._log_first, self.first_scale, data, self.sets(data))

    def upper(self, state: SafeState, episode: CheckedEpisode) -> FloatArray:
        """u at the visited pairs."""
        exact = self.layers.n_pairs <= EXACT_PAIRS
        return state.policy[episode.pairs] * upper_visits(state.set, state.policy, episode.states, exact)

    def estimates(self, losses: FloatArray, rho: FloatArray, u: FloatArray, gamma: float) -> FloatArray:
        """l / (u / rho + gamma), ``(H,)``: zero where it cannot have played what was played, or no loss was seen."""
        return np.nan_to_num(losses * rho / np.maximum(u + gamma * rho, LEAST))

    def advance(
        self, state: SafeState, episode: CheckedEpisode, rho: FloatArray, premium: float, k: int,
        played: SafeState | None = None,
    ) -> SafeState:  # fmt: skip
        """After episode k (from 0); losses that came late are weighted as they would have been in time.

        ``played`` is where it stood when the episode was played, if not here.
        """
        n_pairs, horizon, eta = self.layers.n_pairs, self.layers.horizon, self.range / state.scale
        gamma = sqrt(max(premium, 1e-3) * self._log_actions / (self.layers.counted.pairs * (k + 1)))
        seen = [(episode.pairs, episode.losses, rho, self.upper(state if played is None else played, episode))]
        seen += [(late.pairs, late.losses, late.weights[:, 0], late.weights[:, -2]) for late in episode.late]
        estimate, growth = np.zeros(n_pairs), 0.0
        for pairs, losses, posterior, u in seen:
            lhat = self.estimates(losses, posterior, u, gamma)
            estimate[pairs] += lhat
            growth += min(0.5 * eta * horizon * float(u @ lhat**2), float(u @ lhat))
        scale = state.scale + growth
        ratio = state.scale / scale
        reference = ratio * state.log_policy
        if ratio < 1.0:  # else -inf, of an unavailable action, times zero
            reference += (1.0 - ratio) * self._log_first
        step = conditional_step(state.set, reference, self.range / scale * estimate)
        data = self.estimator.add(state.data, episode.states, episode.actions)
        return SafeState(step.policy, step.log_policy, scale, data, self._set(data, state))

    def observe(self, state: SafeState, states: IntArray, actions: IntArray) -> SafeState:
        """With logged transitions."""
        data = state.data
        for row, move in zip(states, actions, strict=True):
            data = self.estimator.add(data, row, move, logged=True)
        return state._replace(data=data, set=self._set(data, state))

    def _set(self, data: Any, before: SafeState | None) -> ConfidenceSet:
        if before is not None and data.version == before.data.version:
            return before.set
        found: ConfidenceSet = self.sets(data).enlarged_if_empty()[0]
        return found

    def tree(self, state: SafeState) -> dict[str, Any]:
        """For a checkpoint."""
        data = self.estimator.tree(state.data)
        return {"policy": state.policy, "log_policy": state.log_policy, "scale": state.scale, "data": data}

    def restore(self, tree: dict[str, Any]) -> SafeState:
        """The inverse of :meth:`tree`, or ValueError."""
        log_policy = self.layers.flat_vector(tree["log_policy"], "log_policy")
        policy, scale = self.layers.flat_vector(tree["policy"], "policy"), float(tree["scale"])
        check_policy(self.layers, policy)
        if not np.allclose(np.exp(log_policy), policy, rtol=0.0, atol=1e-12):
            raise ValueError("log_policy is not the logarithm of policy")
        if not self.first_scale <= scale < np.inf:
            raise ValueError(f"scale is {scale}, should be at least {self.first_scale}")
        data = self.estimator.restore(tree["data"])
        first = self.start()
        found = first.set if data.version == first.data.version else self._set(data, None)
        return SafeState(policy, log_policy, scale, data, found)
