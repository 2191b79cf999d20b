"""The portfolio: every update against plain numpy, its draws, its certificate, and what it is told late."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import (
    CorruptCheckpointError,
    Episode,
    InvalidEpisodeError,
    InvalidMDPError,
    InvalidSpecError,
    LayeredMDP,
    LinearMixtureMDP,
    load_learner,
    make_adversary,
    make_learner,
    occupancy,
    play,
    storage,
)
from advmdp.learners.parts.experts import ExpertWeights
from advmdp.seeding import IndexedGenerator, Stream
from tests.learners.portfolio_reference import Reference
from tests.strategies import random_kernels

SIZES, N_ACTIONS = [1, 2, 3, 1], 2


def mixture(shared: bool, seed: int) -> LinearMixtureMDP:
    rng = np.random.default_rng(seed)
    bases = [[rng.dirichlet(np.ones(m), size=(n, N_ACTIONS)) for n, m in itertools.pairwise(SIZES)] for _ in range(3)]
    return LinearMixtureMDP.from_kernels(bases, rng.dirichlet(np.ones(3), size=None if shared else len(SIZES) - 1))


WORLDS = {
    "shared": mixture(True, 0),
    "per layer": mixture(False, 1),
    "tabular": LayeredMDP(random_kernels(np.random.default_rng(2), SIZES, N_ACTIONS)),
}
OWN = [np.eye(N_ACTIONS)[[0] * n] for n in SIZES[:-1]], [np.full((n, N_ACTIONS), 1 / N_ACTIONS) for n in SIZES[:-1]]
worlds = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())


def told(world, learner, k, kind="stochastic", seed=0):
    losses = make_adversary(kind, world, 1000, seed=seed)
    return play(world, learner.policy, losses.losses(k), np.random.default_rng([seed, k]), index=k)


def played(world, episodes, **options):
    learner = make_learner("portfolio", world, **options)
    for k in range(episodes):
        learner.update(told(world, learner, k))
    return learner


def check_equal(learner, reference):
    state = learner._now.state
    flat = learner._layers.flatten
    np.testing.assert_allclose(learner.weights, reference.w, rtol=1e-6)
    np.testing.assert_allclose(state.policies, [flat(list(p)) for p in reference.policies()], atol=1e-6)
    assert learner.certificate == pytest.approx(reference.certificate, rel=1e-9)
    assert state.base.scale == pytest.approx(reference.Delta_b, rel=1e-6)
    for ours, theirs in zip(learner.confidence_set.hull(), reference.set.hull(), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


@worlds
@pytest.mark.parametrize("options", [{}, {"premium": False, "experts": OWN}], ids=["plain", "own, no premium"])
def test_every_update_is_that_of_the_second_implementation(world, options):
    learner = make_learner("portfolio", world, seed=5, **options)
    shared = world is WORLDS["shared"]
    reference = Reference(
        world.model, shared=shared, premium=options.get("premium", True), own=options.get("experts", ())
    )
    numbers = IndexedGenerator(5, Stream.LEARNER)
    for k in range(60):
        check_equal(learner, reference)
        drawn = int(np.searchsorted(np.cumsum(reference.w), numbers.at(k).random()))
        assert learner.drawn == learner.expert_names[drawn]
        np.testing.assert_array_equal(learner.flat_policy, learner._now.state.policies[drawn])
        episode = told(world, learner, k)
        losses = episode.losses.copy()
        losses[(k * 7) % 3] = np.nan if k % 5 == 4 else losses[(k * 7) % 3]
        learner.update(Episode(episode.states, episode.actions, losses, index=k))
        reference.update(episode.states, episode.actions, losses)
    check_equal(learner, reference)


@worlds
def test_updates_after_logs_are_those_of_the_second_implementation(world):
    """Logs make the sets narrow, so that the safe expert's bounds and rows are not those of all kernels."""
    learner = make_learner("portfolio", world, seed=5)
    reference = Reference(world.model, shared=world is WORLDS["shared"])
    episodes, rng = 6000 if world is WORLDS["tabular"] else 300, np.random.default_rng(0)
    no_loss = [np.zeros((n, N_ACTIONS)) for n in SIZES[:-1]]
    log = [play(world, OWN[1], no_loss, rng) for _ in range(episodes)]
    states, actions = [one.states for one in log], [one.actions for one in log]
    learner.observe_transitions(states, actions)
    reference.observe(states, actions)
    lower, upper = learner.confidence_set.hull()
    assert max(np.max(low - high) for low, high in zip(lower[:-1], upper[:-1], strict=True)) > -0.6
    for k in range(15):
        check_equal(learner, reference)
        episode = told(world, learner, k)
        learner.update(episode)
        reference.update(episode.states, episode.actions, episode.losses)
    check_equal(learner, reference)


