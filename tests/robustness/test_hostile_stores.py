"""Specs, manifests, rows and checkpoints, spoiled: refused by name or computed again, never believed."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from advmdp import CorruptCheckpointError, InvalidSpecError, storage
from advmdp.experiments import Spec, Store, load, run_spec
from advmdp.report import write_report
from tests.robustness.hostile import damaged, spoiled

DOCUMENT = {
    "title": "a title",
    "episodes": 20,
    "seeds": 1,
    "measures": ["widths"],
    "worlds": [{"name": "random-mixture", "options": {"layer_sizes": [1, 2, 2, 1], "n_actions": 2, "dim": 2}}],
    "adversaries": ["switching", {"name": "stochastic", "options": {"distribution": "beta"}}],
    "learners": [{"name": "vlsuob-reps", "grid": {"radius_scale": [0.5, 1.0]}}, "uniform"],
}


def toml(value) -> str:
    """Anything as TOML that can be: a writer of our own, so that it can be given nonsense."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml(child)}" for key, child in value.items()) + "}"
    if isinstance(value, np.ndarray):
        return toml(value.tolist())
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value) if isinstance(value, str) else str(value)


def attack_specs(count, seed):
    """Returns how many spoiled specs were refused; the others must be usable up to their cells."""
    refused = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        bad, changes = spoiled(DOCUMENT, rng)
        text = "".join(f"{json.dumps(str(key))} = {toml(value)}\n" for key, value in bad.items())
        if rng.random() < 0.3:  # damage on the level of letters as well
            letters = list(text)
            for _ in range(rng.integers(1, 5)):
                letters[rng.integers(len(letters))] = chr(rng.integers(0, 0x300))
            text = "".join(letters)
        try:
            spec = Spec(text)
            ids = [cell.id for cell in spec.cells[:100]] if len(spec.seeds) < 1000 else []
        except InvalidSpecError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"spec {number} ({changes}) gave {type(error).__name__}: {error}\n{text}") from error
        else:
            assert all("/" not in cell_id and not cell_id.startswith(".") for cell_id in ids)
    return refused


def test_spoiled_specs_are_refused_or_make_sense():
    assert attack_specs(1_000, seed=0) > 500


@pytest.mark.slow
def test_many_spoiled_specs_are_refused_or_make_sense():
    assert attack_specs(10_000, seed=1) > 5_000


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store") / "out"
    text = "".join(f"{key} = {toml(value)}\n" for key, value in DOCUMENT.items())
    run_spec(Spec(text), directory, workers=0)
    return directory, load(directory)


def files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")


def attack_stores(finished, directory, count, seed):
    """Damage one file of a finished experiment: reading tells, and running again gives the same frame."""
    origin, whole = finished
    noticed = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(origin, directory)
        victim = files(directory)[rng.integers(len(files(directory)))]
        victim.write_bytes(damaged(victim.read_bytes(), rng))
        what = f"{victim.relative_to(directory)}, damage {number}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                frame = load(directory)
        except (CorruptCheckpointError, InvalidSpecError) as error:
            noticed += 1
            names_it = victim.name in str(error) or "spec.toml" in str(error)
            if not names_it:
                raise AssertionError(f"{what}: not named in {error}") from error
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        else:
            assert list(frame["cell"].unique()) == list(whole["cell"].unique()), what
            pd.testing.assert_frame_equal(frame, whole, check_exact=True)
    return noticed


def test_a_damaged_store_is_noticed_or_unharmed(finished, tmp_path):
    assert attack_stores(finished, tmp_path / "copy", 300, seed=2) > 100


@pytest.mark.slow
def test_many_damaged_stores_are_noticed_or_unharmed(finished, tmp_path):
    assert attack_stores(finished, tmp_path / "copy", 10_000, seed=3) > 3_500


def test_a_damaged_cell_is_computed_again_with_the_same_frame(finished, tmp_path):
    origin, whole = finished
    for number, suffix in enumerate((".npz", ".parquet")):
        directory = tmp_path / f"copy{number}"
        shutil.copytree(origin, directory)
        victim = next((directory / "cells").glob(f"*{suffix}"))
        victim.write_bytes(damaged(victim.read_bytes(), np.random.default_rng(number)))
        run_spec(Spec(Store(origin).spec_text), directory, workers=0)
        pd.testing.assert_frame_equal(load(directory), whole, check_exact=True)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..", "a/b", "C:\\windows", "\x00", "~root", "."])
def test_names_in_a_spec_cannot_leave_the_directory(name):
    for key in ("worlds", "adversaries", "learners"):
        with pytest.raises(InvalidSpecError, match=rf"{key}\[0\]\.name"):
            Spec("".join(f"{k} = {toml(v)}\n" for k, v in {**DOCUMENT, key: [name]}.items()))


def test_options_in_a_spec_cannot_leave_the_directory():
    entry = {"name": "switching", "options": {"period": "../../../tmp/x"}}
    spec = Spec("".join(f"{k} = {toml(v)}\n" for k, v in {**DOCUMENT, "adversaries": [entry]}.items()))
    assert all("/" not in cell.id for cell in spec.cells)


def test_a_title_cannot_inject_markup(finished, tmp_path):
    origin, _ = finished
    hostile = '</script><img src=x onerror="alert(1)"><script>alert(2)</script>'
    text = "".join(f"{key} = {toml(value)}\n" for key, value in {**DOCUMENT, "title": hostile}.items())
    shutil.copytree(origin, tmp_path / "out")
    run_spec(Spec(text), tmp_path / "out", workers=0)
    page = write_report(tmp_path / "out").read_text(encoding="utf-8")
    assert "<img src=x" not in page
    assert "alert(2)</script>" not in page


def test_a_checkpoint_of_another_kind_is_not_believed(tmp_path):
    storage.write(tmp_path / "c.npz", "learner", {"a": 1})
    with pytest.raises(CorruptCheckpointError, match="learner"):
        storage.read(tmp_path / "c.npz", "checkpoint")
