"""How long building a process takes beside calling its functions: `python benchmarks/bench_process.py`.

The cheapest scenario functions are the hardest case: each call gives three next states that were computed before.
"""

from __future__ import annotations

import time

import advmdp

HORIZON, WIDTH = 21, 100
LIMIT = 20.0


def actions(step: int, state: tuple[int, int]) -> list[str]:
    return ["left", "stay", "right"]


def scenario(shift: int, row: tuple[float, float, float]):
    moves = {"left": -1, "stay": 0, "right": 1}

    def step_from(step: int, state: tuple[int, int], action: str) -> dict[tuple[int, int], float]:
        x = state[1] + moves[action] + shift
        return {
            (step + 1, (x - 7) % WIDTH): row[0],
            (step + 1, x % WIDTH): row[1],
            (step + 1, (x + 11) % WIDTH): row[2],
        }

    return step_from


SCENARIOS = [scenario(0, (0.2, 0.5, 0.3)), scenario(1, (0.1, 0.1, 0.8)), scenario(-2, (0.25, 0.5, 0.25))]
START = {(0, x): 1.0 / WIDTH for x in range(WIDTH)}


def seconds(function) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    advmdp.Process(START, actions, SCENARIOS, 2, (0, 1)).model  # noqa: B018 (imports and compiled functions)
    built: list[advmdp.Process] = []

    def build() -> None:
        built.append(advmdp.Process(START, actions, SCENARIOS, HORIZON, (0, 1)))

    def call() -> None:
        process = built[-1]
        for step in range(HORIZON - 1):
            for state in process.states(step):
                for action in process.actions(step, state):
                    for each in SCENARIOS:
                        each(step, state, action)

    building = min(seconds(build) for _ in range(3))
    model = seconds(lambda: built[-1].model)
    calling = min(seconds(call) for _ in range(3))
    ratio = (building + model) / calling
    print(f"{built[-1]!r}")
    print(f"calling every function once  {1e3 * calling:8.1f} ms")
    print(f"finding states and rows      {1e3 * building:8.1f} ms, {building / calling:.1f} times that")
    print(f"with the model               {1e3 * (building + model):8.1f} ms, {ratio:.1f} times that")
    assert ratio < LIMIT, f"building takes {ratio:.1f} times as long as the calls, should be below {LIMIT:g}"


if __name__ == "__main__":
    main()
