"""The tables on the portfolio's page are those that its benchmark gives."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks import bench_portfolio as bench


def test_the_page_says_what_the_tables_say():
    (block,) = bench.BLOCK.finditer(bench.PAGE.read_text(encoding="utf-8"))
    written = block[0].removeprefix(block[1]).removesuffix(block[2])
    assert written == bench.measured(), "run `python -m benchmarks.bench_portfolio pages`"


def cells(worlds, learners):
    """Regret 1 for uniform; the portfolio 0.05 with and 0.04 without premium; others 0.1, 0.2, ..."""
    values = {"uniform": 1.0, "portfolio": 0.05, "portfolio, no premium": 0.04}
    rows = [
        {"world": world, "kind": kind, "seed": seed, "learner": name, "regret": values.get(name, 0.1 * number),
         "excess 0": 0.02, "excess 1": -0.5, "certificate": 0.03, "best expert": 0.01}
        for world in worlds for kind in bench.KINDS for seed in (0, 1) for number, name in enumerate(learners)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_tables_that_are_missing_are_left_out(tmp_path):
    assert bench.measured(tmp_path) == ""
    everybody = [*bench.RIVALS, *bench.PORTFOLIOS]
    cells(bench.WORLDS, everybody).to_csv(tmp_path / "portfolio-cells.csv", index=False)
    text = bench.measured(tmp_path)
    assert text.count("\n| natural | ") == 1
    assert "| natural | 0.95 | 0.95 | 0.90 | 0.80 | 0.70 | 0.60 | 0.50 |" in text
    assert "in\n30 of 30 cells" in text
    assert "The premium costs at most 0.010 per episode" in text
    assert "than the certificate says in 0 of 60 cells." in text
    assert "hostile" not in text
    layers = cells([f"{name}, per layer" for name in bench.WORLDS], ["portfolio"])
    layers["regret"] = 0.19
    layers.to_csv(tmp_path / "portfolio-layers.csv", index=False)
    text = bench.measured(tmp_path)
    assert "by at most 0.14," in text
    assert "in 30 of 30 cells." in text


def test_cells_that_are_not_there_yet_are_left_out(tmp_path):
    rows = cells(bench.WORLDS, [*bench.RIVALS, *bench.PORTFOLIOS])
    rows = rows[(rows["world"] != "queue") | (rows["learner"] == "uniform")]
    rows.to_csv(tmp_path / "portfolio-cells.csv", index=False)
    assert "25 of 25 cells" in bench.measured(tmp_path)


def test_growth_is_fitted_in_logarithms(tmp_path):
    rows = [
        {"losses": losses, "learner": name, "episodes": episodes, "seed": 0, "regret": episodes**power}
        for losses in bench.HOSTILE
        for name, power in (("planner", 1.0), ("portfolio", 0.5))
        for episodes in (1000, 4000, 16000)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "portfolio-hostile.csv", index=False)
    text = bench.measured(tmp_path)
    assert "| alternating | planner | 1,000 | 4,000 | 16,000 | 1.00 |" in text
    assert "| 0.50 |" in text
    assert np.isnan(bench.exponent([1, 2], np.array([1.0, -1.0])))
