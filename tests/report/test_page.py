"""The page says what the results say, and nothing in them can break out of it."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from advmdp.experiments.statistics import mean_curves, paired_differences
from advmdp.report.page import render
from advmdp.report.results import interval, number, p_value, significant
from tests.report.example import HOSTILE, LEARNERS, results


class Page(HTMLParser):
    """Tags with their attributes, and the text of the page and of each element with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.by_id: dict[str, str] = {}
        self._open: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br"):
            self._open.append(dict(attrs).get("id"))

    def handle_endtag(self, tag):
        self._open.pop()

    def handle_data(self, data):
        self.text += data
        for name in filter(None, self._open):
            self.by_id[name] = self.by_id.get(name, "") + data

    def data(self):
        return json.loads(self.by_id["data"])


def test_the_data_are_the_means_and_intervals():
    example = results()
    page = Page(render(example))
    curves = mean_curves(example.frame).set_index(["world", "learner"])
    series = {s["learner"]: s for s in page.data()["problems"][1]["curves"]["regret"]}
    assert list(series) == list(LEARNERS)
    expected = curves.loc[("y", "fast")]
    np.testing.assert_allclose(series["fast"]["y"], expected["mean"], rtol=1e-5)
    np.testing.assert_allclose(series["fast"]["high"], expected["mean"] + expected["half_width"], rtol=1e-5)


def test_the_table_has_intervals_ratios_paired_tests_and_exponents():
    example = results()
    table = example.printable("x", "switching").set_index("learner")
    paired = paired_differences(example.frame, "slow").set_index(["world", "learner"]).loc[("x", "fast")]
    assert table.loc["fast", "minus slow's"] == interval(paired["difference"], paired["half_width"])
    assert table.loc["fast", "p, adjusted"] == p_value(paired["p_adjusted"])
    assert re.fullmatch(r"0\.2\d\d", table.loc["fast", "of uniform's"])
    assert table.loc["hindsight", "regret"] == "0 ± 0"
    assert float(table.loc["fast", "exponent"].split(" ± ")[0]) == pytest.approx(0.5, abs=0.03)
    assert "proved bound" not in table  # no learner of the example has one
    for cell in table.loc["fast"]:
        assert cell in Page(render(example)).text


def test_only_measures_with_values_are_offered():
    plain = Page(render(results())).data()["measures"]
    assert [m["key"] for m in plain] == ["regret", "over_sqrt", "loss"]
    measured = results(width=0.5, upper_occupancy=0.6, true_occupancy=0.2, ERROR=np.nan, regret_per_episode=1.0)
    data = Page(render(measured)).data()
    offered = {m["key"]: m["label"] for m in data["measures"]}
    assert list(offered) == ["regret", "over_sqrt", "loss", "width", "upper_ratio", "regret_per_episode"]
    assert offered["regret_per_episode"] == "regret per episode"
    np.testing.assert_allclose(data["problems"][0]["curves"]["upper_ratio"][0]["y"], 3.0)


def test_who_lost_least_stands_first_with_what_an_episode_costs():
    example = results(cumulative_loss=50.0)
    losses = example.rows["learner"].map({"slow": 60.0, "fast": 40.0, "uniform": 80.0, "hindsight": 50.0})
    page = Page(render(replace(example, rows=example.rows.assign(cumulative_loss=losses))))
    assert page.text.index(
        "fast lost least, 0.400 per episode: 0.100 ± 0.000 less than hindsight, no tie (95%, this pair alone)"
    ) < (page.text.index("After the last episode"))
    table = replace(example, rows=example.rows.assign(cumulative_loss=losses)).short("x", "switching")
    assert [row[0] for row in table] == ["fast", "hindsight", "slow", "uniform"]
    assert (table[0][1], table[0][3]) == ("0.400 ± 0.000", "4.00")  # 0.4 s for 100 episodes
    assert [m["key"] for m in page.data()["measures"]] == ["regret", "over_sqrt", "mean_loss", "loss"]


def test_bounds_are_drawn_where_they_say_something_and_a_sentence_stands_for_the_others():
    example = results(("x",), pictures=True)  # H = 4, 100 episodes: 400 can be lost
    last = example.rows["episode"] == 100
    bound = example.rows["learner"].map({"slow": 399.0, "fast": 401.0}).where(last)
    page = Page(render(replace(example, rows=example.rows.assign(bound=bound))))
    drawn = [s for s in page.data()["problems"][0]["curves"]["regret"] if "of" in s]
    assert [(s["learner"], s["of"], s["x"], s["y"]) for s in drawn] == [
        ("proved bound of slow", "slow", [100], [399.0])
    ]
    assert (
        "At this size the proved bounds of fast say nothing: they are above 400, the most that can be lost."
        in page.text
    )
    assert "say nothing" not in Page(render(example)).text


