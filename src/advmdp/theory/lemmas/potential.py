"""Determinants of Gram matrices: Lemmas 16 and 17, and how the two regressions compare (Remark 1)."""

from __future__ import annotations

from math import log

import numpy as np

from advmdp.confidence import EllipsoidSet, radii
from advmdp.confidence.estimators import AllNextStates, OneNextState
from advmdp.layered import FloatArray
from advmdp.theory.lemmas.base import Check, Refutation, family
from advmdp.theory.lemmas.coverage import play_estimators, small_world


def _vectors(rng: np.random.Generator, shape: tuple[int, ...], spread: float) -> FloatArray:
    """Vectors of norm at most one, around a random axis if the spread is small."""
    x = spread * rng.normal(size=shape) + rng.normal(size=shape[-1])
    return np.asarray(x / np.maximum(1.0, np.linalg.norm(x, axis=-1, keepdims=True)))


@family
def _determinant_trace(rng: np.random.Generator, trials: int, norm: float) -> FloatArray:
    """det(lambda I + sum x x') / (lambda + t / d)^d, vectors of norm at most ``norm``."""
    result = np.empty(trials)
    for i in range(trials):
        d, t = int(rng.integers(1, 6)), int(rng.integers(1, 60))
        regularisation = float(rng.uniform(0.1, 3.0))
        x = norm * _vectors(rng, (t, d), float(rng.choice([0.1, 10.0])))
        if i % 4 == 0:
            x = norm * np.eye(d)[np.arange(t) % d]  # evenly spread: equality if d divides t
        gram = regularisation * np.eye(d) + x.T @ x
        result[i] = np.linalg.det(gram) / (regularisation + t / d) ** d
    return result


@family
def _potential(rng: np.random.Generator, trials: int, squared: bool) -> FloatArray:
    """sum_s min(1, sum_i |x_si|^(2 or 1)) in the inverse Gram before s, over 2 d log(lambda_{t+1} + t N / d)."""
    result = np.empty(trials)
    for i in range(trials):
        d, n, t = int(rng.integers(1, 5)), int(rng.integers(1, 5)), 200
        x = _vectors(rng, (t, n, d), float(rng.choice([0.1, 10.0])))
        growing = bool(i % 2)
        result[i] = potential_ratio(x, growing, squared)
    return result


def potential_ratio(x: FloatArray, growing: bool, squared: bool) -> float:
    """Left over right side of the generalised elliptical potential lemma for vectors x of shape (t, N, d)."""
    t, n, d = x.shape
    moments = np.zeros((d, d))
    left = 0.0
    for s in range(t):
        regularisation = 1.0 + (log(1.0 + s) if growing else 0.0)
        solved = np.linalg.solve(moments + regularisation * np.eye(d), x[s].T)
        norms = np.einsum("nd,dn->n", x[s], solved)
        left += min(1.0, float((norms if squared else np.sqrt(norms)).sum()))
        moments += x[s].T @ x[s]
    last = 1.0 + (log(1.0 + t) if growing else 0.0)
    return float(left / (2.0 * d * log(last + t * n / d)))


def _printed_potential() -> Refutation:
    steps = np.arange(10_000)
    return Refutation(
        "E18",
        "sum_s min(1, sum_i |x_si|_{Lambda_s^-1}) <= 2 d log(lambda_{t+1} + t N L^2 / d), norms not squared",
        "d = N = 1, x = 1, lambda = 1, t = 10 000: the left side grows as sqrt(t)",
        float((1.0 / np.sqrt(1.0 + steps)).sum()),
        2.0 * log(1.0 + steps.size),
    )


