"""Every learner of the library is described, and has figures in the common study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advmdp.learners import Learner
from advmdp.registry import learners
from benchmarks import study_side_by_side as study
from tests.test_docs import executable_blocks

DOCS = Path(__file__).resolve().parents[1] / "docs"
OURS = [name for name in learners.names() if learners.get(name).__module__.startswith("advmdp.")]


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


OVERVIEW = (DOCS / "learners.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", OURS)
def test_the_overview_leads_to_a_description_of_every_learner(name):
    """On a page of its own or in a section: a block that runs it, numbered details, and its status."""
    link = re.search(rf"\[`{name}`\]\((learners/[\w-]+\.md)(?:#([\w-]+))?\)", OVERVIEW)
    assert link is not None
    page = (DOCS / link[1]).read_text(encoding="utf-8")
    assert link[2] in (None, name)
    if link[2] is None:
        assert page.startswith(f"# `{name}`\n")
        found = page.split("\n## `")[0]
    else:
        found = sections(page)[f"`{name}`"]
    assert any(f'"{name}"' in block.source for block in executable_blocks(page))
    numbers = re.findall(r"^(\d+)\. ", found, flags=re.MULTILINE)
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert numbers
    assert "Status" in found


def test_the_table_of_what_each_can_use_is_that_of_the_classes():
    table = sections(OVERVIEW)["What each can use"]
    partial, logs, start, free = (re.findall(r"`([\w-]+)`", line.split("|")[2]) for line in table.splitlines()[4:8])
    classes = {name: learners.get(name) for name in OURS}
    controls = {"uniform", "ftl", "hindsight"}
    bandit = {name for name, each in classes.items() if each.feedback == "bandit"}
    unknown = {name for name, each in classes.items() if each.transition == "unknown"}
    observing = {name for name in unknown if classes[name]._observe is not Learner._observe}
    assert bandit - set(partial) == {name for name, each in classes.items() if each.partial}
    assert unknown - set(logs) == observing
    assert set(OURS) - set(start) - controls == {name for name, each in classes.items() if each.takes_start}
    assert set(free) == {name for name, each in classes.items() if not each.needs_episodes}


def test_every_learner_is_in_the_common_study():
    rows = study.known()
    assert sorted(rows) == sorted(set(OURS) & set(study.taking_part()))
    assert study.with_rows(OVERVIEW, rows) == OVERVIEW, "run `python -m benchmarks.study_side_by_side`"


def test_the_study_gives_what_its_table_says_for_learners_that_are_exact():
    rows = study.known()
    for name in ("hindsight", "ftl"):
        assert study.row(name) == rows[name]
