"""Which of several experts to trust: one is drawn for each episode, and all are judged by what was seen.

*Estimates.*  With expert i drawn with probability w_i, the probability of the first h steps is
sum_i w_i prod_{g<=h} pi^i(a_g | s_g) times what the kernel contributes, which is the same for all experts.  So the
posterior over experts needs no kernel:

    rho_{h,i} = prod_{g<=h} pi^i(a_g | s_g) / sum_j w_j prod_{g<=h} pi^j(a_g | s_g),      sum_i w_i rho_{h,i} = 1,

and E[rho_{h,i} f(s_1, ..., a_h)] is the mean of f under expert i.  With numbers b_h and c_i that are known before the
episode,

    y_i = sum_h [c_i b_h + rho_{h,i} (l_h - c_i b_h)],      E y_i = <q^i, l>:

the expected loss of every expert in this episode, without bias, whatever the kernel is.  Where the losses of all
actions at the visited state are seen, whichever was taken, l_h becomes sum_a pi^i(a | s_h) l(s_h, a) and rho_{h,i}
becomes rho_{h-1,i} (1 for the first step): the same mean, with less variance.

*Weights.*  v minimises <v, X> - (2 / eta) sum_j sqrt(v_j) over the simplex, X the sum of x = (1 - mu) y so far, with
eta = D / Delta, D = 2 (sqrt(M) - 1), and Delta the sum of the steps' instabilities, which is observed.  Played is
w = (1 - mu) v + mu e_b: a premium mu for the expert b that has a guarantee of its own.  ``docs/strong-learners.md`` has
the proof of what :attr:`ExpertWeights.certificate` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, sqrt
from typing import Any, Self

import numpy as np

from advmdp._checks import float_array, integer
from advmdp._compiled import kernel
from advmdp.errors import InvalidEpisodeError, InvalidSpecError
from advmdp.layered import FloatArray

#: Episodes over which the baselines b_h, running means of the losses of each step, reach back.
BASELINE_WINDOW = 50.0
#: No instability is taken at a shift where eta sqrt(v) (x - z) comes closer to -1 than this.
LEAST_SHIFT = -0.99


def premium(k: int) -> float:
    """mu_k = 1 / (2 + log2 k)^2, the share of episode k (from 1) that is the safe expert's whatever happens."""
    return 1.0 / (2.0 + log2(k)) ** 2


