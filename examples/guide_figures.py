"""The figures and tables of the worked cases in docs/guides, from the code that is printed there.

    python examples/guide_figures.py docs/guides            # 1500 episodes, 5 seeds
    python examples/guide_figures.py elsewhere 1500 10

The pages are the only place where the cases are written down: their blocks are executed here, and what they define is
then run for longer, for several seeds, and beside the alternatives that an engineer has.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import poisson, t

import advmdp
from advmdp.occupancy import best_policy, expected_loss
from advmdp.registry import learners

PAGES = Path(__file__).resolve().parents[1] / "docs" / "guides"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COLOURS = {
    "uniform": "#888888",
    "best fixed policy": "#000000",
    "vlsuob-reps-tight": "#0072b2",
    "vlsuob-reps-anytime": "#56b4e9",
    "vlsuob-reps-bank": "#009e73",
    "uob-reps": "#cc79a7",
    "planner": "#d55e00",
    "portfolio": "#e69f00",
    "plan of the first day": "#8c564b",
    "shortest roads": "#8c564b",
    "rule by hand": "#8c564b",
    "portfolio, told the rule": "#009e73",
}
#: Learners of the two cases.
BAKERS = ("uob-reps", "vlsuob-reps-tight", "vlsuob-reps-bank", "planner", "portfolio")
DRIVERS = ("vlsuob-reps-tight", "vlsuob-reps-anytime", "planner", "portfolio")
#: Who decides in the other two; a learner that is told of the rule has it behind a comma.
OPERATORS = ("uniform", "rule by hand", "planner", "portfolio", "portfolio, told the rule")


def case(name: str) -> dict[str, Any]:
    """What the blocks of a page define."""
    namespace: dict[str, Any] = {"__name__": name}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for source in BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8")):
                exec(source, namespace)
        finally:
            os.chdir(here)
    return namespace


# ------------------------------------------------------------------------------------ inventory


def expected_costs(bakery: dict[str, Any], shift: int, weights: np.ndarray) -> list[np.ndarray]:
    """Mean loss of every pair in a shift, if hours are quiet, usual and busy with these weights."""
    came = np.arange(25)
    kinds = np.array([poisson.pmf(came, mean) for mean in bakery["DEMAND"].values()])
    most = bakery["process"].cost_range[1]

    def cost(hour: int, stock: int, baked: int) -> float:
        euros = [min(bakery["cost"](shift, stock, baked, n), most) for n in came]
        return float(weights[hour] @ kinds @ euros)

    return bakery["process"].losses(cost)


def inventory(
    shifts: int = 1500,
    seeds: int = 5,
    names: Sequence[str] = BAKERS,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Expected cost of every shift by way of running the shop (a row per seed), and log e-values of the model."""
    bakery = case("inventory")
    truth, process = np.array(bakery["WEIGHTS"]), bakery["process"]
    world = process.mdp(truth)
    euros = process.cost_range[1]  # a loss is a share of this
    regimes = [expected_costs(bakery, shift, truth) for shift in (0, 500)]
    later = np.arange(shifts) >= 500

    def fixed(policy: Sequence[np.ndarray]) -> np.ndarray:
        costs = [euros * expected_loss(world, policy, tables) for tables in regimes]
        return np.where(later, costs[1], costs[0])[None]

    equal = np.full_like(truth, 1.0 / truth.shape[1])
    plan, _ = best_policy(process.mdp(equal), expected_costs(bakery, 0, equal))
    total = [a * (~later).sum() + b * later.sum() for a, b in zip(*regimes, strict=True)]
    costs = {
        "uniform": fixed(world.layers.split(world.layers.uniform_policy)),
        "plan of the first day": fixed(plan),
        "best fixed policy": fixed(best_policy(world, total)[0]),
    }

    def baker(name: str, seed: int = 0, episodes: int = shifts) -> Any:
        options = {"episodes": episodes} if learners.get(name).needs_episodes else {}
        return advmdp.Agent(process, name, seed=seed, clip=True, **options)

    for name in names:
        costs[name] = np.empty((seeds, shifts))
        for seed in range(seeds):
            agent = baker(name, seed)
            for k in range(shifts):
                costs[name][seed, k] = euros * expected_loss(world, agent.learner.policy, regimes[int(later[k])])
                bakery["operate"](agent, k + 1, seed)
    evidence = {"a mixture": np.empty(0), "with the coach": np.empty(0)}
    for name in evidence:
        agent = baker("vlsuob-reps-tight", episodes=1500)
        values = []
        for k in range(10, min(400, shifts) + 1, 10):
            bakery["operate"](agent, k, coach=name == "with the coach")
            values.append([k, agent.learner.misspecification().log_e_total])
        evidence[name] = np.array(values).T
    return costs, evidence


