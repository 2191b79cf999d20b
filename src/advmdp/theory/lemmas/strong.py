"""What ``docs/strong-learners.md`` proves: experts and their weights, the safe expert, the conditional step, sharing.

All of it is about the code that learners run: weights, posterior and estimates of the portfolio, its safe expert, the
conditional step, and the sets of shared weights.  Expectations are exact, by enumeration of all trajectories, but for
those of whole runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import log, sqrt
from typing import NamedTuple, Self

import numpy as np

from advmdp.confidence import BoxSet, ConfidenceSet, KnownKernels
from advmdp.confidence.regression import joint_regression
from advmdp.episodes import CheckedEpisode, Episode, check_episode, play
from advmdp.layered import FloatArray, LayeredMDP, LinearMixtureMDP
from advmdp.learners.parts.experts import ExpertWeights, tsallis
from advmdp.learners.parts.safe import SafeBase
from advmdp.learners.portfolio import Portfolio, PortfolioState
from advmdp.occupancy import best_policy, occupancy_measure, random_policy
from advmdp.solvers import lower_occupancy, upper_occupancy
from advmdp.solvers.conditional import ConditionalStep, certified_occupancy, conditional_step
from advmdp.solvers.occupancy_bounds import extreme_rows
from advmdp.theory.lemmas.base import Check, each_trial, family
from advmdp.theory.lemmas.coverage import play_estimators, small_world

ZETA = 0.1
#: Layers of the worlds whose trajectories are enumerated.
TINY = (1, 2, 2, 1)
#: What counts as equal, where a statement is an equation.
EQUAL = 1e-9


def occupancies(mdp: LayeredMDP, policies: FloatArray) -> FloatArray:
    """The occupancy measures of flat policies, a row each."""
    layers = mdp.layers
    return np.array([layers.flatten(occupancy_measure(mdp, layers.split(policy))) for policy in policies])


def trajectories(mdp: LayeredMDP) -> Iterator[tuple[CheckedEpisode, float]]:
    """Every sequence of states and actions, without losses, and what the kernels contribute to its probability."""
    layers = mdp.layers
    sizes = layers.sizes[:-1]
    for states in itertools.product(*(range(n) for n in sizes)):
        for actions in itertools.product(range(layers.n_actions), repeat=len(sizes)):
            steps = zip(mdp.kernels[:-1], states, actions, states[1:], strict=False)
            chance = float(np.prod([kernel[s, a, t] for kernel, s, a, t in steps]))
            yield check_episode(Episode(states, actions, np.zeros(len(sizes))), layers), chance


# --------------------------------------------------------------------------------------- experts


class Hasty(ExpertWeights):
    """Its steps are four times as large as the certificate believes (not for use)."""

    def add(
        self, rho: FloatArray, losses: FloatArray, played: Self | None = None, expected: FloatArray | None = None
    ) -> Self:
        added = super().add(rho, losses, played, expected)
        return replace(added, shares=tsallis(added.totals, 4.0 * added.step_size))


class Uncapped(ExpertWeights):
    """It subtracts the whole baselines, c = 1, whatever the weights are (not for use)."""

    @cached_property
    def centring(self) -> FloatArray:
        return np.ones(self.totals.size)


class HastyPortfolio(Portfolio):
    """With such weights (not for use)."""

    meta_weights: type[ExpertWeights] = Hasty

    def _begin(self) -> PortfolioState:
        first = super()._begin()
        meta = first.meta
        return first._replace(meta=self.meta_weights.empty(meta.totals.size, meta.baselines.size, base=meta.base))


class UncappedPortfolio(HastyPortfolio):
    """With those (not for use)."""

    meta_weights = Uncapped


def wrong_portfolio(rng: np.random.Generator, kind: type[Portfolio] = Portfolio) -> tuple[LinearMixtureMDP, Portfolio]:
    """A small world, and a portfolio that is given the model of another one."""
    mdp, other = small_world(rng, TINY), small_world(rng, TINY)
    return mdp, kind(other.model, seed=int(rng.integers(2**32)))


def against_the_leader(learner: Portfolio, rng: np.random.Generator) -> FloatArray:
    """Losses that are one where the most trusted expert goes; random ones once in four episodes."""
    state: PortfolioState = learner._now.state
    if rng.random() < 0.25:
        return rng.random(state.policy.size)
    leader: FloatArray = state.policies[state.meta.shares.argmax()]
    return np.asarray(leader > rng.random(leader.size), dtype=np.float64)


class ExpertRun(NamedTuple):
    """What every expert was better by, without the premium's part, and what the certificate allowed."""

    excess: FloatArray
    certificate: float
    #: sum_k sum_j v_j^(3/2) x_j^2, of the estimates.
    squares: float