def test_an_empty_set_is_enlarged_and_learning_goes_on():
    """Reality is far from all mixtures of the model, and a long log says so: nothing explains it."""
    rows = [[0.6, 0.4], [0.5, 0.5]]
    bases = [[np.tile(row, (1, N_ACTIONS, 1)), np.ones((2, N_ACTIONS, 1))] for row in rows]
    said = LinearMixtureMDP.from_kernels(bases, [0.5, 0.5])
    reality = LayeredMDP([np.tile([0.05, 0.95], (1, N_ACTIONS, 1)), np.ones((2, N_ACTIONS, 1))])
    learner = make_learner("portfolio", said, seed=1)
    reference = Reference(said.model, shared=True)
    rng = np.random.default_rng(0)
    states = np.column_stack([np.zeros(600, dtype=int), rng.random(600) < 0.95])
    actions = rng.integers(N_ACTIONS, size=(600, 2))
    learner.observe_transitions(states, actions)
    reference.observe(states, actions)
    assert reference.ellipsoids().smallest_radius_multiple() > 1.0
    assert len(learner.confidence_set.empty_pairs()) == 0
    for k in range(10):
        episode = told(reality, learner, k)
        learner.update(episode)
        reference.update(episode.states, episode.actions, episode.losses)
        check_equal(learner, reference)


def test_the_safe_share_is_the_premium():
    learner = played(WORLDS["shared"], 20)
    mu = 1.0 / (2.0 + np.log2(21)) ** 2
    shares = learner._now.state.meta.shares
    np.testing.assert_allclose(learner.weights, (1.0 - mu) * shares + mu * np.eye(len(shares))[0], rtol=1e-12)
    assert learner.expert_names[0] == "safe"
    free = played(WORLDS["shared"], 20, premium=False)
    np.testing.assert_array_equal(free.weights, free._now.state.meta.shares)


def test_draws_follow_the_weights(tmp_path):
    """The same state under many seeds: the expert of the next episode is drawn from the weights."""
    learner = played(WORLDS["tabular"], 30)
    tree, state = learner.state(), learner._now.state
    names, seeds = learner.expert_names, 1500
    counts = dict.fromkeys(names, 0)
    for seed in range(seeds):
        other = make_learner("portfolio", WORLDS["tabular"], seed=seed)
        other.set_state(tree)
        np.testing.assert_array_equal(other.flat_policy, state.policies[names.index(other.drawn)])
        counts[other.drawn] += 1
    expected = seeds * learner.weights
    observed = np.array(list(counts.values()))
    assert (np.abs(observed - expected) <= 4.5 * np.sqrt(expected) + 3).all()
    chi = ((observed - expected) ** 2 / expected).sum()
    assert chi < 30  # 6 degrees of freedom


@worlds
def test_it_needs_no_number_of_episodes(world):
    short, long = make_learner("portfolio", world, 30), make_learner("portfolio", world, 60)
    never = make_learner("portfolio", world)
    for k in range(30):
        for learner in (short, long, never):
            learner.update(told(world, learner, k))
        np.testing.assert_array_equal(short.flat_policy, long.flat_policy)
        np.testing.assert_array_equal(short.flat_policy, never.flat_policy)
        assert short.certificate == long.certificate


def test_policies_of_one_s_own_are_experts():
    learner = make_learner("portfolio", WORLDS["tabular"], experts=OWN)
    assert learner.expert_names[-2:] == ("own 0", "own 1")
    assert len(learner.weights) == len(learner.expert_names)
    flat = learner._layers.flatten
    np.testing.assert_array_equal(learner._now.state.policies[-2:], [flat(list(policy)) for policy in OWN])


