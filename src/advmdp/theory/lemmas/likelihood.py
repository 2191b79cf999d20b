"""What ``docs/likelihood-sets.md`` proves: the price of a forecaster, the ratio for all n, and the ellipsoid around it.

All of it is about the estimator that learners use; probabilities of mixtures of weights are exact, by enumeration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import lgamma, log

import numpy as np

from advmdp.confidence.likelihood import TOLERANCE, fit
from advmdp.confidence.likelihood_ratio import Likelihood, LikelihoodRatio, dirichlet_regret, outer_ellipsoids
from advmdp.layered import FloatArray, LinearMixtureMDP
from advmdp.theory.lemmas.base import Check, each_trial, family
from advmdp.theory.lemmas.coverage import play_estimators, small_world

ZETA = 0.1
#: Many layers, so that a union over them is missed, and four kernels, so that the price of a forecaster is.
LAYERS, DIM, EPISODES = (1, *[3] * 10, 1), 4, 50


def random_rows(rng: np.random.Generator, n: int, dim: int) -> FloatArray:
    """Vectors of base probabilities: any, with zeros, or of one kernel only."""
    rows = rng.random((n, dim))
    if rng.random() < 0.5:
        rows *= rng.random((n, dim)) < 0.5
    if rng.random() < 0.3:
        rows[:] = np.eye(dim)[rng.integers(dim)]
    rows[~rows.any(axis=1), 0] = 1.0
    return rows


def likeliest(rows: FloatArray, counts: FloatArray) -> tuple[FloatArray, float]:
    """Weights of maximum likelihood, and what is missing at most."""
    weights, gaps = np.full((1, rows.shape[1]), 1.0 / rows.shape[1]), np.zeros(1)
    everything = np.arange(len(rows))
    fit(rows, np.array([0, len(rows)]), everything, counts, 0.0, TOLERANCE, 200, weights, gaps)
    return weights[0], float(gaps[0])


def mixture_probability(rows: FloatArray) -> float:
    """The integral of prod_i <a_i, w> over Dirichlet(1/2): a sum over which kernel made each transition."""
    n, dim = rows.shape
    total = 0.0
    for made_by in itertools.product(range(dim), repeat=n):
        counts = np.bincount(made_by, minlength=dim)
        moment = lgamma(0.5 * dim) - lgamma(n + 0.5 * dim) + sum(lgamma(c + 0.5) - lgamma(0.5) for c in counts)
        total += float(np.exp(moment) * np.prod(rows[np.arange(n), list(made_by)]))
    return total


@each_trial
def regret_of_the_mixture(rng: np.random.Generator, growing: bool) -> float:
    """(max_w L - A) over its bound; the control has the bound of one transition whatever n is."""
    n, dim = int(rng.integers(1, 7)), int(rng.integers(2, 4))
    rows = random_rows(rng, n, dim)
    weights, _ = likeliest(rows, np.ones(n))
    regret = float(np.log(rows @ weights).sum()) - log(mixture_probability(rows))
    return float(regret / dirichlet_regret(n if growing else 1, dim))


def runs(rng: np.random.Generator, trials: int) -> Iterator[tuple[int, LinearMixtureMDP, Likelihood]]:
    """What the estimator knows after each episode of each trial."""
    for i in range(trials):
        mdp = small_world(rng, LAYERS, 2, DIM)
        estimator = LikelihoodRatio(mdp.model, ZETA)
        data = estimator.empty()
        for states, actions in play_estimators(mdp, EPISODES, rng):
            data = estimator.add(data, states, actions)
            yield i, mdp, data


def true_weights(mdp: LinearMixtureMDP) -> FloatArray:
    """w of layers 0..H-2."""
    return np.asarray(np.array(mdp.theta[:-1]) / np.array(mdp.model.scales[:-1])[:, None])


def log_ratios(mdp: LinearMixtureMDP, data: Likelihood) -> FloatArray:
    """max L - L(w*) of each layer, up to the tolerance of the maximum."""
    found = data.likeliest
    result = np.zeros(len(found.weights))
    for g, truth in enumerate(true_weights(mdp)):
        first, last = np.searchsorted(found.seen, found.rows.groups[g : g + 2])
        rows, counts = found.rows.vectors[found.seen[first:last]], found.counts[first:last]
        result[g] = counts @ (np.log(rows @ found.weights[g]) - np.log(rows @ truth))
    return result


@family
def forecaster_ratios(rng: np.random.Generator, trials: int, union: bool) -> FloatArray:
    """max over episodes and layers of A - L(w*), over log(layers / zeta); the control has half of log(1 / zeta)."""
    result = np.full(trials, -np.inf)
    for i, mdp, data in runs(rng, trials):
        excess = data.estimate.evidence + data.likeliest.gaps + log_ratios(mdp, data)
        limit = data.confidence if union else 0.5 * log(1.0 / ZETA)
        result[i] = max(result[i], float(excess.max()) / limit)
    return result


def coverage_ratios(rng: np.random.Generator, trials: int) -> FloatArray:
    """max over episodes and layers of |theta - centre|_gram over the radius."""
    result = np.zeros(trials)
    for i, mdp, data in runs(rng, trials):
        estimate = data.estimate
        errors = np.array(mdp.theta[:-1]) - estimate.centres
        lengths = np.sqrt(np.einsum("hd,hde,he->h", errors, estimate.grams, errors))
        result[i] = max(result[i], float((lengths / estimate.radii).max()))
    return result


def coverage_without_regret(rng: np.random.Generator, trials: int) -> FloatArray:
    """max over episodes and layers of max L - L(w*), over log(layers / zeta): as if a forecaster cost nothing."""
    result = np.zeros(trials)
    for i, mdp, data in runs(rng, trials):
        result[i] = max(result[i], float(log_ratios(mdp, data).max()) / data.confidence)
    return result


def boundary(
    rows: FloatArray, counts: FloatArray, centre: FloatArray, depth: float, directions: FloatArray
) -> FloatArray:
    """The last weights in each direction from the centre, inside the simplex, with L >= L(centre) - depth."""
    low, high = np.zeros(len(directions)), np.full(len(directions), np.inf)
    for j in range(centre.size):
        down = directions[:, j] < 0.0
        high[down] = np.minimum(high[down], centre[j] / -directions[down, j])
    p = rows @ centre
    change = directions @ rows.T / p
    for _ in range(60):
        middle = 0.5 * (low + high)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.log(np.maximum(1.0 + middle[:, None] * change, 0.0)) @ counts >= -depth
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(centre + low[:, None] * directions)


@each_trial
def ellipsoid_ratios(rng: np.random.Generator, growing: bool) -> float:
    """The largest |w - w^|_gram over the radius, w from the boundary of {L >= max L - depth} and the simplex.

    The control has the plain second derivative, without what large steps take from it.
    """
    dim = int(rng.integers(2, 6))
    rows = random_rows(rng, int(rng.integers(1, 9)), dim)
    counts = np.floor(rng.choice([1.0, 3.0, 100.0]) * (1.0 + rng.exponential(size=len(rows))))
    centre, gap = likeliest(rows, counts)
    depth = float(rng.uniform(0.1, 15.0))
    grams, radii = np.empty((1, dim, dim)), np.empty(1)
    groups, everything = np.array([0, len(rows)]), np.arange(len(rows))
    slack = np.array([gap])
    outer_ellipsoids(rows, groups, everything, counts, centre[None], slack + depth, slack, grams, radii)
    gram, radius = grams[0], float(radii[0])
    if not growing:
        scaled = rows / (rows @ centre)[:, None]
        gram, radius = (scaled * counts[:, None]).T @ scaled, float(np.sqrt(2.0 * (depth + gap)))
    directions = np.concatenate([rng.dirichlet(np.full(dim, 0.3), 200), np.eye(dim)]) - centre
    # One that is all rounding would leave the simplex; some vertex is far enough.
    directions = directions[np.abs(directions).sum(axis=1) > 1e-3]
    found = boundary(rows, counts, centre, depth, directions) - centre
    return float(np.sqrt(np.einsum("id,de,ie->i", found, gram, found).max()) / radius)


CHECKS = (
    Check(
        "Likelihood: price of a mixture", "the Dirichlet(1/2) mixture of weights loses at most log[Gamma(n + d/2) ...]",
        regret_of_the_mixture(True), "the price of one transition for all n", regret_of_the_mixture(False), 150,
    ),
    Check(
        "Likelihood: ratio for all n and layers", "A_n - L_n(w*) <= log(layers / zeta) for all n and layers at once",
        forecaster_ratios(True), "no union over layers, and the root of zeta", forecaster_ratios(False), 60, ZETA,
    ),
    Check(
        "Likelihood: coverage", "theta_h in the ellipsoid of its likelihood set for all k and h at once",
        coverage_ratios, "as if the forecaster knew the best weights", coverage_without_regret, 60, ZETA,
    ),
    Check(
        "Likelihood: outer ellipsoid", "the set of likely weights is inside its ellipsoid",
        ellipsoid_ratios(True), "the second derivative at the centre alone", ellipsoid_ratios(False), 400,
    ),
)  # fmt: skip