def expert_run(
    mdp: LayeredMDP, learner: Portfolio, episodes: int, rng: np.random.Generator, true_losses: bool = True
) -> ExpertRun:
    """sum_k (1 - mu_k) (<v_k, L_k> - L_{k,i}) of each expert i, L_k the true losses of experts, or the estimates."""
    layers = mdp.layers
    excess, squares = np.zeros(len(learner.expert_names)), 0.0
    for k in range(episodes):
        state: PortfolioState = learner._now.state
        losses = against_the_leader(learner, rng)
        episode = play(mdp, learner.policy, layers.split(losses), rng, k)
        if true_losses:
            of_experts = occupancies(mdp, state.policies) @ losses
        else:
            checked = check_episode(episode, layers)
            rho = state.meta.posterior(state.policies[:, checked.pairs])
            of_experts = state.meta.estimates(rho, checked.losses)
            squares += float(state.meta.shares**1.5 @ ((1.0 - state.meta.premium) * of_experts) ** 2)
        excess += (1.0 - state.meta.premium) * (state.meta.shares @ of_experts - of_experts)
        learner.update(episode)
        if not np.isfinite(learner.certificate):
            break
    return ExpertRun(excess, learner.certificate, squares)


@each_trial
def _expert_estimates(rng: np.random.Generator, markov: bool) -> float:
    """max_i |E y_i - <q^i, l>| over what counts as zero, with posterior weights or those of the Markov mixture."""
    mdp, learner = wrong_portfolio(rng)
    expert_run(mdp, learner, int(rng.integers(10)), rng)
    state: PortfolioState = learner._now.state
    meta, losses = state.meta, rng.random(mdp.layers.n_pairs)
    mean = np.zeros(meta.totals.size)
    for episode, chance in trajectories(mdp):
        probabilities = state.policies[:, episode.pairs]
        likelihood = chance * float(meta.weights @ probabilities.prod(axis=1))
        if likelihood > 0.0:
            played = meta.weights @ probabilities
            product = np.ascontiguousarray(np.cumprod(probabilities / played, axis=1).T)
            rho = product if markov else meta.posterior(probabilities)
            mean += likelihood * meta.estimates(rho, losses[episode.pairs])
    return float(np.abs(mean - occupancies(mdp, state.policies) @ losses).max() / EQUAL)


@family
def _expert_paths(rng: np.random.Generator, trials: int, kind: type[Portfolio], episodes: int = 60) -> FloatArray:
    """max_i sum_k <v_k - e_i, x_k> over the certificate, on the path of a run."""
    runs = (expert_run(*wrong_portfolio(rng, kind), episodes, rng, true_losses=False) for _ in range(trials))
    return np.array([float(run.excess.max()) / run.certificate for run in runs])


@each_trial
def _certificates(rng: np.random.Generator, kind: type[Portfolio], episodes: int = 60) -> float:
    """(Delta_K - H)^2 over 4 D sum_k V_k, on the path of a run."""
    mdp, learner = wrong_portfolio(rng, kind)
    run = expert_run(mdp, learner, episodes, rng, true_losses=False)
    span = 2.0 * (sqrt(run.excess.size) - 1.0)
    return float((0.5 * (run.certificate - mdp.horizon)) ** 2 / (4.0 * span * run.squares))


