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
ANSWER = "confirmed for portfolio and planner, which are close; partly for vlsuob-reps-tight, harmful on the queue"
SPECS = ("study-shapes", "study-shapes-strong")
STRONG, PLANNER, SHARP = "portfolio", "planner", "vlsuob-reps-sharp"
OURS, TABLES, KNOWN = "vlsuob-reps-tight", "uob-reps", "o-reps-bandit"


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run: regret, that of the last tenth of the episodes, total loss, processor time per episode."""
    tables = []
    for frame in frames.values():
        last = last_rows(frame)
        late_regret = last["cell"].map({cell: late(run) for cell, run in frame.groupby("cell")})
        tables.append(last.assign(world=last["world"].str.replace(r"\[.*", "", regex=True), late_regret=late_regret))
    columns = ["world", "learner", "seed", "episode", "regret", "late_regret", "cumulative_loss", "milliseconds"]
    return pd.concat(tables)[columns].reset_index(drop=True)


def late(run: pd.DataFrame) -> float:
    """The regret of the last tenth of the episodes, linear between those that are logged."""
    episodes, regrets = run["episode"].to_numpy(), run["regret"].to_numpy()
    return float(regrets[-1] - np.interp(0.9 * episodes[-1], episodes, regrets))


def runs_of(table: pd.DataFrame, world: str, learner: str) -> pd.DataFrame:
    """The longest runs of a learner on a world, and those of the others of that length."""
    here = table[table["world"] == world]
    return here[here["episode"] == here.loc[here["learner"] == learner, "episode"].max()]


def saved(table: pd.DataFrame, world: str, learner: str, value: str = "regret") -> pd.Series:
    """Share of uniform play's regret that a learner saves, seed by seed: 1 is the best fixed policy from the start."""
    wide = runs_of(table, world, learner).pivot(index="seed", columns="learner", values=value)
    share: pd.Series = (1.0 - wide[learner] / wide["uniform"]).dropna()
    return share


def findings(table: pd.DataFrame) -> list[Finding]:
    """What is saved, on average and world by world; against planning, tables and a known transition; the cost."""
    worlds = list(dict.fromkeys(table["world"]))
    names = (STRONG, PLANNER, SHARP, OURS, TABLES, KNOWN)
    gained = {name: pd.DataFrame({world: saved(table, world, name) for world in worlds}) for name in names}
    found = []
    for name in (STRONG, SHARP, OURS):
        sentence = f"share of uniform play's regret that {name} saves, mean of the worlds"
        title = "saved, mean" if name == STRONG else f"saved by {name}, mean"
        found.append(finding(title, sentence, gained[name].mean(axis=1), quick=True))
    for name in (STRONG, PLANNER, SHARP, OURS):
        for world in worlds:
            sentence = f"share of uniform play's regret that {name} saves, {world}"
            found.append(finding(f"saved by {name}, {world}", sentence, gained[name][world]))
    for name in (STRONG, OURS):
        for world in worlds:
            sentence = f"the same for {name} in the last tenth of the episodes, {world}"
            found.append(finding(f"saved late by {name}, {world}", sentence, saved(table, world, name, "late_regret")))
    # Runs of one length are compared seed by seed.
    for name, other in ((STRONG, PLANNER), (STRONG, KNOWN), (SHARP, KNOWN), (OURS, TABLES)):
        difference = (gained[name] - gained[other]).dropna()
        sentence = f"share saved by {name} minus that by {other}, mean of the worlds"
        found.append(finding(f"{name} minus {other}, mean", sentence, difference.mean(axis=1), quick=other == TABLES))
        for world in worlds:
            sentence = f"share saved by {name} minus that by {other}, {world}"
            found.append(finding(f"{name} minus {other}, {world}", sentence, difference[world]))
    return found


def results(table: pd.DataFrame) -> pd.DataFrame:
    """Loss per episode of every learner by world, that of the best fixed policy on the losses that ours met first."""
    rows = []
    for world in dict.fromkeys(table["world"]):
        for first, names in (
            (STRONG, (STRONG, PLANNER, SHARP, KNOWN, "uniform")),
            (OURS, (OURS, TABLES, KNOWN, "uniform")),
        ):
            runs = runs_of(table, world, first)
            own = runs[runs["learner"] == first]
            best = (own["cumulative_loss"] - own["regret"]).mean() / own["episode"].iloc[0]
            mean = runs.groupby("learner")["cumulative_loss"].mean() / own["episode"].iloc[0]
            losses = {f"`{name}`": number(mean[name]) if name in names else "" for name in (
                STRONG, PLANNER, SHARP, OURS, TABLES, KNOWN, "uniform"
            )}  # fmt: skip
            episodes = f"{own['episode'].iloc[0]:,}"
            rows.append({"loss per episode": f"`{world}`", "K": episodes, "best fixed": number(best)} | losses)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """Bars for what is saved and for what it costs."""
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    gain, cost = figure.subplots(2, 1, sharex=True)
    worlds = list(dict.fromkeys(table["world"]))
    for place, (colour, learner) in enumerate(
        zip(COLOURS, (STRONG, PLANNER, SHARP, OURS, TABLES, KNOWN), strict=False)
    ):
        label = f"{learner} (told the transition)" if learner == KNOWN else learner
        share = pd.concat(
            [saved(table, world, learner).rename("share").to_frame().assign(world=world) for world in worlds]
        )
        _bars(gain, means(share, ["world"], "share"), place, colour, label)
        runs = pd.concat([runs_of(table, world, learner) for world in worlds])
        _bars(cost, means(runs[runs["learner"] == learner], ["world"], "milliseconds"), place, colour, label)
    gain.set_ylabel("share of uniform play's\nregret that is saved")
    gain.axhline(0.0, color="0.4", linewidth=0.8)
    cost.set(yscale="log", ylabel="milliseconds of processor\ntime per episode")
    cost.set_xticks(np.arange(len(worlds)), worlds)
    tidy(gain)
    tidy(cost)
    legend_below(figure, gain, cost)
    return figure


def _bars(ax: Axes, points: pd.DataFrame, number: int, colour: str, label: str) -> None:
    places = np.arange(len(points)) + 0.14 * (number - 2.5)
    ax.bar(
        places,
        points["mean"],
        width=0.13,
        yerr=points["half_width"],
        color=colour,
        label=label,
        error_kw={"linewidth": 1.0},
    )
