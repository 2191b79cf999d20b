"""Confidence radii: pure functions of numbers, each a bound on |theta_estimate - theta|_Gram.

Conventions: ``k`` is the number of the episode that the set is for, counted from 1 as in the paper (so k - 1
episodes are in the estimate); ``n_states`` is S, ``horizon`` H, ``dim`` d, ``failure`` the failure probability zeta
(shared by the H layers), ``bound`` the bound B on the parameters, ``regularisation`` the lambda of the ridge
regression.  Logarithms are natural.  ``log_determinant`` is log det(Gram), the regularisation included.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray


def growing_regularisation(k: int, n_states: int, dim: int) -> float:
    """lambda_1 = 1, lambda_k = d log(k S): Theorem 1 of the paper."""
    return 1.0 if k == 1 else dim * log(k * n_states)


def paper(
    k: int,
    n_states: int,
    horizon: int,
    dim: int,
    regularisation: float,
    failure: float,
    bound: float,
    slack: float = 0.25,
) -> float:
    """beta_k as printed in Lemma 2.

    The paper's proof gives it for each fixed k; for all k >= 2 at once it follows from the joint bound
    (``docs/joint-radius.md``).

    (B + 1/4) sqrt(lambda) + (2 / sqrt(lambda)) (2 log(H / zeta) + d log(4 + 4 S k / (lambda d))).
    """
    root = sqrt(regularisation)
    growth = dim * log(4.0 + 4.0 * n_states * k / (regularisation * dim))
    return (bound + slack) * root + 2.0 / root * (2.0 * log(horizon / failure) + growth)


def paper_uniform(
    k: int, n_states: int, horizon: int, dim: int, regularisation: float, failure: float, bound: float
) -> float:
    """The printed radius with 1/2 in place of 1/4: what a direct repair of the printed proof costs.

    The Gaussian prior in that proof depends on lambda_k, which breaks the argument for all k together; a prior that is
    uniform on the ball of radius 1/2 does not.
    """
    return paper(k, n_states, horizon, dim, regularisation, failure, bound, slack=0.5)


def determinant(
    log_determinant: float, horizon: int, dim: int, regularisation: float, failure: float, bound: float
) -> float:
    """The data-dependent form that Lemma 1 gives before the determinant is bounded by its trace.

    Like the printed radius it holds for all k >= 2 at once by comparison with the joint bound.

    (B + 1/4) sqrt(lambda) + (4 / sqrt(lambda)) log(2^d det(Gram)^(1/2) lambda^(-d/2) H / zeta).
    """
    root = sqrt(regularisation)
    information = 0.5 * (log_determinant - dim * log(regularisation))
    return (bound + 0.25) * root + 4.0 / root * (log(horizon / failure) + dim * log(2.0) + information)


def joint(log_determinant: float, horizon: int, dim: int, regularisation: float, failure: float, bound: float) -> float:
    """The radius from the joint sub-Gaussianity of one-hot noise; constant lambda, all k at once.

    B sqrt(lambda) + sqrt(log(H / zeta) + log(det(Gram) / lambda^d) / 2): the noise of all next states together
    satisfies E exp(<v, noise>) <= exp(|v|^2 / 4), so the self-normalised bound for R^2 = 1/2 applies as it stands.
    """
    information = 0.5 * (log_determinant - dim * log(regularisation))
    return bound * sqrt(regularisation) + sqrt(log(horizon / failure) + information)


def scalar(
    log_determinant: float,
    horizon: int,
    dim: int,
    regularisation: float,
    failure: float,
    bound: float,
    span: float = 1.0,
) -> float:
    """The radius of regression on one number per step; constant lambda, all k at once.

    B sqrt(lambda) + R sqrt(2 log(H / zeta) + log(det(Gram) / lambda^d)) with R = span / 2: the target minus its mean
    ranges over an interval of length ``span``.  That is 1 for the visit of one next state (LSUOB-REPS), and the number
    of steps that follow for the value of the next state (OPPO, UCRL-VTR).
    """
    information = log_determinant - dim * log(regularisation)
    return bound * sqrt(regularisation) + 0.5 * span * sqrt(2.0 * log(horizon / failure) + information)


def self_normalised_bernstein(
    k: int,
    horizon: int,
    dim: int,
    regularisation: float,
    failure: float,
    bound: float,
    *,
    deviation: float,
    largest: float,
    length: float,
) -> float:
    """The radius of regression with noise of known variance (Zhou, Gu, Szepesvari 2021, Theorem 4.1), all k at once.

    B sqrt(lambda) + 8 sigma sqrt(d log(1 + k L^2 / (d lambda)) log(4 k^2 H / zeta)) + 4 R log(4 k^2 H / zeta), with
    ``deviation`` sigma, ``largest`` R, a bound on the noise, and ``length`` L, one on the regressors.
    """
    confidence = log(4.0 * k * k * horizon / failure)
    growth = dim * log(1.0 + k * length * length / (dim * regularisation))
    return bound * sqrt(regularisation) + 8.0 * deviation * sqrt(growth * confidence) + 4.0 * largest * confidence


def bernstein(
    frequency: NDArray[np.float64],
    visits: NDArray[np.float64],
    episodes: float,
    n_states: int,
    n_actions: float,
    failure: float,
) -> NDArray[np.float64]:
    """Half-widths around empirical frequencies (UOB-REPS), shape of ``frequency`` (..., next states).

    2 sqrt(p log(K S A / delta) / max(1, N - 1)) + 14 log(K S A / delta) / (3 max(1, N - 1)); ``visits`` is N, without
    the last axis, or one for each frequency.
    """
    confidence = log(episodes * n_states * n_actions / failure)
    denominator = np.maximum(1.0, visits - 1.0)
    if visits.ndim < frequency.ndim:
        denominator = denominator[..., None]
    return 2.0 * np.sqrt(frequency * confidence / denominator) + 14.0 * confidence / (3.0 * denominator)


def weissman(
    visits: NDArray[np.float64], n_next: int, episodes: int, n_states: int, n_actions: float, failure: float
) -> NDArray[np.float64]:
    """Radii in l1 norm around empirical rows over m = ``n_next`` states (UC-O-REPS), shape of ``visits`` N.

    sqrt(2 m log(K S A / delta) / max(1, N)).  Weissman's inequality with a union over pairs and visits asks for
    sqrt(2 (m log 2 + log(K S A / delta)) / N), which is not more for m >= 2 and K S A / delta >= 4.
    """
    confidence = log(episodes * n_states * n_actions / failure)
    return np.sqrt(2.0 * n_next * confidence / np.maximum(1.0, visits))