@each_trial
def _second_moments(rng: np.random.Generator, whole: bool) -> float:
    """w_i E y_i^2 over H^2 (1 + w_i - w_i^2), for the expert with the largest ratio; or over H times that."""
    mdp, learner = wrong_portfolio(rng)
    expert_run(mdp, learner, int(rng.integers(30)), rng)
    state: PortfolioState = learner._now.state
    w, losses = state.meta.weights, rng.random(mdp.layers.n_pairs) ** 0.1
    mean = np.zeros(w.size)
    for episode, chance in trajectories(mdp):
        probabilities = state.policies[:, episode.pairs]
        likelihood = chance * float(w @ probabilities.prod(axis=1))
        if likelihood > 0.0:
            rho = state.meta.posterior(probabilities)
            mean += likelihood * state.meta.estimates(rho, losses[episode.pairs]) ** 2
    return float((w * mean / (mdp.horizon ** (2 if whole else 1) * (1.0 + w - w**2))).max())


@family
def _expert_means(rng: np.random.Generator, trials: int, kind: type[Portfolio], episodes: int = 150) -> FloatArray:
    """Mean excess over mean certificate, for every expert."""
    runs = [expert_run(*wrong_portfolio(rng, kind), episodes, rng) for _ in range(trials)]
    return np.array(np.mean([run.excess for run in runs], axis=0) / np.mean([run.certificate for run in runs]))


# ------------------------------------------------------------------------------- the safe expert


class SafeMoments(NamedTuple):
    """Of the estimates of the safe expert, pair by pair, in one episode."""

    losses: FloatArray
    mean: FloatArray
    exponential: FloatArray
    second: FloatArray
    upper: FloatArray
    q: FloatArray
    gamma: float
    weight: float


def safe_moments(rng: np.random.Generator, posterior: bool = True) -> SafeMoments:
    """By enumeration, with the policies of a portfolio and any true kernel of the set; without rho if so wanted."""
    mdp, learner = wrong_portfolio(rng)
    expert_run(mdp, learner, int(rng.integers(1, 10)), rng)
    state: PortfolioState = learner._now.state
    safe: SafeBase = learner._safe
    layers, meta = mdp.layers, state.meta
    # Every other time the truth is all there is in the set, so that u = q: the estimates are largest then.
    confidence_set: ConfidenceSet = KnownKernels(mdp.kernels) if rng.random() < 0.5 else around(mdp, rng, 0.2)
    base = state.base._replace(set=confidence_set)
    gamma = float(rng.uniform(0.0, 0.3)) ** 2 + 1e-6
    losses = rng.uniform(0.01, 1.0, size=layers.n_pairs)
    mean, exponential, second, seen = np.zeros((4, layers.n_pairs))
    policy = layers.split(base.policy)
    tables = zip(upper_occupancy(confidence_set, policy), policy, strict=True)
    upper = layers.flatten([u[:, None] * pi for u, pi in tables])
    for episode, chance in trajectories(mdp):
        probabilities = state.policies[:, episode.pairs]
        likelihood = chance * float(meta.weights @ probabilities.prod(axis=1))
        if likelihood > 0.0:
            rho = meta.posterior(probabilities)[:, 0] if posterior else np.ones(layers.horizon)
            estimates = safe.estimates(losses[episode.pairs], rho, safe.upper(base, episode), gamma)
            mean[episode.pairs] += likelihood * estimates
            exponential[episode.pairs] += likelihood * np.exp(2.0 * gamma * estimates)
            second[episode.pairs] += likelihood * upper[episode.pairs] * estimates**2
            seen[episode.pairs] += likelihood
    q = occupancies(mdp, base.policy[None])[0]
    weight = float(meta.weights[0])
    return SafeMoments(losses, mean, exponential + 1.0 - seen, second, upper, q, gamma, weight)


@each_trial
def _optimism(rng: np.random.Generator, posterior: bool) -> float:
    """E lhat over l, and E exp(2 gamma lhat) over exp(2 gamma l), the larger of the two over all pairs."""
    found = safe_moments(rng, posterior)
    means, moments = found.mean / found.losses, found.exponential / np.exp(2.0 * found.gamma * found.losses)
    return float(max(means.max(), moments.max()))


