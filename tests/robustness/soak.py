"""Does anything drift?  One learner for very many episodes, every step looked at.

    python -m tests.robustness.soak --episodes 1000000      # docs/solvers.md has the outcome

Flow conservation and the certificate are checked after every update; the regression is compared with one that is made
anew from counts, and memory is read, at growing distances.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advmdp import Episode, LinearMixtureMDP, make_adversary, make_learner, make_world
from advmdp.episodes import simulate
from advmdp.solvers import SolverError

LARGEST_FLOW_ERROR = 1e-9
LARGEST_GAP = 1e-8
LARGEST_GRAM_ERROR = 1e-10


@dataclass
class Row:
    """What was seen up to some episode (the largest, where it is an error)."""

    episodes: int
    flow_error: float
    gap: float
    gram_error: float
    centre_error: float
    memory_mib: float
    smallest_log_q: float
    log_e: float
    not_first_try: int
    failures: int


def memory_mib() -> float:
    """Resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def flow_error(q: list, kernels: list) -> float:
    """Largest violation of sum_a q(s', a) = sum_{s, a} q(s, a) P(s' | s, a), or of a layer's total of one."""
    worst = max(abs(table.sum() - 1.0) for table in q)
    for (here, there), kernel in zip(itertools.pairwise(q), kernels, strict=False):
        inflow = here.ravel() @ kernel.reshape(-1, kernel.shape[2])
        worst = max(worst, float(np.abs(there.sum(axis=1) - inflow).max()))
    return float(worst)


def regression_errors(world: LinearMixtureMDP, learner, counts: list) -> tuple[float, float]:
    """Distance of Gram matrices and estimates to those made from the counts alone (relative to the largest entry)."""
    gram_error = centre_error = 0.0
    for h, table in enumerate(counts):
        features = world.features[h]
        moments = np.einsum("sa,satd,sate->de", table.sum(axis=2), features, features)
        gram = moments + learner._regularisation(learner.episodes_seen + 1) * np.eye(world.dim)
        centre = np.linalg.solve(gram, np.einsum("sat,satd->d", table, features))
        estimate = learner.estimate
        gram_error = max(gram_error, float(np.abs(estimate.grams[h] - gram).max() / np.abs(gram).max()))
        centre_error = max(centre_error, float(np.abs(estimate.centres[h] - centre).max()))
    return gram_error, centre_error


def soak(episodes: int, seed: int = 0) -> list[Row]:
    """Play, look at every step, and return what was seen at growing distances."""
    world = make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=2, dim=3, seed=seed)
    adversary = make_adversary("switching", world, episodes, seed=seed, period=max(1, episodes // 100))
    learner = make_learner("vlsuob-reps-tight", world, episodes)
    layers, kernels = world.layers, tuple(world.rows)
    counts = [np.zeros((n, world.n_actions, m)) for n, m in itertools.pairwise(world.layer_sizes[:-1])]
    rng = np.random.default_rng(seed)
    marks = sorted({round(episodes * 10.0 ** (-e / 2)) for e in range(9)} - {0})
    rows, worst_flow, worst_gap, retried, failures = [], 0.0, 0.0, 0, 0
    for k in range(episodes):
        states, actions = np.empty((2, layers.horizon), dtype=np.int64)
        observed = np.empty(layers.horizon)
        policy = layers.flatten(learner.policy)
        numbers = rng.random(2 * layers.horizon)
        simulate(
            kernels, layers.size_array, layers.n_actions, policy, adversary.flat_losses(k), numbers,
            states, actions, observed,
        )  # fmt: skip
        try:
            learner.update(Episode(states, actions, observed, index=k))
        except SolverError:
            failures += 1
            learner.skip(k)
        else:
            step = learner.last_step
            worst_flow = max(worst_flow, flow_error(step.q, step.kernels))
            worst_gap = max(worst_gap, abs(step.gap))
            retried += step.status not in ("warm", "cold")
            for h, table in enumerate(counts):
                table[states[h], actions[h], states[h + 1]] += 1.0
        if k + 1 in marks:
            rows.append(
                Row(
                    k + 1,
                    worst_flow,
                    worst_gap,
                    *regression_errors(world, learner, counts),
                    memory_mib(),
                    float(min(table.min() for table in learner.last_step.log_q)),
                    learner.misspecification().log_e_total,
                    retried,
                    failures,
                )
            )
    return rows


def table(rows: list[Row], seconds: float) -> str:
    """What happened, as Markdown."""
    lines = [
        "# A million episodes",
        "",
        "One learner, `vlsuob-reps-tight` on a small world (layers 1-4-4-1, two actions, d = 3) against switching",
        f"losses, every step checked ({seconds / 60:.0f} minutes). Errors are the largest so far.",
        "",
        "| episodes | flow conservation | duality gap | Gram matrix against counts | estimate against counts "
        "| memory, MiB | smallest log q | log e-value of the model | steps not solved at the first try | failures |",
        "|" + "---:|" * 10,
    ]
    for row in rows:
        cells = [
            f"{row.episodes:,}",
            *(f"{error:.1e}" for error in (row.flow_error, row.gap, row.gram_error, row.centre_error)),
            f"{row.memory_mib:.0f}",
            f"{row.smallest_log_q:.1f}",
            f"{row.log_e:.1f}",
            str(row.not_first_try),
            str(row.failures),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Asked for: flow below {LARGEST_FLOW_ERROR:.0e}, gap at most {LARGEST_GAP:.0e}, Gram matrices equal to "
        f"{LARGEST_GRAM_ERROR:.0e} (relative to their largest entry), memory flat, no failure.",
        "Every test run does the same for 20,000 episodes (`tests/robustness/test_soak.py`).",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1_000_000)
    options = parser.parse_args()
    started = time.perf_counter()
    rows = soak(options.episodes)
    print(table(rows, time.perf_counter() - started))


if __name__ == "__main__":
    main()