@dataclass(frozen=True, eq=False)
class ExpertWeights:
    """The weights of M >= 2 experts: a value, adding an episode returns a new one.

    Losses that are missing (NaN) count as b_h: what is learnt, and certified, is then about losses that are b_h
    where they are missing, the same for all experts.  If whether a loss is missing depends on step and pair only, and
    not on what is played, that is a table of losses like any other.
    """

    #: The number of the expert with the premium, or None.
    base: int | None
    #: Episodes so far.
    episodes: int
    #: Delta before the first episode, and now.
    first_scale: float
    scale: float
    #: X: the sum of the estimates x of each expert.
    totals: FloatArray
    #: v.
    shares: FloatArray
    #: b_h, and how many losses of each step they were made of.
    baselines: FloatArray
    seen: FloatArray

    @classmethod
    def empty(cls, count: int, horizon: int, *, base: int | None = 0) -> Self:
        """Before the first episode: M = ``count`` experts with equal shares."""
        integer(count, "the number of experts", 2, InvalidSpecError)
        integer(horizon, "horizon", 1, InvalidSpecError)
        if base is not None and integer(base, "base", 0, InvalidSpecError) >= count:
            raise InvalidSpecError(f"base is expert {base}, there are {count}")
        return cls(
            base, 0, float(horizon), float(horizon), np.zeros(count), np.full(count, 1.0 / count), np.zeros(horizon),
            np.zeros(horizon),
        )  # fmt: skip

    @cached_property
    def premium(self) -> float:
        """mu of the next episode."""
        return 0.0 if self.base is None else premium(self.episodes + 1)

    @cached_property
    def step_size(self) -> float:
        """eta of the next episode, D / Delta."""
        return 2.0 * (sqrt(self.totals.size) - 1.0) / self.scale

    @cached_property
    def weights(self) -> FloatArray:
        """w: the probability of drawing each expert for the next episode."""
        weights = (1.0 - self.premium) * self.shares
        if self.base is not None:
            weights[self.base] += self.premium
        weights.flags.writeable = False
        return weights

    @property
    def certificate(self) -> float:
        """2 Delta - Delta_0: what was lost against any one expert so far, in expectation, but for the premium's part.

        E sum_k <q_k - q^i_k, l_k> <= E certificate + E sum_k mu_k <q^b_k - q^i_k, l_k>.
        """
        return 2.0 * self.scale - self.first_scale

    @cached_property
    def centring(self) -> FloatArray:
        """c_i = min(1, w_i / (2 eta (1 - mu) sqrt(v_i) sum_h b_h)): the largest with eta sqrt(v_i) x_i >= -1/2."""
        values = np.empty(self.totals.size)
        centre(self.weights, self.shares, self.baselines, self.step_size * (1.0 - self.premium), values)
        return values

    def posterior(self, probabilities: FloatArray) -> FloatArray:
        """rho, ``(H, M)``, from each expert's probability of the action taken in each step, ``(M, H)``."""
        rho = np.empty(probabilities.shape[::-1])
        step = posterior(self.weights, probabilities, rho)
        if step >= 0:
            raise InvalidEpisodeError(f"layer {step}: no expert that agrees with the steps before takes this action")
        return rho

    def estimates(self, rho: FloatArray, losses: FloatArray, expected: FloatArray | None = None) -> FloatArray:
        """y_i, the estimated loss of each expert in an episode with these losses ``(H,)``; ``expected`` as in add."""
        values = np.empty(self.totals.size)
        estimate(*weighed(rho, losses, expected), self.baselines, self.centring, values)
        return values

    def add(
        self, rho: FloatArray, losses: FloatArray, played: Self | None = None, expected: FloatArray | None = None
    ) -> Self:
        """The weights with one more episode, given its posterior and its losses.

        ``expected`` ``(H, M)`` is sum_a pi^i(a | s_h) l(s_h, a), NaN where not all losses of a state were seen.

        ``played`` are the weights that its expert was drawn with, if not these.  The estimates have no bias then
        either, but rho may be as large as one over those weights, so that less is taken off: c_i is for the smaller
        of the two.
        """
        centring = self.centring
        if played is not None:
            centring = np.empty(self.totals.size)
            rate = self.step_size * (1.0 - self.premium)
            centre(np.minimum(self.weights, played.weights), self.shares, self.baselines, rate, centring)
        estimates, shares, totals = np.empty((3, self.totals.size))
        baselines, seen = np.empty((2, self.baselines.size))
        scale = advance(
            *weighed(rho, losses, expected), losses, self.premium, self.step_size, self.scale, self.shares, self.totals,
            self.baselines, self.seen, centring, estimates, shares, totals, baselines, seen,
        )  # fmt: skip
        return type(self)(self.base, self.episodes + 1, self.first_scale, float(scale), totals, shares, baselines, seen)

    def correct(self, rho: FloatArray, losses: FloatArray, baselines: FloatArray) -> Self:
        """With losses that came late, for an episode with this posterior in which they counted as ``baselines``.

        The estimates are as large as they would have been, except that none lowers a total by more than the weights
        of now can bear; nothing is proved for this part.
        """
        x = (1.0 - self.premium) * (rho * np.nan_to_num(losses - baselines)[:, None]).sum(axis=0)
        x = np.maximum(x, -0.5 / (self.step_size * np.sqrt(self.shares)))
        scale = self.scale + float(instability(self.shares, x, self.step_size))
        totals = self.totals + x
        shares = tsallis(totals, 2.0 * (sqrt(totals.size) - 1.0) / scale)
        return replace(self, scale=scale, totals=totals, shares=shares)

    def tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "episodes": self.episodes, "scale": self.scale, "totals": self.totals, "baselines": self.baselines,
            "seen": self.seen,
        }  # fmt: skip

    def from_tree(self, tree: dict[str, Any]) -> Self:
        """The weights that :meth:`tree` was made of, from those before the first episode; else ValueError."""
        arrays: dict[str, Any] = {}
        for name in ("totals", "baselines", "seen"):
            array = np.array(float_array(tree[name], name, ValueError))
            if array.shape != getattr(self, name).shape or not np.isfinite(array).all():
                raise ValueError(f"{name} should be {getattr(self, name).size} finite numbers")
            arrays[name] = array
        if not ((arrays["baselines"] >= 0.0).all() and (arrays["baselines"] <= 1.0).all()):
            raise ValueError("baselines should be in [0, 1]")
        if not (arrays["seen"] >= 0.0).all():
            raise ValueError("seen should be counts")
        scale = float(tree["scale"])
        if not self.first_scale <= scale < np.inf:
            raise ValueError(f"scale is {scale}, should be at least {self.first_scale}")
        episodes = integer(tree["episodes"], "episodes", 0, ValueError)
        eta = 2.0 * (sqrt(self.totals.size) - 1.0) / scale
        shares = tsallis(arrays["totals"], eta) if episodes else self.shares
        return replace(self, episodes=episodes, scale=scale, shares=shares, **arrays)


