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

from advmdp._arrays import Flags, Floats, Integers
from advmdp._compiled import inner_kernel, kernel
from advmdp.confidence import ConfidenceSet
from advmdp.errors import InvalidMDPError
from advmdp.layered.rows import Rows, next_state, row_begin, row_end
from advmdp.rows.balls import ROW_ROUNDING
from advmdp.rows.layer import Layer, entries_of, extreme_means, list_flagged, mean_of_row, rescale
from advmdp.solvers.problem import name_pair, require_rows

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
        return self.confidence_set.tables(self.occupancy.kernels)


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
    widest = max(confidence_set.layer_sizes)
    memory = np.empty(states + 2 * pairs + n_actions * widest)
    W = soft_backward(
        confidence_set.compiled_rows(), confidence_set.size_array, n_actions, reachable, log_reference, cost,
        np.empty(widest, dtype=np.int64), memory,
    )  # fmt: skip
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
        confidence_set.compiled_rows(), confidence_set.size_array, n_actions, confidence_set.flat_reachable,
        step.log_reference, step.cost, step.potential, log_policy, np.empty(max(sizes), dtype=np.int64),
        np.empty((2, widest)), np.empty(sum(sizes)), kernels, q, log_q,
    )  # fmt: skip
    return CertifiedOccupancy(q, log_q, kernels, value, gap, residual)


def _explain(confidence_set: ConfidenceSet, log_reference: Floats, cost: Floats) -> None:
    """Raise for what made V no number."""
    require_rows(confidence_set, len(confidence_set.empty_pairs()) > 0)
    n_actions = confidence_set.n_actions
    reached = np.repeat(confidence_set.flat_reachable[:-1], n_actions)
    for name, given, wrong, right in (
        ("cost", cost, reached & ~np.isfinite(cost), "it must be finite"),
        ("log_reference", log_reference, ~(log_reference < np.inf), "it must be below infinity"),
    ):
        if wrong.any():
            pair = int(np.argmax(wrong))
            raise InvalidMDPError(f"{name} is {given[pair]} at {name_pair(confidence_set, pair)}; {right}")
    hopeless = (log_reference.reshape(-1, n_actions) == -np.inf).all(axis=1)
    if hopeless.any():
        where = name_pair(confidence_set, int(np.argmax(hopeless)) * n_actions).rsplit(", action", 1)[0]
        raise InvalidMDPError(f"log_reference is -inf for all actions of {where}; one of them must be finite")
    raise InvalidMDPError("costs and log_reference are too large: V(s_1) is beyond floating-point numbers")


# --------------------------------------------------------------------------------------------------------
# Compiled passes


@kernel
def soft_backward(
    data: Any, sizes: Integers, n_actions: int, reachable: Flags, log_reference: Floats, cost: Floats,
    states: Integers, memory: Floats,
) -> float:  # fmt: skip
    """W of all states, the policy, its logarithm, one after the other in ``memory``, which has room for the means of a
    layer beyond; W(s_1), or NaN if something is wrong."""
    state = reachable.size - 1
    pairs = cost.size
    potential = memory[: state + 1]
    policy = memory[state + 1 : state + 1 + pairs]
    log_policy = memory[state + 1 + pairs : state + 1 + 2 * pairs]
    means = memory[state + 1 + 2 * pairs :]
    last = sizes.shape[0] - 2
    potential[state] = 0.0
    for h in range(last, -1, -1):
        following = potential[state : state + sizes[h + 1]]
        state -= sizes[h]
        layer = Layer(h, sizes[h], n_actions, sizes[h + 1], state * n_actions)
        own = slice(layer.block, layer.block + layer.n * n_actions)
        here, reached = potential[state : state + layer.n], reachable[state : state + layer.n]
        if h == last:
            means[:] = 0.0
        else:
            extreme_means(data, layer, states, list_flagged(reached, states), following, means, means[:0])
        soft_maxima(n_actions, reached, log_reference[own], cost[own], means, here, policy[own], log_policy[own])
        for s in range(layer.n):
            if not abs(here[s]) < np.inf:
                return np.nan
            here[s] = here[s] if reached[s] else 0.0
    return float(potential[0])