@each_trial
def _price_of_optimism(rng: np.random.Generator, weighted: bool) -> float:
    """u (l - E lhat) over u - q + gamma / w, and E u lhat^2 over 1 / w; w the safe expert's weight, or one."""
    found = safe_moments(rng)
    weight = found.weight if weighted else 1.0
    bias = found.upper * (found.losses - found.mean) / (found.upper - found.q + found.gamma / weight)
    return float(max(bias.max(), (found.second * weight).max()))


# -------------------------------------------------------------------------- the conditional step


def around(mdp: LayeredMDP, rng: np.random.Generator, width: float) -> BoxSet:
    """A box around these kernels, to both sides by up to a width."""
    lower = [np.maximum(table - width * rng.random(table.shape), 0.0) for table in mdp.kernels[:-1]]
    upper = [np.minimum(table + width * rng.random(table.shape), 1.0) for table in mdp.kernels[:-1]]
    return BoxSet([*lower, mdp.kernels[-1]], [*upper, mdp.kernels[-1]])


class Taken(NamedTuple):
    """One step of a run: from pi_k with eta_k, by the estimates, over a set, with eta_{k+1}."""

    policy: FloatArray
    log_policy: FloatArray
    eta: float
    estimate: FloatArray
    played: ConfidenceSet
    step: ConditionalStep
    next_eta: float


def conditional_run(
    mdp: LayeredMDP, rng: np.random.Generator, episodes: int, centre: LayeredMDP | None = None, other_set: bool = False
) -> list[Taken]:
    """Steps with falling step sizes over boxes that are not nested: those that were played with, or others.

    They are around the truth, or around another world, the ``centre``.
    """
    layers = mdp.layers
    first = np.full(layers.n_pairs, -log(layers.n_actions))
    log_policy, eta, steps = first, float(rng.uniform(0.02, 0.2)), []
    for _ in range(episodes):
        width = float(rng.uniform(0.0, 0.3)) if centre is None else 0.02
        played, another = (around(mdp if centre is None else centre, rng, width) for _ in range(2))
        policy = np.exp(log_policy)
        estimate = np.zeros(layers.n_pairs)
        visited = play(mdp, layers.split(policy), layers.split(estimate), rng)
        pairs = check_episode(visited, layers).pairs
        u = policy * np.repeat(np.concatenate(upper_occupancy(played, layers.split(policy))), layers.n_actions)
        estimate[pairs] = rng.random(pairs.size) ** 0.2 / (u[pairs] + 0.01)
        next_eta = eta * float(rng.uniform(0.96, 1.0))
        ratio = next_eta / eta
        reference = ratio * log_policy + (1.0 - ratio) * first
        step = conditional_step(another if other_set else played, reference, next_eta * estimate)
        steps.append(Taken(policy, log_policy, eta, estimate, played, step, next_eta))
        log_policy, eta = step.log_policy, next_eta
    return steps


@each_trial
def _identity(rng: np.random.Generator, middle: float) -> float:
    """|left - right| of the identity over what counts as zero, with that share of sum q (P'.V - m)."""
    mdp = small_world(rng)
    layers = mdp.layers
    policy = random_policy(layers.sizes, layers.n_actions, rng)
    q, log_policy = layers.flatten(occupancy_measure(mdp, policy)), np.log(layers.flatten(policy))
    worst = 0.0
    for taken in conditional_run(mdp, rng, 5):
        step = taken.step
        values = np.split(-step.potential, np.cumsum(layers.sizes)[:-1])
        ahead = [kernel @ value for kernel, value in zip(mdp.kernels, values[1:], strict=True)]
        least = [extreme_rows(step.confidence_set, h, value, maximise=False) for h, value in enumerate(values[1:])]
        left = q @ (step.cost + log_policy - step.log_reference)
        excess = q @ (layers.flatten(ahead) - layers.flatten(least))
        right = step.value + middle * excess + q @ (log_policy - step.log_policy)
        worst = max(worst, abs(float(left - right)))
    return float(worst / EQUAL)


