"""Lemmas about a whole run of a learner: q_hat <= u, ERROR, BIAS-I, BIAS-II, REGRET, and Theorem 1.

Each lemma is a formula on the record of a run, in the learner's own numbers.  At the lengths that can be simulated the
worst-case bounds (Lemmas 3 and 5, Theorem 1) are above anything that a learner could do: their checks cannot fail, and
say so.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from advmdp.confidence import BoxSet
from advmdp.layered import FloatArray
from advmdp.occupancy import best_policy
from advmdp.solvers import mirror_descent_step
from advmdp.theory import bounds
from advmdp.theory.decomposition import later, layer_sums
from advmdp.theory.lemmas.base import Check, Ratios, Refutation, family
from advmdp.theory.lemmas.coverage import small_world
from advmdp.theory.lemmas.record import EPISODES, ZETA, Record, record_run, records, wrong_learner, wrong_records

Ratio = Callable[[Record], float | FloatArray]


def of_records(ratio: Ratio, covered: bool | None = True, radius_scale: float = 1.0) -> Ratios:
    """A formula on a record, for every run on which the confidence event happened (or did not; None: every run)."""

    def ratios(rng: np.random.Generator, trials: int) -> FloatArray:
        # The records depend on the seed alone, so that the checks share them.
        found = records(int(rng.integers(2**32)), trials, radius_scale)
        chosen = [np.atleast_1d(ratio(record)) for record in found if covered in (None, record.covered)]
        # Where there are none, no number, which is a violation.
        return np.concatenate(chosen or [np.array([np.nan])])

    return ratios


def of_wrong_learners(ratio: Ratio, *names: str) -> tuple[str, Ratios]:
    """The control of a check of learners, in words and numbers: wrong ones, all of which it must notice.

    One number per world: the largest ratio in the run of the learner that is noticed least.
    """

    def ratios(rng: np.random.Generator, trials: int) -> FloatArray:
        seed = int(rng.integers(2**32))
        runs = [wrong_records(name, seed, min(trials, 2)) for name in names]
        worst = np.array([[np.nan_to_num(ratio(record), nan=np.inf).max() for record in found] for found in runs])
        return np.asarray(worst.min(axis=0))

    return f"wrong learners: {'; '.join(names)}", ratios


# ----------------------------------------------------------------------------------------- q_hat <= u


def occupancy_ratio(record: Record) -> float:
    """max over episodes and states of q_hat_k(s) / u_k(s)."""
    shape = (len(record.q), -1, record.mdp.n_actions)
    return float((record.q_hat.reshape(shape).sum(axis=2) / record.upper.reshape(shape).sum(axis=2)).max())


PRINTED_INDEX = "steps over the set before the episode"


def _printed_index_refutation() -> Refutation:
    rng = np.random.default_rng(3)
    mdp = small_world(rng)
    learner = wrong_learner(PRINTED_INDEX, mdp, EPISODES, simplex=False)
    return Refutation(
        "E1",
        "q_hat_{k+1} is taken from Delta(P_k), and q_hat_k <= u_k",
        "a run on a random world (seed 3): some state has q_hat_k(s) = left times u_k(s)",
        occupancy_ratio(record_run(learner, mdp, rng, bounds.vlsuob_reps_tight)),
        1.0,
    )


# --------------------------------------------------------------------------- how far occupancies differ


def _layer_widths(record: Record) -> FloatArray:
    """sum over the pairs of each layer of q_k e_k, (K, H)."""
    return layer_sums(record.mdp.layers, record.q * record.widths)


def _visited_width(record: Record) -> float:
    return float(np.take_along_axis(record.widths, record.visited, axis=1).sum())


def _difference(record: Record) -> FloatArray:
    """sum over pairs of |u_k - q_k|, per episode."""
    return np.asarray(np.abs(record.upper - record.q).sum(axis=1))


def _first_step(record: Record) -> FloatArray:
    _, later_states = later(record.mdp.layers)
    return np.asarray(_difference(record) / (0.5 * _layer_widths(record) @ later_states))


def _first_step_one_state(record: Record) -> FloatArray:
    later_layers, _ = later(record.mdp.layers)
    return np.asarray(_difference(record) / (0.5 * _layer_widths(record) @ later_layers))


def _largest_difference(record: Record) -> FloatArray:
    """The same for the worst u that is at most pi(a | s)."""
    return np.asarray(np.maximum(record.q, record.policies - record.q).sum(axis=1))


def _intermediate(difference: Callable[[Record], FloatArray]) -> Ratio:
    def ratio(record: Record) -> float:
        mdp = record.mdp
        width = bounds.expected_width(_visited_width(record), mdp.horizon, ZETA, layers=mdp.horizon - 1)
        return float(difference(record).sum()) / bounds.occupancy_difference(width, mdp.n_states)

    return ratio


def _final(difference: Callable[[Record], FloatArray]) -> Ratio:
    """Against the occupancy difference that BIAS-I is charged in the worst case."""

    def ratio(record: Record) -> float:
        mdp = record.mdp
        S, A, H, K = mdp.n_states, mdp.n_actions, mdp.horizon, len(record.q)
        rest = bounds.bias_one(0.0, S * A, H, K, record.tuned, ZETA)
        return float(difference(record).sum()) / (dict(record.bound.terms)["BIAS-I"] - rest)

    return ratio


# ------------------------------------------------------------------------------- the parts of the regret


def _inner(left: FloatArray, right: FloatArray) -> float:
    return float(np.einsum("kp,kp->", left, right))


def terms(record: Record) -> dict[str, float]:
    """The four parts of the regret, each summed episode by episode."""
    comparator = np.broadcast_to(record.comparator, record.q.shape)
    return {
        "REGRET": _inner(record.q_hat - comparator, record.estimates),
        "ERROR": _inner(record.q - record.q_hat, record.losses),
        "BIAS-I": _inner(record.q_hat, record.losses - record.estimates),
        "BIAS-II": _inner(comparator, record.estimates - record.losses),
    }


def regret(record: Record) -> float:
    """sum_k <q_k - q*, l_k>."""
    return _inner(record.q - record.comparator, record.losses)


def _error(record: Record) -> FloatArray:
    """max over losses of <q_k - q_hat_k, l> over half the widths that one kernel can see, in every episode."""
    later_layers, _ = later(record.mdp.layers)
    largest = np.maximum(record.q - record.q_hat, 0.0).sum(axis=1)
    return np.asarray(largest / (0.5 * _layer_widths(record) @ later_layers))


def _bias_one(bias: float) -> Ratio:
    """With that share of the bias, sum |u - q| + gamma S A K, on the right side; the lemma is about one."""

    def ratio(record: Record) -> float:
        episodes, pairs = record.q.shape
        difference, gamma = bias * float(_difference(record).sum()), bias * record.tuned
        right = bounds.bias_one(difference, pairs, record.mdp.horizon, episodes, gamma, ZETA)
        return terms(record)["BIAS-I"] / right

    return ratio


def _bias_two(record: Record) -> float:
    """Largest after any number of episodes, against the comparator for which the sum is then largest."""
    mdp = record.mdp
    right = bounds.bias_two(record.q.shape[1], mdp.horizon, record.tuned, ZETA)
    excess = np.cumsum(record.estimates - record.losses, axis=0)
    return max(-best_policy(mdp, mdp.layers.split(-row))[1] for row in excess) / right


def _second_moment(record: Record) -> float:
    """The larger of sum_k <q_hat_k, lhat_k^2> and sum_k sum_{s,a} lhat_k."""
    episodes, pairs = record.q.shape
    left = max(_inner(record.q_hat, record.estimates**2), float(record.estimates.sum()))
    return left / bounds.second_moment(pairs, record.mdp.horizon, episodes, record.tuned, ZETA)


def _mirror_descent(record: Record) -> float:
    """Against the best policy for the *estimated* losses, the comparator that is hardest to beat."""
    mdp = record.mdp
    _, best = best_policy(mdp, mdp.layers.split(record.estimates.sum(axis=0)))
    left = _inner(record.q_hat, record.estimates) - best
    initial = bounds.initial_divergence(mdp.layer_sizes, mdp.n_actions)
    return left / bounds.mirror_descent(initial, record.tuned, _inner(record.q_hat, record.estimates**2))


# ------------------------------------------------------------------------ mirror descent close to its bound


def one_good_path(entropy: bounds.Entropy, layer_sizes: tuple[int, ...], eta: float, steps: int) -> float:
    """REGRET over all kernels with losses zero on one path and one elsewhere.

    Nothing but the start keeps the mirror step from the path, so that the initial divergence is used up.  The path
    costs nothing and losses are their own squares: this is sum_k <q_hat_k, lhat_k^2> as well.
    """
    n_actions = 2
    shapes = [(n, n_actions, m) for n, m in pairwise(layer_sizes)]
    every_kernel = BoxSet([np.zeros(shape) for shape in shapes], [np.ones(shape) for shape in shapes])
    losses = [np.ones(shape[:2]) for shape in shapes]
    for table in losses:
        table[0, 0] = 0.0
    q = [np.full(shape[:2], 1.0 / (shape[0] * n_actions)) for shape in shapes]
    kernels = [np.full(shape, 1.0 / shape[2]) for shape in shapes]
    log_q, warm, total = [np.log(table) for table in q], None, 0.0
    for _ in range(steps):
        total += sum(float((mass * loss).sum()) for mass, loss in zip(q, losses, strict=True))
        step = mirror_descent_step(
            every_kernel, q, losses, eta, log_q=log_q, entropy=entropy, kernels=kernels, warm=warm
        )
        q, log_q, warm = step.q, step.log_q, step.warm
        if entropy == "triples":
            kernels = step.kernels
    return total


@family
def _one_good_path(rng: np.random.Generator, trials: int, start: bounds.Entropy | None) -> FloatArray:
    """Both entropies in turn, against the divergence of their own start, or of the given one for both."""
    result = np.empty(trials)
    for i in range(trials):
        entropy: bounds.Entropy = "pairs" if i % 2 else "triples"
        sizes = (1, *(int(n) for n in rng.integers(3, 6, size=2)), 1)
        eta = float(rng.uniform(0.02, 0.1))
        left = one_good_path(entropy, sizes, eta, int(20.0 / eta))
        initial = bounds.initial_divergence(sizes, 2, start or entropy)
        result[i] = left / bounds.mirror_descent(initial, eta, left)
    return result


RUNS = 18


def _check(
    name: str,
    statement: str,
    ratio: Ratio,
    control: str,
    control_ratios: Ratios,
    failure: float = 0.0,
    vacuous: bool = False,
) -> Check:
    return Check(name, statement, of_records(ratio), control, control_ratios, RUNS, failure, vacuous=vacuous)


LARGEST = "the worst u of all that are at most pi(a|s)"
OUTSIDE = "a fiftieth of the radius: sets without the truth"

CHECKS = (
    Check(
        "q_hat <= u",
        "q_hat_k(s) <= u_k(s) for all k and s, with q_hat_{k+1} from Delta(P_{k+1})",
        of_records(occupancy_ratio),
        *of_wrong_learners(occupancy_ratio, PRINTED_INDEX),
        RUNS,
        refutation=_printed_index_refutation,
    ),
    _check(
        "Lemma 5, first step: telescoped kernels",
        "sum_{s,a} |u_k - q_k| <= (1/2) sum_{m<h} S_h sum_{layer m} q_k e_k in every episode, e_k the l1 width",
        _first_step,
        "S_h replaced by one, as if one kernel served all targets",
        of_records(_first_step_one_state),
    ),
    _check(
        "Lemma 5: occupancy difference, intermediate",
        "sum_k sum_{s,a} |u_k - q_k| <= S sum_k sum_m e_k(visited) + 4 S (H-1) log(H/zeta)",
        _intermediate(_difference),
        LARGEST,
        of_records(_intermediate(_largest_difference)),
        failure=ZETA,
        vacuous=True,
    ),
    _check(
        "Lemma 3: occupancy difference, final",
        "sum_k sum_{s,a} |u_k - q_k| <= 2 beta S sqrt(2 d H S K log(.)) + lower order (docs/theory.md)",
        _final(_difference),
        LARGEST,
        of_records(_final(_largest_difference)),
        failure=2.0 * ZETA,
        vacuous=True,
    ),
    _check(
        "Lemma 6: ERROR",
        "<q_k - q_hat_k, l> <= (1/2) sum_m (H-m) sum_{layer m} q_k e_k in every episode, for all losses l in [0, 1]",
        _error,
        OUTSIDE,
        of_records(_error, covered=False, radius_scale=0.02),
    ),
    _check(
        "Lemma 7: BIAS-I",
        "sum_k <q_hat_k, l_k - lhat_k> <= sum_k sum_{s,a} |u_k - q_k| + gamma S A K + H sqrt(K log(1/zeta) / 2)",
        _bias_one(1.0),
        "Hoeffding's term alone, as if the estimates were unbiased",
        of_records(_bias_one(0.0)),
        failure=ZETA,
    ),
    _check(
        "Lemma 10: BIAS-II",
        "sum_k <q*, lhat_k - l_k> <= H log(S A / zeta) / (2 gamma) for all q* and K at once, lhat the learner's own",
        _bias_two,
        *of_wrong_learners(_bias_two, "no u in the estimates"),
        failure=ZETA,
    ),
    _check(
        "Lemma 11, first step: mirror descent in runs",
        "sum_k <q_hat_k - q*, lhat_k> <= sum_h log(S_h A) / eta + (eta/2) sum_k <q_hat_k, lhat_k^2>, any q*",
        _mirror_descent,
        *of_wrong_learners(_mirror_descent, "steps uphill"),
    ),
    Check(
        "Lemma 11, first step: mirror descent close to its bound",
        "sum_k <q_hat_k - q*, lhat_k> <= D / eta + (eta/2) sum_k <q_hat_k, lhat_k^2>, D = sum_h log(S_h A), for the "
        "entropy of triples sum_h log(S_h A S_{h+1}); losses zero on one path and one elsewhere",
        _one_good_path(None),
        "the D of pairs for both entropies",
        _one_good_path("pairs"),
        8,
    ),
    _check(
        "Lemma 11, second step: second moment",
        "sum_k <q_hat_k, lhat_k^2> <= sum lhat <= S A K + H log(H/zeta) / (2 gamma), lhat the learner's own",
        _second_moment,
        *of_wrong_learners(_second_moment, "no u in the estimates"),
        failure=ZETA,
    ),
    _check(
        "Theorem 1, constants included",
        "regret <= the bound of the learner that ran (vlsuob_reps, vlsuob_reps_tight, lsuob_reps)",
        lambda record: regret(record) / record.bound.value,
        "the largest regret of all, H K",
        of_records(lambda record: record.mdp.horizon * len(record.q) / record.bound.value),
        failure=5.0 * ZETA,
        vacuous=True,
    ),
)
