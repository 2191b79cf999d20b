"""The conditional step beside a planning pass, where kernels are known, and beside the pairs step over the same set.

    python -m benchmarks.bench_conditional

*Known kernels*: the compiled pass of `conditional_step` against `occupancy.greedy`, the compiled pass of
`best_policy`; `call` is the whole of `conditional_step`, Python included, in units of the same pass.  *Sets*: those of
`vlsuob-reps-tight` after some episodes, the ellipsoids as they are, without the simplex, and the boxes around them.
The pairs step is that of a learner, from its own last step with its warm start; the conditional one starts from the
same policy.  All that the two share (the presolve of an ellipsoid set) is done before.  `certified` is the conditional
step with its occupancy measure and gap.

Medians of rounds that take turns, wall clock, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from advmdp import make_adversary, make_learner, make_world, occupancy, run
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels
from advmdp.solvers import conditional, conditional_step, mirror_descent_step

WORLDS = (
    ("grid", {}),
    ("queue", {}),
    ("inventory", {}),
    ("random-mixture", {}),
    ("random-mixture", {"layer_sizes": (1, 20, 20, 20, 20, 1), "n_actions": 4, "dim": 4}),
)
EPISODES = 300
ROUNDS = 41
MOST_PASSES = 3.0
LARGEST_SHARE = 1 / 5


def medians(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median microseconds of each, in turns, each repeated for about a millisecond."""
    repeats = {}
    for name, call in contestants.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS):
        for name, call in contestants.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: 1e6 * float(np.median(found)) for name, found in times.items()}


def known(world) -> dict[str, float]:
    confidence_set = KnownKernels(world.kernels)
    rows = world.rows
    layers = world.layers
    rng = np.random.default_rng(0)
    cost, policy = rng.random(layers.n_pairs), np.empty(layers.n_pairs)
    log_reference = np.log(rng.dirichlet(np.ones(layers.n_actions), layers.n_pairs // layers.n_actions)).ravel()
    memory = np.empty(sum(layers.sizes) + 3 * layers.n_pairs)
    states = np.empty(max(layers.sizes), dtype=np.int64)
    shape = confidence_set.size_array, layers.n_actions
    return medians(
        {
            "plan": lambda: occupancy.greedy(layers, rows, cost, policy),
            "pass": lambda: conditional.soft_backward(
                confidence_set.compiled_rows(),
                *shape,
                confidence_set.flat_reachable,
                log_reference,
                cost,
                states,
                memory,
            ),
            "call": lambda: conditional_step(confidence_set, log_reference, cost),
        }
    )


def sets_of(world) -> tuple[dict[str, ConfidenceSet], np.ndarray, np.ndarray, float]:
    """Sets by name, log q and the loss estimate of the last episode, and the step size."""
    learner = make_learner("vlsuob-reps-tight", world, EPISODES)
    run(world, learner, make_adversary("stochastic", world, EPISODES), EPISODES, progress=False)
    simplex = learner.confidence_set
    assert isinstance(simplex, EllipsoidSet)
    assert simplex.simplex
    plain = EllipsoidSet(simplex.features, simplex.centres, simplex.grams, simplex.radius)
    found: dict[str, ConfidenceSet] = {"simplex": simplex, "box": BoxSet(*simplex.hull())}
    if plain.smallest_radius_multiple() <= 1.0:
        found["ellipsoid"] = plain
    loss = np.concatenate([table.ravel() for table in learner.loss_estimate])
    return found, learner.last_step.flat.log_q, loss, learner.step_size


def against_pairs(confidence_set: ConfidenceSet, log_q: np.ndarray, loss: np.ndarray, eta: float) -> dict[str, float]:
    first = mirror_descent_step(confidence_set, None, loss, eta, log_q=log_q)
    second = mirror_descent_step(confidence_set, None, loss, eta, log_q=first.flat.log_q, warm=first.warm)
    table = second.flat.log_q.reshape(-1, confidence_set.n_actions)
    log_policy = (table - np.logaddexp.reduce(table, axis=1, keepdims=True)).ravel()
    log_policy[~np.isfinite(log_policy)] = 0.0
    cost = eta * loss
    return medians(
        {
            "pairs": lambda: mirror_descent_step(
                confidence_set, None, loss, eta, log_q=second.flat.log_q, warm=second.warm
            ),
            "conditional": lambda: conditional_step(confidence_set, log_policy, cost),
            "certified": lambda: conditional_step(confidence_set, log_policy, cost).occupancy,
        }
    )


def main() -> None:
    print("| world | planning pass | conditional pass | in passes | whole call | in passes |")
    print("|---|--:|--:|--:|--:|--:|")
    passes, shares = {}, {}
    for name, options in WORLDS:
        world = make_world(name, **options)
        label = f"{name} {'-'.join(map(str, world.layer_sizes))}, A = {world.n_actions}"
        times = known(world)
        passes[label] = times["pass"] / times["plan"]
        print(
            f"| {label} | {times['plan']:.1f} | {times['pass']:.1f} | {passes[label]:.2f} | {times['call']:.1f} "
            f"| {times['call'] / times['plan']:.2f} |",
            flush=True,
        )
    print("\n| world, set | pairs step | conditional step | share | certified | share |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, options in WORLDS:
        world = make_world(name, **options)
        sets, log_q, loss, eta = sets_of(world)
        for kind, confidence_set in sets.items():
            times = against_pairs(confidence_set, log_q, loss, eta)
            label = f"{name} {len(world.layer_sizes) - 1} x {max(world.layer_sizes)}, {kind}"
            shares[label] = times["conditional"] / times["pairs"]
            print(
                f"| {label} | {times['pairs']:.0f} | {times['conditional']:.1f} | {shares[label]:.3f} "
                f"| {times['certified']:.1f} | {times['certified'] / times['pairs']:.3f} |",
                flush=True,
            )
    worst = max(passes, key=lambda label: passes[label])
    assert passes[worst] <= MOST_PASSES, f"{worst}: {passes[worst]:.2f} planning passes"
    worst = max(shares, key=lambda label: shares[label])
    assert shares[worst] <= LARGEST_SHARE, f"{worst}: {shares[worst]:.2f} of a pairs step"


if __name__ == "__main__":
    main()
