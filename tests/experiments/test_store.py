"""The directory of an experiment: readable at any time, mended where damaged, never overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from advmdp import CorruptCheckpointError, InvalidSpecError, occupancy, run, storage
from advmdp.experiments import Spec, Store, load, resume, run_spec
from advmdp.experiments import store as store_module
from advmdp.experiments.store import StoreBusyError, WritableStore
from tests.experiments.specs import Recorder, small_spec


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished experiment; tests that damage it take a copy."""
    directory = tmp_path_factory.mktemp("finished") / "out"
    learners = ["uniform", {"name": "uob-reps", "grid": {"radius_scale": [1.0, 0.5]}}]
    run_spec(small_spec(learners=learners, measures=["widths", "decomposition"]), directory, workers=0)
    return directory


@pytest.fixture
def copy(finished, tmp_path):
    import shutil

    return shutil.copytree(finished, tmp_path / "copy")


def test_the_frame_has_the_promised_columns(finished):
    frame = load(finished)
    assert list(frame.columns) == [
        "cell", "world", "adversary", "learner", "seed", "learner.radius_scale",
        "episode", "loss", "cumulative_loss", "observed_loss", "regret", "bound",
        "REGRET", "ERROR", "BIAS-I", "BIAS-II", "REGRET bound", "ERROR bound", "BIAS-I bound", "BIAS-II bound",
        "width", "upper_occupancy", "true_occupancy", "transition_error", "occupancy_difference",
    ]  # fmt: skip
    assert set(frame["learner"]) == {"uniform", "uob-reps[radius_scale=1.0]", "uob-reps[radius_scale=0.5]"}
    assert frame.groupby("cell")["episode"].max().eq(30).all()
    assert frame["cell"].nunique() == 6
    # Learners without the option have no value of it; the others' are numbers.
    assert frame["learner.radius_scale"].dtype == float
    assert (frame["learner.radius_scale"].isna() == (frame["learner"] == "uniform")).all()


def test_the_rows_are_those_of_a_run(finished):
    store = Store(finished)
    for cell in store.cells():
        current = cell.build()
        expected = run(current.mdp, current.learner, current.adversary, cell.episodes, cell.seed).frame
        assert store.frame(cell)[list(expected.columns)].equals(expected)


def test_measures_are_what_they_say(finished):
    frame = load(finished)
    uniform = frame[frame["learner"] == "uniform"]
    assert uniform[["REGRET", "width", "upper_occupancy"]].isna().all(axis=None)
    rest = frame[frame["learner"] != "uniform"]
    parts = rest[["REGRET", "ERROR", "BIAS-I", "BIAS-II"]].sum(axis=1)
    np.testing.assert_allclose(parts, rest["regret"], atol=1e-9)
    assert (rest["upper_occupancy"] >= rest["true_occupancy"] - 1e-12).all()
    assert ((rest["width"] > 0.0) & (rest["width"] <= 2.0)).all()
    # A set that contains the truth is at least as wide as its worst error, and at most twice.
    assert (rest["transition_error"] <= rest["width"] + 1e-12).all()
    assert (2.0 * rest["transition_error"] >= rest["width"] - 1e-12).all()
    # Summed over states, u - q is at least what it is on average over the states of an episode.
    averaged = 3 * (rest["upper_occupancy"] - rest["true_occupancy"])
    assert (rest["occupancy_difference"] >= averaged - 1e-12).all()
    # Before any data every kernel is possible: u is 1 wherever a state can be reached at all.
    assert rest[rest["episode"] == 1]["upper_occupancy"].eq(1.0).all()


def test_final_policies_are_kept(finished):
    store = Store(finished)
    cell = store.cells()[1]
    final = store.final(cell.id)
    mdp = cell.build().mdp
    for kept, exact in zip(final.occupancy, occupancy.occupancy_measure(mdp, final.policy), strict=True):
        np.testing.assert_array_equal(kept, exact)
    assert [table.sum() for table in final.mean_occupancy] == pytest.approx([1.0] * mdp.horizon)
    last = store.frame(cell).iloc[-1]
    best = occupancy.occupancy_measure(mdp, final.best_policy)
    losses = [cell.build().adversary.losses(k) for k in range(cell.episodes)]
    total = sum(float((q * table).sum()) for k in losses for q, table in zip(best, k, strict=True))
    assert last["cumulative_loss"] - last["regret"] == pytest.approx(total)
    with pytest.raises(InvalidSpecError, match=r"no finished cell '../spec'"):
        store.final("../spec")


def test_the_manifest_says_with_what_and_how_it_was_made(finished):
    manifest = Store(finished).manifest
    assert manifest["seeds"] == [0, 1]
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest["machine"]["cpus"] == os.cpu_count()
    assert manifest["engine"] == {"name": "in-process", "workers": 1}
    assert len(manifest["cells"]) == 6
    for entry in manifest["cells"].values():
        assert entry["state"] == "done"
        assert entry["attempts"] == 1
        assert entry["seconds"] > 0.0
        assert entry["episodes_per_second"] == pytest.approx(30 / entry["seconds"])
    assert Store(finished).spec_text == Store(finished).spec.text


