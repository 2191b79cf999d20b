"""The regulariser -2 sum sqrt(q) over the occupancy measures of known kernels, by Newton's method on its dual.

To be found is the q with flow through known rows P_b that minimises <q, c> - 2 sum_b sqrt(q_b).  With prices V (zero at
the terminal state) and r_b = c_b - V(s) + P_b.V > 0 the dual is ``D(V) = V(s_0) - sum_b 1 / r_b``; its maximum is at
q_b = r_b^-2, its gradient the flow residual ``e_{s_0} - sum_b q_b (e_s - P_b)``, and its negated Hessian
``sum_b 2 r_b^-3 (e_s - P_b)(e_s - P_b)'``, block tridiagonal and positive definite.  A q with flow satisfies

    primal - dual = sum_b r_b (sqrt(q_b) - 1 / r_b)^2,

a sum of non-negative terms: a small one proves that q is nearly optimal.

Follow the regularised leader has c = eta (sum of losses).  Mirror descent from p with a loss l has c = p^-1/2 + eta l;
they agree if, where eta falls by a factor rho, p^-1/2 = rho q_k^-1/2 + (1 - rho) q_1^-1/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._compiled import inner_kernel, kernel
from advmdp.layered import Layers
from advmdp.solvers import tridiagonal
from advmdp.solvers.repeated import FlatStep
from advmdp.solvers.step import SolverError

# Relative difference of inflow and outflow at which a step is done; the gap is of the order of its square.
BALANCE = 1e-10
ITERATIONS = 200
# A certificate above this is an error, as of the other steps.
LARGEST_GAP = 1e-4


class _Problem(NamedTuple):
    """Rows by entries: ``at[b]`` to ``at[b + 1]`` are those of pair b, with ``to``, counted through all layers."""

    n_actions: int
    at: Integers
    to: Integers
    probability: Floats
    mass: Floats  # that some policy brings to each state: zero where none does
    sizes: Integers  # of the decision layers, and where the blocks of :mod:`advmdp.solvers.tridiagonal` lie
    diag_at: Integers
    off_at: Integers
    state_at: Integers


class _Memory(NamedTuple):
    r: Floats
    inflow: Floats
    outflow: Floats
    step: Floats
    target: Floats
    diag: Floats
    off: Floats
    scratch: Floats


class TsallisStep:
    """argmin over the occupancy measures q of known rows of <q, c> - 2 sum sqrt(q), for one c after the other.

    ``kernels`` is a list over layers of tables ``(S_h, A, S_{h+1})``; a row may sum to less than one, and what is
    missing leads to the end.
    """

    def __init__(self, kernels: Sequence[Any], layers: Layers) -> None:
        self._layers = layers
        n, states = layers.size_array[:-1], layers.n_pairs // layers.n_actions
        starts = [np.concatenate([[0], np.cumsum(part)]).astype(np.int64) for part in (n * n, n[:-1] * n[1:], n)]
        counts, to, probability = [], [], []
        for h, kernel_of in enumerate(kernels[:-1]):
            table = np.asarray(kernel_of).reshape(n[h] * layers.n_actions, n[h + 1])
            pairs, nexts = np.nonzero(table)
            counts.append(np.bincount(pairs, minlength=len(table)))
            to.append(starts[2][h + 1] + nexts)
            probability.append(table[pairs, nexts])
        counts.append(np.zeros(n[-1] * layers.n_actions, dtype=np.int64))  # the last transition leads to the end
        at = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        entries = [np.concatenate([np.empty(0), *parts]) for parts in (to, probability)]
        self._problem = _Problem(layers.n_actions, at, entries[0].astype(np.int64), entries[1], np.zeros(states),
                                 n.astype(np.int64), *starts)  # fmt: skip
        roll(self._problem, layers.uniform_policy, self._problem.mass)
        lengths = (layers.n_pairs, states, states, states, states, starts[0][-1], starts[1][-1], int(n.max()) ** 2)
        self._memory = _Memory(*(np.zeros(int(length)) for length in lengths))

    def __call__(self, cost: Floats, prices: Floats | None = None) -> tuple[FlatStep, Floats]:
        """The step with its certificate, and the prices V, flat over states: where to begin for a cost nearby.

        ``cost`` is c, flat over pairs, infinite at those that must not be used.  Where no flow leads, log q is -inf and
        the policy uniform.
        """
        layers = self._layers
        if layers.available is not None:
            cost = np.where(layers.available, cost, np.inf)
        V = np.full(self._problem.mass.size, np.nan) if prices is None else prices.copy()
        log_q, policy = np.empty(layers.n_pairs), layers.uniform_policy.copy()
        value, gap, residual, iterations = minimise(self._problem, self._memory, cost, V, log_q, policy)
        if not gap <= LARGEST_GAP:
            message = f"the step with -2 sum sqrt(q) has gap {gap:.3g}, should be at most {LARGEST_GAP}"
            problem = {"cost": cost, **{name: np.asarray(part) for name, part in self._problem._asdict().items()}}
            raise SolverError(message, gap, residual, problem)
        return FlatStep(log_q, policy, value, gap, residual, iterations, "tsallis"), V


@kernel
def roll(problem: _Problem, policy: Floats, mass: Floats) -> None:
    """The mass of each state under a policy."""
    mass[:] = 0.0
    mass[0] = 1.0
    for s in range(mass.size):
        for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
            for e in range(problem.at[b], problem.at[b + 1]):
                mass[problem.to[e]] += mass[s] * policy[b] * problem.probability[e]


@kernel
def minimise(
    problem: _Problem, memory: _Memory, cost: Floats, V: Floats, log_q: Floats, policy: Floats
) -> tuple[float, float, float, int]:
    """Newton's method with steps that stay inside r > 0, from V if that is; (value, gap, residual, iterations)."""
    step = memory.step
    dual, imbalance = evaluate(problem, memory, cost, V)
    if not dual > -np.inf:
        settle(problem, memory, cost, V)
        dual, imbalance = evaluate(problem, memory, cost, V)
    iteration = 0
    while imbalance > BALANCE and iteration < ITERATIONS:
        iteration += 1
        slope, shrinks = direction(problem, memory)
        length = min(1.0, 0.9 / shrinks) if shrinks > 0.0 else 1.0
        for s in range(V.size):
            V[s] += length * step[s]
        after, imbalance = evaluate(problem, memory, cost, V)
        while not after >= dual + 1e-4 * length * slope - 1e-13 * (1.0 + abs(dual)) and length > 1e-12:
            length *= 0.5
            for s in range(V.size):
                V[s] -= length * step[s]
            after, imbalance = evaluate(problem, memory, cost, V)
        dual = after
    value, gap = certify(problem, memory, cost, log_q, policy)
    return value, gap, imbalance, iteration


