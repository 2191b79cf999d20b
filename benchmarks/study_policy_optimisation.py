"""Whether regret per episode falls as K grows, for each policy-optimisation learner with the theory's own constants.

Run with ``python -m benchmarks.study_policy_optimisation`` (about ten minutes on one core); it prints the tables, and
writes that of stochastic losses into docs/learners/policy-optimisation.md.  Seeds pair worlds, losses and luck.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.experiments.statistics import mean_and_interval

LEARNERS = ("uniform", "mdp-e", "oppo", "powers", "ucrl-vtr", "pomd", "dilated-bonus")
# Not `switching`: against fresh tables the best fixed policy gains nothing in the long run, and the regret per episode
# of any learner falls, the uniform one's too.
ADVERSARIES = {"stochastic": {}, "drifting": {"period": 50}}
FEW, MANY = 500, 8000
SEEDS = 6
WORLD = {"layer_sizes": (1, 4, 4, 4, 1), "n_actions": 4, "dim": 2}


def distance_from_uniform(policy) -> float:
    """Mean over states of the total variation distance of the policy from the uniform one."""
    rows = np.concatenate(list(policy))
    return float(0.5 * np.abs(rows - 1.0 / rows.shape[1]).sum(axis=1).mean())


def future_seen(learner, world, losses) -> float:
    """Share of the true value of what follows that the last action values contain, all pairs but the last layer's."""
    seen = true = 0.0
    kernels, following = world.kernels, np.zeros(1)
    for h in reversed(range(world.horizon)):
        ahead = kernels[h] @ following
        if h < world.horizon - 1:
            seen += float((learner.action_values[h] - losses[h]).sum())
            true += float(ahead.sum())
        following = (learner.policy[h] * (losses[h] + ahead)).sum(axis=1)
    return seen / true


def study(adversary: str, options: dict) -> list[str]:
    rows = [
        f"| learner | K = {FEW} | K = {MANY} | distance from uniform | future |",
        "|---|--:|--:|--:|--:|",
    ]
    print(adversary, options, *rows, sep="\n", flush=True)
    for name in LEARNERS:
        averages, distances, futures = [], [], []
        for seed in range(SEEDS):
            world = make_world("random-mixture", **WORLD, seed=seed)
            pair = []
            for episodes in (FEW, MANY):
                losses = make_adversary(adversary, world, episodes, seed=seed, **options)
                learner = make_learner(name, world, episodes, seed=seed)
                result = run(world, learner, losses, episodes, seed=seed, progress=False)
                pair.append(float(result.regret[-1]) / episodes)
            averages.append(pair)
            distances.append(distance_from_uniform(learner.policy))
            if name in ("mdp-e", "oppo", "powers"):
                futures.append(future_seen(learner, world, losses.losses(MANY - 1)))
        few, many = np.array(averages).T
        cells = ["{:.3f} ± {:.3f}".format(*mean_and_interval(column)) for column in (few, many)]
        future = f"{np.mean(futures):.0%}" if futures else ""
        rows.append(f"| `{name}` | {' | '.join(cells)} | {np.mean(distances):.2f} | {future} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    tables = {adversary: study(adversary, options) for adversary, options in ADVERSARIES.items()}
    page = Path(__file__).parent.parent / "docs" / "learners" / "policy-optimisation.md"
    table = "\n".join(tables["stochastic"])
    block = re.compile(r"(<!-- policy optimisation -->\n).*?(\n<!-- /policy optimisation -->)", re.DOTALL)
    text = block.sub(lambda found: f"{found[1]}\n{table}\n{found[2]}", page.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
