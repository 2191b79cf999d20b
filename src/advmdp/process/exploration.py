"""Which states of a process can be reached, and the rows of every scenario, by breadth-first search."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from advmdp.errors import InvalidMDPError
from advmdp.layered import TOLERANCE, FloatArray, IntArray
from advmdp.seeding import Stream, sequence

Scenario = Callable[..., Any]
#: Building for longer than this, in seconds, shows how far it is.
PATIENCE = 2.0
#: Layers of more states than this are put into the order of the layer before, if they have the same states.
LARGE = 1000


class _Mark(Enum):
    """States that are no user's; they equal nothing that a user can write."""

    ENDED = "ENDED"
    START = "START"

    def __repr__(self) -> str:
        return self.value


#: Where an episode waits that ended early.
ENDED = _Mark.ENDED
#: From where the start is drawn.
START = _Mark.START


class Kind(Enum):
    """What can happen in a state: the user acts, or nobody does."""

    OPEN = "open"
    #: The user's, without actions: an episode ends there.
    FINAL = "final"
    #: ENDED or START.
    OURS = "ours"


@dataclass(frozen=True, eq=False)
class Reached:
    """The states of a layer, in the order in which they were found."""

    states: tuple[Any, ...]
    numbers: dict[Any, int]
    #: The actions of each; one dummy where there is none.
    actions: list[tuple[Any, ...]]
    kinds: list[Kind]
    #: Position of every action, for each of the few tuples that ``actions`` is made of.
    positions: dict[tuple[Any, ...], dict[Any, int]]

    def find(self, state: Any) -> int | None:
        """The number of a state, or None."""
        try:
            return self.numbers.get(state)
        except TypeError:  # not hashable
            return None

    def position(self, place: int, action: Any) -> int | None:
        """The number of an action of a state, or None."""
        try:
            return self.positions[self.actions[place]].get(action)
        except TypeError:
            return None


class Rows(NamedTuple):
    """The rows of one scenario in one layer, of the actions that there are."""

    #: Next states of each row.
    counts: IntArray
    nexts: IntArray
    probabilities: FloatArray


#: What a state without actions has instead, so that every row of a policy sums to one.
NOTHING: tuple[Any, ...] = (None,)


def explore(
    start: Any,
    actions: Callable[[int, Any], Sequence[Hashable]],
    scenarios: Sequence[tuple[str, Scenario]],
    horizon: int,
    samples: int | None,
    seed: int,
    max_states: int,
    progress: bool | None,
) -> tuple[list[Reached], list[list[Rows]]]:
    """The states of every layer before the end, and for each layer the rows of each scenario."""
    search = _Search(actions, scenarios, samples, seed, max_states)
    layers: list[Reached] = []
    rows: list[list[Rows]] = []
    if isinstance(start, Mapping):
        found: dict[Any, int] = {}
        first = _Builder()
        first.add(*search.parsed(start, found, "start", 0))
        layers.append(Reached((START,), {START: 0}, [NOTHING], [Kind.OURS], {NOTHING: {None: 0}}))
        rows.append([first.rows()] * len(scenarios))
    else:
        _check_hashable(start, "start")
        found = {start: 0}
    with _Meter(progress, horizon) as meter:
        for step in range(horizon):
            layer = search.layer(step, found)
            if step == 0 and all(kind is not Kind.OPEN for kind in layer.kinds):
                raise InvalidMDPError(f"step 0: no start has actions ({shown(start)}): there is nothing to decide")
            found = {}
            layers.append(layer)
            if step == horizon - 1:  # whatever follows is the end
                count = sum(len(own) for own in layer.actions)
                last = Rows(np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64), np.ones(count))
                rows.append([last] * len(scenarios))
            else:
                rows.append(search.rows(step, layer, found, meter))
                if len(found) > LARGE and found.keys() == layer.numbers.keys():
                    # In the same order as before, so that rows that do not depend on the step are equal and kept once.
                    order = np.array([layer.numbers[state] for state in found])
                    rows[-1] = [each._replace(nexts=order[each.nexts]) for each in rows[-1]]
                    found = layer.numbers
    return layers, rows


