"""The lock files, the built wheel and the direction of imports are what the docs say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
import yaml

import advmdp

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "advmdp").rglob("*.py"))
LOCKS = ["requirements.lock", "requirements-dev.lock"]

PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)(?P<rest>.*)")


def pins(lock: str) -> dict[str, tuple[str, str]]:
    """Name -> (version, marker and hashes) of a lock file; any other kind of line is an error."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pin = PIN.fullmatch(line.strip())
        assert pin, f"{lock}: not a pinned requirement: {line!r}"
        assert pin["name"] not in found, f"{lock}: {pin['name']} is pinned twice"
        found[pin["name"]] = (pin["version"], pin["rest"])
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|@|index-url|find-links|trusted-host", text)
    assert not re.search(r"(^|\s)~?/\w", text), "a path of one machine"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str) -> None:
    entries = pins(lock)
    assert entries
    bare = [name for name, (_, rest) in entries.items() if "--hash=sha256:" not in rest]
    assert not bare


def test_locks_agree_and_cover_what_is_declared() -> None:
    run, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    differing = {name for name in run if name not in dev or dev[name][0] != run[name][0]}
    assert not differing, "a run environment would change when it becomes a development one"

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}

    assert names(project["project"]["dependencies"]) <= run.keys()
    assert names(project["dependency-groups"]["build"]) <= run.keys()
    assert names(extras["dev"] + extras["report"]) <= dev.keys()


def test_every_declared_dependency_is_argued() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {re.split(r"[<>=]", entry)[0] for group in groups for entry in group}
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    argued = set(re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE))
    assert argued == declared


def built(target: str, source: Path, folder: Path) -> Path:
    """The wheel or the source archive of a tree, built as a release is."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
    build = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert build.returncode == 0, build.stdout + build.stderr
    (archive,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return archive


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_ships_the_package_and_its_types(tmp_path: Path) -> None:
    shipped = members(built("wheel", ROOT, tmp_path)).keys()
    assert "advmdp/py.typed" in shipped
    assert {path.relative_to(ROOT / "src").as_posix() for path in SOURCES} <= shipped
    strays = {name for name in shipped if not name.startswith("advmdp/") or name.endswith((".nbi", ".nbc", ".pyc"))}
    assert not strays, "only the package belongs into the wheel, without caches"


#: Interpreted, as kernels that are compiled into a new folder take a minute.
SMOKE = """import os, sys, advmdp
assert advmdp.__file__.startswith(os.environ["PYTHONPATH"]), advmdp.__file__
world = advmdp.make_world("grid", height=2, width=2)
losses = advmdp.make_adversary("switching", world, 5)
print(len(advmdp.run(world, advmdp.make_learner("ftl", world, 5), losses, 5).frame))"""


def test_what_is_built_from_the_source_archive_can_be_installed_and_runs(tmp_path: Path) -> None:
    with tarfile.open(built("sdist", ROOT, tmp_path)) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for needed in ("pyproject.toml", "LICENSE", "README.md", "Makefile", "requirements.lock", "tests/conftest.py"):
        assert f"{unpacked.name}/{needed}" in names
    wheel = built("wheel", unpacked, tmp_path / "from-archive")
    assert members(wheel) == members(built("wheel", ROOT, tmp_path / "from-tree"))
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", installed, wheel], check=True, capture_output=True)
    assert "advmdp" in {point.name for point in Distribution.at(*installed.glob("*.dist-info")).entry_points}
    environment = {**os.environ, "PYTHONPATH": str(installed), "NUMBA_DISABLE_JIT": "1"}
    for command, answer in ((["-c", SMOKE], "5\n"), (["-m", "advmdp", "--version"], f"advmdp {advmdp.__version__}\n")):
        options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *command], check=False, **options)
        assert done.stdout == answer, done.stderr


def test_the_workflow_of_a_forge_has_the_commands_of_the_readme_and_every_python_that_is_promised() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert "://" not in text, "like the lock files, it names no address"
    commands, smoke = yaml.safe_load(text)["jobs"].values()
    run = [step["run"] for step in commands["steps"] if "run" in step]
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("## Two commands")[1]
    assert run == re.findall(r"^\$ (make \w+)", readme, flags=re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r":: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    matrix = smoke["strategy"]["matrix"]
    assert matrix["python"] == promised
    assert project["requires-python"] == f">={promised[0]}"
    assert [system.split("-")[0] for system in matrix["system"]] == ["ubuntu", "macos", "windows"]
    for step in smoke["steps"]:
        for word in step.get("run", "").split():
            assert "/" not in word or (ROOT / word).is_file()


# Modules that execute code while they read data.
CODE_LOADERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def code_loading(source: str) -> list[str]:
    """Places in a module that could run code from a file: a loader, or an option like one."""
    places = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                modules = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case ast.Attribute(attr="read_pickle" | "to_pickle" as name):
                places.append(f"line {node.lineno}: {name}")
                continue
            case ast.keyword(arg="allow_pickle", value=value) if not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                places.append(f"line {node.lineno}: allow_pickle")
                continue
            case _:
                continue
        loaders = [name for name in modules if name.split(".")[0] in CODE_LOADERS]
        places += [f"line {node.lineno}: {name}" for name in loaders]
    return places


def test_nothing_that_the_library_reads_can_run_code() -> None:
    assert SOURCES
    found = {str(path.relative_to(ROOT)): code_loading(path.read_text()) for path in SOURCES}
    assert not {path: places for path, places in found.items() if places}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "from joblib import load",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "frame = pandas.read_pickle('x')",
    ],
)
def test_the_search_for_code_loaders_finds_them(source: str) -> None:
    assert len(code_loading(source)) == 1
    assert code_loading("import json\nnumpy.load('x', allow_pickle=False)") == []


def test_imports_point_in_one_direction() -> None:
    linter = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert linter.returncode == 0, linter.stdout + linter.stderr
