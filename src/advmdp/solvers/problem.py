"""One mirror step in the order of the kernels, and its answer in tables again.

Blocks are a-major within a layer, and states that no kernel of the set reaches are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp._arrays import Floats, Integers
from advmdp._compiled import kernel
from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet
from advmdp.errors import InvalidMDPError
from advmdp.layered import Layers, SparseRows
from advmdp.solvers.layout import LINE, Per, layer_views, make_layout, view2

#: (S_h, A) for each layer, or all of them in one flat vector over pairs.
Tables = Sequence[ArrayLike] | Floats

# Sums of costs and of log q beyond this are not exact to the residual that a step promises.
LARGEST = 1e9
# Beyond this, exp(log q), which is in the value of a step, overflows.
LARGEST_LOG_Q = 700.0


class Problem(NamedTuple):
    """One step: minimise sum of q cost + q log(q / prior) - q + prior over the set."""

    sizes: tuple[int, ...]
    n_actions: int
    log_prior: Floats
    cost: Floats
    highest_cost: float
    kept: list[NDArray[np.intp]] | None  # reachable states per layer, or None if all are
    full_sizes: tuple[int, ...]
    offset: float  # of the value: what q had on the states left out, and what was taken off the costs of each layer


class FlatTables(NamedTuple):
    """q, log q and kernels over all states, each layer in C order of (state, action[, next state])."""

    q: Floats
    log_q: Floats
    kernels: Floats  # without those of the last layer, which are ones


class Answer(NamedTuple):
    """What a solver found, in its own working memory."""

    log_q: Floats
    q: Floats
    kernels: Floats
    value: float
    gap: float
    residual: float
    iterations: int
    status: str
    warm: dict[str, Floats]


def flatten(
    confidence_set: ConfidenceSet,
    q: Tables | None,
    log_q: Tables | None,
    loss: Tables,
    step_size: float,
) -> Problem:
    """The tables of a step, checked, as vectors over the blocks of reachable states."""
    sizes, n_actions, kept = confidence_set.layer_sizes, confidence_set.n_actions, confidence_set.kept_states
    if kept is None:
        order, kept_sizes = _block_order(sizes, n_actions), sizes
    else:
        order, kept_sizes = _order_of(sizes, n_actions, kept), tuple(len(states) for states in kept)
    every, losses = flat_step(confidence_set, q, log_q, loss)
    log_prior, cost = np.empty(len(order)), np.empty(len(order))
    lowest, largest, least, highest = _take(order, every, losses, float(step_size), log_prior, cost)
    dropped = 0.0
    if kept is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            dropped = float(np.exp(every).sum() - np.exp(log_prior).sum())
    resolved = lowest > -LARGEST and largest < LARGEST_LOG_Q and abs(dropped) < np.inf
    if not (resolved and highest < LARGEST and least > -LARGEST):
        require_step(confidence_set, every, step_size * losses)
    constant = 0.0
    if least < 0.0:
        # Every layer has mass one, so that a constant on it changes the value and nothing else.
        for layer in np.split(cost, np.cumsum(kept_sizes[:-2]) * n_actions):
            below = min(0.0, float(layer.min()))
            layer -= below
            constant += below
        highest = float(cost.max())
    return Problem(kept_sizes, n_actions, log_prior, cost, highest, kept, sizes, dropped + constant)


def flat_step(
    confidence_set: ConfidenceSet, q: Tables | None, log_q: Tables | None, loss: Tables
) -> tuple[Floats, Floats]:
    """log q, of whichever of the two is given, and the losses, as vectors over all pairs."""
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    if log_q is not None:
        every = _flat("log_q", log_q, sizes, n_actions)
    elif q is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            every = np.log(_flat("q", q, sizes, n_actions))
    else:
        raise InvalidMDPError("the step needs q or log_q, the occupancy measure to start from")
    return every, _flat("loss", loss, sizes, n_actions)


@kernel
def _take(
    order: Integers, log_q: Floats, loss: Floats, step_size: float, log_prior: Floats, cost: Floats
) -> tuple[float, float, float, float]:
    """Entries ``order`` of log q, and of the losses times the step size; the extremes of both, all NaN if one is."""
    lowest = least = np.inf
    largest = highest = -np.inf
    for i in range(order.shape[0]):
        log_prior[i] = log_q[order[i]]
        cost[i] = step_size * loss[order[i]]
        if np.isnan(log_prior[i] + cost[i]):
            return np.nan, np.nan, np.nan, np.nan
        lowest = min(lowest, log_prior[i])
        largest = max(largest, log_prior[i])
        least = min(least, cost[i])
        highest = max(highest, cost[i])
    return lowest, largest, least, highest


def require_step(confidence_set: ConfidenceSet, log_q: Floats, cost: Floats, least_log_q: float = -LARGEST) -> None:
    """Raise for the first entry of these vectors over all pairs that no solver can work with, saying where it is.

    A state that no kernel of the set reaches may have log q = -inf; its loss is nobody's.
    """
    n_actions = confidence_set.n_actions
    reached = np.repeat(confidence_set.flat_reachable[:-1], n_actions)
    checks = (
        ("log q", log_q, (log_q < LARGEST_LOG_Q) & ((log_q >= least_log_q) | ~reached),
         f"finite (give log_q where q underflows), between {least_log_q:g} and {LARGEST_LOG_Q:g}"),
        ("step_size * loss", cost, (abs(cost) < LARGEST) | ~reached, f"finite, between {-LARGEST:g} and {LARGEST:g}"),
    )  # fmt: skip
    for name, values, right, requirement in checks:
        if not right.all():
            index = int(np.argmin(right))
            raise InvalidMDPError(
                f"{name} is {values[index]} at {name_pair(confidence_set, index)}; it must be {requirement}"
            )


def name_pair(confidence_set: ConfidenceSet, pair: int) -> str:
    """Where the entry of a vector over all pairs stands."""
    return Layers(confidence_set.layer_sizes, confidence_set.n_actions).name_pair(pair)


def _flat(name: str, tables: Tables, sizes: tuple[int, ...], n_actions: int) -> Floats:
    """Tables (S_h, A) of all layers, one after the other; what is one flat vector already is taken as it is."""
    if isinstance(tables, np.ndarray) and tables.ndim == 1 and tables.dtype == np.float64:
        if tables.shape[0] != n_actions * sum(sizes[:-1]):
            raise InvalidMDPError(f"{name} has {len(tables)} entries; this set needs {n_actions * sum(sizes[:-1])}")
        return np.ascontiguousarray(tables)
    if len(tables) != len(sizes) - 1:
        raise InvalidMDPError(f"{name} has {len(tables)} layers; this set needs {len(sizes) - 1}")
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    for h, array in enumerate(arrays):
        if array.shape != (sizes[h], n_actions):
            raise InvalidMDPError(f"{name}[{h}] has shape {array.shape}; this set needs ({sizes[h]}, {n_actions})")
    flat: Floats = np.concatenate(arrays, axis=None)
    return flat


@lru_cache(maxsize=64)
def _block_order(sizes: tuple[int, ...], n_actions: int) -> NDArray[np.intp]:
    return _order_of(sizes, n_actions, [np.arange(n) for n in sizes])


def _order_of(sizes: tuple[int, ...], n_actions: int, kept: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Where the blocks, a-major within a layer and of the kept states only, stand in tables (S_h, A)."""
    starts = n_actions * np.concatenate([[0], np.cumsum(sizes[:-2])])
    actions = np.arange(n_actions)[:, None]
    return np.concatenate(
        [start + (n_actions * states + actions).ravel() for start, states in zip(starts, kept, strict=False)]
    ).astype(np.intp)


