"""The world (what is true) and the model (what a learner may know): validated, immutable data.

An episodic layered MDP has layers 0..H; layers 0 and H hold one state each, and every transition leads
from a layer to the next one.  A *pair* is a state with an action.  Tables over pairs (losses, policies,
occupancy measures) are lists over layers of arrays ``(S_h, A)``; inside the library the same numbers live
in one flat vector, of which the list entries are views (see :class:`Layers`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp import storage
from advmdp.errors import CorruptCheckpointError, InvalidMDPError

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

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or any(not _is_positive_integer(size) for size in self.sizes):
            raise InvalidMDPError(
                f"layer_sizes {self.sizes}: need at least two layers, each with one state or more"
            )
        for layer in (0, len(self.sizes) - 1):
            if self.sizes[layer] != 1:
                raise InvalidMDPError(
                    f"layer {layer} has {self.sizes[layer]} states: the first and the last layer "
                    "hold a single state each"
                )
        if not _is_positive_integer(self.n_actions):
            raise InvalidMDPError(f"n_actions is {self.n_actions!r}, should be an integer >= 1")
        sizes = np.array(self.sizes, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes[:-1] * self.n_actions)]).astype(np.int64)
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        object.__setattr__(self, "pair_offsets", _read_only(offsets))
        object.__setattr__(self, "size_array", _read_only(sizes))

    @property
    def horizon(self) -> int:
        """Number of actions in an episode, H."""
        return len(self.sizes) - 1

    @property
    def n_states(self) -> int:
        """All states, the first and the terminal one included, S."""
        return sum(self.sizes)

    @property
    def n_pairs(self) -> int:
        """State-action pairs in layers 0..H-1."""
        return int(self.pair_offsets[-1])

    def split(self, flat: FloatArray) -> list[FloatArray]:
        """A flat vector over pairs as a list over layers of ``(S_h, A)`` views."""
        offsets = self.pair_offsets
        return [
            flat[offsets[h] : offsets[h + 1]].reshape(self.sizes[h], self.n_actions)
            for h in range(self.horizon)
        ]

    def flatten(self, table: Sequence[ArrayLike], what: str = "table") -> FloatArray:
        """A list over layers of ``(S_h, A)`` as one flat vector (a copy), shapes checked."""
        if len(table) != self.horizon:
            raise InvalidMDPError(
                f"{what} has {len(table)} layers, should have {self.horizon} (layers 0 to H-1)"
            )
        flat = np.empty(self.n_pairs)
        offsets = self.pair_offsets
        for h, entry in enumerate(table):
            values = np.asarray(entry, dtype=np.float64)
            if values.shape != (self.sizes[h], self.n_actions):
                raise InvalidMDPError(
                    f"{what}[{h}] has shape {values.shape}, should be "
                    f"{(self.sizes[h], self.n_actions)} (states of the layer, actions)"
                )
            flat[offsets[h] : offsets[h + 1]] = values.ravel()
        return flat

    def name_pair(self, pair: int) -> str:
        """Where a flat pair index is, for error messages."""
        h = int(np.searchsorted(self.pair_offsets, pair, side="right")) - 1
        state, action = divmod(pair - int(self.pair_offsets[h]), self.n_actions)
        return f"layer {h}, state {state}, action {action}"

    def loss_table(self, table: Sequence[ArrayLike], what: str = "losses") -> FloatArray:
        """A flat copy of a table of losses, every entry checked to lie in [0, 1]."""
        flat = self.flatten(table, what)
        bad = ~((flat >= 0.0) & (flat <= 1.0))
        if bad.any():
            pair = int(np.argmax(bad))
            raise InvalidMDPError(f"{what}, {self.name_pair(pair)}: loss {flat[pair]} is outside [0, 1]")
        return flat


class TabularModel:
    """What a tabular learner may know: the layers and the actions, nothing of the dynamics."""

    def __init__(self, layer_sizes: Sequence[int], n_actions: int) -> None:
        self._layers = Layers(tuple(layer_sizes), n_actions)

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
        must be non-negative and have the same sum over next states in each of the d coordinates.
    """

    def __init__(self, features: Sequence[ArrayLike], bound: float, simplex: bool = False) -> None:
        arrays = _frozen_arrays(features, 4, "features")
        super().__init__(_layer_sizes(arrays, "features"), arrays[0].shape[1])
        self._features = arrays
        self._bound = float(bound)
        self._simplex = bool(simplex)
        if not (np.isfinite(self._bound) and self._bound > 0.0):
            raise InvalidMDPError(f"bound is {bound}, should be a finite number > 0 (B of the model)")
        dims = {array.shape[3] for array in arrays}
        if len(dims) != 1 or dims == {0}:
            raise InvalidMDPError(
                f"features have {sorted(dims)} coordinates in different layers, should have the same "
                "number d >= 1 in all"
            )
        for h, array in _distinct(arrays[:-1]):
            _check_norms(array, h)
            if simplex:
                _check_simplex_features(array, h)

    @property
    def features(self) -> tuple[FloatArray, ...]:
        """phi, one read-only array ``(S_h, A, S_{h+1}, d)`` per layer."""
        return self._features

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
    def possible(self) -> tuple[NDArray[np.bool_], ...]:
        """Transitions to which some parameter gives a probability: their features are not all zero."""
        masks = {id(a): (a != 0.0).any(axis=3) for _, a in _distinct(self._features[:-1])}
        last = np.ones(self._features[-1].shape[:3], dtype=bool)
        return (*(masks[id(a)] for a in self._features[:-1]), last)

    @classmethod
    def from_kernels(cls, base_kernels: Sequence[Sequence[ArrayLike]]) -> LinearMixtureModel:
        """The model of an unknown mixture of d known kernels (simulators given as arrays).

        Coordinate i of a feature is the probability under base kernel i, divided per layer by the largest
        norm that occurs there, c_h (the deterministic last layer apart).  The parameter is then c_h times
        the mixture weights, so that B = max_h c_h holds whatever the weights are.
        """
        features, scales = _stack_kernels(base_kernels)
        return cls(features, bound=max(scales), simplex=True)

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
        """
        layers = Layers(tuple(layer_sizes), n_actions)
        if not step_functions:
            raise InvalidMDPError("step_functions is empty, should hold one simulator or more")
        if not _is_positive_integer(samples):
            raise InvalidMDPError(f"samples is {samples!r}, should be an integer >= 1")
        streams = np.random.SeedSequence(seed).spawn(len(step_functions))
        kernels = [
            _sampled_kernels(step, number, layers, samples, np.random.default_rng(stream))
            for number, (step, stream) in enumerate(zip(step_functions, streams, strict=True))
        ]
        return cls.from_kernels(kernels)

    def _tree(self) -> dict[str, Any]:
        return {
            "features": list(self._features),
            "bound": self._bound,
            "simplex": self._simplex,
        }


class LayeredMDP:
    """A layered MDP whose kernels are known to the simulator (never to a learner of unknown dynamics).

    Parameters
    ----------
    kernels
        List over layers 0..H-1 of arrays ``(S_h, A, S_{h+1})`` of next-state probabilities.  Rows must sum
        to one within 1e-9; what is left of the error is normalised away.  The same array object may stand in
        several layers: it is checked and stored once.
    """

    def __init__(self, kernels: Sequence[ArrayLike]) -> None:
        arrays = _frozen_arrays(kernels, 3, "kernels")
        layers = Layers(_layer_sizes(arrays, "kernels"), arrays[0].shape[1])
        checked = {id(array): _probability_rows(array, h) for h, array in _distinct(arrays)}
        self._adopt(TabularModel(layers.sizes, layers.n_actions), [checked[id(a)] for a in arrays])

    def _adopt(self, model: TabularModel, kernels: Sequence[FloatArray]) -> None:
        self._model = model
        # One buffer holds every distinct kernel; layers that share an array share their offset.
        starts: dict[int, int] = {}
        size = 0
        for array in kernels:
            if id(array) not in starts:
                starts[id(array)] = size
                size += array.size
        buffer = np.empty(size)
        for array in kernels:
            start = starts[id(array)]
            buffer[start : start + array.size] = array.ravel()
        self._kernel_buffer = _read_only(buffer)
        self._kernel_offsets = _read_only(np.array([starts[id(a)] for a in kernels], dtype=np.int64))
        views = {
            id(a): self._kernel_buffer[starts[id(a)] : starts[id(a)] + a.size].reshape(a.shape)
            for a in kernels
        }
        self._kernels = tuple(views[id(a)] for a in kernels)

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
        return tuple(array > 0.0 for array in self._kernels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the world to one file (arrays and JSON, no code); :func:`load_mdp` reads it."""
        storage.write(path, "mdp", {"class": type(self).__name__, **self._tree()})

    def _tree(self) -> dict[str, Any]:
        return {"kernels": list(self._kernels)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layer_sizes={self.layer_sizes}, n_actions={self.n_actions})"

    @classmethod
    def from_gymnasium(cls, env: Any, horizon: int) -> tuple[LayeredMDP, list[FloatArray]]:
        """Unroll a tabular Gymnasium environment over ``horizon`` steps.

        Parameters
        ----------
        env
            An environment with a transition table ``env.unwrapped.P`` (``P[s][a]`` a list of
            ``(probability, next state, reward, terminated)``), as FrozenLake, Taxi and CliffWalking have.
        horizon
            Steps of the environment in an episode.  Episodes that end earlier wait in an absorbing state
            without further cost.

        Returns
        -------
        mdp
            Layer h holds the states that can be reached in h steps.  Where the start is random, a dummy
            first layer (whose actions all do the same) draws it.
        losses
            One table of expected losses: rewards mapped affinely to [0, 1], the highest to 0; waiting in
            the absorbing state counts as reward 0.
        """
        from advmdp._gymnasium import unroll

        kernels, losses = unroll(env, horizon)
        return cls(kernels), losses


