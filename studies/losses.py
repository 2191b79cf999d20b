"""Study 6: losses that are drawn, switch, drift, react and are corrupted; static and dynamic regret."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows, mean_and_interval
from advmdp.report.figures import COLOURS, legend_below
from advmdp.report.results import interval
from studies.common import Finding, finding, means, tidy

QUESTION = "Is regret small whatever the losses do, and does forgetting help where they change?"
ANSWER = (
    "confirmed for static regret; portfolio has the least under every kind; a larger step helps, forgetting does not"
)
SPECS = (
    "study-losses", "study-losses-known", "study-losses-change", "study-losses-step", "study-losses-bank",
    "study-losses-strong",
)  # fmt: skip
KINDS = ("stochastic", "corrupted", "switching", "drifting", "adaptive")
OURS, FORGETS, BANK = "vlsuob-reps-tight", "vlsuob-reps-restart", "vlsuob-reps-bank"
STRONG, PLANNER, SHARP = "portfolio", "planner", "vlsuob-reps-sharp"
KNOWN, SAME = "o-reps-bandit", "o-reps-bandit, same constants"
#: With the step size and the exploration of the learner that forgets.
LARGE = "vlsuob-reps-tight, larger step"
#: Names of runs whose constants are not the default, by spec.
RENAMED = {"study-losses-known": SAME, "study-losses-step": LARGE}
LABELS = {KNOWN: f"{KNOWN} (told the transition)", SAME: f"{KNOWN}, constants of {OURS}"}
#: Columns of regret, and what the learner is compared with.
REGRETS = {
    "regret": "the best fixed policy",
    "regret_3_switches": "the best sequence with three switches",
    "regret_per_episode": "the best policy of each episode",
}
#: What the table on the page calls them.
SHORT = {"regret": "fixed", "regret_3_switches": "three"}


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run: the three regrets after the last episode."""
    ends = []
    for spec, frame in frames.items():
        last = last_rows(frame)
        ends.append(last.assign(learner=RENAMED[spec]) if spec in RENAMED else last)
    last = pd.concat(ends)
    last = last.assign(adversary=last["adversary"].str.replace(r"\[.*", "", regex=True))
    return last[["adversary", "learner", "seed", *REGRETS]].reset_index(drop=True)


def shares(table: pd.DataFrame, kind: str, column: str) -> pd.DataFrame:
    """Regret over that of uniform play on the same seed: a row per seed, a column per learner that met these losses."""
    rows = table[table["adversary"] == kind]
    wide = rows.pivot(index="seed", columns="learner", values=column)
    return wide.div(wide["uniform"], axis=0)


def findings(table: pd.DataFrame) -> list[Finding]:
    """What the learner saves of uniform play's regret, what not knowing the transition costs, what forgetting adds."""
    static = {kind: shares(table, kind, "regret") for kind in KINDS}
    # Where losses switch the best fixed policy is beaten: that is no share.
    saved = pd.concat([1.0 - static[kind][OURS] for kind in KINDS if kind != "switching"], axis=1)
    sentence = f"share of uniform play's static regret that {OURS} saves, mean of all kinds but switching"
    found = [finding("saved, mean", sentence, saved.mean(axis=1), quick=True)]
    for column, what in REGRETS.items():
        for kind in KINDS:
            share = 1.0 - shares(table, kind, column)[OURS]
            sentence = f"share of uniform play's regret against {what} that {OURS} saves, {kind} losses"
            found.append(finding(f"saved, {column}, {kind}", sentence, share, quick=column == "regret"))
    for kind in KINDS:
        for name in (SAME, KNOWN):
            # The small variant leaves one out.
            if name in static[kind]:
                sentence = f"static regret of {OURS} minus that of {name}, over uniform play's, {kind} losses"
                found.append(finding(f"minus {name}, {kind}", sentence, static[kind][OURS] - static[kind][name]))
    for kind in KINDS:
        for name, other in ((STRONG, OURS), (STRONG, PLANNER), (SHARP, OURS)):
            if name in static[kind] and other in static[kind]:
                sentence = f"static regret of {name} minus that of {other}, over uniform play's, {kind} losses"
                gain = static[kind][name] - static[kind][other]
                found.append(finding(f"{name} minus {other}, {kind}", sentence, gain))
    for kind in KINDS:
        dynamic = shares(table, kind, "regret_3_switches")
        for name, other in ((FORGETS, OURS), (FORGETS, LARGE), (BANK, OURS), (STRONG, LARGE)):
            if name in dynamic and other in dynamic:
                gain = (dynamic[name] - dynamic[other]).dropna()
                sentence = f"regret against three switches, {name} minus {other}, over uniform play's, {kind} losses"
                found.append(finding(f"dynamic, {name} minus {other}, {kind}", f"{sentence} ({len(gain)} seeds)", gain))
    return found


def results(table: pd.DataFrame) -> pd.DataFrame:
    """By learner and kind of losses, the regrets against the best fixed policy and against three switches."""
    rows = []
    for column in ("regret", "regret_3_switches"):
        more = (PLANNER, SHARP, SAME, KNOWN, FORGETS, BANK) if column == "regret" else ()
        for name in (STRONG, OURS, *more, LARGE, "uniform"):
            runs = table[table["learner"] == name]
            if len(runs):
                first, comma, rest = name.partition(",")
                met = {kind: runs.loc[runs["adversary"] == kind, column] for kind in KINDS}
                cells = {kind: interval(*mean_and_interval(found)) if len(found) else "" for kind, found in met.items()}
                rows.append({"learner": f"`{first}`{comma}{rest}", "against": SHORT[column]} | cells)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """For each kind of losses a bar per learner, static and dynamic."""
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    for ax, column in zip(axes, ("regret", "regret_3_switches"), strict=True):
        _panel(ax, table, column)
    legend_below(figure, *axes)
    return figure


def _panel(ax: Axes, table: pd.DataFrame, column: str) -> None:
    learners = [name for name in (STRONG, PLANNER, SHARP, OURS, LARGE, KNOWN) if name in set(table["learner"])]
    for number, (colour, learner) in enumerate(zip(COLOURS, learners, strict=False)):
        places, heights, ends = [], [], []
        for place, kind in enumerate(KINDS):
            share = shares(table, kind, column)
            if learner in share:
                point = means(share.assign(kind=kind), ["kind"], learner).iloc[0]
                places.append(place + 0.15 * (number - 0.5 * (len(learners) - 1)))
                heights.append(point["mean"])
                ends.append(point["half_width"])
        ax.bar(
            places,
            heights,
            width=0.14,
            yerr=ends,
            color=colour,
            label=LABELS.get(learner, learner),
            error_kw={"linewidth": 1.0},
        )
    ax.axhline(1.0, color="0.3", dashes=(4, 2), label="uniform play")
    ax.axhline(0.0, color="0.4", linewidth=0.8)
    ax.set_title(f"against {REGRETS[column]}", fontsize=10)
    ax.set_ylabel("regret / that of uniform play")
    ax.set_xticks(np.arange(len(KINDS)), KINDS)
    tidy(ax)
