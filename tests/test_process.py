"""A process in a user's own terms gives the model that the user would have written as tables."""

from __future__ import annotations

import re

import numpy as np
import pytest

import advmdp
from advmdp import Episode, InvalidMDPError, InvalidSpecError, LinearMixtureModel, Process, make_learner
from advmdp.process import ENDED, exploration

HORIZON = 3


def actions(step, state):
    """Two kinds of states: a queue of some length and mood, or the end."""
    if state == "closed":
        return []
    length, _ = state
    return ["wait"] if length == 0 else ["wait", "serve", ("serve", 2)] if length > 1 else ["wait", "serve"]


def calm(step, state, action):
    length, mood = state
    served = {"wait": 0, "serve": 1}.get(action, 2)
    return {(length - served, mood): 0.25, (length - served + 1, mood): 0.75}


def busy(step, state, action):
    length, mood = state
    served = {"wait": 0, "serve": 1}.get(action, 2)
    other = "bad" if mood == "good" else "good"
    return {(length - served + 1, mood): 0.5, (length - served + 1, other): 0.25, "closed": 0.25, "never": 0.0}


def queue(**options) -> Process:
    return Process((1, "good"), actions, [calm, busy], HORIZON, (0.0, 10.0), **options)


def by_hand() -> tuple[list[list[np.ndarray]], list[np.ndarray], list[list]]:
    """The same tables, written down: every probability from the rules above, state by state."""
    layers: list[list] = [[(1, "good")]]
    for h in range(1, HORIZON):
        following: list = []
        for state in layers[-1]:
            if state in ("closed", ENDED):
                following.append(ENDED)
                continue
            for action in actions(h - 1, state):
                for scenario in (calm, busy):
                    following += [s for s, p in scenario(h - 1, state, action).items() if p > 0]
        layers.append(list(dict.fromkeys(following)))
    kernels, masks = [[], []], []
    for h in range(HORIZON):
        n, m = len(layers[h]), len(layers[h + 1]) if h + 1 < HORIZON else 1
        tables, mask = np.zeros((2, n, 3, m)), np.zeros((n, 3), dtype=bool)
        for s, state in enumerate(layers[h]):
            own = [] if state in ("closed", ENDED) else actions(h, state)
            mask[s, : max(1, len(own))] = True
            if h == HORIZON - 1:
                tables[:, s, :, 0] = 1.0
            elif not own:
                tables[:, s, :, layers[h + 1].index(ENDED)] = 1.0
            for a, action in enumerate(own if h < HORIZON - 1 else []):
                for j, scenario in enumerate((calm, busy)):
                    for following, p in scenario(h, state, action).items():
                        if p > 0:
                            tables[j, s, a, layers[h + 1].index(following)] = p
        kernels[0].append(tables[0])
        kernels[1].append(tables[1])
        masks.append(mask)
    return kernels, masks, layers


def test_kernels_are_those_of_hand_written_tables():
    process = queue()
    kernels, masks, layers = by_hand()
    assert [process.states(h) for h in range(HORIZON)] == layers
    for mine, mask in zip(process._available, masks, strict=True):
        assert np.array_equal(mine, mask)
    for mine, theirs in zip(process.base_kernels, kernels, strict=True):
        for h, (sparse, dense) in enumerate(zip(mine, theirs, strict=True)):
            there = masks[h].ravel()
            assert np.abs(sparse.toarray()[there] - dense.reshape(sparse.shape)[there]).max() <= 1e-12
    model = LinearMixtureModel.from_kernels(kernels, shared=True, available=masks)
    assert process.model.layer_sizes == model.layer_sizes
    for mine, theirs in zip(process.model.features, model.features, strict=True):
        assert np.abs(mine - theirs).max() <= 1e-12


