"""Flags of the compiler mean what those of numba mean, and kernels run what they call."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.compiler import Flags

from advmdp import _compiled
from advmdp._compiled import inner_kernel, kernel
from advmdp._interpreted import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


def flags(**options: object) -> Flags:
    made = Flags()
    for name, value in options.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("name", sorted(Flags.options))
def test_every_option_of_our_flags_reads_as_it_does_in_those_of_numba(name: str) -> None:
    plain = flags(nrt=True, noalias=True, fastmath={"reassoc"})
    assert getattr(_compiled._Flags(plain), name) == getattr(plain, name)


def test_flags_are_equal_exactly_if_those_of_numba_are() -> None:
    variants = [flags(), flags(nrt=True), flags(nrt=False), flags(noalias=True), flags(nrt=True, noalias=True)]
    for one in variants:
        for other in variants:
            ours, theirs = _compiled._Flags(one), _compiled._Flags(other)
            assert (ours == theirs) == (one == other)
            assert (ours == other) == (one == other)
            assert (one == theirs) == (one == other)
            assert hash(ours) == hash(one)
    assert _compiled._Flags(flags()) != "flags"


@inner_kernel
def _scaled(x: np.ndarray, factor: float) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        total += factor * x[i]
    return total


@kernel
def _twice(x: np.ndarray) -> float:
    return _scaled(x, 2.0)


def test_a_kernel_runs_the_inner_kernels_that_it_calls() -> None:
    assert _twice(np.arange(5.0)) == 20.0
