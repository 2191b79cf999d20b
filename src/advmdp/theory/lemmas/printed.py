"""Printed statements that are false and belong to no check: an instance of each, exact or from the library's own code.

Numbers are those of docs/errata.md.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from advmdp.confidence import EllipsoidSet, radii
from advmdp.confidence.estimators import RidgeSums
from advmdp.occupancy import occupancy_measure, uniform_policy
from advmdp.solvers import upper_occupancy
from advmdp.theory.lemmas.base import Refutation


def bow_tie_set(reach: float) -> EllipsoidSet:
    """P(good | a1) = (1 + t) / 2, P(good | a2) = (1 - t) / 2 with theta = (1, t), |t| <= 2 reach: d = 2, |phi| < 1."""
    plus, minus = [0.5, 0.5], [0.5, -0.5]
    features = [np.array([[[plus, minus], [minus, plus]]]), np.full((2, 2, 1, 2), 0.5)]
    return EllipsoidSet(features, [np.array([1.0, 0.0])] * 2, [np.eye(2)] * 2, 2.0 * reach)


def set_without_kernels() -> Refutation:
    """E3, on the set of the bow tie: theta = (1 + 0.6, 0) is in the ellipsoid, and its rows sum to 1.6."""
    confidence_set = bow_tie_set(0.3)
    theta = confidence_set.centres[0] + confidence_set.radius[0] * np.array([1.0, 0.0])
    return Refutation(
        "E3",
        "P_{k,h} = {phi' theta, theta in C_{k,h}} is a set of kernels, whose rows have l1 norm 1",
        "d = 2, theta = (1.6, 0) at distance 0.6 = beta of the centre (1, 0), Gram I: the sum of a row",
        float((confidence_set.features[0][0, 0] @ theta).sum()),
        1.0,
    )


def first_set_is_wider() -> Refutation:
    """E4: layers 1-2-1, d = 1, phi = P, theta = B = 1; P_1 holds the kernel that always moves to the rare state."""
    rare, n_states, horizon, dim, bound, zeta = 0.01, 4, 2, 1, 1.0, 0.05
    beta = radii.paper(1, n_states, horizon, dim, radii.growing_regularisation(1, n_states, dim), zeta, bound)
    return Refutation(
        "E4",
        "|P'(s'|s,a) - P(s'|s,a)| <= beta_k |phi(s'|s,a)| for all k, for k = 1 with P_1 all kernels",
        "S = 4, H = 2, d = B = 1, zeta = 0.05, phi = P = (0.01, 0.99), P' = (1, 0): the difference at the first state",
        1.0 - rare,
        beta * rare,
    )


def procedure_exceeds_the_maximum() -> Refutation:
    """E5, bow tie, uniform policy: with one theta for both actions the good state has mass 1/2 whatever theta is."""
    confidence_set = bow_tie_set(0.3)
    policy = uniform_policy(confidence_set.layer_sizes, confidence_set.n_actions)
    return Refutation(
        "E5",
        "max over P_k (one theta per layer) of the occupancy of a state is what Comp-UOB computes",
        "P(good | a1) = 1/2 + x, P(good | a2) = 1/2 - x, |x| <= 0.3, uniform policy: rows chosen one by one reach "
        "the good state with the left probability, every single x with the right one",
        float(upper_occupancy(confidence_set, policy)[1][0]),
        0.5,
    )


def two_kernels_for_one_measure() -> Refutation:
    """E7: two actions that lead to two states, and the same with the states exchanged."""
    last = np.ones((2, 2, 1))
    kernels = [[np.array([rows]), last] for rows in ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]])]
    policy = uniform_policy((1, 2, 1), 2)
    measures = [np.concatenate([table.ravel() for table in occupancy_measure(pair, policy)]) for pair in kernels]
    return Refutation(
        "E7",
        "an occupancy measure q(s, a) induces a transition: kernels with the same q are the same",
        "a1 leads to x and a2 to y, or the reverse; uniform policy: largest differences of the kernels and of q",
        float(np.abs(kernels[0][0] - kernels[1][0]).max()),
        float(np.abs(measures[0] - measures[1]).max()),
    )


def radius_falls() -> Refutation:
    """E10 at the sizes of docs/joint-radius.md."""
    n_states, horizon, dim, zeta, bound = 20, 5, 5, 0.01, 1.0
    first, last = (
        radii.paper(k, n_states, horizon, dim, radii.growing_regularisation(k, n_states, dim), zeta, bound)
        for k in (1, 10**6)
    )
    return Refutation(
        "E10", "beta_k <= beta_K", "d = 5, S = 20, H = 5, B = 1, zeta = 0.01: beta_1 and beta_K, K = 10^6", first, last
    )


def sum_of_bounds() -> Refutation:
    """E16: phi the unit vectors of R^10, Gram I, beta = 1."""
    n, beta = 10, 1.0
    return Refutation(
        "E16",
        "sum_s' eps_k(s'|s,a) <= 2 for eps = min(1, beta |phi|)",
        "ten next states with phi the unit vectors, Gram I, beta = 1",
        n * min(1.0, beta),
        2.0,
    )


def second_moment_without_products() -> Refutation:
    """E17: one visited pair, six next states."""
    n, eps = 6, 0.5
    return Refutation(
        "E17",
        "E[(sum_w 1_k eps)^2] / S_{m+1}^2 = E[sum_w 1_k eps^2] / S_{m+1}^2",
        "one pair, six next states, eps = 1/2",
        (n * eps) ** 2 / n**2,
        n * eps**2 / n**2,
    )


def separate_clips() -> Refutation:
    """E19: d = 1, phi = 1 for each of 1000 next states, Lambda_1 = 1."""
    n = 1000
    return Refutation(
        "E19",
        "sum_k sum_s' min(1, |phi|)^2 <= 2 d log(lambda_{K+1} + K N / d), each next state clipped by itself",
        "d = 1, 1000 next states with phi = 1, K = 1, lambda = 1",
        float(n),
        2.0 * log(1.0 + n),
    )


def lost_factor() -> Refutation:
    """E20: one next state per layer, so that Cauchy-Schwarz is an equality."""
    norms = np.full(100, 0.1)
    return Refutation(
        "E20",
        "4 sum_k min(1, sum_s' |phi|) <= 2 sqrt(K N sum_k min(1, sum_s' |phi|^2))",
        "one next state, 100 episodes with |phi| = 0.1 in all of them",
        4.0 * float(norms.sum()),
        2.0 * sqrt(norms.size * float((norms**2).sum())),
    )


def not_vacuous() -> Refutation:
    """E24."""
    n_states, n_actions, horizon, episodes = 1001, 2, 10, 1000
    return Refutation(
        "E24",
        "S > K makes sqrt(H S A K) vacuous, that is at least H K",
        "S = 1001, K = 1000, H = 10, A = 2: H K and sqrt(H S A K)",
        float(horizon * episodes),
        sqrt(horizon * n_states * n_actions * episodes),
    )


def estimated_loss_below_horizon() -> Refutation:
    """E26, one layer."""
    u, gamma, loss = 0.1, 0.1, 0.5
    return Refutation(
        "E26",
        "sum_{s,a} u_k lhat_k = H",
        "one layer, the visited pair with u = gamma = 0.1 and loss 0.5: H and the sum",
        1.0,
        u * loss / (u + gamma),
    )


def closed_form_of_the_free_step() -> Refutation:
    """E27: one state, two actions; the objective eta <q, lhat> + D(q, q_hat_k) at the printed and at the right form."""
    eta, loss, before = 1.0, (1.0, 0.0), (0.5, 0.5)
    free = [q * exp(-eta * x) for q, x in zip(before, loss, strict=True)]
    after = [q / sum(free) for q in free]  # the projection on the simplex
    printed = [q * exp(-eta * x) for q, x in zip(after, loss, strict=True)]

    def objective(point: list[float]) -> float:
        terms = zip(point, before, loss, strict=True)
        return sum(eta * p * x + p * log(p / q) - p + q for p, q, x in terms)

    return Refutation(
        "E27",
        "q~_{k+1} = q_hat_{k+1} exp(-eta lhat_k) minimises eta <q, lhat_k> + D(q, q_hat_k) over q >= 0",
        "one state, two actions, q_hat_k = (1/2, 1/2), lhat = (1, 0), eta = 1: the objective there, and at "
        "q_hat_k exp(-eta lhat_k)",
        objective(printed),
        objective(free),
    )


def sign_and_norm_of_the_ridge_bias() -> tuple[Refutation, Refutation]:
    """E28: d = 1, theta = 1, 99 observations of phi = 1 without noise, lambda = 1."""
    theta, regularisation, count = 1.0, 1.0, 99.0
    estimate = RidgeSums(np.full((1, 1, 1), count), np.full((1, 1), count * theta)).estimate(regularisation)
    centre, gram = float(estimate.centres[0, 0]), float(estimate.grams[0, 0, 0])
    instance = "d = 1, theta = 1, 99 observations of phi = 1 without noise, lambda = 1: "
    return (
        Refutation(
            "E28",
            "theta_k = theta + lambda Lambda^-1 theta without noise",
            instance + "the right side and theta_k",
            theta + regularisation * theta / gram,
            centre,
        ),
        Refutation(
            "E28",
            "|theta_k - theta|_Lambda = lambda |theta|_Lambda without noise",
            instance + "the right and the left side",
            regularisation * theta * sqrt(gram),
            abs(centre - theta) * sqrt(gram),
        ),
    )


def refutations() -> tuple[Refutation, ...]:
    """All of them, in the order of docs/errata.md."""
    return (
        set_without_kernels(),
        first_set_is_wider(),
        procedure_exceeds_the_maximum(),
        two_kernels_for_one_measure(),
        radius_falls(),
        sum_of_bounds(),
        second_moment_without_products(),
        separate_clips(),
        lost_factor(),
        not_vacuous(),
        estimated_loss_below_horizon(),
        closed_form_of_the_free_step(),
        *sign_and_norm_of_the_ridge_bias(),
    )
