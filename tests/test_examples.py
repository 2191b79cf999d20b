"""The examples run, and show what they claim."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
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


def test_a_process_becomes_a_world_of_a_spec_in_another_process(tmp_path):
    command = [sys.executable, "-m", "advmdp", "run", "workshop.toml", "--small", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--workers", "0", "--quiet", "--format", "html,png"],
        cwd=EXAMPLES,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "workshop[share=0.2] / spare-parts" in done.stdout
    assert "portfolio" in done.stdout
    assert "cannot be built here" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(list((tmp_path / "out" / "report").glob("policy-*.png"))) == 2


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


def test_the_cases_of_the_guides_can_be_drawn_from_their_pages(tmp_path):
    tables = example("guide_figures").main(tmp_path, length=60, seeds=2)
    assert list(tables) == ["inventory", "routing", "spot-machines", "battery"]
    for name in tables:
        assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert (EXAMPLES.parent / "docs" / "guides" / f"{name}.svg").stat().st_size < 150_000


def test_the_tables_of_the_guides_are_those_that_the_script_prints():
    """Of the ways that learn nothing, which cost no time; the others are in the same tables."""
    script = example("guide_figures")
    costs, _ = script.inventory(1500, names=())
    minutes, _ = script.routing(1500, ways=("uniform", "shortest roads"))
    nothing = ("uniform", "rule by hand")
    printed_tables = {
        "inventory": script.table(costs, 2),
        "routing": script.table(minutes, 1),
        "spot-machines": script.table(script.own_process("spot-machines", ways=nothing), 2),
        "battery": script.table(script.own_process("battery", ways=nothing), 0),
    }
    for name, printed in printed_tables.items():
        page = (EXAMPLES.parent / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")
        for line in printed.splitlines():
            assert line in page


def test_the_routing_case_survives_a_line_that_a_crash_tore_off(tmp_path):
    page = example("guide_figures").case("routing")
    city = page["City"]()
    page["dispatch"](tmp_path, city, 12)
    journal = tmp_path / "journal.jsonl"
    city.drive(page["start"](tmp_path).policy)  # lorry 12 is sent, and then the machine dies while it is written down
    with open(journal, "a") as file:
        file.write('{"index": 12, "pla')
    learner = page["dispatch"](tmp_path, city, 20)
    assert (learner.episodes_seen, learner.skipped) == (18, 2)  # number 7 had no record from the beginning
    assert len(journal.read_text().splitlines()) == 20


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_every_example_is_run_here(name):
    here = Path(__file__).read_text(encoding="utf-8")
    assert f'example("{name}")' in here or f'"{name}.toml"' in here
