"""Lazy follow the perturbed leader (Yu, Mannor and Shimkin, Mathematics of Operations Research 2009), for episodes."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from advmdp._checks import integer
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray
from advmdp.learners.known import KnownTransitionLearner, best_for
from advmdp.learners.options import NoOptions
from advmdp.learners.sharper import largest_divergence
from advmdp.registry import register_learner


@dataclass(frozen=True, kw_only=True)
class BlockOptions(NoOptions):
    """``block``: how many episodes a leader is followed for; None: longer and longer."""

    block: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block is not None:
            integer(self.block, "block", 1, InvalidSpecError)


class PerturbedLeader(NamedTuple):
    """The losses so far, and the policy that is followed."""

    policy: FloatArray
    total: FloatArray
    #: Number of the block, from 1, and episodes until the next one.
    block: int
    left: int
    #: The sum of the squared lengths of all blocks, this one included.
    squares: float


@register_learner("lazy-fpl")
class LazyFpl(KnownTransitionLearner):
    """Known transition, full information: in block m, argmin over policies of <q, losses before it - z / eps_m>.

    z has independent entries, exponentially distributed with mean one and drawn anew for each block.  Block m lasts
    ceil(m^(1/3)) episodes.  With D = sum_h log(S_h A), and T_m the sum of the squared lengths of the first m blocks,
    eps_m = sqrt(D / (2 (S - 1) H T_m)), with which the expected regret is at most 2 sqrt(2 D (S - 1) H T_M) after any
    number of episodes, M the block of the last one.

    Parameters
    ----------
    block
        The length of all blocks, in place of growing ones; 1 plans in every episode, with the least bound.
    """

    name = "lazy-fpl"
    feedback = "full"
    needs_episodes = False
    status = "policies recomputed from the whole history; regret below its bound, which is derived"
    Options = BlockOptions
    options: BlockOptions

    def _begin(self) -> PerturbedLeader:
        return self._follow(np.zeros(self._layers.n_pairs), 1, 0.0)

    def _follow(self, total: FloatArray, block: int, squares: float) -> PerturbedLeader:
        layers, length = self._layers, self.options.block or cube_root(block)
        squares += float(length) ** 2
        divergence = max(largest_divergence(layers), log(2.0))  # with nothing to choose any will do
        spread = sqrt(2.0 * (layers.counted.states - 1) * layers.horizon * squares / divergence)
        z = self._draws.at(block).exponential(size=layers.n_pairs)
        return PerturbedLeader(best_for(self._problem, total - spread * z), total, block, length, squares)

    def _learn(self, state: PerturbedLeader, episode: CheckedEpisode) -> PerturbedLeader:
        assert episode.loss_table is not None  # checked: the feedback is full
        total = state.total + episode.loss_table
        if state.left > 1:
            return state._replace(total=total, left=state.left - 1)
        return self._follow(total, state.block + 1, state.squares)


def cube_root(block: int) -> int:
    """ceil(m^(1/3)), exactly."""
    root = max(1, int(np.cbrt(block)) - 1)
    while root**3 < block:
        root += 1
    return root
