"""Study 5: shape of the set, entropy, simplex of weights, radius: cost, widths, coverage, regret."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows
from advmdp.report.figures import COLOURS
from studies.common import Finding, finding, means, paired, tidy

QUESTION = "How much do shape, entropy and radius of the sets matter, and how far can the radius shrink?"
ANSWER = "open: no full run yet"
SPECS = ("study-geometry",)
BASE, KNOWN = "joint", "known transition"


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """After the last episode, one row per variant and seed; ``upper_ratio`` is u over the true occupancy."""
    last = last_rows(frames["study-geometry"])
    table = last.assign(variant=[variant(row) for row in last.to_dict("records")])
    table["upper_ratio"] = table["upper_occupancy"] / table["true_occupancy"]
    columns = ["variant", "seed", "regret", "width", "upper_ratio", "covered", "empty_sets", "milliseconds"]
    return table[columns].reset_index(drop=True)


def variant(row: Mapping[str, object]) -> str:
    """A short name: in what it differs from ellipsoid, pairs, no simplex, joint radius."""
    if row["learner"] == "o-reps-bandit":
        return KNOWN
    if row["learner.geometry"] == "box":
        return f"{BASE}, box, {row['learner.entropy']}"
    if row["learner.simplex"]:
        return f"{BASE}, simplex"
    scale = float(row["learner.radius_scale"])
    return str(row["learner.radius"]) if scale == 1.0 else f"{row['learner.radius']} x {scale:g}"


def scales(table: pd.DataFrame) -> dict[float, str]:
    """Variants that differ from the base in the scale of the radius only, largest first."""
    scaled = {float(name.split(" x ")[1]): name for name in table["variant"].unique() if " x " in name}
    return {1.0: BASE, **dict(sorted(scaled.items(), reverse=True))}


def findings(table: pd.DataFrame) -> list[Finding]:
    """Paired by seed with the base; regret as a share of the base's mean regret."""
    regret = table.loc[table["variant"] == BASE, "regret"].mean()

    def against(name: str, quick: bool = False) -> Finding:
        difference = paired(table, "variant", name, BASE, "regret") / regret
        sentence = f"regret of '{name}' minus that of '{BASE}' (ellipsoid, pairs, no simplex), over the latter"
        return finding(f"regret, {name}", sentence, difference, quick)

    by_scale = scales(table)
    mean_regret = table.groupby("variant")["regret"].mean()
    best = min(by_scale.values(), key=lambda name: mean_regret[name])
    found = [against(name) for name in by_scale.values() if name != BASE]
    # The scale with the least regret first: that is the number of the study.
    found.sort(key=lambda f: f.name != f"regret, {best}")
    found += [
        against("paper", quick=True),
        against("determinant"),
        against(f"{BASE}, simplex"),
        against(f"{BASE}, box, pairs"),
        against(f"{BASE}, box, triples"),
        against(KNOWN, quick=True),
    ]
    for name, other in (("paper", BASE), ("determinant", BASE), (f"{BASE}, box, pairs", BASE)):
        ratio = paired(table, "variant", name, other, "width", log=True) / np.log(2.0)
        sentence = f"width of the sets of '{name}' over that of '{other}', in doublings (log2)"
        found.append(finding(f"width, {name}", sentence, ratio, quick=name == "paper"))
    for name in (f"{BASE}, simplex", f"{BASE}, box, pairs", f"{BASE}, box, triples"):
        ratio = paired(table, "variant", name, BASE, "milliseconds", log=True) / np.log(2.0)
        sentence = f"cost of an episode of '{name}' over that of '{BASE}', in doublings (log2)"
        found.append(finding(f"cost, {name}", sentence, ratio))
    for name in by_scale.values():
        excluded = 1.0 - table.loc[table["variant"] == name, "covered"]
        sentence = f"share of episodes of '{name}' whose set does not hold the truth"
        found.append(finding(f"excluded, {name}", sentence, excluded))
    return found


def draw(table: pd.DataFrame) -> Figure:
    """Against the width of the sets: regret, and how often the truth was in the set."""
    figure = Figure(figsize=(5.2, 6.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    regret = means(table, ["variant"], "regret").set_index("variant")
    width = means(table, ["variant"], "width").set_index("variant")["mean"]
    covered = means(table, ["variant"], "covered").set_index("variant")
    ladder = [name for name in ["paper", "determinant", *scales(table).values()] if name in width]
    top.plot(width[ladder], regret.loc[ladder, "mean"], color=COLOURS[0], linewidth=1.0, alpha=0.5, zorder=1)
    for name in width.index:
        whole = covered.loc[name, "mean"] == 1.0
        colour = COLOURS[0] if name in ladder else COLOURS[1]
        for ax, values in ((top, regret), (bottom, covered)):
            ax.errorbar(
                width[name],
                values.loc[name, "mean"],
                values.loc[name, "half_width"],
                color=colour,
                marker="o" if name in ladder else "s",
                markersize=6,
                markerfacecolor=colour if whole else "white",
                capsize=3,
                linewidth=1.2,
            )
        offset = (6, 7) if name in ladder else (6, -13)
        top.annotate(
            name, (width[name], regret.loc[name, "mean"]), xytext=offset, textcoords="offset points", fontsize=8
        )
    mean, half = regret.loc[KNOWN]
    top.axhspan(mean - half, mean + half, color=COLOURS[2], alpha=0.2, linewidth=0)
    top.axhline(mean, color=COLOURS[2], linewidth=1.2, dashes=(4, 2))
    top.annotate(KNOWN, (0.99, mean), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    top.set_ylabel("regret after the last episode")
    bottom.set_ylabel("share of episodes\nwith the truth in the set")
    bottom.set_xlabel("width of the set at the end (l1, along the policy)")
    bottom.set_xscale("log")
    bottom.set_ylim(-0.05, 1.05)
    for ax in (top, bottom):
        tidy(ax)
    return figure
