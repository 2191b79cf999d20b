"""The command line, as a person uses it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from typer.testing import CliRunner

from advmdp.cli import app
from advmdp.registry import adversaries, learners, worlds
from advmdp.theory import bounds, lemmas


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_compare_prints_a_table_and_writes_a_figure(tmp_path):
    result = invoke("compare", "--worlds", "grid", "--episodes", "40", "--seeds", "2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    names = {"uniform", "uob-reps", "lsuob-reps", "vlsuob-reps", "vlsuob-reps-tight", "hindsight"}
    assert all(name in result.output for name in names)
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")
    frame = pd.read_parquet(tmp_path / "regret.parquet")
    assert set(frame["learner"]) == names
    assert set(frame["adversary"]) == {"stochastic", "switching"}
    assert frame.groupby(["adversary", "learner", "seed"])["episode"].max().eq(40).all()


def test_compare_is_the_same_every_time(tmp_path):
    for name in ("one", "two"):
        invoke("compare", "--worlds", "grid", "--episodes", "30", "--seeds", "1", "--out", str(tmp_path / name))
    one, two = (pd.read_parquet(tmp_path / name / "regret.parquet") for name in ("one", "two"))
    assert one.equals(two)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--worlds", "gird"), "did you mean"),
        (("--learners", ","), "no learner given"),
        (("--episodes", "0"), "episodes"),
        (("--nonsense",), "nonsense"),
    ],
)
def test_bad_usage_is_explained_with_exit_code_two(arguments, message):
    result = invoke("compare", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_name_given_twice_counts_once(tmp_path):
    out = str(tmp_path)
    invoke("compare", "--worlds", "grid,grid", "--learners", "uniform,uniform", "--episodes", "10", "--out", out)
    frame = pd.read_parquet(tmp_path / "regret.parquet")
    assert not frame.duplicated(["adversary", "learner", "seed", "episode"]).any()


def test_a_folder_that_cannot_be_made_is_noticed_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    result = invoke("compare", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "--out" in result.output


def test_list_shows_everything_that_has_a_name():
    result = invoke("list")
    assert result.exit_code == 0
    for registry in (worlds, adversaries, learners):
        assert all(name in result.output for name in registry.names())


@pytest.mark.parametrize("command", ["compare", "list", "bounds", "verify"])
def test_help_has_an_example(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"advmdp {command}" in result.output


def test_version():
    assert invoke("--version").output.startswith("advmdp ")


def test_bounds_prints_every_bound_and_the_smallest():
    result = invoke("bounds", "--S", "20", "--A", "4", "--H", "5", "--K", "100000", "--d", "3")
    assert result.exit_code == 0, result.output
    for bound in bounds.BOUNDS:
        assert bound(20, 4, 5, 10**5, 3).name in result.output
    assert "smallest order" in result.output
    assert invoke("bounds", "--S", "20", "--A", "4", "--H", "50", "--K", "10", "--d", "3").exit_code == 2


def test_verify_prints_a_verdict_for_every_lemma():
    result = invoke("verify", "--quick")
    assert result.exit_code == 0, result.output
    assert "Counterexample" in result.output


def test_verify_fails_when_a_lemma_does(monkeypatch):
    broken = replace(lemmas.CHECKS[0], ratios=lemmas.CHECKS[0].control_ratios)
    monkeypatch.setattr(lemmas, "CHECKS", (broken,))
    result = invoke("verify", "--quick")
    assert result.exit_code == 1
    assert "not as they should be" in result.output
