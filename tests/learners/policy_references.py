"""The policy-optimisation learners a second time: slowly, in plain numpy, from the formulas and the whole history.

Nothing here is shared with the library but the episodes that it is told.
"""

from __future__ import annotations

from itertools import product

import numpy as np


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def mean_over(policy, values):
    return [(pi * q).sum(axis=1) for pi, q in zip(policy, values, strict=True)]


class Reference:
    """Sizes, history, and the policy as the softmax of minus the step size times the sum of all Q_k."""

    def __init__(self, mdp, episodes, zeta=0.05, scale=1.0):
        self.mdp, self.K, self.zeta, self.scale = mdp, episodes, zeta, scale
        self.H, self.A, self.S = mdp.horizon, mdp.n_actions, mdp.n_states
        self.sizes = mdp.layer_sizes
        self.history = []
        self.summed = [np.zeros((n, self.A)) for n in self.sizes[:-1]]

    @property
    def policy(self):
        return [softmax(-self.eta * total) for total in self.summed]

    def update(self, episode):
        self.values = self.evaluate(episode)
        self.remember(episode)
        self.summed = [total + q for total, q in zip(self.summed, self.values, strict=True)]

    def remember(self, episode):
        self.history.append(episode)


class MdpE(Reference):
    @property
    def eta(self):
        return np.sqrt(8 * np.log(self.A) / (self.K * self.H**2))

    def evaluate(self, episode):
        policy, values = self.policy, [None] * self.H
        following = np.zeros(1)
        for h in reversed(range(self.H)):
            values[h] = np.zeros((self.sizes[h], self.A))
            for s, a in product(range(self.sizes[h]), range(self.A)):
                ahead = sum(self.mdp.kernels[h][s, a, t] * following[t] for t in range(self.sizes[h + 1]))
                values[h][s, a] = episode.loss_table[h][s, a] + ahead
            following = (policy[h] * values[h]).sum(axis=1)
        return values


class Counting(Reference):
    """Counts, doubling epochs and Bernstein boxes, replayed from the first episode."""

    def boxes(self):
        counts = [np.zeros((n, self.A, m)) for n, m in zip(self.sizes[:-2], self.sizes[1:-1], strict=True)]
        start = [table.copy() for table in counts]
        for episode in self.history:
            for h, table in enumerate(counts):
                table[episode.states[h], episode.actions[h], episode.states[h + 1]] += 1
            doubled = [
                table[s, a].sum() >= max(1, 2 * then[s, a].sum())
                for table, then, s, a in zip(counts, start, episode.states, episode.actions, strict=False)
            ]
            if any(doubled):
                start = [table.copy() for table in counts]
        lower, upper = [], []
        confidence = np.log(self.K * self.S * self.A / self.zeta)
        for table in start:
            visits = table.sum(axis=2, keepdims=True)
            frequency, less = table / np.maximum(1, visits), np.maximum(1, visits - 1)
            width = 2 * np.sqrt(frequency * confidence / less) + 14 * confidence / (3 * less)
            width = np.where(visits > 0, self.scale * width, 1)
            lower.append(np.maximum(0, frequency - width))
            upper.append(np.minimum(1, frequency + width))
        return lower, upper

    def extreme(self, boxes, h, s, a, function, best):
        """max or min of <p, function> over the box, by listing its vertices: all entries but one at a bound."""
        if h == self.H - 1:
            return function[0]
        low, high = boxes[0][h][s, a], boxes[1][h][s, a]
        found = []
        for free in range(len(low)):
            others = [i for i in range(len(low)) if i != free]
            for choice in product((low, high), repeat=len(others)):
                p = np.zeros(len(low))
                for i, bound in zip(others, choice, strict=True):
                    p[i] = bound[i]
                p[free] = 1 - p.sum()
                if low[free] - 1e-12 <= p[free] <= high[free] + 1e-12:
                    found.append(p @ function)
        return best(found)

    def extreme_values(self, boxes, policy, losses, best, dilation=1.0):
        values, following = [None] * self.H, np.zeros(1)
        for h in reversed(range(self.H)):
            values[h] = np.array(
                [
                    [losses[h][s, a] + dilation * self.extreme(boxes, h, s, a, following, best) for a in range(self.A)]
                    for s in range(self.sizes[h])
                ]
            )
            following = (policy[h] * values[h]).sum(axis=1)
        return values

    def visits(self, boxes, policy, layer, state, best):
        """Largest or smallest probability of visiting a state: its own value with a loss of one there alone."""
        function = np.eye(self.sizes[layer])[state]
        for h in reversed(range(layer)):
            rows = [[self.extreme(boxes, h, s, a, function, best) for a in range(self.A)] for s in range(self.sizes[h])]
            function = (policy[h] * np.array(rows)).sum(axis=1)
        return function[0]


