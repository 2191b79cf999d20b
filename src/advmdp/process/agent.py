"""A learner at work in somebody's own system: own states in, own actions out, costs as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from advmdp import storage
from advmdp._checks import integer
from advmdp.episodes import Episode, draw
from advmdp.errors import CorruptCheckpointError, InvalidEpisodeError, InvalidSpecError
from advmdp.layered import FloatArray, LinearMixtureModel, problem_tree
from advmdp.layered.rows import same_rows
from advmdp.learners import Learner, make_learner
from advmdp.learners.base import learner_from_document
from advmdp.occupancy import check_policy
from advmdp.process.explanation import Explanation, explain
from advmdp.process.exploration import ENDED, Kind, number, shown
from advmdp.process.guard import COIN, Guard, ratios
from advmdp.process.record import Record
from advmdp.process.space import Process
from advmdp.registry import learners
from advmdp.seeding import IndexedGenerator, Stream

FILE_VERSION = 1


class Agent:
    """A learner with a process: begin an episode, act in it, tell what it cost, end it.

    Several episodes may be open at once.  Each is played with the policy of the moment when it began, and the
    agent learns from it when it ends.  Nothing is proved about overlap.  Learners that need all costs of an episode at
    once (``learner.partial`` is False) allow one open episode only.  An agent belongs to one thread.

    Parameters
    ----------
    process
        The process.
    learner
        The name of a learner, or one that was made for ``process.model``.
    baseline
        A policy that works today: a function ``(step, state)`` that returns an action or ``{action: probability}``, or
        a list over layers of ``(S_h, A)``.  Learners with experts make it one of them, learners that can begin with a
        policy begin with it.
    slack
        With a baseline: turns the guard on, which plays the baseline whenever more than ``1 + slack`` times its cost
        was lost so far (costs counted from the low end of ``process.cost_range``).  What that promises, and what it
        costs, is in ``docs/guides/your-process.md``.
    seed
        Of all random numbers of the agent.
    clip
        Whether to cut costs that are out of range, and count them in :attr:`clipped`; else they are errors.
    wait
        Whether costs not told by the end of an episode come later; :meth:`OpenEpisode.end` can say it of each.
    options
        Of the learner, if it is given by name.

    Examples
    --------
    >>> from advmdp import Process
    >>> process = Process("home", lambda step, place: ["bus", "car"], [
    ...     lambda step, place, action: {"late": 0.5, "in time": 0.5},
    ...     lambda step, place, action: {"late": 0.1, "in time": 0.9} if action == "bus" else {"late": 1.0},
    ... ], horizon=2, cost_range=(0, 20))
    >>> agent = Agent(process, "planner")
    >>> episode = agent.begin()
    >>> action = episode.act("home")
    >>> episode.cost(4.5)
    >>> action = episode.act("in time")
    >>> episode.cost(3)
    >>> episode.end()
    >>> agent.episodes_seen
    1
    """

    def __init__(
        self,
        process: Process,
        learner: str | Learner = "portfolio",
        baseline: Callable[[int, Any], Any] | Sequence[ArrayLike] | None = None,
        slack: float | None = None,
        seed: int = 0,
        clip: bool = False,
        wait: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(process, Process):
            raise InvalidSpecError(f"process is {shown(process)}, should be a Process")
        for name, flag in (("clip", clip), ("wait", wait)):
            if not isinstance(flag, bool):
                raise InvalidSpecError(f"{name} is {flag!r}, should be True or False")
        #: The process.
        self.process = process
        self._layers = process.model.layers
        self._baseline = None if baseline is None else self._checked_baseline(baseline)
        #: The name under which the learner knows the baseline, if it is one of its experts.
        self._expert: str | None = None
        if isinstance(learner, Learner):
            if options:
                raise InvalidSpecError(f"options {sorted(options)} belong to a learner that is given by name")
            made = learner
        else:
            made = make_learner(learner, process.model, seed=seed, **self._options(learner, options, slack))
        if not self._fits(made):
            raise InvalidSpecError(f"learner {made!r} was made for another process than {process!r}")
        if made.feedback == "full":
            raise InvalidSpecError(
                f"learner {made.name!r} needs the losses of all states, and an agent is told costs of what was done"
            )
        if made.feedback == "total" and slack is not None:
            raise InvalidSpecError(f"slack needs the costs of single steps, and learner {made.name!r} is told totals")
        #: The learner.
        self.learner = made
        self.seed, self.clip, self.wait, self.slack = seed, clip, wait, slack
        self._guard = self._checked_guard(slack)
        self._draws = IndexedGenerator(seed, Stream.AGENT)
        self._records: dict[int, Record] = {}
        self._begun = 0
        #: Costs that were out of range and cut.
        self.clipped = 0
        #: Episodes that were abandoned.
        self.abandoned = 0

    def _fits(self, learner: Learner) -> bool:
        """Whether a learner was made for this process: the same shape, masks and scenarios."""
        ours, theirs = self.process.model, learner._problem.model
        if theirs is ours:
            return True
        same = [(ours.layer_sizes, theirs.layer_sizes), (ours.n_actions, theirs.n_actions)]
        pairs: list[tuple[Any, Any]] = list(zip(ours.available, theirs.available, strict=False))
        if isinstance(theirs, LinearMixtureModel):
            same.append((ours.dim, theirs.dim))
            pairs += zip(ours.features, theirs.features, strict=False)
        return all(a == b for a, b in same) and all(same_rows(a, b) for a, b in pairs)

    def _checked_baseline(self, baseline: Any) -> FloatArray:
        table = self.process.policy(baseline) if callable(baseline) else baseline
        flat = self._layers.flatten(table, "baseline")
        check_policy(self._layers, flat, "baseline")
        return flat

    def _checked_guard(self, slack: Any) -> Guard | None:
        if slack is None:
            return None
        if number(slack) is None or not 0.0 <= slack < np.inf:
            raise InvalidSpecError(f"slack is {slack!r}, should be a number >= 0, such as 0.05")
        if self._baseline is None:
            raise InvalidSpecError(f"slack is {slack}, but there is no baseline to be compared with: give one")
        return Guard.empty(float(slack), self._layers.horizon)

    def _options(self, name: str, options: dict[str, Any], slack: float | None) -> dict[str, Any]:
        """Options of a learner that may be told the costs of all actions, and knows the baseline, as far as it can."""
        entry = learners.get(name)
        known = getattr(getattr(entry, "Options", None), "__dataclass_fields__", {})
        if getattr(entry, "predicts", False):  # others have constants that are made for what they are shown
            options = {"feedback": "actions"} | options
        if self._baseline is None:
            return options
        policy = self._layers.split(self._baseline)
        if "experts" in known:
            self._expert = "own 0"
            return options | {"experts": [policy, *(options.get("experts") or ())]}
        if getattr(entry, "takes_start", False) and "start" not in options:
            return options | {"start": policy}
        # One that predicts costs compares itself with the baseline when it explains.
        if slack is None and "start" not in options and not getattr(entry, "predicts", False):
            raise InvalidSpecError(
                f"learner {name!r} has no use for a baseline; portfolio has, and slack= guards any learner with one"
            )
        return options

    def explain(self) -> Explanation:
        """What the agent believes, trusts and expects; some milliseconds to a second."""
        return explain(self)

    # ------------------------------------------------------------------------------- episodes

    def begin(self) -> OpenEpisode:
        """Begin an episode, with the policy of this moment."""
        if not self.learner.partial and self._records:
            other = next(iter(self._records.values()))
            state = "waits for costs" if other.ended else "is under way"
            raise InvalidEpisodeError(
                f"episode {other.number} {state}: learner {self.learner.name!r} needs all of it before the next begins"
            )
        count, player = self._begun, "learner"
        if self._guard is not None:
            if self._guard.active:
                player = "guard"
            elif self._uniform(count, self.process.horizon) < COIN:
                player = "coin"
        self._records[count] = Record(count, player, None if player == "guard" else self.learner.moment)
        self._begun += 1
        return OpenEpisode(self, count)

    def episode(self, number: int) -> OpenEpisode:
        """The handle of an episode that is open or waits for costs."""
        self._record(integer(number, "episode", 0, InvalidEpisodeError))
        return OpenEpisode(self, number)

    @property
    def open(self) -> tuple[int, ...]:
        """Numbers of the episodes that are under way."""
        return tuple(number for number, record in self._records.items() if not record.ended)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Numbers of the episodes that have ended and wait for costs."""
        return tuple(number for number, record in self._records.items() if record.ended)

    @property
    def episodes_seen(self) -> int:
        """Episodes that have ended, whoever played them."""
        return self._begun - self.abandoned - len(self.open)

    @property
    def guard_plays(self) -> int:
        """Episodes that the baseline played for the guard or its coin, including abandoned ones."""
        return 0 if self._guard is None else self._guard.sure_episodes + self._guard.coins

    def _uniform(self, number: int, place: int) -> float:
        """A random number that depends on the episode and the step alone, not on what was asked before."""
        return float(self._draws.at(number * (self.process.horizon + 1) + place).random())

    def _record(self, number: int) -> Record:
        record = self._records.get(number)
        if record is None:
            state = "is over" if number < self._begun else "has not begun"
            raise InvalidEpisodeError(
                f"episode {number} {state}; open: {list(self.open)}, waiting: {list(self.waiting)}"
            )
        return record

    def _policy(self, record: Record) -> FloatArray:
        if record.player == "learner":
            policy: FloatArray = record.moment.policy
            return policy
        assert self._baseline is not None
        return self._baseline

    def _place(self, record: Record, state: Any) -> int:
        """The number of a state in the layer that is next, if it can be there."""
        process, step = self.process, len(record.actions)
        layer = process.first_layer + step
        place = process._reached[layer].find(state)
        where = f"episode {record.number}, step {step}: state {shown(state)}"
        if layer == 0:
            before: tuple[int, int] | None = None
        else:
            before = (record.states[-1], record.actions[-1]) if step else (0, 0)
        if before is None or (place is not None and process._sampled):
            if place is None:
                raise InvalidEpisodeError(f"{where} is not the start; {process._known_states(step)}")
            return place
        possible = process._successors(layer - 1, *before)
        if place is None or place not in possible:
            known = process._known_states(step, possible)
            if step == 0:
                raise InvalidEpisodeError(f"{where} is no start; {known}")
            last = process._reached[layer - 1]
            acted = f"action {shown(last.actions[before[0]][before[1]])} in state {shown(last.states[before[0]])}"
            unknown = " (it is in no scenario)" if place is None else ""
            raise InvalidEpisodeError(
                f"{where} cannot follow {acted}{unknown}; {known}; each act is one step further, with or without a cost"
            )
        return place

    def _act(self, record: Record, state: Any, due: int | None) -> Any:
        process, step = self.process, len(record.actions)
        where = f"episode {record.number}, step {step}"
        if due is not None and due != step:
            raise InvalidEpisodeError(f"{where} is due, and an action for step {due!r} was asked for")
        if step == process.horizon:
            raise InvalidEpisodeError(f"{where}: the episode has only {step} steps; call end()")
        place = self._place(record, state)
        layer = process._reached[process.first_layer + step]
        if layer.kinds[place] is not Kind.OPEN:
            raise InvalidEpisodeError(f"{where}: state {shown(state)} has no actions, the episode ends there; call end")
        width = self._layers.n_actions
        first = int(self._layers.pair_offsets[process.first_layer + step]) + place * width
        action = int(draw(self._policy(record), first, width, self._uniform(record.number, step)))
        record.states.append(place)
        record.actions.append(action)
        record.losses.append(None)
        return layer.actions[place][action]

    def _loss(self, record: Record, step: int, value: Any) -> tuple[float, bool]:
        """A cost as a loss, and whether it was cut."""
        loss = self.process._loss(value)
        if loss is None:
            raise InvalidEpisodeError(
                f"{self._where(record, step)}: cost {shown(value)} is not a number (leave out what was not seen)"
            )
        if 0.0 <= loss <= 1.0:
            return loss, False
        if not self.clip:
            low, high = self.process.cost_range
            raise InvalidEpisodeError(
                f"{self._where(record, step)}: cost {value} is outside cost_range [{low:g}, {high:g}]; make the "
                "range of the Process wider, or cut such costs with Agent(clip=True)"
            )
        return min(max(loss, 0.0), 1.0), True

    def _where(self, record: Record, step: int) -> str:
        layer = self.process._reached[self.process.first_layer + step]
        state = record.states[step]
        action = layer.actions[state][record.actions[step]]
        return f"episode {record.number}, step {step}, state {shown(layer.states[state])}, action {shown(action)}"

    def _cost(self, record: Record, step: int, value: Any) -> None:
        known = record.losses[step]
        if known is not None:
            before = "is not waited for" if np.isnan(known) else "was told before"
            raise InvalidEpisodeError(f"{self._where(record, step)}: its cost {before}")
        loss, cut = self._loss(record, step, value)
        if record.ended:
            self._late(record, step, loss)
        record.losses[step] = loss
        self.clipped += cut
        if record.ended and None not in record.losses:
            del self._records[record.number]

    def _costs(self, record: Record, values: Any) -> None:
        step = len(record.actions) - 1
        layer, place = self.process._reached[self.process.first_layer + step], record.states[step]
        if not isinstance(values, Mapping):
            raise InvalidEpisodeError(f"{self._where(record, step)}: {shown(values)} should be a dict {{action: cost}}")
        row, cuts, taken = np.full(self._layers.n_actions, np.nan), 0, record.actions[step]
        for action, value in values.items():
            position = layer.position(place, action)
            if position is None:
                names = ", ".join(shown(each) for each in layer.actions[place][:8])
                raise InvalidEpisodeError(
                    f"{self._where(record, step)}: there is no action {shown(action)} here; available: {names}"
                )
            row[position], cut = self._loss(record, step, value)
            cuts += cut
        if record.losses[step] is not None or step in record.others:
            raise InvalidEpisodeError(f"{self._where(record, step)}: its cost was told before")
        if not np.isnan(row[taken]):
            record.losses[step] = float(row[taken])
        record.others[step] = row
        self.clipped += cuts

    def _total(self, record: Record, cost: Any) -> tuple[float | None, bool]:
        """The total cost of an episode as the sum of its losses, of steps left out by an early end too; whether cut."""
        if cost is None:
            return None, False
        where = f"episode {record.number}, total cost {shown(cost)}"
        if self.learner.feedback != "total":
            raise InvalidEpisodeError(f"{where}: learner {self.learner.name!r} needs the costs of single steps")
        value, horizon, (low, high) = number(cost), self._layers.horizon, self.process.cost_range
        if value is None:
            raise InvalidEpisodeError(f"{where} is not a number")
        total = (value - horizon * low) / (high - low)
        cut = not -1e-12 <= total / horizon <= 1.0 + 1e-12
        if cut and not self.clip:
            raise InvalidEpisodeError(
                f"{where} is outside [{horizon * low:g}, {horizon * high:g}], {horizon} times cost_range; make the "
                "range of the Process wider, or cut such costs with Agent(clip=True)"
            )
        return min(max(total, 0.0), float(horizon)), cut

    def _end(self, record: Record, state: Any, wait: frozenset[int], total: Any = None) -> None:
        process, steps = self.process, len(record.actions)
        where = f"episode {record.number}, step {steps}"
        states, actions, losses = [*record.states], [*record.actions], [*record.losses]
        if steps < process.horizon:
            if state is None and process._at(steps).find(None) is None:
                raise InvalidEpisodeError(
                    f"{where}: the episode has {process.horizon} steps; to end it here say in which state, or abandon"
                )
            place = self._place(record, state)
            kind = process._at(steps).kinds[place]
            if kind is Kind.OPEN:
                raise InvalidEpisodeError(f"{where}: state {shown(state)} has actions, the episode goes on; call act")
            rest = range(steps + 1, process.horizon)
            states += [place, *(process._at(h).numbers[ENDED] for h in rest)]
            actions += [0] * (process.horizon - steps)
            losses += [process._free] * (process.horizon - steps)
        whole, cut = self._total(record, total)
        if total is not None:
            wait = frozenset()
        unseen = [h for h, loss in enumerate(losses) if loss is None and h not in wait]
        if unseen and total is None and not self.learner.partial and record.player == "learner":
            raise InvalidEpisodeError(
                f"{self._where(record, unseen[0])}: its cost was not told, and learner {self.learner.name!r} needs "
                "every cost; tell it, or end with wait=True and tell it later"
            )
        for h in unseen:
            losses[h] = np.nan
        if process.first_layer:
            states, actions, losses = [0, *states], [0, *actions], [process._free, *losses]
        told = None
        others = self._others(record, losses) if self.learner.feedback == "actions" and record.others else None
        if record.player == "learner":
            told = self.learner.episodes_seen + self.learner.skipped
            self.learner.update(
                Episode(states, actions, losses, action_losses=others, total=whole), played=record.moment
            )
        else:
            self.learner.observe(Episode(states, actions, losses, action_losses=others))
        self.clipped += cut
        record.ended, record.told, record.path = True, told, (states, actions)
        self._weigh(record, losses)
        record.moment, record.others = None, {}
        for h in unseen:
            if h < steps:
                record.losses[h] = np.nan
        if not wait:
            del self._records[record.number]

    def _others(self, record: Record, losses: Sequence[float | None]) -> list[FloatArray]:
        rows = [np.full(self._layers.n_actions, np.nan) for _ in losses]
        for step, row in record.others.items():
            rows[self.process.first_layer + step] = row
        return rows

    def _weigh(self, record: Record, losses: Sequence[float | None]) -> None:
        """Tell the guard about an episode, as far as it went."""
        if self._guard is None:
            return
        assert record.path is not None
        told = np.nan_to_num(np.array(losses, dtype=np.float64))  # what was not told counts as nothing
        if record.player == "guard":
            self._guard = self._guard.sure_episode(float(told.sum()))
            return
        offsets, width = self._layers.pair_offsets[: told.size], self._layers.n_actions
        states, actions = np.array(record.path, dtype=np.int64)
        pairs = offsets + states * width + actions
        assert self._baseline is not None
        record.ratios = ratios(self._baseline[pairs], record.moment.policy[pairs])
        record.y = float(record.ratios @ told)
        self._guard = self._guard.other_episode(record.y, float(told.sum()), record.player == "coin")

    def _late(self, record: Record, step: int, loss: float) -> None:
        """A cost of an episode that has ended."""
        layer, path = self.process.first_layer + step, record.path
        assert path is not None
        if record.told is None:
            seen = np.full(self._layers.horizon, np.nan)
            seen[layer] = loss
            self.learner.observe_losses(Episode(*path, seen))
        else:
            news: list[float | None] = [None] * self._layers.horizon
            if self.learner.partial:
                news[layer] = loss
                self.learner.tell(record.told, news)
            elif sum(each is None for each in record.losses) == 1:  # it needs all of them at once
                for h, each in enumerate(record.losses):
                    news[self.process.first_layer + h] = loss if h == step else each
                self.learner.tell(record.told, [np.nan if each is None else each for each in news])
        if self._guard is not None and record.player == "guard":
            self._guard = self._guard._replace(sure=self._guard.sure + loss)
        elif self._guard is not None:
            assert record.ratios is not None
            y = record.y + float(record.ratios[layer]) * loss
            self._guard = self._guard.corrected(record.y, y, loss)
            record.y = y

    def _abandon(self, record: Record) -> None:
        if record.ended:  # what has not come will not come
            if record.told is not None and self.learner.partial:
                self.learner.tell(record.told, np.full(self._layers.horizon, np.nan))
            elif record.told is not None:
                self.learner.skip(record.told)
        else:
            if record.player == "learner":
                self.learner.skip()
            self.abandoned += 1
            before = [0] if self.process.first_layer else []
            record.path = [*before, *record.states], [*before, *record.actions]
            self._weigh(record, [*(self.process._free for _ in before), *record.losses])
        del self._records[record.number]

    # ----------------------------------------------------------------------------------- logs

    def learn_from_logs(self, trajectories: Sequence[Sequence[Any]]) -> None:
        """Learn from episodes that somebody else played.

        Each is a list of ``(state, action)`` or ``(state, action, cost)``, one for each step, where the cost may be
        ``{action: cost}`` too.  If an episode ended early, its last entry is the final state alone.  Dynamics are
        learned as if the agent had played the episodes.  Costs (None where not seen) enter the means that planners use,
        but no estimate that needs the unknown probability of an action.  An action that was never taken is then
        expected to cost as much as the others of its step, and is no longer tried for its own sake.
        """
        if not self.learner.partial and self._records:
            raise InvalidEpisodeError(
                f"episodes {list(self._records)} are not over: learner {self.learner.name!r} needs that"
            )
        if not isinstance(trajectories, Iterable):
            raise InvalidEpisodeError(f"trajectories is {shown(trajectories)}, should be a list of trajectories")
        clipped = self.clipped
        try:
            logged = [self._logged(f"trajectory {number}", each) for number, each in enumerate(trajectories)]
            if self.learner.predicts and any(priced for _, priced in logged):
                self.learner.observe(*(episode for episode, _ in logged), prior=self.process._charged)
            elif logged:
                states, actions = ([getattr(e, name) for e, _ in logged] for name in ("states", "actions"))
                self.learner.observe_transitions(np.array(states), np.array(actions))
        except BaseException:
            self.clipped = clipped
            raise

    def _logged(self, where: str, trajectory: Any) -> tuple[Episode, bool]:
        """The episode, and whether it says what something cost."""
        process = self.process
        if not isinstance(trajectory, (list, tuple)) or not 1 <= len(trajectory) <= process.horizon + 1:
            raise InvalidEpisodeError(
                f"{where}: {shown(trajectory)} should be a list of 1 to {process.horizon} pairs (state, action)"
            )
        entries = list(trajectory[: process.horizon])  # what comes after the last action is the end, whatever it is
        record, final = Record(-1, "learner", None), None
        layer = process._at(len(entries) - 1)
        place = layer.find(entries[-1])
        if place is not None and layer.kinds[place] is Kind.FINAL:
            final = entries.pop()
            if isinstance(final, tuple) and len(final) in (2, 3):
                other = layer.find(final[0])
                if other is not None and layer.position(other, final[1]) is not None:
                    raise InvalidEpisodeError(
                        f"{where}: its last entry {shown(final)} is a state that ends and a state with an action as "
                        "well; say a step as a list [state, action], or leave this trajectory out"
                    )
        elif len(entries) < process.horizon:
            raise InvalidEpisodeError(
                f"{where}: has {len(entries)} of {process.horizon} steps; its last entry should be the state in which "
                f"it ended, and {shown(entries[-1])} is none that ends"
            )
        for step, entry in enumerate(entries):
            if not isinstance(entry, (list, tuple)) or len(entry) not in (2, 3):
                raise InvalidEpisodeError(
                    f"{where}, step {step}: {shown(entry)} should be (state, action) or (state, action, cost)"
                )
            here = self._log_place(record, where, entry[0])
            record.states.append(here)
            record.actions.append(process._action(process._at(step), here, entry[1], f"{where}, step {step}"))
            record.losses.append(None)
            if len(entry) == 3 and entry[2] is not None:
                try:
                    (self._costs if isinstance(entry[2], Mapping) else self._logged_cost)(record, entry[2])
                except InvalidEpisodeError as error:
                    raise InvalidEpisodeError(str(error).replace("episode -1", where, 1)) from None
        states, actions, losses = record.states, record.actions, record.losses
        priced = bool(record.others) or any(loss is not None for loss in losses)
        if len(entries) < process.horizon:
            rest = range(len(entries) + 1, process.horizon)
            states = [*states, self._log_place(record, where, final), *(process._at(h).numbers[ENDED] for h in rest)]
            actions = [*actions, *([0] * (process.horizon - len(entries)))]
            losses = [*losses, *([process._free] * (process.horizon - len(entries)))]
        if process.first_layer:
            states, actions, losses = [0, *states], [0, *actions], [process._free, *losses]
        others = self._others(record, losses) if record.others else None
        return Episode(states, actions, losses, action_losses=others), priced

    def _logged_cost(self, record: Record, value: Any) -> None:
        record.losses[-1], cut = self._loss(record, len(record.losses) - 1, value)
        self.clipped += cut

    def _log_place(self, record: Record, where: str, state: Any) -> int:
        try:
            return self._place(record, state)
        except InvalidEpisodeError as error:
            raise InvalidEpisodeError(str(error).replace("episode -1", where, 1)) from None

    # ---------------------------------------------------------------------------- persistence

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to one file, open episodes included; the old file stays until the new one is on the disk.

        Your states and actions are not in it, only their numbers: :func:`load_agent` needs the same process.
        """
        storage.write(path, "agent", self.tree())

    def tree(self) -> dict[str, Any]:
        """The agent as plain data for :mod:`advmdp.storage`."""
        now = self.learner.moment
        moments: dict[int, tuple[int, Any]] = {}
        for record in self._records.values():  # each moment once, whoever began then
            if record.moment is not None and record.moment is not now:
                moments.setdefault(id(record.moment), (len(moments), record.moment))
        places = {id(None): None, id(now): -1} | {key: place for key, (place, _) in moments.items()}
        problem = None if self.learner._problem is self.process.model else problem_tree(self.learner._problem)
        return {
            "version": FILE_VERSION,
            "process": self.process.fingerprint,
            "learner": self.learner.document(),
            "problem": problem,
            "baseline": self._baseline,
            "expert": self._expert,
            "slack": self.slack,
            "guard": None if self._guard is None else self._guard.tree(),
            "seed": self.seed,
            "clip": self.clip,
            "wait": self.wait,
            "begun": self._begun,
            "clipped": self.clipped,
            "abandoned": self.abandoned,
            "moments": [self.learner.moment_tree(moment) for _, moment in moments.values()],
            "episodes": [record.tree(places[id(record.moment)]) for record in self._records.values()],
        }

    def _restore(self, tree: dict[str, Any]) -> None:
        """Go on from what :meth:`tree` returned, the learner apart; ValueError where it makes no sense."""
        self._begun = integer(tree["begun"], "begun", 0, ValueError)
        self.clipped = integer(tree["clipped"], "clipped", 0, ValueError)
        self.abandoned = integer(tree["abandoned"], "abandoned", 0, ValueError)
        self._expert = None if tree["expert"] is None else str(tree["expert"])
        if self._guard is not None:
            self._guard = self._guard.restored(tree["guard"])
        moments = [self.learner.moment_from_tree(each) for each in tree["moments"]]
        for saved in tree["episodes"]:
            record = Record.restored(saved, [*moments, self.learner.moment], self.process, self._guard is not None)
            if record.number in self._records or record.number >= self._begun:
                raise ValueError(f"episode {record.number} of {self._begun} is there twice, or has not begun")
            if record.ended and not self._awaited(record):
                raise ValueError(f"episode {record.number} waits for costs, and the learner does not")
            self._records[record.number] = record

    def _awaited(self, record: Record) -> bool:
        """Whether the learner waits for the costs that a record does."""
        if record.player != "learner" or record.told is None:
            return record.player != "learner" and record.told is None
        found = next((one for one in self.learner._now.ledger.waiting if one.number == record.told), None)
        if found is None or found.episode.later is None or record.path is None:
            return False
        first = self.process.first_layer
        missing = [first + step for step, loss in enumerate(record.losses) if loss is None]
        same = found.episode.states.tolist() == record.path[0] and found.episode.actions.tolist() == record.path[1]
        return same and bool(found.episode.later[missing].all())

    def __repr__(self) -> str:
        return (
            f"Agent({self.process!r}, {self.learner.name!r}, episodes_seen={self.episodes_seen}, "
            f"open={len(self.open)}, waiting={len(self.waiting)})"
        )


class OpenEpisode:
    """One episode of an agent, from :meth:`Agent.begin` to :meth:`end` and the last cost.

    It is a handle: everything is kept in the agent, whose file therefore holds it.
    """

    def __init__(self, agent: Agent, number: int) -> None:
        self._agent = agent
        #: Its number, from 0; :meth:`Agent.episode` gives a handle for it.
        self.number = number

    @property
    def steps(self) -> int:
        """Actions so far."""
        return len(self._agent._record(self.number).actions)

    def _under_way(self) -> Record:
        record = self._agent._record(self.number)
        if record.ended:
            raise InvalidEpisodeError(f"episode {self.number} has ended; cost_of(step, value) brings its costs")
        return record

    def act(self, state: Any, step: int | None = None) -> Any:
        """The action for the current state of the process; every call is one step.

        ``step``, if given, must be the number of the step that is due, from 0.  Asking twice is then an error.
        """
        return self._agent._act(self._under_way(), state, step)

    def cost(self, value: float) -> None:
        """What the last action cost, in your units.  Left out: it was not seen."""
        record = self._under_way()
        if not record.actions:
            raise InvalidEpisodeError(f"episode {self.number}: no action was asked for yet, so nothing can have cost")
        self._agent._cost(record, len(record.actions) - 1, value)

    def costs(self, values: Mapping[Any, float]) -> None:
        """What each action would have cost in the last state, ``{action: cost}``, that of the last action included.

        ``portfolio`` and ``planner`` use all of it; other learners are told the cost of the last action.
        """
        record = self._under_way()
        if not record.actions:
            raise InvalidEpisodeError(f"episode {self.number}: no action was asked for yet, so nothing can have cost")
        self._agent._costs(record, values)

    def cost_of(self, step: int, value: float) -> None:
        """What the action of a step cost, also after :meth:`end` if the episode waits for it."""
        record = self._agent._record(self.number)
        if integer(step, "step", 0, InvalidEpisodeError) >= len(record.actions):
            raise InvalidEpisodeError(f"episode {self.number}: step {step} was not played; {len(record.actions)} were")
        self._agent._cost(record, step, value)

    def end(self, state: Any = None, wait: bool | Collection[int] | None = None, total: float | None = None) -> None:
        """The episode is over: the agent learns from it.

        Before the last step ``state`` must be one without actions.  With ``wait`` costs that were not told come later
        (:meth:`cost_of`); without, they were not seen and never will be.  Where some come and others do not, ``wait``
        lists the steps whose costs come.  ``total`` is what the whole episode cost, for learners of totals, which need
        no other.
        """
        agent, record = self._agent, self._under_way()
        wait = agent.wait if wait is None else wait
        if isinstance(wait, bool):
            steps = frozenset(step for step, loss in enumerate(record.losses) if wait and loss is None)
        elif isinstance(wait, Collection) and not isinstance(wait, (str, bytes)):
            steps = frozenset(integer(step, "step to wait for", 0, InvalidEpisodeError) for step in wait)
        else:
            raise InvalidEpisodeError(f"wait is {wait!r}, should be True, False, or the steps whose costs come later")
        for step in sorted(steps):
            if step >= len(record.losses) or record.losses[step] is not None:
                what = "was told before" if step < len(record.losses) else "cannot come: that step was not played"
                raise InvalidEpisodeError(f"episode {self.number}, wait for step {step}: its cost {what}")
        agent._end(record, state, steps, total)

    def abandon(self) -> None:
        """Learn nothing from the episode; or, if it waits for costs, stop waiting: they will not come."""
        self._agent._abandon(self._agent._record(self.number))

    def __repr__(self) -> str:
        return f"<episode {self.number} of {self._agent!r}>"


def load_agent(path: str | os.PathLike[str], process: Process) -> Agent:
    """Read an agent that :meth:`Agent.save` wrote, for the same process; it goes on exactly where it was.

    Raises
    ------
    CorruptCheckpointError
        If the file is damaged, of another version, or was written for another process.
    """
    if not isinstance(process, Process):
        raise InvalidSpecError(f"process is {shown(process)}, should be the Process that the agent was saved with")
    tree = storage.read(path, "agent")
    if repr(tree.get("version")) != repr(FILE_VERSION):  # whatever a spoiled file has there
        raise CorruptCheckpointError(
            f"{os.fspath(path)}: was written by another version of advmdp (contents {tree.get('version')}, this one "
            f"reads {FILE_VERSION})"
        )
    saved, now = tree.get("process"), process.fingerprint
    for name, value in now.items():
        found = saved.get(name) if isinstance(saved, dict) else None
        if repr(found) != repr(value):
            raise CorruptCheckpointError(
                f"{os.fspath(path)}: was written for another process ({name} {shown(found)}, this one has "
                f"{shown(value)}); build the process as it was then"
            )
    problem = process.model if tree.get("problem") is None else tree["problem"]
    try:
        learner = learner_from_document(path, tree["learner"], problem)
        agent = Agent(
            process, learner, baseline=tree["baseline"], slack=tree["slack"], seed=tree["seed"], clip=tree["clip"],
            wait=tree["wait"],
        )  # fmt: skip
        agent._restore(tree)
    except (CorruptCheckpointError, MemoryError):
        raise
    except Exception as error:
        raise CorruptCheckpointError(
            f"{os.fspath(path)}: does not describe an agent of this version ({error})"
        ) from error
    return agent