@each_trial
def _telescope(rng: np.random.Generator, truth: bool) -> float:
    """sum V_k / eta_{k+1} + D(q* || pi_{K+1}) / eta_{K+1} over sum <q*, lhat_k> + D(q* || pi_1) / eta_{K+1}."""
    mdp = small_world(rng)
    layers = mdp.layers
    steps = conditional_run(mdp, rng, 60, None if truth else small_world(rng))
    total = np.sum([taken.estimate for taken in steps], axis=0)
    best = best_policy(mdp, layers.split(total))[0]
    q = layers.flatten(occupancy_measure(mdp, best))  # of a deterministic policy: D(q || pi) = -sum q ln pi
    last = steps[-1]
    left = sum(taken.step.value / taken.next_eta for taken in steps) - q @ last.step.log_policy / last.next_eta
    return float(left / (q @ total - q @ steps[0].log_policy / last.next_eta))


def _played_rows(taken: Taken) -> FloatArray:
    """q_: the occupancy measure of pi_k under the rows that the step chose."""
    return certified_occupancy(taken.step, taken.log_policy).q


def branching_world(rng: np.random.Generator) -> LayeredMDP:
    """The first action decides, almost, in which half of the world one stays: losses come together or not at all."""
    stay = float(rng.uniform(0.95, 1.0))
    row = np.array([stay, 1.0 - stay])
    first = np.stack([row, row[::-1]])[None]
    later = np.stack([np.stack([row, row]), np.stack([row[::-1], row[::-1]])])
    return LayeredMDP([first, *([later] * 3), np.ones((2, 2, 1))])


@family
def _lower_bound(rng: np.random.Generator, trials: int, horizon_counts: bool) -> FloatArray:
    """<q_, lhat> over V / eta_{k+1} + min{(eta_k H / 2) sum u lhat^2, sum u lhat}; or without the factor H."""
    result = np.empty(trials)
    for i in range(trials):
        mdp = branching_world(rng) if i % 2 else small_world(rng)
        factor = mdp.horizon if horizon_counts else 1.0
        worst = 0.0
        for taken in conditional_run(mdp, rng, 20):
            policy = mdp.layers.split(taken.policy)
            states = np.concatenate(upper_occupancy(taken.played, policy))
            u = taken.policy * np.repeat(states, mdp.n_actions)
            gap = min(0.5 * taken.eta * factor * float(u @ taken.estimate**2), float(u @ taken.estimate))
            left = float(_played_rows(taken) @ taken.estimate)
            worst = max(worst, left / (taken.step.value / taken.next_eta + gap))
        result[i] = worst
    return result


@each_trial
def _between(rng: np.random.Generator, other_set: bool) -> float:
    """The larger of q_ / u and u_ / q_ over all states, for steps over the set of the episode, or over another one."""
    mdp = small_world(rng)
    worst = 0.0
    for taken in conditional_run(mdp, rng, 10, other_set=other_set):
        policy = mdp.layers.split(taken.policy)
        lower, upper = (np.concatenate(f(taken.played, policy)) for f in (lower_occupancy, upper_occupancy))
        q = _played_rows(taken).reshape(-1, mdp.n_actions).sum(axis=1)
        # States that cannot be reached have zero over zero.
        q, lower, upper = q + 1e-12, lower + 1e-12, upper + 1e-12
        worst = max(worst, float((q / upper).max()), float((lower / q).max()))
    return float(worst)


# ------------------------------------------------------------------------------- shared weights


@each_trial
def _shared_coverage(rng: np.random.Generator, shared: bool, episodes: int = 60) -> float:
    """max over episodes and layers of |w_k - w_h| in the norm of Lambda over the radius, for w_h equal or not."""
    other = small_world(rng, (1, 3, 3, 3, 1))
    kernels = [[f[..., j] * c for f, c in zip(other.features, other.model.scales, strict=True)] for j in range(2)]
    weights = rng.dirichlet(np.ones(2), size=None if shared else other.horizon)
    mdp = LinearMixtureMDP.from_kernels(kernels, weights)
    truth = np.atleast_2d(weights)[: 1 if shared else -1]
    estimator, sets = joint_regression(mdp.model, zeta=ZETA, shared=True)
    data, worst = estimator.empty(), 0.0
    for states, actions in play_estimators(mdp, episodes, rng):
        data = estimator.add(data, states, actions)
        errors = data.estimate.centres[0] - truth
        lengths = np.sqrt(np.einsum("hd,de,he->h", errors, data.estimate.grams[0], errors))
        worst = max(worst, float(lengths.max() / sets.radii(data)[0]))
    return worst


