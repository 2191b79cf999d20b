"""What `run` costs around a learner that does nothing, against a bare numpy loop.

The rival draws the same losses and the same trajectories, and accumulates the expected loss, with plain
numpy calls and nothing else: no checks, no episodes, no regret.
"""

from __future__ import annotations

import time

import numpy as np

from advmdp import make_adversary, make_learner, make_world, occupancy, run
from advmdp.seeding import Stream, generator

EPISODES = 3000
REPEATS = 5
LIMIT = 3.0


def bare_loop(mdp, adversary, episodes: int, seed: int) -> tuple[float, float]:
    """The expected and the observed loss of the uniform policy over some episodes."""
    rng = generator(seed, Stream.TRANSITIONS)
    policy = occupancy.uniform_policy(mdp.layer_sizes, mdp.n_actions)
    q = np.concatenate([table.ravel() for table in occupancy.occupancy_measure(mdp, policy)])
    policy_sums = [np.cumsum(table, axis=1) for table in policy]
    kernel_sums = [np.cumsum(table, axis=2) for table in mdp.kernels]
    expected = observed = 0.0
    for k in range(episodes):
        losses = adversary.flat_losses(k)
        tables = mdp.layers.split(losses)
        uniforms = rng.random(2 * mdp.horizon)
        expected += q @ losses
        state = 0
        for h in range(mdp.horizon):
            action = policy_sums[h][state].searchsorted(uniforms[2 * h], side="right")
            observed += tables[h][state, action]
            state = kernel_sums[h][state, action].searchsorted(uniforms[2 * h + 1], side="right")
    return expected, observed


def measure() -> list[tuple[str, float, float]]:
    """(world, microseconds per episode of `run`, of the rival), best of several alternating repeats."""
    rows = []
    for name in ("random-mixture", "grid"):
        mdp = make_world(name)
        adversary = make_adversary("stochastic", mdp, EPISODES)
        ours, bare = [], []
        for _ in range(REPEATS):
            learner = make_learner("uniform", mdp, EPISODES)
            start = time.perf_counter()
            result = run(mdp, learner, adversary, EPISODES, progress=False)
            middle = time.perf_counter()
            expected, observed = bare_loop(mdp, adversary, EPISODES, 0)
            ours.append(middle - start)
            bare.append(time.perf_counter() - middle)
            last = result.frame.iloc[-1]
            assert np.isclose(last["cumulative_loss"], expected)
            assert np.isclose(last["observed_loss"], observed), "the two did not draw the same numbers"
        rows.append((name, min(ours) / EPISODES * 1e6, min(bare) / EPISODES * 1e6))
    return rows


def main() -> None:
    print(f"{'world':16} {'run, us/episode':>16} {'bare numpy loop':>16} {'ratio':>7}  limit {LIMIT}")
    for world, ours, bare in measure():
        print(f"{world:16} {ours:16.1f} {bare:16.1f} {ours / bare:7.2f}")
        assert ours <= LIMIT * bare, f"run costs {ours / bare:.2f} times the bare loop on {world}"


if __name__ == "__main__":
    main()