def tsallis(totals: FloatArray, eta: float) -> FloatArray:
    """The v >= 0 of sum one that minimises <v, X> - (2 / eta) sum_j sqrt(v_j); X and v have shape ``(M,)``."""
    shares = np.empty(totals.size)
    tsallis_shares(totals, eta, shares)
    return shares


# ------------------------------------------------------------------------------------ compiled loops


def weighed(rho: FloatArray, losses: FloatArray, expected: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """The ratio and the loss of each step and expert, ``(H, M)`` each."""
    each = np.empty_like(rho)
    each[:] = losses[:, None]
    if expected is None:
        return rho, each
    before = np.vstack([np.ones_like(rho[:1]), rho[:-1]])
    unknown = np.isnan(expected)
    return np.where(unknown, rho, before), np.where(unknown, each, expected)


@kernel
def posterior(weights: FloatArray, probabilities: FloatArray, rho: FloatArray) -> int:
    """rho into its place; the first step that no expert can have taken, or -1."""
    count, horizon = probabilities.shape
    for h in range(horizon):
        total = 0.0
        for i in range(count):
            before = weights[i] * rho[h - 1, i] if h > 0 else weights[i]
            rho[h, i] = before * probabilities[i, h]
            total += rho[h, i]
        if not total > 0.0:
            return h
        for i in range(count):
            rho[h, i] = rho[h, i] / (total * weights[i]) if weights[i] > 0.0 else 0.0
    return -1


@kernel
def centre(weights: FloatArray, shares: FloatArray, baselines: FloatArray, rate: float, values: FloatArray) -> None:
    """c_i, see :attr:`ExpertWeights.centring`, with rate = eta (1 - mu)."""
    total = 0.0
    for h in range(baselines.size):
        total += baselines[h]
    for i in range(values.size):
        reach = 2.0 * rate * np.sqrt(shares[i]) * total
        values[i] = 0.0 if total <= 0.0 else 1.0 if weights[i] >= reach else weights[i] / reach


@kernel
def estimate(
    rho: FloatArray, each: FloatArray, baselines: FloatArray, centring: FloatArray, values: FloatArray
) -> None:
    """y_i = sum_h [c_i b_h + rho_{h,i} (l_{h,i} - c_i b_h)], with b_h for a loss that is missing."""
    horizon, count = rho.shape
    for i in range(count):
        values[i] = 0.0
        for h in range(horizon):
            loss = baselines[h] if np.isnan(each[h, i]) else each[h, i]
            expected = centring[i] * baselines[h]
            values[i] += expected + rho[h, i] * (loss - expected)


@kernel
def instability(shares: FloatArray, x: FloatArray, eta: float) -> float:
    """The least of sum_j sqrt(v_j) t_j^2 / (eta (1 + t_j)), t_j = eta sqrt(v_j) (x_j - z), over three shifts z.

    Any shift bounds <v - v', x> - D(v', v) / eta for all v' of the simplex (D of psi = -2 sum sqrt(v)).
    """
    largest = 0
    average = 0.0
    for j in range(x.size):
        average += shares[j] * x[j]
        if shares[j] > shares[largest]:
            largest = j
    least = np.inf
    for choice in range(3):
        shift = 0.0 if choice == 0 else average if choice == 1 else x[largest]
        total = 0.0
        for j in range(x.size):
            root = np.sqrt(shares[j])
            t = eta * root * (x[j] - shift)
            if t <= LEAST_SHIFT:
                total = np.inf
                break
            total += root * t * (t / (1.0 + t)) / eta  # in this order nothing overflows
        least = min(least, total)
    return least


@kernel
def tsallis_shares(totals: FloatArray, eta: float, shares: FloatArray) -> None:
    """v_j = (eta (X_j + lam))^-2 with lam > -min X such that they sum to one.

    Newton's method for F(z) = (sum_j (eta (X_j - min X + z))^-2)^(-1/2) = 1 from z = 1 / eta, where F <= 1: F is
    concave and increasing, so that no iterate passes the solution.
    """
    lowest = np.inf
    for j in range(totals.size):
        lowest = min(lowest, totals[j])
    z = 1.0 / eta
    for _ in range(100):
        mass, slope = 0.0, 0.0
        for j in range(totals.size):
            inverse = 1.0 / (eta * (totals[j] - lowest + z))
            mass += inverse * inverse
            slope += eta * inverse * inverse * inverse
        # F = mass^-1/2, F' = mass^-3/2 slope
        move = (1.0 - mass**-0.5) * mass**1.5 / slope
        z += move
        if move <= 1e-15 * z:
            break
    total = 0.0
    for j in range(totals.size):
        shares[j] = 1.0 / (eta * (totals[j] - lowest + z)) ** 2
        total += shares[j]
    for j in range(totals.size):
        shares[j] /= total


@kernel
def advance(
    rho: FloatArray,
    each: FloatArray,
    losses: FloatArray,
    premium: float,
    eta: float,
    scale: float,
    shares: FloatArray,
    totals: FloatArray,
    baselines: FloatArray,
    seen: FloatArray,
    centring: FloatArray,
    estimates: FloatArray,
    new_shares: FloatArray,
    new_totals: FloatArray,
    new_baselines: FloatArray,
    new_seen: FloatArray,
) -> float:
    """One episode: Delta += instability, X += x, v for D / Delta, b_h towards the losses seen; the new Delta."""
    count = totals.size
    estimate(rho, each, baselines, centring, estimates)
    for i in range(count):
        estimates[i] *= 1.0 - premium
        new_totals[i] = totals[i] + estimates[i]
    new_scale = scale + instability(shares, estimates, eta)
    tsallis_shares(new_totals, 2.0 * (np.sqrt(count) - 1.0) / new_scale, new_shares)
    for h in range(losses.size):
        missing = np.isnan(losses[h])
        new_seen[h] = seen[h] if missing else seen[h] + 1.0
        move = 0.0 if missing else (losses[h] - baselines[h]) / min(new_seen[h], BASELINE_WINDOW)
        new_baselines[h] = baselines[h] + move
    return new_scale
