"""Study 8: what each sharper part brings to vlsuob-reps-tight, and what more feedback brings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows, mean_and_interval
from advmdp.report.figures import COLOURS, legend_below
from advmdp.report.results import interval
from studies.common import Finding, finding, tidy

QUESTION = "Which of the parts of vlsuob-reps-sharp lowers the regret, and what does more feedback bring?"
ANSWER = "confirmed: less than half of the regret of vlsuob-reps-tight; steps that adapt bring most, predictions little"
SPECS = ("study-parts", "study-parts-long", "study-parts-feedback")
KINDS = ("natural-losses", "stochastic", "switching", "drifting")
TIGHT, SHARP = "vlsuob-reps-tight", "vlsuob-reps-sharp"
BASE, WHOLE = "tight", "+ mean = sharp"
#: What runs are called, by learner and options that are not its defaults.
NAMES = {
    (TIGHT,): BASE,
    (TIGHT, "conditional"): "+ conditional",
    (TIGHT, "conditional", "shared"): "+ shared",
    (SHARP, "none"): "+ adaptive",
    (SHARP,): WHOLE,
    (SHARP, "last"): "sharp, last",
    (SHARP, "forgetting"): "sharp, forgetting",
    (SHARP, "forward"): "sharp, forward bounds",
    (SHARP, "likelihood"): "sharp, likelihood sets",
    (SHARP, "apart"): "sharp - shared",
    (TIGHT, "conditional", "shared", "mean"): "sharp - adaptive",
    (SHARP, "pairs"): "sharp - conditional",
    (SHARP, "actions"): "sharp, all actions",
    (SHARP, "full", "none"): "sharp, full tables",
    ("portfolio",): "portfolio",
    ("portfolio", "actions"): "portfolio, all actions",
    ("portfolio", "full"): "portfolio, full tables",
}
FEEDBACK = {"portfolio": ("portfolio, all actions", "portfolio, full tables")}
FEEDBACK[WHOLE] = ("sharp, all actions", "sharp, full tables")
OTHERS = ("oppo", "uc-o-reps")


#: Options that a name need not say, by learner.
DEFAULTS = {
    TIGHT: {"entropy": "pairs", "predictor": "none", "shared": "false"},
    SHARP: {"bounds": "exact", "entropy": "conditional", "feedback": "bandit", "predictor": "mean", "radius": "joint",
            "shared": "null"},
    "portfolio": {"feedback": "bandit"},
}  # fmt: skip


def variant(label: str) -> str:
    """The name of a run, from its learner with the options that differ in a spec: ``name[option=value,...]``."""
    learner, _, rest = label.rstrip("]").partition("[")
    options = dict(pair.split("=") for pair in rest.split(",") if pair)
    said = {name: value for name, value in options.items() if value != DEFAULTS[learner][name]}
    words = {"true": "shared", "false": "apart"}
    order = ("feedback", "entropy", "shared", "predictor", "bounds", "radius")
    return NAMES.get((learner, *(words.get(said[name], said[name]) for name in order if name in said)), learner)


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run: regret per episode after the last."""
    last = pd.concat([last_rows(frame) for frame in frames.values()])
    table = last.assign(
        learner=[variant(label) for label in last["learner"]],
        kind=last["adversary"].str.replace(r"\[.*", "", regex=True),
        regret=last["regret"] / last["episode"],
    )
    columns = ["world", "kind", "learner", "seed", "episode", "regret"]
    return table[columns].drop_duplicates(columns[:-1]).reset_index(drop=True)


def by_seed(table: pd.DataFrame, episodes: int) -> pd.DataFrame:
    """Mean regret per episode over all worlds and kinds of losses: a row per seed, a column per learner."""
    runs = table[table["episode"] == episodes]
    return runs.pivot_table(index="seed", columns="learner", values="regret")


