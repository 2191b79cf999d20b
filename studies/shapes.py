"""Study 7: problems of real shape and size, with their own losses: what is gained, and what an episode costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows
from advmdp.report.figures import COLOURS, legend_below
from studies.common import Finding, finding, means, tidy

QUESTION = "On problems of real shape, is the regret after 5,000 episodes useful, and what does an episode cost?"
ANSWER = "open: the full runs are not finished; the page has what the small variant shows"
SPECS = ("study-shapes",)
OURS, TABLES, KNOWN = "vlsuob-reps-tight", "uob-reps", "o-reps-bandit"


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run: regret, total loss, and processor time per episode."""
    last = last_rows(frames["study-shapes"])
    last = last.assign(world=last["world"].str.replace(r"\[.*", "", regex=True))
    columns = ["world", "learner", "seed", "regret", "cumulative_loss", "milliseconds"]
    return last[columns].reset_index(drop=True)


def saved(table: pd.DataFrame, world: str, learner: str) -> pd.Series:
    """Share of uniform play's regret that a learner saves, seed by seed: 1 is the best fixed policy from the start."""
    wide = table[table["world"] == world].pivot(index="seed", columns="learner", values="regret")
    share: pd.Series = 1.0 - wide[learner] / wide["uniform"]
    return share


def findings(table: pd.DataFrame) -> list[Finding]:
    """What is saved, on average and world by world; against tables and against a known transition; the cost."""
    worlds = list(dict.fromkeys(table["world"]))
    gained = {name: {world: saved(table, world, name) for world in worlds} for name in (OURS, TABLES, KNOWN)}
    sentence = f"share of uniform play's regret that {OURS} saves, mean of the worlds"
    found = [finding("saved, mean", sentence, pd.DataFrame(gained[OURS]).mean(axis=1), quick=True)]
    for world in worlds:
        sentence = f"share of uniform play's regret that {OURS} saves, {world}"
        found.append(finding(f"saved, {world}", sentence, gained[OURS][world]))
    for other in (TABLES, KNOWN):
        difference = pd.DataFrame({world: gained[OURS][world] - gained[other][world] for world in worlds})
        sentence = f"share saved by {OURS} minus that by {other}, mean of the worlds"
        found.append(finding(f"minus {other}, mean", sentence, difference.mean(axis=1), quick=other == TABLES))
        for world in worlds:
            sentence = f"share saved by {OURS} minus that by {other}, {world}"
            found.append(finding(f"minus {other}, {world}", sentence, difference[world]))
    for world in worlds:
        rows = table[(table["world"] == world) & (table["learner"] == OURS)]
        sentence = f"milliseconds of processor time per episode, {OURS}, {world}"
        found.append(finding(f"cost, {world}", sentence, rows["milliseconds"]))
    return found


def draw(table: pd.DataFrame) -> Figure:
    """Bars for what is saved and for what it costs."""
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    gain, cost = figure.subplots(2, 1, sharex=True)
    worlds = list(dict.fromkeys(table["world"]))
    for number, (colour, learner) in enumerate(zip(COLOURS, (OURS, TABLES, KNOWN), strict=False)):
        label = f"{learner} (told the transition)" if learner == KNOWN else learner
        share = pd.concat(
            [saved(table, world, learner).rename("share").to_frame().assign(world=world) for world in worlds]
        )
        _bars(gain, means(share, ["world"], "share"), number, colour, label)
        _bars(cost, means(table[table["learner"] == learner], ["world"], "milliseconds"), number, colour, label)
    gain.set_ylabel("share of uniform play's\nregret that is saved")
    gain.axhline(0.0, color="0.4", linewidth=0.8)
    cost.set(yscale="log", ylabel="milliseconds of processor\ntime per episode")
    cost.set_xticks(np.arange(len(worlds)), worlds)
    tidy(gain)
    tidy(cost)
    legend_below(figure, gain, cost)
    return figure


def _bars(ax: Axes, points: pd.DataFrame, number: int, colour: str, label: str) -> None:
    places = np.arange(len(points)) + 0.26 * (number - 1)
    ax.bar(
        places,
        points["mean"],
        width=0.24,
        yerr=points["half_width"],
        color=colour,
        label=label,
        error_kw={"linewidth": 1.0},
    )
