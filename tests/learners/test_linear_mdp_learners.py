"""Learners of linear MDPs: estimates by enumeration, updates against slow references, coverage, regret."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from advmdp import InvalidSpecError, LinearMDP, make_adversary, make_learner, make_world, occupancy, run
from advmdp.confidence.linear_mdp import LeastSquares, LeastSquaresBoxes, all_values, least_squares_radius
from advmdp.episodes import Episode
from advmdp.learners.parts.linear import RESAMPLING_STEP, LinearFits, geometric_resampling
from advmdp.theory import bounds
from benchmarks import bench_linear_mdp as bench
from tests.learners.linear_references import (
    DilatedBonusLinear,
    MdpLinExp3,
    OppoLinear,
    QReps,
    covariance,
    leverage,
)
from tests.learners.test_reps import episodes_of

TINY = make_world("linear-mdp", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=2, concentration=1.0, seed=1)
WORLDS = [TINY, make_world("linear-mdp", layer_sizes=(1, 3, 2, 2, 1), n_actions=3, dim=3, concentration=1.0, seed=2)]
#: Many pairs of few kinds.
WIDE = make_world("linear-mdp", layer_sizes=(1, 30, 30, 1), n_actions=6, dim=3, seed=1)


def paths(mdp, policy):
    """All trajectories with their probabilities."""
    for actions in product(range(mdp.n_actions), repeat=mdp.horizon):
        for later in product(*map(range, mdp.layer_sizes[1:-1])):
            states, chance = (0, *later), 1.0
            for h in range(mdp.horizon):
                chance *= policy[h][states[h], actions[h]]
                if h < mdp.horizon - 1:
                    chance *= mdp.kernels[h][states[h], actions[h], states[h + 1]]
            yield np.array(states), np.array(actions), chance


def told(mdp, states, actions, tables):
    return Episode(states, actions, [tables[h][states[h], actions[h]] for h in range(mdp.horizon)])


def linear_tables(mdp, seed=0):
    g = np.random.default_rng(seed).random((mdp.horizon, mdp.dim))
    return [phi @ row for phi, row in zip(mdp.features, g, strict=True)]


def copies(learner, count):
    """The same learner again and again, as it is now."""
    state = learner.state()
    for _ in range(count):
        again = type(learner)(learner._problem, learner.episodes, **learner.get_params(), seed=learner.seed)
        again.set_state(state)
        yield again


# ------------------------------------------------------------------------------- estimates, by enumeration


def test_fitted_losses_have_no_bias():
    """E lhat_k(s, a) = l_k(s, a) at every pair, over all trajectories of the policy that is played."""
    learner = make_learner("q-reps", TINY, 200)
    for _ in episodes_of(learner, TINY, 20):
        pass
    tables, mean = linear_tables(TINY), np.zeros(TINY.layers.n_pairs)
    all_paths = list(paths(TINY, learner.policy))
    assert sum(chance for *_, chance in all_paths) == pytest.approx(1.0)
    for again, (states, actions, chance) in zip(copies(learner, len(all_paths)), all_paths, strict=True):
        again.update(told(TINY, states, actions, tables))
        mean += chance * np.concatenate(again.loss_estimate, axis=None)
    np.testing.assert_allclose(mean, np.concatenate(tables, axis=None), atol=1e-9)


def test_fitted_action_values_have_no_bias():
    """E Qhat_k = Q^{pi_k} over the coin, the layer where exploring ends, and all trajectories."""
    learner = make_learner("mdp-linexp3", TINY, 200, gamma=0.3, eta=0.05)
    for _ in episodes_of(learner, TINY, 20):
        pass
    tables, H, gamma = linear_tables(TINY), TINY.horizon, learner.exploration
    weights = [np.exp(table) for table in TINY.layers.split(learner._now.state.log_weights)]
    own = [table / table.sum(axis=1, keepdims=True) for table in weights]
    even = [np.full_like(table, 1.0 / TINY.n_actions) for table in own]
    state, mean = learner.state(), np.zeros(TINY.layers.n_pairs)
    for turn in range(H + 1):
        share = 1.0 - gamma if turn == H else gamma / H
        policy = own if turn == H else [*even[: turn + 1], *own[turn + 1 :]]
        state["state"]["turn"], state["policy"] = turn, np.concatenate(policy, axis=None)
        learner.set_state(state)
        all_paths = list(paths(TINY, policy))
        for again, (states, actions, chance) in zip(copies(learner, len(all_paths)), all_paths, strict=True):
            again.update(told(TINY, states, actions, tables))
            mean += share * chance * np.concatenate(again.action_values, axis=None)
    following, expected = np.zeros(1), []
    for h in reversed(range(H)):
        expected.insert(0, tables[h] + TINY.kernels[h] @ following)
        following = (own[h] * expected[0]).sum(axis=1)
    np.testing.assert_allclose(mean, np.concatenate(expected, axis=None), atol=1e-9)


@pytest.mark.parametrize("resamples", [1, 2, 3])
def test_resampling_has_the_bias_of_its_formula_and_less_than_its_bound(resamples):
    """All draws of M pairs, of probabilities that sum to less than one."""
    phi = TINY.features[1].reshape(-1, 2)
    mass = np.array([0.4, 0.2, 0.1, 0.2])
    drawn = [*phi, np.zeros(2)]
    chances = [*mass, 1.0 - mass.sum()]
    mean = np.zeros((2, 2))
    for places in product(range(5), repeat=resamples):
        chance = np.prod([chances[i] for i in places])
        draws = np.array([drawn[i] for i in places])
        mean += chance * geometric_resampling(np.array([draws, draws]), np.eye(2)).T
    sigma, b = (phi * mass[:, None]).T @ phi, RESAMPLING_STEP
    left = np.linalg.matrix_power(np.eye(2) - b * sigma, resamples + 1)
    np.testing.assert_allclose(mean, (np.eye(2) - left) @ np.linalg.inv(sigma), atol=1e-12)
    smallest = np.linalg.eigvalsh(sigma)[0]
    bias = np.linalg.norm(mean @ sigma - np.eye(2), 2)
    assert 0.0 < bias <= np.exp(-(resamples + 1) * b * smallest)


def test_draws_come_from_the_given_probabilities():
    fits, rng = LinearFits(TINY), np.random.default_rng(0)
    mass, pairs, values = 0.8 * fits.uniform, np.array([0, 3, 7]), np.array([1.0, 0.5, 2.0])
    found = np.array([fits.resampled(mass, pairs, values, 6, rng) for _ in range(4000)])
    expected = []
    for h, (phi, m) in enumerate(zip(TINY.features, TINY.layers.split(mass), strict=True)):
        sigma = covariance(phi, m)
        series = sum(np.linalg.matrix_power(np.eye(2) - RESAMPLING_STEP * sigma, k) for k in range(7))
        met = phi.reshape(-1, 2)[pairs[h] - TINY.layers.pair_offsets[h]]
        expected.append(phi @ (RESAMPLING_STEP * series @ met) * values[h])
    errors = np.abs(found.mean(axis=0) - np.concatenate(expected, axis=None)) / (found.std(axis=0) / np.sqrt(4000))
    assert errors.max() < 5.0


@pytest.mark.parametrize("name", ["q-reps", "mdp-linexp3"])
def test_learners_resample_what_they_play(name):
    """The mean first update over seeds is that of the truncated series, for the covariance of what is played."""
    usual = [make_learner(name, TINY, 200, gamma=0.3, resamples=10, seed=seed) for seed in range(400)]
    if name == "mdp-linexp3":
        usual = [learner for learner in usual if learner._now.state.data == TINY.horizon]  # the others explore
    one = next(iter(episodes_of(usual[0], TINY, 1)))
    found = []
    for learner in usual:
        mass = learner.q
        learner.update(Episode(one.states, one.actions, one.losses))
        estimate = learner.loss_estimate if name == "q-reps" else learner.action_values
        found.append(np.concatenate(estimate, axis=None))
    expected = []
    for h, phi in enumerate(TINY.features):
        # Of the uniform first policy both shares are the same measure.
        sigma = covariance(phi, mass[h] if name == "q-reps" else (0.7 + 0.3 / 3) * mass[h])
        series = sum(np.linalg.matrix_power(np.eye(2) - RESAMPLING_STEP * sigma, k) for k in range(11))
        value = one.losses[h] if name == "q-reps" else sum(one.losses[h:])
        expected.append(phi @ (RESAMPLING_STEP * series @ phi[one.states[h], one.actions[h]]) * value)
    spread = np.std(found, axis=0) / np.sqrt(len(found)) + 1e-12
    assert (np.abs(np.mean(found, axis=0) - np.concatenate(expected, axis=None)) / spread).max() < 5.0


def one_hot(mdp):
    """A tabular world as a linear MDP: a coordinate for every pair of a layer."""
    d = max(mdp.layer_sizes[:-1]) * mdp.n_actions
    sizes, A = mdp.layer_sizes, mdp.n_actions
    features = [np.eye(n * A, d).reshape(n, A, d) for n in sizes[:-1]]
    measures = [np.zeros((d, m)) for m in sizes[1:]]
    for kernel, measure in zip(mdp.kernels, measures, strict=True):
        rows = kernel.reshape(-1, kernel.shape[2])
        measure[: len(rows)] = rows
    return LinearMDP(features, measures)


def test_with_a_coordinate_for_every_pair_estimates_are_importance_weights():
    """lhat = l / qtilde at the visited pairs, and zero elsewhere; the leverage is one over the rarest visit."""
    world = one_hot(TINY)
    learner = make_learner("q-reps", world, 100)
    even = np.concatenate(occupancy.occupancy_measure(world, occupancy.uniform_policy(world.layer_sizes, 2)), axis=None)
    assert learner.leverage == pytest.approx(1.0 / even.min())
    for one in episodes_of(learner, world, 10):
        q = [table.copy() for table in learner.q]
        learner.update(Episode(one.states, one.actions, one.losses))
        for h, (table, mass) in enumerate(zip(learner.loss_estimate, q, strict=True)):
            expected = np.zeros_like(mass)
            expected[one.states[h], one.actions[h]] = one.losses[h] / mass[one.states[h], one.actions[h]]
            np.testing.assert_allclose(table, expected, atol=1e-9)
        break
    estimator = LeastSquares(world.model)
    data = estimator.add(estimator.empty(), np.array([0, 1, 0]), np.array([1, 0, 0]))
    assert data.measures[0][1].tolist() == [0.0, 0.5]  # one visit, and lambda = 1


# --------------------------------------------------------------------------- the update, from its formula

VARIANTS = [
    *((name, {}) for name in ("oppo-linear", "dilated-bonus-linear")),
    # With the radius of the theory nothing is learned of the dynamics in 40 episodes.
    *((name, {"radius_scale": 0.05}) for name in ("oppo-linear", "dilated-bonus-linear")),
]


@pytest.mark.parametrize("world", WORLDS, ids=["three steps", "four steps"])
@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=str)
def test_every_update_of_policy_optimisation_equals_the_slow_reference(name, options, world):
    kinds = {"oppo-linear": OppoLinear, "dilated-bonus-linear": DilatedBonusLinear}
    learner = make_learner(name, world, 40, **options)
    slow = kinds[name](world, 40, scale=options.get("radius_scale", 1.0))
    for one in episodes_of(learner, world, 40):
        for ours, theirs in zip(learner.policy, slow.policy, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
        slow.update(one)
    for ours, theirs in zip(learner.action_values, slow.values, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-8)
    if options and name == "oppo-linear":  # losses are 0 or 1: what is left is the future
        assert np.abs(learner.action_values[0] - learner.action_values[0].round()).max() > 1e-3


@pytest.mark.parametrize("world", WORLDS, ids=["three steps", "four steps"])
def test_every_update_of_linexp3_equals_the_slow_reference(world):
    learner = make_learner("mdp-linexp3", world, 60, seed=4)
    turns = []
    slow = MdpLinExp3(world, 60, turns)
    assert learner.leverage == pytest.approx(leverage(world), rel=1e-9)
    assert (learner.step_size, learner.exploration) == pytest.approx((slow.eta, slow.gamma), rel=1e-9)
    for one in episodes_of(learner, world, 60):
        if len(turns) < slow.k + 1:
            turns.append(learner._now.state.data)
        for ours, theirs in zip(learner.policy, slow.policy, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)
        slow.update(one)
    assert set(turns) == {*range(world.horizon + 1)}  # every kind of episode was met


@pytest.mark.parametrize("world", WORLDS, ids=["three steps", "four steps"])
def test_every_update_of_q_reps_equals_the_slow_reference(world):
    learner, slow = make_learner("q-reps", world, 300), QReps(world, 300)
    assert (learner.step_size, learner.exploration) == pytest.approx((slow.eta, slow.gamma), rel=1e-9)
    for one in episodes_of(learner, world, 20):
        for ours, theirs in zip(learner.policy, slow.policy, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        slow.update(one)


def test_the_boxes_of_uob_reps_linear_are_those_of_the_formula():
    world = WORLDS[1]
    learner = make_learner("uob-reps-linear", world, 60, radius_scale=0.3)
    slow = OppoLinear(world, 60)
    for one in episodes_of(learner, world, 30):
        slow.remember(one)
    low, high = learner.confidence_set.hull()
    for h in range(world.horizon - 1):
        ratio = np.linalg.slogdet(slow.ridge(h))[1]
        beta = 0.3 * (world.bound + 0.5 * np.sqrt(2 * np.log(sum(world.layer_sizes[1:-1]) / 0.05) + ratio))
        columns = [slow.fitted(h, np.eye(world.layer_sizes[h + 1])[t]) for t in range(world.layer_sizes[h + 1])]
        for s, a, t in np.ndindex(*world.kernels[h].shape):
            phi = world.features[h][s, a]
            centre, width = phi @ columns[t], beta * slow.norm(h, phi)
            # The hull of a set of distributions may be narrower than its box.
            assert low[h][s, a, t] >= max(centre - width, 0.0) - 1e-9
            assert high[h][s, a, t] <= min(centre + width, 1.0) + 1e-9
            other = world.kernels[h].shape[2] == 2
            if other:  # two next states: exactly the intersection of both intervals
                back, wide = phi @ columns[1 - t], width
                assert high[h][s, a, t] == pytest.approx(min(centre + width, 1.0, 1.0 - back + wide), abs=1e-9)


# ---------------------------------------------------------------------------------------- confidence


def test_the_error_of_least_squares_is_largest_at_a_corner():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(3, 4))  # sum of phi (e_s' - P) is linear in V
    corners = [np.linalg.norm(noise @ np.array(V)) for V in product((0.0, 1.0), repeat=4)]
    inside = [np.linalg.norm(noise @ rng.random(4)) for _ in range(2000)]
    assert max(inside) <= max(corners)


def missed(scale, runs=40, episodes=60):
    """Share of runs in which some V in {0, 1}^N, or the kernel, was ever off by more than the radius says."""
    values, boxes = 0, 0
    for seed in range(runs):
        world = make_world("linear-mdp", layer_sizes=(1, 4, 3, 1), n_actions=2, dim=2, concentration=1.0, seed=seed)
        estimator = LeastSquares(world.model)
        sets = LeastSquaresBoxes(estimator, 0.05, scale)
        data, off, outside = estimator.empty(), False, False
        learner = make_learner("uniform", world, episodes)
        for one in episodes_of(learner, world, episodes, seed=seed):
            widths, beta = estimator.widths(data), scale * estimator.radii(data, 0.05)
            for h, kernel in enumerate(world.kernels[:-1]):
                for V in product((0.0, 1.0), repeat=kernel.shape[2]):
                    error = np.abs((world.features[h] @ data.measures[h] - kernel) @ V)
                    off = off or bool((error > beta[h] * widths[h] + 1e-12).any())
            outside = outside or not sets(data).contains(world.kernels)
            data = estimator.add(data, one.states, one.actions)
        values, boxes = values + off, boxes + outside
    return values / runs, boxes / runs


def test_radii_cover_the_truth_in_all_runs_and_small_ones_do_not():
    assert missed(1.0) == (0.0, 0.0)  # promised: 5% at most
    assert min(missed(0.1, runs=5)) > 0.5


def test_the_radius_by_hand():
    assert least_squares_radius(1.5, all_values(3, 2), 4.0, 0.1, 1.2) == pytest.approx(
        1.2 * 2.0 + 0.5 * np.sqrt(2 * np.log(4 * 2 / 0.1) + 1.5)
    )


# ------------------------------------------------------------------------------------------- regret


@cache
def regret(name, episodes=800, world=WIDE, kind="stochastic", seeds=2, **options):
    found = []
    for seed in range(seeds):
        adversary = make_adversary("natural-losses", world, episodes, kind=kind, seed=seed)
        learner = make_learner(name, world, episodes, seed=seed, **options)
        found.append(run(world, learner, adversary, episodes, seed=seed, progress=False).regret[-1])
    return float(np.mean(found))


@pytest.mark.parametrize("name", ["q-reps", "mdp-linexp3", "oppo-linear", "dilated-bonus-linear", "uob-reps-linear"])
def test_every_one_beats_uniform(name):
    share = {"q-reps": 0.7, "oppo-linear": 0.5}.get(name, 0.98)
    assert regret(name) < share * regret("uniform")


def test_who_knows_the_transition_regrets_less():
    assert regret("mdp-e") < 0.8 * regret("oppo-linear")
    assert regret("q-reps") < 0.8 * regret("uob-reps-linear")
    assert regret("q-reps") < 0.8 * regret("dilated-bonus-linear")


def test_fitted_losses_pay_where_pairs_are_many_and_kinds_are_few():
    """H sqrt(d K) against sqrt(H S A K)."""
    assert regret("q-reps") < 0.8 * regret("o-reps-bandit")
    assert regret("q-reps") < 0.8 * regret("mdp-linexp3")  # sqrt(K) against K^(2/3)


def test_regret_stays_below_a_bound_that_says_something():
    K, world = 800, WIDE
    learner = make_learner("q-reps", world, K)
    bound = bounds.q_reps(world.n_states, world.n_actions, world.horizon, K, world.dim, leverage=learner.leverage)
    assert bound.value < 0.6 * world.horizon * K
    assert regret("q-reps") < bound.value
    assert np.isnan(run(world, learner, make_adversary("fixed", world, K), K, progress=False).frame["bound"].iloc[-1])


def test_bounds_by_hand():
    S, A, H, K, d, zeta, B, L = 13, 3, 4, 10_000, 3, 0.05, 1.5, 7.0
    eta = np.sqrt(np.log(S * A / H) / (K * (L + 2 * d)))
    assert bounds.q_reps(S, A, H, K, d, leverage=L).value == pytest.approx(
        2 * H * np.sqrt(K * (L + 2 * d) * np.log(S * A / H))
    )
    assert dict(bounds.q_reps(S, A, H, K, d, leverage=L).terms)["EXPLORATION"] == pytest.approx(eta * L * H * K)
    a, c = H * np.log(A), L * H * (16 + 9 + 4 + 1) * K
    gamma = (np.sqrt(a * c) / (H * K)) ** (2 / 3)
    assert bounds.mdp_linexp3(S, A, H, K, d, leverage=L).value == pytest.approx(
        gamma * H * K + 2 * np.sqrt(a * c / gamma)
    )
    growth = d * np.log(1 + K / d)
    beta = B + 0.5 * np.sqrt(2 * np.log(2 ** (S - H - 1) * (H - 1) / zeta) + growth)
    optimism = sum(2 * max(m * beta, m / 2) * np.sqrt(2 * K * growth) for m in (1, 2, 3))
    assert dict(bounds.oppo_linear(S, A, H, K, d, zeta, B).terms)["OPTIMISM"] == pytest.approx(optimism)
    beta = B + 0.5 * np.sqrt(2 * np.log(S / zeta) + growth)
    width = 2 * (2 * beta * S * np.sqrt(2 * K * growth) + 2 * (H - 1)) + 8 * (H - 1) * np.log(H / zeta)
    assert dict(bounds.uob_reps_linear(S, A, H, K, d, zeta, B).terms)["ERROR"] == pytest.approx(H / 2 * width)
    assert not bounds.dilated_bonus_linear(S, A, H, K, d).explicit


def test_the_page_has_the_figures_of_the_bounds():
    page = (Path(__file__).resolve().parents[2] / "docs" / "learners" / "linear-mdp.md").read_text(encoding="utf-8")
    world = make_world("linear-mdp", **bench.WORLDS["wide"])
    known, sizes = leverage(world), (world.n_states, world.n_actions, world.horizon, world.dim, 0.05, world.bound)

    def first(name, **told):
        return bounds.vacuous_until(lambda *s: getattr(bounds, name)(*s, **told), *sizes)

    assert f"K = {first('q_reps', leverage=known):.0f} on" in page
    assert f"`mdp-linexp3` {round(first('mdp_linexp3', leverage=known), -2):,.0f}" in page
    assert f"`oppo-linear` {round(first('oppo_linear'), -3):,.0f}" in page
    assert first("uob_reps_linear") == pytest.approx(1e11, rel=0.5)
    assert "until K = 86,000 at d = 4, H = 3, A = 4" in page
    assert (4**2 * 3**3.5 * np.sqrt(np.log(4)) / 3) ** 2 == pytest.approx(86_000, rel=0.01)
    shares = [f"{1e6 ** (p - 1):.{3 if p == 0.5 else 2}f}" for _, p in bounds.BANDIT_LINEAR_MDP]
    assert "| " + " | ".join(shares) + " |" in page


# ------------------------------------------------------------------------------------------ the rest


def test_logged_transitions_count_like_played_ones():
    learner, logs = make_learner("oppo-linear", TINY, 50), make_learner("oppo-linear", TINY, 50)
    history = list(episodes_of(learner, TINY, 10))
    logs.observe_transitions([one.states for one in history], [one.actions for one in history])
    for ours, theirs in zip(learner.estimate.measures, logs.estimate.measures, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    np.testing.assert_allclose(learner.radii, logs.radii)
    assert logs.policy[0][0, 0] == 0.5


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("q-reps", {"gamma": 1.0}, r"gamma is 1\.0, should be a number in \(0, 1\), or None"),
        ("q-reps", {"resamples": 0}, "resamples is 0, should be an integer >= 1"),
        ("mdp-linexp3", {"resamples": 10**6}, "resamples is 1000000, should be at most 100,000"),
        ("mdp-linexp3", {"eta": 0.0}, r"eta is 0\.0, should be a number > 0"),
        ("dilated-bonus-linear", {"gamma": 0.0}, r"gamma is 0\.0, should be a number > 0, or None"),
    ],
)
def test_options_are_checked(name, options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_learner(name, TINY, 10, **options)
