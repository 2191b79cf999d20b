"""Certainty equivalence, against a second implementation that keeps the whole history and tries every policy."""

from __future__ import annotations

import itertools

import cvxpy
import numpy as np
import pytest

from advmdp import (
    Adversary,
    Episode,
    InvalidEpisodeError,
    InvalidSpecError,
    LayeredMDP,
    LinearMixtureMDP,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
)
from tests.strategies import random_kernels

SIZES, N_ACTIONS = [1, 2, 2, 1], 2
PRIOR = 0.5


def mixture(shared: bool, seed: int = 0) -> tuple[LinearMixtureMDP, list[list[np.ndarray]]]:
    """A tiny mixture with the same weights everywhere, or others in each layer; and its base kernels."""
    rng = np.random.default_rng(seed)
    bases = [[rng.dirichlet(np.ones(m), size=(n, N_ACTIONS)) for n, m in itertools.pairwise(SIZES)] for _ in range(3)]
    weights = rng.dirichlet(np.ones(3), size=None if shared else len(SIZES) - 1)
    return LinearMixtureMDP.from_kernels(bases, weights), bases


SHARED, SHARED_BASES = mixture(True)
LAYERED, LAYERED_BASES = mixture(False, 1)
TABULAR = LayeredMDP(random_kernels(np.random.default_rng(3), SIZES, N_ACTIONS))


def played(world, learner, episodes, seed=0, spoil=None):
    """The episodes that were told, as (states, actions, losses)."""
    losses = make_adversary("stochastic", world, 1000, seed=seed)
    history = []
    for k in range(episodes):
        told = play(world, learner.policy, losses.losses(k), np.random.default_rng([seed, k]), index=k)
        seen = told.losses.copy() if spoil is None else spoil(k, told.losses.copy())
        learner.update(Episode(told.states, told.actions, seen, told.loss_table, k))
        history.append((told.states, told.actions, seen, world.layers.flatten(told.loss_table)))
    return history


# -------------------------------------------------------------------------- the second implementation


def likeliest(bases, history, layers):
    """Weights of maximum likelihood with half an imaginary transition per base kernel, by a conic solver."""
    vectors = [
        [base[h][states[h], actions[h], states[h + 1]] for base in bases]
        for states, actions, *_ in history
        for h in layers
    ]
    weights = cvxpy.Variable(len(bases))
    likelihood = cvxpy.sum(cvxpy.log(np.array(vectors) @ weights)) + PRIOR * cvxpy.sum(cvxpy.log(weights))
    cvxpy.Problem(cvxpy.Maximize(likelihood), [cvxpy.sum(weights) == 1.0]).solve(solver=cvxpy.CLARABEL)
    return weights.value


def frequencies(world, history):
    """Rows of counts, uniform where a pair was never seen."""
    kernels = [np.zeros((n, N_ACTIONS, m)) for n, m in itertools.pairwise(world.layer_sizes)]
    for states, actions, *_ in history:
        for h, (s, a, t) in enumerate(zip(states, actions, [*states[1:], 0], strict=True)):
            kernels[h][s, a, t] += 1.0
    for kernel in kernels:
        for row in kernel.reshape(-1, kernel.shape[2]):
            row[:] = row / row.sum() if row.any() else 1.0 / row.size
    return kernels


def means(world, history, forgetting, full=False):
    """At each pair: the first losses averaged, and later ones at the rate 1 - forgetting; zero where none was seen."""
    by_pair = {}
    for states, actions, losses, table in history:
        if full:
            for pair, loss in enumerate(table):
                by_pair.setdefault(pair, []).append(loss)
        else:
            for h, (s, a) in enumerate(zip(states, actions, strict=True)):
                if not np.isnan(losses[h]):
                    by_pair.setdefault(world.layers.pair_offsets[h] + s * N_ACTIONS + a, []).append(losses[h])
    table = np.zeros(world.layers.n_pairs)
    for pair, losses in by_pair.items():
        if forgetting == 1.0:
            table[pair] = np.mean(losses)
            continue
        for n, loss in enumerate(losses, 1):
            rate = max(1.0 / n, 1.0 - forgetting)
            table[pair] = (1.0 - rate) * table[pair] + rate * loss
    return world.layers.split(table)


def best_value(kernels, losses):
    """The least expected loss of all deterministic policies, by trying every one."""
    counts = [table.shape[0] for table in losses]
    values = []
    for choice in itertools.product(range(N_ACTIONS), repeat=sum(counts)):
        rows = iter(choice)
        policy = [np.eye(N_ACTIONS)[[next(rows) for _ in range(n)]] for n in counts]
        values.append(occupancy.expected_loss(kernels, policy, losses))
    return min(values)


