"""Is the learner that ships the one that the lemmas are about?

Its own sets, upper occupancy bounds, loss estimates and steps are compared with what they should be, computed a second
time from the bare history of a run: formulas are written out here once more, and optima found by enumeration, so that
an error in a learner, in a constant or in a solver is not repeated.  Two base kernels make that possible: the rows of a
pair are then a segment, and a set has finitely many extreme kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import log, sqrt
from typing import NamedTuple

import numpy as np

from advmdp.confidence import EllipsoidSet
from advmdp.layered import FloatArray, LinearMixtureMDP
from advmdp.theory.lemmas.base import Check
from advmdp.theory.lemmas.record import ZETA, Record
from advmdp.theory.lemmas.runs import RUNS, of_records, of_wrong_learners

#: How much two computations of the same number may differ, relative to its size.
EQUAL = 1e-9
#: A step may be so far from optimal in <gradient, q - q'>: a gap of 1e-8 in value, which solvers certify, is a distance
#: of 1e-4, and that times a gradient of size one.
OPTIMAL = 1e-5


class Design(NamedTuple):
    """What a learner should be."""

    #: Whether all next states are regressed on, or the most uncertain one.
    all_next_states: bool
    #: lambda_k, and beta_k of a layer from log det of its Gram matrix: both of k = 1, 2, ... and the world.
    regularisation: Callable[[int, LinearMixtureMDP], float]
    radius: Callable[[int, LinearMixtureMDP, float], float]
    #: Whether theta is held in the simplex of weights.
    simplex: bool = False


def _growing(k: int, mdp: LinearMixtureMDP) -> float:
    return 1.0 if k == 1 else mdp.dim * log(k * mdp.n_states)


def _printed(k: int, mdp: LinearMixtureMDP, log_determinant: float) -> float:
    lam, S, H, d = _growing(k, mdp), mdp.n_states, mdp.horizon, mdp.dim
    noise = 2.0 * log(H / ZETA) + d * log(4.0 + 4.0 * S * k / (lam * d))
    return (mdp.bound + 0.25) * sqrt(lam) + 2.0 * noise / sqrt(lam)


def _joint(k: int, mdp: LinearMixtureMDP, log_determinant: float) -> float:
    return mdp.bound + sqrt(log((mdp.horizon - 1) / ZETA) + 0.5 * log_determinant)


def _scalar(k: int, mdp: LinearMixtureMDP, log_determinant: float) -> float:
    return mdp.bound + 0.5 * sqrt(2.0 * log((mdp.horizon - 1) / ZETA) + log_determinant)


DESIGNS = {
    "vlsuob-reps": Design(True, _growing, _printed),
    "vlsuob-reps-tight": Design(True, lambda k, mdp: 1.0, _joint, simplex=True),
    "lsuob-reps": Design(False, lambda k, mdp: 1.0, _scalar),
}


# ------------------------------------------------------------------------------------------------ sets


class Ellipsoid(NamedTuple):
    """Of one layer, in one episode."""

    centre: FloatArray
    gram: FloatArray
    radius: float


@lru_cache(maxsize=64)
def history_sets(record: Record) -> list[list[Ellipsoid]]:
    """The ellipsoids of layers 0..H-2 in episodes 2, 3, ..., each from the episodes before it."""
    mdp, design = record.mdp, DESIGNS[record.name]
    moments, targets = np.zeros((mdp.horizon - 1, mdp.dim, mdp.dim)), np.zeros((mdp.horizon - 1, mdp.dim))
    sets = []
    for k in range(1, len(record.q)):  # of episode k, and with it of those before
        ellipsoids = []
        for h in range(mdp.horizon - 1):
            s, a = record.states[k - 1, h], record.visited[k - 1, h] % mdp.n_actions
            phi, seen = mdp.features[h][s, a], np.eye(mdp.layer_sizes[h + 1])[record.states[k - 1, h + 1]]
            if not design.all_next_states:
                before = np.linalg.inv(moments[h] + design.regularisation(k, mdp) * np.eye(mdp.dim))
                lengths = np.einsum("td,de,te->t", phi, before, phi)
                chosen = [int(np.argmax(lengths >= (1.0 - 1e-9) * lengths.max()))]
                phi, seen = phi[chosen], seen[chosen]
            moments[h] += phi.T @ phi
            targets[h] += seen @ phi
            gram = moments[h] + design.regularisation(k + 1, mdp) * np.eye(mdp.dim)
            radius = design.radius(k + 1, mdp, float(np.linalg.slogdet(gram)[1]))
            ellipsoids.append(Ellipsoid(np.linalg.solve(gram, targets[h]), gram, radius))
        sets.append(ellipsoids)
    return sets


def _set_errors(record: Record) -> FloatArray:
    """Largest error of centre, Gram matrix and radius in every episode and layer; the first set holds anything."""
    result = [0.0 if record.sets[0].contains(_anywhere(record.mdp)) else np.inf]
    for found, expected in zip(record.sets[1:], history_sets(record), strict=True):
        if not isinstance(found, EllipsoidSet):
            result.append(np.inf)
            continue
        for h, (centre, gram, radius) in enumerate(expected):
            away = np.abs(found.centres[h] - centre).max(), np.abs(found.grams[h] - gram).max() / gram.max()
            result.append(max(*away, abs(found.radius[h] - radius) / radius))
    return np.array(result) / EQUAL


def _anywhere(mdp: LinearMixtureMDP) -> list[FloatArray]:
    """The kernel that always moves to the last state, which no mixture is near."""
    return [np.broadcast_to(np.eye(table.shape[2])[-1], table.shape) for table in mdp.kernels]


# ----------------------------------------------------------------------------- extreme kernels, by enumeration


def segment(features: FloatArray, ellipsoid: Ellipsoid, simplex: bool) -> FloatArray:
    """The two ends of the rows of every pair, (2, S_h, A, S_{h+1}), for d = 2.

    Rows sum to one on a line of parameters; the ellipsoid, the signs of the entries (and of theta) cut it off.
    """
    total = features.sum(axis=2)
    towards = total @ np.linalg.inv(ellipsoid.gram)
    squared = np.einsum("sad,sad->sa", total, towards)
    missing = 1.0 - total @ ellipsoid.centre
    nearest = ellipsoid.centre + towards * (missing / squared)[..., None]
    along = np.stack([-total[..., 1], total[..., 0]], axis=-1)
    room = ellipsoid.radius**2 - missing**2 / squared
    half = np.sqrt(room / np.einsum("sad,de,sae->sa", along, ellipsoid.gram, along))
    base, slope = (np.einsum("satd,sad->sat", features, point) for point in (nearest, along))
    signed, change = (base, slope) if not simplex else (np.append(base, nearest, 2), np.append(slope, along, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        zeros = -signed / change  # where an entry changes sign
    low = np.maximum(-half, np.where(change > 0.0, zeros, -np.inf).max(axis=2))
    high = np.minimum(half, np.where(change < 0.0, zeros, np.inf).min(axis=2))
    return np.stack([base + end[..., None] * slope for end in (low, high)])


@lru_cache(maxsize=64)
def extreme_rows(record: Record) -> list[list[FloatArray]]:
    """Of all episodes and layers 0..H-2: the extreme rows of every pair, (how many, S_h, A, S_{h+1})."""
    mdp, simplex = record.mdp, DESIGNS[record.name].simplex
    everything = [np.eye(t)[:, None, None, :].repeat(n, 1).repeat(a, 2) for n, a, t in map(np.shape, mdp.kernels[:-1])]
    sets = history_sets(record)
    return [everything, *([segment(mdp.features[h], e, simplex) for h, e in enumerate(found)] for found in sets)]


@lru_cache(maxsize=16)
def _choices(ends: int, rows: int) -> FloatArray:
    return np.array(list(product(range(ends), repeat=rows)))


def enumerated_upper_occupancy(rows: Sequence[FloatArray], policy: Sequence[FloatArray]) -> list[FloatArray]:
    """pi(a | s) max q(s) over all kernels that can be put together from these rows, every one of them tried."""
    reached = np.ones((1, 1))
    tables = [policy[0]]
    for ends, pi, following in zip(rows, policy, policy[1:], strict=False):
        count, n, a, t = ends.shape
        chosen = _choices(count, n * a)
        kernels = ends.reshape(count, n * a, t)[chosen, np.arange(n * a)]
        reached = np.einsum("xr,crt->xct", (reached[:, :, None] * pi).reshape(-1, n * a), kernels).reshape(-1, t)
        tables.append(reached.max(axis=0)[:, None] * following)
    return tables


@lru_cache(maxsize=64)
def _upper(record: Record) -> FloatArray:
    layers = record.mdp.layers
    plays = zip(extreme_rows(record), record.policies, strict=True)
    return np.array([layers.flatten(enumerated_upper_occupancy(rows, layers.split(pi))) for rows, pi in plays])


def _upper_errors(record: Record) -> FloatArray:
    """max over pairs of |u_k - enumerated u_k|, in every episode."""
    return np.asarray(np.abs(record.upper - _upper(record)).max(axis=1) / EQUAL)


def _estimate_errors(record: Record) -> FloatArray:
    """max over pairs of |lhat_k - 1{visit} l / (u + gamma)| over 1 / gamma, in every episode."""
    gamma = record.tuned
    seen = np.zeros_like(record.q)
    np.put_along_axis(seen, record.visited, 1.0, axis=1)
    expected = seen * record.losses / (_upper(record) + gamma)
    return np.asarray(np.abs(record.estimates - expected).max(axis=1) * gamma / EQUAL)


# ----------------------------------------------------------------------------------------------- steps


def least_cost(rows: Sequence[FloatArray], cost: Sequence[FloatArray]) -> float:
    """min <q, cost> over policies and kernels of these extreme rows, by recursion."""
    value = np.asarray(cost[-1].min(axis=1))
    for ends, table in zip(reversed(rows), reversed(cost[:-1]), strict=True):
        value = (table + (ends @ value).min(axis=0)).min(axis=1)
    return float(value[0])


def _step_errors(record: Record) -> FloatArray:
    """How far each q_{k+1} is from the minimiser over Delta(P_{k+1}), and q_1 from uniform.

    A minimiser is an element, which the kernels of the step prove, at which no direction to another one goes down.
    """
    layers, eta = record.mdp.layers, record.tuned
    uniform = layers.flatten([np.full((n, layers.n_actions), 1.0 / (n * layers.n_actions)) for n in layers.sizes[:-1]])
    result = [float(np.abs(record.q_hat[0] - uniform).max()) / EQUAL]
    log_q = np.log(record.q_hat)
    for k in range(1, len(record.q)):
        rows, kernels = extreme_rows(record)[k], record.kernels[k]
        assert kernels is not None
        gradient = eta * record.estimates[k - 1] + log_q[k] - log_q[k - 1]
        down = float(record.q_hat[k] @ gradient) - least_cost(rows, layers.split(gradient))
        result.append(max(down / OPTIMAL, _distance(record, k, rows, kernels) / EQUAL))
    return np.array(result)


def _distance(record: Record, k: int, rows: Sequence[FloatArray], kernels: Sequence[FloatArray]) -> float:
    """Of the kernels from the set, or of their occupancy measure from q_hat_k, whichever is larger."""
    worst, mass = 0.0, np.ones(1)
    split = record.mdp.layers.split
    for h, (pi, q) in enumerate(zip(split(record.policies[k]), split(record.q_hat[k]), strict=True)):
        pairs = mass[:, None] * pi
        worst = max(worst, float(np.abs(pairs - q).max()))
        mass = np.einsum("sa,sat->t", pairs, kernels[h])
        if h < len(rows):
            first, way = rows[h][0], rows[h][-1] - rows[h][0]
            length = np.maximum(np.einsum("sat,sat->sa", way, way), 1e-300)
            share = (np.einsum("sat,sat->sa", kernels[h] - first, way) / length).clip(0.0, 1.0)
            worst = max(worst, float(np.abs(first + share[..., None] * way - kernels[h]).max()))
    return worst


CHECKS = (
    Check(
        "The learner's sets",
        "P_1 is all kernels; centre, Gram matrix with lambda_k, and beta_k of P_k are those of episodes 1..k-1, "
        "computed anew from the history",
        of_records(_set_errors, covered=None),
        *of_wrong_learners(_set_errors, "radii twice as large", "lambda that does not grow"),
        RUNS,
    ),
    Check(
        "The learner's upper occupancy bounds",
        "u_k(s, a) = pi_k(a|s) max q^{P, pi_k}(s) over the extreme kernels of P_k, all of them enumerated",
        of_records(_upper_errors, covered=None),
        *of_wrong_learners(
            _upper_errors, "lower bound for u", "no pi(a|s) in u", "u of the set that holds the episode"
        ),
        RUNS,
    ),
    Check(
        "The learner's loss estimates",
        "lhat_k = 1{visit} l_k / (u_k + gamma), u_k as enumerated, gamma of Theorem 1",
        of_records(_estimate_errors, covered=None),
        *of_wrong_learners(
            _estimate_errors,
            "no gamma in the estimates",
            "lower bound for u",
            "no pi(a|s) in u",
            "u of the set that holds the episode",
        ),
        RUNS,
    ),
    Check(
        "The learner's steps",
        "q_1 is uniform; q_{k+1} is in Delta(P_{k+1}) and minimises eta <q, lhat_k> + D(q || q_k) there, eta of "
        "Theorem 1: no extreme kernel and policy is downhill",
        of_records(_step_errors, covered=None),
        *of_wrong_learners(
            _step_errors, "steps four times as long", "steps uphill", "steps over the set before the episode"
        ),
        RUNS,
    ),
)
