"""The shape of a layered MDP, and how arrays over it are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._checks import fits_in_memory, float_array, integer
from advmdp._compiled import kernel
from advmdp.errors import InvalidMDPError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Counted(NamedTuple):
    """The sizes that bounds and constants are made of.

    Where some actions are unavailable, states that available actions cannot reach are left out, and ``actions`` is the
    mean number of actions of a state, so that ``(states - 1) * actions`` pairs are counted.
    """

    #: S, the first and the terminal state included.
    states: int
    #: A.
    actions: float
    #: State-action pairs, n.
    pairs: int
    #: Of any one state.
    most_actions: int


@dataclass(frozen=True)
class Layers:
    """The shape of a layered MDP, and the way between ragged lists and flat vectors.

    Pair (s, a) of layer h has the flat index ``pair_offsets[h] + s * A + a``.
    """

    sizes: tuple[int, ...]
    n_actions: int
    #: Which pairs are available, flat; None where all are.
    available: BoolArray | None = field(default=None, repr=False, compare=False)
    #: States that available actions can reach, flat, the terminal one included; None where all can be, or nobody knows.
    reached: BoolArray | None = field(default=None, repr=False, compare=False)
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
        pairs = sum(self.sizes[:-1]) * self.n_actions
        fits_in_memory(8 * pairs, f"one table over {pairs} pairs of a state and an action", InvalidMDPError)
        sizes = np.array(self.sizes, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes[:-1] * self.n_actions)]).astype(np.int64)
        object.__setattr__(self, "sizes", tuple(int(size) for size in self.sizes))
        object.__setattr__(self, "pair_offsets", read_only(offsets))
        object.__setattr__(self, "size_array", read_only(sizes))
        object.__setattr__(self, "n_pairs", int(offsets[-1]))

    @property
    def horizon(self) -> int:
        """Number of actions in an episode, H."""
        return len(self.sizes) - 1

    @property
    def n_states(self) -> int:
        """All states, the first and the terminal one included, S."""
        return sum(self.sizes)

    @cached_property
    def counted(self) -> Counted:
        """The sizes that bounds and constants are made of."""
        if self.available is None:
            return Counted(self.n_states, self.n_actions, self.n_pairs, self.n_actions)
        choices = self.available.reshape(-1, self.n_actions).sum(axis=1)
        if self.reached is not None:
            choices = choices[self.reached[:-1]]
        pairs = int(choices.sum())
        return Counted(len(choices) + 1, pairs / len(choices), pairs, int(choices.max()))

    @cached_property
    def uniform_policy(self) -> FloatArray:
        """Flat: every available action of a state with the same probability."""
        if self.available is None:
            return read_only(np.full(self.n_pairs, 1.0 / self.n_actions))
        table = self.available.reshape(-1, self.n_actions)
        policy: FloatArray = (table / table.sum(axis=1, keepdims=True)).ravel()
        return read_only(policy)

    @cached_property
    def log_uniform_policy(self) -> FloatArray:
        """Its logarithm, -inf where an action is unavailable."""
        return read_only(logarithm(self.uniform_policy))

    def barred(self, losses: FloatArray) -> FloatArray:
        """The same losses, flat ``(..., n_pairs)``, but infinite where an action is unavailable: for planning."""
        return losses if self.available is None else np.where(self.available, losses, np.inf)

    def split(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
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


def logarithm(values: FloatArray) -> FloatArray:
    """log, -inf at zero."""
    with np.errstate(divide="ignore"):
        found: FloatArray = np.log(values)
    return found


@kernel
def first_outside(values: FloatArray) -> int:
    """The first entry that is not in [0, 1], or -1."""
    for i in range(values.size):
        if not 0.0 <= values[i] <= 1.0:
            return i
    return -1


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, which can no longer be written."""
    array.flags.writeable = False
    return array


def distinct(arrays: Sequence[Any]) -> list[tuple[int, Any]]:
    """The first layer of every distinct array, so that shared layers are checked once."""
    seen: dict[int, tuple[int, Any]] = {}
    for h, array in enumerate(arrays):
        seen.setdefault(id(array), (h, array))
    return list(seen.values())
