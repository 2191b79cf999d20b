from __future__ import annotations

from math import inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp.confidence import radii
from advmdp.errors import InvalidSpecError
from advmdp.theory import bounds

SIZES = {"S": 13, "A": 3, "H": 4, "K": 10_000, "d": 3}
EXPLICIT = ["lsuob_reps", "vlsuob_reps", "vlsuob_reps_tight", "o_reps", "o_reps_bandit", "mdp_e"]


@st.composite
def sizes(draw):
    horizon = draw(st.integers(1, 12))
    return {
        "S": horizon + 1 + draw(st.integers(0, 200)),
        "A": draw(st.integers(2, 20)),
        "H": horizon,
        "K": draw(st.integers(2, 10**9)),
        "d": draw(st.integers(1, 30)),
    }


def test_table_one_of_the_paper():
    """The orders, typed in again from Table 1."""
    S, A, H, K, d = SIZES.values()
    table_one = {
        "uob_reps": H * S * sqrt(A * K),
        "lsuob_reps": d * S**2 * sqrt(K) + sqrt(H * S * A * K),
        "vlsuob_reps": d * sqrt(H * S**3 * K) + sqrt(H * S * A * K),
        "lower_tabular": H * sqrt(S * A * K),
        "lower_linear_mixture": d * H * sqrt(K) + sqrt(H * S * A * K),
    }
    for name, order in table_one.items():
        assert getattr(bounds, name)(**SIZES).order == pytest.approx(order, rel=1e-12)


def test_theorem_with_the_joint_radius_by_hand():
    """Every term of docs/theory.md written out a second time, at one set of sizes."""
    S, A, H, K, d = SIZES.values()
    zeta, B = 0.05, 1.5
    eta = sqrt(H * log(H * S * A / zeta) / (K * S * A))
    growth = d * log(1 + K * S / d)
    beta = B + sqrt(log(H / zeta) + growth / 2)
    visited = 2 * beta * sqrt(2 * H * S * K * growth) + 2 * (H - 1)
    expected = 2 * visited + 8 * (H - 1) * log(H / zeta)
    by_hand = {
        "REGRET": H * log(S * A / H) / eta + eta / 2 * (S * A * K + H * log(H / zeta) / (2 * eta)),
        "ERROR": H / 2 * expected,
        "BIAS-I": S / 2 * expected + eta * S * A * K + H * sqrt(K * log(1 / zeta) / 2),
        "BIAS-II": H * log(S * A / zeta) / (2 * eta),
    }
    bound = bounds.vlsuob_reps_tight(**SIZES, zeta=zeta, B=B)
    assert dict(bound.terms) == pytest.approx(by_hand, rel=1e-12)
    assert bound.value == pytest.approx(sum(by_hand.values()), rel=1e-12)


def test_a_constant_bound_would_be_noticed():
    """The explicit bounds follow sqrt(K), up to logarithms, in every term that should."""
    for name in EXPLICIT:
        function = getattr(bounds, name)
        early, late = (function(**{**SIZES, "K": K}).value for K in (10**12, 10**14))
        assert 9.9 < late / early < 15.0, name


@given(sizes())
def test_the_paper_improves_on_its_predecessor_in_order(size):
    """H <= S; and d <= sqrt(H A / S) is when the first term is below the tabular order."""
    new, old = bounds.vlsuob_reps(**size), bounds.lsuob_reps(**size)
    assert new.order <= old.order * (1 + 1e-12)
    S, A, H, K, d = size.values()
    first_term = d * sqrt(H * S**3 * K)
    assert (first_term <= bounds.uob_reps(**size).order * (1 + 1e-9)) == (
        d <= sqrt(H * A / S) * (1 + 1e-9)
    ) or np.isclose(d, sqrt(H * A / S))


@given(sizes())
def test_lower_bounds_are_below_upper_bounds_of_their_setting(size):
    mixture = bounds.lower_linear_mixture(**size).order
    assert mixture <= 2 * bounds.vlsuob_reps(**size).order
    # Theorem 1's value keeps every constant and logarithm, so it is above its own order.
    assert bounds.vlsuob_reps(**size).value >= bounds.vlsuob_reps(**size).order
    assert bounds.vlsuob_reps_tight(**size).value <= bounds.vlsuob_reps(**size).value


