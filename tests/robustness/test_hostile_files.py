"""Files of every type, spoiled: each is read as something sound, or refused with one kind of error."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

from advmdp import (
    Agent,
    CorruptCheckpointError,
    Episode,
    InvalidMDPError,
    LayeredMDP,
    Process,
    TabularModel,
    load_agent,
    load_learner,
    load_mdp,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    storage,
)
from advmdp.registry import learners
from advmdp.solvers import SolverError
from tests.robustness.hostile import spoiled
from tests.strategies import suited

WORLD = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2)
LARGEST_MEMORY = 64 * 2**20


def used_learner(name):
    losses = make_adversary("stochastic", WORLD, 10)
    options = {"losses": losses} if "losses" in learners.options(name) else {}
    learner = make_learner(name, suited(name, WORLD), 10, **options)
    rng = np.random.default_rng(0)
    for k in range(3):
        learner.update(play(WORLD, learner.policy, losses.losses(k), rng))
    return learner


def attack(kind, good, load, use, count, seed, tmp_path):
    """Spoil a good file ``count`` times; returns how many versions were refused."""
    path = tmp_path / "spoiled.npz"
    tree = storage.read(good, kind)
    refused = 0
    for number in range(count):
        bad, changes = spoiled(tree, np.random.default_rng([seed, number]))
        try:
            storage.write(path, kind, bad)
        except (TypeError, ValueError):
            continue  # not even a file of ours can hold this
        tracemalloc.start()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                use(load(path))
        except CorruptCheckpointError as error:
            refused += str(path) in str(error)
        except (SolverError, InvalidMDPError):
            pass  # sound, and an update that says that it cannot be done
        except Exception as error:
            raise AssertionError(f"change {number} ({changes}) gave {type(error).__name__}: {error}") from error
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < LARGEST_MEMORY, f"change {number} ({changes}) took {peak / 2**20:.0f} MiB"
    return refused


def use_learner(learner):
    """Whatever was let in has a policy, and learns."""
    for table in learner.policy:
        np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-6)
    problem = learner._problem
    world = problem if isinstance(problem, LayeredMDP) else WORLD
    if world.layers == problem.layers:
        learner.update(
            play(world, learner.policy, make_adversary("fixed", world, 10).losses(0), np.random.default_rng(1))
        )


def use_mdp(mdp):
    sizes = TabularModel(mdp.layer_sizes, mdp.n_actions).layer_sizes[:-1]
    uniform = [np.full((size, mdp.n_actions), 1.0 / mdp.n_actions) for size in sizes]
    assert all(abs(q.sum() - 1.0) < 1e-6 for q in occupancy.occupancy_measure(mdp.kernels, uniform))


@pytest.mark.parametrize("name", learners.names())
def test_spoiled_learners_are_refused_or_sound(name, tmp_path):
    used_learner(name).save(tmp_path / "good.npz")
    refused = attack("learner", tmp_path / "good.npz", load_learner, use_learner, 60, 1, tmp_path)
    assert refused > 10


def test_spoiled_worlds_are_refused_or_sound(tmp_path):
    WORLD.save(tmp_path / "good.npz")
    assert attack("mdp", tmp_path / "good.npz", load_mdp, use_mdp, 1_000, 2, tmp_path) > 300


def shop():
    def moving(step, state, action):
        return {"few": 0.5, "many": 0.5} if step else {"few": 0.25, "many": 0.5, "none": 0.25}

    def staying(step, state, action):
        return {state: 1.0}

    return Process("few", lambda step, state: [] if state == "none" else ["a", "b"], [moving, staying], 3, (0, 1))


def use_agent(agent):
    """Whatever was let in can be asked, told, explained and saved."""
    for number in [*agent.waiting]:
        record = agent._record(number)
        for step in [h for h, loss in enumerate(record.losses) if loss is None]:
            agent.episode(number).cost_of(step, 0.5)
    for number in [*agent.open]:
        agent.episode(number).abandon()
    episode = agent.begin()
    for _ in range(3):
        episode.act("few")
        episode.cost(0.5)
    episode.end()
    str(agent.explain())
    agent.tree()


@pytest.mark.parametrize("name", ["planner", "portfolio"])
def test_spoiled_agents_are_refused_or_sound(name, tmp_path):
    process = shop()
    agent = Agent(process, name, baseline=lambda step, state: "a", slack=0.5)
    opened = [agent.begin() for _ in range(4)]
    for episode in opened:
        episode.act("few")
    opened[0].end("none", wait=True)
    opened[1].end("none")
    agent.save(tmp_path / "good.npz")

    def load(path):
        return load_agent(path, process)

    assert attack("agent", tmp_path / "good.npz", load, use_agent, 60, 3, tmp_path) > 10


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("exp3-policies", "episodes_seen", 10**30),
        ("uniform", "skipped", 2**53),
        ("lsuob-reps", "simplex", np.zeros((1, 1))),
    ],
)
def test_what_slow_attacks_found_stays_refused(name, place, value, tmp_path):
    used_learner(name).save(tmp_path / "learner.npz")
    tree = storage.read(tmp_path / "learner.npz", "learner")
    home = tree["options"] if place == "simplex" else tree
    home[place] = value
    storage.write(tmp_path / "learner.npz", "learner", tree)
    with pytest.raises(CorruptCheckpointError, match=r"learner\.npz"):
        load_learner(tmp_path / "learner.npz")


def first_entry(array, value):
    changed = np.array(array)
    changed.flat[0] = value
    return changed


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("portfolio", ("meta", "seen"), -1.0),  # the next update divided by zero
        ("portfolio", ("predictions", "tables"), 1.5),
        ("portfolio", ("learners", "totals"), np.inf),
        ("uob-reps", ("data", "transitions", 0), 1e300),  # squares overflowed
        ("uob-reps", ("data", "at_epoch", 0), np.inf),
        ("planner", ("predictions", "visits"), -1.0),
        ("planner", ("kernel", "weights"), 2.0),
    ],
)
def test_one_number_that_cannot_be_is_refused(name, place, value, tmp_path):
    used_learner(name).save(tmp_path / "learner.npz")
    tree = storage.read(tmp_path / "learner.npz", "learner")
    home = tree["state"]
    for key in place[:-1]:
        home = home[key]
    home[place[-1]] = first_entry(home[place[-1]], value)
    storage.write(tmp_path / "learner.npz", "learner", tree)
    with pytest.raises(CorruptCheckpointError, match=r"learner\.npz"):
        load_learner(tmp_path / "learner.npz")


@pytest.mark.parametrize("name", ["portfolio", "planner"])
def test_a_fraction_of_a_transition_is_refused(name, tmp_path):
    world = LayeredMDP(WORLD.kernels)
    learner = make_learner(name, world)
    learner.update(play(world, learner.policy, make_adversary("fixed", world, 10).losses(0), np.random.default_rng(0)))
    learner.save(tmp_path / "learner.npz")
    tree = storage.read(tmp_path / "learner.npz", "learner")
    tree["state"]["kernel"]["counts"] = 0.5 * tree["state"]["kernel"]["counts"]
    storage.write(tmp_path / "learner.npz", "learner", tree)
    with pytest.raises(CorruptCheckpointError, match="counts should be integers"):
        load_learner(tmp_path / "learner.npz")


@pytest.mark.parametrize("name", ["portfolio", "planner", "vlsuob-reps-tight"])
def test_spoiled_learners_that_wait_for_losses_are_refused_or_sound(name, tmp_path):
    learner, rng = make_learner(name, WORLD, 10), np.random.default_rng(0)
    losses = make_adversary("stochastic", WORLD, 10).losses(0)
    for k in range(5):
        told = play(WORLD, learner.policy, losses, rng)
        learner.update(Episode(told.states, told.actions, told.losses if k % 2 else None))
    learner.tell(0, [0.5, None, 0.25])
    learner.save(tmp_path / "good.npz")
    assert attack("learner", tmp_path / "good.npz", load_learner, use_learner, 60, 5, tmp_path) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", learners.names())
def test_many_spoiled_learners_are_refused_or_sound(name, tmp_path):
    used_learner(name).save(tmp_path / "good.npz")
    assert attack("learner", tmp_path / "good.npz", load_learner, use_learner, 500, 3, tmp_path) > 100


@pytest.mark.slow
def test_many_spoiled_worlds_are_refused_or_sound(tmp_path):
    WORLD.save(tmp_path / "good.npz")
    assert attack("mdp", tmp_path / "good.npz", load_mdp, use_mdp, 10_000, 4, tmp_path) > 3_000
