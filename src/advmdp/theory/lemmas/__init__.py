"""Lemmas as checks: both sides computed on simulated data, each with a control that must fail.

They are the paper's, and those of docs/likelihood-sets.md, docs/strong-learners.md and docs/sharper-parts.md.
:func:`verify` runs them all.
Where a printed statement is false the check is of the corrected one, and the result carries a counterexample to the
printed one; :func:`refutations` gives those that belong to no check.
"""

from __future__ import annotations

from advmdp.theory.lemmas import concentration, coverage, geometry, learner, likelihood, potential, runs, sharp, strong
from advmdp.theory.lemmas.base import Check, CheckResult, Refutation
from advmdp.theory.lemmas.printed import refutations

__all__ = ["CHECKS", "Check", "CheckResult", "Refutation", "refutations", "verify"]

#: Every check, from the noise of one step to the regret of a run.
CHECKS: tuple[Check, ...] = (
    *concentration.CHECKS,
    *coverage.CHECKS,
    *likelihood.CHECKS,
    *potential.CHECKS,
    *geometry.CHECKS,
    *learner.CHECKS,
    *runs.CHECKS,
    *strong.CHECKS,
    *sharp.CHECKS,
)


def verify(seed: int = 0, trials: int | None = None) -> list[CheckResult]:
    """Run every check; ``trials`` caps the number of trials of each (fewer is quicker and says less)."""
    return [check.run(seed, trials) for check in CHECKS]
