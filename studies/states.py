"""Study 2: regression on all next states against regression on one, as layers grow at fixed H and d."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from advmdp.report.figures import COLOURS, legend_below
from advmdp.theory import bounds
from advmdp.worlds import make_world
from studies.common import (
    Finding,
    draw_ratio,
    excess_of_u,
    finding,
    over_sizes,
    read_spec,
    summed,
    world_option,
)

QUESTION = "Does the gap between regression on all next states and on one follow sqrt(S/H)?"
ANSWER = "not confirmed: sets are smaller, but the gap grows far slower, and hardly moves the regret"
SPECS = ("study-states", "study-states-worlds")
ALL, PRINTED, ONE = "vlsuob-reps-tight", "vlsuob-reps", "lsuob-reps"

#: Summed over episodes: what the lemmas bound, and what each is.
SUMMED = {
    "occupancy_difference": "occupancy difference of Lemma 3",
    "transition_error": "transition error",
    "width": "width of the set",
}
LAST = ["upper_occupancy", "true_occupancy", "regret"]


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run; ``seed`` is that of the world in the second spec, where it is what varies."""
    rows = []
    for spec, frame in frames.items():
        varied = "world" if spec == "study-states-worlds" else "losses"
        for cell, run in frame.groupby("cell", sort=False):
            last = run.iloc[-1]
            sizes = [int(size) for size in world_option(cell, "layer_sizes", "").split("-")]
            seed = int(world_option(cell, "seed", "0")) if varied == "world" else last["seed"]
            row = {"varied": varied, "S": sum(sizes), "H": len(sizes) - 1, "learner": last["learner"], "seed": seed}
            row |= {name: summed(run, name) for name in SUMMED} | {name: last[name] for name in LAST}
            rows.append(row | {"last_difference": last["occupancy_difference"]})
    return pd.DataFrame(rows)


def log_ratios(table: pd.DataFrame, column: str, learner: str, varied: str = "losses") -> pd.DataFrame:
    """log of what ``lsuob-reps`` has of it over what ``learner`` has: a row per seed, a column per S."""
    rows = table[table["varied"] == varied]
    wide = {name: part.pivot(index="seed", columns="S", values=column) for name, part in rows.groupby("learner")}
    ratios: pd.DataFrame = np.log(wide[ONE] / wide[learner])
    return ratios


def exponents(table: pd.DataFrame, column: str, varied: str = "losses") -> np.ndarray:
    """For each seed the exponent b of the gap ~ sqrt(S/H)^b, by least squares; the bounds have b = 1."""
    ratios = log_ratios(table, column, ALL, varied)
    return np.polyfit(_scale(table, ratios.columns), ratios.to_numpy().T, 1)[0]


def _scale(table: pd.DataFrame, sizes: pd.Index) -> np.ndarray:
    return 0.5 * np.log(sizes.to_numpy() / table["H"].iloc[0])


def findings(table: pd.DataFrame) -> list[Finding]:
    """Exponents first, then the gap at the largest S."""
    largest = table["S"].max()
    found = []
    for column, name in SUMMED.items():
        sentence = f"exponent of sqrt(S/H) in the gap, summed {name} (the bounds: 1)"
        found.append(finding(f"exponent, {name}", sentence, exponents(table, column)))
    sentence = "the same exponent in the last episode alone, occupancy difference"
    found.append(finding("exponent, last episode", sentence, exponents(table, "last_difference")))
    sentence = "the same exponent over ten worlds of every size, occupancy difference, K = 1,000"
    found.append(finding("exponent, worlds", sentence, exponents(table, "occupancy_difference", "world")))
    for column, name in SUMMED.items():
        for learner, radius in ((ALL, "joint"), (PRINTED, "printed")):
            ratio = log_ratios(table, column, learner)[largest]
            sentence = f"log of the summed {name}, one state over all ({radius} radius), largest S"
            found.append(finding(f"gap, {name}, {radius} radius", sentence, ratio, quick=True))
    table = table.assign(excess=excess_of_u(table, int(table["H"].iloc[0])))
    for learner, radius in ((ALL, "joint"), (PRINTED, "printed")):
        sentence = f"log of u over the true occupancy, last episode, one state over all ({radius} radius), largest S"
        found.append(finding(f"gap, u, {radius} radius", sentence, log_ratios(table, "excess", learner)[largest]))
    for learner, radius in ((ALL, "joint"), (PRINTED, "printed")):
        sentence = f"log of the regret, one state over all ({radius} radius), largest S"
        found.append(finding(f"gap, regret, {radius} radius", sentence, log_ratios(table, "regret", learner)[largest]))
    return found


