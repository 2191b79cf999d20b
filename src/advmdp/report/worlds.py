"""Drawings of worlds: layers from left to right, or the map where there is one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
from numpy.typing import ArrayLike

from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, SparseRows
from advmdp.occupancy import occupancy_measure
from advmdp.report.figures import COLOURS

_FLOW = COLOURS[1]
_INK = "#1a1a1a"
#: How often a state is visited: from paper to the palette's blue.
_VISITS = LinearSegmentedColormap.from_list("visits", ["#ffffff", "#56B4E9"])
#: Up to so many edges per state, those that the policy leaves aside are shown as well.
_SPARSE = 3
#: More states, or cells of a map, cannot be told apart.
_MOST_STATES = 2500
_WATER, _ICE, _GOAL = "#0b3c5d", "#eaf4fb", "#009E73"
#: What names of actions mean on a map: columns to the right, rows down.
_DIRECTIONS = {
    **dict.fromkeys(("left", "west"), (-1, 0)),
    **dict.fromkeys(("right", "east"), (1, 0)),
    **dict.fromkeys(("up", "north"), (0, -1)),
    **dict.fromkeys(("down", "south"), (0, 1)),
}


def draw_world(mdp: LayeredMDP, ax: Axes | None = None, policy: Sequence[ArrayLike] | None = None) -> Axes:
    """Draw a world as a policy sees it.

    The wider an edge, the more probable that the policy takes it; the darker a state, the more often it is visited.
    Layers go from left to right.  Where edges are few, as in a network, those that the policy leaves aside are grey.
    A world with a map (``grid``, ``frozen-lake``) is drawn as that map, all layers on top of each other: a black arrow
    in a cell is what the policy does there on average, a number in a hole or at the goal is the probability to end
    there.

    Parameters
    ----------
    mdp
        Readable up to about 60 states, or 100 cells; more than 2500 are refused.
    ax
        Where to draw; by default a new figure of a size that fits (``ax.figure``).
    policy
        A list over layers of ``(S_h, A)``; by default the uniform one, and no arrows for it.
    """
    played = mdp.layers.split(mdp.layers.uniform_policy) if policy is None else policy
    q = occupancy_measure(mdp, played)
    if mdp.scene.map is not None and mdp.scene.states is not None:
        return _draw_map(mdp, ax, q, arrows=policy is not None)
    return _draw_layers(mdp, ax, q)


def _flows(mdp: LayeredMDP, q: Sequence[FloatArray]) -> list[FloatArray]:
    """Probability that each transition is made: per layer ``(S_h, S_{h+1})``."""
    return [np.einsum("sa,sat->st", pairs, np.asarray(kernel)) for pairs, kernel in zip(q, mdp.kernels, strict=True)]


# -------------------------------------------------------------------------------------------- layers


def _draw_layers(mdp: LayeredMDP, ax: Axes | None, q: Sequence[FloatArray]) -> Axes:
    if mdp.n_states > _MOST_STATES:
        raise InvalidSpecError(
            f"a drawing of {mdp.n_states} states would show nothing: draw a smaller world, of at most {_MOST_STATES}"
        )
    sizes, tallest = mdp.layer_sizes, max(mdp.layer_sizes)
    names = _state_names(mdp)
    if ax is None:
        longest = max(len(name) for layer in names for name in layer)
        width = min(max((0.75 + 0.055 * longest) * len(sizes), 5.0), 16.0)
        figure = Figure(figsize=(width, min(max(0.5 * tallest, 2.0), 9.0) + 0.4), layout="constrained")
        ax = figure.subplots()
    # Layers are centred, narrow ones spread a little.
    places = [tallest / 2 + (np.arange(n) - (n - 1) / 2) * min(tallest / n, 1.6) for n in sizes]

    flows = _flows(mdp, q)
    edges = sorted((flow[s, t], h, s, t) for h, flow in enumerate(flows) for s, t in np.argwhere(flow > 1e-3))
    spare = [
        (h, s, t)
        for h, (kernel, flow) in enumerate(zip(mdp.kernels, flows, strict=True))
        for s, t in np.argwhere((np.asarray(kernel).max(axis=1) > 0.0) & (flow <= 1e-3))
    ]
    if len(spare) + len(edges) <= _SPARSE * mdp.n_states:
        segments = [[(h, places[h][s]), (h + 1, places[h + 1][t])] for h, s, t in spare]
        ax.add_collection(LineCollection(segments, linewidths=0.5, colors="#d5d5d5", zorder=0))
    ax.add_collection(
        LineCollection(
            [[(h, places[h][s]), (h + 1, places[h + 1][t])] for _, h, s, t in edges],
            linewidths=[0.4 + 7.0 * flow for flow, *_ in edges],
            colors=_FLOW,
            alpha=[min(0.3 + 1.5 * flow, 0.9) for flow, *_ in edges],
            capstyle="round",
            zorder=1,
        )
    )
    visits = [*(pairs.sum(axis=1) for pairs in q), np.ones(1)]
    height = ax.get_window_extent().height * 72.0 / ax.figure.dpi
    diameter = min(max(0.6 * height / (tallest + 0.6), 3.0), 22.0)
    for h, layer in enumerate(names):
        ax.scatter(
            np.full(len(layer), h),
            places[h],
            s=diameter**2,
            color=_VISITS(visits[h]),
            edgecolors=_INK,
            linewidths=0.8,
            zorder=2,
        )
        inside = 0.8 * 7.0 * max(map(len, layer)) < diameter  # the same for all of a layer
        for name, place in zip(layer, places[h], strict=True):
            if diameter >= 9.0:
                ax.annotate(
                    name,
                    (h, place),
                    xytext=(0.0, 0.0 if inside else -0.5 * diameter - 5.0),
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color=_INK,
                    zorder=3,
                    bbox=None if inside else {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.75},
                )
    ax.set_xlim(-0.5, len(sizes) - 0.5)
    ax.set_ylim(tallest + 0.3, -0.3)
    ax.set_xticks(range(len(sizes)), [f"layer {h}" if len(sizes) <= 10 else str(h) for h in range(len(sizes))])
    ax.set_yticks([])
    ax.tick_params(length=0, labelsize=8)
    ax.spines[:].set_visible(False)
    return ax


def _state_names(mdp: LayeredMDP) -> list[list[str]]:
    if mdp.scene.states is None:
        return [[str(s) for s in range(n)] for n in mdp.layer_sizes]
    return [[str(name) for name in layer] for layer in mdp.scene.states]


# ----------------------------------------------------------------------------------------------- map


def _draw_map(mdp: LayeredMDP, ax: Axes | None, q: Sequence[FloatArray], arrows: bool) -> Axes:
    assert mdp.scene.map is not None
    letters, width, height = "".join(mdp.scene.map), len(mdp.scene.map[0]), len(mdp.scene.map)
    if len(letters) > _MOST_STATES:
        raise InvalidSpecError(f"a map of {height} x {width} cells is too large to draw, should have {_MOST_STATES}")
    if ax is None:
        side = min(1.0, 8.0 / max(width, height))
        ax = Figure(figsize=(side * width + 0.2, side * height + 0.2), layout="constrained").subplots()
    actions, ends, moves = _traffic(mdp, q, len(letters))
    visits = actions.sum(axis=1)
    ground = np.array([letter not in "HG" for letter in letters])
    often = visits / max(visits[ground].max(), 1e-12)

    for number, letter in enumerate(letters):
        row, column = divmod(number, width)
        colour: Any = _VISITS(min(often[number], 1.0)) if ground[number] else "#d6ece4" if letter == "G" else _ICE
        square = Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, facecolor=colour, edgecolor="#c9d6df", lw=0.8)
        ax.add_patch(square)
        ending: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "zorder": 4}
        if letter == "H":
            ax.add_patch(Circle((column, row), 0.38, facecolor=_WATER, edgecolor="#7fa7c1", lw=2, zorder=3))
            ax.text(column, row, f"{ends[number]:.0%}", color="white", **ending)
        elif letter == "G":
            ax.plot(column, row - 0.05, marker="*", markersize=14, color=_GOAL, zorder=4)
            ax.text(column, row + 0.3, f"{ends[number]:.0%}", color=_INK, **ending)
        elif letter == "S":
            ax.text(column - 0.41, row - 0.4, "start", ha="left", va="top", fontsize=7, color=_INK, zorder=4)

    most = max(moves.values(), default=1.0)
    for (here, there), flow in sorted(moves.items(), key=lambda item: item[1]):
        weight = flow / most
        (row, column), (to_row, to_column) = divmod(here, width), divmod(there, width)
        along = np.array([to_column - column, to_row - row]) / np.hypot(to_column - column, to_row - row)
        # Traffic keeps to the right where it goes both ways.
        aside = 0.13 * np.array([-along[1], along[0]]) if (there, here) in moves else np.zeros(2)
        middle = np.array([column + to_column, row + to_row]) / 2.0 + aside
        if weight > 0.005:
            _arrow(ax, middle, 0.2 * along, _FLOW, 0.4 + 4.0 * weight, "-|>", 5.0 + 6.0 * weight, 0.4 + 0.6 * weight)
    names = mdp.scene.actions or ()
    if arrows and names and all(name in _DIRECTIONS for name in names):
        directions = np.array([_DIRECTIONS[name] for name in names], dtype=np.float64)
        for number in np.flatnonzero(ground & (visits > 1e-6)).tolist():
            mean = actions[number] @ directions / visits[number]
            row, column = divmod(number, width)
            if np.hypot(*mean) > 0.05:
                _arrow(ax, np.array([column, row], dtype=np.float64), 0.2 * mean, _INK, 1.6, "->", 11.0, 1.0)
    ax.set_xlim(-0.52, width - 0.48)
    ax.set_ylim(height - 0.48, -0.52)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def _traffic(
    mdp: LayeredMDP, q: Sequence[FloatArray], n_cells: int
) -> tuple[FloatArray, FloatArray, dict[tuple[int, int], float]]:
    """Over all layers: how often each action is taken in each cell, where episodes end, moves from cell to cell."""
    states = mdp.scene.states
    assert states is not None
    actions, ends = np.zeros((n_cells, mdp.n_actions)), np.zeros(n_cells)
    moves: dict[tuple[int, int], float] = defaultdict(float)
    for h, (pairs, kernel) in enumerate(zip(q, mdp.kernels, strict=True)):
        if not isinstance(states[h][0], int):
            continue  # a first layer that draws the start
        cells = np.array(states[h])
        np.add.at(actions, cells, pairs)
        targets = np.array(states[h + 1]) if isinstance(states[h + 1][0], int) else None
        if isinstance(kernel, SparseRows):
            pair, there, chance = kernel.pairs, kernel.nexts, kernel.values
        else:
            rows = kernel.reshape(-1, kernel.shape[2])
            pair, there = rows.nonzero()
            chance = rows[pair, there]
        here = cells[pair // mdp.n_actions]
        there = here if targets is None else targets[there]
        flow = pairs.ravel()[pair] * chance
        if h == mdp.horizon - 1:
            np.add.at(ends, there, flow)
        for one, other, share in zip(here.tolist(), there.tolist(), flow.tolist(), strict=True):
            if one != other and share > 0.0:
                moves[one, other] += share
    return actions, ends, dict(moves)


def _arrow(
    ax: Axes, middle: FloatArray, half: FloatArray, colour: str, width: float, style: str, head: float, alpha: float
) -> None:
    start, end = middle - half, middle + half
    ax.add_patch(
        FancyArrowPatch(
            (float(start[0]), float(start[1])),
            (float(end[0]), float(end[1])),
            arrowstyle=style,
            mutation_scale=head,
            lw=width,
            color=colour,
            alpha=alpha,
            shrinkA=0,
            shrinkB=0,
            zorder=5,
        )
    )
