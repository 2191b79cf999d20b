"""The world (what is true) and the model (what a learner may know): validated, immutable data.

An episodic layered MDP has layers 0..H; layers 0 and H hold one state each, and every transition leads
from a layer to the next one.  A *pair* is a state with an action.  Tables over pairs (losses, policies,
occupancy measures) are lists over layers of arrays ``(S_h, A)``; inside the library the same numbers live
in one flat vector, of which the list entries are views (see :class:`Layers`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp import storage
from advmdp._checks import float_array, integer
from advmdp._compiled import kernel
from advmdp.errors import CorruptCheckpointError, InvalidMDPError
from advmdp.scene import Scene
from advmdp.seeding import Stream, sequence

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rows must sum to one, and norms respect their bounds, up to this.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Layers:
    """The shape of a layered MDP, and the way between ragged lists and flat vectors.

    Pair (s, a) of layer h has the flat index ``pair_offsets[h] + s * A + a``.
    """

    sizes: tuple[int, ...]
    n_actions: int
    pair_offsets: IntArray = field(init=False, repr=False, compare=False)
    size_array: IntArray = field(init=False, repr=False, compare=False)
    #: State-action pairs in layers 0..H-1.
    n_pairs: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.sizes, tuple) or len(self.sizes) < 2:
            raise InvalidMDPError(f"layer_sizes {self.sizes!r}: need a sequence of at least two layers")
        for layer, size in enumerate(self.sizes):
            integer(size, f"the number of states in layer {layer}", 1, InvalidMDPError)
        for layer in (0, len(self.sizes) - 1):
            if self.sizes[layer] != 1:
                raise InvalidMDPError(
                    f"layer {layer} has {self.sizes[layer]} states: the first and the last layer "
                    "hold a single state each"
                )
        integer(self.n_actions, "n_actions", 1, InvalidMDPError)
        sizes = np.array(self.sizes, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes[:-1] * self.n_actions)]).astype(np.int64)
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        object.__setattr__(self, "pair_offsets", _read_only(offsets))
        object.__setattr__(self, "size_array", _read_only(sizes))
        object.__setattr__(self, "n_pairs", int(offsets[-1]))

    @property
    def horizon(self) -> int:
        """Number of actions in an episode, H."""
        return len(self.sizes) - 1

    @property
    def n_states(self) -> int:
        """All states, the first and the terminal one included, S."""
        return sum(self.sizes)

    def split(self, flat: FloatArray) -> list[FloatArray]:
        """A flat vector over pairs as a list over layers of ``(S_h, A)`` views."""
        offsets = self.pair_offsets
        return [flat[offsets[h] : offsets[h + 1]].reshape(self.sizes[h], self.n_actions) for h in range(self.horizon)]

    def flatten(self, table: Sequence[ArrayLike] | FloatArray, what: str = "table") -> FloatArray:
        """A list over layers of ``(S_h, A)`` as one flat vector (a copy), shapes checked.

        What is a flat vector already passes through, copied.
        """
        if isinstance(table, np.ndarray) and table.shape == (self.n_pairs,):
            return np.array(table if table.dtype == np.float64 else float_array(table, what, InvalidMDPError))
        if not isinstance(table, Sequence) or len(table) != self.horizon:
            found = f"{len(table)} layers" if isinstance(table, Sequence) else f"type {type(table).__name__}"
            raise InvalidMDPError(f"{what} has {found}, should be a list over {self.horizon} layers (0 to H-1)")
        flat = np.empty(self.n_pairs)
        offsets = self.pair_offsets
        for h, entry in enumerate(table):
            values = float_array(entry, f"{what}[{h}]", InvalidMDPError)
            if values.shape != (self.sizes[h], self.n_actions):
                raise InvalidMDPError(
                    f"{what}[{h}] has shape {values.shape}, should be "
                    f"{(self.sizes[h], self.n_actions)} (states of the layer, actions)"
                )
            flat[offsets[h] : offsets[h + 1]] = values.ravel()
        return flat

    def flat_vector(self, vector: Any, what: str) -> FloatArray:
        """A private copy of a flat vector over pairs (out of a file, say), its shape and type checked."""
        array = float_array(vector, what, InvalidMDPError)
        if array.shape != (self.n_pairs,):
            raise InvalidMDPError(f"{what} has shape {array.shape}, should be {(self.n_pairs,)}")
        return np.array(array)

    def name_pair(self, pair: int) -> str:
        """Where a flat pair index is, for error messages."""
        h = int(np.searchsorted(self.pair_offsets, pair, side="right")) - 1
        state, action = divmod(pair - int(self.pair_offsets[h]), self.n_actions)
        return f"layer {h}, state {state}, action {action}"

    def loss_table(self, table: Sequence[ArrayLike] | FloatArray, what: str = "losses") -> FloatArray:
        """A flat copy of a table of losses, every entry checked to lie in [0, 1]."""
        flat = self.flatten(table, what)
        pair = first_outside(flat)
        if pair >= 0:
            raise InvalidMDPError(f"{what}, {self.name_pair(pair)}: loss {flat[pair]} is outside [0, 1]")
        return flat


@kernel
def first_outside(values: FloatArray) -> int:
    """The first entry that is not in [0, 1], or -1."""
    for i in range(values.size):
        if not 0.0 <= values[i] <= 1.0:
            return i
    return -1


class TabularModel:
    """What a tabular learner may know: the layers and the actions, nothing of the dynamics."""

    def __init__(self, layer_sizes: Sequence[int], n_actions: int) -> None:
        sizes = tuple(layer_sizes) if isinstance(layer_sizes, Iterable) else layer_sizes
        self._layers = Layers(sizes, n_actions)

    @property
    def layers(self) -> Layers:
        """The shape, with the way between ragged lists and flat vectors."""
        return self._layers

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """States per layer, H + 1 numbers, the first and last of them 1."""
        return self._layers.sizes

    @property
    def n_actions(self) -> int:
        """Actions in every state, A."""
        return self._layers.n_actions

    @property
    def horizon(self) -> int:
        """Actions per episode, H."""
        return self._layers.horizon

    @property
    def n_states(self) -> int:
        """All states, S."""
        return self._layers.n_states

    @property
    def model(self) -> TabularModel:
        """Itself, so that a model stands wherever a problem is asked for."""
        return self

    @property
    def possible(self) -> tuple[NDArray[np.bool_], ...] | None:
        """Transitions that can happen, per layer ``(S_h, A, S_{h+1})``; ``None`` where all can.

        A learner rejects an episode with any other.
        """
        return None

    @cached_property
    def flat_possible(self) -> tuple[NDArray[np.bool_], IntArray] | None:
        """:attr:`possible` in one vector, and where each layer's part begins."""
        masks = self.possible
        return None if masks is None else _flatten_shared(masks)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layer_sizes={self.layer_sizes}, n_actions={self.n_actions})"

    def _tree(self) -> dict[str, Any]:
        return {"layer_sizes": list(self.layer_sizes), "n_actions": self.n_actions}


