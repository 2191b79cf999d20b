"""Conformance checks that every learner must pass, ours and those of other authors.

>>> from advmdp.testing import check_learner
>>> check_learner(lambda problem, episodes, seed: make_learner("uniform", problem, episodes, seed=seed))
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from advmdp.adversaries import make_adversary
from advmdp.episodes import Episode, play
from advmdp.errors import InvalidEpisodeError
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.learners import Learner, load_learner
from advmdp.occupancy import check_policy
from advmdp.worlds import make_world

#: Builds a fresh learner: ``factory(problem, episodes, seed)``; ``problem`` is a world, of which a learner
#: with unknown transition should take ``problem.model`` only.
Factory = Callable[[Any, int, int], Learner]


def check_learner(
    factory: Factory, *, mdp: LayeredMDP | None = None, episodes: int = 20, seed: int = 0
) -> None:
    """Run every conformance check; an AssertionError says which one failed, and how.

    The checks: the policy is a distribution in every state; the same seed gives the same run; ten episodes
    and ten more equal twenty; saving and loading in between changes nothing, bit for bit; episodes that
    cannot have happened, and repeated or skipped ones, are rejected and leave the learner as it was.

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
    _check_save_and_load(bench, history)
    _check_rejections(bench)


class _Bench:
    """A world, losses and luck that every check meets in the same way."""

    def __init__(self, factory: Factory, mdp: LayeredMDP, episodes: int, seed: int) -> None:
        self.factory, self.mdp, self.episodes, self.seed = factory, mdp, episodes, seed
        self.adversary = make_adversary("stochastic", mdp, episodes, seed=seed)

    def learner(self) -> Learner:
        return self.factory(self.mdp, self.episodes, self.seed)

    def episode(self, learner: Learner, k: int) -> Episode:
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
        return self.mdp.layers.flatten(learner.policy, "policy")


def _check_attributes(bench: _Bench) -> None:
    learner = bench.learner()
    assert learner.feedback in ("bandit", "full"), (
        f"feedback is {learner.feedback!r}, should be 'bandit' or 'full'"
    )
    assert learner.episodes_seen == 0, "a new learner has seen episodes"
    action = learner.act(0, 0)
    assert isinstance(action, int), f"act returned {action!r}, should be an int"
    assert 0 <= action < bench.mdp.n_actions, f"act returned action {action}, which does not exist"


def _check_policies(bench: _Bench) -> list[FloatArray]:
    learner = bench.learner()
    check_policy(bench.mdp.layers, bench.policy(learner))
    history = bench.play(learner, 0, bench.episodes)
    for flat in history:
        check_policy(bench.mdp.layers, flat)
    assert learner.episodes_seen == bench.episodes, (
        f"episodes_seen is {learner.episodes_seen} after {bench.episodes} episodes"
    )
    return history


def _check_same_seed(bench: _Bench, history: list[FloatArray]) -> None:
    again = bench.play(bench.learner(), 0, bench.episodes)
    assert _equal(again, history), "two runs with the same seed differ"


def _check_interruption(bench: _Bench, history: list[FloatArray]) -> None:
    """Looking at a learner between episodes must not change what it does."""
    learner = bench.learner()
    half = bench.episodes // 2
    first = bench.play(learner, 0, half)
    _ = learner.policy, learner.q, learner.confidence_set, repr(learner)
    second = bench.play(learner, half, bench.episodes)
    assert _equal(first + second, history), (
        f"{half} episodes and {bench.episodes - half} more differ from {bench.episodes} at once"
    )


def _check_save_and_load(bench: _Bench, history: list[FloatArray]) -> None:
    learner = bench.learner()
    half = bench.episodes // 2
    bench.play(learner, 0, half)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.npz"
        learner.save(path)
        loaded = load_learner(path)
        copy = Path(folder) / "copy.npz"
        loaded.save(copy)
        assert path.read_bytes() == copy.read_bytes(), "a loaded learner saves to a different file"
    assert type(loaded) is type(learner), (
        f"a saved {type(learner).__name__} is loaded as a {type(loaded).__name__}"
    )
    assert _equal([bench.policy(loaded)], [bench.policy(learner)]), "loading changes the policy"
    draws = [learner.act(0, 0) for _ in range(20)]
    assert [loaded.act(0, 0) for _ in range(20)] == draws, "loading changes the random stream"
    rest = bench.play(loaded, half, bench.episodes)
    assert _equal(rest, history[half:]), "saving and loading in the middle changes the run"


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
            raise AssertionError(f"an episode with {what} was accepted")
        assert _snapshot(learner) == before, f"an episode with {what} changed the learner"
    bench.play(learner, 2, 3)


def impossible_episodes(mdp: LayeredMDP, good: Episode) -> list[tuple[str, Episode]]:
    """Ways in which an episode can be wrong, each made from a good one (whose index is the next)."""
    states, actions, losses = (
        np.array(values).tolist() for values in (good.states, good.actions, good.losses)
    )
    assert good.index is not None

    def altered(
        new_states: Any = states, new_actions: Any = actions, new_losses: Any = losses, step: int = 0
    ) -> Episode:
        index = None if good.index is None else good.index + step
        return Episode(new_states, new_actions, new_losses, good.loss_table, index)

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
