"""Least squares in linear MDPs: the measures mu_h of P_h(s' | s, a) = <phi(s, a), mu_h(s')>, and how far off they are.

With Lambda_h = lambda I + sum_i phi_i phi_i' over the visited pairs of layer h, and e_s' the indicator of the next
state,

    muhat_h = Lambda_h^-1 sum_i phi_i e_{s'_i}',   so that   <phi, muhat_h V> = phi' Lambda_h^-1 sum_i phi_i V(s'_i)

is the least-squares value of any function V of the next state: one regression serves all V.

*How far off.*  |<phi, muhat_h V> - P V| <= beta |phi|_{Lambda_h^-1}.  For one V with values in [0, 1] that is fixed in
advance, the self-normalised bound (Abbasi-Yadkori et al. 2011) gives

    beta = B sqrt(lambda) + (1/2) sqrt(2 log(1 / zeta) + log(det Lambda_h / lambda^d)).

The V of a learner depend on the data.  Papers cover the class of all such V; here layers have N states each, and
|sum_i phi_i (V(s'_i) - P V)| in the norm of Lambda_h^-1 is convex in V, hence largest at a corner of [0, 1]^N.  V and
1 - V give the same, so that log(1 / zeta) becomes log(2^(N - 1) / zeta): valid for all V at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from typing import Any

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence.box import BoxSet
from advmdp.layered import FloatArray, IntArray, LinearMDPModel


def least_squares_radius(log_ratio: float, events: float, regularisation: float, failure: float, bound: float) -> float:
    """B sqrt(lambda) + (1/2) sqrt(2 log(events / zeta) + log_ratio), for V in [0, 1]; ``log_ratio``: of determinants.

    ``events``, as a logarithm, counts what shares the failure probability.
    """
    return bound * sqrt(regularisation) + 0.5 * sqrt(2.0 * (events - log(failure)) + log_ratio)


def all_values(next_states: int, layers: int) -> float:
    """log(2^(N - 1) layers): for all V in [0, 1]^N, in every regressed layer."""
    return (next_states - 1) * log(2.0) + log(max(1, layers))


@dataclass(frozen=True, eq=False)
class Transitions:
    """Sums over the transitions of layers 0..H-2, and what they give."""

    #: sum of phi phi', shape (H - 1, d, d).
    moments: FloatArray
    #: sum of phi e_s'', per layer (d, S_{h+1}).
    targets: tuple[FloatArray, ...]
    regularisation: float
    #: Episodes in them.
    version: int = 0

    @cached_property
    def inverse_grams(self) -> FloatArray:
        """Lambda_h^-1, (H - 1, d, d)."""
        grams = self.moments + self.regularisation * np.eye(self.moments.shape[1])
        return np.linalg.inv(grams).astype(np.float64, copy=False)

    @cached_property
    def log_ratios(self) -> FloatArray:
        """log(det Lambda_h / lambda^d), (H - 1,)."""
        scaled = np.eye(self.moments.shape[1]) + self.moments / self.regularisation
        found: FloatArray = np.linalg.slogdet(scaled)[1]
        return found

    @cached_property
    def measures(self) -> list[FloatArray]:
        """muhat_h, (d, S_{h+1}) each."""
        return [inverse @ target for inverse, target in zip(self.inverse_grams, self.targets, strict=True)]


@dataclass(frozen=True)
class LeastSquares:
    """What is kept of the transitions of a linear MDP: values of :class:`Transitions`."""

    model: LinearMDPModel
    regularisation: float = 1.0

    def empty(self) -> Transitions:
        """Before the first episode."""
        d, sizes = self.model.dim, self.model.layer_sizes
        moments = np.zeros((self.model.horizon - 1, d, d))
        return Transitions(moments, tuple(np.zeros((d, n)) for n in sizes[1:-1]), self.regularisation)

    def add(self, data: Transitions, states: IntArray, actions: IntArray, logged: bool = False) -> Transitions:
        """With one more episode: states and actions (H,)."""
        moments, targets = data.moments.copy(), [table.copy() for table in data.targets]
        for h, target in enumerate(targets):
            phi = self.model.features[h][states[h], actions[h]]
            moments[h] += np.outer(phi, phi)
            target[:, states[h + 1]] += phi
        return Transitions(moments, tuple(targets), self.regularisation, data.version + 1)

    def widths(self, data: Transitions) -> list[FloatArray]:
        """|phi(s, a)|_{Lambda_h^-1} of layers 0..H-2, (S_h, A) each."""
        return [
            np.sqrt(np.maximum(np.einsum("sai,ij,saj->sa", phi, inverse, phi), 0.0))
            for phi, inverse in zip(self.model.features, data.inverse_grams, strict=False)
        ]

    def radii(self, data: Transitions, zeta: float) -> FloatArray:
        """beta_h of layers 0..H-2, for all V in [0, 1] at once."""
        layers, sizes = self.model.horizon - 1, self.model.layer_sizes
        parts = (self.regularisation, zeta, self.model.bound)
        return np.array([
            least_squares_radius(data.log_ratios[h], all_values(sizes[h + 1], layers), *parts) for h in range(layers)
        ])  # fmt: skip

    def tree(self, data: Transitions) -> dict[str, Any]:
        """For a checkpoint."""
        return {"moments": data.moments, "targets": list(data.targets), "version": data.version}

    def restore(self, tree: dict[str, Any]) -> Transitions:
        """The inverse of :meth:`tree`, or ValueError where it cannot be of any history."""
        empty = self.empty()
        moments = np.array(float_array(tree["moments"], "moments", ValueError))
        targets = [np.array(float_array(table, "targets", ValueError)) for table in tree["targets"]]
        shapes = [table.shape for table in (moments, *targets)]
        if shapes != [table.shape for table in (empty.moments, *empty.targets)]:
            raise ValueError(f"moments and targets have shapes {shapes}")
        version = integer(tree["version"], "version", 0, ValueError)
        # Traces and sums of features of norm at most one, over so many visits.
        large = [np.abs(table).max(initial=0.0) <= version + 1e-6 for table in (moments, *targets)]
        semidefinite = all(np.linalg.eigvalsh(one).min() >= -1e-6 * (1 + version) for one in moments if large[0])
        if not (all(large) and semidefinite and np.array_equal(moments, moments.transpose(0, 2, 1))):
            raise ValueError("moments and targets are not those of features of norm at most one")
        return Transitions(moments, tuple(targets), self.regularisation, version)


@dataclass(frozen=True)
class LeastSquaresBoxes:
    """Rows with |P(s' | s, a) - <phi(s, a), muhat(s')>| <= beta |phi(s, a)|_{Lambda^-1} for every next state.

    beta of :func:`least_squares_radius` for the indicators of the next states of all layers.
    """

    estimator: LeastSquares
    zeta: float
    scale: float = 1.0

    def radii(self, data: Transitions) -> FloatArray:
        """beta_h of layers 0..H-2."""
        model = self.estimator.model
        parts = (data.regularisation, self.zeta, model.bound)
        events = log(max(1, sum(model.layer_sizes[1:-1])))
        return self.scale * np.array([least_squares_radius(ratio, events, *parts) for ratio in data.log_ratios])

    def __call__(self, data: Transitions) -> BoxSet:
        """The kernels that the transitions leave possible."""
        model = self.estimator.model
        lower, upper = [], []
        for phi, measure, width, beta in zip(
            model.features[:-1], data.measures, self.estimator.widths(data), self.radii(data), strict=True
        ):
            centre, half = phi @ measure, beta * width[..., None]
            lower.append(centre - half)
            upper.append(centre + half)
        last = np.ones((model.layer_sizes[-2], model.n_actions, 1))
        return BoxSet([*lower, last], [*upper, last])


def value_pass(
    model: LinearMDPModel,
    data: Transitions,
    widths: Sequence[FloatArray],
    beta: FloatArray,
    losses: Sequence[FloatArray],
    policy: Sequence[FloatArray],
    *,
    sign: float,
    most: Sequence[float],
    dilation: float = 1.0,
) -> list[FloatArray]:
    """Q(s, a) = l(s, a) + dilation clip(<phi, muhat V> + sign beta_h most_{h+1} |phi|_{Lambda^-1}, 0, most_{h+1}).

    Tables are lists over layers of ``(S_h, A)``.  V(s) = sum_a pi(a | s) Q(s, a) of the next layer, whose values are at
    most ``most[h + 1]``; zero in the terminal state.  The sign is -1 for optimism about losses, and 1 for that about
    bonuses.
    """
    horizon = model.horizon
    values: list[FloatArray] = [np.zeros(0)] * horizon
    following = np.zeros(1)
    for h in reversed(range(horizon)):
        values[h] = losses[h]
        if h < horizon - 1:
            ahead = model.features[h] @ (data.measures[h] @ following) + sign * beta[h] * most[h + 1] * widths[h]
            values[h] = losses[h] + dilation * np.clip(ahead, 0.0, most[h + 1])
        following = (policy[h] * values[h]).sum(axis=1)
    return values
