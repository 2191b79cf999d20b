"""Orders and messages between the driver and a worker."""

from __future__ import annotations

import pytest

from advmdp.experiments import engines
from advmdp.experiments.work import Job, Message


class Line:
    """A connection whose other side answers "done" with the next order at once."""

    def __init__(self, orders):
        self.orders, self.waiting, self.sent = orders, [], []

    def send(self, message):
        self.sent.append(message.kind)
        if message.kind in ("done", "stopped"):
            self.waiting += self.orders

    def poll(self):
        return bool(self.waiting)

    def recv(self):
        return self.waiting.pop(0)


def job(messages):
    def play(_):
        for kind in messages:
            if (yield Message("cell", kind)):
                yield Message("cell", "stopped")
                return

    return play


@pytest.mark.parametrize("messages", [["done"], ["progress", "done"], ["progress", "checkpoint", "done"]])
def test_an_order_that_comes_right_after_the_result_is_left_for_the_next_turn(monkeypatch, messages):
    """A worker that took it for the wish to stop lost a cell, and the sweep waited for it for ever."""
    monkeypatch.setattr(engines, "play", job(messages))
    line = Line([("play", "the next cell")])
    engines._play(line, Job("cell", "{}", None, 30.0))
    assert line.sent == messages
    assert line.waiting == [("play", "the next cell")]


def test_a_wish_to_stop_is_heard_in_the_middle(monkeypatch):
    monkeypatch.setattr(engines, "play", job(["progress", "progress", "done"]))
    line = Line([])
    line.waiting = [("stop", None)]
    engines._play(line, Job("cell", "{}", None, 30.0))
    assert line.sent == ["progress", "stopped"]