CHECKS = (
    Check(
        "Experts: estimates without bias",
        "|E y_i - <q^i, l>| <= 1e-9 for every expert of a portfolio whose model is wrong, by enumeration",
        _expert_estimates(markov=False),
        "dividing by the action probabilities of the Markov mixture",
        _expert_estimates(markov=True),
        20,
    ),
    Check(
        "Theorem A on every path",
        "sum_k <v_k - e_i, x_k> <= 2 Delta_K - Delta_0 for every expert i, losses built against the leader",
        _expert_paths(Portfolio),
        "steps four times as large as the certificate believes",
        _expert_paths(HastyPortfolio),
        20,
    ),
    Check(
        "Experts: second moment",
        "w_i E y_i^2 <= H^2 (1 + w_i - w_i^2) for every expert, by enumeration",
        _second_moments(whole=True),
        "H in place of H^2",
        _second_moments(whole=False),
        20,
    ),
    Check(
        "Experts: size of the certificate",
        "(Delta_K - H)^2 <= 4 D sum_k sum_j v_j^(3/2) x_j^2 on every path, losses built against the leader",
        _certificates(Portfolio),
        "baselines without their cap, c = 1",
        _certificates(UncappedPortfolio),
        20,
    ),
    Check(
        "Theorem A on average",
        "mean of sum_k (<q_k - q^i_k, l_k> - mu_k <q^b_k - q^i_k, l_k>) <= mean of 2 Delta_K - Delta_0 for every "
        "expert i of a portfolio whose model is wrong, losses built against the leader",
        _expert_means(Portfolio),
        "steps four times as large as the certificate believes",
        _expert_means(HastyPortfolio),
        12,
    ),
    Check(
        "Safe expert: optimistic estimates",
        "E lhat <= l and E exp(2 gamma lhat) <= exp(2 gamma l), lhat = 1{visit} l / (u / rho + gamma), whoever played; "
        "by enumeration",
        _optimism(posterior=True),
        "rho left out",
        _optimism(posterior=False),
        40,
    ),
    Check(
        "Safe expert: price of optimism",
        "u (l - E lhat) <= u - q + gamma / w and E u lhat^2 <= 1 / w at every pair, w the weight of the safe expert; "
        "by enumeration",
        _price_of_optimism(weighted=True),
        "w replaced by one, as if it were always played",
        _price_of_optimism(weighted=False),
        40,
    ),
    Check(
        "Conditional step: identity",
        "|<q, c> + D(q || ref) - V - sum q (P.V - m) - D(q || pi)| <= 1e-9 for all q",
        _identity(1.0),
        "without sum q (P.V - m)",
        _identity(0.0),
        40,
    ),
    Check(
        "Conditional step: telescoping",
        "sum_k V_k / eta_{k+1} + D(q* || pi_{K+1}) / eta_{K+1} <= sum_k <q*, lhat_k> + D(q* || pi_1) / eta_{K+1}, "
        "sets that are not nested, falling step sizes",
        _telescope(truth=True),
        "sets around another world",
        _telescope(truth=False),
        40,
    ),
    Check(
        "Conditional step: lower bound",
        "<q_, lhat_k> <= V_k / eta_{k+1} + min{(eta_k H / 2) sum u lhat_k^2, sum u lhat_k}, q_ of pi_k and "
        "the rows of the step",
        _lower_bound(horizon_counts=True),
        "without the factor H",
        _lower_bound(horizon_counts=False),
        40,
    ),
    Check(
        "Conditional step: played side",
        "u_ <= q_ <= u at every state, for steps over the set that the episode was played with",
        _between(other_set=False),
        "steps over another set that contains the truth",
        _between(other_set=True),
        40,
    ),
    Check(
        "Shared weights: coverage",
        "w in the ellipsoid of the joint radius of one regression for all layers, for all k at once, no union",
        _shared_coverage(shared=True),
        "weights that differ from layer to layer",
        _shared_coverage(shared=False),
        60,
        ZETA,
    ),
)
