"""Small specs, and a package of misbehaving learners that worker processes find too."""

from __future__ import annotations

from pathlib import Path

import pytest

from advmdp.experiments import Spec
from advmdp.experiments.spec import to_toml
from advmdp.registry import learners

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


@pytest.fixture
def plugin(monkeypatch):
    """Installs the package of misbehaving learners."""
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setattr(learners, "_loaded_entry_points", False)
