"""What the studies share: from a spec to runs, from runs to a small table, from the table to findings and one figure.

A study is a module of this package with

    QUESTION    what it asks, in one sentence
    ANSWER      what came out in full: begins with "confirmed", "not confirmed", "partly" or "open"
    SPECS       names of its specs in experiments/
    tabulate    the frames of its runs, by spec -> the table that is committed, rows by seed where things are compared
    findings    the table -> findings, the first of which is the number of the study
    draw        the table -> its figure
    results     (if it likes) the table -> a table for its page, as text

So everything that is published follows from the committed table, which anybody can check without the hours of runs.
"""

from __future__ import annotations

import importlib
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from advmdp import storage
from advmdp.experiments import Spec, Store, run_spec
from advmdp.experiments.statistics import CONFIDENCE, mean_and_interval
from advmdp.experiments.sweep import Display
from advmdp.report.results import interval
from advmdp.worlds import make_world

#: In the order of the summary.
STUDIES = ("rate", "states", "actions", "decomposition", "geometry", "losses", "shapes", "parts")

ROOT = Path(__file__).resolve().parents[1]
SPECS, RUNS, DOCS = ROOT / "experiments", ROOT / "runs", ROOT / "docs" / "study"

#: Of a committed table: six digits are more than any interval here resolves.
DIGITS = "%.6g"


@dataclass(frozen=True)
class Finding:
    """A number with its 95% interval, so put that zero means "no difference".

    Attributes
    ----------
    name
        Unique in its study.
    sentence
        What the number is; it is followed by the number.
    value, half_width
        The middle and half the length of the interval.
    quick
        Whether the small variant of the study is large enough to show the sign too; tests then compare the two.
    """

    name: str
    sentence: str
    value: float
    half_width: float
    quick: bool = False

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval does."""
        return bool(abs(self.value) > self.half_width)

    def __str__(self) -> str:
        return f"{self.sentence}: {interval(self.value, self.half_width)}"


def finding(name: str, sentence: str, values: Sequence[float] | pd.Series, quick: bool = False) -> Finding:
    """The mean of one number per seed, with its Student-t interval."""
    return Finding(name, sentence, *mean_and_interval(np.asarray(values, dtype=np.float64)), quick)


def paired(table: pd.DataFrame, column: str, first: Any, second: Any, value: str, log: bool = False) -> pd.Series:
    """``value`` of the rows with ``first`` in ``column`` minus that of those with ``second``, seed by seed.

    The table has one row per seed for each of the two.  With ``log`` the logarithm of the ratio.
    """
    wide = table[table[column].isin([first, second])].pivot(index="seed", columns=column, values=value)
    if wide.empty or wide.isna().any(axis=None) or {first, second} != set(wide.columns):
        raise ValueError(f"not every seed has {value} for both {column} = {first} and {second}")
    return np.log(wide[first] / wide[second]) if log else wide[first] - wide[second]


# ------------------------------------------------------------------------------------------------- runs


def module(name: str) -> ModuleType:
    """The study of that name."""
    return importlib.import_module(f"studies.{name}")


def read_spec(name: str, small: bool = False) -> Spec:
    """A spec of a study, or its small variant."""
    spec = Spec.read(SPECS / f"{name}.toml")
    return spec.small() if small else spec


def model_of(spec: str) -> Any:
    """What a learner is told of the (first) world of a spec."""
    world = read_spec(spec).worlds[0]
    return make_world(world.name, **world.options).model


def compute(name: str, runs: Path, *, small: bool, workers: int | None, display: Display | None = None) -> None:
    """Compute what is missing of the runs of a study; an error if a cell fails or somebody interrupts."""
    for spec in module(name).SPECS:
        outcome = run_spec(read_spec(spec, small), runs / spec, workers=workers, display=display)
        for cell, error in outcome.failed.items():
            raise RuntimeError(f"{spec}, {cell}: {error}")
        if outcome.left:
            raise KeyboardInterrupt(f"{spec}: {outcome.left} cells are left; the same command goes on")


def load_frames(name: str, runs: Path) -> dict[str, pd.DataFrame]:
    """The finished runs of a study, by spec, as far as there are any; ``milliseconds``: processor time per episode."""
    frames = {}
    for spec in module(name).SPECS:
        if not (runs / spec).exists():
            continue
        store = Store(runs / spec)
        cost = {
            c.id: 1e3 * store.timing(c)["processor_seconds"] / c.episodes for c in store.cells() if store.is_done(c)
        }
        frame = store.load()
        frames[spec] = frame.assign(milliseconds=frame["cell"].map(cost))
    return frames


# ---------------------------------------------------------------------------------------- what is published


def analyse(name: str, runs: Path | None, docs: Path = DOCS) -> list[Finding]:
    """Write table (from the runs, if there are any), findings and figure of a study under ``docs``."""
    study = module(name)
    if runs is not None:
        table: pd.DataFrame = study.tabulate(load_frames(name, runs))
        if not all((runs / spec).exists() for spec in study.SPECS) and (docs / "tables" / f"{name}.csv").exists():
            table = with_earlier(read_table(name, docs), table)
        (docs / "tables").mkdir(parents=True, exist_ok=True)
        text = table.to_csv(index=False, lineterminator="\n", float_format=DIGITS)
        storage.replace(docs / "tables" / f"{name}.csv", text.encode())
    # What is published follows from what was written, not from more digits.
    found: list[Finding] = study.findings(read_table(name, docs))
    (docs / "findings").mkdir(parents=True, exist_ok=True)
    storage.replace(docs / "findings" / f"{name}.json", findings_text(found).encode())
    (docs / "figures").mkdir(parents=True, exist_ok=True)
    storage.replace(docs / "figures" / f"{name}.svg", svg(study.draw(read_table(name, docs))))
    return found


def with_earlier(earlier: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table, and before them those of an earlier one with other learners or another length: the runs of
    a spec may be elsewhere."""
    keys = [key for key in ("learner", "episode") if key in table]
    new = set(table[keys].itertuples(index=False, name=None))
    kept = [row not in new for row in earlier[keys].itertuples(index=False, name=None)]
    return pd.concat([earlier[kept], table], ignore_index=True)


