"""Study 5: shape of the set, entropy, simplex of weights, radius: cost, widths, coverage, regret."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows, mean_and_interval
from advmdp.report.figures import COLOURS
from advmdp.report.results import interval, number
from studies.common import Finding, complete, excess_of_u, finding, means, model_of, paired, tidy

QUESTION = "How much do shape, entropy and radius of the sets matter?"
ANSWER = "partly: narrower sets are better, even without the truth; shape and entropy hardly matter"
SPECS = ("study-geometry",)
BASE, KNOWN = "joint", "known transition"


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """After the last episode, one row per variant and seed; ``upper_ratio``: u over true occupancy, but the start."""
    last = last_rows(frames["study-geometry"])
    table = last.assign(variant=[variant(row) for row in last.to_dict("records")])
    table["upper_ratio"] = excess_of_u(table, model_of("study-geometry").horizon)
    columns = ["variant", "seed", "regret", "width", "upper_ratio", "covered", "empty_sets", "milliseconds"]
    return complete(table[columns], "variant").reset_index(drop=True)


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
        # The runs of the first seed may have compiled kernels.
        later = table[table["seed"] > table["seed"].min()]
        ratio = paired(later, "variant", name, BASE, "milliseconds", log=True) / np.log(2.0)
        sentence = f"cost of an episode of '{name}' over that of '{BASE}', in doublings (log2)"
        found.append(finding(f"cost, {name}", sentence, ratio))
    for name in by_scale.values():
        excluded = 1.0 - table.loc[table["variant"] == name, "covered"]
        sentence = f"share of episodes of '{name}' whose set does not hold the truth"
        found.append(finding(f"excluded, {name}", sentence, excluded))
    return found


def results(table: pd.DataFrame) -> pd.DataFrame:
    """By variant, widest sets first."""
    rows = []
    widest = table.groupby("variant")["width"].mean().sort_values(ascending=False, na_position="last").index
    for name in widest:
        runs = table[table["variant"] == name]
        rows.append(
            {
                "variant": name,
                "regret": interval(*mean_and_interval(runs["regret"])),
                "width": number(runs["width"].mean()),
                "episodes with truth in the set": f"{100.0 * runs['covered'].mean():.1f}%",
            }
        )
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> Figure:
    """A row per variant, widest sets first: regret against the base's, width, coverage."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True, width_ratios=[4, 3, 3])
    base = table.loc[table["variant"] == BASE, "regret"].mean()
    widths = means(table, ["variant"], "width").set_index("variant")
    covered = means(table, ["variant"], "covered").set_index("variant")
    names = [KNOWN, *(name for name in widths["mean"].sort_values().index if name != KNOWN)]
    for row, name in enumerate(names):
        change = paired(table, "variant", name, BASE, "regret") if name != BASE else [0.0, 0.0]
        mean, half = mean_and_interval(100.0 * np.asarray(change) / base)
        # Hollow where some sets did not hold the truth.
        whole = covered.loc[name, "mean"] == 1.0
        style = {"color": COLOURS[0], "marker": "o", "markersize": 5, "capsize": 3, "linewidth": 1.2}
        style["markerfacecolor"] = COLOURS[0] if whole else "white"
        left.errorbar(mean, row, xerr=half, **style)
        right.errorbar(100.0 * covered.loc[name, "mean"], row, xerr=100.0 * covered.loc[name, "half_width"], **style)
        if name != KNOWN:
            middle.errorbar(widths.loc[name, "mean"], row, xerr=widths.loc[name, "half_width"], **style)
    left.set_yticks(range(len(names)), names)
    left.axvline(0.0, color="0.4", linewidth=0.8)
    left.set_xlabel(f"regret against\n{BASE}'s (%)")
    middle.set_xlabel("width of the set\nat the end (l1)")
    middle.set_xscale("log")
    right.set_xlabel("episodes with truth\nin the set (%)")
    for ax in (left, middle, right):
        tidy(ax)
    return figure
