"""The mirror step whose divergence compares policies, not occupancies: one backward pass, exact for every set.

Let D(q || ref) = sum_b q_b ln(pi_q(a | s) / ref(a | s)), the divergence of policies weighted by the occupancy.  The
minimum of <q, cost> + D(q || ref) over the occupancy measures of a product of row sets is V(s_1) of

    m(s, a) = min over the row set of p.V  (0 in the last layer of decisions),
    V(s) = -ln sum_a ref(a | s) exp(-cost(s, a) - m(s, a)),

and its minimiser the occupancy measure of pi(a | s) = ref(a | s) exp(V(s) - cost(s, a) - m(s, a)) under the rows that
attain m.  Why: by flow conservation every q of the set, with rows P_b, satisfies

    <q, cost> + D(q || ref)  =  V(s_1) + sum_b q_b (P_b.V - m_b) + sum_b q_b ln(pi_q / pi)_b,

and neither sum is ever negative.  ``ref`` need not be normalised.  The passes below work with W = -V.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel, kernel
from advmdp.confidence import ConfidenceSet, KnownKernels
from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import Rows, row_begin, row_end
from advmdp.solvers.certificate import ROW_ROUNDING
from advmdp.solvers.layout import fill, view1, view2
from advmdp.solvers.problem import name_pair, require_rows
from advmdp.solvers.row_sets import KNOWN, RowData, layer_means, row_data, split_tables
from advmdp.solvers.tridiagonal import dot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# log q(s) of a state that the minimising rows do not reach: below all floating-point numbers, so that q is zero, and
# finite, so that log q still tells its policy.
UNREACHED = -1000.0


class CertifiedOccupancy(NamedTuple):
    """An occupancy measure of the set, flat over pairs, and what it proves about itself.

    ``value``, the objective there, exceeds the minimum by at most ``gap``.  ``residual`` bounds the error of the
    equation for ln pi, at all pairs; it is infinite where ``kernels`` are not in the set.
    """

    q: Floats
    log_q: Floats
    kernels: Floats  # the entries of all layers but the last, whose rows are ones; ConditionalStep.kernels has tables
    value: float
    gap: float
    residual: float


@dataclass(eq=False)
class ConditionalStep:
    """The new policy, flat over pairs in the order of tables (S_h, A), and the minimum.

    ``value`` is V(s_1).  ``log_policy`` is meaningful where the policy has underflowed.  ``confidence_set``,
    ``log_reference`` and ``cost`` are those of the call, not copies; ``potential`` is -V of all states, flat.
    """

    confidence_set: ConfidenceSet
    log_reference: Floats
    cost: Floats
    policy: Floats
    log_policy: Floats
    potential: Floats
    value: float

    @property
    def gap(self) -> float:
        """The duality gap of :attr:`occupancy`."""
        return self.occupancy.gap

    @cached_property
    def occupancy(self) -> CertifiedOccupancy:
        """The occupancy measure of the new policy under the minimising rows: a forward pass, when first asked for."""
        return certified_occupancy(self, self.log_policy)

    @property
    def kernels(self) -> list[Any]:
        """The rows that :attr:`occupancy` comes from, as tables, sparse where the set is."""
        return split_tables(self.confidence_set, self.occupancy.kernels)


def conditional_step(confidence_set: ConfidenceSet, log_reference: Floats, cost: Floats) -> ConditionalStep:
    """argmin over occupancy measures q of the set of <q, cost> + sum q ln(pi_q / reference), as a policy.

    Flat vectors over pairs in the order of tables (S_h, A).  The reference need not be normalised; an action whose
    ``log_reference`` is -inf keeps the probability zero, and every state needs another one.  Costs are finite, of any
    sign.  A state that no kernel of the set reaches keeps its reference.  Raises ``InvalidMDPError`` for other
    vectors, and for a set with an empty pair.

    Examples
    --------
    >>> from advmdp.confidence import BoxSet
    >>> centre = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]  # layers 1-2-1, two actions
    >>> boxes = BoxSet([c - 0.1 for c in centre], [c + 0.1 for c in centre])
    >>> step = conditional_step(boxes, np.log(np.full(6, 0.5)), np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]))
    >>> step.policy.round(3).tolist(), round(step.value, 3)
    ([0.5, 0.5, 0.269, 0.731, 0.5, 0.5], 0.152)
    >>> step.occupancy.gap < 1e-12
    True
    """
    n_actions, reachable = confidence_set.n_actions, confidence_set.flat_reachable
    states = reachable.size
    pairs = (states - 1) * n_actions
    log_reference = np.ascontiguousarray(log_reference, dtype=np.float64)
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if not log_reference.shape == cost.shape == (pairs,):
        raise InvalidMDPError(
            f"log_reference has shape {log_reference.shape} and cost {cost.shape}; this set needs ({pairs},)"
        )
    memory = np.empty(states + 2 * pairs + n_actions * max(confidence_set.layer_sizes))
    sizes = confidence_set.size_array
    if isinstance(confidence_set, KnownKernels) and not confidence_set.sparse:
        rows = confidence_set.rows
        W = soft_backward_known(rows.values, rows.places, sizes, n_actions, reachable, log_reference, cost, memory)
    else:
        W = soft_backward(row_data(confidence_set), sizes, n_actions, reachable, log_reference, cost, memory)
    if not abs(W) < np.inf:
        _explain(confidence_set, log_reference, cost)
    potential, policy, log_policy = memory[:states], memory[states : states + pairs], memory[states + pairs :][:pairs]
    return ConditionalStep(confidence_set, log_reference, cost, policy, log_policy, potential, -W)


def conditional_value(confidence_set: ConfidenceSet, log_reference: Floats, cost: Floats) -> float:
    """V(s_1) alone, the minimum of the step with the arguments of :func:`conditional_step`.

    With the played policy as reference and costs eta y it gives the mixability gap <q, y> - V(s_1) / eta that an
    adaptive step size is made of.
    """
    return conditional_step(confidence_set, log_reference, cost).value


def certified_occupancy(step: ConditionalStep, log_policy: Floats) -> CertifiedOccupancy:
    """Roll any policy, flat in logarithms, forward under the minimising rows of a step, and compare it with V(s_1).

    With a_b = ln pi_b - (ln ref_b - cost_b - m_b + V(s)) the objective exceeds V(s_1) by

        sum_b q_b (P_b.V - m_b) + sum_b q_b (exp(-a_b) - 1 + a_b),

    a sum of non-negative terms: nothing cancels.  Of ellipsoids m_b is a lower bound, so V(s_1) is one as well, and
    the first sum says how far the rows are from attaining it.
    """
    confidence_set = step.confidence_set
    sizes, n_actions = confidence_set.layer_sizes, confidence_set.n_actions
    widest = max(sizes) * n_actions
    kernels = np.empty(confidence_set.n_entries)
    q, log_q = np.empty((2, len(log_policy)))
    value, gap, residual = roll_and_certify(
        row_data(confidence_set), confidence_set.size_array, n_actions, confidence_set.flat_reachable,
        step.log_reference, step.cost, step.potential, log_policy, np.empty((3, widest)), np.empty(sum(sizes)),
        kernels, q, log_q,
    )  # fmt: skip
    return CertifiedOccupancy(q, log_q, kernels, value, gap, residual)


def _explain(confidence_set: ConfidenceSet, log_reference: Floats, cost: Floats) -> None:
    """Raise for what made V no number."""
    require_rows(confidence_set, len(confidence_set.empty_pairs()) > 0)
    n_actions = confidence_set.n_actions
    reached = np.repeat(confidence_set.flat_reachable[:-1], n_actions)
    wrong = reached & ~np.isfinite(cost)
    if wrong.any():
        pair = int(np.argmax(wrong))
        raise InvalidMDPError(f"cost is {cost[pair]} at {name_pair(confidence_set, pair)}; it must be finite")
    wrong = ~(log_reference < np.inf)
    if wrong.any():
        pair = int(np.argmax(wrong))
        raise InvalidMDPError(
            f"log_reference is {log_reference[pair]} at {name_pair(confidence_set, pair)}; it must be below infinity"
        )
    hopeless = (log_reference.reshape(-1, n_actions) == -np.inf).all(axis=1)
    if hopeless.any():
        where = name_pair(confidence_set, int(np.argmax(hopeless)) * n_actions).rsplit(", action", 1)[0]
        raise InvalidMDPError(f"log_reference is -inf for all actions of {where}; one of them must be finite")
    raise InvalidMDPError("costs and log_reference are too large: V(s_1) is beyond floating-point numbers")


# --------------------------------------------------------------------------------------------------------
# Compiled passes


@kernel
def soft_backward(
    data: RowData,
    sizes: Integers,
    n_actions: int,
    reachable: Flags,
    log_reference: Floats,
    cost: Floats,
    memory: Floats,
) -> float:
    """:func:`soft_pass` over any set; ``memory``: W of all states, the policy, its logarithm, and a layer's pairs."""
    states = reachable.size
    pairs = cost.size
    return soft_pass(
        data, sizes, n_actions, reachable, log_reference, cost, view1(memory, 0, states),
        view1(memory, states, pairs), view1(memory, states + pairs, pairs),
        view1(memory, states + 2 * pairs, memory.size - states - 2 * pairs),
    )  # fmt: skip


