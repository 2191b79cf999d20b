"""Statistics against closed forms, scipy, and simulated coverage."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from advmdp import InvalidSpecError
from advmdp.experiments.statistics import (
    final_regret,
    growth_exponents,
    last_rows,
    mean_and_interval,
    paired_differences,
    performance_profile,
    scaling_exponents,
)

EPISODES = np.unique(np.round(10 ** (np.arange(61) / 20))).astype(int)  # 1 to 1000


def curves(regret, learners=("uniform", "other"), worlds=("x",), seeds=3, episodes=(1, 10, 100)):
    """A frame whose regrets are ``regret(world, learner, seed, episode)``."""
    rows = [
        {"world": w, "adversary": "a", "learner": name, "seed": s, "episode": e, "regret": float(regret(w, name, s, e))}
        for w, name, s, e in product(worlds, learners, range(seeds), episodes)
    ]
    return pd.DataFrame(rows)


def from_table(table: dict[str, list[float]]) -> pd.DataFrame:
    """A frame of final regrets, a list over seeds for every learner."""
    return curves(lambda w, name, s, e: table[name][s], tuple(table), seeds=len(next(iter(table.values()))))


# ---------------------------------------------------------------------------------------------- means


def test_interval_is_students():
    mean, half = mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)  # t quantile with 2 degrees of freedom
    assert np.isnan(mean_and_interval([1.0])[1])


def test_with_five_seeds_students_interval_covers_and_the_bootstraps_does_not():
    samples = np.random.default_rng(0).normal(size=(2000, 5))
    covered = np.mean([abs(mean) <= half for mean, half in map(mean_and_interval, samples)])
    assert covered == pytest.approx(0.95, abs=0.015)  # three standard errors
    bootstrap = stats.bootstrap((samples,), np.mean, axis=-1, n_resamples=500, method="percentile", rng=1)
    low, high = bootstrap.confidence_interval
    assert np.mean((low <= 0.0) & (high >= 0.0)) < 0.87


def test_final_regret_is_that_of_the_last_episode_with_ratios_of_means():
    frame = curves(lambda w, name, s, e: e * (s + 1) * {"uniform": 2.0, "other": 1.0}[name], worlds=("x", "y"))
    table = final_regret(frame, references=("uniform", "absent")).set_index(["world", "learner"])
    assert table.loc[("y", "uniform"), "regret"] == pytest.approx(400.0)
    assert table.loc[("x", "other"), "half_width"] == pytest.approx(mean_and_interval([100.0, 200.0, 300.0])[1])
    assert table.loc[("x", "other"), "ratio_to_uniform"] == pytest.approx(0.5)
    assert table.loc[("x", "other"), ["seeds", "episodes"]].tolist() == [3, 100]
    assert table["ratio_to_absent"].isna().all()


def test_a_ratio_to_a_regret_that_is_not_positive_is_not_shown():
    table = final_regret(from_table({"uniform": [-1.0, -2.0], "other": [1.0, 2.0]}), references=("uniform",))
    assert table["ratio_to_uniform"].isna().all()


# ------------------------------------------------------------------------------------- paired differences


def test_paired_difference_is_scipys_paired_t_test():
    regrets = {"uniform": [10.0, 20.0, 40.0, 15.0], "other": [11.0, 23.0, 41.0, 19.0]}
    row = paired_differences(from_table(regrets), "uniform").iloc[0]
    test = stats.ttest_rel(regrets["other"], regrets["uniform"])
    interval = test.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(2.25)
    assert row["p"] == pytest.approx(test.pvalue)
    assert row["difference"] - row["half_width"] == pytest.approx(interval.low)
    assert row["p_adjusted"] == pytest.approx(test.pvalue)  # a single row needs no adjustment


def test_pairing_finds_what_separate_intervals_do_not():
    rng = np.random.default_rng(2)
    luck = 100.0 * rng.normal(size=5)
    frame = from_table({"base": list(1000 + luck), "worse": list(1010 + luck + rng.normal(size=5))})
    table = final_regret(frame).set_index("learner")
    assert table.loc["worse", "regret"] - table.loc["base", "regret"] < table.loc["base", "half_width"]
    assert paired_differences(frame, "base")["p"].item() < 0.001


def test_learners_are_paired_by_seed_and_length_not_by_position():
    frame = from_table({"uniform": [1.0, 2.0, 3.0], "other": [2.0, 4.0, 7.0]})
    shuffled = frame.sample(frac=1.0, random_state=0)
    first, second = (paired_differences(f, "uniform").iloc[0] for f in (frame, shuffled))
    assert first["p"] == second["p"]
    shorter = frame[~((frame["learner"] == "other") & (frame["seed"] == 2) & (frame["episode"] > 10))]
    assert paired_differences(shorter, "uniform")["seeds"].item() == 2


def test_no_test_without_spread():
    frame = from_table({"uniform": [0.1, 0.2, 0.3], "same": [0.1, 0.2, 0.3], "shifted": [1.1, 1.2, 1.3]})
    table = paired_differences(frame, "uniform").set_index("learner")
    assert table["difference"].tolist() == pytest.approx([0.0, 1.0])
    assert table["p"].isna().all()
    assert paired_differences(curves(lambda *key: 1.0, seeds=1), "uniform")["p"].isna().all()


def test_adjusted_p_values_rarely_find_differences_that_are_not_there():
    # Nine learners equal to the baseline, all compared with it: found in 5% of experiments at most.
    rng = np.random.default_rng(3)
    found = raw = 0
    trials = 60
    for _ in range(trials):
        names = ["base", *(f"learner {i}" for i in range(9))]
        table = paired_differences(from_table({name: list(rng.normal(size=6)) for name in names}), "base")
        found += (table["p_adjusted"] < 0.05).any()
        raw += (table["p"] < 0.05).any()
    assert raw > 0.15 * trials
    assert found <= 0.1 * trials  # 5%, and two standard errors


# ---------------------------------------------------------------------------------------------- growth


@pytest.mark.parametrize("exponent", [0.5, 2 / 3, 1.0])
def test_the_exponent_of_a_power_law_is_found_exactly(exponent):
    frame = curves(lambda w, name, s, e: (s + 1) * e**exponent, episodes=EPISODES)
    row = growth_exponents(frame).iloc[0]
    assert row["exponent"] == pytest.approx(exponent, abs=1e-12)
    assert row["half_width"] == pytest.approx(0.0, abs=1e-12)
    assert row["scale"] == pytest.approx(6 ** (1 / 3))  # the geometric mean of the seeds


def test_only_the_last_part_of_a_run_is_fitted():
    frame = curves(lambda w, name, s, e: -1.0 if e < 100 else np.sqrt(e), episodes=EPISODES)
    assert growth_exponents(frame)["exponent"].tolist() == pytest.approx([0.5, 0.5])
    assert growth_exponents(frame, since=0.01)["exponent"].isna().all()  # a logarithm of a negative regret


def test_the_interval_over_seeds_covers_where_that_of_one_regression_does_not():
    # Regret with independent increments: k + a random walk, whose expected slope on logarithms is about 1.
    rng = np.random.default_rng(4)
    kept = EPISODES[EPISODES >= 100]
    trials, over_seeds, one_regression = 200, 0, 0
    for _ in range(trials):
        walks = np.cumsum(1.0 + 3.0 * rng.normal(size=(5, 1000)), axis=1)[:, kept - 1]
        frame = curves(lambda w, name, s, e, w_=walks: w_[s, np.searchsorted(kept, e)], ("a",), seeds=5, episodes=kept)
        row = growth_exponents(frame).iloc[0]
        over_seeds += abs(row["exponent"] - 1.0) <= row["half_width"]
        fit = stats.linregress(np.log(kept), np.log(walks.mean(axis=0)))
        one_regression += abs(fit.slope - 1.0) <= stats.t.ppf(0.975, len(kept) - 2) * fit.stderr
    assert over_seeds >= 0.9 * trials
    assert one_regression <= 0.6 * trials


def test_scaling_is_that_of_the_final_regrets_of_runs_of_different_lengths():
    # Within a run regret is linear, but the regret of a run of length K is 3 sqrt(K).
    runs = [
        curves(lambda w, name, s, e, k=k: 3 * e / np.sqrt(k), episodes=(k // 2, k)).assign(
            adversary=f"a[K={k}]", episodes=k
        )
        for k in (100, 200, 400)
    ]
    table = scaling_exponents(pd.concat(runs, ignore_index=True))
    assert table["adversary"].tolist() == ["a", "a"]
    assert table["exponent"].tolist() == pytest.approx([0.5, 0.5])
    assert table["scale"].tolist() == pytest.approx([3.0, 3.0])
    with pytest.raises(InvalidSpecError, match="all of one length"):
        scaling_exponents(runs[0])


def test_since_is_a_fraction():
    with pytest.raises(InvalidSpecError, match="since is 100"):
        growth_exponents(curves(lambda *key: 1.0), since=100)


# --------------------------------------------------------------------------------------------- profiles


def test_profile_is_the_share_of_runs_below_each_ratio():
    regrets = {"uniform": [10.0, 10.0, 10.0, 10.0], "good": [1.0, 2.0, 2.0, 20.0]}
    profile = performance_profile(from_table(regrets))
    good = profile[profile["learner"] == "good"]
    assert good["ratio"].tolist() == pytest.approx([0.1, 0.2, 2.0])
    assert good["share"].tolist() == pytest.approx([0.25, 0.75, 1.0])
    assert good["low"].iloc[-1] == pytest.approx(0.025**0.25)  # Clopper and Pearson for 4 of 4
    assert good["high"].iloc[-1] == 1.0
    assert profile.loc[profile["learner"] == "uniform", "ratio"].tolist() == [1.0]


def test_profile_counts_only_problems_where_every_learner_ran():
    both = curves(lambda w, name, s, e: 2.0 if w == "x" else 5.0, worlds=("x", "y"))
    partial = both[~((both["world"] == "y") & (both["learner"] == "other"))]
    assert set(performance_profile(partial)["runs"]) == {3}
    negative = curves(lambda w, name, s, e: -1.0 if s == 0 else 1.0)
    assert set(performance_profile(negative)["runs"]) == {2}
    assert performance_profile(curves(lambda *key: 0.0)).empty


def test_the_profiles_interval_covers_although_worlds_differ():
    # Four seeds on each of three worlds, where a run has half of uniform's regret with chances 0.9, 0.5 and 0.1.
    rng = np.random.default_rng(5)
    chances = {"x": 0.9, "y": 0.5, "z": 0.1}
    trials, covered = 60, 0
    for _ in range(trials):
        draws = {key: rng.random() < chances[key[0]] for key in product(chances, range(4))}
        regret = lambda w, name, s, e, d=draws: 1.0 if name == "other" and d[w, s] else 2.0  # noqa: E731
        profile = performance_profile(curves(regret, worlds=tuple(chances), seeds=4, episodes=(1,)))
        row = profile[(profile["learner"] == "other") & (profile["ratio"] == 0.5)]
        covered += row["low"].item() <= 0.5 <= row["high"].item() if len(row) else False
    assert covered >= 0.95 * trials


# ----------------------------------------------------------------------------------------------- frames


def test_a_frame_without_the_needed_columns_is_named():
    with pytest.raises(InvalidSpecError, match=r"lacks the columns \['seed', 'regret'\]"):
        last_rows(curves(lambda *key: 1.0).drop(columns=["seed", "regret"]))
    with pytest.raises(InvalidSpecError, match="no rows"):
        final_regret(curves(lambda *key: 1.0).iloc[:0])
    for function in (paired_differences, performance_profile):
        with pytest.raises(InvalidSpecError, match=r"'nobody' is not in the frame; its learners are \['uniform', 'o"):
            function(curves(lambda *key: 1.0), "nobody")
