"""Losses that were recorded, or computed elsewhere, as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from advmdp._checks import float_array, integer
from advmdp.adversaries.base import Adversary
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, TabularModel
from advmdp.registry import register_adversary
from advmdp.seeding import Stream, sequence


@register_adversary("from-array")
class FromArray(Adversary):
    """The tables that are given, one per episode.

    Parameters
    ----------
    losses
        A list over layers of arrays ``(K, S_h, A)``, or one array ``(K, pairs)`` with the pairs of layer 0 first, in
        each layer state by state.  The latter is not copied if it is float64: a memory map stays on the disk.
    repeat
        Whether to begin again after the last table; otherwise there must be one for every episode.
    seed
        Not used: nothing is drawn.
    """

    def __init__(
        self,
        mdp: LayeredMDP | TabularModel,
        episodes: int,
        *,
        losses: Sequence[ArrayLike] | ArrayLike,
        repeat: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(mdp, episodes)
        sequence(seed, Stream.ADVERSARY)  # checked like every seed
        self._tables = self._flat(losses)
        self._repeat = bool(repeat)
        if not self._repeat and len(self._tables) < self.episodes:
            raise InvalidSpecError(
                f"losses has tables for {len(self._tables)} episodes, should have {self.episodes} (or repeat=True)"
            )
        for start in range(0, len(self._tables), 1024):  # piece by piece: the array may be larger than the memory
            piece = self._tables[start : start + 1024]
            bad = ~((piece >= 0.0) & (piece <= 1.0))
            if bad.any():
                k, pair = (int(i) for i in np.argwhere(bad)[0])
                where = f"losses, episode {start + k}, {self.layers.name_pair(pair)}"
                raise InvalidMDPError(f"{where}: loss {piece[k, pair]} is outside [0, 1]")

    def flat_losses(self, k: int) -> FloatArray:
        """Table number k."""
        integer(k, "episode", 0, InvalidSpecError)
        if k >= len(self._tables) and not self._repeat:
            raise InvalidSpecError(f"episode is {k}, should be below {len(self._tables)}: there are no more tables")
        return np.array(self._tables[k % len(self._tables)], dtype=np.float64)

    def _flat(self, losses: Sequence[ArrayLike] | ArrayLike) -> FloatArray:
        """All tables as ``(K, pairs)``."""
        layers = self.layers
        if isinstance(losses, np.ndarray) and losses.ndim == 2:
            tables = float_array(losses, "losses", InvalidMDPError)
            if tables.shape[1] != layers.n_pairs or not len(tables):
                raise InvalidMDPError(f"losses has shape {tables.shape}, should be (episodes, {layers.n_pairs})")
            return tables
        if not isinstance(losses, Sequence) or len(losses) != layers.horizon:
            found = f"{len(losses)} layers" if isinstance(losses, Sequence) else f"shape {np.shape(losses)}"
            raise InvalidMDPError(
                f"losses has {found}, should be a list over {layers.horizon} layers of arrays (K, S_h, A), "
                f"or an array (K, {layers.n_pairs})"
            )
        parts = [float_array(entry, f"losses[{h}]", InvalidMDPError) for h, entry in enumerate(losses)]
        for h, part in enumerate(parts):
            wanted = (parts[0].shape[:1] or (1,)) + (layers.sizes[h], layers.n_actions)
            if part.shape != wanted or not len(part):
                raise InvalidMDPError(
                    f"losses[{h}] has shape {part.shape}, should be {wanted} (episodes, states, actions)"
                )
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
