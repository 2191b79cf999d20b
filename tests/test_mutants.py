"""tools/mutants.toml is about the source as it is, and tools/mutants.md about the table as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import mutants

ROOT = Path(__file__).parents[1]
MUTANTS = mutants.TABLE["mutant"]
#: What `advmdp verify` once did not notice.
ONCE_UNNOTICED = {
    "gamma left out of the estimate",
    "lower occupancy bound for u",
    "no action probability in u",
    "step size four times as large",
    "radii twice as large",
    "lambda does not grow",
    "u of the set that holds the episode",
}


def test_every_mutant_is_a_change_of_the_source_that_python_can_read():
    assert len(MUTANTS) >= 60
    for mutant in MUTANTS:
        ast.parse(mutants.mutated(mutant, ROOT / "src"))
        assert mutant["old"] != mutant["new"]
        assert mutant.get("tests") or mutant.get("verify"), "nobody is asked"


def test_a_table_that_is_out_of_date_says_so():
    with pytest.raises(ValueError, match="occurs 0 times"):
        mutants.mutated({"file": "constants.py", "old": "no such text", "new": ""}, ROOT / "src")


def test_what_verify_once_missed_is_in_the_table():
    asked = {mutant["why"] for mutant in MUTANTS if mutant.get("verify")}
    assert asked >= ONCE_UNNOTICED


@pytest.mark.parametrize("title", ["tests", "verify"])
def test_the_page_has_every_mutant_and_none_survives(title):
    asked = {(m["file"], m["why"]) for m in MUTANTS if m.get(title)}
    found = mutants.results(mutants.PAGE.read_text("utf-8"), title)
    assert set(found) == asked
    assert mutants.SURVIVED not in found.values()
    for page in (mutants.PAGE, ROOT / "docs" / "mutants.md"):
        assert f"{len(asked)} mutants, 0 survive." in page.read_text("utf-8")


def test_results_replace_those_of_their_own_table():
    page = "a\n<!-- verify: x -->\n\nold\n\n<!-- /verify -->\n<!-- tests: y -->\n\nkept\n\n<!-- /tests -->\n"
    found = {("f.py", "why"): "`test`", ("g.py", "because"): mutants.SURVIVED}
    new = mutants.written(page, found, "verify")
    assert mutants.results(new, "verify") == found
    assert mutants.results(new, "tests") == {}
    assert "old" not in new
    assert "kept" in new
    assert "2 mutants, 1 survive." in new