class LinearMixtureMDP(LayeredMDP):
    """A layered MDP with P_h(s' | s, a) = <phi(s' | s, a), theta_h> (Definition 1 of the paper).

    Parameters
    ----------
    features
        As in :class:`LinearMixtureModel`.
    theta
        List over layers of vectors ``(d,)``; the last one is ignored, like the last features.
    bound
        B; by default the largest norm of theta_0..theta_{H-2}.
    simplex
        Whether learners may know that theta is non-negative.
    """

    def __init__(
        self,
        features: Sequence[ArrayLike],
        theta: Sequence[ArrayLike],
        bound: float | None = None,
        simplex: bool = False,
    ) -> None:
        # Only the number of layers is compared here; the model checks the features themselves.
        if len(theta) != len(features):
            raise InvalidMDPError(
                f"theta has {len(theta)} layers, features have {len(features)}: one vector per layer"
            )
        parameters = [_parameter(vector, h) for h, vector in enumerate(theta)]
        norms = [float(np.linalg.norm(vector)) for vector in parameters[:-1]]
        if bound is None:
            bound = max(norms, default=1.0) or 1.0
        model = LinearMixtureModel(features, bound, simplex)
        for h, vector in enumerate(parameters):
            if vector.shape != (model.dim,):
                raise InvalidMDPError(
                    f"theta[{h}] has shape {vector.shape}, should be {(model.dim,)} as the features"
                )
        for h, norm in enumerate(norms):
            if norm > bound + TOLERANCE:
                raise InvalidMDPError(
                    f"theta[{h}] has norm {norm:.6g}, should be at most bound = {bound:.6g}"
                )
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
        self._adopt(model, kernels)

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
        cls, base_kernels: Sequence[Sequence[ArrayLike]], weights: Sequence[ArrayLike] | ArrayLike
    ) -> LinearMixtureMDP:
        """Mix d kernel lists with weights that are probability vectors: one ``(d,)``, or one per layer.

        Features, scaling and bound are those of :meth:`LinearMixtureModel.from_kernels`.
        """
        features, scales = _stack_kernels(base_kernels)
        table = np.asarray(weights, dtype=np.float64)
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
        return cls(features, theta, bound=max(scales), simplex=True)

    def _tree(self) -> dict[str, Any]:
        return {**self.model._tree(), "theta": list(self._theta)}


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
        return classes[tree["class"]](**arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpointError(
            f"{Path(path)}: does not describe a valid world or model ({error})"
        ) from error


# ------------------------------------------------------------------------------------ validation


def _is_positive_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _distinct(arrays: Sequence[FloatArray]) -> list[tuple[int, FloatArray]]:
    """The first layer of every distinct array, so that shared layers are checked once."""
    seen: dict[int, tuple[int, FloatArray]] = {}
    for h, array in enumerate(arrays):
        seen.setdefault(id(array), (h, array))
    return list(seen.values())


def _frozen_arrays(entries: Sequence[ArrayLike], ndim: int, what: str) -> tuple[FloatArray, ...]:
    """Private, read-only, finite float64 copies; entries that are one object stay one object."""
    if len(entries) == 0:
        raise InvalidMDPError(f"{what} is empty, should have one array per layer 0 to H-1")
    copies: dict[int, FloatArray] = {}
    for h, entry in enumerate(entries):
        if id(entry) in copies:
            continue
        try:
            array = np.asarray(entry, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidMDPError(f"{what}[{h}] is not an array of numbers: {error}") from error
        if array.ndim != ndim:
            wanted = "(S_h, A, S_{h+1})" if ndim == 3 else "(S_h, A, S_{h+1}, d)"
            raise InvalidMDPError(f"{what}[{h}] has shape {array.shape}, should be {wanted}")
        # A read-only array that owns its memory cannot change under us: share it, however large.
        ours = not array.flags.writeable and array.base is None and array.flags.c_contiguous
        if not ours:
            array = _read_only(np.array(array, dtype=np.float64, order="C"))
        if not np.isfinite(array).all():
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise InvalidMDPError(
                f"{what}[{h}], {_place(index)}: value {array[index]} is not a finite number"
            )
        copies[id(entry)] = array
    return tuple(copies[id(entry)] for entry in entries)


def _place(index: tuple[int, ...]) -> str:
    names = ("state", "action", "next state", "coordinate")
    return ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=False))


