"""A fixed sample of the harsh instances: nothing may be claimed that the checks refute."""

import pytest

from tests.solvers.harsh import CASES, outcome


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_no_wrong_claim_on_harsh_instances(family, entropy):
    outcomes = [outcome(family, entropy, seed) for seed in range(8)]
    assert [message for kind, message in outcomes if kind == "WRONG"] == []


def test_an_interval_below_zero_at_a_state_that_nothing_reaches_empties_its_pair():
    # Such a state is left out of the step, and with it went the interval.
    for entropy in ("pairs", "triples"):
        assert outcome("box", entropy, 2015)[0] == "empty"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("family", "entropy"), CASES)
def test_almost_all_harsh_instances_are_solved(family, entropy):
    outcomes = [outcome(family, entropy, seed) for seed in range(143)]
    assert [message for kind, message in outcomes if kind == "WRONG"] == []
    assert sum(kind == "unsolved" for kind, _ in outcomes) <= 1