def findings(table: pd.DataFrame) -> list[Finding]:
    """Differences of means over all cells, paired by seed; in how many cells the whole is worse."""
    found = []
    for tag, episodes in zip(("", ", longer"), sorted(table["episode"].unique()), strict=False):
        means, where = by_seed(table, episodes), f"mean of all cells, K = {episodes:,}"
        half = f"regret per episode of {SHARP} minus half of that of {TIGHT}, {where}"
        found.append(finding(f"half{tag}", half, means[WHOLE] - 0.5 * means[BASE]))
        whole = f"regret per episode of {SHARP} minus that of {TIGHT}, {where}"
        found.append(finding(f"whole{tag}", whole, means[WHOLE] - means[BASE], quick=not tag))
        cells = len(table[table["episode"] == episodes].groupby(["world", "kind"]))
        count = f"cells of {cells} in which {SHARP} is worse than {TIGHT} by more than the interval, K = {episodes:,}"
        found.append(Finding(f"worse{tag}", count, float(len(worse(table, episodes))), 0.0))
        for name in means.columns:
            if name not in (BASE, WHOLE, *OTHERS, "uniform") and not name.startswith("portfolio"):
                sentence = f"regret per episode of '{name}' minus that of {SHARP}, {where}"
                found.append(finding(f"{name}{tag}", sentence, means[name] - means[WHOLE]))
        for name, more in FEEDBACK.items():
            for other in (*more, *(OTHERS if more[1] in means else ())):
                if other in means and name in means:
                    against = more[1] if other in OTHERS else name
                    sentence = f"regret per episode of '{other}' minus that of '{against}', {where}"
                    difference = means[other] - means[against]
                    found.append(finding(f"{other} minus {against}{tag}", sentence, difference))
    return found


def worse(table: pd.DataFrame, episodes: int) -> list[str]:
    """Cells in which the whole has more regret than the base, by more than the interval of the paired difference."""
    runs = table[(table["episode"] == episodes) & table["learner"].isin([BASE, WHOLE])]
    wide = runs.pivot(index=["world", "kind", "seed"], columns="learner", values="regret")
    cells = []
    for cell, rows in (wide[WHOLE] - wide[BASE]).groupby(["world", "kind"]):
        mean, half = mean_and_interval(rows.to_numpy())
        if mean > half:
            cells.append(f"{cell[0]}, {cell[1]}")
    return cells


def results(table: pd.DataFrame) -> pd.DataFrame:
    """By variant and kind of losses, and over all of them for each number of episodes."""
    lengths = sorted(table["episode"].unique())
    rows = []
    for name in dict.fromkeys([*NAMES.values(), *OTHERS, "uniform"]):
        runs = table[table["learner"] == name]
        if len(runs) == 0:
            continue
        short = runs[runs["episode"] == lengths[0]]
        row = {"": f"`{name}`" if name in (*OTHERS, "uniform", "portfolio") else name}
        for kind in KINDS:
            cells = short.loc[short["kind"] == kind, "regret"]
            row[kind.removesuffix("-losses")] = f"{cells.mean():.2f}" if len(cells) else ""
        for episodes in lengths:
            mean = runs[runs["episode"] == episodes].groupby("seed")["regret"].mean()
            row[f"all, K = {episodes:,}"] = interval(*mean_and_interval(mean.to_numpy())) if len(mean) else ""
        rows.append(row)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """A row per variant, a point per kind of losses, at the smaller number of episodes."""
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    ax = figure.subplots()
    episodes = table["episode"].min()
    runs = table[table["episode"] == episodes]
    names = [name for name in dict.fromkeys(NAMES.values()) if name in set(runs["learner"])][::-1]
    for colour, kind in zip(COLOURS, KINDS, strict=False):
        chosen = runs[runs["kind"] == kind]
        if len(chosen) == 0:
            continue
        means = chosen.groupby(["learner", "seed"])["regret"].mean().unstack()
        for row, name in enumerate(names):
            mean, half = mean_and_interval(means.loc[name].dropna().to_numpy())
            label = {"label": kind.removesuffix("-losses")} if row == 0 else {}
            ax.errorbar(mean, row, xerr=half, color=colour, marker="o", markersize=4, capsize=2, linewidth=1.0, **label)
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel(f"regret per episode after {episodes:,}, mean of {len(np.unique(runs['world']))} worlds")
    tidy(ax)
    legend_below(figure, ax)
    return figure
