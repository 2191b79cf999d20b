"""Value-targeted regression: what the learners of linear mixtures with full information share.

They need P only through the expected value of the next state, P V(s, a) = <phi_V(s, a), theta_h> with
phi_V(s, a) = sum_{s'} phi(s' | s, a) V(s'), and regress the value of the state that came on phi_V of the visited pair.
The sources maximise rewards; here losses are minimised, so that a bonus is subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from advmdp._compiled import kernel
from advmdp.confidence import radii
from advmdp.confidence.estimators import RidgeEstimate, ValueTargets
from advmdp.confidence.regression import checked_sums
from advmdp.layered import FloatArray, IntArray, LinearMixtureModel, Rows
from advmdp.layered.rows import like, next_state, row_begin, row_end, sums_of, values_of

#: In place of a policy: V(s) = min_a Q(s, a).
GREEDY = np.empty(0)
GREEDY.flags.writeable = False


class Targets(NamedTuple):
    """The sums of a regression of values, and the estimate that they give."""

    sums: ValueTargets
    estimate: RidgeEstimate


@dataclass(frozen=True)
class OptimisticValues:
    """Q(s, a) = l(s, a) + clip(<phi_V(s, a), theta_h> - beta_h |phi_V(s, a)|_{Gram^-1}, 0, H - 1 - h).

    V is the value of the next layer, theta_h a ridge estimate of layers 0..H-2; H - 1 - h steps, and so at most that
    much loss, follow layer h.
    """

    model: LinearMixtureModel
    regularisation: float

    def empty(self) -> Targets:
        """Before the first episode."""
        return self._estimated(ValueTargets.empty(self.model.horizon, self.model.dim))

    def _estimated(self, sums: ValueTargets) -> Targets:
        return Targets(sums, sums.estimate(self.regularisation))

    def add(
        self, data: Targets, regressors: FloatArray, targets: FloatArray, weights: FloatArray | float = 1.0
    ) -> Targets:
        """Gram_h += w phi_V phi_V',  b_h += w phi_V V(s'), at the visited pairs."""
        return self._estimated(data.sums.add(regressors, targets, weights))

    def scalar_radii(self, data: Targets, zeta: float) -> FloatArray:
        """beta_h of layers 0..H-2: targets of layer h lie in an interval of length H - 1 - h."""
        H, d, B = self.model.horizon, self.model.dim, self.model.bound
        values = data.estimate.log_determinants
        parts = (H - 1, d, self.regularisation, zeta, B)
        return np.array([radii.scalar(values[h], *parts, span=H - 1 - h) for h in range(H - 1)])

    def __call__(self, data: Targets, beta: FloatArray, losses: FloatArray, policy: FloatArray) -> FloatArray:
        """Q, flat, of a flat policy, or of the one that is best for Q (``GREEDY``)."""
        layers, estimate = self.model.layers, data.estimate
        values = np.empty(layers.n_pairs)
        optimistic_backward(
            self.model.feature_rows, layers.size_array, layers.n_actions, estimate.centres, estimate.inverse_grams,
            beta, losses, policy, values,
        )  # fmt: skip
        return values

    def targets(
        self, states: IntArray, actions: IntArray, policy: FloatArray, values: FloatArray, power: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """phi_{V^power} of the visited pairs, (H - 1, d), and V^power of the states that came, (H - 1,).

        V(s) = sum_a pi(a | s) Q(s, a); ``values`` is Q.
        """
        layers = self.model.layers
        regressors, targets = np.zeros((layers.horizon - 1, self.model.dim)), np.empty(layers.horizon - 1)
        value_targets(
            self.model.feature_rows, layers.size_array, layers.n_actions, states, actions, policy,
            values, power, regressors, targets,
        )  # fmt: skip
        return regressors, targets

    def restore(self, tree: dict[str, Any]) -> Targets:
        """Out of a file, or ValueError."""
        return self._estimated(checked_sums(ValueTargets, tree, self.model.horizon, self.model.dim))


def largest_feature(problem: LinearMixtureModel) -> float:
    """max |phi_V(s, a)| over pairs and V in [0, 1], which the source assumes to be 1; our features promise |phi| <= 1.

    Coordinate i of phi_V is at most the sum of the positive phi_i, and at least that of the negative ones; for
    non-negative features this is exact, with V = 1.
    """
    largest = 0.0
    for features in problem.features[:-1]:
        values = values_of(features)
        above, below = (sums_of(like(features, part)) for part in (values.clip(min=0.0), values.clip(max=0.0)))
        largest = max(largest, float(np.linalg.norm(np.maximum(above, -below), axis=2).max()))
    return largest


@kernel
def optimistic_backward(
    features: Rows,
    sizes: IntArray,
    n_actions: int,
    centres: FloatArray,
    inverse_grams: FloatArray,
    radii: FloatArray,
    losses: FloatArray,
    policy: FloatArray,
    values: FloatArray,
) -> None:
    """The formula of :class:`OptimisticValues`, layer by layer."""
    horizon = sizes.size - 1
    dim = centres.shape[1]
    feature = np.empty(dim)
    pair = losses.size
    state_values = np.zeros(losses.size // n_actions + 1)
    state = losses.size // n_actions  # the terminal one, of value zero
    for h in range(horizon - 1, -1, -1):
        n, m = sizes[h], sizes[h + 1]
        following = state
        state -= n
        pair -= n * n_actions
        for s in range(n):
            first = pair + s * n_actions
            for a in range(n_actions):
                ahead = 0.0
                if h < horizon - 1:
                    feature[:] = 0.0
                    begin = row_begin(features, h, s * n_actions + a, m)
                    for e in range(begin, row_end(features, h, s * n_actions + a, m)):
                        value = state_values[following + next_state(features, h, begin, e)]
                        for j in range(dim):
                            feature[j] += value * features.values[e, j]
                    square = 0.0
                    for i in range(dim):
                        ahead += feature[i] * centres[h, i]
                        inner = 0.0
                        for j in range(dim):
                            inner += inverse_grams[h, i, j] * feature[j]
                        square += feature[i] * inner
                    ahead -= radii[h] * np.sqrt(max(square, 0.0))
                values[first + a] = losses[first + a] + min(max(ahead, 0.0), horizon - 1.0 - h)
            if policy.size == 0:
                state_values[state + s] = values[first : first + n_actions].min()
            else:
                for a in range(n_actions):
                    state_values[state + s] += policy[first + a] * values[first + a]


@kernel
def value_targets(
    features: Rows,
    sizes: IntArray,
    n_actions: int,
    states: IntArray,
    actions: IntArray,
    policy: FloatArray,
    values: FloatArray,
    power: int,
    regressors: FloatArray,
    targets: FloatArray,
) -> None:
    """regressors[h] += sum_t phi(t | s_h, a_h) V(t)^power,  targets[h] = V(s_{h+1})^power."""
    dim = regressors.shape[1]
    pair = 0
    for h in range(targets.size):
        pair += sizes[h] * n_actions
        row = states[h] * n_actions + actions[h]
        begin = row_begin(features, h, row, sizes[h + 1])
        for e in range(begin, row_end(features, h, row, sizes[h + 1])):
            t = next_state(features, h, begin, e)
            value = 0.0
            for i in range(pair + t * n_actions, pair + (t + 1) * n_actions):
                if policy[i] > 0.0:  # of an unavailable action the value may be infinite
                    value += policy[i] * values[i]
            value = value**power
            for j in range(dim):
                regressors[h, j] += value * features.values[e, j]
            if t == states[h + 1]:
                targets[h] = value
