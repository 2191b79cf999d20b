"""Regret in linear MDPs whose losses are linear in features: docs/learners/linear-mdp.md.

    python -m benchmarks.bench_linear_mdp           # K = 2,000, three seeds: about two minutes on one core
    python -m benchmarks.bench_linear_mdp 200 1     # K and seeds of your own

Two worlds: *narrow* has about as many pairs as a tabular learner can visit, *wide* many pairs of the same three kinds.
Also the bounds at these sizes, and from which K on they are below H K.
"""

from __future__ import annotations

import sys

import numpy as np

from advmdp import LinearMDP, make_adversary, make_learner, make_world, run
from advmdp.theory import bounds

WORLDS = {
    "narrow": {"layer_sizes": (1, 5, 5, 1), "n_actions": 3, "dim": 3},
    "wide": {"layer_sizes": (1, 40, 40, 1), "n_actions": 8, "dim": 3, "seed": 1},
}
KINDS = ("stochastic", "switching")
#: By what they are told.
SETTINGS = {
    "nothing": ("uniform",),
    "all losses, kernels": ("mdp-e",),
    "all losses": ("oppo-linear", "uc-o-reps"),
    "losses of visited pairs, kernels": ("q-reps", "mdp-linexp3", "o-reps-bandit"),
    "losses of visited pairs": (
        "uob-reps-linear",
        "dilated-bonus-linear",
        "uob-reps",
        "dilated-bonus",
        "planner",
        "portfolio",
    ),
}


def regrets(name: str, world: LinearMDP, kind: str, episodes: int, seeds: int) -> list[float]:
    """After all episodes, one number per seed."""
    found = []
    for seed in range(seeds):
        adversary = make_adversary("natural-losses", world, episodes, kind=kind, seed=seed)
        learner = make_learner(name, world, episodes, seed=seed)
        found.append(float(run(world, learner, adversary, episodes, seed=seed, progress=False).regret[-1]))
    return found


def main() -> None:
    episodes, seeds = (*map(int, sys.argv[1:]), *(2000, 3)[len(sys.argv) - 1 :])
    worlds = {name: make_world("linear-mdp", **options) for name, options in WORLDS.items()}
    print(f"regret after {episodes:,} episodes: mean of {seeds} seeds, and their standard deviation")
    columns = [(name, kind) for name in worlds for kind in KINDS]
    print(" " * 22, *(f"{name + ', ' + kind:>22}" for name, kind in columns))
    for setting, names in SETTINGS.items():
        print(f"{setting}:")
        for name in names:
            cells = [regrets(name, worlds[world], kind, episodes, seeds) for world, kind in columns]
            print(f"  {name:20}", *(f"{np.mean(cell):15.0f} ± {np.std(cell):4.0f}" for cell in cells), flush=True)
    print("bounds as shares of H K, and the K from which they are below it (leverages of uniform play: ", end="")
    leverages = {name: make_learner("q-reps", world, 2).leverage for name, world in worlds.items()}  # type: ignore[attr-defined]
    print(", ".join(f"{name} {value:.1f}" for name, value in leverages.items()) + ")")
    for function in (bounds.q_reps, bounds.mdp_linexp3, bounds.oppo_linear, bounds.uob_reps_linear):
        cells = []
        for name, world in worlds.items():
            known = {"leverage": leverages[name]} if function in (bounds.q_reps, bounds.mdp_linexp3) else {}

            def bound(
                *sizes: float, function: bounds.BoundFunction = function, known: dict[str, float] = known
            ) -> bounds.Bound:
                return function(*sizes, **known)

            sizes = (world.n_states, world.n_actions, world.horizon)
            share = bound(*sizes, episodes, world.dim, 0.05, world.bound).value / (world.horizon * episodes)
            first = bounds.vacuous_until(bound, *sizes, world.dim, 0.05, world.bound)
            cells.append(f"{name}: {share:8.2f}, K = {first:.3g}")
        print(f"  {function.__name__:20}", "   ".join(cells))
    print("other sources, bandit feedback and unknown transition: K^p / K at K = 10^6, and K where that is 1/10")
    for source, power in bounds.BANDIT_LINEAR_MDP:
        print(f"  {source:38} p = {power:.3f}   {1e6 ** (power - 1):.3f}   10^{1 / (1 - power):.0f}")


if __name__ == "__main__":
    main()
