"""Study 4: the four terms of the proof over time, each beside its lemma's bound with the widths that the sets had."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.report.figures import legend_below, make_styles
from advmdp.theory.decomposition import TERMS
from studies.common import Finding, finding, means, thinned, tidy

QUESTION = "Which term of the regret decomposition rules?"
ANSWER = "confirmed: BIAS-I, as in the bounds; but two thirds of it are taken back by BIAS-II"
SPECS = ("study-decomposition",)
LEARNERS = ("vlsuob-reps", "vlsuob-reps-tight")
BOUNDS = [f"{term} bound" for term in TERMS]


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Regret, terms and their bounds, over time."""
    frame = thinned(frames["study-decomposition"], 4)
    return frame[["learner", "seed", "episode", "regret", *TERMS, *BOUNDS]].reset_index(drop=True)


def findings(table: pd.DataFrame) -> list[Finding]:
    """After the last episode, one number per seed."""
    last = table[table["episode"] == table["episode"].max()]
    found = []
    for learner in reversed(LEARNERS):
        rows = last[last["learner"] == learner]
        lead = (rows["BIAS-I"] - rows[["REGRET", "ERROR", "BIAS-II"]].max(axis=1)) / rows["regret"]
        found += [
            finding(f"lead, {learner}", f"{learner}: BIAS-I minus the next largest term, over the regret", lead, True),
            finding(
                f"net bias, {learner}",
                f"{learner}: what is left of BIAS-I after BIAS-II, over the regret",
                (rows["BIAS-I"] + rows["BIAS-II"]) / rows["regret"],
                True,
            ),
        ]
        for term in ("REGRET", "ERROR", "BIAS-I"):
            positive = rows[rows[term] > 0.0]
            if len(positive) == len(rows):
                sentence = f"{learner}: {term}, orders of magnitude (log10) between its bound and itself"
                slack = np.log10(rows[f"{term} bound"] / rows[term])
                found.append(finding(f"slack of {term}, {learner}", sentence, slack, term == "BIAS-I"))
        share = rows["BIAS-I bound"] / rows[BOUNDS].sum(axis=1) - 0.5
        sentence = f"{learner}: share of BIAS-I's bound in the sum of the four, minus one half"
        found.append(finding(f"share of the bounds, {learner}", sentence, share, True))
    return found


def draw(table: pd.DataFrame) -> Figure:
    """One panel per term: what it was, and what its lemma allows."""
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    styles = make_styles(LEARNERS)
    for term, ax in zip(TERMS, axes.flat, strict=True):
        _panel(ax, table, term, styles)
    for ax in axes[1]:
        ax.set_xlabel("episodes")
    for ax in axes[:, 0]:
        ax.set_ylabel("summed over episodes")
    legend_below(figure, *axes.flat)
    return figure


def _panel(ax: Axes, table: pd.DataFrame, term: str, styles: Mapping[str, object]) -> None:
    for learner in LEARNERS:
        colour = styles[learner].colour
        rows = table[table["learner"] == learner]
        curve = means(rows, ["episode"], term)
        ax.plot(curve["episode"], curve["mean"], color=colour, linewidth=1.8, label=learner)
        low, high = curve["mean"] - curve["half_width"], curve["mean"] + curve["half_width"]
        ax.fill_between(curve["episode"], low, high, color=colour, alpha=0.2, linewidth=0)
        bound = means(rows, ["episode"], f"{term} bound")
        ax.plot(bound["episode"], bound["mean"], color=colour, linewidth=1.4, dashes=(4, 2), label=f"{learner}: bound")
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=10.0)
    ax.axhline(0.0, color="0.4", linewidth=0.8)
    ax.set_title(term, fontsize=10)
    tidy(ax)
