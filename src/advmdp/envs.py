"""Our worlds as Gymnasium environments, so that any agent written for Gymnasium can play them.

Importing this module registers every world: ``gymnasium.make("advmdp/Grid-v0")``, ``"advmdp/FrozenLake-v0"`` and so on.
Gymnasium 1.0 removed registration by entry points: ``gymnasium.make("advmdp.envs:advmdp/Grid-v0")`` imports by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from advmdp.adversaries import Adversary, make_adversary
from advmdp.episodes import draw
from advmdp.errors import InvalidEpisodeError, InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP
from advmdp.registry import worlds
from advmdp.worlds import make_world


class AdversarialMDPEnv(gymnasium.Env[np.int64, np.int64]):
    """A layered world whose losses an adversary chooses; the reward is minus the loss.

    Observations number all states, layer by layer: 0 is the first state, ``n_states - 1`` the terminal one.  An
    episode ends (``terminated``) after H steps.  ``info`` has the ``layer``, the ``state`` (its number within the
    layer), the ``episode``, from 0, and the ``action_mask``: 1 for each action that is available, so that
    ``action_space.sample(info["action_mask"])`` draws one (all 0 when the episode is over).

    ``reset(seed=...)`` starts everything anew, with episode 0; ``reset()`` goes on to the next episode, or begins the
    current one again if it was left before its end: the adversary is told of complete episodes only.

    Parameters
    ----------
    mdp
        The world.
    adversary
        Of the same shape.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(self, mdp: LayeredMDP, adversary: Adversary) -> None:
        if adversary.layers != mdp.layers:
            raise InvalidSpecError(
                f"the adversary has layers {adversary.layers}, the world {mdp.layers}: they should be equal"
            )
        self.mdp = mdp
        self.adversary = adversary
        adversary.reset()  # the first episode is number 0, whatever it met before
        self.observation_space = spaces.Discrete(mdp.n_states)
        self.action_space = spaces.Discrete(mdp.n_actions)
        self._first = np.concatenate([[0], np.cumsum(mdp.layer_sizes)])
        self._available = mdp.available
        self._episode = 0
        # Over, until it is reset.
        self._states: list[int] = [0] * (mdp.horizon + 1)
        self._actions: list[int] = []
        self._losses: list[FloatArray]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Begin an episode; with a seed, the first one."""
        super().reset(seed=seed)
        if seed is not None:
            self._episode = 0
            self.adversary.reset()
        self._states, self._actions = [0], []
        self._losses = self.adversary.losses(self._episode)
        return self._observation()

    def step(self, action: np.int64 | int) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        layer, state = len(self._states) - 1, self._states[-1]
        if layer == self.mdp.horizon:
            raise InvalidEpisodeError("the episode is over, or none has begun: call reset first")
        if not self.action_space.contains(action):  # neither is 0.7
            raise InvalidEpisodeError(
                f"layer {layer}, state {state}: action {action} does not exist, should be an integer from 0 to "
                f"{self.mdp.n_actions - 1}"
            )
        chosen = int(action)
        if not self._available[layer][state, chosen]:
            able = np.flatnonzero(self._available[layer][state]).tolist()
            raise InvalidEpisodeError(
                f"layer {layer}, state {state}: action {action} is unavailable, should be one of {able} "
                "(info['action_mask'])"
            )
        row = self.mdp.kernels[layer][state, chosen]
        self._states.append(int(draw(row, 0, row.size, self.np_random.random())))
        self._actions.append(chosen)
        reward = -float(self._losses[layer][state, chosen])
        observation, info = self._observation()
        terminated = layer + 1 == self.mdp.horizon
        if terminated:
            self._episode += 1
            self.adversary.observe(np.array(self._states), np.array(self._actions))
        return observation, reward, terminated, False, info

    def _observation(self) -> tuple[np.int64, dict[str, Any]]:
        layer, state = len(self._states) - 1, self._states[-1]
        over = layer == self.mdp.horizon
        mask = np.zeros(self.mdp.n_actions) if over else self._available[layer][state]
        info = {"layer": layer, "state": state, "episode": self._episode, "action_mask": mask.astype(np.int8)}
        return np.int64(self._first[layer] + state), info


def make_env(
    world: str,
    *,
    adversary: str | None = None,
    episodes: int = 1000,
    seed: int = 0,
    adversary_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> AdversarialMDPEnv:
    """An environment from names: what ``gymnasium.make("advmdp/...", ...)`` calls.

    Parameters
    ----------
    world
        Name of a world.
    adversary
        Name of an adversary; by default the natural losses of the world, or ``stochastic`` where it has none.
    episodes
        K, for adversaries and worlds (``hard``) that depend on it.  More can be played.
    seed
        Of the adversary, and of a world that is drawn.  Transitions are seeded by ``reset``.
    adversary_options, options
        Of the adversary and of the world.  A ``seed`` in the former gives other losses on the same world.
    """
    both = {"episodes": episodes, "seed": seed}
    known = worlds.options(world)
    mdp = make_world(world, **{name: value for name, value in both.items() if name in known}, **options)
    name = adversary or ("stochastic" if mdp.scene.natural_losses is None else "natural-losses")
    return AdversarialMDPEnv(mdp, make_adversary(name, mdp, episodes, **{"seed": seed, **(adversary_options or {})}))


def env_id(world: str) -> str:
    """The id of a world among Gymnasium's environments: ``frozen-lake`` is ``advmdp/FrozenLake-v0``."""
    return f"advmdp/{''.join(word.capitalize() for word in world.split('-'))}-v0"


def _register() -> None:
    for world in worlds.names():
        if env_id(world) not in gymnasium.registry:
            gymnasium.register(id=env_id(world), entry_point="advmdp.envs:make_env", kwargs={"world": world})


_register()
