"""Playing learners against worlds and losses: one run, or many from a spec file, with exact regret."""

from __future__ import annotations

from advmdp.experiments.compare import Comparison, compare
from advmdp.experiments.runner import Run, RunResult, run
from advmdp.experiments.spec import Cell, Spec
from advmdp.experiments.store import Store, load
from advmdp.experiments.sweep import Outcome, resume, run_spec

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
