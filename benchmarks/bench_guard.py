"""What the guard of an agent costs where the learner is better: `python -m benchmarks.bench_guard`.

A queue that is served or not; the baseline waits until somebody complains.  Costs per episode, and how often the
baseline played, for several slacks; exact costs come from the true mixture, so nothing but the agent's draws is random.
"""

from __future__ import annotations

import numpy as np

from advmdp import Agent, Process, occupancy, play

HORIZON, EPISODES, SEEDS = 6, 4000, 3
SLACKS = (None, 1.0, 0.5, 0.2, 0.1, 0.05)
MARKS = (100, 500, 1000, 2000, 4000)
TRUTH = (0.3, 0.7)


def actions(step: int, length: int) -> list[str]:
    return ["wait", "serve"] if length else ["wait"]


def calm(step: int, length: int, action: str) -> dict[int, float]:
    left = length - (action == "serve")
    return {left: 0.7, left + 1: 0.3}


def busy(step: int, length: int, action: str) -> dict[int, float]:
    left = length - (action == "serve")
    return {left: 0.3, left + 1: 0.7}


def baseline(step: int, length: int) -> str:
    return "serve" if length > 2 else "wait"


def cost(step: int, length: int, action: str) -> float:
    return length + 0.8 * (action == "serve")


def main() -> None:
    process = Process(1, actions, [calm, busy], HORIZON, (0.0, HORIZON + 1.0))
    world, losses = process.mdp(TRUTH), process.losses(cost)
    unit = process.cost_range[1]
    best = unit * occupancy.best_policy(world, losses)[1]
    today = unit * occupancy.expected_loss(world, process.policy(baseline), losses)
    print(f"best policy {best:.2f}, baseline {today:.2f} per episode")
    print("slack   mean cost of the episodes up to ...                   baseline played, of them")
    print("        " + "".join(f"{mark:>9}" for mark in MARKS) + "   " + "".join(f"{mark:>8}" for mark in MARKS))
    for slack in SLACKS:
        costs, plays = np.zeros((SEEDS, EPISODES)), np.zeros((SEEDS, EPISODES))
        for seed in range(SEEDS):
            agent = Agent(process, "planner", baseline=baseline, slack=slack, seed=seed)
            rng = np.random.default_rng(seed)
            for k in range(EPISODES):
                episode = agent.begin()
                record = agent._record(episode.number)
                policy = process.model.layers.split(agent._policy(record))
                told = play(world, policy, losses, rng)
                costs[seed, k] = unit * occupancy.expected_loss(world, policy, losses)
                plays[seed, k] = record.player != "learner"
                record.states, record.actions = told.states.tolist(), told.actions.tolist()
                record.losses = told.losses.tolist()
                episode.end()
        mean = [costs[:, :mark].mean() for mark in MARKS]
        share = [plays[:, :mark].sum(axis=1).mean() for mark in MARKS]
        name = "none" if slack is None else f"{slack:g}"
        print(f"{name:<8}" + "".join(f"{x:9.2f}" for x in mean) + "   " + "".join(f"{x:8.0f}" for x in share))


if __name__ == "__main__":
    main()