class Pomd(Counting):
    @property
    def eta(self):
        return 1 / (self.H * self.K ** (2 / 3))

    def evaluate(self, episode):
        policy, boxes = self.policy, self.boxes()
        gamma = 1 / (np.sqrt(self.A) * self.K ** (1 / 3))
        estimate = [np.zeros_like(pi) for pi in policy]
        for h, (s, a, loss) in enumerate(zip(episode.states, episode.actions, episode.losses, strict=False)):
            estimate[h][s, a] = loss / (self.visits(boxes, policy, h, s, max) * policy[h][s, a] + gamma)
        return self.extreme_values(boxes, policy, estimate, min)


class DilatedBonus(Counting):
    @property
    def eta(self):
        return min(1 / (24 * self.H**3), 1 / np.sqrt(self.S * self.A * self.H * self.K))

    def evaluate(self, episode):
        policy, boxes = self.policy, self.boxes()
        gamma = 2 * self.eta * self.H
        values = [np.zeros_like(pi) for pi in policy]
        bonus = [np.zeros_like(pi) for pi in policy]
        for h in range(self.H):
            for s in range(self.sizes[h]):
                u = policy[h][s] * self.visits(boxes, policy, h, s, max)
                v = policy[h][s] * self.visits(boxes, policy, h, s, min)
                bonus[h][s] = sum(policy[h][s] * (3 * gamma * self.H + self.H * (u - v)) / (u + gamma))
                if episode.states[h] == s:
                    a = episode.actions[h]
                    values[h][s, a] = self.charged(episode, h) / (u[a] + gamma)
        ahead = self.extreme_values(boxes, policy, bonus, max, 1 + 1 / self.H)
        return [q - b for q, b in zip(values, ahead, strict=True)]

    def charged(self, episode, h):
        return sum(episode.losses[h:])


class DilatedBonusTotal(DilatedBonus):
    def charged(self, episode, h):
        return sum(episode.losses)


class Oppo(Reference):
    """Keeps (phi_V, V(s'), weight) of every layer and episode, and regresses from scratch."""

    lam = 1.0

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.data = [[] for _ in range(self.H - 1)]
        #: Which sides of which truncation were met, for tests that must meet all.
        self.met = set()

    def start_from(self, thetas, weights):
        """As after a past in which each coordinate of layer h alone was seen ``weights[h]`` times, with no noise."""
        self.data = [self.past(theta, weight) for theta, weight in zip(thetas, weights, strict=True)]

    def past(self, theta, weight):
        return [(axis, y, weight) for axis, y in zip(np.eye(self.mdp.dim), theta, strict=True)]

    def clip(self, what, value, low, high):
        self.met.add((what, "below" if value < low else "above" if value > high else "inside"))
        return min(max(value, low), high)

    @property
    def eta(self):
        return np.sqrt(2 * np.log(self.A) / (self.H**2 * self.K))

    def phi(self, h, s, a, function):
        return sum(self.mdp.features[h][s, a, t] * function[t] for t in range(self.sizes[h + 1]))

    def ridge(self, data):
        d = self.mdp.dim
        gram, target = self.lam * np.eye(d), np.zeros(d)
        for x, y, weight in data:
            gram, target = gram + weight * np.outer(x, x), target + weight * y * x
        return gram, np.linalg.solve(gram, target)

    def radius(self, h, gram):
        information = np.linalg.slogdet(gram)[1] - self.mdp.dim * np.log(self.lam)
        noise = (self.H - 1 - h) / 2 * np.sqrt(2 * np.log((self.H - 1) / self.zeta) + information)
        return self.scale * (self.mdp.bound * np.sqrt(self.lam) + noise)

    def optimistic(self, losses, state_value):
        values, following = [None] * self.H, np.zeros(1)
        for h in reversed(range(self.H)):
            values[h] = np.array(losses[h])
            if h < self.H - 1:
                gram, theta = self.ridge(self.data[h])
                beta = self.radius(h, gram)
                for s, a in product(range(self.sizes[h]), range(self.A)):
                    x = self.phi(h, s, a, following)
                    ahead = x @ theta - beta * np.sqrt(x @ np.linalg.solve(gram, x))
                    values[h][s, a] += self.clip("future", ahead, 0, self.H - 1 - h)
            following = state_value(h, values[h])
        return values

    def evaluate(self, episode):
        policy = self.policy
        return self.optimistic(episode.loss_table, lambda h, table: (policy[h] * table).sum(axis=1))

    def remember(self, episode):
        self.regress(episode, mean_over(self.policy, self.values))
        super().remember(episode)

    def regress(self, episode, V):
        for h in range(self.H - 1):
            x = self.phi(h, episode.states[h], episode.actions[h], V[h + 1])
            self.data[h].append((x, V[h + 1][episode.states[h + 1]], 1.0))