@kernel
def soft_backward_known(
    kernels: Floats,
    places: Integers,
    sizes: Integers,
    n_actions: int,
    reachable: Flags,
    log_reference: Floats,
    cost: Floats,
    memory: Floats,
) -> float:
    """The same over dense known kernels, with fewer arguments: a small pass takes as long as to hand over a dozen."""
    states = reachable.size
    pairs = cost.size
    none = view1(memory, 0, 0)
    no_rows = view1(sizes, 0, 0)
    rows = Rows(places, no_rows, no_rows, kernels)
    data = RowData(KNOWN, rows, none, none, none, none, no_rows, none, False, 0, no_rows, no_rows, none, none)
    return soft_pass(
        data, sizes, n_actions, reachable, log_reference, cost, view1(memory, 0, states),
        view1(memory, states, pairs), view1(memory, states + pairs, pairs),
        view1(memory, states + 2 * pairs, memory.size - states - 2 * pairs),
    )  # fmt: skip


@inner_kernel
def soft_pass(
    data: RowData,
    sizes: Integers,
    n_actions: int,
    reachable: Flags,
    log_reference: Floats,
    cost: Floats,
    potential: Floats,
    policy: Floats,
    log_policy: Floats,
    means: Floats,
) -> float:
    """W of all states, the policy and its logarithm; W(s_1), or NaN if something is wrong."""
    last = sizes.shape[0] - 2
    state = potential.shape[0] - 1
    block = log_reference.shape[0]
    potential[state] = 0.0
    nothing = view1(means, 0, 0)
    for h in range(last, -1, -1):
        n = sizes[h]
        m = sizes[h + 1]
        N = n * n_actions
        following = view1(potential, state, m)
        state -= n
        block -= N
        if h == last:
            fill(view1(means, 0, N), 0.0)
        else:
            layer_means(data, h, n, n_actions, m, block, view1(reachable, state, n), following, means, nothing)
        here = view1(potential, state, n)
        soft_maxima(
            n_actions, view1(reachable, state, n), view1(log_reference, block, N), view1(cost, block, N), means, here,
            view1(policy, block, N), view1(log_policy, block, N),
        )  # fmt: skip
        for s in range(n):
            if not abs(here[s]) < np.inf:
                return np.nan
            if not reachable[state + s]:
                here[s] = 0.0
    return float(potential[0])


