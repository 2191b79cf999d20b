"""One run: a learner plays K episodes, and its regret is computed exactly, never sampled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from advmdp._checks import between, integer, numbers
from advmdp._compiled import kernel
from advmdp._html import facts
from advmdp._summation import CompensatedSum, add_one
from advmdp.adversaries import Adversary
from advmdp.adversaries.adaptive import Reacting
from advmdp.episodes import Episode, simulate
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.experiments.dynamic_regret import Comparator, DynamicRegret
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners import Learner
from advmdp.occupancy import best_policy, check_policy, expected_loss, forward, occupancy_measure, worst_policy
from advmdp.registry import learners
from advmdp.seeding import Stream, generator
from advmdp.theory import bounds

#: Rows per decade of episodes; the same episodes are logged whatever K is (and K itself).
ROWS_PER_DECADE = 20
#: A progress bar is told after this many episodes.
PROGRESS_STRIDE = 64


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run has to show.

    Attributes
    ----------
    frame
        One row per logged episode (log-spaced): ``episode`` (how many were played), ``loss`` (expected, of
        this episode's policy), ``cumulative_loss`` (expected), ``observed_loss`` (cumulative, as sampled),
        ``regret`` (cumulative, exact), ``bound`` (see :func:`proved_bound`), and one column for each of the
        ``comparators`` that the run was asked for.
    best_policy
        The best fixed policy in hindsight for the losses of all K episodes: a list over layers of ``(S_h, A)``, as are
        the policies and occupancy measures below.
    baselines
        Total loss over all K episodes of the ``best`` and the ``worst`` fixed policy, and of ``uniform``.
    options
        The learner's options, such as ``radius_scale``: with any but the defaults, a result is not that of the theorem.
    seconds, processor_seconds
        Time that the run took, by the clock and of the processor; not in the frame, which depends on the seeds alone.
    policy, occupancy
        That the last episode was played with, and its true occupancy measure.
    mean_occupancy
        The true occupancy measures of all K policies, averaged.
    """

    frame: pd.DataFrame
    best_policy: list[FloatArray]
    baselines: dict[str, float]
    options: dict[str, Any]
    seconds: float
    processor_seconds: float
    policy: list[FloatArray]
    occupancy: list[FloatArray]
    mean_occupancy: list[FloatArray]

    @property
    def regret(self) -> FloatArray:
        """Cumulative pseudo-regret at the logged episodes, against the best fixed policy for all K."""
        return self.frame["regret"].to_numpy()

    def _repr_html_(self) -> str:
        last = self.frame.iloc[-1]
        played = int(last["episode"])
        losses = {"the learner": last["cumulative_loss"], **self.baselines}
        return facts(
            type(self).__name__,
            [
                ("episodes", f"{played:,}, in {self.seconds:.3g} s"),
                ("regret", f"{last['regret']:,.4g}, {last['regret'] / played:.3g} per episode"),
                ("proved bound", "none" if np.isnan(last["bound"]) else f"{last['bound']:,.4g}"),
                ("expected loss", ", ".join(f"{name} {loss:,.4g}" for name, loss in losses.items())),
                ("options", ", ".join(f"{name}={value!r}" for name, value in self.options.items()) or "none"),
            ],
        )


class Watcher(Protocol):
    """Looks on while a run goes on; it must not change anything."""

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Before the update of episode k: the true occupancy measure of its policy and its losses, both flat."""

    def after(self, k: int, learner: Learner) -> None:
        """After that update."""


@runtime_checkable
class ResumableWatcher(Watcher, Protocol):
    """One that can be saved with an interrupted run, as trees for :mod:`advmdp.storage`."""

    def state(self) -> dict[str, Any]:
        """What it saw so far."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""


def logged_episodes(episodes: int) -> list[int]:
    """The episode counts at which a run of this length writes a row."""
    decades = int(np.ceil(np.log10(episodes))) + 1
    exponents = np.arange(ROWS_PER_DECADE * decades + 1) / ROWS_PER_DECADE
    counts = {round(10.0**exponent) for exponent in exponents}
    return sorted({count for count in counts if count <= episodes} | {episodes})