class UcrlVtr(Oppo):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.plan(self.summed)

    def start_from(self, thetas, weights):
        super().start_from(thetas, weights)
        self.plan(self.summed)

    def plan(self, mean):
        self.values = self.optimistic(mean, lambda h, table: table.min(axis=1))

    @property
    def policy(self):
        return [np.eye(self.A)[table.argmin(axis=1)] for table in self.values]

    def update(self, episode):
        self.history.append(episode)
        self.regress(episode, [table.min(axis=1) for table in self.values])
        tables = [told.loss_table for told in self.history]
        self.plan([np.mean([table[h] for table in tables], axis=0) for h in range(self.H)])


class Powers(Oppo):
    """With two regressions, and the three radii typed in again with the source's constants."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.lam = 1 / self.mdp.bound**2
        self.squares = [[] for _ in range(self.H - 1)]
        corners = (
            np.linalg.norm(self.phi(h, s, a, np.array(V)))
            for h in range(self.H - 1)
            for s, a in product(range(self.sizes[h]), range(self.A))
            for V in product((0.0, 1.0), repeat=self.sizes[h + 1])
        )
        self.R = max(corners)

    def start_from(self, thetas, weights):
        super().start_from(thetas, weights)
        self.squares = [list(past) for past in self.data]

    def radii(self):
        d, H, k = self.mdp.dim, self.H, len(self.history) + 1
        l1, l2 = np.log(1 + k * self.R**2 / self.lam), np.log(4 * k**2 * H / self.zeta)
        rest = np.sqrt(self.lam) * self.mdp.bound
        hat = 8 * np.sqrt(d * l1 * l2) + 4 * np.sqrt(d) * l2 + rest
        check = 8 * d * np.sqrt(l1 * l2) + 4 * np.sqrt(d) * l2 + rest
        growth = np.log(1 + k * H**4 * self.R**2 / (d * self.lam))
        tilde = 8 * H**2 * np.sqrt(d * growth * l2) + 4 * H**2 * l2 + rest
        return hat, check, tilde

    def radius(self, h, gram):
        return self.scale * self.radii()[0]

    def regress(self, episode, V):
        _, check, tilde = self.radii()
        H, d = self.H, self.mdp.dim
        for h in range(H - 1):
            s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
            x, z = self.phi(h, s, a, V[h + 1]), self.phi(h, s, a, V[h + 1] ** 2)
            gram, theta = self.ridge(self.data[h])
            gram_square, theta_square = self.ridge(self.squares[h])
            mean = self.clip("mean", x @ theta, 0, H)
            variance = self.clip("mean square", z @ theta_square, 0, H**2) - mean**2
            width, width_square = np.sqrt(x @ np.linalg.solve(gram, x)), np.sqrt(z @ np.linalg.solve(gram_square, z))
            error = self.clip("error of the square", tilde * width_square, 0, H**2)
            error += self.clip("error of the mean", 2 * H * check * width, 0, H**2)
            sigma2 = self.clip("variance", variance + error, H**2 / d, np.inf)
            self.data[h].append((x, V[h + 1][following], 1 / sigma2))
            self.squares[h].append((z, V[h + 1][following] ** 2, 1.0))


REFERENCES = {
    "mdp-e": MdpE,
    "pomd": Pomd,
    "dilated-bonus": DilatedBonus,
    "dilated-bonus-total": DilatedBonusTotal,
    "oppo": Oppo,
    "powers": Powers,
    "ucrl-vtr": UcrlVtr,
}
