"""A learner plays Gymnasium's FrozenLake itself: their simulator, our learner, ask and tell.

The learner knows the map and the three things that a move can do, but not how often each happens.  It is asked for an
action in every state, and told after the episode what was seen.

    python examples/play_frozen_lake.py
"""

from __future__ import annotations

import gymnasium

import advmdp

MAP = ["SFF", "FHF", "FFG"]


def main(episodes: int = 3000, horizon: int = 6) -> list[float]:
    """The share of episodes that reached the goal, in each quarter of the run."""
    env = gymnasium.make("FrozenLake-v1", desc=MAP, success_rate=0.8)
    world = advmdp.make_world("frozen-lake", map=MAP, horizon=horizon)
    learner = advmdp.make_learner("vlsuob-reps-tight", world.model, episodes, seed=0)  # no slip probabilities in it
    cells = world.scene.states  # cells[layer][index] is FrozenLake's own number of the cell

    reached = []
    cell, _ = env.reset(seed=0)
    for k in range(episodes):
        states, actions, losses = [], [], []
        over, reward = False, 0.0
        for layer in range(horizon):
            state = cells[layer].index(cell)
            action = learner.act(layer, state)
            if not over:
                cell, reward, over, _, _ = env.step(action)
            # A step costs 1 unless it leads to the goal, or waits there; in a hole one waits as well, at 1 per step.
            states.append(state)
            actions.append(action)
            losses.append(1.0 - float(reward))
        learner.update(advmdp.Episode(states, actions, losses, index=k))
        reached.append(reward == 1.0)
        cell, _ = env.reset()

    quarter = len(reached) // 4
    shares = [sum(reached[i * quarter : (i + 1) * quarter]) / quarter for i in range(4)]
    print("share of episodes that reached the goal, by quarter:", ", ".join(f"{share:.2f}" for share in shares))
    return shares


if __name__ == "__main__":
    main()
