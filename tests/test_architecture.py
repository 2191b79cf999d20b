"""docs/architecture.md names what there is."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import advmdp
from advmdp.theory.lemmas import CHECKS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def resolve(dotted: str) -> object:
    """A module, or something in one: ``advmdp.confidence.estimators.RidgeSums.estimate``."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_every_name_in_the_table_of_equations_exists():
    names = re.findall(r"`(advmdp\.[\w.]+)`", section("Where each equation lives"))
    assert len(names) > 30
    for name in names:
        assert resolve(name) is not None


def test_every_check_in_the_table_exists():
    named = re.findall(r'"([^"]+)" \|$', section("Where each equation lives"), flags=re.MULTILINE)
    assert len(named) > 20
    assert not set(named) - {check.name for check in CHECKS}


def test_every_numbered_lemma_has_a_row():
    rows = section("Where each equation lives")
    assert all(re.search(rf"\| Lemma {number}\b", rows) for number in range(1, 18))
    equations = [
        int(number) for number in re.findall(r"\((\d+)\)", re.sub(r"(\(17\)) to (\(20\))", "(17)(18)(19)(20)", rows))
    ]
    assert set(range(1, 21)) <= set(equations)


def test_the_table_of_imports_is_that_of_the_linter():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    linted = [re.sub(r"[()]", "", line).replace(" | ", ", ") for line in contracts[0]["layers"]]
    rows = re.findall(r"^\| (`.*?`) \|", section("Which way imports point"), flags=re.MULTILINE)
    assert [row.replace("`", "") for row in rows] == linted


def test_one_version_everywhere():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert cited is not None
    assert advmdp.__version__ == declared == cited[1]
