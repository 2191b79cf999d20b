"""What a learner may know of a world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from advmdp._checks import integer
from advmdp._html import facts, shortened
from advmdp.errors import InvalidMDPError
from advmdp.layered.mixtures import stack_kernels
from advmdp.layered.rows import Rows, SparseRows, flat_rows
from advmdp.layered.sampling import sampled_kernels
from advmdp.layered.shape import BoolArray, FloatArray, Layers, distinct
from advmdp.layered.validation import (
    check_common_sum,
    check_feasible,
    check_norms,
    check_simplex_features,
    checked_available,
    checked_bound,
    checked_pair_features,
    checked_scales,
    frozen_arrays,
    layer_sizes,
    masked_layers,
    possible_transitions,
)
from advmdp.seeding import Stream, sequence


class Shaped:
    """What worlds and models have in common: layers, states and actions."""

    _layers: Layers

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
    def available(self) -> tuple[BoolArray, ...]:
        """Which actions a state has, per layer ``(S_h, A)``, read-only."""
        return available_tables(self._layers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layer_sizes={self.layer_sizes}, n_actions={self.n_actions})"


class TabularModel(Shaped):
    """What a tabular learner may know: the layers and the actions, nothing of the dynamics.

    ``available`` says which actions a state has: a list over layers 0..H-1 of arrays ``(S_h, A)`` of bool, at least one
    True per state; by default all.  No learner takes an unavailable action.  ``support`` says which transitions are
    possible, where that is known: a list over layers of sparse rows, as large worlds have them.
    """

    def __init__(
        self,
        layer_sizes: Sequence[int],
        n_actions: int,
        available: Sequence[ArrayLike] | None = None,
        support: Sequence[Any] | None = None,
    ) -> None:
        sizes = tuple(layer_sizes) if isinstance(layer_sizes, Iterable) else layer_sizes
        if support is not None:
            flags = {id(table): possible_transitions(table) for table in support}
            support = tuple(flags[id(table)] for table in support)
        self._layers = masked_layers(sizes, n_actions, checked_available(available), support)
        self._support = support

    @property
    def model(self) -> TabularModel:
        """Itself, so that a model stands wherever a problem is asked for."""
        return self

    @property
    def possible(self) -> tuple[Any, ...] | None:
        """Transitions that can happen, per layer ``(S_h, A, S_{h+1})`` of bool; ``None`` where all can.

        A learner rejects an episode with any other.
        """
        return self._support

    @cached_property
    def possible_rows(self) -> Rows | None:
        """:attr:`possible` for compiled code."""
        masks = self.possible
        return None if masks is None else flat_rows(masks)

    @property
    def support(self) -> tuple[Any, ...] | None:
        """:attr:`possible`, if some layer is stored sparse: then whatever is kept of transitions must be, too."""
        masks = self.possible
        return masks if masks is not None and any(isinstance(mask, SparseRows) for mask in masks) else None

    def _repr_html_(self) -> str:
        return facts(type(self).__name__, self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """What a notebook shows."""
        counted = self._layers.counted
        able = "" if self._layers.available is None else f", {counted.actions:.3g} available on average"
        return [
            ("steps (H)", f"{self.horizon:,}"),
            ("states (S)", f"{self.n_states:,}; by layer {shortened(self.layer_sizes)}"),
            ("actions (A)", f"{self.n_actions:,}{able}"),
        ]

    def _tree(self) -> dict[str, Any]:
        tree = {
            "layer_sizes": list(self.layer_sizes),
            "n_actions": self.n_actions,
            "available": mask_tree(self._layers),
        }
        return tree if self._support is None else {**tree, "support": tables_tree(self._support)}


def available_tables(layers: Layers) -> tuple[BoolArray, ...]:
    """The masks of a shape, per layer ``(S_h, A)``; all True where it has none."""
    flat = np.ones(layers.n_pairs, dtype=np.bool_) if layers.available is None else layers.available
    tables = tuple(layers.split(flat))
    for table in tables:
        table.flags.writeable = False
    return tables


def mask_tree(layers: Layers) -> list[BoolArray] | None:
    """The masks of a shape, for a file."""
    return None if layers.available is None else layers.split(layers.available)


def tables_tree(tables: Sequence[Any]) -> list[Any]:
    """Layers of rows, for a file; what is one object is stored once."""
    trees: dict[int, Any] = {}
    for table in tables:
        if id(table) not in trees:
            trees[id(table)] = table.tree() if isinstance(table, SparseRows) else table
    return [trees[id(table)] for table in tables]


class LinearMixtureModel(TabularModel):
    """What a linear-mixture learner may know: features phi(s' | s, a) and a bound on the parameters.

    Parameters
    ----------
    features
        List over layers 0..H-1 of arrays ``(S_h, A, S_{h+1}, d)``, or of rows on their supports
        (:class:`advmdp.layered.SparseRows`), every vector of Euclidean norm at most one.  The
        entry of the last layer is ignored: that transition is deterministic.
    bound
        B, at least the norm of every parameter theta_h.
    simplex
        Whether theta_h is known to be non-negative, as it is for a mixture of d simulators.  Then features
        must be non-negative and have the same sum over next states everywhere in a layer.
    zeros_are_certain
        Whether a transition whose features are zero is impossible, so that an episode with it is refused.
        Not so where features were estimated: a rare transition may have been missed.
    shared
        Whether theta_h / scales[h], the mixture weights, are known to be the same in every layer (the last one apart).
    scales
        What the features of each layer were divided by, H numbers > 0; by default ones.
    available
        Which actions a state has, a list over layers of ``(S_h, A)`` of bool; by default all.  Features of others are
        ignored.
    """

    def __init__(
        self,
        features: Sequence[ArrayLike],
        bound: float,
        simplex: bool = False,
        *,
        zeros_are_certain: bool = True,
        shared: bool = False,
        scales: Sequence[float] | None = None,
        available: Sequence[ArrayLike] | None = None,
    ) -> None:
        masks = checked_available(available)
        arrays = frozen_arrays(features, 4, "features", masks)
        possible = None if masks is None or not zeros_are_certain else [possible_transitions(a) for a in arrays]
        self._layers = masked_layers(layer_sizes(arrays, "features"), arrays[0].shape[1], masks, possible)
        self._features = arrays
        self._bound = checked_bound(bound)
        self._simplex = bool(simplex)
        self._zeros_are_certain = bool(zeros_are_certain)
        self._shared = bool(shared)
        self._scales = checked_scales(scales, self.horizon)
        dims = {array.shape[3] for array in arrays}
        if len(dims) != 1 or dims == {0}:
            raise InvalidMDPError(
                f"features have {sorted(dims)} coordinates in different layers, should have the same "
                "number d >= 1 in all"
            )
        for h, array in distinct(arrays[:-1]):
            check_norms(array, h)
            if simplex:
                check_simplex_features(array, h, self._bound)
            else:
                check_feasible(array, h)
        if shared and simplex:
            check_common_sum(arrays[:-1], self._scales)

    @property
    def features(self) -> tuple[Any, ...]:
        """phi, per layer a read-only array ``(S_h, A, S_{h+1}, d)``, or rows on their supports."""
        return self._features

    @cached_property
    def feature_rows(self) -> Rows:
        """:attr:`features` for compiled code."""
        return flat_rows(self._features)

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

    @property
    def shared(self) -> bool:
        """Whether theta_h / scales[h], the mixture weights, are known to be the same in every layer."""
        return self._shared

    @property
    def scales(self) -> tuple[float, ...]:
        """c_h, H numbers: ``features[h] * scales[h]`` are the probabilities of base kernels, if there are such."""
        return self._scales

    @cached_property
    def possible(self) -> tuple[Any, ...] | None:
        """Transitions to which some parameter gives a probability: their features are not all zero."""
        if not self._zeros_are_certain and not any(isinstance(a, SparseRows) for a in self._features):
            return None
        masks = {id(a): possible_transitions(a) for _, a in distinct(self._features[:-1])}
        last = np.ones(self._features[-1].shape[:3], dtype=bool)
        return (*(masks[id(a)] for a in self._features[:-1]), last)

    def _facts(self) -> list[tuple[str, str]]:
        weights = ["weights >= 0"] * self.simplex + ["the same in every layer"] * self.shared
        mixture = [f"of {self.dim} kernels" if self.simplex else f"{self.dim} coordinates", *weights]
        return [*super()._facts(), ("mixture (d)", ", ".join(mixture)), ("bound (B)", f"{self.bound:.4g}")]

    @classmethod
    def from_kernels(
        cls, base_kernels: Sequence[Sequence[Any]], shared: bool = False, available: Sequence[ArrayLike] | None = None
    ) -> LinearMixtureModel:
        """The model of an unknown mixture of d known kernels (simulators given as arrays).

        Coordinate i of a feature is the probability under base kernel i, divided per layer by the largest
        norm that occurs there, c_h (the deterministic last layer apart).  The parameter is then c_h times
        the mixture weights, so that B = max_h c_h holds whatever the weights are.

        Parameters
        ----------
        base_kernels
            d lists over layers of arrays ``(S_h, A, S_{h+1})``, rows summing to one, or of sparse matrices of SciPy
            ``(S_h * A, S_{h+1})``.
        shared
            Whether the mixture weights are known to be the same in every layer.
        available
            Which actions a state has, a list over layers of ``(S_h, A)`` of bool; rows of others are ignored.

        Examples
        --------
        Two simulators of a process with layers of 1, 2 and 1 states and one action:

        >>> end = [[[1.0]], [[1.0]]]
        >>> model = LinearMixtureModel.from_kernels([[[[[0.9, 0.1]]], end], [[[[0.2, 0.8]]], end]])
        >>> model.layer_sizes, model.dim, round(model.bound, 3)
        ((1, 2, 1), 2, 0.922)
        """
        return cls._mixture(base_kernels, True, shared, available)

    @classmethod
    def _mixture(
        cls,
        base_kernels: Sequence[Sequence[Any]],
        zeros_are_certain: bool,
        shared: bool,
        available: Sequence[ArrayLike] | None = None,
    ) -> LinearMixtureModel:
        features, scales = stack_kernels(base_kernels, checked_available(available))
        return cls(
            features, max(scales), True,
            zeros_are_certain=zeros_are_certain, shared=shared, scales=scales, available=available,
        )  # fmt: skip

    @classmethod
    def from_simulators(
        cls,
        step_functions: Sequence[Callable[[int, int, int, np.random.Generator], int]],
        layer_sizes: Sequence[int],
        n_actions: int,
        samples: int,
        seed: int = 0,
        shared: bool = False,
    ) -> LinearMixtureModel:
        """The model of an unknown mixture of d simulators, their kernels estimated by sampling.

        Each simulator is a function ``step(layer, state, action, rng) -> next_state``; it is called
        ``samples`` times for every pair (the last layer apart), with a random stream of its own.
        Probabilities are then known to about 1 / sqrt(samples) only, and the guarantees of learners hold for
        mixtures of the sampled kernels; a transition that was never sampled may happen, and is not refused.
        ``shared``: whether the mixture weights are known to be the same in every layer.

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
            sampled_kernels(step, number, layers, samples, np.random.default_rng(stream))
            for number, (step, stream) in enumerate(zip(step_functions, streams, strict=True))
        ]
        return cls._mixture(kernels, False, shared)

    def _tree(self) -> dict[str, Any]:
        return {
            "features": tables_tree(self._features),
            "bound": self._bound,
            "simplex": self._simplex,
            "zeros_are_certain": self._zeros_are_certain,
            "shared": self._shared,
            "scales": list(self._scales),
            "available": mask_tree(self._layers),
        }