def test_what_becomes_of_the_user_s_arrays_does_not_concern_it(tmp_path):
    mine = [table.copy() for table in OWN[0]]
    learner = make_learner("portfolio", WORLDS["tabular"], experts=[mine])
    mine[0][:] = np.nan
    learner.save(tmp_path / "learner.npz")
    again = load_learner(tmp_path / "learner.npz")
    flat = learner._layers.flatten(list(OWN[0]))
    for one in (learner, again):
        np.testing.assert_array_equal(one._now.state.policies[-1], flat)


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        ([OWN[0], OWN[0][:2]], r"experts\[1\] has 2 layers"),
        ([OWN[0], [np.ones((n, 3)) for n in SIZES[:-1]]], r"experts\[1\]\[0\] has shape"),
        ([[0.9 * table for table in OWN[1]]], r"experts\[0\], layer 0, state 0: probabilities"),
        ([OWN[0], OWN[1], [*OWN[0][:2], -OWN[0][2]]], r"experts\[2\], layer 2, state 0: probabilities"),
        ([[np.nan * table for table in OWN[1]]], r"experts\[0\]"),
    ],
)
def test_a_policy_that_is_none_is_refused_with_its_place(experts, message):
    with pytest.raises(InvalidMDPError, match=message):
        make_learner("portfolio", WORLDS["tabular"], experts=experts)


@pytest.mark.parametrize(
    ("option", "value"), [("premium", 1), ("zeta", "x"), ("zeta", 1.0), ("experts", 5), ("feedback", "all")]
)
def test_senseless_options_are_refused(option, value):
    with pytest.raises(InvalidSpecError, match=f"{option} is "):
        make_learner("portfolio", WORLDS["shared"], **{option: value})


@worlds
@pytest.mark.parametrize("options", [{}, {"experts": OWN, "premium": False, "feedback": "full"}], ids=["plain", "all"])
def test_it_survives_a_file_at_any_moment(world, options, tmp_path):
    learner = make_learner("portfolio", world, seed=3, **options)
    for k in range(24):
        learner.save(tmp_path / "learner.npz")
        again = load_learner(tmp_path / "learner.npz")
        episode = told(world, learner, k)
        for one in (learner, again):
            one.update(episode)
        np.testing.assert_array_equal(again._now.state.policies, learner._now.state.policies)
        np.testing.assert_array_equal(again.flat_policy, learner.flat_policy)
        np.testing.assert_array_equal(again.weights, learner.weights)
        assert again.drawn == learner.drawn


def test_a_loaded_learner_has_the_set_that_was_saved(tmp_path):
    """Within an epoch counts go on and the set does not: it used to come back wider."""
    world = LayeredMDP([np.array([[[0.5, 0.5], [0.2, 0.8]]]), np.ones((2, 2, 1))])
    rng = np.random.default_rng(0)
    learner = make_learner("portfolio", world)
    states = np.column_stack([np.zeros(1400, dtype=int), rng.random(1400) < 0.9])
    actions = np.zeros((1400, 2), dtype=int)
    learner.observe_transitions(states[:1024], actions[:1024])  # the first episode of an epoch
    learner.observe_transitions(states[1024:], actions[1024:])
    learner.save(tmp_path / "learner.npz")
    again = load_learner(tmp_path / "learner.npz")
    lower, _ = learner.confidence_set.hull()
    assert lower[0].max() > 0.0  # narrow enough to tell
    for ours, theirs in zip(learner.confidence_set.hull(), again.confidence_set.hull(), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_episode_that_no_expert_can_have_played_changes_nothing():
    """The safe expert can play everything, until its probabilities are zero to the last bit."""
    world = WORLDS["tabular"]
    learner = played(world, 10)
    state = learner._now.state
    pair = 0
    spoiled = state.policies.copy()
    spoiled[:, pair], spoiled[:, 1 - pair] = 0.0, 1.0
    learner._now = learner._now._replace(state=state._replace(policies=spoiled))
    before = learner._now
    with pytest.raises(InvalidEpisodeError, match="layer 0: no expert that agrees with the steps before takes this"):
        learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5, 0.5, 0.5]))
    assert learner._now is before
    with pytest.raises(InvalidEpisodeError, match="layer 0: no expert"):
        learner.update(Episode([0, 0, 0], [0, 0, 0], None))
    assert learner._now is before


