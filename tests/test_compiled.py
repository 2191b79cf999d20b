"""What kernels may do, when what is cached is fresh, that our flags mean what those of numba mean, and that all of it
works with public numba alone."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.compiler import Flags
from numba.core.errors import NumbaError

from advmdp import _quicker
from advmdp._compiled import allocating_kernel, inner_kernel, kernel
from advmdp._interpreted import INTERPRETED

pytestmark = pytest.mark.skipif(
    INTERPRETED or not _quicker.QUICK, reason="nothing is compiled, or by public parts of numba alone"
)


def flags(**options: object) -> Flags:
    made = Flags()
    for name, value in options.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("name", sorted(Flags.options))
def test_every_option_of_our_flags_reads_as_it_does_in_those_of_numba(name: str) -> None:
    plain = flags(nrt=True, noalias=True, fastmath={"reassoc"})
    assert getattr(_quicker.QuickFlags(plain), name) == getattr(plain, name)


def test_flags_are_equal_exactly_if_those_of_numba_are() -> None:
    variants = [flags(), flags(nrt=True), flags(nrt=False), flags(noalias=True), flags(nrt=True, noalias=True)]
    for one in variants:
        for other in variants:
            ours, theirs = _quicker.QuickFlags(one), _quicker.QuickFlags(other)
            assert (ours == theirs) == (one == other)
            assert (ours == other) == (one == other)
            assert (one == theirs) == (one == other)
            assert hash(ours) == hash(one)
    assert _quicker.QuickFlags(flags()) != "flags"


PACKAGE = Path(_quicker.__file__).parent


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


def modules_with_kernels() -> list[str]:
    return sorted(_quicker._graph())


@pytest.mark.parametrize("name", modules_with_kernels())
def test_every_import_of_a_module_with_kernels_is_seen(name: str) -> None:
    """They are read as text, at the speed of an import; a form that this does not know must not be used."""
    seen: dict[str, str] = {}
    for node in ast.walk(ast.parse(_quicker._texts()[name])):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("advmdp") for alias in node.names), "from advmdp import ..."
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "no relative imports"
            if str(node.module).startswith("advmdp"):
                seen |= {alias.name: str(node.module) for alias in node.names}
    assert seen.items() <= _quicker._imports(name).items()


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
    assert used & set(modules_with_kernels()) <= _quicker.needed(name)


def test_a_change_makes_stale_what_is_cached_of_callers_and_of_nothing_else(tmp_path: Path) -> None:
    """In a process of its own, as a package reads its modules once."""
    copied = tmp_path / "advmdp"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    command = [
        sys.executable,
        "-c",
        "from advmdp.experiments.runner import account; from advmdp.solvers.conditional import soft_backward;"
        "print(*(x._cache._cache_file._source_stamp for x in (account, soft_backward)))",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def stamps() -> list[str]:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    before = stamps()
    assert stamps() == before
    with (copied / "_summation.py").open("a", encoding="utf-8") as file:
        file.write("# account calls a kernel of this module\n")
    account, backward = stamps()
    assert account != before[0]
    assert backward == before[1]
    with (copied / "rows" / "box.py").open("a", encoding="utf-8") as file:
        file.write("# the bodies of what soft_backward calls for boxes\n")
    assert stamps()[1] != backward


PUBLIC = """
import sys
import numpy as np
from advmdp import _quicker, make_learner, make_world, play
assert not _quicker.QUICK
world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=3)
rng = np.random.default_rng(0)
for name in sys.argv[2:]:
    learner = make_learner(name, world.model, 12)
    for _ in range(12):
        losses = [rng.random((n, 2)) for n in (1, 3, 3)]
        learner.update(play(world, learner.policy, losses, rng))
    np.save(f"{sys.argv[1]}/{name}.npy", np.concatenate(learner.policy, axis=None))
"""


@pytest.mark.parametrize(
    "names", [["planner"], pytest.param(["vlsuob-reps-tight", "uob-reps", "portfolio"], marks=pytest.mark.slow)]
)
def test_learners_do_the_same_with_public_numba_alone(names: list[str], tmp_path: Path) -> None:
    """In another process, with caches of its own; and here."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "ADVMDP_PUBLIC_NUMBA": "1"}
    subprocess.run([sys.executable, "-c", PUBLIC, str(tmp_path), *names], env=environment, check=True)
    found = {name: np.load(tmp_path / f"{name}.npy") for name in names}
    own = tmp_path / "own"
    own.mkdir()
    here = PUBLIC.replace("assert not", "assert")
    subprocess.run([sys.executable, "-c", here, str(own), *names], check=True)
    for name, policy in found.items():
        np.testing.assert_allclose(policy, np.load(own / f"{name}.npy"), atol=1e-7, err_msg=name)


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
