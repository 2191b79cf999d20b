"""Every registered learner on one small problem: docs/learners/side-by-side.md, and the table on each learner's page.

    python -m benchmarks.study_side_by_side          # a few minutes on one core
    python -m benchmarks.study_side_by_side planner  # only the rows of the named learners
    python -m benchmarks.study_side_by_side --pages  # only copies the rows of side-by-side.md to the pages

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

PAGES = Path(__file__).resolve().parents[1] / "docs" / "learners"
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


def page(rows: list[str]) -> str:
    """The page with all rows."""
    return f"""# All learners side by side

Written by `python -m benchmarks.study_side_by_side`: every registered learner, with its default constants, on one
small random mixture (layers 1-3-3-1, two actions, d = 2). Regret after {EPISODES:,} episodes against the best fixed
policy in hindsight, mean of {SEEDS} seeds with 95% Student-t interval. Losses: `stochastic` (Bernoulli, fixed means)
and `switching` (new means every 100 episodes). Learners that know the transition, or see the losses of all pairs, are
there for comparison: they solve an easier problem.

{HEAD}
{chr(10).join(rows)}

One small world says little about others: [the study](../study/index.md) has more. A learner that follows changes
can have less loss than every fixed policy, and so negative regret.
"""


def write_pages(folder: Path = PAGES) -> list[Path]:
    """Copy each learner's row to its page; the pages that changed."""
    text = (folder / "side-by-side.md").read_text(encoding="utf-8")
    changed = []
    for match in ROW.finditer(text):
        file = folder / f"{match[1]}.md"
        if not file.exists():
            continue
        before = file.read_text(encoding="utf-8")
        after = BLOCK.sub(lambda found, row=match[0]: f"{found[1]}\n{HEAD}\n{row}\n{found[2]}", before)
        if after != before:
            file.write_text(after, encoding="utf-8")
            changed.append(file)
    return changed


def main() -> None:
    if "--pages" not in sys.argv[1:]:
        file, named = PAGES / "side-by-side.md", sys.argv[1:]
        rows = {match[1]: match[0] for match in ROW.finditer(file.read_text(encoding="utf-8"))} if named else {}
        for name in named or learners.names():
            rows[name] = row(name)
            print(rows[name], flush=True)
        file.write_text(page([rows[name] for name in sorted(rows)]), encoding="utf-8")
    for file in write_pages():
        print(file)


if __name__ == "__main__":
    main()
