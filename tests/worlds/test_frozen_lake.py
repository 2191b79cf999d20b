"""frozen-lake is Gymnasium's lake, with the slip probabilities set free."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from advmdp import InvalidSpecError, LayeredMDP, make_adversary, make_world


@pytest.mark.parametrize("map_name", ["4x4", "8x8"])
def test_it_equals_gymnasiums_table_when_the_slips_are_gymnasiums(map_name):
    table = gymnasium.make("FrozenLake-v1", map_name=map_name).unwrapped.P
    world = make_world("frozen-lake", map=map_name, horizon=9)
    cells = world.scene.states
    for h in range(world.horizon - 1):
        for i, cell in enumerate(cells[h]):
            for action in range(4):
                row = np.zeros(len(cells[h + 1]))
                for probability, target, _, _ in table[cell][action]:
                    row[cells[h + 1].index(target)] += probability
                np.testing.assert_allclose(world.kernels[h][i, action], row, atol=1e-12, rtol=0)


@pytest.mark.parametrize("success", [1.0, 0.8])  # 1.0: layers and names do not betray that slips never happen
def test_it_equals_the_unrolled_environment_at_other_success_rates(success):
    env = gymnasium.make("FrozenLake-v1", success_rate=success)
    unrolled, _ = LayeredMDP.from_gymnasium(env, 7)
    world = make_world("frozen-lake", horizon=7, slip=(success, (1 - success) / 2, (1 - success) / 2))
    assert world.scene.states == unrolled.scene.states
    for ours, theirs in zip(world.kernels, unrolled.kernels, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12, rtol=0)


def test_left_and_right_are_the_walkers():
    only_left = make_world("frozen-lake", horizon=3, slip=(0, 1, 0))
    down = 1  # from the corner: to the walker's left is east, cell 1
    assert only_left.scene.states[1][int(only_left.kernels[0][0, down].argmax())] == 1


def test_holes_and_the_goal_hold():
    world = make_world("frozen-lake", horizon=8)
    for cell in (5, 7, 11, 12, 15):
        here, there = (world.scene.states[h].index(cell) for h in (6, 7))
        np.testing.assert_array_equal(world.kernels[6][here, :, there], 1.0)


def test_a_map_of_ones_own():
    world = make_world("frozen-lake", map=["SF", "HG"], horizon=3)
    assert world.layer_sizes == (1, 3, 4, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": "5x5"}, "map is '5x5', should be one of 4x4, 8x8, or a list of rows"),
        ({"map": ["SF", "G"]}, "rows of the same number of letters"),
        ({"map": ["SS", "FG"]}, "exactly one S"),
        ({"map": ["SX"]}, "should have the letters S, F, H and G"),
        ({"horizon": 0}, "horizon is 0"),
        ({"slip": (0.5, 0.5, 0.5)}, "slip is .*, should be 3 probabilities that sum to 1"),
    ],
)
def test_bad_options_are_rejected(options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_world("frozen-lake", **options)


def test_ice_drifts_while_holes_and_goal_stay():
    world = make_world("frozen-lake", horizon=8)
    adversary = make_adversary("natural-losses", world, 1000, seed=3)
    early, late = adversary.losses(0), adversary.losses(200)
    names = world.scene.states[7]
    assert (early[7][names.index(5)] == 1.0).all()
    assert (late[7][names.index(15)] == 0.0).all()
    ice = names.index(6)
    assert early[7][ice, 0] != late[7][ice, 0]
    # One and the same cell costs the same in every layer and for every move.
    assert early[7][ice, 0] == early[6][world.scene.states[6].index(6), 3]
    still = make_adversary("natural-losses", world, 1000, drift=0.0)
    np.testing.assert_array_equal(still.flat_losses(5), still.flat_losses(500))
