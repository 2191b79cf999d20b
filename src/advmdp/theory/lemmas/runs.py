"""Lemmas about a whole run of a learner: q_hat <= u, ERROR, BIAS-I, BIAS-II, REGRET, and Theorem 1.

Runs are on small random worlds with losses that change sides half-way.  Everything that the lemmas speak of is
recorded, the upper occupancy bounds of all states included, and each lemma is a formula on the record.  At the lengths
that can be simulated the worst-case bounds (Lemma 3, Theorem 1) are vacuous: the checks of their parts carry the
evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from advmdp.confidence import BoxSet
from advmdp.episodes import CheckedEpisode, play
from advmdp.layered import FloatArray, IntArray, LinearMixtureMDP
from advmdp.learners.lsuob_reps import LsuobReps
from advmdp.learners.reps import RepsLearner, RepsState
from advmdp.learners.vlsuob_reps import VlsuobReps
from advmdp.occupancy import best_policy, occupancy_measure
from advmdp.solvers import mirror_descent_step, upper_occupancy
from advmdp.theory import bounds
from advmdp.theory.decomposition import covers, later, layer_sums, row_widths
from advmdp.theory.lemmas.base import Check, Ratios, Refutation, scaled
from advmdp.theory.lemmas.coverage import small_world

ZETA = 0.05
EPISODES = 240


@dataclass(frozen=True, eq=False)
class Record:
    """A run, episode by episode; tables are (K, pairs)."""

    mdp: LinearMixtureMDP
    q: FloatArray
    q_hat: FloatArray
    upper: FloatArray
    widths: FloatArray
    losses: FloatArray
    estimates: FloatArray
    #: Flat indices of the visited pairs, (K, H).
    visited: IntArray
    comparator: FloatArray
    step_size: float
    exploration: float
    #: The regret bound that is proved for this learner.
    bound: bounds.Bound
    #: Whether the truth was in the set of every episode.
    covered: bool


class PrintedSetIndex(VlsuobReps):
    """The update of the paper's main text, over the set *before* the last episode (not for use)."""

    def _learn(self, state: RepsState, episode: CheckedEpisode) -> RepsState:
        learned = super()._learn(state, episode)
        step = self.parts.step.advance(state.step, state.set, learned.loss_estimate, state.k)
        return learned._replace(step=step, policy=step.policy)


def record_run(
    learner: RepsLearner, mdp: LinearMixtureMDP, rng: np.random.Generator, bound: bounds.BoundFunction
) -> Record:
    """Play all episodes of a learner and write everything down."""
    layers, episodes = mdp.layers, learner.episodes
    means = rng.random((2, layers.n_pairs))
    halves = np.arange(episodes) >= episodes // 2
    losses = (rng.random((episodes, layers.n_pairs)) < means[halves.astype(int)]).astype(np.float64)
    q, q_hat, upper, widths, estimates = np.empty((5, episodes, layers.n_pairs))
    visited = np.empty((episodes, layers.horizon), dtype=np.int64)
    covered = True
    for k in range(episodes):
        policy, confidence_set = learner.policy, learner.confidence_set
        covered = covered and covers(confidence_set, mdp)
        q[k] = layers.flatten(occupancy_measure(mdp, policy))
        q_hat[k] = layers.flatten(learner.q)
        widths[k] = layers.flatten(row_widths(confidence_set))
        states = upper_occupancy(confidence_set, policy)
        upper[k] = layers.flatten([u[:, None] * pi for u, pi in zip(states, policy, strict=True)])
        episode = play(mdp, policy, layers.split(losses[k]), rng, k)
        learner.update(episode)
        estimates[k] = layers.flatten(learner.loss_estimate)
        pairs = np.asarray(episode.states)[: layers.horizon] * layers.n_actions + np.asarray(episode.actions)
        visited[k] = layers.pair_offsets[:-1] + pairs
    best, _ = best_policy(mdp, layers.split(losses.sum(axis=0)))
    comparator = layers.flatten(occupancy_measure(mdp, best))
    return Record(
        mdp,
        q,
        q_hat,
        upper,
        widths,
        losses,
        estimates,
        visited,
        comparator,
        learner.step_size,
        learner.exploration,
        bound(mdp.n_states, mdp.n_actions, mdp.horizon, episodes, mdp.dim, ZETA, mdp.bound),
        covered,
    )


