"""The constants of the theorems: step sizes and exploration as functions of the sizes of a problem.

Learners take them from here, and so do the bounds of :mod:`advmdp.theory.bounds`.  S counts all states, the first and
the terminal one included; A actions, H of them in an episode, K episodes, zeta the failure probability.
"""

from __future__ import annotations

from math import ceil, log, sqrt


def theorem_1(S: int, A: float, H: int, K: float, zeta: float) -> float:
    """eta = gamma = sqrt(H log(H S A / zeta) / (K S A)): Theorem 1 of the paper, and UOB-REPS."""
    return sqrt(H * log(H * S * A / zeta) / (K * S * A))


def delayed(S: int, A: float, H: int, K: float, zeta: float, delay: float) -> float:
    """eta = gamma = sqrt(H log(H S A / zeta) / (S A K + H sqrt(H S A) D)) for losses that are D / K = delay late.

    It balances H log / eta with eta (S A K + H sqrt(H S A) D), which gives the order of the source.
    """
    return theorem_1(S, A, H, K, zeta) / sqrt(1.0 + H * sqrt(H / (S * A)) * delay)


def conditional_step(n: int, A: float, K: float) -> float:
    """eta = sqrt(2 log A / (n K)), n the number of pairs: conditional entropy (docs/strong-learners.md)."""
    return sqrt(2.0 * log(max(A, 2)) / (n * K))


def conditional_exploration(n: int, S: int, A: float, H: int, K: float, zeta: float) -> float:
    """gamma = sqrt(H log(S A / zeta) / (2 n K)), for the same step."""
    return sqrt(H * log(S * A / zeta) / (2.0 * n * K))


def anytime_exploration(n: int, S: int, A: float, H: int, k: float, zeta: float) -> float:
    """gamma_k = sqrt(H log(S A / zeta) / (4 n k)), k from 1: for any number of episodes (docs/sharper-parts.md)."""
    return sqrt(H * log(S * A / zeta) / (4.0 * n * k))


#: eta_k = 4 D / Delta of the conditional entropy, where D(q* || q_1) <= D = H log A.  Against eta_k = D / Delta the
#: bound grows by a quarter at most.  Chosen among 1, 2, 4 and 8 on three worlds with one seed.
CONDITIONAL_SPAN = 4.0


def first_step(D: float, n: int, largest: float = 1.0) -> float:
    """eta_1 = min(sqrt(D / n), largest) of step sizes that adapt: for the gaps of one episode, at most about n."""
    return min(sqrt(D / n), largest)


def o_reps(S: int, A: float, H: int, K: float) -> float:
    """eta = sqrt(log(S A / H) / K): full information, known transition."""
    return sqrt(log(S * A / H) / K)


def o_reps_bandit(S: int, A: float, H: int, K: float) -> float:
    """eta = sqrt(H log(S A / H) / (K S A)): bandit feedback, known transition."""
    return sqrt(H * log(S * A / H) / (K * S * A))


def triples_divergence(S: int, A: float, H: int) -> float:
    """log(S^2 A / H^2): D(q* || q_1) over triples is at most H times this."""
    return log(S**2 * A / H**2)


def uc_o_reps(S: int, A: float, H: int, K: float) -> float:
    """eta = sqrt(log(S^2 A / H^2) / K)."""
    return sqrt(triples_divergence(S, A, H) / K)


def bandit_uc_o_reps(S: int, A: float, H: int, K: float) -> float:
    """eta = sqrt(H log(S^2 A / H^2) / (K S A))."""
    return sqrt(H * triples_divergence(S, A, H) / (K * S * A))


def bandit_uc_o_reps_shift(S: int, A: float, H: int, K: float) -> float:
    """alpha = min(1, S A^(1/4) / (H^(1/2) K^(1/4)))."""
    return min(1.0, S * sqrt(sqrt(A / K) / H))


def mdp_e(A: float, H: int, K: float) -> float:
    """eta = sqrt(8 log A / (K H^2)): exponential weights on values in [0, H], at its best step size."""
    return sqrt(8.0 * log(A) / K) / H


def oppo(A: float, H: int, K: float) -> float:
    """eta = sqrt(2 log A / (H^2 K)): OPPO and POWERS."""
    return sqrt(2.0 * log(A) / K) / H


def pomd_step(H: int, K: float) -> float:
    """eta = K^(-2/3) / H."""
    return float(K ** (-2.0 / 3.0)) / H


def pomd_exploration(A: float, K: float) -> float:
    """gamma = K^(-1/3) / sqrt(A)."""
    return float(K ** (-1.0 / 3.0)) / sqrt(A)


