"""The portfolio once more, in plain numpy, with a state of its own: from the pseudo-code, not from the library.

What it shares with the library: upper occupancies and extreme rows of a given set (tested against a conic solver), the
mixture of maximum likelihood (tested likewise), and the list of experts.  Sets are made anew from the whole history.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, log, log2, sqrt

import numpy as np

from advmdp.confidence import BoxSet, EllipsoidSet
from advmdp.confidence.likelihood import MixtureWeights
from advmdp.layered import LinearMixtureModel
from advmdp.learners.portfolio import EXPERTS
from advmdp.solvers import upper_occupancy
from advmdp.solvers.occupancy_bounds import extreme_rows

ZETA = 0.05


class Reference:
    """Policies of all experts (lists over layers of tables), their weights, and the certificate."""

    def __init__(self, model, *, shared=False, premium=True, own=()):
        self.model, self.shared, self.with_premium, self.own = model, shared, premium, list(own)
        self.sizes, self.A, self.H = model.layer_sizes, model.n_actions, model.horizon
        self.S, self.n = sum(self.sizes[:-1]), sum(self.sizes[:-1]) * self.A
        self.M = 1 + len(EXPERTS) + len(self.own)
        self.D = 2.0 * (sqrt(self.M) - 1.0)
        self.Delta, self.X, self.v = float(self.H), np.zeros(self.M), np.full(self.M, 1.0 / self.M)
        self.bbar, self.seen = np.zeros(self.H), np.zeros(self.H)
        self.k = 1
        self.history = []
        # The safe expert.
        self.uniform = self.tables(1.0 / self.A)
        self.log_pi = [np.log(table) for table in self.uniform]
        self.D_b = self.H * log(self.A)
        self.Delta_b = sqrt(self.D_b * self.n)
        self.counts, self.epoch_counts = self.rows(0.0), self.rows(0.0)
        # What the others know.
        self.mixture = MixtureWeights.empty(model, shared=shared) if isinstance(model, LinearMixtureModel) else None
        self.set = self.new_set()
        self.m = [self.tables(0.0) for _ in EXPERTS]
        self.errors = np.zeros(len(EXPERTS))
        self.visits = self.tables(0.0)
        self.L = [self.tables(0.0) for _ in EXPERTS]

    def tables(self, value):
        return [np.full((n, self.A), value) for n in self.sizes[:-1]]

    def rows(self, value):
        inner = [np.full((n, self.A, m), value) for n, m in pairwise(self.sizes[:-1])]
        return [*inner, np.ones((self.sizes[-2], self.A, 1))]

    # ------------------------------------------------------------------------ what it would play

    @property
    def mu(self):
        return 1.0 / (2.0 + log2(self.k)) ** 2 if self.with_premium else 0.0

    @property
    def w(self):
        w = (1.0 - self.mu) * self.v
        w[0] += self.mu
        return w

    @property
    def certificate(self):
        return 2.0 * self.Delta - self.H

    def kernels(self):
        if self.mixture is not None:
            return self.mixture.kernels()
        totals = [table.sum(axis=2, keepdims=True) for table in self.counts]
        return [
            np.where(total > 0.0, table / np.maximum(total, 1.0), 1.0 / table.shape[2])
            for table, total in zip(self.counts, totals, strict=True)
        ]

    def policies(self):
        kernels = self.kernels()
        found = [[np.exp(table) for table in self.log_pi]]
        for i, (_, learning) in enumerate(EXPERTS.values()):
            if learning is None:
                found.append(self.planned(kernels, self.m[i], inf))
            else:
                eta = learning.multiple * sqrt(self.H * log(self.A) / (self.n * self.k))
                found.append(self.planned(kernels, [a + b for a, b in zip(self.L[i], self.m[i], strict=True)], eta))
        return found + self.own

    def planned(self, kernels, losses, eta):
        policy, V = [], np.zeros(1)
        for kernel, loss in zip(kernels[::-1], losses[::-1], strict=True):
            x = loss + kernel @ V
            least = x.min(axis=1)
            if eta == inf:
                best = x <= least[:, None] + 1e-9
                policy.append(best / best.sum(axis=1, keepdims=True))
                V = least
            else:
                V = -np.log(np.exp(-eta * (x - least[:, None])).mean(axis=1)) / eta + least
                policy.append(np.exp(eta * (V[:, None] - x)) / self.A)
        return policy[::-1]

    def occupancy(self, kernels, policy):
        q, mass = [], np.ones(1)
        for kernel, table in zip(kernels, policy, strict=True):
            q.append(mass[:, None] * table)
            mass = np.einsum("sa,sat->t", q[-1], kernel)
        return q

    # ------------------------------------------------------------------------------- one episode

    def update(self, states, actions, losses):
        policies, w, mu, kernels = self.policies(), self.w, self.mu, self.kernels()
        steps = list(zip(range(self.H), states, actions, losses, strict=True))
        mixed = [sum(tables) for tables in zip(*self.weighted(kernels, policies, w), strict=True)]

        # Posterior, estimates, weights.
        rho, W = np.zeros((self.H, self.M)), w.copy()
        for h, s, a, _ in steps:
            W *= [policy[h][s, a] for policy in policies]
            W /= W.sum()
            rho[h] = W / w
        eta, B = self.D / self.Delta, self.bbar.sum()
        c = np.minimum(1.0, w / (2.0 * eta * (1.0 - mu) * np.sqrt(self.v) * B)) if B > 0.0 else np.zeros(self.M)
        filled = np.where(np.isnan(losses), self.bbar, losses)
        x = (1.0 - mu) * sum(c * self.bbar[h] + rho[h] * (filled[h] - c * self.bbar[h]) for h in range(self.H))
        deltas = []
        for z in (0.0, self.v @ x, x[self.v.argmax()]):
            t = eta * np.sqrt(self.v) * (x - z)
            if (t > -0.99).all():
                deltas.append((np.sqrt(self.v) * t**2 / (eta * (1.0 + t))).sum())
        self.Delta += min(deltas)
        self.X = self.X + x
        self.v = shares(self.X, self.D / self.Delta)
        for h in np.flatnonzero(~np.isnan(losses)):
            self.seen[h] += 1
            self.bbar[h] += (losses[h] - self.bbar[h]) / min(self.seen[h], 50)

        self.safe_step(steps, rho[:, 0], mu)
        self.others(steps, mixed)
        self.observe([states], [actions])
        self.k += 1
        return rho

    def observe(self, many_states, many_actions):
        for states, actions in zip(np.array(many_states), np.array(many_actions), strict=True):
            self.history.append((states, actions))
            self.count(states, actions)
            if self.mixture is not None:
                self.mixture = self.mixture.add(states, actions)
        self.set = self.new_set()

    def weighted(self, kernels, policies, w):
        return [[w[i] * q for q in self.occupancy(kernels, policy)] for i, policy in enumerate(policies)]

    def safe_step(self, steps, rho, mu):
        gamma = sqrt(max(mu, 1e-3) * log(self.A) / (self.n * self.k))
        policy = [np.exp(table) for table in self.log_pi]
        eta = self.D_b / self.Delta_b
        lt, square, first = self.tables(0.0), 0.0, 0.0
        for h, s, a, loss in steps:
            if np.isnan(loss) or rho[h] == 0.0:
                continue
            u = policy[h][s, a] * upper_occupancy(self.set, policy, [(h, s)])[0]
            lt[h][s, a] = loss / (u / rho[h] + gamma)
            square += u * lt[h][s, a] ** 2
            first += u * lt[h][s, a]
        self.Delta_b += min(eta * self.H * square / 2.0, first)
        new = self.D_b / self.Delta_b
        r = new / eta
        ref = [r * now + (1.0 - r) * np.log(start) for now, start in zip(self.log_pi, self.uniform, strict=True)]
        V = np.zeros(1)
        for h in range(self.H - 1, -1, -1):
            m_b = extreme_rows(self.set, h, V, maximise=False) if h < self.H - 1 else 0.0
            exponent = ref[h] - new * lt[h] - m_b
            V = -np.logaddexp.reduce(exponent, axis=1)
            self.log_pi[h] = exponent + V[:, None]

    def others(self, steps, mixed):
        gamma = sqrt(log(self.A) / (self.n * self.k))
        for i, (predictor, learning) in enumerate(EXPERTS.values()):
            if learning is not None:
                before = [table.copy() for table in self.m[i]]
                self.L[i] = [(1.0 - learning.fading) * L + m for L, m in zip(self.L[i], before, strict=True)]
                for h, s, a, loss in steps:
                    if not np.isnan(loss):
                        self.L[i][h][s, a] += (loss - before[h][s, a]) / (mixed[h][s, a] + gamma)
            known = [
                abs(loss - self.m[i][h][s, a]) for h, s, a, loss in steps if self.visits[h][s, a] and not np.isnan(loss)
            ]
            if known:
                self.errors[i] += (np.mean(known) - self.errors[i]) / 20
            self.m[i] = [(1.0 - predictor.decay - predictor.doubt * self.errors[i]) * table for table in self.m[i]]
            for h, s, a, loss in steps:
                if not np.isnan(loss):
                    rate = 1.0 / min(self.visits[h][s, a] + 1.0, predictor.window)
                    self.m[i][h][s, a] += rate * (loss - self.m[i][h][s, a])
        for h, s, a, loss in steps:
            self.visits[h][s, a] += not np.isnan(loss)

    def count(self, states, actions):
        doubled = False
        for h in range(self.H - 1):
            now, then = self.counts[h][states[h], actions[h]], self.epoch_counts[h][states[h], actions[h]]
            now[states[h + 1]] += 1.0
            doubled |= now.sum() >= max(1.0, 2.0 * then.sum())
        if doubled:
            self.epoch_counts = [table.copy() for table in self.counts]

    # --------------------------------------------------------------------- sets, from the whole history

    def new_set(self):
        found = self.boxes() if self.mixture is None else self.ellipsoids()
        multiple = found.smallest_radius_multiple()
        return found if multiple <= 1.0 else found.enlarged(1.01 * multiple)

    def boxes(self):
        """Jin et al. with the failure probability shared by all numbers of visits."""
        lower, upper = [], []
        k = max(1.0, self.epoch_counts[0].sum())
        iota = log(2.0 * k**2 * self.model.layers.n_states * self.A / ZETA)
        for counts in self.epoch_counts[:-1]:
            N = counts.sum(axis=2, keepdims=True)
            p, rest = counts / np.maximum(N, 1.0), np.maximum(1.0, N - 1.0)
            width = np.where(N > 0.0, 2.0 * np.sqrt(p * iota / rest) + 14.0 * iota / (3.0 * rest), 1.0)
            lower.append(p - width)
            upper.append(p + width)
        return BoxSet([*lower, self.rows(1.0)[-1]], [*upper, self.rows(1.0)[-1]])

    def ellipsoids(self):
        """Ridge regression on one-hot next states; with shared weights in the coordinates of the weights."""
        d, inner = self.model.dim, range(self.H - 1)
        scales = self.model.scales if self.shared else np.ones(self.H)
        features = [c * table for c, table in zip(scales, self.model.features, strict=True)]
        moments, targets = np.zeros((self.H, d, d)), np.zeros((self.H, d))
        for states, actions in self.history:
            for h in inner:
                rows = features[h][states[h], actions[h]]
                moments[h] += rows.T @ rows
                targets[h] += rows[states[h + 1]]
        if self.shared:
            moments[:], targets[:] = moments.sum(axis=0), targets.sum(axis=0)
        grams = moments + np.eye(d)
        centres = [np.linalg.solve(gram, target) for gram, target in zip(grams, targets, strict=True)]
        bound, failures = (1.0, 1) if self.shared else (self.model.bound, self.H - 1)
        radii = [bound + sqrt(log(failures / ZETA) + 0.5 * np.linalg.slogdet(gram)[1]) for gram in grams]
        return EllipsoidSet(features, centres, list(grams), radii, simplex=True)


def shares(X, eta):
    """v = (eta (X + lam))^-2 of sum one, by bisection."""
    low, high = 1.0 / eta, sqrt(X.size) / eta
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ((eta * (X - X.min() + middle)) ** -2).sum() > 1.0 else (low, middle)
    v = (eta * (X - X.min() + low)) ** -2
    return v / v.sum()
