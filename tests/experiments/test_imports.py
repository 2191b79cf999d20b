"""Worlds, adversaries and learners in a module of the user's: imported to compute, never needed to read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from advmdp import InvalidSpecError
from advmdp.experiments import Spec, Store, load
from advmdp.experiments.spec import to_toml

MODULE = """
from pathlib import Path

import numpy as np

import advmdp

Path("imported").touch()


@advmdp.register_world("own-corridor")
def corridor(*, length: int = 3, slip: float = 0.1):
    layers = [np.ones((1, 2, 1))] * length
    return advmdp.LayeredMDP(layers)
"""
#: An option that is the default, so that its cell can be found only by somebody who knows that.
DOCUMENT = {
    "episodes": 5,
    "seeds": 1,
    "worlds": [{"name": "own-corridor", "options": {"length": 3}}, {"name": "own-corridor", "options": {"length": 4}}],
    "adversaries": ["switching"],
    "learners": ["uniform"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_worlds.py").write_text(MODULE)
    (tmp_path / "plain.toml").write_text(to_toml(DOCUMENT))
    (tmp_path / "spec.toml").write_text(to_toml({"imports": ["own_worlds"]} | DOCUMENT))
    return tmp_path


def advmdp(*arguments):
    # Not `-m`, which has the working directory among the places of modules.
    command = [sys.executable, "-c", "from advmdp.cli import app; app()", *arguments]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "COLUMNS": "500"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_spec_names_the_modules_that_it_needs_and_its_results_need_none(folder):
    done = advmdp("run", "spec.toml", "--out", "out", "--workers", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (folder / "imported").exists()
    (folder / "imported").unlink()
    (folder / "own_worlds.py").rename(folder / "elsewhere.py")
    frame = load("out")  # here nobody knows the world
    assert frame["world"].unique().tolist() == ["own-corridor[length=3]", "own-corridor[length=4]"]
    assert frame["world.length"].unique().tolist() == [3, 4]
    assert len(Store("out").final(Store("out").cells()[1].id).policy) == 4
    report = advmdp("report", "out")
    assert report.returncode == 0, report.stderr
    assert "own-corridor[length=3] cannot be built here" in (folder / "out" / "report.html").read_text()
    assert not (folder / "imported").exists()
    (folder / "elsewhere.py").rename(folder / "own_worlds.py")
    drawn = advmdp("report", "out", "--import", "own_worlds")
    assert drawn.returncode == 0, drawn.stderr
    assert "cannot be built here" not in (folder / "out" / "report.html").read_text()


def test_an_option_imports_a_module_for_run_and_resume(folder):
    refused = advmdp("run", "plain.toml", "--out", "out", "--workers", "0")
    assert refused.returncode == 2
    assert "unknown world 'own-corridor'" in refused.stderr
    assert "--import" in refused.stderr
    done = advmdp("run", "plain.toml", "--out", "out", "--workers", "1", "--import", "own_worlds", "--quiet")
    assert done.returncode == 0, done.stderr
    whole = load("out")
    next((folder / "out" / "cells").glob("*.npz")).unlink()
    again = advmdp("resume", "out", "--workers", "1", "--import", "own_worlds", "--quiet")
    assert again.returncode == 0, again.stderr
    assert load("out").equals(whole)


def test_a_module_that_cannot_be_imported_is_named(folder):
    (folder / "broken.py").write_text("1 / 0")
    for module, reason in (("nowhere", "ModuleNotFoundError"), ("broken", "ZeroDivisionError"), ("../x", "Error")):
        with pytest.raises(InvalidSpecError, match=rf"the module '{module}' cannot be imported \({reason}|\w+{reason}"):
            Spec(to_toml({"imports": [module]} | DOCUMENT))
