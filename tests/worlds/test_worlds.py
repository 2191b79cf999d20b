"""The named worlds are what they say they are."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import InvalidMDPError, InvalidSpecError, LinearMixtureMDP, make_world
from advmdp.registry import worlds
from advmdp.worlds.grid import EAST, SOUTH, cells


@pytest.mark.parametrize("name", worlds.names())
def test_defaults_are_large_enough_to_be_interesting(name):
    world = make_world(name)
    assert world.n_states >= 30
    assert isinstance(world, LinearMixtureMDP)
    assert world.dim >= 3
    assert (inner := (worlds.get(name).__doc__ or ""))
    assert len(inner) > 40


def test_random_mixture_has_the_size_that_was_asked_for():
    world = make_world("random-mixture", layer_sizes=(1, 2, 5, 1), n_actions=3, dim=4, seed=1)
    assert world.layer_sizes == (1, 2, 5, 1)
    assert (world.n_actions, world.dim) == (3, 4)
    assert world.model.simplex


def test_random_mixture_depends_on_its_seed_alone():
    one, two, other = (make_world("random-mixture", seed=seed) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.kernels, two.kernels, strict=True))
    assert not np.array_equal(one.kernels[1], other.kernels[1])


def test_random_mixture_stays_valid_with_nearly_deterministic_rows():
    world = make_world("random-mixture", concentration=1e-3)
    assert np.isfinite(world.kernels[1]).all()
    assert (world.features[1].max(axis=2) > 0).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dim": 0}, InvalidSpecError, "dim is 0"),
        ({"concentration": 0.0}, InvalidSpecError, "concentration is 0.0"),
        ({"layer_sizes": (2, 1)}, InvalidMDPError, "layer 0 has 2 states"),
    ],
)
def test_random_mixture_rejects_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        make_world("random-mixture", **options)


def test_the_plain_grid_obeys_with_probability_nine_tenths():
    world = make_world("grid", height=10, width=10, noise={"slip": 0.1})
    assert (world.n_states, world.horizon, world.n_actions, world.dim) == (100, 18, 2, 2)
    here, there = cells(10, 10, 4), cells(10, 10, 5)
    row, column = here[2]
    east, south = there.index((row, column + 1)), there.index((row + 1, column))
    assert world.kernels[4][2, EAST, east] == pytest.approx(0.9)
    assert world.kernels[4][2, EAST, south] == pytest.approx(0.1)
    assert world.kernels[4][2, SOUTH, south] == pytest.approx(0.9)


def test_the_far_edges_of_the_grid_leave_one_move():
    world = make_world("grid", height=2, width=4)
    layer = 3  # cells (0, 3) at the east edge and (1, 2) at the south edge both lead to (1, 3)
    assert cells(2, 4, layer) == [(0, 3), (1, 2)]
    np.testing.assert_array_equal(world.kernels[layer], 1.0)


def test_noise_models_of_the_grid_are_independent_features():
    world = make_world("grid")
    features = world.features[5].reshape(-1, world.dim)
    assert np.linalg.matrix_rank(features) == world.dim


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": {"storm": 0.1}}, "noise has no model 'storm'; it has: slip, east, south"),
        ({"noise": {"slip": 1.5}}, "noise 'slip' is 1.5"),
        ({"noise": {"slip": 0.6, "east": 0.6}}, "noise sums to 1.2"),
        ({"height": 1, "width": 1}, "at least two cells"),
    ],
)
def test_grid_rejects_bad_options(options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_world("grid", **options)
