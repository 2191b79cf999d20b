"""Several learners on several worlds against the same losses: the main job of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from advmdp._checks import integer
from advmdp.adversaries import make_adversary
from advmdp.errors import InvalidSpecError
from advmdp.experiments.runner import run
from advmdp.experiments.statistics import final_regret
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
        table = final_regret(self.frame, references=("uniform",))
        speed = self.speed.groupby(keys)["episodes_per_second"].mean()
        table["episodes_per_second"] = [float(speed[key]) for key in zip(*(table[name] for name in keys), strict=True)]
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
