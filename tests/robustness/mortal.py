"""Lives that end at a chosen file operation, cheap enough for many of them.

One process imports the library and compiles what is needed; every life is a fork of it, in a process group of its own.
Death is ``kill -9`` of that group, right before or right after an operation that changes files: nothing is cleaned up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from advmdp import load_learner, make_adversary, make_learner, make_world, play
from advmdp.experiments import Spec, resume, run_spec, store, work

#: What changes files, as Python's own modules call it as well.
OPERATIONS = ("open", "fsync", "chmod", "replace", "unlink", "mkdir")
#: Seconds after which a life is over in any case.
LONGEST_LIFE = 120


def loop(path: str, episodes: int) -> None:
    """An engineer's loop: what happens in episode k depends on k and on the policy alone."""
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    losses = make_adversary("switching", world, episodes, period=20)
    learner = load_learner(path) if Path(path).exists() else make_learner("vlsuob-reps-tight", world, episodes)
    for k in range(learner.episodes_seen, episodes):
        learner.update(play(world, learner.policy, losses.losses(k), np.random.default_rng(k), index=k))
        learner.save(path)


def sweep(spec: str, out: str, workers: int) -> None:
    """An experiment that writes a checkpoint after every episode, and the manifest after every message."""
    work.PROGRESS_INTERVAL = store.MANIFEST_INTERVAL = 0.0
    settings = {"workers": workers, "checkpoint_every": 1e-9}
    begun = (Path(out) / "spec.toml").exists()
    outcome = resume(out, **settings) if begun else run_spec(Spec(spec), out, **settings)
    assert not outcome.failed, outcome.failed


TASKS = {"loop": loop, "sweep": sweep}


def warm_loop(path: str, episodes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        loop(f"{folder}/learner.npz", 3)


def warm_sweep(spec: str, out: str, workers: int) -> None:
    for cell in Spec(spec).cells:
        work.warmed_up(cell)


WARM_UP = {"loop": warm_loop, "sweep": warm_sweep}


class Life(NamedTuple):
    """How a life went."""

    #: Moments at which it might have ended; 0 if it did.
    moments: int
    died: bool


class Mortals:
    """The process that lives are forked from; a context manager that leaves none behind."""

    def __enter__(self) -> Mortals:
        command = [sys.executable, "-m", "tests.robustness.mortal"]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.stdin.close()
        try:
            self._server.wait(LONGEST_LIFE)
        finally:
            self._server.kill()
            self._server.wait()
            self._server.stdout.close()

    def live(self, task: str, *arguments: object, until: int | None = None) -> Life:
        """One life, up to moment number ``until`` (from 0) if it comes that far."""
        print(json.dumps([task, list(arguments), until]), file=self._server.stdin, flush=True)
        code, moments = json.loads(self._server.stdout.readline())
        assert code in (0, -signal.SIGKILL), f"{task} {arguments} ended with code {code}"
        return Life(moments, code != 0)


def mortal(until: int | None) -> list[int]:
    """From now on this process counts its moments, and dies at one of them."""
    moments = [0]

    def moment() -> None:
        if moments[0] == until:
            os.killpg(0, signal.SIGKILL)
        moments[0] += 1

    def watched(operation):
        def changing(*arguments, **options):
            if operation is plain_open and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
                return operation(*arguments, **options)
            moment()
            result = operation(*arguments, **options)
            moment()
            return result

        return changing

    plain_open = os.open
    for name in OPERATIONS:
        setattr(os, name, watched(getattr(os, name)))
    return moments


def serve() -> None:
    """Fork lives as told, one after the other; kernels are loaded before the first."""
    warm: set[str] = set()
    for line in sys.stdin:
        task, arguments, until = json.loads(line)
        if task not in warm:
            warm.add(task)
            WARM_UP[task](*arguments)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(LONGEST_LIFE)
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            try:
                moments = mortal(until)
                TASKS[task](*arguments)
                os.write(writer, str(moments[0]).encode())
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(1)
        os.close(writer)
        with os.fdopen(reader) as answer:
            moments = int(answer.read() or 0)
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), moments]), flush=True)


if __name__ == "__main__":
    serve()
