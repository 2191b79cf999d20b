"""Regret bounds as numbers: what a theorem promises for given sizes, and from which K on it says anything.

Conventions of the paper: S counts all states, the first and the terminal one included; A actions, H of them
in an episode, K episodes, d feature coordinates, zeta the failure probability of each event, B the bound on
the norm of theta_h.

A bound is *explicit* where a proof gives its constants; ``docs/theory.md`` derives those of the learners of
linear mixtures, ``docs/strong-learners.md`` those of the conditional entropy, of shared weights and of the
portfolio, ``docs/sharper-parts.md`` those of predictions and steps that adapt, ``docs/learners/linear-mdp.md``
those of linear MDPs.  Otherwise only the order is known, and the value is that order with constant one and without
logarithms: good for comparing growth, not for comparing with a measured regret.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import wraps
from itertools import pairwise
from math import exp, inf, log, log2, nan, sqrt
from typing import TYPE_CHECKING, Literal, ParamSpec

from advmdp import constants
from advmdp.confidence import radii
from advmdp.confidence.linear_mdp import all_values, least_squares_radius
from advmdp.errors import InvalidSpecError

if TYPE_CHECKING:
    import pandas as pd

Feedback = Literal["bandit", "full", "total"]
Transition = Literal["known", "unknown"]
Entropy = Literal["pairs", "triples"]

PAPER = "Li, Zhao, Zhou 2024"
JIN = "Jin, Jin, Luo, Sra, Yu 2020"
ZHAO = "Zhao, Yang, Wang, Li 2023"
ROSENBERG = "Rosenberg, Mansour 2019"
ZIMIN = "Zimin, Neu 2013"
NEU = "Neu, Olkhovskaya"
LINEAR_PAGE = "constants: docs/learners/linear-mdp.md"

Losses = Literal["adversarial", "stochastic", "linear"]


@dataclass(frozen=True)
class Bound:
    """A regret bound at given sizes."""

    #: The learner, or the class of problems of a lower bound.
    name: str
    #: The bound where it is explicit, otherwise its order.
    value: float
    #: Whether a proof gives the constants of ``value``.
    explicit: bool
    #: The order without constants and logarithms, comparable between rows (:func:`pomd`'s is stated too high).
    order: float
    #: The order as a formula.
    formula: str
    feedback: Feedback
    transition: Transition
    #: "tabular", "linear mixture", "shared mixture" where the weights must be the same in every layer, or "linear MDP".
    model: str
    #: Where it is proved.
    source: str
    #: "upper" or "lower".
    side: Literal["upper", "lower"] = "upper"
    #: Probability with which it holds ("expectation" where it bounds the mean regret).
    holds: str = ""
    #: The parts of an explicit bound that follow the regret decomposition; their sum is ``value``.
    terms: tuple[tuple[str, float], ...] = ()
    #: Which losses it holds for: "stochastic" where they must be independent and of one distribution, "linear" where
    #: they must be linear in the features.
    losses: Losses = "adversarial"


def _check_sizes(S: int, A: int, H: int, K: float, d: int, zeta: float, B: float) -> None:
    for name, value in (("A", A), ("H", H), ("K", K), ("d", d)):
        if not value >= 1:
            raise InvalidSpecError(f"{name} is {value}, should be at least 1")
    if not S >= H + 1:
        raise InvalidSpecError(f"S is {S}, should be at least H + 1 = {H + 1}, one state per layer")
    if not 0.0 < zeta < 1.0:
        raise InvalidSpecError(f"zeta is {zeta}, should be strictly between 0 and 1")
    if not B > 0.0:
        raise InvalidSpecError(f"B is {B}, should be > 0")


P = ParamSpec("P")
BoundFunction = Callable[..., Bound]
#: Every bound: functions of S, A, H, K, d, zeta, B.
BOUNDS: list[BoundFunction] = []


def _bound(function: Callable[P, Bound]) -> Callable[P, Bound]:
    """Count a function among all bounds, and check the sizes that it is called with."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*arguments: P.args, **options: P.kwargs) -> Bound:
        call = signature.bind(*arguments, **options)
        call.apply_defaults()
        _check_sizes(*(call.arguments[name] for name in ("S", "A", "H", "K", "d", "zeta", "B")))
        return function(*arguments, **options)

    BOUNDS.append(checked)
    return checked


# ------------------------------------------------------------------- the parts of the repaired Theorem 1


#: eta = gamma of Theorem 1.
step_size = constants.theorem_1


def expected_width(visited: float, H: int, zeta: float, layers: float) -> float:
    """Bound on sum_k sum_m sum_{s,a} q_k(s, a) e_k(s, a), given sum_k sum_m e_k at the visited pairs.

    e_k in [0, 2] bounds the l1 distance of two rows of the set.  Freedman's inequality for half the
    difference, with parameter 1/2, gives in each regressed layer: mean <= 2 visited + 8 log(H / zeta).
    """
    return 2.0 * visited + 8.0 * layers * log(H / zeta)


def error(width: float, H: int) -> float:
    """ERROR = sum_k <q_k - qhat_k, l_k> <= (H / 2) width.

    One kernel for all targets: a difference in row (s, a) of layer m moves at most its l1 norm of mass in
    each later layer, and losses in [0, 1] see half of the l1 norm of a difference of distributions.
    """
    return 0.5 * H * width


def occupancy_difference(width: float, S: int) -> float:
    """sum_k sum_{s,a} |u_k - q_k|(s, a) <= (S / 2) width.

    Each target state has a kernel of its own; the probability of reaching it lies in [0, 1], so that a
    difference of rows, which sums to zero, changes it by at most half its l1 norm.
    """
    return 0.5 * S * width


def bias_one(difference: float, pairs: int, H: int, K: float, gamma: float, zeta: float) -> float:
    """BIAS-I = sum_k <qhat_k, l_k - lhat_k> <= difference + gamma pairs K + H sqrt(K log(1 / zeta) / 2).

    ``pairs`` counts states with actions, at most S A.  The last term is Hoeffding's: <qhat_k, lhat_k> lies in
    [0, H]; it holds for one K fixed in advance.
    """
    return difference + gamma * pairs * K + H * sqrt(0.5 * K * log(1.0 / zeta))


def bias_two(pairs: int, H: int, gamma: float, zeta: float) -> float:
    """BIAS-II = sum_k <q*, lhat_k - l_k> <= H log(pairs / zeta) / (2 gamma), pairs at most S A."""
    return H * log(pairs / zeta) / (2.0 * gamma)


