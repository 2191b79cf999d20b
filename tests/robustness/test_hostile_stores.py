"""Specs, manifests, rows and checkpoints, spoiled: refused by name or computed again, never believed."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from advmdp import CorruptCheckpointError, InvalidSpecError, _checks, storage
from advmdp.cli import app
from advmdp.experiments import Spec, Store, load, resume, run_spec, store
from advmdp.experiments.work import Job, checkpoint_of, play
from advmdp.report import page, write_report
from advmdp.report.page import render
from advmdp.report.results import Results
from tests.robustness.hostile import damaged, spoiled, spoiled_rows

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


def attack_specs(count, seed, build=False):
    """Returns how many spoiled specs were refused; the others must be usable up to their cells, or what these need."""
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
            if build:
                spec.check()
        except InvalidSpecError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"spec {number} ({changes}) gave {type(error).__name__}: {error}\n{text}") from error
        else:
            assert all("/" not in cell_id and not cell_id.startswith(".") for cell_id in ids)
    return refused


def test_spoiled_specs_are_refused_or_make_sense():
    assert attack_specs(1_000, seed=0) > 500


def test_what_a_spoiled_spec_names_is_built_or_refused(monkeypatch):
    monkeypatch.setattr(_checks, "memory", lambda: 2**26)  # for worlds that would just fit
    assert attack_specs(200, seed=9, build=True) > 100


@pytest.mark.slow
def test_what_many_spoiled_specs_name_is_built_or_refused(monkeypatch):
    monkeypatch.setattr(_checks, "memory", lambda: 2**26)
    assert attack_specs(2_000, seed=10, build=True) > 1_000


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


# ------------------------------------------------------------------ right checksums, wrong contents

LARGEST_MEMORY = 64 * 2**20
SMALL = DOCUMENT | {"adversaries": ["switching"], "learners": ["vlsuob-reps", "uniform"]}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store") / "out"
    run_spec(Spec("".join(f"{key} = {toml(value)}\n" for key, value in SMALL.items())), directory, workers=0)
    return directory


def write_manifest(directory, manifest):
    """A manifest whose checksum vouches for it."""
    checksum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    whole = {**manifest, "checksum": checksum} if isinstance(manifest, dict) else manifest
    (directory / "manifest.json").write_text(json.dumps(whole))


def read_manifest(directory):
    manifest = json.loads((directory / "manifest.json").read_text())
    del manifest["checksum"]
    return manifest


def write_rows(directory, cell_id, table):
    """Rows, and the record that vouches for them."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    (directory / "cells" / f"{cell_id}.parquet").write_bytes(buffer.getvalue())
    record = storage.read(directory / "cells" / f"{cell_id}.npz", "cell")
    record["rows_sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    storage.write(directory / "cells" / f"{cell_id}.npz", "cell", record)


def spoil_rows(directory, rng):
    cell_id = some_cell(directory, rng)
    table, changes = spoiled_rows(pq.read_table(directory / "cells" / f"{cell_id}.parquet"), rng)
    write_rows(directory, cell_id, table)
    return changes


def spoil_record(directory, rng):
    path = directory / "cells" / f"{some_cell(directory, rng)}.npz"
    tree, changes = spoiled(storage.read(path, "cell"), rng)
    storage.write(path, "cell", tree)
    return changes


def spoil_manifest(directory, rng):
    manifest, changes = spoiled(read_manifest(directory), rng)
    write_manifest(directory, json.loads(json.dumps(manifest, default=np.ndarray.tolist)))
    return changes


def spoil_spec(directory, rng):
    document, changes = spoiled(SMALL, rng)
    text = "".join(f"{json.dumps(str(key))} = {toml(value)}\n" for key, value in document.items())
    (directory / "spec.toml").write_text(text)
    write_manifest(
        directory,
        {**read_manifest(directory), "spec_sha256": [hashlib.sha256(text.encode()).hexdigest()]},
    )
    return changes


def some_cell(directory, rng):
    cells = sorted(path.stem for path in (directory / "cells").glob("*.npz"))
    return cells[rng.integers(len(cells))]


FORMATS = {"rows": spoil_rows, "record": spoil_record, "manifest": spoil_manifest, "spec": spoil_spec}


def attack_contents(kind, origin, directory, count, seed, monkeypatch):
    """Spoil one file of a finished experiment and vouch for it: load, report and resume refuse it or make sense."""
    monkeypatch.setattr(page, "PICTURES", 0)  # they take most of the time
    monkeypatch.setattr(store, "_environment", lambda: {"versions": {"advmdp": "0"}, "git": None, "machine": None})
    done, refused = {cell.id for cell in Store(origin).cells()}, 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(origin, directory)
        try:
            what = f"{kind} {number}: {FORMATS[kind](directory, rng)}"
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            continue  # not even a file of this kind can hold this
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if kind == "spec" and not {cell.id for cell in Store(directory).cells()} <= done:
                    load(directory)  # what was let in is another experiment, perhaps a larger one than we have time for
                    continue
                refused += not readable(directory, what, closely=number % 4 == 0)
                assert resume(directory, workers=0).left == 0, what
                load(directory)
        except (InvalidSpecError, CorruptCheckpointError) as error:
            # Cells are computed again; a spec that makes no sense, or that the manifest does not vouch for, is not.
            if kind not in ("spec", "manifest") or str(directory) not in str(error):
                raise AssertionError(f"{what}: {error}") from error
            refused += 1
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
    return refused


def readable(directory, what, closely=True):
    """Whether an experiment can be reported; if not, the error says where it is.

    Watching memory, and writing the page, take most of the time.
    """
    held = pa.total_allocated_bytes()
    if closely:
        tracemalloc.start()
    try:
        results = Results.read(directory)
    except (CorruptCheckpointError, InvalidSpecError) as error:
        if str(directory) not in str(error):
            raise AssertionError(f"{what}: not named in {error}") from error
        return False
    finally:
        peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - held
        tracemalloc.stop()
        assert peak < LARGEST_MEMORY, f"{what}: took {peak / 2**20:.0f} MiB"
    if closely:
        render(results)
    return True


@pytest.mark.parametrize("kind", FORMATS)
def test_a_store_with_right_checksums_and_wrong_contents_is_refused_or_sound(kind, small, tmp_path, monkeypatch):
    refused = attack_contents(kind, small, tmp_path / "copy", 60, 5, monkeypatch)
    assert refused > 10 or kind == "manifest"  # which is made anew


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_many_stores_with_right_checksums_are_refused_or_sound(kind, small, tmp_path, monkeypatch):
    refused = attack_contents(kind, small, tmp_path / "copy", 1_000, 6, monkeypatch)
    assert refused > 200 or kind == "manifest"


def changed_rows(change):
    def spoil(directory, cell_id):
        write_rows(directory, cell_id, change(pq.read_table(directory / "cells" / f"{cell_id}.parquet")))

    return spoil


def changed_record(**changes):
    def spoil(directory, cell_id):
        path = directory / "cells" / f"{cell_id}.npz"
        storage.write(path, "cell", {**storage.read(path, "cell"), **changes})

    return spoil


def changed_manifest(**changes):
    def spoil(directory, cell_id):
        write_manifest(directory, {**read_manifest(directory), **changes})

    return spoil


def with_nan(table):
    values = table["regret"].to_pylist()
    return table.set_column(table.column_names.index("regret"), "regret", pa.array([float("nan"), *values[1:]]))


def text_instead_of_numbers(table):
    return table.set_column(1, "loss", table["loss"].cast(pa.string()))


#: The manifest is made anew without a word; of the cells, the file is named.
CASES = {
    "no regret": (".parquet", changed_rows(lambda table: table.drop_columns(["regret"]))),
    "a column twice": (".parquet", changed_rows(lambda table: table.append_column("cell", table["loss"]))),
    "text for numbers": (".parquet", changed_rows(text_instead_of_numbers)),
    "NaN": (".parquet", changed_rows(with_nan)),
    "no rows": (".parquet", changed_rows(lambda table: table.slice(0, 0))),
    "no timing": (".npz", changed_record(timing=None)),
    "timing of text": (".npz", changed_record(timing={"seconds": "3"})),
    "no policy": (".npz", changed_record(policy=[])),
    "policy of NaN": (".npz", changed_record(policy=[np.full((1, 2), np.nan)] * 3)),
    "digest of a number": (".npz", changed_record(rows_sha256=3)),
    "cells in a list": ("", changed_manifest(cells=[])),
    "a cell without state": ("", changed_manifest(cells={"a": {}})),
    "no digests": ("", changed_manifest(spec_sha256=None)),
    "versions of numbers": ("", changed_manifest(versions=3, history=7)),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_contents_are_named_by_report_and_mended_by_resume(case, small, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PICTURES", 0)
    suffix, spoil = CASES[case]
    directory = tmp_path / "out"
    shutil.copytree(small, directory)
    cell_id = Store(directory).cells()[0].id
    spoil(directory, cell_id)
    result = CliRunner().invoke(app, ["report", str(directory)])
    assert result.exit_code == (1 if suffix else 0)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if suffix:
        assert f"{cell_id}{suffix}" in result.output
        assert "advmdp resume" in result.output
    assert CliRunner().invoke(app, ["resume", str(directory), "--workers", "0", "--quiet"]).exit_code == 0
    pd.testing.assert_frame_equal(load(directory), load(small), check_exact=True)


def test_a_small_file_of_rows_cannot_ask_for_much_memory(small, tmp_path):
    """Millions of equal rows in a few kilobytes: their number is looked at before they are."""
    shutil.copytree(small, tmp_path / "out")
    cell_id = Store(small).cells()[0].id
    names = pq.read_schema(small / "cells" / f"{cell_id}.parquet").names
    many = pa.array(np.zeros(4_000_000))
    write_rows(tmp_path / "out", cell_id, pa.table(dict.fromkeys(names, many)))
    assert (tmp_path / "out" / "cells" / f"{cell_id}.parquet").stat().st_size < 2**20
    del many
    assert not readable(tmp_path / "out", "many rows")
    with pytest.raises(CorruptCheckpointError, match=r"parquet .* 4000000 rows"):
        load(tmp_path / "out")


@pytest.mark.parametrize("name", ["spec.toml", "manifest.json", "cells", "checkpoints"])
def test_files_that_are_too_long_are_not_read(name, small, tmp_path):
    """Sparse files of a terabyte, which take no room on the disk."""
    shutil.copytree(small, tmp_path / "out")
    cell = Store(small).cells()[0]
    paths = {"cells": f"cells/{cell.id}.npz", "checkpoints": f"checkpoints/{cell.id}.npz"}
    path = tmp_path / "out" / paths.get(name, name)
    with path.open("ab") as file:
        file.truncate(2**40)
    if name in ("spec.toml", "cells"):
        with pytest.raises(CorruptCheckpointError, match=r"1099511627776 bytes long, should be"):
            load(tmp_path / "out")
    else:  # the one is made anew, the other passed over
        (tmp_path / "out" / "cells" / f"{cell.id}.npz").unlink()
        resume(tmp_path / "out", workers=0)
        pd.testing.assert_frame_equal(load(tmp_path / "out"), load(small), check_exact=True)


def checkpoint_run(cell):
    run = cell.build()
    run.play(10)
    return run


def attack_checkpoints(count, seed):
    """Spoil checkpoints that their fingerprint vouches for: the cell goes on from something sound, or starts anew."""
    measures = ["widths", "coverage", "decomposition", "model-test"]
    document = SMALL | {"measures": measures, "comparators": ["per-episode", 2], "adversaries": ["adaptive"]}
    spec, anew = Spec("".join(f"{key} = {toml(value)}\n" for key, value in document.items())), 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        cell = spec.cells[number % len(spec.cells)]
        tree = storage.loads(checkpoint_of(cell, checkpoint_run(cell)), "checkpoint", "mine")
        bad, changes = spoiled(tree["run"], rng)
        try:
            content = storage.dumps("checkpoint", {**tree, "run": bad})
        except (TypeError, ValueError):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                messages = list(play(Job(cell.id, cell.definition, content, 1e9)))
            except Exception as error:
                raise AssertionError(f"{number} ({changes}): {type(error).__name__}: {error}") from error
        assert messages[-1].kind == "done", f"{number} ({changes})"
        anew += any(message.kind == "log" for message in messages)
    return anew


def test_checkpoints_with_wrong_contents_cost_no_result():
    assert attack_checkpoints(60, 7) > 20


@pytest.mark.slow
def test_many_checkpoints_with_wrong_contents_cost_no_result():
    assert attack_checkpoints(1_000, 8) > 300


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