@lru_cache(maxsize=4)
def records(seed: int, trials: int, radius_scale: float = 1.0) -> tuple[Record, ...]:
    """The runs that all checks of this module share: in turn with the printed, the joint and the LSUOB radius."""
    rng = np.random.default_rng(seed)
    result = []
    for i in range(trials):
        mdp = small_world(rng)
        learner: RepsLearner
        if i % 3 == 2:
            learner = LsuobReps(mdp.model, EPISODES, radius_scale=radius_scale, zeta=ZETA)
            bound: bounds.BoundFunction = bounds.lsuob_reps
        elif i % 3 == 1:
            learner = VlsuobReps(mdp.model, EPISODES, radius="joint", radius_scale=radius_scale, zeta=ZETA)
            bound = bounds.vlsuob_reps_tight
        else:
            learner = VlsuobReps(mdp.model, EPISODES, radius="paper", radius_scale=radius_scale, zeta=ZETA)
            bound = bounds.vlsuob_reps
        result.append(record_run(learner, mdp, rng, bound))
    return tuple(result)


Ratio = Callable[[Record], float | FloatArray]


def _concatenated(ratio: Ratio, chosen: Iterable[Record]) -> FloatArray:
    return np.concatenate([np.atleast_1d(ratio(record)) for record in chosen])


def _of_records(ratio: Ratio) -> Ratios:
    """A lemma as a formula on a record, for every run on which the confidence event happened."""

    def ratios(rng: np.random.Generator, trials: int) -> FloatArray:
        # The records depend on the seed alone, so that the checks share them.
        seed = int(rng.integers(2**32))
        return _concatenated(ratio, (record for record in records(seed, trials) if record.covered))

    return ratios


def _without_the_truth(ratio: Ratio) -> Ratios:
    """The same formula on runs with a fiftieth of the radius, whose sets miss the truth."""

    def ratios(rng: np.random.Generator, trials: int) -> FloatArray:
        seed = int(rng.integers(2**32))
        return _concatenated(ratio, (record for record in records(seed, trials, 0.02) if not record.covered))

    return ratios


# ----------------------------------------------------------------------------------------- q_hat <= u


def occupancy_ratio(record: Record) -> float:
    """max over episodes and states of q_hat_k(s) / u_k(s)."""
    shape = (len(record.q), -1, record.mdp.n_actions)
    return float((record.q_hat.reshape(shape).sum(axis=2) / record.upper.reshape(shape).sum(axis=2)).max())


def _printed_index(rng: np.random.Generator, trials: int) -> FloatArray:
    result = np.empty(trials)
    for i in range(trials):
        mdp = small_world(rng)
        learner = PrintedSetIndex(mdp.model, EPISODES, radius="joint", zeta=ZETA)
        result[i] = occupancy_ratio(record_run(learner, mdp, rng, bounds.vlsuob_reps_tight))
    return result


