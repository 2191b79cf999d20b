"""A sweep that is killed at random moments, all its processes with it, ends with the frame of one that was not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from advmdp.experiments import Store, load

SPEC = """
episodes = 400
seeds = 2
measures = ["widths"]
learners = ["vlsuob-reps-tight", "uob-reps", "uniform"]

[[worlds]]
name = "random-mixture"
options = { layer_sizes = [1, 3, 3, 1], n_actions = 2, dim = 2 }

[[adversaries]]
name = "switching"
options = { period = 50 }

[[adversaries]]
name = "adaptive"
"""


def command(*arguments):
    often = ["--workers", "2", "--checkpoint-every", "0.1", "--quiet"]
    return [sys.executable, "-m", "advmdp", *map(str, arguments), *often]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "spec.toml").write_text(SPEC)
    subprocess.run(command("run", folder / "spec.toml", "--out", folder / "out"), check=True, capture_output=True)
    return folder, load(folder / "out")


def killed_again_and_again(folder, out, kills, rng):
    """Start, kill the whole process group after a random while, look at what is readable; returns finished cells."""
    finished = []
    for number in range(kills):
        start = command("run", folder / "spec.toml", "--out", out) if number == 0 else command("resume", out)
        child = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + rng.uniform(1.5, 5.0)
        while time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.02)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if (out / "spec.toml").exists():
            store = Store(out)
            load(out)  # readable at any moment
            finished.append(sum(map(store.is_done, store.cells())))
        else:
            shutil.rmtree(out, ignore_errors=True)
            number -= 1
    assert finished == sorted(finished)  # a finished cell stays finished
    return finished


def check_kills(uninterrupted, out, kills, seed):
    folder, whole = uninterrupted
    out.parent.mkdir(exist_ok=True)
    killed_again_and_again(folder, out, kills, np.random.default_rng(seed))
    subprocess.run(command("run", folder / "spec.toml", "--out", out), check=True, capture_output=True)
    pd.testing.assert_frame_equal(load(out), whole, check_exact=True)
    assert not list((out / "checkpoints").iterdir())
    assert all(entry["state"] == "done" for entry in Store(out).manifest["cells"].values())


def test_a_sweep_killed_five_times_ends_with_the_same_frame(uninterrupted, tmp_path):
    check_kills(uninterrupted, tmp_path / "out", kills=5, seed=0)


@pytest.mark.slow
def test_a_sweep_killed_fifty_times_ends_with_the_same_frame(uninterrupted, tmp_path):
    """Four sweeps, so that kills fall into every part of one."""
    for number in range(4):
        check_kills(uninterrupted, tmp_path / f"out{number}", kills=13, seed=1 + number)
