"""Writing the report of an experiment beside its results, in the formats that are asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from advmdp import storage
from advmdp.errors import InvalidSpecError
from advmdp.experiments.statistics import GROUP, mean_curves
from advmdp.report.figures import (
    comparison_figure,
    legend_below,
    plot_decomposition,
    plot_growth,
    plot_profile,
    plot_regret,
    plot_regret_over_sqrt,
    plot_upper_occupancy,
    plot_width,
)
from advmdp.report.page import image, policy_figure, render, world_figures
from advmdp.report.results import Results
from advmdp.theory.decomposition import TERMS

FORMATS = ("html", "pdf", "png", "csv", "latex")


def write_report(directory: str | os.PathLike[str], formats: Sequence[str] = ("html",)) -> Path:
    """Write the report of the experiment in ``directory``, and return where it is.

    ``html`` is one page, ``report.html``, that needs nothing else.  ``pdf`` and ``png`` are every figure by itself,
    ``csv`` and ``latex`` every table, in the folder ``report/``.  Files are replaced in one step, and the same results
    give the same files.  Works while the experiment runs, on what is finished; the page then says so.

    Returns
    -------
    The page, or the folder if there is no page among the formats.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise InvalidSpecError(f"formats {list(formats)}: there are {', '.join(FORMATS)}")
    results = Results.read(directory)
    root, folder = Path(directory), Path(directory) / "report"
    if any(name != "html" for name in formats):
        if results.rows.empty:
            raise InvalidSpecError(f"{directory} has no finished cells, so no figures and tables yet")
        folder.mkdir(exist_ok=True)
    for kind in dict.fromkeys(formats):
        if kind == "html":
            storage.replace(root / "report.html", render(results).encode())
        elif kind in ("pdf", "png"):
            for name, figure in figures(results):
                storage.replace(folder / f"{name}.{kind}", image(figure, kind))
        elif kind == "csv":
            for name, table in tables(results):
                storage.replace(folder / f"{name}.csv", table.to_csv(index=False, lineterminator="\n").encode())
        else:
            for name, table in tables(results):
                if name != "curves":  # thousands of rows are for a program to read
                    text = results.printable() if name == "final" else table
                    storage.replace(folder / f"{name}.tex", _latex(text).encode())
    return root / "report.html" if "html" in formats else folder


def figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """Name and content of every figure that the results have data for."""
    frame = results.frame
    panels = {"regret": plot_regret, "regret-over-sqrt": plot_regret_over_sqrt, "growth": plot_growth}
    if "width" in results.measures:
        panels |= {"width": plot_width, "upper-occupancy": plot_upper_occupancy}
    for name, draw in panels.items():
        yield name, comparison_figure(frame, draw)
    if results.profile is not None:
        yield "profile", _profile_figure(frame)
    if TERMS[0] in results.measures:
        parts = frame.dropna(subset=[TERMS[0]])
        for number, (learner, rows) in enumerate(parts.groupby("learner", sort=False), 1):
            yield _file_name("decomposition", number, str(learner)), _decomposition_figure(rows)
    for number, (title, figure) in enumerate(world_figures(results), 1):
        yield _file_name("world", number, title), figure
    for number, ((world, adversary), final) in enumerate(results.finals.items(), 1):
        yield _file_name("policy", number, world, adversary), policy_figure(final, results.worlds.get(world))


def tables(results: Results) -> Iterator[tuple[str, pd.DataFrame]]:
    """Name and content of every table, all digits kept."""
    yield "final", results.final
    yield "curves", pd.concat([mean_curves(results.frame, c).assign(measure=c) for c in results.measures])
    if results.profile is not None:
        yield "profile", results.profile
    if results.scaling is not None:
        yield "scaling", results.scaling


def _latex(table: pd.DataFrame) -> str:
    alignment = "".join("l" if column in GROUP else "r" for column in table)
    return str(table.to_latex(index=False, escape=True, column_format=alignment, float_format="%.3g"))


def _profile_figure(frame: pd.DataFrame) -> Figure:
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    ax = figure.subplots()
    plot_profile(ax, frame)
    legend_below(figure, ax)
    return figure


def _decomposition_figure(frame: pd.DataFrame) -> Figure:
    return comparison_figure(frame, lambda ax, rows, styles: plot_decomposition(ax, rows))


def _file_name(kind: str, number: int, *labels: str) -> str:
    """Readable and safe, whatever the labels are; the number keeps names apart that become equal."""
    plain = re.sub(r"[^a-z0-9.=]+", "-", "-".join(labels).lower()).strip("-.")
    return f"{kind}-{number}-{plain[:60]}"
