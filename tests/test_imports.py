"""What importing the library loads, and that it works where parts of the system are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import advmdp
from advmdp import experiments

#: Slow to import; a learner needs none of them.
HEAVY = (
    "pandas", "pyarrow", "pydantic", "rich", "matplotlib", "scipy.stats", "scipy.optimize", "gymnasium", "jinja2",
)  # fmt: skip

IMPORT = "import sys, advmdp"
ASK_AND_TELL = f"""{IMPORT}
learner = advmdp.make_learner("uniform", advmdp.TabularModel((1, 2, 1), 2), 10)
actions = [learner.act(0, 0), learner.act(1, 1)]
learner.update(advmdp.Episode([0, 1], actions, [0.5, 1.0]))"""
SIMULATION = f"""{IMPORT}
import numpy
for name in ("random-mixture", "frozen-lake", "inventory"):
    world = advmdp.make_world(name)
    losses = advmdp.make_adversary("switching", world, 10)
    learner = advmdp.make_learner("uniform", world, 10)
    learner.update(advmdp.play(world, learner.policy, losses.flat_losses(0), numpy.random.default_rng(0)))"""
HELP = """import sys
from advmdp.cli import app
try:
    app(["--help"])
except SystemExit as end:
    assert not end.code"""


def loaded(code: str, modules: tuple[str, ...]) -> list[str]:
    """Which of some modules a fresh interpreter has after this code."""
    code += f"\nprint('loaded', [name for name in {modules} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return eval(done.stdout.splitlines()[-1].removeprefix("loaded "))


@pytest.mark.parametrize("code", [IMPORT, ASK_AND_TELL, SIMULATION], ids=["import", "ask and tell", "simulation"])
def test_learners_need_no_heavy_package(code):
    assert loaded(code, HEAVY) == []


def test_help_waits_for_no_package_of_experiments():
    assert loaded(HELP, ("pandas", "pyarrow", "pydantic", "matplotlib", "scipy.stats", "gymnasium")) == []


def test_the_list_of_heavy_packages_is_not_misspelt():
    assert loaded("import sys, advmdp.envs, advmdp.experiments.sweep, advmdp.report", HEAVY) == list(HEAVY)


@pytest.mark.parametrize("package", [advmdp, experiments])
def test_what_is_loaded_late_is_there_for_everybody(package):
    names: dict[str, object] = {}
    exec(f"from {package.__name__} import *", names)
    assert set(package.__all__) <= set(names)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'rum'"):
        _ = package.rum


def test_importing_the_library_gives_its_packages():
    code = "import advmdp\nassert advmdp.experiments.run is advmdp.run\nprint(advmdp.theory.__name__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.startswith(
        "advmdp.theory"
    )


#: Our dependencies are loaded as they are here; then the system loses what Windows does not have.
WINDOWS = """import importlib, os, pkgutil, signal, sys, types
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
import advmdp

def every_module():
    for info in pkgutil.walk_packages(advmdp.__path__, "advmdp."):
        if info.name != "advmdp.__main__":
            importlib.import_module(info.name)

every_module()
for name in [name for name in sys.modules if name.split(".")[0] == "advmdp"]:
    del sys.modules[name]
kept = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
for name in [name for name in vars(signal) if name.startswith("SIG") and name not in kept]:
    delattr(signal, name)
for name in ("pthread_sigmask", "pthread_kill", "setitimer", "sigwait", "alarm", "pause"):
    delattr(signal, name)
for name in ("fork", "register_at_fork", "sched_getaffinity", "sysconf", "getuid", "geteuid", "killpg", "set_blocking"):
    delattr(os, name)
sys.platform = "win32"
import advmdp
every_module()
"""


def run_without_posix(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", WINDOWS + code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def test_every_module_can_be_imported_where_there_is_no_posix():
    run_without_posix("")


def test_experiments_run_and_files_are_written_where_there_is_no_posix(tmp_path):
    code = f"""
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=lambda file, mode, count: None)
from advmdp.experiments import compare, load
compare(["grid"], ["switching"], ["uniform"], episodes=5, seeds=2, out={str(tmp_path / "out")!r})
print(load({str(tmp_path / "out")!r})["seed"].nunique())"""
    assert run_without_posix(code) == "2\n"