def test_an_update_changes_no_value_that_was_there_before():
    world = WORLDS["shared"]
    learner = played(world, 5)
    state = learner._now.state
    arrays = [
        state.policies, state.meta.totals, state.meta.shares, state.meta.baselines, state.base.policy,
        state.base.log_policy, state.kernel.weights, state.kernel.counts, state.predictions.tables,
        state.predictions.errors, state.learners.totals, state.base.data.sums.moments,
    ]  # fmt: skip
    copies = [array.copy() for array in arrays]
    for k in range(5, 10):
        learner.update(told(world, learner, k))
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# --------------------------------------------------------------------------------- losses that come late


@worlds
def test_losses_told_before_the_next_update_are_as_if_told_at_once(world, tmp_path):
    at_once, late = played(world, 8), played(world, 8)
    episode = told(world, at_once, 8)
    at_once.update(episode)
    late.update(Episode(episode.states, episode.actions, None, index=8))
    late.save(tmp_path / "learner.npz")
    for learner in (late, load_learner(tmp_path / "learner.npz")):
        learner.tell(8, episode.losses)
        np.testing.assert_array_equal(learner.flat_policy, at_once.flat_policy)
        np.testing.assert_array_equal(learner._now.state.policies, at_once._now.state.policies)
        np.testing.assert_array_equal(learner.weights, at_once.weights)
        assert learner.certificate == at_once.certificate
        learner.update(told(world, at_once, 9))


def test_late_losses_move_the_totals_by_the_posterior_of_then():
    world = WORLDS["shared"]
    late, never = played(world, 8), played(world, 8)
    episode = told(world, late, 8)
    state = late._now.state
    pairs = [world.layers.pair_offsets[h] + episode.states[h] * N_ACTIONS + episode.actions[h] for h in range(3)]
    rho, baselines = state.meta.posterior(state.policies[:, pairs]), state.meta.baselines
    for learner in (late, never):
        learner.update(Episode(episode.states, episode.actions, None, index=8))
    following = told(world, late, 9)
    for learner in (late, never):
        learner.update(following)
    late.tell(8, episode.losses)
    last = told(world, late, 10)
    for learner in (late, never):
        learner.update(last)
    ours, theirs = late._now.state.meta, never._now.state.meta
    moved = (1.0 - theirs.premium) * ((episode.losses - baselines) @ rho)
    moved = np.maximum(moved, -0.5 / (theirs.step_size * np.sqrt(theirs.shares)))
    np.testing.assert_allclose(ours.totals - theirs.totals, moved, atol=1e-12)
    assert ours.certificate >= theirs.certificate
    # And the planners have learnt them.
    visits = late._now.state.predictions.visits - never._now.state.predictions.visits
    np.testing.assert_array_equal(np.flatnonzero(visits), np.sort(pairs))


def test_a_correction_lowers_no_total_by_more_than_the_weights_bear():
    rng = np.random.default_rng(0)
    for _ in range(200):
        count, horizon = int(rng.integers(2, 8)), int(rng.integers(1, 6))
        weights = ExpertWeights.empty(count, horizon)
        for _ in range(int(rng.integers(1, 20))):
            rho = weights.posterior(rng.random((count, horizon)) ** 4 + 1e-6)
            weights = weights.add(rho, rng.random(horizon))
        rho = rho * 10.0 ** rng.integers(0, 4)
        after = weights.correct(rho, np.zeros(horizon), rng.random(horizon))
        allowed = 0.5 / (weights.step_size * np.sqrt(weights.shares))
        assert (after.totals >= weights.totals - allowed - 1e-9).all()
        assert np.isfinite(after.weights).all()
        assert after.scale >= weights.scale
        nothing = weights.correct(rho, np.full(horizon, np.nan), rng.random(horizon))
        np.testing.assert_array_equal(nothing.totals, weights.totals)


