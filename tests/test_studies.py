"""The studies: what is published follows from the committed tables, and the small variants tell the same story."""

from __future__ import annotations

import math

import pytest

from studies import common

WRITTEN = [name for name in common.STUDIES if (common.ROOT / "studies" / f"{name}.py").exists()]
PUBLISHED = [name for name in WRITTEN if (common.DOCS / "tables" / f"{name}.csv").exists()]
#: Of all committed tables together.
LARGEST = 2**20


@pytest.mark.parametrize("name", WRITTEN)
def test_the_small_variant_runs_and_tells_the_same_story(tmp_path, name):
    common.compute(name, tmp_path / "runs", small=True, workers=0)
    quick = {finding.name: finding for finding in common.analyse(name, tmp_path / "runs", tmp_path)}
    assert (tmp_path / "figures" / f"{name}.svg").read_bytes().startswith(b"<?xml")
    if name not in PUBLISHED:
        return
    compared = 0
    for full in common.read_findings(name):
        if full.quick:
            assert full.name in quick
            if full.excludes_zero:
                compared += 1
                assert math.copysign(1.0, quick[full.name].value) == math.copysign(1.0, full.value), quick[full.name]
    assert compared, "nothing that the small variant could contradict"


@pytest.mark.parametrize("name", WRITTEN)
def test_the_full_specs_make_sense(name):
    study = common.module(name)
    assert study.QUESTION.endswith("?")
    assert study.ANSWER.startswith(("confirmed", "not confirmed", "partly", "open"))
    for spec in study.SPECS:
        full = common.read_spec(spec)
        assert full.title
        full.check()


@pytest.mark.parametrize("name", PUBLISHED)
def test_findings_and_figure_follow_from_the_committed_table(name):
    found = common.module(name).findings(common.read_table(name))
    assert len({finding.name for finding in found}) == len(found)
    committed = (common.DOCS / "findings" / f"{name}.json").read_text(encoding="utf-8")
    assert common.findings_text(found) == committed
    assert (common.DOCS / "figures" / f"{name}.svg").exists()
    assert (common.DOCS / f"{name}.md").exists()


def test_the_committed_tables_are_small():
    assert sum(path.stat().st_size for path in (common.DOCS / "tables").glob("*.csv")) < LARGEST


@pytest.mark.parametrize("name", ["index", *PUBLISHED])
def test_the_numbers_on_a_page_are_those_of_the_findings(name):
    page = (common.DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert common.with_results(name) == page, "run `python -m studies --only-analyse`"
