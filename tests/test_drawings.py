"""Pictures of the documentation are what their scripts draw today."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from tools import dataflow, front_figure

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def test_the_pictures_of_the_data_flow_are_current():
    for name, drawn in (("episode.svg", dataflow.episode()), ("experiment.svg", dataflow.experiment())):
        assert (IMAGES / name).read_text(encoding="utf-8") == drawn, "run `python -m tools.dataflow docs/images`"
        ElementTree.fromstring(drawn)


def test_the_front_figure_is_of_the_runs_that_its_file_holds():
    data = json.loads((IMAGES / "front.json").read_text(encoding="utf-8"))
    assert {row["learner"] for row in data["rows"]} == set(front_figure.LEARNERS)
    assert max(row["episode"] for row in data["rows"]) == data["episodes"] == front_figure.EPISODES
    assert set(front_figure.draw(data)) == {"front-world", "front-losses", "front-regret"}
