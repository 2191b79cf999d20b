"""One run: a learner plays K episodes, and its regret is computed exactly, never sampled."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from advmdp._checks import integer
from advmdp._compiled import kernel
from advmdp._summation import CompensatedSum
from advmdp.adversaries import Adversary
from advmdp.episodes import Episode, simulate
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners import Learner
from advmdp.occupancy import best_policy, check_policy, expected_loss, forward, worst_policy
from advmdp.registry import learners
from advmdp.seeding import Stream, generator
from advmdp.theory import bounds

#: Rows per decade of episodes; the same episodes are logged whatever K is (and K itself).
ROWS_PER_DECADE = 20


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run has to show.

    Attributes
    ----------
    frame
        One row per logged episode (log-spaced): ``episode`` (how many were played), ``loss`` (expected, of
        this episode's policy), ``cumulative_loss`` (expected), ``observed_loss`` (cumulative, as sampled),
        ``regret`` (cumulative, exact), ``bound`` (see :func:`proved_bound`).
    best_policy
        The best fixed policy in hindsight for the losses of all K episodes.
    baselines
        Total loss over all K episodes of the ``best`` and the ``worst`` fixed policy, and of ``uniform``.
    options
        The learner's options, such as ``radius_scale``: with any but the defaults, a result is not that of the theorem.
    seconds
        Time that the run took; not in the frame, which depends on the seeds alone.
    """

    frame: pd.DataFrame
    best_policy: list[FloatArray]
    baselines: dict[str, float]
    options: dict[str, Any]
    seconds: float

    @property
    def regret(self) -> FloatArray:
        """Cumulative pseudo-regret at the logged episodes, against the best fixed policy for all K."""
        return self.frame["regret"].to_numpy()


class Watcher(Protocol):
    """Looks on while a run goes on; it must not change anything."""

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        """Before the update of episode k: the true occupancy measure of its policy and its losses, both flat."""

    def after(self, k: int, learner: Learner) -> None:
        """After that update."""


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

    Notes
    -----
    Memory grows with log K: for the comparator, the summed losses are kept at the logged episodes only.
    """
    _check_fit(mdp, learner, adversary, episodes)
    adversary.reset()
    started = time.perf_counter()
    layers = mdp.layers
    data, offsets = mdp.flat_kernels
    sizes, n_actions, horizon = layers.size_array, layers.n_actions, layers.horizon
    rng = generator(seed, Stream.TRANSITIONS)

    logged = logged_episodes(episodes)
    summed_losses = np.empty((len(logged), layers.n_pairs))
    losses_met = CompensatedSum(layers.n_pairs)
    own_loss = CompensatedSum(1)
    observed_loss = 0.0
    rows: list[tuple[int, float, float, float]] = []

    q = np.empty(layers.n_pairs)
    policy: Sequence[FloatArray] | None = None
    full_information = learner.feedback == "full"
    with _progress(episodes, progress) as advance:
        for k in range(episodes):
            if learner.policy is not policy:
                flat_policy = layers.flatten(learner.policy, "policy")
                check_policy(layers, flat_policy)
                forward(data, offsets, sizes, n_actions, flat_policy, q)
                # Only what cannot be changed in place may be recognised by its identity later.
                policy = learner.policy if _is_constant(learner.policy) else None
            losses = _checked_losses(adversary, k)
            states = np.empty(horizon, dtype=np.int64)
            actions = np.empty(horizon, dtype=np.int64)
            observed = np.empty(horizon)
            simulate(
                data,
                offsets,
                sizes,
                n_actions,
                flat_policy,
                losses,
                rng.random(2 * horizon),
                states,
                actions,
                observed,
            )
            expected = expected_loss_of(q, losses)
            if expected < 0.0:
                _reject_losses(adversary, k, losses)
            losses_met.add(losses)
            own_loss.add(np.array([expected]))
            observed_loss += float(observed.sum())
            if watch is not None:
                watch.before(k, learner, q, losses)
            learner.update(Episode(states, actions, observed, losses if full_information else None, k))
            if watch is not None:
                watch.after(k, learner)
            if not adversary.oblivious:
                adversary.observe(states, actions)
            if k + 1 == logged[len(rows)]:
                summed_losses[len(rows)] = losses_met.value
                rows.append((k + 1, expected, float(own_loss.value[0]), observed_loss))
            advance(k + 1)

    best, best_total = best_policy(mdp, layers.split(losses_met.value))
    forward(data, offsets, sizes, n_actions, layers.flatten(best), q)
    frame = pd.DataFrame(rows, columns=["episode", "loss", "cumulative_loss", "observed_loss"])
    frame["regret"] = frame["cumulative_loss"] - summed_losses @ q
    frame["bound"] = [proved_bound(learner, count) for count in logged]
    uniform = layers.split(np.full(layers.n_pairs, 1.0 / n_actions))
    total_losses = layers.split(losses_met.value)
    baselines = {
        "best": best_total,
        "uniform": expected_loss(mdp, uniform, total_losses),
        "worst": worst_policy(mdp, total_losses)[1],
    }
    return RunResult(frame, best, baselines, learner.get_params(), time.perf_counter() - started)


@kernel
def expected_loss_of(q: FloatArray, losses: FloatArray) -> float:
    """<q, l>, or -1 if a loss is outside [0, 1]."""
    expected = 0.0
    for i in range(q.size):
        if not 0.0 <= losses[i] <= 1.0:
            return -1.0
        expected += q[i] * losses[i]
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


def proved_bound(learner: Learner, episodes: int) -> float:
    """The bound that is proved for this learner, as it is set, after that many episodes; NaN without one.

    The theorems of the library's own learners speak of the last episode that their constants are made for, and of their
    default options.
    """
    own = learner.regret_bound(episodes)
    if not np.isnan(own) or episodes != learner.episodes or learner.name not in learners.names():
        return own
    options = learner.get_params()
    # The failure probability is an argument of the bound, and the simplex of weights only makes sets smaller.
    for name, default in learners.options(learner.name).items():
        if name not in ("seed", "zeta", "simplex") and options[name] != default:
            return own
    problem = learner._problem
    sizes = (problem.n_states, problem.n_actions, problem.horizon, episodes, getattr(problem, "dim", 1))
    return bounds.of_learner(learner.name, *sizes, options.get("zeta", 0.05), getattr(problem, "bound", 1.0))


def _is_constant(policy: Sequence[FloatArray]) -> bool:
    return isinstance(policy, tuple) and not any(table.flags.writeable for table in policy)


def _checked_losses(adversary: Adversary, k: int) -> FloatArray:
    """The losses of episode k, of the right form; their values are looked at by :func:`expected_loss_of`."""
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
    """A function to call after each episode; it draws a bar a few times per second, or does nothing."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda done: None
        return
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # On a terminal the bar disappears when it is full; in a log file its last state is kept.
    with Progress(*columns, console=Console(stderr=True), transient=sys.stderr.isatty()) as bar:
        task = bar.add_task("episodes", total=episodes)
        stride = max(1, min(256, episodes // 100))

        def advance(done: int) -> None:
            if done % stride == 0 or done == episodes:
                bar.update(task, completed=done)

        yield advance
