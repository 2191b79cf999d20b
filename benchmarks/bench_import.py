"""How long `import advmdp` takes, against the packages that a learner cannot do without; and `advmdp --help`.

Fresh interpreters in turn, medians.  Bytecode is cached, as it is in an installed package.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

REPEATS = 15
LIMIT = 1.5
HELP_LIMIT = 1.5  # seconds, on a machine that does nothing else

RIVAL = ("-c", "import numpy, scipy.linalg, numba")
OURS = ("-c", "import advmdp")
HELP = ("-m", "advmdp", "--help")


def seconds(arguments: tuple[str, ...]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def measure() -> tuple[float, ...]:
    """Median seconds of the rival, of the library, and of the help; the first round only fills caches."""
    rounds = [[seconds(arguments) for arguments in (RIVAL, OURS, HELP)] for _ in range(REPEATS + 1)]
    return tuple(statistics.median(column) for column in zip(*rounds[1:], strict=True))


def main() -> None:
    rival, ours, shown = measure()
    print(f"{'import numpy, scipy.linalg, numba':<34} {rival:6.2f} s")
    print(f"{'import advmdp':<34} {ours:6.2f} s   {ours / rival:.2f} times that (at most {LIMIT})")
    print(f"{'advmdp --help':<34} {shown:6.2f} s   (at most {HELP_LIMIT} s on an idle machine)")
    assert ours <= LIMIT * rival


if __name__ == "__main__":
    main()