@inner_kernel
def soft_maxima(
    n_actions: int,
    reachable: Flags,
    log_reference: Floats,
    cost: Floats,
    means: Floats,
    potential: Floats,
    policy: Floats,
    log_policy: Floats,
) -> None:
    """``W(s) = ln sum_a ref exp(mean - cost)`` and the policy of a layer; of unreachable states, from ref alone."""
    n = potential.shape[0]
    for s in range(n):
        first = s * n_actions
        largest = -np.inf
        wrong = 0.0
        for a in range(n_actions):
            i = first + a
            exponent = log_reference[i]
            if reachable[s]:
                exponent += means[a * n + s] - cost[i]
                wrong += 0.0 * cost[i]  # an infinite cost is an error even where -inf would do
            log_policy[i] = exponent
            largest = max(largest, exponent)
        total = wrong
        for a in range(n_actions):
            policy[first + a] = np.exp(log_policy[first + a] - largest)
            total += policy[first + a]
        inverse = 1.0 / total
        log_total = largest + np.log(total)
        for a in range(n_actions):
            policy[first + a] *= inverse
            log_policy[first + a] -= log_total
        potential[s] = log_total


@kernel
def roll_and_certify(
    data: RowData,
    sizes: Integers,
    n_actions: int,
    reachable: Flags,
    log_reference: Floats,
    cost: Floats,
    potential: Floats,
    log_policy: Floats,
    work: Floats,
    log_mass: Floats,
    kernels: Floats,
    q: Floats,
    log_q: Floats,
) -> tuple[float, float, float]:
    """(value, gap, residual) of the policy under the rows that attain the means; see :func:`certified_occupancy`."""
    last = sizes.shape[0] - 2
    means = work[0]
    value = 0.0
    gap = 0.0
    residual = 0.0
    state = 0
    block = 0
    entry = 0
    log_mass[0] = 0.0
    for h in range(last + 1):
        n = sizes[h]
        m = sizes[h + 1]
        N = n * n_actions
        following = view1(potential, state + n, m)
        sparse = h < last and data.rows.places[h, 1] >= 0
        start = 0
        size = 0
        if h == last:
            fill(means, 0.0)
        else:
            start = row_begin(data.rows, h, 0, m)
            size = row_end(data.rows, h, N - 1, m) - start
            layer_means(
                data, h, n, n_actions, m, block, view1(reachable, state, n), following, means,
                view1(kernels, entry, size),
            )  # fmt: skip
        for s in range(n):
            mass = log_mass[state + s]
            for a in range(n_actions):
                pair = s * n_actions + a
                i = block + pair
                log_q[i] = (mass if mass > -np.inf else UNREACHED) + log_policy[i]
                q[i] = np.exp(log_q[i])
                mean = means[a * n + s]
                ahead = 0.0
                if h < last:
                    begin = row_begin(data.rows, h, pair, m) - start if sparse else pair * m
                    end = row_end(data.rows, h, pair, m) - start if sparse else begin + m
                    row = view1(kernels, entry + begin, end - begin)
                    off = distribution(row, reachable[state + s])
                    # So written, a row that is no number is outside its set.
                    if not off <= ROW_ROUNDING:
                        residual = np.inf
                    if sparse:
                        shift = start + begin - data.rows.places[h, 2]
                        for t in range(row.shape[0]):
                            ahead += row[t] * following[data.rows.nexts[shift + t]]
                    else:
                        ahead = dot(row, following)
                if not reachable[state + s]:
                    continue
                expected = log_reference[i] - cost[i] + mean - potential[state + s]
                away = log_policy[i] - expected if log_policy[i] > expected or log_policy[i] < expected else 0.0
                if q[i] > 0.0:
                    value += q[i] * (cost[i] + log_policy[i] - log_reference[i])
                    gap += q[i] * (mean - ahead)
                if q[i] > 0.0 and away > -1.0:
                    gap += q[i] * (np.expm1(-away) + away)
                elif mass > -np.inf:
                    gap += np.exp(mass + expected) + (q[i] * (away - 1.0) if q[i] > 0.0 else 0.0)
                residual = max(residual, abs(away))
        if h < last:
            here = view1(log_mass, state, n)
            there = view1(log_mass, state + n, m)
            log_here = view1(log_q, block, N)
            if sparse:
                sparse_log_arrivals(
                    data.rows, h, view1(kernels, entry, size), n_actions, here, log_here, work[1], work[2], there
                )
            else:
                log_arrivals(view2(kernels, entry, N, m), n_actions, here, log_here, work[1], there)
            entry += size
        state += n
        block += N
    return value, gap, residual