def _layer_sizes(arrays: Sequence[FloatArray], what: str) -> tuple[int, ...]:
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


def _probability_rows(
    array: FloatArray, h: int, what: str = "kernels", negative: float = 1e-12
) -> FloatArray:
    """Rows that are distributions, rounding errors (below -``negative``) cut off and normalised away."""
    if array.size and array.min() < -negative:
        index = tuple(int(i) for i in np.unravel_index(int(array.argmin()), array.shape))
        raise InvalidMDPError(f"{what}[{h}], {_place(index)}: probability {array[index]:.6g} is negative")
    sums = array.sum(axis=2)
    wrong = np.abs(sums - 1.0) > TOLERANCE
    if wrong.any():
        s, a = (int(i) for i in np.argwhere(wrong)[0])
        raise InvalidMDPError(
            f"{what}[{h}], {_place((s, a))}: probabilities sum to {sums[s, a]:.12g}, should be 1 "
            f"(within {TOLERANCE:g})"
        )
    rows = np.maximum(array, 0.0)
    rows /= rows.sum(axis=2, keepdims=True)
    return rows


def _check_norms(features: FloatArray, h: int) -> None:
    norms = np.sqrt(np.einsum("satd,satd->sat", features, features))
    if norms.max() > 1.0 + TOLERANCE:
        index = tuple(int(i) for i in np.unravel_index(int(norms.argmax()), norms.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place(index)}: norm {norms[index]:.6g}, should be at most 1 "
            "(divide the features by their largest norm and multiply theta and bound by it)"
        )


