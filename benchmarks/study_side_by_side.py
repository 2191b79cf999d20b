"""Every registered learner on one small problem: the table in docs/learners.md.

    python -m benchmarks.study_side_by_side          # a few minutes on one core
    python -m benchmarks.study_side_by_side planner  # only the rows of the named learners

The problem is small enough for `exp3-policies`, which lists all policies.  Seeds pair the losses and the luck.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.experiments.statistics import mean_and_interval
from advmdp.registry import learners

PAGE = Path(__file__).resolve().parents[1] / "docs" / "learners.md"
EPISODES, SEEDS = 1000, 5
ADVERSARIES = {"stochastic": {}, "switching": {"period": 100}}
HEAD = "| learner | " + " | ".join(f"{name} losses" for name in ADVERSARIES) + " |\n|---|" + "--:|" * len(ADVERSARIES)
ROW = re.compile(r"^\| `([a-z0-9-]+)` \|.*\|$", re.MULTILINE)
BLOCK = re.compile(r"(<!-- side by side: .*? -->\n).*?(\n<!-- /side by side -->)", re.DOTALL)


def row(name: str, episodes: int = EPISODES, seeds: int = SEEDS) -> str:
    """Mean regret of one learner with its 95% Student-t interval, for each kind of losses."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    cells = []
    for adversary_name, options in ADVERSARIES.items():
        regrets = []
        for seed in range(seeds):
            adversary = make_adversary(adversary_name, world, episodes, seed=seed, **options)
            told = {"losses": adversary} if name == "hindsight" else {}
            learner = make_learner(name, world, episodes, seed=seed, **told)
            regrets.append(run(world, learner, adversary, episodes, seed=seed, progress=False).regret[-1])
        mean, half = mean_and_interval(np.array(regrets))
        cells.append(f"{mean + 0.0:.0f} ± {half:.0f}".replace("-0 ", "0 "))
    return f"| `{name}` | " + " | ".join(cells) + " |"


def block(page: str) -> str:
    """The table on the page, with its marks."""
    (found,) = BLOCK.finditer(page)
    return found[0]


def main() -> None:
    page, named = PAGE.read_text(encoding="utf-8"), sys.argv[1:]
    rows = {match[1]: match[0] for match in ROW.finditer(block(page))} if named else {}
    for name in named or learners.names():
        rows[name] = row(name)
        print(rows[name], flush=True)
    table = "\n".join([HEAD, *(rows[name] for name in sorted(rows))])
    PAGE.write_text(BLOCK.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
