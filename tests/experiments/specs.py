"""Small specs for tests."""

from __future__ import annotations

from pathlib import Path

from advmdp.experiments import Spec
from advmdp.experiments.spec import to_toml

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
