"""An ordinary Gymnasium loop on one of our worlds: nothing of this library is called but its registration.

python examples/gymnasium_loop.py
"""

from __future__ import annotations

import gymnasium

import advmdp.envs  # noqa: F401 (registers the worlds)


def main(episodes: int = 200) -> float:
    """Mean reward per episode of an agent that acts at random."""
    env = gymnasium.make("advmdp/Routing-v0", seed=1)
    env.action_space.seed(0)
    total = 0.0
    _, info = env.reset(seed=0)
    for _ in range(episodes):
        over = False
        while not over:
            action = env.action_space.sample()  # your agent: it would look at the observation
            _, reward, terminated, truncated, info = env.step(action)
            total += reward
            over = terminated or truncated
        _, info = env.reset()
    print(f"{info['episode']} episodes, mean reward {total / episodes:.3f}")
    return total / episodes


if __name__ == "__main__":
    main()
