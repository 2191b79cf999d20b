"""What a check of a lemma is: both sides computed on simulated data, and a control on which it must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Concatenate, ParamSpec

import numpy as np

from advmdp.layered import FloatArray

#: Rounding: a ratio of the two sides up to this much above one is no violation.
ROUNDING = 1e-9

#: Draws that many trials and returns left side / right side of each.
Ratios = Callable[[np.random.Generator, int], FloatArray]
P = ParamSpec("P")


def family(ratios: Callable[Concatenate[np.random.Generator, int, P], FloatArray]) -> Callable[P, Ratios]:
    """Statements that differ in the arguments after ``rng`` and ``trials``: called with these, it gives the ratios."""
    return lambda *which, **options: lambda rng, trials: ratios(rng, trials, *which, **options)


def each_trial(ratio: Callable[Concatenate[np.random.Generator, P], float]) -> Callable[P, Ratios]:
    """The same where trials are independent: ``ratio(rng, ...)`` is that of one."""
    return family(
        lambda rng, trials, *which, **options: np.array([ratio(rng, *which, **options) for _ in range(trials)])
    )


@dataclass(frozen=True)
class Refutation:
    """A printed statement that is false: an instance on which its left side exceeds its right side.

    ``erratum`` is its number in docs/errata.md.  Of a false equation the larger side is called the left one.
    """

    erratum: str
    printed: str
    counterexample: str
    left: float
    right: float

    @property
    def refuted(self) -> bool:
        """Whether the instance does what it is said to do."""
        return self.left > self.right * (1.0 + ROUNDING)


@dataclass(frozen=True)
class CheckResult:
    """What a check found."""

    name: str
    #: What was checked: the printed statement, or the corrected one where ``refutation`` is given.
    statement: str
    trials: int
    violations_allowed: int
    violations: int
    #: The worst ratio of the left to the right side: far below one, the statement is loose.
    tightness: float
    #: What was spoilt in the control, and how often the spoilt statement was then violated.
    control: str
    control_violations: int
    refutation: Refutation | None = None
    #: Whether the check is known not to be able to fail: see :attr:`Check.vacuous`.
    vacuous: bool = False

    @property
    def holds(self) -> bool:
        """Whether the statement stood, and the check has shown that it can fail, or that it cannot as it says."""
        refuted = self.refutation is None or self.refutation.refuted
        return self.violations <= self.violations_allowed and self.empty == self.vacuous and refuted

    @property
    def empty(self) -> bool:
        """Whether the check could not tell the control from the truth."""
        return self.control_violations <= self.violations_allowed

    @property
    def verdict(self) -> str:
        """In words."""
        if self.violations > self.violations_allowed:
            return "violated"
        if self.vacuous:
            return "cannot fail here" if self.empty else "was thought not to be able to fail, and can"
        if self.empty:
            return "says nothing: the control passes as well"
        if self.refutation is None:
            return "holds"
        if not self.refutation.refuted:
            return "holds, but the counterexample to the printed statement does not do its work"
        return "holds as corrected; false as printed"


@dataclass(frozen=True)
class Check:
    """A statement, how to sample the ratio of its two sides, and how to spoil it."""

    name: str
    statement: str
    ratios: Ratios
    control: str
    control_ratios: Ratios
    trials: int
    #: Probability with which the statement may fail; 0 for one that always holds.
    failure: float = 0.0
    refutation: Callable[[], Refutation] | None = None
    #: Known to say nothing at the lengths that can be simulated.  The control is then the worst that any learner
    #: could do, and must pass.
    vacuous: bool = False

    def run(self, seed: int = 0, trials: int | None = None) -> CheckResult:
        """Sample; the same seed gives the same result."""
        trials = self.trials if trials is None else min(trials, self.trials)
        ratios = self.ratios(np.random.default_rng(seed), trials)
        spoilt = self.control_ratios(np.random.default_rng(seed), trials)
        return CheckResult(
            self.name,
            self.statement,
            ratios.size,
            floor(self.failure * ratios.size),
            violations(ratios),
            float(ratios.max()),
            self.control,
            violations(spoilt),
            None if self.refutation is None else self.refutation(),
            self.vacuous,
        )


def violations(ratios: FloatArray) -> int:
    """How many ratios exceed one by more than rounding; one that is not a number counts as well."""
    return int(np.count_nonzero(~(ratios <= 1.0 + ROUNDING)))


def scaled(ratios: Ratios, factor: float) -> Ratios:
    """The statement with its right side multiplied by a factor."""
    return lambda rng, trials: ratios(rng, trials) / factor
