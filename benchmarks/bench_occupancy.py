"""What the upper occupancy bound of the visited states costs, beside a mirror step and a conic solver.

    python -m benchmarks.bench_occupancy

CPU times of one core, all columns in turn, the best of several rounds. `reduce` is the presolve of an ellipsoid set,
which the mirror step of the episode before has already paid for. `conic` solves the rows of one target with CVXPY and
Clarabel.
"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, L1Set
from advmdp.solvers import mirror_descent_step, upper_occupancy
from benchmarks.bench_others import best_times
from tests.solvers import reference

# (width, actions, dimension, decisions, radius): narrow, usual and wide sets of the usual size, then others.
CASES = (
    (10, 4, 4, 5, 0.3), (10, 4, 4, 5, 1.0), (10, 4, 4, 5, 3.0),
    (20, 4, 4, 5, 1.0), (10, 8, 4, 5, 1.0), (10, 4, 8, 5, 1.0), (10, 4, 4, 9, 1.0), (30, 5, 10, 5, 1.0),
)  # fmt: skip
# u of the visited states costs less than this share of a mirror step, at the usual size.
LARGEST_SHARE = 1 / 3


def ellipsoid(width: int, n_actions: int, dim: int, horizon: int, radius: float) -> EllipsoidSet:
    """Dirichlet base kernels, a Gram matrix of 100 visits per layer, a centre half a radius off the truth."""
    rng = np.random.default_rng(0)
    sizes = [1, *[width] * (horizon - 1), 1]
    features, centres, grams = [], [], []
    for h in range(horizon):
        base = np.moveaxis(rng.dirichlet(np.ones(sizes[h + 1]), (sizes[h], n_actions, dim)), 2, 3)
        scale = np.linalg.norm(base, axis=3).max()
        features.append(base / scale)
        rows = features[-1].reshape(-1, dim)
        rows = rows[rng.integers(len(rows), size=100)]
        grams.append(np.eye(dim) + rows.T @ rows)
        noise = rng.normal(size=dim)
        noise *= 0.5 * radius / np.sqrt(noise @ grams[-1] @ noise)
        centres.append(scale * rng.dirichlet(np.ones(dim)) + noise)
    return EllipsoidSet(features, centres, grams, radius)


def occupancy_of(confidence_set: ConfidenceSet) -> list[np.ndarray]:
    """A uniform measure on each layer: any positive one will do for a step."""
    n_actions = confidence_set.n_actions
    return [np.full((n, n_actions), 1.0 / (n * n_actions)) for n in confidence_set.layer_sizes[:-1]]


def reduce(confidence_set: EllipsoidSet) -> object:
    """The presolve of a new set with the same estimate."""
    new = confidence_set.with_estimate(confidence_set.centres, confidence_set.grams, confidence_set.radius)
    return new.reduced


def main() -> None:
    print(
        "| width, A, d, H, radius | u ellipsoid | reduce | u box | u l1 | all states | mirror step | u / step | conic |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    shares = {}
    for width, n_actions, dim, horizon, radius in CASES:
        confidence_set = ellipsoid(width, n_actions, dim, horizon, radius)
        lower, upper = confidence_set.hull()
        box = BoxSet(lower, upper)
        rng = np.random.default_rng(1)
        policy = [rng.dirichlet(np.ones(n_actions), n) for n in confidence_set.layer_sizes[:-1]]
        middle = [np.full_like(table, 1.0 / table.shape[2]) for table in lower]
        ball = L1Set(middle, [np.full(table.shape[:2], 0.3) for table in lower])
        targets = np.array([(h, int(rng.integers(n))) for h, n in enumerate(confidence_set.layer_sizes[:-1])])
        q = occupancy_of(confidence_set)
        loss = [rng.random(table.shape) for table in q]

        times = best_times(
            {
                "u": partial(upper_occupancy, confidence_set, policy, targets),
                "reduce": partial(reduce, confidence_set),
                "u box": partial(upper_occupancy, box, policy, targets),
                "u l1": partial(upper_occupancy, ball, policy, targets),
                "all states": partial(upper_occupancy, confidence_set, policy),
                "step": partial(mirror_descent_step, confidence_set, q, loss, 0.1),
            }
        )
        columns = [1e6 * seconds for seconds in times.values()]
        share = shares[width, n_actions, dim, horizon, radius] = times["u"] / times["step"]
        begin = time.process_time()
        for h, s in targets:
            reference.occupancy_bound(confidence_set, policy, int(h), int(s))
        conic = (time.process_time() - begin) * 1e6
        cells = " | ".join(f"{value:.0f}" for value in columns)
        print(
            f"| {width}, {n_actions}, {dim}, {horizon}, {radius:g} | {cells} | {share:.2f} | {conic:.0f} |", flush=True
        )
    print("\nMicroseconds; u for one visited state per layer.")
    for case in CASES[:3]:
        assert shares[case] < LARGEST_SHARE, f"u costs {shares[case]:.2f} of a step at {case}"


if __name__ == "__main__":
    main()