@inner_kernel
def soft_maxima(
    n_actions: int, reachable: Flags, log_reference: Floats, cost: Floats, means: Floats, potential: Floats,
    policy: Floats, log_policy: Floats,
) -> None:  # fmt: skip
    """``W(s) = ln sum_a ref exp(mean - cost)`` and the policy of a layer; of unreachable states, from ref alone."""
    for s in range(potential.shape[0]):
        first = s * n_actions
        largest = -np.inf
        wrong = 0.0
        for i in range(first, first + n_actions):
            exponent = log_reference[i]
            if reachable[s]:
                exponent += means[i] - cost[i]
                wrong += 0.0 * cost[i]  # an infinite cost is an error even where -inf would do
            log_policy[i] = exponent
            largest = max(largest, exponent)
        total = wrong
        for i in range(first, first + n_actions):
            policy[i] = np.exp(log_policy[i] - largest)
            total += policy[i]
        inverse = 1.0 / total
        log_total = largest + np.log(total)
        for i in range(first, first + n_actions):
            policy[i] *= inverse
            log_policy[i] -= log_total
        potential[s] = log_total


@kernel
def roll_and_certify(
    data: Any, sizes: Integers, n_actions: int, reachable: Flags, log_reference: Floats, cost: Floats,
    potential: Floats, log_policy: Floats, states: Integers, work: Floats, log_mass: Floats, kernels: Floats,
    q: Floats, log_q: Floats,
) -> tuple[float, float, float]:  # fmt: skip
    """(value, gap, residual) of the policy under the rows that attain the means; see :func:`certified_occupancy`."""
    last = sizes.shape[0] - 2
    means = work[0]
    value = gap = residual = 0.0
    state = entry = start = stop = 0
    log_mass[0] = 0.0
    for h in range(last + 1):
        m = sizes[h + 1]
        layer = Layer(h, sizes[h], n_actions, m, state * n_actions)
        there = state + layer.n
        following = potential[there : there + m]
        if h < last:
            start, _, stop = entries_of(data.rows, layer, 0, layer.n)
        rows = kernels[entry : entry + stop - start]
        if h < last:
            count = list_flagged(reachable[state:there], states)
            extreme_means(data, layer, states, count, following, means, rows)
        for pair in range(layer.n * n_actions):
            s = state + pair // n_actions
            mass = log_mass[s]
            i = layer.block + pair
            log_q[i] = (mass if mass > -np.inf else UNREACHED) + log_policy[i]
            q[i] = np.exp(log_q[i])
            mean = 0.0
            ahead = 0.0
            if h < last:
                begin = row_begin(data.rows, h, pair, m)
                row = rows[begin - start : row_end(data.rows, h, pair, m) - start]
                for t in range(0 if reachable[s] else row.shape[0]):
                    row[t] = 1.0
                # So written, a row that is no number is outside its set.
                if not abs(rescale(row) - 1.0) <= ROW_ROUNDING and reachable[s]:
                    residual = np.inf
                mean = means[pair]
                ahead = mean_of_row(data.rows, h, begin, row, following)
            if not reachable[s]:
                continue
            expected = log_reference[i] - cost[i] + mean - potential[s]
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
            own = slice(layer.block, layer.block + layer.n * n_actions)
            arrivals = log_mass[there : there + m]
            log_arrivals(data.rows, h, rows, n_actions, log_mass[state:there], q[own], log_q[own], work[1], arrivals)
            entry += stop - start
        state = there
    return value, gap, residual


@inner_kernel
def log_arrivals(
    support: Rows, h: int, rows: Floats, n_actions: int, log_mass: Floats, q: Floats, log_q: Floats, total: Floats,
    arrivals: Floats,
) -> None:  # fmt: skip
    """``arrivals_t = ln sum_b q_b P_b(t)``, also where q underflows; -inf where only unreached states lead."""
    m = arrivals.shape[0]
    start = row_begin(support, h, 0, m)
    total[:m] = 0.0
    for b in range(log_q.shape[0]):
        begin = row_begin(support, h, b, m)
        for e in range(begin, row_end(support, h, b, m)):
            total[next_state(support, h, begin, e)] += q[b] * rows[e - start]
    small = False
    for t in range(m):
        arrivals[t] = np.log(total[t]) if total[t] > 1e-200 else -np.inf
        small = small or not total[t] > 1e-200
    if not small:
        return
    for b in range(log_q.shape[0]):
        if log_mass[b // n_actions] > -np.inf:
            begin = row_begin(support, h, b, m)
            for e in range(begin, row_end(support, h, b, m)):
                t = next_state(support, h, begin, e)
                if not total[t] > 1e-200 and rows[e - start] > 0.0:
                    arrivals[t] = np.logaddexp(arrivals[t], log_q[b] + np.log(rows[e - start]))
