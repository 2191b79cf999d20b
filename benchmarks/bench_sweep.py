"""What a second worker is worth: 24 equal cells on one and on two, everything included (start of the workers too).

Run it on a machine with two processors to spare; whatever else runs there is measured as well.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from advmdp.experiments import Spec, Store, load, run_spec
from advmdp.experiments.spec import to_toml

CELLS = 24
EPISODES = 1500
LEAST = 1.7


def spec() -> Spec:
    document = {
        "episodes": EPISODES,
        "seeds": CELLS,
        "worlds": ["random-mixture"],
        "adversaries": ["switching"],
        "learners": ["vlsuob-reps-tight"],
    }
    return Spec(to_toml(document))


def main() -> None:
    seconds, busy, frames = {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, 2):
            start = time.perf_counter()
            run_spec(spec(), Path(folder) / str(workers), workers=workers)
            seconds[workers] = time.perf_counter() - start
            entries = Store(Path(folder) / str(workers)).manifest["cells"].values()
            busy[workers] = sum(entry["seconds"] for entry in entries) / (workers * seconds[workers])
            frames.append(load(Path(folder) / str(workers)))
    assert frames[0].equals(frames[1]), "the results depend on the number of workers"
    ratio = seconds[1] / seconds[2]
    print(f"{CELLS} cells of {EPISODES} episodes: {seconds[1]:.1f} s on one worker, {seconds[2]:.1f} s on two")
    print(f"workers were playing {busy[1]:.0%} and {busy[2]:.0%} of that time")
    print(f"ratio {ratio:.2f}, at least {LEAST} asked for; load average {os.getloadavg()[0]:.1f}")
    assert ratio >= LEAST, "MISSED"


if __name__ == "__main__":
    main()
