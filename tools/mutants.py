"""Wrong versions of the library, one after the other: which of them does nobody notice?

``python -m tools.mutants`` puts each mutant of ``mutants.toml`` into a copy of ``src`` and runs the tests that ought to
notice it; ``--verify`` has those of learners with a proof judged by ``advmdp verify``: its checks of learners, on the
first three of its runs, so that what they notice it notices.  Exit code 1 if one survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text(encoding="utf-8"))
PAGE = ROOT / "tools" / "mutants.md"
SURVIVED = "**nobody**"
#: Names the checks of learners that are violated.
JUDGE = """
import numpy as np
from advmdp.theory.lemmas.base import violations
from advmdp.theory.lemmas.learner import CHECKS
print("violated:", "; ".join(c.name for c in CHECKS if violations(c.ratios(np.random.default_rng(0), 3))))
"""
#: A mutant that runs for so many seconds is noticed by who waits.
PATIENCE = 600


def mutated(mutant: dict[str, Any], source: Path) -> str:
    """The text of its file with the change, or ValueError where the table is out of date."""
    text = (source / "advmdp" / mutant["file"]).read_text(encoding="utf-8")
    if text.count(mutant["old"]) != 1:
        raise ValueError(
            f"{mutant['file']}: {mutant['old']!r} occurs {text.count(mutant['old'])} times, should be once"
        )
    return text.replace(mutant["old"], mutant["new"])


def run(source: Path, command: list[str], interpreted: bool) -> tuple[int, str]:
    """Exit code and output of a command with this copy of the library."""
    # Compiled kernels lie beside the sources, those of the copy in the copy.  An edit of a module with kernels
    # would compile all callers anew: the interpreter is quicker.  Stale bytecode, of a file edited
    # twice in a second, is never written.
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    if interpreted:
        environment["NUMBA_DISABLE_JIT"] = "1"
    try:
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stdout + done.stderr


def test_command(group: str, interpreted: bool) -> list[str]:
    """Pytest on a group, up to the first failure."""
    command = ["-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *TABLE["tests"][group]]
    # Compiled code is silent where numpy warns.
    return [*command, "-W", "ignore::RuntimeWarning"] if interpreted else command


def who_notices(mutant: dict[str, Any], source: Path, verify: bool) -> str:
    """The first test, or the checks of ``verify``, that fail."""
    file = source / "advmdp" / mutant["file"]
    original = file.read_text(encoding="utf-8")
    file.write_text(mutated(mutant, source), encoding="utf-8")
    interpreted = "_compiled" in original and not verify
    try:
        if verify:
            code, output = run(source, ["-c", JUDGE], interpreted)
            return "it raises" if code else output.partition("violated:")[2].strip() or SURVIVED
        for group in mutant["tests"]:
            code, output = run(source, test_command(group, interpreted), interpreted)
            if code:
                named = re.search(r"^(?:FAILED|ERROR) \S+?(?:::(\w+))?(?:\[| |$)", output, flags=re.MULTILINE)
                return f"`{named[1] or group}`" if named else f"`{group}`"
        return SURVIVED
    finally:
        file.write_text(original, encoding="utf-8")


@cache
def sound(source: Path, group: str, interpreted: bool) -> None:
    """Raise unless the library as it is passes: else nobody would notice anything."""
    code, output = run(source, test_command(group, interpreted), interpreted)
    if code:
        raise RuntimeError(f"{group} fails without a mutant:\n{output[-2000:]}")


def results(page: str, title: str) -> dict[tuple[str, str], str]:
    """What the table of that title says: (file, reason) -> who noticed."""
    section = page.partition(f"<!-- {title}: ")[2].partition(f"<!-- /{title} -->")[0]
    cells = [line[2:-2].split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {(file.strip("`"), why): found for file, why, found in cells}


def written(page: str, found: dict[tuple[str, str], str], title: str) -> str:
    """The page with the table of that title replaced."""
    survivors = sum(who == SURVIVED for who in found.values())
    table = "\n".join(f"| `{file}` | {why} | {who} |" for (file, why), who in found.items())
    head = "| file | what is wrong | noticed by |\n|---|---|---|\n"
    text = f"{len(found)} mutants, {survivors} survive.\n\n{head}{table}"
    pattern = rf"(<!-- {title}: [^\n]*-->\n\n).*?(\n\n<!-- /{title} -->)"
    return re.sub(pattern, lambda match: match[1] + text + match[2], page, flags=re.DOTALL)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verify", action="store_true", help="ask `advmdp verify`, not the tests")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants with this text in file or reason")
    parser.add_argument("--missing", action="store_true", help="mutants that the page does not have, or that survived")
    parser.add_argument("--write", action="store_true", help="put the results into tools/mutants.md, beside the others")
    options = parser.parse_args()
    title = "verify" if options.verify else "tests"
    asked = {(m["file"], m["why"]): m for m in TABLE["mutant"] if m.get(title)}
    known = results(PAGE.read_text(encoding="utf-8"), title)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.pyc"))
        for key, mutant in asked.items():
            if options.only not in " ".join(key) or (options.missing and known.get(key, SURVIVED) != SURVIVED):
                continue
            if not options.verify:
                interpreted = "_compiled" in (source / "advmdp" / mutant["file"]).read_text(encoding="utf-8")
                for group in mutant["tests"]:
                    sound(source, group, interpreted)
            found[key] = who_notices(mutant, source, options.verify)
            print(f"{mutant['file']}: {mutant['why']}: {found[key]}", flush=True)
    survivors = sum(who == SURVIVED for who in found.values())
    print(f"{len(found)} mutants, {survivors} survive")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        found = {**results(page, title), **found}
        PAGE.write_text(written(page, {key: found[key] for key in asked if key in found}, title), encoding="utf-8")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
