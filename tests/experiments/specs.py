"""Small specs for tests, and a display that remembers."""

from __future__ import annotations

from pathlib import Path

from advmdp.experiments import Spec
from advmdp.experiments.spec import to_toml
from advmdp.experiments.sweep import Display

#: A package of misbehaving learners; the fixture ``plugin`` installs it.
PLUGIN = Path(__file__).parent / "plugin"
TINY = {"name": "random-mixture", "options": {"layer_sizes": [1, 3, 3, 1], "n_actions": 2, "dim": 2}}


def small_spec(**changes) -> Spec:
    document = {
        "episodes": 30,
        "seeds": 2,
        "worlds": [TINY],
        "adversaries": ["switching"],
        "learners": ["uniform", "vlsuob-reps-tight"],
    }
    return Spec(to_toml(document | changes))


class Recorder(Display):
    def __init__(self):
        self.events, self.logs = [], []

    def progress(self, cell, played):
        self.events.append((cell.id, played))

    def finished(self, cell, state):
        self.events.append((cell.id, state))

    def log(self, text):
        self.logs.append(text)