def initial_divergence(layer_sizes: Sequence[int], A: int, entropy: Entropy = "pairs") -> float:
    """Largest divergence of an occupancy measure from the uniform one that a learner starts with.

    sum_h log(S_h A) for the entropy of pairs (s, a), sum_h log(S_h A S_{h+1}) for that of triples (s, a, s').
    """
    triples = entropy == "triples"
    return sum(log(n * A * (m if triples else 1)) for n, m in pairwise(layer_sizes))


def mirror_descent(initial: float, eta: float, squares: float) -> float:
    """REGRET = sum_k <qhat_k - q*, lhat_k> <= initial / eta + (eta / 2) squares, squares = sum_k <qhat_k, lhat_k^2>.

    By the Pythagorean inequality, telescoping, and exp(-x) <= 1 - x + x^2 / 2 for x >= 0; for either entropy.
    """
    return initial / eta + 0.5 * eta * squares


def second_moment(pairs: int, H: int, K: float, gamma: float, zeta: float) -> float:
    """sum_k <qhat_k, lhat_k^2> <= sum_k sum_{s,a} lhat_k <= pairs K + H log(H / zeta) / (2 gamma)."""
    return pairs * K + H * log(H / zeta) / (2.0 * gamma)


def regret_of_estimates(
    S: int, A: int, H: int, K: float, eta: float, gamma: float, zeta: float, entropy: Entropy = "pairs"
) -> float:
    """REGRET with the initial divergence and the second moment at their worst, given the sizes.

    sum_h log(S_h A) <= H log(S A / H) and sum_h log(S_h A S_{h+1}) <= H log(S^2 A / H^2), by concavity.
    """
    states = S / H if entropy == "pairs" else (S / H) ** 2
    return mirror_descent(H * log(states * A), eta, second_moment(S * A, H, K, gamma, zeta))


def _regressed(H: int) -> int:
    """Layers with something to learn, which share the failure probability of the sets."""
    return max(1, H - 1)


def _information(squares: float, d: int) -> float:
    """A bound on log det Lambda_h, lambda = 1, for features whose squared norms sum to ``squares`` at most."""
    return d * log(1.0 + squares / d)


def _joint(S: int, H: int, K: float, d: int, zeta: float, B: float) -> tuple[float, float]:
    """The largest joint radius, and a bound on the log det ratio of a layer."""
    information = _information(K * S, d)
    return radii.joint(information, _regressed(H), d, 1.0, zeta, B), information


def _theorem(visited: float, S: int, A: int, H: int, K: float, zeta: float) -> tuple[tuple[str, float], ...]:
    """The four terms, from the summed widths at visited pairs."""
    gamma = step_size(S, A, H, K, zeta)
    width = expected_width(visited, H, zeta, layers=H - 1)
    return (
        ("REGRET", regret_of_estimates(S, A, H, K, gamma, gamma, zeta)),
        ("ERROR", error(width, H)),
        ("BIAS-I", bias_one(occupancy_difference(width, S), S * A, H, K, gamma, zeta)),
        ("BIAS-II", bias_two(S * A, H, gamma, zeta)),
    )


def visited_width_all_states(largest_radius: float, information: float, S: int, H: int, K: float) -> float:
    """Bound on sum_k sum_m e_k at visited pairs, regressing on all next states.

    With x the norms of the features, one per next state, e_k <= 2 min(1, beta sum x), (sum x)^2 <= N sum x^2.
    Cauchy-Schwarz over episodes and layers and the potential lemma, sum_k min(1, sum x^2) <= 2 information (a
    bound on the log det ratio of a layer), give 2 beta sqrt(2 H S K information).  Episode 1, whose set is
    all kernels, adds 2 per layer.
    """
    return 2.0 * max(1.0, largest_radius) * sqrt(2.0 * H * S * K * information) + 2.0 * (H - 1)


def visited_width_one_state(largest_radius: float, information: float, S: int, H: int, K: float) -> float:
    """The same for regression on the most uncertain next state: 2 beta S sqrt(2 K information)."""
    return 2.0 * max(1.0, largest_radius) * S * sqrt(2.0 * K * information) + 2.0 * (H - 1)


# ------------------------------------------------------------------------------ linear mixture, bandit


def _sum_of(
    name: str,
    terms: tuple[tuple[str, float], ...],
    order: float,
    formula: str,
    source: str,
    failure: float,
    feedback: Feedback = "bandit",
    model: str = "linear mixture",
    losses: Losses = "adversarial",
) -> Bound:
    """An explicit bound with unknown transition, from its terms; ``failure`` is the probability that it fails."""
    value, holds = sum(value for _, value in terms), f"{1.0 - failure:.6g}"
    setting: tuple[Feedback, Transition, str] = (feedback, "unknown", model)
    return Bound(name, value, True, order, formula, *setting, source, holds=holds, terms=terms, losses=losses)


def _all_next_states(
    name: str,
    largest_radius: float,
    information: float,
    S: int,
    A: int,
    H: int,
    K: float,
    d: int,
    zeta: float,
    source: str,
) -> Bound:
    """Theorem 1 for any radius, given its largest value and a bound on the log det ratio of a layer."""
    terms = _theorem(visited_width_all_states(largest_radius, information, S, H, K), S, A, H, K, zeta)
    order, formula = d * sqrt(H * S**3 * K) + sqrt(H * S * A * K), "d sqrt(H S^3 K) + sqrt(H S A K)"
    return _sum_of(name, terms, order, formula, source, 5.0 * zeta)


