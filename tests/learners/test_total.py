"""Only the total loss of an episode: who takes it, what it is checked for, what is learnt from it, what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advmdp import (
    Agent,
    Episode,
    InvalidEpisodeError,
    InvalidSpecError,
    Process,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
)
from advmdp.experiments.statistics import mean_and_interval
from advmdp.registry import learners
from advmdp.solvers import upper_occupancy
from advmdp.testing import check_learner
from tests.learners.test_overlap import trajectories
from tests.strategies import suited

NAME = "dilated-bonus-total"
TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)


def test_it_conforms():
    check_learner(lambda problem, episodes, seed: make_learner(NAME, problem, episodes, seed=seed))


@pytest.mark.parametrize("name", sorted({"portfolio", "planner", *learners.names()} - {NAME}))
def test_all_others_refuse_a_total_and_say_what_they_need(name):
    options = {"losses": make_adversary("fixed", TINY, 5)} if name == "hindsight" else {}
    learner = make_learner(name, suited(name, TINY), 5, **options)
    with pytest.raises(
        InvalidEpisodeError, match=rf"learner '{name}' cannot use total of an episode: it learns from the"
    ):
        learner.update(Episode([0, 0, 0], [0, 0, 0], None, total=1.5))
    assert learner.episodes_seen == 0


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"total": 3.1}, r"total is 3\.1, should be a number from 0 to 3"),
        ({"total": -0.1}, r"total is -0\.1, should be"),
        ({"total": float("nan")}, "total is nan, should be"),
        ({"total": "dear"}, "total"),
        ({"total": [1.0, 2.0]}, r"total is \[1\.0, 2\.0\], should be a number"),
        ({"losses": [0.5, np.nan, 0.5], "total": 0.9}, r"total is 0\.9, but by the losses .* it is from 1 to 2"),
        ({"losses": [0.5, 0.5, 0.5], "total": 1.6}, r"it is from 1\.5 to 1\.5"),
        ({"losses": [0.5, np.nan, 0.5]}, "needs the loss of every visited pair"),
    ],
)
def test_totals_that_cannot_be_are_refused(told, message):
    learner = make_learner(NAME, TINY, 5)
    with pytest.raises(InvalidEpisodeError, match=message):
        learner.update(Episode([0, 0, 0], [0, 0, 0], **{"losses": None, **told}))
    assert learner.episodes_seen == 0
    learner.update(Episode([0, 0, 0], [0, 0, 0], [0.5, np.nan, 0.5], total=1.9))
    assert learner.episodes_seen == 1


def test_run_shows_it_the_total_and_nothing_else(monkeypatch):
    seen, update = [], type(make_learner(NAME, TINY, 30)).update
    monkeypatch.setattr(type(make_learner(NAME, TINY, 30)), "update", lambda s, e: (seen.append(e), update(s, e))[1])
    adversary = make_adversary("stochastic", TINY, 30)
    result = run(TINY, make_learner(NAME, TINY, 30), adversary, 30, progress=False)
    assert all(e.losses is None and e.loss_table is None and e.action_losses is None for e in seen)
    assert sum(e.total for e in seen) == pytest.approx(result.frame["observed_loss"].iloc[-1])


def test_what_the_total_adds_depends_on_the_state_alone():
    """By enumeration: E Qhat(s, a) (u + gamma) / q = Q(s, a) + E[what was lost before s], for the total; for
    ``dilated-bonus`` Q(s, a) itself."""
    layers, losses = TINY.layers, np.random.default_rng(0).random(TINY.layers.n_pairs)
    tables, kernels = layers.split(losses), TINY.kernels
    added = {}
    for name in ("dilated-bonus", NAME):
        learner = make_learner(name, TINY, 50)
        for k in range(12):
            learner.update(play(TINY, learner.policy, tables, np.random.default_rng(k)))
        policy, flat, boxes = learner.policy, learner.flat_policy, learner.confidence_set
        visits = upper_occupancy(boxes, policy)
        u = layers.flatten([v[:, None] * pi for v, pi in zip(visits, policy, strict=True)])
        q = layers.flatten(occupancy.occupancy_measure(TINY, policy))
        moment, expected = learner.state(), np.zeros(layers.n_pairs)
        for states, actions, chance in trajectories(kernels, TINY.horizon, 2):
            pairs = layers.pair_offsets[:-1] + states * 2 + actions
            learner.set_state(moment)
            episode = Episode(states, actions, losses[pairs])
            if name == NAME:
                episode = replace(episode, losses=None, total=losses[pairs].sum())
            learner.update(episode)
            values = layers.flatten(learner.action_values)
            bonus = np.delete(values, pairs)  # zero estimates elsewhere: minus the bonus
            assert (bonus <= 0.0).all()
            learner.set_state(moment)
            learner.update(Episode(states, actions, np.zeros(TINY.horizon)))
            expected += chance * flat[pairs].prod() * (values - layers.flatten(learner.action_values))
        Q, following = [], np.zeros(1)
        for h in reversed(range(TINY.horizon)):
            Q.insert(0, tables[h] + kernels[h] @ following)
            following = (policy[h] * Q[0]).sum(axis=1)
        added[name] = (expected * (u + learner.exploration) / q - layers.flatten(Q)).reshape(-1, 2)
    np.testing.assert_allclose(added["dilated-bonus"], 0.0, atol=1e-9)
    np.testing.assert_allclose(added[NAME][:, 0], added[NAME][:, 1], atol=1e-9)
    assert added[NAME][0, 0] == pytest.approx(0.0, abs=1e-9)
    assert (added[NAME][1:] > 0.05).all()


def test_a_total_costs_more_than_the_losses_of_steps():
    """With steps large enough to learn in 1500 episodes; the same losses and luck, paired over seeds."""
    world, differences = make_world("random-mixture", layer_sizes=(1, 3, 3, 3, 3, 1), n_actions=2, dim=2), []
    for seed in range(6):
        adversary = make_adversary("stochastic", world, 1500, seed=seed)
        regrets = [
            run(
                world, make_learner(name, world, 1500, eta=0.01, gamma=0.02, radius_scale=0.02), adversary, 1500,
                seed=seed, progress=False,
            ).regret[-1]
            for name in (NAME, "dilated-bonus")
        ]  # fmt: skip
        differences.append(regrets[0] - regrets[1])
    mean, half = mean_and_interval(np.array(differences))
    assert mean - half > 0.0


# ----------------------------------------------------------------------------------------------- the agent


def process():
    def actions(step, wear):
        return [] if wear == "broken" else ["run", "repair"]

    def scenario(step, wear, action):
        return {0: 1.0} if action == "repair" else {"broken": 0.3, 0: 0.7}

    return Process(0, actions, [scenario], horizon=3, cost_range=(-10, 40))


def test_an_agent_is_told_the_total_cost_of_an_episode_also_where_it_ends_early():
    """A cost c of a step is the loss (c + 10) / 50; steps that an early end leaves out cost nothing, a loss of 0.2."""
    ours, theirs = Agent(process(), NAME, episodes=20), Agent(process(), NAME, episodes=20)
    for number in range(6):
        costs = np.random.default_rng(number).uniform(-10, 40, size=3).tolist()
        one, other = ours.begin(), theirs.begin()
        ends, paid = "broken" if number % 2 else None, 0.0
        for step in range(2 if ends else 3):
            action = one.act(0)
            assert action == other.act(0)
            other.cost(costs[step])
            paid += costs[step]
        if ends and action == "repair":
            ends = None  # it cannot be broken then: play on
            assert one.act(0) == other.act(0)
            other.cost(costs[2])
            paid += costs[2]
        one.end(ends, total=paid)
        other.end(ends)
        np.testing.assert_allclose(ours.learner.flat_policy, theirs.learner.flat_policy, rtol=1e-12)
    assert ours.episodes_seen == theirs.episodes_seen == 6


def test_an_agent_refuses_totals_that_cannot_be_or_that_its_learner_cannot_use():
    agent = Agent(process(), NAME, episodes=20, baseline=lambda step, wear: "run")
    episode = agent.begin()
    for _ in range(3):
        episode.act(0)
    for total, message in (
        (121, r"total cost 121 is outside \[-30, 120\], 3 times cost_range"),
        ("much", "total cost 'much' is not a number"),
    ):
        with pytest.raises(InvalidEpisodeError, match=message):
            episode.end(total=total)
    assert agent.open == (0,)
    episode.end(total=120)
    assert agent.episodes_seen == 1
    cutting = Agent(process(), NAME, episodes=20, clip=True)
    episode = cutting.begin()
    for _ in range(3):
        episode.act(0)
    episode.end(total=1e6)
    assert cutting.clipped == 1
    other = Agent(process(), "planner").begin()
    for _ in range(3):
        other.act(0)
    with pytest.raises(InvalidEpisodeError, match="total cost 5: learner 'planner' needs the costs of single steps"):
        other.end(total=5)
    with pytest.raises(InvalidSpecError, match="slack needs the costs of single steps"):
        Agent(process(), NAME, episodes=20, baseline=lambda step, wear: "run", slack=0.1)
