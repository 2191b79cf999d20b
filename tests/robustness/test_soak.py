"""Twenty thousand episodes, every step looked at; ``docs/solvers.md`` has the million."""

from __future__ import annotations

import pytest

from tests.robustness.soak import LARGEST_FLOW_ERROR, LARGEST_GAP, LARGEST_GRAM_ERROR, soak


@pytest.fixture(scope="module")
def rows():
    return soak(20_000)


def test_every_step_conserves_flow_and_is_certified(rows):
    assert rows[-1].episodes == 20_000
    assert rows[-1].flow_error < LARGEST_FLOW_ERROR
    assert rows[-1].gap <= LARGEST_GAP
    assert rows[-1].failures == 0


def test_the_regression_does_not_drift_from_the_counts(rows):
    assert max(row.gram_error for row in rows) < LARGEST_GRAM_ERROR
    assert max(row.centre_error for row in rows) < LARGEST_GRAM_ERROR


def test_memory_is_flat(rows):
    early = next(row for row in rows if row.episodes >= 2_000)  # compiled and warmed up
    assert rows[-1].memory_mib < early.memory_mib + 10.0


def test_the_model_test_stays_quiet_on_a_true_mixture(rows):
    assert all(row.log_e < 3.0 for row in rows)
