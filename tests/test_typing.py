"""A program that uses the library passes `mypy --strict`, without settings of its own, and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "typing" / "user_code.py"


def strict(program: Path, folder: Path) -> str:
    """What mypy says of a program, as a user's mypy would: of the library it only reads the types."""
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={folder / 'cache'}"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow  # `make lint` has mypy look at the program every time
def test_a_users_program_passes_mypy_strict_and_mistakes_in_it_are_found(tmp_path: Path) -> None:
    assert strict(PROGRAM, tmp_path).startswith("Success")
    wrong = PROGRAM.read_text().replace("gaps.append(assert_type(step.gap, float))", "gaps.append(step.gpa)")
    wrong = wrong.replace("loss - value", "loss - best")
    (tmp_path / "wrong.py").write_text(wrong)
    found = strict(tmp_path / "wrong.py", tmp_path)
    assert 'has no attribute "gpa"' in found
    assert "Unsupported operand types" in found


def test_the_program_runs() -> None:
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "repair" in done.stdout or "run" in done.stdout