def dilated_bonus(S: int, A: float, H: int, K: float) -> float:
    """eta = min(1 / (24 H^3), 1 / sqrt(S A H K)); gamma is 2 eta H."""
    return min(1.0 / (24.0 * H**3), 1.0 / sqrt(S * A * H * K))


def q_reps(S: int, A: float, H: int, K: float, d: int, leverage: float) -> tuple[float, float]:
    """eta = min(sqrt(log(S A / H) / (K (L + 2 d))), 1 / (2 L)) and gamma = eta L, L the leverage: linear losses."""
    eta = min(sqrt(log(S * A / H) / (K * (leverage + 2.0 * d))), 0.5 / leverage)
    return eta, eta * leverage


def mdp_linexp3(A: float, H: int, K: float, leverage: float) -> tuple[float, float]:
    """eta and gamma that minimise gamma H K + H log(A) / eta + eta K (H L / gamma) sum_h (H - h)^2, L the leverage.

    gamma is at most 1/2, and eta at most gamma / (H^2 L).
    """
    weights, spread = H * log(max(A, 2)), leverage * H * (H * (H + 1) * (2 * H + 1) / 6.0) * K
    gamma = min(0.5, (sqrt(weights * spread) / (H * K)) ** (2.0 / 3.0))
    return min(sqrt(weights * gamma / spread), gamma / (H**2 * leverage)), gamma


def dilated_bonus_linear(H: int, K: float, d: int) -> float:
    """eta = min(1 / (24 H^3), 1 / (H sqrt(d K))): that of ``dilated_bonus`` with d H in place of S A."""
    return min(1.0 / (24.0 * H**3), 1.0 / (H * sqrt(d * K)))


def exp3(n: int, H: int, K: float) -> float:
    """eta = sqrt(2 log n / (n K H^2)) for n arms whose losses lie in [0, H]."""
    return sqrt(2.0 * log(n) / (n * K * H**2))


def hedge(n: int, S: int, A: float, H: int, K: float) -> float:
    """epsilon = sqrt(2 log n / (H S A K)): Hedge over n learners that share importance-weighted losses."""
    return sqrt(2.0 * log(n) / (H * S * A * K))


def full_hedge(n: int, H: int, K: float) -> float:
    """epsilon = sqrt(8 log n / K) / H: Hedge over n learners whose losses lie in [0, H]."""
    return sqrt(8.0 * log(n) / K) / H


def vls_o_reps(S: int, A: float, H: int, K: float) -> float:
    """eta = sqrt(8 log(S A / H) / K): all losses seen, the range of those of a layer at most 1 (Hoeffding's lemma)."""
    return sqrt(8.0 * log(S * A / H) / K)


def vls_o_reps_conditional(A: float, H: int, K: float) -> float:
    """eta = sqrt(8 log A / (H K)): the same with conditional entropy, the range of the loss of an episode at most H."""
    return sqrt(8.0 * log(max(A, 2)) / (H * K))


def changing_divergence(S: int, A: float, H: int, K: float, path: float) -> float:
    """Lambda(P) = (1 + 1{P > 0}) H log(S A / H) + H + (P / 2) log(S A (K + 1)): docs/learners/full-information.md.

    What mirror descent with a share 1 / (K + 1) of the uniform measure pays, times eta, for a comparator with path
    length P = sum_k |q*_k - q*_{k-1}|_1.
    """
    return (1.0 + (path > 0.0)) * H * log(S * A / H) + H + 0.5 * path * log(S * A * (K + 1.0))


def changing_steps(S: int, A: float, H: int, K: float, ratio: float) -> tuple[float, ...]:
    """eta_i = ratio^i eta_0 from sqrt(8 Lambda(0) / (H K)) to at least sqrt(8 Lambda(2 H K) / (H K))."""
    first, last = (sqrt(8.0 * changing_divergence(S, A, H, K, path) / (H * K)) for path in (0.0, 2.0 * H * K))
    return tuple(first * ratio**i for i in range(1 + ceil(log(last / first) / log(ratio))))


def squared_ranges(H: int) -> float:
    """sum_h (H - h)^2: of action values."""
    return H * (H + 1.0) * (2.0 * H + 1.0) / 6.0


def changing_weights(A: float, H: int, K: float, path: float) -> float:
    """H log A + H + (P / 2) log(A (K + 1)): Lambda(P) of exponential weights in every state."""
    return H * log(A) + H + 0.5 * path * log(A * (K + 1.0))


def powers_dynamic(A: float, H: int, K: float, path: float) -> float:
    """eta = sqrt(8 Lambda(P) / (K sum_h (H - h)^2))."""
    return sqrt(8.0 * changing_weights(A, H, K, path) / (K * squared_ranges(H)))