@_bound
def vlsuob_reps(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Theorem 1 with its printed radius and lambda_k, all constants kept; holds with probability 1 - 5 zeta.

    The printed radius is valid for all k at once (``docs/joint-radius.md``); over k = 2..K it is largest at
    one of the ends (``docs/theory.md``).
    """

    def radius(k: float) -> float:
        regularisation = d * log(k * S)
        return radii.paper(int(k), S, H, d, regularisation, zeta, B)

    largest = max(radius(2.0), radius(max(2.0, K)))
    # Lambda_1 = I and lambda_{K+1} = d log((K + 1) S).
    information = d * log(d * log((K + 1.0) * S) + K * S / d)
    source = f"{PAPER}, Theorem 1; constants: docs/theory.md"
    return _all_next_states("vlsuob-reps", largest, information, S, A, H, K, d, zeta, source)


@_bound
def vlsuob_reps_tight(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """The same learner with the joint radius and constant lambda; holds with probability 1 - 5 zeta."""
    largest, information = _joint(S, H, K, d, zeta, B)
    source = "docs/joint-radius.md and docs/theory.md"
    return _all_next_states("vlsuob-reps-tight", largest, information, S, A, H, K, d, zeta, source)


@_bound
def lsuob_reps(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Regression on one imaginary next state, with the same proof; holds with probability 1 - 5 zeta."""
    information = _information(K, d)
    largest = radii.scalar(information, _regressed(H), d, 1.0, zeta, B)
    terms = _theorem(visited_width_one_state(largest, information, S, H, K), S, A, H, K, zeta)
    order, formula = d * S**2 * sqrt(K) + sqrt(H * S * A * K), "d S^2 sqrt(K) + sqrt(H S A K)"
    source = f"{ZHAO}, Theorem 1; constants: docs/theory.md"
    return _sum_of("lsuob-reps", terms, order, formula, source, 5.0 * zeta)


# ----------------------------------------------------------------------- conditional entropy, shared weights, portfolio


@_bound
def vlsuob_reps_tight_conditional(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0
) -> Bound:
    """``vlsuob-reps-tight`` with ``entropy="conditional"``; holds with probability 1 - 5 zeta.

    PLAYED SIDE is sum_k (<q_k, l_k> - <q_, lhat_k>), in place of ERROR and BIAS-I; see docs/strong-learners.md.
    """
    largest, information = _joint(S, H, K, d, zeta, B)
    width = expected_width(visited_width_all_states(largest, information, S, H, K), H, zeta, layers=H - 1)
    n = (S - 1) * A
    eta, gamma = constants.conditional_step(n, A, K), constants.conditional_exploration(n, S, A, H, K, zeta)
    squares = H * second_moment(n, H, K, gamma, zeta)
    terms = (
        ("REGRET", mirror_descent(H * log(max(A, 2)), eta, squares)),
        ("PLAYED SIDE", bias_one(2.0 * occupancy_difference(width, S), n, H, K, gamma, zeta)),
        ("BIAS-II", bias_two(S * A, H, gamma, zeta)),
    )
    order, formula = d * sqrt(H * S**3 * K) + H * sqrt(S * A * K), "d sqrt(H S^3 K) + H sqrt(S A K)"
    name = "vlsuob-reps-tight, conditional"
    return _sum_of(name, terms, order, formula, "docs/strong-learners.md", 5.0 * zeta)


def visited_width_shared(largest_radius: float, information: float, S: int, H: int, K: float) -> float:
    """Bound on sum_k sum_m e_k at visited pairs, one regression for all layers.

    Let y be the sum of the squared norms of all features of an episode.  Where y <= 1, Cauchy-Schwarz over layers,
    sum_m e_k <= 2 beta sqrt(S y), and over episodes give 2 beta sqrt(2 S K information); there are at most
    information / log 2 episodes with y > 1, which cost 2 per layer, as does the first one.
    """
    rare = 1.0 + information / log(2.0)
    return 2.0 * max(1.0, largest_radius) * sqrt(2.0 * S * K * information) + 2.0 * (H - 1) * rare


def _shared(H: int, K: float, d: int, zeta: float, B: float) -> tuple[float, float]:
    """The largest radius, and a bound on the log det ratio: the features of a step have squared norms of sum d."""
    information = d * log(1.0 + K * _regressed(H))
    return radii.joint(information, 1, d, 1.0, zeta, B), information


@_bound
def vlsuob_reps_tight_shared(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """``vlsuob-reps-tight`` with ``shared=True``, for mixtures of d kernels; holds with probability 1 - 5 zeta.

    B bounds the norm of the mixture weights: 1 will do.
    """
    terms = _theorem(visited_width_shared(*_shared(H, K, d, zeta, B), S, H, K), S, A, H, K, zeta)
    order, formula = d * sqrt(S**3 * K) + sqrt(H * S * A * K), "d sqrt(S^3 K) + sqrt(H S A K)"
    name, source = "vlsuob-reps-tight, shared", "docs/strong-learners.md"
    return _sum_of(name, terms, order, formula, source, 5.0 * zeta, model="shared mixture")


#: Of the conditional step with predictions: e^-x - 1 + x <= KAPPA x^2 and <= SLOPE |x| for x >= -5/2.
KAPPA, SLOPE = (exp(2.5) - 3.5) / 6.25, (exp(2.5) - 3.5) / 2.5
#: u |X| is at most this much, and |X| at most 3/2 of |l - m| / (u + gamma): docs/sharper-parts.md.
CORRECTION = 1.125


def adaptive_regret(D: float, span: float, first: float, largest: float, squares: float) -> float:
    """D / eta_{K+1} + Delta_K - Delta_0 with eta = span / Delta, for gaps of at most ``largest`` and (eta_k / 2) times
    terms that sum to ``squares``."""
    return (1.0 + D / span) * (0.5 * largest + sqrt((first - 0.5 * largest) ** 2 + span * squares)) - first


def _sharp(
    visited: float, lagged: float, S: int, A: int, H: int, K: float, zeta: float
) -> tuple[tuple[str, float], ...]:
    """The terms of ``vlsuob-reps-sharp``, from the summed widths at visited pairs, also those of the set before."""
    n, D = (S - 1) * A, H * log(max(A, 2))
    gamma = constants.anytime_exploration(n, S, A, H, K, zeta)
    width, before = (expected_width(sum_of, H, zeta, layers=H - 1) for sum_of in (visited, lagged))
    squares = 2.0 * H * K + 3.0 * CORRECTION * second_moment(n, H, K, gamma, zeta)
    span = constants.CONDITIONAL_SPAN * D
    first = span / constants.first_step(span, n, 1.0 / H)
    widths = (2.0 + CORRECTION) * width + before
    return (
        ("REGRET", adaptive_regret(D, span, first, SLOPE * (1.0 + CORRECTION) * H, 2.0 * KAPPA * H * squares)),
        ("WIDTHS", 2.0 * occupancy_difference(widths, S)),
        ("EXPLORATION", 4.0 * n * gamma * K),
        ("NOISE", (1.0 + CORRECTION) * H * sqrt(0.5 * K * log(1.0 / zeta))),
        ("BIAS-II", bias_two(S * A, H, gamma, zeta)),
    )


@_bound
def vlsuob_reps_sharp(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """``vlsuob-reps-sharp``, whatever is predicted; holds with probability 1 - 6 zeta.  See docs/sharper-parts.md."""
    largest, information = _joint(S, H, K, d, zeta, B)
    visited = visited_width_all_states(largest, information, S, H, K)
    lagged = visited_width_all_states(largest, 2.0 * information, S, H, K) + 2.0 * (H - 1)
    terms = _sharp(visited, lagged, S, A, H, K, zeta)
    order, formula = d * sqrt(H * S**3 * K) + H * sqrt(S * A * K), "d sqrt(H S^3 K) + H sqrt(S A K)"
    return _sum_of("vlsuob-reps-sharp", terms, order, formula, "docs/sharper-parts.md", 6.0 * zeta)


@_bound
def vlsuob_reps_sharp_shared(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """The same with shared weights."""
    largest, information = _shared(H, K, d, zeta, B)
    visited = visited_width_shared(largest, information, S, H, K)
    lagged = visited_width_shared(largest, 2.0 * information, S, H, K) + 2.0 * (H - 1)
    terms = _sharp(visited, lagged, S, A, H, K, zeta)
    order, formula = d * sqrt(S**3 * K) + H * sqrt(S * A * K), "d sqrt(S^3 K) + H sqrt(S A K)"
    name, source = "vlsuob-reps-sharp, shared", "docs/sharper-parts.md"
    return _sum_of(name, terms, order, formula, source, 6.0 * zeta, model="shared mixture")


def against_experts(experts: int, H: int, K: float) -> float:
    """E[2 Delta_K] - Delta_0 <= H + 2 H sqrt(10 (M - sqrt M) K), whatever the kernel and the model: Theorem A."""
    return H + 2.0 * H * sqrt(10.0 * (experts - sqrt(experts)) * K)


def _portfolio(
    name: str, width: float, S: int, A: int, H: int, K: float, zeta: float, experts: int, order: float, formula: str,
    model: str,
) -> Bound:  # fmt: skip
    """Theorem B from the summed widths of the safe expert, all premiums bounded by the last."""
    if not experts >= 2:
        raise InvalidSpecError(f"experts is {experts}, should be at least 2")
    root, n, log_actions = 2.0 + log2(K), (S - 1) * A, log(max(A, 2))
    first, half_jump = sqrt(H * log_actions * n), 0.5 * H * root**2
    squares = H**2 * n * log_actions * K * root**2
    terms = (
        ("EXPERTS", against_experts(experts, H, K)),
        ("WIDTHS", S * width),
        ("EXPLORATION", 2.0 * root * sqrt(n * K * log_actions)),
        ("STEPS", 2.0 * half_jump + 2.0 * sqrt((first - half_jump) ** 2 + squares) - first),
        ("FAILURE", zeta * H * K),
    )
    value, source = sum(value for _, value in terms), "docs/strong-learners.md, Theorem B"
    setting: tuple[Feedback, Transition, str] = ("bandit", "unknown", model)
    return Bound(name, value, True, order, formula, *setting, source, holds="expectation", terms=terms)


@_bound
def portfolio(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, experts: int = 7
) -> Bound:
    """Theorem B, against fixed policies, in expectation; M = ``experts``, the safe one and the user's own included.

    The term zeta H K, for sets that miss the truth, is linear in K: the order is that of zeta = 1 / K.
    """
    largest, information = _joint(S, H, K, d, zeta, B)
    width = visited_width_all_states(largest, information, S, H, K * (2.0 + log2(K)) ** 2)
    order, formula = d * sqrt(H * S**3 * K) + H * sqrt(S * A * K), "d sqrt(H S^3 K) + H sqrt(S A K)"
    return _portfolio("portfolio", width, S, A, H, K, zeta, experts, order, formula, "linear mixture")


@_bound
def portfolio_shared(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, experts: int = 7
) -> Bound:
    """The same for mixtures of d kernels whose weights are the same in every layer, B >= 1 a bound on their norm."""
    largest, information = _shared(H, K, d, zeta, B)
    most = (2.0 + log2(K)) ** 2
    # An episode that is played by chance 1 / most counts most times: also the rare ones.
    width = visited_width_shared(largest, information, S, H, K * most)
    width += 2.0 * (H - 1) * (most - 1.0) * information / log(2.0)
    order, formula = d * sqrt(S**3 * K) + H * sqrt(S * A * K), "d sqrt(S^3 K) + H sqrt(S A K)"
    return _portfolio("portfolio, shared", width, S, A, H, K, zeta, experts, order, formula, "shared mixture")


# ------------------------------------------------------------------------------------- other upper bounds


def _order_only(
    name: str,
    order: float,
    formula: str,
    feedback: Feedback,
    model: str,
    source: str,
    side: Literal["upper", "lower"] = "upper",
) -> Bound:
    return Bound(name, order, False, order, formula, feedback, "unknown", model, source, side)


def _tabular(
    name: str,
    value: float,
    order: float,
    formula: str,
    feedback: Feedback,
    transition: Transition,
    source: str,
    holds: str,
) -> Bound:
    return Bound(name, value, True, order, formula, feedback, transition, "tabular", source, holds=holds)


@_bound
def uob_reps(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H S sqrt(A K)."""
    return _order_only("uob-reps", H * S * sqrt(A * K), "H S sqrt(A K)", "bandit", "tabular", JIN)


@_bound
def delayed_uob_reps(
    S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0, delay: float = 0.0
) -> Bound:
    """Order H S sqrt(A K) + (H S A)^(1/4) H sqrt(D), D = delay K the total delay in episodes."""
    order = H * S * sqrt(A * K) + (H * S * A) ** 0.25 * H * sqrt(delay * K)
    formula = "H S sqrt(A K) + (H S A)^(1/4) H sqrt(D)"
    source = "Jin, Lancewicki, Luo, Mansour, Rosenberg 2022; constants not read in the source"
    return _order_only("delayed-uob-reps", order, formula, "bandit", "tabular", source)


@_bound
def tsallis_reps(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """(4 sqrt(H (S - 1) A) - 2 H) sqrt(K) in expectation, for every K: known transition, eta_k = 1 / sqrt(k)."""
    value, order = (4.0 * sqrt(H * (S - 1) * A) - 2.0 * H) * sqrt(K), sqrt(H * S * A * K)
    source = "Jin, Luo 2020; constants: docs/learners/o-reps.md"
    return _tabular("tsallis-reps", value, order, "sqrt(H S A K)", "bandit", "known", source, "expectation")


@_bound
def tsallis_reps_optimistic(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H S sqrt(A K) + S A sqrt(H K): the widths of UOB-REPS, and a new start in each of S A log K epochs."""
    order, formula = H * S * sqrt(A * K) + S * A * sqrt(H * K), "H S sqrt(A K) + S A sqrt(H K)"
    source = "Jin, Huang, Luo 2021 and Jin et al. 2023; constants not read in the source"
    return _order_only("tsallis-reps-optimistic", order, formula, "bandit", "tabular", source)


@_bound
def lazy_fpl(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """2 sqrt(2 D (S - 1) H T) in expectation, D = H log(S A / H), T the sum of squared lengths of blocks, for every K.

    Blocks of ceil(m^(1/3)) episodes have T <= t (K + t), t = 1 + (1 + (4 K / 3)^(3/4))^(1/3) at least the last length.
    """
    longest = 1.0 + (1.0 + (4.0 * K / 3.0) ** 0.75) ** (1.0 / 3.0)
    divergence = max(H * log(S * A / H), log(2.0))
    value = 2.0 * sqrt(2.0 * divergence * (S - 1) * H * longest * (K + longest))
    source = "Yu, Mannor, Shimkin 2009, for episodes; constants: docs/learners/o-reps.md"
    order, formula = H * sqrt(S) * K**0.625, "H sqrt(S) K^(5/8)"
    return _tabular("lazy-fpl", value, order, formula, "full", "known", source, "expectation")


@_bound
def o_reps(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """2 H sqrt(K log(S A / H)), always: known transition, full information, eta = sqrt(log(S A / H) / K)."""
    value = 2.0 * H * sqrt(K * log(S * A / H))
    return _tabular("o-reps", value, H * sqrt(K), "H sqrt(K)", "full", "known", ZIMIN, "1")


@_bound
def o_reps_bandit(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """2 sqrt(H S A K log(S A / H)) in expectation: known transition, eta = sqrt(H log(S A / H) / (K S A))."""
    value, order = 2.0 * sqrt(H * S * A * K * log(S * A / H)), sqrt(H * S * A * K)
    return _tabular("o-reps-bandit", value, order, "sqrt(H S A K)", "bandit", "known", ZIMIN, "expectation")


@_bound
def mdp_e(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """H^2 sqrt(K log(A) / 2), always: one expert algorithm per state, known transition, full information.

    That is ``exponential_weights`` with every range at most H, at its best step size sqrt(8 log(A) / (K H^2)).
    """
    value = H**2 * sqrt(0.5 * K * log(A))
    source = "Even-Dar, Kakade, Mansour 2009; constants: docs/learners/policy-optimisation.md"
    return _tabular("mdp-e", value, H**2 * sqrt(K), "H^2 sqrt(K)", "full", "known", source, "1")


def visited_width_counts(confidence: float, S: int, A: int, K: float) -> float:
    """Bound on sum_k sum_m e_k at visited pairs, l1 balls of radius sqrt(2 m confidence / N) with doubling epochs.

    e_k is at most twice the radius, and 2 where a pair is new.  N is at least half of the visits so far, and
    sum_n n^(-1/2) <= 2 N^(1/2); Cauchy-Schwarz over the pairs of a layer and sum_h (S_h S_{h+1})^(1/2) <= S give
    2 S A + 8 S sqrt(A K confidence).
    """
    return 2.0 * S * A + 8.0 * S * sqrt(A * K * confidence)


@_bound
def uc_o_reps(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Full information, with the constants of ``docs/learners/counting.md``; holds with probability 1 - 2 zeta."""
    divergence = constants.triples_divergence(S, A, H)
    width = expected_width(visited_width_counts(log(K * S * A / zeta), S, A, K), H, zeta, layers=H - 1)
    terms = (
        ("REGRET", mirror_descent(H * divergence, constants.uc_o_reps(S, A, H, K), H * K)),
        ("ERROR", error(width, H)),
    )
    source = f"{ROSENBERG} (ICML); constants: docs/learners/counting.md"
    order, formula = H * S * sqrt(A * K), "H S sqrt(A K)"
    return _sum_of("uc-o-reps", terms, order, formula, source, 2.0 * zeta, "full", "tabular")


@_bound
def bandit_uc_o_reps(
    S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0, reachability: float | None = None
) -> Bound:
    """Order H^(3/2) S A^(1/4) K^(3/4) of the shifted version, or H S sqrt(A K) / alpha with reachability alpha.

    alpha is the least probability with which any policy visits any state.  Without it nothing is known of the plain
    version, the default of ``bandit-uc-o-reps``.  The shifted version of the library (``shift="theory"``) is a
    reconstruction: the order is the source's, not proved for this code.
    """
    name, source = "bandit-uc-o-reps", f"{ROSENBERG} (NeurIPS)"
    if reachability is None:
        name, source = f"{name}, shifted", f"{source}; the library's shifted version is a reconstruction"
        order, formula = H**1.5 * S * A**0.25 * K**0.75, "H^(3/2) S A^(1/4) K^(3/4)"
    elif 0.0 < reachability <= 1.0:
        order, formula = H * S * sqrt(A * K) / reachability, "H S sqrt(A K) / alpha"
    else:
        raise InvalidSpecError(f"reachability is {reachability}, should be in (0, 1]")
    return _order_only(name, order, formula, "bandit", "tabular", source)


@_bound
def pomd(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H^2 S sqrt(A) K^(2/3), as quoted.

    The source's S counts the states of one stage; with all of them, as here, H S sqrt(A) K^(2/3) would do for layers of
    equal size.
    """
    order = H**2 * S * sqrt(A) * K ** (2.0 / 3.0)
    source = "Shani, Efroni, Rosenberg, Mannor 2020"
    return _order_only("pomd", order, "H^2 S sqrt(A) K^(2/3)", "bandit", "tabular", source)


@_bound
def dilated_bonus(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H^2 S sqrt(A K) + H^4."""
    order = H**2 * S * sqrt(A * K) + H**4
    return _order_only("dilated-bonus", order, "H^2 S sqrt(A K) + H^4", "bandit", "tabular", "Luo, Wei, Lee 2021")


@_bound
def dilated_bonus_total(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H^2 S sqrt(A K) + H^4, as of ``dilated-bonus``: all it needs to know of what is charged is the bound H."""
    order, formula = H**2 * S * sqrt(A * K) + H**4, "H^2 S sqrt(A K) + H^4"
    source = "Lancewicki, Mansour 2025 and Cohen et al. 2021; constants not read in the source"
    return _order_only("dilated-bonus-total", order, formula, "total", "tabular", source)


# ----------------------------------------------------------- policy optimisation with value-targeted regression


def exponential_weights(A: int, H: int, K: float, eta: float) -> float:
    """sum_k sum_s q*(s) <pi_k - pi*, Q_k>(s) <= sum_h [log(A) / eta + (eta / 8) K (H - h)^2].

    Hoeffding's lemma in every state, whose Q_k lie in [0, H - h]; q* sums to one in each layer.
    """
    if A == 1:
        return 0.0
    return H * log(A) / eta + 0.125 * eta * K * constants.squared_ranges(H)


def unvisited_optimism(H: int, K: float, zeta: float) -> float:
    """(H (H - 1) / 2) sqrt(K log(1 / zeta) / 2), Hoeffding's.

    What optimism costs, min(H - 1 - h, 2 beta |phi_V|) at each pair and so at most H (H - 1) / 2 in an episode, is
    summed over the pairs that are visited; regret needs its expectation.
    """
    return 0.5 * H * (H - 1) * sqrt(0.5 * K * log(1.0 / zeta))


def visited_optimism(largest_radius: float, following: int, information: float, K: float) -> float:
    """sum_k min(M, 2 beta |phi_V|) at the visited pairs of a layer that M steps follow.

    min(M, 2 beta x) <= 2 max(beta, M / 2) min(1, x); Cauchy-Schwarz and the potential lemma do the rest.
    """
    return 2.0 * max(largest_radius, 0.5 * following) * sqrt(2.0 * K * information)


def _value_targeted(S: int, H: int, K: float, d: int, zeta: float, B: float) -> float:
    """Optimism at visited pairs, all layers: |phi_V| <= M N, with M steps to follow and N <= S - H next states."""
    total = 0.0
    for following in range(1, H):
        information = _information(K * (following * (S - H)) ** 2, d)
        radius = radii.scalar(information, H - 1, d, 1.0, zeta, B, span=following)
        total += visited_optimism(radius, following, information, K)
    return total


def _full_information(
    name: str,
    terms: tuple[tuple[str, float], ...],
    order: float,
    formula: str,
    source: str,
    failure: float,
    losses: Losses = "adversarial",
) -> Bound:
    """A bound of a learner of linear mixtures that sees all losses."""
    page = f"{source}; constants: docs/learners/value-targeted.md"
    return _sum_of(name, terms, order, formula, page, failure, "full", losses=losses)


@_bound
def oppo(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order d H^2 sqrt(K), full information; with our radius, see docs/learners/value-targeted.md."""
    terms = (
        ("WEIGHTS", exponential_weights(A, H, K, constants.oppo(A, H, K))),
        ("OPTIMISM", _value_targeted(S, H, K, d, zeta, B)),
        ("UNVISITED", unvisited_optimism(H, K, zeta)),
    )
    source = "Cai, Yang, Jin, Wang 2020"
    return _full_information("oppo", terms, d * H**2 * sqrt(K), "d H^2 sqrt(K)", source, 2.0 * zeta)


@_bound
def powers(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order d H^(3/2) sqrt(K), full information, for large K.

    The value is a simpler bound with constants, of order d H^2 sqrt(K): it takes sigma <= sqrt(3) H where the source
    uses the law of total variance.
    """
    weights = ("WEIGHTS", exponential_weights(A, H, K, constants.oppo(A, H, K)))
    terms = (weights, *_weighted_values(S, H, K, d, zeta, B))
    source = "He, Zhou, Gu 2022"
    return _full_information("powers", terms, d * H**1.5 * sqrt(K), "d H^(3/2) sqrt(K)", source, 4.0 * zeta)


def _weighted_values(S: int, H: int, K: float, d: int, zeta: float, B: float) -> tuple[tuple[str, float], ...]:
    """What optimism costs with the regression of POWERS."""
    regularisation, longest = B**-2, float(S - H)
    root = sqrt(d)
    radius = radii.self_normalised_bernstein(
        int(K), H, d, regularisation, zeta, B, deviation=1.0, largest=root, length=root * longest
    )
    information = d * log(1.0 + K * longest**2 / regularisation)
    return (
        ("OPTIMISM", sum(visited_optimism(sqrt(3.0) * H * radius, m, information, K) for m in range(1, H))),
        ("UNVISITED", unvisited_optimism(H, K, zeta)),
    )


@_bound
def ucrl_vtr(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order d H^2 sqrt(K), full information, for losses that are drawn independently from one distribution only."""
    terms = (
        ("OPTIMISM", _value_targeted(S, H, K, d, zeta, B)),
        ("UNVISITED", unvisited_optimism(H, K, zeta)),
        ("MEAN LOSSES", 2.0 * H + 2.0 * H * sqrt(2.0 * K * log(2.0 * S * A * K / zeta))),
        ("LUCK", H * (sqrt(0.5 * K * log(1.0 / zeta)) + sqrt(0.5 * K * log(S * A / zeta)))),
    )
    order, source = d * H**2 * sqrt(K), "Ayoub, Jia, Szepesvari, Wang, Yang 2020"
    return _full_information("ucrl-vtr", terms, order, "d H^2 sqrt(K)", source, 5.0 * zeta, "stochastic")


# ------------------------------------------- full information, occupancy measures, comparators that change

FULL_PAGE = "docs/learners/full-information.md"


def ranged_descent(initial: float, eta: float, K: float, ranges: float) -> float:
    """initial / eta + (eta / 8) K ranges: mirror descent on losses whose squared ranges add up to ``ranges``.

    By Hoeffding's lemma: H with the entropy of pairs, layer by layer; H^2 with conditional entropy, over episodes.
    """
    return initial / eta + 0.125 * eta * K * ranges


@_bound
def vls_o_reps(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, conditional: bool = False
) -> Bound:
    """REGRET, H sqrt(K log(S A / H) / 2), and the ERROR of ``vlsuob-reps-tight``; holds with probability 1 - 2 zeta."""
    largest, information = _joint(S, H, K, d, zeta, B)
    width = expected_width(visited_width_all_states(largest, information, S, H, K), H, zeta, layers=H - 1)
    if conditional:
        eta = constants.vls_o_reps_conditional(A, H, K)
        regret = ranged_descent(H * log(max(A, 2)), eta, K, H * H)
    else:
        regret = ranged_descent(H * log(S * A / H), constants.vls_o_reps(S, A, H, K), K, H)
    terms = (("REGRET", regret), ("ERROR", error(width, H)))
    name = "vls-o-reps, conditional" if conditional else "vls-o-reps"
    order, formula = d * sqrt(H**3 * S * K), "d sqrt(H^3 S K)"
    return _sum_of(name, terms, order, formula, FULL_PAGE, 2.0 * zeta, "full")


@_bound
def vls_o_reps_conditional(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """The same with conditional entropy, whose REGRET is H sqrt(H K log(A) / 2)."""
    return vls_o_reps(S, A, H, K, d, zeta, B, conditional=True)


def changing_comparator(S: int, A: int, H: int, K: float, path: float, ratio: float) -> tuple[tuple[str, float], ...]:
    """Hedge over mirror descents with shares, against any q*_1, ..., q*_K with sum_k |q*_k - q*_{k-1}|_1 <= path.

    Some step size is within a factor sqrt(ratio) of the best one, sqrt(8 Lambda / (H K)).
    """
    count, worst = len(constants.changing_steps(S, A, H, K, ratio)), sqrt(ratio) + 1.0 / sqrt(ratio)
    divergence = constants.changing_divergence(S, A, H, K, path)
    return (
        ("STEPS", worst * sqrt(0.125 * divergence * H * K)),
        ("HEDGE", H * sqrt(0.5 * K * log(count))),
        ("SHARES", float(H)),
    )


@_bound
def do_reps(
    S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0, *, path_length: float = 0.0
) -> Bound:
    """Always: known transition, full information; against a comparator of a path length, 0 if it never changes."""
    terms = changing_comparator(S, A, H, K, path_length, ratio=2.0)
    order, formula = sqrt(H * K * (H + path_length)), "sqrt(H K (H + P))"
    source = f"Zhao, Li, Zhou 2022; constants: {FULL_PAGE}"
    value = sum(value for _, value in terms)
    return Bound("do-reps", value, True, order, formula, "full", "known", "tabular", source, holds="1", terms=terms)


@_bound
def occupancy_ensemble(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, path_length: float = 0.0
) -> Bound:
    """Order d H^(3/2) sqrt(K) + sqrt(H K (H + P)), full information; the value has the OPTIMISM of :func:`powers`."""
    terms = changing_comparator(S, A, H, K, path_length, ratio=4.0) + _weighted_values(S, H, K, d, zeta, B)
    order = d * H**1.5 * sqrt(K) + sqrt(H * K * (H + path_length))
    formula, source = "d H^(3/2) sqrt(K) + sqrt(H K (H + P))", f"Li, Zhao, Zhou 2024 (NeurIPS); constants: {FULL_PAGE}"
    return _sum_of("occupancy-ensemble", terms, order, formula, source, 4.0 * zeta, "full")


@_bound
def powers_dynamic(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, path_length: float = 0.0
) -> Bound:
    """Order d H^(3/2) sqrt(K) + sqrt(H^3 K (H + P)), full information; the learner is told a path length of 2 H."""
    eta = constants.powers_dynamic(A, H, K, 2.0 * H)
    squares = constants.squared_ranges(H)
    weights = ranged_descent(constants.changing_weights(A, H, K, path_length), eta, K, squares)
    order = d * H**1.5 * sqrt(K) + sqrt(H**3 * K * (H + path_length))
    formula = "d H^(3/2) sqrt(K) + sqrt(H^3 K (H + P))"
    source, terms = f"Li, Zhao, Zhou 2023; constants: {FULL_PAGE}", _weighted_values(S, H, K, d, zeta, B)
    return _sum_of("powers-dynamic", (("WEIGHTS", weights), *terms), order, formula, source, 4.0 * zeta, "full")


@_bound
def hf_o2ps(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H (d + log(S^2 A)) sqrt(K) + H d^2 for losses in [0, 1]; constants not read in the source."""
    order, formula = H * (d + log(S**2 * A)) * sqrt(K) + H * d**2, "H (d + log(S^2 A)) sqrt(K) + H d^2"
    return _order_only("hf-o2ps", order, formula, "full", "shared mixture", "Ji, Zhao, He, Zhang, Gu 2024")


@_bound
def exp3_policies(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """H sqrt(2 n K log n) in expectation, n = A^(S - 1) deterministic policies: no structure is used at all."""
    log_n = (S - 1) * log(A)
    n = exp(log_n) if log_n < 700.0 else inf
    value, order = H * sqrt(2.0 * n * K * log_n) if log_n > 0.0 else 0.0, H * sqrt(n * K)
    source = "Auer, Cesa-Bianchi, Freund, Schapire 2002"
    return _tabular("exp3-policies", value, order, "H sqrt(A^(S-1) K)", "bandit", "unknown", source, "expectation")


# -------------------------------------------------------------------------------------------- linear MDPs

#: Bandit feedback, unknown transition, losses linear in features: sources with their powers of K.  Powers of d and H,
#: and constants, were not read in the sources; that of Kong et al. adds a power of 1 / lambda_min.
BANDIT_LINEAR_MDP: tuple[tuple[str, float], ...] = (
    ("Luo, Wei, Lee 2021", 14 / 15),
    ("Dai, Luo, Wei, Zimmert 2023", 8 / 9),
    ("Sherman, Koren, Mansour 2023", 6 / 7),
    ("Kong, Zhang, Wang, Li 2023", 4 / 5),
    ("Liu, Wei, Zimmert 2024, efficient", 3 / 4),
    ("Liu, Wei, Zimmert 2024, inefficient", 1 / 2),
)


def _linear_losses(name: str, terms: tuple[tuple[str, float], ...], order: float, formula: str, source: str) -> Bound:
    """Known transition, bandit feedback, losses linear in features; in expectation."""
    setting: tuple[Feedback, Transition, str] = ("bandit", "known", "linear MDP")
    value, page = sum(value for _, value in terms), f"{source}; {LINEAR_PAGE}"
    return Bound(name, value, True, order, formula, *setting, page, holds="expectation", terms=terms, losses="linear")


@_bound
def q_reps(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, leverage: float | None = None
) -> Bound:
    """gamma H K + H log(S A / H) / eta + 2 eta d H K, at most 2 H sqrt((L + 2 d) K log(S A / H)) for large K.

    L, the largest phi' Sigma^-1 phi under uniform play, is a property of the world (``learner.leverage``).  By
    default it is d, the least that it can be where the features of a layer span d dimensions.
    """
    eta, gamma = constants.q_reps(S, A, H, K, d, d if leverage is None else leverage)
    terms = (("EXPLORATION", gamma * H * K), ("REGRET", H * log(S * A / H) / eta), ("VARIANCE", 2.0 * eta * d * H * K))
    return _linear_losses("q-reps", terms, H * sqrt(d * K), "H sqrt(d K)", f"{NEU} 2021 (NeurIPS)")


@_bound
def mdp_linexp3(
    S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, leverage: float | None = None
) -> Bound:
    """gamma H K + H log(A) / eta + eta K (H L / gamma) sum_h (H - h)^2, with L as for :func:`q_reps`."""
    L = d if leverage is None else leverage
    eta, gamma = constants.mdp_linexp3(A, H, K, L)
    terms = (
        ("EXPLORATION", gamma * H * K),
        ("WEIGHTS", H * log(max(A, 2)) / eta),
        ("VARIANCE", eta * K * H * L / gamma * (H * (H + 1) * (2 * H + 1) / 6.0)),
    )
    order, formula = H**2 * d ** (1.0 / 3.0) * K ** (2.0 / 3.0), "H^2 d^(1/3) K^(2/3)"
    return _linear_losses("mdp-linexp3", terms, order, formula, f"{NEU} 2020 (arXiv)")


@_bound
def oppo_linear(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H^2 sqrt(d (d + S) K), full information; holds with probability 1 - 2 zeta."""
    information = _information(K, d)
    radius = least_squares_radius(information, all_values(S - H, H - 1), 1.0, zeta, B)
    terms = (
        ("WEIGHTS", exponential_weights(A, H, K, constants.oppo(A, H, K))),
        ("OPTIMISM", sum(visited_optimism(m * radius, m, information, K) for m in range(1, H))),
        ("UNVISITED", unvisited_optimism(H, K, zeta)),
    )
    order, formula = H**2 * sqrt(d * (d + S) * K), "H^2 sqrt(d (d + S) K)"
    source = f"after Zhong, Zhang 2023; {LINEAR_PAGE}"
    return _sum_of("oppo-linear", terms, order, formula, source, 2.0 * zeta, "full", "linear MDP")


@_bound
def uob_reps_linear(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Theorem 1 of the paper with the widths of least squares, for any losses; holds with probability 1 - 5 zeta."""
    information = _information(K, d)
    radius = least_squares_radius(information, log(S), 1.0, zeta, B)
    terms = _theorem(visited_width_one_state(radius, information, S, H, K), S, A, H, K, zeta)
    order, formula = d * S**2 * sqrt(K) + sqrt(H * S * A * K), "d S^2 sqrt(K) + sqrt(H S A K)"
    return _sum_of("uob-reps-linear", terms, order, formula, LINEAR_PAGE, 5.0 * zeta, model="linear MDP")


@_bound
def dilated_bonus_linear(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order K^(14/15) of the source, whose powers of d and H were not read; not proved for the library's version."""
    source = "Luo, Wei, Lee 2021; constants not read in the source; the library's version is another"
    bound = _order_only("dilated-bonus-linear", K ** (14.0 / 15.0), "K^(14/15)", "bandit", "linear MDP", source)
    return replace(bound, losses="linear")


# ------------------------------------------------------------------------------------------ lower bounds


@_bound
def lower_tabular(S: int, A: int, H: int, K: float, d: int = 1, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order H sqrt(S A K): no learner of tabular MDPs does better, even with full information."""
    order, source = H * sqrt(S * A * K), "Jin, Allen-Zhu, Bubeck, Jordan 2018"
    return _order_only("lower bound, tabular", order, "H sqrt(S A K)", "full", "tabular", source, "lower")


@_bound
def lower_linear_mixture(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> Bound:
    """Order d H sqrt(K) + sqrt(H S A K): bandit feedback, linear mixtures."""
    return _order_only(
        "lower bound, linear mixture",
        d * H * sqrt(K) + sqrt(H * S * A * K),
        "d H sqrt(K) + sqrt(H S A K)",
        "bandit",
        "linear mixture",
        f"{ZHAO}, Theorem 2",
        "lower",
    )


# ------------------------------------------------------------------------------------------- all together


def of_learner(
    name: str, S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0, *, oblivious: bool = True
) -> float:
    """The regret bound of a learner with its default options after all K episodes, NaN where no constants are known.

    It holds whatever the losses are (NaN for a learner of stochastic ones), and is about the end of a run of K episodes
    only: step size and exploration are tuned to K.  A bound on the *expected* regret compares with a policy that is
    fixed before the run, so it says nothing of losses that react (``oblivious=False``): their best policy depends on
    the run.
    """
    for function in BOUNDS:
        bound = function(S, A, H, K, d, zeta, B)
        adversarial = bound.side == "upper" and bound.losses == "adversarial"
        speaks = oblivious or bound.holds != "expectation"
        if bound.name == name and bound.explicit and adversarial and speaks:
            return bound.value
    return nan


def table(S: int, A: int, H: int, K: float, d: int, zeta: float = 0.05, B: float = 1.0) -> pd.DataFrame:
    """All bounds at these sizes, one row each, with the K from which an explicit one is not vacuous."""
    import pandas as pd  # slow, and nothing else here needs it

    rows = []
    for function in BOUNDS:
        bound = function(S, A, H, K, d, zeta, B)
        row = asdict(bound)
        del row["terms"]
        row["share of H K"] = bound.value / (H * K)
        known = bound.explicit and bound.side == "upper"
        row["vacuous until"] = vacuous_until(function, S, A, H, d, zeta, B) if known else nan
        rows.append(row)
    return pd.DataFrame(rows)


def smallest(
    S: int,
    A: int,
    H: int,
    K: float,
    d: int,
    zeta: float = 0.05,
    B: float = 1.0,
    *,
    feedback: Feedback = "bandit",
    transition: Transition = "unknown",
    explicit: bool = False,
) -> Bound:
    """The smallest upper bound of a setting with adversarial losses: by order, or by value among the explicit ones.

    Bounds that need less feedback, or no knowledge of the transition, count as well; those that need more of a model
    (weights that are the same in every layer, a linear MDP) do not.
    """
    levels = ("total", "bandit", "full")
    candidates: Iterable[Bound] = (function(S, A, H, K, d, zeta, B) for function in BOUNDS)
    allowed = [
        bound
        for bound in candidates
        if bound.side == "upper"
        and bound.losses == "adversarial"
        and bound.model not in ("shared mixture", "linear MDP")
        and levels.index(bound.feedback) <= levels.index(feedback)
        and (transition == "known" or bound.transition == "unknown")
        and (bound.explicit or not explicit)
    ]
    return min(allowed, key=lambda bound: bound.value if explicit else bound.order)


def vacuous_until(
    function: BoundFunction,
    S: int,
    A: int,
    H: int,
    d: int,
    zeta: float = 0.05,
    B: float = 1.0,
    largest: float = 2.0**100,
) -> float:
    """The K from which a bound stays below the trivial H K; infinite if not before ``largest``.

    No learner has a regret above H K, so that below this K the bound says nothing.
    """

    def vacuous(K: float) -> bool:
        return function(S, A, H, K, d, zeta, B).value >= H * K

    if vacuous(largest):
        return inf
    high = largest
    while high > 1.0 and not vacuous(high / 2.0):
        high /= 2.0
    low = high / 2.0
    while high - low > max(1.0, 1e-12 * high):
        middle = float(int(0.5 * (low + high)))
        low, high = (middle, high) if vacuous(middle) else (low, middle)
    return high
