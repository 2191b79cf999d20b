"""The named worlds are what they say they are: what holds for all, then each by itself."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from advmdp import (
    InvalidMDPError,
    InvalidSpecError,
    LinearMDP,
    LinearMixtureMDP,
    _checks,
    make_adversary,
    make_world,
    occupancy,
)
from advmdp import worlds as world_modules
from advmdp.confidence import EllipsoidSet
from advmdp.registry import worlds
from advmdp.solvers import mirror_descent_step, upper_occupancy
from advmdp.theory.lemmas.geometry import bow_tie
from advmdp.worlds.bow_tie import SCALE
from advmdp.worlds.grid import EAST, SOUTH
from advmdp.worlds.hard import FOUND, SEARCHING, margin
from tests.test_layered import reachable_objects

NAMES = [name for name in worlds.names() if name != "file"]  # which needs a path

#: Options that make each world tiny.
TINY = {
    "bow-tie": {},
    "frozen-lake": {"map": ["SF", "HG"], "horizon": 3},
    "grid": {"height": 2, "width": 3},
    "hard": {"horizon": 4, "dim": 2, "episodes": 100},
    "inventory": {"capacity": 2, "max_order": 1, "days": 3, "stock": 1, "demand_means": (0.5, 2.0), "mix": (0.6, 0.4)},
    "linear-mdp": {"layer_sizes": (1, 2, 2, 1), "n_actions": 2, "dim": 2},
    "pricing": {"prices": (0.5, 1.0), "contacts": 4},
    "queue": {"buffer": 2, "speeds": (0, 1), "slots": 3, "waiting": 1, "arrival_means": (0.5, 2.0), "mix": (0.6, 0.4)},
    "random-mixture": {"layer_sizes": (1, 2, 2, 1), "n_actions": 2, "dim": 2},
    "river-swim": {"length": 3, "horizon": 4},
    "routing": {"stages": 2, "width": 2, "outages": (0.2,)},
}


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_large_enough_to_be_interesting_and_quick_to_build(name):
    make_world(name)  # what is imported on first use does not count
    start = time.process_time()
    world = make_world(name)
    assert time.process_time() - start < 1.0
    assert isinstance(world, LinearMDP if name == "linear-mdp" else LinearMixtureMDP)
    if name != "bow-tie":  # a counter-example, as small as can be
        assert world.n_states >= 30
        assert world.dim >= 3


@pytest.mark.parametrize("name", NAMES)
def test_shrinking_options_give_a_tiny_world(name):
    world = make_world(name, **TINY[name])
    assert world.n_states <= 24  # pricing: two prices in four stages


@pytest.mark.parametrize("name", worlds.names())
def test_every_world_says_what_it_stands_for_and_what_its_options_are(name):
    builder = worlds.get(name)
    opening = inspect.getmodule(builder).__doc__
    assert "stands for" in opening
    assert len(opening) > 200
    for option in worlds.options(name):
        assert option in builder.__doc__, f"{name}: {option} is not described"


def test_the_table_of_the_documentation_has_every_world_with_its_size():
    page = (Path(__file__).resolve().parents[2] / "docs" / "worlds" / "index.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|", page, flags=re.MULTILINE))
    assert sorted(rows) == worlds.names()
    for name in NAMES:
        world = make_world(name)
        assert rows[name] == f"{world.n_states}, {world.n_actions}, {world.dim}"


def test_every_file_of_a_world_is_imported():
    assert {name.replace("-", "_") for name in worlds.names()} <= set(world_modules.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_worlds_are_reproducible(name):
    one, two = make_world(name), make_world(name)
    for a, b in zip(one.kernels, two.kernels, strict=True):
        np.testing.assert_array_equal(a, b)
    if "seed" in worlds.options(name):
        other = make_world(name, seed=1)
        assert any(not np.array_equal(a, b) for a, b in zip(one.kernels, other.kernels, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_holds_neither_the_truth_nor_the_scene(name):
    world = make_world(name, **TINY[name])
    held = reachable_objects(world.model)
    truth = {array.tobytes() for array in (world.measures if name == "linear-mdp" else world.theta)[:-1]}
    assert not any(node is world or node is world.scene for node in held)
    assert not any(isinstance(node, np.ndarray) and node.tobytes() in truth for node in held)


#: The option that holds the weights, the default ones, and how to say "only base kernel i".
MIXTURES = {
    "frozen-lake": ("slip", (1 / 3, 1 / 3, 1 / 3), lambda i: np.eye(3)[i]),
    "grid": ("noise", (0.8, 0.1, 0.1), lambda i: dict(zip(("slip", "east"), np.eye(3)[i][1:], strict=True))),
    "inventory": ("mix", (0.5, 0.3, 0.2), lambda i: np.eye(3)[i]),
    "pricing": ("mix", (0.4, 0.4, 0.2), lambda i: np.eye(3)[i]),
    "queue": ("mix", (0.5, 0.35, 0.15), lambda i: np.eye(3)[i]),
    "river-swim": ("current", (0.35, 0.6, 0.05), lambda i: np.eye(3)[i]),
    "routing": ("outages", (0.7, 0.15, 0.1, 0.05), lambda i: np.eye(4)[i][1:]),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_kernels_are_exactly_the_stated_mixture(name):
    option, weights, only = MIXTURES[name]
    world = make_world(name)
    bases = [make_world(name, **{option: only(i)}) for i in range(len(weights))]
    for h, kernel in enumerate(world.kernels):
        mixed = sum(weight * base.kernels[h] for weight, base in zip(weights, bases, strict=True))
        np.testing.assert_allclose(kernel, mixed, atol=1e-12, rtol=0)
    # Layers and features, which learners see, do not depend on the weights.
    for base in bases:
        assert base.bound == world.bound
        for ours, theirs in zip(world.features, base.features, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_worlds_that_mix_alike_in_every_step_say_so(name):
    if name == "linear-mdp":
        return  # no mixture of kernels
    world = make_world(name, **TINY[name])
    weights = np.array([theta / scale for theta, scale in zip(world.theta, world.model.scales, strict=True)][:-1])
    assert world.model.shared == (np.ptp(weights, axis=0).max() < 1e-12)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"random-mixture"}))
def test_every_world_with_a_story_has_losses_by_nature(name, tmp_path):
    world = make_world(name, **TINY[name])
    adversary = make_adversary("natural-losses", world, 5000, seed=3)
    tables, rng = [], np.random.default_rng(0)
    for k in range(2000):
        tables.append(adversary.flat_losses(k))
        states = [int(rng.integers(size)) for size in world.layer_sizes[:-1]]
        adversary.observe(np.array(states), rng.integers(world.n_actions, size=world.horizon))
    tables = np.array(tables)
    assert tables.min() >= 0
    assert tables.max() <= 1
    assert np.ptp(tables[0]) > 0
    if name not in ("hard", "bow-tie"):  # whose difficulty is in the transitions alone
        other = make_adversary("natural-losses", world, 5000, seed=4)
        assert not np.array_equal(other.flat_losses(0), tables[0])
    again = make_adversary("natural-losses", make_world(name, **TINY[name]), 10, seed=3)
    np.testing.assert_array_equal(again.flat_losses(0), tables[0])
    # They survive a file, through the world `file`.
    world.save(tmp_path / "world.npz")
    loaded = make_adversary("natural-losses", make_world("file", path=tmp_path / "world.npz"), 10, seed=3)
    np.testing.assert_array_equal(loaded.flat_losses(0), tables[0])


def test_the_world_in_a_file_is_the_one_that_was_saved(tmp_path):
    world = make_world("pricing")
    world.save(tmp_path / "world.npz")
    again = make_world("file", path=str(tmp_path / "world.npz"))
    assert again.scene.states == world.scene.states
    assert again.scene.actions == world.scene.actions
    for a, b in zip(again.kernels, world.kernels, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InvalidSpecError, match="world 'file' needs the option 'path'"):
        make_world("file")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grid", {"noise": {"storm": 0.1}}, "noise has no model 'storm'; it has: slip, east, south"),
        ("grid", {"noise": {"slip": 1.5}}, "noise 'slip' is 1.5"),
        ("grid", {"noise": {"slip": 0.6, "east": 0.6}}, "noise sums to 1.2"),
        ("grid", {"height": 1, "width": 1}, "at least two cells"),
        ("grid", {"noise": 0.1}, "noise is 0.1, should give a probability to each of: slip, east, south"),
        ("grid", {"noise": {"slip": "often"}}, r"noise 'slip' is 'often', should be a number in \[0, 1\]"),
        ("frozen-lake", {"map": 4}, "map is 4, should be the name of a map, or a list of rows"),
        ("random-mixture", {"dim": 0}, "dim is 0"),
        ("random-mixture", {"concentration": 0.0}, "concentration is 0.0"),
        ("random-mixture", {"concentration": "low"}, "concentration is 'low', should be a finite number > 0"),
        ("river-swim", {"length": 1}, "length is 1, should be an integer >= 2"),
        ("river-swim", {"current": (1.0, 0.0)}, "current is .*, should be 3 probabilities that sum to 1"),
        ("inventory", {"stock": 9}, "stock is 9, should be at most capacity = 8"),
        ("inventory", {"demand_means": (1.0, -1.0)}, r"demand_means is \(1.0, -1.0\), should be numbers > 0"),
        ("inventory", {"mix": (0.5, 0.5)}, "mix is .*, should be 3 probabilities"),
        ("pricing", {"prices": (0.5, 1.5)}, "prices is .*, should be at most 1"),
        ("pricing", {"prices": ()}, "prices is .*, should be numbers > 0"),
        ("queue", {"speeds": (0,)}, r"speeds is \(0,\), should be integers >= 0, at least one of them >= 1"),
        ("queue", {"speeds": 3}, "speeds is 3, should be integers >= 0"),
        ("queue", {"speeds": (0, 1.5)}, "speeds is .*, should be integers >= 0"),
        ("queue", {"waiting": 8}, "waiting is 8, should be at most buffer = 7"),
        ("hard", {"dim": 10}, "dim is 10, should be at most 9"),
        ("hard", {"episodes": 17}, "episodes is 17, should be an integer >= 18"),
        ("bow-tie", {"lean": 0.6}, r"lean is 0.6, should be a number in \[-0.5, 0.5\]"),
        ("bow-tie", {"lean": "left"}, "lean is 'left', should be a number in"),
    ],
)
def test_bad_options_are_rejected(name, options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_world(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grid", {"drift": 1.5}, "drift is 1.5"),
        ("grid", {"drift": "much"}, r"drift is 'much', should be a number in \[0, 1\]"),
        ("grid", {"period": 0.0}, "period is 0.0"),
        ("inventory", {"price": 0.0}, r"\(price, holding, shortage\) is \(0.0"),
        ("pricing", {"floor": 2.0}, "floor is 2.0"),
        ("pricing", {"period": 0}, "period is 0"),
        ("queue", {"energy": -1.0}, r"\(energy, waiting, rejection\) is \(-1.0"),
        ("routing", {"hours": 0}, "hours is 0"),
        ("hard", {"drift": 0.1}, "natural losses 'hard' has no option 'drift'"),
    ],
)
def test_bad_options_of_natural_losses_are_rejected(name, options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_adversary("natural-losses", make_world(name, **TINY[name]), 10, **options)


# ------------------------------------------------------------------------------------ random-mixture


def test_random_mixture_has_the_size_that_was_asked_for():
    world = make_world("random-mixture", layer_sizes=(1, 2, 5, 1), n_actions=3, dim=4, seed=1)
    assert world.layer_sizes == (1, 2, 5, 1)
    assert (world.n_actions, world.dim) == (3, 4)
    assert world.model.simplex
    with pytest.raises(InvalidMDPError, match="layer 0 has 2 states"):
        make_world("random-mixture", layer_sizes=(2, 1))


def test_random_mixture_stays_valid_with_nearly_deterministic_rows():
    world = make_world("random-mixture", concentration=1e-3)
    assert np.isfinite(world.kernels[1]).all()
    assert (world.features[1].max(axis=2) > 0).all()


def test_random_mixture_may_mix_every_layer_alike():
    same, anew = (make_world("random-mixture", dim=2, shared=shared) for shared in (True, False))
    assert [world.model.shared for world in (same, anew)] == [True, False]
    assert all(np.array_equal(a, b) for a, b in zip(same.features, anew.features, strict=True))
    weights = np.array([theta / scale for theta, scale in zip(same.theta, same.model.scales, strict=True)])
    np.testing.assert_allclose(weights, weights[:1].repeat(len(weights), axis=0), rtol=1e-12)


# ---------------------------------------------------------------------------------------------- grid


def test_the_plain_grid_obeys_with_probability_nine_tenths():
    world = make_world("grid", height=10, width=10, noise={"slip": 0.1})
    assert (world.n_states, world.horizon, world.n_actions, world.dim) == (100, 18, 2, 2)
    here, there = world.scene.states[4], world.scene.states[5]
    east, south = there.index(here[2] + 1), there.index(here[2] + 10)
    assert world.kernels[4][2, EAST, east] == pytest.approx(0.9)
    assert world.kernels[4][2, EAST, south] == pytest.approx(0.1)
    assert world.kernels[4][2, SOUTH, south] == pytest.approx(0.9)


def test_the_far_edges_of_the_grid_leave_one_move():
    world = make_world("grid", height=2, width=4)
    layer = 3  # cells (0, 3) at the east edge and (1, 2) at the south edge both lead to (1, 3)
    assert world.scene.states[layer] == (3, 4 + 2)
    np.testing.assert_array_equal(world.kernels[layer], 1.0)


def test_noise_models_of_the_grid_are_independent_features():
    world = make_world("grid")
    features = world.features[5].reshape(-1, world.dim)
    assert np.linalg.matrix_rank(features) == world.dim


LARGE_GRID = """
import re
import advmdp