def run(
    mdp: LayeredMDP,
    learner: Learner,
    adversary: Adversary,
    episodes: int,
    seed: int = 0,
    *,
    progress: bool | None = None,
    watch: Watcher | None = None,
    comparators: Sequence[Comparator] = (),
) -> RunResult:
    """Play ``episodes`` episodes and evaluate every policy exactly on the true kernels.

    The regret after k episodes is sum_{i<=k} <q_i - q*, l_i>, with q* the occupancy measure of the best fixed
    policy for the losses of all episodes of this run.  Against an adversary that reacts, the losses are those
    that this learner met: the regret then compares with a fixed policy on the *realised* losses, not with
    what would have happened had that policy been played.

    Parameters
    ----------
    mdp, learner, adversary
        Of the same shape; the learner must not have seen episodes yet.
    episodes
        K.
    seed
        Of the random stream that draws actions and transitions, 2 H numbers per episode: learners that are
        run with the same seed meet the same luck, and the same losses.
    progress
        Whether to show a progress bar; by default if the error stream is a terminal.
    watch
        Looks on: see :class:`Watcher`.
    comparators
        Changing comparators, for dynamic regret: ``"per-episode"`` adds the column ``regret_per_episode``, against the
        best policy of each episode; a number m adds ``regret_m_switches``, against the best sequence of policies for
        all K episodes that switches at most m times (at multiples of K / 128; at any episode where K <= 128).

    Notes
    -----
    Memory grows with log K: for the comparator, the summed losses are kept at the logged episodes only (and, for
    changing comparators, at 128 more).

    Examples
    --------
    >>> from advmdp import make_adversary, make_learner, make_world
    >>> world = make_world("grid", height=3, width=3)
    >>> losses = make_adversary("stochastic", world, episodes=50)
    >>> result = run(world, make_learner("ftl", world, 50), losses, episodes=50)
    >>> list(result.frame)
    ['episode', 'loss', 'cumulative_loss', 'observed_loss', 'regret', 'bound']
    >>> bool(result.baselines["best"] <= result.baselines["uniform"] <= result.baselines["worst"])
    True
    """
    current = Run(mdp, learner, adversary, episodes, seed, watch=watch, comparators=comparators)
    with _progress(episodes, progress) as advance:
        while current.played < episodes:
            current.play(PROGRESS_STRIDE)
            advance(current.played)
    return current.result()


