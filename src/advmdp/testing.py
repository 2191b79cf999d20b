"""Conformance checks that every learner must pass, ours and those of other authors.

>>> from advmdp import make_learner
>>> from advmdp.testing import check_learner
>>> check_learner(lambda problem, episodes, seed: make_learner("uniform", problem, episodes, seed=seed))
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advmdp.adversaries import make_adversary
from advmdp.episodes import Episode, play
from advmdp.errors import InvalidEpisodeError
from advmdp.experiments import run
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners import Learner, load_learner
from advmdp.occupancy import check_policy, expected_loss
from advmdp.worlds import make_world

#: Builds a fresh learner: ``factory(problem, episodes, seed)``; ``problem`` is a world, of which a learner
#: with unknown transition should take ``problem.model`` only.
Factory = Callable[[Any, int, int], Learner]


def check_learner(factory: Factory, *, mdp: LayeredMDP | None = None, episodes: int = 20, seed: int = 0) -> None:
    """Run every conformance check; a :class:`ConformanceError` says which one failed, and how.

    The checks: the policy is a distribution in every state; the same seed gives the same run; ten episodes and ten
    more equal twenty; :func:`advmdp.run` reports the loss of the policies that were played; a bandit learner does not
    look at losses of pairs that it did not visit; saving and loading in between changes nothing, bit for bit; an
    update that fails in the middle, episodes that cannot have happened, and repeated or skipped ones, leave the
    learner as it was.

    Parameters
    ----------
    factory
        Builds a fresh learner from (problem, episodes, seed).
    mdp
        The world to play in; by default a small random mixture.
    episodes
        How many episodes the longest check plays, at least 4.
    seed
        Of losses, transitions and learner.
    """
    if episodes < 4:
        raise ValueError(f"episodes is {episodes}, should be at least 4")
    world = mdp or make_world("random-mixture", layer_sizes=(1, 3, 4, 1), n_actions=3, dim=2)
    bench = _Bench(factory, world, episodes, seed)
    _check_attributes(bench)
    history = _check_policies(bench)
    _check_same_seed(bench, history)
    _check_interruption(bench, history)
    _check_feedback(bench, history)
    _check_evaluation(bench)
    _check_save_and_load(bench, history)
    _check_failing_update(bench)
    _check_rejections(bench)


class ConformanceError(AssertionError):
    """A learner does not do what every learner must do."""


def _require(condition: bool, message: str) -> None:
    # Not an assert statement: the checks must not vanish under python -O.
    if not condition:
        raise ConformanceError(message)


class _Bench:
    """A world, losses and luck that every check meets in the same way."""

    def __init__(self, factory: Factory, mdp: LayeredMDP, episodes: int, seed: int) -> None:
        self.factory, self.mdp, self.episodes, self.seed = factory, mdp, episodes, seed
        self.adversary = make_adversary("stochastic", mdp, episodes, seed=seed)

    def learner(self) -> Learner:
        return self.factory(self.mdp, self.episodes, self.seed)

    def episode(self, learner: Learner, k: int) -> Episode:
        self.policy(learner)  # checked
        rng = np.random.default_rng([self.seed, k])
        return play(self.mdp, learner.policy, self.adversary.losses(k), rng, index=k)

    def play(self, learner: Learner, start: int, stop: int) -> list[FloatArray]:
        """Play some episodes; the policy after each of them."""
        history = []
        for k in range(start, stop):
            learner.update(self.episode(learner, k))
            history.append(self.policy(learner))
        return history

    def policy(self, learner: Learner) -> FloatArray:
        try:
            flat = self.mdp.layers.flatten(learner.policy, "policy")
            check_policy(self.mdp.layers, flat)
        except ValueError as error:
            raise ConformanceError(f"after {learner.episodes_seen} episodes: {error}") from error
        return flat


def _check_attributes(bench: _Bench) -> None:
    learner = bench.learner()
    _require(learner.feedback in ("bandit", "full"), f"feedback is {learner.feedback!r}, should be 'bandit' or 'full'")
    _require(learner.episodes_seen == 0, "a new learner has seen episodes")
    action = learner.act(0, 0)
    _require(
        isinstance(action, int) and 0 <= action < bench.mdp.n_actions,
        f"act returned {action!r}, should be an int from 0 to {bench.mdp.n_actions - 1}",
    )


def _check_policies(bench: _Bench) -> list[FloatArray]:
    learner = bench.learner()
    history = bench.play(learner, 0, bench.episodes)
    _require(
        learner.episodes_seen == bench.episodes,
        f"episodes_seen is {learner.episodes_seen} after {bench.episodes} episodes",
    )
    return history


def _check_same_seed(bench: _Bench, history: list[FloatArray]) -> None:
    again = bench.play(bench.learner(), 0, bench.episodes)
    _require(_equal(again, history), "two runs with the same seed differ")


def _check_interruption(bench: _Bench, history: list[FloatArray]) -> None:
    """Looking at a learner between episodes must not change what it does."""
    learner = bench.learner()
    half = bench.episodes // 2
    first = bench.play(learner, 0, half)
    _ = learner.policy, learner.q, learner.confidence_set, repr(learner)
    second = bench.play(learner, half, bench.episodes)
    _require(
        _equal(first + second, history),
        f"{half} episodes and {bench.episodes - half} more differ from {bench.episodes} at once",
    )


def _check_feedback(bench: _Bench, history: list[FloatArray]) -> None:
    """A bandit learner must do the same when it is not given the losses of other pairs at all."""
    learner = bench.learner()
    if learner.feedback == "full":
        return
    seen = []
    for k in range(bench.episodes):
        learner.update(replace(bench.episode(learner, k), loss_table=None))
        seen.append(bench.policy(learner))
    _require(_equal(seen, history), "a bandit learner looks at losses of pairs that it did not visit")


def _check_evaluation(bench: _Bench) -> None:
    """What ``run`` reports is the expected loss of the policies that were played, recomputed here."""
    watch = _PolicyWatch(bench)
    result = run(bench.mdp, bench.learner(), bench.adversary, bench.episodes, bench.seed, progress=False, watch=watch)
    reported = float(result.frame["cumulative_loss"].iloc[-1])
    _require(
        abs(reported - watch.total) <= 1e-9 * max(1.0, watch.total),
        f"run reports a total loss of {reported}, the policies that were played lose {watch.total}",
    )


class _PolicyWatch:
    def __init__(self, bench: _Bench) -> None:
        self.bench, self.total = bench, 0.0

    def before(self, k: int, learner: Learner, q: FloatArray, losses: FloatArray) -> None:
        mdp = self.bench.mdp
        self.total += expected_loss(mdp, learner.policy, mdp.layers.split(losses))

    def after(self, k: int, learner: Learner) -> None:
        """Nothing."""


def _check_save_and_load(bench: _Bench, history: list[FloatArray]) -> None:
    learner = bench.learner()
    half = bench.episodes // 2
    bench.play(learner, 0, half)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.npz"
        learner.save(path)
        try:
            loaded = load_learner(path)
        except ValueError as error:
            raise ConformanceError(f"a saved learner cannot be loaded (is it registered?): {error}") from error
        copy = Path(folder) / "copy.npz"
        loaded.save(copy)
        _require(path.read_bytes() == copy.read_bytes(), "a loaded learner saves to a different file")
    _require(type(loaded) is type(learner), f"a saved {type(learner).__name__} is loaded as a {type(loaded).__name__}")
    _require(_equal([bench.policy(loaded)], [bench.policy(learner)]), "loading changes the policy")
    tree = learner.state()
    for _ in range(2):
        try:
            loaded.set_state(tree)
        except (ValueError, KeyError) as error:
            raise ConformanceError(f"a learner cannot be restored twice from one state: {error}") from error
    draws = [learner.act(0, 0) for _ in range(20)]
    _require([loaded.act(0, 0) for _ in range(20)] == draws, "loading changes the random stream")
    rest = bench.play(loaded, half, bench.episodes)
    _require(_equal(rest, history[half:]), "saving and loading in the middle changes the run")


def _check_failing_update(bench: _Bench) -> None:
    """An update that fails at its very end, when the new policy is put in place, must leave no trace."""
    learner = bench.learner()
    bench.play(learner, 0, 2)
    before = _snapshot(learner)

    def fail(flat: FloatArray) -> None:
        raise _InjectedFailure

    learner._set_policy = fail  # type: ignore[method-assign]
    failed = False
    try:
        learner.update(bench.episode(learner, 2))
    except _InjectedFailure:
        failed = True
    del learner._set_policy
    if failed:  # a learner whose policy never changes has nothing that could fail
        _require(_snapshot(learner) == before, "an update that failed in the middle changed the learner")


class _InjectedFailure(Exception):
    pass


def _check_rejections(bench: _Bench) -> None:
    learner = bench.learner()
    bench.play(learner, 0, 2)
    before = _snapshot(learner)
    for what, episode in impossible_episodes(bench.mdp, bench.episode(learner, 2)):
        try:
            learner.update(episode)
        except InvalidEpisodeError:
            pass
        else:
            raise ConformanceError(f"an episode with {what} was accepted")
        _require(_snapshot(learner) == before, f"an episode with {what} changed the learner")
    bench.play(learner, 2, 3)


def impossible_episodes(mdp: LayeredMDP, good: Episode) -> list[tuple[str, Episode]]:
    """Ways in which an episode can be wrong, each made from a good one (whose index is the next)."""
    states, actions, losses = (np.array(values).tolist() for values in (good.states, good.actions, good.losses))
    index = good.index or 0

    def altered(
        new_states: Any = states, new_actions: Any = actions, new_losses: Any = losses, step: int = 0
    ) -> Episode:
        return Episode(new_states, new_actions, new_losses, good.loss_table, index + step)

    cases = [
        ("too few states", altered(new_states=states[:-1])),
        ("too many states", altered(new_states=[*states, 0, 0])),
        ("too few actions", altered(new_actions=actions[:-1])),
        ("too few losses", altered(new_losses=losses[:-1])),
        ("a first state that does not exist", altered(new_states=[1, *states[1:]])),
        ("a negative state", altered(new_states=[*states[:-1], -1])),
        ("a terminal state that does not exist", altered(new_states=[*states, 1])),
        ("a state that is not an integer", altered(new_states=[0.5, *states[1:]])),
        ("an unknown action", altered(new_actions=[*actions[:-1], mdp.n_actions])),
        ("a negative action", altered(new_actions=[-1, *actions[1:]])),
        ("a loss above 1", altered(new_losses=[1.5, *losses[1:]])),
        ("a negative loss", altered(new_losses=[-0.1, *losses[1:]])),
        ("a loss that is NaN", altered(new_losses=[float("nan"), *losses[1:]])),
        ("a loss that is infinite", altered(new_losses=[float("inf"), *losses[1:]])),
        ("a loss that is not a number", altered(new_losses=["high", *losses[1:]])),
        ("a repeated index", altered(step=-1)),
        ("a skipped index", altered(step=1)),
    ]
    possible = mdp.model.possible
    if possible is not None:
        for h, mask in enumerate(possible[:-1]):
            missing = np.flatnonzero(~mask[states[h], actions[h]])
            if missing.size:
                jump = [*states[: h + 1], int(missing[0]), *states[h + 2 :]]
                cases.append(("an impossible transition", altered(new_states=jump)))
                break
    return cases


def _snapshot(learner: Learner) -> bytes:
    """Everything that a learner would save, as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.npz"
        learner.save(path)
        return path.read_bytes()


def _equal(one: list[FloatArray], other: list[FloatArray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
