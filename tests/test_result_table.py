"""The result table counts what happened, of several pieces the newest, and names what did not happen."""

from __future__ import annotations

import subprocess

import pytest

from tests import full
from tests.result_table import Piece, dotted, table

FIRST = """<testsuites><testsuite name="abc1234" timestamp="2026-01-01T10:00:00.5">
<testcase classname="tests.a.test_one" name="test_x" time="1.5"><failure message="assert 0">...</failure></testcase>
<testcase classname="tests.a.test_one" name="test_y[a.b-1]" time="0.5"/>
<testcase classname="tests.test_two" name="test_z" time="0.1"><skipped type="pytest.skip" message="no Ray"/></testcase>
</testsuite></testsuites>"""
SECOND = """<testsuites><testsuite name="def5678" timestamp="2026-01-02T10:00:00.5">
<testcase classname="tests.a.test_one" name="test_x" time="2.0"/>
</testsuite></testsuites>"""
IDS = [
    "tests/a/test_one.py::test_x",
    "tests/a/test_one.py::test_y[a.b-1]",
    "tests/test_two.py::test_z",
    "tests/test_two.py::TestMore::test_u",
]


def pieces(tmp_path, *texts):
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.xml").write_text(text)
    return [Piece.read(tmp_path / f"{number}.xml") for number in range(len(texts))]


def test_one_piece(tmp_path):
    lines = table(pieces(tmp_path, FIRST), {dotted(name) for name in IDS}).splitlines()
    assert "Files: 1, from 2026-01-01 10:00 to 2026-01-01 10:00, at abc1234." in lines
    assert "| `tests/a` | 1 | 1 | 0 | 0 | 2.0 |" in lines
    assert "| `tests` | 0 | 0 | 1 | 1 | 0.1 |" in lines
    assert "| all | 1 | 1 | 1 | 1 | 2.1 |" in lines
    assert "Not run: 1 of `tests/test_two.py`." in lines
    assert "- `tests.a.test_one.test_x`" in lines
    assert lines[-1] == "- 1 of `tests/test_two.py`: no Ray"


def test_the_newest_piece_counts_whatever_the_order(tmp_path):
    both = pieces(tmp_path, SECOND, FIRST)
    lines = table(both, {dotted(name) for name in IDS}).splitlines()
    assert "| `tests/a` | 2 | 0 | 0 | 0 | 2.5 |" in lines
    assert "Failed:" not in lines


def test_names_of_collected_tests_are_those_of_junit_files(request):
    node_id = request.node.nodeid
    assert dotted(node_id) == f"{__name__}.{request.node.name}"
    assert dotted(IDS[1]) == "tests.a.test_one.test_y[a.b-1]"
    assert dotted(IDS[3]) == "tests.test_two.TestMore.test_u"


def test_a_full_run_goes_on_with_the_files_that_have_no_results(tmp_path):
    files = ["tests/a/test_one.py", "tests/test_two.py", "tests/test_three.py"]
    full.result_of(files[0], tmp_path).write_text(FIRST)
    full.result_of(files[1], tmp_path).write_text(SECOND)
    (tmp_path / "tests.test_three.py.part").write_text("interrupted")
    assert full.left(files, tmp_path) == files[2:]
    assert full.left(files, tmp_path, again=True) == [files[0], files[2]]


def test_results_of_a_changed_tree_are_refused(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "test-results.md").write_text("written by the run itself")
    assert len(full.commit(tmp_path)) >= 7
    (tmp_path / "file").write_text("2")
    with pytest.raises(SystemExit, match="commit first"):
        full.commit(tmp_path)
