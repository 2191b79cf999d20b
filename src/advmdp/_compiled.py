"""The one way in which this library compiles a function, so that every kernel has the same rules.

What is here rests on public parts of numba alone.  With a version of numba that :mod:`advmdp._quicker` knows it
compiles the same functions in half the time, and they run a quarter quicker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeVar, cast

import numba
from numba.extending import overload

from advmdp import _quicker
from advmdp._interpreted import INTERPRETED, without_overlap

F = TypeVar("F", bound=Callable[..., Any])

# ``error_model="numpy"`` removes the zero-division branch from inner loops (and lets 0/0 be NaN, which callers test
# for).  Fast-math stays off, so that products are formed in the order in which they are written, which keeps them in
# range (:func:`sum_kernel` is the exception).  An entry for C would cost compile time, and nothing calls it.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True}
_INNER: dict[str, Any] = _OPTIONS | {"no_rewrites": True, "no_cpython_wrapper": True} | _quicker.INNER


def kernel(function: F) -> F:
    """Compile a function with numba on first use and cache the result on disk.

    A kernel must neither allocate (see :func:`allocating_kernel`) nor return an array that it was given: none counts
    references to the dozens of arrays that it works on.
    """
    return function if INTERPRETED else _cached(function, _quicker.KERNEL)


def allocating_kernel(function: F) -> F:
    """A :func:`kernel` that may make arrays of its own; no other kernel may call it, as nobody would free them."""
    return function if INTERPRETED else _cached(function, _quicker.ALLOCATING)


def _cached(function: F, options: dict[str, Any]) -> F:
    return cast(F, _quicker.stamped(numba.njit(function, cache=True, **_OPTIONS | options)))


def inner_kernel(function: F) -> F:
    """Compile a function that only other kernels call; it cannot be called from Python.

    Two rules.  Memory that the function writes through one argument must not be reached through another (arguments
    that are only read may overlap): loops then vectorise without comparing addresses first, however many arrays they
    write.  And it must not allocate: nothing counts references.  With ``NUMBA_DISABLE_JIT=1`` kernels are interpreted,
    and a call that breaks the first rule raises (:mod:`advmdp._interpreted`).
    """
    return without_overlap(function) if INTERPRETED else cast(F, numba.njit(function, **_INNER))


def sum_kernel(function: F) -> F:
    """An :func:`inner_kernel` whose sums may be taken in any order and fused with products: dot products vectorise.

    The order is that of the machine code, so results are the same from run to run; between processors they may differ
    by rounding.  For plain sums and dot products only: products of three factors would be rearranged too.
    """
    if INTERPRETED:
        return without_overlap(function)
    return cast(F, numba.njit(function, fastmath={"reassoc", "contract"}, **_INNER))


def chosen_kernel(function: F) -> F:
    """An inner kernel that has one body per type of its first argument, a NamedTuple; see :func:`body_of`.

    Only the body that is called is compiled, and callers are cached as usual, which they are not where functions are
    arguments.
    """
    chosen: Any = singledispatch(function)
    options: Any = _INNER

    @overload(chosen, jit_options=options, strict=False)
    def choose(*arguments: Any) -> Any:
        return chosen.dispatch(arguments[0].instance_class).py_func

    return cast(F, chosen)


def body_of(chosen: Any, kind: type) -> Callable[[F], F]:
    """Make of a function the :func:`inner_kernel` that a :func:`chosen_kernel` is for this kind."""

    def register(function: F) -> F:
        return cast(F, chosen.register(kind, inner_kernel(function)))

    return register
