"""The two worked cases with a process of one's own, from the code that is printed on their pages."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from advmdp import occupancy
from tests.test_examples import example

SHARES = {"spot-machines": [0.3, 0.4, 0.3], "battery": [0.5, 0.4, 0.1]}
CASES = sorted(SHARES)


@pytest.fixture(scope="module")
def pages():
    script = example("guide_figures")
    return {name: script.case(name) for name in CASES}


def mean_losses(name, page):
    """Expected losses in the first 100 episodes, which is what the logs are about too."""
    mdp = page["process"].mdp(SHARES[name])

    def cost(number, step, state, action):
        if name == "battery":
            return action * page["price"](number, step)
        survive = float(np.dot(SHARES[name], list(page["KEPT"].values()))) * action
        return page["cost"](number, step, action, state[0] - survive)

    tables = [page["process"].losses(partial(cost, number)) for number in range(0, 100, 10)]
    return mdp, [np.mean(layer, axis=0) for layer in zip(*tables, strict=True)]


@pytest.mark.parametrize("name", CASES)
def test_a_thousand_logged_episodes_make_the_first_policy_better_than_uniform(name, pages):
    page = pages[name]
    mdp, losses = mean_losses(name, page)
    state = page["informed"].learner.moment
    first = sum(
        weight * occupancy.expected_loss(mdp, mdp.layers.split(policy), losses)
        for weight, policy in zip(state.meta.weights, state.policies, strict=True)
    )
    uniform = occupancy.expected_loss(mdp, mdp.layers.split(mdp.layers.uniform_policy), losses)
    best = occupancy.best_policy(mdp, losses)[1]
    assert page["informed"].episodes_seen == 0
    assert uniform - first > 0.05 * (uniform - best)  # a third of the draws are the safe expert, which is uniform


@pytest.mark.parametrize("name", CASES)
def test_a_case_takes_less_than_sixty_lines_of_the_user(name):
    script = example("guide_figures")
    text = (script.PAGES / f"{name}.md").read_text(encoding="utf-8")
    lines = [line for block in script.BLOCK.findall(text) for line in block.splitlines() if line.strip()]
    assert len(lines) < 60


@pytest.mark.parametrize("name", CASES)
def test_the_portfolio_is_ahead_of_uniform_play_and_of_the_rule_after_a_while(name, pages):
    script = example("guide_figures")
    costs = script.own_process(name, 300, 1, ("uniform", "rule by hand", "portfolio"))
    late = {way: rows[0, 200:].mean() for way, rows in costs.items()}
    assert late["portfolio"] < min(late["uniform"], late["rule by hand"])
