"""How often does a mirror step need help, or fail?  Counted over whole runs of learners on varied worlds, by class.

    python -m tests.robustness.failures --steps 100000      # the table of docs/solvers.md

A failure is skipped (``learner.skip``), as a user would do, and its reproducer is kept in ``--reproducers``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from advmdp import LinearMixtureMDP, make_adversary, make_learner, make_world, play
from advmdp.solvers import SolverError
from tests.strategies import random_kernels

#: Statuses of a step that was solved at its first try.
FIRST_TRY = ("warm", "cold", "repeated")

CLASSES = {
    "ellipsoid, paper's radius": ("vlsuob-reps", {}),
    "ellipsoid, joint radius": ("vlsuob-reps-tight", {}),
    "ellipsoid, a tenth of the radius": ("vlsuob-reps-tight", {"radius_scale": 0.1}),
    "ellipsoid and simplex of weights": ("vlsuob-reps-tight", {"simplex": True}),
    "box, pairs": ("vlsuob-reps-tight", {"geometry": "box"}),
    "box, triples": ("vlsuob-reps-tight", {"geometry": "box", "entropy": "triples"}),
    "ellipsoid, one next state": ("lsuob-reps", {}),
    "box of counts, triples": ("uob-reps", {}),
    "known kernel": ("o-reps-bandit", {}),
}


def random_world(rng: np.random.Generator) -> LinearMixtureMDP:
    """A mixture of random shape; one in three has sparse or deterministic kernels."""
    sizes = [1, *rng.integers(1, 9, size=rng.integers(1, 6)).tolist(), 1]
    n_actions, dim = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    bases = [random_kernels(rng, sizes, n_actions) for _ in range(dim)]
    if rng.random() < 1 / 3:
        bases = [[np.eye(k.shape[2])[k.argmax(axis=2)] for k in base] for base in bases]
    return LinearMixtureMDP.from_kernels(bases, rng.dirichlet(np.ones(dim)))


def world_of(number: int, rng: np.random.Generator) -> LinearMixtureMDP:
    """Two random worlds for every named one."""
    named = ("frozen-lake", "routing", "grid", "random-mixture")
    return make_world(named[number // 3 % len(named)]) if number % 3 == 2 else random_world(rng)


@dataclass
class Tally:
    """Steps of one class by status, with those that failed."""

    steps: int = 0
    status: Counter = field(default_factory=Counter)
    failures: list[SolverError] = field(default_factory=list)
    largest_gap: float = 0.0


def campaign(steps: int, seed: int = 0) -> dict[str, Tally]:
    """Whole runs, 400 episodes each, until every class has its share of the steps."""
    tallies = {}
    for name, (learner_name, options) in CLASSES.items():
        tally, number = tallies.setdefault(name, Tally()), 0
        while tally.steps < -(-steps // len(CLASSES)):
            rng = np.random.default_rng([seed, number])
            world = world_of(number, rng)
            adversary = make_adversary(("switching", "stochastic")[number % 2], world, 400, seed=number)
            learner = make_learner(learner_name, world, 400, **options)
            for k in range(400):
                try:
                    learner.update(play(world, learner.policy, adversary.losses(k), rng, index=k))
                except SolverError as error:
                    learner.skip(k)
                    tally.failures.append(error)
                else:
                    tally.status[learner.last_step.status] += 1
                    tally.largest_gap = max(tally.largest_gap, abs(learner.last_step.gap))
            tally.steps += 400
            number += 1
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    """The table of the documentation."""
    lines = [
        "| class | steps | first try | later tries | failed | largest gap |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for name, tally in tallies.items():
        first = sum(tally.status[status] for status in FIRST_TRY)
        later = ", ".join(f"{status} {n}" for status, n in tally.status.most_common() if status not in FIRST_TRY)
        failed = len(tally.failures)
        lines.append(f"| {name} | {tally.steps:,} | {first:,} | {later or '-'} | {failed} | {tally.largest_gap:.1e} |")
    total, failed = sum(t.steps for t in tallies.values()), sum(len(t.failures) for t in tallies.values())
    return "\n".join([*lines, "", f"In all {total:,} steps, {failed} failures.", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--reproducers", type=Path)
    options = parser.parse_args()
    tallies = campaign(options.steps)
    print(table(tallies))
    if options.reproducers:
        options.reproducers.mkdir(parents=True, exist_ok=True)
        errors = [error for tally in tallies.values() for error in tally.failures]
        for number, error in enumerate(errors):
            error.save(options.reproducers / f"step-{number}.npz")


if __name__ == "__main__":
    main()
