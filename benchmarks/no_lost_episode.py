"""Are steps solved on every world, with every kind of losses, far beyond the theorem's step size?

    python -m benchmarks.no_lost_episode results.jsonl [--episodes 3000] [--until 11:35]

One line of ``results.jsonl`` per cell, the riskiest cells first; cells that it has are not run again, so that a run may
be stopped at any time.  At the end the table by learner and step size: exceptions, the largest sums of duality gaps and
of what steps can have cost (``learner.certificate``), and how many steps missed the solver's tolerance.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

from advmdp import LayeredMDP, make_adversary, make_learner, make_world, play
from advmdp.registry import worlds

LEARNERS = ("vlsuob-reps-tight", "uob-reps", "o-reps-bandit")
LOSSES = ("natural-losses", "stochastic", "switching")
MULTIPLES = (100.0, 10.0, 1.0)
WORLDS = tuple(sorted(set(worlds.names()) - {"file"}))
#: Not a mixture of simulators, and no losses of its own.
NOT_FOR = {("vlsuob-reps-tight", "linear-mdp"), ("natural-losses", "random-mixture")}


def run_cell(name: str, world: str | LayeredMDP, adversary: str, multiple: float, episodes: int) -> dict[str, Any]:
    """A learner with a multiple of the theorem's step size, for so many episodes."""
    mdp = make_world(world) if isinstance(world, str) else world
    losses = make_adversary(adversary, mdp, episodes, seed=1)
    told = {"gamma": 1e-3} if name == "o-reps-bandit" else {}
    eta = multiple * make_learner(name, mdp, episodes, **told).step_size
    learner, rng = make_learner(name, mdp, episodes, eta=eta, **told), np.random.default_rng(1)
    begin, gaps, exceptions = process_time(), 0.0, 0
    for k in range(episodes):
        episode = play(mdp, learner.policy, losses.losses(k), rng, index=k)
        losses.observe(np.asarray(episode.states), np.asarray(episode.actions))
        try:
            learner.update(episode)
            gaps += max(learner.last_step.gap, 0.0)
        except Exception:  # whatever it is: that is what this looks for
            logging.exception("%s on %s, %s x %g, episode %d", name, world, adversary, multiple, k)
            exceptions += 1
            learner.skip(k)
    return {
        "exceptions": exceptions, "gaps": gaps, "certificate": learner.certificate, "missed": learner.missed_tolerance,
        "seconds": process_time() - begin,
    }  # fmt: skip


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--episodes", type=int, default=3000)
    parser.add_argument("--until", help="begin no cell after this time of day (UTC, HH:MM)")
    arguments = parser.parse_args()
    done: list[dict[str, Any]] = []
    if arguments.results.exists():
        done = [json.loads(line) for line in arguments.results.read_text().splitlines()]
    keys = ("multiple", "name", "world", "adversary", "episodes")
    have = {tuple(row[key] for key in keys) for row in done}
    for cell in itertools.product(MULTIPLES, LEARNERS, WORLDS, LOSSES):
        multiple, name, world, adversary = cell
        late = arguments.until and f"{datetime.now(UTC):%H:%M}" >= arguments.until
        if late or {(name, world), (adversary, world)} & NOT_FOR or (*cell, arguments.episodes) in have:
            continue
        row = dict(zip(keys, (*cell, arguments.episodes), strict=True))
        row |= run_cell(name, world, adversary, multiple, arguments.episodes)
        done.append(row)
        with arguments.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
    frame = pd.DataFrame([row for row in done if row["episodes"] == arguments.episodes])
    table = frame.groupby(["name", "multiple"]).agg(
        cells=("gaps", "size"), exceptions=("exceptions", "sum"), worst_gaps=("gaps", "max"),
        worst_certificate=("certificate", "max"), missed=("missed", "sum"), steps=("episodes", "sum"),
        minutes=("seconds", lambda seconds: seconds.sum() / 60.0),
    )  # fmt: skip
    print(table.to_string(float_format="{:.2g}".format))
    print(frame.nlargest(10, "certificate").to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
