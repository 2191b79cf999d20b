"""An agent is where the facts that it was told imply, whatever the order, the interruptions and the mistakes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import advmdp
from advmdp import (
    Agent,
    CorruptCheckpointError,
    Episode,
    InvalidEpisodeError,
    InvalidSpecError,
    Process,
    load_agent,
    make_learner,
    occupancy,
    storage,
)
from tests.test_process import HORIZON, actions, calm


def busy(step, state, action):
    length, mood = state
    served = {"wait": 0, "serve": 1}.get(action, 2)
    return {(length - served + 1, mood): 0.75, "closed": 0.25}


def queue(start=(1, "good"), **options):
    return Process(start, actions, [calm, busy], HORIZON, (0.0, 10.0), **options)


QUEUE = queue()
RANDOM_START = queue({(1, "good"): 0.5, (2, "bad"): 0.5})


def waiting(step, state):
    return "wait"


def serving(step, state):
    return actions(step, state)[-1]


def cost_of(state, action):
    return 2.0 * state[0] + (0.0 if action == "wait" else 1.5)


def following(rng, step, state, action, weights=(0.4, 0.6)):
    row = (calm, busy)[int(rng.random() < weights[1])](step, state, action)
    names = list(row)
    return names[int(rng.choice(len(names), p=[row[name] for name in names]))]


def run(agent, episodes, seed=0, costs=cost_of):
    """Episodes one after the other; what each cost."""
    totals = []
    for number in range(episodes):
        rng = np.random.default_rng((seed, number))
        episode, state, total = agent.begin(), (1, "good"), 0.0
        for step in range(HORIZON):
            if not actions(step, state):
                break
            action = episode.act(state)
            cost = min(10.0, costs(state, action))
            episode.cost(cost)
            total += cost
            state = following(rng, step, state, action)
        episode.end(state)
        totals.append(total)
    return totals


def same(one, other):
    """Whether two trees are equal, arrays bit for bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return one == other or (one != one and other != other)


def unpacked(agent):
    return storage.loads(storage.dumps("agent", agent.tree()), "agent", "memory")


# ----------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize("name", ["planner", "portfolio"])
def test_it_learns_what_a_learner_with_numbers_would(name):
    agent, learner = Agent(QUEUE, name), make_learner(name, QUEUE.model)
    for number in range(6):
        rng = np.random.default_rng(number)
        episode, state = agent.begin(), (1, "good")
        states, moves, losses = [], [], []
        for step in range(HORIZON):
            states.append(QUEUE.index(step, state))
            if not actions(step, state):
                break
            action = episode.act(state)
            moves.append(QUEUE.actions(step, state).index(action))
            losses.append(min(10.0, cost_of(state, action)) / 10.0)
            episode.cost(min(10.0, cost_of(state, action)))
            state = following(rng, step, state, action)
        episode.end(state)
        missing = HORIZON - len(losses)
        states += [QUEUE.index(h, advmdp.process.ENDED) for h in range(len(states), HORIZON)]
        learner.update(Episode(states, moves + [0] * missing, losses + [0.0] * missing))
    assert all(np.array_equal(a, b) for a, b in zip(agent.learner.policy, learner.policy, strict=True))
    assert agent.episodes_seen == 6


def test_actions_are_drawn_from_streams_of_their_own_whatever_the_order():
    one, other = Agent(QUEUE, "uniform", seed=4), Agent(QUEUE, "uniform", seed=4)
    first, second = one.begin(), one.begin()
    mine = [first.act((1, "good")), second.act((1, "good")), first.act((1, "good")), second.act((1, "good"))]
    first, second = other.begin(), other.begin()
    theirs = [second.act((1, "good")), second.act((1, "good")), first.act((1, "good")), first.act((1, "good"))]
    assert [mine[1], mine[3], mine[0], mine[2]] == theirs
    drawn = {Agent(QUEUE, "uniform", seed=seed).begin().act((1, "good")) for seed in range(20)}
    assert drawn == {"wait", "serve"}


def test_own_actions_come_out_and_always_available_ones():
    agent = Agent(RANDOM_START, "uniform")
    for number in range(30):
        episode, rng = agent.begin(), np.random.default_rng(number)
        state = [(1, "good"), (2, "bad")][number % 2]
        for step in range(HORIZON):
            if not actions(step, state):
                break
            action = episode.act(state, step=step)
            assert action in actions(step, state)
            state = following(rng, step, state, action)
        episode.end(state)


