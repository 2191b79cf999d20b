"""The arithmetic of the studies that no table shows."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pandas as pd
import pytest

from advmdp.confidence import radii
from advmdp.experiments import Store, run_spec
from advmdp.experiments.measures import WidthsMeasure
from studies import actions, losses, rate
from studies.common import complete, filled, paired, read_spec, summed, thinned, world_option
from tests.experiments.specs import small_spec


def test_an_option_of_the_world_is_read_from_the_id_of_a_cell():
    cell = "random-mixture-dim=2-layer_sizes=1-4-4-1-seed=7__switching-period=9__vlsuob-reps-simplex=false__K10__s0"
    assert world_option(cell, "dim", "3") == "2"
    assert world_option(cell, "layer_sizes", "") == "1-4-4-1"
    assert world_option(cell, "seed", "0") == "7"
    # Those of the adversary and the learner are not the world's.
    assert world_option(cell, "period", "none") == world_option(cell, "simplex", "none") == "none"


def test_sums_from_logged_episodes_are_close_to_the_sums_over_all(tmp_path, monkeypatch):
    spec = small_spec(episodes=200, seeds=1, learners=["lsuob-reps"], measures=["widths"])
    run_spec(spec, tmp_path / "logged", workers=0)
    monkeypatch.setattr("advmdp.experiments.measures.logged_episodes", lambda episodes: list(range(1, episodes + 1)))
    current = spec.cells[0].build()
    every = WidthsMeasure(current.mdp, current.learner, 200)
    current.watch = every
    current.play()
    logged = Store(tmp_path / "logged").load()
    for name, values in every.columns().items():
        assert summed(logged, name) == pytest.approx(values.sum(), rel=0.02), name


def test_a_sum_over_a_straight_line_is_exact():
    run = pd.DataFrame({"episode": [1, 4, 10], "x": [3.0, 9.0, 21.0]})
    assert summed(run, "x") == sum(1 + 2 * k for k in range(1, 11))


def test_orders_cross_where_the_paper_says():
    for A in (2, 18, 1000):
        d = actions.order_crossing(A)
        linear = d * sqrt(actions.H * actions.S**3) + sqrt(actions.H * actions.S * A)
        assert linear == pytest.approx(actions.H * actions.S * sqrt(A))
        assert d < sqrt(actions.H * A / actions.S)


@pytest.mark.parametrize("A", [2, 18])
def test_explicit_bounds_cross_where_they_are_equal(A):
    d = actions.explicit_crossing(A)
    tables = actions.table_widths(A, actions.LONG)
    error = lambda visited: actions.H * (visited + 4.0 * (actions.H - 1) * log(actions.H / actions.ZETA))  # noqa: E731
    linear = dict(actions.bounds.vlsuob_reps_tight(actions.S, A, actions.H, actions.LONG, d, actions.ZETA).terms)[
        "ERROR"
    ]
    assert linear == pytest.approx(error(tables), rel=1e-3)


@pytest.mark.parametrize("favourite", [0.0, 0.9])
def test_widths_of_boxes_sum_to_less_than_their_bound(favourite):
    """Visits in doubling epochs, to pairs drawn evenly or mostly to one; the rows are as spread as rows can be."""
    A, following, episodes = 2, 3, 10_000
    rng = np.random.default_rng(5)
    frequency = np.full((1, following), 1.0 / following)
    total = 0.0
    for pairs in (A, 3 * A):
        visits, epoch = np.zeros(pairs), np.zeros(pairs)
        for _ in range(episodes):
            pair = 0 if rng.random() < favourite else rng.integers(pairs)
            half = radii.bernstein(frequency, epoch[[pair]], episodes, actions.S, A, actions.ZETA)
            total += min(2.0, 2.0 * half.sum()) if epoch[pair] > 0 else 2.0
            visits[pair] += 1.0
            if (visits >= np.maximum(1.0, 2.0 * epoch)).any():
                epoch = visits.copy()
    assert total < actions.table_widths(A, episodes)


def test_exponents_are_fitted_seed_by_seed_and_only_where_every_regret_is_positive():
    rows = pd.DataFrame(
        [
            (seed, K, scale * K**power)
            for seed, scale, power in ((0, 3.0, 0.5), (1, 8.0, 0.7))
            for K in (100, 1000, 10_000)
        ]
        + [(0, 10, -1.0), (1, 10, 2.0), (2, 100, 5.0)],  # a negative regret, and a seed that is not finished
        columns=["seed", "episode", "regret"],
    )
    with pytest.raises(ValueError, match="no exponent"):
        rate.exponents(rows[rows["episode"] <= 100])
    finished = rows[rows["seed"] < 2]
    assert rate.exponents(finished).tolist() == pytest.approx([0.5, 0.7])
    assert rate.exponents(rows[rows["episode"] > 10]).tolist() == pytest.approx([0.5, 0.7])


def test_pairs_are_taken_within_a_seed_and_open_ones_are_refused():
    table = pd.DataFrame(
        {"seed": [1, 0, 0, 1, 2], "learner": ["a", "a", "b", "b", "a"], "regret": [8.0, 3.0, 1.0, 2.0, 9.0]}
    )
    whole = complete(table, "learner")
    assert set(whole["seed"]) == {0, 1}
    assert paired(whole, "learner", "a", "b", "regret").to_dict() == {0: 2.0, 1: 6.0}
    assert paired(whole, "learner", "a", "b", "regret", log=True).to_dict() == pytest.approx({0: log(3.0), 1: log(4.0)})
    with pytest.raises(ValueError, match="not every seed"):
        paired(table, "learner", "a", "b", "regret")


def test_a_thinned_run_keeps_its_last_row():
    frame = pd.DataFrame({"cell": ["x"] * 6 + ["y"] * 5, "episode": [*range(1, 7), *range(1, 6)]})
    assert thinned(frame, 4)["episode"].tolist() == [2, 6, 1, 5]


def test_numbers_replace_what_stood_between_the_marks():
    page = "a\n<!-- numbers -->\nold\n<!-- end of numbers -->\nb\n"
    new = filled(page, "numbers", "12 ± 3")
    assert new == "a\n<!-- numbers -->\n\n12 ± 3\n\n<!-- end of numbers -->\nb\n"
    assert filled(new, "numbers", "12 ± 3") == new


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    ("spec", "other", "name"),
    [("known", "study-losses", losses.OURS), ("step", "study-losses-change", losses.FORGETS)],
)
def test_runs_with_the_constants_of_another_learner_have_them(spec, other, name, small):
    cell = next(cell for cell in read_spec(other, small).cells if cell.learner.name == name)
    theirs = cell.build().learner
    (ours,) = read_spec(f"study-losses-{spec}", small).learners
    assert ours.options["eta"] == pytest.approx(theirs.step_size, rel=1e-4)
    assert ours.options["gamma"] == pytest.approx(theirs.exploration, rel=1e-4)