def test_a_learner_is_where_hand_made_numbers_would_have_brought_it():
    process = queue()
    kernels, masks, _ = by_hand()
    world = process.mdp([0.3, 0.7])
    mine = make_learner("portfolio", process.model)
    theirs = make_learner("portfolio", LinearMixtureModel.from_kernels(kernels, shared=True, available=masks))
    costs = process.losses(lambda step, state, action: 2.0 * state[0] + (action != "wait"))
    rng = np.random.default_rng(0)
    for _ in range(8):
        episode = advmdp.play(world, mine.policy, costs, rng)
        for learner in (mine, theirs):
            learner.update(Episode(episode.states, episode.actions, episode.losses))
    for one, other in zip(mine.policy, theirs.policy, strict=True):
        assert np.abs(one - other).max() <= 1e-12
    assert np.abs(mine.mixture_weights - theirs.mixture_weights).max() <= 1e-12


def test_states_without_actions_lead_to_one_that_waits():
    process = queue()
    closed = process.index(1, "closed")
    assert process.actions(1, "closed") == ()
    assert process.actions(2, ENDED) == ()
    assert process._available[1][closed].tolist() == [True, False, False]
    assert process._successors(1, closed, 0) == [process.index(2, ENDED)]


def test_a_random_start_is_drawn_in_a_layer_of_its_own():
    process = Process({(1, "good"): 0.5, (0, "bad"): 0.5}, actions, [calm, busy], HORIZON, (1.0, 10.0))
    assert (process.first_layer, process.model.layer_sizes[0], process.model.horizon) == (1, 1, HORIZON + 1)
    assert process.states(0) == [(1, "good"), (0, "bad")]
    assert process.base_kernels[0][0].toarray()[0].tolist() == [0.5, 0.5]
    assert process.cost_range == (0.0, 10.0)  # nothing is charged for the draw
    assert process.losses(lambda step, state, action: 10.0)[0][0, 0] == 0.0
    assert len(process.mdp(np.full((HORIZON, 2), 0.5)).kernels) == HORIZON + 1


def test_the_range_of_costs_holds_zero_only_where_something_is_free():
    def endless(step, state):
        return ["go"]

    def forward(step, state, action):
        return {state + 1: 1.0}

    assert Process(0, endless, [forward], 3, (2.0, 3.0)).cost_range == (2.0, 3.0)
    assert queue().cost_range == (0.0, 10.0)
    rewards = Process((1, "good"), actions, [calm, busy], HORIZON, (-5.0, -1.0))
    assert rewards.cost_range == (-5.0, 0.0)
    assert rewards._free == 1.0


def test_groups_are_written_with_own_names_and_reach_over_steps():
    process = queue()
    labels = process.groups(lambda step, state, action: (state[0], action))
    by_name: dict[object, set[float]] = {}
    for step in range(HORIZON):
        for state in (found for found in process.states(step) if isinstance(found, tuple)):  # others have ended
            for column, action in enumerate(actions(step, state)):
                place = process.index(step, state)
                by_name.setdefault((state[0], action), set()).add(labels[step][place, column])
    assert all(len(found) == 1 for found in by_name.values())
    assert len(set().union(*by_name.values())) == len(by_name)
    with pytest.raises(InvalidMDPError, match=r"groups, step 0, state .*: .* is not hashable"):
        process.groups(lambda step, state, action: [action])
    learner = make_learner("planner", process.model, groups=labels)
    assert learner.pair_groups.count == len(by_name) + 1  # episodes that have ended


def test_policies_and_losses_are_written_with_own_names():
    process = queue()
    policy = process.policy(lambda step, state: "wait" if state[0] < 2 else {"serve": 0.25, ("serve", 2): 0.75})
    advmdp.occupancy.expected_loss(process.mdp([1.0, 0.0]), policy, process.losses(lambda *_: 10.0))
    assert policy[1][process.index(1, (2, "good"))].tolist() == [0.0, 0.25, 0.75]
    assert policy[1][process.index(1, "closed")].tolist() == [1.0, 0.0, 0.0]
    losses = process.losses(lambda step, state, action: 10.0 if action == "serve" else 5.0)
    assert losses[1][process.index(1, (2, "bad"))].tolist() == [0.5, 1.0, 0.5]
    assert losses[1][process.index(1, "closed")].tolist() == [0.0, 0.0, 0.0]


