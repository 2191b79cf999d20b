"""An episode of an agent, as far as it went: what a file must hold of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.episodes import Episode, check_episode
from advmdp.layered import FloatArray
from advmdp.process.space import Process

#: Who plays an episode: the learner, the guard, or the baseline since the guard's coin said so.
PLAYERS = ("learner", "guard", "coin")


@dataclass(eq=False)
class Record:
    """An episode that is under way, or waits for costs."""

    number: int
    player: str
    #: The learner's state when it began.
    moment: Any
    states: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    #: None: not told; NaN: not waited for.
    losses: list[float | None] = field(default_factory=list)
    #: Losses of all actions where they were told, for learners that can use them.
    others: dict[int, FloatArray] = field(default_factory=dict)
    #: Once it has ended: the learner's number of it, the ratios r_h of the guard, and the Y so far.
    ended: bool = False
    told: int | None = None
    ratios: FloatArray | None = None
    y: float = 0.0
    #: The model's states and actions of all layers, once it has ended.
    path: tuple[list[int], list[int]] | None = None

    def tree(self, moment: int | None) -> dict[str, Any]:
        """For a file, in which its moment has this number."""
        return {
            "number": self.number,
            "player": self.player,
            "moment": moment,
            "states": self.states,
            "actions": self.actions,
            "losses": self.losses,
            "others": [[step, row] for step, row in self.others.items()],
            "ended": self.ended,
            "told": self.told,
            "ratios": self.ratios,
            "y": self.y,
            "path": None if self.path is None else list(self.path),
        }

    @classmethod
    def restored(cls, saved: dict[str, Any], moments: Sequence[Any], process: Process, guarded: bool) -> Self:
        """The inverse of :meth:`tree`; ValueError where it makes no sense."""
        number, player = integer(saved["number"], "number", 0, ValueError), saved["player"]
        if player not in PLAYERS or (player != "learner" and not guarded):
            raise ValueError(f"episode {number} was played by {player!r}")
        moment = None if saved["moment"] is None else moments[integer(saved["moment"], "moment", -1, ValueError)]
        record = cls(number, player, moment, ended=bool(saved["ended"]), y=float(saved["y"]))
        if not record.ended and (moment is None) != (player == "guard"):
            raise ValueError(f"episode {number} has no moment, or one too many")
        losses = saved["losses"]
        if len({len(saved["states"]), len(saved["actions"]), len(losses)}) != 1 or len(losses) > process.horizon:
            raise ValueError(f"episode {number} has states, actions and losses of different lengths")
        for step, (state, action, loss) in enumerate(zip(saved["states"], saved["actions"], losses, strict=True)):
            layer = process._at(step)
            if integer(state, "state", 0, ValueError) >= len(layer.states):
                raise ValueError(f"episode {number}, step {step}: there is no state {state}")
            if integer(action, "action", 0, ValueError) >= len(layer.actions[state]):
                raise ValueError(f"episode {number}, step {step}: there is no action {action}")
            unseen = loss is None or (record.ended and np.isnan(loss))
            if not (unseen or 0.0 <= loss <= 1.0):
                raise ValueError(f"episode {number}, step {step}: loss {loss} is not in [0, 1]")
            record.states.append(state)
            record.actions.append(action)
            record.losses.append(loss)
        for step, row in saved["others"]:
            record.others[integer(step, "step", 0, ValueError)] = float_array(row, "others", ValueError)
        if record.ended:
            layers = process.model.layers
            states, actions = saved["path"]
            check_episode(Episode(states, actions, np.zeros(layers.horizon)), layers)
            record.path = [int(state) for state in states], [int(action) for action in actions]
            record.told = None if saved["told"] is None else integer(saved["told"], "told", 0, ValueError)
            if guarded and player != "guard":
                record.ratios = r = float_array(saved["ratios"], "ratios", ValueError)
                if r.shape != (layers.horizon,) or not ((r >= 0.0).all() and np.isfinite(r).all() and record.y >= 0.0):
                    raise ValueError(f"episode {number} has ratios that make no sense")
        return record
