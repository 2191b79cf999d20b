"""Unrolling Gymnasium's tabular environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from advmdp import InvalidMDPError, LayeredMDP, load_mdp, make_adversary, make_learner, occupancy, run


def test_frozen_lake_is_unrolled_step_by_step():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    mdp, losses = LayeredMDP.from_gymnasium(env, 6)
    assert mdp.horizon == 6
    assert mdp.layer_sizes[:3] == (1, 3, 6)
    # Six moves reach the goal: its reward 1 is loss 0, every other step costs 1.
    _, value = occupancy.best_policy(mdp, losses)
    assert value == pytest.approx(5.0)


def test_expected_reward_equals_value_iteration_on_the_environment():
    env = gymnasium.make("FrozenLake-v1")
    horizon = 20
    table = env.unwrapped.P
    value = np.zeros(len(table))
    for _ in range(horizon):
        value = np.array([
            max(sum(p * (r + (0.0 if over else value[t])) for p, t, r, over in table[s][a]) for a in table[s])
            for s in table
        ])  # fmt: skip
    mdp, losses = LayeredMDP.from_gymnasium(env, horizon)
    best, _ = occupancy.best_policy(mdp, losses)
    assert horizon - occupancy.expected_loss(mdp, best, losses) == pytest.approx(value[0], abs=1e-12)


def test_a_random_start_becomes_a_first_layer():
    mdp, losses = LayeredMDP.from_gymnasium(gymnasium.make("Taxi-v3" if "Taxi-v3" in gymnasium.registry
                                                           else "Taxi-v4"), 2)  # fmt: skip
    assert mdp.layer_sizes[:2] == (1, 300)
    assert mdp.horizon == 3
    assert (losses[0] == 0).all()
    assert np.ptp(mdp.kernels[0], axis=1).max() == 0


def test_cliff_walking_is_free_at_its_best():
    env = gymnasium.make("CliffWalking-v1" if "CliffWalking-v1" in gymnasium.registry else "CliffWalking-v0")
    mdp, losses = LayeredMDP.from_gymnasium(env, 13)
    # Rewards -1 per step and -100 in the cliff: thirteen steps of the safe path cost 1 / 100 each.
    _, value = occupancy.best_policy(mdp, losses)
    assert value == pytest.approx(13 / 100)


class TwoStates:
    """A table with an outcome of probability zero that leads nowhere else reached."""

    reward = 0.5

    class action_space:
        n = 1

    @property
    def P(self):
        outcomes = [(1.0, 0, self.reward, False), (0.0, 1, 0.0, False)]
        return {0: {0: outcomes}, 1: {0: [(1.0, 1, 0.0, False)]}}

    start_state_index = 0


def test_outcomes_of_probability_zero_are_left_out():
    mdp, losses = LayeredMDP.from_gymnasium(TwoStates(), 3)
    assert mdp.layer_sizes == (1, 1, 1, 1)
    assert losses[0].tolist() == [[0.0]]


def test_rewards_that_are_no_numbers_are_refused():
    env = TwoStates()
    env.reward = float("nan")
    with pytest.raises(InvalidMDPError, match="TwoStates has rewards that are not finite"):
        LayeredMDP.from_gymnasium(env, 3)


def test_environments_without_a_table_are_refused():
    with pytest.raises(InvalidMDPError, match="CartPoleEnv has no transition table P"):
        LayeredMDP.from_gymnasium(gymnasium.make("CartPole-v1"), 5)
    with pytest.raises(InvalidMDPError, match="horizon is 0"):
        LayeredMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 0)


def names(kind):
    """The newest version of an environment that is installed."""
    return max(name for name in gymnasium.registry if name.startswith(f"{kind}-v"))


@pytest.mark.parametrize(("kind", "horizon"), [("FrozenLake", 7), ("CliffWalking", 9), ("Taxi", 4)])
def test_every_state_has_its_way_back(kind, horizon):
    """Kernels and losses, read back through the names of the states, are the environment's own table."""
    env = gymnasium.make(names(kind))
    table = env.unwrapped.P
    mdp, losses = LayeredMDP.from_gymnasium(env, horizon)
    states, over = mdp.scene.states, mdp.scene.details["over"]
    rewards = [r for row in table.values() for outcomes in row.values() for _, _, r, _ in outcomes]
    high, low = max([0, *rewards]), min([0, *rewards])
    first = mdp.horizon - horizon  # 1 where a dummy layer draws the start
    rng = np.random.default_rng(0)
    for h in range(first, mdp.horizon - 1):
        for i in rng.choice(len(states[h]), size=min(12, len(states[h])), replace=False):
            for action in np.flatnonzero(mdp.available[h][i]):
                row, loss = np.zeros(len(states[h + 1])), 0.0
                places = {key: j for j, key in enumerate(zip(states[h + 1], over[h + 1], strict=True))}
                if over[h][i]:
                    row[places[states[h][i], True]], loss = 1.0, high / (high - low)
                else:
                    for p, target, reward, terminated in table[states[h][i]][action]:
                        row[places[target, terminated]] += p
                        loss += p * (high - reward) / (high - low)
                np.testing.assert_allclose(mdp.kernels[h][i, action], row, atol=1e-15)
                assert losses[h][i, action] == pytest.approx(loss, abs=1e-12)


def test_states_that_cannot_be_reached_are_dropped():
    mdp, _ = LayeredMDP.from_gymnasium(gymnasium.make(names("CliffWalking")), 20)
    everywhere = {state for layer in mdp.scene.states[:-1] for state in layer}
    assert everywhere == set(range(37)) | {47}  # 37 to 46 are the cliff, from which one is put back at once
    assert [len(layer) for layer in mdp.scene.states] == list(mdp.layer_sizes)


def test_terminal_states_are_kept_apart_and_absorb():
    mdp, losses = LayeredMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 8)
    over = np.array(mdp.scene.details["over"][7])
    assert np.array(mdp.scene.states[7])[over].tolist() == [5, 7, 11, 12, 15]
    for i in np.flatnonzero(over):
        j = mdp.scene.states[6].index(mdp.scene.states[7][i])
        assert (mdp.kernels[6][j, :, i] == 1.0).all()
        assert (losses[7][i] == 1.0).all()  # no reward any more


def test_layers_that_are_alike_share_their_memory():
    mdp, _ = LayeredMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 200)
    assert mdp.rows.values.size < 20 * 16 * 4 * 16


def test_the_way_back_survives_a_file(tmp_path):
    mdp, _ = LayeredMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 4)
    mdp.save(tmp_path / "lake.npz")
    assert load_mdp(tmp_path / "lake.npz").scene.states == mdp.scene.states


def test_the_losses_can_be_played_as_an_adversary():
    mdp, losses = LayeredMDP.from_gymnasium(gymnasium.make("FrozenLake-v1"), 4)
    result = run(mdp, make_learner("uniform", mdp, 5), make_adversary("fixed", mdp, 5, losses=losses), 5)
    assert result.baselines["best"] <= result.baselines["uniform"]