def test_simulators_are_sampled_with_streams_of_their_own():
    def fair(step, state, action, rng):
        return state + int(rng.random() < 0.5)

    def unfair(step, state, action, rng):
        return state + int(rng.random() < 0.9)

    def build(*scenarios):
        return Process(0, lambda step, state: ["go"], scenarios, 4, (0, 1), samples=400, seed=3)

    process, other = build(fair, unfair), build(fair, fair)
    assert process.model.possible is None  # what was never drawn may happen
    first = [matrix.toarray() for matrix in process.base_kernels[0]]
    again = [matrix.toarray() for matrix in other.base_kernels[0]]
    assert np.array_equal(first[0], again[0])  # whatever the other scenario draws
    assert abs(first[0][0, 1] - 0.5) < 0.1
    assert abs(process.base_kernels[1][0].toarray()[0, 1] - 0.9) < 0.1
    assert process.fingerprint == build(fair, unfair).fingerprint != other.fingerprint


def test_a_drawing_has_readable_names():
    scene = queue().mdp([0.5, 0.5]).scene
    assert scene.states[0] == ("(1, 'good')",)
    assert scene.states[-1] == ("end",)
    assert scene.actions == ("wait", "serve", "('serve', 2)")


def test_the_process_is_found_in_the_top_namespace():
    assert advmdp.Process is Process


# ------------------------------------------------------------------------------------- what is refused


def broken(result):
    def scenario(step, state, action):
        return result if step == 1 and action == "serve" else calm(step, state, action)

    return scenario


