"""Runs of every learner, recorded at one version and compared with at later ones.

``python -m tests.learners.recorded PATH`` records; ``test_recorded.py`` compares with what stands in the tree.
"""

import sys
from pathlib import Path

import numpy as np

from advmdp import make_adversary, make_learner, make_world, run

FILE = Path(__file__).with_name("recorded_runs.npz")
EPISODES = 60

WORLDS = {
    "mixture": ("random-mixture", {"layer_sizes": (1, 3, 4, 2, 1), "n_actions": 3, "dim": 3}),
    "grid": ("grid", {"height": 3, "width": 3}),
    "queue": ("queue", {"buffer": 3, "slots": 5}),
}

VARIANTS = [
    ("vlsuob-reps", {}),
    ("vlsuob-reps", {"radius": "determinant", "geometry": "box"}),
    ("vlsuob-reps", {"radius": "paper-uniform", "geometry": "box", "entropy": "triples"}),
    ("vlsuob-reps-tight", {}),
    ("vlsuob-reps-tight", {"radius_scale": 0.1, "eta": 0.3}),
    ("vlsuob-reps-tight", {"geometry": "box", "radius_scale": 0.3}),
    ("lsuob-reps", {}),
    ("lsuob-reps", {"geometry": "box", "entropy": "triples", "lam": 0.5}),
    ("uob-reps", {}),
    ("uob-reps", {"radius_scale": 0.05, "eta": 0.2}),
    ("o-reps", {}),
    ("o-reps-bandit", {}),
    ("o-reps-bandit", {"gamma": 0.1, "eta": 0.1}),
    ("uc-o-reps", {}),
    ("uc-o-reps", {"radius_scale": 0.1}),
    ("bandit-uc-o-reps", {}),
    ("bandit-uc-o-reps", {"shift": 0.1}),
    ("vlsuob-reps-restart", {"switches": 20}),
    ("vlsuob-reps-bank", {}),
    ("pomd", {}),
    ("pomd", {"radius_scale": 0.05, "eta": 0.3}),
    ("dilated-bonus", {"eta": 0.05}),
    ("mdp-e", {}),
    ("oppo", {}),
    ("powers", {}),
    ("ucrl-vtr", {}),
    ("ftl", {}),
    ("uniform", {}),
    ("exp3-policies", {}),
]


def cells():
    """Names of all recorded runs with what makes them."""
    for world in WORLDS:
        for number, (learner, options) in enumerate(VARIANTS):
            if learner == "exp3-policies" and world != "grid":
                continue  # too many policies
            yield f"{world}/{number}/{learner}", world, learner, options


def play(world: str, learner: str, options: dict) -> np.ndarray:
    """Loss and regret of every logged episode, and the last policy, as one vector."""
    name, sizes = WORLDS[world]
    mdp = make_world(name, **sizes)
    adversary = make_adversary("stochastic", mdp, EPISODES, seed=1)
    built = make_learner(learner, mdp, EPISODES, seed=2, **options)
    frame = run(mdp, built, adversary, EPISODES, seed=3, progress=False).frame
    parts = [frame[column].to_numpy(dtype=float) for column in ("cumulative_loss", "regret")]
    return np.concatenate([*parts, *(table.ravel() for table in built.policy)])


if __name__ == "__main__":
    np.savez(sys.argv[1], **{name: play(*arguments) for name, *arguments in cells()})
