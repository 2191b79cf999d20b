"""``kill -9`` at any moment, full disks, directories that cannot be written: nothing that was saved is lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

from advmdp import Episode, InvalidSpecError, load_learner, make_learner, make_world
from advmdp.experiments import Spec, load, run_spec
from advmdp.layered import LayeredMDP
from tests.robustness.mortal import Mortals

EPISODES = 60


@pytest.fixture(scope="module")
def mortals():
    with Mortals() as server:
        yield server


def check_kills(mortals, tmp_path, kills, seed):
    """Lives of a random number of moments, each of which goes on where the last one ended; returns where that was."""
    whole, pieces = tmp_path / "whole.npz", tmp_path / "pieces.npz"
    life = mortals.live("loop", str(whole), EPISODES)
    rng, progress = np.random.default_rng(seed), []
    while len(progress) < kills:
        # Of mean length such that the last kills come near the end; at least what a save takes, or it would never end.
        until = int(rng.integers(2 * life.moments // kills))
        if not mortals.live("loop", str(pieces), EPISODES, until=until).died:
            break
        progress.append(load_learner(pieces).episodes_seen if pieces.exists() else 0)
    assert progress == sorted(progress)  # what was saved once is never lost again
    assert not mortals.live("loop", str(pieces), EPISODES).died
    for mine, theirs in zip(load_learner(whole).policy, load_learner(pieces).policy, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert whole.read_bytes() == pieces.read_bytes()
    return progress


def test_a_killed_loop_goes_on_where_it_was(mortals, tmp_path):
    assert len(set(check_kills(mortals, tmp_path, kills=8, seed=0))) > 3


@pytest.mark.slow
def test_a_loop_killed_fifty_times_ends_as_if_nothing_had_happened(mortals, tmp_path):
    progress = check_kills(mortals, tmp_path, kills=50, seed=1)
    assert len(progress) >= 40
    assert max(progress) > 0.6 * EPISODES


class KilledHere(BaseException):
    """Stands for the end of the process: with it, nothing is cleaned up either (see below)."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("operation", "call"), [("fsync", 1), ("chmod", 1), ("replace", 1), ("fsync", 2)])
def test_a_save_that_dies_between_two_operations_leaves_a_good_file(operation, call, after, tmp_path, monkeypatch):
    world = make_world("random-mixture", layer_sizes=(1, 2, 2, 1))
    learner = make_learner("uob-reps", world, 10)
    path = tmp_path / "learner.npz"
    learner.save(path)
    learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5] * 3))
    real, calls, dead = getattr(os, operation), [], []

    def dying(*args, **options):
        calls.append(1)
        if len(calls) < call or dead:
            return real(*args, **options)
        if after:
            real(*args, **options)
        dead.append(1)
        raise KilledHere

    def dead_hands(*args, **options):
        raise KilledHere

    monkeypatch.setattr(os, operation, dying)
    monkeypatch.setattr(os, "unlink", dead_hands)
    with pytest.raises(KilledHere):
        learner.save(path)
    monkeypatch.undo()
    renamed = (operation == "replace" and after) or (operation == "fsync" and call == 2)
    assert load_learner(path).episodes_seen == (1 if renamed else 0)
    learner.save(path)  # what the dead left behind does not matter
    assert load_learner(path).episodes_seen == 1


def test_a_full_disk_is_an_error_and_leaves_the_old_file(tmp_path):
    world = make_world("random-mixture", layer_sizes=(1, 6, 6, 1))
    learner = make_learner("vlsuob-reps", world, 10)
    path = tmp_path / "learner.npz"
    learner.save(path)
    before = path.read_bytes()
    learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5] * 3))
    # No file of this process may now grow beyond half of what is needed.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            learner.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["learner.npz"]
    learner.save(path)
    assert load_learner(path).episodes_seen == 1


@pytest.fixture
def read_only_directory(tmp_path_factory):
    """A function that makes a directory read-only; root may write anywhere, so it becomes nobody for the while."""
    folder = Path(tempfile.mkdtemp())  # not in pytest's own, which nobody else may enter
    root = os.geteuid() == 0

    def lock():
        folder.chmod(0o555)
        if root:
            os.seteuid(65534)

    yield folder, lock
    if root:
        os.seteuid(0)
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_read_only_directory_is_an_error_and_leaves_the_old_file(read_only_directory):
    folder, lock = read_only_directory
    learner = make_learner("uniform", LayeredMDP([np.ones((1, 2, 1))]), 10)
    learner.save(folder / "learner.npz")
    learner.update(Episode([0], [0], [0.5]))
    lock()
    with pytest.raises(PermissionError):
        learner.save(folder / "learner.npz")
    assert load_learner(folder / "learner.npz").episodes_seen == 0


def test_an_experiment_in_a_read_only_directory_is_an_error_and_stays_readable(read_only_directory):
    folder, lock = read_only_directory
    spec = Spec(
        'episodes = 5\nseeds = 1\nadversaries = ["switching"]\nlearners = ["uniform"]\n'
        'worlds = [{ name = "grid", options = { height = 2, width = 2 } }]\n'
    )
    run_spec(spec, folder / "out", workers=0)
    whole = load(folder / "out")
    (folder / "out").chmod(0o555)
    (folder / "out" / "cells").chmod(0o555)
    lock()
    with pytest.raises(PermissionError):
        run_spec(spec, folder / "out", workers=0)
    with pytest.raises(InvalidSpecError, match=r"cannot be made: .*Permission denied"):
        run_spec(spec, folder / "new", workers=0)
    assert load(folder / "out").equals(whole)


def test_a_directory_that_is_not_there_is_named(tmp_path):
    learner = make_learner("uniform", LayeredMDP([np.ones((1, 2, 1))]), 10)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        learner.save(tmp_path / "nowhere" / "learner.npz")
