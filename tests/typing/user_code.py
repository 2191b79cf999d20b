"""What a user's program may look like; `mypy --strict` accepts it (tests/test_typing.py), and it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import numpy as np
from numpy.typing import NDArray

import advmdp
from advmdp.episodes import CheckedEpisode
from advmdp.experiments import Comparison, compare
from advmdp.solvers import MirrorStep
from advmdp.solvers.conditional import ConditionalStep
from advmdp.solvers.known import FlatStep

Floats = NDArray[np.float64]


@advmdp.register_world("typed-corridor")
def corridor(*, length: int = 4, slip: float = 0.1) -> advmdp.LayeredMDP:
    """Two states per step."""
    middle = np.array([[[1 - slip, slip], [slip, 1 - slip]]] * 2)
    return advmdp.LayeredMDP([middle[:1], *[middle] * (length - 2), np.ones((2, 2, 1))])


@advmdp.register_adversary("typed-weekly")
class Weekly(advmdp.Adversary):
    """Action 0 is dear on every seventh episode."""

    def __init__(self, mdp: advmdp.LayeredMDP, episodes: int, *, price: float = 0.5, seed: int = 0) -> None:
        super().__init__(mdp, episodes)
        self.price = price

    def losses(self, k: int) -> list[Floats]:
        tables = [np.full((n, self.layers.n_actions), self.price) for n in self.layers.sizes[:-1]]
        for table in tables:
            table[:, 0] = 1.0 if k % 7 == 6 else 0.0
        return tables


class Means(NamedTuple):
    policy: Floats
    sums: Floats
    counts: Floats


@advmdp.register_learner("typed-greedy")
class Greedy(advmdp.Learner):
    """Softmax over the mean observed loss of each pair."""

    needs_episodes = False
    status = "an example"
    temperature: float

    @dataclass(frozen=True, kw_only=True)
    class Options:
        temperature: float = 0.1

    def _begin(self) -> Means:
        zeros = np.zeros(self._layers.n_pairs)
        return self._means(zeros, zeros)

    def _learn(self, state: Means, episode: CheckedEpisode) -> Means:
        lost = episode.scatter(episode.losses, self._layers.n_pairs)
        visits = episode.scatter(np.ones(self._layers.horizon), self._layers.n_pairs)
        return self._means(state.sums + lost, state.counts + visits)

    def _means(self, sums: Floats, counts: Floats) -> Means:
        weights = self._layers.uniform_policy * np.exp(-sums / np.maximum(counts, 1.0) / self.temperature)
        table = weights.reshape(-1, self._layers.n_actions)
        return Means((table / table.sum(axis=1, keepdims=True)).ravel(), sums, counts)


class Looking:
    """A watcher."""

    def __init__(self) -> None:
        self.seen = 0.0

    def before(self, k: int, learner: advmdp.Learner, q: Floats, losses: Floats) -> None:
        self.seen += float(q @ losses)

    def after(self, k: int, learner: advmdp.Learner) -> None:
        """Nothing."""


def simulate(learner: advmdp.Learner, world: advmdp.LayeredMDP, episodes: int) -> float:
    losses: advmdp.Adversary = advmdp.make_adversary("typed-weekly", world, episodes, price=0.3)
    watch = Looking()
    result = assert_type(advmdp.run(world, learner, losses, episodes, seed=1, watch=watch), advmdp.RunResult)
    regret = assert_type(result.regret, Floats)
    shares = assert_type(advmdp.occupancy.occupancy_measure(world, result.policy), list[Floats])
    best, value = advmdp.occupancy.best_policy(world, losses.losses(0))
    assert_type(best, list[Floats])
    loss = assert_type(advmdp.occupancy.expected_loss(world, best, losses.losses(0)), float)
    assert abs(loss - value) < 1e-9
    return float(regret[-1]) + float(shares[0].sum()) + result.baselines["best"]


def ask_and_tell(model: advmdp.LinearMixtureModel, world: advmdp.LinearMixtureMDP) -> list[float]:
    rng = np.random.default_rng(0)
    learner = advmdp.make_learner("vlsuob-reps", model, 3)
    gaps: list[float] = []
    for k in range(3):
        action = assert_type(learner.act(0, 0), int)
        assert 0 <= action < model.n_actions
        losses = [rng.random((n, model.n_actions)) for n in model.layer_sizes[:-1]]
        learner.update(assert_type(advmdp.play(world, learner.policy, losses, rng, index=k), advmdp.Episode))
        step = assert_type(learner.last_step, MirrorStep | FlatStep | ConditionalStep | None)
        assert step is not None
        gaps.append(assert_type(step.gap, float))
    assert_type(learner.policy, Sequence[Floats])
    return gaps


def decide() -> str:
    def actions(step: int, wear: Any) -> list[str]:
        return [] if wear == "broken" else ["run", "repair"] if wear else ["run"]

    def gentle(step: int, wear: Any, action: Any) -> dict[Any, float]:
        return {0: 1.0} if action == "repair" else {wear: 0.5, wear + 1: 0.5}

    def harsh(step: int, wear: Any, action: Any) -> dict[Any, float]:
        return {0: 1.0} if action == "repair" else {wear + 1: 0.8, "broken": 0.2}

    process = advmdp.Process(0, actions, [gentle, harsh], horizon=6, cost_range=(0, 50))
    agent = advmdp.Agent(process)
    episode = agent.begin()
    action: str = episode.act(0)
    episode.cost(12.5)
    episode.end("broken")
    assert str(agent.explain())
    return action


def main() -> None:
    world = assert_type(advmdp.make_world("typed-corridor", length=5), advmdp.LayeredMDP)
    learner = assert_type(advmdp.make_learner("typed-greedy", world.model), advmdp.Learner)
    print(simulate(learner, world, 20))
    kernels = [[np.full((n, 2, m), 1.0 / m) for n, m in ((1, 2), (2, 2), (2, 1))] for _ in range(2)]
    mixture = advmdp.LinearMixtureMDP.from_kernels(kernels, [0.5, 0.5])
    print(ask_and_tell(mixture.model, mixture))
    print(decide())
    result: Comparison = compare(["grid"], ["switching"], ["uniform"], episodes=5, seeds=1)
    print(result.table().columns.tolist())


if __name__ == "__main__":
    main()