@inner_kernel
def distribution(row: Floats, reachable: bool) -> float:
    """Make a row sum to one; by how much it did not.  That of an unreachable state becomes uniform."""
    total = 0.0
    for t in range(row.shape[0]):
        if not reachable:
            row[t] = 1.0 / row.shape[0]
        total += row[t]
    for t in range(row.shape[0]):
        row[t] /= total
    return abs(total - 1.0) if reachable else 0.0


@inner_kernel
def log_arrivals(
    rows: Floats, n_actions: int, log_mass: Floats, log_q: Floats, weight: Floats, arrivals: Floats
) -> None:
    """``arrivals_t = ln sum_b q_b P_b(t)``, also where q underflows; -inf where only unreached states lead."""
    N, m = rows.shape
    for b in range(N):
        weight[b] = np.exp(log_q[b])
    for t in range(m):
        total = 0.0
        for b in range(N):
            total += weight[b] * rows[b, t]
        if total > 1e-200:
            arrivals[t] = np.log(total)
            continue
        arrivals[t] = -np.inf
        for b in range(N):
            if rows[b, t] > 0.0 and log_mass[b // n_actions] > -np.inf:
                arrivals[t] = np.logaddexp(arrivals[t], log_q[b] + np.log(rows[b, t]))


@inner_kernel
def sparse_log_arrivals(
    support: Rows,
    h: int,
    rows: Floats,
    n_actions: int,
    log_mass: Floats,
    log_q: Floats,
    weight: Floats,
    total: Floats,
    arrivals: Floats,
) -> None:
    """The same over the entries of a sparse layer."""
    m = arrivals.shape[0]
    start = row_begin(support, h, 0, m)
    shift = start - support.places[h, 2]
    fill(view1(total, 0, m), 0.0)
    for b in range(log_q.shape[0]):
        weight[b] = np.exp(log_q[b])
        for e in range(row_begin(support, h, b, m) - start, row_end(support, h, b, m) - start):
            total[support.nexts[shift + e]] += weight[b] * rows[e]
    small = False
    for t in range(m):
        arrivals[t] = np.log(total[t]) if total[t] > 1e-200 else -np.inf
        small = small or not total[t] > 1e-200
    if not small:
        return
    for b in range(log_q.shape[0]):
        if log_mass[b // n_actions] > -np.inf:
            for e in range(row_begin(support, h, b, m) - start, row_end(support, h, b, m) - start):
                t = support.nexts[shift + e]
                if not total[t] > 1e-200 and rows[e] > 0.0:
                    arrivals[t] = np.logaddexp(arrivals[t], log_q[b] + np.log(rows[e]))
