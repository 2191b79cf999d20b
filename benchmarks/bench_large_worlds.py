"""Building worlds of about 10^5 states, in planning passes over them: `python benchmarks/bench_large_worlds.py`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

import advmdp
from advmdp import LayeredMDP, make_world, occupancy

#: Planning passes that building the map of 40 x 40 cells over 60 steps may take.
LIMIT = 20.0
TAXI = "Taxi-v3" if "Taxi-v3" in gymnasium.registry else "Taxi-v4"


def lake(side: int) -> list[str]:
    """A map with few holes, entered at its centre, so that all of it can be reached soon."""
    rng = np.random.default_rng(0)
    letters = np.where(rng.random((side, side)) < 0.02, "H", "F")
    letters[side // 2, side // 2], letters[-1, -1] = "S", "G"
    return ["".join(row) for row in letters]


def walk(side: int, horizon: int) -> advmdp.LinearMixtureMDP:
    """The lake as a process of one's own: 3 scenarios in plain Python."""
    moves = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
    turned = [
        dict(zip(moves, np.roll(list(moves.values()), -turn, axis=0).tolist(), strict=True)) for turn in (0, 1, 3)
    ]

    def scenario(steps: dict[str, tuple[int, int]]) -> Callable[..., Any]:
        def step_from(step: int, cell: tuple[int, int], action: str) -> dict[tuple[int, int], float]:
            down, right = steps[action]
            return {(min(max(cell[0] + down, 0), side - 1), min(max(cell[1] + right, 0), side - 1)): 1.0}

        return step_from

    start = (side // 2, side // 2)
    scenarios = [scenario(steps) for steps in turned]
    return advmdp.Process(start, lambda step, cell: list(moves), scenarios, horizon, (0, 1)).mdp([0.6, 0.2, 0.2])


WORLDS: dict[str, Callable[[], LayeredMDP]] = {
    "frozen-lake 40 x 40, 60 steps": lambda: make_world("frozen-lake", map=lake(40), horizon=60),
    "frozen-lake 40 x 40, 85 steps": lambda: make_world("frozen-lake", map=lake(40), horizon=85),
    "grid 316 x 316": lambda: make_world("grid", height=316, width=316),
    "queue 999 jobs, 100 slots": lambda: make_world("queue", buffer=999, waiting=500, slots=100, speeds=(0, 5, 10, 20)),
    "inventory 399 units, 250 days": lambda: make_world("inventory", capacity=399, max_order=8, stock=300, days=250),
    "routing 300 x 400": lambda: make_world("routing", stages=300, width=400),
    "Gymnasium FrozenLake 50 x 50, 100 steps": lambda: LayeredMDP.from_gymnasium(
        gymnasium.make("FrozenLake-v1", desc=generate_random_map(50, seed=0)), 100
    )[0],
    "Gymnasium Taxi, 50 steps": lambda: LayeredMDP.from_gymnasium(gymnasium.make(TAXI), 50)[0],
    "Process 40 x 40, 60 steps": lambda: walk(40, 60),
}


def seconds(function: Callable[[], Any], repeat: int) -> float:
    """The quickest of some calls: others use the machine too."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    make_world("frozen-lake")  # imports and compiled functions
    row = "{:40} {:>8} {:>10} {:>9} {:>8} {:>7} {:>7}"
    print(row.format("", "states", "non-zeros", "build, s", "pass, ms", "passes", "MB"))
    found = {}
    for name, build in WORLDS.items():
        world = build()
        losses = np.random.default_rng(0).random(world.layers.n_pairs)
        policy = np.empty_like(losses)
        one = seconds(lambda: occupancy.greedy(world.layers, world.rows, losses, policy), 20)  # noqa: B023
        building = seconds(build, 10 if one < 0.01 and world.n_states < 60_000 else 3)
        tables = [*world.kernels, *getattr(world, "features", ())]
        stored = {id(table): getattr(table, "values", table).nbytes for table in tables}
        found[name] = building / one
        print(row.format(
            name, world.n_states, np.count_nonzero(world.rows.values), f"{building:.3f}", f"{1e3 * one:.2f}",
            f"{building / one:.0f}", f"{sum(stored.values()) / 1e6:.1f}",
        ))  # fmt: skip
    passes = found["frozen-lake 40 x 40, 60 steps"]
    print(f"building the map takes {passes:.0f} planning passes, {LIMIT:g} asked", "" if passes <= LIMIT else "(no)")


if __name__ == "__main__":
    main()
