"""Playing an episode, and refusing one that cannot have happened."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import (
    Episode,
    InvalidEpisodeError,
    InvalidMDPError,
    TabularModel,
    make_learner,
    make_world,
    occupancy,
    play,
)
from advmdp.episodes import check_episode

WORLD = make_world("random-mixture", layer_sizes=(1, 3, 2, 1), n_actions=2, dim=2)
LOSSES = [np.linspace(0.1, 0.9, n * 2).reshape(n, 2) for n in WORLD.layer_sizes[:-1]]


def test_visits_have_the_frequencies_of_the_occupancy_measure():
    rng = np.random.default_rng(0)
    policy = occupancy.random_policy(WORLD.layer_sizes, WORLD.n_actions, rng)
    counts = [np.zeros_like(table) for table in policy]
    trials = 20_000
    for _ in range(trials):
        episode = play(WORLD, policy, LOSSES, rng)
        for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=True)):
            counts[h][s, a] += 1
    for count, q in zip(counts, occupancy.occupancy_measure(WORLD, policy), strict=True):
        np.testing.assert_allclose(count / trials, q, atol=6 * 0.5 / np.sqrt(trials))


def test_losses_are_those_of_the_visited_pairs():
    episode = play(WORLD, occupancy.uniform_policy(WORLD.layer_sizes, 2), LOSSES, np.random.default_rng(1))
    expected = [LOSSES[h][s, a] for h, (s, a) in enumerate(zip(episode.states, episode.actions, strict=True))]
    np.testing.assert_array_equal(episode.losses, expected)


def test_every_episode_draws_the_same_amount_of_luck():
    rng, other = np.random.default_rng(2), np.random.default_rng(2)
    play(WORLD, occupancy.uniform_policy(WORLD.layer_sizes, 2), LOSSES, rng)
    other.random(2 * WORLD.horizon)
    assert rng.random() == other.random()


def test_a_policy_that_is_no_distribution_is_named():
    policy = occupancy.uniform_policy(WORLD.layer_sizes, 2)
    policy[1] = policy[1].copy()
    policy[1][2] = [0.7, 0.7]
    with pytest.raises(InvalidMDPError, match=r"policy, layer 1, state 2: probabilities \[0.7 0.7\]"):
        play(WORLD, policy, LOSSES, np.random.default_rng(0))


GOOD = {"states": [0, 2, 1], "actions": [1, 0, 1], "losses": [0.0, 0.5, 1.0]}
BAD = {
    "too few states": ({"states": [0, 2]}, "states has 2 entries, should have 3"),
    "a state that does not exist": ({"states": [0, 3, 1]}, "layer 1: state 3 does not exist, .* 0 to 2"),
    "a terminal state that does not exist": ({"states": [0, 2, 1, 1]}, "layer 3: state 1 does not exist"),
    "fractional states": ({"states": [0, 1.5, 1]}, "states should be a list of integers"),
    "text": ({"actions": ["left", "up", "up"]}, "actions should be a list of integers"),
    "booleans": ({"actions": [True, False, True]}, "actions should be a list of integers"),
    "nested lists": ({"states": [[0, 2, 1]]}, "states should be a list of integers"),
    "ragged lists": ({"states": [[0], [1, 2]]}, "states is not a list of integers"),
    "an unknown action": ({"actions": [1, 2, 1]}, "layer 1, state 2: action 2 does not exist, .* 0 to 1"),
    "too many losses": ({"losses": [0.0] * 4}, "losses has 4 entries, should have 3"),
    "a loss above one": ({"losses": [0.0, 1.1, 0.0]}, "layer 1, state 2, action 0: loss 1.1 is not"),
    "losses that are text": ({"losses": ["a", "b", "c"]}, "losses is not an array of numbers"),
    "losses in a matrix": ({"losses": [[0.0, 0.5, 1.0]]}, "losses should be a list of numbers"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_impossible_episodes_are_refused_with_their_place(change, message):
    check_episode(Episode(**GOOD), WORLD.layers)
    with pytest.raises(InvalidEpisodeError, match=message):
        check_episode(Episode(**{**GOOD, **change}), WORLD.layers)


def test_a_loss_that_was_not_seen_and_one_that_comes_later_are_told_apart():
    unseen = check_episode(Episode(**{**GOOD, "losses": [0.0, np.nan, 1.0]}), WORLD.layers)
    assert not unseen.complete
    assert unseen.later is None
    later = check_episode(Episode(**{**GOOD, "losses": [0.0, None, np.nan]}), WORLD.layers)
    assert later.later.tolist() == [False, True, False]
    assert check_episode(Episode(**{**GOOD, "losses": None}), WORLD.layers).later.all()
    assert check_episode(Episode(**GOOD), WORLD.layers).complete


def test_an_impossible_transition_is_refused():
    grid = make_world("grid", height=3, width=3)  # from (0, 1) the cell (2, 0) cannot be reached
    episode = Episode([0, 0, 2, 1], [0, 0, 0, 0], [0.0] * 4)
    check_episode(episode, grid.layers)
    with pytest.raises(InvalidEpisodeError, match="layer 1, state 0, action 0: next state 2 is impossible"):
        check_episode(episode, grid.layers, grid.model.possible_rows)


def test_what_is_no_episode_is_refused():
    with pytest.raises(InvalidEpisodeError, match="expected an Episode, got NoneType"):
        check_episode(None, WORLD.layers)


def test_the_terminal_state_may_be_left_out_or_given():
    for states in ([0, 2, 1], [0, 2, 1, 0], np.array([0, 2, 1], dtype=np.uint8), (0, 2, 1)):
        checked = check_episode(Episode(states, GOOD["actions"], GOOD["losses"]), WORLD.layers)
        assert checked.states.tolist() == [0, 2, 1]
        assert checked.pairs.tolist() == [1, 2 + 4, 2 + 6 + 3]


def test_full_information_needs_a_table_that_agrees():
    def check(table, losses=GOOD["losses"]):
        episode = Episode(GOOD["states"], GOOD["actions"], losses, table)
        return check_episode(episode, WORLD.layers, full_information=True)

    with pytest.raises(InvalidEpisodeError, match="loss_table is missing"):
        check(None)
    with pytest.raises(InvalidEpisodeError, match="loss_table has 1 layers"):
        check([LOSSES[0]])
    with pytest.raises(InvalidEpisodeError, match=r"layer 0, state 0, action 1: loss_table has 0\.9, but"):
        check(LOSSES)
    observed = [LOSSES[h][s, a] for h, (s, a) in enumerate([(0, 1), (2, 0), (1, 1)])]
    np.testing.assert_array_equal(check(LOSSES, observed).loss_table[:2], LOSSES[0].ravel())
    with pytest.raises(InvalidEpisodeError, match=r"layer 0, state 0, action 0: loss 7\.0 is outside"):
        check([[[7.0, 0.9]], *LOSSES[1:]], observed)


@pytest.mark.parametrize(
    ("every", "message"),
    [
        ([[0.1, 0.2]], r"action_losses has shape \(1, 2\), should be \(2, 2\)"),
        ([[0.1, 0.2], [0.3]], "action_losses"),
        ([[0.1, 1.2], [0.3, 0.4]], "action_losses, layer 0, state 0, action 1: loss 1.2 is not a number in"),
        ([[0.1, 0.2], [0.3, 0.4]], "layer 1, state 1, action 1: action_losses has 0.4, but the observed loss is 0.5"),
        ("high", "action_losses"),
    ],
)
def test_losses_of_all_actions_that_make_no_sense_are_refused(every, message):
    learner = make_learner("planner", TabularModel((1, 2, 1), 2), feedback="actions")
    with pytest.raises(InvalidEpisodeError, match=message):
        learner.update(Episode([0, 1], [0, 1], [0.1, 0.5], action_losses=every))
    assert learner.episodes_seen == 0


def test_a_loss_is_known_if_it_stands_among_those_of_all_actions():
    layers = TabularModel((1, 2, 1), 2, [[[True, False]], np.ones((2, 2))]).layers
    checked = check_episode(
        Episode([0, 1], [0, 1], [np.nan, None], action_losses=[[0.2, 7.0], [0.3, np.nan]]), layers
    )  # fmt: skip
    assert checked.losses.tolist() == pytest.approx([0.2, np.nan], nan_ok=True)
    assert checked.later.tolist() == [False, True]
    pairs, losses = checked.seen(layers)
    assert (pairs.tolist(), losses.tolist()) == ([0, 4], [0.2, 0.3])  # an unavailable action costs nothing
