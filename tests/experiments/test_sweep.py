"""Running a spec: the same results whoever computes them, however often they are interrupted."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advmdp import InvalidSpecError, storage
from advmdp.experiments import Store, load, resume, run_spec, work
from advmdp.experiments.engines import InProcessEngine
from tests.experiments.specs import PLUGIN, Recorder, small_spec


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The frame of the small spec, computed in this process without interruption."""
    directory = tmp_path_factory.mktemp("alone") / "out"
    assert run_spec(small_spec(measures=["widths"]), directory, workers=0).computed == 4
    return load(directory)


@pytest.mark.parametrize("workers", [1, 2])
def test_results_do_not_depend_on_the_number_of_workers(tmp_path, alone, workers):
    display = Recorder()
    outcome = run_spec(small_spec(measures=["widths"]), tmp_path / "out", workers=workers, display=display)
    assert (outcome.computed, outcome.failed, outcome.interrupted, outcome.left) == (4, {}, "", 0)
    assert load(tmp_path / "out").equals(alone)
    assert sorted(event[1] for event in display.events if event[1] == "done") == ["done"] * 4


@pytest.mark.parametrize("played", [0, 1, 17])
def test_a_run_that_is_stopped_and_resumed_ends_as_if_it_had_not(tmp_path, alone, monkeypatch, played):
    monkeypatch.setattr(work, "PROGRESS_INTERVAL", 0.0)  # a message, and a chance to stop, after every chunk

    class CtrlC(Recorder):
        def progress(self, cell, now):
            super().progress(cell, now)
            if now >= played and "vlsuob" in cell.id:
                os.kill(os.getpid(), signal.SIGINT)

    spec, out = small_spec(measures=["widths"]), tmp_path / "out"
    outcome = run_spec(spec, out, workers=0, display=CtrlC())
    assert outcome.interrupted == "SIGINT"
    assert outcome.left == 3
    assert [path.name for path in (out / "checkpoints").iterdir()] == [f"{spec.cells[1].id}.npz"]
    assert Store(out).manifest["cells"][spec.cells[1].id]["state"] == "pending"
    display = Recorder()
    assert resume(out, workers=0, display=display).left == 0
    assert display.events[0][1] >= played
    assert load(out).equals(alone)
    assert not list((out / "checkpoints").iterdir())
    assert Store(out).manifest["cells"][spec.cells[1].id]["attempts"] == 2


