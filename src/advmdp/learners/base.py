"""What every learner has: a policy to ask for, an update to tell, and a file to survive in."""

from __future__ import annotations

import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from advmdp import storage
from advmdp._checks import integer
from advmdp.confidence.misspecification import LEVEL, Misspecification, MixtureEvidence
from advmdp.episodes import CheckedEpisode, Episode, check_episode, draw
from advmdp.errors import ConcurrentUseError, CorruptCheckpointError, InvalidEpisodeError, InvalidSpecError
from advmdp.layered import (
    FloatArray,
    LayeredMDP,
    Layers,
    LinearMixtureModel,
    TabularModel,
    problem_from_tree,
    problem_tree,
)
from advmdp.occupancy import check_policy
from advmdp.registry import learners
from advmdp.seeding import Stream, generator


class Learner(ABC):
    """An online learner, used by ask and tell: take :attr:`policy`, play an episode, call :meth:`update`.

    A subclass sets the class attributes, computes its first policy in the constructor, and defines
    :meth:`_learn` and, if it has state beyond its policy, :meth:`_state` and :meth:`_set_state`.  ``_learn``
    replaces arrays, it does not write into them: then an update that fails leaves no trace.

    Parameters
    ----------
    problem
        The model (the world itself for learners with known transition).
    episodes
        K, the number of episodes that the constants of the learner are made for.
    seed
        Of the learner's own random stream, from which :meth:`act` draws.
    """

    #: The name in the registry.
    name: ClassVar[str]
    #: What it sees of the losses: those of visited pairs, or all.
    feedback: ClassVar[Literal["bandit", "full"]] = "bandit"
    #: Whether it is given the kernels.
    transition: ClassVar[Literal["known", "unknown"]] = "unknown"
    #: The least model that it needs.
    needs: ClassVar[type[TabularModel]] = TabularModel
    #: One line on what the implementation was checked against, for the learner table.
    status: ClassVar[str] = ""

    def __init__(self, problem: TabularModel | LayeredMDP, episodes: int, *, seed: int = 0) -> None:
        integer(episodes, "episodes", 1, InvalidSpecError)
        if self.transition == "known" and not isinstance(problem, LayeredMDP):
            raise InvalidSpecError(
                f"learner {self.name!r} knows the transition: it needs an MDP, not a {type(problem).__name__}"
            )
        if self.transition == "unknown" and not isinstance(problem, self.needs):
            raise InvalidSpecError(
                f"learner {self.name!r} needs a {self.needs.__name__}, not a {type(problem).__name__}"
            )
        self._problem = problem
        self._layers: Layers = problem.layers
        self.episodes = int(episodes)
        self.seed = seed
        #: Episodes learned from, and those that were played without.
        self.episodes_seen = 0
        self.skipped = 0
        self._generator = generator(seed, Stream.LEARNER)
        # Where an update found the random stream, if it draws from it.
        self._random_before: Any = None
        self._evidence: MixtureEvidence | None = None
        if isinstance(problem, LinearMixtureModel) and issubclass(self.needs, LinearMixtureModel):
            self._evidence = MixtureEvidence.empty(problem)
        self._flat_policy = np.empty(0)
        self._policy: tuple[FloatArray, ...] | None = None

    @property
    def policy(self) -> Sequence[FloatArray]:
        """The policy for the next episode: ``(S_h, A)`` for each layer, read-only, rows summing to one."""
        if self._policy is None:  # made when it is asked for: a run is content with the flat one
            self._policy = tuple(self._layers.split(self._flat_policy))
        return self._policy

    @property
    def flat_policy(self) -> FloatArray:
        """The same as one flat vector over pairs, see :class:`advmdp.layered.Layers`."""
        if type(self).policy is Learner.policy:
            return self._flat_policy
        return self._layers.flatten(self.policy, "policy")

    def _set_policy(self, flat: FloatArray) -> None:
        self._flat_policy = flat.view()
        self._flat_policy.flags.writeable = False
        self._policy = None

    @property
    def _rng(self) -> np.random.Generator:
        """The learner's own random stream; an update that fails does not move it."""
        if self._random_before is None and "_busy" in self.__dict__:
            self._random_before = self._generator.bit_generator.state
        return self._generator

    @property
    def q(self) -> list[FloatArray] | None:
        """The occupancy measure behind the policy, for learners that have one."""
        return None

    @property
    def confidence_set(self) -> Any:
        """The set of kernels that the learner deems possible, for learners that have one."""
        return None

    def act(self, layer: int, state: int) -> int:
        """Draw an action for a state from the policy, with the learner's own random stream."""
        if "_busy" in self.__dict__:
            raise self._in_use()
        integer(layer, "layer", 0, InvalidEpisodeError)
        integer(state, "state", 0, InvalidEpisodeError)
        if layer >= self._layers.horizon:
            raise InvalidEpisodeError(f"layer {layer} has no actions, should be from 0 to {self._layers.horizon - 1}")
        if state >= self._layers.sizes[layer]:
            raise InvalidEpisodeError(
                f"layer {layer}: state {state} does not exist, should be from 0 to {self._layers.sizes[layer] - 1}"
            )
        return int(draw(self.policy[layer][state], 0, self._layers.n_actions, self._rng.random()))

    def update(self, episode: Episode) -> None:
        """Learn from one episode that was played with :attr:`policy`.

        Raises
        ------
        InvalidEpisodeError
            If the episode cannot have happened, was told before, or comes too early.  After this or any other
            exception the learner is as it was before the call.
        """
        checked = check_episode(episode, self._layers, self._problem.flat_possible, self.feedback == "full")
        with self._exclusive():
            self._check_index(episode.index)
            self._random_before = None
            before = self.__dict__.copy()
            try:
                self._learn(checked)
                if self._evidence is not None:
                    self._evidence = self._evidence.add(checked.states, checked.actions)
                self.episodes_seen += 1
            except BaseException:
                random = self._random_before
                for name in self.__dict__.keys() - before.keys():
                    del self.__dict__[name]
                self.__dict__.update(before)
                if random is not None:
                    self._generator.bit_generator.state = random
                raise

    def _exclusive(self) -> _Exclusive:
        """Refuse all other threads until this is over."""
        return _Exclusive(self)

    def skip(self, index: int | None = None) -> None:
        """Say that an episode was played and cannot be learned from: its record was lost, or an update failed on it.

        The learner stays as it is, and :attr:`skipped` counts one more.  Each skipped episode can add at most H to the
        regret.  The promises hold for the other episodes if what was lost does not depend on what happened in it; an
        update that fails does, so that strictly nothing is proved after skipping one (see ``docs/promises.md``).
        """
        with self._exclusive():
            self._check_index(index)
            self.skipped += 1

    def _check_index(self, index: Any) -> None:
        expected = self.episodes_seen + self.skipped
        if index is not None and integer(index, "episode index", 0, InvalidEpisodeError) != expected:
            happened = "was told before" if index < expected else "comes too early"
            raise InvalidEpisodeError(
                f"episode index {index} {happened}: {expected} episodes were told or skipped so far, the next index is "
                f"{expected} (skip says that one was lost)"
            )

    def _in_use(self) -> ConcurrentUseError:
        return ConcurrentUseError(
            f"learner {self.name!r} is being updated by another thread: give it to one thread alone"
        )

    @abstractmethod
    def _learn(self, episode: CheckedEpisode) -> None:
        """Update the state and set the next policy.

        Attributes are replaced, never written into: then restoring the attributes, as :meth:`update` does after
        an exception, restores the learner.
        """

    def _warn_at_the_end(self) -> None:
        """To be called by ``_learn`` of a learner whose constants are made for K episodes: warns in the one after."""
        if self.episodes_seen == self.episodes:
            warnings.warn(
                f"learner {self.name!r} was made for {self.episodes} episodes, and its constants with it; it goes "
                "on learning, but the proved bound ends here",
                stacklevel=4,
            )

    def misspecification(self, level: float = LEVEL) -> Misspecification | None:
        """Whether the transitions so far contradict the mixture model: a test that may be asked at any time.

        If reality is a mixture, the probability that this *ever* raises its alarm is at most ``level``, however often
        it is asked and whatever policies are played.  None for learners that assume no mixture.  See
        :mod:`advmdp.confidence.misspecification`.
        """
        return None if self._evidence is None else self._evidence.weigh(level)

    def regret_bound(self, episodes: int) -> float:
        """A proved bound on the regret after that many episodes, for authors who have one; NaN otherwise.

        Bounds of the library's own learners are in :mod:`advmdp.theory.bounds`.
        """
        return float("nan")

    def get_params(self) -> dict[str, Any]:
        """The options of the constructor with their values (``problem``, ``episodes``, ``seed`` apart)."""
        parameters = list(inspect.signature(type(self)).parameters)[2:]
        return {name: getattr(self, name) for name in parameters if name != "seed"}

    def _state(self) -> dict[str, Any]:
        """What :meth:`_learn` changed, as a tree for :mod:`advmdp.storage` (the policy is not in it)."""
        return {}

    def _set_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`_state` returned (the same keys), or raise ValueError where it makes no sense."""
        if state:
            raise NotImplementedError(f"{type(self).__name__} saves {sorted(state)} and should define _set_state")

    def state(self) -> dict[str, Any]:
        """What distinguishes this learner from a new one built with the same arguments, as a tree for storage."""
        return {
            "episodes_seen": self.episodes_seen,
            "skipped": self.skipped,
            "random": self._generator.bit_generator.state,
            "policy": self._layers.flatten(self.policy),
            "state": self._state(),
            "evidence": None if self._evidence is None else self._evidence.tree(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned; ValueError where it does not fit this learner."""
        policy = self._layers.flat_vector(state["policy"], "policy")
        check_policy(self._layers, policy)
        self.episodes_seen = integer(state["episodes_seen"], "episodes_seen", 0, ValueError)
        self.skipped = integer(state["skipped"], "skipped", 0, ValueError)
        if self.episodes_seen + self.skipped >= 2**53:  # nobody has counted so far, and counters have 64 bits
            raise ValueError(f"it has seen {self.episodes_seen} episodes and skipped {self.skipped}")
        expected, found = set(self._state()), set(state["state"])
        if expected != found:
            raise ValueError(f"its state has {sorted(found)}, should have {sorted(expected)}")
        self._set_state(dict(state["state"]))  # a copy: what is restored from one tree can be restored again
        if self._evidence is not None:
            self._evidence = MixtureEvidence.from_tree(self._evidence.null.model, state["evidence"])
            if self._evidence.episodes != self.episodes_seen:
                raise ValueError(f"its evidence is of {self._evidence.episodes} episodes")
        self._set_policy(policy)
        self._generator.bit_generator.state = state["random"]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner to one file; the previous file stays until the new one is on the disk."""
        if "_busy" in self.__dict__:
            raise self._in_use()
        storage.write(
            path,
            "learner",
            {
                "name": self.name,
                "problem": problem_tree(self._problem),
                "episodes": self.episodes,
                "seed": self.seed,
                "options": self.get_params(),
                **self.state(),
            },
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._problem!r}, episodes={self.episodes}, episodes_seen={self.episodes_seen})"


class _Exclusive:
    """What :meth:`Learner._exclusive` returns: a context manager without the cost of a generator."""

    __slots__ = ("_learner",)

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def __enter__(self) -> None:
        try:
            # One atomic operation, so that of two threads only one gets through; not a lock, which could not be copied.
            if self._learner.__dict__.setdefault("_busy", self) is not self:
                raise self._learner._in_use()
        except BaseException:  # an interrupt may come right after that operation
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._learner.__dict__.get("_busy") is self:
            del self._learner.__dict__["_busy"]


def load_learner(path: str | os.PathLike[str]) -> Learner:
    """Read a learner that :meth:`Learner.save` wrote; it goes on exactly where it was.

    Raises
    ------
    CorruptCheckpointError
        If the file is damaged, makes no sense, or is of another version.  Nothing in a file can run code.
    """
    tree = storage.read(path, "learner")
    try:
        problem = problem_from_tree(path, tree["problem"])
        # Compared before the learner is built: a small file cannot ask for a large learner.
        problem.layers.flat_vector(tree["policy"], "policy")
        learner: Learner = learners.make(tree["name"], problem, tree["episodes"], seed=tree["seed"], **tree["options"])
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
    episodes: int,
    *,
    seed: int = 0,
    **options: Any,
) -> Learner:
    """Build a learner by name; ``advmdp list`` prints the names with their options.

    ``problem`` is a model, or an MDP, of which only learners with known transition see more than ``.model``.
    ``episodes`` is K, the number that its constants are made for, and ``seed`` that of :meth:`Learner.act`.

    Examples
    --------
    >>> from advmdp import make_world
    >>> learner = make_learner("vlsuob-reps-tight", make_world("grid", height=3, width=3), 100, radius_scale=0.5)
    >>> [table.shape for table in learner.policy], learner.get_params()["radius_scale"]
    ([(1, 2), (2, 2), (3, 2), (2, 2)], 0.5)
    """
    entry = learners.get(name)
    known = getattr(entry, "transition", "unknown") == "known"
    learner: Learner = learners.make(name, problem if known else problem.model, episodes, seed=seed, **options)
    return learner
