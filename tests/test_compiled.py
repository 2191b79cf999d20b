"""What kernels may do, when what is cached is fresh, and that our flags mean what those of numba mean."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.compiler import Flags
from numba.core.errors import NumbaError

from advmdp import _compiled
from advmdp._compiled import allocating_kernel, inner_kernel, kernel
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


PACKAGE = Path(_compiled.__file__).parent


def compiled_functions() -> dict[str, list[ast.FunctionDef]]:
    """The functions of the package under each way to compile them."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    way = ast.unparse(decorator)
                    found.setdefault("inner_kernel" if way.startswith("body_of(") else way, []).append(node)
    return {name: found[name] for name in ("kernel", "allocating_kernel", "inner_kernel", "sum_kernel")}


def test_no_kernel_returns_an_array() -> None:
    """Nothing counts references, so it might be gone; mypy sees that the annotations are true."""
    for functions in compiled_functions().values():
        for function in functions:
            assert function.returns is not None, function.name
            names = {node.id for node in ast.walk(function.returns) if isinstance(node, ast.Name)}
            # A Block is views that own nothing.
            assert names <= {"float", "int", "bool", "tuple", *(["Block"] if function.name == "block_of" else [])}


def test_no_kernel_calls_one_that_allocates() -> None:
    allocating = {function.name for function in compiled_functions()["allocating_kernel"]}
    assert allocating, "nothing is tested"
    for kind, functions in compiled_functions().items():
        for function in functions if kind != "allocating_kernel" else []:
            calls = {ast.unparse(node.func).split(".")[-1] for node in ast.walk(function) if isinstance(node, ast.Call)}
            assert not calls & allocating, function.name


@kernel
def _allocates(n: int) -> float:
    return float(np.zeros(n)[0])


@allocating_kernel
def _allocates_knowingly(n: int) -> float:
    return float(np.zeros(n)[0])


def test_a_kernel_that_allocates_does_not_compile_unless_it_says_so() -> None:
    with pytest.raises(NumbaError):
        _allocates(3)
    # Another function: what is cached of one would be found for the other in the next run.
    assert _allocates_knowingly(3) == 0.0


def test_a_change_in_any_module_with_kernels_makes_what_is_cached_stale(tmp_path: Path) -> None:
    """In a process of its own, as a package reads its modules once."""
    copied = tmp_path / "advmdp"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-c",
        "from advmdp.experiments.runner import account; print(account._cache._cache_file._source_stamp)",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def stamp() -> str:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    before = stamp()
    assert stamp() == before
    with (copied / "_summation.py").open("a", encoding="utf-8") as file:
        file.write("# account calls a kernel of this module\n")
    assert stamp() != before


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
