"""What a run records beside its regret is what a look at every episode finds."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from advmdp import make_adversary, make_learner, make_world, storage
from advmdp.experiments import Run, run
from advmdp.experiments.measures import Measures
from advmdp.theory.decomposition import covers

EPISODES = 60


def build(scale, geometry="ellipsoid"):
    world = make_world("random-mixture", layer_sizes=[1, 3, 3, 1], n_actions=2, dim=2)
    losses = make_adversary("switching", world, EPISODES, seed=1)
    options = {"radius_scale": scale, "geometry": geometry}
    return world, losses, make_learner("vlsuob-reps-tight", world, EPISODES, seed=1, **options)


class EveryEpisode:
    """The oracle: keeps the answer for every set."""

    def __init__(self, mdp):
        self.mdp, self.covered, self.empty = mdp, [], []

    def before(self, k, learner, q, losses):
        self.covered.append(covers(learner.confidence_set, self.mdp))
        self.empty.append(learner.empty_sets)

    def after(self, k, learner):
        pass


@pytest.mark.parametrize("geometry", ["ellipsoid", "box"])
@pytest.mark.parametrize(("scale", "share"), [(1.0, "all"), (0.05, "some")])
def test_coverage_is_the_share_of_episodes_with_the_truth_in_the_set(geometry, scale, share):
    world, losses, learner = build(scale, geometry)
    oracle = EveryEpisode(world)
    run(world, learner, losses, EPISODES, seed=1, watch=oracle)
    world, losses, learner = build(scale, geometry)
    measures = Measures(["coverage"], world, learner, EPISODES)
    frame = measures.add_to(run(world, learner, losses, EPISODES, seed=1, watch=measures).frame)
    shares = np.cumsum(oracle.covered) / np.arange(1, EPISODES + 1)
    assert frame["covered"].tolist() == pytest.approx(shares[frame["episode"] - 1])
    assert frame["empty_sets"].tolist() == [oracle.empty[k - 1] for k in frame["episode"]]
    last = frame["covered"].iloc[-1]
    assert last == 1.0 if share == "all" else 0.0 < last < 1.0


def test_coverage_goes_on_from_a_saved_state():
    def play(stops):
        world, losses, learner = build(0.05)
        measures = Measures(["coverage"], world, learner, EPISODES)
        current = Run(world, learner, losses, EPISODES, 1, watch=measures)
        for stop in stops:
            current.play(stop)
            state = current.state()
            world, losses, learner = build(0.05)
            measures = Measures(["coverage"], world, learner, EPISODES)
            current = Run(world, learner, losses, EPISODES, 1, watch=measures)
            current.set_state(state)
        current.play()
        return measures.add_to(current.result().frame)

    assert play([]).equals(play([7, 20]))


def trusting(name="portfolio"):
    world, losses, _ = build(1.0)
    learner = make_learner(name, world, EPISODES, seed=1)
    return world, learner, losses, Measures(["trust"], world, learner, EPISODES)


def test_trust_is_what_each_expert_was_drawn_with():
    class EveryDraw:
        weights: ClassVar[list] = []

        def before(self, k, learner, q, losses):
            self.weights.append(learner.weights)

        def after(self, k, learner):
            pass

    world, learner, losses, _ = trusting()
    run(world, learner, losses, EPISODES, seed=1, watch=EveryDraw())
    world, learner, losses, measures = trusting()
    frame = measures.add_to(run(world, learner, losses, EPISODES, seed=1, watch=measures).frame)
    columns = [f"trust in {name}" for name in learner.expert_names]
    expected = np.array(EveryDraw.weights)[frame["episode"] - 1]
    np.testing.assert_array_equal(frame[columns], expected)
    assert np.ptp(expected, axis=0).max() > 0.01  # it does change


def test_trust_goes_on_from_a_saved_state():
    world, learner, losses, measures = trusting()
    whole = measures.add_to(run(world, learner, losses, EPISODES, seed=1, watch=measures).frame)
    world, learner, losses, measures = trusting()
    first = Run(world, learner, losses, EPISODES, 1, watch=measures)
    first.play(23)
    state = storage.loads(storage.dumps("checkpoint", {"run": first.state()}), "checkpoint", "checkpoint")["run"]
    world, learner, losses, measures = trusting()
    second = Run(world, learner, losses, EPISODES, 1, watch=measures)
    second.set_state(state)
    second.play()
    assert measures.add_to(second.result().frame).equals(whole)


def test_a_learner_without_experts_has_no_trust():
    world, learner, losses, measures = trusting("uniform")
    plain = run(world, learner, losses, EPISODES, seed=1, watch=measures).frame
    assert measures.add_to(plain).equals(plain)


def test_a_learner_without_a_set_has_no_coverage():
    world, losses, _ = build(1.0)
    learner = make_learner("uniform", world, EPISODES)
    measures = Measures(["coverage"], world, learner, EPISODES)
    frame = measures.add_to(run(world, learner, losses, EPISODES, seed=1, watch=measures).frame)
    assert frame[["covered", "empty_sets"]].isna().all(axis=None)


def test_processor_seconds_survive_an_interruption():
    world, losses, learner = build(1.0)
    current = Run(world, learner, losses, EPISODES, 1)
    current.play(30)
    used, state = current.processor_seconds, current.state()
    assert used > 0.0
    world, losses, learner = build(1.0)
    again = Run(world, learner, losses, EPISODES, 1)
    again.set_state(state)
    again.play()
    assert again.result().processor_seconds > used
