"""Relative entropy policy search with upper occupancy bounds: the loop that UOB-, LSUOB- and VLSUOB-REPS share.

An algorithm is this loop with four parts: what it keeps of the data (an estimator), which kernels it then deems
possible (a set), how it estimates losses (optimistically, by dividing by an upper occupancy bound), and the entropy of
its mirror-descent step.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from math import log, sqrt
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.confidence import BoxSet, ConfidenceSet
from advmdp.episodes import CheckedEpisode
from advmdp.errors import InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, Layers, TabularModel
from advmdp.learners.base import Learner
from advmdp.occupancy import condition
from advmdp.solvers import MirrorStep, mirror_descent_step
from advmdp.solvers.occupancy_bounds import visited_upper_occupancy

Estimator = TypeVar("Estimator")

#: An empty set is enlarged to this much more than the smallest multiple of its radius that is not empty.
ENLARGEMENT = 1.01


class RepsLearner(Learner, Generic[Estimator]):
    """Algorithm 1 of the paper, in the order that its proof needs.

    With q_k the learner's occupancy measure, pi_k its policy and P_k its set of kernels, after episode k:

    1. u_k(s, a) = pi_k(a | s) max_{P in P_k} q^{P, pi_k}(s), at the visited pairs;
    2. lhat_k(s, a) = l_k(s, a) / (u_k(s, a) + gamma) at the visited pairs, zero elsewhere;
    3. the transitions of episode k enter the estimator, which gives P_{k+1};
    4. q_{k+1} = argmin over q in Delta(P_{k+1}) of eta <q, lhat_k> + D(q || q_k);
    5. pi_{k+1}(a | s) = q_{k+1}(s, a) / q_{k+1}(s).

    P_1 holds all kernels, and q_1 is uniform in each layer.  The main text of the paper prints P_k in step 4; with
    it q_{k+1} <= u_{k+1} fails, on which the analysis rests.
    """

    def __init__(
        self,
        problem: TabularModel,
        episodes: int,
        *,
        eta: float | None,
        gamma: float | None,
        zeta: float,
        entropy: Literal["pairs", "triples"],
        seed: int,
    ) -> None:
        super().__init__(problem, episodes, seed=seed)
        self.eta, self.gamma, self.zeta, self.entropy = eta, gamma, zeta, entropy
        require(0.0 < zeta < 1.0, "zeta", zeta, "a probability in (0, 1)")
        require(eta is None or 0.0 < eta < np.inf, "eta", eta, "a number > 0, or None")
        require(gamma is None or 0.0 <= gamma < np.inf, "gamma", gamma, "a number >= 0, or None")
        require(entropy in ("pairs", "triples"), "entropy", entropy, "'pairs' or 'triples'")

        layers = self._layers
        #: Times that a confidence set was empty and had to be enlarged.
        self.empty_sets = 0
        self._enlargement = 1.0
        #: The last mirror step with its certificate; None before the first update.
        self.last_step: MirrorStep | None = None
        self._loss_estimate = np.zeros(layers.n_pairs)
        self._warm: dict[str, FloatArray] | None = None
        self._log_q, self._kernels = self._uniform_start()
        self._estimator = self._empty_estimator()
        self._set: ConfidenceSet = BoxSet(
            [np.zeros_like(table) for table in self._kernels], [np.ones_like(table) for table in self._kernels]
        )
        self._condition()

    def _uniform_start(self) -> tuple[FloatArray, list[FloatArray]]:
        """log q_1, uniform in each layer, and the kernels that it is the occupancy measure of."""
        sizes, n_actions = self._layers.sizes, self._layers.n_actions
        log_q = np.concatenate([np.full(n * n_actions, -log(n * n_actions)) for n in sizes[:-1]])
        return log_q, [np.full((n, n_actions, m), 1.0 / m) for n, m in itertools.pairwise(sizes)]

    # ------------------------------------------------------------------------- the parts

    @abstractmethod
    def _empty_estimator(self) -> Estimator:
        """The estimator before the first episode."""

    @abstractmethod
    def _estimator_with(self, episode: CheckedEpisode) -> Estimator:
        """The estimator with one more episode."""

    @abstractmethod
    def _set_of(self, estimator: Estimator, k: int) -> ConfidenceSet:
        """P_k, the kernels that k - 1 episodes leave possible, for k >= 2."""

    # -------------------------------------------------------------------------- the loop

    def _learn(self, episode: CheckedEpisode) -> None:
        self._warn_at_the_end()
        estimate = self._estimated_losses(episode)
        estimator = self._estimator_with(episode)
        confidence_set, enlarged = self._non_empty(self._set_of(estimator, self.episodes_seen + 2))
        self._advance(confidence_set, estimate)
        self._estimator, self._set, self._loss_estimate = estimator, confidence_set, estimate
        self.empty_sets += enlarged

    def _advance(self, confidence_set: ConfidenceSet, estimate: FloatArray) -> None:
        """From q_k to q_{k+1} over P_{k+1}, and to its policy."""
        step = mirror_descent_step(
            confidence_set,
            None,
            estimate,
            self.step_size,
            log_q=self._log_q,
            entropy=self.entropy,
            kernels=self._kernels,
            warm=self._warm,
        )
        self._take(step)

    def _estimated_losses(self, episode: CheckedEpisode) -> FloatArray:
        """lhat_k, flat, from the set and the policy that episode k was played with."""
        upper = visited_upper_occupancy(self._set, self._flat_policy, episode.states)
        estimate = np.zeros(self._layers.n_pairs)
        estimate[episode.pairs] = episode.losses / (self._flat_policy[episode.pairs] * upper + self.exploration)
        return estimate

    def _take(self, step: MirrorStep) -> None:
        self.last_step = step
        self._log_q = step.flat.log_q
        self._warm = step.warm
        if self.entropy == "triples":
            self._kernels = step.kernels
        self._condition()

    def _condition(self) -> None:
        """The policy of the current occupancy measure."""
        policy = np.empty_like(self._log_q)
        condition(self._log_q, self._layers.n_actions, policy)
        self._set_policy(policy)

    def _non_empty(self, confidence_set: ConfidenceSet) -> tuple[ConfidenceSet, int]:
        """The set, or (counted) an enlarged one where it is empty, as it is with probability at most zeta."""
        if confidence_set is self._set:  # checked when it was new
            return confidence_set, 0
        multiple = confidence_set.smallest_radius_multiple()
        self._enlargement = 1.0 if multiple <= 1.0 else ENLARGEMENT * multiple
        if multiple <= 1.0:
            return confidence_set, 0
        return confidence_set.enlarged(self._enlargement), 1

    # ------------------------------------------------------------------------ its quantities

    @property
    def step_size(self) -> float:
        """eta; by default sqrt(H log(H S A / zeta) / (K S A)), as in Theorem 1."""
        return self._tuned() if self.eta is None else self.eta

    @property
    def exploration(self) -> float:
        """gamma, the implicit exploration; by default equal to the default eta."""
        return self._tuned() if self.gamma is None else self.gamma

    def _tuned(self) -> float:
        return self._tuned_to(self.episodes)

    def _tuned_to(self, episodes: int) -> float:
        """eta = gamma of Theorem 1 for so many episodes."""
        n_states, n_actions, horizon = self._layers.n_states, self._layers.n_actions, self._layers.horizon
        confidence = log(horizon * n_states * n_actions / self.zeta)
        return sqrt(horizon * confidence / (episodes * n_states * n_actions))

    @property
    def q(self) -> list[FloatArray]:
        """q_k, the occupancy measure behind the policy, under a kernel of the confidence set."""
        return self._layers.split(np.exp(self._log_q))

    @property
    def confidence_set(self) -> ConfidenceSet:
        """P_k, the set that q_k was chosen from."""
        return self._set

    @property
    def loss_estimate(self) -> list[FloatArray]:
        """lhat of the last update (zero before the first)."""
        return self._layers.split(self._loss_estimate)

    # --------------------------------------------------------------------------- persistence

    def _state(self) -> dict[str, Any]:
        return {
            "log_q": self._log_q,
            "kernels": self._kernels if self.entropy == "triples" else None,
            "loss_estimate": self._loss_estimate,
            "warm": self._warm,
            "empty_sets": self.empty_sets,
            "estimator": self._estimator_tree(),
        }

    def _set_state(self, state: dict[str, Any]) -> None:
        self._log_q = checked_log_q(self._layers, state["log_q"])
        self._loss_estimate = self._layers.flat_vector(state["loss_estimate"], "loss_estimate")
        self._warm = checked_warm(state["warm"])
        self.empty_sets = integer(state["empty_sets"], "empty_sets", 0, ValueError)
        if self.entropy == "triples":
            self._kernels = [table.copy() for table in LayeredMDP(state["kernels"]).kernels]
        self._estimator = self._estimator_from(state["estimator"])
        if self.episodes_seen:
            self._set, _ = self._non_empty(self._set_of(self._estimator, self.episodes_seen + 1))
        self._condition()

    @abstractmethod
    def _estimator_tree(self) -> dict[str, Any]:
        """The estimator as a tree for :mod:`advmdp.storage`."""

    @abstractmethod
    def _estimator_from(self, tree: dict[str, Any]) -> Estimator:
        """The inverse of :meth:`_estimator_tree`."""


def checked_log_q(layers: Layers, saved: Any) -> FloatArray:
    """log q out of a file: each layer of q must sum to one."""
    log_q = layers.flat_vector(saved, "log_q")
    for h, table in enumerate(layers.split(np.exp(log_q))):
        if not abs(table.sum() - 1.0) <= 1e-9:
            raise ValueError(f"q of layer {h} sums to {table.sum()}, should be 1")
    return log_q


def checked_warm(saved: Any) -> dict[str, FloatArray] | None:
    """What a warm start carries, out of a file: finite vectors by name (the solver compares their shapes)."""
    if saved is None:
        return None
    warm = {name: float_array(vector, f"warm start {name!r}", ValueError) for name, vector in saved.items()}
    if not all(np.isfinite(vector).all() for vector in warm.values()):
        raise ValueError("the warm start has entries that are not finite")
    return warm


def require(valid: bool, option: str, value: object, wanted: str) -> None:
    """Raise InvalidSpecError, naming the option, its value and what would be right, unless ``valid``."""
    if not valid:
        raise InvalidSpecError(f"{option} is {value!r}, should be {wanted}")