def read_table(name: str, docs: Path = DOCS) -> pd.DataFrame:
    """The table of a study, by default the committed one."""
    return pd.read_csv(docs / "tables" / f"{name}.csv")


def findings_text(found: Sequence[Finding]) -> str:
    """As JSON, rounded as far as the tables are."""
    rows = [
        asdict(f) | {"value": _rounded(f.value), "half_width": _rounded(f.half_width), "excludes_zero": f.excludes_zero}
        for f in found
    ]
    return json.dumps({"confidence": CONFIDENCE, "findings": rows}, indent=1, ensure_ascii=False) + "\n"


def read_findings(name: str, docs: Path = DOCS) -> list[Finding]:
    """The findings of a study, by default the committed ones."""
    rows = json.loads((docs / "findings" / f"{name}.json").read_text(encoding="utf-8"))["findings"]
    return [Finding(**{key: row[key] for key in Finding.__dataclass_fields__}) for row in rows]


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def svg(figure: Figure) -> bytes:
    """A figure as SVG that depends on its content alone; texts are paths, so no font is asked for."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "advmdp"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


# ------------------------------------------------------------------------------- what stands in the pages


#: So many findings stand on the page of a study without a table of results.
SHOWN = 3


def summary(docs: Path = DOCS) -> str:
    """The table of all studies that have a page, as Markdown; without a number where there are no full runs yet."""
    lines = ["| study | number (95% interval) | answer |", "|---|---|---|"]
    for name in STUDIES:
        if (docs / f"{name}.md").exists():
            study, known = module(name), (docs / "findings" / f"{name}.json").exists()
            number = read_findings(name, docs)[0] if known else ""
            lines.append(f"| [{name}]({name}.md) | {number} | {study.ANSWER} |")
    return "\n".join(lines)


def numbers(name: str, docs: Path = DOCS) -> str:
    """What a study found, as Markdown: its own table, if it makes one of its results, else its first findings.

    The index has the first finding of every study; all are in ``findings/`` and printed by ``--only-analyse``.
    """
    study, lines = module(name), []
    if hasattr(study, "results"):
        rows: pd.DataFrame = study.results(read_table(name, docs))
        lines += [_row(rows.columns), "|---" + "|--:" * (len(rows.columns) - 1) + "|"]
        lines += [_row(row) for row in rows.itertuples(index=False)]
        return "\n".join(lines)
    lines += ["| finding (95% interval) | | zero excluded |", "|---|--:|---|"]
    for found in read_findings(name, docs)[:SHOWN]:
        lines.append(_row([found.sentence, interval(found.value, found.half_width), _yes(found.excludes_zero)]))
    return "\n".join(lines)


def filled(page: str, mark: str, text: str) -> str:
    """The page with this text between the two marks of that name."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"