# -------------------------------------------------------------------------------------- routing


def routing(
    lorries: int = 1500,
    seeds: int = 5,
    ways: Sequence[str] = ("uniform", "shortest roads", *DRIVERS),
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Minutes of every lorry by way of choosing roads (a row per seed), and the gap of every mirror step."""
    page = case("routing")
    scenarios = [
        [np.eye(3)[[[page["road_taken"](closed, leg, place, road) for road in range(3)] for place in range(stops)]]
         for leg, stops in enumerate(page["STOPS"][:3])] + [np.ones((3, 3, 1))]
        for closed in page["SCENARIOS"].values()
    ]  # fmt: skip
    empty = page["City"]()
    free = [
        np.array([[empty.minutes(leg, place, road) for road in range(3)] for place in range(stops)])
        for leg, stops in enumerate(page["STOPS"][:-1])
    ]
    shortest, _ = best_policy(scenarios[0], free)
    minutes: dict[str, np.ndarray] = {}
    gaps = []
    for name in ways:
        minutes[name] = np.empty((seeds, lorries))
        for seed in range(seeds):
            city = page["City"](seed)
            plain = name == "shortest roads"
            learner = None if plain else advmdp.make_learner(name, page["model"], lorries, seed=seed)
            for k in range(lorries):
                places, asked, taken = city.drive(shortest if learner is None else learner.policy)
                minutes[name][seed, k] = sum(taken)
                if learner is None:
                    continue
                page["tell"](learner, {"index": k, "places": places, "asked": asked, "minutes": taken})
                if name == "vlsuob-reps-anytime" and seed == 0:
                    gaps.append(learner.last_step.gap)
    return minutes, np.array(gaps)


# ------------------------------------------------------------------- processes of one's own


def own_process(
    name: str,
    length: int = 1500,
    seeds: int = 5,
    ways: Sequence[str] = OPERATORS,
) -> dict[str, np.ndarray]:
    """Cost of every episode of a page with a process, a rule and ``operate``, by who decides (a row per seed)."""
    page = case(name)
    costs = {}
    for way in ways:
        learner, options = way.split(",")[0], {"baseline": page["by_hand"]} if "," in way else {}
        rows = []
        for seed in range(seeds):
            by_hand = way == "rule by hand"
            agent = Rule(page["by_hand"]) if by_hand else advmdp.Agent(page["process"], learner, seed=seed, **options)
            rows.append(page["operate"](agent, length, seed))
        costs[way] = np.array(rows)
    return costs


class Rule:
    """Decides by a function of step and state, and learns nothing: what an agent is compared with."""

    def __init__(self, function: Any) -> None:
        self.function, self.step = function, 0

    def begin(self) -> Rule:
        self.step = 0
        return self

    def act(self, state: Any) -> Any:
        self.step += 1
        return self.function(self.step - 1, state)

    def cost(self, value: Any = None) -> None: ...

    costs = end = cost


def own_figure(costs: dict[str, np.ndarray], episode: str, title: str) -> Figure:
    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    draw_over_time(axes, costs, window=50)
    axes.set(xlabel=episode, ylabel=f"euros per {episode}, mean of 50", title=title)
    return figure


# -------------------------------------------------------------------------------------- output


def table(values: dict[str, np.ndarray], digits: int) -> str:
    """Means over the first third, the rest, and all, with 95% Student-t intervals over seeds, as markdown."""
    length = next(iter(values.values())).shape[1]
    third = length // 3
    parts = [slice(0, third), slice(third, None), slice(None)]
    heads = [f"first {third}", f"last {length - third}", "all"]
    registered = learners.names()
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name, rows in values.items():
        cells = []
        for part in parts:
            means = rows[:, part].mean(axis=1)
            cells.append(f"{means.mean():.{digits}f}")
            if len(means) > 1:
                half = float(t.ppf(0.975, len(means) - 1)) * means.std(ddof=1) / len(means) ** 0.5
                cells[-1] += f" ± {half:.{digits}f}"
        lines.append(f"| {f'`{name}`' if name in registered else name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw_over_time(axes: Any, values: dict[str, np.ndarray], window: int) -> None:
    """Moving averages, with the range of the seeds."""
    for name, rows in values.items():
        sums = np.cumsum(np.hstack([np.zeros((len(rows), 1)), rows]), axis=1)
        averages = (sums[:, window:] - sums[:, :-window]) / window
        keep = slice(None, None, 8)
        episodes = np.arange(window, rows.shape[1] + 1)[keep]
        axes.plot(episodes, averages.mean(axis=0)[keep], color=COLOURS[name], label=name, linewidth=1.5)
        if len(rows) > 1:
            low, high = averages.min(axis=0)[keep], averages.max(axis=0)[keep]
            axes.fill_between(episodes, low, high, color=COLOURS[name], alpha=0.2, linewidth=0)
    axes.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save(figure: Figure, file: Path) -> None:
    """As an SVG file that depends on the data alone, with text as text."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": file.stem}):
        figure.savefig(file, metadata={"Date": None, "Creator": None})


