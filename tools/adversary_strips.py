"""The pictures of docs/adversaries.md: what each adversary charges, episode by episode.

python -m tools.adversary_strips docs/images
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import advmdp

EPISODES, PAIRS = 240, 10
#: Adversary -> options with which its character shows in so few episodes.
OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "stochastic": {},
    "switching": {"period": 40},
    "drifting": {"period": 120},
    "random-walk": {},
    "corrupted": {"fraction": 0.1},
    "misleading": {"trap": 60},
    "adaptive": {"memory": 30},
    "natural-losses": {},
}


def losses_of(name: str, options: dict[str, Any]) -> np.ndarray:
    """Losses of the first pairs of a small world, (pairs, episodes), while a policy that changes its mind is played."""
    world = advmdp.make_world("inventory" if name == "natural-losses" else "grid")
    adversary = advmdp.make_adversary(name, world, EPISODES, seed=2, **options)
    rng = np.random.default_rng(0)
    columns = []
    for k in range(EPISODES):
        columns.append(np.array(adversary.flat_losses(k)[:PAIRS]))
        # The first action for sixty episodes, then the second, and so on: what an adversary that reacts reacts to.
        decided = [np.eye(world.n_actions)[np.full(n, (k // 60) % 2)] for n in world.layer_sizes[:-1]]
        episode = advmdp.play(world, decided, adversary.losses(k), rng)
        adversary.observe(np.asarray(episode.states), np.asarray(episode.actions))
    return np.array(columns).T


def strip(name: str, options: dict[str, Any]) -> Image.Image:
    """One picture: a row per pair, a column per episode, dark where the loss is high."""
    figure = Figure(figsize=(6.0, 1.15), layout="constrained")
    ax = figure.subplots()
    ax.imshow(losses_of(name, options), aspect="auto", cmap="cividis_r", vmin=0.0, vmax=1.0, interpolation="nearest")
    ax.set_yticks([])
    ax.set_xticks([0, 60, 120, 180, 239], ["0", "60", "120", "180", "episode 240"], fontsize=8)
    ax.spines[:].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100, format="png")
    return Image.open(buffer).convert("RGB").quantize(64, method=Image.Quantize.MAXCOVERAGE)


def main(folder: str) -> None:
    """Write one small PNG per adversary."""
    for name, options in OPTIONS.items():
        strip(name, options).save(Path(folder) / f"adversary-{name}.png", optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
