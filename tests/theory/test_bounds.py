from __future__ import annotations

from math import exp, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp.confidence import radii
from advmdp.errors import InvalidSpecError
from advmdp.learners.parts.experts import premium
from advmdp.theory import bounds

SIZES = {"S": 13, "A": 3, "H": 4, "K": 10_000, "d": 3}
EXPLICIT = [
    "lsuob_reps",
    "vlsuob_reps",
    "vlsuob_reps_tight",
    "o_reps",
    "o_reps_bandit",
    "uc_o_reps",
    "mdp_e",
    "oppo",
    "powers",
    "ucrl_vtr",
    "exp3_policies",
    "q_reps",
    "mdp_linexp3",
    "oppo_linear",
    "uob_reps_linear",
    "lazy_fpl",
    "tsallis_reps",
    "vls_o_reps",
    "vls_o_reps_conditional",
    "do_reps",
    "occupancy_ensemble",
    "powers_dynamic",
    "vlsuob_reps_tight_conditional",
    "vlsuob_reps_tight_shared",
    "portfolio",
    "portfolio_shared",
    "vlsuob_reps_sharp",
    "vlsuob_reps_sharp_shared",
]
STRONG = EXPLICIT[-6:]


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
    beta = B + sqrt(log((H - 1) / zeta) + growth / 2)  # H - 1 layers are regressed
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


def test_one_next_state_by_hand():
    S, _, H, K, d = SIZES.values()
    zeta, B = 0.05, 1.5
    growth = d * log(1 + K / d)
    beta = B + 0.5 * sqrt(2 * log((H - 1) / zeta) + growth)
    visited = 2 * beta * S * sqrt(2 * K * growth) + 2 * (H - 1)
    error = H / 2 * (2 * visited + 8 * (H - 1) * log(H / zeta))
    assert dict(bounds.lsuob_reps(**SIZES, zeta=zeta, B=B).terms)["ERROR"] == pytest.approx(error, rel=1e-12)


def test_value_targeted_bounds_by_hand():
    """docs/learners/value-targeted.md written out a second time: H = 3, so layers 0 and 1 are regressed."""
    S, A, H, K, d, zeta, B = 10, 2, 3, 400, 2, 0.1, 1.5
    optimism = 0.0
    for M in (2, 1):  # steps that follow
        information = d * log(1 + K * (7 * M) ** 2 / d)
        beta = B + M / 2 * sqrt(2 * log(2 / zeta) + information)
        optimism += 2 * max(beta, M / 2) * sqrt(2 * K * information)
    eta = sqrt(2 * log(A) / (H**2 * K))
    weights = sum(log(A) / eta + eta * K * steps**2 / 8 for steps in (1, 2, 3))
    unvisited = 3 * sqrt(K * log(1 / zeta) / 2)
    by_hand = {"WEIGHTS": weights, "OPTIMISM": optimism, "UNVISITED": unvisited}
    assert dict(bounds.oppo(S, A, H, K, d, zeta, B).terms) == pytest.approx(by_hand, rel=1e-12)

    mean = 2 * H * (1 + sqrt(2 * K * log(2 * S * A * K / zeta)))
    luck = H * sqrt(K / 2) * (sqrt(log(1 / zeta)) + sqrt(log(S * A / zeta)))
    by_hand = {"OPTIMISM": optimism, "UNVISITED": unvisited, "MEAN LOSSES": mean, "LUCK": luck}
    assert dict(bounds.ucrl_vtr(S, A, H, K, d, zeta, B).terms) == pytest.approx(by_hand, rel=1e-12)

    l1, l2 = log(1 + K * 7**2 * B**2), log(4 * K**2 * H / zeta)
    beta = 8 * sqrt(d * l1 * l2) + 4 * sqrt(d) * l2 + 1
    optimism = 2 * 2 * sqrt(3) * H * beta * sqrt(2 * K * d * l1)
    by_hand = {"WEIGHTS": weights, "OPTIMISM": optimism, "UNVISITED": unvisited}
    assert dict(bounds.powers(S, A, H, K, d, zeta, B).terms) == pytest.approx(by_hand, rel=1e-12)


