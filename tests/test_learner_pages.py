"""Every learner of the library has a page, with the same sections, and the figures of the common study."""

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
SECTIONS = ["Usage", "What is logged", "Implementation details", "Results", "Status"]


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", OURS)
def test_a_learner_has_a_page_with_the_same_sections(name):
    page = (DOCS / "learners" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# `{name}`")
    found = sections(page)
    assert [title for title in found if title in SECTIONS] == SECTIONS
    assert all(found[title].strip() for title in SECTIONS)
    (first, *_) = executable_blocks(found["Usage"])
    assert f'"{name}"' in first.source
    numbers = re.findall(r"^(\d+)\. ", found["Implementation details"], flags=re.MULTILINE)
    assert numbers == [str(i + 1) for i in range(len(numbers))]
    assert numbers
    assert "](learners/" + name + ".md)" in (DOCS / "learners.md").read_text(encoding="utf-8")


def test_the_table_of_what_each_can_use_is_that_of_the_classes():
    table = sections((DOCS / "learners.md").read_text(encoding="utf-8"))["What each can use"]
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


@pytest.mark.parametrize("name", OURS)
def test_its_results_are_those_of_the_common_study(name):
    rows = {match[1]: match[0] for match in study.ROW.finditer(side_by_side())}
    page = (DOCS / "learners" / f"{name}.md").read_text(encoding="utf-8")
    (block,) = study.BLOCK.finditer(sections(page)["Results"])
    assert block[0].count("\n| `") == 1
    assert rows[name] in block[0], "run `python -m benchmarks.study_side_by_side --pages`"


def test_the_study_prints_what_the_page_says_for_learners_that_are_exact():
    rows = {match[1]: match[0] for match in study.ROW.finditer(side_by_side())}
    for name in ("hindsight", "ftl"):
        assert study.row(name) == rows[name]


def side_by_side() -> str:
    return (DOCS / "learners" / "side-by-side.md").read_text(encoding="utf-8")
