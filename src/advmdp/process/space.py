"""A process in the user's own terms, and the model that learners work on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import float_array, integer
from advmdp.errors import InvalidEpisodeError, InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, LinearMixtureMDP, LinearMixtureModel
from advmdp.process.exploration import ENDED, START, Kind, Reached, Scenario, explore, hashable, number, shown
from advmdp.scene import Scene

__all__ = ["ENDED", "Process"]


class Process:
    """A process of your own: states, actions and costs as you write them, and scenarios for how it moves.

    Reality is some unknown mixture of the scenarios.  States that can be reached are found by asking ``actions`` and
    ``scenarios``, breadth first; no others are built.

    Parameters
    ----------
    start
        The first state, or ``{state: probability}`` if it is drawn.  States are anything hashable: numbers, texts,
        tuples of them.
    actions
        ``actions(step, state)`` is the list of what can be done, anything hashable; empty where the episode ends.
    scenarios
        Functions ``scenario(step, state, action) -> {next_state: probability}``, one or more.  With ``samples`` they
        are simulators, ``scenario(step, state, action, rng) -> next_state``.
    horizon
        Steps of an episode, from 0 to ``horizon - 1``.  What follows the last action is the end, whatever it is:
        scenarios are not asked for it.
    cost_range
        The lowest and the highest cost of one step, in your units.  Nothing is charged after an early end, nor for the
        draw of a random start.  If the process has either, the range is widened to hold 0; see :attr:`cost_range`.
    shared
        Whether reality mixes the scenarios with the same weights in every step.
    samples
        How often to call each simulator for every state and action.  Probabilities are then off by about
        1 / (2 sqrt(samples)), and a transition that was never drawn is not taken for impossible.
    seed
        Of the simulators' random streams, one for each.
    max_states
        Where to stop with an error.
    progress
        Whether to show a progress bar; by default if building takes more than two seconds and there is a terminal.

    Examples
    --------
    A machine that wears out; running it costs less than a repair, a breakdown ends the shift:

    >>> def actions(step, state):
    ...     return [] if state == "broken" else ["run", "repair"] if state > 0 else ["run"]
    >>> def gentle(step, wear, action):
    ...     return {0: 1.0} if action == "repair" else {wear: 0.5, wear + 1: 0.5}
    >>> def harsh(step, wear, action):
    ...     return {0: 1.0} if action == "repair" else {wear + 1: 0.8, "broken": 0.2}
    >>> process = Process(0, actions, [gentle, harsh], horizon=4, cost_range=(0, 50))
    >>> process.states(2), process.actions(2, 1)
    ([0, 1, 'broken', 2, ENDED], ('run', 'repair'))
    >>> process.model.layer_sizes, process.model.n_actions
    ((1, 3, 5, 6, 1), 2)
    """

    def __init__(
        self,
        start: Any,
        actions: Callable[[int, Any], Sequence[Hashable]],
        scenarios: Sequence[Scenario],
        horizon: int,
        cost_range: tuple[float, float],
        *,
        shared: bool = True,
        samples: int | None = None,
        seed: int = 0,
        max_states: int = 100_000,
        progress: bool | None = None,
    ) -> None:
        if not callable(actions):
            raise InvalidSpecError(
                f"actions is {shown(actions)}, should be a function (step, state) -> list of actions"
            )
        if isinstance(scenarios, (str, Mapping)) or not isinstance(scenarios, Sequence) or not len(scenarios):
            raise InvalidSpecError(f"scenarios is {shown(scenarios)}, should be a list of one function or more")
        for place, scenario in enumerate(scenarios):
            if not callable(scenario):
                raise InvalidSpecError(f"scenarios[{place}] is {shown(scenario)}, should be a function")
        if not isinstance(shared, bool):
            raise InvalidSpecError(f"shared is {shared!r}, should be True or False")
        if samples is not None:
            integer(samples, "samples", 1, InvalidSpecError)
        #: Steps of an episode.
        self.horizon = integer(horizon, "horizon", 1, InvalidSpecError)
        integer(max_states, "max_states", 1, InvalidSpecError)
        low, high = _checked_range(cost_range)
        #: Names of the scenarios: those of the functions, where they tell them apart.
        self.scenario_names = _names(scenarios)
        self._shared, self._sampled = shared, samples is not None
        self._reached: list[Reached]
        self._reached, self._rows = explore(
            start, actions, list(zip(self.scenario_names, scenarios, strict=True)), self.horizon, samples, seed,
            max_states, progress,
        )  # fmt: skip
        #: The layer of step 0: 1 if the start is drawn (layer 0 draws it), else 0.
        self.first_layer = len(self._reached) - self.horizon
        ends = any(kind is not Kind.OPEN for layer in self._reached for kind in layer.kinds)
        #: The lowest and the highest cost of one step.
        self.cost_range = (min(low, 0.0), max(high, 0.0)) if ends else (low, high)
        self._n_actions = max(len(own) for layer in self._reached for own in layer.actions)

    # ------------------------------------------------------------------------- what learners see

    @cached_property
    def _available(self) -> list[NDArray[np.bool_]]:
        """Which actions there are, a list over layers of ``(S_h, A)``."""
        counts = [np.array([len(own) for own in layer.actions]) for layer in self._reached]
        return [np.arange(self._n_actions) < count[:, None] for count in counts]

    @cached_property
    def _charged(self) -> NDArray[np.bool_]:
        """At which pairs somebody acts, and may be charged: a flat vector over pairs."""
        rows = [[kind is Kind.OPEN for kind in layer.kinds] for layer in self._reached]
        return np.concatenate(
            [(np.array(row)[:, None] & mask).ravel() for row, mask in zip(rows, self._available, strict=True)]
        )

    @cached_property
    def base_kernels(self) -> list[list[Any]]:
        """Of each scenario a list over layers of sparse rows ``(S_h * A, S_{h+1})``; action i is a state's i-th."""
        from scipy.sparse import csr_array

        kernels: list[list[Any]] = []
        built: dict[bytes, Any] = {}
        for scenario in range(len(self.scenario_names)):
            kernel: list[Any] = []
            for h, mask in enumerate(self._available):
                rows = self._rows[h][scenario]
                width = len(self._reached[h + 1].states) if h + 1 < len(self._reached) else 1
                # Layers (and scenarios) with the same rows share one matrix: a process often comes to rest.
                state = hashlib.sha256(repr((mask.shape, width)).encode())
                for part in (mask, *rows):
                    state.update(np.ascontiguousarray(part).data)
                key = state.digest()
                if key in built:
                    kernel.append(built[key])
                    continue
                counts = np.zeros(mask.size, dtype=np.int64)
                counts[mask.ravel()] = rows.counts
                pointers = np.concatenate([[0], np.cumsum(counts)])
                matrix = csr_array((rows.probabilities, rows.nexts, pointers), shape=(mask.size, width))
                matrix.sort_indices()
                built[key] = matrix
                kernel.append(matrix)
            kernels.append(kernel)
        return kernels

    @cached_property
    def model(self) -> LinearMixtureModel:
        """What learners are told: the scenarios' probabilities, which actions there are, and nothing of the truth."""
        return LinearMixtureModel._mixture(self.base_kernels, not self._sampled, self._shared, self._available)

    def mdp(self, weights: Sequence[ArrayLike] | ArrayLike) -> LinearMixtureMDP:
        """The world in which the scenarios are mixed with these weights, for simulation.

        ``weights`` are d numbers that sum to one, or such a vector for each step, ``(horizon, d)``.
        """
        table = float_array(weights, "weights", InvalidMDPError)
        if table.ndim == 2 and len(table) == self.horizon and self.first_layer:
            table = np.concatenate([table[:1], table])  # all scenarios draw the start alike: any weights do
        kernels, scene = self.base_kernels, self.scene
        return LinearMixtureMDP.from_kernels(kernels, table, self._shared, available=self._available, scene=scene)

    @cached_property
    def scene(self) -> Scene:
        """Readable names, for drawings."""
        states = [[_name(state) for state in layer.states] for layer in self._reached]
        used: list[set[str]] = [set() for _ in range(self._n_actions)]
        both = (zip(layer.actions, layer.kinds, strict=True) for layer in self._reached)
        for own in {own for pairs in both for own, kind in pairs if kind is Kind.OPEN}:
            for place, action in enumerate(own):
                used[place].add(_name(action))
        names = [next(iter(each)) if len(each) == 1 else f"action {place}" for place, each in enumerate(used)]
        return Scene(states=[*states, ["end"]], actions=names)

    @property
    def n_states(self) -> int:
        """States of the model, in all layers, the end included."""
        return sum(len(layer.states) for layer in self._reached) + 1

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What an agent's file is compared with: sizes, range of costs, and hashes.

        One is of masks and probabilities, one of states and actions in their order, as far as their names last.
        """
        state = hashlib.sha256()
        for mask in self._available:
            state.update(np.packbits(mask).tobytes())
        for kernel in self.base_kernels:
            for matrix in kernel:
                for part in (matrix.indptr.astype("<i8"), matrix.indices.astype("<i8"), matrix.data.astype("<f8")):
                    state.update(part.tobytes())
        names = hashlib.sha256()
        for layer in self._reached:
            for each, own in zip(layer.states, layer.actions, strict=True):
                names.update(f"{lasting(each)}: {lasting(own)}\n".encode())
        sizes = [len(layer.states) for layer in self._reached]
        return {
            "layer_sizes": [*sizes, 1],
            "n_actions": self._n_actions,
            "scenarios": len(self.scenario_names),
            "cost_range": list(self.cost_range),
            "shared": self._shared,
            "probabilities": state.hexdigest(),
            "names": names.hexdigest(),
        }

    # --------------------------------------------------------------------- from names to numbers

    def states(self, step: int) -> list[Any]:
        """The states of a step, in the model's order; episodes that ended earlier wait in ``ENDED``."""
        return list(self._at(step).states)

    def actions(self, step: int, state: Any) -> tuple[Any, ...]:
        """What can be done in a state, in the order of the model's actions; nothing where an episode ends."""
        layer = self._at(step)
        place = self.index(step, state)
        return layer.actions[place] if layer.kinds[place] is Kind.OPEN else ()

    def index(self, step: int, state: Any) -> int:
        """The number of a state in the model's layer ``first_layer + step``."""
        place = self._at(step).find(state)
        if place is None:
            raise InvalidEpisodeError(
                f"step {step}: state {shown(state)} cannot be reached; {self._known_states(step)} (all of them: "
                f"states({step}))"
            )
        return place

    def _at(self, step: int) -> Reached:
        if integer(step, "step", 0, InvalidEpisodeError) >= self.horizon:
            raise InvalidEpisodeError(f"step {step} does not exist, should be from 0 to {self.horizon - 1}")
        return self._reached[self.first_layer + step]

    def _known_states(self, step: int, numbers: Sequence[int] | None = None) -> str:
        """Some states of a step in words, for messages."""
        states = self._at(step).states
        chosen = [states[i] for i in (range(len(states)) if numbers is None else numbers)]
        some = ", ".join(shown(state) for state in chosen[:5])
        rest = f" and {len(chosen) - 5} more" if len(chosen) > 5 else ""
        return f"known: {some}{rest}"

    def _successors(self, layer: int, state: int, action: int) -> list[int]:
        """Numbers of the states of the next layer that some scenario leads to."""
        pair = state * self._n_actions + action
        found: set[int] = set()
        for kernel in self.base_kernels:
            matrix = kernel[layer]
            found.update(matrix.indices[matrix.indptr[pair] : matrix.indptr[pair + 1]].tolist())
        return sorted(found)

    def policy(self, function: Callable[[int, Any], Any]) -> list[FloatArray]:
        """A policy of your own as a list over layers of ``(S_h, A)``.

        ``function(step, state)`` is an action, or ``{action: probability}``.
        """
        tables = [np.zeros((len(layer.states), self._n_actions)) for layer in self._reached]
        for h, (layer, table) in enumerate(zip(self._reached, tables, strict=True)):
            for place, (state, kind) in enumerate(zip(layer.states, layer.kinds, strict=True)):
                if kind is not Kind.OPEN:
                    table[place, 0] = 1.0
                    continue
                step = h - self.first_layer
                where = f"policy, step {step}, state {shown(state)}"
                chosen = _called(function, where, step, state)
                shares = chosen if isinstance(chosen, Mapping) else {chosen: 1.0} if hashable(chosen) else None
                if shares is None:
                    raise InvalidMDPError(f"{where}: {shown(chosen)} is no action, nor {{action: probability}}")
                for action, share in shares.items():
                    probability = number(share)
                    if probability is None or not 0.0 <= probability <= 1.0 + 1e-9:
                        raise InvalidMDPError(
                            f"{where}, action {shown(action)}: probability {shown(share)} is not a number in [0, 1]"
                        )
                    table[place, self._action(layer, place, action, where)] = probability
                total = float(table[place].sum())
                if not abs(total - 1.0) <= 1e-9:
                    raise InvalidMDPError(f"{where}: probabilities sum to {total:.12g}, should be 1")
                table[place] /= total
        return tables

    def losses(self, function: Callable[[int, Any, Any], float]) -> list[FloatArray]:
        """Costs as losses in [0, 1], a list over layers of ``(S_h, A)``; 0 for actions that there are not.

        ``function(step, state, action)`` is the cost in your units.
        """
        return self._tables("losses", self._free, lambda where, *pair: self._checked_loss(function, where, *pair))

    def groups(self, function: Callable[[int, Any, Any], Any]) -> list[FloatArray]:
        """Which actions have the same cost in every episode: the option ``groups`` of learners that can use it.

        ``function(step, state, action)`` is anything that is hashable: where it is the same, the cost is.
        """
        labels: dict[Any, int] = {}

        def label(where: str, *pair: Any) -> int:
            key = _called(function, where, *pair)
            if not hashable(key):
                raise InvalidMDPError(f"{where}: {shown(key)} is not hashable, so it names no group")
            return labels.setdefault(key, len(labels) + 1)

        return self._tables("groups", 0.0, label)

    def _tables(self, what: str, ended: float, entry: Callable[..., float]) -> list[FloatArray]:
        """A list over layers of ``(S_h, A)``: ``entry(where, step, state, action)`` for every action that there is,
        ``ended`` for episodes that have ended."""
        tables = [np.zeros((len(layer.states), self._n_actions)) for layer in self._reached]
        for h, (layer, table) in enumerate(zip(self._reached, tables, strict=True)):
            for place, (state, kind) in enumerate(zip(layer.states, layer.kinds, strict=True)):
                if kind is not Kind.OPEN:
                    table[place, 0] = ended
                    continue
                step = h - self.first_layer
                for column, action in enumerate(layer.actions[place]):
                    where = f"{what}, step {step}, state {shown(state)}, action {shown(action)}"
                    table[place, column] = entry(where, step, state, action)
        return tables

    def _checked_loss(self, function: Callable[[int, Any, Any], float], where: str, *pair: Any) -> float:
        cost = _called(function, where, *pair)
        loss = self._loss(cost)
        if loss is None or not 0.0 <= loss <= 1.0:
            low, high = self.cost_range
            raise InvalidMDPError(f"{where}: cost {shown(cost)} is not a number in [{low:g}, {high:g}]")
        return loss

    def _loss(self, cost: Any) -> float | None:
        """A cost in your units as a loss, in [0, 1] if it is in range; None if it is not a number."""
        value = number(cost)
        low, high = self.cost_range
        if value is None:
            return None
        if value == high:  # exactly one, whatever rounding does
            return 1.0
        return (value - low) / (high - low)

    @property
    def _free(self) -> float:
        """The loss that stands for a cost of 0."""
        low, high = self.cost_range
        return 1.0 if high == 0.0 else (0.0 - low) / (high - low)

    @staticmethod
    def _action(layer: Reached, place: int, action: Any, where: str) -> int:
        position = layer.position(place, action)
        if position is None:
            names = ", ".join(shown(each) for each in layer.actions[place][:8])
            raise InvalidEpisodeError(f"{where}: there is no action {shown(action)}; available: {names}")
        return position

    def __repr__(self) -> str:
        return (
            f"Process({len(self.scenario_names)} scenarios, horizon={self.horizon}, n_states={self.n_states}, "
            f"cost_range={self.cost_range})"
        )