def test_full_information_by_hand():
    """docs/learners/full-information.md written out a second time."""
    S, A, H, K, d, zeta, B = 10, 2, 3, 400, 2, 0.1, 1.5
    growth = d * log(1 + K * S / d)
    beta = B + sqrt(log(2 / zeta) + growth / 2)
    error = H / 2 * (2 * (2 * beta * sqrt(2 * H * S * K * growth) + 4) + 16 * log(H / zeta))
    by_hand = {"REGRET": H * sqrt(K * log(S * A / H) / 2), "ERROR": error}
    assert dict(bounds.vls_o_reps(S, A, H, K, d, zeta, B).terms) == pytest.approx(by_hand, rel=1e-12)
    by_hand["REGRET"] = H * sqrt(H * K * log(A) / 2)
    assert dict(bounds.vls_o_reps_conditional(S, A, H, K, d, zeta, B).terms) == pytest.approx(by_hand, rel=1e-12)

    L = H * log(S * A / H)
    for path in (0.0, 25.0):
        divergence = (2 * L if path else L) + H + path / 2 * log(S * A * (K + 1))
        reach = sqrt((2 * L + H + H * K * log(S * A * (K + 1))) / (L + H))
        for function, ratio in ((bounds.do_reps, 2), (bounds.occupancy_ensemble, 4)):
            terms = dict(function(S, A, H, K, d, zeta, B, path_length=path).terms)
            count = 1 + np.ceil(log(reach) / log(ratio))
            assert terms["STEPS"] == pytest.approx((sqrt(ratio) + 1 / sqrt(ratio)) * sqrt(divergence * H * K / 8))
            assert terms["HEDGE"] == pytest.approx(H * sqrt(K * log(count) / 2))
        told = H * log(A) + H + 3 * log(A * (K + 1))
        own = H * log(A) + H + path / 2 * log(A * (K + 1))
        eta = sqrt(8 * told / (K * 14))
        terms = dict(bounds.powers_dynamic(S, A, H, K, d, zeta, B, path_length=path).terms)
        assert terms["WEIGHTS"] == pytest.approx(own / eta + eta / 8 * K * 14, rel=1e-12)
        powers = dict(bounds.powers(S, A, H, K, d, zeta, B).terms)
        for name in ("OPTIMISM", "UNVISITED"):
            assert terms[name] == powers[name]
            assert dict(bounds.occupancy_ensemble(S, A, H, K, d, zeta, B).terms)[name] == powers[name]
    assert not bounds.hf_o2ps(S, A, H, K, d).explicit


def test_one_action_leaves_nothing_to_weigh():
    assert bounds.mdp_e(**{**SIZES, "A": 1}).value == 0.0
    assert dict(bounds.oppo(**{**SIZES, "A": 1}).terms)["WEIGHTS"] == 0.0


def test_initial_divergence_of_the_two_entropies():
    assert bounds.initial_divergence((1, 4, 4, 1), 2) == pytest.approx(log(2 * 8 * 8))
    assert bounds.initial_divergence((1, 4, 4, 1), 2, "triples") == pytest.approx(log(8 * 32 * 8))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 9))
def test_worst_initial_divergence_over_layer_sizes(inner, A):
    """`regret_of_estimates` knows S and H only."""
    sizes = (1, *inner, 1)
    S, H = sum(sizes), len(sizes) - 1
    for entropy in ("pairs", "triples"):
        rest = bounds.second_moment(S * A, H, 100, 0.1, 0.05)
        known = bounds.mirror_descent(bounds.initial_divergence(sizes, A, entropy), 0.1, rest)
        assert known <= bounds.regret_of_estimates(S, A, H, 100, 0.1, 0.1, 0.05, entropy) * (1 + 1e-12)


def test_bound_of_a_learner():
    S, A, H, K, d = SIZES.values()
    for name in ("vlsuob_reps", "vlsuob_reps_tight", "lsuob_reps"):
        value = getattr(bounds, name)(S, A, H, K, d, 0.1, 2.0).value
        assert bounds.of_learner(name.replace("_", "-"), S, A, H, K, d, 0.1, 2.0) == value
    for name in ("uob-reps", "uniform", "lower bound, tabular"):
        assert np.isnan(bounds.of_learner(name, S, A, H, K, d))