def test_what_is_trusted_is_drawn_for_those_who_trust():
    example = results(("x",), **{"trust in a": 0.25, "trust in b": 0.75})
    mine = example.rows["learner"] == "slow"
    rows = example.rows.assign(**{name: example.rows[name].where(mine) for name in ("trust in a", "trust in b")})
    page = Page(render(replace(example, rows=rows)))
    (series,) = page.data()["problems"][0]["trust"]
    assert [(s["learner"], set(s["y"])) for s in series] == [("trust in a", {0.25}), ("trust in b", {0.75})]
    assert "slow on x / switching" in page.by_id["trust-0-0"]
    assert "What is trusted" not in Page(render(results())).text


def test_a_partial_experiment_says_so_and_names_what_failed():
    page = Page(render(results(states={0: "failed", 1: "running", 2: "pending", 3: "pending"})))
    assert page.by_id["partial"].startswith("Partial results: 20 of 24 cells are done (1 running, 2 pending, 1 failed)")
    assert "cell-0, attempts: 3" in page.by_id["failed"]
    assert "ValueError" in page.by_id["failed"]
    assert page.data()["learners"] == list(LEARNERS)  # in the order of the spec, although the first cell is missing
    assert "partial" not in Page(render(results())).by_id


def test_an_experiment_without_results_has_a_page():
    example = results(states=dict.fromkeys(range(24), "pending"))
    empty = replace(example, rows=results().rows.iloc[:0])
    page = Page(render(empty))
    assert "0 of 24 cells are done" in page.by_id["partial"]
    assert page.data()["problems"] == []


def test_a_single_seed_and_a_single_learner_have_a_page():
    page = Page(render(results(learners={"alone": 1.0}, seeds=1)))
    assert page.data()["profile"] is None
    assert "±" not in page.by_id["problem-0"]
    assert page.data()["problems"][0]["curves"]["regret"][0]["low"] == [None] * 7


def test_spec_environment_and_command_are_shown():
    page = Page(render(results(spec_text="episodes = 7 # <&>\n")))
    assert page.by_id["spec"] == "episodes = 7 # <&>\n"
    assert "advmdp run spec.toml --out results   # advmdp 0.1.0, revision 0123456789ab, with changes" in page.text
    assert "python 3.13, numpy 2.0" in page.by_id["environment"]
    assert "ray" not in page.by_id["environment"]
    assert "a processor" in page.by_id["environment"]


def test_hostile_labels_stay_text():
    harmless = Page(render(results()))
    names = {HOSTILE: 1.0, "uniform": 2.0}
    hostile = results((HOSTILE,), names, title=HOSTILE, states={0: "failed"}, spec_text=f"# {HOSTILE}")
    page = Page(render(hostile))
    count = lambda p, tag: sum(name == tag for name, _ in p.tags)  # noqa: E731
    assert count(page, "script") == count(harmless, "script") == 2
    assert all(dict(attributes).get("onerror") is None for _, attributes in page.tags)
    assert all((a["src"] or "").startswith("data:image/png") for tag, a in page.tags if tag == "img")
    assert page.by_id["spec"] == f"# {HOSTILE}"
    assert page.data()["learners"] == [HOSTILE, "uniform"]
    assert "49" not in page.by_id["spec"]


def test_the_page_names_no_other_place():
    text = render(results())
    outside = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", text)
    assert all(link.startswith(("data:", "#")) for link in outside), outside
    # A namespace is a name, not an address.
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}


def test_equal_results_give_equal_pages_with_pictures():
    page = render(results(("x",), pictures=True))
    assert page == render(results(("x",), pictures=True))
    pictures = [attributes for tag, attributes in Page(page).tags if tag == "img"]
    assert [picture["alt"] for picture in pictures] == [
        "drawing of x, last policy against switching",
        "heat maps of policies and occupancy on x against switching",
    ]
    assert all(base64.b64decode(picture["src"].partition(",")[2]).startswith(b"\x89PNG") for picture in pictures)


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.nan, ""), (-1e-9, "0"), (0.1234, "0.123"), (12.345, "12.3"), (1234567.0, "1,234,567"), (2e9, "2.0e9")],
)
def test_numbers_are_readable(value, text):
    assert number(value) == text


def test_intervals_have_equal_decimals_and_no_minus_zero():
    assert interval(1234.5, 6.78) == "1,234 ± 7"
    assert interval(-0.0001, 0.5) == "0.000 ± 0.500"
    assert interval(5.0, np.nan) == "5.00"
    assert (p_value(0.0001), p_value(0.01234), p_value(np.nan)) == ("< 0.001", "0.012", "")
    assert significant([1.23456789, np.nan]) == [1.23457, None]