@family
def _gram_order(rng: np.random.Generator, trials: int, swapped: bool) -> FloatArray:
    """Largest eigenvalue of Lambda^-1 M after a run, M from one next state per step and Lambda from all."""
    result = []
    for _ in range(trials):
        mdp = small_world(rng)
        one, every = OneNextState.empty(mdp.horizon, mdp.dim), AllNextStates.empty(mdp.horizon, mdp.dim)
        for states, actions in play_estimators(mdp, 40, rng):
            one = one.add(mdp.model, states, actions, one.estimate(1.0))
            every = every.add(mdp.model, states, actions)
        smaller, larger = one.estimate(1.0).grams, every.estimate(1.0).grams
        if swapped:
            smaller, larger = larger, smaller
        result.extend(np.linalg.eigvals(np.linalg.solve(larger, smaller)).real.max(axis=1))
    return np.array(result)


def _printed_sets_are_tighter() -> Refutation:
    """Mean widths beta |phi| of the two sets after 500 episodes on one world with 8 next states."""
    rng = np.random.default_rng(0)
    mdp = small_world(rng, layer_sizes=(1, 8, 8, 1), dim=4)
    n_states, horizon, dim, episodes, zeta = mdp.n_states, mdp.horizon, mdp.dim, 500, 0.05
    one, every = OneNextState.empty(horizon, dim), AllNextStates.empty(horizon, dim)
    for states, actions in play_estimators(mdp, episodes, rng):
        one = one.add(mdp.model, states, actions, one.estimate(1.0))
        every = every.add(mdp.model, states, actions)
    k = episodes + 1
    growing = radii.growing_regularisation(k, n_states, dim)
    widths = []
    for estimate, radius in (
        (every.estimate(growing), radii.paper(k, n_states, horizon, dim, growing, zeta, mdp.bound)),
        (one.estimate(1.0), None),
    ):
        ends = [np.zeros(dim)], [np.eye(dim)]
        centres, grams = [*estimate.centres, *ends[0]], [*estimate.grams, *ends[1]]
        norms = feature_norms(EllipsoidSet(mdp.features, centres, grams, 0.0))
        per_layer = [
            radii.scalar(value, horizon - 1, dim, 1.0, zeta, mdp.bound) if radius is None else radius
            for value in estimate.log_determinants
        ]
        widths.append(float(np.mean([beta * table.mean() for beta, table in zip(per_layer, norms, strict=True)])))
    return Refutation(
        "E11",
        "the set of VLSUOB-REPS is tighter than that of LSUOB-REPS since M <= Lambda (Remark 1)",
        "its printed radius is larger by more than the norms are smaller: mean widths of the two sets after 500 "
        "episodes, 8 next states, d = 4",
        widths[0],
        widths[1],
    )


def feature_norms(confidence_set: EllipsoidSet) -> list[FloatArray]:
    """|phi(s' | s, a)| in the inverse Gram matrix of each regressed layer, tables (S_h, A, S_{h+1})."""
    norms = []
    for features, gram in zip(confidence_set.features[:-1], confidence_set.grams, strict=False):
        whitened = np.linalg.solve(np.linalg.cholesky(gram), features.reshape(-1, features.shape[3]).T)
        norms.append(np.sqrt(np.einsum("dr,dr->r", whitened, whitened)).reshape(features.shape[:3]))
    return norms


CHECKS = (
    Check(
        "Lemma 16: determinant and trace",
        "det(lambda I + sum x x') <= (lambda + t L^2 / d)^d",
        _determinant_trace(1.0),
        "vectors longer than L by 10%",
        _determinant_trace(1.1),
        400,
    ),
    Check(
        "Lemma 17: generalised elliptical potential",
        "sum_s min(1, sum_i |x_si|^2_{Lambda_s^-1}) <= 2 d log(lambda_{t+1} + t N L^2 / d), norms squared",
        _potential(squared=True),
        "norms not squared, as printed",
        _potential(squared=False),
        60,
        refutation=_printed_potential,
    ),
    Check(
        "Remark 1: M <= Lambda",
        "the Gram matrix of one next state per step is at most that of all next states",
        _gram_order(swapped=False),
        "the two exchanged",
        _gram_order(swapped=True),
        20,
        refutation=_printed_sets_are_tighter,
    ),
)
