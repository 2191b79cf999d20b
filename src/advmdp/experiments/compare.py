"""Several learners on several worlds against the same losses: the main job of the library, as a spec."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advmdp.experiments.defaults import ADVERSARIES, EPISODES, LEARNERS, MEASURES, REFERENCES, SEEDS, WORLDS

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
        Episodes per second, and milliseconds of a processor per episode, of each world, adversary, learner and seed.
    """

    frame: pd.DataFrame
    speed: pd.DataFrame

    @classmethod
    def of(cls, store: Store) -> Comparison:
        """The finished cells of an experiment."""
        import pandas as pd

        from advmdp.experiments.statistics import GROUP

        entries = [entry for entry in store.manifest["cells"].values() if entry["state"] == "done"]
        speed = pd.DataFrame(entries, columns=[*GROUP, "seed", "episodes", "episodes_per_second", "processor_seconds"])
        speed["milliseconds"] = 1000.0 * speed.pop("processor_seconds") / speed.pop("episodes")
        return cls(store.load(), speed)

    def table(self) -> pd.DataFrame:
        """Final regret and loss per episode (means, 95% Student-t intervals), ratios to the references, speed."""
        from advmdp.experiments.statistics import GROUP, final_regret

        table = final_regret(self.frame, references=REFERENCES)
        # The median: the first run of a worker may have to compile.
        speed = self.speed.groupby(GROUP)[["episodes_per_second", "milliseconds"]].median().reset_index()
        return table.merge(speed, on=GROUP, how="left")

    def verdicts(self) -> list[str]:
        """For every world and adversary: who lost least, by how much, and whether that may be a tie."""
        from advmdp.experiments.statistics import verdicts

        return [f"{' / '.join(problem)}: {text}" for problem, text in verdicts(self.frame).items()]

    def _repr_html_(self) -> str:
        return self.table().to_html(index=False, float_format="{:,.3g}".format, na_rep="")


def comparison_spec(
    worlds: Sequence[str] | None,
    adversaries: Sequence[str] | None,
    learners: Sequence[str],
    *,
    episodes: int,
    seeds: int,
) -> Spec:
    """The spec of a comparison; a name given twice counts once.

    Every world meets every adversary, unless neither are given: those of :mod:`advmdp.experiments.defaults` are paired.
    """
    from advmdp.experiments.spec import Spec, to_toml

    document = {
        "title": "Comparison of learners",
        "episodes": episodes,
        "seeds": seeds,
        "measures": list(MEASURES),
        "paired": worlds is None and adversaries is None,
        "worlds": list(dict.fromkeys(WORLDS if worlds is None else worlds)),
        "adversaries": list(dict.fromkeys(ADVERSARIES if adversaries is None else adversaries)),
        "learners": list(dict.fromkeys(learners)),
    }
    return Spec(to_toml(document), "comparison")


def compare(
    worlds: Sequence[str] | None = None,
    adversaries: Sequence[str] | None = None,
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
        Names; every world meets every adversary.  With neither worlds nor adversaries given, three worlds have losses
        of their own: they drift, they switch, they are made against planners.
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