@inner_kernel
def evaluate(problem: _Problem, memory: _Memory, cost: Floats, V: Floats) -> tuple[float, float]:
    """r, inflow and outflow at V; (D(V), largest relative imbalance of a state), -inf where some r is not positive."""
    memory.inflow[:] = 0.0
    memory.inflow[0] = 1.0
    dual, imbalance = V[0], 0.0
    for s in range(V.size):
        out = 0.0
        if problem.mass[s] > 0.0:
            for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                r = cost[b] - V[s]
                for e in range(problem.at[b], problem.at[b + 1]):
                    r += problem.probability[e] * V[problem.to[e]]
                if not r > 0.0:
                    return -np.inf, np.inf
                memory.r[b] = r
                dual -= 1.0 / r
                q = 1.0 / (r * r)
                out += q
                for e in range(problem.at[b], problem.at[b + 1]):
                    memory.inflow[problem.to[e]] += problem.probability[e] * q
            imbalance = max(imbalance, abs(memory.inflow[s] - out) / max(memory.inflow[s], out))
        memory.outflow[s] = out
    return dual, imbalance


@inner_kernel
def settle(problem: _Problem, memory: _Memory, cost: Floats, V: Floats) -> None:
    """Prices whose masses nearly agree with what the policy that they induce brings: back and forth, a few times.

    V(s) solves sum_a (x_a - V)^-2 = mass by Newton's method for (sum_a (x_a - V)^-2)^-1/2, which is concave in -V.
    """
    mass, rolled, r = memory.target, memory.outflow, memory.r
    for s in range(V.size):
        mass[s] = problem.mass[s]
    for _ in range(4):
        for s in range(V.size - 1, -1, -1):
            if not mass[s] > 0.0:
                V[s] = 0.0
                continue
            lowest = np.inf
            for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                r[b] = cost[b]
                for e in range(problem.at[b], problem.at[b + 1]):
                    r[b] += problem.probability[e] * V[problem.to[e]]
                lowest = min(lowest, r[b])
            below = mass[s] ** -0.5
            for _ in range(100):
                total, slope = 0.0, 0.0
                for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                    inverse = 1.0 / (r[b] - lowest + below)
                    total += inverse * inverse
                    slope += inverse * inverse * inverse
                move = (mass[s] ** -0.5 - total**-0.5) * total**1.5 / slope
                below += move
                if move <= 1e-6 * below:
                    break
            V[s] = lowest - below
            for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                r[b] -= V[s]
        rolled[:] = 0.0
        rolled[0] = 1.0
        for s in range(V.size):
            if mass[s] > 0.0:
                for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                    flow = rolled[s] / (mass[s] * r[b] * r[b])
                    for e in range(problem.at[b], problem.at[b + 1]):
                        rolled[problem.to[e]] += flow * problem.probability[e]
                mass[s] = np.sqrt(mass[s] * rolled[s])


