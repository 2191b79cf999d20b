"""Study 1: the exponent of K, and how far regret is from the explicit bound and from the lower bound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows, mean_and_interval
from advmdp.report.figures import legend_below, make_styles
from advmdp.report.results import interval, number
from advmdp.theory import bounds
from studies.common import Finding, complete, finding, means, model_of, paired, tidy

QUESTION = "Does regret grow as the square root of K?"
ANSWER = "confirmed up to K = 10^6 in one small world; the explicit bound says nothing at such K"
SPECS = ("study-rate", "study-rate-long")
LEARNERS = ("vlsuob-reps", "vlsuob-reps-tight")


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Final regret of every run, beside the explicit bound, the order of the lower bound, and the trivial H K."""
    ends = [last_rows(frame).assign(long=spec == "study-rate-long") for spec, frame in frames.items()]
    last = pd.concat(ends, ignore_index=True)
    model = model_of("study-rate")
    sizes = {"S": model.n_states, "A": model.n_actions, "H": model.horizon, "d": model.dim}
    lower = {K: bounds.lower_linear_mixture(K=K, **sizes).value for K in last["episode"].unique()}
    table = last[["learner", "episode", "seed", "long", "regret", "bound", "milliseconds"]]
    table = table.assign(lower=last["episode"].map(lower), trivial=model.horizon * last["episode"])
    # Where runs are missing yet: pairs only, and nothing of a K that has hardly any.
    paired_runs = pd.concat(complete(runs, "learner") for _, runs in table.groupby("episode"))
    enough = paired_runs.groupby("episode")["seed"].transform("nunique") >= 2
    return paired_runs[enough].sort_values(["learner", "episode", "seed"], ignore_index=True)


def exponents(rows: pd.DataFrame) -> pd.Series:
    """The slope of log regret over log K, seed by seed; over those K at which every seed has positive regret."""
    wide = rows.pivot(index="seed", columns="episode", values="regret").dropna()
    wide = wide.loc[:, (wide > 0.0).all()]
    if wide.shape[1] < 2:
        raise ValueError("fewer than two K with positive regret in every seed: no exponent")
    slopes = np.polyfit(np.log(wide.columns.to_numpy(dtype=np.float64)), np.log(wide.to_numpy()).T, 1)[0]
    return pd.Series(slopes, index=wide.index)


def findings(table: pd.DataFrame) -> list[Finding]:
    """Exponents minus one half; distances as orders of magnitude."""
    full, ends = split(table)
    first, last = full["episode"].min(), full["episode"].max()
    found = []
    for learner in LEARNERS:
        rows = full[full["learner"] == learner]
        slopes = exponents(rows)
        sentence = f"{learner}: exponent of K between {first:,} and {last:,}, minus 1/2 ({len(slopes)} seeds)"
        found.append(finding(f"exponent, {learner}", sentence, slopes - 0.5))
    printed, tight = (exponents(full[full["learner"] == learner]) for learner in LEARNERS)
    sentence = "exponent of vlsuob-reps minus that of vlsuob-reps-tight, within a seed"
    found.append(finding("exponent, printed minus tight", sentence, printed - tight))
    for learner in LEARNERS:
        tail = full[(full["learner"] == learner) & (full["episode"] >= last / 10)]
        if tail["episode"].nunique() > 1 and tail["episode"].min() > first:
            sentence = f"{learner}: the same over the last decade"
            found.append(finding(f"exponent of the last decade, {learner}", sentence, exponents(tail) - 0.5))
    for learner, rows in ends.groupby("learner"):
        before = full[(full["learner"] == learner) & (full["episode"] == last) & full["seed"].isin(rows["seed"])]
        sentence = f"{learner}: the same from {last:,} to {rows['episode'].max():,} ({len(rows)} seeds)"
        slopes = exponents(pd.concat([before, rows])) - 0.5
        found.append(finding(f"exponent of the last step, {learner}", sentence, slopes))
    at_end = full[full["episode"] == last]
    for learner in LEARNERS:
        rows = at_end[at_end["learner"] == learner]
        rows = rows[rows["regret"] > 0.0]
        above = np.log10(rows["bound"] / rows["regret"])
        sentence = f"{learner}: orders of magnitude between the explicit bound and the regret, K = {last:,}"
        found.append(finding(f"below the bound, {learner}", sentence, above, quick=True))
        over = np.log10(rows["regret"] / rows["lower"])
        sentence = f"{learner}: orders of magnitude between the regret and the order of the lower bound, K = {last:,}"
        found.append(finding(f"above the lower bound, {learner}", sentence, over))
        share = np.log10(rows["bound"] / rows["trivial"])
        # The same number for every seed: no interval is to be had, nor needed.
        sentence = f"{learner}: orders of magnitude by which the bound exceeds H K, K = {last:,}"
        found.append(Finding(f"vacuous by, {learner}", sentence, float(share.iloc[0]), 0.0, quick=True))
    gap = paired(at_end, "learner", *LEARNERS, "regret")
    sentence = f"regret of vlsuob-reps minus that of vlsuob-reps-tight, K = {last:,}"
    found.append(finding("printed minus tight", sentence, gap, quick=True))
    return found


def results(table: pd.DataFrame) -> pd.DataFrame:
    """By learner and K, the powers of ten."""
    rows = []
    for (learner, episodes), runs in table.groupby(["learner", "episode"]):
        if np.log10(episodes) % 1.0:
            continue
        first = runs.iloc[0]
        rows.append(
            {
                "learner": f"`{learner}`",
                "K": number(episodes),
                "regret": interval(*mean_and_interval(runs["regret"])),
                "H K": number(first["trivial"]),
                "explicit bound": f"{first['bound']:,.0f}",
            }
        )
    return pd.DataFrame(rows)


def split(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs with all seeds, and the longest ones."""
    longest = table["long"]
    return table[~longest], table[longest]


def draw(table: pd.DataFrame) -> Figure:
    """Regret, explicit bounds, the trivial one and the order of the lower bound, on logarithmic axes."""
    figure = Figure(figsize=(5.2, 5.4), layout="constrained")
    ax = figure.subplots()
    styles = make_styles(LEARNERS)
    for learner in LEARNERS:
        rows, colour = table[table["learner"] == learner], styles[learner].colour
        curve = means(rows, ["episode"], "regret")
        bound = means(rows, ["episode"], "bound")
        ax.plot(bound["episode"], bound["mean"], color=colour, linewidth=1.4, dashes=(4, 2), label=f"{learner}: bound")
        ax.errorbar(
            curve["episode"],
            curve["mean"],
            curve["half_width"],
            color=colour,
            linewidth=1.8,
            marker="o" if learner == LEARNERS[0] else "s",
            markersize=4,
            capsize=3,
            label=f"{learner}: regret",
        )
    lines = table.drop_duplicates("episode").sort_values("episode")
    ax.plot(lines["episode"], lines["trivial"], color="0.35", linewidth=1.2, label="H K, which nothing exceeds")
    ax.plot(
        lines["episode"],
        lines["lower"],
        color="0.35",
        linewidth=1.2,
        dashes=(1.2, 1.2),
        label="order of the lower bound",
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("K, episodes (each run tuned to its own)")
    ax.set_ylabel("regret")
    tidy(ax)
    legend_below(figure, ax)
    return figure
