"""Lemma 2 and its relatives: does the set contain the truth in all episodes at once?

The estimators are those of the learners; the policy is chosen from the data of earlier episodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from advmdp._arrays import Integers
from advmdp.confidence import radii
from advmdp.confidence.estimators import AllNextStates, OneNextState, RidgeEstimate
from advmdp.layered import FloatArray, LinearMixtureMDP
from advmdp.theory.lemmas.base import Check, Ratios, each_trial, scaled

ZETA = 0.1

#: Radius of one layer: (k, log det of its Gram matrix, the world) -> beta.
Radius = Callable[[int, float, LinearMixtureMDP], float]


def small_world(
    rng: np.random.Generator, layer_sizes: Sequence[int] = (1, 3, 3, 1), n_actions: int = 2, dim: int = 2
) -> LinearMixtureMDP:
    """A random mixture of ``dim`` random kernels."""
    steps = list(pairwise(layer_sizes))
    kernels = [[rng.dirichlet(np.full(m, 0.5), size=(n, n_actions)) for n, m in steps] for _ in range(dim)]
    return LinearMixtureMDP.from_kernels(kernels, rng.dirichlet(np.ones(dim), size=len(steps)))


def play_estimators(
    mdp: LinearMixtureMDP, episodes: int, rng: np.random.Generator
) -> Iterator[tuple[Integers, Integers]]:
    """States and actions of episodes whose actions favour, half of the time, what was tried least so far."""
    visits = [np.zeros(table.shape[:2]) for table in mdp.kernels]
    horizon = mdp.horizon
    for _ in range(episodes):
        states = np.zeros(horizon, dtype=np.int64)
        actions = np.zeros(horizon, dtype=np.int64)
        for h in range(horizon):
            s = states[h]
            least = rng.random() < 0.5
            a = int(visits[h][s].argmin()) if least else int(rng.integers(mdp.n_actions))
            actions[h] = a
            visits[h][s, a] += 1.0
            if h + 1 < horizon:
                row = mdp.kernels[h][s, a]
                states[h + 1] = min(int(np.searchsorted(np.cumsum(row), rng.random())), row.size - 1)
        yield states, actions


@each_trial
def coverage_ratios(
    rng: np.random.Generator,
    radius: Radius,
    regularisation: Callable[[int, LinearMixtureMDP], float],
    all_next_states: bool,
    episodes: int = 60,
) -> float:
    """max over episodes and layers of |theta_k - theta|_Gram / beta_k, one number per run of the estimator."""
    mdp = small_world(rng)
    theta = np.array(mdp.theta[:-1])
    kind: type[AllNextStates] | type[OneNextState] = AllNextStates if all_next_states else OneNextState
    sums = kind.empty(mdp.horizon, mdp.dim)
    estimate, worst = sums.estimate(regularisation(1, mdp)), 0.0
    for k, (states, actions) in enumerate(play_estimators(mdp, episodes, rng), start=2):
        # Episode k - 1 is in; the estimate is the one for episode k.
        sums = sums.add(mdp.model, states, actions, estimate)
        estimate = sums.estimate(regularisation(k, mdp))
        lengths = parameter_errors(estimate, theta)
        beta = [radius(k, float(value), mdp) for value in estimate.log_determinants]
        worst = max(worst, float((lengths / beta).max()))
    return worst


def parameter_errors(estimate: RidgeEstimate, theta: FloatArray) -> FloatArray:
    """|theta_k - theta|_Gram per layer."""
    errors = estimate.centres - theta
    return np.asarray(np.sqrt(np.einsum("hd,hde,he->h", errors, estimate.grams, errors)))


def _growing(k: int, mdp: LinearMixtureMDP) -> float:
    return radii.growing_regularisation(k, mdp.n_states, mdp.dim)


def _printed(k: int, log_determinant: float, mdp: LinearMixtureMDP) -> float:
    return radii.paper(k, mdp.n_states, mdp.horizon, mdp.dim, _growing(k, mdp), ZETA, mdp.bound)


def _determinant(k: int, log_determinant: float, mdp: LinearMixtureMDP) -> float:
    return radii.determinant(log_determinant, mdp.horizon, mdp.dim, _growing(k, mdp), ZETA, mdp.bound)


def _joint(k: int, log_determinant: float, mdp: LinearMixtureMDP) -> float:
    return radii.joint(log_determinant, mdp.horizon - 1, mdp.dim, 1.0, ZETA, mdp.bound)


def _scalar(k: int, log_determinant: float, mdp: LinearMixtureMDP) -> float:
    return radii.scalar(log_determinant, mdp.horizon - 1, mdp.dim, 1.0, ZETA, mdp.bound)


def _one(k: int, mdp: LinearMixtureMDP) -> float:
    return 1.0


PAPER = coverage_ratios(_printed, _growing, all_next_states=True)
DETERMINANT = coverage_ratios(_determinant, _growing, all_next_states=True)
JOINT = coverage_ratios(_joint, _one, all_next_states=True)
SCALAR = coverage_ratios(_scalar, _one, all_next_states=False)


def _coverage_check(name: str, statement: str, ratios: Ratios) -> Check:
    return Check(name, statement, ratios, "radius times 0.1", scaled(ratios, 0.1), 60, ZETA)


CHECKS = (
    _coverage_check(
        "Lemma 2: coverage, printed radius",
        "theta_h in the ellipsoid of radius beta_k (printed) for all k and h at once",
        PAPER,
    ),
    _coverage_check(
        "Lemma 2 with the determinant kept",
        "the same with the determinant of Lemma 1 instead of its bound by the trace",
        DETERMINANT,
    ),
    _coverage_check(
        "Joint radius: coverage",
        "theta_h in the ellipsoid of the joint radius for all k and h at once, lambda = 1",
        JOINT,
    ),
    _coverage_check(
        "LSUOB radius: coverage",
        "theta_h in the ellipsoid of the scalar radius for all k and h at once, lambda = 1",
        SCALAR,
    ),
)
