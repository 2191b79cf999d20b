"""The page docs/test-results.md from the JUnit files of a run of all tests (:mod:`tests.full`).

Each file has the commit at which it was made for the name of its suite.  Where a test is in several files the newest
counts.  What is collected now and in none of them is listed as not run.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed")


@dataclass(frozen=True)
class Result:
    """One test of one piece."""

    outcome: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True)
class Piece:
    """One JUnit file."""

    commit: str
    started: str
    results: dict[str, tuple[str, float, str]]

    @classmethod
    def read(cls, path: Path) -> Piece:
        """Of a file that pytest wrote."""
        (suite,) = ElementTree.parse(path).getroot().iter("testsuite")
        results = {}
        for case in suite.iter("testcase"):
            outcome, reason = "passed", ""
            for child in case:
                if child.tag in ("failure", "error"):
                    outcome = "failed" if child.tag == "failure" else "error"
                elif child.tag == "skipped" and outcome == "passed":
                    outcome = "xfailed" if child.get("type") == "pytest.xfail" else "skipped"
                    reason = child.get("message", "")
            name = f"{case.get('classname')}.{case.get('name')}"
            results[name] = outcome, float(case.get("time", 0.0)), reason
        return cls(suite.get("name", "?"), suite.get("timestamp", "?")[:16].replace("T", " "), results)


def dotted(node_id: str) -> str:
    """The name of a test in a JUnit file: ``tests/a/test_b.py::test_c[x]`` is ``tests.a.test_b.test_c[x]``."""
    function, bracket, parameters = node_id.partition("[")
    return function.replace(".py::", ".").replace("::", ".").replace("/", ".") + bracket + parameters


def file_of(name: str) -> str:
    """The file of a test, from its dotted name."""
    module = re.match(r"[\w.]*?test_\w+(?=\.)", name)
    assert module is not None, name
    return module[0].replace(".", "/") + ".py"


def folder_of(file: str) -> str:
    """The folder of a file, from its path."""
    return file.rpartition("/")[0]


def table(pieces: Sequence[Piece], collected: Collection[str]) -> str:
    """The page: pieces, one row per folder, the reason of every skip, and which files were not run."""
    pieces = sorted(pieces, key=lambda piece: piece.started)
    latest: dict[str, Result] = {}
    for piece in pieces:
        latest |= {name: Result(*found) for name, found in piece.results.items()}
    missing = Counter(file_of(name) for name in collected if name not in latest)
    unmet: Counter[str] = Counter()
    for file, count in missing.items():
        unmet[folder_of(file)] += count
    shown = [o for o in OUTCOMES if o in ("passed", "failed", "skipped") or o in {r.outcome for r in latest.values()}]
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: Counter[str] = Counter()
    for name, result in latest.items():
        folder = folder_of(file_of(name))
        rows[folder][result.outcome] += 1
        seconds[folder] += result.seconds
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba"))
    commits = ", ".join(dict.fromkeys(piece.commit for piece in pieces))
    lines = [
        "# Test results",
        "",
        "Written by `make test-full`: every test, the slow ones included, file by file.",
        f"Python {platform.python_version()} on {sys.platform} {platform.machine()}, {versions}.",
        "",
        f"Files: {len(pieces)}, from {pieces[0].started} to {pieces[-1].started}, at {commits}.",
        "",
        f"| Folder | {' | '.join(shown)} | not run | seconds |",
        f"|---|{'--:|' * (len(shown) + 2)}",
    ]
    for folder in sorted(rows.keys() | unmet.keys()):
        cells = " | ".join(str(rows[folder][outcome]) for outcome in shown)
        lines.append(f"| `{folder}` | {cells} | {unmet[folder]} | {seconds[folder]:.1f} |")
    total = Counter(result.outcome for result in latest.values())
    cells = " | ".join(str(total[outcome]) for outcome in shown)
    lines.append(f"| all | {cells} | {missing.total()} | {seconds.total():.1f} |")
    if missing:
        lines += ["", "Not run: " + ", ".join(f"{count} of `{file}`" for file, count in sorted(missing.items())) + "."]
    failed = sorted(f"- `{name}`" for name, r in latest.items() if r.outcome in ("failed", "error"))
    lines += ["", "Failed:", "", *failed] if failed else []
    skipped = Counter((file_of(name), r.reason) for name, r in latest.items() if r.outcome == "skipped")
    reasons = [f"- {count} of `{file}`: {reason}" for (file, reason), count in sorted(skipped.items())]
    lines += ["", "Skipped:", "", *reasons] if reasons else []
    return "\n".join(lines) + "\n"


def collect() -> set[str]:
    """The dotted names of all tests that pytest finds now."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "-p", "no:cacheprovider"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {dotted(line) for line in listing.splitlines() if "::" in line}
