"""What every learner has: a policy to ask for, an update to tell, and a file to survive in."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp import storage
from advmdp._checks import float_array, integer
from advmdp._exclusive import Exclusive, in_use
from advmdp._late import Ledger, late_tree, restored_late
from advmdp.confidence.misspecification import LEVEL, Misspecification, MixtureEvidence
from advmdp.episodes import CheckedEpisode, Episode, check_episode, checked_losses, draw, full_table
from advmdp.errors import CorruptCheckpointError, InvalidEpisodeError, InvalidSpecError
from advmdp.layered import (
    FloatArray,
    IntArray,
    LayeredMDP,
    Layers,
    LinearMixtureModel,
    Rows,
    TabularModel,
    problem_from_tree,
    problem_tree,
)
from advmdp.learners.options import NoOptions
from advmdp.occupancy import check_policy
from advmdp.registry import learners
from advmdp.seeding import IndexedGenerator, Stream, generator
from advmdp.solvers import MirrorStep
from advmdp.solvers.conditional import ConditionalStep
from advmdp.solvers.known import FlatStep

#: Arguments of every learner, beside the options of its own.
COMMON = ("start", "watch", "seed")
#: Recognised by its identity, so that it costs an update nothing.
NOTHING_LATE = Ledger()


#: What a learner with this feedback learns from.
USES = {
    "bandit": "the losses of the visited pairs", "actions": "the losses of all actions at visited states, or fewer",
    "full": "the whole loss_table", "total": "the total, or the losses of all visited pairs",
}  # fmt: skip


class Moment(NamedTuple):
    """All that changes in the life of a learner; an update builds a new one and then puts it in place."""

    #: The algorithm's own: see :meth:`Learner._begin`.
    state: Any
    watch: MixtureEvidence | None
    seen: int = 0
    skipped: int = 0
    #: Episodes of which only the transitions were observed.
    logged: int = 0
    #: Losses that are to come, or came late.
    ledger: Ledger = NOTHING_LATE
    #: The state before the last episode, and that episode, while its losses may still come.
    last: tuple[Any, CheckedEpisode] | None = None


def _frozen(state: Any) -> Any:
    """The state, whose policy is handed out and cannot be written into."""
    state.policy.setflags(write=False)
    return state


def stacked(episodes: Sequence[CheckedEpisode]) -> tuple[IntArray, IntArray]:
    """States and actions of n episodes, ``(n, H)`` each."""
    return np.array([one.states for one in episodes]), np.array([one.actions for one in episodes])


class Belief(NamedTuple):
    """What a learner that estimates both expects: see :meth:`Learner._belief`."""

    #: The likeliest kernel.
    kernel: Rows
    #: Mean losses, flat; NaN where none was seen.
    losses: FloatArray
    #: The policies ``(M, n_pairs)`` of which it draws one, and with what probabilities ``(M,)``.
    policies: FloatArray
    weights: FloatArray


class Learner(ABC):
    """An online learner, used by ask and tell: take :attr:`policy`, play an episode, call :meth:`update`.

    A subclass declares the class attributes and its options, and defines :meth:`_begin` and :meth:`_learn`.  What it
    knows is a *state*: a named tuple of arrays, numbers and other values, with a field ``policy``.  ``_learn`` builds
    the next state and changes nothing, so that an update happens whole or not at all.

    Parameters
    ----------
    problem
        The model (the world itself for learners with known transition).
    episodes
        K, the number of episodes that the constants of the learner are made for; None where it needs none.
    start
        A policy to begin with, a list over layers of ``(S_h, A)``, for learners that can.
    watch
        Whether to test the mixture model while learning (:meth:`misspecification`); by default, if the learner
        assumes one.
    seed
        Of the learner's own random stream, from which :meth:`act` draws.
    """

    #: The name in the registry.
    name: ClassVar[str]
    #: The options, a frozen dataclass with keyword arguments; each is an attribute of the learner too.
    Options: ClassVar[type] = NoOptions
    #: The most that it uses of the losses: those of visited pairs, those of all actions there, the whole table, or no
    #: more than the total of an episode.
    feedback: Literal["bandit", "actions", "full", "total"] = "bandit"
    #: Whether it can do with a part of them: losses that were not seen (NaN), or that come after the next update.
    partial: ClassVar[bool] = False
    #: Whether it is given the kernels.
    transition: ClassVar[Literal["known", "unknown"]] = "unknown"
    #: The least model that it needs.
    needs: ClassVar[type[TabularModel]] = TabularModel
    #: Whether it uses that the model is a mixture, where it is one, though it can do without.
    uses_mixture: ClassVar[bool] = False
    #: Whether its constants are made for a number of episodes, which must then be given.
    needs_episodes: ClassVar[bool] = True
    #: Whether it averages the losses of episodes that others played (:meth:`observe`).
    predicts: ClassVar[bool] = False
    #: Whether it assumes that the weights of a mixture are the same in every layer.
    shares: bool = False
    #: Whether it can begin with a given policy.
    takes_start: ClassVar[bool] = False
    #: One line on what the implementation was checked against, for the learner table.
    status: ClassVar[str] = ""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.__init__ is Learner.__init__:  # the options are declared once: the signature follows
            _, problem, episodes, *common, _ = inspect.signature(Learner.__init__).parameters.values()
            own = inspect.signature(cls.Options).parameters.values()
            signature = inspect.Signature([problem, episodes, *own, *common])
        else:
            signature = inspect.signature(cls.__init__)
            signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        cls.__signature__ = signature  # type: ignore[attr-defined]

    def __init__(
        self,
        problem: TabularModel | LayeredMDP,
        episodes: int | None = None,
        *,
        start: Sequence[ArrayLike] | None = None,
        watch: bool | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if episodes is not None:
            integer(episodes, "episodes", 1, InvalidSpecError)
        elif self.needs_episodes:
            raise InvalidSpecError(f"learner {self.name!r} needs the number of episodes: its constants are made for it")
        if self.transition == "known" and not isinstance(problem, LayeredMDP):
            raise InvalidSpecError(
                f"learner {self.name!r} knows the transition: it needs an MDP, not a {type(problem).__name__}"
            )
        if not isinstance(problem if self.transition == "unknown" else problem.model, self.needs):
            raise InvalidSpecError(
                f"learner {self.name!r} needs a {self.needs.__name__}, not a {type(problem).__name__}"
            )
        self._problem: Any = problem
        self._layers: Layers = problem.layers
        #: K; 0 where none was given.
        self.episodes = int(episodes or 0)
        self.seed = seed
        self._generator = generator(seed, Stream.LEARNER)
        #: For random numbers inside :meth:`_learn`: ``at(k)`` is the stream of episode k, whatever was drawn before.
        self._draws = IndexedGenerator(seed, Stream.LEARNER)
        self.start = None if start is None else self._checked_start(start)
        self.options: Any = self.Options(**options)
        for field in dataclasses.fields(self.Options):
            setattr(self, field.name, getattr(self.options, field.name))
        self._split_policy: tuple[FloatArray, tuple[FloatArray, ...]] | None = None
        self._compose()
        self._now = Moment(_frozen(self._begin()), self._watcher(watch))

    def _checked_start(self, start: Sequence[ArrayLike]) -> FloatArray:
        if not self.takes_start:
            able = [name for name in learners.names() if getattr(learners.get(name), "takes_start", False)]
            raise InvalidSpecError(f"learner {self.name!r} takes no start policy; these do: {', '.join(able)}")
        flat = self._layers.flatten(start, "start")
        check_policy(self._layers, flat, "start")
        return flat

    def _watcher(self, wanted: bool | None) -> MixtureEvidence | None:
        model = self._problem.model
        mixture = isinstance(model, LinearMixtureModel)
        if wanted and not mixture:
            raise InvalidSpecError(f"watch=True tests a mixture model, and {self._problem!r} is none")
        if wanted is None:
            wanted = mixture and (self.uses_mixture or issubclass(self.needs, LinearMixtureModel))
        self.watch = bool(wanted)
        return MixtureEvidence.empty(model, self.shares) if wanted else None

    def _compose(self) -> None:  # noqa: B027 (to be overridden where there is something to choose)
        """Choose the parts: set attributes that never change again.  Options are in place."""

    @abstractmethod
    def _begin(self) -> Any:
        """The state before the first episode, a named tuple with a flat ``policy`` (:class:`advmdp.layered.Layers`)."""

    @abstractmethod
    def _learn(self, state: Any, episode: CheckedEpisode) -> Any:
        """The state after one more episode, which was played with ``state.policy``.  Nothing may be changed in place.

        Learners with ``partial`` meet losses that are NaN, and take ``episode.late`` into account.  They also meet
        episodes that were played in an earlier state, ``episode.played_in(state)``, by whose policy losses are weighed.
        """

    def _observe(self, state: Any, states: IntArray, actions: IntArray) -> Any:
        """The state with the transitions of n logged episodes, arrays (n, H); their losses are unknown."""
        known = self.transition == "known"
        why = "it is given the kernels" if known else "it keeps no estimate of the kernel that they could improve"
        raise InvalidEpisodeError(f"learner {self.name!r} cannot use logged transitions: {why}")

    def _observe_played(self, state: Any, episodes: Sequence[CheckedEpisode]) -> Any:
        """The state after episodes that somebody else played, losses and all; here their transitions alone count.

        No loss of them may be weighed by the probability with which the learner would have met it.
        """
        try:
            return self._observe(state, *stacked(episodes))
        except InvalidEpisodeError:  # it has no use for transitions either
            return state

    def _with_prior(self, state: Any, among: NDArray[np.bool_]) -> Any:
        """The state in which a pair whose loss was never seen is expected to cost what the others of its layer do."""
        return state

    def _observe_losses(self, state: Any, episode: CheckedEpisode) -> Any:
        """The state with losses of such an episode that came late (NaN where nothing did)."""
        return state

    def _belief(self, state: Any) -> Belief | None:
        """What it expects of the process and plays, for learners that estimate kernel and losses."""
        return None

    def _weights(self, state: Any, episode: CheckedEpisode) -> FloatArray:
        """What to remember of the visited pairs for losses that come late, ``(H, ...)``: see :class:`LateLosses`."""
        return np.zeros(episode.pairs.size)

    def _tree(self, state: Any) -> dict[str, Any]:
        """A state as a tree for :mod:`advmdp.storage`, its policy apart."""
        return {name: value for name, value in state._asdict().items() if name != "policy"}

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> Any:
        """The inverse of :meth:`_tree`; ValueError where it makes no sense.

        This one is for states of finite arrays and numbers, which keep the shape that they have at the beginning.
        """
        like = self._begin()
        values: dict[str, Any] = {}
        for name, value in tree.items():
            model = getattr(like, name)
            if isinstance(model, np.ndarray):
                values[name] = array = np.array(float_array(value, name, ValueError))
                if array.shape != model.shape or not np.isfinite(array).all():
                    raise ValueError(f"{name} of shape {array.shape}: wrong shape, or entries that are not finite")
            elif isinstance(model, int):
                values[name] = integer(value, name, 0, ValueError)
            elif isinstance(model, float) and isinstance(value, float):
                values[name] = value
            else:
                raise ValueError(f"{name} is {value!r}")
        return type(like)(policy=policy, **values)

    @property
    def policy(self) -> Sequence[FloatArray]:
        """The policy for the next episode: ``(S_h, A)`` for each layer, read-only, rows summing to one."""
        flat = self.flat_policy
        if self._split_policy is None or self._split_policy[0] is not flat:
            self._split_policy = flat, tuple(self._layers.split(flat))
        return self._split_policy[1]

    @property
    def flat_policy(self) -> FloatArray:
        """The same as one flat vector over pairs, see :class:`advmdp.layered.Layers`."""
        flat: FloatArray = self._now.state.policy
        return flat

    @property
    def q(self) -> list[FloatArray] | None:
        """The occupancy measure behind the policy, for learners that have one."""
        return None

    @property
    def confidence_set(self) -> Any:
        """The set of kernels that the learner deems possible, for learners that have one."""
        return None

    @property
    def certificate(self) -> float:
        """What inexact steps can have cost so far, in units of loss times step size (docs/certificates.md)."""
        return 0.0

    @property
    def episodes_seen(self) -> int:
        """Episodes learned from."""
        return self._now.seen

    @property
    def skipped(self) -> int:
        """Episodes that were played and could not be learned from."""
        return self._now.skipped

    def act(self, layer: int, state: int) -> int:
        """Draw an action for a state from the policy, with the learner's own random stream."""
        if "_busy" in self.__dict__:
            raise in_use(self)
        integer(layer, "layer", 0, InvalidEpisodeError)
        integer(state, "state", 0, InvalidEpisodeError)
        if layer >= self._layers.horizon:
            raise InvalidEpisodeError(f"layer {layer} has no actions, should be from 0 to {self._layers.horizon - 1}")
        if state >= self._layers.sizes[layer]:
            raise InvalidEpisodeError(
                f"layer {layer}: state {state} does not exist, should be from 0 to {self._layers.sizes[layer] - 1}"
            )
        return int(draw(self.policy[layer][state], 0, self._layers.n_actions, self._generator.random()))

    @property
    def moment(self) -> Any:
        """The state in force, opaque: ask for it when an episode begins and give it to :meth:`update` when it ends."""
        return self._now.state

    def update(self, episode: Episode, played: Any = None) -> None:
        """Learn from one episode that was played with :attr:`policy`.

        ``played`` is the :attr:`moment` at which the episode began, for episodes that overlap: losses are weighed by
        the policy of that moment, and the learner moves on from where it is.  Nothing is proved about overlap.

        Raises
        ------
        InvalidEpisodeError
            If the episode cannot have happened, was told before, comes too early, or holds what this learner cannot
            use.  After this or any other exception the learner is as it was before the call.
        """
        for level, field in (("actions", "action_losses"), ("total", "total")):
            if self.feedback != level and getattr(episode, field, None) is not None:
                raise InvalidEpisodeError(
                    f"learner {self.name!r} cannot use {field} of an episode: it learns from {USES[self.feedback]}"
                )
        checked = check_episode(episode, self._layers, self._problem.possible_rows, self.feedback == "full")
        with Exclusive(self):
            self._check_index(episode.index)
            now = self._now
            if played is not None and played is not now.state:
                checked = checked._replace(played=self._checked_moment(played))
            if not checked.complete or now.ledger is not NOTHING_LATE:
                checked = self._usable(episode, checked, now.ledger)
            if now.seen == self.episodes and self.needs_episodes:
                warnings.warn(
                    f"learner {self.name!r} was made for {self.episodes} episodes, and its constants with it; it goes "
                    "on learning, but the proved bound ends here",
                    stacklevel=2,
                )
            ledger, last = now.ledger, None
            if checked.later is not None:
                # What waits must not change with the caller's arrays.
                mine = {name: getattr(checked, name).copy() for name in ("states", "actions", "losses")}
                checked = checked._replace(**mine)
                weights = self._weights(checked.played_in(now.state), checked)
                waits = checked._replace(played=None)  # its weights are all that is needed, but for the last one
                ledger, last = ledger.wait(now.seen + now.skipped, waits, weights), (now.state, checked)
            elif ledger.arrived:
                ledger = Ledger(ledger.waiting) if ledger.waiting else NOTHING_LATE
            # What cannot use a part of the losses waits for all of them, and until then stays as it is.
            learns = last is None or self.partial
            state = self._learn(now.state, checked) if learns else now.state
            watch = now.watch if now.watch is None else now.watch.add(checked.states, checked.actions)
            if state is not now.state:
                _frozen(state)
            self._now = Moment(state, watch, now.seen + 1, now.skipped, now.logged, ledger, last)

    def _checked_moment(self, played: Any) -> Any:
        if type(played) is not type(self._now.state):
            raise InvalidEpisodeError(f"played is {played!r}, should be the moment at which the episode began")
        if not self.partial:
            raise InvalidEpisodeError(
                f"learner {self.name!r} has changed since the episode began, and cannot learn from it: it needs every "
                "episode to end before the next one begins"
            )
        return played

    def observe(self, *episodes: Episode, prior: NDArray[np.bool_] | None = None) -> None:
        """Learn what can be learned from episodes that were *not* played with the learner's policy.

        Their transitions count like logged ones; planners and predictors also average their losses (NaN or None where
        they were not seen).  They do not count in :attr:`episodes_seen`.  ``prior`` is a flat mask over pairs: a pair
        in it whose loss was never seen is expected to cost as much as the other pairs of its layer, until it is
        visited.  Any other unseen pair is expected to cost nothing, so that it is tried.
        """
        checked = []
        for episode in episodes:
            losses, _ = checked_losses(episode.losses, self._layers.horizon)
            every = episode.action_losses if self.feedback == "actions" else None
            seen = Episode(episode.states, episode.actions, losses, action_losses=every)
            checked.append(check_episode(seen, self._layers, self._problem.possible_rows))
        if not checked:
            return
        with Exclusive(self):
            now = self._now
            self._require_told(now.ledger)
            watch, state = now.watch, self._observe_played(now.state, checked)
            for one in checked:
                watch = watch if watch is None else watch.add(one.states, one.actions)
            state = state if prior is None else self._with_prior(state, prior)
            logged = now.logged + len(checked)
            self._now = now._replace(state=_frozen(state), watch=watch, logged=logged, last=None)

    def observe_losses(self, episode: Episode) -> None:
        """Losses of an episode that was observed before, which came late: NaN or None where nothing did."""
        losses, _ = checked_losses(episode.losses, self._layers.horizon)
        seen = Episode(episode.states, episode.actions, losses)
        checked = check_episode(seen, self._layers, self._problem.possible_rows)
        with Exclusive(self):
            now = self._now
            self._now = now._replace(state=_frozen(self._observe_losses(now.state, checked)), last=None)

    def _usable(self, episode: Episode, checked: CheckedEpisode, ledger: Ledger) -> CheckedEpisode:
        """The episode with losses that came late; InvalidEpisodeError where this learner cannot use what it holds."""
        if self.partial:
            return checked._replace(late=ledger.arrived)
        self._require_told(ledger)
        if not checked.complete and checked.later is None:
            h = int(np.isnan(checked.losses).argmax())
            raise InvalidEpisodeError(
                f"layer {h}, state {checked.states[h]}, action {checked.actions[h]}: loss nan is not a number in "
                f"[0, 1]; learner {self.name!r} needs the loss of every visited pair"
            )
        return checked

    def _require_told(self, ledger: Ledger) -> None:
        if ledger.waiting and not self.partial:
            raise InvalidEpisodeError(
                f"the losses of episode {ledger.waiting[0].number} have not been told: learner {self.name!r} needs "
                "them before it goes on (tell)"
            )

    def tell(
        self,
        index: int,
        losses: ArrayLike | Sequence[float | None] | None,
        loss_table: Sequence[ArrayLike] | FloatArray | None = None,
    ) -> None:
        """Tell the late losses of an episode: H numbers, None where one still comes, NaN where it never will.

        Before the next update this has the same effect as telling them at once.  After it (or after logs were
        observed) they enter with the update that follows, for learners with ``partial``.

        Parameters
        ----------
        index
            Number of the episode, from 0.
        losses
            Losses in [0, 1]; where they were known already, NaN or the same again.
        loss_table
            The whole table, for learners with full information; before the next update only.
        """
        with Exclusive(self):
            now, number = self._now, integer(index, "episode index", 0, InvalidEpisodeError)
            ledger, record, new = now.ledger.told(number, losses)
            if now.last is None or number != now.ledger.waiting[-1].number:
                if self.feedback == "full" and loss_table is not None:
                    raise InvalidEpisodeError(
                        f"learner {self.name!r} cannot use the loss_table of episode {number} after the next update: "
                        "tell the losses of its visited pairs alone"
                    )
                self._now = now._replace(ledger=ledger.arrive(record, new))
                return
            if not (record.episode.complete or self.partial):
                raise InvalidEpisodeError(f"learner {self.name!r} needs the loss of every visited pair, at once")
            before, first = now.last
            episode = record.episode._replace(late=first.late, played=first.played)
            if self.feedback == "full" and (episode.later is None or loss_table is not None):
                table = full_table(loss_table, self._layers, episode.pairs, episode.losses)
                episode = episode._replace(loss_table=table)
            last = None if episode.later is None else (before, episode)
            ledger = ledger if ledger.waiting or ledger.arrived else NOTHING_LATE
            self._now = now._replace(state=_frozen(self._learn(before, episode)), ledger=ledger, last=last)

    def observe_transitions(self, states: ArrayLike, actions: ArrayLike) -> None:
        """Learn the dynamics from logged episodes, played by anybody: their losses are not known.

        Parameters
        ----------
        states
            Visited states: H (or H + 1) of one episode, or that for n of them, ``(n, H)``.
        actions
            Actions taken, of shape ``(H,)`` or ``(n, H)``.
        """
        horizon = self._layers.horizon
        rows, moves = np.atleast_2d(np.asarray(states)), np.atleast_2d(np.asarray(actions))
        if len(rows) != len(moves):
            raise InvalidEpisodeError(f"states are of {len(rows)} episodes, actions of {len(moves)}")
        unseen = np.full(horizon, np.nan)
        checked = []
        for number, (row, move) in enumerate(zip(rows, moves, strict=True)):
            try:
                checked.append(check_episode(Episode(row, move, unseen), self._layers, self._problem.possible_rows))
            except InvalidEpisodeError as error:
                raise InvalidEpisodeError(f"logged episode {number}: {error}") from error
        if not checked:
            return
        with Exclusive(self):
            now = self._now
            self._require_told(now.ledger)
            watch = now.watch
            observed = self._observe(now.state, *stacked(checked))
            if watch is not None:
                for one in checked:
                    watch = watch.add(one.states, one.actions)
            self._now = now._replace(state=_frozen(observed), watch=watch, logged=now.logged + len(checked), last=None)

    def skip(self, index: int | None = None) -> None:
        """Say that an episode was played and cannot be learned from: its record was lost, or an update failed on it.

        The learner stays as it is; each skipped episode can add at most H to the regret (``docs/promises.md``).  The
        last one may be skipped while a learner that needs all losses waits for some that will never come.
        """
        with Exclusive(self):
            now = self._now
            if now.last is not None and not self.partial and index == now.ledger.waiting[-1].number:
                # Its transitions were looked at, as if read in a log.
                self._now = Moment(now.state, now.watch, now.seen - 1, now.skipped + 1, now.logged + 1)
                return
            self._check_index(index)
            self._now = now._replace(skipped=now.skipped + 1)

    def _check_index(self, index: Any) -> None:
        expected = self._now.seen + self._now.skipped
        if index is not None and integer(index, "episode index", 0, InvalidEpisodeError) != expected:
            happened = "was told before" if index < expected else "comes too early"
            raise InvalidEpisodeError(
                f"episode index {index} {happened}: {expected} episodes were told or skipped so far, the next index is "
                f"{expected} (skip says that one was lost)"
            )

    def misspecification(self, level: float = LEVEL) -> Misspecification | None:
        """Whether the transitions so far contradict the mixture model: a test that may be asked at any time.

        If reality is a mixture, the probability that this *ever* raises its alarm is at most ``level``.  None for
        learners that do not watch the model.  See :mod:`advmdp.confidence.misspecification`.
        """
        return None if self._now.watch is None else self._now.watch.weigh(level)

    @property
    def last_step(self) -> MirrorStep | FlatStep | ConditionalStep | None:
        """The last optimisation step with its certificate, of learners that take such steps; None before the first."""
        return None

    def regret_bound(self, episodes: int) -> float:
        """A proved bound on the regret after that many episodes, for authors who have one (ours: theory.bounds)."""
        return float("nan")

    def get_params(self) -> dict[str, Any]:
        """The options with their values (``problem``, ``episodes``, ``start``, ``watch`` and ``seed`` apart)."""
        parameters = list(inspect.signature(type(self)).parameters)[2:]
        return {name: getattr(self, name) for name in parameters if name not in COMMON}

    def state(self) -> dict[str, Any]:
        """What distinguishes this learner from a new one built with the same arguments, as a tree for storage."""
        now = self._now
        last = None
        if now.last is not None:
            before, episode = now.last
            late = [late_tree(late) for late in episode.late]
            played = None if episode.played is None else self.moment_tree(episode.played)
            last = self.moment_tree(before) | {"late": late, "played": played}
        return {
            "episodes_seen": now.seen,
            "skipped": now.skipped,
            "logged": now.logged,
            "random": self._generator.bit_generator.state,
            "policy": now.state.policy,
            "state": self._tree(now.state),
            "evidence": None if now.watch is None else now.watch.tree(),
            "ledger": now.ledger.tree(),
            "last": last,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned; ValueError where it does not fit this learner."""
        names = ("episodes_seen", "skipped", "logged")
        seen, skipped, logged = (integer(state[name], name, 0, ValueError) for name in names)
        if seen + skipped + logged >= 2**53:  # nobody has counted so far, and counters have 64 bits
            raise ValueError(f"it has seen {seen} episodes, skipped {skipped} and read {logged} in logs")
        watch = self._now.watch
        if watch is not None:
            watch = MixtureEvidence.from_tree(watch.null, state["evidence"])
            if watch.episodes != seen + logged:
                raise ValueError(f"its evidence is of {watch.episodes} episodes")
        ledger = Ledger.restore(state["ledger"], self._layers, seen + skipped)
        for weights in [one.weights for one in ledger.waiting] + [one.weights for one in ledger.arrived]:
            self._check_late(weights)
        now, last = self._restored(state, seen), None
        if state["last"] is not None:
            late = tuple(restored_late(saved, self._layers) for saved in state["last"]["late"])
            for one in late:
                self._check_late(one.weights)
            before = self._restored(state["last"], seen - 1) if self.partial else now
            played = None if state["last"]["played"] is None else self.moment_from_tree(state["last"]["played"])
            last = before, ledger.waiting[-1].episode._replace(late=late, played=played)
        ledger = ledger if ledger.waiting or ledger.arrived else NOTHING_LATE
        self._now = Moment(now, watch, seen, skipped, logged, ledger, last)
        self._generator.bit_generator.state = state["random"]

    def _check_late(self, weights: FloatArray) -> None:
        """What was remembered of visited pairs has the shape that it would have of an episode played first."""
        nowhere = np.zeros(self._layers.horizon, dtype=np.int64)
        first = check_episode(Episode(nowhere, nowhere, np.full(nowhere.size, np.nan)), self._layers)
        shape = self._weights(self._begin(), first).shape
        if weights.shape != shape or not (weights >= 0.0).all():
            raise ValueError(f"weights of shape {weights.shape} for late losses, should be {shape} numbers >= 0")

    def moment_tree(self, moment: Any) -> dict[str, Any]:
        """A :attr:`moment` as a tree for :mod:`advmdp.storage`."""
        return {"state": self._tree(moment), "policy": moment.policy}

    def moment_from_tree(self, tree: dict[str, Any]) -> Any:
        """The inverse of :meth:`moment_tree`; ValueError where it makes no sense."""
        return self._restored(tree, None)

    def _restored(self, saved: dict[str, Any], seen: int | None) -> Any:
        policy = self._layers.flat_vector(saved["policy"], "policy")
        check_policy(self._layers, policy)
        expected, found = set(self._tree(self._begin())), set(saved["state"])
        if expected != found:
            raise ValueError(f"its state has {sorted(found)}, should have {sorted(expected)}")
        # A copy: what is restored from one tree can be restored again.
        state = self._restore(dict(saved["state"]), policy)
        if seen is not None and seen - getattr(state, "k", seen) not in (0, 1):  # one less while it waits for losses
            raise ValueError(f"its state is of {state.k} episodes, and it has seen {seen}")
        return _frozen(state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner to one file; the previous file stays until the new one is on the disk."""
        if "_busy" in self.__dict__:
            raise in_use(self)
        storage.write(path, "learner", {"problem": problem_tree(self._problem), **self.document()})

    def document(self) -> dict[str, Any]:
        """The learner without its problem, as a tree for :mod:`advmdp.storage`."""
        return {
            "version": FILE_VERSION,
            "name": self.name,
            "episodes": self.episodes or None,
            "start": self.start,
            "watch": self.watch,
            "seed": self.seed,
            "options": self.get_params(),
            **self.state(),
        }

    def __getstate__(self) -> dict[str, Any]:
        if "_busy" in self.__dict__:
            raise in_use(self)
        return self.__dict__.copy()

    def __copy__(self) -> Learner:
        # Solvers have memory of their own, which two learners cannot share; the problem never changes.
        return copy.deepcopy(self, {id(self._problem): self._problem})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._problem!r}, episodes={self.episodes}, episodes_seen={self.episodes_seen})"


