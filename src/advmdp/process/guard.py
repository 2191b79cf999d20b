"""A baseline that works today, and how much worse than it a learner may become."""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import numpy as np

from advmdp._checks import float_array, integer
from advmdp.layered import FloatArray

#: Share of the learner's episodes that a coin gives to the baseline, so that there is evidence about its costs.
COIN = 0.05
#: Probability that the lower bound ever fails.
ZETA = 0.05
#: Sizes of correction that are tried at once: gamma = 2^-j / H for j below this.
GRID = 21


def ratios(baseline: FloatArray, learner: FloatArray) -> FloatArray:
    """r_h = b_h / (COIN b_h + (1 - COIN) l_h), with b_h and l_h the probabilities of the first h actions.

    Arguments are the probabilities ``(n,)`` that the two policies gave to the actions taken, one of which is > 0.
    """
    with np.errstate(divide="ignore"):
        b, other = np.cumsum(np.log(baseline)), np.cumsum(np.log(learner))
    r = np.zeros(b.size)
    possible = b > -np.inf  # what the baseline would not have done says nothing about it
    with np.errstate(over="ignore"):
        r[possible] = 1.0 / (COIN + (1.0 - COIN) * np.exp(other[possible] - b[possible]))
    return r


class Guard(NamedTuple):
    """What the baseline would have cost at least, beside what was observed; a value.

    Episodes are of two kinds.  In *sure* ones the guard plays the baseline: what it costs is observed.  In the others a
    coin plays the baseline with probability COIN, else the learner plays, and

        Y = sum_h r_h l_h,      r_h = prod_{g<=h} pi_b(a_g | s_g) / [COIN prod pi_b + (1 - COIN) prod pi_learner],

    has the mean L_b, the baseline's expected loss in that episode, whatever the kernel is.  Since
    z / (1 + z/2) <= ln(1 + z), E exp(2 gamma Y / (1 + gamma Y)) <= 1 + 2 gamma L_b <= exp(2 gamma L_b), and by Ville's
    inequality, for all times at once,

        sum Y / (1 + gamma Y) - ln(1 / zeta) / (2 gamma)  <=  sum L_b      with probability at least 1 - zeta.

    The best of a grid of gammas is taken, gamma_j with zeta_j = ZETA / ((j + 1) (j + 2)).  A loss that is missing
    counts as 0 in Y, with which a lower bound stays one.
    """

    #: What may be lost in excess, as a share of the baseline's loss.
    slack: float
    gammas: FloatArray
    #: sum Y / (1 + gamma_j Y).
    sums: FloatArray
    #: Losses observed in sure episodes, and in the others.
    sure: float = 0.0
    observed: float = 0.0
    #: How many episodes of either kind there were, and in how many of the others the coin chose the baseline.
    sure_episodes: int = 0
    other_episodes: int = 0
    coins: int = 0

    @classmethod
    def empty(cls, slack: float, horizon: int) -> Guard:
        """Before the first episode of H = ``horizon`` losses."""
        return cls(slack, 2.0 ** -np.arange(GRID) / horizon, np.zeros(GRID))

    @property
    def lower_bound(self) -> float:
        """What the baseline would have lost at least in the episodes that were not sure."""
        j = np.arange(GRID)
        corrections = (log(1.0 / ZETA) + np.log((j + 1.0) * (j + 2.0))) / (2.0 * self.gammas)
        return max(0.0, float((self.sums - corrections).max()))

    @property
    def active(self) -> bool:
        """Whether the next episode must be the baseline's: more was lost than (1 + slack) times its loss."""
        return self.sure + self.observed > (1.0 + self.slack) * (self.sure + self.lower_bound)

    def sure_episode(self, loss: float) -> Guard:
        """After an episode that the guard played."""
        return self._replace(sure=self.sure + loss, sure_episodes=self.sure_episodes + 1)

    def other_episode(self, y: float, loss: float, coin: bool) -> Guard:
        """After another one."""
        more = self.corrected(0.0, y, loss)
        return more._replace(other_episodes=self.other_episodes + 1, coins=self.coins + coin)

    def corrected(self, before: float, y: float, loss: float) -> Guard:
        """With a loss that came late, which changed Y from ``before`` to ``y``."""
        change = y / (1.0 + self.gammas * y) - before / (1.0 + self.gammas * before)
        return self._replace(sums=self.sums + change, observed=self.observed + loss)

    def tree(self) -> dict[str, Any]:
        """For a file."""
        return {name: value for name, value in self._asdict().items() if name != "gammas"}

    def restored(self, tree: dict[str, Any]) -> Guard:
        """What :meth:`tree` was made of, from an empty one; else ValueError."""
        sums = float_array(tree["sums"], "sums", ValueError)
        losses = [float(tree[name]) for name in ("sure", "observed")]
        if sums.shape != self.sums.shape or not (np.isfinite([*sums, *losses]).all() and min([*sums, *losses]) >= 0.0):
            raise ValueError(f"the guard's sums should be {GRID} numbers >= 0")
        counts = [integer(tree[name], name, 0, ValueError) for name in ("sure_episodes", "other_episodes", "coins")]
        return Guard(self.slack, self.gammas, np.array(sums), *losses, *counts)  # type: ignore[arg-type]
