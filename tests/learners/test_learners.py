"""What all learners promise, and what the three simple ones do."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import (
    Adversary,
    CorruptCheckpointError,
    Episode,
    InvalidEpisodeError,
    InvalidSpecError,
    LayeredMDP,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
    storage,
)
from advmdp.registry import learners
from advmdp.testing import check_learner
from tests.strategies import random_kernels

SMALL = make_world("random-mixture", layer_sizes=(1, 3, 4, 1), n_actions=3, dim=2)


def options_for(name: str, mdp, episodes: int) -> dict:
    if "losses" in learners.options(name):
        return {"losses": make_adversary("stochastic", mdp, episodes)}
    return {}


WORLDS = {
    "random mixture": SMALL,
    "grid": make_world("grid", height=3, width=3),
    "one layer": make_world("random-mixture", layer_sizes=(1, 1), n_actions=3, dim=1),
    "tabular": LayeredMDP(random_kernels(np.random.default_rng(0), [1, 6, 6, 1], 2)),
    "one action": make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=1, dim=2),
    "linear": make_world("linear-mdp", layer_sizes=(1, 3, 4, 1), n_actions=3, dim=2),
    "linear, one layer": make_world("linear-mdp", layer_sizes=(1, 1), n_actions=3, dim=4),
    "linear, one action": make_world("linear-mdp", layer_sizes=(1, 2, 2, 1), n_actions=1, dim=2),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
@pytest.mark.parametrize("name", learners.names())
def test_every_learner_conforms(name, world):
    entry = learners.get(name)
    if not isinstance(world.model, entry.needs):
        with pytest.raises(InvalidSpecError, match=f"needs a {entry.needs.__name__}, not a "):
            make_learner(name, world, 5)
        return
    check_learner(
        lambda problem, episodes, seed: make_learner(
            name, problem, episodes, seed=seed, **options_for(name, problem, episodes)
        ),
        mdp=world,
    )


@pytest.mark.parametrize("name", learners.names())
def test_every_learner_says_what_it_was_checked_against(name):
    entry = learners.get(name)
    assert entry.status
    assert entry.name == name
    assert entry.__doc__


def test_act_draws_from_the_policy():
    learner = make_learner("uniform", SMALL, 10)
    draws = np.bincount([learner.act(1, 2) for _ in range(3000)], minlength=3)
    np.testing.assert_allclose(draws / 3000, 1 / 3, atol=0.05)
    with pytest.raises(InvalidEpisodeError, match="layer 3 has no actions, should be from 0 to 2"):
        learner.act(3, 0)
    with pytest.raises(InvalidEpisodeError, match="layer 1: state 3 does not exist"):
        learner.act(1, 3)


@pytest.mark.parametrize(("layer", "state"), [(0.0, 0), (1, 0.5), (1, np.array([0])), (-1, 0), (0, True)])
def test_act_wants_integers(layer, state):
    with pytest.raises(InvalidEpisodeError, match="should be an integer >= 0"):
        make_learner("uniform", SMALL, 10).act(layer, state)


@pytest.mark.parametrize("index", ["0", [0], 0.0, False, -1])
def test_an_index_is_an_integer(index):
    learner = make_learner("uniform", SMALL, 5)
    with pytest.raises(InvalidEpisodeError, match=r"episode index is .*, should be an integer"):
        learner.update(Episode([0, 1, 2], [0, 1, 2], [0.1, 0.2, 0.3], index=index))


@pytest.mark.parametrize("episodes", [0, -3, 2.5, True])
def test_episodes_must_be_a_positive_integer(episodes):
    with pytest.raises(InvalidSpecError, match=r"episodes is .*, should be an integer >= 1"):
        make_learner("uniform", SMALL, episodes)


def test_an_update_that_fails_inside_leaves_no_trace(monkeypatch):
    learner = make_learner("ftl", SMALL, 10)
    losses = make_adversary("fixed", SMALL, 10).losses(0)
    rng = np.random.default_rng(0)
    learner.update(play(SMALL, learner.policy, losses, rng))
    before, policy = learner._now.state.total.copy(), learner.policy

    def failing(total):
        raise RuntimeError("solver failed")

    monkeypatch.setattr(type(learner), "_follow", lambda self, total: failing(total))
    with pytest.raises(RuntimeError, match="solver failed"):
        learner.update(play(SMALL, learner.policy, losses, rng))
    assert learner.episodes_seen == 1
    assert learner.policy is policy
    np.testing.assert_array_equal(learner._now.state.total, before)


def test_a_learner_that_needs_the_number_of_episodes_says_so():
    with pytest.raises(InvalidSpecError, match="learner 'vlsuob-reps' needs the number of episodes"):
        make_learner("vlsuob-reps", SMALL)
    assert make_learner("vlsuob-reps-anytime", SMALL).episodes_seen == 0


class Alternating(Adversary):
    """The losses that undo follow-the-leader: always the leader's action is the bad one."""

    def flat_losses(self, k):
        table = np.zeros((self.layers.n_pairs // 2, 2))
        table[:, 0] = 0.5 if k == 0 else (k % 2 == 0)
        table[:, 1] = 0.0 if k == 0 else (k % 2 == 1)
        return table.ravel()


def test_follow_the_leader_has_linear_regret_on_alternating_losses():
    mdp = make_world("grid", height=3, width=3)
    episodes = 400
    result = run(mdp, make_learner("ftl", mdp, episodes), Alternating(mdp, episodes), episodes)
    uniform = run(mdp, make_learner("uniform", mdp, episodes), Alternating(mdp, episodes), episodes)
    assert result.regret[-1] > 0.4 * mdp.horizon * episodes
    assert uniform.regret[-1] < 0.01 * mdp.horizon * episodes


def test_follow_the_leader_follows_the_summed_losses():
    learner = make_learner("ftl", SMALL, 10)
    adversary = make_adversary("stochastic", SMALL, 10, seed=3)
    total = np.zeros(SMALL.layers.n_pairs)
    for k in range(6):
        learner.update(play(SMALL, learner.policy, adversary.losses(k), np.random.default_rng(k)))
        total += adversary.flat_losses(k)
        best, value = occupancy.best_policy(SMALL, SMALL.layers.split(total))
        own = occupancy.expected_loss(SMALL, learner.policy, SMALL.layers.split(total))
        assert own == pytest.approx(value, abs=1e-12)
        assert all(np.array_equal(a, b) for a, b in zip(best, learner.policy, strict=True))


def test_hindsight_refuses_losses_that_react():
    class Reacting(Alternating):
        oblivious = False

    mdp = make_world("grid", height=3, width=3)
    with pytest.raises(InvalidSpecError, match="needs an oblivious adversary"):
        make_learner("hindsight", mdp, 5, losses=Reacting(mdp, 5))


def test_known_transition_learners_show_their_occupancy_and_kernels():
    learner = make_learner("ftl", SMALL, 5)
    for table, kernel in zip(learner.q, learner.confidence_set.kernels, strict=True):
        assert table.sum() == pytest.approx(1.0)
        assert kernel.sum(axis=2) == pytest.approx(1.0)
    assert make_learner("uniform", SMALL, 5).q is None
    assert make_learner("uniform", SMALL, 5).confidence_set is None


def test_a_saved_learner_that_makes_no_sense_is_refused(tmp_path):
    learner = make_learner("ftl", SMALL, 5)
    path = tmp_path / "learner.npz"
    learner.save(path)
    tree = storage.read(path, "learner")
    n_pairs = SMALL.layers.n_pairs
    changes = [
        {"name": "nobody"},
        {"episodes": -1},
        {"state": {}},
        {"state": {**tree["state"], "more": 1}},
        *({"state": {"total": total}} for total in (None, np.full(n_pairs, np.nan), np.ones(1), np.ones((n_pairs, 1)))),
        *({"policy": policy} for policy in (np.ones(3), np.full(n_pairs, 7.0), np.full(n_pairs, np.nan), "x")),
        *({"episodes_seen": seen} for seen in (-4, 1.5, "x", True)),
        {"random": {}},
    ]
    for change in changes:
        storage.write(path, "learner", {**tree, **change})
        with pytest.raises(CorruptCheckpointError, match=r"learner\.npz: does not describe a learner"):
            load_learner(path)


def test_episodes_may_come_without_an_index():
    learner = make_learner("uniform", SMALL, 5)
    learner.update(Episode([0, 1, 2], [0, 1, 2], [0.1, 0.2, 0.3]))
    assert learner.episodes_seen == 1
    with pytest.raises(InvalidEpisodeError, match=r"index 0 was told before: 1 .* next index is 1"):
        learner.update(Episode([0, 1, 2], [0, 1, 2], [0.1, 0.2, 0.3], index=0))
    with pytest.raises(InvalidEpisodeError, match="index 5 comes too early"):
        learner.update(Episode([0, 1, 2], [0, 1, 2], [0.1, 0.2, 0.3], index=5))
