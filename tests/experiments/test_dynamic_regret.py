"""Regret against changing comparators: brute force on tiny runs, identities, interruption."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import InvalidSpecError, make_adversary, make_learner, make_world, occupancy, run
from advmdp.experiments.runner import Run

WORLD = make_world("random-mixture", layer_sizes=(1, 2, 1), n_actions=2, dim=2)


def played(episodes, comparators, adversary="stochastic", learner="uniform", **options):
    losses = make_adversary(adversary, WORLD, episodes, **options)
    return run(WORLD, make_learner(learner, WORLD, episodes), losses, episodes, comparators=comparators), losses


def all_policies():
    for actions in itertools.product(range(2), repeat=3):
        yield [np.eye(2)[[actions[0]]], np.eye(2)[list(actions[1:])]]


def test_comparators_equal_brute_force():
    """Every deterministic policy for every segment of every choice of switching times."""
    K = 7
    result, losses = played(K, ("per-episode", 0, 1, 2), "switching", period=2)
    table = np.array(
        [[occupancy.expected_loss(WORLD, pi, losses.losses(k)) for pi in all_policies()] for k in range(K)]
    )
    last = result.frame.iloc[-1]
    own = last["cumulative_loss"]
    assert last["regret_per_episode"] == pytest.approx(own - table.min(axis=1).sum(), abs=1e-12)
    for m in (0, 1, 2):
        least = min(
            sum(table[a:b].sum(axis=0).min() for a, b in itertools.pairwise([0, *ends, K]))
            for ends in itertools.combinations_with_replacement(range(K + 1), m)
        )
        assert last[f"regret_{m}_switches"] == pytest.approx(own - least, abs=1e-12)


def test_rows_follow_one_and_the_same_sequence():
    """Within a run the comparator is fixed: its loss between two rows is that of the segments there."""
    K = 60
    result, losses = played(K, (2,), "switching", period=20)
    comparator = (result.frame["cumulative_loss"] - result.frame["regret_2_switches"]).to_numpy()
    best = [occupancy.best_policy(WORLD, losses.losses(k))[0] for k in (0, 20, 40)]
    for row, count in enumerate(result.frame["episode"]):
        expected = sum(occupancy.expected_loss(WORLD, best[k // 20], losses.losses(k)) for k in range(count))
        assert comparator[row] == pytest.approx(expected, abs=1e-10)


def test_no_switch_is_the_usual_regret_and_more_switches_only_help_the_comparator():
    frame = played(300, (0, 1, 3, 8, "per-episode"))[0].frame
    np.testing.assert_allclose(frame["regret_0_switches"], frame["regret"], atol=1e-9)
    last = frame.iloc[-1]
    ladder = [last["regret"], *(last[f"regret_{m}_switches"] for m in (1, 3, 8)), last["regret_per_episode"]]
    assert ladder == sorted(ladder)


def test_with_a_switch_before_every_episode_it_is_the_best_policy_of_each():
    frame = played(40, (39, "per-episode"))[0].frame
    np.testing.assert_allclose(frame["regret_39_switches"], frame["regret_per_episode"], atol=1e-9)


def test_more_switches_than_there_are_places_cost_no_more():
    """Rounds and memory follow the segments, not the number in a spec."""
    frame = played(40, (39, 2_000_000_000))[0].frame
    np.testing.assert_array_equal(frame["regret_2000000000_switches"], frame["regret_39_switches"])


def test_long_runs_switch_on_a_grid_that_finds_switches_on_it():
    """K = 1280: multiples of 10 are candidates, so that a change every 320 episodes is found."""
    last = played(1280, ("per-episode", 3, 2), "switching", period=320)[0].frame.iloc[-1]
    assert last["regret_3_switches"] == pytest.approx(last["regret_per_episode"], abs=1e-9)
    assert last["regret_2_switches"] < last["regret_3_switches"]


def test_frames_without_comparators_are_as_before():
    assert list(played(20, ())[0].frame.columns) == list(played(20, (1,))[0].frame.columns)[:-1]


@pytest.mark.parametrize("wrong", ["each", -1, 2.0, True])
def test_a_comparator_is_per_episode_or_a_number(wrong):
    with pytest.raises(InvalidSpecError, match="'per-episode' or a number of switches"):
        played(10, (wrong,))


def test_an_interrupted_run_has_the_same_dynamic_regret():
    def new():
        losses = make_adversary("stochastic", WORLD, 50)
        return Run(WORLD, make_learner("ftl", WORLD, 50), losses, 50, comparators=("per-episode", 2))

    whole, first, second = new(), new(), new()
    whole.play()
    first.play(23)
    second.set_state(first.state())
    second.play()
    assert whole.result().frame.equals(second.result().frame)
