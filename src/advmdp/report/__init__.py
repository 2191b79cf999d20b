"""Figures of results, and the report of an experiment."""

from __future__ import annotations

from advmdp.report.figures import (
    comparison_figure,
    make_styles,
    plot_decomposition,
    plot_growth,
    plot_occupancy,
    plot_policy,
    plot_profile,
    plot_regret,
    plot_regret_over_sqrt,
    plot_upper_occupancy,
    plot_width,
)
from advmdp.report.worlds import draw_world
from advmdp.report.write import write_report

__all__ = [
    "comparison_figure",
    "draw_world",
    "make_styles",
    "plot_decomposition",
    "plot_growth",
    "plot_occupancy",
    "plot_policy",
    "plot_profile",
    "plot_regret",
    "plot_regret_over_sqrt",
    "plot_upper_occupancy",
    "plot_width",
    "write_report",
]
