"""Study 3: linear mixtures against tables, as A grows at fixed d and as d grows at fixed A."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.report.figures import COLOURS, legend_below
from advmdp.report.results import interval
from advmdp.theory import bounds
from studies.common import Finding, draw_ratio, finding, means, over_sizes, paired, summed, world_option

QUESTION = "Do linear mixtures begin to beat tables at d = sqrt(HA/S), as the bounds say?"
ANSWER = "not confirmed: mixtures win at every A and d tried, also at d = 32, 37 times where the bounds cross"
SPECS = ("study-actions", "study-actions-dim", "study-actions-printed")
LINEAR, PRINTED, TABLES = "vlsuob-reps-tight", "vlsuob-reps", "uob-reps"
SUMMED = ("width", "occupancy_difference")

#: Sizes of all worlds of the study (layers 1-3-3-1), and the failure probability of bounds.
S, H, ZETA = 8, 3, 0.05
#: Where the explicit bounds say something: at the K of the runs all of them exceed H K.
LONG = 1e10


def tabulate(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run; widths and occupancy differences are summed over episodes."""
    rows = []
    for frame in frames.values():
        for cell, run in frame.groupby("cell", sort=False):
            last = run.iloc[-1]
            sizes = {"A": int(world_option(cell, "n_actions", "4")), "d": int(world_option(cell, "dim", "3"))}
            sums = {name: summed(run, name) for name in SUMMED}
            rows.append(sizes | {"learner": last["learner"], "seed": last["seed"]} | sums | {"regret": last["regret"]})
    return pd.DataFrame(rows)


def findings(table: pd.DataFrame) -> list[Finding]:
    """Who wins where the bounds say that tables do; then how each depends on A, and on d."""
    few, many = table["A"].min(), table["A"].max()
    low = table["d"].min()
    found = []
    for value, what in (("regret", "regret"), ("width", "summed width of the sets")):
        for d, ratio in over_dim(table, value).items():
            sentence = f"log of the {what}, linear mixture over tables, at A = {few}, d = {d}"
            found.append(finding(f"{what}, few actions, d = {d}", sentence, ratio, quick=(value, d) == ("width", low)))
    across = table[table["d"] == low]
    for learner in (LINEAR, PRINTED):
        ratio = paired(across[across["A"] == many], "learner", learner, TABLES, "regret", log=True)
        sentence = f"log of the regret, {learner} over tables, at A = {many}, d = {low}"
        found.append(finding(f"regret, many actions, {learner}", sentence, ratio, quick=learner == LINEAR))
    for learner in (LINEAR, PRINTED, TABLES):
        wide = across[across["learner"] == learner].pivot(index="seed", columns="A", values="width")
        slopes = np.polyfit(np.log(wide.columns.to_numpy()), np.log(wide.to_numpy()).T, 1)[0]
        sentence = f"exponent of A in the summed width of the sets, {learner}, {few} to {many} actions"
        found.append(finding(f"exponent of A, {learner}", sentence, slopes))
    return found