def test_a_constant_bound_would_be_noticed():
    """The explicit bounds follow sqrt(K), one K^(2/3), up to logarithms, in every term that should."""
    for name in EXPLICIT:
        function = getattr(bounds, name)
        # The expected regret of the portfolio has a term zeta H K.
        zeta = 1e-14 if name.startswith("portfolio") else 0.05
        early, late = (function(**{**SIZES, "K": K}, zeta=zeta).value for K in (10**12, 10**14))
        # Blocks that grow, K^(5/8), and exploration, K^(2/3).
        expected = {"mdp_linexp3": 100 ** (2 / 3), "lazy_fpl": 100 ** (5 / 8)}.get(name, 10.0)
        assert 0.99 < late / early / expected < 1.5, name


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


@given(st.floats(log(4), 700.0), st.integers(1, 200), st.floats(1e-6, 0.99), st.integers(1, 50), st.floats(0.01, 10))
def test_derivative_of_the_printed_radius(y, d, zeta, H, B):
    """The proof of docs/theory.md that it changes sign at most once: with y = log(k S), N increases."""

    def numerator(y):
        c, x = (B + 0.25) * sqrt(d), 4 / d**2 * np.exp(y) / y
        g = (4 * log(H / zeta) + 2 * d * np.log(4 + x)) / sqrt(d)
        slope = 2 * sqrt(d) * x * (1 - 1 / y) / (4 + x)
        return c * y / 2 + y * slope - g / 2

    def radius(y):
        regularisation, x = d * y, 4 / d**2 * np.exp(y) / y
        root = sqrt(regularisation)
        return (B + 0.25) * root + 2 / root * (2 * log(H / zeta) + d * np.log(4 + x))

    step = 1e-4 * y
    difference = (radius(y + step) - radius(y - step)) / (2 * step)
    scale = abs(numerator(y)) + radius(y)
    assert difference * y**1.5 == pytest.approx(numerator(y), abs=1e-4 * scale * y)
    assert numerator(y + step) > numerator(y)


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
    assert joint == pytest.approx(1.80e7, rel=0.01)
    assert one_state == pytest.approx(2.69e7, rel=0.01)


def test_smallest():
    assert bounds.smallest(**SIZES).name == "uob-reps"
    assert bounds.smallest(**SIZES, explicit=True).name == "vlsuob-reps-tight"
    deep = {**SIZES, "S": 40, "H": 12}
    assert bounds.smallest(**deep, feedback="full", transition="known", explicit=True).name == "do-reps"
    assert bounds.do_reps(**deep).value < bounds.o_reps(**deep).value  # Hoeffding's lemma, against its source's 2
    shallow = {**SIZES, "S": 40, "H": 2}
    assert bounds.smallest(**shallow, feedback="full", transition="known", explicit=True).name == "mdp-e"
    # The bound of ucrl-vtr is smaller than that of oppo where the losses are stochastic, and none elsewhere.
    assert bounds.ucrl_vtr(**SIZES).order == bounds.oppo(**SIZES).order
    assert bounds.smallest(**SIZES, feedback="full", explicit=True).name != "ucrl-vtr"
    assert np.isnan(bounds.of_learner("ucrl-vtr", *SIZES.values()))
    many_actions = {"S": 10, "A": 1000, "H": 6, "K": 10**5, "d": 2}
    assert bounds.smallest(**many_actions).name.startswith("vlsuob-reps")


def test_table_holds_every_bound_once():
    table = bounds.table(**SIZES)
    assert len(table) == len(bounds.BOUNDS) == table["name"].nunique()
    explicit = table[table["explicit"]]
    assert set(explicit["name"]) == {getattr(bounds, name)(**SIZES).name for name in EXPLICIT}
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
    plain = bounds.bandit_uc_o_reps(**SIZES, reachability=0.5)
    assert (plain.name, plain.order) == ("bandit-uc-o-reps", 2 * H * S * sqrt(A * K))
    with pytest.raises(InvalidSpecError, match="reachability is 0"):
        bounds.bandit_uc_o_reps(**SIZES, reachability=0.0)
    shifted = bounds.bandit_uc_o_reps(**SIZES)
    assert shifted.name == "bandit-uc-o-reps, shifted"
    assert "reconstruction" in shifted.source
    assert "bandit-uc-o-reps" not in set(bounds.table(**SIZES)["name"])  # the default has no bound of its own


