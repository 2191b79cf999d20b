"""The command line, as a person uses it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from typer.testing import CliRunner

from advmdp.cli import app
from advmdp.experiments import load, run_spec, work
from advmdp.experiments.compare import ADVERSARIES, LEARNERS, WORLDS
from advmdp.experiments.progress import display_for
from advmdp.experiments.store import WritableStore
from advmdp.experiments.sweep import Display
from advmdp.registry import adversaries, learners, natural_losses, worlds
from advmdp.theory import bounds, lemmas
from tests.experiments.specs import small_spec


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


SMALL = ("--worlds", "grid", "--learners", "uniform,uob-reps", "--episodes", "30", "--workers", "0", "--quiet")


@pytest.fixture
def spec_file(tmp_path):
    spec = small_spec()
    path = tmp_path / "small.toml"
    path.write_text(spec.text)
    return path


def test_compare_prints_a_table_and_writes_a_report(tmp_path):
    result = invoke("compare", *SMALL, "--seeds", "2", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for name in ("grid / switching", "grid / misleading", "uniform", "uob-reps", "30 episodes, 2 seeds", "report:"):
        assert name in result.output
    frame = load(tmp_path / "out")
    assert set(frame["learner"]) == {"uniform", "uob-reps"}
    assert frame.groupby("cell")["episode"].max().eq(30).all()


def test_compare_says_first_who_lost_least_and_lists_the_best_first(tmp_path):
    arguments = ("--worlds", "bow-tie", "--adversaries", "stochastic", "--learners", "uniform,o-reps-bandit,ftl")
    result = invoke(
        "compare",
        *arguments,
        "--episodes",
        "200",
        "--seeds",
        "3",
        "--workers",
        "0",
        "--quiet",
        "--out",
        str(tmp_path / "o"),
    )
    frame = load(tmp_path / "o")
    last = frame[frame["episode"] == 200]
    losses = last.assign(mean=last["cumulative_loss"] / 200).pivot(index="seed", columns="learner", values="mean")
    best, second, third = losses.mean().sort_values().index
    text = " ".join(result.output.split())
    assert text.startswith(f"bow-tie / stochastic: {best} lost least, {losses[best].mean():.3f} per episode: ")
    gap = losses[second] - losses[best]
    half = stats.t.ppf(0.975, 2) * gap.std(ddof=1) / np.sqrt(3)
    tie = "no tie (95%, this pair alone)" if gap.mean() > half else "which may be a tie"
    assert f"{gap.mean():.3f} ± {half:.3f} less than {second}, {tie}." in text
    rows = [line.replace("*", "").split("│") for line in result.output.splitlines() if line.startswith("│   ")]
    assert [row[1].strip() for row in rows] == [best, second, third]
    regrets = last[last["learner"] == third]["regret"] / 200
    half = stats.t.ppf(0.975, 2) * regrets.std(ddof=1) / np.sqrt(3)
    assert rows[2][2].strip() == f"{losses[third].mean():.3f}"
    assert rows[2][3].strip() == f"{regrets.mean():z.3f} ± {half:.3f}"
    assert float(rows[2][4]) > 0.0
    assert "ftl *" in result.output
    assert "uniform *" not in result.output


def test_compare_with_one_seed_does_not_pretend_to_know_how_sure_it_is(tmp_path):
    result = invoke("compare", *SMALL, "--adversaries", "switching", "--seeds", "1", "--out", str(tmp_path / "out"))
    assert "one seed, so nobody knows how sure that is" in " ".join(result.output.split())
    assert "tie" not in result.output.split("report:")[0].replace("title", "")


def test_compare_again_computes_only_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("compare", *SMALL, "--seeds", "1")
    (directory,) = (tmp_path / "runs").iterdir()
    first = load(directory)
    invoke("compare", *SMALL, "--seeds", "2")
    assert list((tmp_path / "runs").iterdir()) == [directory]
    both = load(directory)
    assert both[both["seed"] == 0].reset_index(drop=True).equals(first)
    assert set(both["seed"]) == {0, 1}
    assert invoke("compare", *SMALL, "--seeds", "1").exit_code == 0  # fewer seeds: all is there
    assert load(directory).equals(both)
    invoke("compare", *SMALL[:-4], "31", "--workers", "0", "--quiet", "--seeds", "1")  # another length
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--worlds", "gird"), "did you mean"),
        (("--learners", ","), "learners is empty"),
        (("--learners", "hindsight", "--adversaries", "adaptive"), "is told the losses beforehand"),
        (("--episodes", "0"), "episodes"),
        (("--address", "here"), "--address goes with --engine ray"),
        (("--engine", "cloud"), "cloud"),
        (("--nonsense",), "nonsense"),
    ],
)
def test_bad_usage_is_explained_with_exit_code_two(tmp_path, arguments, message):
    result = invoke("compare", "--out", str(tmp_path / "out"), *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_a_name_given_twice_counts_once(tmp_path):
    twice = ("--worlds", "grid,grid", "--adversaries", "fixed,fixed", "--learners", "uniform,uniform", "--seeds", "1")
    invoke("compare", *SMALL, *twice, "--out", str(tmp_path / "out"))
    assert load(tmp_path / "out")["cell"].nunique() == 1


def test_a_folder_that_cannot_be_made_is_noticed_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    result = invoke("compare", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "cannot be made" in " ".join(result.output.replace("│", " ").split())


def test_run_resume_and_report(tmp_path, spec_file):
    out = str(tmp_path / "out")
    result = invoke("run", str(spec_file), "--out", out, "--workers", "0")
    assert result.exit_code == 0, result.output
    assert "4 cells to compute; 1 workers" in result.output
    assert "4/4" in result.output
    assert "0 s left" in result.output
    assert load(out)["cell"].nunique() == 4
    table = result.output[result.output.index("per episode: means over 30 episodes, 2 seeds") :]
    assert (tmp_path / "out" / "spec.toml").read_text() == spec_file.read_text()
    for command in (("resume", out), ("report", out), ("run", str(spec_file), "--out", out)):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
        assert "report:" in result.output
        assert "cells to compute" not in result.output
        assert (table in result.output) == (command[0] != "report")


def test_run_prints_labels_with_options_whole_and_says_who_is_told_the_transition(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = [{"name": "o-reps-bandit", "options": {"eta": eta}} for eta in (0.125, 0.25)]
    spec = tmp_path / "spec.toml"
    spec.write_text(small_spec(learners=["uniform", *told], episodes=[10, 20], seeds=1).text)
    result = invoke("run", str(spec), "--out", str(tmp_path / "out"), "--workers", "0", "--quiet")
    assert result.exit_code == 0, result.output
    assert "means over 10-20 episodes, 1 seed" in result.output
    assert result.output.count("o-reps-bandit[eta=0.125] *") == 2
    assert result.output.count("[K=20]") == 2  # a sentence and rows


def test_a_dry_run_prints_the_cells_and_says_where_its_estimate_comes_from(tmp_path, spec_file):
    arguments = ("run", str(spec_file), "--out", str(tmp_path / "out"), "--workers", "2")
    result = invoke(*arguments, "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.output.count("__K30__s") == 4
    assert "4 of 4 cells to compute: about" in result.output
    assert "2 kinds of cells played for a moment" in result.output
    assert not (tmp_path / "out").exists()
    invoke("run", str(spec_file), "--out", str(tmp_path / "out"), "--workers", "0", "--quiet")
    spec_file.write_text(spec_file.read_text().replace("seeds = 2", "seeds = 3"))
    result = invoke(*arguments, "--dry-run")
    assert "2 of 6 cells to compute" in result.output
    assert "the finished cells of that folder" in result.output


def test_failed_cells_are_named_with_exit_code_one(tmp_path, plugin):
    (tmp_path / "spec.toml").write_text(small_spec(learners=["uniform", "test-failing"], seeds=1).text)
    result = invoke("run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--workers", "0", "--quiet")
    assert result.exit_code == 1
    assert "test-failing__K30__s0: RuntimeError: no more ideas" in result.output
    assert "report:" in result.output  # of what there is


def test_an_interrupted_run_says_how_to_resume(tmp_path, plugin):
    (tmp_path / "spec.toml").write_text(small_spec(learners=["test-slow"], episodes=1000, seeds=1).text)
    manifest, ended = tmp_path / "out" / "manifest.json", threading.Event()

    def interrupt_when_it_plays():
        while not ended.is_set():
            if manifest.exists() and '"running"' in manifest.read_text():
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.01)

    waiting = threading.Thread(target=interrupt_when_it_plays)
    waiting.start()
    result = invoke("run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "out"), "--workers", "0")
    ended.set()
    waiting.join()
    assert result.exit_code == 130
    assert f"1 cells are left; go on with: advmdp resume {tmp_path / 'out'}" in result.output


def test_a_spec_that_contradicts_the_folder_is_refused(tmp_path, spec_file):
    out = ("--out", str(tmp_path / "out"), "--workers", "0", "--quiet")
    invoke("run", str(spec_file), *out)
    spec_file.write_text(spec_file.read_text().replace("episodes = 30", "episodes = 40"))
    for dry_run in ((), ("--dry-run",)):
        result = invoke("run", str(spec_file), *out, *dry_run)
        assert result.exit_code == 2
        assert "holds another experiment: episodes had K30" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("formats", ["", ",", "docx"])
def test_a_format_that_there_is_not_is_refused_before_the_work(tmp_path, spec_file, formats):
    result = invoke("run", str(spec_file), "--out", str(tmp_path / "out"), "--format", formats)
    assert result.exit_code == 2
    assert "there is no format" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["compare", "run"])
def test_a_result_that_is_damaged_after_the_run_is_explained(tmp_path, spec_file, monkeypatch, command):
    def damaging(spec, out, **settings):
        outcome = run_spec(spec, out, workers=0)
        for path in (out / "cells").glob("*.parquet"):
            path.write_bytes(b"")
        return outcome

    monkeypatch.setattr("advmdp.experiments.sweep.run_spec", damaging)
    arguments = {"compare": SMALL, "run": (str(spec_file),)}[command]
    result = invoke(command, *arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert "computes it again" in result.output


def test_a_folder_in_use_is_refused_with_exit_code_one(tmp_path):
    with WritableStore(tmp_path / "out", small_spec()):
        result = invoke("resume", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "is being written by process" in result.output
    assert invoke("resume", str(tmp_path)).exit_code == 2  # not an experiment
    assert invoke("report", str(tmp_path), "--format", "docx").exit_code == 2


def test_progress_is_live_on_a_terminal_and_plain_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "PROGRESS_INTERVAL", 0.0)
    for terminal in (True, False):
        written = io.StringIO()
        display = display_for(Console(file=written, force_terminal=terminal, width=120), quiet=False)
        run_spec(small_spec(seeds=1), tmp_path / str(terminal), workers=0, display=display)
        assert ("\x1b[" in written.getvalue()) == terminal
        assert "episodes/s" in written.getvalue()
    assert type(display_for(Console(), quiet=True)) is Display


def test_list_shows_everything_that_has_a_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = invoke("list")
    assert result.exit_code == 0
    assert "…" not in result.output  # nothing is cut off
    for registry in (worlds, adversaries, natural_losses, learners):
        assert all(name in result.output for name in registry.names())
    # The options of a world's own losses are found nowhere else on the command line.
    assert "shortage=2.0" in result.output
    assert "reaction=1.0" in result.output
    assert "E[left" in result.output  # rich takes E[left over] for a style, unless told otherwise


@pytest.mark.parametrize("command", ["compare", "run", "resume", "report", "list", "bounds", "verify"])
def test_help_has_an_example(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"advmdp {command}" in result.output


@pytest.mark.parametrize("command", ["", "compare", "run", "resume", "report", "list", "bounds", "verify"])
def test_help_fits_eighty_columns_and_cuts_nothing_off(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke(*command.split(), "--help").output.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)


def test_help_of_compare_names_its_defaults():
    text = " ".join(invoke("compare", "--help").output.split())
    for name in (*WORLDS, *ADVERSARIES, *LEARNERS):
        assert name in text


@pytest.mark.parametrize(
    ("typed", "completed"), [("advmdp re", "resume report"), ("advmdp compare --lea", "--learners")]
)
def test_a_shell_can_complete_commands_and_options(typed, completed):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_ADVMDP_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "advmdp"]
    done = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert done.stdout.split() == completed.split(), done.stderr


def test_the_script_for_a_shell_is_printed(monkeypatch):
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    result = CliRunner().invoke(app, ["--show-completion"], prog_name="advmdp")
    assert result.exit_code == 0
    assert "complete -o default -F _advmdp_completion advmdp" in result.output


def test_version():
    assert invoke("--version").output.startswith("advmdp ")


def test_bounds_prints_every_bound_and_the_smallest():
    result = invoke("bounds", "--S", "20", "--A", "4", "--H", "5", "--K", "100000", "--d", "3")
    assert result.exit_code == 0, result.output
    for bound in bounds.BOUNDS:
        assert bound(20, 4, 5, 10**5, 3).name in result.output
    assert "smallest order" in result.output
    assert invoke("bounds", "--S", "20", "--A", "4", "--H", "50", "--K", "10", "--d", "3").exit_code == 2


def test_verify_prints_a_verdict_for_every_lemma(monkeypatch):
    # A few; tests/theory/test_lemmas.py runs them all.
    checks = [check for check in lemmas.CHECKS if check.name.startswith(("Lemma 1:", "Lemma 4", "Lemma 8", "Remark 1"))]
    monkeypatch.setattr(lemmas, "CHECKS", tuple(checks))
    result = invoke("verify", "--quick")
    assert result.exit_code == 0, result.output
    printed = " ".join(result.output.split())
    assert all(check.name.split(":")[0] in printed for check in checks)
    assert "Counterexample" in result.output


def test_verify_names_a_check_that_raises_and_goes_on(monkeypatch):
    def raises(rng, trials):
        raise RuntimeError("no step")

    monkeypatch.setattr(lemmas, "CHECKS", (replace(lemmas.CHECKS[0], ratios=raises), lemmas.CHECKS[1]))
    result = invoke("verify", "--quick")
    assert result.exit_code == 1
    assert "(raised RuntimeError)" in " ".join(result.output.split())
    assert "1 checks in" in result.output


def test_verify_fails_when_a_lemma_does(monkeypatch):
    broken = replace(lemmas.CHECKS[0], ratios=lemmas.CHECKS[0].control_ratios)
    monkeypatch.setattr(lemmas, "CHECKS", (broken,))
    result = invoke("verify", "--quick")
    assert result.exit_code == 1
    assert "not as they should be" in result.output
