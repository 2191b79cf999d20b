"""Drawings show what the world and the policy are."""

from __future__ import annotations

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from advmdp import LayeredMDP, Scene, make_world, occupancy
from advmdp.report import draw_world


def patches(ax, kind):
    return [patch for patch in ax.patches if type(patch) is kind]


def edges(ax):
    *_, lines = (c for c in ax.collections if isinstance(c, LineCollection))  # before them those that are left aside
    return lines.get_segments(), lines.get_linewidths()


def test_edges_are_as_wide_as_they_are_probable():
    world = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2)
    policy = occupancy.random_policy(world.layer_sizes, 2, np.random.default_rng(0))
    q = occupancy.occupancy_measure(world, policy)
    flow = sum(q[1][:, a, None] * world.kernels[1][:, a] for a in range(2))
    segments, widths = edges(draw_world(world, policy=policy))
    assert {tuple(segment[:, 0]) for segment in segments} == {(0, 1), (1, 2), (2, 3)}  # from left to right
    drawn = sorted(width for segment, width in zip(segments, widths, strict=True) if segment[0, 0] == 1)
    np.testing.assert_allclose(drawn, np.sort(0.4 + 7.0 * flow[flow > 1e-3]), rtol=1e-12)


def test_a_network_shows_the_links_that_the_policy_leaves_aside():
    world = make_world("routing", stages=3, width=4)
    first = [np.tile([1.0, 0.0, 0.0], (n, 1)) for n in world.layer_sizes[:-1]]
    grey, taken = (c for c in draw_world(world, policy=first).collections if isinstance(c, LineCollection))
    possible = sum(int((kernel.max(axis=1) > 0).sum()) for kernel in world.kernels)
    assert 0 < len(taken.get_segments()) < possible
    assert len(grey.get_segments()) + len(taken.get_segments()) == possible
    # A world in which everything is possible would only be darkened.
    dense = draw_world(
        make_world("inventory"), policy=[np.eye(5)[[0] * n] for n in make_world("inventory").layer_sizes[:-1]]
    )
    assert len([c for c in dense.collections if isinstance(c, LineCollection)]) == 1


def test_states_bear_their_names():
    scene = Scene(states=[["home"], ["bus", "tram"], ["work"]])
    world = LayeredMDP([np.full((1, 1, 2), 0.5), np.ones((2, 1, 1))], scene=scene)
    assert [text.get_text() for text in draw_world(world).texts] == ["home", "bus", "tram", "work"]
    plain = LayeredMDP([np.full((1, 1, 2), 0.5), np.ones((2, 1, 1))])
    assert [text.get_text() for text in draw_world(plain).texts] == ["0", "0", "1", "0"]


def test_grids_are_drawn_as_grids():
    world = make_world("grid", height=3, width=4)
    ax = draw_world(world)
    assert len(patches(ax, Rectangle)) == 12
    # One arrow for every move between neighbours: 3 x 3 east, 2 x 4 south.
    assert len(patches(ax, FancyArrowPatch)) == 9 + 8
    east = [np.tile([1.0, 0.0], (n, 1)) for n in world.layer_sizes[:-1]]
    walls = draw_world(make_world("grid", height=3, width=4, noise={}), policy=east)
    # Obeyed: along the first row and down the last column, five moves and an arrow for each of five cells.
    assert len(patches(walls, FancyArrowPatch)) == 5 + 5


@pytest.mark.parametrize("unrolled", [False, True])
def test_a_frozen_lake_is_a_lake_with_holes(unrolled):
    if unrolled:
        world, _ = LayeredMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 6)
    else:
        world = make_world("frozen-lake", horizon=6)
    ax = draw_world(world)
    assert len(patches(ax, Rectangle)) == 16
    assert {patch.center for patch in patches(ax, Circle)} == {(1, 1), (3, 1), (3, 2), (0, 3)}
    last = occupancy.occupancy_measure(world, occupancy.uniform_policy(world.layer_sizes, 4))[5].sum(axis=1)
    ends = f"{last[world.scene.states[5].index(5)]:.0%}"
    assert ends in [text.get_text() for text in ax.texts]


def test_an_environment_without_a_map_is_drawn_as_layers():
    world, _ = LayeredMDP.from_gymnasium(gymnasium.make("CliffWalking-v1"), 4)
    assert len(edges(draw_world(world))[0]) > 3


def test_it_draws_on_the_axes_that_are_given_and_leaves_pyplot_alone():
    ax = Figure().subplots()
    assert draw_world(make_world("bow-tie"), ax) is ax
    assert draw_world(make_world("grid", height=2, width=2), Figure().subplots()) is not ax
    assert plt.get_fignums() == []