class LinearMixtureModel(TabularModel):
    """What a linear-mixture learner may know: features phi(s' | s, a) and a bound on the parameters.

    Parameters
    ----------
    features
        List over layers 0..H-1 of arrays ``(S_h, A, S_{h+1}, d)``, every vector of Euclidean norm at most
        one.  The entry of the last layer is ignored: that transition is deterministic.
    bound
        B, at least the norm of every parameter theta_h.
    simplex
        Whether theta_h is known to be non-negative, as it is for a mixture of d simulators.  Then features
        must be non-negative and have the same sum over next states everywhere in a layer.
    zeros_are_certain
        Whether a transition whose features are zero is impossible, so that an episode with it is refused.
        Not so where features were estimated: a rare transition may have been missed.
    """

    def __init__(
        self,
        features: Sequence[ArrayLike],
        bound: float,
        simplex: bool = False,
        *,
        zeros_are_certain: bool = True,
    ) -> None:
        arrays = _frozen_arrays(features, 4, "features")
        super().__init__(layer_sizes(arrays, "features"), arrays[0].shape[1])
        self._features = arrays
        self._bound = _bound(bound)
        self._simplex = bool(simplex)
        self._zeros_are_certain = bool(zeros_are_certain)
        dims = {array.shape[3] for array in arrays}
        if len(dims) != 1 or dims == {0}:
            raise InvalidMDPError(
                f"features have {sorted(dims)} coordinates in different layers, should have the same "
                "number d >= 1 in all"
            )
        for h, array in _distinct(arrays[:-1]):
            _check_norms(array, h)
            if simplex:
                _check_simplex_features(array, h, self._bound)
            else:
                _check_feasible(array, h)

    @property
    def features(self) -> tuple[FloatArray, ...]:
        """phi, one read-only array ``(S_h, A, S_{h+1}, d)`` per layer."""
        return self._features

    @cached_property
    def flat_features(self) -> tuple[FloatArray, IntArray]:
        """:attr:`features` in one vector, and where each layer's part begins: what compiled code works on."""
        return _flatten_shared(self._features)

    @property
    def dim(self) -> int:
        """Coordinates of a feature vector, d."""
        return int(self._features[0].shape[3])

    @property
    def bound(self) -> float:
        """B, at least the norm of every theta_h."""
        return self._bound

    @property
    def simplex(self) -> bool:
        """Whether theta_h is known to be non-negative (a scaled vector of mixture weights)."""
        return self._simplex

    @cached_property
    def possible(self) -> tuple[NDArray[np.bool_], ...] | None:
        """Transitions to which some parameter gives a probability: their features are not all zero."""
        if not self._zeros_are_certain:
            return None
        masks = {id(a): (a != 0.0).any(axis=3) for _, a in _distinct(self._features[:-1])}
        last = np.ones(self._features[-1].shape[:3], dtype=bool)
        return (*(masks[id(a)] for a in self._features[:-1]), last)

    @classmethod
    def from_kernels(cls, base_kernels: Sequence[Sequence[ArrayLike]]) -> LinearMixtureModel:
        """The model of an unknown mixture of d known kernels (simulators given as arrays).

        Coordinate i of a feature is the probability under base kernel i, divided per layer by the largest
        norm that occurs there, c_h (the deterministic last layer apart).  The parameter is then c_h times
        the mixture weights, so that B = max_h c_h holds whatever the weights are.

        Parameters
        ----------
        base_kernels
            d lists over layers of arrays ``(S_h, A, S_{h+1})``, rows summing to one.

        Examples
        --------
        Two simulators of a process with layers of 1, 2 and 1 states and one action:

        >>> end = [[[1.0]], [[1.0]]]
        >>> model = LinearMixtureModel.from_kernels([[[[[0.9, 0.1]]], end], [[[[0.2, 0.8]]], end]])
        >>> model.layer_sizes, model.dim, round(model.bound, 3)
        ((1, 2, 1), 2, 0.922)
        """
        return cls._mixture(base_kernels, zeros_are_certain=True)

    @classmethod
    def _mixture(cls, base_kernels: Sequence[Sequence[ArrayLike]], zeros_are_certain: bool) -> LinearMixtureModel:
        features, scales = _stack_kernels(base_kernels)
        return cls(features, bound=max(scales), simplex=True, zeros_are_certain=zeros_are_certain)

    @classmethod
    def from_simulators(
        cls,
        step_functions: Sequence[Callable[[int, int, int, np.random.Generator], int]],
        layer_sizes: Sequence[int],
        n_actions: int,
        samples: int,
        seed: int = 0,
    ) -> LinearMixtureModel:
        """The model of an unknown mixture of d simulators, their kernels estimated by sampling.

        Each simulator is a function ``step(layer, state, action, rng) -> next_state``; it is called
        ``samples`` times for every pair (the last layer apart), with a random stream of its own.
        Probabilities are then known to about 1 / sqrt(samples) only, and the guarantees of learners hold for
        mixtures of the sampled kernels; a transition that was never sampled may happen, and is not refused.

        Examples
        --------
        >>> def often(layer, state, action, rng):
        ...     return int(rng.random() < 0.9)
        >>> def seldom(layer, state, action, rng):
        ...     return int(rng.random() < 0.1)
        >>> model = LinearMixtureModel.from_simulators([often, seldom], (1, 2, 2, 1), n_actions=2, samples=100)
        >>> model.features[1].shape  # states, actions, next states, simulators
        (2, 2, 2, 2)
        """
        layers = TabularModel(layer_sizes, n_actions).layers
        if not step_functions:
            raise InvalidMDPError("step_functions is empty, should hold one simulator or more")
        integer(samples, "samples", 1, InvalidMDPError)
        streams = sequence(seed, Stream.SIMULATORS).spawn(len(step_functions))
        kernels = [
            _sampled_kernels(step, number, layers, samples, np.random.default_rng(stream))
            for number, (step, stream) in enumerate(zip(step_functions, streams, strict=True))
        ]
        return cls._mixture(kernels, zeros_are_certain=False)

    def _tree(self) -> dict[str, Any]:
        return {
            "features": list(self._features),
            "bound": self._bound,
            "simplex": self._simplex,
            "zeros_are_certain": self._zeros_are_certain,
        }


