"""Matplotlib figures; functions that draw one panel take the axes to draw on."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp.experiments.statistics import mean_and_interval

#: Okabe and Ito's palette, which colour-blind readers can tell apart; line styles repeat the message.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")


def plot_regret(ax: Axes, frame: pd.DataFrame) -> None:
    """Mean regret of each learner over the episodes, with a band: the 95% Student-t interval over seeds.

    ``frame`` needs the columns learner, seed, episode and regret, for one world and adversary.
    """
    for number, (learner, runs) in enumerate(frame.groupby("learner", sort=False)):
        summary = runs.groupby("episode")["regret"].apply(mean_and_interval)
        mean = [value for value, _ in summary]
        half = [0.0 if width != width else width for _, width in summary]
        colour = COLOURS[number % len(COLOURS)]
        episodes = summary.index.to_numpy()
        ax.plot(
            episodes,
            mean,
            color=colour,
            linestyle=STYLES[number % len(STYLES)],
            linewidth=1.8,
            label=str(learner),
        )
        low = [m - h for m, h in zip(mean, half, strict=True)]
        high = [m + h for m, h in zip(mean, half, strict=True)]
        ax.fill_between(episodes, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.set_xlabel("episodes")
    ax.set_ylabel("regret")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def comparison_figure(frame: pd.DataFrame) -> Figure:
    """One panel of regret curves for every world and adversary, with one legend below all."""
    panels = list(frame.groupby(["world", "adversary"], sort=False))
    columns = min(3, math.ceil(math.sqrt(len(panels))))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for (key, group), ax in zip(panels, axes.flat, strict=False):
        plot_regret(ax, group)
        ax.set_title(" / ".join(str(part) for part in key), fontsize=11)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_axis_off()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), frameon=False)
    return figure
