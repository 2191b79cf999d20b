"""The one way in which this library compiles a function, so that every kernel has the same rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache, singledispatch
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import PassManager
from numba.extending import overload

from advmdp._interpreted import INTERPRETED, without_overlap
from advmdp._log import say

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function with numba on first use and cache the result on disk.

    ``error_model="numpy"`` removes the zero-division branch from inner loops (and lets 0/0 be NaN, which
    callers test for); fast-math stays off, so that products are formed in the order in which they are written, which
    keeps them in range (:func:`sum_kernel` is the exception).  There is no entry for C, which would cost compile time
    and which nothing calls.  A kernel that allocates does not compile (see :func:`allocating_kernel`): so none counts
    references to the dozens of arrays that it is given.  For the same reason it must not return one of them.
    """
    return function if INTERPRETED else _cached(function, _nrt=False)


def allocating_kernel(function: F) -> F:
    """A :func:`kernel` that may make arrays of its own; no other kernel may call it, as nobody would free them."""
    return function if INTERPRETED else _cached(function, _nrt=True)


def _cached(function: F, **options: Any) -> F:
    compiled: Any = numba.njit(function, cache=True, **_OPTIONS, **options)
    # Numba takes what it has cached for fresh as long as the file of the function itself has the same date; what the
    # function calls lies in other files.  The contents of all that have kernels decide instead.
    compiled._cache._cache_file._source_stamp = _fingerprint(Path(function.__code__.co_filename))
    return cast(F, compiled)


def _fingerprint(file: Path) -> str:
    """Of all modules with kernels in this package, and of the file itself if it belongs to another."""
    own = _ours() if file.is_relative_to(Path(__file__).parent) else _ours() + file.read_bytes()
    return hashlib.sha256(own).hexdigest()


@cache
def _ours() -> bytes:
    modules = sorted(Path(__file__).parent.rglob("*.py"))
    texts = b"".join(text for text in (module.read_bytes() for module in modules) if b"_compiled" in text)
    return hashlib.sha256(texts).digest()


def inner_kernel(function: F) -> F:
    """Compile a function that only other kernels call; it cannot be called from Python.

    Numba would optimise it and generate machine code for it by itself, and then do both again, with everything it
    calls in turn, inside each kernel that calls it: the deeper the nesting, the more often.  Here it is translated
    once and linked; the :func:`kernel` at the top optimises the whole, and its cache file contains it.

    Two rules.  Memory that the function writes through one argument must not be reached through another (arguments
    that are only read may overlap): loops then vectorise without comparing addresses first, however many arrays they
    write.  And it must not allocate: nothing counts references.  With ``NUMBA_DISABLE_JIT=1`` kernels are interpreted,
    and a call that breaks the first rule raises (:mod:`advmdp._interpreted`).
    """
    if INTERPRETED:
        return without_overlap(function)
    return cast(F, numba.njit(function, **_INNER))


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


class _NoEnvironment:
    """Stands in for the code generator where numba would set the environment of a function it can run."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Nothing to set: environments hold Python objects, and kernels have none."""


class _InnerLibrary(JITCodeLibrary):
    """Code to be linked into that of a caller, never run by itself."""

    @property
    def codegen(self) -> Any:
        return _NoEnvironment

    def _optimize_functions(self, module: Any) -> None:
        """Not here: the caller does."""
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Take in the code of the functions that this one calls, and leave the rest to the caller."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Zero, numba's word for a function without an entry."""
        if not self._finalized:
            self.finalize()
        return 0


class _Flags(Flags):
    """Numba's options of one compilation, quicker to compare.

    Type inference compares them for every overload of every operation that it considers, a quarter of a million times
    for one learner, and numba asks each of two dozen properties each time: a tenth of all compile time.
    """

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        return _DEFAULTS | self._values

    def __hash__(self) -> int:
        return _HASH  # that of all flags: numba hashes the names of the options, not their values


_DEFAULTS = {name: option.default for name, option in Flags.options.items()}
_HASH = hash(Flags())


class _Compiler(CompilerBase):
    """The usual passes."""

    state: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self.state.flags = _Flags(self.state.flags)  # type: ignore[no-untyped-call]

    def define_pipelines(self) -> list[Any]:
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


# What is left of numba's passes for functions of loops, arithmetic and array entries: no closures, no literal values
# to propagate, nothing to inline.  What they do not understand fails to compile.
_INNER_PASSES = (
    untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
    untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization, typed_passes.AnnotateTypes, typed_passes.NativeLowering, typed_passes.NoPythonBackend,
)  # fmt: skip


class _InnerCompiler(_Compiler):
    """The passes that inner kernels need, into an :class:`_InnerLibrary`."""

    def define_pipelines(self) -> list[Any]:
        state = self.state
        state.flags.noalias = True
        make_library: Any = _InnerLibrary
        state.library = make_library(state.targetctx.codegen(), state.func_id.func_qualname)
        passes = PassManager("inner kernel")
        for each in _INNER_PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


_OPTIONS: dict[str, Any] = {
    "error_model": "numpy", "nogil": True, "pipeline_class": _Compiler, "no_cfunc_wrapper": True,
}  # fmt: skip
_INNER: dict[str, Any] = _OPTIONS | {
    "pipeline_class": _InnerCompiler, "_nrt": False, "no_rewrites": True, "no_cpython_wrapper": True,
}  # fmt: skip


class _Announcer(event.Listener):
    """Tells a person once why the first call takes longer: numba compiles, and caches for next time."""

    def __init__(self) -> None:
        self.announced = False

    def on_start(self, event: Any) -> None:
        compiled = getattr(event.data.get("dispatcher"), "py_func", None)
        if not self.announced and str(getattr(compiled, "__module__", "")).startswith("advmdp"):
            self.announced = True
            say("compiling numerical kernels (once; the result is cached) ...")

    def on_end(self, event: Any) -> None:
        """Nothing to say: the caller sees its result."""


event.register("numba:compile", _Announcer())
