"""Unrolling Gymnasium's tabular environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from advmdp import InvalidMDPError, LayeredMDP, occupancy


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
