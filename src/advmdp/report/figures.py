"""Matplotlib figures; functions that draw one panel take the axes to draw on and change nothing else.

A panel of curves takes a frame of runs on one world against one adversary, and draws means over seeds with bands: the
95% Student-t intervals of :mod:`advmdp.experiments.statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from advmdp.errors import InvalidSpecError
from advmdp.experiments.statistics import (
    ROUNDING,
    growth_exponents,
    learners_of,
    mean_curves,
    performance_profile,
    telling_bounds,
)
from advmdp.scene import Scene
from advmdp.theory.decomposition import TERMS

#: Okabe and Ito's palette, which colour-blind readers can tell apart; the dashes repeat the message.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9")
DASHES: tuple[tuple[float, ...], ...] = ((), (5.0, 2.0), (5.0, 2.0, 1.0, 2.0), (1.2, 1.2))

#: Rows of a heat map that have names; where there are more states, they have numbers.
_MOST_NAMES = 64


class Style(NamedTuple):
    """How the curve of one learner looks; dashes are lengths on and off, in line widths."""

    colour: str
    dashes: tuple[float, ...]


#: Learner -> style.  Made once for all panels of a figure, so that a learner looks the same in each.
Styles = Mapping[str, Style]


def make_styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for every name; the first 28 differ."""
    distinct = dict.fromkeys(names)
    return {name: Style(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]) for i, name in enumerate(distinct)}


# --------------------------------------------------------------------------------------- curves of learners


def plot_regret(
    ax: Axes, frame: pd.DataFrame, styles: Styles | None = None, *, bounds: bool = False, horizon: int | None = None
) -> None:
    """Mean regret of each learner over the episodes, with its band.

    With ``bounds``, also proved bounds (column ``bound``) where they are below H k, the most that can be lost, as far
    as they are in the picture, which is fitted to the curves.  Sentences under the axis name the others.  H is the
    ``horizon`` of the world, which frames do not hold.
    """
    styles = make_styles(learners_of(frame)) if styles is None else styles
    _plot_curves(ax, frame, "regret", styles)
    ax.set_ylabel("regret")
    if bounds:
        _plot_bounds(ax, frame, styles, horizon)
    _count_ticks(ax)


def plot_regret_over_sqrt(ax: Axes, frame: pd.DataFrame, styles: Styles | None = None) -> None:
    """Regret over the square root of the episodes: flat where it grows as theory says, rising where it is linear."""
    scaled = frame.assign(regret=frame["regret"] / np.sqrt(frame["episode"]))
    _plot_curves(ax, scaled, "regret", styles)
    ax.set_ylabel(r"regret / $\sqrt{k}$")
    ax.set_xscale("log")


def plot_growth(ax: Axes, frame: pd.DataFrame, styles: Styles | None = None, since: float = 0.1) -> None:
    """Regret on logarithmic axes, with the fitted power laws and their exponents beside them."""
    styles = make_styles(learners_of(frame)) if styles is None else styles
    _plot_curves(ax, frame, "regret", styles, band=False, positive=True)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylabel("regret")
    last = int(frame["episode"].max())
    ends, labels, colours = [], [], []
    for fit in growth_exponents(frame, since).to_dict("records"):
        if math.isnan(fit["exponent"]):
            continue
        ends_of_line = np.array([max(1.0, since * last), last])
        heights = fit["scale"] * ends_of_line ** fit["exponent"]
        colour = styles[fit["learner"]].colour
        ax.plot(ends_of_line, heights, color=colour, linewidth=4.0, alpha=0.3, solid_capstyle="butt")
        interval = "" if math.isnan(fit["half_width"]) else f" ± {fit['half_width']:.2f}"
        ends.append(heights[-1])
        labels.append(f"{fit['exponent']:.2f}{interval}")
        colours.append(colour)
    _label_ends(ax, last, ends, labels, colours)


def plot_width(ax: Axes, frame: pd.DataFrame, styles: Styles | None = None) -> None:
    """Width of the confidence sets over the episodes (column ``width``), on logarithmic axes."""
    _need(frame, "width")
    _plot_curves(ax, frame, "width", styles, positive=True)
    ax.set_ylabel("width of the confidence set")
    ax.set_xscale("log")
    ax.set_yscale("log")


