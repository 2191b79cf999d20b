"""A run: exact regret, reproducible, in little memory, fair to all learners."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import (
    Adversary,
    InvalidMDPError,
    InvalidSpecError,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    run,
    storage,
)
from advmdp._summation import CompensatedSum
from advmdp.episodes import simulate
from advmdp.experiments.runner import Run, logged_episodes
from advmdp.learners import FollowTheLeader
from advmdp.theory.decomposition import Decomposition

WORLD = make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=3, dim=2)
ADVERSARIES = ["fixed", "stochastic", "switching"]


def learn(name, adversary, episodes, seed=0, **options):
    return run(WORLD, make_learner(name, WORLD, episodes, **options), adversary, episodes, seed=seed)


@pytest.mark.parametrize("name", ADVERSARIES)
def test_hindsight_has_no_regret_at_the_end(name):
    adversary = make_adversary(name, WORLD, 2000, seed=1)
    result = learn("hindsight", adversary, 2000, losses=adversary)
    assert abs(result.regret[-1]) <= 1e-9


@pytest.mark.parametrize("name", ["fixed", "stochastic"])
def test_uniform_has_linear_regret(name):
    adversary = make_adversary(name, WORLD, 4000, seed=1)
    result = learn("uniform", adversary, 4000)
    frame = result.frame.set_index("episode")["regret"]
    slope = np.polyfit(np.log(frame.index[30:]), np.log(frame.iloc[30:]), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.05)
    assert frame.iloc[-1] > 0.1 * 4000


@pytest.mark.parametrize("name", ADVERSARIES)
def test_regret_equals_a_plain_computation_from_the_definition(name):
    episodes = 60
    adversary = make_adversary(name, WORLD, episodes, seed=4)
    result = learn("ftl", adversary, episodes)
    tables = [adversary.losses(k) for k in range(episodes)]
    summed = [sum(table[h] for table in tables) for h in range(WORLD.horizon)]
    best, _ = occupancy.best_policy(WORLD, summed)
    policies = [occupancy.best_policy(WORLD, [0.0 * t for t in tables[0]])[0]]
    for k in range(1, episodes):
        past = [sum(table[h] for table in tables[:k]) for h in range(WORLD.horizon)]
        policies.append(occupancy.best_policy(WORLD, past)[0])
    gaps = [
        occupancy.expected_loss(WORLD, policy, table) - occupancy.expected_loss(WORLD, best, table)
        for policy, table in zip(policies, tables, strict=True)
    ]
    np.testing.assert_allclose(result.regret, np.cumsum(gaps)[result.frame["episode"] - 1], atol=1e-10)
    assert result.frame["episode"].iloc[-1] == episodes


def test_every_learner_meets_the_same_losses_and_luck(monkeypatch):
    met = {}
    adversary = make_adversary("stochastic", WORLD, 50, seed=2)
    for name, options in (("uniform", {}), ("ftl", {}), ("hindsight", {"losses": adversary})):
        met[name] = []

        def spy(*arguments, seen=met[name]):
            seen.append((arguments[4].copy(), arguments[5].copy()))  # losses, uniform numbers
            return simulate(*arguments)

        monkeypatch.setattr("advmdp.experiments.runner.simulate", spy)
        learn(name, adversary, 50, **options)
    monkeypatch.undo()
    for name in ("ftl", "hindsight"):
        for ours, theirs in zip(met["uniform"], met[name], strict=True):
            assert np.array_equal(ours[0], theirs[0])
            assert np.array_equal(ours[1], theirs[1])
    one, other = (learn("uniform", adversary, 50).frame for _ in range(2))
    assert one.equals(other)
    assert not one.equals(learn("uniform", adversary, 50, seed=1).frame)


def test_a_policy_that_is_changed_in_place_is_evaluated_anew():
    class InPlace(FollowTheLeader):
        """Keeps one list of arrays for ever and writes each new policy into it."""

        @property
        def policy(self):
            if not hasattr(self, "kept"):
                self.kept = [table.copy() for table in super().policy]
            for mine, new in zip(self.kept, super().policy, strict=True):
                mine[:] = new
            return self.kept

    adversary = make_adversary("stochastic", WORLD, 100, seed=2)
    ours = run(WORLD, InPlace(WORLD, 100), adversary, 100)
    assert ours.frame.equals(learn("ftl", adversary, 100).frame)


def test_a_reacting_adversary_is_reset_before_a_run():
    class Counting(Adversary):
        oblivious = False
        seen = 0

        def reset(self):
            self.seen = 0

        def flat_losses(self, k):
            return np.full(self.layers.n_pairs, min(1.0, self.seen / 10))

        def observe(self, states, actions):
            self.seen += 1

    adversary = Counting(WORLD, 8)
    one, two = (learn("uniform", adversary, 8).frame for _ in range(2))
    assert one.equals(two)


def test_rows_grow_with_the_logarithm_of_the_episodes():
    assert len(logged_episodes(10**6)) < 130
    assert logged_episodes(1) == [1]
    assert logged_episodes(1234)[-1] == 1234
    # The same episodes are logged whatever K is, so that runs of different length can be compared.
    assert set(logged_episodes(1000)) <= set(logged_episodes(10**5))


def test_the_frame_has_the_promised_columns():
    adversary = make_adversary("stochastic", WORLD, 4000)
    result = learn("uniform", adversary, 4000)
    assert list(result.frame.columns) == [
        "episode", "loss", "cumulative_loss", "observed_loss", "regret", "bound",
    ]  # fmt: skip
    assert result.frame["bound"].isna().all()
    assert result.baselines["best"] <= result.baselines["uniform"] <= result.baselines["worst"]
    assert result.frame["cumulative_loss"].iloc[-1] == pytest.approx(result.baselines["uniform"])
    assert result.frame["observed_loss"].iloc[-1] == pytest.approx(
        result.baselines["uniform"], abs=5 * 0.5 * WORLD.horizon * np.sqrt(4000)
    )
    assert result.seconds > 0


def test_losses_that_react_are_told_what_happened_and_their_realised_sum_counts():
    class Reacting(Adversary):
        """Charges the actions that were taken last time."""

        oblivious = False

        def __init__(self):
            super().__init__(WORLD, 30)
            self.table = np.zeros(self.layers.n_pairs)
            self.charged = []

        def flat_losses(self, k):
            self.charged.append(self.table.copy())
            return self.table

        def observe(self, states, actions):
            self.table = np.zeros(self.layers.n_pairs)
            self.table[self.layers.pair_offsets[:-1] + 3 * states + actions] = 1.0

    adversary = Reacting()
    result = learn("uniform", adversary, 30)
    charged = np.array(adversary.charged)
    assert (charged[1:].sum(axis=1) == WORLD.horizon).all()
    summed = WORLD.layers.split(charged.sum(axis=0))
    assert result.baselines["best"] == pytest.approx(occupancy.best_policy(WORLD, summed)[1])


def test_summation_error_does_not_grow_with_the_number_of_terms():
    total, plain = CompensatedSum(1), 0.0
    for _ in range(100_000):
        total.add(np.array([0.1]))
        plain += 0.1
    assert total.value[0] == 10_000.0
    assert plain != 10_000.0


def test_what_does_not_fit_together_is_refused():
    adversary = make_adversary("fixed", WORLD, 5)
    other = make_world("grid")
    with pytest.raises(InvalidSpecError, match="the adversary has layers"):
        run(other, make_learner("uniform", other, 5), adversary, 5)
    with pytest.raises(InvalidSpecError, match="the learner's policy has shapes"):
        run(WORLD, make_learner("uniform", other, 5), adversary, 5)
    with pytest.raises(InvalidSpecError, match="episodes is 0"):
        run(WORLD, make_learner("uniform", WORLD, 5), adversary, 0)
    used = make_learner("uniform", WORLD, 5)
    run(WORLD, used, adversary, 2)
    with pytest.raises(InvalidSpecError, match="has already seen 2 episodes"):
        run(WORLD, used, adversary, 2)


def test_losses_outside_the_unit_interval_are_named():
    class Wrong(Adversary):
        def flat_losses(self, k):
            table = np.zeros(self.layers.n_pairs)
            table[4] = 2.0 if k == 3 else 0.0
            return table

    with pytest.raises(InvalidMDPError, match=r"Wrong, episode 3, layer 1, state 0, action 1: loss 2\.0"):
        run(WORLD, make_learner("uniform", WORLD, 5), Wrong(WORLD, 5), 5)


@pytest.mark.parametrize(
    "wrong", [np.zeros(3), np.zeros(300), np.zeros((9, 3)), [0.0] * 27, np.zeros(27, dtype=int), np.zeros(54)[::2]]
)
def test_losses_of_the_wrong_form_are_named(wrong):
    class Wrong(Adversary):
        def flat_losses(self, k):
            return wrong

    assert WORLD.layers.n_pairs == 27
    with pytest.raises(InvalidMDPError, match="Wrong, episode 0: flat_losses returned"):
        run(WORLD, make_learner("uniform", WORLD, 5), Wrong(WORLD, 5), 5)


def test_a_policy_that_breaks_during_the_run_is_named():
    class Broken(FollowTheLeader):
        def _learn(self, state, episode):
            return state._replace(policy=np.full(self._layers.n_pairs, 0.9))

    with pytest.raises(InvalidMDPError, match="policy, layer 0, state 0"):
        run(WORLD, Broken(WORLD, 5), make_adversary("fixed", WORLD, 5), 5)


def test_progress_is_shown_when_asked_for(capsys):
    adversary = make_adversary("fixed", WORLD, 50)
    run(WORLD, make_learner("uniform", WORLD, 50), adversary, 50, progress=True)
    assert "50/50" in capsys.readouterr().err
    run(WORLD, make_learner("uniform", WORLD, 50), adversary, 50)
    assert capsys.readouterr().err == ""


class Charging(Adversary):
    """Charges more and more for the pairs that were visited."""

    oblivious = False

    def __init__(self, episodes):
        super().__init__(WORLD, episodes)
        self.reset()

    def reset(self):
        self.table = np.zeros(self.layers.n_pairs)

    def flat_losses(self, k):
        return self.table

    def observe(self, states, actions):
        pairs = self.layers.pair_offsets[:-1] + 3 * states + actions
        self.table = 0.9 * self.table
        self.table[pairs] += 0.1

    def state(self):
        return {"table": self.table}

    def set_state(self, state):
        self.table = state["table"]


@pytest.mark.parametrize("stops", [(0,), (1,), (7, 8, 30), (49,)])
@pytest.mark.parametrize(
    ("learner", "adversary"), [("vlsuob-reps-tight", "switching"), ("ftl", "reacting"), ("uob-reps", "reacting")]
)
def test_a_run_that_is_interrupted_and_saved_goes_on_bit_for_bit(tmp_path, learner, adversary, stops):
    episodes = 50

    def new_run():
        losses = (
            Charging(episodes) if adversary == "reacting" else make_adversary(adversary, WORLD, episodes, period=20)
        )
        chosen = make_learner(learner, WORLD, episodes, seed=3)
        watch = None if learner == "ftl" else Decomposition(WORLD, episodes)
        return Run(WORLD, chosen, losses, episodes, seed=3, watch=watch)

    whole = new_run()
    whole.play()
    expected = whole.result()
    current = new_run()
    for stop in stops:
        current.play(stop - current.played)
        storage.write(tmp_path / "run.npz", "run", current.state())
        current = new_run()
        current.set_state(storage.read(tmp_path / "run.npz", "run"))
        assert current.played == stop
    current.play()
    result = current.result()
    assert result.frame.equals(expected.frame)
    assert result.seconds > 0
    for name in ("best_policy", "policy", "occupancy", "mean_occupancy"):
        for ours, theirs in zip(getattr(result, name), getattr(expected, name), strict=True):
            assert np.array_equal(ours, theirs)
    if learner != "ftl":
        assert current.watch.frame.equals(whole.watch.frame)
        assert current.watch.covered == whole.watch.covered


def test_the_mean_occupancy_is_that_of_the_policies_played():
    class Watch:
        seen = ()

        def before(self, k, learner, q, losses):
            self.seen = (*self.seen, q.copy())

        def after(self, k, learner):
            pass

    watch = Watch()
    adversary = make_adversary("switching", WORLD, 40, period=10)
    result = run(WORLD, make_learner("ftl", WORLD, 40), adversary, 40, watch=watch)
    np.testing.assert_allclose(WORLD.layers.flatten(result.mean_occupancy), np.mean(watch.seen, axis=0), atol=1e-14)
    np.testing.assert_array_equal(WORLD.layers.flatten(result.occupancy), watch.seen[-1])
    for mine, exact in zip(result.occupancy, occupancy.occupancy_measure(WORLD, result.policy), strict=True):
        np.testing.assert_array_equal(mine, exact)


def test_a_run_cannot_be_used_in_the_wrong_order():
    adversary = make_adversary("fixed", WORLD, 5)
    current = Run(WORLD, make_learner("uniform", WORLD, 5), adversary, 5)
    current.play(2)
    with pytest.raises(InvalidSpecError, match="2 of 5 episodes were played"):
        current.result()
    with pytest.raises(InvalidSpecError, match="has already played 2 episodes"):
        current.set_state(current.state())

    class Forgetful:
        def before(self, k, learner, q, losses):
            pass

        after = before

    watched = Run(WORLD, make_learner("uniform", WORLD, 5), adversary, 5, watch=Forgetful())
    with pytest.raises(InvalidSpecError, match="Forgetful has no state"):
        watched.state()


def test_a_bound_on_the_mean_is_not_shown_for_losses_that_react():
    mdp = make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=2)
    for adversary, shown in (("switching", True), ("adaptive", False)):
        learner = make_learner("o-reps-bandit", mdp, 20)
        frame = run(mdp, learner, make_adversary(adversary, mdp, 20), 20).frame
        assert np.isfinite(frame["bound"].iloc[-1]) == shown
