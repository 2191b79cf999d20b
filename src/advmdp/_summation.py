"""Sums over many episodes whose rounding error does not grow with their number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel

FloatArray = NDArray[np.float64]


class CompensatedSum:
    """A running sum of vectors; what each rounded addition loses is kept apart (Neumaier's summation)."""

    def __init__(self, size: int) -> None:
        self.total = np.zeros(size)
        self.carry = np.zeros(size)

    def add(self, term: FloatArray) -> None:
        """Add a vector."""
        add_compensated(self.total, self.carry, term)

    @property
    def value(self) -> FloatArray:
        """The sum."""
        value: FloatArray = self.total + self.carry
        return value


@inner_kernel
def add_one(total: FloatArray, carry: FloatArray, i: int, term: float) -> None:
    """Entry i of ``total + carry`` grows by ``term``."""
    before = total[i]
    after = before + term
    if abs(before) >= abs(term):
        carry[i] += (before - after) + term
    else:
        carry[i] += (term - after) + before
    total[i] = after


@kernel
def add_compensated(total: FloatArray, carry: FloatArray, term: FloatArray) -> None:
    """``total + carry`` grows by ``term``."""
    for i in range(total.size):
        add_one(total, carry, i, term[i])
