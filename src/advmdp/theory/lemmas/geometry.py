"""What the analysis needs of a set of kernels: its width (Lemma 4) and that its occupancy measures are convex."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from advmdp.confidence import EllipsoidSet
from advmdp.confidence.estimators import AllNextStates
from advmdp.layered import FloatArray, LinearMixtureMDP
from advmdp.occupancy import occupancy_measure, random_policy
from advmdp.solvers import mirror_descent_step
from advmdp.theory.lemmas.base import Check, Refutation, each_trial
from advmdp.theory.lemmas.coverage import parameter_errors, play_estimators, small_world
from advmdp.theory.lemmas.potential import feature_norms


def boundary_set(mdp: LinearMixtureMDP, episodes: int, rng: np.random.Generator) -> EllipsoidSet:
    """An estimate from simulated episodes, with the smallest radii that still contain the truth.

    It is the extreme case of the confidence event: the true parameter lies on the surface.
    """
    sums = AllNextStates.empty(mdp.horizon, mdp.dim)
    for states, actions in play_estimators(mdp, episodes, rng):
        sums = sums.add(mdp.model, states, actions)
    estimate = sums.estimate(1.0)
    radius = np.append(parameter_errors(estimate, np.array(mdp.theta[:-1])), 0.0)
    centres, grams = [*estimate.centres, np.zeros(mdp.dim)], [*estimate.grams, np.eye(mdp.dim)]
    # A hair more than the truth needs: it must not be lost to rounding.
    return EllipsoidSet(mdp.features, centres, grams, radius * (1.0 + 1e-9))


@each_trial
def _transition_difference(rng: np.random.Generator, diameters: float) -> float:
    """max |P' - P| / min(1, diameters beta |phi|) over entries and P' in the set; one is the printed factor."""
    mdp = small_world(rng)
    confidence_set = boundary_set(mdp, int(rng.integers(5, 200)), rng)
    lower, upper = confidence_set.hull()
    worst = 0.0
    for h, norms in enumerate(feature_norms(confidence_set)):
        truth = mdp.kernels[h]
        difference = np.maximum(upper[h] - truth, truth - lower[h])
        width = np.minimum(1.0, diameters * confidence_set.radius[h] * norms)
        worst = max(worst, float((difference / width).max()))
    return float(worst)


def _printed_transition_difference() -> Refutation:
    """Two next states, phi the unit vectors, Gram n I, centre (1/2, 1/2), truth and P' on opposite sides."""
    n, beta = 100.0, 1.0
    shift = beta / sqrt(2.0 * n)
    truth, other = np.array([0.5 + shift, 0.5 - shift]), np.array([0.5 - shift, 0.5 + shift])
    return Refutation(
        "E9",
        "|P'(s'|s,a) - P(s'|s,a)| <= min(1, beta |phi|) for P' in the set",
        "d = N = 2, phi the unit vectors, Gram 100 I, centre (1/2, 1/2), beta = 1: truth and P' on opposite "
        "sides of the ellipsoid, both distributions",
        float(np.abs(truth - other).max()),
        beta / sqrt(n),
    )


def _divergence(p: ArrayLike, q: ArrayLike) -> float:
    """sum p log(p / q) of two vectors with the same total mass."""
    a, b = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    positive = a > 0.0
    return float((a[positive] * np.log(a[positive] / b[positive])).sum())


def _pythagoras(rng: np.random.Generator, trials: int) -> FloatArray:
    """(D(q*, q_new) + D(q_new, q~)) / D(q*, q~), q* under the true kernel, q~ = q exp(-loss)."""
    result = np.empty(trials)
    for i in range(trials):
        mdp = small_world(rng)
        layers = mdp.layers
        confidence_set = boundary_set(mdp, int(rng.integers(5, 50)), rng)
        shapes = [(size, mdp.n_actions) for size in mdp.layer_sizes[:-1]]
        previous = [rng.dirichlet(np.ones(n * a)).reshape(n, a) for n, a in shapes]
        loss = [rng.uniform(0.0, 3.0, size=shape) for shape in shapes]
        step = mirror_descent_step(confidence_set, previous, loss, 1.0)
        star = occupancy_measure(mdp, random_policy(mdp.layer_sizes, mdp.n_actions, rng))
        new, target = layers.flatten(step.q), layers.flatten(star)
        free = layers.flatten(previous) * np.exp(-layers.flatten(loss))
        # D has the masses of both arguments in it; those of q~ are not one per layer.
        excess = free.sum() - layers.horizon
        left = _divergence(target, new) + _divergence(new, free) + excess
        result[i] = left / (_divergence(target, free) + excess)
    return result


def bow_tie(reach: float, p: float, m: float) -> tuple[float, float]:
    """Left and right side of the same inequality for a set that shares one parameter among its rows.

    Two actions lead to a good state with probability 1/2 + x and 1/2 - x, |x| <= reach.  In terms of p, the mass
    of the first action, and m, that of the good state, the set of occupancy measures is |m - 1/2| <= reach |2 p - 1|.
    (p, m) is projected on it; q* is (1, 1/2 + reach).
    """

    def binary(a: float, b: float) -> float:
        return _divergence([a, 1.0 - a], [b, 1.0 - b])

    def nearest_mass(share: float) -> float:
        half = reach * abs(2.0 * share - 1.0)
        return min(max(m, 0.5 - half), 0.5 + half)

    def objective(share: float) -> float:
        return binary(share, p) + binary(nearest_mass(share), m)

    # Two wings, on each of which the problem is convex.
    wings = [
        minimize_scalar(objective, bounds=side, method="bounded", options={"xatol": 1e-12})
        for side in ((0.0, 0.5), (0.5, 1.0))
    ]
    share = float(min(wings, key=lambda found: float(found.fun)).x)
    new = share, nearest_mass(share)
    left = binary(1.0, new[0]) + binary(0.5 + reach, new[1]) + objective(share)
    return left, binary(1.0, p) + binary(0.5 + reach, m)


def _bow_ties(rng: np.random.Generator, trials: int) -> FloatArray:
    sides = [bow_tie(0.3, rng.uniform(0.1, 0.5), rng.uniform(0.5, 0.9)) for _ in range(trials)]
    return np.array([left / right for left, right in sides])


def _coupled_pythagoras() -> Refutation:
    left, right = bow_tie(0.3, 0.45, 0.8)
    return Refutation(
        "E6",
        "D(q*, q~) >= D(q*, q_new) + D(q_new, q~) for the projection on Delta(P), one theta for all pairs",
        "bow tie: P(good | a1) = 1/2 + x, P(good | a2) = 1/2 - x, |x| <= 0.3; q~ with q(a1) = 0.45, "
        "q(good) = 0.8; q* with q(a1) = 1, q(good) = 0.8",
        left,
        right,
    )


CHECKS = (
    Check(
        "Lemma 4: transition difference",
        "|P'(s'|s,a) - P(s'|s,a)| <= min(1, 2 beta |phi|_{Lambda^-1}) for all P' in the set, the truth in it",
        _transition_difference(2.0),
        "beta in place of 2 beta, as printed",
        _transition_difference(1.0),
        40,
        refutation=_printed_transition_difference,
    ),
    Check(
        "Pythagorean inequality of the mirror step",
        "D(q*, q~) >= D(q*, q_new) + D(q_new, q~) for q_new the projection on Delta(P), theta free per pair",
        _pythagoras,
        "one theta for all pairs of a layer (the set as printed)",
        _bow_ties,
        40,
        refutation=_coupled_pythagoras,
    ),
)