#: Of the contents of a learner's file.  1 (without this entry): up to advmdp 0.1.
FILE_VERSION = 2


def load_learner(path: str | os.PathLike[str]) -> Learner:
    """Read a learner that :meth:`Learner.save` wrote; it goes on exactly where it was.

    Raises
    ------
    CorruptCheckpointError
        If the file is damaged, makes no sense, or is of another version.  Nothing in a file can run code.
    """
    tree = storage.read(path, "learner")
    return learner_from_document(path, tree, tree.get("problem"))


def learner_from_document(path: str | os.PathLike[str], tree: dict[str, Any], problem: Any) -> Learner:
    """The inverse of :meth:`Learner.document`, for a problem or the tree of one; ``path`` is named in errors."""
    if repr(tree.get("version")) != repr(FILE_VERSION):  # whatever a spoiled file has there
        raise CorruptCheckpointError(
            f"{os.fspath(path)}: was written by another version of advmdp (contents {tree.get('version', 1)}, this one "
            f"reads {FILE_VERSION}): finish with that version, or start a new learner here and give it the logged "
            "transitions (observe_transitions)"
        )
    try:
        if not isinstance(problem, (TabularModel, LayeredMDP)):
            problem = problem_from_tree(path, problem)
        # Compared before the learner is built: a small file cannot ask for a large learner.
        problem.layers.flat_vector(tree["policy"], "policy")
        common = {} if tree["start"] is None else {"start": problem.layers.flat_vector(tree["start"], "start")}
        learner: Learner = learners.make(
            tree["name"], problem, tree["episodes"], seed=tree["seed"], **common, **tree["options"]
        )
        if tree["watch"] != learner.watch:
            learner._now = learner._now._replace(watch=learner._watcher(bool(tree["watch"])))
        learner.set_state(tree)
    except (CorruptCheckpointError, MemoryError):
        raise
    except Exception as error:
        raise CorruptCheckpointError(
            f"{os.fspath(path)}: does not describe a learner of this version ({error})"
        ) from error
    return learner


def make_learner(
    name: str,
    problem: TabularModel | LayeredMDP,
    episodes: int | None = None,
    *,
    seed: int = 0,
    start: Sequence[ArrayLike] | None = None,
    **options: Any,
) -> Learner:
    """Build a learner by name; ``advmdp list`` prints the names with their options.

    ``problem`` is a model or an MDP; only learners with known transition see more of an MDP than its ``.model``.
    ``episodes`` is K, the number that its constants are made for (None for learners that need none), ``start`` a policy
    to begin with, and ``seed`` that of :meth:`Learner.act`.

    Examples
    --------
    >>> from advmdp import make_world
    >>> learner = make_learner("vlsuob-reps-tight", make_world("grid", height=3, width=3), 100, radius_scale=0.5)
    >>> [table.shape for table in learner.policy], learner.get_params()["radius_scale"]
    ([(1, 2), (2, 2), (3, 2), (2, 2)], 0.5)
    """
    entry = learners.get(name)
    known = getattr(entry, "transition", "unknown") == "known"
    common = {} if start is None else {"start": start}
    learner: Learner = learners.make(
        name, problem if known else problem.model, episodes, seed=seed, **common, **options
    )
    return learner
