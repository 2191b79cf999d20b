"""Steps: how an occupancy measure moves when a loss estimate and a set of kernels are given.

Where a step stands is a :class:`Descent` (or :class:`BankDescent`); ``start`` gives the first, ``advance`` the next.

*Hints.*  With predictions m_k the estimate that a step is given is y_k = lhat_k - m_k, and the hint m_{k+1}: it moves
by y_k + m_{k+1}.  The hints telescope, and what makes a step unstable is y_k alone.

*Steps that are hard to solve.*  A step whose certificate misses the tolerance is taken with what
mirror descent can lose by it.  Where that is much, or the solver finds no occupancy measure of the set at all, the step
is by a share of the losses, and the rest r_k is added to those of the next: it moves by y_k + r_{k-1} - r_k, as if -r_k
were a hint.  What makes it unstable is y_k + r_{k-1} then, and <q_{k+1} - q*, r_k> is lost if the rest is never used.

*Adaptive step sizes.*  With eta_{k+1} ~ 1 / Delta_k and rho = eta_{k+1} / eta_k the step begins at
q_k^rho q_1^(1 - rho), and Delta grows by the gap of each step: see :class:`Adaptive`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any, NamedTuple

import numpy as np

from advmdp._checks import float_array
from advmdp._compiled import kernel
from advmdp._log import logger
from advmdp.confidence import ConfidenceSet, KnownKernels
from advmdp.layered import FloatArray, IntArray, LayeredMDP, Layers, LinearMixtureModel, TabularModel, logarithm
from advmdp.learners.options import Entropy
from advmdp.occupancy import check_policy, condition, occupancy_measure
from advmdp.rows.layer import layer_extremes
from advmdp.solvers import MirrorStep, mirror_descent_step
from advmdp.solvers.conditional import ConditionalStep, certified_occupancy, conditional_step
from advmdp.solvers.known import FlatStep, RepeatedStep
from advmdp.solvers.mirror import restored_warm
from advmdp.solvers.occupancy_bounds import largest_excess
from advmdp.solvers.step import SolverError

#: Where a step can cost more than this, shorter ones are tried; if it is taken all the same, a warning is logged.
LARGE_COST = 1e-4
#: The shares of its losses that a step is tried with, one after the other; the last is a projection on the set.
SHARES = (1.0, 0.25, 1.0 / 16.0, 1.0 / 256.0, 0.0)
#: Nothing is divided by less.
SMALLEST = 1e-300
#: The share of the usual start that a start policy is mixed with.
START_SHARE = 0.1


@dataclass(frozen=True)
class Adaptive:
    """Step sizes eta_k = span / Delta_{k-1} that need no number of episodes: Delta is Delta_0 and all gaps of steps.

    The gap of a step, delta = sup_q <q_k - q, y> - D(q || q_k) / eta_k, is what the step can lose by its size; then the
    regret for the estimates is at most D(q* || q_1) / eta_{K+1} + sum delta, and so 2 Delta_K - Delta_0 where
    D(q* || q_1) is at most the span (``docs/sharper-parts.md``).
    """

    span: float
    #: Delta_0.
    first: float

    def turn(self, scale: float, gap: float, log_q: FloatArray, log_first: FloatArray) -> tuple[float, FloatArray]:
        """The new Delta, and log of q_k^rho q_1^(1 - rho)."""
        ratio = scale / (scale + gap)
        if ratio == 1.0:  # else -inf, of an unavailable action, times zero
            return scale, log_q
        return scale + gap, ratio * log_q + (1.0 - ratio) * log_first


#: eta of episode k (from 0), or step sizes that adapt.
Rate = Callable[[int], float] | Adaptive


class RatedStep:
    """A step with a size that is fixed, a function of k, or adapts."""

    eta: Rate

    def rate(self, state: Any, k: int) -> float:
        """eta of episode k."""
        return self.eta.span / state.scale if isinstance(self.eta, Adaptive) else self.eta(k)

    def instability(self, state: Any, estimate: FloatArray, k: int, offsets: IntArray) -> tuple[float, float]:
        """What episode k can lose by the size of its step.

        Of a step that adapts, all of it, a rest from the step before included, for Delta to grow by; of another, what
        such a rest adds to it, times eta, for the certificate.
        """
        adapts = isinstance(self.eta, Adaptive)
        if not adapts and state.rest is None:
            return 0.0, 0.0
        eta, q = self.rate(state, k), np.exp(state.log_q)
        whole = mixability_gap(q, all_losses(estimate, None, state.rest), eta, offsets)
        if adapts:
            return whole, 0.0
        return 0.0, eta * max(0.0, whole - mixability_gap(q, estimate, eta, offsets))


def first_scale(rate: Rate) -> float:
    """Delta_0; zero where the rate does not adapt."""
    return rate.first if isinstance(rate, Adaptive) else 0.0


def restored_scale(rate: Rate, tree: dict[str, Any]) -> float:
    """Delta out of a file, or ValueError."""
    scale = float(tree["scale"])
    if not (first_scale(rate) <= scale < np.inf and (scale == 0.0 or isinstance(rate, Adaptive))):
        raise ValueError(f"scale is {scale}, should be at least {first_scale(rate)}, or 0 with a fixed step")
    return scale


def all_losses(estimate: FloatArray, hint: FloatArray | None, rest: FloatArray | None) -> FloatArray:
    """What a step moves by."""
    losses = estimate if hint is None else estimate + hint
    return losses if rest is None else losses + rest


def restored_rest(layers: Layers, tree: dict[str, Any]) -> FloatArray | None:
    """What a step left to the next, out of a file."""
    return None if tree.get("rest") is None else layers.flat_vector(tree["rest"], "rest")


class OccupancyStep:
    """A step over Delta(P_{k+1}), whose iterate is an occupancy measure."""

    over_played_set = False

    def occupancy(self, state: Any, confidence_set: ConfidenceSet) -> FloatArray:
        """q_k."""
        q: FloatArray = np.exp(state.log_q)
        return q


class Descent(NamedTuple):
    """Where mirror descent stands."""

    log_q: FloatArray
    policy: FloatArray
    #: Of the occupancy measure over triples; None with the entropy of pairs.
    kernels: list[FloatArray] | None = None
    #: For the next step: the solver's own, not to be looked into.
    warm: Any = None
    #: The step that led here, with its certificate.
    last: MirrorStep | FlatStep | None = None
    #: Delta, of steps that adapt.
    scale: float = 0.0
    #: What that step can have cost because it is not exact (``docs/certificates.md``), and whether it is not within
    #: the tolerance of its solver.
    gap: float = 0.0
    missed: bool = False
    #: Losses that it has left to the next; None where, as always but in an emergency, there are none.
    rest: FloatArray | None = None


class Taken(NamedTuple):
    """A certified step."""

    step: Any
    #: See :class:`Descent`.
    gap: float
    missed: bool
    rest: FloatArray | None


def take(
    solve: Callable[[FloatArray], Any], losses: FloatArray, eta: float, offsets: IntArray,
    price: Callable[[Any, FloatArray], float],
) -> Taken:  # fmt: skip
    """The step ``solve(losses)``, or the best certified one that there is, by all losses or a share of them.

    What it costs: its gap or, if it misses the tolerance, ``price(step, losses)``; and, as if it were never used, the
    rest that it leaves to the next.  A shorter step is tried only where a longer one costs more than LARGE_COST.
    ``offsets``: where layers begin.  Raises :class:`SolverError` where there is none.
    """
    best: Taken | None = None
    for share in SHARES:
        part = losses if share == 1.0 else share * losses
        try:
            step, missed = solve(part), False
        except SolverError as error:
            step, missed, failure = error.step, True, error
        if step is None:
            continue
        gap, rest = price(step, part) if missed else max(step.gap, 0.0), None
        if share < 1.0:
            rest = losses - part
            gap += eta * never_used(np.exp(flat_log_q(step)), rest, offsets)
        if best is None or gap < best.gap:
            best = Taken(step, gap, missed or share < 1.0, rest)
        if gap <= LARGE_COST:
            return best
    if best is None:
        raise failure
    logger.warning("a mirror step is certified up to %.2g only: it is taken, and certificate counts it", best.gap)
    return best


def never_used(q: FloatArray, rest: FloatArray, offsets: IntArray) -> float:
    """The largest <q - q*, rest> over all q* with mass one in each layer."""
    spans = itertools.pairwise(offsets.tolist())
    return sum(float(q[a:b] @ rest[a:b] - rest[a:b].min()) for a, b in spans)


def flat_log_q(step: MirrorStep | FlatStep) -> FloatArray:
    """Of either kind of step."""
    return step.flat.log_q if isinstance(step, MirrorStep) else step.log_q


def price_of_pairs(
    confidence_set: ConfidenceSet, layers: Layers, log_prior: FloatArray, step: MirrorStep | FlatStep, cost: FloatArray
) -> float:
    """What mirror descent loses at most by this step of the entropy of pairs, whoever it is compared with.

    The three-point inequality fails by <q - q*, cost + log(q / prior)>: linear in q*, so that one backward pass finds
    the worst (``docs/certificates.md``).
    """
    slopes = _slopes(confidence_set, layers, log_prior, flat_log_q(step), cost)
    excess = largest_excess(confidence_set, layers.split(np.exp(flat_log_q(step))), slopes)
    return max(excess, 0.0) if excess < np.inf else np.inf  # not a number: nothing is proved


def price_of_triples(
    confidence_set: ConfidenceSet, layers: Layers, log_prior: FloatArray, priors: Sequence[FloatArray],
    step: MirrorStep, cost: FloatArray,
) -> float:  # fmt: skip
    """The same of the entropy of triples, which is linear in q* P*: one backward pass, pair by pair."""
    q, slopes = layers.split(np.exp(step.flat.log_q)), _slopes(confidence_set, layers, log_prior, step.flat.log_q, cost)
    value, following, data = 0.0, np.zeros(1), confidence_set.compiled_rows()
    for h in range(layers.horizon - 1, -1, -1):
        rows = step.kernels[h]
        ratios = np.log(np.maximum(rows, SMALLEST) / np.maximum(priors[h], SMALLEST))
        ahead = ratios[:, :, 0].copy()  # right where the terminal state is next
        if h < layers.horizon - 1:
            here, means = confidence_set.layer(h), np.empty(ahead.shape)
            for s, a in np.ndindex(means.shape):
                layer_extremes(data, here, np.array([s]), -(following + ratios[s, a]), means.ravel(), np.empty(0))
                ahead[s, a] = -means[s, a]
        taken = q[h] > 0.0
        value += float(q[h][taken] @ (slopes[h] + np.einsum("sat,sat->sa", rows, ratios))[taken])
        least = (slopes[h] + ahead).min(axis=1)
        following = np.where(confidence_set.reachable[h] & (least < np.inf), least, 0.0)
    excess = value - float(following[0])
    return max(excess, 0.0) if excess < np.inf else np.inf


def _slopes(
    confidence_set: ConfidenceSet, layers: Layers, log_prior: FloatArray, log_q: FloatArray, cost: FloatArray
) -> list[FloatArray]:
    """cost + log(q / prior); infinite where an action is unavailable."""
    within_reach = np.repeat(confidence_set.flat_reachable[:-1], layers.n_actions)
    with np.errstate(invalid="ignore"):
        slopes = np.where(log_prior > -np.inf, cost + np.where(within_reach, log_q, 0.0) - log_prior, np.inf)
    return layers.split(slopes)


def uniform_log_q(layers: Layers) -> FloatArray:
    """log q of the measure that is uniform over the available pairs of each layer."""
    sizes, n_actions = layers.sizes[:-1], layers.n_actions
    if layers.available is None:
        return np.concatenate([np.full(n * n_actions, -log(n * n_actions)) for n in sizes])
    return logarithm(np.concatenate([mask / mask.sum() for mask in layers.split(layers.available)], axis=None))


def mean_kernels(problem: TabularModel | LayeredMDP) -> list[FloatArray]:
    """The mean model: the truth where it is known, equal weights of a mixture, and otherwise uniform rows."""
    if isinstance(problem, LayeredMDP):
        return [np.asarray(table) for table in problem.kernels]
    sizes, n_actions = problem.layer_sizes, problem.n_actions
    kernels = [np.full((n, n_actions, m), 1.0 / m) for n, m in itertools.pairwise(sizes)]
    if isinstance(problem, LinearMixtureModel) and problem.simplex:
        for h, features in enumerate(problem.features[:-1]):
            rows = np.asarray(features).sum(axis=3)  # dense, like the step over triples that it is for
            kernels[h] = rows / rows.sum(axis=2, keepdims=True)
    return kernels


def policy_of(log_q: FloatArray, layers: Layers) -> FloatArray:
    """pi(a | s) = q(s, a) / q(s), uniform where q(s) is zero."""
    policy = np.empty_like(log_q)
    condition(log_q, layers.n_actions, policy)
    return available_only(policy, layers)


def available_only(policy: FloatArray, layers: Layers) -> FloatArray:
    """The same policy, but that states which nobody visits and whose row is uniform are uniform over the available."""
    if layers.available is None:
        return policy
    wrong = ((policy > 0.0) & ~layers.available).reshape(-1, layers.n_actions).any(axis=1)
    return np.where(np.repeat(wrong, layers.n_actions), layers.uniform_policy, policy)


@dataclass(frozen=True)
class MirrorDescent(OccupancyStep, RatedStep):
    """q_{k+1} = argmin over q in Delta(P_{k+1}) of eta_k <q, lhat_k> + D(q || q_k), from the uniform q_1.

    D compares occupancies of pairs (s, a), or of triples (s, a, s').  ``eta(k)`` is the step size of episode k, from 0,
    or it adapts.  With a start policy pi_0, q_1 = (1 - e) q^{P_c, pi_0} + e uniform, e = 0.1 and P_c the mean model.
    """

    problem: TabularModel
    eta: Rate
    entropy: Entropy = "pairs"
    first_policy: FloatArray | None = None

    def start(self) -> Descent:
        """q_1."""
        return self._first

    @cached_property
    def _first(self) -> Descent:
        layers = self.problem.layers
        log_q = uniform_log_q(layers)
        kernels = [np.full((n, layers.n_actions, m), 1.0 / m) for n, m in itertools.pairwise(layers.sizes)]
        if self.first_policy is not None:
            mean = mean_kernels(self.problem)
            q = (1.0 - START_SHARE) * layers.flatten(occupancy_measure(mean, layers.split(self.first_policy)))
            uniform = START_SHARE * np.exp(log_q)
            parts = zip(layers.split(q), mean, layers.split(uniform), kernels, strict=True)
            # Of an unavailable pair the mass is zero, and its row any.
            shares = [
                (np.where(a + b > 0.0, a / np.maximum(a + b, SMALLEST), 0.0)[..., None], p, r) for a, p, b, r in parts
            ]
            kernels = [share * p + (1.0 - share) * r for share, p, r in shares]
            log_q = logarithm(q + uniform)
        triples = kernels if self.entropy == "triples" else None
        return Descent(log_q, policy_of(log_q, layers), triples, scale=first_scale(self.eta))

    def advance(
        self,
        state: Descent,
        confidence_set: ConfidenceSet,
        estimate: FloatArray,
        k: int,
        hint: FloatArray | None = None,
    ) -> Descent:
        """From q_k to q_{k+1}."""
        offsets = self.problem.layers.pair_offsets
        gap, late = self.instability(state, estimate, k, offsets)
        if isinstance(self.eta, Adaptive):
            state = self._turned(self.eta, state, gap)
        eta = self.rate(state, k)
        losses = all_losses(estimate, hint, state.rest)
        options: dict[str, Any] = {"log_q": state.log_q, "entropy": self.entropy, "kernels": state.kernels}

        def solve(losses: FloatArray) -> MirrorStep:
            return mirror_descent_step(confidence_set, None, losses, eta, warm=state.warm, **options)

        def price(step: MirrorStep, losses: FloatArray) -> float:
            if self.entropy == "triples":
                assert state.kernels is not None
                layers = self.problem.layers
                return price_of_triples(confidence_set, layers, state.log_q, state.kernels, step, eta * losses)
            return price_of_pairs(confidence_set, self.problem.layers, state.log_q, step, eta * losses)

        taken = take(solve, losses, eta, offsets, price)
        step, log_q = taken.step, taken.step.flat.log_q
        policy = policy_of(log_q, self.problem.layers)
        kernels = step.kernels if self.entropy == "triples" else None
        return Descent(log_q, policy, kernels, step.warm, step, state.scale, taken.gap + late, taken.missed, taken.rest)

    def _turned(self, adaptive: Adaptive, state: Descent, gap: float) -> Descent:
        """At q_k^rho q_1^(1 - rho), with the next step size."""
        first = self.start()
        scale, log_q = adaptive.turn(state.scale, gap, state.log_q, first.log_q)
        if state.kernels is None or first.kernels is None:
            return state._replace(scale=scale, log_q=log_q)
        ratio, kernels, masses = state.scale / scale, [], []
        for ours, theirs in zip(state.kernels, first.kernels, strict=True):
            rows = ours**ratio * theirs ** (1.0 - ratio)
            mass = rows.sum(axis=2, keepdims=True)
            kernels.append(np.where(mass > 0.0, rows / np.maximum(mass, SMALLEST), theirs))
            masses.append(np.where(mass > 0.0, mass, 1.0).ravel())
        # Rows are normalised, and pairs have what that takes away: the measure over triples is the same.
        return state._replace(scale=scale, log_q=log_q + np.log(np.concatenate(masses)), kernels=kernels)

    def project(self, state: Descent, confidence_set: ConfidenceSet) -> Descent:
        """A step without losses, whatever a subclass does between episodes."""
        return MirrorDescent.advance(self, state, confidence_set, np.zeros_like(state.log_q), 0)

    def tree(self, state: Descent) -> dict[str, Any]:
        """For a checkpoint; the policy follows from log q."""
        return {
            "log_q": state.log_q, "kernels": state.kernels, "warm": state.warm, "scale": state.scale,
            "rest": state.rest,
        }  # fmt: skip

    def restore(self, tree: dict[str, Any]) -> Descent:
        """The inverse of :meth:`tree`, or ValueError."""
        log_q = checked_log_q(self.problem.layers, tree["log_q"])
        kernels = None
        if self.entropy == "triples":
            kernels = [table.copy() for table in LayeredMDP(tree["kernels"]).kernels]
        scale = restored_scale(self.eta, tree)
        policy = policy_of(log_q, self.problem.layers)
        rest = restored_rest(self.problem.layers, tree)
        return Descent(log_q, policy, kernels, restored_warm(tree["warm"]), None, scale, rest=rest)


@kernel
def mixability_gap(q: FloatArray, losses: FloatArray, eta: float, offsets: IntArray) -> float:
    """<q, y> + (1 / eta) sum_h ln sum_{b in layer h} q_b exp(-eta y_b), for q that sums to one in each layer.

    It is the largest <q - q', y> - KL(q' || q) / eta over all q' that do, never negative, and indifferent to a constant
    that is added to a layer.
    """
    total = 0.0
    for h in range(offsets.size - 1):
        mass, average = 0.0, 0.0
        for i in range(offsets[h], offsets[h + 1]):
            mass += q[i]
            average += q[i] * losses[i]
        average /= mass
        lowest = np.inf
        for i in range(offsets[h], offsets[h + 1]):
            if q[i] > 0.0:
                lowest = min(lowest, eta * (losses[i] - average))
        if lowest > -1.0:
            # ln(1 + sum q (e^-x - 1 + x)), x of mean zero: nothing cancels.
            excess = 0.0
            for i in range(offsets[h], offsets[h + 1]):
                if q[i] > 0.0:
                    x = eta * (losses[i] - average)
                    if abs(x) < 1e-2:
                        excess += q[i] * x * x * (0.5 - x * (1.0 / 6.0 - x * (1.0 / 24.0 - x / 120.0)))
                    else:
                        excess += q[i] * (np.expm1(-x) + x)
            total += np.log1p(excess / mass)
        else:
            shifted = 0.0
            for i in range(offsets[h], offsets[h + 1]):
                if q[i] > 0.0:
                    shifted += q[i] * np.exp(lowest - eta * (losses[i] - average))
            total += np.log(shifted / mass) - lowest
    return total / eta


class PolicyDescent(NamedTuple):
    """Where mirror descent with the conditional entropy stands: at a policy."""

    policy: FloatArray
    log_policy: FloatArray
    last: ConditionalStep | None = None
    #: Delta, of steps that adapt.
    scale: float = 0.0

    #: The recursion is exact, but for rounding.
    gap: float = 0.0
    missed: bool = False


@dataclass(frozen=True)
class ConditionalDescent(RatedStep):
    """q_{k+1} = argmin over q in Delta(P_k) of eta <q, lhat_k> + sum q log(pi_q / pi_k), by one backward pass.

    P_k is the set that episode k was played with, and u_k computed from: then the rows of the step lie between the
    bounds that the loss estimate used, and sets need not be nested.  From the uniform policy, or from a given one, with
    a tenth of the uniform one where it rules an action out: no step would undo that.
    """

    problem: TabularModel
    eta: Rate
    first_policy: FloatArray | None = None
    over_played_set = True

    def start(self) -> PolicyDescent:
        """pi_1."""
        layers = self.problem.layers
        policy = layers.uniform_policy if self.first_policy is None else self.first_policy
        if ((policy <= 0.0) & (layers.uniform_policy > 0.0)).any():
            policy = (1.0 - START_SHARE) * policy + START_SHARE * layers.uniform_policy
        return PolicyDescent(policy, logarithm(policy), scale=first_scale(self.eta))

    def project(self, state: PolicyDescent, confidence_set: ConfidenceSet) -> PolicyDescent:
        """The policy stays: it belongs to no set."""
        return state

    def advance(
        self,
        state: PolicyDescent,
        confidence_set: ConfidenceSet,
        estimate: FloatArray,
        k: int,
        hint: FloatArray | None = None,
    ) -> PolicyDescent:
        """From pi_k to pi_{k+1}; an adaptive step begins at pi_k^rho pi_1^(1 - rho), which is not normalised."""
        log_policy, scale = state.log_policy, state.scale
        if isinstance(self.eta, Adaptive):
            eta = self.rate(state, k)
            # What pi_k loses against the best of all steps from it with y alone, under the rows of that step.
            best = conditional_step(confidence_set, log_policy, eta * estimate)
            gap = max(0.0, certified_occupancy(best, log_policy).gap) / eta
            scale, log_policy = self.eta.turn(scale, gap, log_policy, self._log_first)
        state = state._replace(scale=scale)
        losses = estimate if hint is None else estimate + hint
        step = conditional_step(confidence_set, log_policy, self.rate(state, k) * losses)
        return PolicyDescent(step.policy, step.log_policy, step, scale)

    @cached_property
    def _log_first(self) -> FloatArray:
        return self.start().log_policy

    def occupancy(self, state: PolicyDescent, confidence_set: ConfidenceSet) -> FloatArray:
        """The occupancy measure of the policy under some kernel of the set: the step fixes none."""
        nothing = np.zeros_like(state.log_policy)
        return conditional_step(confidence_set, state.log_policy, nothing).occupancy.q

    def tree(self, state: PolicyDescent) -> dict[str, Any]:
        """For a checkpoint."""
        return {"log_policy": state.log_policy, "scale": state.scale}

    def restore(self, tree: dict[str, Any]) -> PolicyDescent:
        """The inverse of :meth:`tree`, or ValueError."""
        layers = self.problem.layers
        log_policy = layers.flat_vector(tree["log_policy"], "log_policy")
        policy = np.exp(log_policy)
        check_policy(layers, policy)
        return PolicyDescent(policy, log_policy, scale=restored_scale(self.eta, tree))


class KnownDescent(OccupancyStep, RatedStep):
    """The same over Delta(P) of known kernels, with all that depends on them prepared once.

    q_1 is the element of Delta(P) nearest to the measure that is uniform in each layer.  (The occupancy measure of the
    uniform policy is another one; from it D(q* || q_1) can exceed sum_h log(S_h A), where states are rarely reached.)
    """

    def __init__(self, mdp: LayeredMDP, truth: KnownKernels, eta: Rate, first_policy: FloatArray | None = None) -> None:
        self.mdp, self.truth, self.eta, self.first_policy = mdp, truth, eta, first_policy
        self._step = RepeatedStep(truth)

    def start(self) -> Descent:
        """q_1."""
        return self._first

    @cached_property
    def _first(self) -> Descent:
        layers, scale = self.mdp.layers, first_scale(self.eta)
        first = self._step.cold(uniform_log_q(layers), np.zeros(layers.n_pairs))
        if self.first_policy is None:
            return Descent(first.log_q, available_only(first.policy, layers), scale=scale)
        q = layers.flatten(occupancy_measure(self.mdp, layers.split(self.first_policy)))
        log_q = logarithm((1.0 - START_SHARE) * q + START_SHARE * np.exp(first.log_q))
        return Descent(log_q, policy_of(log_q, layers), scale=scale)

    def project(self, state: Descent, confidence_set: ConfidenceSet) -> Descent:
        """The set never changes."""
        return state

    def advance(
        self,
        state: Descent,
        confidence_set: ConfidenceSet,
        estimate: FloatArray,
        k: int,
        hint: FloatArray | None = None,
    ) -> Descent:
        """From q_k to q_{k+1}."""
        offsets = self.mdp.layers.pair_offsets
        gap, late = self.instability(state, estimate, k, offsets)
        if isinstance(self.eta, Adaptive):
            scale, log_q = self.eta.turn(state.scale, gap, state.log_q, self.start().log_q)
            state = state._replace(scale=scale, log_q=log_q)
        losses, eta = all_losses(estimate, hint, state.rest), self.rate(state, k)

        def price(step: FlatStep, losses: FloatArray) -> float:
            return price_of_pairs(self.truth, self.mdp.layers, state.log_q, step, eta * losses)

        taken = take(lambda part: self._step(state.log_q, eta * part), losses, eta, offsets, price)
        log_q, policy = taken.step.log_q, available_only(taken.step.policy, self.mdp.layers)
        return Descent(log_q, policy, None, None, taken.step, state.scale, taken.gap + late, taken.missed, taken.rest)

    def tree(self, state: Descent) -> dict[str, Any]:
        """For a checkpoint."""
        return {"log_q": state.log_q, "scale": state.scale, "rest": state.rest}

    def restore(self, tree: dict[str, Any]) -> Descent:
        """The inverse of :meth:`tree`, or ValueError; the policy, which does not follow from log q to the last bit,
        is put in place by the learner."""
        layers, scale = self.mdp.layers, restored_scale(self.eta, tree)
        log_q = checked_log_q(layers, tree["log_q"])
        return Descent(log_q, policy_of(log_q, layers), scale=scale, rest=restored_rest(layers, tree))


@dataclass(frozen=True)
class Blocks(MirrorDescent):
    """Mirror descent in blocks of episodes: each begins with the q of P_{k+1} that is nearest to q_1.

    Only q is forgotten: the transition does not change, so that the regression, and the sets, go on.  ``block(k)`` is
    the first episode and the length of the block of episode k.
    """

    block: Callable[[int], tuple[int, int]] = lambda k: (0, k + 1)

    def advance(
        self,
        state: Descent,
        confidence_set: ConfidenceSet,
        estimate: FloatArray,
        k: int,
        hint: FloatArray | None = None,
    ) -> Descent:
        """From q_k to q_{k+1}; the losses of the past are forgotten where a block ends, the last ones with them."""
        if self.block(k + 1)[0] == k + 1:
            state, estimate = self.start(), np.zeros_like(estimate)
        return super().advance(state, confidence_set, estimate, k, hint)


class BankDescent(NamedTuple):
    """Where a bank of mirror descents stands."""

    log_q: FloatArray
    policy: FloatArray
    base: tuple[Descent, ...]
    log_weights: FloatArray

    @property
    def last(self) -> Any:
        """The last base step."""
        return self.base[-1].last

    @property
    def gap(self) -> float:
        """Of all base steps."""
        return sum(base.gap for base in self.base)

    @property
    def missed(self) -> bool:
        """Whether one of them is not within the tolerance of its solver."""
        return any(base.missed for base in self.base)


@dataclass(frozen=True)
class Bank(OccupancyStep):
    """Hedge over mirror descents q^i with step sizes eta_i, the ``parts``; the played q is their weighted average.

    1. w_i is multiplied by exp(-epsilon <q^i_k, lhat_k>);
    2. q^i_{k+1} = argmin over q in Delta(P_{k+1}) of eta_i <q, lhat_k> + D(q || (1 - mu) q^i_k + mu uniform);
    3. q_{k+1} = sum_i w_i q^i_{k+1}, an element of the convex set Delta(P_{k+1}).
    """

    layers: Layers
    parts: tuple[MirrorDescent | KnownDescent, ...]
    epsilon: float
    mu: float

    def start(self) -> BankDescent:
        """Equal weights, all at q_1."""
        base = tuple(part.start() for part in self.parts)
        count = len(base)
        return BankDescent(base[0].log_q, base[0].policy, base, np.full(count, -log(count)))

    def advance(self, state: BankDescent, confidence_set: ConfidenceSet, estimate: FloatArray, k: int) -> BankDescent:
        """From q_k to q_{k+1}."""
        uniform, seen = uniform_log_q(self.layers), np.flatnonzero(estimate)
        losses = np.array([np.exp(base.log_q[seen]) @ estimate[seen] for base in state.base])
        log_weights = state.log_weights - self.epsilon * losses
        log_weights = log_weights - np.logaddexp.reduce(log_weights)
        bases = []
        for part, base in zip(self.parts, state.base, strict=True):
            with np.errstate(divide="ignore"):
                prior = np.logaddexp(np.log1p(-self.mu) + base.log_q, log(self.mu) + uniform)
            bases.append(part.advance(base._replace(log_q=prior), confidence_set, estimate, k))
        return self._averaged(tuple(bases), log_weights)

    def project(self, state: BankDescent, confidence_set: ConfidenceSet) -> BankDescent:
        """Each base by itself; the weights stay."""
        bases = zip(self.parts, state.base, strict=True)
        return self._averaged(tuple(part.project(base, confidence_set) for part, base in bases), state.log_weights)

    def _averaged(self, bases: tuple[Descent, ...], log_weights: FloatArray) -> BankDescent:
        log_q = np.logaddexp.reduce([w + base.log_q for w, base in zip(log_weights, bases, strict=True)])
        return BankDescent(log_q, policy_of(log_q, self.layers), bases, log_weights)

    def tree(self, state: BankDescent) -> dict[str, Any]:
        """For a checkpoint."""
        parts = zip(self.parts, state.base, strict=True)
        return {"log_weights": state.log_weights, "base": [part.tree(base) for part, base in parts]}

    def restore(self, tree: dict[str, Any]) -> BankDescent:
        """The inverse of :meth:`tree`, or ValueError."""
        count = len(self.parts)
        log_weights = np.array(float_array(tree["log_weights"], "log_weights", ValueError))
        if log_weights.shape != (count,) or not abs(np.exp(log_weights).sum() - 1.0) <= 1e-9:
            raise ValueError(f"log_weights are not those of {count} weights that sum to 1")
        if len(tree["base"]) != count:
            raise ValueError(f"there should be {count} base learners")
        bases = tuple(part.restore(base) for part, base in zip(self.parts, tree["base"], strict=True))
        return self._averaged(bases, log_weights)


def checked_log_q(layers: Layers, saved: Any) -> FloatArray:
    """log q out of a file: each layer of q must sum to one."""
    log_q = layers.flat_vector(saved, "log_q")
    for h, table in enumerate(layers.split(np.exp(log_q))):
        if not abs(table.sum() - 1.0) <= 1e-9:
            raise ValueError(f"q of layer {h} sums to {table.sum()}, should be 1")
    return log_q