def results(table: pd.DataFrame) -> pd.DataFrame:
    """One state over all states, for every S."""
    sizes, horizon = np.sort(table["S"].unique()), int(table["H"].iloc[0])
    lines = {
        "√(S/H)": np.sqrt(sizes / horizon),
        "explicit bounds on the widths, joint radius": _explicit(sizes, horizon),
    }
    shown = {"occupancy_difference": f"summed {SUMMED['occupancy_difference']}", "regret": "regret"}
    for column, name in shown.items():
        for learner, radius in ((ALL, "joint"), (PRINTED, "printed")):
            lines[f"{name}, {radius} radius"] = np.exp(log_ratios(table, column, learner).mean()).to_numpy()
    over = table.assign(excess=excess_of_u(table, horizon))
    over = over[over["varied"] == "losses"].groupby(["learner", "S"])["excess"].mean()
    for learner, name in ((ALL, "all states, joint radius"), (ONE, "one state")):
        lines[f"u / true occupancy, {name}"] = over[learner].to_numpy()
    cells = [[name, *(f"{value:.2f}" for value in values)] for name, values in lines.items()]
    return pd.DataFrame(
        cells, columns=["one state / all states (last rows: each by itself)", *(f"S = {S}" for S in sizes)]
    )


def draw(table: pd.DataFrame) -> Figure:
    """The gap in what Lemma 3 bounds, beside what the bounds say of it; and the gap in regret."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    difference, regret = figure.subplots(1, 2)
    sizes, horizon = np.sort(table["S"].unique()), int(table["H"].iloc[0])
    difference.plot(sizes, np.sqrt(sizes / horizon), color="0.3", dashes=(4, 2), label=r"$\sqrt{S/H}$")
    difference.plot(
        sizes, _explicit(sizes, horizon), color="0.3", dashes=(1, 1.5), label="explicit bounds, joint radius"
    )
    for ax, column in ((difference, "occupancy_difference"), (regret, "regret")):
        for colour, (learner, radius) in zip(COLOURS, ((ALL, "joint"), (PRINTED, "printed")), strict=False):
            draw_ratio(ax, log_ratios(table, column, learner), colour, f"measured, {radius} radius")
        over_sizes(ax, sizes, "states S")
    difference.set_title("occupancy difference,\none state / all states", fontsize=10)
    difference.set_yscale("log")
    difference.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    difference.minorticks_off()
    regret.set_title("regret,\none state / all states", fontsize=10)
    legend_below(figure, difference)
    return figure


def _explicit(sizes: np.ndarray, horizon: int) -> np.ndarray:
    """The ratio of explicit bounds, at the sizes of the study: of ERROR, which is a multiple of the summed widths."""
    # B of the worlds themselves: features are scaled to norm one, so that B falls as S grows.
    worlds = [make_world(world.name, **world.options).model for world in read_spec("study-states").worlds]
    bound_of = {model.n_states: model.bound for model in worlds}
    one, every = (
        np.array([dict(bound(int(S), 2, horizon, 10_000, 3, B=bound_of[S]).terms)["ERROR"] for S in sizes])
        for bound in (bounds.lsuob_reps, bounds.vlsuob_reps_tight)
    )
    ratio: np.ndarray = one / every
    return ratio
