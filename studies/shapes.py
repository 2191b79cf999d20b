"""Study 7: problems of real shape and size, with their own losses: what is gained, and what an episode costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows
from advmdp.report.figures import COLOURS, legend_below
from advmdp.report.results import number
from studies.common import Finding, finding, means, tidy

QUESTION = "On problems of real shape, is the regret useful, and what does an episode cost?"
ANSWER = "partly: useful in three of five worlds, worse than uniform play in one; about 10 ms"
SPECS = ("study-shapes",)
OURS, TABLES, KNOWN = "vlsuob-reps-tight", "uob-reps", "o-reps-bandit"


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run: regret, that of the last tenth of the episodes, total loss, processor time per episode."""
    frame = frames["study-shapes"]
    last = last_rows(frame)
    last = last.assign(
        world=last["world"].str.replace(r"\[.*", "", regex=True),
        late_regret=last["cell"].map({cell: late(run) for cell, run in frame.groupby("cell")}),
    )
    columns = ["world", "learner", "seed", "episode", "regret", "late_regret", "cumulative_loss", "milliseconds"]
    return last[columns].reset_index(drop=True)


def late(run: pd.DataFrame) -> float:
    """The regret of the last tenth of the episodes, linear between those that are logged."""
    episodes, regrets = run["episode"].to_numpy(), run["regret"].to_numpy()
    return float(regrets[-1] - np.interp(0.9 * episodes[-1], episodes, regrets))


def saved(table: pd.DataFrame, world: str, learner: str, value: str = "regret") -> pd.Series:
    """Share of uniform play's regret that a learner saves, seed by seed: 1 is the best fixed policy from the start."""
    wide = table[table["world"] == world].pivot(index="seed", columns="learner", values=value)
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
    for world in worlds:
        sentence = f"the same in the last tenth of the episodes, {world}"
        found.append(finding(f"saved late, {world}", sentence, saved(table, world, OURS, "late_regret")))
    for other in (TABLES, KNOWN):
        difference = pd.DataFrame({world: gained[OURS][world] - gained[other][world] for world in worlds})
        sentence = f"share saved by {OURS} minus that by {other}, mean of the worlds"
        found.append(finding(f"minus {other}, mean", sentence, difference.mean(axis=1), quick=other == TABLES))
        for world in worlds:
            sentence = f"share saved by {OURS} minus that by {other}, {world}"
            found.append(finding(f"minus {other}, {world}", sentence, difference[world]))
    return found


def results(table: pd.DataFrame) -> pd.DataFrame:
    """Loss per episode of every learner by world, that of the best fixed policy on the losses that ours met first."""
    rows = []
    for world, runs in table.groupby("world", sort=False):
        losses = {name: own["cumulative_loss"].mean() / own["episode"].iloc[0] for name, own in runs.groupby("learner")}
        ours = runs[runs["learner"] == OURS]
        best = (ours["cumulative_loss"] - ours["regret"]).mean() / ours["episode"].iloc[0]
        cells = {f"`{name}`": number(losses[name]) for name in (OURS, TABLES, KNOWN, "uniform")}
        rows.append({"loss per episode": f"`{world}`", "best fixed policy": number(best)} | cells)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """Bars for what is saved and for what it costs."""
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    gain, cost = figure.subplots(2, 1, sharex=True)
    worlds = list(dict.fromkeys(table["world"]))
    for place, (colour, learner) in enumerate(zip(COLOURS, (OURS, TABLES, KNOWN), strict=False)):
        label = f"{learner} (told the transition)" if learner == KNOWN else learner
        share = pd.concat(
            [saved(table, world, learner).rename("share").to_frame().assign(world=world) for world in worlds]
        )
        _bars(gain, means(share, ["world"], "share"), place, colour, label)
        _bars(cost, means(table[table["learner"] == learner], ["world"], "milliseconds"), place, colour, label)
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
