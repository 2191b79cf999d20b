"""The one way in which this library compiles a function, so that every kernel has the same rules."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function with numba on first use and cache the result on disk.

    ``error_model="numpy"`` removes the zero-division branch from inner loops (and lets 0/0 be NaN, which
    callers test for); fast-math stays off because results must be identical from run to run.
    """
    return cast(F, numba.njit(function, cache=True, error_model="numpy", nogil=True))


class _Announcer(event.Listener):
    """Tells a person once why the first call takes longer: numba compiles, and caches for next time."""

    def __init__(self) -> None:
        self.announced = False

    def on_start(self, event: Any) -> None:
        compiled = getattr(event.data.get("dispatcher"), "py_func", None)
        if not self.announced and str(getattr(compiled, "__module__", "")).startswith("advmdp"):
            self.announced = True
            print(
                "advmdp: compiling numerical kernels (once; the result is cached) ...",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        """Nothing to say: the caller sees its result."""


event.register("numba:compile", _Announcer())
