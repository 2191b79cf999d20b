"""How a sweep shows how far it is: live on a terminal, in plain lines elsewhere; and how long it will take."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from advmdp.experiments.spec import Cell
from advmdp.experiments.store import Store
from advmdp.experiments.sweep import Display
from advmdp.experiments.work import WARM_UP, warmed_up

#: What decides how long an episode takes.
Kind = tuple[str, str, str, int]


def kind_of(cell: Cell) -> Kind:
    """Cells of one kind differ in their seed only."""
    return cell.world.slug, cell.adversary.slug, cell.learner.slug, cell.episodes


class Pace:
    """Seconds per episode, learned from what happens."""

    def __init__(self) -> None:
        self._seconds: dict[Kind, float] = defaultdict(float)
        self._episodes: dict[Kind, float] = defaultdict(float)

    def add(self, cell: Cell, episodes: int, seconds: float) -> None:
        """So many episodes of a cell took so long."""
        self._seconds[kind_of(cell)] += seconds
        self._episodes[kind_of(cell)] += episodes

    def seconds_per_episode(self, cell: Cell) -> float | None:
        """Of cells like this one; else of those with the same learner; else of all."""
        mine = kind_of(cell)
        for alike in (lambda kind: kind == mine, lambda kind: kind[2] == mine[2], lambda kind: True):
            kinds = [kind for kind in self._episodes if alike(kind)]
            if kinds:
                return sum(self._seconds[k] for k in kinds) / max(1.0, sum(self._episodes[k] for k in kinds))
        return None


def probe(cells: Sequence[Cell], store: Store | None, seconds: float = 0.3) -> tuple[Pace, int]:
    """How fast cells are: from the finished ones of a store, else from playing each kind for a moment.

    Returns the pace and the number of kinds that had to be played.
    """
    pace = Pace()
    known = set()
    if store is not None:
        for cell in store.cells():
            if store.is_done(cell):
                pace.add(cell, cell.episodes, store.timing(cell)["seconds"])
                known.add(kind_of(cell))
    unknown = {kind_of(cell): cell for cell in cells if kind_of(cell) not in known}
    for cell in unknown.values():
        run = warmed_up(cell)
        first, before = run.played, run.seconds
        while run.played < run.episodes and run.seconds - before < seconds:
            run.play(4)
        if run.played > first:
            pace.add(cell, run.played - first, run.seconds - before)
        else:  # over before it began
            pace.add(cell, run.played, run.seconds)
    return pace, len(unknown)


def duration(seconds: float) -> str:
    """In words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Counting(Display):
    """What both displays count."""

    def begin(self, cells: Sequence[Cell], done: int, workers: int) -> None:
        self.total, self.present, self.workers = len(cells), done, workers
        self.left = {cell.id: cell for cell in cells}
        self.played: dict[str, int] = dict.fromkeys(self.left, 0)
        self.started: dict[str, tuple[float, int]] = {}
        self.pace = Pace()
        self.began = time.monotonic()

    def progress(self, cell: Cell, played: int) -> None:
        now = time.monotonic()
        before, base = self.started.setdefault(cell.id, (now, played))
        self.played[cell.id] = played
        if played > base:
            self.started[cell.id] = (now, played)
            if played > WARM_UP:  # the first episodes load, or even compile, what the others use
                self.pace.add(cell, played - base, now - before)

    def finished(self, cell: Cell, state: str) -> None:
        if state == "done":
            self.progress(cell, cell.episodes)
        self.started.pop(cell.id, None)
        if state in ("done", "failed"):
            self.left.pop(cell.id, None)

    def time_left(self) -> str:
        longest = total = 0.0
        for cell in self.left.values():
            each = self.pace.seconds_per_episode(cell)
            if each is None:
                return ""
            seconds = each * (cell.episodes - self.played[cell.id])
            longest, total = max(longest, seconds), total + seconds
        return f"{duration(max(longest, total / max(1, self.workers)))} left"

    def episodes_per_second(self) -> float:
        return sum(self.played.values()) / max(1e-9, time.monotonic() - self.began)


class PlainDisplay(_Counting):
    """A line for every cell that ends, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, cells: Sequence[Cell], done: int, workers: int) -> None:
        super().begin(cells, done, workers)
        there = f", {done} are there already" if done else ""
        self._line(f"{len(cells)} cells to compute{there}; {workers} workers")

    def finished(self, cell: Cell, state: str) -> None:
        super().finished(cell, state)
        if state in ("done", "failed"):
            count = f"{self.total - len(self.left)}/{self.total}"
            self._line(f"{count} {cell.id} {state}; {self.episodes_per_second():,.0f} episodes/s, {self.time_left()}")

    def log(self, text: str) -> None:
        self._line(text)

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay(_Counting):
    """A bar for the whole and one for every running cell."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]:>12}"),
            TextColumn("{task.fields[speed]:>16}"),
            TextColumn("{task.fields[left]}"),
        )
        self._bars = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def begin(self, cells: Sequence[Cell], done: int, workers: int) -> None:
        super().begin(cells, done, workers)
        if cells:
            self._bars.start()
            episodes = sum(cell.episodes for cell in cells)
            self._all = self._bars.add_task("[bold]all cells[/]", total=episodes, count="", speed="", left="")

    def progress(self, cell: Cell, played: int) -> None:
        super().progress(cell, played)
        if cell.id not in self._tasks:
            shown = escape(cell.id.replace("__", " / "))
            self._tasks[cell.id] = self._bars.add_task(shown, total=cell.episodes, count="", speed="", left="")
        each = self.pace.seconds_per_episode(cell)
        self._bars.update(
            self._tasks[cell.id],
            completed=played,
            count=f"{played:,}/{cell.episodes:,}",
            speed=f"{1.0 / each:,.0f} episodes/s" if each else "",
            left=duration(each * (cell.episodes - played)) if each else "",
        )

    def finished(self, cell: Cell, state: str) -> None:
        super().finished(cell, state)
        if cell.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(cell.id))
        if state == "failed":
            self.log(f"{cell.id} failed")

    def refresh(self) -> None:
        if self.left:
            self._bars.update(
                self._all,
                completed=sum(self.played.values()),
                count=f"{self.total - len(self.left)}/{self.total} cells",
                speed=f"{self.episodes_per_second():,.0f} episodes/s",
                left=self.time_left(),
            )

    def log(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        self._bars.stop()


def display_for(console: Console, quiet: bool) -> Display:
    """Live on a terminal, plain elsewhere, nothing if quiet."""
    if quiet:
        return Display()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
