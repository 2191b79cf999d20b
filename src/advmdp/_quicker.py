"""How numba compiles our kernels in half the time: by way of parts of it that are not public.

They are used with the versions in ``TESTED`` only.  With any other, and where ``ADVMDP_PUBLIC_NUMBA=1``, everything
here is empty, and :mod:`advmdp._compiled` does without: the same answers up to rounding, from steps that take 1.4 times
as long and compile in 2.3 times the time.  (Then what is cached counts as fresh as long as its own file has the same
date: delete caches after editing a kernel that others call.)
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numba

from advmdp._log import say

TESTED = ("0.68",)
QUICK = ".".join(numba.__version__.split(".")[:2]) in TESTED and os.environ.get("ADVMDP_PUBLIC_NUMBA", "") != "1"

#: Options beyond those of :mod:`advmdp._compiled`.
KERNEL: dict[str, Any] = {}
ALLOCATING: dict[str, Any] = {}
INNER: dict[str, Any] = {}


def stamped(compiled: Any) -> Any:
    """A dispatcher whose cache is fresh as long as no kernel has changed that it may call.

    Numba looks at the date of the file of the function itself; what the function calls lies in other files.
    """
    if QUICK:
        function = compiled.py_func
        own = _fingerprint(function.__module__) or hashlib.sha256(
            _all_kernels() + Path(function.__code__.co_filename).read_bytes()
        )
        compiled._cache._cache_file._source_stamp = own.hexdigest()
    return compiled


# --------------------------------------------------------------------------------------------------------
# Which kernels a kernel may call

_IMPORT = re.compile(r"^from (advmdp[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


@cache
def _texts() -> dict[str, str]:
    """All modules of the package by their names."""
    root = Path(__file__).parent
    files = {".".join(("advmdp", *file.relative_to(root).with_suffix("").parts)): file for file in root.rglob("*.py")}
    return {name.removesuffix(".__init__"): file.read_text("utf-8") for name, file in sorted(files.items())}


@cache
def _imports(module: str) -> dict[str, str]:
    """Where each name that a module imports from the package comes from."""
    return {
        name: source
        for source, names in _IMPORT.findall(_texts().get(module, ""))
        for name in re.findall(r"\w+", re.sub("#.*", "", names))
    }


def _home(source: str, name: str) -> str:
    """The module itself, or the one that the name is defined in, where a package only passes it on."""
    while f"{source}.{name}" not in _texts():
        if name not in _imports(source):
            return source
        source = _imports(source)[name]
    return f"{source}.{name}"


@cache
def _graph() -> dict[str, set[str]]:
    """For each module with kernels, those that they use: the ones it imports from and, if it has kernels that are
    chosen by type, the ones with their bodies."""
    texts = {name: text for name, text in _texts().items() if "from advmdp._compiled import" in text}
    graph = {
        module: {_home(source, name) for name, source in _imports(module).items()} & texts.keys() for module in texts
    }
    for module in [module for module, text in texts.items() if "body_of(" in text]:
        for source in [source for source in graph[module] if "@chosen_kernel" in texts[source]]:
            graph[source].add(module)
    return graph


@cache
def needed(module: str) -> frozenset[str]:
    """The modules whose kernels those of a module may call, itself among them; none for a module without kernels."""
    found: set[str] = set()
    waiting = {module} & _graph().keys()
    while waiting:
        found |= waiting
        waiting = set().union(*(_graph()[each] for each in waiting)) - found
    return frozenset(found)


@cache
def _fingerprint(module: str) -> Any:
    """Of what :func:`needed` lists and of the way we compile; None for a module that is not ours."""
    names = needed(module)
    texts = [_texts()[name] for name in (*sorted(names), "advmdp._compiled", "advmdp._quicker")]
    return hashlib.sha256("\0".join(texts).encode()) if names else None


@cache
def _all_kernels() -> bytes:
    return b"".join(_fingerprint(module).digest() for module in sorted(_graph()))


# --------------------------------------------------------------------------------------------------------
# A shorter way through the compiler

if QUICK:
    from numba.core import event, typed_passes, untyped_passes
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
    from numba.core.compiler_machinery import PassManager

    class NoEnvironment:
        """Stands in for the code generator where numba would set the environment of a function it can run."""

        @staticmethod
        def set_env(name: str, environment: Any) -> None:
            """Nothing to set: environments hold Python objects, and kernels have none."""

    class InnerLibrary(JITCodeLibrary):
        """Code to be linked into that of a caller, never run by itself.

        Numba would optimise an inner kernel and generate machine code for it by itself, and then do both again, with
        everything it calls in turn, inside each kernel that calls it: the deeper the nesting, the more often.  Here it
        is translated once and linked; the kernel at the top optimises the whole, and its cache file contains it.
        """

        @property
        def codegen(self) -> Any:
            return NoEnvironment

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

    class QuickFlags(Flags):
        """Numba's options of one compilation, quicker to compare.

        Type inference compares them for every overload of every operation that it considers, a quarter of a million
        times for one learner, and numba asks each of two dozen properties each time: a tenth of all compile time.
        """

        __slots__ = ()

        def values(self) -> dict[str, Any]:
            return _DEFAULTS | self._values

        def __hash__(self) -> int:
            return _HASH  # that of all flags: numba hashes the names of the options, not their values

    _DEFAULTS = {name: option.default for name, option in Flags.options.items()}
    _HASH = hash(Flags())

    class Compiler(CompilerBase):
        """The usual passes."""

        state: Any

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)  # type: ignore[no-untyped-call]
            self.state.flags = QuickFlags(self.state.flags)  # type: ignore[no-untyped-call]

        def define_pipelines(self) -> list[Any]:
            return [DefaultPassBuilder.define_nopython_pipeline(self.state)]

    # What is left of numba's passes for functions of loops, arithmetic and array entries: no closures, no literal
    # values to propagate, nothing to inline.  What they do not understand fails to compile.
    _PASSES = (
        untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.IRProcessing,
        untyped_passes.ReconstructSSA, typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis,
        typed_passes.IRLegalization, typed_passes.AnnotateTypes, typed_passes.NativeLowering,
        typed_passes.NoPythonBackend,
    )  # fmt: skip

    class InnerCompiler(Compiler):
        """The passes that inner kernels need, into an :class:`InnerLibrary`."""

        def define_pipelines(self) -> list[Any]:
            state = self.state
            state.flags.noalias = True
            make_library: Any = InnerLibrary
            state.library = make_library(state.targetctx.codegen(), state.func_id.func_qualname)
            passes = PassManager("inner kernel")
            for each in _PASSES:
                passes.add_pass(each, each.__name__)
            passes.finalize()
            return [passes]

    class Announcer(event.Listener):
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

    event.register("numba:compile", Announcer())
    KERNEL |= {"pipeline_class": Compiler, "_nrt": False}
    ALLOCATING |= {"pipeline_class": Compiler}
    INNER |= {"pipeline_class": InnerCompiler, "_nrt": False}
