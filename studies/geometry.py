"""Study 5: shape of the set, entropy, simplex of weights, radius: cost, widths, coverage, regret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.experiments.statistics import last_rows, mean_and_interval
from advmdp.report.figures import COLOURS
from advmdp.report.results import interval, number
from studies.common import Finding, complete, finding, means, paired, tidy

QUESTION = "How much do shape, entropy and radius of the sets matter, and how far can the radius shrink?"
ANSWER = "partly: narrower sets are better, even where they exclude the truth; shape and entropy hardly matter"
#: The worlds, by spec.
WORLDS = {"study-geometry": "mixture", "study-geometry-chain": "chain"}
SPECS = tuple(WORLDS)
BASE, KNOWN = "joint", "known transition"


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """After the last episode, one row per variant and seed; ``upper_ratio`` is u over the true occupancy."""
    columns = ["world", "variant", "seed", "regret", "width", "upper_ratio", "covered", "empty_sets", "milliseconds"]
    tables = []
    for spec, frame in frames.items():
        last = last_rows(frame)
        table = last.assign(world=WORLDS[spec], variant=[variant(row) for row in last.to_dict("records")])
        table["upper_ratio"] = table["upper_occupancy"] / table["true_occupancy"]
        tables.append(complete(table[columns], "variant"))
    return pd.concat(tables, ignore_index=True)


def variant(row: Mapping[str, object]) -> str:
    """A short name: in what it differs from ellipsoid, pairs, no simplex, joint radius."""
    if row["learner"] == "o-reps-bandit":
        return KNOWN
    # Options that a spec does not vary have no column.
    if row.get("learner.geometry") == "box":
        return f"{BASE}, box, {row['learner.entropy']}"
    if row.get("learner.simplex"):
        return f"{BASE}, simplex"
    scale = float(row["learner.radius_scale"])
    return str(row["learner.radius"]) if scale == 1.0 else f"{row['learner.radius']} x {scale:g}"


def scales(table: pd.DataFrame) -> dict[float, str]:
    """Variants that differ from the base in the scale of the radius only, largest first."""
    scaled = {float(name.split(" x ")[1]): name for name in table["variant"].unique() if " x " in name}
    return {1.0: BASE, **dict(sorted(scaled.items(), reverse=True))}


def findings(table: pd.DataFrame) -> list[Finding]:
    """Paired by seed with the base; regret as a share of the base's mean regret."""
    mixture, chain = (table[table["world"] == world] for world in WORLDS.values())
    by_scale = scales(mixture)
    mean_regret = mixture.groupby("variant")["regret"].mean()
    best = min(by_scale.values(), key=lambda name: mean_regret[name])
    found = [_against_base(mixture, name) for name in by_scale.values() if name != BASE]
    # The scale with the least regret first: that is the number of the study.
    found.sort(key=lambda f: f.name != f"regret, mixture, {best}")
    found += [_against_base(chain, name) for name in scales(chain).values() if name != BASE]
    found += [
        _against_base(mixture, "paper", quick=True),
        _against_base(mixture, "determinant"),
        _against_base(mixture, f"{BASE}, simplex"),
        _against_base(mixture, f"{BASE}, box, pairs"),
        _against_base(mixture, f"{BASE}, box, triples"),
        _against_base(mixture, KNOWN, quick=True),
        _against_base(chain, "paper"),
        _against_base(chain, KNOWN),
    ]
    for name in ("paper", "determinant", f"{BASE}, box, pairs", f"{BASE}, simplex"):
        ratio = paired(mixture, "variant", name, BASE, "width", log=True) / np.log(2.0)
        sentence = f"width of the sets of '{name}' over that of '{BASE}', in doublings (log2)"
        found.append(finding(f"width, {name}", sentence, ratio, quick=name == "paper"))
    for name in (f"{BASE}, simplex", f"{BASE}, box, pairs", f"{BASE}, box, triples"):
        # The runs of the first seed may have compiled kernels.
        later = mixture[mixture["seed"] > mixture["seed"].min()]
        ratio = paired(later, "variant", name, BASE, "milliseconds", log=True) / np.log(2.0)
        sentence = f"cost of an episode of '{name}' over that of '{BASE}', in doublings (log2)"
        found.append(finding(f"cost, {name}", sentence, ratio))
    for world, rows in table.groupby("world", sort=False):
        for name in scales(rows).values():
            excluded = 1.0 - rows.loc[rows["variant"] == name, "covered"]
            sentence = f"{world}: share of episodes of '{name}' whose set does not hold the truth"
            found.append(finding(f"excluded, {world}, {name}", sentence, excluded))
    return found


