"""No garbage collection while numba compiles: it would look through all that numba has made so far, again and again."""

from __future__ import annotations

import gc
from typing import Any

from numba.core import event


class _Pause(event.Listener):
    """Compilations are nested; the outermost one pauses the collector, and leaves it as it was."""

    def __init__(self) -> None:
        self.depth = 0
        self.collects = False

    def on_start(self, event: Any) -> None:
        if self.depth == 0:
            self.collects = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.collects:
            gc.enable()


event.register("numba:compile", _Pause())
