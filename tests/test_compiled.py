"""When what is cached of kernels is fresh, and that we rest on public parts of numba."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from advmdp import _sources
from advmdp._compiled import inner_kernel, kernel
from advmdp._interpreted import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
PACKAGE = Path(_sources.__file__).parent


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_what_we_use_of_numba_is_public(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "numba.core" not in text
    assert not re.search(r"numba[\w.]*\._[a-z]", text)


def modules_with_kernels() -> list[str]:
    return sorted(_sources.graph())


@pytest.mark.parametrize("name", modules_with_kernels())
def test_every_import_of_a_module_with_kernels_is_seen(name: str) -> None:
    """They are read as text, at the speed of an import; a form that this does not know must not be used."""
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse(_sources.sources()[name])):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("advmdp") for alias in node.names), "from advmdp import ..."
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "no relative imports"
            if str(node.module).startswith("advmdp"):
                seen |= {alias.name: str(node.module) for alias in node.names}
    assert seen.items() <= _sources.imports(name).items()


@pytest.mark.parametrize("name", modules_with_kernels())
def test_all_that_the_kernels_of_a_module_use_is_listed(name: str) -> None:
    """By what their names stand for at run time: other kernels, modules of them, records and constants."""
    for module in modules_with_kernels():
        importlib.import_module(module)
    functions = [value for value in vars(sys.modules[name]).values() if getattr(value, "__module__", None) == name]
    used = set()
    for function in functions:
        bodies = [*function.registry.values(), function] if hasattr(function, "registry") else [function]
        for body in bodies:
            code = getattr(getattr(body, "py_func", body), "__code__", None)
            used |= {getattr(body, "__module__", name)}
            for word in code.co_names if code is not None and hasattr(body, "py_func") else ():
                value = getattr(sys.modules[name], word, None)
                used |= {getattr(value, "__name__", None), getattr(value, "__module__", None)}
    assert used & set(modules_with_kernels()) <= set(_sources.needed(name))


CALLS = """
import numpy as np
from advmdp.confidence import KnownKernels
from advmdp.experiments.runner import account
from advmdp.rows.layer import layer_extremes
from advmdp.solvers.occupancy_bounds import extreme_rows
account(*np.zeros((2, 3)), *np.zeros((2, 4)), np.zeros(3))
extreme_rows(KnownKernels([np.array([[[0.5, 0.5]]]), np.ones((2, 1, 1))]), 0, np.zeros(2))
print(*(each.__name__ for each in (account, layer_extremes) if each.stats.cache_misses))
"""


def test_a_change_makes_stale_what_is_cached_of_callers_and_of_nothing_else(tmp_path: Path) -> None:
    """In a process of its own, as a package reads its modules once."""
    copied = tmp_path / "advmdp"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-c", CALLS]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def compiled() -> list[str]:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    def edit(file: str) -> None:
        with (copied / file).open("a", encoding="utf-8") as stream:
            stream.write("# edited\n")

    assert compiled() == ["account", "layer_extremes"]
    edit("learners/parts/planning.py")
    assert compiled() == []
    edit("_summation.py")
    assert compiled() == ["account"]
    edit("rows/known.py")  # a body of what layer_extremes calls
    assert compiled() == ["layer_extremes"]
    edit("_compiled.py")
    assert compiled() == ["account", "layer_extremes"]


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
