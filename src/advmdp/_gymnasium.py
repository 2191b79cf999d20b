"""From a Gymnasium transition table to layers: see :meth:`advmdp.layered.LayeredMDP.from_gymnasium`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp._checks import integer
from advmdp.errors import InvalidMDPError
from advmdp.scene import Scene

# A state of a layer is (the environment's state, whether the episode is over); a random start comes before all.
_START = "start"
State = tuple[int, bool]


def unroll(env: Any, horizon: int) -> tuple[list[Any], list[Floats], list[NDArray[np.bool_]] | None, Scene]:
    """Kernels, expected losses, masks and the names of states for ``horizon`` steps of a tabular environment."""
    from advmdp import _unroll  # here, since it builds worlds itself

    base = getattr(env, "unwrapped", env)
    table = getattr(base, "P", None)
    if table is None:
        raise InvalidMDPError(f"{type(base).__name__} has no transition table P, should have one like FrozenLake's")
    integer(horizon, "horizon", 1, InvalidMDPError)
    n_actions = int(base.action_space.n)
    rewards = [
        float(reward) for actions in table.values() for outcomes in actions.values()
        for _, _, reward, _ in outcomes
    ]  # fmt: skip
    if not np.isfinite(rewards).all():
        raise InvalidMDPError(f"{type(base).__name__} has rewards that are not finite numbers")
    highest, lowest = max([0.0, *rewards]), min([0.0, *rewards])
    scale = (highest - lowest) or 1.0

    starts = _starts(base, len(table))

    def step(state: Any, action: int) -> dict[State, float]:
        if state == _START:
            return {(first, False): probability for first, probability in starts.items()}
        number, over = state
        if over:
            return {state: 1.0}
        row: dict[State, float] = {}
        for probability, target, _, terminated in table[number][action]:
            key = (int(target), bool(terminated))
            row[key] = row.get(key, 0.0) + float(probability)
        return row

    def loss(state: Any, action: int) -> float:
        if state == _START:
            return 0.0
        number, over = state
        if over:
            return highest / scale  # no reward is reward 0
        return sum(float(p) * (highest - float(reward)) / scale for p, _, reward, _ in table[number][action])

    masks = _masks(env, base, table, n_actions)

    def available(state: Any) -> NDArray[np.bool_]:
        waits = masks is None or state == _START or state[1] or state[0] not in masks
        return np.ones(n_actions, dtype=np.bool_) if waits else masks[state[0]]  # type: ignore[index]

    random_start = len(starts) > 1
    # A random start: a first layer of one state, whose actions all draw it, free of charge.
    first: Any = _START if random_start else (next(iter(starts)), False)
    unrolled, states = _unroll.unroll(first, horizon + random_start, n_actions, [step], available)
    (kernels,) = unrolled.kernels()
    costs = np.clip([[loss(state, action) for action in range(n_actions)] for state in states], 0.0, 1.0)
    names = unrolled.named([state if state == _START else state[0] for state in states])
    over = unrolled.named([state != _START and state[1] for state in states])
    scene = Scene(states=names, details={"over": [*over[:-1], (True,)]}, map=_map(base))
    able = None if masks is None else np.array([available(state) for state in states])
    losses = [costs[layer] for layer in unrolled.layers]
    return kernels, losses, None if able is None else [able[layer] for layer in unrolled.layers], scene


def _masks(env: Any, base: Any, table: Mapping[int, Any], n_actions: int) -> dict[int, NDArray[np.bool_]] | None:
    """Which actions each state has: from ``action_masks`` (a table, or a function of the state or of none), from
    ``action_mask(state)`` as Taxi has it, or from the ``info`` of steps.  None where the environment says nothing."""
    given = getattr(base, "action_masks", None)
    by_state = getattr(base, "action_mask", None) if given is None else given
    if given is not None and not callable(given):
        found = {state: given[state] for state in table}
    elif callable(by_state):
        found = {}
        for state in table:
            try:
                found[state] = by_state(state)
            except TypeError:  # it speaks of the state that the environment is in
                base.s, before = state, base.s
                found[state] = by_state()
                base.s = before
    else:
        found = _masks_in_info(env, table)
    if not found:
        return None
    masks = {}
    for state, mask in found.items():
        masks[state] = np.asarray(mask) != 0
        if masks[state].shape != (n_actions,) or not masks[state].any():
            raise InvalidMDPError(
                f"{type(base).__name__}: the action mask of state {state} is {mask!r}, should be {n_actions} entries, "
                "not all of them zero"
            )
    return masks


def _masks_in_info(env: Any, table: Mapping[int, Any]) -> dict[int, Any]:
    """The masks that ``info`` has in every state that a step can lead to, tried on a copy of the environment."""
    try:
        trial = copy.deepcopy(env)
        state, info = trial.reset(seed=0)
        if "action_mask" not in info:
            return {}
    except Exception:  # not an environment that plays: its table is all there is
        return {}
    found = {int(state): info["action_mask"]}
    for here, actions in table.items():
        for action, outcomes in actions.items():
            missing = {int(target) for p, target, _, _ in outcomes if p > 0.0} - set(found)
            for _ in range(100):  # the outcome is drawn
                if not missing:
                    break
                trial.reset(seed=0)
                trial.unwrapped.s = here
                state, *_, info = trial.step(action)
                found[int(state)] = info["action_mask"]
                missing.discard(int(state))
    return found


def _starts(base: Any, n_states: int) -> dict[int, float]:
    """The distribution of the first state, from ``initial_state_distrib`` or the start of the environment."""
    start = getattr(base, "initial_state_distrib", None)
    if start is None:
        first = getattr(base, "start_state_index", None)
        if first is None:
            raise InvalidMDPError(
                f"{type(base).__name__} has neither initial_state_distrib nor start_state_index: where "
                "do its episodes start?"
            )
        return {int(first): 1.0}
    return {state: float(start[state]) for state in range(n_states) if start[state] > 0.0}


def _map(base: Any) -> list[str] | None:
    """The letters of the cells, where the environment is FrozenLake's kind of map."""
    letters = getattr(base, "desc", None)
    if letters is None or np.shape(letters) != (getattr(base, "nrow", 0), getattr(base, "ncol", 0)):
        return None
    rows = ["".join(cell.decode() for cell in row) for row in np.asarray(letters, dtype="S1")]
    return rows if set("".join(rows)) <= set("SFHG") else None
