"""The figure of the front page, from real runs: a network whose links fail, delays that change, and the regret.

python -m tools.front_figure run docs/images     # plays, a few minutes; writes front.json
python -m tools.front_figure draw docs/images    # draws front.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import advmdp
from advmdp.report import draw_world, make_styles, plot_regret

EPISODES, SEEDS = 2000, 3
#: Learner -> what the figure calls it.
LEARNERS = {
    "uniform": "uniform",
    "o-reps-bandit": "o-reps-bandit (knows the failure rates)",
    "planner": "planner",
    "portfolio": "portfolio",
}
#: Links out of the source, whose delays are drawn.
SHOWN = 3


def play() -> dict[str, Any]:
    """The runs, as plain data."""
    world = advmdp.make_world("routing")
    rows: list[dict[str, Any]] = []
    policy: list[Any] = []
    delays: list[list[float]] = []
    for seed in range(SEEDS):
        for name in LEARNERS:
            learner = advmdp.make_learner(name, world, EPISODES, seed=seed)
            adversary = advmdp.make_adversary("natural-losses", world, EPISODES, seed=seed)
            result = advmdp.run(world, learner, adversary, EPISODES, seed=seed, progress=False)
            for k, regret in zip(result.frame["episode"], result.regret, strict=True):
                rows.append({"learner": name, "seed": seed, "episode": int(k), "regret": round(float(regret), 2)})
            if seed == 0 and name == "portfolio":
                policy = [np.round(table, 4).tolist() for table in learner.policy]
    adversary = advmdp.make_adversary("natural-losses", world, EPISODES, seed=0)
    rng = np.random.default_rng(0)
    uniform = advmdp.occupancy.uniform_policy(world.layer_sizes, world.n_actions)
    for k in range(240):
        losses = adversary.losses(k)
        delays.append([round(float(value), 4) for value in losses[0][0, :SHOWN]])
        episode = advmdp.play(world, uniform, losses, rng)
        adversary.observe(np.asarray(episode.states)[: world.horizon], np.asarray(episode.actions))
    return {"episodes": EPISODES, "rows": rows, "policy": policy, "delays": delays}


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Name -> one of the three parts."""
    world = advmdp.make_world("routing")
    network = Figure(figsize=(4.4, 3.3), layout="constrained")
    ax = network.subplots()
    policy = [np.asarray(table) / np.asarray(table).sum(axis=1, keepdims=True) for table in data["policy"]]
    draw_world(world, ax=ax, policy=policy)

    losses = Figure(figsize=(4.4, 3.3), layout="constrained")
    ax = losses.subplots()
    for number, series in enumerate(np.asarray(data["delays"]).T):
        ax.plot(series, color=("#0072B2", "#D55E00", "#009E73")[number], lw=1.3, label=f"link {number + 1}")
    ax.set_xlabel("episode")
    ax.set_ylabel("delay of a link out of the source")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, ncols=SHOWN, loc="lower left", bbox_to_anchor=(0, 1))

    regret = Figure(figsize=(4.4, 3.3), layout="constrained")
    ax = regret.subplots()
    frame = pd.DataFrame(data["rows"]).assign(world="routing", adversary="natural-losses")
    styles = make_styles(LEARNERS)
    plot_regret(ax, frame, styles)
    lines = [Line2D([], [], color=style.colour, dashes=style.dashes or (1, 0)) for style in styles.values()]
    ax.legend(lines, LEARNERS.values(), frameon=False, fontsize=9, loc="upper left", borderaxespad=0.2)
    ax.set_xlabel("episode")
    return {"front-world": network, "front-losses": losses, "front-regret": regret}


def main(command: str, folder: str) -> None:
    """``run`` or ``draw``."""
    file = Path(folder) / "front.json"
    if command == "run":
        file.write_text(json.dumps(play(), separators=(",", ":")) + "\n", encoding="utf-8")
    # Letters stay letters (small files, the reader's fonts), and nothing depends on the date or on chance.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "advmdp", "font.size": 10})
    for name, figure in draw(json.loads(file.read_text(encoding="utf-8"))).items():
        figure.savefig(Path(folder) / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
