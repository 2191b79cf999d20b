"""Results as a store would give them, without the time that runs take."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from advmdp import make_world, occupancy
from advmdp.experiments.contents import Final
from advmdp.report.results import Results

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\">{{ 7*7 }}'\"&"
LEARNERS = {"slow": 2.0, "fast": 1.0, "uniform": 4.0, "hindsight": 0.0}
EPISODES = (1, 2, 5, 10, 20, 50, 100)


def results(
    worlds: tuple[str, ...] = ("x", "y"),
    learners: dict[str, float] = LEARNERS,
    seeds: int = 3,
    *,
    title: str = "An experiment",
    states: dict[int, str] | None = None,
    spec_text: str = 'title = "An experiment"\n',
    pictures: bool = False,
    **columns: float,
) -> Results:
    """Regret grows like ``factor * sqrt(episode)``, a little more in later seeds; ``states`` by number of the cell."""
    rows, cells = [], {}
    for number, (world, seed, (name, factor)) in enumerate(product(worlds, range(seeds), learners.items())):
        key = {"world": world, "adversary": "switching", "learner": name, "seed": seed}
        state = (states or {}).get(number, "done")
        done = state == "done"
        cells[f"cell-{number}"] = {
            **key,
            "episodes": EPISODES[-1],
            "state": state,
            "attempts": 3 if state == "failed" else 1,
            "seconds": 0.5 if done else None,
            "processor_seconds": 0.4 if done else None,
            "episodes_per_second": 200.0 if done else None,
            "error": f"ValueError: {HOSTILE}" if state == "failed" else None,
        }
        noise = np.random.default_rng([number]).normal(size=len(EPISODES))
        for episode, luck in zip(EPISODES, noise if done else (), strict=False):
            regret = factor * np.sqrt(episode) * (1.0 + 0.1 * seed + 0.05 * luck)
            rows.append({"cell": f"cell-{number}", **key, "episode": episode, "loss": 0.5, "regret": regret})
    frame = pd.DataFrame(rows).assign(bound=np.nan, **columns)
    manifest = {
        "title": title,
        "cells": cells,
        "versions": {"python": "3.13", "advmdp": "0.1.0", "numpy": "2.0", "ray": None},
        "git": {"revision": "0123456789abcdef", "changed": True},
        "machine": {"system": "Linux", "processor": "a processor", "cpus": 2},
        "created": "2026-01-01T00:00:00+00:00",
        "history": [],
    }
    if not pictures:
        return Results(frame, manifest, spec_text)
    mdp = make_world("grid", height=3, width=3)
    policy = occupancy.uniform_policy(mdp.layer_sizes, mdp.n_actions)
    visits = occupancy.occupancy_measure(mdp, policy)
    finals = {(world, "switching"): Final(policy, visits, visits, policy) for world in worlds}
    return Results(frame, manifest, spec_text, dict.fromkeys(worlds, mdp), finals)