PLACE = r"broken, step 1, state \(1, 'good'\), action 'serve': "
ROWS = {
    "not a dict": ([1.0], PLACE + r"\[1.0\] should be a dict"),
    "none": (None, PLACE + "None should be a dict"),
    "negative": ({"x": 1.5, "y": -0.5}, PLACE + "probability -0.5 of state 'y' is not a number >= 0"),
    "nan": ({"x": float("nan")}, PLACE + "probability nan of state 'x'"),
    "text": ({"x": "1"}, PLACE + "probability '1' of state 'x'"),
    "sum": ({"x": 0.5, "y": 0.4}, PLACE + r"probabilities sum to 0.9, should be 1 \(within 1e-09\)"),
    "empty": ({}, PLACE + "probabilities sum to 0, should be 1"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_wrong_row_is_refused_with_its_place(name):
    row, message = ROWS[name]
    scenario = broken(row)
    scenario.__name__ = "broken"
    with pytest.raises(InvalidMDPError, match=message) as caught:
        Process((1, "good"), actions, [calm, scenario], HORIZON, (0, 1))
    assert "\n" not in str(caught.value)


def test_an_exception_in_a_function_says_where_and_is_chained():
    def failing(step, state, action):
        return {}[state] if step == 1 else calm(step, state, action)

    place = r"failing, step 1, state \(1, 'good'\), action 'wait': .*KeyError"
    with pytest.raises(InvalidMDPError, match=place) as caught:
        Process((1, "good"), actions, [failing], HORIZON, (0, 1))
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(InvalidMDPError, match=r"actions, step 0, state 7: the function raised TypeError"):
        Process(7, actions, [calm], HORIZON, (0, 1))


ACTIONS = {
    "a text": (lambda step, state: "go", "actions, step 0, state 0: 'go' should be a list"),
    "none": (lambda step, state: None, "actions, step 0, state 0: None should be a list"),
    "twice": (lambda step, state: [1, 2, 1], "actions, step 0, state 0: action 1 stands there twice"),
    "not hashable": (lambda step, state: [1, [2]], r"actions, step 0, state 0: action \[2\] is not hashable"),
    "none at the start": (lambda step, state: [], r"step 0: no start has actions \(0\)"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_wrong_actions_are_refused_with_their_place(name):
    own, message = ACTIONS[name]
    with pytest.raises(InvalidMDPError, match=message):
        Process(0, own, [lambda step, state, action: {0: 1.0}], 2, (0, 1))


ARGUMENTS = {
    "horizon": ({"horizon": 0}, "horizon is 0, should be an integer >= 1"),
    "one number": ({"cost_range": 3.0}, "cost_range is 3.0, should be two finite numbers"),
    "turned": (
        {"cost_range": (3, 1)},
        r"cost_range is \(3, 1\), should be two .* low < high",
    ),
    "endless": ({"cost_range": (0, float("inf"))}, "cost_range is .* two finite numbers"),
    "no scenario": ({"scenarios": []}, r"scenarios is \[\], should be a list of one function or more"),
    "one scenario": ({"scenarios": calm}, "scenarios is .*, should be a list of one function or more"),
    "no function": ({"scenarios": [calm, 3]}, r"scenarios\[1\] is 3, should be a function"),
    "actions": ({"actions": ["go"]}, r"actions is \['go'\], should be a function"),
    "samples": ({"samples": 0}, "samples is 0, should be an integer >= 1"),
    "shared": ({"shared": 1}, "shared is 1, should be True or False"),
    "start": ({"start": [1, 2]}, r"start is \[1, 2\], which is not hashable; a tuple is"),
    "starts": ({"start": {(1, "good"): 0.5}}, "start: probabilities sum to 0.5, should be 1"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_arguments_are_refused(name):
    wrong, message = ARGUMENTS[name]
    right = {"start": (1, "good"), "actions": actions, "scenarios": [calm], "horizon": 2, "cost_range": (0, 1)}
    with pytest.raises((InvalidSpecError, InvalidMDPError), match=message):
        Process(**(right | wrong))


def test_too_many_states_are_an_error_that_says_what_to_do():
    def doubling(step, state, action):
        return {2 * state: 0.5, 2 * state + 1: 0.5}

    with pytest.raises(InvalidMDPError, match=r"step 9: more than max_states=1,000 states .* describe states more"):
        Process(1, lambda step, state: ["go"], [doubling], 20, (0, 1), max_states=1000)


def test_a_sampled_state_must_be_hashable():
    def listed(step, state, action, rng):
        return [1]

    with pytest.raises(InvalidMDPError, match=r"listed, step 0, state 0, action 'go': next state \[1\] is not"):
        Process(0, lambda step, state: ["go"], [listed], 2, (0, 1), samples=3)


WRITTEN = {
    "unknown state": (lambda p: p.index(1, (9, "good")), r"step 1: state \(9, 'good'\) cannot be reached; known: \(1"),
    "unhashable": (lambda p: p.index(1, [9]), r"step 1: state \[9\] cannot be reached"),
    "step": (lambda p: p.states(3), "step 3 does not exist, should be from 0 to 2"),
    "policy action": (lambda p: p.policy(lambda *_: "fly"), r"policy, step 0, state \(1, 'good'\): there is no action"),
    "policy sum": (lambda p: p.policy(lambda *_: {"wait": 0.5}), r"policy, step 0, .*: probabilities sum to 0.5"),
    "policy share": (lambda p: p.policy(lambda *_: {"wait": "1"}), "action 'wait': probability '1' is not a number"),
    "policy list": (lambda p: p.policy(lambda *_: ["wait"]), r"policy, step 0, .*: \['wait'\] is no action"),
    "policy raises": (lambda p: p.policy(lambda *_: 1 / 0), "policy, step 0, .*: the function raised ZeroDivision"),
    "cost": (
        lambda p: p.losses(lambda *_: 11.0),
        r"losses, step 0, .*'wait': cost 11.0 is not a number in \[0, 10",
    ),
    "cost text": (lambda p: p.losses(lambda *_: "1"), "cost '1' is not a number in"),
    "weights": (lambda p: p.mdp([0.5, 0.6]), "weights of layer 0 are"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_wrong_use_is_refused_with_its_place(name):
    call, message = WRITTEN[name]
    with pytest.raises(ValueError, match=message) as caught:
        call(queue())
    assert "\n" not in str(caught.value)


def test_a_bar_is_shown_when_asked_for(capsys):
    queue(progress=True)
    queue(progress=False)
    queue()
    said = capsys.readouterr().err
    assert len(re.findall("building the process", said)) <= 2


def test_a_slow_process_shows_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(exploration, "PATIENCE", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    queue()
    assert "states" in capsys.readouterr().err