@given(sizes(), st.floats(1e-4, 0.5), st.floats(0.1, 10.0))
def test_printed_radius_is_largest_at_an_end(size, zeta, B):
    """What `vlsuob_reps` takes for max_k beta_k."""
    S, _, H, K, d = size.values()

    def radius(k):
        return radii.paper(k, S, H, d, radii.growing_regularisation(k, S, d), zeta, B)

    grid = np.unique(np.geomspace(2, K, 60).astype(int))
    ends = max(radius(2), radius(K))
    assert max(radius(int(k)) for k in grid) <= ends * (1 + 1e-12)


@pytest.mark.parametrize("name", EXPLICIT)
def test_vacuous_until_is_the_crossing(name):
    function = getattr(bounds, name)
    S, A, H, _, d = SIZES.values()
    K = bounds.vacuous_until(function, S, A, H, d)
    assert function(S, A, H, K, d).value < H * K
    before = K * (1 - 1e-9) if K > 1e9 else K - 1
    assert before < 1 or function(S, A, H, before, d).value >= H * before
    for later in K * np.array([1.5, 10.0, 1e6]):
        assert function(S, A, H, later, d).value < H * later


def test_vacuous_forever():
    def linear(S, A, H, K, d, zeta, B):
        return bounds.Bound("linear", H * K, True, H * K, "H K", "bandit", "unknown", "tabular", "none")

    assert bounds.vacuous_until(linear, 13, 3, 4, 3) == inf


def test_the_joint_radius_makes_theorem_one_say_something_much_earlier():
    """The numbers that docs/theory.md quotes."""
    S, A, H, _, d = SIZES.values()
    printed = bounds.vacuous_until(bounds.vlsuob_reps, S, A, H, d)
    joint = bounds.vacuous_until(bounds.vlsuob_reps_tight, S, A, H, d)
    one_state = bounds.vacuous_until(bounds.lsuob_reps, S, A, H, d)
    assert printed == pytest.approx(3.15e8, rel=0.01)
    assert joint == pytest.approx(1.82e7, rel=0.01)
    assert one_state == pytest.approx(2.69e7, rel=0.01)


def test_smallest():
    assert bounds.smallest(**SIZES).name == "uob-reps"
    assert bounds.smallest(**SIZES, explicit=True).name == "vlsuob-reps-tight"
    assert bounds.smallest(**SIZES, feedback="full", transition="known", explicit=True).name == "o-reps"
    many_actions = {"S": 10, "A": 1000, "H": 6, "K": 10**5, "d": 2}
    assert bounds.smallest(**many_actions).name.startswith("vlsuob-reps")


def test_table_holds_every_bound_once():
    table = bounds.table(**SIZES)
    assert len(table) == len(bounds.BOUNDS) == table["name"].nunique()
    explicit = table[table["explicit"]]
    assert set(explicit["name"]) == {name.replace("_", "-") for name in EXPLICIT}
    assert explicit["vacuous until"].notna().all()
    assert table[~table["explicit"]]["vacuous until"].isna().all()
    assert (table["share of H K"] == table["value"] / (4 * 10_000)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"S": 4}, "S is 4, should be at least H"),
        ({"K": 0}, "K is 0"),
        ({"d": 0}, "d is 0"),
        ({"zeta": 1.0}, "zeta is 1.0"),
        ({"B": 0.0}, "B is 0.0"),
    ],
)
def test_impossible_sizes(change, message):
    for function in bounds.BOUNDS:
        with pytest.raises(InvalidSpecError, match=message):
            function(**{**SIZES, **change})


def test_reachability():
    S, A, H, K, _ = SIZES.values()
    assert bounds.bandit_uc_o_reps(**SIZES, reachability=0.5).order == 2 * H * S * sqrt(A * K)
    with pytest.raises(InvalidSpecError, match="reachability is 0"):
        bounds.bandit_uc_o_reps(**SIZES, reachability=0.0)
