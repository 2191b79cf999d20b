"""The map: every learner of a setting on one common world, with the regret that was measured and what is proved.

    python -m benchmarks.bench_map                            # all settings, a few minutes on one core
    python -m benchmarks.bench_map "known, full" --seeds 1    # one of them
    python -m benchmarks.bench_map --write                    # and put the table into its page, and draw the map

A setting is a line of ``SETTINGS``; a world of its own is one of ``WORLDS``.  Seeds pair worlds, losses and luck.
Regret is exact: for losses with fixed means against the best policy, for means that are drawn anew against the best
sequence with as many switches as there are changes.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.registry import learners
from advmdp.report.figures import COLOURS, legend_below
from advmdp.theory import bounds
from studies.common import svg, tidy

EPISODES, SEEDS, CHANGES = 2000, 3, 7
#: From a setting, "transition, feedback, model", to its learners: names, or names with options.
SETTINGS: dict[str, tuple[str | tuple[str, dict], ...]] = {
    "unknown, full, linear mixture": (
        "vls-o-reps",
        ("vls-o-reps", {"entropy": "conditional"}),
        "occupancy-ensemble",
        ("occupancy-ensemble", {"regression": "states"}),
        "hf-o2ps",
        "powers-dynamic",
        "powers",
        "oppo",
        "ucrl-vtr",
    ),
    "unknown, full, tabular": ("uc-o-reps",),
    "known, full": ("do-reps", "o-reps", "mdp-e", "lazy-fpl", "ftl"),
    "known, bandit": ("o-reps-bandit", "tsallis-reps"),
    "unknown, bandit, linear mixture": (
        "portfolio",
        "planner",
        "vlsuob-reps-sharp",
        "vlsuob-reps-anytime",
        "vlsuob-reps-bank",
        "vlsuob-reps-tight",
        "vlsuob-reps",
        "lsuob-reps",
    ),
    "unknown, bandit, tabular": (
        "uob-reps",
        "delayed-uob-reps",
        "bandit-uc-o-reps",
        "tsallis-reps-optimistic",
        "pomd",
        "dilated-bonus",
    ),
    "unknown, total of an episode": ("dilated-bonus-total",),
    "linear MDP, known, bandit": ("q-reps", "mdp-linexp3"),
    "linear MDP, unknown, full": ("oppo-linear",),
    "linear MDP, unknown, bandit": ("uob-reps-linear", "dilated-bonus-linear"),
    "nothing learned": ("uniform",),
}
COMMON = ("random-mixture", {"layer_sizes": (1, 4, 4, 4, 1), "n_actions": 3, "dim": 3})
#: Settings that need another world than the common one.
LINEAR = ("linear-mdp", {"layer_sizes": (1, 4, 4, 4, 1), "n_actions": 3, "dim": 3})
WORLDS: dict[str, tuple[str, dict]] = {setting: LINEAR for setting in SETTINGS if setting.startswith("linear MDP")}
LOSSES = {"stochastic": {}, "switching": {"period": EPISODES // (CHANGES + 1)}}
TABLE = Path(__file__).parent.parent / "docs" / "study" / "tables" / "map.csv"
FIGURE = Path(__file__).parent.parent / "docs" / "images" / "map.svg"
#: Those on the page.
SHOWN = ("unknown, full, linear mixture", "unknown, full, tabular", "known, full")
PAGE = Path(__file__).parent.parent / "docs" / "learners" / "full-information.md"
BLOCK = re.compile(r"(<!-- map: .*? -->\n).*?(\n<!-- /map -->)", re.DOTALL)


def measured(setting: str, name: str, options: dict, kind: str, seed: int) -> tuple[float, float]:
    """Regret after all episodes, and milliseconds of an episode."""
    world_name, sizes = WORLDS.get(setting, COMMON)
    world = make_world(world_name, **sizes, seed=seed)
    if world_name == "linear-mdp":  # losses are linear in the features there
        adversary = make_adversary("natural-losses", world, EPISODES, seed=seed, kind="stochastic")
    else:
        adversary = make_adversary(kind, world, EPISODES, seed=seed, **LOSSES[kind])
    learner = make_learner(name, world, EPISODES, seed=seed, **options)
    comparators = (CHANGES,) if kind == "switching" else ()
    begun = time.process_time()
    frame = run(world, learner, adversary, EPISODES, seed=seed, comparators=comparators, progress=False).frame
    spent = 1e3 * (time.process_time() - begun) / EPISODES
    return float(frame[f"regret_{CHANGES}_switches" if comparators else "regret"].iloc[-1]), spent


def proved(setting: str, name: str, options: dict) -> str:
    """The order of the bound, and whether its constants are known."""
    if options.get("regression") == "states":  # its page adds the two
        return "d sqrt(H^3 S K) + sqrt(H K (H + P))"
    if name == "vlsuob-reps-anytime":  # the same terms, with constants on its page
        name = "vlsuob-reps-tight"
    name = ", ".join([name, *options.values()])
    world_name, sizes = WORLDS.get(setting, COMMON)
    world = make_world(world_name, **sizes)
    size = (world.n_states, world.n_actions, world.horizon, EPISODES, getattr(world, "dim", 1))
    for function in bounds.BOUNDS:
        bound = function(*size)
        if bound.name == name:
            note = "" if bound.explicit else " (order only)"
            return "for drawn losses" if bound.losses == "stochastic" else f"{bound.formula}{note}"
    return "none"


def results_of(setting: str, seeds: int) -> list[dict[str, object]]:
    """A row for each learner of a setting, printed as it is found."""
    rows = []
    kinds = ["stochastic"] if setting in WORLDS else [*LOSSES]
    for entry in SETTINGS[setting]:
        name, options = (entry, {}) if isinstance(entry, str) else entry
        assert learners.get(name), name
        found = {kind: [measured(setting, name, options, kind, seed) for seed in range(seeds)] for kind in kinds}
        row: dict[str, object] = {"setting": setting, "learner": ", ".join([name, *options.values()])}
        row |= {kind: round(float(np.mean([regret for regret, _ in pairs])), 1) for kind, pairs in found.items()}
        row["milliseconds"] = round(float(np.median([time for pairs in found.values() for _, time in pairs])), 2)
        row["proved"] = proved(setting, name, options)
        rows.append(row)
        print(" | ".join(map(str, row.values())), flush=True)
    return rows


def markdown(table: pd.DataFrame) -> str:
    """The settings that are on the page; what is proved stands there in words."""
    lines = [f"| learner | drawn losses | losses that change {CHANGES} times |", "|---|--:|--:|"]
    for setting in SHOWN:
        lines.append(f"| *{setting}* | | |")
        for row in table[table["setting"] == setting].itertuples():
            name, *options = row.learner.split(", ")
            told = "".join(f", `{option}`" for option in options)
            lines.append(f"| `{name}`{told} | {row.stochastic:.0f} | {row.switching:.0f} |")
    return "\n".join(lines)


def draw(table: pd.DataFrame) -> Figure:
    """Settings from top to bottom, learners by measured regret; filled where a bound is proved with its constants."""
    rows = table.iloc[::-1].reset_index(drop=True)
    figure = Figure(figsize=(7.2, 0.19 * len(rows) + 1.0), layout="constrained")
    ax = figure.subplots()
    whole = ~rows["proved"].str.contains("order only|^none$|drawn", regex=True)
    for colour, kind, label in zip(
        COLOURS, LOSSES, ("drawn losses", f"losses that change {CHANGES} times"), strict=False
    ):
        for known, fill in ((True, colour), (False, "white")):
            chosen = rows[(whole == known) & rows[kind].notna()]
            note = f"{label}; " + ("bound with constants" if known else "order of a bound, or none")
            ax.plot(np.maximum(chosen[kind], 1.0), chosen.index, "o", color=colour, markerfacecolor=fill, markersize=5,
                    label=note)  # fmt: skip
    ax.set_yticks(rows.index, rows["learner"], fontsize=7)
    ends = np.flatnonzero(rows["setting"].to_numpy()[1:] != rows["setting"].to_numpy()[:-1]) + 0.5
    for end in ends:
        ax.axhline(end, color="0.8", linewidth=0.8)
    for start, end in itertools.pairwise([-0.5, *ends, len(rows) - 0.5]):
        name = rows["setting"][int(np.ceil(start))]
        ax.text(1.01, (start + end) / 2, name, transform=ax.get_yaxis_transform(), va="center", fontsize=7)
    ax.set_xscale("log")
    ax.set_ylim(-0.5, len(rows) - 0.5)
    ax.set_xlabel(f"regret after {EPISODES:,} episodes (at least 1; linear MDPs: on a world of their own)")
    tidy(ax)
    legend_below(figure, ax)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help=f"one of: {'; '.join(SETTINGS)}; default: all")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--write", action="store_true")
    told = parser.parse_args()
    found = pd.DataFrame([row for setting in told.settings or SETTINGS for row in results_of(setting, told.seeds)])
    if told.write:
        found.to_csv(TABLE, index=False, lineterminator="\n")
        table = pd.read_csv(TABLE, keep_default_na=False, na_values=[""])
        text = BLOCK.sub(lambda part: part[1] + "\n" + markdown(table) + "\n" + part[2], PAGE.read_text("utf-8"))
        PAGE.write_text(text, "utf-8")
        FIGURE.write_bytes(svg(draw(table)))


if __name__ == "__main__":
    main()
