"""What is true: worlds with their kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from advmdp import _gymnasium, storage
from advmdp._checks import float_array
from advmdp._html import facts, shortened
from advmdp.errors import InvalidMDPError
from advmdp.layered.mixtures import stack_kernels
from advmdp.layered.models import LinearMDPModel, LinearMixtureModel, Shaped, TabularModel, mask_tree, tables_tree
from advmdp.layered.rows import Rows, SparseRows, Table, flat_rows, row_tables
from advmdp.layered.shape import FloatArray
from advmdp.layered.validation import (
    TOLERANCE,
    check_one_mixture,
    checked_available,
    checked_kernels,
    checked_measures,
    checked_parameter,
    masked_layers,
    possible_transitions,
    probability_rows,
)
from advmdp.scene import Scene


class LayeredMDP(Shaped):
    """A layered MDP whose kernels are known to the simulator (never to a learner of unknown dynamics).

    Parameters
    ----------
    kernels
        List over layers 0..H-1 of arrays ``(S_h, A, S_{h+1})`` of next-state probabilities.  Rows must sum to
        one within 1e-9 and are then normalised.  The same array object may stand in several layers: it is checked and
        stored once.
        A layer may also be a sparse matrix of SciPy, ``(S_h * A, S_{h+1})``, rows ordered by state, then action.  It
        is stored so if it is large, and tabular learners are then told which transitions are possible.
    available
        Which actions a state has: a list over layers 0..H-1 of arrays ``(S_h, A)`` of bool, at least one True per
        state; by default all.  Rows of unavailable actions are ignored, and hold what the first available one does.
    n_actions
        A; by default what the kernels have.
    scene
        What states and actions stand for; see :class:`advmdp.scene.Scene`.
    """

    def __init__(
        self,
        kernels: Sequence[Any],
        available: Sequence[ArrayLike] | None = None,
        n_actions: int | None = None,
        *,
        scene: Scene | None = None,
    ) -> None:
        masks = checked_available(available)
        layers, checked = checked_kernels(kernels, masks)
        if n_actions is not None and n_actions != layers.n_actions:
            raise InvalidMDPError(f"n_actions is {n_actions}, but kernels have {layers.n_actions} actions")
        support = None
        if any(isinstance(table, SparseRows) for table in checked):
            support = [possible_transitions(table) for table in checked]
        self._adopt(TabularModel(layers.sizes, layers.n_actions, masks, support), checked, scene)
        self._layers = layers

    def _adopt(self, model: TabularModel, kernels: Sequence[Table], scene: Scene | None) -> None:
        self._model, self._layers = model, model.layers
        self._scene = Scene() if scene is None else scene
        self._scene.check(model.layer_sizes, model.n_actions)
        self._rows = flat_rows(kernels)
        self._kernels = row_tables(self._rows, kernels)

    @property
    def kernels(self) -> tuple[Any, ...]:
        """P, per layer a read-only array ``(S_h, A, S_{h+1})``, or rows on their supports where a layer is sparse."""
        return self._kernels

    @property
    def rows(self) -> Rows:
        """All kernels for compiled code."""
        return self._rows

    @property
    def model(self) -> TabularModel:
        """What a learner of unknown dynamics may know of this world."""
        return self._model

    @property
    def scene(self) -> Scene:
        """What states and actions stand for; empty unless it was given."""
        return self._scene

    @cached_property
    def possible(self) -> tuple[Any, ...]:
        """Transitions of positive probability, per layer ``(S_h, A, S_{h+1})`` of bool."""
        masks = {id(array): possible_transitions(array) for array in self._kernels}
        return tuple(masks[id(array)] for array in self._kernels)

    @cached_property
    def possible_rows(self) -> Rows:
        """:attr:`possible` for compiled code."""
        return flat_rows(self.possible)

    def restricted(self, available: Sequence[ArrayLike]) -> LayeredMDP:
        """The same world with these of its actions only: a list over layers of ``(S_h, A)`` of bool."""
        masks = checked_available(available)
        masked_layers(self.layer_sizes, self.n_actions, masks)  # for its errors
        fewer = [mask & able for mask, able in zip(masks or (), self.available, strict=True)]
        return type(self)(**{**self._tree(), "available": fewer, "scene": self._scene})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the world to one file (arrays and JSON, no code); :func:`load_mdp` reads it."""
        storage.write(path, "mdp", {"class": type(self).__name__, **self._tree()})

    def _tree(self) -> dict[str, Any]:
        return {
            "kernels": tables_tree(self._kernels),
            "available": mask_tree(self._layers),
            "scene": self._scene.tree(),
        }

    def _repr_html_(self) -> str:
        scene = self._scene
        rows = [*self._model._facts(), ("transitions", f"{self._rows.values.size:,} stored")]
        rows += [("names of actions", shortened(scene.actions))] if scene.actions else []
        rows += [("natural losses", scene.natural_losses)] if scene.natural_losses else []
        return facts(type(self).__name__, rows)

    @staticmethod
    def from_gymnasium(env: Any, horizon: int) -> tuple[LayeredMDP, list[FloatArray]]:
        """Unroll a tabular Gymnasium environment over ``horizon`` steps.

        Parameters
        ----------
        env
            An environment with a transition table ``env.unwrapped.P`` (``P[s][a]`` a list of
            ``(probability, next state, reward, terminated)``), as FrozenLake, Taxi and CliffWalking have.
        horizon
            Steps of the environment in an episode.  Episodes that end earlier wait in the terminal state that they
            reached.

        Returns
        -------
        mdp
            Layer h holds the states that can be reached in h steps, and no others.  Where the start is random, a
            dummy first layer (whose actions all do the same) draws it.  ``mdp.scene.states[h][i]`` is the
            environment's own number of state i of layer h, ``mdp.scene.details["over"][h][i]`` whether the
            environment has terminated there.  Actions that the environment masks (``action_masks``, Taxi's
            ``action_mask``, or ``info["action_mask"]``) are unavailable.
        losses
            One table of expected losses: rewards mapped affinely to [0, 1], the highest reward (or 0, if that is
            higher) to 0.  Waiting in a terminal state counts as reward 0.
        """
        kernels, losses, available, scene = _gymnasium.unroll(env, horizon)
        return LayeredMDP(kernels, available, scene=scene), losses