class Run:
    """A run in progress: it can stop after any episode, be written to a file, and go on elsewhere, bit for bit.

    The arguments are those of :func:`run`.  :meth:`play` plays, :meth:`result` tells when all episodes are played.
    To go on from a :meth:`state`, build the same run anew (same world, learner, adversary, seeds) and give it to
    :meth:`set_state`.
    """

    def __init__(
        self,
        mdp: LayeredMDP,
        learner: Learner,
        adversary: Adversary,
        episodes: int,
        seed: int = 0,
        *,
        watch: Watcher | None = None,
        comparators: Sequence[Comparator] = (),
    ) -> None:
        _check_fit(mdp, learner, adversary, episodes)
        adversary.reset()
        self.mdp, self.learner, self.adversary, self.watch = mdp, learner, adversary, watch
        self.episodes = episodes
        #: Episodes played so far.
        self.played = 0
        #: Time spent in :meth:`play`, also before an interruption.
        self.seconds = 0.0
        #: Of this process's processors in that time: what an episode costs, also on a machine that is busy otherwise.
        self.processor_seconds = 0.0
        self._rng = generator(seed, Stream.TRANSITIONS)
        self._logged = logged_episodes(episodes)
        self._rows: list[tuple[int, float, float, float]] = []
        self._dynamic = DynamicRegret(mdp, self._logged, comparators) if comparators else None
        n_pairs = mdp.layers.n_pairs
        self._summed_losses = np.empty((len(self._logged), n_pairs))
        # The losses met, and behind them the expected loss suffered: without the error of long sums.
        self._sums = CompensatedSum(n_pairs + 1)
        self._occupancies = np.zeros(n_pairs)
        self._observed_loss = 0.0
        # The policy of the last episode and its true occupancy measure.
        self._flat_policy = np.zeros(n_pairs)
        self._q = np.zeros(n_pairs)

    def play(self, count: int | None = None) -> None:
        """Play ``count`` episodes more, or as many as are left."""
        left = self.episodes - self.played
        count = left if count is None else min(count, left)
        started, processor_started = time.perf_counter(), time.process_time()
        mdp, learner, adversary, watch = self.mdp, self.learner, self.adversary, self.watch
        layers = mdp.layers
        rows = tuple(mdp.rows)
        sizes, n_actions, horizon = layers.size_array, layers.n_actions, layers.horizon
        rng, sums, occupancies, q = self._rng, self._sums, self._occupancies, self._q
        policy: FloatArray | None = None
        full_information, by_state = learner.feedback == "full", learner.feedback == "actions"
        total_only = learner.feedback == "total"
        for k in range(self.played, self.played + count):
            flat_policy = learner.flat_policy
            if flat_policy is not policy:
                check_policy(layers, flat_policy)
                forward(rows, sizes, n_actions, flat_policy, q)
                # Only what cannot be changed in place may be recognised by its identity later.
                policy = None if flat_policy.flags.writeable else flat_policy
                self._flat_policy = flat_policy
            losses = _checked_losses(adversary, k)
            states = np.empty(horizon, dtype=np.int64)
            actions = np.empty(horizon, dtype=np.int64)
            observed = np.empty(horizon)
            total = simulate(
                rows, sizes, n_actions, self._flat_policy, losses, rng.random(2 * horizon), states, actions, observed
            )
            expected = account(q, losses, sums.total, sums.carry, occupancies)
            if expected < 0.0:
                _reject_losses(adversary, k, losses)
            self._observed_loss += total
            if watch is not None:
                watch.before(k, learner, q, losses)
            every = [table[s] for table, s in zip(layers.split(losses), states, strict=True)] if by_state else None
            if total_only:
                told = Episode(states, actions, None, index=k, total=total)
            else:
                told = Episode(states, actions, observed, losses if full_information else None, k, every)
            learner.update(told)
            if watch is not None:
                watch.after(k, learner)
            if not adversary.oblivious:
                adversary.observe(states, actions)
            self.played = k + 1
            if self._dynamic is not None:
                self._dynamic.add(self.played, losses, sums)
            if self.played == self._logged[len(self._rows)]:
                value = sums.value
                self._summed_losses[len(self._rows)] = value[:-1]
                self._rows.append((self.played, expected, float(value[-1]), self._observed_loss))
        self.seconds += time.perf_counter() - started
        self.processor_seconds += time.process_time() - processor_started

    def result(self) -> RunResult:
        """What the run has to show, after its last episode."""
        if self.played < self.episodes:
            raise InvalidSpecError(
                f"{self.played} of {self.episodes} episodes were played; the best policy in hindsight needs all"
            )
        mdp, layers = self.mdp, self.mdp.layers
        total_losses = layers.split(self._sums.value[:-1])
        best, best_total = best_policy(mdp, total_losses)
        frame = pd.DataFrame(self._rows, columns=["episode", "loss", "cumulative_loss", "observed_loss"])
        frame["regret"] = frame["cumulative_loss"] - self._summed_losses @ layers.flatten(occupancy_measure(mdp, best))
        frame["bound"] = [proved_bound(self.learner, count, self.adversary.oblivious) for count in self._logged]
        if self._dynamic is not None:
            own = frame["cumulative_loss"].to_numpy()
            frame = frame.assign(**self._dynamic.columns(own, self._summed_losses))
        uniform = layers.split(layers.uniform_policy)
        baselines = {
            "best": best_total,
            "uniform": expected_loss(mdp, uniform, total_losses),
            "worst": worst_policy(mdp, total_losses)[1],
        }
        return RunResult(
            frame,
            best,
            baselines,
            self.learner.get_params(),
            self.seconds,
            self.processor_seconds,
            layers.split(self._flat_policy.copy()),
            layers.split(self._q.copy()),
            layers.split(self._occupancies / self.episodes),
        )

    def state(self) -> dict[str, Any]:
        """All that was accumulated so far, as a tree for :mod:`advmdp.storage`."""
        watch = self._resumable_watch()
        return {
            "played": self.played,
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "random": self._rng.bit_generator.state,
            "rows": [list(row) for row in self._rows],
            "summed_losses": self._summed_losses[: len(self._rows)].copy(),
            "total": self._sums.total.copy(),
            "carry": self._sums.carry.copy(),
            "occupancies": self._occupancies.copy(),
            "observed_loss": self._observed_loss,
            "flat_policy": self._flat_policy.copy(),
            "q": self._q.copy(),
            "learner": self.learner.state(),
            "adversary": self.adversary.state(),
            "watch": None if watch is None else watch.state(),
            "dynamic": None if self._dynamic is None else self._dynamic.state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` returned; this run must be new, and built as that one was.

        ValueError where it does not fit; the run is then of no use, and must be built anew.
        """
        if self.played:
            raise InvalidSpecError(f"the run has already played {self.played} episodes, should be new")
        played = integer(state["played"], "played", 0, ValueError)
        layers, logged = self.mdp.layers, [count for count in self._logged if count <= played]
        n_pairs, most = layers.n_pairs, layers.horizon * (played + 1.0)
        shape = (len(logged), 4) if logged else (0,)
        rows = numbers(state["rows"], "rows", shape, 0.0, most).reshape(-1, 4)
        if played > self.episodes or rows[:, 0].tolist() != logged:
            raise ValueError(f"its rows do not fit {played} of {self.episodes} episodes played")
        summed = numbers(state["summed_losses"], "summed_losses", (len(logged), n_pairs), 0.0, played + 1.0)
        total = numbers(state["total"], "total", (n_pairs + 1,), 0.0, most)
        carry = numbers(state["carry"], "carry", (n_pairs + 1,), -1.0, 1.0)
        occupancies = numbers(state["occupancies"], "occupancies", (n_pairs,), 0.0, played + 1.0)
        flat_policy = numbers(state["flat_policy"], "flat_policy", (n_pairs,), 0.0)
        if played:
            check_policy(layers, flat_policy)
        q = numbers(state["q"], "q", (n_pairs,), 0.0, 1.0 + 1e-9)
        observed, seconds, processor_seconds = (
            between(state[name], name, 0.0, high, ValueError)
            for name, high in (("observed_loss", most), ("seconds", 1e12), ("processor_seconds", 1e12))
        )
        self.learner.set_state(state["learner"])
        self.adversary.set_state(state["adversary"])
        if isinstance(self.adversary, Reacting) and self.adversary.observed != played:
            raise ValueError(f"its adversary has observed {self.adversary.observed} episodes, and {played} were played")
        if self.learner.episodes_seen != played:
            raise ValueError(f"its learner has seen {self.learner.episodes_seen} episodes, and {played} were played")
        watch = self._resumable_watch()
        if watch is not None:
            watch.set_state(state["watch"])
        if self._dynamic is not None:
            self._dynamic.set_state(state["dynamic"], played)
        self._rng.bit_generator.state = state["random"]
        self._rows = [(int(k), loss, sum_, seen) for k, loss, sum_, seen in rows.tolist()]
        self._summed_losses[: len(logged)] = summed
        self._sums.total[:], self._sums.carry[:] = total, carry
        self._occupancies, self._flat_policy, self._q = occupancies, flat_policy, q
        self._observed_loss, self.seconds, self.processor_seconds = observed, seconds, processor_seconds
        self.played = played

    def _resumable_watch(self) -> ResumableWatcher | None:
        if self.watch is None or isinstance(self.watch, ResumableWatcher):
            return self.watch
        raise InvalidSpecError(f"{type(self.watch).__name__} has no state() and set_state(): it cannot be saved")


@kernel
def account(q: FloatArray, losses: FloatArray, total: FloatArray, carry: FloatArray, occupancies: FloatArray) -> float:
    """<q, l>, or -1 if a loss is outside [0, 1]; the sums grow by the losses and, last entry, by <q, l>."""
    expected = 0.0
    for i in range(q.size):
        if not 0.0 <= losses[i] <= 1.0:
            return -1.0
        expected += q[i] * losses[i]
    for i in range(q.size):
        occupancies[i] += q[i]
        add_one(total, carry, i, losses[i])
    add_one(total, carry, q.size, expected)
    return expected


def _check_fit(mdp: LayeredMDP, learner: Learner, adversary: Adversary, episodes: int) -> None:
    integer(episodes, "episodes", 1, InvalidSpecError)
    if adversary.layers != mdp.layers:
        raise InvalidSpecError(
            f"the adversary has layers {adversary.layers}, the world {mdp.layers}: they should be equal"
        )
    shapes = [np.shape(table) for table in learner.policy]
    wanted = [(size, mdp.n_actions) for size in mdp.layer_sizes[:-1]]
    if shapes != wanted:
        raise InvalidSpecError(f"the learner's policy has shapes {shapes}, the world needs {wanted}")
    if learner.episodes_seen:
        raise InvalidSpecError(f"the learner has already seen {learner.episodes_seen} episodes, should be new")


def proved_bound(learner: Learner, episodes: int, oblivious: bool = True) -> float:
    """The bound that is proved for this learner, as it is set, after that many episodes; NaN without one.

    The theorems of the library's own learners speak of the last episode that their constants are made for, and of their
    default options; some only of losses that do not react (``oblivious``).
    """
    own = learner.regret_bound(episodes)
    if not np.isnan(own) or episodes != learner.episodes or learner.name not in learners.names():
        return own
    if learner.start is not None:  # it enters the bound: docs/learners.md
        return own
    options, problem, name = learner.get_params(), learner._problem, learner.name
    # Rows of their own: what is proved of the default says nothing of these.
    conditional = options.get("entropy") == "conditional"
    usual = learners.options(name).get("entropy") == "conditional"  # the default needs no name
    variants = {"shared": learner.shares, "conditional": conditional and not usual}
    # The failure probability is an argument of the bound, and the simplex of weights only makes sets smaller.
    spoken_for = {"zeta", "simplex", "shared", *(("entropy",) if conditional else ())}
    for option, default in learners.options(name).items():
        if option in options and option not in spoken_for and options[option] != default:
            return own
    mixture = getattr(problem, "simplex", False)
    if not mixture and (learner.shares or name == "portfolio"):
        return own  # worked out for mixtures of kernels only
    counted = problem.layers.counted
    # Weights in every state by themselves are bounded by the most actions of one state, occupancies by all pairs.
    weighing = ("mdp-e", "oppo", "oppo-linear", "powers", "powers-dynamic", "pomd", "portfolio")
    by_state = conditional or name in weighing
    actions = counted.most_actions if by_state else counted.actions
    sizes = (counted.states, actions, problem.horizon, episodes, getattr(problem, "dim", 1))
    # Shared are mixture weights, whose norm is at most one.
    zeta, bound = options.get("zeta", 0.05), 1.0 if learner.shares else getattr(problem, "bound", 1.0)
    name = ", ".join([name, *(variant for variant, chosen in variants.items() if chosen)])
    return bounds.of_learner(name, *sizes, zeta, bound, oblivious=oblivious)


def _checked_losses(adversary: Adversary, k: int) -> FloatArray:
    """The losses of episode k, of the right form; their values are looked at by :func:`account`."""
    losses = adversary.flat_losses(k)
    n_pairs = adversary.layers.n_pairs
    if (
        type(losses) is not np.ndarray
        or losses.shape != (n_pairs,)
        or losses.dtype != np.float64
        or not losses.flags.c_contiguous
    ):
        found = f"{losses.dtype} {losses.shape}" if isinstance(losses, np.ndarray) else type(losses).__name__
        raise InvalidMDPError(
            f"{type(adversary).__name__}, episode {k}: flat_losses returned {found}, should be a contiguous "
            f"float64 array of shape {(n_pairs,)}"
        )
    return losses


def _reject_losses(adversary: Adversary, k: int, losses: FloatArray) -> None:
    pair = int(np.argmax(~((losses >= 0.0) & (losses <= 1.0))))
    raise InvalidMDPError(
        f"{type(adversary).__name__}, episode {k}, {adversary.layers.name_pair(pair)}: loss "
        f"{losses[pair]} is outside [0, 1]"
    )


@contextmanager
def _progress(episodes: int, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """A function to tell how many episodes are played; it draws a bar, or does nothing."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda done: None
        return
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # On a terminal the bar disappears when it is full; in a log file its last state is kept.
    with Progress(*columns, console=Console(stderr=True), transient=sys.stderr.isatty()) as bar:
        task = bar.add_task("episodes", total=episodes)
        yield lambda done: bar.update(task, completed=done)
