"""The conformance suite finds what it is there to find: each check fails on a learner made to fail it."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import make_learner, testing
from advmdp.learners import FollowTheLeader, Uniform
from advmdp.registry import learners


def check(monkeypatch, broken: type) -> None:
    """Run the suite on a class, registered so that it can be loaded."""
    monkeypatch.setitem(learners._entries, broken.name, broken)
    testing.check_learner(
        lambda problem, episodes, seed: broken(
            problem if broken.transition == "known" else problem.model, episodes, seed=seed
        )
    )


def test_the_unbroken_learners_pass(monkeypatch):
    check(monkeypatch, Uniform)
    check(monkeypatch, FollowTheLeader)


def test_a_policy_that_is_no_distribution_is_found(monkeypatch):
    class Broken(Uniform):
        def _learn(self, state, episode):
            return state._replace(policy=np.full(self._layers.n_pairs, 0.5))

    with pytest.raises(testing.ConformanceError, match="after 1 episodes: policy, layer 0, state 0: probabilities"):
        check(monkeypatch, Broken)


def test_randomness_outside_the_seed_is_found(monkeypatch):
    class Broken(Uniform):
        def _learn(self, state, episode):
            rows = np.random.default_rng().dirichlet(np.ones(3), size=self._layers.n_pairs // 3)
            return state._replace(policy=rows.ravel())

    with pytest.raises(testing.ConformanceError, match="two runs with the same seed differ"):
        check(monkeypatch, Broken)


def test_a_learner_that_changes_when_looked_at_is_found(monkeypatch):
    class Broken(FollowTheLeader):
        @property
        def q(self):
            self._now.state.total[:] += np.arange(self._layers.n_pairs)
            return super().q

    with pytest.raises(testing.ConformanceError, match="10 episodes and 10 more differ from 20 at once"):
        check(monkeypatch, Broken)


def test_state_that_is_not_saved_is_found(monkeypatch):
    class Broken(FollowTheLeader):
        def _tree(self, state):
            return {"total": np.zeros_like(state.total)}

    with pytest.raises(testing.ConformanceError, match="saving and loading in the middle changes the run"):
        check(monkeypatch, Broken)


def test_a_random_stream_that_is_not_saved_is_found(monkeypatch):
    class Broken(Uniform):
        """Draws from a generator of its own, which it forgets to save."""

        def _compose(self):
            self.own = np.random.default_rng(self.seed)

        def _learn(self, state, episode):
            self.own.random(7)
            return state

        def act(self, layer, state):
            return int(self.own.integers(0, 3))

    with pytest.raises(testing.ConformanceError, match="loading changes the random stream"):
        check(monkeypatch, Broken)


@pytest.mark.parametrize(
    ("skipped", "message"),
    [
        ("index", "an episode with a repeated index was accepted"),
        ("check", "an episode with a loss that is infinite was accepted"),
    ],
)
def test_missing_checks_are_found(monkeypatch, skipped, message):
    class Broken(Uniform):
        def update(self, episode):
            from dataclasses import replace

            losses = np.asarray(episode.losses)
            if skipped == "index":
                episode = replace(episode, index=None)
            elif losses.dtype.kind == "f" and np.isinf(losses).any():
                episode = replace(episode, losses=np.zeros(losses.size))
            super().update(episode)

    with pytest.raises(testing.ConformanceError, match=message):
        check(monkeypatch, Broken)


def test_a_rejection_that_leaves_a_trace_is_found(monkeypatch):
    class Broken(FollowTheLeader):
        def update(self, episode):
            self._now.state.total[:] += 1.0
            super().update(episode)

    with pytest.raises(testing.ConformanceError, match="changed the learner"):
        check(monkeypatch, Broken)


def test_a_bandit_learner_that_peeks_is_found(monkeypatch):
    class Broken(Uniform):
        def update(self, episode):
            self.peeked = episode.loss_table
            super().update(episode)

        def _learn(self, state, episode):
            rows = np.tile([1.0, 0.0, 0.0], self._layers.n_pairs // 3)
            return state if self.peeked is None else state._replace(policy=rows)

    with pytest.raises(testing.ConformanceError, match="a bandit learner looks at losses of pairs"):
        check(monkeypatch, Broken)


def test_an_update_that_writes_into_its_state_is_found(monkeypatch):
    class Broken(FollowTheLeader):
        def _learn(self, state, episode):
            state.total[:] += episode.loss_table  # in place: a failure later in the update cannot undo it
            return self._follow(state.total)

    with pytest.raises(testing.ConformanceError, match="an update that failed in the middle changed the learner"):
        check(monkeypatch, Broken)


def test_a_learner_that_cannot_be_loaded_is_found():
    class Unregistered(Uniform):
        name = "unregistered"

    with pytest.raises(testing.ConformanceError, match="cannot be loaded"):
        testing.check_learner(lambda p, k, s: Unregistered(p.model, k, seed=s))


def test_too_few_episodes_for_the_suite_are_refused():
    with pytest.raises(ValueError, match="episodes is 3, should be at least 4"):
        testing.check_learner(lambda p, k, s: make_learner("uniform", p, k, seed=s), episodes=3)


def test_a_state_that_is_used_up_by_restoring_is_found(monkeypatch):
    class Broken(FollowTheLeader):
        def _tree(self, state):
            return {"summed": [state.total]}

        def _restore(self, tree, policy):
            if not tree["summed"]:
                raise ValueError("nothing left")
            return self._follow(tree["summed"].pop())

    with pytest.raises(testing.ConformanceError, match="cannot be restored twice from one state: nothing left"):
        check(monkeypatch, Broken)