world = advmdp.make_world("grid", height=20, width=20)
assert (world.n_states, world.horizon) == (400, 38)
for name in ("switching", "natural-losses"):
    adversary = advmdp.make_adversary(name, world, 50)
    advmdp.run(world, advmdp.make_learner("LEARNER", world, 50), adversary, 50)
print(re.search("VmHWM:[^0-9]*([0-9]+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.parametrize("learner", ["uniform", pytest.param("vlsuob-reps-tight", marks=pytest.mark.slow)])
def test_a_grid_of_20_by_20_over_38_steps_works_within_a_gibibyte(learner):
    script = LARGE_GRID.replace("LEARNER", learner)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2**20  # kibibytes; those of getrusage would include the process that runs the tests


# ---------------------------------------------------------------------------------------- river-swim


def test_river_swim_has_the_classic_numbers():
    world = make_world("river-swim")
    # Place 2 of layer 6: upstream 0.05 back, 0.6 hold, 0.35 on; downstream for certain.
    np.testing.assert_allclose(world.kernels[6][2], [[0, 1, 0, 0, 0, 0], [0, 0.05, 0.6, 0.35, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(world.kernels[6][0], [[1, 0, 0, 0, 0, 0], [0.65, 0.35, 0, 0, 0, 0]], atol=1e-15)


def test_the_prize_upstream_is_worth_the_swim_only_for_the_patient():
    """Resting earns 0.005 per stroke; swimming earns more, but only when there is time to arrive."""
    worth = {}
    for horizon in (5, 12):
        world = make_world("river-swim", horizon=horizon)
        losses = make_adversary("natural-losses", world, 1, drift=0.0).losses(0)
        policy, value = occupancy.best_policy(world, losses)
        worth[horizon] = horizon - value
        assert policy[0].argmax() == (horizon == 12)
    assert worth[5] == pytest.approx(5 * 0.005)
    assert worth[12] > 0.1


# ----------------------------------------------------------------------------------------- inventory


def test_stock_follows_orders_and_demand():
    world = make_world("inventory", mix=(0, 1, 0))
    row = world.kernels[3][2, 3]  # two units, three ordered, demand Poisson(3): 5 - demand, at least 0
    demand = stats.poisson(3.0)
    np.testing.assert_allclose(row[1:6], [demand.pmf(5 - left) for left in range(1, 6)], atol=1e-12)
    assert row[0] == pytest.approx(demand.sf(4))
    assert row[6:].sum() == 0


def test_costs_of_stock_match_simulated_demand():
    world = make_world("inventory")
    rng = np.random.default_rng(0)
    demand = rng.poisson(np.array([1.0, 3.0, 6.0])[rng.choice(3, p=[0.5, 0.3, 0.2], size=200_000)])
    details, layers = world.scene.details, world.layers
    for stock, order in ((0, 0), (2, 3), (8, 4)):
        pair = layers.pair_offsets[2] + stock * 5 + order
        shelf = min(stock + order, 8)
        assert details["bought"][pair] == shelf - stock
        assert details["leftover"][pair] == pytest.approx(np.maximum(shelf - demand, 0).mean(), abs=0.03)
        assert details["lost"][pair] == pytest.approx(np.maximum(demand - shelf, 0).mean(), abs=0.03)


def test_a_shop_orders_less_when_buying_is_dear():
    world = make_world("inventory")
    orders = []
    for price in (0.1, 20.0):
        losses = make_adversary("natural-losses", world, 1, price=price, drift=0.0).losses(0)
        policy, _ = occupancy.best_policy(world, losses)
        orders.append(int(policy[2][0].argmax()))
    assert orders[0] > 0 == orders[1]


# ------------------------------------------------------------------------------------------- pricing


def test_a_low_price_moves_customers_on():
    world = make_world("pricing", mix=(1, 0, 0))
    here, there = world.scene.states[4:6]
    low, full = world.kernels[4][here.index("cart 1")][[0, 2]]
    assert low[there.index("bought")] == pytest.approx(0.9 * (1 - 0.9 * 0.5))
    assert full[there.index("bought")] == pytest.approx(0.9 * (1 - 0.9))
    assert full[there.index("gone")] == pytest.approx(0.27)
    for stays in ("bought", "gone"):
        assert (world.kernels[4][here.index(stays), :, there.index(stays)] == 1.0).all()


def test_an_offer_stands():
    """Raising the price after a lower offer changes nothing: neither what customers do nor what they pay."""
    world = make_world("pricing")
    cart = world.scene.states[4].index("cart 0.5")
    np.testing.assert_array_equal(np.ptp(world.kernels[4][cart], axis=0), 0.0)
    assert np.ptp(make_adversary("natural-losses", world, 10).losses(3)[4][cart]) == 0.0


def test_the_best_shop_marks_down_and_does_not_bait_and_switch():
    """With a price that did not stand, the best was the lowest price up to the cart and the highest in it."""
    world = make_world("pricing")
    losses = make_adversary("natural-losses", world, 1, floor=1.0).losses(0)
    policy, _ = occupancy.best_policy(world, losses)
    q = occupancy.occupancy_measure(world, policy)
    first = world.scene.actions[int(policy[0][0].argmax())]
    assert first != "0.5"
    sold_low = sum(q[h][names.index("cart 0.5")].sum() for h, names in enumerate(world.scene.states) if h in (3, 4, 5))
    assert sold_low > 0.05  # ... but later it does go down


def test_revenue_is_capped_by_the_competitor_whose_price_switches():
    world = make_world("pricing")
    adversary = make_adversary("natural-losses", world, 1000, seed=1, period=100)
    prices = [adversary.competitor(k) for k in range(1000)]
    assert [k for k in range(1, 1000) if prices[k] != prices[k - 1]] == list(range(100, 1000, 100))
    cart = world.scene.states[5].index("cart 1")
    chance = [0.4 * 0.9 * (1 - 0.9 * p) + 0.4 * 0.8 * (1 - 0.5 * p) + 0.2 * 0.85 * (1 - 0.15 * p) for p in (0.5, 1.0)]
    table = adversary.losses(250)[5]
    assert table[cart, 0] == pytest.approx(1 - min(0.5, prices[250]) * chance[0])
    assert table[cart, 2] == pytest.approx(1 - min(1.0, prices[250]) * chance[1])
    elsewhere = [not name.startswith("cart") for name in world.scene.states[5]]
    assert (table[elsewhere] == 1.0).all()


# --------------------------------------------------------------------------------------------- queue


def test_the_queue_matches_a_simulation():
    world = make_world("queue", mix=(0, 0, 1))
    rng = np.random.default_rng(1)
    jobs, speed = 5, 2
    there = jobs - rng.binomial(speed, 0.9, size=200_000) + rng.poisson(3.0, size=200_000)
    shares = np.bincount(np.minimum(there, 7), minlength=8) / there.size
    np.testing.assert_allclose(world.kernels[2][jobs, speed], shares, atol=0.006)
    pair = world.layers.pair_offsets[2] + jobs * 4 + speed
    assert world.scene.details["turned_away"][pair] == pytest.approx(np.maximum(there - 7, 0).mean(), abs=0.02)


def test_dear_energy_slows_the_server_down():
    world = make_world("queue")
    speeds = []
    for energy in (0.01, 50.0):
        losses = make_adversary("natural-losses", world, 1, energy=energy, drift=0.0).losses(0)
        policy, _ = occupancy.best_policy(world, losses)
        speeds.append(int(policy[2][6].argmax()))
    assert speeds == [3, 0]


# ---------------------------------------------------------------------------------------------- hard


def searching_loss(chance: float, horizon: int) -> float:
    return sum((1 - chance) ** h for h in range(horizon))


@pytest.mark.parametrize(("horizon", "dim", "episodes"), [(16, 4, 10_000), (6, 7, 1000), (4, 2, 50)])
def test_the_gap_of_the_hard_instance_is_as_derived(horizon, dim, episodes):
    world = make_world("hard", horizon=horizon, dim=dim, episodes=episodes, seed=5)
    losses = make_adversary("natural-losses", world, 1).losses(0)
    _, best = occupancy.best_policy(world, losses)
    uniform = occupancy.expected_loss(world, occupancy.uniform_policy(world.layer_sizes, world.n_actions), losses)
    delta = margin(horizon, episodes)
    assert best == pytest.approx(searching_loss(1 / horizon + (dim - 1) * delta, horizon), rel=1e-12)
    assert uniform == pytest.approx(searching_loss(1 / horizon, horizon), rel=1e-12)
    first_order = (dim - 1) * delta * sum(h * (1 - 1 / horizon) ** (h - 1) for h in range(1, horizon))
    assert 0.6 * first_order < uniform - best < first_order


def test_the_gap_is_of_order_d_over_root_k():
    def gap(dim, episodes):
        world = make_world("hard", dim=dim, episodes=episodes)
        losses = make_adversary("natural-losses", world, 1).losses(0)
        return searching_loss(1 / 16, 16) - occupancy.best_policy(world, losses)[1]

    assert gap(4, 10**8) * 2 == pytest.approx(gap(4, 10**8 // 4), rel=0.01)
    assert gap(7, 10**8) == pytest.approx(2 * gap(4, 10**8), rel=0.01)


@pytest.mark.parametrize(("horizon", "dim", "episodes"), [(16, 4, 10_000), (16, 4, 18), (4, 2, 1), (5, 9, 40)])
def test_k_episodes_cannot_tell_neighbours_of_the_hard_instance_apart(horizon, dim, episodes):
    """KL between the laws of one transition under parameters that differ in one sign: at most 1 / (2 K)."""
    world = make_world("hard", horizon=horizon, dim=dim, episodes=episodes)
    phi, theta = world.features[1][SEARCHING, :, FOUND], world.theta[1]
    for coordinate in range(1, dim):
        neighbour = theta.copy()
        neighbour[coordinate] *= -1
        p, r = phi @ theta, phi @ neighbour
        divergence = p * np.log(p / r) + (1 - p) * np.log((1 - p) / (1 - r))
        assert divergence.max() <= 1 / (2 * episodes)
        assert divergence.max() > 1 / (200 * episodes)  # ... and not because they are equal


def test_the_hard_instance_does_not_give_its_signs_away():
    one, two = (make_world("hard", seed=seed) for seed in (1, 2))
    assert one.bound == two.bound
    np.testing.assert_array_equal(one.features[3], two.features[3])
    assert not np.array_equal(one.theta[3], two.theta[3])


# ------------------------------------------------------------------------------------------- bow-tie

REACH = 0.3


def band() -> EllipsoidSet:
    """All |x| <= 0.3, for every pair by itself: what the library's sets are."""
    world = make_world("bow-tie")
    centre, gram = SCALE * np.array([1.0, 0.0]), np.eye(2) / (SCALE * REACH) ** 2
    return EllipsoidSet(world.features, [centre] * 2, [gram] * 2, 1.0)


def coupled_reach(p: float) -> float:
    """The largest probability of the good state under one x for both actions, by trying x."""
    return max(
        occupancy.occupancy_measure(make_world("bow-tie", lean=x), [[[p, 1 - p]], [[0.5, 0.5]] * 2])[1][0].sum()
        for x in np.linspace(-REACH, REACH, 13)
    )


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_a_shared_parameter_bounds_the_good_state_by_less_than_free_ones(p):
    policy = [np.array([[p, 1 - p]]), np.full((2, 2), 0.5)]
    assert upper_occupancy(band(), policy)[1][0] == pytest.approx(0.5 + REACH, abs=1e-9)
    assert coupled_reach(p) == pytest.approx(0.5 + REACH * abs(2 * p - 1), abs=1e-12)


def test_occupancy_measures_of_a_shared_parameter_are_not_convex():
    """(p, m) = (1, 0.8) and (0, 0.8) are possible with one x each, their midpoint with none."""
    assert coupled_reach(1.0) == pytest.approx(0.8)
    assert coupled_reach(0.0) == pytest.approx(0.8)
    assert coupled_reach(0.5) == pytest.approx(0.5)


def test_projection_on_the_bow_tie_breaks_pythagoras_and_on_the_band_it_does_not():
    left, right = bow_tie(REACH, p=0.45, m=0.8)
    assert left > right + 0.5  # 1.36 > 0.80: the inequality of the proof is false

    def divergence(a, b):
        return sum(float(np.sum(x * np.log(x / y))) for x, y in zip(a, b, strict=True))

    before = [np.array([[0.45, 0.55]]), np.array([[0.4, 0.4], [0.1, 0.1]])]  # p = 0.45, m = 0.8
    new = mirror_descent_step(band(), before, [np.zeros((1, 2)), np.zeros((2, 2))], 1.0).q
    star = [np.array([[1.0 - 1e-9, 1e-9]]), np.array([[0.4, 0.4], [0.1, 0.1]])]
    assert divergence(star, new) + divergence(new, before) <= divergence(star, before) + 1e-7


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("random-mixture", {"layer_sizes": (1, 30_000, 30_000, 1)}),
        ("random-mixture", {"n_actions": 10**9}),
        ("random-mixture", {"n_actions": 10**30}),
        ("random-mixture", {"dim": 10**12}),
        ("grid", {"height": 10**9, "width": 10**9}),
        ("grid", {"height": 20_000, "width": 20_000}),
        ("frozen-lake", {"horizon": 10**12}),
        ("river-swim", {"horizon": 10**9, "length": 10**9}),
        ("hard", {"horizon": 10**9, "episodes": 10**15}),
        ("inventory", {"capacity": 10**9, "max_order": 10**8}),
        ("inventory", {"capacity": 10**12}),
        ("inventory", {"max_order": 10**12}),
        ("queue", {"buffer": 10**9}),
        ("queue", {"slots": 10**12}),
        ("pricing", {"contacts": 10**12}),
        ("routing", {"stages": 10**9, "width": 10**9}),
    ],
)
def test_a_world_that_is_too_large_is_refused_with_the_memory_that_it_would_take(name, options, monkeypatch):
    monkeypatch.setattr(_checks, "memory", lambda: 8 * 2**30)
    tracemalloc.start()
    try:
        with pytest.raises(
            (InvalidSpecError, InvalidMDPError), match=r"would take [\d,.]+ GiB of memory, there are 8\.0"
        ):
            make_world(name, **options)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_memory_that_runs_out_while_a_world_is_built_is_an_error_of_its_options():
    @worlds.register("greedy")
    def greedy(*, size: int):
        return np.empty(size)

    with pytest.raises(InvalidSpecError, match=r"world 'greedy' \(size=\d+\) needs more memory .* Unable to allocate"):
        make_world("greedy", size=2**58)
