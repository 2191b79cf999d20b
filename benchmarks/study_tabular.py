"""Regret of tabular learners, for docs/learners: regularisers, laziness, totals, delays.

    python -m benchmarks.study_tabular            # all four tables, about ten minutes on one core
    python -m benchmarks.study_tabular tsallis    # one of: tsallis, lazy, total, delay

Means over seeds with 95% Student-t intervals; all learners of a row meet the same losses and luck.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advmdp import (
    Adversary,
    Episode,
    LayeredMDP,
    Learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
)
from advmdp.experiments.statistics import mean_and_interval

WORLDS = ("grid", "queue", "random-mixture")
LOSSES: dict[str, dict[str, Any]] = {"stochastic": {}, "switching": {"period": 300}}
SMALL: dict[str, Any] = {"layer_sizes": (1, 3, 3, 1), "n_actions": 2, "dim": 2}
Columns = Mapping[str, tuple[str, dict[str, Any]]]


def late_run(world: LayeredMDP, learner: Learner, adversary: Adversary, episodes: int, delay: int, seed: int) -> float:
    """The expected loss of all episodes, where the losses of each are told so many updates after its own."""
    rng, past, total = np.random.default_rng(seed), [], 0.0
    for k in range(episodes):
        losses = adversary.losses(k)
        total += occupancy.expected_loss(world, learner.policy, losses)
        told = play(world, learner.policy, losses, rng, index=k)
        past.append(told.losses)
        learner.update(Episode(told.states, told.actions, None if delay else told.losses, index=k))
        if delay and k >= delay:
            learner.tell(k - delay, past[k - delay])
    return total


def regrets(columns: Columns, worlds: Mapping[str, LayeredMDP], episodes: int, seeds: Sequence[int]) -> None:
    """Print a table: a row for each world and kind of losses, a column for each learner."""
    print(f"\nK = {episodes}\n| world, losses | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns))
    for place, world in worlds.items():
        for kind, options in LOSSES.items():
            cells = []
            for name, chosen in columns.values():
                found = []
                for seed in seeds:
                    adversary = make_adversary(kind, world, episodes, seed=seed, **options)
                    learner = make_learner(name, world, episodes, seed=seed, **chosen)
                    found.append(run(world, learner, adversary, episodes, seed=seed, progress=False).regret[-1])
                mean, half = mean_and_interval(np.array(found))
                cells.append(f"{mean:.0f} ± {half:.0f}")
            print(f"| {place}, {kind} | " + " | ".join(cells) + " |", flush=True)


def tsallis() -> None:
    """Known transition without K against with K; unknown transition."""
    columns = {
        "`o-reps-bandit`": ("o-reps-bandit", {}),
        'its `step="adaptive"`': ("o-reps-bandit", {"step": "adaptive"}),
        "`tsallis-reps`": ("tsallis-reps", {}),
        "its `eta=4`": ("tsallis-reps", {"eta": 4.0}),
        "`uob-reps`": ("uob-reps", {}),
        "`tsallis-reps-optimistic`": ("tsallis-reps-optimistic", {}),
    }
    regrets(columns, {name: make_world(name) for name in WORLDS}, 3000, range(3))


def lazy() -> None:
    """Known transition, all losses."""
    names = ("o-reps", "mdp-e", "lazy-fpl", "ftl")
    columns: dict[str, tuple[str, dict[str, Any]]] = {f"`{name}`": (name, {}) for name in names}
    columns["`lazy-fpl`, `block=1`"] = ("lazy-fpl", {"block": 1})
    regrets(columns, {name: make_world(name) for name in WORLDS}, 3000, range(3))


def total() -> None:
    """Losses of steps against totals, with the constants of the theory and with larger ones."""
    narrow = {"eta": 0.01, "gamma": 0.02, "radius_scale": 0.02}
    columns: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in ("dilated-bonus", "dilated-bonus-total"):
        columns[f"`{name}`"] = (name, {})
        columns[f"`{name}`, larger steps"] = (name, narrow)
    columns["`uniform`"] = ("uniform", {})
    deep = make_world("random-mixture", layer_sizes=(1, 3, 3, 3, 3, 1), n_actions=2, dim=2)
    regrets(columns, {"random mixture, five steps": deep}, 3000, range(5))


def delay() -> None:
    """Late losses: what the step that is made for them is worth."""
    world, episodes = make_world("random-mixture", **SMALL), 1000
    print(f"\nK = {episodes}\n| losses late by | `uob-reps` | `delayed-uob-reps` |\n|---|--:|--:|")
    for late in (0, 10, 100, 300):
        cells = []
        for name in ("uob-reps", "delayed-uob-reps"):
            found = []
            for seed in range(5):
                adversary = make_adversary("stochastic", world, episodes, seed=seed)
                options = {"delay": late} if name == "delayed-uob-reps" else {}
                learner = make_learner(name, world, episodes, seed=seed, **options)
                summed = [sum(tables) for tables in zip(*(adversary.losses(k) for k in range(episodes)), strict=True)]
                best = occupancy.best_policy(world, summed)[1]
                found.append(late_run(world, learner, adversary, episodes, late, seed) - best)
            mean, half = mean_and_interval(np.array(found))
            cells.append(f"{mean:.0f} ± {half:.0f}")
        print(f"| {late} | " + " | ".join(cells) + " |", flush=True)


TABLES = {"tsallis": tsallis, "lazy": lazy, "total": total, "delay": delay}

if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        TABLES[name]()
