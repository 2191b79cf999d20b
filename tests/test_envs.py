"""Our worlds as Gymnasium environments."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from advmdp import InvalidEpisodeError, InvalidSpecError, make_adversary, make_world
from advmdp.envs import AdversarialMDPEnv, env_id
from advmdp.registry import worlds


@pytest.fixture(params=[name for name in worlds.names() if name != "file"])
def env(request):
    return gymnasium.make(env_id(request.param))


def test_every_world_passes_gymnasiums_checker_without_a_warning(env):
    check_env(env.unwrapped)  # a warning is an error in these tests


def test_the_names_are_gymnasiums(tmp_path):
    assert env_id("frozen-lake") == "advmdp/FrozenLake-v0"
    assert {env_id(name) for name in worlds.names()} <= set(gymnasium.registry)
    make_world("grid").save(tmp_path / "grid.npz")
    assert gymnasium.make("advmdp/File-v0", path=tmp_path / "grid.npz").observation_space.n == 36


def test_gymnasium_imports_us_by_itself_in_a_fresh_process():
    code = """import sys, gymnasium
assert not any(name.startswith("advmdp") for name in sys.modules)  # gymnasium imports nobody on suspicion
print(gymnasium.make("advmdp.envs:advmdp/Grid-v0", height=2, width=2).observation_space.n)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "4\n", done.stderr


def test_options_reach_the_world_and_the_adversary():
    env = gymnasium.make(
        "advmdp/Grid-v0", height=3, width=4, adversary="switching", adversary_options={"period": 1}, seed=7
    ).unwrapped
    assert env.observation_space.n == 12
    want = make_adversary("switching", env.mdp, 1000, seed=7, period=1)
    np.testing.assert_array_equal(env.adversary.flat_losses(5), want.flat_losses(5))
    assert type(gymnasium.make("advmdp/RandomMixture-v0").unwrapped.adversary).__name__ == "Stochastic"


def test_a_drawn_world_has_the_seed_and_the_hard_one_the_episodes_of_its_environment():
    drawn = gymnasium.make("advmdp/RandomMixture-v0", seed=3).unwrapped
    np.testing.assert_array_equal(drawn.mdp.kernels[1], make_world("random-mixture", seed=3).kernels[1])
    other = gymnasium.make("advmdp/RandomMixture-v0", seed=3, adversary_options={"seed": 4}).unwrapped
    np.testing.assert_array_equal(other.mdp.kernels[1], drawn.mdp.kernels[1])
    assert not np.array_equal(other.adversary.flat_losses(0), drawn.adversary.flat_losses(0))
    hard = gymnasium.make("advmdp/Hard-v0", episodes=50).unwrapped
    np.testing.assert_array_equal(hard.mdp.kernels[1], make_world("hard", episodes=50).kernels[1])


def test_environments_can_be_vectorised():
    envs = gymnasium.make_vec("advmdp/Grid-v0", num_envs=2, vectorization_mode="sync", height=2, width=2)
    observations, _ = envs.reset(seed=0)
    assert observations.tolist() == [0, 0]
    for over in (False, True):
        observations, rewards, terminated, _, _ = envs.step(np.array([0, 1]))
        assert terminated.tolist() == [over, over]
        assert ((rewards <= 0) & (rewards >= -1)).all()
    assert observations.tolist() == [3, 3]
    envs.close()


def test_an_adversary_that_has_met_others_begins_anew():
    env = small("adaptive")
    play_through(env, [0, 0, 0], seed=0)
    again = AdversarialMDPEnv(env.mdp, env.adversary)
    assert again.reset()[1]["episode"] == 0


def play_through(env, actions, seed=None):
    observation, info = env.reset(seed=seed)
    seen = [(int(observation), info)]
    rewards = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((int(observation), info))
        rewards.append(reward)
        assert not truncated
    assert terminated
    return seen, rewards


def small(adversary="switching", **options):
    world = make_world("random-mixture", layer_sizes=(1, 3, 2, 1), n_actions=2)
    return AdversarialMDPEnv(world, make_adversary(adversary, world, 50, **options))


def test_rewards_are_the_losses_met_and_observations_number_the_states():
    env = small(period=1)
    for episode in range(3):
        seen, rewards = play_through(env, [1, 0, 1], seed=3 if episode == 0 else None)
        losses = env.adversary.losses(episode)
        states = [info["state"] for _, info in seen]
        assert [info["layer"] for _, info in seen] == [0, 1, 2, 3]
        assert {info["episode"] for _, info in seen} == {episode}
        assert [number for number, _ in seen] == [0, 1 + states[1], 4 + states[2], 6]
        assert rewards == [-losses[h][states[h], a] for h, a in enumerate([1, 0, 1])]


def test_transitions_have_the_worlds_probabilities():
    env = small()
    env.reset(seed=0)
    counts = np.zeros(3)
    for _ in range(3000):
        env.reset()
        counts[env.step(1)[4]["state"]] += 1
    np.testing.assert_allclose(counts / 3000, env.mdp.kernels[0][0, 1], atol=0.035)


def test_a_seed_repeats_everything():
    env = small("adaptive")
    first = [play_through(env, [0, 1, 0], seed=5), *(play_through(env, [0, 1, 0]) for _ in range(4))]
    again = [play_through(env, [0, 1, 0], seed=5), *(play_through(env, [0, 1, 0]) for _ in range(4))]
    assert repr(first) == repr(again)  # masks are arrays
    assert first[4][1] != first[0][1]  # the adversary has reacted


def test_an_episode_that_was_left_is_not_told_and_begins_again():
    env = small("adaptive")
    env.reset(seed=1)
    env.step(0)
    _, info = env.reset()
    assert info["episode"] == 0
    assert env.adversary.state()["observed"] == 0
    play_through(env, [0, 0, 0])
    assert env.reset()[1]["episode"] == 1
    assert env.adversary.state()["observed"] == 1


def test_misuse_is_refused():
    env = small()
    with pytest.raises(InvalidEpisodeError, match="call reset first"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(InvalidEpisodeError, match="action 2 does not exist, should be an integer from 0 to 1"):
        env.step(2)
    with pytest.raises(InvalidEpisodeError, match=r"layer 0, state 0: action 0\.7 does not exist"):
        env.step(0.7)
    with pytest.raises(InvalidSpecError, match="they should be equal"):
        AdversarialMDPEnv(make_world("grid"), env.adversary)