@inner_kernel
def direction(problem: _Problem, memory: _Memory) -> tuple[float, float]:
    """Newton's step; (gradient.step, the largest -(change of r) / r along it)."""
    diag, off, step, sizes = memory.diag, memory.off, memory.step, problem.sizes
    diag[:] = 0.0
    off[:] = 0.0
    for h in range(sizes.size):
        n = sizes[h]
        m = sizes[h + 1] if h + 1 < sizes.size else 0
        here = problem.state_at[h]
        for s in range(n):
            corner = problem.diag_at[h] + s * n + s
            if not problem.mass[here + s] > 0.0:  # nothing leads here: its price stays
                diag[corner] += 1.0
                continue
            for b in range((here + s) * problem.n_actions, (here + s + 1) * problem.n_actions):
                weight = 2.0 / memory.r[b] ** 3
                diag[corner] += weight
                for e in range(problem.at[b], problem.at[b + 1]):
                    t = problem.to[e] - here - n
                    flow = weight * problem.probability[e]
                    off[problem.off_at[h] + s * m + t] -= flow
                    for f in range(e, problem.at[b + 1]):
                        u = problem.to[f] - here - n
                        diag[problem.diag_at[h + 1] + t * m + u] += flow * problem.probability[f]
    tridiagonal.factor(sizes, diag, problem.diag_at, off, problem.off_at, memory.scratch)
    for s in range(step.size):
        step[s] = memory.inflow[s] - memory.outflow[s] if problem.mass[s] > 0.0 else 0.0
    tridiagonal.solve(sizes, diag, problem.diag_at, off, problem.off_at, problem.state_at, step)
    slope, shrinks = 0.0, 0.0
    for s in range(step.size):
        if problem.mass[s] > 0.0:
            slope += (memory.inflow[s] - memory.outflow[s]) * step[s]
            for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                move = step[s]
                for e in range(problem.at[b], problem.at[b + 1]):
                    move -= problem.probability[e] * step[problem.to[e]]
                shrinks = max(shrinks, move / memory.r[b])
    return slope, shrinks


@inner_kernel
def certify(problem: _Problem, memory: _Memory, cost: Floats, log_q: Floats, policy: Floats) -> tuple[float, float]:
    """Roll the policy of the dual's masses forward, so that flow holds exactly; (value, gap)."""
    rolled = memory.target
    rolled[:] = 0.0
    rolled[0] = 1.0
    value, gap = 0.0, 0.0
    for s in range(rolled.size):
        for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
            if not problem.mass[s] > 0.0:
                log_q[b] = -np.inf
                continue
            r = memory.r[b]
            policy[b] = 1.0 / (r * r * memory.outflow[s])
            q = rolled[s] * policy[b]
            log_q[b] = np.log(q)
            if q != 0.0:  # nor NaN, which must not be certified
                value += q * cost[b] - 2.0 * np.sqrt(q)
                gap += r * (np.sqrt(q) - 1.0 / r) ** 2
            for e in range(problem.at[b], problem.at[b + 1]):
                rolled[problem.to[e]] += q * problem.probability[e]
    return value, gap
