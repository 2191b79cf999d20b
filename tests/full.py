"""Every test, file by file: what was interrupted goes on where it stopped, and the table is of one commit.

    python -m tests.full docs/test-results.md --jobs 2

A file that has been run at this commit is not run again, whatever came out; `--again` forgets what failed.  A tree with
changes that are not committed is refused: its results would be nobody's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.result_table import Piece, collect, table

ROOT = Path(__file__).resolve().parents[1]


def commit(root: Path = ROOT) -> str:
    """Of a clean tree; SystemExit for another."""
    git = ["git", "-C", str(root)]
    changes = [*git, "status", "--porcelain", "--", ".", ":!docs/test-results.md"]  # which this program writes
    if subprocess.run(changes, check=True, capture_output=True, text=True).stdout:
        raise SystemExit("commit first: results belong to a commit")
    head = [*git, "rev-parse", "--short", "HEAD"]
    return subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()


def result_of(file: str, folder: Path) -> Path:
    """Where the results of a file of tests are."""
    return folder / (file.replace("/", ".") + ".xml")


def left(files: Sequence[str], folder: Path, again: bool = False) -> list[str]:
    """The files without results, or, ``again``, without good ones."""

    def done(file: str) -> bool:
        path = result_of(file, folder)
        if not path.exists():
            return False
        return not again or not {"failed", "error"} & {found[0] for found in Piece.read(path).results.values()}

    return [file for file in files if not done(file)]


def run_file(file: str, folder: Path, suite: str) -> bool:
    """Run a file of tests; its results appear when all are there."""
    part = folder / f"{file.replace('/', '.')}.part"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, f"--junitxml={part}"]
    code = subprocess.run([*command, "-o", f"junit_suite_name={suite}"], cwd=ROOT, capture_output=True).returncode
    if part.exists() and code in (0, 1):
        part.replace(result_of(file, folder))
    return code == 0


def main() -> int:
    """Run what is left, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="run once more what failed")
    options = parser.parse_args()
    suite = commit()
    folder = ROOT / ".test-results" / suite
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    todo, lock, finished = left(files, folder, options.again), threading.Lock(), 0

    def work(file: str) -> None:
        nonlocal finished
        good = run_file(file, folder, suite)
        with lock:
            finished += 1
            print(f"{finished}/{len(todo)} {file}: {'passed' if good else 'FAILED'}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, todo))
    pieces = [Piece.read(result_of(file, folder)) for file in files if result_of(file, folder).exists()]
    options.target.write_text(table(pieces, collect()), encoding="utf-8")
    print(f"results written to {options.target}")
    bad = any(found[0] in ("failed", "error") for piece in pieces for found in piece.results.values())
    return int(bad or len(pieces) < len(files))


if __name__ == "__main__":
    sys.exit(main())