def test_a_cell_is_an_ordinary_parquet_file(finished):
    cell = Store(finished).cells()[0]
    assert pd.read_parquet(finished / "cells" / f"{cell.id}.parquet").equals(Store(finished).frame(cell))


def middle_of_the_data(path):
    """Of a zip archive, a byte of its largest member: others may be fields that nobody reads, such as times."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size // 2
    with zipfile.ZipFile(path) as archive:
        member = max(archive.infolist(), key=lambda info: info.compress_size)
    return member.header_offset + 30 + len(member.filename) + member.compress_size // 2


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "swap", "remove"])
def test_a_damaged_result_is_named_and_computed_again(copy, suffix, damage):
    before = load(copy)
    cell, other = Store(copy).cells()[:2]
    path = copy / "cells" / f"{cell.id}.{suffix}"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[middle_of_the_data(path)] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-7])
    elif damage == "swap":
        path.write_bytes((copy / "cells" / f"{other.id}.{suffix}").read_bytes())
    else:
        path.unlink()
    if (suffix, damage) == ("npz", "remove"):
        assert load(copy)["cell"].nunique() == 5  # nothing vouches for the rows: the cell does not count
    else:
        with pytest.raises(CorruptCheckpointError, match=f"{cell.id}.*advmdp resume"):
            load(copy)
    outcome = resume(copy, workers=0)
    assert (outcome.computed, outcome.present, outcome.left) == (1, 5, 0)
    assert load(copy).equals(before)


@pytest.mark.parametrize("damage", ["remove", "truncate", "alter"])
def test_a_damaged_manifest_is_made_anew_from_the_cells(copy, damage):
    before = Store(copy).manifest["cells"]
    path = copy / "manifest.json"
    if damage == "remove":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(path.read_bytes()[:100])
    else:
        path.write_text(path.read_text().replace('"done"', '"gone"'))
    assert Store(copy).manifest["cells"] == before
    outcome = resume(copy, workers=0)
    assert (outcome.computed, outcome.left) == (0, 0)
    assert json.loads(path.read_text())["cells"] == before


def test_a_damaged_spec_is_noticed_and_can_be_given_again(copy):
    text = Store(copy).spec_text
    (copy / "spec.toml").write_text(text.replace("seeds = 2", "seeds = 6"))
    with pytest.raises(CorruptCheckpointError, match="was changed after it was written"):
        resume(copy)
    (copy / "spec.toml").write_text(text[:40])
    with pytest.raises(CorruptCheckpointError, match=r"spec\.toml"):
        Store(copy).spec  # noqa: B018
    assert run_spec(Spec(text), copy, workers=0).computed == 0
    assert Store(copy).spec_text == text


def test_more_seeds_and_learners_compute_only_what_is_missing(copy):
    files = {path: path.stat().st_mtime_ns for path in (copy / "cells").iterdir()}
    before = load(copy)
    more = small_spec(
        seeds=[1, 0, 5],
        learners=["ftl", {"name": "uob-reps", "grid": {"radius_scale": [0.5, 1.0]}}, "uniform"],
        measures=["decomposition", "widths"],
    )
    outcome = run_spec(more, copy, workers=0)
    assert (outcome.computed, outcome.present) == (12 - 6, 6)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    after = load(copy)
    assert set(before["cell"]) < set(after["cell"])
    for cell, rows in before.groupby("cell"):
        again = after[after["cell"] == cell][before.columns].reset_index(drop=True)
        assert again.equals(rows.reset_index(drop=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 31}, "episodes had K30, the spec has K31"),
        ({"seeds": [0, 5]}, "seeds had s1, the spec has s0, s5"),
        ({"learners": ["uniform"]}, "learners had uob-reps"),
        ({"worlds": ["grid"]}, "worlds had random-mixture.* the spec has grid"),
        ({"measures": []}, r"measures were \['decomposition', 'widths'\], the spec has \[\]"),
    ],
)
def test_a_spec_that_contradicts_the_directory_is_refused(copy, change, message):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file() and path.name != ".lock"}
    learners = ["uniform", {"name": "uob-reps", "grid": {"radius_scale": [1.0, 0.5]}}]
    spec = small_spec(**{"learners": learners, "measures": ["widths", "decomposition"], **change})
    with pytest.raises(InvalidSpecError, match=message):
        run_spec(spec, copy, workers=0)
    assert {path: path.read_bytes() for path in before} == before


def test_fewer_seeds_are_a_part_of_the_experiment(tmp_path):
    assert run_spec(small_spec(seeds=1), tmp_path, workers=0).computed == 2
    with WritableStore(tmp_path, small_spec(seeds=3)):  # grown, but killed before it computed anything
        pass
    outcome = run_spec(small_spec(seeds=2), tmp_path, workers=0)
    assert (outcome.computed, outcome.present, outcome.left) == (2, 2, 0)
    assert set(load(tmp_path)["seed"]) == {0, 1}
    assert Store(tmp_path).spec.seeds == small_spec(seeds=3).seeds
    assert resume(tmp_path, workers=0).computed == 2


def test_a_strange_directory_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidSpecError, match=r"is not empty \(thesis.tex\)"):
        run_spec(small_spec(), tmp_path, workers=0)
    with pytest.raises(InvalidSpecError, match="holds no experiment"):
        Store(tmp_path)
    with pytest.raises(InvalidSpecError, match="cannot be made"):
        run_spec(small_spec(), tmp_path / "thesis.tex", workers=0)


def test_a_growing_spec_survives_a_kill_between_its_two_writes(copy, monkeypatch):
    class Killed(BaseException):
        pass

    replace = storage.replace

    def killed_after_the_spec(path, content):
        replace(path, content)
        if path.name == "spec.toml":
            raise Killed

    grown = small_spec(
        seeds=3,
        learners=["uniform", {"name": "uob-reps", "grid": {"radius_scale": [1.0, 0.5]}}],
        measures=["widths", "decomposition"],
    )
    monkeypatch.setattr(storage, "replace", killed_after_the_spec)
    with pytest.raises(Killed):
        run_spec(grown, copy, workers=0)
    monkeypatch.undo()
    assert resume(copy, workers=0).computed == 3


def test_only_one_process_writes(tmp_path):
    with WritableStore(tmp_path / "out", small_spec()):
        with pytest.raises(StoreBusyError, match=f"is being written by process {os.getpid()}"):
            resume(tmp_path / "out")
        script = f"from advmdp.experiments import resume; resume({str(tmp_path / 'out')!r})"
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert "StoreBusyError" in other.stderr
        assert load(tmp_path / "out").empty  # reading is free
    with WritableStore(tmp_path / "out"):  # the file is still there, but nobody holds it
        pass


def test_the_lock_of_windows_leaves_the_name_of_the_holder_readable(tmp_path, monkeypatch):
    locked = []

    def locking(handle, mode, count):  # from where the file stands, and not the bytes that others read
        locked.append((os.lseek(handle, 0, os.SEEK_CUR), mode, count))

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with open(tmp_path / "lock", "a+", encoding="utf-8") as file, monkeypatch.context() as windows:
        windows.setattr(sys, "platform", "win32")
        store_module._acquire(file)
    assert locked == [(2**30, 2, 1)]


def test_the_lock_of_a_killed_process_is_free_and_its_cells_are_pending(tmp_path):
    script = (
        "import os, signal\n"
        "from advmdp.experiments.store import WritableStore\n"
        f"store = WritableStore({str(tmp_path / 'out')!r}).__enter__()\n"
        "store.note(store.cells()[0], state='running')\n"
        "store.write_manifest(force=True)\n"
        "print(store.manifest['cells'][store.cells()[0].id]['state'], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with WritableStore(tmp_path / "out", small_spec()):
        pass
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert killed.stdout == "running\n"
    assert '"running"' in (tmp_path / "out" / "manifest.json").read_text()
    assert {entry["state"] for entry in Store(tmp_path / "out").manifest["cells"].values()} == {"pending"}
    assert resume(tmp_path / "out", workers=0).computed == 4


def test_what_a_kill_left_half_written_is_swept_up(copy):
    for folder in (copy, copy / "cells", copy / "checkpoints"):
        (folder / ".manifest.json.abc.tmp").write_bytes(b"half")
    report = copy / ".report.html.abc.tmp"  # which may be being written: that needs no lock
    report.write_bytes(b"half")
    resume(copy, workers=0)
    assert list(copy.rglob("*.tmp")) == [report]


def test_checkpoints_come_back_newest_first_and_damaged_ones_are_passed_over(tmp_path):
    spec = small_spec()
    cell = spec.cells[0]

    def checkpoint(number, fingerprint=None):
        found = fingerprint or store_module.checkpoint_fingerprint(cell)
        return storage.dumps("checkpoint", {"fingerprint": found, "run": {"number": number}})

    with WritableStore(tmp_path / "out", spec) as store:
        assert store.read_checkpoint(cell) is None
        for number in range(3):
            store.write_checkpoint(cell, checkpoint(number))
        assert store.read_checkpoint(cell) == checkpoint(2)
        newest = tmp_path / "out" / "checkpoints" / f"{cell.id}.npz"
        newest.write_bytes(newest.read_bytes()[:-3])
        assert store.read_checkpoint(cell) == checkpoint(1)
        assert "not an intact advmdp file" in store.remarks.pop()
        for _ in range(2):
            store.write_checkpoint(cell, checkpoint(9, "another version"))
        assert store.read_checkpoint(cell) is None
        assert "other code" in store.remarks.pop()


def test_other_versions_are_remembered(copy, monkeypatch):
    monkeypatch.setattr(store_module, "_environment", lambda: {"versions": {"advmdp": "9"}, "git": None, "machine": {}})
    old = Store(copy).manifest
    display = Recorder()
    resume(copy, workers=0, display=display)
    assert display.logs == [f"6 cells are there from advmdp {old['versions']['advmdp']}; they are kept as they are"]
    new = Store(copy).manifest
    assert new["versions"] == {"advmdp": "9"}
    assert [entry["versions"] for entry in new["history"]] == [old["versions"]]
