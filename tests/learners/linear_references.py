"""The learners of linear MDPs a second time: slowly, in plain numpy, from the formulas and the whole history.

Nothing here is shared with the library but the episodes that it is told and, for random draws, its streams.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import minimize

from tests.learners.policy_references import Reference, softmax


def occupancy(kernels, policy):
    """q of a policy, pair by pair."""
    visits, found = np.ones(1), []
    for kernel, pi in zip(kernels, policy, strict=True):
        found.append(visits[:, None] * pi)
        visits = np.array([(found[-1] * kernel[:, :, t]).sum() for t in range(kernel.shape[2])])
    return found


def covariance(features, mass):
    return sum(mass[s, a] * np.outer(features[s, a], features[s, a]) for s, a in np.ndindex(*mass.shape))


class Linear(Reference):
    """Regression of values on features, one episode after the other."""

    def ridge(self, h):
        gram = np.eye(self.mdp.dim)
        for told in self.history:
            phi = self.mdp.features[h][told.states[h], told.actions[h]]
            gram += np.outer(phi, phi)
        return gram

    def fitted(self, h, following):
        """Least squares of the values of the next states."""
        target = np.zeros(self.mdp.dim)
        for told in self.history:
            target += self.mdp.features[h][told.states[h], told.actions[h]] * following[told.states[h + 1]]
        return np.linalg.solve(self.ridge(h), target)

    def beta(self, h):
        ratio = np.linalg.slogdet(self.ridge(h))[1]
        corners = 2 ** (self.sizes[h + 1] - 1) * (self.H - 1)
        return self.scale * (self.mdp.bound + 0.5 * np.sqrt(2 * np.log(corners / self.zeta) + ratio))

    def norm(self, h, phi):
        return np.sqrt(phi @ np.linalg.solve(self.ridge(h), phi))


class OppoLinear(Linear):
    @property
    def eta(self):
        return np.sqrt(2 * np.log(self.A) / (self.K * self.H**2))

    def evaluate(self, told):
        policy, values, following = self.policy, [None] * self.H, np.zeros(1)
        for h in reversed(range(self.H)):
            values[h] = np.array(told.loss_table[h])
            if h < self.H - 1:
                weights, beta, most = self.fitted(h, following), self.beta(h), self.H - 1 - h
                for s, a in np.ndindex(*values[h].shape):
                    phi = self.mdp.features[h][s, a]
                    values[h][s, a] += min(max(phi @ weights - beta * most * self.norm(h, phi), 0), most)
            following = (policy[h] * values[h]).sum(axis=1)
        return values


class DilatedBonusLinear(Linear):
    @property
    def eta(self):
        return min(1 / (24 * self.H**3), 1 / (self.H * np.sqrt(self.mdp.dim * self.K)))

    def estimated_rows(self):
        for h in range(self.H):
            n, m = self.sizes[h : h + 2]
            rows = np.ones((n, self.A, m))
            if h < self.H - 1:
                columns = [self.fitted(h, np.eye(m)[t]) for t in range(m)]
                for s, a, t in product(range(n), range(self.A), range(m)):
                    rows[s, a, t] = max(self.mdp.features[h][s, a] @ columns[t], 0)
                empty = rows.sum(axis=2) == 0
                rows[empty] = 1 / m
            yield rows / rows.sum(axis=2, keepdims=True)

    def evaluate(self, told):
        policy, gamma = self.policy, 2 * self.eta * self.H
        visits = occupancy(list(self.estimated_rows()), policy)
        fitted, bonus = [], []
        for h, phi in enumerate(self.mdp.features):
            sigma = gamma * np.eye(self.mdp.dim) + covariance(phi, visits[h])
            total = sum(told.losses[h:])
            met = np.linalg.solve(sigma, phi[told.states[h], told.actions[h]])
            fitted.append(phi @ met * total)
            n = np.array([[x @ np.linalg.solve(sigma, x) for x in row] for row in phi])
            bonus.append(2 * self.eta * self.H**2 * (n + (policy[h] * n).sum(axis=1)[:, None]))
        values, following, most = [None] * self.H, np.zeros(1), 0.0
        for h in reversed(range(self.H)):
            dilated = bonus[h].copy()
            if h < self.H - 1:
                weights, beta = self.fitted(h, following), self.beta(h)
                for s, a in np.ndindex(*dilated.shape):
                    phi = self.mdp.features[h][s, a]
                    ahead = min(max(phi @ weights + beta * most * self.norm(h, phi), 0), most)
                    dilated[s, a] += (1 + 1 / self.H) * ahead
            most = bonus[h].max() + (1 + 1 / self.H) * most
            following = (policy[h] * dilated).sum(axis=1)
            values[h] = fitted[h] - dilated
        return values


def uniform_policy(mdp):
    return [np.full((n, mdp.n_actions), 1 / mdp.n_actions) for n in mdp.layer_sizes[:-1]]


def leverage(mdp):
    """max phi' pinv(Sigma) phi under uniform play."""
    q = occupancy(mdp.kernels, uniform_policy(mdp))
    found = []
    for phi, mass in zip(mdp.features, q, strict=True):
        inverse = np.linalg.pinv(covariance(phi, mass), rcond=1e-10, hermitian=True)
        found += [phi[s, a] @ inverse @ phi[s, a] for s, a in np.ndindex(*mass.shape) if mass[s, a] > 0]
    return max(found)


