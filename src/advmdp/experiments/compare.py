"""Several learners on several worlds against the same losses: the main job of the library, as a spec."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advmdp.experiments.defaults import ADVERSARIES, EPISODES, LEARNERS, REFERENCES, SEEDS, WORLDS

if TYPE_CHECKING:  # slow to import, and the package imports this module
    import pandas as pd

    from advmdp.experiments.spec import Spec
    from advmdp.experiments.store import Store


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

    @classmethod
    def of(cls, store: Store) -> Comparison:
        """The finished cells of an experiment."""
        import pandas as pd

        from advmdp.experiments.statistics import GROUP

        entries = [entry for entry in store.manifest["cells"].values() if entry["state"] == "done"]
        return cls(store.load(), pd.DataFrame(entries, columns=[*GROUP, "seed", "episodes_per_second"]))

    def table(self) -> pd.DataFrame:
        """Final regret (mean over seeds, 95% Student-t interval), ratios to the references, episodes per second."""
        from advmdp.experiments.statistics import GROUP, final_regret

        table = final_regret(self.frame, references=REFERENCES)
        speed = self.speed.groupby(GROUP)["episodes_per_second"].mean()
        table["episodes_per_second"] = [float(speed[key]) for key in zip(*(table[name] for name in GROUP), strict=True)]
        return table


def comparison_spec(
    worlds: Sequence[str], adversaries: Sequence[str], learners: Sequence[str], *, episodes: int, seeds: int
) -> Spec:
    """The spec of a comparison; a name given twice counts once."""
    from advmdp.experiments.spec import Spec, to_toml

    document = {
        "title": "Comparison of learners",
        "episodes": episodes,
        "seeds": seeds,
        "worlds": list(dict.fromkeys(worlds)),
        "adversaries": list(dict.fromkeys(adversaries)),
        "learners": list(dict.fromkeys(learners)),
    }
    return Spec(to_toml(document), "comparison")


def compare(
    worlds: Sequence[str] = WORLDS,
    adversaries: Sequence[str] = ADVERSARIES,
    learners: Sequence[str] = LEARNERS,
    *,
    episodes: int = EPISODES,
    seeds: int = SEEDS,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = 0,
) -> Comparison:
    """Run every combination; within one seed all learners meet the same losses and luck.

    Seeds differ in losses and luck, on one and the same world.

    Parameters
    ----------
    worlds, adversaries, learners
        Names.
    episodes, seeds
        Length of a run, and how many there are of each combination.
    out
        The directory that keeps the results; by default nothing is kept.
    workers
        See :func:`advmdp.experiments.run_spec`; by default cells run in this process.

    Examples
    --------
    >>> result = compare(["grid"], ["switching"], ["uniform", "ftl"], episodes=20, seeds=2)
    >>> result.table()["learner"].tolist()
    ['uniform', 'ftl']
    """
    from advmdp.experiments.store import Store
    from advmdp.experiments.sweep import run_spec

    spec = comparison_spec(worlds, adversaries, learners, episodes=episodes, seeds=seeds)
    with ExitStack() as stack:
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "comparison"
        outcome = run_spec(spec, out, workers=workers)
        for cell_id, error in outcome.failed.items():
            raise RuntimeError(f"{cell_id} failed: {error}")
        return Comparison.of(Store(out))
