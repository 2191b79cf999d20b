"""Playing learners against worlds and losses: one run, or many from a spec file, with exact regret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advmdp._lazy import lazy
from advmdp.experiments.compare import Comparison, compare

if TYPE_CHECKING:
    from advmdp.experiments.runner import Run, RunResult, run
    from advmdp.experiments.spec import Cell, Spec
    from advmdp.experiments.store import Store, load
    from advmdp.experiments.sweep import Outcome, resume, run_spec
else:  # these need pandas, pyarrow or pydantic
    __getattr__ = lazy(
        __name__,
        **dict.fromkeys(("Run", "RunResult", "run"), "advmdp.experiments.runner"),
        **dict.fromkeys(("Cell", "Spec"), "advmdp.experiments.spec"),
        **dict.fromkeys(("Store", "load"), "advmdp.experiments.store"),
        **dict.fromkeys(("Outcome", "resume", "run_spec"), "advmdp.experiments.sweep"),
    )

__all__ = [
    "Cell",
    "Comparison",
    "Outcome",
    "Run",
    "RunResult",
    "Spec",
    "Store",
    "compare",
    "load",
    "resume",
    "run",
    "run_spec",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
