"""The guard: its lower bound holds, its promise is kept where costs are made to hurt, and good learners play."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import Agent, Process, make_world, occupancy
from advmdp.process.guard import COIN, Guard, ratios


def test_y_has_the_baselines_expected_loss_as_its_mean():
    world = make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=2)
    layers, rng = world.layers, np.random.default_rng(1)
    baseline, learner = (rng.dirichlet(np.ones(2), size=layers.n_pairs // 2).ravel() for _ in range(2))
    baseline[:2] = 1.0, 0.0
    losses = rng.random(layers.n_pairs)
    mean = 0.0
    for states in itertools.product(*(range(n) for n in layers.sizes[:-1])):
        for actions in itertools.product(range(2), repeat=3):
            pairs = layers.pair_offsets[:-1] + np.array(states) * 2 + actions
            steps = zip(world.kernels[:-1], states, actions, states[1:], strict=False)
            chance = float(np.prod([kernel[s, a, t] for kernel, s, a, t in steps]))
            chance *= COIN * baseline[pairs].prod() + (1.0 - COIN) * learner[pairs].prod()
            if chance > 0.0:
                mean += chance * float(ratios(baseline[pairs], learner[pairs]) @ losses[pairs])
    assert mean == pytest.approx(
        occupancy.expected_loss(world, layers.split(baseline), layers.split(losses)), rel=1e-12
    )


def test_ratios_of_long_episodes_do_not_underflow():
    r = ratios(np.full(5000, 1e-3), np.full(5000, 1e-3))
    assert np.allclose(r, 1.0)
    assert ratios(np.array([1.0, 0.0, 1.0]), np.array([0.5, 1.0, 0.5])).tolist()[1:] == [0.0, 0.0]
    assert ratios(np.ones(2), np.zeros(2)).tolist() == [1.0 / COIN, 1.0 / COIN]


@pytest.mark.parametrize("overlap", [0.0, 0.3])
def test_the_lower_bound_holds_at_all_times(overlap):
    """One step, two actions; the baseline takes the first, whose loss is rarely large: the hard case."""
    failures = without_log = without_correction = 0
    for run in range(100):
        rng = np.random.default_rng(run)
        guard = Guard.empty(0.1, 1)
        total = plain = 0.0
        failed = [False, False, False]
        for _ in range(400):
            coin = rng.random() < COIN
            action = 0 if coin or rng.random() < overlap else 1
            loss = float(rng.random() < 0.2)
            y = float(ratios(np.array([1.0 - action]), np.array([overlap, 1.0 - overlap])[[action]]) @ [loss])
            guard = guard.other_episode(y, loss, coin)
            total, plain = total + 0.2, plain + y
            failed[0] |= guard.lower_bound > total
            failed[1] |= float(guard.sums.max()) > total
            failed[2] |= plain - np.log(1.0 / 0.05) > total
        failures, without_log, without_correction = np.add([failures, without_log, without_correction], failed)
    assert failures <= 5
    assert without_log > 30  # control: without the logarithm
    assert without_correction > 10  # control: with it, but Y not divided by 1 + gamma Y


HORIZON = 2


def shop() -> Process:
    def moving(step, state, action):
        return {"few": 0.5, "many": 0.5}

    def staying(step, state, action):
        return {state: 1.0}

    return Process("few", lambda step, state: ["as ever", "new"], [moving, staying], HORIZON, (0.0, 1.0))


SHOP = shop()


def as_ever(step, state):
    return "as ever"


def play(agent, costs, episodes, seed=0):
    """What was lost, and what the baseline would have (known, since its costs do not depend on the state).

    Costs may depend on whether the guard was active when the episode began, but not on the coin.
    """
    rng = np.random.default_rng(seed)
    lost, baseline, player = np.zeros(episodes), np.zeros(episodes), []
    for k in range(episodes):
        guarded = agent._guard is not None and agent._guard.active
        episode, state = agent.begin(), "few"
        player.append(agent._record(episode.number).player)
        for _ in range(HORIZON):
            action = episode.act(state)
            cost = costs(k, action, guarded)
            episode.cost(cost)
            lost[k] += cost
            baseline[k] += costs(k, "as ever", guarded)
            state = "few" if rng.random() < 0.5 else "many"
        episode.end()
    return lost.cumsum(), baseline.cumsum(), player


def trap(k, action, guarded=False):
    """The new way is as dear as can be whenever the learner may take it; the old one is dear now and then."""
    return (0.2 if k % 50 else 1.0) if action == "as ever" else float(not guarded)


@pytest.mark.parametrize("slack", [0.1, 0.5])
@pytest.mark.parametrize("learner", ["planner", "uniform"])
def test_the_promise_is_kept_where_costs_are_made_to_hurt(slack, learner):
    for seed in range(3):
        agent = Agent(SHOP, learner, baseline=as_ever, slack=slack, seed=seed)
        lost, baseline, _ = play(agent, trap, 600, seed)
        assert (lost <= (1.0 + slack) * baseline + HORIZON).all()
    free, _, _ = play(Agent(SHOP, "uniform"), trap, 600)
    assert free[-1] > 2.0 * baseline[-1]  # control: without the guard


def test_a_learner_that_is_better_plays_in_the_end():
    agent = Agent(SHOP, "planner", baseline=as_ever, slack=0.5)
    lost, baseline, player = play(agent, lambda k, action, _: 0.6 if action == "as ever" else 0.1, 1500)
    assert player[-300:].count("guard") == 0
    assert lost[-1] < baseline[-1]
    assert agent.guard_plays == player.count("guard") + player.count("coin")


def test_what_the_guard_played_is_learned_from_but_not_as_the_learners_own():
    agent = Agent(SHOP, "portfolio", baseline=as_ever, slack=0.1)
    play(agent, trap, 40)
    learner = agent.learner
    assert learner.episodes_seen + agent.guard_plays == 40
    assert agent.guard_plays > 20
    assert learner.misspecification().episodes == 40
    assert learner.moment.predictions.visits.sum() == 40 * HORIZON


def test_late_costs_reach_the_guard():
    agents = [Agent(SHOP, "planner", baseline=as_ever, slack=0.1, seed=2) for _ in range(2)]
    for k in range(30):
        for late, agent in enumerate(agents):
            episode = agent.begin()
            values = [trap(k, episode.act("few")) for _ in range(HORIZON)]
            for step, value in enumerate(values if not late else []):
                episode.cost_of(step, value)
            episode.end(wait=bool(late))
            for step, value in enumerate(values if late else []):
                episode.cost_of(step, value)
    one, other = (agent._guard for agent in agents)
    assert one.sure == pytest.approx(other.sure)
    assert one.observed == pytest.approx(other.observed)
    assert np.allclose(one.sums, other.sums)
    assert (one.sure_episodes, one.coins) == (other.sure_episodes, other.coins)
