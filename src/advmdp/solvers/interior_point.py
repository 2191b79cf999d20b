"""What the interior-point iterations over ellipsoids and boxes share: where they aim, how far they step, when to look.

Both follow the central path, on which every complementarity product of a block is mu times its occupancy, with
Mehrotra's predictor and corrector; the families differ in the Newton system and its elimination.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from advmdp._compiled import inner_kernel
from advmdp.solvers.layout import copy_into

Floats = NDArray[np.float64]

# Complementarity is held back while stationarity is off by more than this multiple of it.
SLACKNESS = 1e4
HOLD = 0.7
# The share of the way to the boundary that a step leaves: it shrinks with what the corrector leaves of complementarity,
# or near the end steps would gain no more than two digits.
BOLD = 0.01
BOLDEST = 1e-4
# Where the corrector overshoots, complementarity can go round in circles: after a step shorter than SHORT, a careful
# iteration makes one without predictor and corrector, to the share PLAIN of mu.
SHORT = 0.2
PLAIN = 0.3


@inner_kernel
def worth_certifying(weighted: float, flow: float, limit: float) -> bool:
    """The weighted complementarity bounds the gap from above, by a factor that the families know; flow is repaired."""
    return weighted < limit and flow < 1e-6


@inner_kernel
def closer(found: tuple[float, float, float], best: tuple[float, float, float]) -> bool:
    """Is this certificate (value, gap, residual) the better one to report?  None is whose kernels are outside."""
    return found[2] < np.inf and abs(found[1]) < abs(best[1])


@inner_kernel
def keep(memory: Any) -> None:
    """Remember the answer of a certificate, which the next one writes over."""
    copy_into(memory.kept_log_q, memory.log_q)
    copy_into(memory.kept_q, memory.q)
    copy_into(memory.kept_kernels, memory.kernels)


@inner_kernel
def recall(memory: Any) -> None:
    """The answer that was kept last."""
    copy_into(memory.log_q, memory.kept_log_q)
    copy_into(memory.q, memory.kept_q)
    copy_into(memory.kernels, memory.kept_kernels)


@inner_kernel
def corrected_target(mu: float, dual: float, after: float) -> float:
    """Mehrotra's rule: the better the predictor does (mean complementarity ``after``), the closer the aim."""
    sigma = (after / mu) ** 3 if mu > 0.0 else 0.0
    if dual > SLACKNESS * mu:
        sigma = max(sigma, HOLD)
    return sigma * mu


@inner_kernel
def step_along(longest: float, left: float, q: Floats, dq: Floats) -> float:
    """The step to take, given the longest that stays inside and the share of complementarity that it aims at.

    No occupancy grows five-fold or falls to a tenth: beyond, log q in the stationarity condition has left its tangent,
    and the step would not reduce the residual it aims at.
    """
    ratio = 0.0
    for i in range(q.shape[0]):
        change = dq[i] / q[i]
        ratio = max(ratio, max(0.25 * change, -change / 0.9))
    short = min(BOLD, max(BOLDEST, 10.0 * left))
    length = min(1.0, (1.0 - short) * longest)
    return min(length, 1.0 / ratio) if ratio > 0.0 else length


@inner_kernel
def invert_slacks(q: Floats, slack: Floats, multiplier: Floats, inverse: Floats, ratio: Floats, ready: Floats) -> None:
    """For the complementary pairs (rows, N) of the blocks of a layer: 1 / slack, multiplier / slack, q / slack."""
    n_rows, N = slack.shape
    for i in range(n_rows):
        for b in range(N):
            one = 1.0 / slack[i, b]
            inverse[i, b] = one
            ratio[i, b] = multiplier[i, b] * one
            ready[i, b] = q[b] * one


@inner_kernel
def aim_multipliers(
    target: float, corrected: bool, multiplier: Floats, inverse: Floats, ready: Floats, second: Floats, term: Floats
) -> None:
    """``term = (target q - second) / slack - multiplier``, of all pairs: a multiplier moves by ``term`` less its ratio
    times the move of its slack.  ``second``, the product of both moves, counts where the direction is ``corrected``."""
    if corrected:
        for i in range(term.shape[0]):
            term[i] = target * ready[i] - second[i] * inverse[i] - multiplier[i]
    else:
        for i in range(term.shape[0]):
            term[i] = target * ready[i] - multiplier[i]


@inner_kernel
def move_multipliers(
    term: Floats, ratio: Floats, inverse: Floats, multiplier: Floats, slack_move: Floats, move: Floats,
    second: Floats, fastest: Floats,
) -> None:  # fmt: skip
    """Moves of the multipliers (rows, N) from those of their slacks, the products of both, and, per block, the largest
    relative decrease of a slack or a multiplier, if it is above what ``fastest`` has.

    The multiplier of a pair that does not count is zero, and so is its move; it limits nothing.
    """
    n_rows, N = term.shape
    for i in range(n_rows):
        for b in range(N):
            dy = slack_move[i, b]
            dlam = term[i, b] - ratio[i, b] * dy
            move[i, b] = dlam
            second[i, b] = dlam * dy
            speed = max(-dy * inverse[i, b], -dlam / max(multiplier[i, b], 1e-300))
            fastest[b] = max(fastest[b], speed)


@inner_kernel
def add_products(products: Floats, total: Floats) -> None:
    """``total_b`` grows by the sum of the products (rows, N) of block b."""
    n_rows, N = products.shape
    for i in range(n_rows):
        for b in range(N):
            total[b] += products[i, b]


@inner_kernel
def after_predictor(mu: float, length: float, second: float) -> float:
    """Mean complementarity after ``length`` of the predictor, given the mean of its products of moves.

    The predictor aims at zero: to first order every product falls in proportion.
    """
    return max((1.0 - length) * mu + length * length * second, 0.0)


@inner_kernel
def largest_of(x: Floats) -> float:
    """The largest entry, or zero if all are negative."""
    largest = 0.0
    for i in range(x.shape[0]):
        largest = max(largest, x[i])
    return largest


@inner_kernel
def advance(x: Any, d: Any, length: float) -> None:
    """x += length d, part by part; x and d are iterate and direction of either family."""
    for part in range(len(x)):
        target = x[part]
        change = d[part]
        for i in range(target.shape[0]):
            target[i] += length * change[i]
