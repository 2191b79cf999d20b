"""Figures show what the frame says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from advmdp.experiments.compare import Comparison
from advmdp.experiments.statistics import mean_and_interval
from advmdp.report import comparison_figure, plot_regret


def frame(seeds: int = 3) -> pd.DataFrame:
    rows = [
        {"world": w, "adversary": "a", "learner": name, "seed": s, "episode": e, "regret": e * (s + 1) * f}
        for w in ("x", "y")
        for name, f in (("uniform", 2.0), ("other", 1.0))
        for s in range(seeds)
        for e in (1, 10, 100)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_curves_are_the_means_and_bands_the_intervals():
    ax = Figure().subplots()
    data = frame()
    plot_regret(ax, data[data["world"] == "x"])
    assert [line.get_label() for line in ax.lines] == ["uniform", "other"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [4.0, 40.0, 400.0])
    vertices = ax.collections[0].get_paths()[0].vertices
    mean, half = mean_and_interval([200.0, 400.0, 600.0])
    assert vertices[:, 1].max() == pytest.approx(mean + half)


def test_one_panel_per_world_and_one_legend():
    figure = comparison_figure(frame())
    assert [ax.get_title() for ax in figure.axes] == ["x / a", "y / a"]
    assert len(figure.legends) == 1


def test_table_has_the_ratio_to_uniform():
    speed = frame().assign(episodes_per_second=10.0)
    table = Comparison(frame(), speed).table().set_index(["world", "learner"])
    assert table.loc[("x", "other"), "ratio_to_uniform"] == pytest.approx(0.5)
    assert table.loc[("y", "uniform"), "regret"] == pytest.approx(400.0)
