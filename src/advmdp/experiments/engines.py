"""Where cells run: in this process, or in processes of this machine; on other machines in ``ray_engine.py``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from advmdp.experiments.work import Job, Message, compile_kernels, play
from advmdp.registry import import_modules, imported

#: One thread per worker, so that workers do not compete and sums do not depend on the number of cores.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
#: Seconds that a worker gets to write a checkpoint and end.
PATIENCE = 20.0


class Engine(Protocol):
    """Runs jobs and tells about them; a context manager that leaves no worker behind."""

    #: As it is called on the command line.
    name: str

    @property
    def free(self) -> int:
        """How many jobs can be started now."""

    @property
    def workers(self) -> int:
        """How many jobs can run at once."""

    def prepare(self, definitions: Sequence[str]) -> None:
        """Be told what is to come, so that kernels are compiled once and not by every worker."""

    def start(self, job: Job) -> None:
        """Start a job."""

    def poll(self, seconds: float) -> list[Message]:
        """What happened, waiting at most so long for the first message."""

    def stop(self) -> None:
        """Ask all running jobs to write a checkpoint and stop; messages of that kind follow."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: object) -> None: ...


class InProcessEngine:
    """One cell after the other in this process: for debugging, and where processes cannot be started.

    It has the threads that this process has; where BLAS has several, the last bits of large sums may differ.
    """

    name = "in-process"
    workers = 1

    def __init__(self) -> None:
        self._running: Generator[Message, bool | None, None] | None = None
        self._job: Job | None = None
        self._stop = False
        self._started = False

    @property
    def free(self) -> int:
        """One or none."""
        return int(self._running is None)

    def prepare(self, definitions: Sequence[str]) -> None:
        """Nothing: there is nobody to compete with."""

    def start(self, job: Job) -> None:
        """Take the job; it advances while :meth:`poll` waits."""
        self._job, self._running, self._started = job, play(job), False

    def poll(self, seconds: float) -> list[Message]:
        """Play until there is something to tell."""
        if self._running is None or self._job is None:
            return []
        try:
            message = self._running.send(self._stop) if self._started else next(self._running)
            self._started = True
        except Exception:
            message = Message(self._job.id, "failed", traceback.format_exc())
        if message.kind in ("done", "failed", "stopped"):
            self._running = None
        return [message]

    def stop(self) -> None:
        """From the next message on."""
        self._stop = True

    def __enter__(self) -> InProcessEngine:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left behind."""


class LocalEngine:
    """Processes of this machine, each with one thread; one that dies costs one attempt of one cell, no more."""

    name = "local"

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._members: list[_Member] = []
        self._compiling: _Member | None = None

    @property
    def free(self) -> int:
        """Idle workers; none while the first one compiles for all."""
        if self._compiling is not None:
            return 0
        return self.workers - sum(member.job is not None for member in self._members)

    def prepare(self, definitions: Sequence[str]) -> None:
        """Let one worker compile while the others start."""
        self._members = [_Member() for _ in range(self.workers)]
        if self.workers > 1:
            self._compiling = self._members[0]
            self._compiling.connection.send(("compile", list(definitions)))

    def start(self, job: Job) -> None:
        """Give the job to an idle worker."""
        member = next((member for member in self._members if member.job is None), None)
        if member is None:
            member = _Member()
            self._members.append(member)
        member.job = job
        with suppress(OSError):  # it died while it was idle: poll notices
            member.connection.send(("play", job))

    def poll(self, seconds: float) -> list[Message]:
        """Everything that workers sent, and the deaths."""
        ready = wait([member.connection for member in self._members], timeout=seconds)
        messages = []
        for member in list(self._members):
            if member.connection in ready:
                messages += self._receive(member)
        return messages

    def _receive(self, member: _Member) -> list[Message]:
        messages = []
        try:
            while member.connection.poll():
                message = member.connection.recv()
                if message == "compiled":
                    self._compiling = None
                    continue
                messages.append(message)
                if message.kind in ("done", "failed", "stopped"):
                    member.job = None
        except (EOFError, OSError):
            self._members.remove(member)
            if member is self._compiling:
                self._compiling = None
            reason = member.bury()
            if member.job is not None:
                messages.append(Message(member.job.id, "lost", reason))
        return messages

    def stop(self) -> None:
        """Ask; those who work answer with a checkpoint."""
        self._compiling = None
        for member in self._members:
            with suppress(OSError):
                member.connection.send(("stop", None))

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the pipes, at which workers end by themselves, and end those that do not."""
        for member in self._members:
            member.connection.close()
        deadline = time.monotonic() + 2.0
        for member in self._members:
            if member.job is None:
                member.process.join(max(0.0, deadline - time.monotonic()))
            member.bury()
        self._members = []


class _Member:
    """A worker process as the driver sees it."""

    def __init__(self) -> None:
        # A fork server imports this library once and forks workers from there, so that one that replaces a dead one is
        # there at once.  Its only other thread is that of pyarrow's allocator, which knows about forks.
        context: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
        context.set_forkserver_preload(["__main__", __name__])
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, tuple(imported)), daemon=True)
        try:
            with _environment(ONE_THREAD), _signals_held_back():
                self.process.start()
        except (EOFError, OSError) as error:
            raise RuntimeError(
                "worker processes cannot be started; a script that starts them needs `if __name__ == '__main__':` "
                "around what it does"
            ) from error
        theirs.close()  # so that its end is noticed
        self.job: Job | None = None

    def bury(self) -> str:
        """Make sure that it is dead; how it died."""
        self.connection.close()
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        return f"its worker process {how}"


def _serve(connection: Connection, modules: Sequence[str]) -> None:
    """The life of a worker: jobs come in, messages go out; it ends when the driver is gone."""
    # Ctrl-C, or a batch system's SIGTERM, reaches all processes: what is to be done then is the driver's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # In a long computation it would not notice that the driver is gone.
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    sys.stderr = _Lines(connection)
    import_modules(modules)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            order, content = connection.recv()
            if order == "compile":
                compile_kernels(content)
                connection.send("compiled")
            elif order == "play":
                _play(connection, content)


def _end_with_the_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _play(connection: Connection, job: Job) -> None:
    try:
        running = play(job)
        message = next(running)
        while True:
            connection.send(message)
            if message.kind in ("done", "stopped"):
                return  # what comes from now on is the next order
            stop = connection.poll()
            if stop:
                connection.recv()
            message = running.send(stop)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception:
        connection.send(Message(job.id, "failed", traceback.format_exc()))


class _Lines:
    """Stands in for the error stream of a worker: its lines become messages, so that they do not tear a display."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rest = ""

    def write(self, text: str) -> int:
        """Send whole lines."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(None, lines):
            self._connection.send(Message("", "log", line))
        return len(text)

    def flush(self) -> None:
        """Nothing is held back but half a line."""

    def isatty(self) -> bool:
        """Never."""
        return False


@contextmanager
def _signals_held_back() -> Generator[None, None, None]:
    """Let nobody but the driver hear Ctrl-C: it would end a fork server that still imports, and workers with it.

    Processes inherit what is held back here; what comes for the driver meanwhile is heard right after.
    """
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # which would let them through again, if the fork server had to start it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(variables: dict[str, str]) -> Generator[None, None, None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
