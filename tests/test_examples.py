"""The examples run, and show what they claim."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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


def test_the_pictures_of_the_documentation_are_those_of_the_gallery_and_small(tmp_path):
    drawn = example("gallery").main(tmp_path)
    folder = EXAMPLES.parent / "docs" / "worlds"
    assert sorted(file.name for file in drawn) == sorted(file.name for file in folder.glob("*.png"))
    for file in drawn:
        shown = folder / file.name
        assert shown.stat().st_size < 60_000
        with Image.open(file) as one, Image.open(shown) as two:
            # Another version of the font moves single pixels; another world or policy moves more.
            assert one.size == two.size, f"{file.name} is out of date: python examples/gallery.py docs/worlds"
            difference = np.abs(np.asarray(one.convert("L"), float) - np.asarray(two.convert("L"), float)).mean()
        assert difference < 0.5, f"{file.name} is out of date: python examples/gallery.py docs/worlds"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_every_example_is_run_here(name):
    assert f'example("{name}")' in Path(__file__).read_text(encoding="utf-8")
