"""Points of docs/errata.md that concern code of this library and are not checks of `advmdp.theory.lemmas`."""

from __future__ import annotations

import numpy as np

from advmdp.confidence import radii
from advmdp.confidence.estimators import AllNextStates, RidgeSums
from advmdp.theory.lemmas.coverage import play_estimators, small_world


def test_e3_ellipsoids_hold_rows_that_are_no_probabilities():
    rng = np.random.default_rng(0)
    mdp = small_world(rng, dim=3)
    growing = radii.growing_regularisation(2, mdp.n_states, mdp.dim)
    ((states, actions),) = play_estimators(mdp, 1, rng)
    estimate = AllNextStates.empty(mdp.horizon, mdp.dim).add(mdp.features, states, actions).estimate(growing)
    beta = radii.paper(2, mdp.n_states, mdp.horizon, mdp.dim, growing, 0.05, mdp.bound)
    directions = rng.normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    surface = estimate.centres[0] + beta * directions @ np.linalg.inv(np.linalg.cholesky(estimate.grams[0]))
    rows = surface @ mdp.features[0][0, 0].T
    assert rows.min() < -0.5
    assert np.abs(rows.sum(axis=1) - 1.0).max() > 1.0


def test_e10_the_printed_radius_falls_before_it_grows():
    S, H, d, zeta, B = 10, 5, 3, 0.01, 1.0
    beta = [radii.paper(k, S, H, d, radii.growing_regularisation(k, S, d), zeta, B) for k in range(1, 2000)]
    assert beta[0] > 2 * beta[1]
    assert np.argmin(beta) == 5  # k = 6
    assert beta[1] < beta[-1] < beta[0]


def test_e28_sign_of_the_ridge_bias():
    """With targets that are exactly P, theta_k - theta = -lambda Lambda^-1 theta."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20, 3))
    theta = rng.normal(size=3)
    moments = (x.T @ x)[None]
    estimate = RidgeSums(moments, moments @ theta).estimate(0.7)
    bias = -0.7 * np.linalg.solve(estimate.grams[0], theta)
    np.testing.assert_allclose(estimate.centres[0] - theta, bias, atol=1e-12)
    assert np.abs(bias).max() > 1e-3
