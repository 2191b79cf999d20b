"""The map: every learner of a setting on one common world, with the regret that was measured and what is proved.

    python -m benchmarks.bench_map                            # all settings, a few minutes on one core
    python -m benchmarks.bench_map "known, full" --seeds 1    # one of them
    python -m benchmarks.bench_map --write                    # and put the table into its page

A setting is a line of ``SETTINGS``; a world of its own is one of ``WORLDS``.  Seeds pair worlds, losses and luck.
Regret is exact: for losses with fixed means against the best policy, for means that are drawn anew against the best
sequence with as many switches as there are changes.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run
from advmdp.registry import learners
from advmdp.theory import bounds

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
    "known, bandit": ("tsallis-reps", "o-reps-bandit"),
    "unknown, bandit, linear mixture": ("portfolio", "vlsuob-reps-sharp", "vlsuob-reps-tight", "vlsuob-reps-bank"),
    "unknown, bandit, tabular": ("uob-reps", "tsallis-reps-optimistic", "bandit-uc-o-reps", "pomd", "dilated-bonus"),
    "nothing learned": ("uniform",),
}
COMMON = ("random-mixture", {"layer_sizes": (1, 4, 4, 4, 1), "n_actions": 3, "dim": 3})
#: Settings that need another world than the common one.
WORLDS: dict[str, tuple[str, dict]] = {}
LOSSES = {"stochastic": {}, "switching": {"period": EPISODES // (CHANGES + 1)}}
#: Those on the page.
SHOWN = ("unknown, full, linear mixture", "unknown, full, tabular", "known, full")
PAGE = Path(__file__).parent.parent / "docs" / "learners" / "full-information.md"
BLOCK = re.compile(r"(<!-- map: .*? -->\n).*?(\n<!-- /map -->)", re.DOTALL)


def measured(setting: str, name: str, options: dict, kind: str, seed: int) -> tuple[float, float]:
    """Regret after all episodes, and milliseconds of an episode."""
    world_name, sizes = WORLDS.get(setting, COMMON)
    world = make_world(world_name, **sizes, seed=seed)
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
    name = ", ".join([name, *options.values()])
    world_name, sizes = WORLDS.get(setting, COMMON)
    world = make_world(world_name, **sizes)
    size = (world.n_states, world.n_actions, world.horizon, EPISODES, getattr(world, "dim", 1))
    for function in bounds.BOUNDS:
        bound = function(*size)
        if bound.name == name:
            note = "" if bound.explicit else " (order only)"
            return f"{bound.formula}{note}" if bound.losses == "adversarial" else "for drawn losses"
    return "none"


def rows_of(setting: str, seeds: int) -> list[str]:
    rows = [f"| *{setting}* | | | | |"]
    for entry in SETTINGS[setting]:
        name, options = (entry, {}) if isinstance(entry, str) else entry
        assert learners.get(name), name
        results = {kind: [measured(setting, name, options, kind, seed) for seed in range(seeds)] for kind in LOSSES}
        cells = [f"{np.mean([regret for regret, _ in pairs]):.0f}" for pairs in results.values()]
        spent = np.median([time for pairs in results.values() for _, time in pairs])
        told = "".join(f", `{value}`" for value in options.values())
        rows.append(f"| `{name}`{told} | {' | '.join(cells)} | {spent:.1f} | {proved(setting, name, options)} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help=f"one of: {'; '.join(SETTINGS)}; default: all")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--write", action="store_true")
    told = parser.parse_args()
    kinds = "drawn losses", f"losses that change {CHANGES} times"
    rows = [f"| learner | {kinds[0]} | {kinds[1]} | ms | proved |", "|---|--:|--:|--:|---|"]
    print(*rows, sep="\n")
    for setting in told.settings or SETTINGS:
        found = rows_of(setting, told.seeds)
        rows += [row.rsplit("|", 3)[0] + "|" for row in found] if setting in SHOWN else []
    rows[:2] = [f"| learner | {kinds[0]} | {kinds[1]} |", "|---|--:|--:|"]  # the page says what is proved
    if told.write:
        text = BLOCK.sub(lambda found: found[1] + "\n" + "\n".join(rows) + "\n" + found[2], PAGE.read_text("utf-8"))
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