class LayeredMDP:
    """A layered MDP whose kernels are known to the simulator (never to a learner of unknown dynamics).

    Parameters
    ----------
    kernels
        List over layers 0..H-1 of arrays ``(S_h, A, S_{h+1})`` of next-state probabilities.  Rows must sum
        to one within 1e-9; what is left of the error is normalised away.  The same array object may stand in
        several layers: it is checked and stored once.
    scene
        What states and actions stand for; see :class:`advmdp.scene.Scene`.
    """

    def __init__(self, kernels: Sequence[ArrayLike], *, scene: Scene | None = None) -> None:
        arrays = _frozen_arrays(kernels, 3, "kernels")
        layers = Layers(layer_sizes(arrays, "kernels"), arrays[0].shape[1])
        checked = {id(array): _probability_rows(array, h) for h, array in _distinct(arrays)}
        self._adopt(TabularModel(layers.sizes, layers.n_actions), [checked[id(a)] for a in arrays], scene)

    def _adopt(self, model: TabularModel, kernels: Sequence[FloatArray], scene: Scene | None) -> None:
        self._model = model
        self._scene = Scene() if scene is None else scene
        self._scene.check(model.layer_sizes, model.n_actions)
        self._kernel_buffer, self._kernel_offsets = _flatten_shared(kernels)
        views = {
            id(array): self._kernel_buffer[start : start + array.size].reshape(array.shape)
            for array, start in zip(kernels, self._kernel_offsets, strict=True)
        }
        self._kernels = tuple(views[id(array)] for array in kernels)

    @property
    def kernels(self) -> tuple[FloatArray, ...]:
        """P, one read-only array ``(S_h, A, S_{h+1})`` per layer."""
        return self._kernels

    @property
    def flat_kernels(self) -> tuple[FloatArray, IntArray]:
        """All kernels in one vector, and where each layer's begins: what compiled code works on."""
        return self._kernel_buffer, self._kernel_offsets

    @property
    def model(self) -> TabularModel:
        """What a learner of unknown dynamics may know of this world."""
        return self._model

    @property
    def scene(self) -> Scene:
        """What states and actions stand for; empty unless it was given."""
        return self._scene

    @property
    def layers(self) -> Layers:
        """The shape, with the way between ragged lists and flat vectors."""
        return self._model.layers

    @property
    def horizon(self) -> int:
        """Actions per episode, H."""
        return self._model.horizon

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """States per layer, H + 1 numbers."""
        return self._model.layer_sizes

    @property
    def n_states(self) -> int:
        """All states, S."""
        return self._model.n_states

    @property
    def n_actions(self) -> int:
        """Actions in every state, A."""
        return self._model.n_actions

    @cached_property
    def possible(self) -> tuple[NDArray[np.bool_], ...]:
        """Transitions of positive probability, per layer ``(S_h, A, S_{h+1})``."""
        masks = {id(array): array > 0.0 for array in self._kernels}
        return tuple(masks[id(array)] for array in self._kernels)

    @cached_property
    def flat_possible(self) -> tuple[NDArray[np.bool_], IntArray]:
        """:attr:`possible` in one vector, and where each layer's part begins."""
        return _flatten_shared(self.possible)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the world to one file (arrays and JSON, no code); :func:`load_mdp` reads it."""
        storage.write(path, "mdp", problem_tree(self))

    def _tree(self) -> dict[str, Any]:
        return {"kernels": list(self._kernels), "scene": self._scene.tree()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layer_sizes={self.layer_sizes}, n_actions={self.n_actions})"

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
            environment has terminated there.
        losses
            One table of expected losses: rewards mapped affinely to [0, 1], the highest to 0 (where it is negative,
            reward 0 is); waiting in a terminal state counts as reward 0.
        """
        from advmdp._gymnasium import unroll

        kernels, losses, scene = unroll(env, horizon)
        return LayeredMDP(kernels, scene=scene), losses