def test_uc_o_reps_by_hand():
    S, A, H, K, _ = SIZES.values()
    zeta = 0.05
    divergence, confidence = log(S**2 * A / H**2), log(K * S * A / zeta)
    width = 2 * (2 * S * A + 8 * S * sqrt(A * K * confidence)) + 8 * (H - 1) * log(H / zeta)
    by_hand = {"REGRET": 1.5 * H * sqrt(K * divergence), "ERROR": H / 2 * width}
    assert dict(bounds.uc_o_reps(**SIZES, zeta=zeta).terms) == pytest.approx(by_hand, rel=1e-12)


# ------------------------------------------------------------------- conditional entropy, shared weights, portfolio


def test_conditional_entropy_by_hand():
    """The result of docs/strong-learners.md, written out a second time and summed differently."""
    S, A, H, K, d = SIZES.values()
    zeta, B = 0.05, 1.5
    n, L = (S - 1) * A, log(H / zeta)
    eta, gamma = sqrt(2 * log(A) / (n * K)), sqrt(H * log(S * A / zeta) / (2 * n * K))
    growth = d * log(1 + K * S / d)
    beta = B + sqrt(log((H - 1) / zeta) + growth / 2)
    widths = 4 * beta * S * sqrt(2 * H * S * K * growth) + 4 * S * (H - 1) + 8 * S * (H - 1) * L
    steps = H * sqrt(2 * n * K * log(A)) + H**2 * eta / (4 * gamma) * L
    luck = sqrt(2 * H * n * K * log(S * A / zeta)) + H * sqrt(K * log(1 / zeta) / 2)
    bound = bounds.vlsuob_reps_tight_conditional(**SIZES, zeta=zeta, B=B)
    assert bound.value == pytest.approx(widths + steps + luck, rel=1e-12)
    assert dict(bound.terms)["REGRET"] == pytest.approx(steps, rel=1e-12)


def test_the_sharp_learner_by_hand():
    """The result of docs/sharper-parts.md, written out a second time."""
    S, A, H, K, d = SIZES.values()
    zeta, B = 0.05, 1.5
    n, D, L = (S - 1) * A, H * log(A), log(H / zeta)
    gamma = sqrt(H * log(S * A / zeta) / (4 * n * K))
    growth = d * log(1 + K * S / d)
    beta = B + sqrt(log((H - 1) / zeta) + growth / 2)
    W = S * (4 * beta * sqrt(2 * H * S * K * growth) + 4 * (H - 1) + 8 * (H - 1) * L)
    lagged = S * (4 * beta * sqrt(4 * H * S * K * growth) + 8 * (H - 1) + 8 * (H - 1) * L)
    kappa = (exp(2.5) - 3.5) / 6.25
    largest, first = 17 / 8 * 2.5 * kappa * H, 4 * D / min(sqrt(4 * D / n), 1 / H)
    V = 2 * H * K + 27 / 8 * (n * K + H * L / (2 * gamma))
    by_hand = {
        "REGRET": 1.25 * (largest / 2 + sqrt((first - largest / 2) ** 2 + 8 * kappa * D * H * V)) - first,
        "WIDTHS": 25 / 8 * W + lagged,
        "EXPLORATION": 4 * n * gamma * K,
        "NOISE": 17 / 8 * H * sqrt(K * log(1 / zeta) / 2),
        "BIAS-II": H * log(S * A / zeta) / (2 * gamma),
    }
    assert dict(bounds.vlsuob_reps_sharp(**SIZES, zeta=zeta, B=B).terms) == pytest.approx(by_hand, rel=1e-12)
    assert bounds.vlsuob_reps_sharp_shared(**SIZES).value < bounds.vlsuob_reps_sharp(**SIZES).value