class LinearMixtureMDP(LayeredMDP):
    """A layered MDP with P_h(s' | s, a) = <phi(s' | s, a), theta_h> (Definition 1 of the paper).

    Parameters
    ----------
    features
        As in :class:`LinearMixtureModel`.
    theta
        List over layers of vectors ``(d,)``; the last one is ignored, like the last features.
    bound
        B; by default the largest norm of theta_0..theta_{H-2}, which learners then know.
    simplex, zeros_are_certain, shared, scales, available
        As in :class:`LinearMixtureModel`.
    scene
        What states and actions stand for; see :class:`advmdp.scene.Scene`.
    """

    def __init__(
        self,
        features: Sequence[ArrayLike],
        theta: Sequence[ArrayLike],
        bound: float | None = None,
        simplex: bool = False,
        *,
        zeros_are_certain: bool = True,
        shared: bool = False,
        scales: Sequence[float] | None = None,
        available: Sequence[ArrayLike] | None = None,
        scene: Scene | None = None,
    ) -> None:
        # Only the number of layers is compared here; the model checks the features themselves.
        if not isinstance(theta, Sequence | np.ndarray) or len(theta) != len(features):
            count = len(theta) if isinstance(theta, Sequence | np.ndarray) else "no"
            raise InvalidMDPError(f"theta has {count} layers, features have {len(features)}: one vector per layer")
        parameters = [checked_parameter(vector, h) for h, vector in enumerate(theta)]
        norms = [float(np.linalg.norm(vector)) for vector in parameters[:-1]]
        if bound is None:
            bound = max(norms, default=1.0) or 1.0
        model = LinearMixtureModel(
            features, bound, simplex,
            zeros_are_certain=zeros_are_certain, shared=shared, scales=scales, available=available,
        )  # fmt: skip
        bound = model.bound
        for h, vector in enumerate(parameters):
            if vector.shape != (model.dim,):
                raise InvalidMDPError(f"theta[{h}] has shape {vector.shape}, should be {(model.dim,)} as the features")
        for h, norm in enumerate(norms):
            if norm > bound + TOLERANCE:
                raise InvalidMDPError(f"theta[{h}] has norm {norm:.6g}, should be at most bound = {bound:.6g}")
            if simplex and parameters[h].min() < -TOLERANCE:
                raise InvalidMDPError(
                    f"theta[{h}] has entry {parameters[h].min():.6g}, should be >= 0 since simplex=True"
                )
        if shared:
            check_one_mixture([vector / c for vector, c in zip(parameters[:-1], model.scales[:-1], strict=True)])
        self._theta = tuple(parameters)
        kernels: list[Table] = []
        built: dict[tuple[int, bytes], Table] = {}
        for h, (array, vector) in enumerate(zip(model.features, parameters, strict=True)):
            key = (id(array), vector.tobytes())
            if h == model.horizon - 1:
                kernels.append(np.ones(array.shape[:3]))
            elif key in built:
                kernels.append(built[key])
            else:
                mixed = array.with_values(array.values @ vector) if isinstance(array, SparseRows) else array @ vector
                built[key] = probability_rows(mixed, h, "the kernel <features, theta>", TOLERANCE)
                kernels.append(built[key])
        self._adopt(model, kernels, scene)

    @property
    def model(self) -> LinearMixtureModel:
        """Features, bound and simplex flag: what a learner may know."""
        assert isinstance(self._model, LinearMixtureModel)
        return self._model

    @property
    def features(self) -> tuple[Any, ...]:
        """phi, per layer a read-only array ``(S_h, A, S_{h+1}, d)``, or rows on their supports."""
        return self.model.features

    @property
    def theta(self) -> tuple[FloatArray, ...]:
        """The true parameters, one vector ``(d,)`` per layer."""
        return self._theta

    @property
    def dim(self) -> int:
        """Coordinates of a feature vector, d."""
        return self.model.dim

    @property
    def bound(self) -> float:
        """B, at least the norm of every theta_h."""
        return self.model.bound

    @classmethod
    def from_kernels(
        cls,
        base_kernels: Sequence[Sequence[Any]],
        weights: Sequence[ArrayLike] | ArrayLike,
        shared: bool | None = None,
        available: Sequence[ArrayLike] | None = None,
        *,
        scene: Scene | None = None,
    ) -> LinearMixtureMDP:
        """Mix d kernel lists with weights that are probability vectors: one ``(d,)``, or one per layer.

        Features, scaling, bound and ``available`` are those of :meth:`LinearMixtureModel.from_kernels`.  ``shared``
        tells learners that the weights are the same in every layer; by default they are told so if one vector is given.

        Examples
        --------
        >>> end = [[[1.0]], [[1.0]]]
        >>> world = LinearMixtureMDP.from_kernels([[[[[0.9, 0.1]]], end], [[[[0.2, 0.8]]], end]], [0.5, 0.5])
        >>> world.kernels[0].round(3).tolist()
        [[[0.55, 0.45]]]
        """
        features, scales = stack_kernels(base_kernels, checked_available(available))
        table = float_array(weights, "weights", InvalidMDPError)
        if shared is None:
            shared = table.ndim == 1
        if table.ndim == 1:
            table = np.broadcast_to(table, (len(features), table.size))
        if table.shape != (len(features), len(base_kernels)):
            raise InvalidMDPError(
                f"weights have shape {table.shape}, should be {(len(base_kernels),)} or "
                f"{(len(features), len(base_kernels))} (one weight per base kernel [and layer])"
            )
        for h, row in enumerate(table):
            if not (np.isfinite(row).all() and row.min() >= 0 and abs(row.sum() - 1) <= TOLERANCE):
                raise InvalidMDPError(f"weights of layer {h} are {row}, should be non-negative and sum to 1")
        if shared:
            check_one_mixture(table)
        theta = [scale * row for scale, row in zip(scales, table, strict=True)]
        return cls(
            features, theta, bound=max(scales), simplex=True,
            shared=shared, scales=scales, available=available, scene=scene,
        )  # fmt: skip

    def _tree(self) -> dict[str, Any]:
        return {**self.model._tree(), "theta": list(self._theta), "scene": self._scene.tree()}


