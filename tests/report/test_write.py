"""Reports of real experiments: every format, while they run, and the same files for the same results."""

from __future__ import annotations

import shutil
from itertools import islice

import pandas as pd
import pytest

from advmdp import InvalidSpecError
from advmdp.experiments import Spec, Store, load, run_spec
from advmdp.experiments.statistics import final_regret
from advmdp.report import comparison_figure, write_report
from advmdp.report.page import image
from advmdp.report.write import FORMATS, figures

SPEC = """
title = "Small"
episodes = 10
seeds = 2
measures = ["decomposition", "widths"]
worlds = [{ name = "grid", options = { height = 3, width = 3 } }]
adversaries = ["switching"]
learners = ["uob-reps", "uniform"]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store") / "results"
    assert not run_spec(Spec(SPEC), directory, workers=0).failed
    return directory


@pytest.fixture
def directory(finished, tmp_path):
    """A copy, to be spoiled."""
    return shutil.copytree(finished, tmp_path / "results")


def test_the_page_is_written_beside_the_results(directory):
    page = write_report(directory)
    assert page == directory / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "<title>Small</title>" in text
    assert "4 of 4 cells done" in text
    assert "Partial" not in text
    assert str(directory) not in text  # a report does not tell where it was made


def test_every_figure_and_table_has_its_file(directory):
    folder = write_report(directory, ("png", "csv", "latex"))
    assert folder == directory / "report"
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.png" for name in ("regret", "regret-over-sqrt", "growth", "width", "upper-occupancy", "profile")),
        "decomposition-1-uob-reps.png",
        "world-1-grid-last-policy-against-switching.png",
        "policy-1-grid-switching.png",
        *("final.csv", "curves.csv", "profile.csv", "final.tex", "profile.tex"),
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
    written = pd.read_csv(folder / "final.csv").set_index("learner")["regret"]
    expected = final_regret(load(directory)).set_index("learner")["regret"]
    pd.testing.assert_series_equal(written, expected)
    latex = (folder / "final.tex").read_text(encoding="utf-8")
    assert latex.startswith(r"\begin{tabular}{lllr")
    assert "uob-reps" in latex


def test_the_same_results_give_the_same_files(directory):
    def files():
        write_report(directory, ("html", "csv", "latex"))
        return {p.name: p.read_bytes() for p in [directory / "report.html", *(directory / "report").iterdir()]}

    assert files() == files()
    first, second = (image(comparison_figure(load(directory)), "pdf") for _ in range(2))
    assert first.startswith(b"%PDF")
    assert first == second


def test_figures_can_be_had_as_pdf(directory, monkeypatch):
    # All of them take long.
    monkeypatch.setattr("advmdp.report.write.figures", lambda results: islice(figures(results), 1))
    folder = write_report(directory, ("pdf",))
    assert [path.name for path in folder.iterdir()] == ["regret.pdf"]


def test_a_report_of_an_unfinished_experiment_says_so(directory):
    store = Store(directory)
    cell = store.cells()[0]
    (directory / "cells" / f"{cell.id}.npz").unlink()
    (directory / "manifest.json").unlink()  # it is only a summary
    text = write_report(directory).read_text(encoding="utf-8")
    assert "Partial results: 3 of 4 cells are done (1 pending)" in text


def test_an_experiment_that_has_just_begun_has_a_page_but_no_figures(directory):
    for record in (directory / "cells").glob("*.npz"):
        record.unlink()
    (directory / "manifest.json").unlink()
    assert "0 of 4 cells are done" in write_report(directory).read_text(encoding="utf-8")
    with pytest.raises(InvalidSpecError, match="no finished cells"):
        write_report(directory, ("html", "png"))


def test_runs_of_different_lengths_show_how_regret_scales(tmp_path):
    lengths = SPEC.replace("episodes = 10", "episodes = [5, 10]").replace('"decomposition", "widths"', "")
    run_spec(Spec(lengths.replace('"uob-reps", ', "")), tmp_path / "results", workers=0)
    text = write_report(tmp_path / "results").read_text(encoding="utf-8")
    assert "Growth with the number of episodes" in text
    assert "grid / switching / uniform" in text


def test_bad_requests_are_named(directory, tmp_path):
    with pytest.raises(InvalidSpecError, match=r"formats \['docx'\]: there are html, pdf"):
        write_report(directory, ("docx",))
    with pytest.raises(InvalidSpecError, match="formats"):
        write_report(directory, ())
    with pytest.raises(InvalidSpecError, match=r"holds no experiment"):
        write_report(tmp_path)
    assert FORMATS == ("html", "pdf", "png", "csv", "latex")
