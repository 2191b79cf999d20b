"""Compile what learners need before a system depends on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from advmdp._log import say
from advmdp.adversaries import make_adversary
from advmdp.episodes import Episode, play
from advmdp.layered import LayeredMDP, LinearMDPModel, LinearMixtureMDP, LinearMixtureModel, TabularModel
from advmdp.learners import make_learner
from advmdp.registry import learners
from advmdp.worlds import make_world

#: What is compiled where nothing is named.
LEARNERS = ("portfolio", "planner", "vlsuob-reps-tight")
EPISODES = 6
SIZES, ACTIONS, DIM = (1, 2, 2, 1), 2, 2


def warm_up(*names: str | Iterable[str]) -> None:
    """Compile what the named learners need, so that no later update waits for it; the result is cached on the disk.

    Each of them plays a few episodes on tiny worlds, with mixtures of all kinds and, if it can do without, no mixture.
    Call it where a program starts, or once while a container is built.  A line per learner is logged under ``advmdp``.

    Parameters
    ----------
    names
        Learners, one by one or in a list; by default ``portfolio``, ``planner`` and ``vlsuob-reps-tight``.

    Examples
    --------
    >>> warm_up("uniform")
    """
    chosen = [name for part in names or LEARNERS for name in ([part] if isinstance(part, str) else part)]
    classes = {name: learners.get(name) for name in chosen}  # an unknown name is refused before any work
    for number, (name, entry) in enumerate(classes.items()):
        say(f"warming up {name} ({number + 1} of {len(classes)})")
        for world, problem in _problems(entry):
            _play(name, world, problem)


def _problems(entry: object) -> list[tuple[LayeredMDP, LayeredMDP | TabularModel]]:
    """Worlds, and what a learner is told of them: every kind of model that it takes."""
    sizes: Any = {"layer_sizes": SIZES, "n_actions": ACTIONS, "dim": DIM}
    known = getattr(entry, "transition", "unknown") == "known"
    if getattr(entry, "needs", None) is LinearMDPModel:
        linear = make_world("linear-mdp", **sizes)
        return [(linear, linear if known else linear.model)]
    first: Any = make_world("random-mixture", **sizes)
    any_sign = LinearMixtureMDP(first.features, first.theta, bound=first.model.bound)
    worlds = (first, make_world("random-mixture", shared=True, **sizes), any_sign)
    if known:
        return [(world, world) for world in worlds]
    problems: list[tuple[LayeredMDP, LayeredMDP | TabularModel]] = [(world, world.model) for world in worlds]
    if getattr(entry, "needs", None) is not LinearMixtureModel:
        problems.append((first, TabularModel(SIZES, ACTIONS)))
    return problems


def _play(name: str, world: LayeredMDP, problem: LayeredMDP | TabularModel) -> None:
    """What a system does with a learner, in small."""
    adversary = make_adversary("stochastic", world, EPISODES)
    told: dict[str, Any] = {"losses": adversary} if "losses" in learners.options(name) else {}
    learner = make_learner(name, problem, EPISODES, **told)
    rng = np.random.default_rng(0)
    for k in range(EPISODES):
        learner.act(0, 0)
        episode = play(world, learner.policy, world.layers.split(adversary.flat_losses(k)), rng, index=k)
        if learner.partial and k == EPISODES - 3:  # its losses come after the next update
            late, episode = episode, Episode(episode.states, episode.actions, None, index=k)
        learner.update(episode)
        if learner.partial and k == EPISODES - 2:
            learner.tell(k - 1, late.losses)
    learner.misspecification()