def test_late_losses_survive_a_file_and_their_weights_are_checked(tmp_path):
    world, path = WORLDS["shared"], tmp_path / "learner.npz"
    learner = played(world, 4)
    for k in (4, 5):
        episode = told(world, learner, k)
        learner.update(Episode(episode.states, episode.actions, None, index=k))
    learner.tell(4, [0.5, None, 0.25])
    learner.save(path)
    again = load_learner(path)
    last = told(world, learner, 6)
    for one in (learner, again):
        one.update(last)
    np.testing.assert_array_equal(again.flat_policy, learner.flat_policy)
    np.testing.assert_array_equal(again.weights, learner.weights)
    tree = storage.read(path, "learner")
    for place in ("waiting", "arrived"):
        for wrong in (np.ones((3, 2)), np.ones(3), -np.ones((3, 9))):
            good = tree["ledger"][place][0]["weights"]
            tree["ledger"][place][0]["weights"] = wrong
            storage.write(path, "learner", tree)
            with pytest.raises(CorruptCheckpointError, match="late losses"):
                load_learner(path)
            tree["ledger"][place][0]["weights"] = good


# ---------------------------------------------------------------------------------- logs, full information


@worlds
def test_logs_teach_the_kernel_and_the_set_and_move_no_weight(world):
    player, reader = played(world, 25), make_learner("portfolio", world)
    states, actions = [], []
    again = make_learner("portfolio", world)
    for k in range(25):
        episode = told(world, again, k)
        again.update(episode)
        states.append(episode.states)
        actions.append(episode.actions)
    before = reader.weights
    reader.observe_transitions(states, actions)
    np.testing.assert_array_equal(reader.weights, before)
    assert reader.certificate == world.horizon
    ours, theirs = reader._now.state.kernel.kernels(), player._now.state.kernel.kernels()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    for one, other in zip(reader.confidence_set.hull(), player.confidence_set.hull(), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_with_full_information_planners_know_the_whole_table():
    world = WORLDS["tabular"]
    learner = make_learner("portfolio", world, feedback="full")
    losses = make_adversary("stochastic", world, 1000)
    for k in range(6):
        learner.update(told(world, learner, k))
    expected = np.mean([losses.flat_losses(k) for k in range(6)], axis=0)
    np.testing.assert_allclose(learner._now.state.predictions.tables[0], expected, atol=1e-12)


# ------------------------------------------------------------------------------------------ the certificate


def losses_against(world, rng, episodes):
    """Half of the time the cheap action is the other one, so that experts differ and change places."""
    tables = rng.random((2, world.layers.n_pairs))
    return [tables[(k // 30) % 2] for k in range(episodes)]


def excess(world, truth, seed, episodes, **options):
    """sum_k <q_k - q^i_k, l_k> - mu_k <q^safe_k - q^i_k, l_k> for every expert i, and the certificate."""
    learner = make_learner("portfolio", world, seed=seed, **options)
    tables = losses_against(world, np.random.default_rng(99), episodes)
    lost = 0.0
    for k, table in enumerate(tables):
        state = learner._now.state
        costs = np.array(
            [occupancy.expected_loss(truth, world.layers.split(p), world.layers.split(table)) for p in state.policies]
        )
        lost = lost + (learner.weights @ costs - costs) - state.meta.premium * (costs[0] - costs)
        split = world.layers.split(table)
        learner.update(play(truth, learner.policy, split, np.random.default_rng([seed, k]), index=k))
    return lost, learner.certificate


@pytest.mark.parametrize("wrong", [False, True], ids=["right model", "wrong model"])
def test_the_mean_loss_against_every_expert_is_below_the_mean_certificate(wrong):
    """In expectation, whatever the kernel is: also if reality is no mixture of what the model says."""
    world = WORLDS["shared"]
    truth = LayeredMDP(random_kernels(np.random.default_rng(7), SIZES, N_ACTIONS)) if wrong else world
    runs = [excess(world, truth, seed, 120, experts=OWN) for seed in range(12)]
    lost, certificates = np.array([run[0] for run in runs]), np.array([run[1] for run in runs])
    noise = 3.0 * lost.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert (lost.mean(axis=0) + noise <= certificates.mean()).all()
    assert certificates.max() <= 8.0 * world.horizon * np.sqrt(9 * 120) + 5.0 * world.horizon
