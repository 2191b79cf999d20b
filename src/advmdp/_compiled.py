"""The one way in which this library compiles a function, so that every kernel has the same rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeVar, cast

import numba
from numba.extending import overload

from advmdp._interpreted import INTERPRETED
from advmdp._log import say_once
from advmdp._sources import sealed

F = TypeVar("F", bound=Callable[..., Any])

# ``error_model="numpy"`` removes the zero-division branch from inner loops (and lets 0/0 be NaN, which callers test
# for).  No fast-math: products are formed as written, which keeps them in range.  Unused entries cost compile time.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
_INNER: Any = _OPTIONS | {"no_rewrites": True, "no_cpython_wrapper": True}


def kernel(function: F) -> F:
    """Compile a function with numba on first use and cache the result on disk."""
    return function if INTERPRETED else cast(F, numba.njit(sealed(function), cache=True, **_OPTIONS))


def inner_kernel(function: F, **options: Any) -> F:
    """Compile a function that only other kernels call; it cannot be called from Python."""
    return function if INTERPRETED else cast(F, numba.njit(function, **_INNER | options))


def inlined_kernel(function: F) -> F:
    """An inner kernel that is written out where it is called: LLVM would compile it anew on each level above."""
    return inner_kernel(function, inline="always")


def sum_kernel(function: F) -> F:
    """An inner kernel of plain sums and dot products, in any order and fused (so would products of three be)."""
    return inner_kernel(function, fastmath={"reassoc", "contract"})


def chosen_kernel(function: F) -> F:
    """An inner kernel with a body per type of its first argument, a NamedTuple: only the one called is compiled."""
    chosen: Any = singledispatch(function)

    @overload(chosen, jit_options=_INNER, strict=False)
    def choose(*arguments: Any) -> Any:
        # Numba has cached no caller of it.
        say_once("compiling numerical kernels (once; the result is cached) ...")
        return chosen.dispatch(arguments[0].instance_class).py_func

    return cast(F, chosen)


def body_of(chosen: Any, kind: type) -> Callable[[Any], Any]:
    """Make of a function the inner kernel that a :func:`chosen_kernel` is for this kind."""
    return lambda function: chosen.register(kind if INTERPRETED else getattr(kind, "At", kind), inner_kernel(function))
