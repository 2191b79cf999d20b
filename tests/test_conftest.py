"""The sample of slow tests is the same everywhere."""

from __future__ import annotations

import pytest

from tests.conftest import slow_sample

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
