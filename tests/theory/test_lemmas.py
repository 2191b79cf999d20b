from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advmdp.theory import bounds
from advmdp.theory.lemmas import CHECKS, Check, Refutation, coverage, runs, strong, verify
from advmdp.theory.lemmas.base import scaled
from advmdp.theory.lemmas.geometry import bow_tie
from advmdp.theory.lemmas.potential import potential_ratio


@pytest.fixture(scope="module")
def results():
    return {result.name: result for result in verify(seed=0)}


@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_lemma(results, name):
    result = results[name]
    assert result.violations <= result.violations_allowed, result
    assert result.control_violations > result.violations_allowed, "the check is empty"
    assert np.isfinite(result.tightness)
    if result.refutation is not None:
        assert result.refutation.refuted
        assert result.verdict == "holds as corrected; false as printed"
    else:
        assert result.verdict == "holds"
    assert result.holds


def test_every_numbered_lemma_has_a_check():
    names = " ".join(check.name for check in CHECKS)
    for number in range(1, 18):
        assert f"Lemma {number}:" in names or f"Lemma {number} " in names or f"Lemma {number}," in names
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_a_check_is_repeatable():
    for check in CHECKS[:4]:
        assert check.run(5, 50) == check.run(5, 50)
        assert check.run(5, 50) != check.run(6, 50)


def uniform(rng, trials):
    return rng.random(trials)


HONEST = Check("x", "uniform <= 1", uniform, "times 0.1", scaled(uniform, 0.1), 100)


def test_verdicts():
    assert HONEST.run().verdict == "holds"
    violated = replace(HONEST, ratios=scaled(uniform, 0.5)).run()
    assert violated.verdict == "violated"
    assert not violated.holds
    empty = replace(HONEST, control_ratios=uniform).run()
    assert empty.verdict.startswith("says nothing")
    assert not empty.holds
    idle = replace(HONEST, refutation=lambda: Refutation("E0", "1 <= 2", "1 and 2", 1.0, 2.0)).run()
    assert "does not do its work" in idle.verdict
    assert not idle.holds


def test_a_failure_probability_allows_that_share_and_no_more():
    often = replace(HONEST, ratios=scaled(uniform, 0.8), failure=0.3, control_ratios=scaled(uniform, 0.1))
    assert often.run().violations_allowed == 30
    assert often.run().verdict == "holds"
    assert replace(often, failure=0.1).run().verdict == "violated"


def test_a_ratio_that_is_not_a_number_is_a_violation():
    broken = replace(HONEST, ratios=lambda rng, trials: np.full(trials, np.nan))
    assert broken.run().violations == 100


def test_potential_lemma_against_a_hand_computation():
    """d = N = 1, x = 1: the squared sum is the harmonic series, the printed one that of 1 / sqrt(s)."""
    x = np.ones((50, 1, 1))
    right = 2 * np.log(51.0)
    assert potential_ratio(x, growing=False, squared=True) == pytest.approx((1 / np.arange(1, 51)).sum() / right)
    assert potential_ratio(x, growing=False, squared=False) == pytest.approx(
        (1 / np.sqrt(np.arange(1, 51))).sum() / right
    )


def test_bow_tie_projection_against_a_grid():
    reach, p, m = 0.3, 0.45, 0.8
    share = np.concatenate([np.linspace(0.01, 0.99, 999), np.linspace(0.31, 0.325, 200_001)])
    half = reach * np.abs(2 * share - 1)
    mass = np.clip(m, 0.5 - half, 0.5 + half)

    def kl(a, b):
        return a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))

    best = np.argmin(kl(share, p) + kl(mass, m))
    left = -np.log(share[best]) + kl(0.8, mass[best]) + kl(share[best], p) + kl(mass[best], m)
    assert bow_tie(reach, p, m) == pytest.approx((left, -np.log(p)), rel=1e-6)
    assert (share[best], mass[best]) == pytest.approx((0.3175, 0.6095), abs=1e-4)


