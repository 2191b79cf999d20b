"""What an agent believes, trusts and expects, in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from advmdp.confidence.likelihood import weight_intervals
from advmdp.confidence.misspecification import Misspecification
from advmdp.layered import FloatArray, Layers
from advmdp.learners.base import Belief
from advmdp.learners.parts.planning import mixed_occupancy

if TYPE_CHECKING:
    from advmdp.process.agent import Agent

#: Probability that some interval ever misses its weight.
ZETA = 0.05


@dataclass(frozen=True, eq=False)
class Explanation:
    """What an agent would say if asked; ``print`` shows it.

    Attributes
    ----------
    episodes, open, waiting, abandoned
        Episodes that ended, are under way, wait for costs, were given up.
    scenarios
        Names of the scenarios.
    weights, lower, upper
        The likeliest share of each scenario in reality with an interval, of shape ``(1, d)`` or, if shares may differ
        between steps, ``(steps, d)``, one row for each step that has a next one.  All intervals hold at all times with
        probability 0.95, if reality is a mixture.  None for learners that do not watch the model.
    trust
        Probability of each expert of playing the next episode, for learners that have experts.
    expected_cost, baseline_cost
        Expected costs of one episode of the agent's policy and of the baseline, under the likeliest mixture and the
        mean of the costs seen.  An unseen cost counts as the mean of the costs seen in the same step.  None where the
        learner keeps no such means (or there is no baseline).
    misspecification
        Whether transitions contradict the scenarios, see :meth:`advmdp.Learner.misspecification`.
    clipped
        Costs that were out of range and cut.
    guard_plays, guard_active, guard_bound
        Episodes that the baseline played for the guard; whether it plays the next one; and a lower bound on the
        baseline's loss in the episodes that the guard did not play (in losses).  None without a guard.
    """

    episodes: int
    open: int
    waiting: int
    abandoned: int
    scenarios: tuple[str, ...]
    weights: FloatArray | None
    lower: FloatArray | None
    upper: FloatArray | None
    trust: Mapping[str, float] | None
    expected_cost: float | None
    baseline_cost: float | None
    misspecification: Misspecification | None
    clipped: int
    guard_plays: int
    guard_active: bool | None
    guard_bound: float | None

    def __str__(self) -> str:
        told = [f"{self.episodes} episode{'' if self.episodes == 1 else 's'} learned from"]
        for count, what in ((self.open, "open"), (self.waiting, "waiting for costs"), (self.abandoned, "abandoned")):
            if count:
                told.append(f"{count} {what}")
        lines = [", ".join(told)]
        if self.weights is not None and self.lower is not None and self.upper is not None:
            lines.append("reality is a mixture of")
            for row, (best, low, high) in enumerate(zip(self.weights, self.lower, self.upper, strict=True)):
                where = f"step {row}: " if len(self.weights) > 1 else ""
                shares = zip(self.scenarios, best, low, high, strict=True)
                lines += [f"  {where}{name}  {w:.2f}  ({a:.2f} to {b:.2f})" for name, w, a, b in shares]
        if self.trust is not None:
            ranked = sorted(self.trust.items(), key=lambda item: -item[1])
            some = [f"{name} {share:.2f}" for name, share in ranked if share >= 0.05]
            lines.append("it trusts " + "; ".join(some))
        if self.expected_cost is not None:
            against = "" if self.baseline_cost is None else f", the baseline {self.baseline_cost:.4g}"
            lines.append(f"an episode is expected to cost {self.expected_cost:.4g}{against}")
        if self.misspecification is not None:
            doubt = "contradict the scenarios" if self.misspecification.alarm else "do not contradict the scenarios"
            lines.append(f"transitions {doubt} (log e-value {self.misspecification.log_e_total:.1f})")
        if self.clipped:
            lines.append(f"{self.clipped} costs were out of range and cut")
        if self.guard_active is not None:
            who = "the baseline" if self.guard_active else "the learner (or the coin)"
            lines.append(f"the guard had the baseline play {self.guard_plays} episodes; next plays {who}")
        return "\n".join(lines)


def explain(agent: Agent) -> Explanation:
    """See :meth:`advmdp.Agent.explain`."""
    learner, guard = agent.learner, agent._guard
    intervals = _intervals(agent)
    names, trust = getattr(learner, "expert_names", None), None
    if names is not None:
        renamed = ["baseline" if name == agent._expert else name for name in names]
        trust = dict(zip(renamed, (float(share) for share in learner.weights), strict=True))  # type: ignore[attr-defined]
    belief = learner._belief(learner.moment)
    expected = baseline = None
    if belief is not None:
        expected = _cost(agent, belief, belief.policies, belief.weights)
        if agent._baseline is not None:
            baseline = _cost(agent, belief, agent._baseline[None], np.ones(1))
    return Explanation(
        episodes=agent.episodes_seen,
        open=len(agent.open),
        waiting=len(agent.waiting),
        abandoned=agent.abandoned,
        scenarios=agent.process.scenario_names,
        weights=intervals[0],
        lower=intervals[1],
        upper=intervals[2],
        trust=trust,
        expected_cost=expected,
        baseline_cost=baseline,
        misspecification=learner.misspecification(),
        clipped=agent.clipped,
        guard_plays=agent.guard_plays,
        guard_active=None if guard is None else guard.active,
        guard_bound=None if guard is None else guard.lower_bound,
    )


def _intervals(agent: Agent) -> tuple[FloatArray, FloatArray, FloatArray] | tuple[None, None, None]:
    watch = agent.learner._now.watch
    if watch is None:
        return None, None, None
    seen = watch.mixtures_seen()
    if len(seen) > 1:  # the draw of the start says nothing
        seen = seen[agent.process.first_layer :]
    rows = []
    for vectors, counts in seen:
        possible = vectors.any(axis=1)  # others, of sampled scenarios, no mixture explains
        rows.append(weight_intervals(vectors[possible], counts[possible], ZETA / len(seen)))
    if not rows:
        return None, None, None
    return tuple(np.array(part) for part in zip(*rows, strict=True))  # type: ignore[return-value]


def _cost(agent: Agent, belief: Belief, policies: FloatArray, weights: FloatArray) -> float:
    """What an episode is expected to cost, in the user's units; nothing is charged where nobody acts."""
    process = agent.process
    q = mixed_occupancy(agent._layers, belief.kernel, policies, weights)
    low, high = process.cost_range
    # What is free once an episode is over says nothing of what actions cost.
    seen = np.where(process._charged, belief.losses, np.nan)
    costs = low + (high - low) * _guessed(agent._layers, seen)
    return float(q[process._charged] @ costs[process._charged])


def _guessed(layers: Layers, losses: FloatArray) -> FloatArray:
    """Losses with the mean of the layer where none was seen (of all, where the layer has none; a half without any)."""
    everywhere = np.nanmean(losses) if not np.isnan(losses).all() else 0.5
    tables = []
    for table in layers.split(losses):
        mean = everywhere if np.isnan(table).all() else np.nanmean(table)
        tables.append(np.where(np.isnan(table), mean, table))
    return np.concatenate(tables, axis=None)