def inventory_figure(costs: dict[str, np.ndarray], evidence: dict[str, np.ndarray]) -> Figure:
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    draw_over_time(left, costs, window=50)
    left.set(xlabel="shift", ylabel="expected euros per shift, mean of 50")
    left.set_title("flour and disposal become dear at 500")
    for (name, (shifts, values)), colour in zip(evidence.items(), ("#0072b2", "#d55e00"), strict=True):
        right.plot(shifts, values, color=colour, label=name)
    right.axhline(np.log(20.0), color="black", linestyle="--", linewidth=1, label="alarm, level 5%")
    right.set(xlabel="shift", ylabel="log e-value", title="does the model fit?", ylim=(-10, 30))
    right.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    return figure


def routing_figure(minutes: dict[str, np.ndarray], gaps: np.ndarray) -> Figure:
    figure = Figure(figsize=(9.5, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    draw_over_time(left, minutes, window=96)
    left.set(xlabel="lorry", ylabel="minutes per lorry, mean of 96", title="roads that our own lorries jam")
    tens = gaps[: gaps.size // 10 * 10].reshape(-1, 10).max(axis=1)
    right.semilogy(10 * np.arange(1, tens.size + 1), np.maximum(tens, 1e-20), color="#56b4e9", linewidth=1)
    right.axhline(1e-8, color="black", linestyle="--", linewidth=1, label="tolerance")
    right.set(xlabel="lorry", ylabel="duality gap, largest of 10 steps", title="vlsuob-reps-anytime: certificates")
    right.legend(frameon=False, fontsize=8)
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    return figure


def main(folder: str, length: int = 1500, seeds: int = 5) -> dict[str, str]:
    """Write all figures; the tables."""
    costs, evidence = inventory(length, seeds)
    save(inventory_figure(costs, evidence), Path(folder) / "inventory.svg")
    minutes, gaps = routing(length, seeds)
    save(routing_figure(minutes, gaps), Path(folder) / "routing.svg")
    nights, days = (own_process(name, length, seeds) for name in ("spot-machines", "battery"))
    save(own_figure(nights, "night", "the dear hours move at 600"), Path(folder) / "spot-machines.svg")
    save(own_figure(days, "day", "the evening peak drifts with the season"), Path(folder) / "battery.svg")
    return {
        "inventory": table(costs, 2),
        "routing": table(minutes, 1),
        "spot-machines": table(nights, 2),
        "battery": table(days, 0),
    }


if __name__ == "__main__":
    for title, text in main(sys.argv[1], *map(int, sys.argv[2:])).items():
        print(f"{title}\n\n{text}\n")
