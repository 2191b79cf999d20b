"""docs/errata.md says what `advmdp verify` finds, and gives every number that it finds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from advmdp.confidence import radii
from advmdp.confidence.estimators import AllNextStates, RidgeSums
from advmdp.theory.lemmas import CHECKS, refutations
from advmdp.theory.lemmas.coverage import play_estimators, small_world

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| (E\d+) \|.*$", PAGE, flags=re.MULTILINE)}
NUMBERS = [(name, number) for name, row in ROWS.items() for number in re.findall(r"`([^`]* > [^`]*)`", row)]


@pytest.fixture(scope="module")
def found():
    return [*refutations(), *(check.refutation() for check in CHECKS if check.refutation is not None)]


def test_every_counterexample_works(found):
    assert all(printed.refuted for printed in found)


def test_the_page_has_every_number_that_was_found_and_no_other(found):
    assert sorted(NUMBERS) == sorted((one.erratum, f"{one.left:.3g} > {one.right:.3g}") for one in found)


def test_every_number_from_1_to_38_has_one_row():
    assert len(re.findall(r"^\| E\d+ \|", PAGE, flags=re.MULTILINE)) == len(ROWS)
    assert set(ROWS) == {f"E{number}" for number in range(1, 39)}


def test_every_check_that_is_quoted_exists():
    quoted = {name for row in ROWS.values() for name in re.findall(r'"([^"]*)"', row.rsplit("|", 2)[1])}
    assert len(quoted) >= 10
    for name in quoted - {"= 0"}:
        assert any(check.name.startswith(name) for check in CHECKS), name


def test_how_often_the_printed_width_fails():
    (check,) = (check for check in CHECKS if check.name.startswith("Lemma 4"))
    result = check.run()
    assert f"{result.control_violations} of {result.trials} sets" in ROWS["E9"]


@pytest.mark.parametrize(
    ("erratum", "left", "right"),
    [
        ("E5", 0.5 + 0.3, 0.5),
        ("E9", np.sqrt(2.0) / 10.0, 0.1),
        ("E10", 1.25 + 2.0 * (2.0 * np.log(500.0) + 5.0 * np.log(20.0)), 27.4312),
        ("E18", 198.5446, 2.0 * np.log(10_001.0)),
        ("E27", 0.38636, 0.5 * (1.0 - np.exp(-1.0))),
    ],
)
def test_counterexamples_against_values_found_by_hand(found, erratum, left, right):
    (one,) = (one for one in found if one.erratum == erratum)
    assert (one.left, one.right) == (pytest.approx(left, rel=1e-4), pytest.approx(right, rel=1e-4))


def test_e3_ellipsoids_hold_rows_that_are_no_probabilities():
    rng = np.random.default_rng(0)
    mdp = small_world(rng, dim=3)
    growing = radii.growing_regularisation(2, mdp.n_states, mdp.dim)
    ((states, actions),) = play_estimators(mdp, 1, rng)
    estimate = AllNextStates.empty(mdp.horizon, mdp.dim).add(mdp.model, states, actions).estimate(growing)
    beta = radii.paper(2, mdp.n_states, mdp.horizon, mdp.dim, growing, 0.05, mdp.bound)
    directions = rng.normal(size=(2000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    surface = estimate.centres[0] + beta * directions @ np.linalg.inv(np.linalg.cholesky(estimate.grams[0]))
    rows = surface @ mdp.features[0][0, 0].T
    assert rows.min() < -0.5
    assert np.abs(rows.sum(axis=1) - 1.0).max() > 1.0


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
