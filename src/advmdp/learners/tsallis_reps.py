"""Mirror steps with the 1/2-Tsallis regulariser (Jin and Luo, NeurIPS 2020; Jin, Huang and Luo, NeurIPS 2021)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from advmdp.confidence import ConfidenceSet
from advmdp.confidence.box import all_kernels
from advmdp.confidence.counts import BernsteinBoxes, VisitCounts
from advmdp.confidence.known import KnownTransition, NothingKept
from advmdp.layered import FloatArray
from advmdp.learners.options import FullOptions, StepOptions
from advmdp.learners.parts.leader import TsallisLeader
from advmdp.learners.parts.losses import OwnOccupancy, UpperOccupancy
from advmdp.learners.reps import Parts, RepsLearner, RepsState
from advmdp.registry import register_learner


@register_learner("tsallis-reps")
class TsallisReps(RepsLearner):
    """Bandit feedback, known transition: follow the leader regularised by -2 sum sqrt(q), without K.

    lhat_k(s, a) = l_k(s, a) / q_k(s, a) at the visited pairs, zero elsewhere, and

    q_{k+1} = argmin over q in Delta(P) of <q, lhat_1 + ... + lhat_k> - (2 / eta_{k+1}) sum sqrt(q).

    Parameters
    ----------
    eta
        eta_k = eta / sqrt(k); by default 1, with which the expected regret is at most
        4 sqrt(K) sum_h sqrt(S_h A) - 2 H sqrt(K) for every K.
    """

    name = "tsallis-reps"
    transition: ClassVar[Literal["known", "unknown"]] = "known"
    status = "every step against a conic solver and a plain Newton method; with one layer Tsallis-INF; bound derived"
    partial = True
    needs_episodes = False
    Options = StepOptions

    def _parts(self) -> Parts:
        sets = KnownTransition(self._problem)
        eta = 1.0 if self.options.eta is None else self.options.eta
        step = TsallisLeader(self._problem, eta, lambda known: known.kernels, sets.truth, self.start)
        return Parts(NothingKept(), sets, OwnOccupancy(self._layers), step)

    def _first_set(self) -> ConfidenceSet:
        return self._sets(None)

    def _restore(self, tree: dict[str, Any], policy: FloatArray) -> RepsState:
        state = super()._restore(tree, policy)
        return state._replace(step=state.step._replace(set=state.set))


@register_learner("tsallis-reps-optimistic")
class TsallisRepsOptimistic(TsallisReps):
    """Bandit feedback, unknown transition: the same over an optimistic kernel, anew in every epoch.

    With P_i the boxes of epoch i (counts, as in UOB-REPS, for all k at once):

    1. lhat_k(s, a) = l_k(s, a) / u_k(s, a) at the visited pairs, u_k the largest probability of the pair over P_i;
    2. the rows of the kernel are the lower ends of the boxes; what they lack leads to the end, at no loss;
    3. q_{k+1} as in ``tsallis-reps`` over that kernel, with the losses and the k of the epoch.

    A state that the lower ends do not reach has the uniform policy.

    Parameters
    ----------
    eta
        eta_k = eta / sqrt(k), k counted in the epoch; by default 1.
    radius_scale
        Factor on the half-widths; anything but 1 has no guarantee.
    zeta
        Failure probability of the sets.
    """

    name = "tsallis-reps-optimistic"
    transition = "unknown"
    status = "every step against a conic solver; optimism on random sets; order of the bound derived"
    Options = FullOptions

    def _parts(self) -> Parts:
        o, layers = self.options, self._layers
        eta = 1.0 if o.eta is None else o.eta
        return Parts(
            estimator=VisitCounts(layers, self._problem.model.support),
            sets=BernsteinBoxes(layers, None, o.zeta, o.radius_scale),
            losses=UpperOccupancy(gamma=lambda k: 0.0),
            step=TsallisLeader(self._problem, eta, lambda boxes: boxes.lower, self._first_set(), self.start),
        )

    def _first_set(self) -> ConfidenceSet:
        return all_kernels(self._layers.sizes, self._layers.n_actions, self._problem.model.support)

    @property
    def q(self) -> None:  # type: ignore[override]
        """None: the measure behind the policy belongs to a kernel that loses mass."""
        return None
