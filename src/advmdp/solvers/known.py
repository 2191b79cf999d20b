"""Steps over the occupancy measures q of the same known rows P_b, episode after episode: Newton's method on prices.

With prices V (zero at the terminal state) and r_b = c_b - V(s) + P_b.V the dual is ``D(V) = V(s_0) - sum_b phi(r_b)``,
up to a constant.  Its maximum is at q_b = -phi'(r_b), its gradient the flow residual
``e_{s_0} - sum_b q_b (e_s - P_b)``, and its negated Hessian ``sum_b phi''(r_b) (e_s - P_b)(e_s - P_b)'``, block
tridiagonal and positive definite.

                           to be minimised              phi(r)          -phi'(r)        phi''(r)
    :class:`RepeatedStep`  <q, c> + KL(q || prior)      prior exp(-r)   prior exp(-r)   prior exp(-r)
    :class:`TsallisStep`   <q, c> - 2 sum_b sqrt(q_b)   1 / r, r > 0    r^-2            2 r^-3

Let q have flow and the policy of the masses -phi'(r), and let log q(s) exceed theirs by a(s).  Then primal - dual is
``sum_s q(s) (exp(-a) - 1 + a)`` and ``sum_b (exp(a / 2) - 1)^2 / r_b``, sums of non-negative terms: where they are
small, q is nearly optimal.

Follow the regularised leader with -2 sum sqrt(q) has c = eta (sum of losses).  Mirror descent from p with a loss l has
c = p^-1/2 + eta l; they agree if, where eta falls by a factor rho, p^-1/2 = rho q_k^-1/2 + (1 - rho) q_1^-1/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._arrays import Floats
from advmdp._compiled import inner_kernel, kernel
from advmdp.confidence import KnownKernels
from advmdp.layered import Layers
from advmdp.occupancy import condition
from advmdp.solvers import tridiagonal
from advmdp.solvers.layout import Layout, fill, length_of, make_layout
from advmdp.solvers.mirror import mirror_descent_step
from advmdp.solvers.step import LARGEST_RESIDUAL, MirrorStep, SolverError

# Relative difference of inflow and outflow at which a step is done, shared by the layers: errors of log q add up along
# them.  The duality gap is of the order of its square.
BALANCE = 1e-9
ITERATIONS = 200
# Steps are halved until the dual rises, down to this part of Newton's.
SHORTEST = 1e-12
# Relative entropy: masses below this are not for products and quotients of floating-point numbers.
LEAST_MASS = 1e-200
# A certificate of -2 sum sqrt(q) above this is an error, as of the other steps.
LARGEST_GAP = 1e-4

# Unsigned, so that compiled code need not ask whether an index counts from the end.
Indices = NDArray[np.uint32]


class FlatStep(NamedTuple):
    """A step on flat vectors over pairs, with the certificate of :class:`advmdp.solvers.MirrorStep`."""

    log_q: Floats
    policy: Floats
    value: float
    gap: float
    residual: float
    iterations: int
    status: str


class _Problem(NamedTuple):
    """Rows by entries: ``at[b]`` to ``at[b + 1]`` are those of pair b, with ``to``, counted through all layers."""

    roots: bool  # the regulariser: -2 sum sqrt(q), or the relative entropy
    n_actions: int
    at: Indices
    to: Indices
    probability: Floats
    mass: Floats  # of each state: positive where some policy leads; of TsallisStep that of the uniform policy
    layout: Layout


class _Memory(NamedTuple):
    r: Floats
    q: Floats
    inflow: Floats
    outflow: Floats
    step: Floats
    diag: Floats
    off: Floats
    scratch: Floats


class _PreparedStep:
    """All that depends on the rows alone, made once, with the memory of the solver."""

    def __init__(self, kernels: Sequence[Any], layers: Layers, mass: Floats, roots: bool) -> None:
        n, n_actions = layers.size_array[:-1], layers.n_actions
        nothing = [0] * (len(n) - 1)
        layout = make_layout(layers.sizes, n_actions, nothing, nothing)
        counts, to, probability = [], [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for h, table in enumerate(kernels[:-1]):
            rows = np.asarray(table).reshape(n[h] * n_actions, n[h + 1])
            pairs, nexts = np.nonzero(rows)
            counts.append(np.bincount(pairs, minlength=len(rows)))
            to.append(layout["state_at"][h + 1] + nexts)
            probability.append(rows[pairs, nexts])
        counts.append(np.zeros(n[-1] * n_actions, dtype=np.int64))  # the last transition leads to the end
        at = np.cumsum(np.concatenate([[0], *counts]))
        self._layers, self._uniform = layers, layers.uniform_policy
        self._problem = _Problem(
            roots, n_actions, at.astype(np.uint32), np.concatenate(to).astype(np.uint32), np.concatenate(probability),
            mass, layout,
        )  # fmt: skip
        lengths = [layers.n_pairs] * 2 + [mass.size] * 3
        lengths += [length_of(layout, kind) for kind in ("diag", "off", "stack")]
        # Plain tuples: a compiled function takes two microseconds longer to be given named ones.
        self._parts = tuple(self._problem), tuple(np.zeros(int(length)) for length in lengths)

    def _from(self, V: Floats, log_prior: Floats, cost: Floats, status: str) -> FlatStep:
        log_q, policy = np.empty_like(self._uniform), self._uniform.copy()
        value, gap, residual, iterations = minimise(*self._parts, log_prior, cost, V, log_q, policy)
        return FlatStep(log_q, policy, value, gap, residual, iterations, status)


class RepeatedStep(_PreparedStep):
    """argmin over the occupancy measures q' of known kernels of <q', cost> + KL(q' || q), for one q after the other.

    As q is one of them, V = 0 is a good start.  Steps that are too large for it, and masses that are too small, are
    left to :func:`advmdp.solvers.mirror_descent_step`.
    """

    def __init__(self, confidence_set: KnownKernels) -> None:
        self._set = confidence_set = confidence_set.dense()
        kernels = [table / table.sum(axis=2, keepdims=True) for table in confidence_set.kernels]
        reachable = confidence_set.flat_reachable[:-1].astype(np.float64)
        super().__init__(kernels, Layers(confidence_set.layer_sizes, confidence_set.n_actions), reachable, roots=False)

    def __call__(self, log_q: Floats, cost: Floats, tolerance: float = 1e-8) -> FlatStep:
        """The step from ``log_q``, which must be that of an occupancy measure of the kernels (-inf: unreachable)."""
        step = self._from(np.zeros(self._problem.mass.size), log_q, cost, "repeated")
        if step.gap <= tolerance and step.residual <= LARGEST_RESIDUAL:
            return step
        return self.cold(log_q, cost, tolerance)

    def cold(self, log_q: Floats, cost: Floats, tolerance: float = 1e-8) -> FlatStep:
        """The same step, from any positive ``log_q``, by the general solver."""
        try:
            step = mirror_descent_step(self._set, None, cost, 1.0, log_q=log_q, tolerance=tolerance)
        except SolverError as error:
            if error.step is not None:
                error.step = self._flat(error.step)
            raise
        return self._flat(step)

    def _flat(self, step: MirrorStep) -> FlatStep:
        policy = np.empty_like(step.flat.log_q)
        condition(step.flat.log_q, self._set.n_actions, policy)
        return FlatStep(step.flat.log_q, policy, step.value, step.gap, step.residual, step.iterations, step.status)


class TsallisStep(_PreparedStep):
    """argmin over the occupancy measures q of known rows of <q, c> - 2 sum sqrt(q), for one c after the other.

    ``kernels`` is a list over layers of tables ``(S_h, A, S_{h+1})``; a row may sum to less than one, and what is
    missing leads to the end.
    """

    def __init__(self, kernels: Sequence[Any], layers: Layers) -> None:
        mass = [np.ones(1)]
        for table, policy in zip(kernels[:-1], layers.split(layers.uniform_policy), strict=False):
            mass.append(np.einsum("sa,sat->t", mass[-1][:, None] * policy, np.asarray(table)))
        super().__init__(kernels, layers, np.concatenate(mass), roots=True)

    def __call__(self, cost: Floats, prices: Floats | None = None) -> tuple[FlatStep, Floats]:
        """The step with its certificate, and the prices V, flat over states: where to begin for a cost nearby.

        ``cost`` is c, flat over pairs, infinite at those that must not be used.  Where no flow leads, log q is -inf and
        the policy uniform.
        """
        cost = self._layers.barred(cost)
        V = np.full(self._problem.mass.size, np.nan) if prices is None else prices.copy()
        step = self._from(V, cost, cost, "tsallis")
        if prices is not None and not step.gap <= LARGEST_GAP:  # these costs are far from where the prices come from
            V = np.full(self._problem.mass.size, np.nan)
            step = self._from(V, cost, cost, "tsallis")
        if not step.gap <= LARGEST_GAP:
            message = f"the step with -2 sum sqrt(q) has gap {step.gap:.3g}, should be at most {LARGEST_GAP}"
            problem = {"cost": cost, **{name: np.asarray(part) for name, part in self._problem._asdict().items()}}
            raise SolverError(message, step.gap, step.residual, problem)
        return step, V


@kernel
def minimise(
    problem_parts: Any, memory_parts: Any, log_prior: Floats, cost: Floats, V: Floats, log_q: Floats, policy: Floats
) -> tuple[float, float, float, int]:
    """Newton's method from V, if that will do; (value, gap, residual, iterations), an infinite gap where it gave up.

    ``policy`` stays as it is where nothing leads; ``log_prior`` is for the relative entropy alone.
    """
    problem, memory = _Problem(*problem_parts), _Memory(*memory_parts)
    layout, step = problem.layout, memory.step
    dual, imbalance = evaluate(problem, memory, log_prior, cost, V)
    if problem.roots and not dual > -np.inf:
        begin(problem, cost, V)
        dual, imbalance = evaluate(problem, memory, log_prior, cost, V)
    enough = BALANCE / (layout.shape[0] - 1)
    factored_at, length, iteration = np.inf, 1.0, 0
    while enough < imbalance < np.inf and length > SHORTEST and iteration < ITERATIONS:
        iteration += 1
        # A step with an old factorisation multiplies the imbalance by about what it was then.
        if not imbalance * factored_at <= enough:
            assemble(problem, memory)
            tridiagonal.factor(layout, memory.diag, memory.off, memory.scratch)
            factored_at = imbalance
        for s in range(V.size):
            step[s] = memory.inflow[s] - memory.outflow[s]
        tridiagonal.solve(layout, memory.diag, memory.off, step)
        slope = 0.0
        for s in range(V.size):
            slope += (memory.inflow[s] - memory.outflow[s]) * step[s]
            V[s] += step[s]
        length = 1.0
        after, imbalance = evaluate(problem, memory, log_prior, cost, V)
        while not after >= dual + 1e-4 * length * slope - 1e-13 * (1.0 + abs(dual)) and length > SHORTEST:
            length *= 0.5
            for s in range(V.size):
                V[s] -= length * step[s]
            after, imbalance = evaluate(problem, memory, log_prior, cost, V)
        dual = after
    if not imbalance < np.inf:
        return np.nan, np.inf, np.inf, iteration
    value, gap, residual = certify(problem, memory, log_prior, cost, log_q, policy)
    return value, gap, residual, iteration


@inner_kernel
def begin(problem: _Problem, cost: Floats, V: Floats) -> None:
    """Prices with r > 0: the best pair of each state has all the mass that the uniform policy brings there."""
    for s in range(V.size - 1, -1, -1):
        V[s] = 0.0
        if problem.mass[s] > 0.0:
            least = np.inf
            for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
                least = min(least, reduced_cost(problem, cost, V, s, b))
            V[s] = least - problem.mass[s] ** -0.5


@inner_kernel
def reduced_cost(problem: _Problem, cost: Floats, V: Floats, s: int, b: int) -> float:
    """r of a pair of state s."""
    r: float = cost[b] - V[s]
    for e in range(problem.at[b], problem.at[b + 1]):
        r += problem.probability[e] * V[problem.to[e]]
    return r


@inner_kernel
def evaluate(problem: _Problem, memory: _Memory, log_prior: Floats, cost: Floats, V: Floats) -> tuple[float, float]:
    """r, q, inflow and outflow at V; (D(V), largest relative imbalance of a state).

    The latter is infinite where some q is not defined, or too small.
    """
    inflow, outflow = memory.inflow, memory.outflow
    fill(inflow, 0.0)
    inflow[0] = 1.0
    dual, imbalance = V[0], 0.0
    for s in range(V.size):
        if not problem.mass[s] > 0.0:
            continue
        total = 0.0
        for b in range(s * problem.n_actions, (s + 1) * problem.n_actions):
            r = reduced_cost(problem, cost, V, s, b)
            if problem.roots:
                if not r > 0.0:
                    return -np.inf, np.inf
                q = 1.0 / (r * r)
                dual -= 1.0 / r
            else:
                q = np.exp(log_prior[b] - r)
                dual -= q
            total += q
            for e in range(problem.at[b], problem.at[b + 1]):
                inflow[problem.to[e]] += problem.probability[e] * q
            memory.r[b] = r
            memory.q[b] = q
        outflow[s] = total
        if not problem.roots and not min(inflow[s], total) > LEAST_MASS:
            return -np.inf, np.inf
        imbalance = max(imbalance, abs(inflow[s] - total) / max(inflow[s], total))
    return dual, imbalance


@inner_kernel
def assemble(problem: _Problem, memory: _Memory) -> None:
    """The negated Hessian, in blocks of layers.

    Unscaled: Cholesky's factorisation does not care, as long as no mass underflows.
    """
    diag, off, r, q = memory.diag, memory.off, memory.r, memory.q
    fill(diag, 0.0)
    fill(off, 0.0)
    layout = problem.layout
    for h in range(layout.shape[0] - 1):
        n, m = layout[h].states, layout[h].nexts
        here, there = layout[h].state_at, layout[h + 1].state_at
        for s in range(n):
            corner = layout[h].diag_at + s * n + s
            if not problem.mass[here + s] > 0.0:  # nothing leads here: its price stays
                diag[corner] += 1.0
                continue
            coupling = layout[h].off_at + s * m
            for b in range((here + s) * problem.n_actions, (here + s + 1) * problem.n_actions):
                weight = 2.0 * q[b] / r[b] if problem.roots else q[b]
                diag[corner] += weight
                for e in range(problem.at[b], problem.at[b + 1]):
                    t = problem.to[e] - there
                    flow = weight * problem.probability[e]
                    off[coupling + t] -= flow
                    row = layout[h + 1].diag_at + t * m
                    for f in range(e, problem.at[b + 1]):
                        diag[row + problem.to[f] - there] += flow * problem.probability[f]


@inner_kernel
def certify(
    problem: _Problem, memory: _Memory, log_prior: Floats, cost: Floats, log_q: Floats, policy: Floats
) -> tuple[float, float, float]:
    """Roll the policy of the dual's masses forward, so that flow holds exactly; (value, gap, residual)."""
    r, mass, outflow, reached = memory.r, memory.q, memory.outflow, memory.inflow
    fill(reached, 0.0)
    reached[0] = 1.0
    value, gap, residual = 0.0, 0.0, 0.0
    for s in range(reached.size):
        first, end = s * problem.n_actions, (s + 1) * problem.n_actions
        if not problem.mass[s] > 0.0:
            fill(log_q[first:end], -np.inf)
            continue
        away = np.log(reached[s] / outflow[s])
        duals = 0.0
        for b in range(first, end):
            policy[b] = mass[b] / outflow[s]
            q = reached[s] * policy[b]
            if problem.roots:
                log_q[b] = away - 2.0 * np.log(r[b])
                duals += 1.0 / r[b]
            else:
                log_q[b] = log_prior[b] - r[b] + away
            if q > 0.0:
                value += q * cost[b] - 2.0 * np.sqrt(q) if problem.roots else q * (cost[b] - r[b] + away)
            for e in range(problem.at[b], problem.at[b + 1]):
                reached[problem.to[e]] += q * problem.probability[e]
        gap += duals * np.expm1(0.5 * away) ** 2 if problem.roots else reached[s] * (np.expm1(-away) + away)
        residual = max(residual, abs(away))
    return value, gap, residual