class LinearMDP(LayeredMDP):
    """A layered MDP with P_h(s' | s, a) = <phi(s, a), mu_h(s')> (Yang and Wang 2019, Jin et al. 2020).

    Parameters
    ----------
    features
        As in :class:`LinearMDPModel`.
    measures
        mu, a list over layers of arrays ``(d, S_{h+1})``; the last one is ignored, as that transition is deterministic.
    bound
        B; by default the largest |sum_s' mu_h(s') V(s')| over V in [0, 1] (a little more where measures have entries of
        both signs), which learners then know.
    available
        As in :class:`LinearMDPModel`.
    scene
        What states and actions stand for; see :class:`advmdp.scene.Scene`.

    Examples
    --------
    Two kinds of days, of which each action gives a share; the second action of the first state is half of both.

    >>> features = [[[[1.0, 0.0], [0.5, 0.5]]], [[[1.0, 0.0], [0.0, 1.0]]] * 2]
    >>> world = LinearMDP(features, [[[0.9, 0.1], [0.2, 0.8]], [[1.0], [1.0]]])
    >>> world.kernels[0].round(3).tolist()
    [[[0.9, 0.1], [0.55, 0.45]]]
    """

    def __init__(
        self,
        features: Sequence[ArrayLike],
        measures: Sequence[ArrayLike],
        bound: float | None = None,
        *,
        available: Sequence[ArrayLike] | None = None,
        scene: Scene | None = None,
    ) -> None:
        model = LinearMDPModel(features, 1.0 if bound is None else bound, available=available)
        self._measures = checked_measures(measures, [(model.dim, n) for n in model.layer_sizes[1:]])
        kernels = [
            probability_rows(array @ measure, h, "the kernel <features, measures>", TOLERANCE)
            for h, (array, measure) in enumerate(zip(model.features, self._measures[:-1], strict=False))
        ]
        # Of V in [0, 1] coordinate i of mu V is at most the sum of the positive entries, at least that of the others.
        sums = [np.maximum(m.clip(min=0.0).sum(1), -m.clip(max=0.0).sum(1)) for m in self._measures[:-1]]
        largest = max((float(np.linalg.norm(row)) for row in sums), default=1.0)
        if bound is None:
            model = LinearMDPModel(model.features, largest, available=available)
        elif len(self._measures) > 1:
            # With entries of one sign V = 1 attains it; otherwise the smallest valid bound may lie below.
            least = max(float(np.linalg.norm(m.sum(axis=1))) for m in self._measures[:-1])
            if bound < least - TOLERANCE:
                raise InvalidMDPError(f"bound is {bound:.6g}, but some |sum of mu_h V| is at least {least:.6g}")
        self._adopt(model, [*kernels, np.ones((*model.features[-1].shape[:2], 1))], scene)

    @property
    def model(self) -> LinearMDPModel:
        """Features and bound: what a learner may know."""
        assert isinstance(self._model, LinearMDPModel)
        return self._model

    @property
    def features(self) -> tuple[FloatArray, ...]:
        """phi, per layer a read-only array ``(S_h, A, d)``."""
        return self.model.features

    @property
    def measures(self) -> tuple[FloatArray, ...]:
        """mu, per layer a read-only array ``(d, S_{h+1})``."""
        return self._measures

    @property
    def dim(self) -> int:
        """Coordinates of a feature vector, d."""
        return self.model.dim

    @property
    def bound(self) -> float:
        """B, at least |sum_s' mu_h(s') V(s')| for every V with values in [0, 1]."""
        return self.model.bound

    def _tree(self) -> dict[str, Any]:
        return {**self.model._tree(), "measures": list(self._measures), "scene": self._scene.tree()}
