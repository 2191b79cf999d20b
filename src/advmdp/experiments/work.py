"""What a worker does, wherever it is: play one cell and tell about it, in messages that are plain data.

A worker touches no file of the experiment.  Results and checkpoints go to the driver as bytes, so that engines need no
shared disk and only one process ever writes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from advmdp import storage
from advmdp.experiments.contents import Final
from advmdp.experiments.measures import Measures
from advmdp.experiments.runner import Run
from advmdp.experiments.spec import Cell
from advmdp.experiments.store import checkpoint_fingerprint

#: Seconds between two progress messages; a worker that is asked to stop does so within about that time.
PROGRESS_INTERVAL = 0.25
#: Episodes after which nearly everything that a run needs was used once.
WARM_UP = 3


@dataclass(frozen=True)
class Job:
    """A cell to be played: its id and definition, a checkpoint to go on from, seconds between checkpoints."""

    id: str
    definition: str
    checkpoint: bytes | None
    checkpoint_every: float


#: progress: episodes played.  checkpoint, done: bytes.  stopped: after a checkpoint, because it was asked to.
#: failed: the error, which would come again.  lost: the worker died.  log: a line for the user.
Kind = Literal["progress", "checkpoint", "done", "stopped", "failed", "lost", "log"]


@dataclass(frozen=True)
class Message:
    """What happened, to which cell."""

    cell: str
    kind: Kind
    content: Any = None


def play(job: Job) -> Generator[Message, bool | None, None]:
    """Play a cell; ``send(True)`` in answer to a message asks it to write a checkpoint and stop."""
    cell = Cell.from_definition(job.definition)
    run = cell.build()
    if job.checkpoint is not None:
        try:
            run.set_state(storage.loads(job.checkpoint, "checkpoint", "checkpoint")["run"])
        except Exception as error:  # no checkpoint may stand in the way of a result
            yield Message(job.id, "log", f"{job.id}: starts anew, its checkpoint does not fit: {error}")
            run = cell.build()
    told = saved = time.monotonic()
    count = 1  # few enough episodes to be heard in time, many enough to cost nothing
    stop = yield Message(job.id, "progress", run.played)
    while not stop and run.played < run.episodes:
        started = time.monotonic()
        run.play(count)
        now = time.monotonic()
        if now - started < 0.25 * PROGRESS_INTERVAL:
            count *= 2
        elif now - started > PROGRESS_INTERVAL:
            count = max(1, count // 2)
        if now - saved >= job.checkpoint_every and run.played < run.episodes:
            saved = now
            stop = yield Message(job.id, "checkpoint", checkpoint_of(cell, run))
        if not stop and now - told >= PROGRESS_INTERVAL:
            told = now
            stop = yield Message(job.id, "progress", run.played)
    if run.played < run.episodes:
        yield Message(job.id, "checkpoint", checkpoint_of(cell, run))
        yield Message(job.id, "stopped")
    else:
        yield Message(job.id, "done", _result(run))


def checkpoint_of(cell: Cell, run: Run) -> bytes:
    """Where a run stands."""
    return storage.dumps("checkpoint", {"fingerprint": checkpoint_fingerprint(cell), "run": run.state()})


def _result(run: Run) -> bytes:
    result = run.result()
    frame = result.frame if run.watch is None else _with_measures(run, result.frame)
    tree: dict[str, Any] = {"columns": {name: frame[name].to_numpy() for name in frame}}
    tree |= {"seconds": result.seconds, "processor_seconds": result.processor_seconds}
    tree |= {name: getattr(result, name) for name in Final.__dataclass_fields__}
    return storage.dumps("result", tree)


def _with_measures(run: Run, frame: Any) -> Any:
    assert isinstance(run.watch, Measures)
    return run.watch.add_to(frame)


def compile_kernels(definitions: Iterable[str]) -> None:
    """Have what these cells need compiled and cached, before many start at once."""
    for definition in definitions:
        with suppress(Exception):  # the cell itself will tell, with its name
            warmed_up(replace(Cell.from_definition(definition), episodes=WARM_UP))


def warmed_up(cell: Cell) -> Run:
    """The run of a cell after its first episodes, which compile what it needs."""
    run = cell.build()
    run.play(WARM_UP)
    return run


def representatives(cells: Sequence[Cell]) -> list[str]:
    """Definitions of cells that between them use the kernels of all: one for each learner and geometry."""
    found: dict[Any, str] = {}
    for cell in cells:
        # Options that are words or flags choose between kernels; numbers do not.
        words = tuple(f"{key}={value}" for key, value in cell.learner.options.items() if isinstance(value, (str, bool)))
        found.setdefault((cell.learner.name, words), cell.definition)
    return list(found.values())