def _printed_index_refutation() -> Refutation:
    return Refutation(
        "E1",
        "q_hat_{k+1} is taken from Delta(P_k), and q_hat_k <= u_k",
        "a run on a random world (seed 3): some state has q_hat_k(s) = left times u_k(s)",
        float(_printed_index(np.random.default_rng(3), 1)[0]),
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


def _intermediate(share: float) -> Ratio:
    """With that share of the visited widths on the right side; the lemma is about one."""

    def ratio(record: Record) -> float:
        mdp = record.mdp
        visited = share * _visited_width(record)
        width = bounds.expected_width(visited, mdp.horizon, ZETA, layers=mdp.horizon - 1)
        return float(_difference(record).sum()) / bounds.occupancy_difference(width, mdp.n_states)

    return ratio


def _final(record: Record) -> float:
    """Against the occupancy difference that BIAS-I is charged in the worst case."""
    mdp = record.mdp
    S, A, H, K = mdp.n_states, mdp.n_actions, mdp.horizon, len(record.q)
    rest = bounds.bias_one(0.0, S * A, H, K, bounds.step_size(S, A, H, K, ZETA), ZETA)
    return float(_difference(record).sum()) / (dict(record.bound.terms)["BIAS-I"] - rest)


def _final_without_the_first_term(record: Record) -> float:
    mdp = record.mdp
    width = bounds.expected_width(2.0 * (mdp.horizon - 1), mdp.horizon, ZETA, layers=mdp.horizon - 1)
    return float(_difference(record).sum()) / bounds.occupancy_difference(width, mdp.n_states)


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


def _decomposition(record: Record) -> float:
    return abs(sum(terms(record).values()) - regret(record)) / 1e-8


def _decomposition_without_bias_two(record: Record) -> float:
    kept = [value for name, value in terms(record).items() if name != "BIAS-II"]
    return abs(sum(kept) - regret(record)) / 1e-8


def _error(record: Record) -> FloatArray:
    """max over losses of <q_k - q_hat_k, l> over half the widths that one kernel can see, in every episode."""
    later_layers, _ = later(record.mdp.layers)
    largest = np.maximum(record.q - record.q_hat, 0.0).sum(axis=1)
    return np.asarray(largest / (0.5 * _layer_widths(record) @ later_layers))


def _bias_one(bias: float) -> Ratio:
    """With that share of the bias, sum |u - q| + gamma S A K, on the right side; the lemma is about one."""

    def ratio(record: Record) -> float:
        episodes, pairs = record.q.shape
        difference, gamma = bias * float(_difference(record).sum()), bias * record.exploration
        right = bounds.bias_one(difference, pairs, record.mdp.horizon, episodes, gamma, ZETA)
        return terms(record)["BIAS-I"] / right

    return ratio


def _made_anew(record: Record, losses: FloatArray, honesty: float) -> FloatArray:
    """The loss estimates for other losses, and with u = honesty q.

    Two lemmas are about all u >= q.  One is the extreme case, with the largest estimates; with the learner's own u the
    left sides are so small that nothing is tested.
    """
    seen = np.arange(len(record.q))[:, None], record.visited
    estimates = np.zeros_like(losses)
    estimates[seen] = losses[seen] / (honesty * record.q[seen] + record.exploration)
    return estimates


def _bias_two(honesty: float) -> Ratio:
    """Largest after any number of episodes, against the comparator for which the sum is then largest."""

    def ratio(record: Record) -> float:
        mdp = record.mdp
        right = bounds.bias_two(record.q.shape[1], mdp.horizon, record.exploration, ZETA)
        excess = np.cumsum(_made_anew(record, record.losses, honesty) - record.losses, axis=0)
        return max(-best_policy(mdp, mdp.layers.split(-row))[1] for row in excess) / right

    return ratio


def _second_moment(honesty: float) -> Ratio:
    """sum_k sum_{s,a} lhat_k, which is at least sum_k <q_hat_k, lhat_k^2>, for the largest losses."""

    def ratio(record: Record) -> float:
        episodes, pairs = record.q.shape
        horizon = record.mdp.horizon
        left = float(_made_anew(record, np.ones_like(record.losses), honesty).sum())
        return left / bounds.second_moment(pairs, horizon, episodes, record.exploration, ZETA)

    return ratio


def _mirror_descent(divergence: float) -> Ratio:
    """Against the best policy for the *estimated* losses, the comparator that is hardest to beat.

    With that share of the initial divergence; the lemma is about one.
    """

    def ratio(record: Record) -> float:
        mdp = record.mdp
        _, best = best_policy(mdp, mdp.layers.split(record.estimates.sum(axis=0)))
        left = _inner(record.q_hat, record.estimates) - best
        initial = divergence * bounds.initial_divergence(mdp.layer_sizes, mdp.n_actions)
        return left / bounds.mirror_descent(initial, record.step_size, _inner(record.q_hat, record.estimates**2))

    return ratio


def _theorem(record: Record) -> float:
    return regret(record) / record.bound.value


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


def _one_good_path(start: bounds.Entropy | None) -> Ratios:
    """Both entropies in turn, against the divergence of their own start, or of the given one for both."""

    def ratios(rng: np.random.Generator, trials: int) -> FloatArray:
        result = np.empty(trials)
        for i in range(trials):
            entropy: bounds.Entropy = "pairs" if i % 2 else "triples"
            sizes = (1, *(int(n) for n in rng.integers(3, 6, size=2)), 1)
            eta = float(rng.uniform(0.02, 0.1))
            left = one_good_path(entropy, sizes, eta, int(20.0 / eta))
            initial = bounds.initial_divergence(sizes, 2, start or entropy)
            result[i] = left / bounds.mirror_descent(initial, eta, left)
        return result

    return ratios


RUNS = 18


def _check(
    name: str, statement: str, ratio: Ratio, control: str, control_ratios: Ratios, failure: float = 0.0
) -> Check:
    return Check(name, statement, _of_records(ratio), control, control_ratios, RUNS, failure)


OUTSIDE = "a fiftieth of the radius: sets without the truth"

CHECKS = (
    Check(
        "q_hat <= u",
        "q_hat_k(s) <= u_k(s) for all k and s, with q_hat_{k+1} from Delta(P_{k+1})",
        _of_records(occupancy_ratio),
        "q_hat_{k+1} from Delta(P_k), as in the paper's main text",
        _printed_index,
        RUNS,
        refutation=_printed_index_refutation,
    ),
    _check(
        "Lemma 5, first step: telescoped kernels",
        "sum_{s,a} |u_k - q_k| <= (1/2) sum_{m<h} S_h sum_{layer m} q_k e_k in every episode, e_k the l1 width",
        _first_step,
        "S_h replaced by one, as if one kernel served all targets",
        _of_records(_first_step_one_state),
    ),
    _check(
        "Lemma 5: occupancy difference, intermediate",
        "sum_k sum_{s,a} |u_k - q_k| <= S sum_k sum_m e_k(visited) + 4 S (H-1) log(H/zeta)",
        _intermediate(1.0),
        "without the visited widths",
        _of_records(_intermediate(0.0)),
        failure=ZETA,
    ),
    _check(
        "Lemma 3: occupancy difference, final",
        "sum_k sum_{s,a} |u_k - q_k| <= 2 beta S sqrt(2 d H S K log(.)) + lower order (docs/theory.md); a worst case, "
        "far from attained in runs of this length",
        _final,
        "the lower order alone",
        _of_records(_final_without_the_first_term),
        failure=2.0 * ZETA,
    ),
    _check(
        "Lemma 6: ERROR",
        "<q_k - q_hat_k, l> <= (1/2) sum_m (H-m) sum_{layer m} q_k e_k in every episode, for all losses l in [0, 1]",
        _error,
        OUTSIDE,
        _without_the_truth(_error),
    ),
    _check(
        "Lemma 7: BIAS-I",
        "sum_k <q_hat_k, l_k - lhat_k> <= sum_k sum_{s,a} |u_k - q_k| + gamma S A K + H sqrt(K log(1/zeta) / 2)",
        _bias_one(1.0),
        "Hoeffding's term alone, as if the estimates were unbiased",
        _of_records(_bias_one(0.0)),
        failure=ZETA,
    ),
    _check(
        "Lemma 10: BIAS-II",
        "sum_k <q*, lhat_k - l_k> <= H log(S A / zeta) / (2 gamma) for all q*, K at once, with u = q, the least one",
        _bias_two(1.0),
        "u = q/3, less than the truth",
        _of_records(_bias_two(1.0 / 3.0)),
        failure=ZETA,
    ),
    _check(
        "Lemma 11, first step: mirror descent in runs",
        "sum_k <q_hat_k - q*, lhat_k> <= sum_h log(S_h A) / eta + (eta/2) sum_k <q_hat_k, lhat_k^2>, any q*",
        _mirror_descent(1.0),
        "without the first term",
        _of_records(_mirror_descent(0.0)),
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
        "sum_k <q_hat_k, lhat_k^2> <= sum lhat <= S A K + H log(H/zeta) / (2 gamma), with u = q and losses one",
        _second_moment(1.0),
        "u = q/10, less than the truth",
        _of_records(_second_moment(0.1)),
        failure=ZETA,
    ),
    Check(
        "Decomposition of the regret",
        "|REGRET + ERROR + BIAS-I + BIAS-II - regret| <= 1e-8",
        _of_records(_decomposition),
        "without BIAS-II",
        _of_records(_decomposition_without_bias_two),
        RUNS,
    ),
    _check(
        "Theorem 1, constants included",
        "regret <= the bound of the learner that ran (vlsuob_reps, vlsuob_reps_tight, lsuob_reps); all are above H K "
        "here, so that no run could violate them: the evidence is in the checks of the parts",
        _theorem,
        "right side times 1e-5: shows that the regrets are positive, no more",
        scaled(_of_records(_theorem), 1e-5),
        failure=5.0 * ZETA,
    ),
)
