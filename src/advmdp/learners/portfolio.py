"""The portfolio: experts that plan and learn, a safe one among them, and weights that are proved against the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from advmdp.confidence import ConfidenceSet
from advmdp.confidence.likelihood import MixtureWeights
from advmdp.episodes import CheckedEpisode
from advmdp.layered import FloatArray, IntArray
from advmdp.learners.base import Belief, Learner, stacked
from advmdp.learners.options import number, require
from advmdp.learners.parts.experts import ExpertWeights
from advmdp.learners.parts.known_losses import known_losses, require_known
from advmdp.learners.parts.planning import Learning, PlugInLearners, mixed_occupancy, plans
from advmdp.learners.parts.predictors import Predictions, Predictor, forgetting, mean, with_late, with_losses
from advmdp.learners.parts.safe import SafeBase, SafeState
from advmdp.learners.planner import (
    FeedbackOptions,
    KernelEstimate,
    kernel_estimate,
    restored_count,
    shares_weights,
    with_logs,
)
from advmdp.occupancy import check_policy
from advmdp.registry import register_learner

#: Experts beside the safe one, by name: what they predict with, and how they learn (None: they plan).
EXPERTS: dict[str, tuple[Predictor, Learning | None]] = {
    "planner, all losses": (mean(), None),
    "planner, last ten": (forgetting(0.9), None),
    "planner, last three, little doubt": (forgetting(2 / 3, doubt=0.01), None),
    "planner, last three, more doubt": (forgetting(2 / 3, doubt=0.03), None),
    "planner, all losses, little doubt": (mean(doubt=0.01), None),
    "soft learner, last ten": (forgetting(0.9), Learning(3.0)),
}


@dataclass(frozen=True, kw_only=True)
class PortfolioOptions(FeedbackOptions):
    """``experts``: policies of one's own, each a list over layers of ``(S_h, A)``; ``premium``: whether the safe expert
    has a share that it cannot lose; ``zeta``: failure probability of its sets."""

    experts: Sequence[Sequence[ArrayLike]] = ()
    premium: bool = True
    zeta: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.premium, bool), "premium", self.premium, "True or False")
        require(number(self.zeta, 0.0) and self.zeta < 1.0, "zeta", self.zeta, "a probability in (0, 1)")
        several = isinstance(self.experts, Sequence) and not isinstance(self.experts, str)
        require(several, "experts", self.experts, "a list of policies")


class PortfolioState(NamedTuple):
    """What all experts know, what they would play, which of them plays, and what each is trusted with."""

    policy: FloatArray
    #: Of each expert, ``(M, n_pairs)``: the safe one, those of ``EXPERTS``, the user's own.
    policies: FloatArray
    drawn: int
    meta: ExpertWeights
    base: SafeState
    kernel: KernelEstimate
    predictions: Predictions
    learners: PlugInLearners
    k: int = 0


@register_learner("portfolio")
class Portfolio(Learner):
    """Draw one expert for each episode and play it; judge all of them by what was seen.

    After episode k, with pi^i the policies of the experts and w their weights:

    1. rho_{h,i}, the posterior over experts given the actions up to step h, gives an unbiased estimate of the loss of
       every expert, whatever the kernel (:mod:`advmdp.learners.parts.experts`), and these move the weights;
    2. the safe expert, which has a regret bound of its own, learns from losses weighted by its posterior
       (:class:`advmdp.learners.parts.safe.SafeBase`);
    3. the other experts plan for the likeliest kernel: for means of the losses with several forgettings, and softly
       (:mod:`advmdp.learners.parts.planning`);
    4. w = (1 - mu) v + mu e_safe, and the expert of the next episode is drawn from w.

    It needs neither K nor a step size.  :attr:`certificate` bounds, in expectation, what it lost against its best
    expert (up to the premium), even if the model is wrong; against fixed policies it has the safe expert's bound, up to
    that and to logarithms (``docs/strong-learners.md``).

    Parameters
    ----------
    experts
        Policies of your own that it may play: each a list over layers of ``(S_h, A)``.
    premium
        Whether the safe expert has the share mu = 1 / (2 + log2 k)^2 whatever happens.  Without it the bound against
        fixed policies does not hold; the one against experts does.
    shared
        Whether to use that the mixture weights are the same in every layer; by default, if the model says so.
    feedback
        ``"actions"``: to be shown the losses of all actions at the visited states; ``"full"``: the whole loss table,
        which its planners use.
    known, groups
        What is known of the losses beforehand, as of ``planner``: its planners use it.
    zeta
        Failure probability of the safe expert's sets.
    """

    name = "portfolio"
    status = "estimates by enumeration, certificate on random sequences, updates against plain numpy"
    needs_episodes = False
    partial = True
    uses_mixture = True
    predicts = True
    Options = PortfolioOptions
    options: PortfolioOptions

    def _compose(self) -> None:
        o, layers, model = self.options, self._layers, self._problem
        self.shares = shares_weights(model, o.shared)
        own = [self._own_policy(place, table) for place, table in enumerate(o.experts)]
        self._own = np.array(own).reshape(-1, layers.n_pairs)
        self.experts = tuple(layers.split(row) for row in self._own)  # what is saved: nobody else's arrays
        #: Names of the experts, in the order of :attr:`weights`.
        self.expert_names: tuple[str, ...] = ("safe", *EXPERTS, *(f"own {i}" for i in range(len(self._own))))
        rules = tuple(dict.fromkeys(predictor for predictor, _ in EXPERTS.values()))
        learning = [rule for _, rule in EXPERTS.values()]
        self._rules, self._soft = rules, [i for i, rule in enumerate(learning) if rule is not None]
        self._learning = [rule for rule in learning if rule is not None]
        self._uses = np.array([rules.index(predictor) for predictor, _ in EXPERTS.values()])
        self._safe = SafeBase(model, self.shares, o.zeta)
        self.known_part, self.pair_groups = known_losses(self)

    def _own_policy(self, place: int, table: Sequence[ArrayLike]) -> FloatArray:
        flat = self._layers.flatten(table, f"experts[{place}]")
        check_policy(self._layers, flat, f"experts[{place}]")
        return flat

    def _begin(self) -> PortfolioState:
        layers = self._layers
        count = len(self.expert_names)
        meta = ExpertWeights.empty(count, layers.horizon, base=0 if self.options.premium else None)
        least = None if self.known_part is None else self.known_part.table
        predictions = Predictions.empty(self._rules, layers.n_pairs, least)
        learners = PlugInLearners.empty(layers, self._learning)
        kernel = kernel_estimate(self._problem, self.shares)
        return self._drawn(meta, self._safe.start(), kernel, predictions, learners, 0)

    def _drawn(
        self, meta: ExpertWeights, base: SafeState, kernel: KernelEstimate, predictions: Predictions,
        learners: PlugInLearners, k: int,
    ) -> PortfolioState:  # fmt: skip
        """With the policies of all experts, and one of them drawn for episode k."""
        tables, rates = [predictions.tables[use] for use in self._uses], np.full(len(self._uses), np.inf)
        for i, total, rate in zip(self._soft, learners.totals, learners.rates, strict=True):
            tables[i], rates[i] = tables[i] + total, rate
        policies = np.empty((len(self.expert_names), self._layers.n_pairs))
        policies[0], policies[1 + len(tables) :] = base.policy, self._own
        plans(self._layers, kernel.kernel, tables, rates, policies[1 : 1 + len(tables)])
        total = np.cumsum(meta.weights)
        drawn = int(np.searchsorted(total, self._draws.at(k).random() * total[-1], side="right"))
        drawn = min(drawn, len(total) - 1)
        return PortfolioState(policies[drawn], policies, drawn, meta, base, kernel, predictions, learners, k)

    def _learn(self, state: PortfolioState, episode: CheckedEpisode) -> PortfolioState:
        require_known(self.known_part, episode)
        layers, pairs, losses = self._layers, episode.pairs, episode.losses
        played = episode.played_in(state)
        rho = played.meta.posterior(played.policies[:, pairs])
        meta = state.meta.add(rho, losses, None if played is state else played.meta, self._expected(played, episode))
        for late in episode.late:
            meta = meta.correct(late.weights[:, : len(rho[0])], late.losses, late.weights[:, -1])
        base = self._safe.advance(state.base, episode, rho[:, 0], played.meta.premium, state.k, played.base)
        predicted = state.predictions.tables[self._uses[self._soft]]
        if episode.loss_table is None:
            q = mixed_occupancy(layers, played.kernel.kernel, played.policies, played.meta.weights)
            if episode.action_losses is not None:  # seen whatever the action was
                q = np.repeat(q.reshape(-1, layers.n_actions).sum(axis=1), layers.n_actions)
        else:  # seen with certainty
            q = np.ones(layers.n_pairs)
        told = episode.seen(layers)
        if self.pair_groups is not None:
            told, q = self.pair_groups.seen(*told), self.pair_groups.total(q)
        learners = state.learners.add(*told, predicted, q)
        kernel = state.kernel.add(episode.states, episode.actions)
        predictions = with_losses(state.predictions, episode, layers, self.pair_groups)
        return self._drawn(meta, base, kernel, predictions, learners, state.k + 1)

    def _expected(self, played: PortfolioState, episode: CheckedEpisode) -> FloatArray | None:
        """What each expert's action costs on average in the visited states, ``(H, M)``; NaN in a step of which not all
        was told: what is told of one action only tells which one was taken."""
        if episode.action_losses is None:
            return None
        pairs = episode.state_pairs(self._layers)
        losses = np.where(self._layers.uniform_policy[pairs] > 0.0, episode.action_losses, 0.0)
        expected: FloatArray = np.einsum("mha,ha->hm", played.policies[:, pairs], losses)
        return expected

    def _observe(self, state: PortfolioState, states: IntArray, actions: IntArray) -> PortfolioState:
        return self._observed(state, states, actions, state.predictions)

    def _observed(
        self, state: PortfolioState, states: IntArray, actions: IntArray, predictions: Predictions
    ) -> PortfolioState:
        kernel = with_logs(state.kernel, states, actions)
        base = self._safe.observe(state.base, states, actions)
        return self._drawn(state.meta, base, kernel, predictions, state.learners, state.k)

    def _observe_played(self, state: PortfolioState, episodes: Sequence[CheckedEpisode]) -> PortfolioState:
        predictions = state.predictions
        for episode in episodes:
            require_known(self.known_part, episode)
            predictions = with_losses(predictions, episode, self._layers, self.pair_groups)
        return self._observed(state, *stacked(episodes), predictions)

    def _with_prior(self, state: PortfolioState, among: NDArray[np.bool_]) -> PortfolioState:
        predictions = state.predictions.with_prior(self._layers, among)
        return self._drawn(state.meta, state.base, state.kernel, predictions, state.learners, state.k)

    def _observe_losses(self, state: PortfolioState, episode: CheckedEpisode) -> PortfolioState:
        predictions = with_late(state.predictions, episode.pairs, episode.losses, self.pair_groups)
        return self._drawn(state.meta, state.base, state.kernel, predictions, state.learners, state.k)

    def _belief(self, state: PortfolioState) -> Belief:
        means = state.predictions.known(self._uses[0])
        return Belief(state.kernel.kernel, means, state.policies, state.meta.weights)

    def _weights(self, state: PortfolioState, episode: CheckedEpisode) -> FloatArray:
        rho = state.meta.posterior(state.policies[:, episode.pairs])
        return np.column_stack([rho, self._safe.upper(state.base, episode), state.meta.baselines])

    # ------------------------------------------------------------------------ its quantities

    @property
    def weights(self) -> FloatArray:
        """w: the probability of playing each expert in the next episode, in the order of ``expert_names``."""
        return np.array(self._now.state.meta.weights)

    @property
    def drawn(self) -> str:
        """The expert of the next episode."""
        return self.expert_names[int(self._now.state.drawn)]

    @property
    def certificate(self) -> float:
        """2 Delta - Delta_0: what was lost against any one expert, in expectation, but for the premium's part."""
        return float(self._now.state.meta.certificate)

    @property
    def confidence_set(self) -> ConfidenceSet:
        """That of the safe expert."""
        found: ConfidenceSet = self._now.state.base.set
        return found

    @property
    def mixture_weights(self) -> FloatArray | None:
        """The likeliest weights of the base kernels, a row per layer or one for all; None without a mixture."""
        kernel = self._now.state.kernel
        return kernel.weights.copy() if isinstance(kernel, MixtureWeights) else None

    # --------------------------------------------------------------------------- persistence

    def _tree(self, state: PortfolioState) -> dict[str, Any]:
        return {
            "meta": state.meta.tree(),
            "base": self._safe.tree(state.base),
            "kernel": state.kernel.tree(),
            "predictions": state.predictions.tree(),
            "learners": state.learners.tree(),
            "k": state.k,
        }

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> PortfolioState:
        first = self._begin()
        return self._drawn(
            first.meta.from_tree(tree["meta"]),
            self._safe.restore(tree["base"]),
            first.kernel.from_tree(tree["kernel"]),
            first.predictions.from_tree(tree["predictions"]),
            first.learners.from_tree(tree["learners"]),
            restored_count(tree),
        )