def check_plan(learner, kernels, losses):
    """The policy is best at the start, and shares its probability among the best actions of every state."""
    value = occupancy.expected_loss(kernels, learner.policy, losses)
    assert value == pytest.approx(best_value(kernels, losses), abs=1e-6)
    after = np.zeros(1)
    for kernel, loss, table in zip(kernels[::-1], losses[::-1], learner.policy[::-1], strict=True):
        x = loss + kernel @ after
        after = x.min(axis=1)
        clear = (x - after[:, None] < 1e-9) | (x - after[:, None] > 1e-5)  # others the solver cannot tell apart
        best = x - after[:, None] < 1e-9
        expected = best / best.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(table[clear.all(axis=1)], expected[clear.all(axis=1)], atol=1e-12)


# ------------------------------------------------------------------------------------------- the tests


@pytest.mark.parametrize("forgetting", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "per layer"])
def test_it_plans_for_the_likeliest_mixture_and_the_mean_of_the_losses(shared, forgetting):
    world, bases = (SHARED, SHARED_BASES) if shared else (LAYERED, LAYERED_BASES)
    learner = make_learner("planner", world, forgetting=forgetting)
    history = []
    for stop in (1, 6, 40):
        history += played_on(world, learner, len(history), stop)
        inner = range(world.horizon - 1)
        groups = [list(inner)] if shared else [[h] for h in inner]
        weights = np.array([likeliest(bases, history, group) for group in groups])
        np.testing.assert_allclose(learner.mixture_weights, weights, atol=2e-4)
        mixed = [np.tensordot(learner.mixture_weights[0 if shared else h], [b[h] for b in bases], 1) for h in inner]
        losses = means(world, history, forgetting)
        for ours, theirs in zip(learner.predicted_losses, losses, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)
        check_plan(learner, [*mixed, bases[0][-1]], losses)


def played_on(world, learner, start, stop, seed=0):
    losses = make_adversary("stochastic", world, 1000, seed=seed)
    history = []
    for k in range(start, stop):
        told = play(world, learner.policy, losses.losses(k), np.random.default_rng([seed, k]), index=k)
        learner.update(told)
        history.append((told.states, told.actions, told.losses, None))
    return history


def test_layers_share_their_weights_where_the_model_says_so():
    assert make_learner("planner", SHARED).mixture_weights.shape == (1, 3)
    assert make_learner("planner", SHARED, shared=False).mixture_weights.shape == (2, 3)
    assert make_learner("planner", LAYERED).mixture_weights.shape == (2, 3)
    for name in ("planner", "portfolio"):
        with pytest.raises(InvalidSpecError, match="shared=True needs a model that says so"):
            make_learner(name, LAYERED, shared=True)


def test_without_a_mixture_it_counts_transitions():
    learner = make_learner("planner", TABULAR)
    assert learner.mixture_weights is None
    history = []
    for stop in (1, 5, 30):
        history += played_on(TABULAR, learner, len(history), stop)
        kernels = frequencies(TABULAR, history)
        for ours, theirs in zip(learner._now.state.kernel.kernels(), kernels, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-15)
        check_plan(learner, kernels, means(TABULAR, history, 1.0))


def test_what_was_not_seen_is_hoped_to_cost_nothing():
    world = LayeredMDP([np.ones((1, 4, 1))])
    learner = make_learner("planner", world)
    np.testing.assert_array_equal(learner.policy[0], [[0.25] * 4])
    tried = []
    for k, loss in enumerate([0.9, 0.2, 0.5, 0.4]):
        action = int(learner.policy[0][0].argmax())
        tried.append(action)
        learner.update(Episode([0], [action], [loss], index=k))
        unseen = [a for a in range(4) if a not in tried]
        if unseen:
            np.testing.assert_allclose(learner.policy[0][0][unseen], 1.0 / len(unseen))
    assert sorted(tried) == [0, 1, 2, 3]
    assert learner.policy[0][0].argmax() == tried[1]


def test_with_full_information_it_averages_whole_tables():
    learner = make_learner("planner", SHARED, feedback="full", forgetting=0.75)
    assert learner.feedback == "full"
    history = played(SHARED, learner, 9)
    for ours, theirs in zip(learner.predicted_losses, means(SHARED, history, 0.75, full=True), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    with pytest.raises(InvalidEpisodeError, match="loss_table is missing"):
        learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5, 0.5, 0.5]))
    assert learner.episodes_seen == 9


