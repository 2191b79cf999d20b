"""Conformance checks that every learner must pass, ours and those of other authors.

>>> from advmdp import make_learner
>>> from advmdp.testing import check_learner
>>> check_learner(lambda problem, episodes, seed: make_learner("uniform", problem, episodes, seed=seed))
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advmdp.adversaries import make_adversary
from advmdp.episodes import CheckedEpisode, Episode, play
from advmdp.errors import InvalidEpisodeError, InvalidSpecError
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
    look at losses of pairs that it did not visit; an action that is unavailable has probability zero; saving and
    loading in between changes nothing, bit for bit; an update that fails in the middle, episodes that cannot have
    happened, and repeated or skipped ones, leave the learner as it was; losses that are told late, but before the next
    update, give what telling them at once gives; what a learner cannot use (missing losses, losses of all actions,
    a total, logged transitions, episodes that overlap, a start policy) is refused and changes nothing, and what it can
    use leaves it with a policy, and a file that loads.  An exception of the learner's own becomes a
    :class:`ConformanceError` too.

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
    _check_late_losses(bench)
    _check_missing_losses(bench)
    _check_what_it_cannot_use(bench)
    _check_overlap(bench)
    _check_start(bench)
    _check_available(bench)


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
            self.tell(learner, self.episode(learner, k))
            history.append(self.policy(learner))
        return history

    def tell(self, learner: Learner, episode: Episode) -> None:
        try:
            learner.update(episode)
        except Exception as error:
            raise ConformanceError(f"episode {episode.index}: the update raised {error!r}") from error

    def policy(self, learner: Learner) -> FloatArray:
        try:
            flat = self.mdp.layers.flatten(learner.policy, "policy")
            check_policy(self.mdp.layers, flat)
        except ValueError as error:
            raise ConformanceError(f"after {learner.episodes_seen} episodes: {error}") from error
        return flat


def _check_attributes(bench: _Bench) -> None:
    learner = bench.learner()
    levels = ("bandit", "actions", "full", "total")
    _require(learner.feedback in levels, f"feedback is {learner.feedback!r}, should be one of {levels}")
    _require(learner.certificate >= 0.0, f"certificate is {learner.certificate}, should be a number >= 0")
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
        bench.tell(learner, replace(bench.episode(learner, k), loss_table=None))
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
    """An update that fails at its very end, when the new state is there, must leave no trace."""
    learner = bench.learner()
    bench.play(learner, 0, 2)
    episode, before, learn = bench.episode(learner, 2), _snapshot(learner), learner._learn

    def fail(state: Any, checked: CheckedEpisode) -> None:
        learn(state, checked)
        raise _InjectedFailure

    learner._learn = fail  # type: ignore[method-assign, assignment]
    with suppress(_InjectedFailure):
        learner.update(episode)
    del learner._learn
    _require(_snapshot(learner) == before, "an update that failed in the middle changed the learner")


class _InjectedFailure(Exception):
    pass


def _check_rejections(bench: _Bench) -> None:
    learner = bench.learner()
    bench.play(learner, 0, 2)
    before = _snapshot(learner)
    for what, episode in impossible_episodes(bench.mdp, bench.episode(learner, 2)):
        _refused(learner, before, lambda episode=episode: learner.update(episode), f"an episode with {what}")  # type: ignore[misc]
    bench.play(learner, 2, 3)


def _refused(learner: Learner, before: bytes, call: Callable[[], None], what: str) -> None:
    try:
        call()
    except InvalidEpisodeError:
        pass
    except Exception as error:
        raise ConformanceError(f"{what}: raised {error!r}, should be an InvalidEpisodeError") from error
    else:
        raise ConformanceError(f"{what} was accepted")
    _require(_snapshot(learner) == before, f"{what} changed the learner")


def _check_late_losses(bench: _Bench) -> None:
    """Losses that come before the next update make no difference; the rest is noticed."""
    prompt, late = bench.learner(), bench.learner()
    for learner in (prompt, late):
        bench.play(learner, 0, 2)
    episode = bench.episode(prompt, 2)
    bench.tell(prompt, episode)
    bench.tell(late, replace(episode, losses=None, loss_table=None))
    bench.policy(late)
    waiting = _snapshot(late)
    _refused(late, waiting, lambda: late.tell(1, episode.losses), "losses of an episode that waits for none")
    _refused(late, waiting, lambda: late.tell(2, [2.0] * bench.mdp.horizon), "a late loss above 1")
    late = _reloaded(late)
    if not late.partial:
        another = replace(bench.episode(prompt, 3), index=3)
        _refused(late, waiting, lambda: late.update(another), "an episode before the losses of the last one")
    late.tell(2, episode.losses, episode.loss_table)
    _require(_snapshot(late) == _snapshot(prompt), "losses that were told before the next update make a difference")
    _refused(late, _snapshot(late), lambda: late.tell(2, episode.losses), "losses that were told before")


def _check_missing_losses(bench: _Bench) -> None:
    """NaN is refused, or taken; then losses may also come after the next update."""
    learner = bench.learner()
    bench.play(learner, 0, 2)
    episode = bench.episode(learner, 2)
    losses = np.array(episode.losses)
    losses[-1] = np.nan
    unseen = replace(episode, losses=losses)
    if not learner.partial:
        _refused(learner, _snapshot(learner), lambda: learner.update(unseen), "an episode with a loss that is NaN")
        return
    bench.tell(learner, unseen)
    bench.tell(learner, replace(bench.episode(learner, 3), losses=None))
    fourth = bench.episode(learner, 4)
    bench.tell(learner, fourth)
    learner.tell(3, [0.5] * bench.mdp.horizon)
    again = _reloaded(learner)
    for one in (learner, again):
        bench.play(one, 5, 6)
    _require(_snapshot(again) == _snapshot(learner), "saving while late losses wait for an update changes the run")


def _check_what_it_cannot_use(bench: _Bench) -> None:
    """Losses of all actions, and logged transitions: refused without a trace, or used."""
    learner = bench.learner()
    bench.play(learner, 0, 2)
    episode, before = bench.episode(learner, 2), _snapshot(learner)
    every = [table[state] for table, state in zip(bench.adversary.losses(2), np.asarray(episode.states), strict=False)]
    told = replace(episode, action_losses=every)
    if learner.feedback != "actions":
        _refused(learner, before, lambda: learner.update(told), "losses of all actions")
    alone = replace(episode, losses=None, loss_table=None, total=float(np.asarray(episode.losses).sum()))
    if learner.feedback != "total":
        _refused(learner, before, lambda: learner.update(alone), "the total of the losses alone")
    else:
        other = _reloaded(learner)
        bench.tell(learner, alone)
        bench.tell(other, episode)
        _require(_snapshot(learner) == _snapshot(other), "the total and the losses that make it give another update")
        learner = bench.learner()
        bench.play(learner, 0, 2)
        before = _snapshot(learner)
    try:
        learner.observe_transitions(np.array([episode.states] * 2), np.array([episode.actions] * 2))
    except InvalidEpisodeError:
        _require(_snapshot(learner) == before, "logged transitions that were refused changed the learner")
    bench.policy(learner)
    impossible = np.full((1, bench.mdp.horizon), bench.mdp.n_actions)
    states = [np.asarray(episode.states)[: bench.mdp.horizon]]
    before = _snapshot(learner)
    _refused(learner, before, lambda: learner.observe_transitions(states, impossible), "a log with an unknown action")
    again = _reloaded(learner)
    for one in (learner, again):
        bench.play(one, 2, 3)
    _require(_snapshot(again) == _snapshot(learner), "saving after logged transitions changes the run")


def _check_overlap(bench: _Bench) -> None:
    """An episode that began before the last update is refused, or learned from, with a moment out of a file too."""
    learner, plain = bench.learner(), bench.learner()
    for one in (learner, plain):
        bench.play(one, 0, 2)
    began, saved = learner.moment, learner.moment_tree(learner.moment)
    early, episode = bench.episode(learner, 3), bench.episode(learner, 2)
    learner.update(episode, played=began)
    bench.tell(plain, episode)
    _require(_snapshot(learner) == _snapshot(plain), "an update with the current moment differs from one without")
    if learner.partial:
        learner.update(early, played=began)
        plain.update(early, played=plain.moment_from_tree(saved))
        _require(_snapshot(learner) == _snapshot(plain), "a moment out of a file gives another update")
        bench.policy(learner)
    elif learner.moment is not began:
        _refused(learner, _snapshot(learner), lambda: learner.update(early, played=began), "an episode that overlaps")
    seen = learner.episodes_seen
    learner.observe(replace(early, loss_table=None))
    _require(learner.episodes_seen == seen, "an episode that somebody else played was counted")
    bench.policy(_reloaded(learner))


def _check_start(bench: _Bench) -> None:
    """A start policy is refused, or a policy to begin with, and saved."""
    learner = bench.learner()
    if "start" not in inspect.signature(type(learner)).parameters:
        return
    policy = [np.eye(bench.mdp.n_actions)[mask.argmax(axis=1)] for mask in bench.mdp.available]
    arguments = {**learner.get_params(), "seed": bench.seed, "start": policy}
    try:
        begun = type(learner)(learner._problem, learner.episodes or None, **arguments)
    except InvalidSpecError:
        _require(not learner.takes_start, "takes_start is True, and a start policy is refused")
        return
    _require(learner.takes_start, "takes_start is False, and a start policy is accepted")
    bench.play(begun, 0, 1)
    again = _reloaded(begun)
    for one in (begun, again):
        bench.play(one, 1, 2)
    _require(_snapshot(again) == _snapshot(begun), "a learner with a start policy goes on differently after loading")


def _check_available(bench: _Bench) -> None:
    """Where the first action of each state is unavailable, the learner never takes it, and refuses whoever did."""
    if bench.mdp.n_actions == 1 or any(mask.sum(axis=1).min() == 1 for mask in bench.mdp.available):
        return  # there is nothing to take away
    masks = [mask.copy() for mask in bench.mdp.available]
    for mask in masks:
        mask[np.arange(len(mask)), mask.argmax(axis=1)] = False
    fewer = _Bench(bench.factory, bench.mdp.restricted(masks), bench.episodes, bench.seed)
    learner = fewer.learner()
    fewer.play(learner, 0, 4)
    good, before = fewer.episode(learner, 4), _snapshot(learner)
    taken = replace(good, actions=[int(bench.mdp.available[0][0].argmax()), *np.asarray(good.actions)[1:].tolist()])
    _refused(learner, before, lambda: learner.update(taken), "an episode with an unavailable action")
    fewer.play(_reloaded(learner), 4, 5)


def _reloaded(learner: Learner) -> Learner:
    with tempfile.TemporaryDirectory() as folder:
        learner.save(Path(folder) / "learner.npz")
        return load_learner(Path(folder) / "learner.npz")


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
