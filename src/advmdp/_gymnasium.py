"""From a Gymnasium transition table to layers: see :meth:`advmdp.layered.LayeredMDP.from_gymnasium`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import integer
from advmdp.errors import InvalidMDPError

FloatArray = NDArray[np.float64]

#: Stands for "the episode is over" among the states of a layer.
_OVER = -1


def unroll(env: Any, horizon: int) -> tuple[list[FloatArray], list[FloatArray]]:
    """Kernels and expected losses of ``horizon`` steps of a tabular environment."""
    base = getattr(env, "unwrapped", env)
    table = getattr(base, "P", None)
    if table is None:
        raise InvalidMDPError(f"{type(base).__name__} has no transition table P, should have one like FrozenLake's")
    integer(horizon, "horizon", 1, InvalidMDPError)
    n_actions = int(base.action_space.n)
    start = _start(base, len(table))
    rewards = [
        float(reward) for actions in table.values() for outcomes in actions.values()
        for _, _, reward, _ in outcomes
    ]  # fmt: skip
    if not np.isfinite(rewards).all():
        raise InvalidMDPError(f"{type(base).__name__} has rewards that are not finite numbers")
    highest, lowest = max([0.0, *rewards]), min([0.0, *rewards])
    scale = (highest - lowest) or 1.0
    idle = (highest - 0.0) / scale

    kernels: list[FloatArray] = []
    losses: list[FloatArray] = []
    reached = [s for s in range(len(table)) if start[s] > 0.0]
    if len(reached) > 1:
        # A random start: a first layer of one state, whose actions all draw it, free of charge.
        kernels.append(np.tile(start[reached], (1, n_actions, 1)))
        losses.append(np.zeros((1, n_actions)))
    for step in range(horizon):
        following = _following(table, reached) if step < horizon - 1 else [_OVER]
        place = {state: i for i, state in enumerate(following)}
        kernel = np.zeros((len(reached), n_actions, len(following)))
        loss = np.zeros((len(reached), n_actions))
        for i, state in enumerate(reached):
            for action in range(n_actions):
                if state == _OVER:
                    kernel[i, action, place[_OVER]] = 1.0
                    loss[i, action] = idle
                    continue
                for probability, target, reward, terminated in table[state][action]:
                    if probability == 0.0:
                        continue
                    over = terminated or step == horizon - 1
                    kernel[i, action, place[_OVER if over else int(target)]] += probability
                    loss[i, action] += probability * (highest - float(reward)) / scale
        kernels.append(kernel)
        losses.append(np.clip(loss, 0.0, 1.0))
        reached = following
    return kernels, losses


def _start(base: Any, n_states: int) -> FloatArray:
    """The distribution of the first state, from ``initial_state_distrib`` or the start of the environment."""
    start = getattr(base, "initial_state_distrib", None)
    if start is None:
        start = np.zeros(n_states)
        first = getattr(base, "start_state_index", None)
        if first is None:
            raise InvalidMDPError(
                f"{type(base).__name__} has neither initial_state_distrib nor start_state_index: where "
                "do its episodes start?"
            )
        start[int(first)] = 1.0
    return np.asarray(start, dtype=np.float64)


def _following(table: Any, states: list[int]) -> list[int]:
    """The states that can follow, in increasing order, the end of the episode last."""
    found: set[int] = set()
    for state in states:
        if state == _OVER:
            found.add(_OVER)
            continue
        for outcomes in table[state].values():
            for probability, target, _, terminated in outcomes:
                if probability > 0.0:
                    found.add(_OVER if terminated else int(target))
    return sorted(found - {_OVER}) + ([_OVER] if _OVER in found else [])
