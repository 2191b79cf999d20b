"""A world outside its own model, in an experiment: the column says so, and the report warns."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import LayeredMDP, make_world
from advmdp.experiments import Spec, load, run_spec
from advmdp.registry import worlds
from advmdp.report import write_report

SPEC = """
episodes = 300
seeds = 1
measures = ["model-test"]
worlds = ["WORLD"]
adversaries = ["switching"]
learners = ["vlsuob-reps-tight", "uniform"]
"""


class Misfit(LayeredMDP):
    """Moves to the neighbour of the state that the model speaks of."""

    def __init__(self):
        mixture = make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=2, dim=2)
        super().__init__([np.roll(kernel, 1, axis=2) for kernel in mixture.kernels])
        self._claimed = mixture.model

    @property
    def model(self):
        return self._claimed


def fit():
    return make_world("random-mixture", layer_sizes=(1, 4, 4, 1), n_actions=2, dim=2)


@pytest.mark.parametrize(("name", "build", "alarm"), [("misfit", Misfit, True), ("fit", fit, False)])
def test_the_report_warns_of_a_wrong_model_and_of_no_other(name, build, alarm, tmp_path, monkeypatch):
    monkeypatch.setitem(worlds._entries, name, lambda: build())
    run_spec(Spec(SPEC.replace("WORLD", name)), tmp_path / "out", workers=0)
    frame = load(tmp_path / "out")
    learner = frame[frame["learner"] == "vlsuob-reps-tight"]
    assert (learner["log_e"].iloc[-1] > 10.0) == alarm
    assert frame[frame["learner"] == "uniform"]["log_e"].isna().all()
    page = write_report(tmp_path / "out").read_text(encoding="utf-8")
    assert ('id="alarms"' in page) == alarm
    assert "log e-value against the mixture model" in page
    assert (f"<code>{learner['cell'].iloc[0]}</code>" in page.partition("Failed")[0].partition("<h2>")[0]) == alarm
