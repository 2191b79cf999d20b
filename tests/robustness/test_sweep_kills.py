"""A sweep that dies at any moment of its life, all its processes with it, ends with the frame of one that did not."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from advmdp.experiments import Store, load, run_spec
from advmdp.report import write_report
from tests.robustness.mortal import Mortals

SMALL = """
episodes = 8
seeds = 1
measures = ["widths"]
learners = ["vlsuob-reps-tight", "uniform"]
adversaries = ["switching", "adaptive"]

[[worlds]]
name = "random-mixture"
options = { layer_sizes = [1, 3, 3, 1], n_actions = 2, dim = 2 }
"""
LARGER = SMALL.replace("episodes = 8", "episodes = 200").replace("seeds = 1", "seeds = 2")


@pytest.fixture(scope="module")
def mortals():
    with Mortals() as server:
        yield server


@pytest.fixture(scope="module")
def whole(mortals, tmp_path_factory):
    """The frame of a sweep that was left alone, and how many moments it took."""
    out = tmp_path_factory.mktemp("whole") / "out"
    life = mortals.live("sweep", SMALL, str(out), 0)
    return load(out), life.moments


def after_death(out):
    """Whatever is there can be read; returns how many cells are finished."""
    if not (out / "spec.toml").exists():
        return 0
    load(out)
    store = Store(out)
    entries = store.manifest["cells"].values()
    assert all(entry["state"] in ("pending", "done") for entry in entries)
    return sum(map(store.is_done, store.cells()))


def at_the_end(out, frame):
    """As if nothing had happened, and nothing is left over."""
    pd.testing.assert_frame_equal(load(out), frame, check_exact=True)
    assert all(entry["state"] == "done" for entry in Store(out).manifest["cells"].values())
    assert not list((out / "checkpoints").iterdir())
    assert not [path for path in out.rglob("*") if path.name.endswith(".tmp")]


def check_deaths(mortals, whole, tmp_path, deaths, seed):
    """One sweep for each death, at moments spread over the whole life; returns how many cells were finished then."""
    frame, moments = whole
    edges = np.linspace(0, moments, deaths + 1).astype(int)
    finished = []
    for number, until in enumerate(np.random.default_rng(seed).integers(edges[:-1], edges[1:]).tolist()):
        out = tmp_path / str(number)
        assert mortals.live("sweep", SMALL, str(out), 0, until=until).died, until
        finished.append(after_death(out))
        assert not mortals.live("sweep", SMALL, str(out), 0).died
        at_the_end(out, frame)
    return finished


def test_a_sweep_that_dies_once_ends_with_the_same_frame(mortals, whole, tmp_path):
    finished = check_deaths(mortals, whole, tmp_path, 8, seed=0)
    assert finished == sorted(finished)
    assert set(finished) >= {0, 1, 2, 3}


@pytest.mark.slow
def test_a_sweep_that_dies_at_fifty_moments_of_its_life_ends_with_the_same_frame(mortals, whole, tmp_path):
    finished = check_deaths(mortals, whole, tmp_path, 50, seed=1)
    assert set(finished) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("workers", "kills", "longest"),
    [(0, 12, 220), (2, 2, 150), pytest.param(0, 50, 75, marks=pytest.mark.slow)],
    ids=["alone", "with two workers", "fifty times"],
)
def test_a_sweep_that_dies_again_and_again_ends_with_the_same_frame(workers, kills, longest, mortals, whole, tmp_path):
    """Every life goes on where the last one ended (to begin takes 30 moments); a finished cell stays finished."""
    out, rng, finished = tmp_path / "out", np.random.default_rng(kills), []
    while len(finished) < kills:
        if not mortals.live("sweep", SMALL, str(out), workers, until=int(rng.integers(longest))).died:
            break
        finished.append(after_death(out))
    assert len(finished) > kills / 2
    assert finished == sorted(finished)
    assert not mortals.live("sweep", SMALL, str(out), workers).died
    at_the_end(out, whole[0])


def test_a_sweep_at_work_can_be_read_and_reported(tmp_path):
    """Whatever moment a report comes at, it finds whole cells with the rows that they will keep."""
    (tmp_path / "spec.toml").write_text(LARGER)
    run_spec(tmp_path / "spec.toml", tmp_path / "whole", workers=0)
    whole, out = load(tmp_path / "whole"), tmp_path / "out"
    partial = 0
    order = ["run", tmp_path / "spec.toml", "--out", out, "--workers", "2", "--checkpoint-every", "0.1", "--quiet"]
    command = [sys.executable, "-m", "advmdp", *map(str, order)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
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