def lasting(thing: Any) -> str:
    """What stays the same of a state or an action from one run of a program to the next."""
    if isinstance(thing, Enum):
        return f"{type(thing).__qualname__}.{thing.name}"
    if isinstance(thing, np.generic):
        thing = thing.item()
    if thing is None or isinstance(thing, (str, bytes, bool, int, float, complex)):
        return repr(thing)
    if isinstance(thing, frozenset):
        return f"{{{', '.join(sorted(map(lasting, thing)))}}}"
    if isinstance(thing, tuple):
        return f"({', '.join(map(lasting, thing))})"
    return type(thing).__qualname__  # its repr may hold an address


def _checked_range(given: Any) -> tuple[float, float]:
    try:
        low, high = given
    except (TypeError, ValueError):
        low = high = None
    values = number(low), number(high)
    if values[0] is None or values[1] is None or not 0.0 < values[1] - values[0] < np.inf:
        raise InvalidSpecError(f"cost_range is {shown(given)}, should be two finite numbers (low, high), low < high")
    return values[0], values[1]


def _names(scenarios: Sequence[Scenario]) -> tuple[str, ...]:
    given = [getattr(scenario, "__name__", "") for scenario in scenarios]
    return tuple(
        name if name and name != "<lambda>" and given.count(name) == 1 else f"scenario {place}"
        for place, name in enumerate(given)
    )


def _name(thing: Any) -> str:
    if isinstance(thing, Enum) and thing in (ENDED, START):
        return repr(thing)
    return thing if isinstance(thing, str) else shown(thing)


def _called(function: Callable[..., Any], where: str, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise InvalidMDPError(f"{where}: the function raised {type(error).__name__}: {error}") from error
