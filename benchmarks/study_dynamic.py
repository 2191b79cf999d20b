"""Dynamic regret of the extensions: the table of docs/learners/extensions.md.

Run with ``python -m benchmarks.study_dynamic`` (a few minutes on one core).  Seeds pair the losses and the luck.
"""

from __future__ import annotations

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.experiments.statistics import mean_and_interval

LEARNERS = ("uniform", "vlsuob-reps-tight", "vlsuob-reps-restart", "vlsuob-reps-bank", "vlsuob-reps-anytime")
SEEDS = 5


def study(episodes: int, period: int) -> None:
    """Losses drawn anew every ``period`` episodes; regret against the best sequence that switches with them."""
    switches = episodes // period - 1
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=3, dim=2)
    print(f"K = {episodes}, new losses every {period} episodes, comparator with {switches} switches")
    for name in LEARNERS:
        regrets = []
        for seed in range(SEEDS):
            adversary = make_adversary("switching", world, episodes, period=period, seed=seed)
            options = {"switches": max(1, switches)} if name == "vlsuob-reps-restart" else {}
            learner = make_learner(name, world, episodes, seed=seed, **options)
            frame = run(world, learner, adversary, episodes, seed=seed, comparators=(switches,), progress=False).frame
            regrets.append(frame[["regret", f"regret_{switches}_switches"]].iloc[-1].to_numpy())
        (static, static_half), (dynamic, dynamic_half) = (mean_and_interval(column) for column in np.transpose(regrets))
        print(f"{name:22} {static:8.0f} ± {static_half:4.0f} {dynamic:8.0f} ± {dynamic_half:4.0f}", flush=True)


if __name__ == "__main__":
    study(4000, 500)
    study(2000, 2000)
