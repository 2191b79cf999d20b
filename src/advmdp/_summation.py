"""Sums over many episodes whose rounding error does not grow with their number."""

from __future__ import annotations

import numpy as np

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel, kernel


class CompensatedSum:
    """A running sum of vectors; what each rounded addition loses is kept apart (Neumaier's summation)."""

    def __init__(self, size: int) -> None:
        self.total = np.zeros(size)
        self.carry = np.zeros(size)

    def add(self, term: Floats) -> None:
        """Add a vector."""
        add_compensated(self.total, self.carry, term)

    @property
    def value(self) -> Floats:
        """The sum."""
        value: Floats = self.total + self.carry
        return value


@inner_kernel
def add_one(total: Floats, carry: Floats, i: int, term: float) -> None:
    """Entry i of ``total + carry`` grows by ``term``."""
    before = total[i]
    after = before + term
    if abs(before) >= abs(term):
        carry[i] += (before - after) + term
    else:
        carry[i] += (term - after) + before
    total[i] = after


@kernel
def add_compensated(total: Floats, carry: Floats, term: Floats) -> None:
    """``total + carry`` grows by ``term``."""
    for i in range(total.size):
        add_one(total, carry, i, term[i])