def require_rows(confidence_set: ConfidenceSet, empty: bool) -> None:
    """Raise if the set has an empty pair, saying where and what would help."""
    if empty:
        pairs = confidence_set.empty_pairs()
        where = "layer {}, state {}, action {}".format(*pairs[0]) if len(pairs) else "a pair"
        raise InvalidMDPError(
            f"the confidence set has {max(len(pairs), 1)} empty pairs, the first at {where}; a radius "
            f"{confidence_set.smallest_radius_multiple():.6g} times as large would leave none"
        )


def reproducer(
    confidence_set: ConfidenceSet, log_q: Floats, loss: Floats, step_size: float, entropy: str,
    kernels: Sequence[ArrayLike] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The tables of the set and of the step, by name and layer, for a file that needs no pickle."""
    saved: dict[str, Any] = {
        "set": type(confidence_set).__name__,
        "log_q": log_q,
        "loss": loss,
        "step_size": step_size,
        "entropy": entropy,
        "n_actions": confidence_set.n_actions,
        "layer_sizes": np.array(confidence_set.layer_sizes),
        **{f"previous_kernels_{h}": table for h, table in enumerate(kernels or ())},
    }
    for name, value in vars(confidence_set).items():
        if name in ("features", "centres", "grams", "lower", "upper", "kernels", "radii", "reachable"):
            for h, table in enumerate(value):
                parts = table.tree() if isinstance(table, SparseRows) else {"": table}
                saved |= {f"{name}_{h}{part and '_'}{part}": array for part, array in parts.items()}
        elif name in ("radius", "simplex"):
            saved[name] = value
    return saved


def publish(problem: Problem, answer: Answer) -> FlatTables:
    """What was found, copied out of the working memory into tables over all states."""
    sizes, A = problem.sizes, problem.n_actions
    blocks = answer.q.shape[0]
    out = np.empty(answer.kernels.shape[0] + 2 * blocks)
    _unpack(np.array(sizes), A, answer.q, answer.log_q, answer.kernels, out)
    found = FlatTables(out[:blocks], out[blocks : 2 * blocks], out[2 * blocks :])
    if problem.kept is None:
        return found
    full = problem.full_sizes
    order = _order_of(full, A, problem.kept)
    # The order of the blocks, a-major, is that of the answer itself.
    q, log_q = np.zeros(A * sum(full[:-1])), np.full(A * sum(full[:-1]), -np.inf)
    q[order], log_q[order] = answer.q, answer.log_q
    tables = [np.empty(0)]
    for states, nexts, n, m, kept in zip(
        problem.kept, problem.kept[1:], full, full[1:-1], split_kernels(found.kernels, sizes, A), strict=False
    ):
        # A state that no kernel of the set reaches: its rows matter to nobody, and are uniform.
        table = np.full((n, A, m), 1.0 / m)
        rows = np.zeros((len(states), A, m))
        rows[:, :, nexts] = kept
        table[states] = rows
        tables.append(table.ravel())
    return FlatTables(q, log_q, np.concatenate(tables))


def split_pairs(flat: Floats, sizes: tuple[int, ...], n_actions: int) -> list[Floats]:
    """Tables (S_h, A) of all layers, read-only."""
    flat = flat.view()
    flat.flags.writeable = False
    ends = np.cumsum(sizes[:-1]) * n_actions
    return [flat[end - n * n_actions : end].reshape(n, n_actions) for n, end in zip(sizes, ends.tolist(), strict=False)]


def split_kernels(flat: Floats, sizes: tuple[int, ...], n_actions: int) -> list[Floats]:
    """Tables (S_h, A, S_{h+1}) of all layers, read-only, the ones of the last among them."""
    flat = flat.view()
    flat.flags.writeable = False
    tables, start = [], 0
    for n, m in pairwise(sizes[:-1]):
        end = start + n * n_actions * m
        tables.append(flat[start:end].reshape(n, n_actions, m))
        start = end
    return [*tables, np.ones((sizes[-2], n_actions, 1))]


@kernel
def _unpack(sizes: Integers, n_actions: int, q: Floats, log_q: Floats, kernels: Floats, out: Floats) -> None:
    """q, then log q, then the kernels, each layer in C order of (state, action[, next state])."""
    blocks = q.shape[0]
    at = 0
    entry = 0
    for h in range(sizes.shape[0] - 1):
        n = sizes[h]
        m = sizes[h + 1] if h < sizes.shape[0] - 2 else 0
        P = view2(kernels, entry, m, n * n_actions)
        for s in range(n):
            for a in range(n_actions):
                out[at + s * n_actions + a] = q[at + a * n + s]
                out[blocks + at + s * n_actions + a] = log_q[at + a * n + s]
        for first in range(0, n, LINE):
            for a in range(n_actions):
                for t in range(m):
                    for s in range(first, min(first + LINE, n)):
                        out[2 * blocks + entry + (s * n_actions + a) * m + t] = P[t, a * n + s]
        at += n * n_actions
        entry += n * n_actions * m


# --------------------------------------------------------------------------------------------------------
# The tables of a set, reachable states only


def kept_tables(problem: Problem, tables: Sequence[Floats], out: Floats | None = None) -> Floats:
    """Tables (S_h, A, S_{h+1}) of all layers but the last as one vector, in ``out`` if that is given."""
    kept = problem.kept
    if len(tables) == 1:
        return np.empty(0)
    if kept is None:
        every: Floats = np.concatenate(tables[:-1], axis=None, out=out)
        return every
    return np.concatenate([table[kept[h]][:, :, kept[h + 1]].ravel() for h, table in enumerate(tables[:-1])], out=out)


def kept_bounds(problem: Problem, boxes: BoxSet) -> tuple[Floats, Floats]:
    """Lower and upper bounds, of all layers or all but the last."""
    if problem.kept is None:
        return boxes.flat_lower, boxes.flat_upper
    return kept_tables(problem, boxes.lower), kept_tables(problem, boxes.upper)


def kept_pairs(problem: Problem, tables: Sequence[Any]) -> Any:
    """Tables (S_h, A) of all layers as one vector."""
    return np.concatenate([table[kept] for table, kept in zip(tables, problem.kept or repeat(...), strict=False)], None)


class EllipsoidTables(NamedTuple):
    """Those of a :class:`ReducedEllipsoid`, by what their axes are."""

    P0: Per.Next
    G: Per.Slope
    E0: Per.Row
    E: Per.RowSlope
    chi: Per.Free
    smallest: Per.Block


def kept_rows(problem: Problem, confidence_set: EllipsoidSet) -> EllipsoidTables:
    """The reduced form of a set, reachable states only."""
    reduced = EllipsoidTables(*confidence_set.reduced)
    if problem.kept is None:
        return reduced
    sizes, A, k = problem.full_sizes, problem.n_actions, confidence_set.dim - 1
    n_rows = [k + 1] * len(sizes[1:-1]) if confidence_set.simplex else sizes[1:-1]
    layout = make_layout(sizes, A, n_rows, [k] * len(n_rows))
    parts: list[list[Any]] = [[np.empty(0)] for _ in reduced]
    for h, (states, nexts) in enumerate(zip(problem.kept, problem.kept[1:-1], strict=False)):
        (here,) = layer_views(layout, h, (reduced,))
        if not confidence_set.simplex:
            here = here._replace(E0=here.E0[nexts], E=here.E[nexts])  # rows are next states
        here = here._replace(P0=here.P0[nexts], G=here.G[nexts])
        blocks = (np.arange(A)[:, None] * sizes[h] + states).ravel()
        for part, table in zip(parts, here, strict=True):
            part.append(table[..., blocks].ravel())
    return EllipsoidTables(*map(np.concatenate, parts))
