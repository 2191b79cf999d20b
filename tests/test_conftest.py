"""The sample of slow tests is the same everywhere, and the result table counts what happened."""

from __future__ import annotations

import pytest

from tests.conftest import result_table, slow_sample

IDS = [f"tests/test_{file}.py::test[{case}]" for file in "abc" for case in range(10)]


def test_sample_does_not_depend_on_order() -> None:
    sample = slow_sample(IDS, 5)
    assert len(sample) == 5
    assert sample < set(IDS)
    assert slow_sample(IDS[::-1], 5) == sample


@pytest.mark.parametrize("removed", IDS)
def test_another_test_changes_at_most_one_of_the_sample(removed: str) -> None:
    before = slow_sample([node_id for node_id in IDS if node_id != removed], 5)
    assert len(slow_sample(IDS, 5) - before) <= 1


def test_sample_larger_than_the_suite_is_the_suite() -> None:
    assert slow_sample(IDS, 1000) == set(IDS)


def report(node_id: str, outcome: str, when: str, longrepr: object = None) -> pytest.TestReport:
    return pytest.TestReport(
        node_id,
        (node_id, 0, ""),
        {},
        outcome,
        longrepr,
        when,
        duration=1.5,  # type: ignore[arg-type]
    )


def test_result_table_counts_and_explains() -> None:
    stats = {
        "": [report("a.py::one", "passed", "setup")],
        "passed": [report("a.py::one", "passed", "call"), report("b.py::two", "passed", "call")],
        "failed": [report("a.py::three", "failed", "call")],
        "skipped": [report("b.py::four", "skipped", "setup", ("b.py", 3, "Skipped: no Ray"))],
    }
    lines = result_table(stats).splitlines()
    assert "| `a.py` | 1 | 1 | 0 | 4.5 |" in lines
    assert "| `b.py` | 1 | 0 | 1 | 3.0 |" in lines
    assert "| all | 2 | 1 | 1 | 7.5 |" in lines
    assert lines[-1] == "- `b.py::four`: Skipped: no Ray"
