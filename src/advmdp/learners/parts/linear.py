"""Estimates of what is linear in the features of a linear MDP: least squares weighted by an inverse covariance.

Let pairs of layer h be met with probabilities m_h(s, a) that the learner knows (they may sum to less than one: then
the episode counts for the layer with that probability), and let y_h be a number with E(y_h | s, a) = <phi(s, a),
theta_h>.  With Sigma_h = sum m_h phi phi',

    thetahat_h = Sigma_h^-1 phi(s_h, a_h) y_h   has   E thetahat_h = theta_h

on the span of the features, and E <phi, thetahat_h>^2 <= max y^2 |phi|^2_{Sigma_h^-1}.

*Matrix geometric resampling* (Neu and Olkhovskaya 2020) takes M pairs u_1, ..., u_M drawn from m_h in place of m_h
itself, which may be unknown, or of too many pairs to sum over:

    Sigmahat^+ = b sum_{k=0}^M (I - b u_k u_k') ... (I - b u_1 u_1'),
    E Sigmahat^+ = (I - (I - b Sigma_h)^(M+1)) Sigma_h^-1,

so that E thetahat_h = theta_h - (I - b Sigma_h)^(M+1) theta_h: the bias falls like exp(-(M + 1) b lambda_min(Sigma_h)).
"""

from __future__ import annotations

import numpy as np

from advmdp.layered import FloatArray, IntArray, LinearMDP
from advmdp.occupancy import forward

#: b; any number in (0, 1] will do for features of norm at most one.
RESAMPLING_STEP = 0.5
#: Directions in which the features of a layer have less than this share of their variance count as none.
NO_DIRECTION = 1e-10


class LinearFits:
    """The features of a linear MDP, in coordinates of the span of those that can be met, under known kernels."""

    def __init__(self, mdp: LinearMDP) -> None:
        self.layers, self._rows = mdp.layers, mdp.rows
        #: Features of the pairs of each layer, (S_h A, d).
        self.features = [table.reshape(-1, mdp.dim) for table in mdp.features]
        #: How likely each pair is under the uniform policy, flat.
        self.uniform = self.occupancy(self.layers.uniform_policy)
        self._coordinates: list[FloatArray] = []
        leverages = []
        for phi, mass in zip(self.features, self._split(self.uniform), strict=True):
            variances, directions = np.linalg.eigh((phi * mass[:, None]).T @ phi)
            kept = variances > NO_DIRECTION * variances[-1]
            self._coordinates.append(phi @ directions[:, kept])
            squares = (self._coordinates[-1] ** 2 / variances[kept]).sum(axis=1)
            leverages.append(float(squares[mass > 0.0].max()))
        #: max |phi|^2 in the inverse covariance of the uniform policy, over pairs that can be met: at least the rank.
        self.leverage = max(leverages)

    def _split(self, flat: FloatArray) -> list[FloatArray]:
        return [table.ravel() for table in self.layers.split(flat)]

    def occupancy(self, policy: FloatArray) -> FloatArray:
        """q of a flat policy, flat."""
        q = np.empty(self.layers.n_pairs)
        forward(tuple(self._rows), self.layers.size_array, self.layers.n_actions, policy, q)
        return q

    def exact(self, mass: FloatArray, pairs: IntArray, values: FloatArray) -> FloatArray:
        """<phi, thetahat_h> of all pairs, flat: ``mass`` is m, ``pairs`` are those met, ``values`` y_h."""
        found = []
        for h, (x, m) in enumerate(zip(self._coordinates, self._split(mass), strict=True)):
            met = x[pairs[h] - self.layers.pair_offsets[h]]
            found.append(x @ np.linalg.solve((x * m[:, None]).T @ x, met * values[h]))
        return np.concatenate(found)

    def resampled(
        self, mass: FloatArray, pairs: IntArray, values: FloatArray, resamples: int, rng: np.random.Generator
    ) -> FloatArray:
        """The same by matrix geometric resampling with M = ``resamples`` draws per layer."""
        met = np.array(
            [phi[pair] for phi, pair in zip(self.features, pairs - self.layers.pair_offsets[:-1], strict=True)]
        )
        draws = rng.random((self.layers.horizon, resamples))
        drawn = [
            # What is left of the probability is a draw that changes nothing.
            np.vstack([phi, np.zeros_like(phi[:1])])[np.searchsorted(np.cumsum(m), row, side="right")]
            for phi, m, row in zip(self.features, self._split(mass), draws, strict=True)
        ]
        weights = geometric_resampling(np.array(drawn), met) * values[:, None]
        return np.concatenate([phi @ row for phi, row in zip(self.features, weights, strict=True)])


def geometric_resampling(drawn: FloatArray, vectors: FloatArray) -> FloatArray:
    """Sigmahat^+ x of every layer: ``drawn`` is (H, M, d), ``vectors`` x are (H, d)."""
    current = np.array(vectors)
    total = current.copy()
    for u in np.moveaxis(drawn, 1, 0):
        current -= RESAMPLING_STEP * u * (u * current).sum(axis=1, keepdims=True)
        total += current
    found: FloatArray = RESAMPLING_STEP * total
    return found
