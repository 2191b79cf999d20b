"""Running an experiment: the driver hands cells to an engine, keeps what comes back, and can be stopped at any time."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advmdp import storage
from advmdp._checks import integer
from advmdp._log import logger
from advmdp.errors import InvalidSpecError
from advmdp.experiments.defaults import CHECKPOINT_EVERY
from advmdp.experiments.engines import PATIENCE, Engine, InProcessEngine, LocalEngine
from advmdp.experiments.spec import Cell, Spec
from advmdp.experiments.store import WritableStore
from advmdp.experiments.work import Job, Message, representatives

#: How often a cell is tried whose workers die.
ATTEMPTS = 3
#: Seconds for an orderly end, beside the time that workers are given.
LAST_MOMENTS = 5.0


class Display:
    """Is told how it goes; this one shows nothing, and logs what the user should know."""

    def begin(self, cells: Sequence[Cell], done: int, workers: int) -> None:
        """Before the first cell: what is to be computed, and how many cells were there already."""

    def progress(self, cell: Cell, played: int) -> None:
        """A cell has played so many episodes."""

    def finished(self, cell: Cell, state: str) -> None:
        """A cell is ``done``, ``failed``, ``stopped``, or ``lost`` (and will be tried again)."""

    def log(self, text: str) -> None:
        """Something that the user should know."""
        logger.info(text)

    def refresh(self) -> None:
        """A moment has passed."""

    def end(self) -> None:
        """Nothing more comes."""


@dataclass
class Outcome:
    """How a sweep ended.

    Attributes
    ----------
    directory
        Where the results are.
    computed, present
        Cells that were computed now, and cells that were there before.
    failed
        The error of every cell that failed, by id.
    interrupted
        The name of the signal that stopped it, if one did.
    left
        Cells without a result.
    """

    directory: Path
    computed: int = 0
    present: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: str = ""
    left: int = 0


def run_spec(
    spec: Spec | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    workers: int | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    display: Display | None = None,
) -> Outcome:
    """Compute every cell of a spec that ``out`` does not hold yet.

    Parameters
    ----------
    spec
        A spec, or the path of its file.
    out
        The directory for the results; made if it is not there.
    engine
        Where cells run; by default processes of this machine.
    workers
        How many of them; by default one for each processor, 0 for none: then cells run in this process.
    checkpoint_every
        Seconds between checkpoints of a cell.
    display
        Is told how it goes.
    """
    given = spec if isinstance(spec, Spec) else Spec.read(Path(spec))
    given.check()
    return _sweep(WritableStore(out, given), engine, workers, checkpoint_every, display)


def resume(
    directory: str | os.PathLike[str],
    *,
    engine: Engine | None = None,
    workers: int | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
    display: Display | None = None,
) -> Outcome:
    """Go on with what a directory holds: cells that were interrupted, failed, never began, or are damaged."""
    return _sweep(WritableStore(directory), engine, workers, checkpoint_every, display)


def available_processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _sweep(
    store: WritableStore, engine: Engine | None, workers: int | None, checkpoint_every: float, display: Display | None
) -> Outcome:
    if workers is not None:
        integer(workers, "workers", 0, InvalidSpecError)
    if not checkpoint_every > 0.0:
        raise InvalidSpecError(f"checkpoint_every is {checkpoint_every}, should be a number of seconds > 0")
    with store:
        todo = [cell for cell in store.wanted() if not store.is_done(cell)]
        if engine is None:
            count = min(available_processors() if workers is None else workers, len(todo))
            engine = LocalEngine(count) if count else InProcessEngine()
        driver = _Driver(store, engine, todo, checkpoint_every, display or Display())
        return driver.run()


class _Driver:
    """Hands out cells, keeps what comes back."""

    def __init__(
        self, store: WritableStore, engine: Engine, todo: Sequence[Cell], checkpoint_every: float, display: Display
    ) -> None:
        self._store, self._engine, self._display = store, engine, display
        self._checkpoint_every = checkpoint_every
        self._todo = deque(todo)
        self._running: dict[str, Cell] = {}
        self._tries: dict[str, int] = {}
        self._said: set[str] = set()
        self._outcome = Outcome(store.directory, present=len(store.wanted()) - len(todo))

    def run(self) -> Outcome:
        """Until nothing is left, or a signal comes."""
        self._tell_remarks()
        if self._todo:
            # Signals are taken over only when the engine is up: Ctrl-C ends a search for a cluster that is not there.
            with self._engine, _signals() as received:
                self._engine.prepare(representatives(self._todo))
                self._store.manifest["engine"] = {"name": self._engine.name, "workers": self._engine.workers}
                self._display.begin(list(self._todo), self._outcome.present, self._engine.workers)
                try:
                    self._loop(received)
                finally:
                    self._display.end()
            self._outcome.interrupted = received[0] if received else ""
        self._outcome.left = sum(not self._store.is_done(cell) for cell in self._store.wanted())
        return self._outcome

    def _loop(self, received: list[str]) -> None:
        while (self._todo or self._running) and not received:
            while self._todo and self._engine.free:
                self._start(self._todo.popleft())
            self._take(self._engine.poll(0.2))
        if received and self._running:
            self._display.log(f"{received[0]}: waiting for the checkpoints of {len(self._running)} cells")
            self._engine.stop()
            deadline = time.monotonic() + PATIENCE
            # A second signal means: at once.
            while self._running and len(received) < 2 and time.monotonic() < deadline:
                self._take(self._engine.poll(0.2))

    def _start(self, cell: Cell) -> None:
        checkpoint = self._store.read_checkpoint(cell)
        self._tell_remarks()
        self._tries[cell.id] = self._tries.get(cell.id, 0) + 1
        self._running[cell.id] = cell
        attempts = self._store.manifest["cells"][cell.id]["attempts"] + 1
        self._store.note(cell, state="running", attempts=attempts, error=None)
        self._engine.start(Job(cell.id, cell.definition, checkpoint, self._checkpoint_every))

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            if message.kind == "log":
                if message.content not in self._said:  # every worker would say it again
                    self._said.add(message.content)
                    self._display.log(message.content)
            elif message.cell in self._running:
                self._handle(self._running[message.cell], message)
        with suppress(OSError):  # a summary: what counts is in the cells
            self._store.write_manifest()
        self._display.refresh()

    def _handle(self, cell: Cell, message: Message) -> None:
        match message.kind:
            case "progress":
                self._display.progress(cell, message.content)
                return
            case "checkpoint":
                self._keep_checkpoint(cell, message.content)
                return
            case "done":
                self._keep_result(cell, message.content)
                self._outcome.computed += 1
            case "stopped":
                self._store.note(cell, state="pending")
            case "lost" if self._tries[cell.id] < ATTEMPTS:
                self._display.log(f"{cell.id}: {message.content}; it is tried again")
                self._store.note(cell, state="pending", error=message.content)
                self._todo.appendleft(cell)
            case "lost":
                self._fail(cell, f"{message.content}, {ATTEMPTS} times")
            case _:
                self._fail(cell, message.content)
        del self._running[cell.id]
        self._display.finished(cell, message.kind)

    def _fail(self, cell: Cell, error: str) -> None:
        self._outcome.failed[cell.id] = error
        self._store.note(cell, state="failed", error=error)

    def _keep_checkpoint(self, cell: Cell, content: bytes) -> None:
        try:
            self._store.write_checkpoint(cell, content)
        except OSError as error:  # the run itself can go on without
            self._display.log(f"{cell.id}: the checkpoint could not be written: {error}")

    def _keep_result(self, cell: Cell, content: bytes) -> None:
        result = storage.loads(content, "result", f"result of {cell.id}")
        timing: dict[str, Any] = {
            "seconds": result["seconds"],
            "processor_seconds": result["processor_seconds"],
            "episodes_per_second": cell.episodes / result["seconds"],
            "attempts": self._store.manifest["cells"][cell.id]["attempts"],
            "version": self._store.manifest["versions"]["advmdp"],
        }
        self._store.write_result(cell, result, timing)

    def _tell_remarks(self) -> None:
        while self._store.remarks:
            self._display.log(self._store.remarks.pop(0))


@contextmanager
def _signals() -> Generator[list[str], None, None]:
    """The names of the signals (Ctrl-C, SIGTERM) that came; they interrupt nothing half done."""
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda n, frame: received.append(signal.Signals(n).name))
    try:
        with _ended_in_any_case():
            yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ended_in_any_case() -> Generator[None, None, None]:
    """End this process some time after a signal, if a long computation keeps it from ending by itself.

    Python calls handlers between two steps of the interpreter, which a kernel may not reach for hours.  What the system
    writes into a pipe at once, a second thread can read.  Files are replaced whole, so nothing is half done; what was
    running is found as pending.  Not on Windows, which cannot wait for a pipe.
    """
    if sys.platform == "win32":
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        number, deadline = 0, math.inf
        while select.select([reader], [], [], None if not number else max(0.0, deadline - time.monotonic()))[0]:
            received = os.read(reader, 1)
            if not received:  # the run is over
                return
            if received[0] in (signal.SIGINT, signal.SIGTERM):
                # The driver is patient with its workers after the first signal, not after the second.
                patience = LAST_MOMENTS if number else PATIENCE + LAST_MOMENTS
                number, deadline = received[0], min(deadline, time.monotonic() + patience)
        os._exit(128 + number)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)
