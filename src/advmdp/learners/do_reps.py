"""DO-REPS (Zhao, Li and Zhou, ICML 2022): O-REPS with many step sizes at once, against comparators that change."""

from __future__ import annotations

from typing import Any, Literal

from advmdp import constants
from advmdp.confidence import ConfidenceSet
from advmdp.confidence.known import KnownTransition, NothingKept
from advmdp.learners.bank import BankLearner
from advmdp.learners.options import NoOptions
from advmdp.learners.parts.losses import LossTable
from advmdp.learners.parts.steps import KnownDescent, Rate
from advmdp.learners.reps import Parts
from advmdp.registry import register_learner


@register_learner("do-reps")
class DoReps(BankLearner):
    """Full information, known transition: Hedge over O-REPS with step sizes eta_i = 2^i eta_0.

    1. w_i is multiplied by exp(-epsilon <q^i_k, l_k>), epsilon = sqrt(8 log N / K) / H;
    2. q^i_{k+1} = argmin over q in Delta(P) of eta_i <q, l_k> + D(q || (1 - mu) q^i_k + mu uniform), mu = 1 / (K + 1);
    3. q_{k+1} = sum_i w_i q^i_{k+1} is played.

    eta_0 is best for a comparator that never changes, the largest eta_i for one that changes in every episode.  The
    share mu keeps q away from zero, in place of the floor of the source.
    """

    name = "do-reps"
    status = "every base step against a conic solver, weights recomputed; bound on dynamic regret proved"
    feedback: Literal["bandit", "actions", "full"] = "full"
    transition = "known"
    Options = NoOptions
    options: Any

    def _parts(self) -> Parts:
        sizes, sets = self._sizes(), KnownTransition(self._problem)
        _, _, H, K = sizes
        etas = constants.changing_steps(*sizes, ratio=2.0)

        def base(rate: Rate) -> KnownDescent:
            return KnownDescent(self._problem, sets.truth, rate, self.start)

        bank = self._bank(etas, constants.full_hedge(len(etas), H, K), 1.0 / (K + 1), base)
        return Parts(NothingKept(), sets, LossTable(), bank)

    def _first_set(self) -> ConfidenceSet:
        return self._sets(None)
