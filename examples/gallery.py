"""Draw every world, under its best policy for the first episode: the pictures of the documentation.

python examples/gallery.py docs/worlds
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image

import advmdp
from advmdp.registry import worlds
from advmdp.report import draw_world

#: Where the defaults would make a dull picture.
OPTIONS = {"frozen-lake": {"horizon": 20, "slip": (0.8, 0.1, 0.1)}}


def main(folder: str) -> list[Path]:
    """Write one small PNG per world."""
    files = []
    for name in worlds.names():
        if name == "file":
            continue
        world = advmdp.make_world(name, **OPTIONS.get(name, {}))
        losses = "natural-losses" if world.scene.natural_losses else "fixed"
        policy, _ = advmdp.occupancy.best_policy(world, advmdp.make_adversary(losses, world, 1).losses(0))
        buffer = io.BytesIO()
        draw_world(world, policy=policy).figure.savefig(buffer, dpi=80, format="png")
        files.append(Path(folder) / f"{name}.png")
        # A palette loses nothing that the eye sees, and two thirds of the bytes.
        image = Image.open(buffer).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
        image.save(files[-1], optimize=True)
    return files


if __name__ == "__main__":
    for file in main(*sys.argv[1:]):
        print(file)
