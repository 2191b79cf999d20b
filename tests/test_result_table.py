"""The result table counts what happened, of several pieces the newest, and names what did not happen."""

from __future__ import annotations

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
    assert "Pieces: 1, from 2026-01-01 10:00 to 2026-01-01 10:00, at abc1234." in lines
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
