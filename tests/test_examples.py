"""The examples run, and show what they claim."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_ordinary_gymnasium_loop(capsys):
    mean = example("gymnasium_loop").main(episodes=30)
    assert -6 < mean < 0
    assert capsys.readouterr().out.startswith("30 episodes, mean reward -")


def test_a_learner_plays_frozen_lake_and_gets_better():
    first, *_, last = example("play_frozen_lake").main(episodes=600)
    assert last > first + 0.1


def test_a_learner_with_two_simulators_gets_cheaper():
    first, *_, last = example("two_simulators").main(weeks=400)
    assert last < first - 0.1


def test_the_gallery_has_every_picture_and_they_are_small(tmp_path):
    drawn = example("gallery").main(tmp_path)
    for file in drawn:
        shown = EXAMPLES.parent / "docs" / "worlds" / file.name
        assert shown.stat().st_size < 60_000, "draw it again: python examples/gallery.py docs/worlds"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_every_example_is_run_here(name):
    assert f'example("{name}")' in Path(__file__).read_text(encoding="utf-8")