def test_shared_weights_by_hand():
    S, _, H, K, d = SIZES.values()
    zeta = 0.05
    growth = d * log(1 + K * (H - 1))
    beta = 1 + sqrt(log(1 / zeta) + growth / 2)  # one regression, weights of norm at most one
    visited = 2 * beta * sqrt(2 * S * K * growth) + 2 * (H - 1) * (1 + growth / log(2))
    error = H / 2 * (2 * visited + 8 * (H - 1) * log(H / zeta))
    assert dict(bounds.vlsuob_reps_tight_shared(**SIZES).terms)["ERROR"] == pytest.approx(error, rel=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_theorem_b_by_hand(shared):
    S, A, H, K, d = SIZES.values()
    zeta, n, M = 0.05, (S - 1) * A, 9
    most = (2 + np.log2(K)) ** 2  # 1 / mu_K
    if shared:
        growth = d * log(1 + K * (H - 1))
        beta = 1 + sqrt(log(1 / zeta) + growth / 2)
        widths = 2 * beta * S * sqrt(2 * S * growth * K * most) + 2 * S * (H - 1) * (1 + most * growth / log(2))
    else:
        growth = d * log(1 + K * S / d)
        beta = 1 + sqrt(log((H - 1) / zeta) + growth / 2)
        widths = 2 * beta * S * sqrt(2 * H * S * growth * K * most) + 2 * S * (H - 1)
    first, half = sqrt(H * n * log(A)), H * most / 2
    by_hand = {
        "EXPERTS": 2 * H * sqrt(10 * (M - 3) * K) + H,
        "WIDTHS": widths,
        "EXPLORATION": 2 * sqrt(most) * sqrt(n * K * log(A)),
        "STEPS": 2 * half + 2 * sqrt((first - half) ** 2 + H**2 * n * log(A) * K * most) - first,
        "FAILURE": zeta * H * K,
    }
    bound = (bounds.portfolio_shared if shared else bounds.portfolio)(**SIZES, experts=M)
    assert dict(bound.terms) == pytest.approx(by_hand, rel=1e-12)
    assert bound.holds == "expectation"
    assert np.isnan(bounds.of_learner(bound.name, *SIZES.values(), oblivious=False))


@given(st.integers(1, 10**5))
def test_sums_over_premiums(K):
    """What Theorem B takes for sum_k 1 / mu_k and n sum_k gamma_k / mu_k, with the premium that is paid."""
    mu = np.array([premium(k) for k in range(1, min(K, 3000) + 1)])
    k, root = np.arange(1, len(mu) + 1), 2 + np.log2(len(mu))
    assert mu[0] == 0.25
    assert (np.diff(mu) <= 0).all()
    assert (1 / mu).sum() <= len(mu) * root**2 * (1 + 1e-12)
    assert np.sqrt(1 / (mu * k)).sum() <= 2 * root * sqrt(len(mu)) * (1 + 1e-12)


@pytest.mark.parametrize("name", STRONG)
@given(size=sizes())
def test_strong_bounds_are_sums_and_grow(name, size):
    function = getattr(bounds, name)
    bound = function(**size)
    assert bound.value == pytest.approx(sum(value for _, value in bound.terms), rel=1e-12)
    assert all(value >= 0 for _, value in bound.terms)
    for letter in ("S", "A", "K", "d"):
        assert function(**{**size, letter: 2 * size[letter]}).value >= bound.value
    assert function(**{**size, "zeta": 0.01, "K": 2}).holds
    if name.startswith("portfolio"):
        assert function(**size, experts=8).value > bound.value
        with pytest.raises(InvalidSpecError, match="experts is 1"):
            function(**size, experts=1)


@given(sizes())
def test_the_conditional_entropy_costs_at_most_two_or_a_root_of_the_horizon(size):
    late = {**size, "K": 10**15}
    conditional, pairs = bounds.vlsuob_reps_tight_conditional(**late).value, bounds.vlsuob_reps_tight(**late).value
    assert conditional <= max(2.0, sqrt(size["H"])) * pairs


def test_sharing_pays_in_the_leading_term_and_entropy_costs_at_most_a_root_of_the_horizon():
    large = {**SIZES, "K": 10**12}
    assert bounds.vlsuob_reps_tight_shared(**large).value < bounds.vlsuob_reps_tight(**large).value
    assert bounds.portfolio_shared(**large).value < bounds.portfolio(**large).value
    regrets = [
        dict(f(**large).terms)["REGRET"] for f in (bounds.vlsuob_reps_tight_conditional, bounds.vlsuob_reps_tight)
    ]
    assert regrets[0] <= sqrt(large["H"]) * regrets[1]
    # Smallest is about models that everybody has.
    assert "shared" not in bounds.smallest(**large, explicit=True).name
