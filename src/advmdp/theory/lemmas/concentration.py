"""Concentration of one-hot noise: Lemmas 1 and 8 to 15 of the paper, and the joint radius in their place.

Notation of the paper: a one-hot vector delta with mean p over N outcomes, noise eps = p - delta, one feature vector x_j
per outcome, z = sum_j eps_j x_j, S_t the sum of the z, Y_t the sum of all x x' plus lambda_t I.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, log, pi, sqrt

import numpy as np

from advmdp.confidence import radii
from advmdp.layered import FloatArray
from advmdp.theory.lemmas.base import Check, Refutation, each_trial, family, scaled

ZETA = 0.1

#: A radius of :mod:`radii`; without B and for one layer it is the bound on |S|_{Y^-1}:
#: (log det Y, horizon, dimension, regularisation, failure, B).
Radius = Callable[[float, int, int, float, float, float], float]


# --------------------------------------------------------------------------------------- one step


def _one_hot_noise(rng: np.random.Generator, trials: int, n: int) -> tuple[FloatArray, FloatArray]:
    """Means p of one-hot vectors, and the noise p - delta for each of the n outcomes: (trials, outcome, n)."""
    # Small concentrations give nearly deterministic outcomes, where skewed noise is at its worst.
    concentration = rng.choice([0.05, 0.5, 5.0], size=(trials, 1))
    weights = rng.gamma(concentration, size=(trials, n)) + 1e-300
    p = weights / weights.sum(axis=1, keepdims=True)
    return p, p[:, None, :] - np.eye(n)


@family
def _joint_sub_gaussian(rng: np.random.Generator, trials: int, constant: float) -> FloatArray:
    """log E exp<v, p - delta> against constant |v|^2."""
    p, noise = _one_hot_noise(rng, trials, 5)
    v = rng.normal(size=(trials, 5)) * np.exp(rng.uniform(-4.0, 2.0, size=(trials, 1)))
    # The extreme direction: two outcomes of probability one half each, pulled apart.
    extreme = np.arange(trials) % 4 == 0
    p[extreme], v[extreme, 2:] = 0.0, 0.0
    p[extreme, :2] = 0.5
    v[extreme, 1] = -v[extreme, 0]
    noise = p[:, None, :] - np.eye(5)
    exponents = np.einsum("toj,tj->to", noise, v)
    # E <v, noise> = 0 exactly: subtracting it leaves the small exponents their digits.
    mean = np.einsum("to,to->t", p, np.expm1(exponents) - exponents)
    return np.asarray(np.log1p(mean) / (constant * np.einsum("tj,tj->t", v, v)))


@family
def _supermartingale(rng: np.random.Generator, trials: int, constant: float) -> FloatArray:
    """E exp(xi' z) against exp(constant sum_j (xi' x_j)^2), for |xi| <= 1/2 and |x_j| <= 1."""
    n, d = 4, 3
    p, noise = _one_hot_noise(rng, trials, n)
    x = rng.normal(size=(trials, n, d))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
    xi = rng.normal(size=(trials, d))
    xi *= 0.5 * rng.uniform(size=(trials, 1)) / np.linalg.norm(xi, axis=1, keepdims=True)
    along = np.einsum("tjd,td->tj", x, xi)
    exponents = np.einsum("toj,tj->to", noise, along)
    mean = np.einsum("to,to->t", p, np.expm1(exponents) - exponents)
    return np.asarray(np.log1p(mean) / (constant * np.einsum("tj,tj->t", along, along)))


def _printed_supermartingale() -> Refutation:
    """One dimension, x = (1, 0), p = (1/2, 1/2), lambda = 1, xi = 1/2, first outcome the first state."""
    xi, regularisation = 0.5, 1.0
    first = exp(xi * -0.5 - xi**2 * (1.0 + regularisation))
    second = sum(0.5 * exp(xi * z - xi**2 * (2.0 + regularisation)) for z in (-0.5, 0.5))
    return Refutation(
        "E15",
        "M_t = exp(xi' z_t - |xi|^2_{Y_t}) is a supermartingale",
        "d = 1, x = (1, 0), p = (1/2, 1/2), lambda = 1, xi = 1/2, z_1 = -1/2: E[M_2 | F_1] exceeds M_1",
        second,
        first,
    )


@family
def _exponential_moment(rng: np.random.Generator, trials: int, factor: float) -> FloatArray:
    """E exp(lambda eps) - 1 against factor lambda^2 sigma^2, |eps| <= 1 centred, |lambda| <= 1."""
    weights = rng.dirichlet(np.full(3, 0.3), size=trials)
    values = rng.uniform(-1.0, 1.0, size=(trials, 3))
    values -= np.einsum("tj,tj->t", weights, values)[:, None]
    values /= np.maximum(1.0, np.abs(values).max(axis=1, keepdims=True))
    exponents = rng.uniform(-1.0, 1.0, size=(trials, 1)) * values
    variance = np.einsum("tj,tj->t", weights, exponents**2)
    mean = np.einsum("tj,tj->t", weights, np.expm1(exponents) - exponents)
    return np.asarray(mean / (factor * np.maximum(variance, 1e-300)))


@family
def _normalisers(rng: np.random.Generator, trials: int, factor: float) -> FloatArray:
    """N(h) / N(g) against factor^d sqrt(det Y / lambda^d), in one and two dimensions."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    angles = np.arange(64) * (2.0 * pi / 64)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)

    def disc_integral(precision: FloatArray, radius: float) -> float:
        """Integral of exp(-xi' precision xi) over a disc, in polar coordinates."""
        r = 0.5 * radius * (nodes + 1.0)
        quadratic = np.einsum("ad,de,ae->a", directions, precision, directions)
        values = np.exp(-np.outer(quadratic, r**2)) * r
        return float((values @ weights).sum() * 0.5 * radius * (2.0 * pi / 64))

    result = np.empty(trials)
    for i in range(trials):
        regularisation = exp(rng.uniform(-2.0, 3.0))
        growth = np.exp(rng.uniform(-6.0, 3.0, size=2))
        if i % 2:
            y = regularisation + growth[0]
            left = sqrt(y / regularisation) * erf(sqrt(regularisation) / 2.0) / erf(sqrt(y) / 4.0)
            result[i] = left / (factor * sqrt(y / regularisation))
        else:
            gram = np.diag(regularisation + growth)
            left = disc_integral(regularisation * np.eye(2), 0.5) / disc_integral(gram, 0.25)
            result[i] = left / (factor**2 * sqrt(np.linalg.det(gram)) / regularisation)
    return result


