"""Figures of results."""

from __future__ import annotations

from advmdp.report.figures import comparison_figure, plot_regret

__all__ = ["comparison_figure", "plot_regret"]
