"""Actions without mass: a step from a measure q that is zero at some actions of a state keeps them at zero.

The solvers work on full tables, so such a pair stands in for another one: it takes the row set and the cost of the
first action of its state that has mass, and they share that action's mass evenly.  Two pairs with equal rows and costs
add up to one: the divergence is jointly convex and homogeneous, so that the problem with stand-ins and the restricted
one have the same minimum, and what a certificate says of one holds for the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp.solvers.problem import FlatTables, split_kernels, split_pairs


class StandIns(NamedTuple):
    """Which action stands at each pair: itself, or the one for which it stands in."""

    #: A list over layers of ``(S_h, A)``.
    actions: list[NDArray[np.intp]]
    #: The same for flat vectors over pairs.
    pairs: NDArray[np.intp]
    #: log of the number of pairs that share the mass, flat.
    log_shares: Floats

    def spread(self, log_q: Floats) -> Floats:
        """log q with the mass of an action shared evenly among its stand-ins."""
        return log_q[self.pairs] - self.log_shares

    def merge(self, found: FlatTables, sizes: tuple[int, ...], n_actions: int) -> FlatTables:
        """What was found for the problem with stand-ins, for the restricted one."""
        log_q = np.full_like(found.log_q, -np.inf)
        np.logaddexp.at(log_q, self.pairs, found.log_q)
        with np.errstate(invalid="ignore"):  # a state without mass: -inf less -inf
            weight = np.nan_to_num(np.exp(found.log_q - log_q[self.pairs]))
        kernels = []
        shares = split_pairs(weight, sizes, n_actions)
        for rows, actions, share in zip(
            split_kernels(found.kernels, sizes, n_actions)[:-1], self.actions, shares, strict=False
        ):
            states = np.arange(len(rows))[:, None]
            mean = np.zeros_like(rows)
            np.add.at(mean, (states, actions), share[..., None] * rows)
            # Where all mass has underflowed the row of the action itself will do.
            mean = np.where(mean.sum(axis=2, keepdims=True) > 0.5, mean, rows)
            kernels.append(mean[states, actions].ravel())
        return FlatTables(np.exp(log_q), log_q, np.concatenate([np.empty(0), *kernels]))


def stand_ins(log_q: Floats, sizes: tuple[int, ...], n_actions: int) -> StandIns | None:
    """For the pairs without mass of states that have some; None where there are none, as usual."""
    table = log_q.reshape(-1, n_actions)
    dead = table == -np.inf
    partly = dead.any(axis=1) & ~dead.all(axis=1)
    if not partly.any():
        return None
    own = np.arange(n_actions)
    actions = np.where(dead & partly[:, None], dead.argmin(axis=1)[:, None], own)
    pairs = (actions + n_actions * np.arange(len(table))[:, None]).ravel()
    shares = np.bincount(pairs, minlength=pairs.size)[pairs]
    layers = np.split(actions, np.cumsum(sizes[:-2]))
    return StandIns(layers, pairs, np.log(shares))