# --------------------------------------------------------------------------------- self-normalised sums


@family
def _self_normalised(
    rng: np.random.Generator, trials: int, radius: Radius, growing: bool, all_outcomes: bool, steps: int = 150
) -> FloatArray:
    """max over t of |S_t|_{Y_t^-1} / radius, where features are chosen by the past.

    Of four candidate feature matrices the one is taken whose outcomes differ most along Y^-1 S: an adversary
    who tries to push the sum further out.
    """
    n, d = 4, 3
    everyone = np.arange(trials)
    noise_sum = np.zeros((trials, d))
    moments = np.zeros((trials, d, d))
    worst = np.zeros(trials)
    for t in range(1, steps + 1):
        regularisation = d * log((t + 1) * n) if growing else 1.0
        candidates = rng.normal(size=(trials, 4, n, d))
        candidates /= np.maximum(1.0, np.linalg.norm(candidates, axis=3, keepdims=True))
        gram = moments + regularisation * np.eye(d)
        push = np.linalg.solve(gram, noise_sum[:, :, None])[:, :, 0]
        along = np.einsum("tcjd,td->tcj", candidates, push)
        x = candidates[everyone, np.ptp(along, axis=2).argmax(axis=1)]
        p = rng.dirichlet(np.full(n, 0.5), size=trials)
        outcome = (rng.random((trials, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=n - 1)
        noise = p.copy()
        noise[everyone, outcome] -= 1.0
        if not all_outcomes:
            # Regression on one outcome, fixed before it is known.
            x, noise = x[:, :1], noise[:, :1]
        noise_sum += np.einsum("tj,tjd->td", noise, x)
        moments += np.einsum("tjd,tje->tde", x, x)
        gram = moments + regularisation * np.eye(d)
        solved = np.linalg.solve(gram, noise_sum[:, :, None])[:, :, 0]
        length = np.sqrt(np.einsum("td,td->t", noise_sum, solved))
        log_determinants = np.linalg.slogdet(gram)[1]
        bound = np.array([radius(float(value), 1, d, regularisation, ZETA, 0.0) for value in log_determinants])
        worst = np.maximum(worst, length / bound)
    return worst


@family
def _bernstein(rng: np.random.Generator, trials: int, share: float) -> FloatArray:
    """(sum Y - share lambda sum E[Y^2]) / (log(1 / zeta) / lambda), skewed differences whose size follows the past.

    The lemma is about share one.
    """
    parameter = 0.5
    total, variance = np.zeros(trials), np.zeros(trials)
    for _ in range(200):
        chance = np.where(total > 0.0, 0.02, 0.2)
        fall = chance / (1.0 - chance)
        total += np.where(rng.random(trials) < chance, 1.0, -fall)
        variance += chance + (1.0 - chance) * fall**2
    return np.asarray((total - share * parameter * variance) * parameter / log(1.0 / ZETA))


@family
def _visited_widths(rng: np.random.Generator, trials: int, logarithm: float) -> FloatArray:
    """sum E[e_k] / (2 sum e_k(visited) + 8 logarithm log(1 / zeta)), widths in [0, 2] that follow the past.

    Wide rows are seldom visited: the case in which the visited widths say least about the expected ones.
    """
    expected, visited = np.zeros(trials), np.zeros(trials)
    for _ in range(120):
        chance = np.where(visited > 0.0, 0.01, 0.05)
        expected += 2.0 * chance
        visited += 2.0 * (rng.random(trials) < chance)
    right = 2.0 * visited + 8.0 * logarithm * log(1.0 / ZETA)
    return np.asarray(np.divide(expected, right, out=np.full(trials, np.inf), where=right > 0.0))


@family
def _implicit_exploration(rng: np.random.Generator, trials: int, honesty: float) -> FloatArray:
    """sum_k sum_h sum_a 2 gamma (lhat_k - (q_k / u_k) l_k) / (H log(H / zeta)), H = 3 layers of three pairs.

    The estimate divides by honesty times u; the lemma is about honesty one.  In half of the trials the layers move
    together, as in a chain that copies its state: all of them are far out at once.
    """
    gamma, n, horizon = 0.05, 3, 3
    total = np.zeros(trials)
    everyone = np.arange(trials)
    together = everyone % 2 == 0
    # Few rounds: the estimate drifts below zero, and later the statement is far from tight.
    for _ in range(12):
        q, noise = rng.dirichlet(np.ones(n), size=trials), rng.random((trials, 1))
        for _ in range(horizon):
            fresh, fresh_noise = rng.dirichlet(np.ones(n), size=trials), rng.random((trials, 1))
            q = np.where(together[:, None], q, fresh)
            noise = np.where(together[:, None], noise, fresh_noise)
            u = q * rng.uniform(1.0, 1.2, size=(trials, n))
            losses = rng.random((trials, n)) < 0.7
            visited = everyone, (noise > np.cumsum(q, axis=1)).sum(axis=1).clip(max=n - 1)
            total += 2.0 * gamma * losses[visited] / (honesty * u[visited] + gamma)
            total -= 2.0 * gamma * (q / u * losses).sum(axis=1)
    return np.asarray(total / (horizon * log(horizon / ZETA)))


# ------------------------------------------------------------------------- the printed radius, for all k


@each_trial
def _printed_against_joint(rng: np.random.Generator, scale: float) -> float:
    """Noise part of the joint radius with prior precision lambda_2, over that of the printed radius, k >= 2.

    With Lambda_k >= Lambda_k - (lambda_k - lambda_2) I, the joint bound for the constant lambda_2 holds for the
    growing lambda_k as well, for all k at once; so the printed radius does where it is larger.
    """
    dim = int(np.exp(rng.uniform(0.0, log(500.0))))
    horizon = int(rng.integers(2, 30))
    n_states = horizon + 1 + int(np.exp(rng.uniform(0.0, log(1e4))))
    k = 2 + int(np.exp(rng.uniform(0.0, log(1e12))))
    zeta = float(np.exp(rng.uniform(log(1e-6), log(0.9))))
    first = radii.growing_regularisation(2, n_states, dim)
    now = radii.growing_regularisation(k, n_states, dim)
    log_determinant = dim * log(first + (k - 1) * n_states / dim)
    joint = radii.joint(log_determinant, horizon, dim, first, zeta, 0.0)
    return float(joint / (scale * radii.paper(k, n_states, horizon, dim, now, zeta, 0.0)))


LEMMA_1 = _self_normalised(radii.determinant, growing=True, all_outcomes=True)
JOINT = _self_normalised(radii.joint, growing=False, all_outcomes=True)
SCALAR = _self_normalised(radii.scalar, growing=False, all_outcomes=False)

CHECKS = (
    Check(
        "Lemma 1: self-normalised concentration",
        "|S_t|_{Y_t^-1} <= sqrt(lambda_t)/4 + 4/sqrt(lambda_t) log(2^d det(Y_t)^(1/2) lambda_t^(-d/2) / zeta) "
        "for all t, lambda_t growing",
        LEMMA_1,
        "right side times 0.1",
        scaled(LEMMA_1, 0.1),
        300,
        ZETA,
    ),
    Check(
        "Lemma 8: supermartingale step",
        "M_t = exp(xi' S_t - sum_{i<=t} sum_j (xi' x_ij)^2) is a supermartingale for |xi| <= 1/2",
        _supermartingale(1.0),
        "coefficient 0.1 instead of 1",
        _supermartingale(0.1),
        4000,
        refutation=_printed_supermartingale,
    ),
    Check(
        "Lemma 9: normalising constants",
        "N(h) / N(g) <= 2^d det(Y)^(1/2) lambda^(-d/2)",
        _normalisers(2.0),
        "without 2^d",
        _normalisers(1.0),
        400,
    ),
    Check(
        "Lemma 12: exponential moment",
        "E exp(lambda eps) <= 1 + lambda^2 sigma^2 for centred |eps| <= 1, |lambda| <= 1",
        _exponential_moment(1.0),
        "half the variance",
        _exponential_moment(0.5),
        4000,
    ),
    Check(
        "Lemma 13: Bernstein for martingales",
        "sum Y_k <= lambda sum E[Y_k^2] + log(1/zeta) / lambda for |Y_k| <= R, lambda <= 1/R",
        _bernstein(1.0),
        "without the variance, and a tenth of the rest",
        scaled(_bernstein(0.0), 0.1),
        4000,
        ZETA,
    ),
    Check(
        "Lemma 14: implicit exploration",
        "sum_k sum_{s,a} alpha_k (lhat_k - (q_k/u_k) l_k) <= H log(H/zeta), alpha_k <= 2 gamma",
        _implicit_exploration(1.0),
        "estimates made with a fifth of u",
        _implicit_exploration(0.2),
        2000,
        ZETA,
    ),
    Check(
        "Expected and visited widths",
        "sum_k sum q_k e_k <= 2 sum_k e_k(visited) + 8 log(1/zeta) in a layer, 0 <= e_k <= 2 (docs/theory.md, step 3)",
        _visited_widths(1.0),
        "without the logarithm",
        _visited_widths(0.0),
        4000,
        ZETA,
    ),
    Check(
        "Lemma 15: self-normalised bound, scalar noise",
        "|S_t|^2_{V_t^-1} <= 2 R^2 log(det(V_t)^(1/2) det(V)^(-1/2) / zeta) for all t; an indicator minus its "
        "mean has R = 1/2",
        SCALAR,
        "right side times 0.1",
        scaled(SCALAR, 0.1),
        300,
        ZETA,
    ),
    Check(
        "Joint sub-Gaussian noise",
        "E exp<v, p - delta> <= exp(|v|^2 / 4) for one-hot delta with mean p, any v",
        _joint_sub_gaussian(0.25),
        "constant 1/8: what independent coordinates would have",
        _joint_sub_gaussian(0.125),
        4000,
    ),
    Check(
        "Joint self-normalised bound",
        "|S_t|^2_{Y_t^-1} <= log(det(Y_t)^(1/2) lambda^(-d/2) / zeta) for all t, lambda constant",
        JOINT,
        "right side times 0.1",
        scaled(JOINT, 0.1),
        300,
        ZETA,
    ),
    Check(
        "Lemma 2 for all k at once",
        "the noise part of the printed radius is at least that of the joint bound with lambda_2 (k S <= 1e16)",
        _printed_against_joint(1.0),
        "printed radius times 0.3",
        _printed_against_joint(0.3),
        2000,
    ),
)
