"""How the learners compare on the shipped worlds, with the theory's own constants; writes docs/results.md.

Run with ``python -m benchmarks.study_learners`` (about ten minutes on one core).  Seeds pair the losses and the luck.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import stats

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.experiments.statistics import mean_and_interval
from advmdp.registry import worlds

EPISODES = 2000
SEEDS = 10
LEARNERS = ("uniform", "uob-reps", "lsuob-reps", "vlsuob-reps", "vlsuob-reps-tight")
CHANGES = {"random-mixture": {}, "grid": {"height": 5, "width": 5}}
WIDE = {"layer_sizes": (1, 12, 12, 1), "n_actions": 3, "dim": 3}


def mean_width(learner) -> float:
    """Mean length of the interval that the last set leaves to an entry (the exact hull), reachable pairs only."""
    if learner.confidence_set is None:
        return float("nan")
    lower, upper = learner.confidence_set.hull()
    widths = [
        (high - low)[reached].ravel()
        for low, high, reached in zip(lower[:-1], upper[:-1], learner.confidence_set.reachable, strict=False)
    ]
    return float(np.nanmean(np.concatenate(widths)))


def predicted_width(learner, world) -> float:
    """What theory predicts for it: the mean of min(1, 2 beta |phi|) in the norm of the inverse Gram matrix."""
    if not hasattr(learner, "radii"):
        return float("nan")
    widths = []
    for h, radius in enumerate(learner.radii):
        rows = world.features[h].reshape(-1, world.dim)
        lengths = np.sqrt(np.einsum("rd,dr->r", rows, np.linalg.solve(learner.estimate.grams[h], rows.T)))
        widths.append(np.minimum(1.0, 2.0 * radius * lengths)[lengths > 0.0])
    return float(np.concatenate(widths).mean())


def problem(name: str, options: dict, title: str) -> list[str]:
    regrets: dict[str, list[float]] = {learner: [] for learner in LEARNERS}
    widths: dict[str, list[float]] = {learner: [] for learner in LEARNERS}
    predicted: dict[str, list[float]] = {learner: [] for learner in LEARNERS}
    for seed in range(SEEDS):
        world = make_world(name, **options, **({"seed": seed} if name == "random-mixture" else {}))
        adversary = make_adversary("stochastic", world, EPISODES, seed=seed)
        for learner_name in LEARNERS:
            learner = make_learner(learner_name, world, EPISODES, seed=seed)
            result = run(world, learner, adversary, EPISODES, seed=seed, progress=False)
            regrets[learner_name].append(float(result.regret[-1]))
            widths[learner_name].append(mean_width(learner))
            predicted[learner_name].append(predicted_width(learner, world))
    lines = [
        f"### {title}",
        "",
        "| learner | regret (mean, 95% interval) | minus tight's, paired (p) | set width | of tight's | predicted |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    tight = np.array(regrets["vlsuob-reps-tight"])
    for learner_name in LEARNERS:
        mean, half = mean_and_interval(regrets[learner_name])
        difference = np.array(regrets[learner_name]) - tight
        if learner_name == "vlsuob-reps-tight":
            paired = ""
        else:
            p = stats.ttest_rel(regrets[learner_name], tight).pvalue
            gap, gap_half = mean_and_interval(difference)
            paired = f"{gap:,.0f} ± {gap_half:,.0f} ({p:.1g})"
        width = np.mean(widths[learner_name])
        ratio = width / np.mean(widths["vlsuob-reps-tight"])
        foreseen = np.mean(predicted[learner_name]) / np.mean(predicted["vlsuob-reps-tight"])
        cells = [f"{mean:,.0f} ± {half:,.0f}", paired]
        cells += [
            "" if np.isnan(x) else f"{x:{form}}" for x, form in ((width, ".3f"), (ratio, ".2f"), (foreseen, ".2f"))
        ]
        lines.append(f"| `{learner_name}` | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> None:
    lines = [
        "# Results",
        "",
        f"Regret after {EPISODES:,} episodes with Bernoulli losses, theory's own constants, {SEEDS} seeds; written by",
        "`python -m benchmarks.study_learners`. All learners of a seed meet the same losses and luck. Intervals are",
        "Student-t over seeds; p is that of a paired t-test. Set width: the mean length of the interval that the last",
        "set leaves to a transition probability (exact hull), also as a ratio to that of `vlsuob-reps-tight`.",
        "Predicted: the same ratio of 2 beta |phi|, the width that the analysis uses.",
        "",
    ]
    for name in worlds.names():
        options = CHANGES.get(name, {})
        shown = ", ".join(f"{k}={v}" for k, v in options.items()) or "defaults"
        lines += problem(name, options, f"`{name}` ({shown})")
    lines += problem("random-mixture", WIDE, "`random-mixture`, wide layers (1-12-12-1, A=3, d=3)")
    Path(__file__).resolve().parents[1].joinpath("docs", "results.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
