"""The same cells on a Ray cluster: an existing one, or one that is started on this machine.

Every machine needs this package, and nothing else: jobs go out and results come back through Ray.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from advmdp.errors import InvalidSpecError
from advmdp.experiments.engines import ONE_THREAD
from advmdp.experiments.work import Job, Message, play
from advmdp.registry import import_modules, imported

#: Seconds for the first answer of a cluster.
PATIENCE_TO_CONNECT = 10.0


class RayEngine:
    """Runs every job as a Ray task on one processor.

    A machine that goes away costs its cells one attempt each; they go on elsewhere from their last checkpoint.  Ray
    cannot ask a task to write a checkpoint, so Ctrl-C goes back to the last one.

    Parameters
    ----------
    address
        Of a cluster, as ``ray.init`` takes it; without, a cluster is started on this machine.
    workers
        How many jobs may run at once; by default as many as the cluster has processors.
    """

    name = "ray"

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        # Ray must not report to anybody that, and how, it is used.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise InvalidSpecError("engine 'ray' needs the package ray: pip install 'advmdp[ray]'") from error
        if workers is not None and workers < 1:
            raise InvalidSpecError(f"workers is {workers}, should be at least 1 with engine 'ray'")
        self._ray: Any = ray
        self._address, self._wanted = address, workers
        self._running: dict[Any, Job] = {}
        self._stopping = False

    @property
    def workers(self) -> int:
        """As wanted, or the processors of the cluster, which may come and go."""
        return self._wanted or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def free(self) -> int:
        """How many more tasks the cluster can take."""
        return self.workers - len(self._running)

    def prepare(self, definitions: Sequence[str]) -> None:
        """Nothing: machines do not share what they compile."""

    def start(self, job: Job) -> None:
        """Submit a task, whose messages come as it runs; trying again is the driver's business, not Ray's."""
        task = self._ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(_messages)
        self._running[task.remote(job, tuple(imported))] = job

    def poll(self, seconds: float) -> list[Message]:
        """The messages of all tasks that have some."""
        if not self._running:
            return []
        waiting = list(self._running)
        self._ray.wait(waiting, num_returns=1, timeout=seconds, fetch_local=False)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)
        return [message for task in ready for message in self._receive(task)]

    def _receive(self, task: Any) -> list[Message]:
        job = self._running[task]
        try:
            message: Message = self._ray.get(next(task))
        except StopIteration:  # it ended without a last word
            message = Message(job.id, "lost", "its Ray task ended early")
        except self._ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            message = Message(job.id, "lost", f"its Ray task was lost: {reason[0]}")
        if message.kind == "lost" and self._stopping:
            message = Message(job.id, "stopped")
        if message.kind in ("done", "failed", "lost", "stopped"):
            del self._running[task]
        return [message]

    def stop(self) -> None:
        """Cancel everything: what counts is in the last checkpoints."""
        self._stopping = True
        for task in self._running:
            self._ray.cancel(task, force=True)

    def __enter__(self) -> RayEngine:
        self._connected_before = self._ray.is_initialized()
        if not self._connected_before:
            own = {} if self._address else {"num_cpus": self._wanted, "include_dashboard": False}
            try:
                _knock(self._address)
                self._ray.init(
                    # "local", not None, which would mean the cluster that RAY_ADDRESS names, if it is set.
                    address=self._address or "local",
                    log_to_driver=False,
                    logging_level="ERROR",
                    runtime_env={"env_vars": ONE_THREAD},
                    **own,
                )
            except (ValueError, OSError, RuntimeError) as error:  # what Ray raises for addresses it cannot use
                what = "cannot be started here" if self._address is None else f"--address {self._address} is of no use"
                raise InvalidSpecError(f"engine 'ray': {what}: {error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        """End what is running, and leave the cluster."""
        for task in list(self._running):
            self._ray.cancel(task, force=True)
        self._running = {}
        if not self._connected_before:
            self._ray.shutdown()


def _knock(address: str | None) -> None:
    """Find out at once that nobody answers at ``host:port``: Ray takes a minute, most of it deaf to Ctrl-C."""
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_TO_CONNECT).close()


def _messages(job: Job, modules: Sequence[str]) -> Iterator[Message]:
    """What a task does."""
    try:
        import_modules(modules)
        # Not `yield from`: what Ray sends into a generator is not meant for ours.
        for message in play(job):  # noqa: UP028
            yield message
    except Exception:
        yield Message(job.id, "failed", traceback.format_exc())
