"""Every registered learner on one small problem: docs/study/tables/side-by-side.csv, in part in docs/learners.md.

    python -m benchmarks.study_side_by_side          # a few minutes on one core
    python -m benchmarks.study_side_by_side planner  # only the rows of the named learners

The problem is small enough for `exp3-policies`, which lists all policies.  Seeds pair the losses and the luck.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np

from advmdp import LinearMDPModel, make_adversary, make_learner, make_world, run
from advmdp.experiments.statistics import mean_and_interval
from advmdp.registry import learners

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, TABLE = DOCS / "learners.md", DOCS / "study" / "tables" / "side-by-side.csv"
EPISODES, SEEDS = 1000, 5
ADVERSARIES = {"stochastic": {}, "switching": {"period": 100}}
HEAD = "| learner | " + " | ".join(f"{name} losses" for name in ADVERSARIES) + " |\n|---|" + "--:|" * len(ADVERSARIES)
#: Those on the page.
SHOWN = ("portfolio", "planner", "vlsuob-reps-sharp", "vlsuob-reps-tight", "uob-reps", "o-reps-bandit", "uniform")
BLOCK = re.compile(r"(<!-- side by side: .*? -->\n).*?(\n<!-- /side by side -->)", re.DOTALL)


def taking_part() -> list[str]:
    """All but those that need a linear MDP, which docs/learners/linear-mdp.md compares."""
    return [name for name in learners.names() if learners.get(name).needs is not LinearMDPModel]


def row(name: str, episodes: int = EPISODES, seeds: int = SEEDS) -> dict[str, str]:
    """Mean regret of one learner with its 95% Student-t interval, for each kind of losses."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    cells = {"learner": name}
    for adversary_name, options in ADVERSARIES.items():
        regrets = []
        for seed in range(seeds):
            adversary = make_adversary(adversary_name, world, episodes, seed=seed, **options)
            told = {"losses": adversary} if name == "hindsight" else {}
            learner = make_learner(name, world, episodes, seed=seed, **told)
            regrets.append(run(world, learner, adversary, episodes, seed=seed, progress=False).regret[-1])
        mean, half = mean_and_interval(np.array(regrets))
        cells[adversary_name] = f"{mean + 0.0:.0f} ± {half:.0f}".replace("-0 ", "0 ")
    return cells


def known() -> dict[str, dict[str, str]]:
    """The rows that are in the table, by learner."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {cells["learner"]: cells for cells in csv.DictReader(file)}


def with_rows(page: str, rows: dict[str, dict[str, str]]) -> str:
    """The page with those that it shows."""
    lines = [f"| `{name}` | " + " | ".join(rows[name][kind] for kind in ADVERSARIES) + " |" for name in SHOWN]
    table = "\n".join([HEAD, *lines])
    return BLOCK.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page)


def main() -> None:
    rows = known() if sys.argv[1:] else {}
    for name in sys.argv[1:] or taking_part():
        rows[name] = row(name)
        print(rows[name], flush=True)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["learner", *ADVERSARIES], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(rows))
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
