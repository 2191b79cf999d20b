"""Worlds of 10^5 states: sparse, stored once where layers are the same, and equal to dense ones where both fit."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

from advmdp import (
    InvalidMDPError,
    InvalidSpecError,
    LayeredMDP,
    Process,
    load_mdp,
    make_adversary,
    make_world,
    occupancy,
)
from advmdp._unroll import NEGLIGIBLE
from advmdp.adversaries import random_walk
from advmdp.layered import SparseRows, validation
from advmdp.layered.rows import same_rows
from advmdp.process import exploration
from advmdp.report.worlds import draw_world
from advmdp.seeding import Stream, generator

TAXI = "Taxi-v3" if "Taxi-v3" in gymnasium.registry else "Taxi-v4"


def lake(side: int) -> list[str]:
    """Ice, entered at its centre, with a hole and a goal in two corners."""
    letters = np.full((side, side), "F")
    letters[side // 2, side // 2], letters[0, 0], letters[-1, -1] = "S", "H", "G"
    return ["".join(row) for row in letters]


def walk(side: int, horizon: int) -> Process:
    """A map as a process, in plain Python: moves are obeyed, turned left or turned right."""
    moves = [(0, -1), (1, 0), (0, 1), (-1, 0)]

    def scenario(turn: int):
        def step_from(step, cell, action):
            down, right = moves[(action + turn) % 4]
            return {(min(max(cell[0] + down, 0), side - 1), min(max(cell[1] + right, 0), side - 1)): 1.0}

        return step_from

    start = (side // 2, side // 2)
    return Process(start, lambda step, cell: [0, 1, 2, 3], [scenario(t) for t in (0, 1, 3)], horizon, (0, 1))


def from_gymnasium(name: str, horizon: int, **options) -> LayeredMDP:
    return LayeredMDP.from_gymnasium(gymnasium.make(name, **options), horizon)[0]


SMALL = {
    "frozen-lake": lambda: make_world("frozen-lake", map="8x8", horizon=20),
    "grid": lambda: make_world("grid", height=5, width=7),
    "inventory": lambda: make_world("inventory"),
    "inventory, only what fits": lambda: make_world("inventory", only_what_fits=True),
    "pricing": lambda: make_world("pricing"),
    "queue": lambda: make_world("queue"),
    "river-swim": lambda: make_world("river-swim"),
    "routing": lambda: make_world("routing"),
    "Gymnasium's lake": lambda: from_gymnasium("FrozenLake-v1", 12),
    "Gymnasium's taxi": lambda: from_gymnasium(TAXI, 3),
    "process": lambda: walk(5, 12).mdp([0.5, 0.3, 0.2]),
}

#: With the bytes that their kernels may take: a dense one would take hundreds of times as many.
LARGE = {
    "frozen-lake": (lambda: make_world("frozen-lake", map=lake(40), horizon=90), 10e6),
    "grid": (lambda: make_world("grid", height=316, width=316), 10e6),
    "inventory": (lambda: make_world("inventory", capacity=399, max_order=8, stock=300, days=250), 50e6),
    "queue": (lambda: make_world("queue", buffer=999, waiting=500, slots=110, speeds=(0, 5, 10)), 40e6),
    "routing": (lambda: make_world("routing", stages=300, width=400), 20e6),
}


def kernel_bytes(world: LayeredMDP) -> int:
    parts = [(k.values, k.nexts, k.pointers) if isinstance(k, SparseRows) else (k,) for k in world.kernels]
    return sum({id(part): part.nbytes for table in parts for part in table}.values())


@pytest.mark.parametrize("name", SMALL)
def test_a_sparse_world_equals_the_dense_one(name, monkeypatch):
    monkeypatch.setattr(validation, "DENSE_ENTRIES", 10**9)
    dense = SMALL[name]()
    monkeypatch.setattr(validation, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(validation, "DENSE_SHARE", 1.1)
    sparse = SMALL[name]()
    assert not any(isinstance(kernel, SparseRows) for kernel in dense.kernels)
    assert sum(isinstance(kernel, SparseRows) for kernel in sparse.kernels) >= dense.horizon - 1
    assert sparse.scene.states == dense.scene.states
    assert sparse.layer_sizes == dense.layer_sizes
    for one, other in zip(sparse.available, dense.available, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(sparse.kernels, dense.kernels, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=1e-15)
    if hasattr(dense, "features"):
        assert sparse.bound == dense.bound
        np.testing.assert_allclose(sparse.theta, dense.theta, rtol=1e-15)
        for one, other in zip(sparse.features, dense.features, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=1e-15)
    losses = make_adversary("stochastic", dense, 1, distribution="beta").losses(0)
    policies = [occupancy.best_policy(world, losses) for world in (sparse, dense)]
    assert policies[0][1] == pytest.approx(policies[1][1], abs=1e-12)
    for one, other in zip(policies[0][0], policies[1][0], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", LARGE)
def test_a_world_of_a_hundred_thousand_states_takes_memory_for_what_is_possible_only(name):
    build, most = LARGE[name]
    world = build()
    assert 80_000 <= world.n_states <= 150_000
    assert kernel_bytes(world) < most
    for adversary in ("natural-losses", "stochastic", "switching", "adaptive"):
        losses = make_adversary(adversary, world, 100).flat_losses(0)
        assert losses.shape == (world.layers.n_pairs,)
        assert 0.0 <= losses.min() <= losses.max() <= 1.0
    policy = np.empty_like(losses)
    assert 0.0 <= occupancy.greedy(world.layers, world.rows, losses, policy) <= world.horizon


def test_layers_with_the_same_states_are_one_object_in_memory_and_on_disk(tmp_path):
    short, long = (make_world("frozen-lake", map=lake(30), horizon=horizon) for horizon in (40, 80))
    assert len({id(kernel) for kernel in short.kernels}) == len({id(kernel) for kernel in long.kernels}) < 35
    sizes = []
    for world in (short, long):
        path = tmp_path / "world"
        world.save(path)
        again = load_mdp(path)
        assert len({id(kernel) for kernel in again.kernels}) == len({id(kernel) for kernel in world.kernels})
        assert all(same_rows(one, other) for one, other in zip(world.kernels, again.kernels, strict=True))
        assert all(same_rows(one, other) for one, other in zip(world.features, again.features, strict=True))
        assert again.scene.states == world.scene.states
        names = sum(len(str(list(layer))) for layer in world.scene.states)
        sizes.append(path.stat().st_size - names)
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


def test_layers_that_come_and_go_in_turn_are_stored_once_each():
    # Upstream or down at each stroke, never at rest: odd places and even ones in turn, but for the ends of the river.
    world = make_world("river-swim", length=4, horizon=200)
    assert len({id(kernel) for kernel in world.kernels}) < 10


@pytest.mark.parametrize("horizon", [50, 100])
def test_gymnasium_s_taxi_and_lake_stay_sparse(horizon):
    world = from_gymnasium(TAXI, 50) if horizon == 50 else from_gymnasium(
        "FrozenLake-v1", 100, desc=generate_random_map(50, seed=0)
    )  # fmt: skip
    assert sum(isinstance(kernel, SparseRows) for kernel in world.kernels) > 0.9 * world.horizon
    assert kernel_bytes(world) < 30e6
    if horizon == 50:  # Taxi says which actions there are
        assert not all(mask.all() for mask in world.available)
        assert len({id(kernel) for kernel in world.kernels}) < 30


def test_a_large_process_stays_sparse_and_stores_equal_layers_once(monkeypatch):
    monkeypatch.setattr(exploration, "LARGE", 300)
    process = walk(20, 60)
    world = process.mdp([0.6, 0.2, 0.2])
    sparse = [kernel for kernel in world.kernels if isinstance(kernel, SparseRows)]
    assert len(sparse) > 45
    # All 400 cells are reached within 20 steps; from then on nothing changes.
    assert len({id(kernel) for kernel in sparse}) < 25
    assert len({id(table) for table in process.model.features}) < 35
    assert process.states(40) == process.states(41)
    losses = [np.random.default_rng(h).random((n, 4)) for h, n in enumerate(world.layer_sizes[:-1])]
    value = occupancy.best_policy(world, losses)[1]
    monkeypatch.setattr(exploration, "LARGE", 10**9)
    found = walk(20, 60)
    shuffled = [
        table[[process.index(step, state) for state in found.states(step)]] for step, table in enumerate(losses)
    ]
    assert occupancy.best_policy(found.mdp([0.6, 0.2, 0.2]), shuffled)[1] == pytest.approx(value, abs=1e-10)


def test_a_random_walk_over_a_large_world_is_drawn_episode_by_episode_with_the_same_numbers(monkeypatch):
    world = make_world("frozen-lake")
    whole = make_adversary("random-walk", world, 300, step=0.3, seed=2)
    expected = [whole.flat_losses(k).copy() for k in range(200)]
    monkeypatch.setattr(random_walk, "AT_ONCE", 3 * world.layers.n_pairs)
    monkeypatch.setattr(random_walk, "MOST_BYTES", 0)
    parts = make_adversary("random-walk", world, 300, step=0.3, seed=2)
    for k in [*range(70), 199, 5, 6, 130, *range(60, 70)]:
        np.testing.assert_array_equal(parts.flat_losses(k), expected[k])
    assert len(parts._checkpoints) <= 2


def test_outcomes_below_rounding_are_impossible():
    world = make_world("queue", buffer=400, waiting=200, slots=3, speeds=(1, 2))
    probable = np.concatenate([np.asarray(kernel).ravel() for kernel in world.kernels])
    assert probable[probable > 0.0].min() > 0.1 * NEGLIGIBLE  # the least weight of a distribution is above 0.1
    assert world.layer_sizes[1] < 60  # nobody waits for the arrival of 200 jobs at a mean of 3


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frozen-lake", {"map": lake(50), "horizon": 10**9}),
        ("grid", {"height": 10**5, "width": 10**5}),
        ("inventory", {"capacity": 10**7, "max_order": 10**4, "stock": 5 * 10**6}),
        ("queue", {"buffer": 10**8}),
        ("routing", {"stages": 10**5, "width": 10**5}),
    ],
)
def test_absurd_sizes_are_refused_with_the_memory_that_they_would_take(name, options):
    with pytest.raises(InvalidSpecError, match=r"would take [\d,.]+ GiB of memory"):
        make_world(name, **options)


def test_a_dense_table_of_a_large_layer_is_refused_rather_than_built(monkeypatch):
    world = make_world("grid", height=300, width=300)
    monkeypatch.setattr("advmdp._checks.memory", lambda: 2**20)
    with pytest.raises(InvalidMDPError, match="a dense table"):
        np.asarray(world.kernels[299])


def test_drawings_of_large_worlds_are_refused_and_of_sparse_ones_are_the_same(monkeypatch):
    with pytest.raises(InvalidSpecError, match="a map of 60 x 60 cells is too large to draw"):
        draw_world(make_world("grid", height=60, width=60))
    with pytest.raises(InvalidSpecError, match="would show nothing"):
        draw_world(make_world("queue", buffer=300, slots=20))
    dense = draw_world(make_world("frozen-lake"))
    monkeypatch.setattr(validation, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(validation, "DENSE_SHARE", 1.1)
    sparse = draw_world(make_world("frozen-lake"))
    assert [text.get_text() for text in sparse.texts] == [text.get_text() for text in dense.texts]
    assert len(sparse.patches) == len(dense.patches)


def test_a_large_world_is_played_as_an_environment():
    from advmdp.envs import AdversarialMDPEnv

    world = make_world("grid", height=200, width=200)
    env = AdversarialMDPEnv(world, make_adversary("natural-losses", world, 10))
    env.reset(seed=0)
    rng, over = generator(0, Stream.WORLD), False
    while not over:
        _, reward, over, _, info = env.step(int(rng.integers(2)))
        assert -1.0 <= reward <= 0.0
    assert info["layer"] == world.horizon == 398