def plot_upper_occupancy(ax: Axes, frame: pd.DataFrame, styles: Styles | None = None) -> None:
    """How many times the true probability of a visit the upper bound u is (``upper_occupancy``, ``true_occupancy``).

    One is a known transition; the loss estimates are too small by this factor.
    """
    _need(frame, "upper_occupancy", "true_occupancy")
    ratio = frame.assign(ratio=frame["upper_occupancy"] / frame["true_occupancy"])
    _plot_curves(ax, ratio, "ratio", styles)
    ax.axhline(1.0, color="0.4", linewidth=0.8)
    ax.set_ylabel("u / true occupancy")
    ax.set_xscale("log")


def plot_decomposition(ax: Axes, frame: pd.DataFrame) -> None:
    """The regret of one learner and the four parts that sum to it (columns of ``theory.decomposition``)."""
    _need(frame, *TERMS)
    names = learners_of(frame)
    if len(names) != 1:
        raise InvalidSpecError(f"a decomposition is of one learner, the frame has {names}")
    parts = pd.concat(
        [
            frame[["world", "adversary", "seed", "episode"]].assign(regret=frame[column], learner=column)
            for column in ("regret", *TERMS)
        ]
    )
    _plot_curves(ax, parts, "regret", None)
    ax.axhline(0.0, color="0.4", linewidth=0.8)
    ax.set_ylabel("parts of the regret")
    _count_ticks(ax)


def plot_profile(ax: Axes, frame: pd.DataFrame, styles: Styles | None = None, reference: str = "uniform") -> None:
    """Share of all runs, over all worlds, with regret at most so many times the reference's; further left is better."""
    styles = make_styles(learners_of(frame)) if styles is None else styles
    profile = performance_profile(frame, reference)
    if profile.empty:
        raise InvalidSpecError(f"no problem and seed on which every learner ran and {reference!r} had regret")
    right = 1.05 * max(1.0, float(profile["ratio"].max()))
    left = min(0.0, 1.05 * float(profile["ratio"].min()))
    for learner, steps in profile.groupby("learner", sort=False):
        style = styles[str(learner)]
        ends = steps.iloc[-1]
        _line(
            ax,
            [left, *steps["ratio"], right],
            [0.0, *steps["share"], ends["share"]],
            style,
            str(learner),
            drawstyle="steps-post",
        )
    ax.set_xlim(left, right)
    ax.set_ylim(0.0, 1.02)
    ax.set_xlabel(f"regret, as a multiple of that of {reference}")
    # Bands of so many steps would hide one another, so their greatest width is told instead.
    half = float((profile["high"] - profile["low"]).max()) / 2.0
    ax.set_ylabel("share of runs at or below")
    ax.set_title(f"{profile['runs'].max()} runs each, 95% intervals up to ±{half:.2f}", fontsize=9, loc="left")
    _tidy(ax)


# ----------------------------------------------------------------------------------- tables over the layers


def plot_policy(
    ax: Axes, policy: Sequence[ArrayLike], available: Sequence[ArrayLike] | None = None, scene: Scene | None = None
) -> None:
    """A policy, a list over layers of ``(S_h, A)``, as a heat map: a row per state, a column per action.

    With the masks of a world, unavailable actions are crossed out.  With its scene, states of one name share a row.
    """
    _heat_map(ax, policy, Normalize(0.0, 1.0), "probability of the action", available, scene)


def plot_occupancy(
    ax: Axes,
    occupancy: Sequence[ArrayLike],
    floor: float = 1e-3,
    available: Sequence[ArrayLike] | None = None,
    scene: Scene | None = None,
) -> None:
    """An occupancy measure, ``(S_h, A)`` per layer, as :func:`plot_policy` has it; logarithmic from ``floor``."""
    # A logarithm of zero would be left out like a pair that does not exist.
    positive = [np.maximum(np.asarray(table, dtype=np.float64), 0.5 * floor) for table in occupancy]
    _heat_map(ax, positive, LogNorm(floor, 1.0), "probability of the pair", available, scene)


