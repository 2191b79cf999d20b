"""What `vlsuob-reps-sharp` would gain from a known kernel and from better predictions, and what its bounds cost.

    python -m benchmarks.bench_sharp told        # against the same learner that is told the kernel
    python -m benchmarks.bench_sharp ridge       # predictions from features that the losses are linear in
    python -m benchmarks.bench_sharp cost        # an episode with bounds at all pairs against one without
    python -m benchmarks.bench_sharp print       # the tables of the first two, in docs/study/tables

Regrets are exact, per episode; bandit feedback.  What each part brings is a study (`python -m studies parts`).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from advmdp import LinearMixtureModel, make_adversary, make_learner, make_world, ridge, run
from advmdp.adversaries import Adversary

TABLES = Path(__file__).parents[1] / "docs" / "study" / "tables"
EPISODES, SEEDS = 3000, range(5)
WORLDS = ("grid", "queue", "inventory", "frozen-lake", "river-swim", "routing")
KINDS = {
    "natural": ("natural-losses", {}),
    "stochastic": ("stochastic", {}),
    "switching": ("switching", {"period": 200}),
    "drifting": ("drifting", {}),
}
SHARP = "vlsuob-reps-sharp"


def told() -> None:
    """Shared weights and likelihood sets, against a model whose only simulator is the truth."""
    rows = []
    for world in WORLDS:
        mdp = make_world(world)
        truth = LinearMixtureModel.from_kernels([mdp.kernels])
        for kind, (name, options) in KINDS.items():
            for seed in SEEDS:
                adversary = make_adversary(name, mdp, EPISODES, seed=seed, **options)
                for who, problem in (("likelihood sets", mdp.model), ("told", truth)):
                    learner = make_learner(SHARP, problem, seed=seed, radius="likelihood", shared=who != "told" or None)
                    total = run(mdp, learner, adversary, EPISODES, seed=seed, progress=False).regret[-1]
                    rows.append((world, kind, seed, who, round(float(total) / EPISODES, 4)))
        print(world, flush=True)
    columns = ["world", "kind", "seed", "learner", "regret"]
    pd.DataFrame(rows, columns=columns).to_csv(TABLES / "sharp_told.csv", index=False)


class Linear(Adversary):
    """Losses <phi, w_k>, linear in the natural losses of a world and a constant, with prices w_k that walk."""

    def __init__(self, mdp, features, episodes, seed):
        super().__init__(mdp, episodes)
        rng = np.random.default_rng([seed, 7])
        walk = np.cumsum(rng.normal(scale=0.02, size=(episodes + 1, features[0].shape[2])), axis=0)
        self._prices = np.clip(rng.random(features[0].shape[2]) + walk, 0.0, 1.0)
        self._features = features

    def losses(self, k):
        """The table of episode k."""
        return [np.clip(table @ self._prices[k] / table.shape[2], 0.0, 1.0) for table in self._features]


def features_of(mdp, seed: int, p: int = 4) -> list[np.ndarray]:
    """p tables of the world's natural losses, of as many episodes: what prices multiply."""
    tables = make_adversary("natural-losses", mdp, p, seed=seed)
    return [np.stack(parts, axis=2) for parts in zip(*(tables.losses(k) for k in range(p)), strict=True)]


def ridge_cells() -> None:
    """Predictors on losses that are linear in known features."""
    rows = []
    for world in ("queue", "inventory"):
        mdp = make_world(world)
        for seed in SEEDS:
            features = features_of(mdp, seed)
            adversary = Linear(mdp, features, EPISODES, seed)
            for name, predictor in (
                ("none", "none"), ("mean", "mean"), ("ridge", ridge(features)), ("ridge 0.98", ridge(features, 0.98)),
                ("the truth", adversary.losses),
            ):  # fmt: skip
                learner = make_learner(SHARP, mdp, EPISODES, predictor=predictor)
                total = run(mdp, learner, adversary, EPISODES, seed=seed, progress=False).regret[-1]
                rows.append((world, seed, name, round(float(total) / EPISODES, 4)))
        print(world, flush=True)
    pd.DataFrame(rows, columns=["world", "seed", "predictor", "regret"]).to_csv(TABLES / "sharp_ridge.csv", index=False)


def cost() -> None:
    """Milliseconds of an episode without bounds at all pairs, and what exact and forward ones multiply them by."""
    print("world         entropy       without   exact  forward")
    for entropy in ("conditional", "pairs"):
        for world in WORLDS:
            mdp, times = make_world(world), []
            adversary = make_adversary("stochastic", mdp, 300)
            for options in ({"predictor": "none"}, {"bounds": "exact"}, {"bounds": "forward"}):
                best = np.inf
                for _ in range(3):
                    learner = make_learner(SHARP, mdp, entropy=entropy, **options)
                    begun = time.process_time()
                    run(mdp, learner, adversary, 150, progress=False)
                    best = min(best, time.process_time() - begun)
                times.append(best / 150 * 1e3)
            without, exact, forward = times
            print(f"{world:13s} {entropy:12s} {without:6.2f} ms {exact / without:6.2f} {forward / without:7.2f}")


def tables() -> str:
    """Both tables, as markdown."""
    lines = []
    found = pd.read_csv(TABLES / "sharp_told.csv").groupby(["world", "kind", "learner"])["regret"].mean().unstack()
    lines += ["| likelihood sets / told | " + " | ".join(KINDS) + " |", "|---|" + "--:|" * len(KINDS)]
    for world in WORLDS:
        pairs = [found.loc[(world, kind)] for kind in KINDS]
        cells = " | ".join(f"{pair['likelihood sets']:.2f} / {pair['told']:.2f}" for pair in pairs)
        lines.append(f"| `{world}` | {cells} |")
    means = found.mean()
    lines.append(f"\nMean of all: {means['likelihood sets']:.3f} / {means['told']:.3f}")
    linear = pd.read_csv(TABLES / "sharp_ridge.csv").pivot_table(index="world", columns="predictor", values="regret")
    names = ["none", "mean", "ridge", "ridge 0.98", "the truth"]
    lines += ["", "| linear losses, predictor | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for world in linear.index:
        lines.append(f"| `{world}` | " + " | ".join(f"{linear.loc[world, name]:.3f}" for name in names) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else "cost"
    if wanted == "print":
        print(tables())
    else:
        {"told": told, "ridge": ridge_cells, "cost": cost}[wanted]()


if __name__ == "__main__":
    main()
