"""What a report is made of: a snapshot of a store, and the tables that follow from it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from advmdp.confidence.misspecification import LEVEL
from advmdp.experiments.contents import Final
from advmdp.experiments.defaults import REFERENCES
from advmdp.experiments.measures import TRUST
from advmdp.experiments.spec import Cell
from advmdp.experiments.statistics import (
    GROUP,
    PROBLEM,
    final_regret,
    growth_exponents,
    last_rows,
    paired_differences,
    performance_profile,
    scaling_exponents,
    telling_bounds,
)
from advmdp.experiments.store import Store
from advmdp.layered import LayeredMDP
from advmdp.theory.decomposition import TERMS
from advmdp.worlds import make_world

#: Columns of a frame that a report can show, with their labels.
MEASURES = {
    "regret": "regret",
    "mean_loss": "loss per episode, so far",
    "loss": "expected loss of the episode",
    "width": "width of the confidence set",
    "upper_ratio": "u / true occupancy",
    "log_e": "log e-value against the mixture model",
    **{term: f"{term}, a part of the regret" for term in TERMS},
}


@dataclass(frozen=True)
class Results:
    """An experiment as it was at one moment; it may still be running.

    Attributes
    ----------
    rows
        Those of the finished cells, as :func:`advmdp.experiments.load` returns them.
    manifest, spec_text
        Those of the store.
    worlds
        The worlds by label; None for one that cannot be built here, which is then not drawn.
    finals
        By (world, adversary): what the first learner ends with, in the first seed that is done.
    """

    rows: pd.DataFrame
    manifest: Mapping[str, Any]
    spec_text: str
    worlds: Mapping[str, LayeredMDP | None] = field(default_factory=dict)
    finals: Mapping[tuple[str, str], Final] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> Results:
        """What stands in a directory now; needs no lock."""
        store = Store(directory)
        # The manifest first: whatever is finished after it is then at most missing from the counts, not from the rows.
        manifest = store.manifest
        rows = store.load()
        spec = store.spec
        worlds: dict[str, LayeredMDP | None] = {}
        for cell in spec.cells:
            label = spec.labels(cell)["world"]
            if label not in worlds:
                worlds[label] = _world(cell)
        results = cls(rows, manifest, store.spec_text, worlds)
        finals = {
            problem: store.final(cells["cell"].iloc[0])
            for problem, cells in results.problems()
            if cells["learner"].iloc[0] == results.baseline
        }
        for (label, _), final in finals.items():
            mdp = worlds[label]
            shapes = None if mdp is None else [(size, mdp.n_actions) for size in mdp.layer_sizes[:-1]]
            if [table.shape for table in final.policy] != shapes:  # its file holds another world now, say
                worlds[label] = None
        return replace(results, finals=finals)

    @cached_property
    def states(self) -> Counter[str]:
        """How many cells are pending, running, done, failed."""
        return Counter(cell["state"] for cell in self.manifest["cells"].values())

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows in the order of the spec, whichever cells are finished, with every column of ``MEASURES``."""
        rows = self.rows
        if {"upper_occupancy", "true_occupancy"} <= set(rows.columns):
            rows = rows.assign(upper_ratio=rows["upper_occupancy"] / rows["true_occupancy"])
        if "cumulative_loss" in rows:
            rows = rows.assign(mean_loss=rows["cumulative_loss"] / rows["episode"])
        order = pd.DataFrame({key: rows[key].map(self._planned(key).index) for key in GROUP}, index=rows.index)
        return rows.loc[order.sort_values(GROUP, kind="stable").index]

    @cached_property
    def learners(self) -> list[str]:
        """In the order of the spec, as far as they have results."""
        return [name for name in self._planned("learner") if (self.rows["learner"] == name).any()]

    def _planned(self, key: str) -> list[str]:
        """Labels in the order of the spec (and others, if it was changed this very moment)."""
        return list(dict.fromkeys([*(cell[key] for cell in self.manifest["cells"].values()), *self.rows[key]]))

    @property
    def baseline(self) -> str:
        """The learner that others are compared with: the first of the spec that has results."""
        return self.learners[0]

    @cached_property
    def measures(self) -> dict[str, str]:
        """Those of ``MEASURES``, and regrets against other comparators, that the frame has values of."""
        names = [str(column) for column in self.frame]
        known = {**MEASURES, **{name: name.replace("_", " ") for name in names if name.startswith("regret_")}}
        return {c: label for c, label in known.items() if c in self.frame and self.frame[c].notna().any()}

    @property
    def not_drawn(self) -> list[str]:
        """Worlds that cannot be built here, or are others now."""
        return [label for label, mdp in self.worlds.items() if mdp is None]

    @cached_property
    def alarms(self) -> list[str]:
        """Cells in which the test of the mixture model raised its alarm, at the level that it has by default."""
        if "log_e" not in self.frame.columns:
            return []
        loud = self.frame[self.frame["log_e"] >= -math.log(LEVEL)]
        return [str(cell) for cell in loud["cell"].unique()]

    # ------------------------------------------------------------------------------------------- tables

    @cached_property
    def final(self) -> pd.DataFrame:
        """One row per problem and learner: regret, ratios, difference to the baseline, exponent, bound, speed."""
        table = final_regret(self.frame, [name for name in REFERENCES if name in self.learners])
        paired = paired_differences(self.frame, self.baseline).drop(columns="seeds")
        table = table.merge(paired.rename(columns={"half_width": "difference_half_width"}), on=GROUP, how="left")
        growth = growth_exponents(self.frame).drop(columns=["seeds", "scale"])
        table = table.merge(growth.rename(columns={"half_width": "exponent_half_width"}), on=GROUP, how="left")
        table = table.merge(last_rows(self.frame).groupby(GROUP, sort=False)["bound"].mean().reset_index(), on=GROUP)
        cells = pd.DataFrame(list(self.manifest["cells"].values()))
        cells["episodes_per_second"] = cells["episodes_per_second"].astype(float)
        cells["milliseconds"] = 1000.0 * cells["processor_seconds"].astype(float) / cells["episodes"]
        # The median: the first run of a worker may have to compile.
        speed = cells.groupby(GROUP)[["episodes_per_second", "milliseconds"]].median().reset_index()
        return table.merge(speed, on=GROUP, how="left")

    def trust(self, rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        """Of the rows of a problem: who draws experts, and a frame with the experts in the place of learners."""
        names = [str(name) for name in rows if str(name).startswith(TRUST)]
        for learner, own in rows.groupby("learner", sort=False):
            parts = [own.assign(learner=name, trust=own[name]) for name in names if own[name].notna().any()]
            if parts:
                yield str(learner), pd.concat(parts)

    def bounds(self, problem: tuple[str, str], rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
        """Proved bounds where they are below H k, the most that can be lost, and a sentence on the others."""
        mdp, final = self.worlds.get(problem[0]), self.finals.get(problem)
        horizon = mdp.horizon if mdp is not None else len(final.policy) if final is not None else math.nan
        telling, silent = telling_bounds(rows, horizon)
        if not silent or math.isnan(horizon):
            return telling, ""
        most = number(horizon * rows["episode"].max())
        return telling, (
            f"At this size the proved bounds of {', '.join(silent)} say nothing: they are above {most}, "
            "the most that can be lost."
        )

    def short(self, world: str, adversary: str) -> list[tuple[str, ...]]:
        """Of one problem, best first: learner, loss and regret per episode, milliseconds per episode."""
        table = self.final[(self.final["world"] == world) & (self.final["adversary"] == adversary)]
        return [
            (
                row["learner"],
                interval(row["loss_per_episode"], row["loss_half_width"]),
                interval(row["regret"] / row["episodes"], row["half_width"] / row["episodes"]),
                number(row["milliseconds"]),
            )
            for row in table.sort_values(["loss_per_episode", "regret"], kind="stable").to_dict("records")
        ]

    @cached_property
    def scaling(self) -> pd.DataFrame | None:
        """Exponents of the final regret in K, if there are runs of different lengths."""
        several = "episodes" in self.frame.columns and self.frame["episodes"].nunique() > 1
        return scaling_exponents(self.frame) if several else None

    @cached_property
    def profile(self) -> pd.DataFrame | None:
        """The performance profile, if uniform play is there to compare with."""
        if REFERENCES[0] not in self.learners or len(self.learners) < 2:
            return None
        profile = performance_profile(self.frame, REFERENCES[0])
        return None if profile.empty else profile

    def problems(self) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
        """(world, adversary) and its rows, in the order of the spec."""
        for (world, adversary), rows in self.frame.groupby(PROBLEM, sort=False):
            yield (str(world), str(adversary)), rows

    def printable(self, world: str | None = None, adversary: str | None = None) -> pd.DataFrame:
        """The final table as text, whole or of one problem; columns without any value are left out."""
        table = self.final
        if world is not None:
            table = table[(table["world"] == world) & (table["adversary"] == adversary)]
        columns: dict[str, list[str]] = {name: table[name].tolist() for name in ("world", "adversary", "learner")}
        columns["regret"] = [interval(m, h) for m, h in zip(table["regret"], table["half_width"], strict=True)]
        for name in REFERENCES:
            if f"ratio_to_{name}" in table:
                columns[f"of {name}'s"] = [number(ratio) for ratio in table[f"ratio_to_{name}"]]
        paired = zip(table["difference"], table["difference_half_width"], strict=True)
        columns[f"minus {self.baseline}'s"] = [interval(m, h) for m, h in paired]
        columns["p, adjusted"] = [p_value(p) for p in table["p_adjusted"]]
        growth = zip(table["exponent"], table["exponent_half_width"], strict=True)
        columns["exponent"] = [interval(m, h) for m, h in growth]
        columns["proved bound"] = [number(float(f"{bound:.2g}")) for bound in table["bound"]]
        columns["episodes/s"] = [number(speed) for speed in table["episodes_per_second"]]
        columns["seeds"] = [str(seeds) for seeds in table["seeds"]]
        text = pd.DataFrame(columns)
        return text[[column for column in text if (text[column] != "").any()]]


def _world(cell: Cell) -> LayeredMDP | None:
    """The world, for its drawing; None where it cannot be built here: results do not need it."""
    try:
        return make_world(cell.world.name, **cell.world.options)
    except (ValueError, TypeError, OSError):
        return None


def number(value: float) -> str:
    """Three digits, or all those before the point; nothing for NaN."""
    if math.isnan(value):
        return ""
    if abs(value) >= 1e7:
        return f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
    decimals = _decimals(value)
    return f"{_plain_zero(value, decimals):,.{decimals}f}"


def interval(mean: float, half: float) -> str:
    """Both with the same decimals."""
    if math.isnan(mean) or math.isnan(half):
        return number(mean)
    decimals = _decimals(max(abs(mean), half))
    return f"{_plain_zero(mean, decimals):,.{decimals}f} ± {half:,.{decimals}f}"


def p_value(p: float) -> str:
    """Two digits; below a thousandth only that."""
    return "" if math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.2g}"


def _decimals(value: float) -> int:
    return 0 if abs(value) < 1e-6 else max(0, min(3, 2 - math.floor(math.log10(abs(value)))))


def _plain_zero(value: float, decimals: int) -> float:
    """Rounds to zero without a sign."""
    return 0.0 if abs(value) < 0.5 * 10.0**-decimals else value


def significant(values: Any) -> list[float | None]:
    """Six digits each, for a reader of numbers; None for NaN, which JSON does not have."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in values]