def _check_simplex_features(features: FloatArray, h: int) -> None:
    if features.min() < 0.0:
        index = tuple(int(i) for i in np.unravel_index(int(features.argmin()), features.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place(index)}: value {features[index]:.6g} is negative, should be >= 0 "
            "since simplex=True"
        )
    sums = features.sum(axis=2)
    spread = sums.max(axis=2) - sums.min(axis=2)
    if spread.max() > TOLERANCE * max(1.0, float(sums.max())):
        s, a = (int(i) for i in np.unravel_index(int(spread.argmax()), spread.shape))
        raise InvalidMDPError(
            f"features[{h}], {_place((s, a))}: sums over next states {sums[s, a]} differ between "
            "coordinates, should be equal since simplex=True"
        )


def _parameter(vector: ArrayLike, h: int) -> FloatArray:
    array = np.array(vector, dtype=np.float64)
    if not np.isfinite(array).all():
        raise InvalidMDPError(f"theta[{h}] = {array} has an entry that is not a finite number")
    return _read_only(array)


# ------------------------------------------------------------------------------- mixtures of kernels


def _stack_kernels(
    base_kernels: Sequence[Sequence[ArrayLike]],
) -> tuple[list[FloatArray], list[float]]:
    """Base kernels as features of norm at most one, and the scale of each layer (1 for the last)."""
    if len(base_kernels) == 0:
        raise InvalidMDPError("base_kernels is empty, should hold one kernel list or more")
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
                    if not (
                        isinstance(following, (int, np.integer)) and 0 <= following < layers.sizes[h + 1]
                    ):
                        raise InvalidMDPError(
                            f"simulator {number}, layer {h}, state {state}, action {action}: returned "
                            f"next state {following!r}, should be an integer from 0 to "
                            f"{layers.sizes[h + 1] - 1}"
                        )
                    counts[state, action, following] += 1.0
        kernels.append(counts / samples)
    kernels.append(np.ones((layers.sizes[-2], layers.n_actions, 1)))
    return kernels