def test_periodic_checkpoints_survive_a_kill_of_everything(tmp_path, plugin, monkeypatch):
    """kill -9 of the driver: its workers end by themselves, and the next one goes on from the checkpoints."""
    spec = small_spec(learners=["test-slow"], episodes=500)
    (tmp_path / "spec.toml").write_text(spec.text)
    out = tmp_path / "out"
    script = (
        f"import sys; sys.path.insert(0, {str(PLUGIN)!r})\n"
        "from advmdp.experiments import run_spec\n"
        f"run_spec({str(tmp_path / 'spec.toml')!r}, {str(out)!r}, workers=2, checkpoint_every=0.2)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    deadline = time.monotonic() + 60.0
    while len(list((out / "checkpoints").glob("[!.]*.npz"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    monkeypatch.setenv("ADVMDP_TEST_SLEEP", "0")
    display = Recorder()
    outcome = resume(out, workers=0, display=display)
    assert outcome.left == 0
    first = {}
    for cell, played in display.events:
        first.setdefault(cell, played)
    assert all(played > 0 for played in first.values()), "it started anew"
    run_spec(small_spec(learners=["uniform"], episodes=500), tmp_path / "uniform", workers=0)
    assert load(out)["regret"].equals(load(tmp_path / "uniform")["regret"])
    while _processes_of(driver.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _processes_of(driver.pid)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_the_whole_group_stops_cleanly_and_says_how_to_resume(tmp_path, plugin, monkeypatch, number, code):
    """What a terminal does at Ctrl-C, and a batch system at the end of its patience."""
    spec, out = small_spec(learners=["test-slow"], episodes=3000), tmp_path / "out"
    (tmp_path / "spec.toml").write_text(spec.text)
    command = [sys.executable, "-m", "advmdp", "run", str(tmp_path / "spec.toml"), "--out", str(out), "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PLUGIN), os.environ.get("PYTHONPATH", "")])}
    driver = subprocess.Popen(command, start_new_session=True, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60.0
    while driver.poll() is None and time.monotonic() < deadline:
        entries = Store(out).manifest["cells"].values() if (out / "manifest.json").exists() else ()
        if [entry["state"] for entry in entries] == ["running"] * 2:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(driver.pid, number)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == code, errors
    assert f"2 cells are left; go on with: advmdp resume {out}" in errors
    checkpoints = [storage.read(path, "checkpoint") for path in (out / "checkpoints").iterdir()]
    assert len(checkpoints) == 2
    assert all(checkpoint["run"]["played"] > 0 for checkpoint in checkpoints)
    monkeypatch.setenv("ADVMDP_TEST_SLEEP", "0")
    assert resume(out, workers=0).left == 0
    run_spec(small_spec(learners=["uniform"], episodes=3000), tmp_path / "uniform", workers=0)
    assert load(out)["regret"].equals(load(tmp_path / "uniform")["regret"])


def test_ctrl_c_while_workers_start_is_an_interruption_like_any_other(tmp_path):
    """It reaches the fork server, too, which at that moment imports the library."""
    (tmp_path / "spec.toml").write_text(small_spec().text)
    out = tmp_path / "out"
    script = (
        "import os, signal, sys\n"
        "from multiprocessing.forkserver import ForkServer\n"
        "from advmdp.cli import app\n"
        "start = ForkServer.ensure_running\n"
        "def interrupted(self):\n"
        "    fresh = self._forkserver_pid is None\n"
        "    start(self)\n"
        "    if fresh:\n"
        "        os.killpg(0, signal.SIGINT)\n"
        "ForkServer.ensure_running = interrupted\n"
        f"app(['run', {str(tmp_path / 'spec.toml')!r}, '--out', {str(out)!r}, '--workers', '2', '--quiet'])\n"
    )
    driver = subprocess.run(
        [sys.executable, "-c", script], start_new_session=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert driver.returncode == 130, driver.stderr
    assert driver.stderr.strip() == f"SIGINT: 4 cells are left; go on with: advmdp resume {out}"
    assert resume(out, workers=0).computed == 4


def _processes_of(session):
    """The processes of a session that are still alive (Linux)."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(name))
    return found


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), (signal.SIGTERM, 1), (signal.SIGKILL, 1)])
@pytest.mark.usefixtures("plugin")
def test_signals_end_a_run_inside_a_computation_that_hears_nothing(tmp_path, number, workers):
    """A kernel that computes for ever, in the driver or in a worker; afterwards no process is left."""
    out, marker = tmp_path / "out", tmp_path / "computing"
    learner = {"name": "test-deaf", "options": {"marker": str(marker)}}
    script = (
        f"import sys; sys.path.insert(0, {str(PLUGIN)!r})\n"
        "from advmdp.experiments import sweep\n"
        "from tests.experiments.specs import small_spec\n"
        "sweep.PATIENCE, sweep.LAST_MOMENTS = 0.2, 2.0\n"
        f"outcome = sweep.run_spec(small_spec(learners=[{learner}], seeds=1), {str(out)!r}, workers={workers})\n"
        "sys.exit(143 if outcome.interrupted == 'SIGTERM' else 1)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        deadline = time.monotonic() + 60.0
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(driver.pid, number)
        assert driver.wait(timeout=20.0) == (143 if number == signal.SIGTERM else -number)
        while _processes_of(driver.pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not _processes_of(driver.pid)
    finally:
        for process in _processes_of(driver.pid):
            os.kill(process, signal.SIGKILL)
        driver.wait()
    assert Store(out).manifest["cells"][Store(out).cells()[0].id]["state"] == "pending"


def test_a_killed_worker_is_retried(tmp_path, plugin):
    marker = tmp_path / "was killed"
    learners = [{"name": "test-killed", "options": {"marker": str(marker)}}, "uniform"]
    display = Recorder()
    outcome = run_spec(small_spec(learners=learners, seeds=1), tmp_path / "out", workers=1, display=display)
    assert (outcome.computed, outcome.failed) == (2, {})
    assert any("was killed by signal 9; it is tried again" in line for line in display.logs)
    frame = load(tmp_path / "out")
    killed, uniform = (rows for _, rows in frame.groupby("learner", sort=False))
    assert killed["regret"].tolist() == uniform["regret"].tolist()
    assert [entry["attempts"] for entry in Store(tmp_path / "out").manifest["cells"].values()] == [2, 1]


def test_a_cell_that_kills_its_worker_every_time_fails_alone(tmp_path, plugin):
    outcome = run_spec(small_spec(learners=["test-killed", "uniform"], seeds=1), tmp_path / "out", workers=2)
    (cell_id,) = outcome.failed
    assert "test-killed" in cell_id
    assert outcome.failed[cell_id] == "its worker process was killed by signal 9, 3 times"
    assert (outcome.computed, outcome.left) == (1, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_cell_that_fails_is_named_and_can_be_tried_again(tmp_path, plugin, workers):
    marker = tmp_path / "mended"
    learners = [{"name": "test-failing", "options": {"marker": str(marker)}}, "uniform"]
    outcome = run_spec(small_spec(learners=learners, seeds=1), tmp_path / "out", workers=workers)
    ((cell_id, error),) = outcome.failed.items()
    assert "RuntimeError: no more ideas" in error
    assert outcome.computed == 1
    entry = Store(tmp_path / "out").manifest["cells"][cell_id]
    assert (entry["state"], entry["error"]) == ("failed", error)
    marker.touch()
    outcome = resume(tmp_path / "out", workers=workers)
    assert (outcome.computed, outcome.failed, outcome.left) == (1, {}, 0)


def test_a_full_disk_stops_the_sweep_but_harms_nothing(tmp_path, monkeypatch, alone):
    replace = storage.replace
    spec, out = small_spec(measures=["widths"]), tmp_path / "out"

    def full(path, content):
        if path.name.endswith("__s1.npz"):  # the record, when the rows are there
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, content)

    monkeypatch.setattr(storage, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        run_spec(spec, out, workers=0)
    monkeypatch.undo()
    assert load(out)["seed"].unique().tolist() == [0]
    assert resume(out, workers=0).computed == 2
    assert load(out).equals(alone)


def test_a_checkpoint_that_cannot_be_written_or_used_costs_no_result(tmp_path, monkeypatch, alone):
    monkeypatch.setattr(work, "PROGRESS_INTERVAL", 0.0)
    spec, out = small_spec(measures=["widths"]), tmp_path / "out"

    class Breaking(Recorder):
        """Takes away the folder of the checkpoints for a while, then stops."""

        def progress(self, cell, played):
            if "vlsuob" in cell.id:
                os.kill(os.getpid(), signal.SIGTERM)

    outcome = run_spec(spec, out, workers=0, display=Breaking())
    assert outcome.interrupted == "SIGTERM"
    (path,) = (out / "checkpoints").iterdir()
    tree = storage.read(path, "checkpoint")
    tree["run"]["rows"] = [[5, 0.0, 0.0, 0.0]]  # intact, but no state of this run
    storage.write(path, "checkpoint", tree)

    def full(self, cell, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("advmdp.experiments.store.WritableStore.write_checkpoint", full)
    display = Recorder()
    assert resume(out, workers=0, checkpoint_every=1e-9, display=display).left == 0
    assert any("starts anew, its checkpoint does not fit" in line for line in display.logs)
    assert any("the checkpoint could not be written: [Errno 28]" in line for line in display.logs)
    assert load(out).equals(alone)


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(InvalidSpecError, match="workers is -1"):
        run_spec(small_spec(), tmp_path / "out", workers=-1)
    with pytest.raises(InvalidSpecError, match="checkpoint_every is 0"):
        run_spec(small_spec(), tmp_path / "out", checkpoint_every=0)


def test_workers_have_one_thread_and_leave_ours_alone(tmp_path, monkeypatch):
    from advmdp.experiments.engines import ONE_THREAD, _environment

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with _environment(ONE_THREAD):
        assert {os.environ[name] for name in ONE_THREAD} == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.fixture
def ctrl_c():
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background and the shell had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_engine_that_does_not_come_up(tmp_path):
    class Deaf(InProcessEngine):
        def __enter__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5.0)
            raise AssertionError("nobody heard")

    with pytest.raises(KeyboardInterrupt):
        run_spec(small_spec(), tmp_path, engine=Deaf())
    assert resume(tmp_path, workers=0).computed == 4
