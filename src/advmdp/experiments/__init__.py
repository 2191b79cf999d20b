"""Playing learners against worlds and losses, with exact regret."""

from __future__ import annotations

from advmdp.experiments.compare import Comparison, compare
from advmdp.experiments.runner import RunResult, run

__all__ = ["Comparison", "RunResult", "compare", "run"]