def _against_base(rows: pd.DataFrame, name: str, quick: bool = False) -> Finding:
    world = rows["world"].iloc[0]
    difference = paired(rows, "variant", name, BASE, "regret") / rows.loc[rows["variant"] == BASE, "regret"].mean()
    sentence = f"{world}: regret of '{name}' minus that of '{BASE}', over the latter"
    return finding(f"regret, {world}, {name}", sentence, difference, quick)


def results(table: pd.DataFrame) -> pd.DataFrame:
    """By world and variant, widest sets first."""
    rows = []
    for world, part in table.groupby("world", sort=False):
        for name in _widest_first(part):
            runs = part[part["variant"] == name]
            rows.append(
                {
                    "world": world,
                    "variant": name,
                    "seeds": len(runs),
                    "regret": interval(*mean_and_interval(runs["regret"])),
                    "width": number(runs["width"].mean()),
                    "u / occupancy": number(runs["upper_ratio"].mean()),
                    "episodes with truth in the set": f"{100.0 * runs['covered'].mean():.1f}%",
                    "empty sets": number(runs["empty_sets"].mean()),
                    "ms per episode": number(runs["milliseconds"].median()),
                }
            )
    return pd.DataFrame(rows)


def _widest_first(rows: pd.DataFrame) -> list[str]:
    widths = rows.groupby("variant")["width"].mean().sort_values(ascending=False)
    return [*(name for name in widths.index if name != KNOWN), KNOWN]


def draw(table: pd.DataFrame) -> Figure:
    """For each world a row per variant, widest sets first: regret against the base's, width, coverage."""
    parts = [table[table["world"] == world] for world in WORLDS.values()]
    heights = [part["variant"].nunique() for part in parts]
    figure = Figure(figsize=(6.4, 0.36 * sum(heights) + 1.4), layout="constrained")
    axes = figure.subplots(2, 3, sharex="col", sharey="row", width_ratios=[4, 3, 3], height_ratios=heights)
    for row, part in zip(axes, parts, strict=True):
        _draw_world(row, part)
    left, middle, right = axes[-1]
    left.set_xlabel(f"regret against\n{BASE}'s (%)")
    middle.set_xlabel("width of the set\nat the end (l1)")
    middle.set_xscale("log")
    right.set_xlabel("episodes with truth\nin the set (%)")
    return figure


def _draw_world(axes: Sequence[Axes], rows: pd.DataFrame) -> None:
    left, middle, right = axes
    base = rows.loc[rows["variant"] == BASE, "regret"].mean()
    widths = means(rows, ["variant"], "width").set_index("variant")
    covered = means(rows, ["variant"], "covered").set_index("variant")
    names = _widest_first(rows)[::-1]
    for place, name in enumerate(names):
        change = paired(rows, "variant", name, BASE, "regret") if name != BASE else [0.0, 0.0]
        mean, half = mean_and_interval(100.0 * np.asarray(change) / base)
        # Hollow where some sets did not hold the truth.
        whole = covered.loc[name, "mean"] == 1.0
        style = {"color": COLOURS[0], "marker": "o", "markersize": 5, "capsize": 3, "linewidth": 1.2}
        style["markerfacecolor"] = COLOURS[0] if whole else "white"
        left.errorbar(mean, place, xerr=half, **style)
        right.errorbar(100.0 * covered.loc[name, "mean"], place, xerr=100.0 * covered.loc[name, "half_width"], **style)
        if name != KNOWN:
            middle.errorbar(widths.loc[name, "mean"], place, xerr=widths.loc[name, "half_width"], **style)
    left.set_yticks(range(len(names)), names)
    left.set_title(rows["world"].iloc[0], loc="left", fontsize=10)
    left.axvline(0.0, color="0.4", linewidth=0.8)
    for ax in axes:
        tidy(ax)