def test_each_episode_plays_the_policy_of_its_beginning():
    agent = Agent(QUEUE, "planner")
    early = agent.begin()
    run_policy = [table.copy() for table in agent.learner.policy]
    run(agent, 20)
    assert not all(np.array_equal(a, b) for a, b in zip(run_policy, agent.learner.policy, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(run_policy, agent._layers.split(
        agent._policy(agent._record(early.number))), strict=True))  # fmt: skip


def test_a_baseline_is_an_expert_or_a_start():
    agent = Agent(QUEUE, "portfolio", baseline=waiting)
    assert np.array_equal(agent.learner.experts[0][1], QUEUE.policy(waiting)[1])
    agent = Agent(QUEUE, "vlsuob-reps-tight", baseline=QUEUE.policy(waiting), episodes=10)
    assert agent.learner.start is not None
    assert Agent(QUEUE, "planner", baseline=waiting).learner.start is None


@pytest.mark.parametrize("name", ["planner", "portfolio"])
def test_costs_of_all_actions_are_all_learned_from(name):
    agent = Agent(QUEUE, name)
    episode = agent.begin()
    for _ in range(3):
        episode.act((1, "good"))
        episode.costs({each: cost_of((1, "good"), each) for each in actions(0, (1, "good"))})
    episode.end()
    means = agent.learner.moment.predictions.tables[0]
    for step, table in enumerate(QUEUE.model.layers.split(means)):
        row = table[QUEUE.index(step, (1, "good"))]
        for place, action in enumerate(QUEUE.actions(step, (1, "good"))):
            assert row[place] == pytest.approx(cost_of((1, "good"), action) / 10.0)


def test_costs_of_all_actions_give_the_one_that_was_taken_to_learners_that_use_no_more():
    one, other = (Agent(QUEUE, "vlsuob-reps-tight", episodes=10) for _ in range(2))
    for agent in (one, other):
        episode = agent.begin()
        for state in ((1, "good"), (1, "good"), (1, "good")):
            action = episode.act(state)
            if agent is one:
                episode.costs({each: cost_of(state, each) for each in actions(0, state)})
            else:
                episode.cost(cost_of(state, action))
        episode.end()
    assert same(unpacked(one), unpacked(other))


def test_late_costs_are_waited_for_only_if_that_was_said():
    for wait in (True, False):
        agent = Agent(QUEUE, "planner", wait=wait)
        episode = agent.begin()
        for _ in range(HORIZON):
            episode.act((1, "good"))
        episode.end()
        assert agent.waiting == ((0,) if wait else ())
        if not wait:
            with pytest.raises(InvalidEpisodeError, match="episode 0 is over"):
                episode.cost_of(1, 3.0)
    again = agent = Agent(QUEUE, "planner")
    episode = again.begin()
    for _ in range(HORIZON):
        episode.act((1, "good"))
    episode.cost_of(1, 4.0)
    episode.end(wait=True)
    again.episode(0).cost_of(0, 1.0)
    again.episode(0).cost_of(2, 2.0)
    assert again.waiting == ()
    at_once = Agent(QUEUE, "planner")
    episode = at_once.begin()
    for value in (1.0, 4.0, 2.0):
        episode.act((1, "good"))
        episode.cost(value)
    episode.end()
    assert same(unpacked(again)["learner"]["state"], unpacked(at_once)["learner"]["state"])


@pytest.mark.parametrize("process", [QUEUE, RANDOM_START], ids=["one start", "random start"])
def test_of_one_episode_some_costs_may_come_late_and_others_never(process, tmp_path):
    def played(agent):
        episode = agent.begin()
        for _ in range(HORIZON):
            episode.act((1, "good"))
        return episode

    agent, at_once = Agent(process, "planner", wait=True), Agent(process, "planner")
    episode = played(agent)
    episode.cost_of(0, 4.0)
    episode.end(wait=[2])
    agent.save(tmp_path / "agent.npz")
    agent = load_agent(tmp_path / "agent.npz", process)
    before = unpacked(agent)
    with pytest.raises(InvalidEpisodeError, match=r"step 1, state \(1, 'good'\), .*: its cost is not waited for"):
        agent.episode(0).cost_of(1, 3.0)
    assert same(unpacked(agent), before)
    assert agent.waiting == (0,)
    agent.episode(0).cost_of(2, 2.0)
    assert agent.waiting == ()
    episode = played(at_once)
    episode.cost_of(0, 4.0)
    episode.cost_of(2, 2.0)
    episode.end()
    assert same(unpacked(agent)["learner"]["state"], unpacked(at_once)["learner"]["state"])


def test_learners_that_need_all_costs_have_one_episode_at_a_time():
    agent = Agent(QUEUE, "dilated-bonus", episodes=10)
    episode = agent.begin()
    with pytest.raises(InvalidEpisodeError, match="episode 0 is under way: learner 'dilated-bonus' needs all of it"):
        agent.begin()
    for _ in range(HORIZON):
        episode.act((1, "good"))
    episode.cost(1.0)
    with pytest.raises(InvalidEpisodeError, match=r"episode 0, step 0, state \(1, 'good'\), .*: its cost was not told"):
        episode.end()
    with pytest.raises(InvalidEpisodeError, match=r"step 0, .*: its cost was not told"):
        episode.end(wait=[1])
    episode.end(wait=True)
    episode.cost_of(0, 1.0)
    with pytest.raises(InvalidEpisodeError, match="episode 0 waits for costs"):
        agent.begin()
    episode.cost_of(1, 1.0)
    assert agent.begin().number == 1
    assert agent.learner.moment.k == 1


def test_clipped_costs_are_counted():
    agent = Agent(QUEUE, "planner", clip=True)
    episode = agent.begin()
    episode.act((1, "good"))
    episode.cost(11.0)
    episode.act((1, "good"))
    episode.cost(-1.0)
    assert agent.clipped == 2
    assert agent._record(0).losses == [1.0, 0.0]


def played_and_logged(agent, cost_of_step=lambda number, step: None):
    """Twelve episodes of an agent, as logs with what was told of their costs."""
    logs = []
    for number in range(12):
        rng = np.random.default_rng(number)
        episode, state, log = agent.begin(), (1, "good"), []
        for step in range(HORIZON):
            if not actions(step, state):
                log.append(state)
                break
            action, cost = episode.act(state), cost_of_step(number, step)
            if cost is not None:
                episode.cost(cost)
            log.append((state, action, cost))
            state = following(rng, step, state, action)
        episode.end(state)
        logs.append(log)
    return logs


def test_logs_give_the_model_that_playing_gives():
    played, told = Agent(QUEUE, "portfolio"), Agent(QUEUE, "portfolio")
    logs = played_and_logged(played)
    assert any(log[-1] == "closed" for log in logs)  # some ended early
    told.learn_from_logs(logs)
    assert np.allclose(played.learner.mixture_weights, told.learner.mixture_weights, atol=1e-6)
    assert np.array_equal(played.learner.moment.kernel.counts, told.learner.moment.kernel.counts)
    assert told.episodes_seen == 0


@pytest.mark.parametrize("name", ["planner", "portfolio"])
def test_costs_in_logs_are_averaged_like_those_of_episodes(name):
    played, told = Agent(QUEUE, name), Agent(QUEUE, name)
    told.learn_from_logs(
        played_and_logged(played, lambda number, step: None if (number + step) % 4 == 0 else float(number % 7))
    )
    one, other = played.learner.moment.predictions, told.learner.moment.predictions
    assert np.array_equal(one.visits, other.visits)
    seen = one.visits > 0
    assert np.allclose(one.tables[:, seen], other.tables[:, seen], atol=1e-12)
    assert told.learner.episodes_seen == told.episodes_seen == 0


def test_what_was_never_done_is_expected_to_cost_what_was():
    """An end is free, and says nothing of what actions cost."""
    process = Process(
        "go", lambda step, state: [] if state == "done" else ["a", "b"],
        [lambda step, state, action: {"go": 0.5, "done": 0.5}], 2, (2, 4),
    )  # fmt: skip
    agent = Agent(process, "planner")
    agent.learn_from_logs([[("go", "a", 4), "done"]] * 5 + [[("go", "a", 4), ("go", "a", 4)]] * 5)
    means = process.model.layers.split(agent.learner.moment.predictions.tables[0])
    assert means[0].tolist() == [[1.0, 1.0]]
    assert means[1][process.index(1, "go")].tolist() == [1.0, 1.0]
    assert agent.explain().expected_cost == pytest.approx(6.0)


def test_a_log_that_can_be_read_in_two_ways_is_refused():
    process = Process(
        0, lambda step, state: ["go"] if state in (0, 4) else [],
        [lambda step, state, action: {4: 0.5, (4, "go"): 0.5}], 2, (0, 1),
    )  # fmt: skip
    agent = Agent(process, "planner")
    with pytest.raises(InvalidEpisodeError, match=r"trajectory 0: its last entry .* as well; say a step as a list"):
        agent.learn_from_logs([[(0, "go"), (4, "go")]])
    agent.learn_from_logs([[(0, "go"), [4, "go"]]])


def test_a_learner_made_for_another_process_is_refused():
    first, second = ({"x": 0.5, "y": 0.5}, {"x": 0.9, "y": 0.1})
    processes = [
        Process("s", lambda step, state: ["a"], [lambda t, s, a, row=row: row for row in rows], 2, (0, 1))
        for rows in ([first, second], [second, first])
    ]
    with pytest.raises(InvalidSpecError, match="was made for another process"):
        Agent(processes[0], make_learner("planner", processes[1].model))
    Agent(processes[0], make_learner("planner", processes[0].model))


def test_a_file_is_refused_where_actions_or_states_have_changed_places(tmp_path):
    def scenario(step, state, action):
        return {0: 0.5, 1: 0.5}

    def process(*names):
        return Process(0, lambda step, state: list(names), [scenario], 2, (0, 1))

    Agent(process("a", "b"), "planner").save(tmp_path / "agent.npz")
    load_agent(tmp_path / "agent.npz", process("a", "b"))
    for names in (("b", "a"), ("a", "c")):
        with pytest.raises(ValueError, match="process"):
            load_agent(tmp_path / "agent.npz", process(*names))


def test_a_learner_that_predicts_no_losses_takes_the_dynamics_of_logs_with_costs():
    logs = [[((1, "good"), "wait", 2.0)] * HORIZON]
    one, other = (Agent(QUEUE, "vlsuob-reps-tight", episodes=10) for _ in range(2))
    one.learn_from_logs(logs)
    other.learn_from_logs([[entry[:2] for entry in logs[0]]])
    for a, b in zip(one.learner.policy, other.learner.policy, strict=True):
        assert np.array_equal(a, b)
    with pytest.raises(InvalidEpisodeError, match="'uniform' cannot use logged transitions"):
        Agent(QUEUE, "uniform").learn_from_logs(logs)


def test_costs_in_logs_are_clipped_and_counted():
    agent = Agent(QUEUE, "planner", clip=True)
    agent.learn_from_logs([[((1, "good"), "wait", 99.0)] * HORIZON])
    assert agent.clipped == HORIZON
    with pytest.raises(InvalidEpisodeError, match="trajectory 1"):
        agent.learn_from_logs([[((1, "good"), "wait", 99.0)] * HORIZON, "ab"])
    assert agent.clipped == HORIZON


def test_an_abandoned_episode_teaches_nothing():
    agent = Agent(QUEUE, "planner")
    episode = agent.begin()
    episode.act((1, "good"))
    episode.cost(9.0)
    episode.abandon()
    assert (agent.open, agent.episodes_seen, agent.abandoned, agent.learner.skipped) == ((), 0, 1, 1)
    assert agent.learner.moment.predictions.visits.sum() == 0


def test_costs_that_never_come_can_be_given_up():
    for name, options in (("planner", {}), ("dilated-bonus", {"episodes": 10})):
        agent = Agent(QUEUE, name, **options)
        episode = agent.begin()
        for _ in range(HORIZON):
            episode.act((1, "good"))
        episode.end(wait=True)
        episode.abandon()
        assert agent.waiting == ()
        agent.begin()


# --------------------------------------------------------------------------------------- files


def test_a_file_of_another_process_is_refused(tmp_path):
    agent = Agent(QUEUE, "planner")
    run(agent, 2)
    agent.save(tmp_path / "agent.npz")
    others = {
        "layer_sizes": queue({(1, "good"): 0.5, (2, "bad"): 0.5}),
        "cost_range": Process((1, "good"), actions, [calm, busy], HORIZON, (0.0, 9.0)),
        "scenarios": Process((1, "good"), actions, [calm, busy, busy], HORIZON, (0.0, 10.0)),
        "probabilities": Process((1, "good"), actions, [busy, calm], HORIZON, (0.0, 10.0)),
        "shared": queue(shared=False),
    }
    for what, process in others.items():
        with pytest.raises(CorruptCheckpointError, match=f"written for another process .*{what}") as caught:
            load_agent(tmp_path / "agent.npz", process)
        assert "\n" not in str(caught.value)


def test_a_file_holds_numbers_and_not_your_states(tmp_path):
    agent = Agent(QUEUE, "portfolio", baseline=waiting, slack=0.1)
    run(agent, 3)
    agent.begin().act((1, "good"))
    agent.save(tmp_path / "agent.npz")
    assert b"good" not in (tmp_path / "agent.npz").read_bytes()
    assert same(unpacked(load_agent(tmp_path / "agent.npz", QUEUE)), unpacked(agent))


DAMAGES = {
    "version": lambda tree: tree.update(version=99),
    "player": lambda tree: tree["episodes"][0].update(player="nobody"),
    "state": lambda tree: tree["episodes"][0].update(states=[7]),
    "action": lambda tree: tree["episodes"][0].update(actions=[7]),
    "loss": lambda tree: tree["episodes"][0].update(losses=[2.0]),
    "lengths": lambda tree: tree["episodes"][0].update(losses=[]),
    "moment": lambda tree: tree["episodes"][0].update(moment=5),
    "no moment": lambda tree: tree["episodes"][0].update(moment=None),
    "twice": lambda tree: tree["episodes"].append(tree["episodes"][0]),
    "begun": lambda tree: tree.update(begun=-1),
    "guard": lambda tree: tree["guard"].update(sums=np.ones(3)),
    "baseline": lambda tree: tree.update(baseline=tree["baseline"] * 2),
    "learner": lambda tree: tree["learner"].update(name="nobody"),
    "missing": lambda tree: tree.pop("seed"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_files_that_make_no_sense_are_refused(name, tmp_path):
    agent = Agent(QUEUE, "planner", baseline=waiting, slack=0.1)
    agent.begin().act((1, "good"))
    tree = unpacked(agent)
    DAMAGES[name](tree)
    storage.write(tmp_path / "agent.npz", "agent", tree)
    with pytest.raises(CorruptCheckpointError, match=r"agent.npz: (does not describe|was written)"):
        load_agent(tmp_path / "agent.npz", QUEUE)


# --------------------------------------------------------------------------------- what is refused


def begun(steps=0, process=QUEUE, **options):
    agent = Agent(process, "planner", **options)
    episode = agent.begin()
    for _ in range(steps):
        episode.act((1, "good"))
    return agent, episode


GOOD = (1, "good")
REFUSED = {
    "another start": (0, lambda a, e: e.act((2, "good")), r"episode 0, step 0: state \(2, 'good'\) is not the start;"),
    "no such state": (1, lambda a, e: e.act((5, "good")), r"step 1: state \(5, 'good'\) cannot follow action .*no"),
    "unhashable": (1, lambda a, e: e.act([1]), r"step 1: state \[1\] cannot follow action .*; known: "),
    "too many steps": (3, lambda a, e: e.act(GOOD), "step 3: the episode has only 3 steps"),
    "asked twice": (1, lambda a, e: e.act(GOOD, step=0), "step 1 is due, and an action for step 0 was asked for"),
    "act at the end": (1, lambda a, e: e.act("closed"), "step 1: state 'closed' has no actions, the episode ends"),
    "end too early": (1, lambda a, e: e.end(), "step 1: the episode has 3 steps; to end it here say in which state"),
    "end where it goes on": (1, lambda a, e: e.end(GOOD), r"step 1: state \(1, 'good'\) has actions, the episode goes"),
    "end nowhere": (1, lambda a, e: e.end("open"), "step 1: state 'open' cannot follow"),
    "cost of nothing": (0, lambda a, e: e.cost(1.0), "episode 0: no action was asked for yet"),
    "costs of nothing": (0, lambda a, e: e.costs({"wait": 1.0}), "episode 0: no action was asked for yet"),
    "cost too high": (1, lambda a, e: e.cost(10.5), r"step 0, state \(1, 'good'\), action '\w+': cost 10.5 is out"),
    "cost text": (1, lambda a, e: e.cost("3"), "step 0, .* cost '3' is not a number"),
    "cost nan": (1, lambda a, e: e.cost(float("nan")), "cost nan is not a number .leave out what was not seen"),
    "cost none": (1, lambda a, e: e.cost(None), "cost None is not a number"),
    "costs no dict": (1, lambda a, e: e.costs([1.0]), r"step 0, .*: \[1.0\] should be a dict"),
    "costs no action": (1, lambda a, e: e.costs({"fly": 1.0}), "there is no action 'fly' here; available: 'wait"),
    "costs too high": (1, lambda a, e: e.costs({"wait": 1.0, "serve": 99.0}), "cost 99.0 is outside cost_range"),
    "cost of the future": (1, lambda a, e: e.cost_of(1, 1.0), "episode 0: step 1 was not played; 1 were"),
    "cost of no step": (1, lambda a, e: e.cost_of(-1, 1.0), "step is -1, should be an integer >= 0"),
    "wait for what": (3, lambda a, e: e.end(wait="all"), "wait is 'all', should be True, False, or the steps whose"),
    "wait for no step": (3, lambda a, e: e.end(wait=[3]), "wait for step 3: its cost cannot come: that step was not"),
    "wait for half a step": (3, lambda a, e: e.end(wait=[0.5]), "step to wait for is 0.5, should be an integer"),
    "unknown episode": (0, lambda a, e: a.episode(7), r"episode 7 has not begun; open: \[0\], waiting: \[\]"),
    "logs: no list": (0, lambda a, e: a.learn_from_logs(["ab"]), "trajectory 0: 'ab' should be a list of 1 to 3 pairs"),
    "logs: too short": (0, lambda a, e: a.learn_from_logs([[(GOOD, "wait")]]), "trajectory 0: has 1 of 3 steps"),
    "logs: no pair": (0, lambda a, e: a.learn_from_logs([[GOOD, 3, 4]]), "trajectory 0, step 0: state 1 is not"),
    "logs: a cost out of range": (
        0, lambda a, e: a.learn_from_logs([[(GOOD, "wait", 99.0)] * 3]), "trajectory 0, step 0, .*: cost 99.0 is out",
    ),
    "logs: no action": (
        0, lambda a, e: a.learn_from_logs([[(GOOD, "fly")] * 3]), "trajectory 0, step 0: there is no action 'fly'",
    ),
    "logs: impossible": (
        0, lambda a, e: a.learn_from_logs([[(GOOD, "wait"), ((0, "good"), "wait"), (GOOD, "wait")]]),
        r"trajectory 0, step 1: state \(0, 'good'\) cannot follow action 'wait' in state \(1, 'good'\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_one_line_and_changes_nothing(name):
    steps, call, message = REFUSED[name]
    agent, episode = begun(steps)
    before = unpacked(agent)
    with pytest.raises(InvalidEpisodeError, match=message) as caught:
        call(agent, episode)
    assert "\n" not in str(caught.value)
    assert same(unpacked(agent), before)


def test_a_cost_told_twice_is_refused():
    agent, episode = begun(1)
    episode.cost(1.0)
    before = unpacked(agent)
    for call in (lambda: episode.cost(1.0), lambda: episode.cost_of(0, 1.0), lambda: episode.costs({"wait": 1.0})):
        with pytest.raises(InvalidEpisodeError, match="its cost was told before"):
            call()
    assert same(unpacked(agent), before)


ARGUMENTS = {
    "process": (lambda: Agent("queue"), "process is 'queue', should be a Process"),
    "learner": (lambda: Agent(QUEUE, "wizard"), "wizard"),
    "options": (
        lambda: Agent(QUEUE, make_learner("planner", QUEUE.model), forgetting=0.5),
        "options .'forgetting'.",
    ),
    "another model": (lambda: Agent(QUEUE, make_learner("planner", RANDOM_START.model)), "made for another process"),
    "full": (lambda: Agent(QUEUE, "portfolio", feedback="full"), "'portfolio' needs the losses of all states"),
    "slack": (lambda: Agent(QUEUE, baseline=waiting, slack=-1), "slack is -1, should be a number >= 0"),
    "slack alone": (lambda: Agent(QUEUE, slack=0.1), "slack is 0.1, but there is no baseline"),
    "clip": (lambda: Agent(QUEUE, clip=1), "clip is 1, should be True or False"),
    "wait": (lambda: Agent(QUEUE, wait=None), "wait is None, should be True or False"),
    "seed": (lambda: Agent(QUEUE, "planner", seed=-1), "seed is -1"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_arguments_are_refused(name):
    call, message = ARGUMENTS[name]
    with pytest.raises(InvalidSpecError, match=message):
        call()


# --------------------------------------------------------------------- any sequence of events


class Story(RuleBasedStateMachine):
    """Facts are told in any order; after a kill the agent is loaded and told again what the file does not hold."""

    learner = "planner"
    guarded = True
    process = QUEUE

    @initialize()
    def start(self):
        self.facts: list[tuple] = []
        self.saved: int | None = None
        #: Episode -> the state that comes next, or None if an action was asked for and nothing has happened since.
        self.at: dict[int, object] = {}
        self.steps: dict[int, int] = {}
        self.owed: dict[int, set[int]] = {}
        self.ended = self.logs = 0
        self.directory = tempfile.TemporaryDirectory()
        self.file = Path(self.directory.name) / "agent.npz"
        self.agent = self.fresh()

    def fresh(self):
        extra = {"baseline": waiting, "slack": 0.2} if self.guarded else {}
        return Agent(self.process, self.learner, seed=7, **extra)

    def tell(self, agent, fact):
        kind, *rest = fact
        if kind == "begin":
            return agent.begin().number
        if kind == "log":
            return agent.learn_from_logs(*rest)
        number, *arguments = rest
        return getattr(agent.episode(number), kind)(*arguments)

    def fact(self, *fact):
        result = self.tell(self.agent, fact)
        self.facts.append((fact, result))
        return result

    @precondition(lambda self: len(self.at) < 3)
    @rule(start=st.sampled_from([(1, "good"), (2, "bad")]))
    def begin(self, start):
        number = self.fact("begin")
        self.at[number] = start if self.process is RANDOM_START else (1, "good")
        self.steps[number], self.owed[number] = 0, set()

    def open_at(self, choose, want):
        return choose.draw(st.sampled_from(sorted(n for n in self.at if want(n))))

    def may_act(self, number):
        return self.steps[number] < HORIZON and self.at[number] != "closed"

    @precondition(lambda self: any(self.may_act(n) for n in self.at))
    @rule(choose=st.data())
    def act(self, choose):
        number = self.open_at(choose, self.may_act)
        state, step = self.at[number], self.steps[number]
        action = self.fact("act", number, state)
        rows = {**calm(step, state, action), **busy(step, state, action)}
        self.at[number] = choose.draw(st.sampled_from(sorted(rows, key=repr)))
        self.owed[number].add(step)
        self.steps[number] += 1

    @precondition(lambda self: any(self.steps[n] - 1 in self.owed[n] for n in self.at))
    @rule(choose=st.data(), value=st.sampled_from([0.0, 2.5, 10.0]))
    def cost(self, choose, value):
        number = self.open_at(choose, lambda n: self.steps[n] - 1 in self.owed[n])
        self.fact("cost", number, value)
        self.owed[number].discard(self.steps[number] - 1)

    @precondition(lambda self: any(self.owed.values()))
    @rule(choose=st.data(), value=st.sampled_from([0.0, 7.0]))
    def late_cost(self, choose, value):
        number = choose.draw(st.sampled_from(sorted(n for n, steps in self.owed.items() if steps)))
        step = choose.draw(st.sampled_from(sorted(self.owed[number])))
        self.fact("cost_of", number, step, value)
        self.owed[number].discard(step)
        if number not in self.at and not self.owed[number]:
            del self.owed[number]

    @precondition(lambda self: any(not self.may_act(n) for n in self.at))
    @rule(choose=st.data(), wait=st.booleans())
    def end(self, choose, wait):
        number = self.open_at(choose, lambda n: not self.may_act(n))
        if self.owed[number] and choose.draw(st.booleans()):  # some come, the others never
            wait = sorted(choose.draw(st.sets(st.sampled_from(sorted(self.owed[number])))))
            self.owed[number] = set(wait)
        state = self.at.pop(number)
        self.fact("end", number, state if self.steps[number] < HORIZON else None, wait)
        self.ended += 1
        if not (wait and self.owed[number]):
            del self.owed[number]

    @precondition(lambda self: self.at)
    @rule(choose=st.data())
    def abandon(self, choose):
        number = self.open_at(choose, lambda n: True)
        self.fact("abandon", number)
        del self.at[number], self.owed[number]

    @rule(choose=st.data())
    def log(self, choose):
        start = (1, "good")
        self.fact("log", [[(start, "wait"), "closed"], [(start, "serve"), (start, "serve"), (start, "wait")]])
        self.logs += 2

    @rule()
    def mistake(self):
        before = unpacked(self.agent)
        with pytest.raises(InvalidEpisodeError):
            self.agent.episode(10_000)
        for number in self.at:
            with pytest.raises(InvalidEpisodeError):
                self.agent.episode(number).act("nowhere")
            with pytest.raises(InvalidEpisodeError):
                self.agent.episode(number).end("nowhere") if self.may_act(number) else self.agent.episode(number).act(0)
        assert same(unpacked(self.agent), before)

    @rule()
    def save(self):
        self.agent.save(self.file)
        self.saved = len(self.facts)

    @rule()
    def kill(self):
        """All that is left is the file; what was told since is told again, and must have the same answers."""
        self.agent = self.fresh() if self.saved is None else load_agent(self.file, self.process)
        for fact, result in self.facts[self.saved or 0 :]:
            assert self.tell(self.agent, fact) == result

    def teardown(self):
        if hasattr(self, "directory"):
            self.directory.cleanup()
        if hasattr(self, "agent"):
            self.compare()

    def compare(self):
        straight = self.fresh()
        for fact, result in self.facts:
            assert self.tell(straight, fact) == result
        assert same(unpacked(self.agent), unpacked(straight))
        assert set(self.agent.open) == set(self.at)
        assert set(self.agent.waiting) == set(self.owed) - set(self.at)
        assert self.agent.episodes_seen == self.ended
        watched = self.agent.learner.misspecification()
        assert watched.episodes == self.ended + self.logs


class PortfolioStory(Story):
    learner, guarded, process = "portfolio", False, RANDOM_START

    @precondition(lambda self: False)
    @rule()
    def log(self):
        """The logs above begin where this process may not; see the other story."""


Story.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
PortfolioStory.TestCase.settings = settings(max_examples=15, stateful_step_count=30)
TestStory = Story.TestCase
TestPortfolioStory = PortfolioStory.TestCase


def test_a_save_in_the_way_of_a_full_disk_leaves_the_agent_and_the_file(tmp_path, monkeypatch):
    agent = Agent(QUEUE, "planner")
    agent.save(tmp_path / "agent.npz")
    run(agent, 2)
    before = unpacked(agent)

    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        agent.save(tmp_path / "agent.npz")
    monkeypatch.undo()
    assert same(unpacked(agent), before)
    assert load_agent(tmp_path / "agent.npz", QUEUE).episodes_seen == 0


# ------------------------------------------------------------------------------------- in words


def test_an_explanation_says_what_it_believes_trusts_and_expects():
    agent = Agent(QUEUE, "portfolio", baseline=waiting, slack=1.0, clip=True)
    run(agent, 150)
    episode = agent.begin()
    episode.act((1, "good"))
    episode.cost(11.0)
    told = agent.explain()
    assert told.scenarios == ("calm", "busy")
    assert told.weights.shape == told.lower.shape == told.upper.shape == (1, 2)
    assert told.lower[0, 1] < 0.6 < told.upper[0, 1]  # the truth of `following`
    assert told.upper[0, 0] - told.lower[0, 0] < 0.6
    assert sum(told.trust.values()) == pytest.approx(1.0)
    assert "baseline" in told.trust
    assert (told.episodes, told.open, told.clipped) == (150, 1, 1)
    assert told.guard_plays == agent.guard_plays > 0
    assert not told.misspecification.alarm
    text = str(told)
    for part in (
        "150 episodes",
        "1 open",
        "  calm  0.",
        "it trusts",
        "the baseline",
        "1 costs were out of range",
        "guard",
    ):
        assert part in text


def test_expected_costs_are_those_of_the_likeliest_mixture_and_the_mean_costs():
    for process in (QUEUE, RANDOM_START):
        agent = Agent(process, "planner", baseline=serving)
        for number in range(40):
            rng = np.random.default_rng(number)
            episode, state = agent.begin(), [(1, "good"), (2, "bad")][number % 2] if process is RANDOM_START else GOOD
            for step in range(HORIZON):
                if not actions(step, state):
                    break
                action = episode.act(state)
                episode.cost(min(10.0, cost_of(state, action)))
                state = following(rng, step, state, action)
            episode.end(state)
        told = agent.explain()
        seen = agent.learner.moment.predictions.visits > 0
        means = agent.learner.predicted_losses
        world = process.mdp(agent.learner.mixture_weights[0])
        for policy, expected in (
            (agent.learner.policy, told.expected_cost),
            (process.policy(serving), told.baseline_cost),
        ):
            q = world.layers.flatten(occupancy.occupancy_measure(world, policy))
            assert seen[(q > 0) & process._charged].all()  # what was not would be guessed
            assert expected == pytest.approx(10.0 * float(q @ world.layers.flatten(means)), abs=1e-9)


def test_weights_are_said_for_every_step_where_they_may_differ():
    agent = Agent(queue(shared=False), "planner")
    run(agent, 30)
    told = agent.explain()
    assert told.weights.shape == (HORIZON - 1, 2)
    assert "step 1: busy" in str(told)
    agent = Agent(queue({(1, "good"): 0.5, (2, "bad"): 0.5}, shared=False), "planner")
    assert agent.explain().weights.shape == (HORIZON - 1, 2)  # the draw of the start is no step


def test_learners_that_estimate_nothing_have_less_to_say():
    agent = Agent(QUEUE, "uniform")
    run(agent, 3)
    told = agent.explain()
    assert told.weights is told.trust is told.expected_cost is told.misspecification is told.guard_active is None
    assert str(told) == "3 episodes learned from"


def test_a_baseline_that_a_learner_has_no_use_for_is_refused():
    process = advmdp.Process(0, lambda step, state: ["a", "b"], [lambda step, state, action: {state: 1.0}], 2, (0, 1))
    with pytest.raises(advmdp.InvalidSpecError, match="'uniform' has no use for a baseline"):
        advmdp.Agent(process, "uniform", baseline=lambda step, state: "a")
    assert advmdp.Agent(process, "uniform", baseline=lambda step, state: "a", slack=0.1).slack == 0.1
