"""Every spec in experiments/ makes sense, and its small variant runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from advmdp import InvalidSpecError
from advmdp.experiments import Spec, load, run_spec
from advmdp.experiments.compare import EPISODES, LEARNERS, SEEDS, comparison_spec
from tests.experiments.specs import small_spec

ROOT = Path(__file__).resolve().parents[2]
#: Those of the studies are run by tests/test_studies.py.
SPECS = sorted(path for path in (ROOT / "experiments").glob("*.toml") if not path.stem.startswith("study-"))


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_a_shipped_spec_makes_sense_and_its_small_variant_runs(tmp_path, path):
    spec = Spec.read(path)
    spec.check()
    assert spec.title
    small = spec.small()
    assert len(small.cells) <= len(spec.cells)
    outcome = run_spec(small, tmp_path / "out", workers=0)
    assert (outcome.failed, outcome.left) == ({}, 0)
    frame = load(tmp_path / "out")
    assert frame["regret"].notna().all()
    if small.comparators:
        assert frame[["regret_per_episode", "regret_4_switches"]].notna().all(axis=None)
    assert frame["cell"].nunique() == len(small.cells)


def test_compare_is_one_of_them():
    ours = comparison_spec(None, None, LEARNERS, episodes=EPISODES, seeds=SEEDS)
    assert ours.cells == Spec.read(ROOT / "experiments" / "compare.toml").cells
    problems = dict.fromkeys((cell.world.name, cell.adversary.name) for cell in ours.cells)
    assert [losses for _, losses in problems] == ["drifting", "switching", "misleading"]
    assert len({world for world, _ in problems}) == 3


def test_worlds_or_losses_that_are_named_meet_each_other():
    spec = comparison_spec(["grid", "queue"], None, ["uniform"], episodes=5, seeds=1)
    assert len(spec.cells) == 2 * 3


def test_a_spec_without_a_small_variant_says_so():
    with pytest.raises(InvalidSpecError, match="has no table 'small'"):
        small_spec().small()
    with pytest.raises(InvalidSpecError, match="the small variant: unknown key 'episode'"):
        Spec(small_spec().text + "small = { episode = 3 }").small()
