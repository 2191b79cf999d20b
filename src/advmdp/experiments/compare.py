"""Several learners on several worlds against the same losses: the main job of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from advmdp._checks import integer
from advmdp.adversaries import make_adversary
from advmdp.errors import InvalidSpecError
from advmdp.experiments.runner import run
from advmdp.learners import make_learner
from advmdp.registry import learners as learner_registry
from advmdp.worlds import make_world


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results of a comparison.

    Attributes
    ----------
    frame
        One row per world, adversary, learner, seed and logged episode, with the columns of a run's frame.
    speed
        Episodes per second of each world, adversary, learner and seed.
    """

    frame: pd.DataFrame
    speed: pd.DataFrame

    def table(self) -> pd.DataFrame:
        """Final regret: mean over seeds with a 95% Student-t interval, and the ratio to ``uniform``."""
        keys = ["world", "adversary", "learner"]
        last = self.frame[self.frame["episode"] == self.frame["episode"].max()]
        speed = self.speed.groupby(keys)["episodes_per_second"].mean()
        rows = []
        for key, group in last.groupby(keys, sort=False):
            mean, half = mean_and_interval(group["regret"].to_numpy())
            rows.append((*key, mean, half, float(speed[key])))
        table = pd.DataFrame(rows, columns=[*keys, "regret", "half_width", "episodes_per_second"])
        uniform = table[table["learner"] == "uniform"].set_index(["world", "adversary"])["regret"]
        reference = pd.Series(
            [uniform.get(key, np.nan) for key in zip(table["world"], table["adversary"], strict=True)]
        )
        table["ratio_to_uniform"] = table["regret"] / reference.where(reference != 0.0)
        return table


def compare(
    worlds: Sequence[str],
    adversaries: Sequence[str],
    learners: Sequence[str],
    *,
    episodes: int,
    seeds: int,
    report: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Comparison:
    """Run every combination; within one seed all learners meet the same losses and luck.

    Seeds differ in losses and luck, on one and the same world.  Learners that must be told the losses
    beforehand are left out against adversaries that react.

    ``report(what, done, total)`` is called before each run and once at the end.
    """
    integer(seeds, "seeds", 1, InvalidSpecError)
    # A name given twice must not count twice: equal runs are not independent samples.
    cells = [
        (world, adversary, seed, learner)
        for world in dict.fromkeys(worlds)
        for adversary in dict.fromkeys(adversaries)
        for seed in range(seeds)
        for learner in dict.fromkeys(learners)
    ]
    built = {world: make_world(world) for world in dict.fromkeys(worlds)}
    frames, speed = [], []
    for done, (world, adversary, seed, learner) in enumerate(cells):
        report(f"{world} / {adversary} / {learner} / seed {seed}", done, len(cells))
        mdp = built[world]
        losses = make_adversary(adversary, mdp, episodes, seed=seed)
        options: dict[str, Any] = {}
        if "losses" in learner_registry.options(learner):
            if not losses.oblivious:
                continue  # it wants to be told the losses beforehand, and these react
            options["losses"] = losses
        chosen = make_learner(learner, mdp, episodes, seed=seed, **options)
        result = run(mdp, chosen, losses, episodes, seed=seed, progress=False)
        key: dict[str, Any] = {"world": world, "adversary": adversary, "learner": learner, "seed": seed}
        frames.append(result.frame.assign(**key))
        speed.append({**key, "episodes_per_second": episodes / result.seconds})
    report("done", len(cells), len(cells))
    return Comparison(pd.concat(frames, ignore_index=True), pd.DataFrame(speed))


def mean_and_interval(values: Any, confidence: float = 0.95) -> tuple[float, float]:
    """Mean and half-width of its Student-t interval; NaN half-width for a single value."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        return float(array.mean()), float("nan")
    quantile = stats.t.ppf(0.5 + confidence / 2.0, array.size - 1)
    return float(array.mean()), float(quantile * stats.sem(array))