def over_dim(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """At the fewest actions, the log of a learner's value, mixture over tables: a row per seed, a column per d."""
    rows = table[table["A"] == table["A"].min()]
    ratios = {d: paired(part, "learner", LINEAR, TABLES, value, log=True) for d, part in rows.groupby("d")}
    return pd.DataFrame(ratios)


def results(table: pd.DataFrame) -> pd.DataFrame:
    """For each A: up to which d the bound of mixtures is the smaller one, and who wins."""
    rows = table[table["d"] == table["d"].min()]
    sizes = [int(A) for A in np.sort(rows["A"].unique())]
    lines = {
        "d = √(HA/S)": [f"{sqrt(H * A / S):.2f}" for A in sizes],
        "d where the orders cross, second term kept": [f"{order_crossing(A):.2f}" for A in sizes],
    }
    for power in (8, 12):
        K = 10.0**power
        lines[f"d where explicit bounds cross, K = 10^{power}"] = [f"{explicit_crossing(A, K):.1f}" for A in sizes]
    for learner in (LINEAR, PRINTED, TABLES):
        regrets = means(rows[rows["learner"] == learner].sort_values("A"), ["A"], "regret")
        lines[f"regret, {learner}"] = [interval(*row) for row in regrets[["mean", "half_width"]].to_numpy()]
    for learner in (LINEAR, PRINTED):
        logs = [paired(rows[rows["A"] == A], "learner", learner, TABLES, "regret", log=True) for A in sizes]
        lines[f"regret, {learner} / {TABLES}"] = [f"{np.exp(each.mean()):.2f}" for each in logs]
    return pd.DataFrame([[name, *cells] for name, cells in lines.items()], columns=["", *(f"A = {A}" for A in sizes)])


# ----------------------------------------------------------------------------------- where the bounds cross


def order_crossing(A: float) -> float:
    """The d below which the order of VLSUOB-REPS's bound is the smaller one: sqrt(HA/S), less what A costs it."""
    return max(0.0, (H * S * sqrt(A) - sqrt(H * S * A)) / sqrt(H * S**3))


def explicit_crossing(A: int, K: float = LONG) -> float:
    """The same for bounds with constants, from one proof: ours for ``vlsuob-reps-tight``, and its twin for tables.

    The two differ in the widths only, of which ERROR is a multiple.
    """
    tables = bounds.error(bounds.expected_width(table_widths(A, K), H, ZETA, H - 1), H)
    low, high = 1.0, 1e6
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        smaller = dict(bounds.vlsuob_reps_tight(S, A, H, K, middle, ZETA).terms)["ERROR"] <= tables
        low, high = (middle, high) if smaller else (low, middle)
    return low


def table_widths(A: int, K: float) -> float:
    """Step 4 of the proof in ``docs/theory.md`` for UOB-REPS: a bound on the summed widths at visited pairs.

    Two rows of a Bernstein box differ by at most twice its half-widths: with N visits before the epoch, m next states
    and L = log(K S A / zeta), e <= 4 sqrt(m L / max(1, N - 1)) + 28 m L / (3 max(1, N - 1)).  Epochs double, so that
    after n >= 1 visits N >= (n + 1) / 2, and max(1, N - 1) >= (n + 1) / 4.  Summed over the visits of a pair, over the
    pairs of a layer (Cauchy-Schwarz) and over layers, sum_h sqrt(S_h S_{h+1}) <= S; and 2 for each first visit.
    """
    confidence = log(K * S * A / ZETA)
    root = 16.0 * S * sqrt(A * K * confidence)
    return root + 112.0 / 3.0 * S**2 * A * confidence * log(K) + 2.0 * S * A


# ----------------------------------------------------------------------------------------------- the figure


def draw(table: pd.DataFrame) -> Figure:
    """Over A, and below it over d: the regret of mixtures over that of tables, with the crossing; and the sets."""
    figure = Figure(figsize=(6.4, 7.0), layout="constrained")
    above, below = figure.subplots(2, 2)
    few, low = table["A"].min(), table["d"].min()
    draw_line(above, table[table["d"] == low], "A", f"actions A (d = {low})", low**2 * S / H)
    draw_line(below, table[table["A"] == few], "d", f"base kernels d (A = {few})", sqrt(H * few / S))
    above[0].set_title("regret,\nmixtures / tables", fontsize=10)
    above[1].set_title("width of the sets,\nsummed over episodes", fontsize=10)
    legend_below(figure, *above)
    return figure


def draw_line(axes: Sequence[Axes], rows: pd.DataFrame, size: str, label: str, crossing: float) -> None:
    """Ratios of regrets and summed widths over A or d; ``crossing``: where the orders of the bounds are equal."""
    regret, width = axes
    sizes = np.sort(rows[size].unique())
    by_learner = rows.groupby("learner")
    regrets = {name: part.pivot(index="seed", columns=size, values="regret") for name, part in by_learner}
    for colour, learner in zip(COLOURS, (LINEAR, PRINTED, TABLES), strict=False):
        # The printed radius was not run at every d.
        if learner not in regrets or len(regrets[learner].columns) < len(sizes):
            continue
        if learner != TABLES:
            draw_ratio(regret, np.log(regrets[learner] / regrets[TABLES]), colour, learner)
        sums = means(by_learner.get_group(learner), [size], "width")
        width.errorbar(sums[size], sums["mean"], yerr=sums["half_width"], color=colour, marker="o", label=learner)
    regret.axvline(crossing, color="0.3", dashes=(4, 2), label=r"$d = \sqrt{HA/S}$")
    over_sizes(regret, sizes, label)
    over_sizes(width, sizes, label, ratio=False)
    width.set_ylim(0.0)
