"""The notebooks of examples/ run from top to bottom, and are committed without outputs.

Without, because outputs change with every version of a plotting library and would hide what a commit changes; the
documentation has the pictures, and this file runs every cell.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.ipynb"))

#: In a process of its own: clients of Jupyter leave sockets to the garbage collector, and warnings to the next test.
EXECUTE = """
import sys
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

# With no directory of installed kernels there is one left, that of this interpreter.
manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]), kernel_name="python3")
NotebookClient(nbformat.read(sys.argv[1], as_version=4), km=manager, timeout=900).execute()
"""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    folder = tmp_path / "work"
    folder.mkdir()
    command = [sys.executable, "-c", EXECUTE, str(path)]
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_and_has_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_all_four_are_there():
    names = [path.stem for path in NOTEBOOKS]
    assert names == ["01_first_steps", "02_your_own_learner", "03_your_simulators", "04_theory_checks"]