class LinearMixtureMDP(LayeredMDP):
    """A layered MDP with P_h(s' | s, a) = <phi(s' | s, a), theta_h> (Definition 1 of the paper).

    Parameters
    ----------
    features
        As in :class:`LinearMixtureModel`.
    theta
        List over layers of vectors ``(d,)``; the last one is ignored, like the last features.
    bound
        B; by default the largest norm of theta_0..theta_{H-2}, which tells learners that much of the truth.
    simplex, zeros_are_certain
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
        scene: Scene | None = None,
    ) -> None:
        # Only the number of layers is compared here; the model checks the features themselves.
        if not isinstance(theta, Sequence | np.ndarray) or len(theta) != len(features):
            count = len(theta) if isinstance(theta, Sequence | np.ndarray) else "no"
            raise InvalidMDPError(f"theta has {count} layers, features have {len(features)}: one vector per layer")
        parameters = [_parameter(vector, h) for h, vector in enumerate(theta)]
        norms = [float(np.linalg.norm(vector)) for vector in parameters[:-1]]
        if bound is None:
            bound = max(norms, default=1.0) or 1.0
        model = LinearMixtureModel(features, bound, simplex, zeros_are_certain=zeros_are_certain)
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
        self._theta = tuple(parameters)
        kernels: list[FloatArray] = []
        built: dict[tuple[int, bytes], FloatArray] = {}
        for h, (array, vector) in enumerate(zip(model.features, parameters, strict=True)):
            key = (id(array), vector.tobytes())
            if h == model.horizon - 1:
                kernels.append(np.ones(array.shape[:3]))
            elif key in built:
                kernels.append(built[key])
            else:
                built[key] = _probability_rows(array @ vector, h, "the kernel <features, theta>", TOLERANCE)
                kernels.append(built[key])
        self._adopt(model, kernels, scene)

    @property
    def model(self) -> LinearMixtureModel:
        """Features, bound and simplex flag: what a learner may know."""
        assert isinstance(self._model, LinearMixtureModel)
        return self._model

    @property
    def features(self) -> tuple[FloatArray, ...]:
        """phi, one read-only array ``(S_h, A, S_{h+1}, d)`` per layer."""
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
        base_kernels: Sequence[Sequence[ArrayLike]],
        weights: Sequence[ArrayLike] | ArrayLike,
        *,
        scene: Scene | None = None,
    ) -> LinearMixtureMDP:
        """Mix d kernel lists with weights that are probability vectors: one ``(d,)``, or one per layer.

        Features, scaling and bound are those of :meth:`LinearMixtureModel.from_kernels`.

        Examples
        --------
        >>> end = [[[1.0]], [[1.0]]]
        >>> world = LinearMixtureMDP.from_kernels([[[[[0.9, 0.1]]], end], [[[[0.2, 0.8]]], end]], [0.5, 0.5])
        >>> world.kernels[0].round(3).tolist()
        [[[0.55, 0.45]]]
        """
        features, scales = _stack_kernels(base_kernels)
        table = float_array(weights, "weights", InvalidMDPError)
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
        theta = [scale * row for scale, row in zip(scales, table, strict=True)]
        return cls(features, theta, bound=max(scales), simplex=True, scene=scene)

    def _tree(self) -> dict[str, Any]:
        return {**self.model._tree(), "theta": list(self._theta), "scene": self._scene.tree()}


def load_mdp(path: str | os.PathLike[str]) -> LayeredMDP:
    """Read a world that :meth:`LayeredMDP.save` wrote; nothing in the file can run code."""
    classes = {"LayeredMDP": LayeredMDP, "LinearMixtureMDP": LinearMixtureMDP}
    mdp: LayeredMDP = _rebuild(path, storage.read(path, "mdp"), classes)
    return mdp


def problem_tree(problem: TabularModel | LayeredMDP) -> dict[str, Any]:
    """A model or world as plain data for :mod:`advmdp.storage`."""
    return {"class": type(problem).__name__, **problem._tree()}


def problem_from_tree(path: str | os.PathLike[str], tree: dict[str, Any]) -> Any:
    """The inverse of :func:`problem_tree`; ``path`` is named in errors."""
    classes = (TabularModel, LinearMixtureModel, LayeredMDP, LinearMixtureMDP)
    return _rebuild(path, tree, {cls.__name__: cls for cls in classes})


def _rebuild(path: str | os.PathLike[str], tree: dict[str, Any], classes: dict[str, Any]) -> Any:
    arguments = {key: value for key, value in tree.items() if key != "class"}
    try:
        if "scene" in arguments:
            arguments["scene"] = Scene(**arguments["scene"])
        return classes[tree["class"]](**arguments)
    except MemoryError:
        raise
    except Exception as error:
        raise CorruptCheckpointError(f"{Path(path)}: does not describe a valid world or model ({error})") from error


# ------------------------------------------------------------------------------------ validation


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _flatten_shared(arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], IntArray]:
    """All arrays in one read-only vector, and where each begins; what is one object is stored once."""
    starts: dict[int, int] = {}
    size = 0
    for array in arrays:
        if id(array) not in starts:
            starts[id(array)] = size
            size += array.size
    buffer = np.empty(size, dtype=arrays[0].dtype)
    for array in arrays:
        start = starts[id(array)]
        buffer[start : start + array.size] = array.ravel()
    return _read_only(buffer), _read_only(np.array([starts[id(a)] for a in arrays], dtype=np.int64))


def _distinct(arrays: Sequence[FloatArray]) -> list[tuple[int, FloatArray]]:
    """The first layer of every distinct array, so that shared layers are checked once."""
    seen: dict[int, tuple[int, FloatArray]] = {}
    for h, array in enumerate(arrays):
        seen.setdefault(id(array), (h, array))
    return list(seen.values())


def _frozen_arrays(entries: Sequence[ArrayLike], ndim: int, what: str) -> tuple[FloatArray, ...]:
    """Private, read-only, finite float64 copies; entries that are one object stay one object."""
    if not isinstance(entries, Iterable):
        raise InvalidMDPError(f"{what} is {entries!r}, should be a list of arrays, one per layer 0 to H-1")
    entries = list(entries)  # holds every entry, so that no two of them can share an id by accident
    if not entries:
        raise InvalidMDPError(f"{what} is empty, should have one array per layer 0 to H-1")
    copies: dict[int, FloatArray] = {}
    for h, entry in enumerate(entries):
        if id(entry) in copies:
            continue
        array = np.array(float_array(entry, f"{what}[{h}]", InvalidMDPError), order="C")
        if array.ndim != ndim:
            wanted = "(S_h, A, S_{h+1})" if ndim == 3 else "(S_h, A, S_{h+1}, d)"
            raise InvalidMDPError(f"{what}[{h}] has shape {array.shape}, should be {wanted}")
        if not np.isfinite(array).all():
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise InvalidMDPError(f"{what}[{h}], {_place(index)}: value {array[index]} is not a finite number")
        # A view of a read-only array: its flag cannot be set back.
        copies[id(entry)] = _read_only(array).view()
    return tuple(copies[id(entry)] for entry in entries)


def _place(index: tuple[int, ...]) -> str:
    names = ("state", "action", "next state", "coordinate")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=False))


def layer_sizes(arrays: Sequence[FloatArray], what: str) -> tuple[int, ...]:
    """States per layer of kernels or features, checked to fit together."""
    n_actions = arrays[0].shape[1]
    for h, array in enumerate(arrays):
        if array.shape[1] != n_actions:
            raise InvalidMDPError(
                f"{what}[{h}] has {array.shape[1]} actions, {what}[0] has {n_actions}: the number of "
                "actions is the same everywhere"
            )
        if h > 0 and array.shape[0] != arrays[h - 1].shape[2]:
            raise InvalidMDPError(
                f"{what}[{h}] has {array.shape[0]} states, but {what}[{h - 1}] leads to "
                f"{arrays[h - 1].shape[2]} next states: they should be equal"
            )
    return (*(array.shape[0] for array in arrays), arrays[-1].shape[2])


def _probability_rows(array: FloatArray, h: int, what: str = "kernels", negative: float = 1e-12) -> FloatArray:
    """Rows that are distributions, rounding errors (below -``negative``) cut off and normalised away."""
    if array.size and array.min() < -negative:
        index = tuple(int(i) for i in np.unravel_index(int(array.argmin()), array.shape))
        raise InvalidMDPError(f"{what}[{h}], {_place(index)}: probability {array[index]:.6g} is negative")
    sums = array.sum(axis=2)
    wrong = np.abs(sums - 1.0) > TOLERANCE
    if wrong.any():
        s, a = (int(i) for i in np.argwhere(wrong)[0])
        raise InvalidMDPError(
            f"{what}[{h}], {_place((s, a))}: probabilities sum to {sums[s, a]:.12g}, should be 1 (within {TOLERANCE:g})"
        )
    rows = np.maximum(array, 0.0)
    sums = rows.sum(axis=2, keepdims=True)
    # Rows that are right to rounding stay as they are, so that normalising twice changes nothing.
    rows /= np.where(np.abs(sums - 1.0) > 1e-14, sums, 1.0)
    return rows


def _check_norms(features: FloatArray, h: int) -> None:
    norms = np.sqrt(np.einsum("satd,satd->sat", features, features))
    if norms.max() > 1.0 + TOLERANCE:
        index = tuple(int(i) for i in np.unravel_index(int(norms.argmax()), norms.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place(index)}: norm {norms[index]:.6g}, should be at most 1 "
            "(divide the features by their largest norm and multiply theta and bound by it)"
        )


def _check_simplex_features(features: FloatArray, h: int, bound: float) -> None:
    if features.min() < 0.0:
        index = tuple(int(i) for i in np.unravel_index(int(features.argmin()), features.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place(index)}: value {features[index]:.6g} is negative, should be >= 0 "
            "since simplex=True"
        )
    sums = features.sum(axis=2)
    common = float(sums[0, 0, 0])
    differ = np.abs(sums - common) > TOLERANCE * max(1.0, abs(common))
    if differ.any() or common <= 0.0:
        s, a = (int(i) for i in np.argwhere(differ)[0][:2]) if differ.any() else (0, 0)
        raise InvalidMDPError(
            f"features[{h}], {_place((s, a))}: sums over next states {sums[s, a]}, should be "
            f"{common:.6g} > 0 in every coordinate of every pair of the layer since simplex=True"
        )
    # theta is a vector of weights divided by that sum; the shortest has equal weights.
    least = 1.0 / (common * np.sqrt(sums.shape[2]))
    if bound < least * (1.0 - TOLERANCE):
        raise InvalidMDPError(f"bound is {bound:.6g}, but every parameter of layer {h} has norm at least {least:.6g}")


def _check_feasible(features: FloatArray, h: int) -> None:
    """Some parameter must make every row of the layer sum to one."""
    sums = features.sum(axis=2)
    design = sums.reshape(-1, sums.shape[2])
    theta = np.linalg.lstsq(design, np.ones(len(design)), rcond=None)[0]
    errors = np.abs(sums @ theta - 1.0)
    if errors.max() > 1e-6:
        s, a = (int(i) for i in np.unravel_index(int(errors.argmax()), errors.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place((s, a))}: no parameter makes the rows of this layer sum to 1 (here the "
            f"nearest one gives {float(sums[s, a] @ theta):.6g})"
        )


def _bound(value: Any) -> float:
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        with suppress(OverflowError):
            if np.isfinite(float(value)) and value > 0:
                return float(value)
    raise InvalidMDPError(f"bound is {value!r}, should be a finite number > 0 (B of the model)")


def _parameter(vector: ArrayLike, h: int) -> FloatArray:
    array = np.array(float_array(vector, f"theta[{h}]", InvalidMDPError))
    if not np.isfinite(array).all():
        raise InvalidMDPError(f"theta[{h}] = {array} has an entry that is not a finite number")
    return _read_only(array).view()


# ------------------------------------------------------------------------------- mixtures of kernels


def _stack_kernels(
    base_kernels: Sequence[Sequence[ArrayLike]],
) -> tuple[list[FloatArray], list[float]]:
    """Base kernels as features of norm at most one, and the scale of each layer (1 for the last)."""
    if not isinstance(base_kernels, Sequence) or len(base_kernels) == 0:
        raise InvalidMDPError(f"base_kernels is {base_kernels!r}, should hold one kernel list or more")
    bases: list[LayeredMDP] = []
    for number, kernels in enumerate(base_kernels):
        try:
            bases.append(LayeredMDP(kernels))
        except InvalidMDPError as error:
            raise InvalidMDPError(f"base kernel {number}: {error}") from error
        if bases[number].layers != bases[0].layers:
            raise InvalidMDPError(
                f"base kernel {number} has layers {bases[number].layer_sizes} and "
                f"{bases[number].n_actions} actions, base kernel 0 has {bases[0].layer_sizes} and "
                f"{bases[0].n_actions}: they should be equal"
            )
    horizon = bases[0].horizon
    features: list[FloatArray] = []
    scales: list[float] = []
    built: dict[tuple[int, ...], tuple[FloatArray, float]] = {}
    for h in range(horizon):
        # Layers that share their base kernels share their features too (time-homogeneous worlds).
        key = tuple(int(base.flat_kernels[1][h]) for base in bases) if h < horizon - 1 else (-1,)
        if key not in built:
            stacked = np.stack([base.kernels[h] for base in bases], axis=3)
            scale = 1.0
            if h < horizon - 1:
                scale = float(np.sqrt(np.einsum("satd,satd->sat", stacked, stacked).max()))
            stacked /= scale
            built[key] = (_read_only(stacked), scale)
        features.append(built[key][0])
        scales.append(built[key][1])
    # B must not be ruled by the last layer, whose parameter is never learnt, unless it is the only one.
    if horizon > 1:
        scales[-1] = min(scales[:-1])
        features[-1] = _read_only(features[-1] / scales[-1])
    return features, scales


def _sampled_kernels(
    step: Callable[[int, int, int, np.random.Generator], int],
    number: int,
    layers: Layers,
    samples: int,
    rng: np.random.Generator,
) -> list[FloatArray]:
    kernels = []
    for h in range(layers.horizon - 1):
        counts = np.zeros((layers.sizes[h], layers.n_actions, layers.sizes[h + 1]))
        for state in range(layers.sizes[h]):
            for action in range(layers.n_actions):
                for _ in range(samples):
                    following = step(h, state, action, rng)
                    where = f"simulator {number}, layer {h}, state {state}, action {action}: next state"
                    integer(following, where, 0, InvalidMDPError)
                    if following >= layers.sizes[h + 1]:
                        raise InvalidMDPError(f"{where} is {following!r}, should be at most {layers.sizes[h + 1] - 1}")
                    counts[state, action, following] += 1.0
        kernels.append(counts / samples)
    kernels.append(np.ones((layers.sizes[-2], layers.n_actions, 1)))
    return kernels
