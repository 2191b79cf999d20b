"""An engineer's loop in a process of its own, that may be killed at any moment and started again.

    python -m tests.robustness.ask_and_tell FILE EPISODES

What happens in episode k depends on k and on the policy alone, so that every way of getting to the end gets to the
same end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from advmdp import load_learner, make_adversary, make_learner, make_world, play


def main(path: Path, episodes: int) -> None:
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    losses = make_adversary("switching", world, episodes, period=20)
    learner = load_learner(path) if path.exists() else make_learner("vlsuob-reps-tight", world, episodes)
    print("ready", flush=True)
    for k in range(learner.episodes_seen, episodes):
        learner.update(play(world, learner.policy, losses.losses(k), np.random.default_rng(k), index=k))
        learner.save(path)
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