class _Builder:
    """Rows as they are found; plain lists, which grow faster than arrays."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.nexts: list[int] = []
        self.probabilities: list[float] = []

    def add(self, nexts: list[int], probabilities: list[float]) -> None:
        self.counts.append(len(nexts))
        self.nexts += nexts
        self.probabilities += probabilities

    def rows(self) -> Rows:
        nexts = np.array(self.nexts, dtype=np.int64)
        return Rows(np.array(self.counts, dtype=np.int64), nexts, np.array(self.probabilities, dtype=np.float64))


class _Search:
    def __init__(
        self, actions: Any, scenarios: Sequence[tuple[str, Scenario]], samples: int | None, seed: int, max_states: int
    ) -> None:
        self._ask, self._scenarios, self._samples, self._max_states = actions, scenarios, samples, max_states
        self._positions: dict[tuple[Any, ...], dict[Any, int]] = {NOTHING: {None: 0}}
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._earlier = 0
        streams = sequence(seed, Stream.SIMULATORS).spawn(len(scenarios)) if samples is not None else []
        self._rngs = [np.random.default_rng(stream) for stream in streams]

    def layer(self, step: int, found: dict[Any, int]) -> Reached:
        """The states that were found, with their actions."""
        own, kinds = [], []
        for state in found:
            if state is ENDED:
                own.append(NOTHING)
                kinds.append(Kind.OURS)
                continue
            given = self._actions(step, state)
            own.append(given or NOTHING)
            kinds.append(Kind.OPEN if given else Kind.FINAL)
        self._earlier += len(found)
        return Reached(tuple(found), found, own, kinds, self._positions)

    def _actions(self, step: int, state: Any) -> tuple[Any, ...]:
        try:
            given = self._ask(step, state)
        except Exception as error:
            where = f"actions, step {step}, state {shown(state)}"
            raise InvalidMDPError(f"{where}: the function raised {type(error).__name__}: {error}") from error
        if not isinstance(given, (list, tuple)):
            raise InvalidMDPError(
                f"actions, step {step}, state {shown(state)}: {shown(given)} should be a list (empty: the episode ends)"
            )
        key = tuple(given)
        try:
            known = self._tuples.get(key)
        except TypeError:
            bad = next(action for action in key if not hashable(action))
            raise InvalidMDPError(
                f"actions, step {step}, state {shown(state)}: action {shown(bad)} is not hashable; a tuple is"
            ) from None
        if known is None:
            positions = {action: place for place, action in enumerate(key)}
            if len(positions) != len(key):
                twice = next(action for place, action in enumerate(key) if positions[action] != place)
                raise InvalidMDPError(
                    f"actions, step {step}, state {shown(state)}: action {shown(twice)} stands there twice"
                )
            known = self._tuples[key] = key
            if key:
                self._positions[key] = positions
        return known

    def rows(self, step: int, layer: Reached, found: dict[Any, int], meter: _Meter) -> list[Rows]:
        """The rows of all scenarios, while ``found`` collects the states that they lead to."""
        builders = [_Builder() for _ in self._scenarios]
        for place, state in enumerate(layer.states):
            if place % 64 == 0:
                meter.show(step, place / len(layer.states), self._earlier + len(found))
            if layer.kinds[place] is not Kind.OPEN:
                waiting = [found.setdefault(ENDED, len(found))]
                for builder in builders:
                    builder.add(waiting, [1.0])
                continue
            for action in layer.actions[place]:
                for which, builder in enumerate(builders):
                    row = self._row(which, step, state, action)
                    # Not a call of `parsed` for what is right: this loop is what takes the time.
                    size, total = len(builder.nexts), 0.0
                    nexts, probabilities = builder.nexts, builder.probabilities
                    try:
                        for following, p in row.items():
                            if p > 0.0:
                                nexts.append(found.setdefault(following, len(found)))
                                probabilities.append(p)
                                total += p
                            elif p != 0.0:
                                total = np.nan
                        right = not isinstance(total, np.ndarray) and abs(total - 1.0) <= TOLERANCE
                    except Exception:
                        right = False
                    if not right:
                        name = self._scenarios[which][0]
                        where = f"{name}, step {step}, state {shown(state)}, action {shown(action)}"
                        del nexts[size:], probabilities[size:]
                        builder.add(*self.parsed(row, found, where, step + 1))
                    else:
                        builder.counts.append(len(nexts) - size)
                if self._earlier + len(found) > self._max_states:
                    self._too_many(step + 1, len(found))
        return [builder.rows() for builder in builders]

    def _row(self, which: int, step: int, state: Any, action: Any) -> Any:
        name, scenario = self._scenarios[which]
        try:
            if self._samples is None:
                return scenario(step, state, action)
            counts: dict[Any, int] = {}
            rng = self._rngs[which]
            for _ in range(self._samples):
                following = scenario(step, state, action, rng)
                if not hashable(following):
                    break
                counts[following] = counts.get(following, 0) + 1
            else:
                return {following: count / self._samples for following, count in counts.items()}
        except Exception as error:
            where = f"{name}, step {step}, state {shown(state)}, action {shown(action)}"
            raise InvalidMDPError(f"{where}: the function raised {type(error).__name__}: {error}") from error
        where = f"{name}, step {step}, state {shown(state)}, action {shown(action)}"
        raise InvalidMDPError(f"{where}: next state {shown(following)} is not hashable; a tuple is")

    def parsed(self, row: Any, found: dict[Any, int], where: str, step: int) -> tuple[list[int], list[float]]:
        """Numbers and probabilities of next states, or the error that says what is wrong with a row."""
        if not isinstance(row, Mapping):
            raise InvalidMDPError(f"{where}: {shown(row)} should be a dict {{state: probability}}")
        nexts, probabilities = [], []
        for following, given in row.items():
            p = number(given)
            if p is None or not 0.0 <= p < np.inf:
                raise InvalidMDPError(
                    f"{where}: probability {shown(given)} of state {shown(following)} is not a number >= 0"
                )
            if p > 0.0:
                nexts.append(found.setdefault(following, len(found)))
                probabilities.append(p)
        total = sum(probabilities)
        if not abs(total - 1.0) <= TOLERANCE:
            raise InvalidMDPError(f"{where}: probabilities sum to {total:.12g}, should be 1 (within {TOLERANCE:g})")
        if self._earlier + len(found) > self._max_states:
            self._too_many(step, len(found))
        return nexts, probabilities

    def _too_many(self, step: int, here: int) -> None:
        raise InvalidMDPError(
            f"step {step}: more than max_states={self._max_states:,} states can be reached ({here:,} so far in this "
            "step alone): describe states more coarsely, shorten the horizon, or raise max_states"
        )


class _Meter:
    """A bar that appears when building takes long."""

    def __init__(self, wanted: bool | None, horizon: int) -> None:
        self._from = 0.0 if wanted else PATIENCE
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._horizon, self._began = horizon, time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> _Meter:
        return self

    def show(self, step: int, share: float, states: int) -> None:
        if not self._wanted or time.monotonic() - self._began < self._from:
            return
        if self._bar is None:
            from rich.console import Console  # slow to import, and seldom needed
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("building the process"), BarColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._horizon)
        self._bar.update(self._task, completed=step + share, description=f"step {step}, {states:,} states")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def number(value: Any) -> float | None:
    """A real number as a float; None for anything else, truth values and NaN included."""
    if isinstance(value, (Real, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_)):
        try:
            converted = float(value)
        except OverflowError:
            return None
        return None if converted != converted else converted
    return None


def shown(thing: Any) -> str:
    """A user's thing in a message: one line, not too long."""
    try:
        text = " ".join(repr(thing).split())
    except Exception as error:
        text = f"<{type(thing).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= 80 else f"{text[:77]}..."


def hashable(thing: Any) -> bool:
    """Whether it can be a state or an action."""
    try:
        hash(thing)
    except TypeError:
        return False
    return True


def _check_hashable(thing: Any, what: str) -> None:
    if not hashable(thing):
        raise InvalidMDPError(f"{what} is {shown(thing)}, which is not hashable; a tuple is")