def test_recorded_estimates_are_those_of_the_visited_pairs():
    """lhat = l / (u + gamma) where visited, with the recorded u, and zero elsewhere."""
    (record,) = runs.records(seed=11, trials=3)[:1]
    expected = np.zeros_like(record.estimates)
    rows = np.arange(len(record.q))[:, None]
    seen = rows, record.visited
    expected[seen] = record.losses[seen] / (record.upper[seen] + record.exploration)
    np.testing.assert_allclose(record.estimates, expected, rtol=1e-9)


def test_every_run_is_held_against_the_bound_of_its_own_learner():
    names = [record.bound.name for record in runs.records(seed=11, trials=3)]
    assert names == ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps"]


def test_the_theorem_is_vacuous_in_the_runs_as_its_check_says():
    for record in runs.records(seed=11, trials=3):
        assert record.bound.value > record.mdp.horizon * len(record.q)


def test_runs_for_the_controls_miss_the_truth():
    assert not any(record.covered for record in runs.records(11, 3, 0.02))


def test_the_page_on_strong_learners_names_its_checks():
    """Each by its own name, and no other."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "strong-learners.md").read_text(encoding="utf-8")
    named = set(re.findall(r'"([A-Z][^"\n]+)"', re.sub(r"```.*?```", "", page, flags=re.DOTALL)))
    assert named == {check.name for check in strong.CHECKS}


def test_trajectories_of_a_policy_have_the_probabilities_of_its_occupancy_measure():
    mdp = coverage.small_world(np.random.default_rng(0), strong.TINY)
    policy = np.concatenate([np.tile([0.3, 0.7], n) for n in mdp.layer_sizes[:-1]])
    seen = np.zeros(policy.size)
    for episode, chance in strong.trajectories(mdp):
        seen[episode.pairs] += chance * policy[episode.pairs].prod()
    np.testing.assert_allclose(seen, strong.occupancies(mdp, policy[None])[0], atol=1e-14)


def test_boxes_of_the_conditional_runs_contain_the_truth_and_are_not_nested():
    rng = np.random.default_rng(1)
    mdp = coverage.small_world(rng)
    sets = [taken.played for taken in strong.conditional_run(mdp, rng, 20)]
    assert all(found.contains(mdp.kernels) for found in sets)
    lower, upper = ([found.hull()[side][1] for found in sets] for side in (0, 1))
    inside = [(a >= b).all() and (c <= d).all() for b, a, d, c in zip(lower, lower[1:], upper, upper[1:], strict=False)]
    assert not any(inside)
    others = [taken.played for taken in strong.conditional_run(mdp, rng, 5, centre=coverage.small_world(rng))]
    assert not any(found.contains(mdp.kernels) for found in others)


def test_the_wrong_portfolio_is_wrong():
    mdp, learner = strong.wrong_portfolio(np.random.default_rng(2))
    assert learner.name == "portfolio"
    assert np.abs(learner._problem.features[1] - mdp.model.features[1]).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("check", strong.CHECKS, ids=lambda check: check.name)
def test_strong_checks_with_other_seeds(check):
    for seed in range(1, 6):
        assert check.run(seed).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PAPER", "DETERMINANT", "JOINT", "SCALAR"])
def test_coverage_over_a_thousand_runs(name):
    ratios = getattr(coverage, name)(np.random.default_rng(7), 1000)
    assert np.count_nonzero(ratios > 1.0) <= coverage.ZETA * 1000
    assert np.count_nonzero(ratios > 0.1) > coverage.ZETA * 1000


@pytest.mark.slow
def test_coverage_over_fifty_full_runs():
    records = runs.records(seed=21, trials=50)
    assert sum(not record.covered for record in records) <= runs.ZETA * 50
    rng = np.random.default_rng(21)
    misses = 0
    for _ in range(50):
        mdp = coverage.small_world(rng)
        learner = runs.VlsuobReps(mdp.model, 60, radius="joint", radius_scale=0.1)
        misses += not runs.record_run(learner, mdp, rng, bounds.vlsuob_reps_tight).covered
    assert misses > runs.ZETA * 50
