"""``vlsuob-reps-sharp`` once more, in plain numpy: from the formulas of docs/sharper-parts.md, not from the library.

What it shares with the library: occupancy bounds and extreme rows of a given set, which are tested against a conic
solver.  Sets are made anew from the whole history.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np

from advmdp.confidence import BoxSet
from advmdp.solvers import lower_occupancy, upper_occupancy
from advmdp.solvers.occupancy_bounds import extreme_rows
from tests.learners.portfolio_reference import ZETA, Reference


class SharpReference:
    """The policy, a list over layers, and Delta."""

    def __init__(self, model, *, shared):
        self.sets = Reference(model, shared=shared)
        self.sets.set = BoxSet(self.sets.rows(0.0), self.sets.rows(1.0))  # before the first episode: all kernels
        self.A, self.H, self.S = model.n_actions, model.horizon, sum(model.layer_sizes)
        self.n = (self.S - 1) * self.A
        self.D = 4.0 * self.H * log(self.A)
        self.Delta = self.D / min(sqrt(self.D / self.n), 1.0 / self.H)
        self.pi = self.first = self.sets.uniform
        self.m, self.N = self.sets.tables(0.0), self.sets.tables(0.0)
        self.k = 1

    @property
    def eta(self):
        return self.D / self.Delta

    def update(self, states, actions, losses):
        played, policy, eta = self.sets.set, self.pi, self.eta
        gamma = sqrt(self.H * log(self.S * self.A / ZETA) / (4.0 * self.n * self.k))
        upper, lower = upper_occupancy(played, policy), lower_occupancy(played, policy)
        estimate, before = [], [table.copy() for table in self.m]
        for h in range(self.H):
            u, low = upper[h][:, None] * policy[h], lower[h][:, None] * policy[h]
            m = np.minimum(self.m[h], (u + gamma) / max(self.H * eta, 4.0 * gamma))
            estimate.append(m * low / (u + gamma))
            s, a = states[h], actions[h]
            r, Y = losses[h] - m[s, a], abs(losses[h] - m[s, a]) / (u[s, a] + gamma)
            estimate[h][s, a] += Y if r >= 0.0 else -Y * (1.0 + 2.0 * gamma * Y)
            self.N[h][s, a] += 1
            self.m[h][s, a] += (losses[h] - self.m[h][s, a]) / self.N[h][s, a]
        y = [a - b for a, b in zip(estimate, before, strict=True)]
        self.Delta += self.gap(played, policy, y, eta)
        rho = self.eta / eta
        reference = [
            rho * np.log(now) + (1.0 - rho) * np.log(first) for now, first in zip(policy, self.first, strict=True)
        ]
        self.pi, V = list(policy), np.zeros(1)
        for h in range(self.H - 1, -1, -1):
            exponent = reference[h] - self.eta * (y[h] + self.m[h]) - self.least(played, h, V)
            V = -np.logaddexp.reduce(exponent, axis=1)
            self.pi[h] = np.exp(exponent + V[:, None])
        self.sets.observe([states], [actions])
        self.k += 1

    def least(self, played, h, V):
        return extreme_rows(played, h, V, maximise=False) if h < self.H - 1 else 0.0

    def gap(self, played, policy, y, eta):
        """<q, y> - V(s_1) / eta, q of the policy under the rows that attain V: means under them are derivatives."""
        V, F, small = np.zeros(1), np.zeros(1), 1e-6
        for h in range(self.H - 1, -1, -1):
            means = 0.0
            if h < self.H - 1:
                up, down = (self.least(played, h, V + sign * small * F) for sign in (1.0, -1.0))
                means = (up - down) / (2.0 * small)
            F = (policy[h] * (y[h] + means)).sum(axis=1)
            V = -np.logaddexp.reduce(np.log(policy[h]) - eta * y[h] - self.least(played, h, V), axis=1)
        return float(F[0] - V[0] / eta)
