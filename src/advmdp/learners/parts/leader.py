"""Follow the regularised leader, with the 1/2-Tsallis regulariser -2 sum sqrt(q) over the measures of one kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import ConfidenceSet
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.learners.parts.steps import SMALLEST, START_SHARE, OccupancyStep, mean_kernels
from advmdp.occupancy import occupancy_measure
from advmdp.solvers.known import FlatStep, TsallisStep


class Leading(NamedTuple):
    """Where the leader stands."""

    log_q: FloatArray
    policy: FloatArray
    #: The sum of the loss estimates, and of how many episodes.
    totals: FloatArray
    learned: int
    #: V, where the next step begins.
    prices: FloatArray
    #: The set whose kernels q belongs to.
    set: ConfidenceSet | None = None
    last: FlatStep | None = None
    #: The solver raises where it misses its tolerance.
    missed: bool = False

    @property
    def gap(self) -> float:
        """The duality gap of the step that led here."""
        return 0.0 if self.last is None else self.last.gap


class TsallisLeader(OccupancyStep):
    """q_{k+1} = argmin over Delta(P) of <q, lhat_1 + ... + lhat_k> - (2 / eta_{k+1}) sum sqrt(q).

    eta_k = eta / sqrt(k).
    ``kernels`` takes P, whose rows may sum to less than one, from a set; where the set changes, the sum and k begin
    anew.  With a start policy pi_0 the regulariser is the divergence from q_0, nine parts of the occupancy
    measure of pi_0 under the mean model and one of the usual start.
    """

    def __init__(
        self, problem: TabularModel | LayeredMDP, eta: float, kernels: Callable[[Any], Any], first_set: ConfidenceSet,
        first_policy: FloatArray | None = None,
    ) -> None:  # fmt: skip
        self.problem, self.eta, self.kernels = problem, eta, kernels
        self.first_set, self.first_policy = first_set, first_policy
        self._solver: tuple[ConfidenceSet, TsallisStep] | None = None

    def rate(self, state: Leading, k: int) -> float:
        """eta of the episode that follows so many."""
        return self.eta / sqrt(state.learned + 1)

    def start(self) -> Leading:
        """q_1."""
        layers = self.problem.layers
        nothing = Leading(np.empty(0), np.empty(0), np.zeros(layers.n_pairs), 0, np.full(layers.n_states - 1, np.nan))
        return self._led(nothing, nothing, self.first_set)

    @cached_property
    def _roots(self) -> FloatArray | float:
        """q_0^-1/2; zero stands for that of the q_1 of least regularisation, which adds a constant to <q, c>."""
        if self.first_policy is None:
            return 0.0
        layers = self.problem.layers
        q = layers.flatten(occupancy_measure(mean_kernels(self.problem), layers.split(self.first_policy)))
        uniform = TsallisStep(mean_kernels(self.problem), layers)(np.zeros(layers.n_pairs))[0]
        mixed = (1.0 - START_SHARE) * q + START_SHARE * np.exp(uniform.log_q)
        roots: FloatArray = np.maximum(mixed, SMALLEST) ** -0.5
        return roots

    def _led(self, state: Leading, before: Leading, confidence_set: ConfidenceSet) -> Leading:
        """With the step over this set; ``before`` is where the prices of ``state`` were found."""
        if self._solver is None or self._solver[0] is not confidence_set:
            self._solver = confidence_set, TsallisStep(self.kernels(confidence_set), self.problem.layers)
        eta = self.rate(state, 0)
        warm = state.prices * (eta / self.rate(before, 0))
        step, prices = self._solver[1](self._roots + eta * state.totals, warm)
        policy = step.policy
        if self.first_policy is not None:  # not uniform, where the kernel does not lead
            begun = (1.0 - START_SHARE) * self.first_policy + START_SHARE * self.problem.layers.uniform_policy
            unreached = np.isneginf(step.log_q.reshape(-1, self.problem.n_actions)).all(axis=1)
            policy = np.where(np.repeat(unreached, self.problem.n_actions), begun, policy)
        return Leading(step.log_q, policy, state.totals, state.learned, prices, confidence_set, step)

    def advance(self, state: Leading, confidence_set: ConfidenceSet, estimate: FloatArray, k: int) -> Leading:
        """From q_k to q_{k+1}; where a new set begins everything anew, what led to it is forgotten."""
        if confidence_set is not state.set:
            return self.project(state, confidence_set)
        new = state._replace(totals=state.totals + estimate, learned=state.learned + 1)
        return self._led(new, state, confidence_set)

    def project(self, state: Leading, confidence_set: ConfidenceSet) -> Leading:
        """The first q over another set."""
        if confidence_set is state.set:
            return state
        new = state._replace(totals=np.zeros_like(state.totals), learned=0)
        return self._led(new, state, confidence_set)

    def tree(self, state: Leading) -> dict[str, Any]:
        """For a checkpoint."""
        return {"log_q": state.log_q, "totals": state.totals, "learned": state.learned, "prices": state.prices}

    def restore(self, tree: dict[str, Any]) -> Leading:
        """The inverse of :meth:`tree`, or ValueError; policy and set are put in place by the learner."""
        layers = self.problem.layers
        log_q, totals = (layers.flat_vector(tree[name], name) for name in ("log_q", "totals"))
        prices = np.array(float_array(tree["prices"], "prices", ValueError))
        for h, table in enumerate(layers.split(np.exp(log_q))):
            if not table.sum() <= 1.0 + 1e-9:
                raise ValueError(f"q of layer {h} sums to {table.sum()}, should be at most 1")
        if prices.shape != (layers.n_states - 1,) or not (np.isfinite(totals).all() and np.isfinite(prices).all()):
            raise ValueError(f"prices of shape {prices.shape} or totals: wrong shape, or entries that are not finite")
        return Leading(log_q, np.empty(0), totals, integer(tree["learned"], "learned", 0, ValueError), prices)