def fitted_tables(features, mass, told, values):
    """phi' pinv(Sigma_h) phi(s_h, a_h) y_h for all pairs."""
    return [
        phi @ np.linalg.pinv(covariance(phi, m), rcond=1e-10, hermitian=True) @ phi[s, a] * y
        for phi, m, s, a, y in zip(features, mass, told.states, told.actions, values, strict=True)
    ]


class MdpLinExp3(Reference):
    """``turns[k]`` is the layer of episode k up to which actions are uniform, H where none are."""

    def __init__(self, mdp, episodes, turns):
        super().__init__(mdp, episodes)
        self.turns, self.k = turns, 0
        L, H, K = leverage(mdp), self.H, episodes
        a, c = H * np.log(self.A), L * H * sum((H - h) ** 2 for h in range(H)) * K
        self.gamma = min(0.5, (np.sqrt(a * c) / (H * K)) ** (2 / 3))
        self.eta = min(np.sqrt(a * self.gamma / c), self.gamma / (H**2 * L))

    @property
    def policy(self):
        own, even = [softmax(-self.eta * total) for total in self.summed], uniform_policy(self.mdp)
        turn = self.turns[self.k]
        return own if turn == self.H else [*even[: turn + 1], *own[turn + 1 :]]

    def evaluate(self, told):
        own = occupancy(self.mdp.kernels, [softmax(-self.eta * total) for total in self.summed])
        even = occupancy(self.mdp.kernels, uniform_policy(self.mdp))
        mass = [(1 - self.gamma) * q + self.gamma / self.H * q0 for q, q0 in zip(own, even, strict=True)]
        turn = self.turns[self.k]
        values = [sum(told.losses[h:]) if turn in (h, self.H) else 0.0 for h in range(self.H)]
        self.k += 1
        return fitted_tables(self.mdp.features, mass, told, values)


class QReps:
    """The mirror step by a quasi-Newton method on its dual, one multiplier per state."""

    def __init__(self, mdp, episodes):
        self.mdp, self.H = mdp, mdp.horizon
        S, A, H, d, L = mdp.n_states, mdp.n_actions, mdp.horizon, mdp.dim, leverage(mdp)
        self.eta = min(np.sqrt(np.log(S * A / H) / (episodes * (L + 2 * d))), 0.5 / L)
        self.gamma = self.eta * L
        self.even = occupancy(mdp.kernels, uniform_policy(mdp))
        self.q = self.step([np.full_like(q, 1 / q.size) for q in self.even], [np.zeros_like(q) for q in self.even])

    @property
    def mixed(self):
        return [(1 - self.gamma) * q + self.gamma * q0 for q, q0 in zip(self.q, self.even, strict=True)]

    @property
    def policy(self):
        return [q / q.sum(axis=1, keepdims=True) for q in self.mixed]

    def update(self, told):
        self.q = self.step(self.q, fitted_tables(self.mdp.features, self.mixed, told, told.losses))

    def step(self, q, losses):
        """argmin over occupancy measures of eta <q', l> + KL(q' || q)."""
        sizes = self.mdp.layer_sizes[1:-1]

        def tables(flat):
            values = [np.zeros(1), *np.split(flat, np.cumsum(sizes))[:-1], np.zeros(1)]
            scores = [
                np.log(q[h]) - self.eta * losses[h] - values[h][:, None] + self.mdp.kernels[h] @ values[h + 1]
                for h in range(self.H)
            ]
            norms = [np.log(np.exp(score).sum()) for score in scores]
            return [np.exp(score - norm) for score, norm in zip(scores, norms, strict=True)], sum(norms)

        def dual(flat):
            found, value = tables(flat)
            flows = [np.einsum("sa,sat->t", found[h], self.mdp.kernels[h]) for h in range(self.H - 1)]
            return value, np.concatenate([flows[h] - found[h + 1].sum(axis=1) for h in range(self.H - 1)])

        best = minimize(dual, np.zeros(sum(sizes)), jac=True, method="BFGS", options={"gtol": 1e-11})
        return tables(best.x)[0]
