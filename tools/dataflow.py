"""The two pictures of docs/architecture.md: what passes through one episode, and through one experiment.

python -m tools.dataflow docs/images

Text stands in boxes of their own colour, so that the pictures can be read on a light and on a dark page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

WIDTH = 540
INK, LINE = "#1b2330", "#808890"
#: Who does it: the world, what passes, the learner, the solvers, what is kept.
FILL = {"world": "#cfe3f5", "data": "#f2ead3", "learner": "#d9ecd9", "solver": "#f6dcc6", "keep": "#e3dcf0"}

Box = tuple[float, float, float, float]


class Picture:
    """Boxes and arrows, from top to bottom."""

    def __init__(self, height: int, title: str) -> None:
        self.height, self.title = height, title
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, kind: str, head: str, *lines: str) -> Box:
        """A box with a head in bold; returns where it is."""
        height = 16 + 18 * (1 + len(lines))
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{FILL[kind]}" stroke="{LINE}"/>'
        )
        for number, text in enumerate((head, *lines)):
            weight = ' font-weight="bold"' if number == 0 else ""
            place = f'x="{x + width / 2}" y="{y + 22 + 18 * number}" text-anchor="middle"'
            self.parts.append(f"<text {place}{weight}>{escape(text)}</text>")
        return x, y, width, height

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line with a head at its last point."""
        path = " ".join(f"{'ML'[i > 0]}{x:g} {y:g}" for i, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.6" marker-end="url(#head)"/>')

    def down(self, above: Box, below: Box, at: float = 0.5) -> None:
        """An arrow from the foot of one box straight to the top of another."""
        x = above[0] + at * above[2]
        self.arrow((x, above[1] + above[3]), (x, below[1] - 2))

    def frame(self, box: Box, label: str) -> None:
        """A dashed frame around several boxes, with its name on the upper edge."""
        x, y, width, height = box
        self.parts += [
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="none" stroke="{LINE}" '
            'stroke-dasharray="5 4"/>',
            f'<rect x="{x + 14}" y="{y - 10}" width="{7.4 * len(label) + 14}" height="20" rx="4" '
            f'fill="{FILL["data"]}"/>',
            f'<text x="{x + 21}" y="{y + 4}">{escape(label)}</text>',
        ]

    def svg(self) -> str:
        """The file."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img" '
            f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="12.5" fill="{INK}">'
            f"<title>{escape(self.title)}</title>"
            f'<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def episode() -> str:
    """One episode of a learner of REPS type."""
    picture = Picture(668, "One episode: from losses and a policy to the next policy")
    losses = picture.box(10, 10, 200, "world", "adversary.losses(k)", "tables in [0, 1]")
    policy = picture.box(330, 10, 200, "learner", "learner.policy", "pi_k, from q_k")
    play = picture.box(100, 98, 340, "world", "play(mdp, policy, losses, rng)", "or a system of yours")
    picture.arrow((160, losses[1] + losses[3]), (160, play[1] - 2))
    picture.arrow((380, policy[1] + policy[3]), (380, play[1] - 2))
    exact = picture.box(10, 186, 196, "world", "run: exact regret", "occupancy_measure(", "true kernels, pi_k)")
    seen = picture.box(246, 186, 284, "data", "Episode(states, actions, losses)", "H of each: all that is told")
    picture.down(play, seen, 0.8)
    picture.arrow((60, losses[1] + losses[3]), (60, exact[1] - 2))
    checked = picture.box(246, 268, 284, "learner", "check_episode", "what cannot have happened: refused")
    picture.down(seen, checked)
    picture.frame((10, 346, 520, 238), "RepsLearner._learn: the parts")
    upper = picture.box(24, 368, 244, "solver", "1 losses: upper_occupancy", "u_k, from P_k and pi_k")
    sums = picture.box(284, 368, 232, "learner", "3 estimator, sets", "sums, theta, beta: P_{k+1}")
    estimate = picture.box(24, 446, 244, "learner", "2 lhat = loss / (u + gamma)")
    mirror = picture.box(
        24, 506, 492, "solver", "4 step: mirror_descent_step(P_{k+1}, q_k, lhat, eta)", "q_{k+1}, with gap and residual"
    )
    picture.arrow((262, checked[1] + checked[3]), (262, upper[1] - 2))
    picture.arrow((400, checked[1] + checked[3]), (400, sums[1] - 2))
    picture.down(upper, estimate)
    picture.down(estimate, mirror)
    picture.arrow((400, sums[1] + sums[3]), (400, mirror[1] - 2))
    after = picture.box(95, 606, 350, "learner", "5 condition", "pi_{k+1}(a|s) = q_{k+1}(s,a) / q_{k+1}(s)")
    picture.down(mirror, after, 0.5)
    return picture.svg()


def experiment() -> str:
    """One experiment, from a file to a report."""
    picture = Picture(716, "One experiment: from a spec file to a report")
    spec = picture.box(90, 10, 360, "data", "experiment.toml", "worlds, adversaries, learners, K, seeds")
    cells = picture.box(
        90, 96, 360, "learner", "Spec.read: checked, expanded into cells", "each with a stable id and its own seeds"
    )
    picture.down(spec, cells)
    sweep = picture.box(90, 182, 360, "learner", "sweep: which cells are missing?", "starts, stops, retries, resumes")
    picture.down(cells, sweep)
    engines = [
        picture.box(10, 268, 160, "solver", "in process", "one cell at a time"),
        picture.box(184, 268, 156, "solver", "local workers", "forkserver"),
        picture.box(354, 268, 150, "solver", "Ray", "several machines"),
    ]
    for engine, x in zip(engines, (110, 270, 430), strict=True):
        picture.arrow((x, sweep[1] + sweep[3]), (x, engine[1] - 2))
    play = picture.box(
        90, 354, 360, "world", "work.play: one Run per cell", "episodes as above, exact regret, measures"
    )
    for engine, x in zip(engines, (110, 270, 430), strict=True):
        picture.arrow((x, engine[1] + engine[3]), (x, play[1] - 2))
    store = picture.box(
        90,
        450,
        360,
        "keep",
        "store: one directory",
        "a Parquet file per cell, checkpoints,",
        "manifest; checksummed, then renamed",
    )
    picture.down(play, store)
    picture.arrow((450, 484), (522, 484), (522, 208), (453, 208))
    frame = picture.box(90, 556, 360, "data", "load: one tidy frame", "a row per logged episode")
    picture.down(store, frame)
    picture.box(10, 642, 250, "keep", "statistics", "intervals, paired differences")
    picture.box(280, 642, 250, "keep", "report.html, figures", "one page, nothing fetched")
    picture.arrow((170, 608), (170, 640))
    picture.arrow((370, 608), (370, 640))
    return picture.svg()


def main(arguments: Sequence[str]) -> None:
    """Write both."""
    folder = Path(arguments[0])
    for name, text in (("episode.svg", episode()), ("experiment.svg", experiment())):
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
