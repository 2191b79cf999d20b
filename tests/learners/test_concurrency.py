"""A learner belongs to one thread: a second one is refused, and does no harm."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from advmdp import ConcurrentUseError, InvalidEpisodeError, make_adversary, make_learner, make_world
from advmdp.episodes import Episode, play
from advmdp.learners import Uniform, base
from advmdp.registry import learners
from tests.strategies import suited


@pytest.fixture
def held_up(monkeypatch):
    """A learner in the middle of an update in another thread, and what lets that update go on."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1))
    learner = make_learner("uniform", world, 10)
    inside, go_on = threading.Event(), threading.Event()

    def wait(self, state, episode):
        inside.set()
        assert go_on.wait(10.0)
        return state

    monkeypatch.setattr(Uniform, "_learn", wait)
    episode = Episode([0, 0, 0], [0, 0, 0], [0.5, 0.5, 0.5])
    thread = threading.Thread(target=learner.update, args=(episode,))
    thread.start()
    assert inside.wait(10.0)
    yield learner, episode
    go_on.set()
    thread.join()
    assert learner.episodes_seen == 1
    learner.update(episode)  # and it can be used again
    assert learner.episodes_seen == 2


def test_an_update_during_an_update_is_refused(held_up):
    learner, episode = held_up
    with pytest.raises(ConcurrentUseError, match="'uniform' is being updated by another thread"):
        learner.update(episode)
    assert learner.episodes_seen == 0


def test_acting_during_an_update_is_refused(held_up):
    learner, _ = held_up
    with pytest.raises(ConcurrentUseError):
        learner.act(0, 0)


def test_saving_during_an_update_is_refused(held_up, tmp_path):
    learner, _ = held_up
    with pytest.raises(ConcurrentUseError):
        learner.save(tmp_path / "learner.npz")
    assert not list(tmp_path.iterdir())


def test_of_many_threads_each_update_is_done_whole_or_refused():
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1))
    learner = make_learner("vlsuob-reps", world, 1000)
    losses = [np.full((size, world.n_actions), 0.5) for size in (1, 3, 3)]
    played = play(world, learner.policy, losses, np.random.default_rng(0))
    done, refused = [], []

    def tell() -> None:
        for _ in range(20):
            try:
                learner.update(played)
                done.append(1)
            except ConcurrentUseError:
                refused.append(1)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) + len(refused) == 80
    assert learner.episodes_seen == len(done)


def test_a_thread_that_comes_late_neither_repeats_nor_undoes_what_another_did(monkeypatch):
    """One thread is held up just before it takes the learner, another finishes an update meanwhile."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1))
    learner = make_learner("uniform", world, 10)
    episode = Episode([0, 0, 0], [0, 0, 0], [0.5, 0.5, 0.5], index=0)
    checked, go_on, seen = threading.Event(), threading.Event(), []
    real = base.check_episode

    def slow(*arguments):
        result = real(*arguments)
        if threading.current_thread() is not threading.main_thread():
            checked.set()
            assert go_on.wait(10.0)
        return result

    def late() -> None:
        try:
            learner.update(episode)
        except InvalidEpisodeError as error:
            seen.append(str(error))

    monkeypatch.setattr(base, "check_episode", slow)
    thread = threading.Thread(target=late)
    thread.start()
    assert checked.wait(10.0)
    learner.update(episode)
    go_on.set()
    thread.join()
    assert learner.episodes_seen == 1
    assert len(seen) == 1
    assert "was told before" in seen[0]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copying_during_an_update_is_refused(held_up, duplicate):
    learner, _ = held_up
    with pytest.raises(ConcurrentUseError):
        duplicate(learner)


@pytest.mark.parametrize("name", learners.names())
def test_copies_in_several_threads_learn_what_each_would_learn_alone(name):
    """Shallow ones too: solvers have memory of their own."""
    world = suited(name, make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=3, dim=2))
    losses = make_adversary("switching", world, 40, period=2)
    options = {"losses": losses} if "losses" in learners.options(name) else {}
    first = make_learner(name, world, 40, **options)

    def played(learner, seed):
        rng = np.random.default_rng(seed)
        for k in range(12):
            learner.update(play(world, learner.policy, losses.losses(k), rng))
        return learner.flat_policy, [learner.act(0, 0) for _ in range(20)]

    played(copy.copy(first), 9)  # compiled, and first left as it was
    alone = [played(copy.deepcopy(first), seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(played, [copy.copy(first) for _ in range(3)], range(3)))
    for (policy, actions), (expected, drawn) in zip(together, alone, strict=True):
        np.testing.assert_array_equal(policy, expected)
        assert actions == drawn
    assert first.episodes_seen == 0


def test_a_fork_during_an_update_leaves_the_child_a_learner_that_can_be_used(held_up):
    """Its other thread is not there to end the update; the learner is as it was before it."""
    learner, episode = held_up
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that threads and forks do not go together is what this is about
        child = os.fork()
    if child == 0:
        try:
            assert learner.episodes_seen == 0
            learner._learn = lambda state, episode: state
            learner.update(episode)
            os.write(writer, str(learner.episodes_seen).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "1"
    os.waitpid(child, 0)
    with pytest.raises(ConcurrentUseError):
        learner.update(episode)  # here it is busy as before


def test_a_learner_can_still_be_copied():
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1))
    learner = make_learner("vlsuob-reps", world, 10)
    twin = copy.deepcopy(learner)
    episode = Episode([0, 0, 0], [0, 0, 0], [0.5, 0.5, 0.5])
    twin.update(episode)
    assert (learner.episodes_seen, twin.episodes_seen) == (0, 1)
