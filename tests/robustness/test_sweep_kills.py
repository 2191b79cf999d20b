"""A sweep that is killed at random moments, all its processes with it, ends with the frame of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

from advmdp.experiments import Store, load
from advmdp.report import write_report

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
    """Start, wait for the first sign of work, kill the whole process group a random while later, look at what is there.

    The first kill comes as soon as there is a checkpoint, so that one at least finds one.  Returns how many cells were
    finished, and how many had a checkpoint, after each kill.
    """
    finished, checkpoints = [], []
    while len(finished) < kills:
        start = (
            command("resume", out)
            if (out / "spec.toml").exists()
            else command("run", folder / "spec.toml", "--out", out)
        )
        before = signs_of_work(out)
        child = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        while child.poll() is None and (signs_of_work(out) == before or not (finished or checkpointed(out))):
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.4) if finished else 0.0)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        if child.wait() != -signal.SIGKILL:
            break  # it was finished before we came
        store = Store(out)
        load(out)  # readable at any moment
        finished.append(sum(map(store.is_done, store.cells())))
        checkpoints.append(len(list((out / "checkpoints").glob("*.npz"))))
    assert finished == sorted(finished)  # a finished cell stays finished
    return finished, checkpoints


def checkpointed(out):
    return list(out.glob("checkpoints/*.npz"))


def signs_of_work(out):
    """Checkpoints and results, with the time of their last change."""
    signs = set()
    for path in [*out.glob("cells/*.npz"), *checkpointed(out)]:
        with suppress(FileNotFoundError):  # it has just been replaced
            signs.add((path.name, path.stat().st_mtime_ns))
    return signs


def check_kills(uninterrupted, out, kills, seed):
    folder, whole = uninterrupted
    finished, checkpoints = killed_again_and_again(folder, out, kills, np.random.default_rng(seed))
    subprocess.run(command("run", folder / "spec.toml", "--out", out), check=True, capture_output=True)
    pd.testing.assert_frame_equal(load(out), whole, check_exact=True)
    assert not list((out / "checkpoints").iterdir())
    assert all(entry["state"] == "done" for entry in Store(out).manifest["cells"].values())
    return finished, checkpoints


def test_a_sweep_killed_five_times_ends_with_the_same_frame(uninterrupted, tmp_path):
    finished, checkpoints = check_kills(uninterrupted, tmp_path / "out", kills=5, seed=0)
    assert len(finished) >= 3  # so many kills hit a sweep at work
    assert max(checkpoints) > 0


@pytest.mark.slow
def test_a_sweep_killed_fifty_times_ends_with_the_same_frame(uninterrupted, tmp_path):
    """Several sweeps, so that kills fall into every part of one."""
    hits = number = 0
    while hits < 50:
        hits += len(check_kills(uninterrupted, tmp_path / f"out{number}", kills=12, seed=1 + number)[0])
        number += 1
        assert number <= 25


def test_a_sweep_at_work_can_be_read_and_reported(uninterrupted, tmp_path):
    """Whatever moment a report comes at, it finds whole cells with the rows that they will keep."""
    folder, whole = uninterrupted
    out = tmp_path / "out"
    partial = 0
    with subprocess.Popen(command("run", folder / "spec.toml", "--out", out), stderr=subprocess.DEVNULL) as child:
        try:
            while child.poll() is None:
                if not (out / "spec.toml").exists():
                    time.sleep(0.02)
                    continue
                frame = load(out)
                page = write_report(out).read_text(encoding="utf-8")
                assert page.rstrip().endswith("</html>")
                found = frame["cell"].unique()
                partial += 0 < len(found) < whole["cell"].nunique()
                if len(found):  # before the first cell nobody knows its columns
                    done = whole[whole["cell"].isin(found)].reset_index(drop=True)
                    # A column that only some cells have is of another type while none of the others is there.
                    pd.testing.assert_frame_equal(frame, done, check_exact=True, check_dtype=False)
        finally:
            child.terminate()
    assert child.returncode == 0
    assert partial > 0
    pd.testing.assert_frame_equal(load(out), whole, check_exact=True)