def with_results(name: str, docs: Path = DOCS) -> str:
    """The page of a study (or ``index``) with its numbers as they are now; pages without marks stay as they are."""
    page = (docs / f"{name}.md").read_text(encoding="utf-8")
    if name == "index":
        return filled(page, "summary", summary(docs))
    return filled(page, "numbers", numbers(name, docs)) if "<!-- numbers -->" in page else page


def _row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def means(table: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Mean over seeds and half-width of its Student-t interval, for every combination of ``by``, in their order."""
    groups = table.dropna(subset=[value]).groupby(list(by), sort=False)[value]
    rows = [(*_tuple(key), *mean_and_interval(values)) for key, values in groups]
    return pd.DataFrame(rows, columns=[*by, "mean", "half_width"])


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def complete(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Without the seeds that some value of a column lacks: runs that are not finished yet leave pairs open."""
    counts = table.groupby("seed")[column].transform("nunique")
    return table[counts == table[column].nunique()]


def thinned(frame: pd.DataFrame, step: int) -> pd.DataFrame:
    """Every ``step``-th logged episode of each run, counted from its end, so that the last one stays."""
    from_end = frame.groupby("cell", sort=False).cumcount(ascending=False)
    return frame[from_end % step == 0]


def summed(run: pd.DataFrame, column: str) -> float:
    """The sum over all episodes of what was measured at the logged ones of a run, linear in between."""
    episodes = run["episode"].to_numpy()
    return float(np.interp(np.arange(1, episodes[-1] + 1), episodes, run[column].to_numpy()).sum())


def world_option(cell: str, name: str, default: str) -> str:
    """An option of the world of a cell, out of its id; ``default`` where it is not given."""
    found = re.search(rf"-{name}=(\S+?)(?=-[a-z_]+=|__|$)", cell.split("__", 1)[0] + "__")
    return default if found is None else found[1]


def draw_ratio(ax: Axes, logs: pd.DataFrame, colour: str, label: str) -> None:
    """A ratio over a size, with intervals: ``logs`` has its logarithm, a row per seed and a column per size."""
    points = means(logs.melt(var_name="size", value_name="log"), ["size"], "log")
    middle, low, high = (np.exp(points["mean"] + sign * points["half_width"]) for sign in (0, -1, 1))
    ax.errorbar(points["size"], middle, yerr=[middle - low, high - middle], color=colour, marker="o", label=label)


def over_sizes(ax: Axes, sizes: Sequence[int], label: str, ratio: bool = True) -> None:
    """A logarithmic axis with a tick for each size; a line at one where a ratio is drawn."""
    if ratio:
        ax.axhline(1.0, color="0.4", linewidth=0.8)
    ax.set(xscale="log", xlabel=label)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    tidy(ax)


def tidy(ax: Axes) -> None:
    """Axes as those of the reports look."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def excess_of_u(frame: pd.DataFrame, horizon: int) -> pd.Series:
    """u over the true occupancy, without the start state, where both are 1: the measures are means over all layers."""
    return (horizon * frame["upper_occupancy"] - 1.0) / (horizon * frame["true_occupancy"] - 1.0)


def describe(found: Mapping[str, Sequence[Finding]]) -> str:
    """All findings, for the terminal."""
    lines = []
    for name, rows in found.items():
        lines += [name, *(f"  {row}{'' if row.excludes_zero else ' (the interval contains zero)'}" for row in rows)]
    return "\n".join(lines)
