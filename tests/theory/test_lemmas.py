from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advmdp.theory import bounds
from advmdp.theory.lemmas import CHECKS, Check, Refutation, coverage, learner, record, runs, strong, verify
from advmdp.theory.lemmas.base import scaled
from advmdp.theory.lemmas.geometry import bow_tie
from advmdp.theory.lemmas.potential import potential_ratio

#: Above anything that a learner could do in runs of this length.
VACUOUS = {
    "Lemma 5: occupancy difference, intermediate",
    "Lemma 3: occupancy difference, final",
    "Theorem 1, constants included",
}


@pytest.fixture(scope="module")
def results():
    return {result.name: result for result in verify(seed=0)}


@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_lemma(results, name):
    result = results[name]
    assert result.violations <= result.violations_allowed, result
    assert np.isfinite(result.tightness)
    if name in VACUOUS:
        assert result.control_violations <= result.violations_allowed, "the check can fail after all"
        assert result.verdict == "cannot fail here"
    else:
        assert result.control_violations > result.violations_allowed, "the check is empty"
        assert result.verdict == ("holds" if result.refutation is None else "holds as corrected; false as printed")
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
    vacuous = replace(HONEST, control_ratios=uniform, vacuous=True).run()
    assert vacuous.verdict == "cannot fail here"
    assert vacuous.holds
    unexpected = replace(HONEST, vacuous=True).run()
    assert "and can" in unexpected.verdict
    assert not unexpected.holds
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


#: Who notices which fault, beside whom.
NOTICES = {
    "no gamma in the estimates": learner._estimate_errors,
    "no u in the estimates": runs._bias_two,
    "lower bound for u": learner._upper_errors,
    "no pi(a|s) in u": learner._upper_errors,
    "u of the set that holds the episode": learner._estimate_errors,
    "steps four times as long": learner._step_errors,
    "steps uphill": runs._mirror_descent,
    "steps over the set before the episode": runs.occupancy_ratio,
    "radii twice as large": learner._set_errors,
    "lambda that does not grow": learner._set_errors,
}


@pytest.mark.parametrize("fault", record.FAULTS)
def test_a_wrong_learner_is_noticed(fault):
    """In every run, by the named check; which passes the learner that the fault was put into."""
    found = [np.nanmax(NOTICES[fault](run)) for run in record.wrong_records(fault, 11, 2)]
    assert min(found) > 1.0
    assert max(np.max(NOTICES[fault](run)) for run in record.records(11, 3)) <= 1.0 + 1e-9


@pytest.mark.parametrize("fault", ["no gamma in the estimates", "radii twice as large"])
def test_the_lemmas_alone_do_not_see_every_fault(fault):
    """As docs/theory.md says: it takes the checks of the learner."""
    lemmas = (
        runs.occupancy_ratio,
        runs._first_step,
        runs._error,
        runs._bias_one(1.0),
        runs._bias_two,
        runs._mirror_descent,
        runs._second_moment,
    )
    assert max(np.max(lemma(run)) for lemma in lemmas for run in record.wrong_records(fault, 11, 2)) <= 1.0 + 1e-9


def test_the_first_set_of_a_learner_must_hold_everything():
    (run, *_) = record.records(11, 3)
    assert learner._set_errors(replace(run, sets=[run.sets[1], *run.sets[1:]]))[0] == np.inf


def test_a_step_is_not_optimal_if_a_pair_is_a_thousandth_off():
    (run, *_) = record.records(11, 3)
    shift = 1e-3 * np.tile([1.0, -1.0], run.q.shape[1] // 2)
    assert learner._step_errors(replace(run, q_hat=run.q_hat * (1.0 + shift))).min() > 1.0


def test_ends_of_a_segment_are_extreme_rows():
    """Distributions, of parameters on the surface of the ellipsoid or with an entry (or a weight) that is zero."""
    run = record.records(11, 3)[1]
    for k in (2, 20, 200):
        for h, ellipsoid in enumerate(learner.history_sets(run)[k - 1]):
            features = run.mdp.features[h]
            ends = learner.segment(features, ellipsoid, simplex=True)
            np.testing.assert_allclose(ends.sum(axis=3), 1.0, atol=1e-12)
            for s, a in np.ndindex(features.shape[:2]):
                for row in ends[:, s, a]:
                    theta = np.linalg.lstsq(features[s, a], row, rcond=None)[0]
                    away = theta - ellipsoid.centre
                    length = np.sqrt(away @ ellipsoid.gram @ away) / ellipsoid.radius
                    assert min(1.0 - length, row.min(), theta.min()) == pytest.approx(0.0, abs=1e-9)


def test_the_parts_of_the_regret_are_an_identity():
    """They add up to the regret for any numbers whatsoever, so that this says nothing about a learner."""
    rng = np.random.default_rng(0)
    (run, *_) = record.records(11, 3)
    tables = {name: rng.normal(size=run.q.shape) for name in ("q", "q_hat", "losses", "estimates")}
    anything = replace(run, **tables, comparator=rng.normal(size=run.comparator.shape))
    assert sum(runs.terms(anything).values()) == pytest.approx(runs.regret(anything), abs=1e-8)


def test_every_run_is_held_against_the_bound_of_its_own_learner():
    assert [run.bound.name for run in record.records(11, 3)] == ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps"]


def test_runs_for_the_controls_miss_the_truth():
    assert not any(run.covered for run in record.records(11, 3, 0.02))


def test_without_a_covered_run_a_lemma_about_them_is_violated(monkeypatch):
    missed = tuple(replace(run, covered=False) for run in record.records(11, 3))
    monkeypatch.setattr(runs, "records", lambda seed, trials, scale: missed)
    (check,) = (check for check in runs.CHECKS if check.name.startswith("Lemma 10"))
    assert check.run().verdict == "violated"


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
    assert sum(not run.covered for run in record.records(seed=21, trials=50)) <= record.ZETA * 50
    rng = np.random.default_rng(21)
    misses = 0
    for _ in range(50):
        mdp = coverage.small_world(rng)
        tight = record.VlsuobRepsTight(mdp.model, 60, radius_scale=0.1)
        misses += not record.record_run(tight, mdp, rng, bounds.vlsuob_reps_tight).covered
    assert misses > record.ZETA * 50
