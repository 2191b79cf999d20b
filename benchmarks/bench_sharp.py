"""What each part of `vlsuob-reps-sharp` brings: parts added one by one to `vlsuob-reps-tight`, and left out one by one.

    python -m benchmarks.bench_sharp cells       # six worlds, four kinds of losses, all variants
    python -m benchmarks.bench_sharp ridge       # predictions from features that the losses are linear in
    python -m benchmarks.bench_sharp cost        # an episode with bounds at all pairs against one without
    python -m benchmarks.bench_sharp print       # the tables in docs/study/tables
    python -m benchmarks.bench_sharp pages       # the first of them into docs/learners/vlsuob-reps-sharp.md

Regrets are exact, per episode; bandit feedback, unknown transition.  Runs that are in a table are not repeated.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from advmdp import make_adversary, make_learner, make_world, ridge, run
from advmdp.adversaries import Adversary

DOCS = Path(__file__).parents[1] / "docs"
TABLES, PAGE = DOCS / "study" / "tables", DOCS / "learners" / "vlsuob-reps-sharp.md"
BLOCK = re.compile(r"(<!-- sharp tables -->\n).*?(<!-- end -->)", re.DOTALL)
EPISODES, SEEDS = 2000, range(1)
WORLDS = ("grid", "queue", "inventory", "frozen-lake", "river-swim", "routing")
KINDS = {
    "natural": ("natural-losses", {}),
    "stochastic": ("stochastic", {}),
    "switching": ("switching", {"period": 200}),
    "drifting": ("drifting", {}),
}
TIGHT, SHARP = "vlsuob-reps-tight", "vlsuob-reps-sharp"
CONDITIONAL = {"entropy": "conditional"}
VARIANTS = {
    "tight": (TIGHT, {}),
    "+ conditional": (TIGHT, CONDITIONAL),
    "+ shared": (TIGHT, {**CONDITIONAL, "shared": None}),
    "+ adaptive": (SHARP, {"predictor": "none"}),
    "+ mean = sharp": (SHARP, {}),
    "sharp, last": (SHARP, {"predictor": "last"}),
    "sharp, forgetting": (SHARP, {"predictor": "forgetting"}),
    "sharp, forward": (SHARP, {"bounds": "forward"}),
    "sharp - shared": (SHARP, {"shared": False}),
    "sharp - adaptive": (TIGHT, {**CONDITIONAL, "shared": None, "predictor": "mean"}),
    "sharp - conditional": (SHARP, {"entropy": "pairs"}),
}


def regret(world: str, kind: str, variant: str, seed: int) -> float:
    """Per episode, after all of them."""
    mdp = make_world(world)
    name, options = KINDS[kind]
    learner, settings = VARIANTS[variant]
    adversary = make_adversary(name, mdp, EPISODES, seed=seed, **options)
    built = make_learner(learner, mdp, EPISODES, seed=seed, **settings)
    return float(run(mdp, built, adversary, EPISODES, seed=seed, progress=False).regret[-1]) / EPISODES


def cells() -> None:
    """The table of all variants, one line per run, written as it grows."""
    path = TABLES / "sharp.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["world", "kind", "variant", "seed", "regret"])
    known = set(done[["world", "kind", "variant", "seed"]].itertuples(index=False, name=None))
    for seed in SEEDS:
        for world in WORLDS:
            for kind in KINDS:
                for variant in VARIANTS:
                    if (world, kind, variant, seed) not in known:
                        found = round(regret(world, kind, variant, seed), 4)
                        done.loc[len(done)] = [world, kind, variant, seed, found]
                done.to_csv(path, index=False)
                print(world, kind, seed, flush=True)


class Linear(Adversary):
    """Losses <phi, w_k>, linear in the natural losses of a world and a constant, with prices w_k that walk."""

    def __init__(self, mdp, features, episodes, seed):
        super().__init__(mdp, episodes)
        rng = np.random.default_rng([seed, 7])
        walk = np.cumsum(rng.normal(scale=0.02, size=(episodes, features[0].shape[2])), axis=0)
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
                ("none", "none"), ("mean", "mean"), ("forgetting", "forgetting"), ("ridge", ridge(features)),
                ("ridge 0.98", ridge(features, 0.98)),
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


def variants(found: pd.DataFrame) -> list[str]:
    """The table of variants: means over worlds and seeds, by kind of losses."""
    by_kind = found.pivot_table(index="variant", columns="kind", values="regret").loc[[*VARIANTS], [*KINDS]]
    lines = ["| | " + " | ".join(KINDS) + " |", "|---|" + "--:|" * len(KINDS)]
    for name, row in zip(by_kind.index, by_kind.to_numpy(), strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in row) + " |")
    return lines


def tables() -> str:
    """All tables, as markdown."""
    found = pd.read_csv(TABLES / "sharp.csv")
    lines = variants(found)
    ends = "tight", "+ mean = sharp"
    means = found.groupby(["world", "kind", "variant"])["regret"].mean()
    lines += ["", "| world | " + " | ".join(KINDS) + " |", "|---|" + "--:|" * len(KINDS)]
    for world in WORLDS:
        pairs = [[means[world, kind, end] for end in ends] for kind in KINDS]
        lines.append(f"| `{world}` | " + " | ".join(f"{a:.2f} → {b:.2f}" for a, b in pairs) + " |")
    linear = pd.read_csv(TABLES / "sharp_ridge.csv").pivot_table(index="world", columns="predictor", values="regret")
    names = ["none", "mean", "forgetting", "ridge", "ridge 0.98"]
    lines += ["", "| linear losses | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for world in linear.index:
        lines.append(f"| `{world}` | " + " | ".join(f"{linear.loc[world, name]:.3f}" for name in names) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else "cost"
    if wanted == "pages":
        text = PAGE.read_text(encoding="utf-8")
        shown = "\n".join(line for line in variants(pd.read_csv(TABLES / "sharp.csv")) if "sharp," not in line)
        PAGE.write_text(BLOCK.sub(lambda found: f"{found[1]}\n{shown}\n\n{found[2]}", text), encoding="utf-8")
    elif wanted == "print":
        print(tables())
    else:
        {"cells": cells, "ridge": ridge_cells, "cost": cost}[wanted]()


if __name__ == "__main__":
    main()
