"""What a mirror step comes to: the occupancy measure with its certificate, or the error that carries the best one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from advmdp._arrays import Floats
from advmdp.errors import InvalidSpecError
from advmdp.solvers.problem import FlatTables, split_kernels, split_pairs

Warm = dict[str, Floats]
Certificate = tuple[float, float, float]  # value, gap, residual

# A certified step also has log q correct to this much, block by block: a small gap alone does not see a pair of
# small occupancy.
LARGEST_RESIDUAL = 1e-6


@dataclass(frozen=True)
class MirrorStep:
    """The new occupancy measure with its certificate.

    ``q`` and ``log_q``: lists over layers of (S_h, A); q is the occupancy measure of its policy under ``kernels``,
    which lie in the set.  ``log_q`` is meaningful where q has underflowed.  ``flat`` has the same three in one vector
    each.  ``value`` is the objective at q, which exceeds the minimum by at most ``gap``; ``residual`` bounds the error
    of stationarity in log q, over all pairs.  ``warm`` may be handed to the next step.
    """

    flat: FlatTables
    layer_sizes: tuple[int, ...]
    n_actions: int
    value: float
    gap: float
    residual: float
    iterations: int
    status: str
    warm: Warm
    #: The kernels as tables, where ``flat`` has those of sparse layers without their zeros.
    tables: list[Any] | None = None

    @cached_property
    def q(self) -> list[Floats]:
        """The occupancy measure."""
        return split_pairs(self.flat.q, self.layer_sizes, self.n_actions)

    @cached_property
    def log_q(self) -> list[Floats]:
        """Its logarithm."""
        return split_pairs(self.flat.log_q, self.layer_sizes, self.n_actions)

    @cached_property
    def kernels(self) -> list[Any]:
        """Kernels of the set that it comes from, sparse where the set is."""
        if self.tables is not None:
            return self.tables
        return split_kernels(self.flat.kernels, self.layer_sizes, self.n_actions)


class SolverError(RuntimeError):
    """A step whose certificate misses the tolerance.

    ``step`` is the best one that was found: an occupancy measure of the set, with the ``gap`` and ``residual`` that are
    proved of it.  It is None, and they are infinite, only where no attempt came to an occupancy measure of the set.
    """

    def __init__(self, message: str, gap: float, residual: float, problem: dict[str, Any], step: Any = None) -> None:
        super().__init__(message)
        self.gap = gap
        self.residual = residual
        self.problem = problem
        self.step = step

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the step that failed as an ``.npz`` file: the set's tables, log q, loss and step size."""
        np.savez(path, **self.problem)


def certified(certificate: Certificate, tolerance: float) -> bool:
    """Is this (value, gap, residual) good enough?  A gap below zero by more than rounding would mean that the point is
    not feasible."""
    return abs(certificate[1]) <= tolerance and certificate[2] <= LARGEST_RESIDUAL


def size_of(certificate: Certificate) -> float:
    """|gap| + residual; a step costs at most 2 H times this.  Infinite for kernels that are not in the set."""
    size = abs(certificate[1]) + certificate[2]
    return size if size < np.inf else np.inf


def required(name: str, step: MirrorStep, tolerance: float, reproduced: Callable[[], dict[str, Any]]) -> MirrorStep:
    """The step if its certificate meets the tolerance; otherwise :class:`SolverError`, which carries it."""
    certificate = (step.value, step.gap, step.residual)
    if certified(certificate, tolerance):
        return step
    raise SolverError(
        f"the {name} stopped with a duality gap of {step.gap:.3g} and a residual of {step.residual:.3g} after "
        f"{step.iterations} iterations; {tolerance:.3g} and {LARGEST_RESIDUAL:.3g} were asked for "
        "(save the step with error.save(path))",
        step.gap,
        step.residual,
        reproduced(),
        step if size_of(certificate) < np.inf else None,
    )


def checked_warm(warm: Mapping[str, Floats] | None) -> Mapping[str, Floats]:
    """A warm start, or nothing; one that is not a number would poison the step, and every later one."""
    for name, vector in (warm or {}).items():
        if not np.isfinite(vector).all():
            raise InvalidSpecError(
                f"warm[{name!r}] has {np.count_nonzero(~np.isfinite(vector))} entries that are not finite; give the "
                "`warm` of an earlier step as it is, or None"
            )
    return warm or {}


class Spaces(threading.local):
    """Working memory by shape, one collection per thread: kernels run without the interpreter lock."""

    def __init__(self) -> None:
        self.spaces: dict[tuple[Any, ...], Any] = {}

    def get(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        space = self.spaces.get(key)
        if space is None:
            if len(self.spaces) >= 16:
                self.spaces.clear()
            space = self.spaces[key] = make()
        return space


SPACES = Spaces()
