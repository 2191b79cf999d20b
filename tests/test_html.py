"""What a notebook shows of worlds, models and results."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy import sparse

import advmdp
from advmdp.experiments import compare

HOSTILE = '<script>alert(1)</script>&"'


class Cells(HTMLParser):
    """Texts of the cells of a table; any tag that a table does not have is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        assert tag in {"table", "caption", "tr", "th", "td", "thead", "tbody"}, tag

    def handle_data(self, data):
        self.texts.append(data)


def shown(value) -> str:
    return " | ".join(text for text in Cells(value._repr_html_()).texts if text.strip())


def test_a_world_shows_its_shape_and_what_is_known_of_it():
    text = shown(advmdp.make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=4))
    for fact in ("LinearMixtureMDP", "steps (H) | 3", "8; by layer 1, 3, 3, 1", "actions (A) | 2", "of 4 kernels"):
        assert fact in text
    assert "natural losses" in shown(advmdp.make_world("inventory"))


def test_models_show_theirs_and_unavailable_actions():
    model = advmdp.TabularModel((1, 2, 1), 2, [[[True, False]], [[True, True], [True, True]]])
    assert shown(model) == (
        "TabularModel | steps (H) | 2 | states (S) | 4; by layer 1, 2, 1 | actions (A) | 2, 1.67 available on average"
    )


def test_names_of_a_users_actions_are_escaped():
    scene = advmdp.Scene(actions=[HOSTILE, "go"])
    assert HOSTILE in shown(advmdp.LayeredMDP([np.ones((1, 2, 1))], scene=scene))


def test_a_world_of_a_hundred_thousand_states_is_shown_at_once():
    n, layers = 1000, 100
    first, last = sparse.csr_array(np.full((1, n), 1.0 / n)), sparse.csr_array(np.ones((n, 1)))
    world = advmdp.LayeredMDP([first, *[sparse.eye_array(n, format="csr")] * layers, last], n_actions=1)
    start = time.perf_counter()
    html = world._repr_html_()
    assert time.perf_counter() - start < 0.5
    assert len(html) < 2000
    assert "101,002; by layer 1, 1000, 1000, 1000, 1000, 1000, …, 1000" in html


def test_a_result_shows_regret_and_what_it_is_compared_with():
    world = advmdp.make_world("grid", height=3, width=3)
    losses = advmdp.make_adversary("stochastic", world, 20)
    result = advmdp.run(world, advmdp.make_learner("o-reps", world, 20), losses, 20)
    text = shown(result)
    assert f"{result.regret[-1]:,.4g}" in text
    assert f"proved bound | {result.frame['bound'].iloc[-1]:,.4g}" in text
    assert f"best {result.baselines['best']:,.4g}" in text
    text = shown(advmdp.run(world, advmdp.make_learner("uniform", world, 20), losses, 20))
    assert "proved bound | none" in text
    assert "options | none" in text


def test_a_comparison_shows_its_table():
    text = shown(compare(["grid"], ["switching"], ["uniform", "ftl"], episodes=5, seeds=1))
    for cell in ("regret", "ratio_to_uniform", "ftl"):
        assert cell in text
    assert "nan" not in text.lower()


def test_the_parser_of_these_tests_finds_what_is_not_escaped():
    with pytest.raises(AssertionError, match="script"):
        Cells(f"<table><tr><td>{HOSTILE}</td></tr></table>")