def test_a_missing_loss_is_not_seen_and_its_transition_is():
    def spoil(k, losses):
        losses[k % 3] = np.nan
        return losses

    learner, whole = make_learner("planner", TABULAR), make_learner("planner", TABULAR)
    history = played(TABULAR, learner, 25, spoil=spoil)
    for ours, theirs in zip(learner.predicted_losses, means(TABULAR, history, 1.0), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    for states, actions, *_ in history:
        whole.update(Episode(states, actions, np.zeros(3)))
    ours, theirs = learner._now.state.kernel, whole._now.state.kernel
    np.testing.assert_array_equal(ours.counts, theirs.counts)


def test_a_late_loss_is_averaged_in_when_it_comes():
    in_time, late, very_late = (make_learner("planner", TABULAR) for _ in range(3))
    history = played(TABULAR, in_time, 4)
    for k, (states, actions, losses, _) in enumerate(history):
        late.update(Episode(states, actions, None if k == 3 else losses, index=k))
        very_late.update(Episode(states, actions, None if k == 1 else losses, index=k))
    late.tell(3, history[3][2])
    np.testing.assert_array_equal(late.flat_policy, in_time.flat_policy)
    np.testing.assert_array_equal(late._now.state.predictions.tables, in_time._now.state.predictions.tables)
    very_late.tell(1, history[1][2])
    states, actions, losses = [0, 1, 1], [1, 0, 0], [0.5, 0.25, 0.125]
    for learner in (in_time, very_late):
        learner.update(Episode(states, actions, losses))
    # A mean does not ask in which order.
    np.testing.assert_allclose(
        very_late._now.state.predictions.tables, in_time._now.state.predictions.tables, atol=1e-12
    )
    np.testing.assert_array_equal(very_late._now.state.predictions.visits, in_time._now.state.predictions.visits)


def test_with_full_information_a_late_table_is_refused_and_late_losses_are_used():
    learner = make_learner("planner", TABULAR, feedback="full")
    table = [np.full((n, N_ACTIONS), 0.5) for n in TABULAR.layer_sizes[:-1]]
    learner.update(Episode([0, 0, 0], [0, 0, 0], None, index=0))
    learner.tell(0, [0.5, None, None])
    assert learner.predicted_losses[0][0, 0] == 0.5
    learner.update(Episode([0, 0, 0], [1, 0, 0], [0.5] * 3, table, 1))
    with pytest.raises(InvalidEpisodeError, match="cannot use the loss_table of episode 0 after the next update"):
        learner.tell(0, [0.5] * 3, table)
    learner.tell(0, [np.nan, 0.5, 0.5])
    learner.update(Episode([0, 0, 0], [1, 0, 0], [0.5] * 3, table, 2))
    visits = TABULAR.layers.split(learner._now.state.predictions.visits)
    assert visits[0].tolist() == [[3.0, 2.0]]
    assert visits[1][0].tolist() == [3.0, 2.0]


def test_logs_teach_the_kernel_alone():
    player, reader = make_learner("planner", SHARED), make_learner("planner", SHARED)
    history = played(SHARED, player, 15)
    reader.observe_transitions([h[0] for h in history], [h[1] for h in history])
    np.testing.assert_allclose(reader.mixture_weights, player.mixture_weights, atol=1e-6)
    assert not any(table.any() for table in reader.predicted_losses)
    assert reader.episodes_seen == 0


@pytest.mark.parametrize("world", [SHARED, LAYERED, TABULAR], ids=["shared", "per layer", "tabular"])
def test_it_survives_a_file(world, tmp_path):
    learner = make_learner("planner", world, forgetting=0.9)
    played(world, learner, 7)
    learner.save(tmp_path / "learner.npz")
    again = load_learner(tmp_path / "learner.npz")
    for k in range(7, 12):
        told = played_on(world, learner, k, k + 1)[0]
        again.update(Episode(*told[:3], index=k))
        np.testing.assert_array_equal(again.flat_policy, learner.flat_policy)


def test_an_update_changes_no_value_that_was_there_before():
    learner = make_learner("planner", TABULAR)
    played(TABULAR, learner, 3)
    before = learner._now.state
    copies = before.policy.copy(), before.kernel.counts.copy(), before.predictions.tables.copy()
    played_on(TABULAR, learner, 3, 6)
    for value, copy in zip((before.policy, before.kernel.counts, before.predictions.tables), copies, strict=True):
        np.testing.assert_array_equal(value, copy)


@pytest.mark.parametrize(
    ("option", "value"), [("forgetting", 1.5), ("forgetting", None), ("feedback", "some"), ("shared", 1)]
)
def test_senseless_options_are_refused(option, value):
    with pytest.raises(InvalidSpecError, match=f"{option} is "):
        make_learner("planner", SHARED, **{option: value})


class Alternating(Adversary):
    """Whatever was cheaper so far is dear now."""

    def flat_losses(self, k):
        table = np.zeros((self.layers.n_pairs // 2, 2))
        table[:, 0] = 0.5 if k == 0 else (k % 2 == 0)
        table[:, 1] = 0.0 if k == 0 else (k % 2 == 1)
        return table.ravel()


def test_alternating_losses_give_it_linear_regret_and_the_portfolio_far_less():
    world, regret = make_world("grid", height=3, width=3), {}
    for name, episodes in (("planner", 200), ("planner", 400), ("portfolio", 400)):
        learner = make_learner(name, world, feedback="full")
        regret[name, episodes] = run(world, learner, Alternating(world, episodes), episodes).regret[-1]
    for episodes in (200, 400):
        assert regret["planner", episodes] > 0.4 * world.horizon * episodes
    assert regret["portfolio", 400] < 0.25 * regret["planner", 400]
