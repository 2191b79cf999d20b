"""Every learner of the library has a page, with the same sections, and the figures of the common study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