# ------------------------------------------------------------------------------------------ whole figures


def comparison_figure(frame: pd.DataFrame, draw: Callable[[Axes, pd.DataFrame, Styles], None] = plot_regret) -> Figure:
    """One panel for every world and adversary, by default of regret, with one legend below all."""
    problems = list(frame.groupby(["world", "adversary"], sort=False))
    styles = make_styles(learners_of(frame))
    columns = min(3, math.ceil(math.sqrt(len(problems))))
    rows = -(-len(problems) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for (key, group), ax in zip(problems, axes.flat, strict=False):
        draw(ax, group, styles)
        ax.set_title(" / ".join(str(part) for part in key), fontsize=11)
    for ax in list(axes.flat)[len(problems) :]:
        ax.set_axis_off()
    legend_below(figure, *axes.flat)
    return figure


def legend_below(figure: Figure, *axes: Axes) -> None:
    """One legend for all these axes, under them, with as many columns as fit."""
    handles: dict[str, Any] = {}
    for ax in axes:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    if handles:
        longest = max(len(label) for label in handles)
        rows = math.ceil(len(handles) / max(1.0, figure.get_figwidth() * 13 // (longest + 6)))
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=math.ceil(len(handles) / rows),
            frameon=False,
            handlelength=3.0,
        )


# ------------------------------------------------------------------------------------------------ parts


def _plot_curves(
    ax: Axes, frame: pd.DataFrame, column: str, styles: Styles | None, *, band: bool = True, positive: bool = False
) -> None:
    styles = make_styles(learners_of(frame)) if styles is None else styles
    for learner, curve in mean_curves(frame, column).groupby("learner", sort=False):
        if positive:  # for a logarithm; means are left out, not seeds, which would make the mean another one
            curve = curve[curve["mean"] > ROUNDING * curve["episode"]]
            if curve.empty:
                continue
        style = styles[str(learner)]
        episodes, mean = curve["episode"].to_numpy(), curve["mean"].to_numpy()
        _line(ax, episodes, mean, style, str(learner))
        if band and curve["half_width"].notna().any():
            half = curve["half_width"].to_numpy()
            ax.fill_between(episodes, mean - half, mean + half, color=style.colour, alpha=0.1, linewidth=0)
            # Where many bands overlap their edges still tell them apart.
            for edge in (mean - half, mean + half):
                ax.plot(episodes, edge, color=style.colour, linewidth=0.5, alpha=0.6)
    ax.set_xlabel("episodes")
    _tidy(ax)


def _plot_bounds(ax: Axes, frame: pd.DataFrame, styles: Styles, horizon: int | None) -> None:
    """Most theorems speak of the last episode alone: a single point."""
    if horizon is None:
        raise InvalidSpecError("bounds=True needs horizon, that of the world: a bound above H k says nothing")
    _need(frame, "bound")
    telling, vacuous = telling_bounds(frame, horizon)
    bottom, top = ax.get_ylim()
    above = []
    for learner, told in telling.groupby("learner", sort=False):
        if (told["bound"] <= top).any():
            style = Style(styles[str(learner)].colour, (1.0, 1.5))
            _line(ax, told["episode"], told["bound"], style, f"{learner}, proved", marker="v", markersize=4)
        if told["bound"].iloc[-1] > top:
            above.append(f"{learner} ({told['bound'].iloc[-1] / top:.2g} times its top)" if top > 0.0 else str(learner))
    ax.set_ylim(bottom, top)
    no_bound = "No bound is proved for these learners." if telling.empty else "No proved bound is vacuous."
    sentence = f"Vacuous, at least H k, are the proved bounds of {', '.join(vacuous)}." if vacuous else no_bound
    sentence += f" Above the picture: the proved bounds of {', '.join(above)}." if above else ""
    ax.set_xlabel("episodes\n" + "\n".join(wrap(sentence.replace("$", r"\$"), 60)))


def _line(ax: Axes, x: ArrayLike, y: ArrayLike, style: Style, label: str, **options: Any) -> None:
    pattern: Any = (0, style.dashes) if style.dashes else "-"
    # Markup of matplotlib's own must not be read out of a label.
    ax.plot(x, y, color=style.colour, linestyle=pattern, linewidth=1.7, label=label.replace("$", r"\$"), **options)


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def _count_ticks(ax: Axes) -> None:
    """Thousands with commas, and few of them."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], min_n_ticks=4))
        low, high = axis.get_view_interval()
        if max(abs(low), abs(high)) >= 10.0:
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _label_ends(ax: Axes, x: float, heights: list[float], labels: list[str], colours: list[str]) -> None:
    """Texts to the right of the ends of curves, pushed apart where they would overlap."""
    if not heights:
        return
    transform = ax.transAxes.inverted().transform
    wanted = [float(transform(ax.transData.transform((x, height)))[1]) for height in heights]
    for i, position in zip(np.argsort(wanted), spread(sorted(wanted), 0.075), strict=True):
        ax.annotate(labels[i], (1.02, position), xycoords="axes fraction", color=colours[i], fontsize=8, va="center")


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Increasing positions, moved as little as possible (in squares) to be ``gap`` apart and within [0, 1]."""
    offsets = gap * np.arange(len(positions))
    increasing = isotonic_regression(np.asarray(positions) - offsets).x
    return [float(x) for x in np.clip(increasing, 0.0, max(0.0, 1.0 - offsets[-1])) + offsets]


def _named_rows(scene: Scene | None, n_layers: int) -> dict[Any, int] | None:
    """The row of each name, numbers last and in order; None where there are none, too many, or not one for each."""
    layers = [] if scene is None or scene.states is None else scene.states[:n_layers]
    names = sorted(
        dict.fromkeys(name for layer in layers for name in layer),
        key=lambda name: (1, name) if isinstance(name, int) else (0, 0),
    )
    if not 0 < len(names) <= _MOST_NAMES or any(len(set(layer)) < len(layer) for layer in layers):
        return None
    return {name: row for row, name in enumerate(names)}


def _heat_map(
    ax: Axes,
    tables: Sequence[ArrayLike],
    norm: Normalize,
    label: str,
    available: Sequence[ArrayLike] | None,
    scene: Scene | None,
) -> None:
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    named = _named_rows(scene, len(arrays))
    n_actions = arrays[0].shape[1]
    height = max(len(array) for array in arrays) if named is None else len(named)
    block = n_actions + 1
    grid = np.full((height, block * len(arrays) - 1), np.nan)
    for h, array in enumerate(arrays):
        rows = np.arange(len(array))
        if named is not None and scene is not None and scene.states is not None:
            rows = np.array([named[name] for name in scene.states[h]])
        grid[rows, h * block : h * block + n_actions] = array
        if available is not None:
            states, actions = np.nonzero(~np.asarray(available[h], dtype=np.bool_))
            grid[rows[states], h * block + actions] = np.nan
            ax.plot(h * block + actions, rows[states], linestyle="", marker="x", markersize=3, color="#b8b8b8")
    image = ax.imshow(grid, norm=norm, cmap="cividis", aspect="auto", interpolation="nearest")
    shown = range(0, len(arrays), math.ceil(len(arrays) / 12))
    ax.set_xticks([h * block + (n_actions - 1) / 2 for h in shown], [str(h) for h in shown])
    if named is None:
        ax.yaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set_ylabel("state")
    else:
        told = list(named)[:: math.ceil(height / 24)]
        texts = [name if len(name) <= 18 else f"{name[:17]}…" for name in map(str, told)]
        ax.set_yticks([named[name] for name in told], [text.replace("$", r"\$") for text in texts])
        ax.tick_params(axis="y", labelsize=7 if len(told) <= 16 else 5)
    names = ", ".join((scene and scene.actions) or ())
    columns = f"columns: {names}" if 0 < len(names) <= 40 else f"{n_actions} actions each"
    ax.set_xlabel(f"layer ({columns})".replace("$", r"\$"))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.figure.colorbar(image, ax=ax, label=label, extend="min" if isinstance(norm, LogNorm) else "neither")


def _need(frame: pd.DataFrame, *columns: str) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InvalidSpecError(
            f"the frame lacks the columns {missing}: was the experiment run with measures that write them?"
        )
