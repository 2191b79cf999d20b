"""Figures show what the frame says."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from advmdp import InvalidSpecError, Scene
from advmdp.experiments.compare import Comparison
from advmdp.experiments.statistics import mean_and_interval, mean_curves
from advmdp.report import (
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
from advmdp.report.figures import COLOURS, spread


def frame(seeds: int = 3, worlds: tuple[str, ...] = ("x", "y")) -> pd.DataFrame:
    rows = [
        {"world": w, "adversary": "a", "learner": name, "seed": s, "episode": e, "regret": e * (s + 1) * f}
        for w, (name, f), s, e in product(worlds, (("uniform", 2.0), ("other", 1.0)), range(seeds), (1, 10, 100))
    ]
    return pd.DataFrame(rows)


def one_world(**columns: float) -> pd.DataFrame:
    return frame(worlds=("x",)).assign(**columns)


@pytest.fixture
def ax():
    return Figure().subplots()


def labelled(ax):
    """The curves by label; edges of bands have none."""
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def test_curves_are_the_means_and_bands_the_intervals(ax):
    plot_regret(ax, one_world())
    assert list(labelled(ax)) == ["uniform", "other"]
    np.testing.assert_allclose(labelled(ax)["uniform"].get_ydata(), [4.0, 40.0, 400.0])
    vertices = ax.collections[0].get_paths()[0].vertices
    mean, half = mean_and_interval([200.0, 400.0, 600.0])
    assert vertices[:, 1].max() == pytest.approx(mean + half)


def test_bounds_are_drawn_where_they_say_something_and_the_figure_names_the_others(ax):
    data = one_world()
    three = pd.concat([data, data[data["learner"] == "other"].assign(learner="third $")])
    # H k is 5, 50 and 500: uniform's bound falls below it, other's is far above, the third has one at the end alone.
    at_the_end = np.where(three["episode"] == 100, 450.0, np.nan)
    bound = three["learner"].map({"other": 1e9}).fillna(20.0 * np.sqrt(three["episode"]))
    bound = bound.where(three["learner"] != "third $", at_the_end)
    plot_regret(ax, three.assign(bound=bound), bounds=True, horizon=5)
    proved = {label: line for label, line in labelled(ax).items() if label.endswith(", proved")}
    assert {label: line.get_xdata().tolist() for label, line in proved.items()} == {
        "uniform, proved": [100], r"third \$, proved": [100],
    }  # fmt: skip
    np.testing.assert_allclose(proved["uniform, proved"].get_ydata(), [200.0])
    assert proved["uniform, proved"].get_color() == labelled(ax)["uniform"].get_color()
    assert ax.get_xlabel() == "episodes\nVacuous, at least H k, are the proved bounds of other."


def test_a_figure_is_fitted_to_the_curves_and_names_the_bounds_above_it(ax):
    plot_regret(ax, one_world())
    fitted = ax.get_ylim()
    ax.clear()
    bound = one_world()["learner"].map({"other": 5.0 * fitted[1]})
    plot_regret(ax, one_world(bound=bound), bounds=True, horizon=1000)
    assert ax.get_ylim() == fitted
    assert "other, proved" not in labelled(ax)
    assert "Above the picture: the proved bounds of other (5 times its top)." in ax.get_xlabel().replace("\n", " ")


def test_a_figure_says_that_no_bound_is_vacuous_or_that_none_is_proved(ax):
    plot_regret(ax, one_world(bound=1.0), bounds=True, horizon=5)
    assert ax.get_xlabel().endswith("No proved bound is vacuous.")
    plot_regret(ax, one_world(bound=np.nan), bounds=True, horizon=5)
    assert ax.get_xlabel().endswith("No bound is proved for these learners.")
    plot_regret(ax, one_world(bound=1.0))
    assert ax.get_xlabel() == "episodes"
    with pytest.raises(InvalidSpecError, match="needs horizon"):
        plot_regret(ax, one_world(bound=1.0), bounds=True)


def test_mean_curves_agree_with_the_interval_of_each_point():
    curves = mean_curves(frame()).set_index(["world", "learner", "episode"])
    assert tuple(curves.loc[("y", "other", 10), ["mean", "half_width"]]) == pytest.approx(
        mean_and_interval([10.0, 20.0, 30.0])
    )
    assert mean_curves(frame(seeds=1))["half_width"].isna().all()


def test_a_single_seed_has_a_curve_and_no_band(ax):
    plot_regret(ax, frame(seeds=1, worlds=("x",)))
    assert len(ax.lines) == 2
    assert not ax.collections


def test_regret_over_sqrt_is_flat_for_a_square_root(ax):
    data = one_world()
    plot_regret_over_sqrt(ax, data.assign(regret=3.0 * np.sqrt(data["episode"])))
    np.testing.assert_allclose(labelled(ax)["other"].get_ydata(), 3.0)


def test_growth_shows_the_exponents_and_leaves_rounding_errors_out(ax):
    data = one_world()
    data.loc[data["learner"] == "other", "regret"] = 1e-13
    plot_growth(ax, data)
    assert list(labelled(ax)) == ["uniform"]
    assert [text.get_text() for text in ax.texts] == ["1.00 ± 0.00"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_ylim()[0] > 1e-3


def test_a_seed_with_negative_regret_stays_in_the_mean_of_a_logarithmic_figure(ax):
    data = one_world()
    data.loc[(data["seed"] == 0) & (data["episode"] == 10), "regret"] = -5.0
    plot_growth(ax, data)
    episodes, means = labelled(ax)["other"].get_data()
    assert list(episodes) == [1, 10, 100]
    assert means[1] == pytest.approx((-5.0 + 20.0 + 30.0) / 3)


def test_width_and_ratio_of_occupancies(ax):
    plot_width(ax, one_world(width=0.5))
    np.testing.assert_allclose(labelled(ax)["uniform"].get_ydata(), 0.5)
    ratio = Figure().subplots()
    plot_upper_occupancy(ratio, one_world(upper_occupancy=0.6, true_occupancy=0.2))
    np.testing.assert_allclose(labelled(ratio)["uniform"].get_ydata(), 3.0)


def test_decomposition_draws_the_regret_and_its_parts(ax):
    data = one_world(**{"REGRET": 1.0, "ERROR": 2.0, "BIAS-I": 3.0, "BIAS-II": -1.0})
    plot_decomposition(ax, data[data["learner"] == "other"])
    assert list(labelled(ax)) == ["regret", "REGRET", "ERROR", "BIAS-I", "BIAS-II"]
    np.testing.assert_allclose(labelled(ax)["BIAS-II"].get_ydata(), -1.0)
    with pytest.raises(InvalidSpecError, match=r"one learner, the frame has \['uniform', 'other'\]"):
        plot_decomposition(ax, data)


@pytest.mark.parametrize("draw", [plot_width, plot_upper_occupancy, plot_decomposition])
def test_a_measure_that_was_not_asked_for_is_named(ax, draw):
    with pytest.raises(InvalidSpecError, match="lacks the columns"):
        draw(ax, one_world())


def test_profile_reaches_one_at_the_worst_ratio(ax):
    plot_profile(ax, frame())
    other = labelled(ax)["other"]
    ratios, shares = other.get_data()
    assert list(zip(ratios, shares, strict=True))[:2] == [(0.0, 0.0), (0.5, 1.0)]
    assert ax.get_title(loc="left").startswith("6 runs each")
    with pytest.raises(InvalidSpecError, match="'uniform' had regret"):
        plot_profile(ax, frame().assign(regret=0.0))


def test_heat_maps_of_named_states_have_a_row_per_name(ax):
    scene = Scene(states=[["start"], [7, 3], [3, "a state of a very long name"], ["end"]], actions=["left $", "right"])
    policy = [np.array([[0.1, 0.9]]), np.array([[0.2, 0.8], [0.3, 0.7]]), np.array([[0.4, 0.6], [0.5, 0.5]])]
    available = [np.ones((1, 2)), np.array([[1, 1], [0, 1]]), np.ones((2, 2))]
    plot_policy(ax, policy, available, scene)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["start", "a state of a very…", "3", "7"]
    assert ax.get_xlabel() == r"layer (columns: left \$, right)"
    drawn = ax.images[0].get_array().filled(np.nan)[:, [0, 1, 3, 4, 6, 7]]
    nan = np.nan
    expected = [[0.1, 0.9, nan, nan, nan, nan], [nan] * 4 + [0.5, 0.5],
                [nan, nan, nan, 0.7, 0.4, 0.6], [nan, nan, 0.2, 0.8, nan, nan]]  # fmt: skip
    np.testing.assert_allclose(drawn, expected)


@pytest.mark.parametrize("names", [None, [["start"], ["same", "same"], ["end"]]])
def test_heat_maps_have_numbers_where_names_are_missing_or_equal(ax, names):
    plot_policy(ax, [np.ones((1, 1)), np.ones((2, 1))], scene=Scene(states=names))
    assert ax.get_ylabel() == "state"
    assert ax.images[0].get_array().shape == (2, 3)


def test_heat_maps_have_a_block_per_layer_and_a_row_per_state(ax):
    policy = [np.array([[0.25, 0.75]]), np.array([[1.0, 0.0], [0.5, 0.5], [0.1, 0.9]])]
    plot_policy(ax, policy)
    grid = ax.images[0].get_array().filled(np.nan)
    np.testing.assert_array_equal(grid[0], [0.25, 0.75, np.nan, 1.0, 0.0])
    assert np.isnan(grid[1:, :3]).all()
    occupancy = Figure().subplots()
    plot_occupancy(occupancy, [np.array([[0.0, 1.0]])])
    assert np.isfinite(occupancy.images[0].get_array()).all()  # zero is a value, not a gap


def test_one_panel_per_world_and_one_legend_below_all():
    figure = comparison_figure(frame())
    assert [ax.get_title() for ax in figure.axes] == ["x / a", "y / a"]
    assert len(figure.legends) == 1
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert all(not legend.overlaps(ax.get_window_extent()) for ax in figure.axes)


def test_a_learner_looks_the_same_in_every_panel():
    data = frame()
    figure = comparison_figure(data[~((data["world"] == "y") & (data["learner"] == "uniform"))])
    first, second = (labelled(ax)["other"] for ax in figure.axes)
    assert first.get_color() == second.get_color()


def test_dollar_signs_in_labels_are_not_mathematics(ax):
    data = one_world()
    plot_regret(ax, data.assign(learner=data["learner"].replace("other", "costs $5 $\\frac$")))
    ax.legend()
    ax.figure.canvas.draw()


def test_labels_are_pushed_apart_and_stay_inside():
    np.testing.assert_allclose(spread([0.1, 0.5, 0.9], 0.1), [0.1, 0.5, 0.9])
    np.testing.assert_allclose(spread([0.5, 0.5], 0.1), [0.45, 0.55])
    np.testing.assert_allclose(spread([0.98, 0.99, 1.0], 0.1), [0.8, 0.9, 1.0])


def test_styles_differ_for_many_learners():
    assert len(set(make_styles(f"learner {i}" for i in range(28)).values())) == 28


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanope": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def lab(colour: str, sight) -> np.ndarray:
    """CIE L*a*b* of a colour as that eye sees it; distances below about 2 are invisible."""
    rgb = np.array(to_rgb(colour))
    linear = np.clip(sight @ np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4), 0.0, 1.0)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    ratio = to_xyz @ linear / [0.9505, 1.0, 1.0888]
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_differ_also_for_the_colour_blind(sight):
    seen = [lab(colour, np.array(SIGHTS[sight])) for colour in COLOURS]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15.0


def test_table_has_the_ratio_to_uniform():
    speed = frame().assign(episodes_per_second=10.0, milliseconds=2.0)
    table = Comparison(frame(), speed).table().set_index(["world", "learner"])
    assert table.loc[("x", "other"), "ratio_to_uniform"] == pytest.approx(0.5)
    assert table.loc[("x", "other"), "milliseconds"] == 2.0
    assert table.loc[("y", "uniform"), "regret"] == pytest.approx(400.0)
