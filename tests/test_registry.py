"""Names: finding, making, extending, and the errors in between."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

from advmdp import InvalidSpecError, LayeredMDP, TabularModel, make_adversary, make_learner, make_world
from advmdp.registry import Registry, adversaries, learners, worlds


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(InvalidSpecError, match=r"unknown world 'gird' \(did you mean 'grid'\?\); there are: "):
        make_world("gird")
    with pytest.raises(InvalidSpecError, match=r"unknown learner 'x'; there are: .*uniform"):
        make_learner("x", make_world("grid"), 10)


def test_an_unknown_option_lists_the_valid_ones():
    with pytest.raises(InvalidSpecError, match="world 'grid' has no option 'hight'; it has: height, width"):
        make_world("grid", hight=3)
    with pytest.raises(InvalidSpecError, match="adversary 'switching' has no option 'x'; it has: period"):
        make_adversary("switching", make_world("grid"), 10, x=1)
    with pytest.raises(InvalidSpecError, match="learner 'uniform' has no option 'eta'; it has: seed"):
        make_learner("uniform", make_world("grid"), 10, eta=1)


def test_a_missing_option_is_named():
    with pytest.raises(InvalidSpecError, match="learner 'hindsight' needs the option 'losses'"):
        make_learner("hindsight", make_world("grid"), 10)


def test_a_user_registers_by_decorator():
    registry: Registry = Registry("world", positional=0)

    @registry.register("mine")
    def mine(*, size: int = 3) -> LayeredMDP:
        return LayeredMDP([np.ones((1, size, 1))])

    assert registry.make("mine", size=5).n_actions == 5
    assert registry.options("mine") == {"size": 3}
    registry.register("mine")(mine)  # the same again, as when a notebook cell is run twice
    with pytest.raises(InvalidSpecError, match="world 'mine' is already registered"):
        registry.register("mine")(lambda: None)


def test_a_class_bears_the_name_that_it_is_registered_under():
    registry: Registry = Registry("learner", positional=2)

    @registry.register("mine")
    class Mine:
        pass

    class Derived(Mine):
        pass

    assert Mine.name == "mine"
    assert registry.register("derived")(Derived).name == "derived"
    with pytest.raises(InvalidSpecError, match="learner 'other': the class calls itself 'mine'"):
        registry.register("other")(Mine)


def test_an_entry_may_take_any_option():
    registry: Registry = Registry("world", positional=0)
    registry.register("any")(lambda **options: options)
    assert registry.make("any", colour="red") == {"colour": "red"}


def test_a_broken_plugin_is_reported_and_does_not_hide_the_others(monkeypatch):
    points = [
        importlib.metadata.EntryPoint("broken", "no.such.module:thing", "advmdp.worlds"),
        importlib.metadata.EntryPoint("plugged", "advmdp.worlds.grid:grid", "advmdp.worlds"),
    ]
    monkeypatch.setattr("advmdp.registry.entry_points", lambda group: points)
    registry: Registry = Registry("world", positional=0)
    with pytest.warns(UserWarning, match=r"world 'broken' .* could not be loaded"):
        assert registry.names() == ["plugged"]


def test_a_user_registers_by_entry_point(monkeypatch):
    point = importlib.metadata.EntryPoint("plugged", "advmdp.worlds.grid:grid", "advmdp.worlds")
    monkeypatch.setattr("advmdp.registry.entry_points", lambda group: [point] if group == "advmdp.worlds" else [])
    registry: Registry = Registry("world", positional=0)
    assert registry.names() == ["plugged"]
    assert registry.make("plugged", height=2, width=2).n_states == 4


def test_the_registries_hold_what_the_issue_promises():
    practical = "random-mixture grid frozen-lake river-swim routing inventory pricing queue"
    assert set(f"{practical} hard bow-tie file".split()) <= set(worlds.names())
    oblivious = "fixed stochastic switching drifting random-walk corrupted misleading from-array from-file"
    assert set(f"{oblivious} adaptive natural-losses".split()) <= set(adversaries.names())
    assert {"uniform", "hindsight", "ftl"} <= set(learners.names())


def test_a_known_transition_learner_refuses_a_bare_model():
    with pytest.raises(InvalidSpecError, match="learner 'ftl' knows the transition: it needs an MDP"):
        make_learner("ftl", TabularModel((1, 2, 1), 2), 10)


class Secretive:
    """A world whose truth raises when it is looked at."""

    def __init__(self, mdp):
        self.model = mdp.model

    @property
    def kernels(self):
        raise AssertionError("a learner looked at the kernels")

    theta = kernels


def test_an_unknown_transition_learner_sees_the_model_only():
    world = make_world("random-mixture")
    learner = make_learner("uniform", Secretive(world), 10)
    assert learner._problem is world.model