class LinearMDPModel(TabularModel):
    """What a learner of linear MDPs may know: features phi(s, a) of the pairs, and a bound on the unknown measures.

    In a linear MDP P_h(s' | s, a) = <phi(s, a), mu_h(s')>: any function of the next state has an expectation that is
    linear in the features.  A tabular learner takes this model as well, and uses the shape alone.

    Parameters
    ----------
    features
        List over layers 0..H-1 of arrays ``(S_h, A, d)``, every vector of Euclidean norm at most one.  Those of the
        last layer matter for losses that are linear in features, not for the transition into the terminal state.
    bound
        B, at least |sum_s' mu_h(s') V(s')| for every V with values in [0, 1]; sqrt(d) where the d measures are
        distributions.
    available
        Which actions a state has, a list over layers of ``(S_h, A)`` of bool; by default all.  Features of others are
        ignored.

    Examples
    --------
    >>> model = LinearMDPModel([[[[1.0, 0.0], [0.5, 0.5]]], [[[0.0, 1.0], [1.0, 0.0]]] * 3], bound=1.5)
    >>> model.layer_sizes, model.n_actions, model.dim
    ((1, 3, 1), 2, 2)
    """

    def __init__(
        self, features: Sequence[ArrayLike], bound: float, *, available: Sequence[ArrayLike] | None = None
    ) -> None:
        masks = checked_available(available)
        self._features = checked_pair_features(features, masks)
        sizes = (*(len(array) for array in self._features), 1)
        self._layers = masked_layers(sizes, self._features[0].shape[1], masks)
        self._bound = checked_bound(bound)
        self._support = None
        for h, array in enumerate(self._features[:-1]):
            check_feasible(array[:, :, None, :], h)

    @property
    def features(self) -> tuple[FloatArray, ...]:
        """phi, per layer a read-only array ``(S_h, A, d)``."""
        return self._features

    @property
    def dim(self) -> int:
        """Coordinates of a feature vector, d."""
        return int(self._features[0].shape[2])

    @property
    def bound(self) -> float:
        """B, at least |sum_s' mu_h(s') V(s')| for every V with values in [0, 1]."""
        return self._bound

    def _facts(self) -> list[tuple[str, str]]:
        return [*super()._facts(), ("features of pairs (d)", f"{self.dim}"), ("bound (B)", f"{self.bound:.4g}")]

    def _tree(self) -> dict[str, Any]:
        return {"features": list(self._features), "bound": self._bound, "available": mask_tree(self._layers)}
