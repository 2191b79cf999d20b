"""Is reality a mixture at all?  A test that may be looked at after every episode.

The null hypothesis of a layer is that its transitions come from *some* kernel <phi, theta> of the model, the same in
all episodes.  The evidence against it is the ratio

    E = prod_b numerator_b / sup_theta prod_i <phi(s'_i | s_i, a_i), theta>,

one factor b for every visited pair (s, a).  A numerator is the probability that a forecaster gave to the next states
seen at that pair, each forecast made before its transition, by a forecaster who believes with some prior probability
that the row of this pair is free (Krichevsky and Trofimov's Dirichlet(1/2) forecasts), and otherwise in the best
mixture of an earlier moment.  The prior is 1/2 or one over the number of pairs, both at once in equal parts: good for
models that are wrong everywhere, and for those that are wrong in one place.

Under the null hypothesis prod numerator / prod <phi, theta*> is a martingale with mean one whatever the policy, and E
is smaller, so by Ville's inequality P(E ever reaches 1 / level) <= level.  The mean over layers of such processes is
one too, which gives the alarm for all layers together.  Where the weights are the same in every layer (``shared``), the
supremum is over one parameter for all of them, and there is one such process instead of many.
Nothing needs to be decided beforehand: not how often one
looks, not how many episodes there will be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from advmdp._arrays import Floats, Integers
from advmdp._checks import float_array, integer
from advmdp.errors import InvalidSpecError
from advmdp.layered import LinearMixtureModel, SparseRows
from advmdp.layered.rows import like, sums_of, values_of

#: Probability of a false alarm, ever, where nothing else is asked for.
LEVEL = 0.05
#: What a model may miss by: it is accepted if some parameter makes its rows sum to one up to this.
TOLERANCE = 1e-6
#: Probabilities of the null are raised by this much.  The supremum stays finite and can only become larger, by at least
#: what rows that sum to 1 - TOLERANCE and are then normalised gain.
SLACK = 2.0 * TOLERANCE
#: Relative error that the value of a linear programme may have.
LP_ERROR = 1e-6
#: The forecaster never gives less to a possible transition.
LEAST_FORECAST = 1e-12
#: The forecaster's mixture is fitted anew when the number of episodes has grown by this factor.
EPOCH_GROWTH = 1.25
#: The forecaster's mixture is pulled inside as by this many imaginary transitions per coordinate (Dirichlet's prior).
PRIOR_COUNTS = 0.5
#: The same for the supremum; small, since the barrier only serves to compute it.
BARRIER = 1e-3
#: Episodes that may wait before they are counted; bounds the memory between two fits.
MAX_WAITING = 1024


@dataclass(frozen=True, eq=False)
class Misspecification:
    """What the transitions so far say against the model.

    Attributes
    ----------
    log_e
        Log of the e-value of each layer 0..H-2 (one for all with shared weights); large means that no parameter
        explains its transitions.
    evidence
        The same by pair, a list over these layers of ``(S_h, A)``: how much better the forecaster did there than
        the best mixture for the whole layer.  Tells where the model is wrong; only the sums are tests.
    episodes
        How many episodes were looked at.
    level
        The probability of a false alarm, ever.
    """

    log_e: Floats
    evidence: list[Floats]
    episodes: int
    level: float
    shared: bool = False

    @property
    def log_e_total(self) -> float:
        """Log of the mean e-value of all layers."""
        from scipy.special import logsumexp  # slow to import, as what is imported below

        return float(logsumexp(self.log_e) - np.log(self.log_e.size)) if self.log_e.size else 0.0

    @property
    def alarm(self) -> bool:
        """Whether the model is rejected."""
        return self.log_e_total >= -log(self.level)

    @property
    def layers(self) -> list[int]:
        """Layers that are rejected one by one, at ``level`` for all of them together; none with shared weights."""
        if self.shared:
            return []
        return [h for h, value in enumerate(self.log_e) if value >= log(self.log_e.size / self.level)]

    def __str__(self) -> str:
        verdict = f"rejected in layers {self.layers}" if self.layers else "rejected" if self.alarm else "not rejected"
        return (
            f"mixture model {verdict} at level {self.level:g} after {self.episodes} episodes "
            f"(log e-value {self.log_e_total:.2f}, alarm from {-log(self.level):.2f})"
        )


@dataclass(frozen=True, eq=False)
class MixtureEvidence:
    """Collects transitions, and weighs them when asked.  A value: adding an episode returns a new one.

    Adding an episode only keeps its trajectory; counting, forecasting and fitting are done for many at a time.
    Forecasts depend on the episodes before the current *epoch* alone, so that doing them late changes nothing.
    """

    null: Null
    episodes: int
    #: States and actions of the episodes that were not counted yet.
    waiting: tuple[tuple[Integers, Integers], ...]
    #: Transitions that were counted: their numbers, in increasing order, and how often each was seen.
    triples: Integers
    counts: Integers
    #: Log-probability of the counted transitions by the forecaster's mixture, per pair.
    forecast: Floats
    #: The forecaster's parameters in this epoch, and the number of episodes with which it ends.
    fitted: Floats | None
    next_fit: int

    @classmethod
    def empty(cls, model: LinearMixtureModel, shared: bool = False) -> MixtureEvidence:
        """Before the first episode; ``shared``: the weights are the same in every layer."""
        none = np.empty(0, dtype=np.int64)
        return cls(Null(model, shared), 0, (), none, none, np.zeros(model.layers.n_pairs), None, 1)

    def add(self, states: Integers, actions: Integers) -> MixtureEvidence:
        """The evidence with one more episode."""
        before = self
        if self.episodes >= self.next_fit:
            counted = self._counted()
            fitted = np.array([counted._likely(g) for g in range(len(self.null.groups))])
            fitted = fitted.reshape(len(self.null.groups), self.null.model.dim)
            next_fit = int(np.ceil(EPOCH_GROWTH * (self.episodes + 8)))
            before = replace(counted, fitted=fitted, next_fit=next_fit)
        elif len(self.waiting) >= MAX_WAITING:
            before = self._counted()
        episode = (states.copy(), actions.copy())
        # Once per episode: `replace` would take longer than all the rest.
        return MixtureEvidence(
            before.null,
            self.episodes + 1,
            (*before.waiting, episode),
            before.triples,
            before.counts,
            before.forecast,
            before.fitted,
            before.next_fit,
        )

    def weigh(self, level: float = LEVEL) -> Misspecification:
        """What the episodes so far say."""
        if not 0.0 < level < 1.0:
            raise InvalidSpecError(f"level is {level!r}, should be a probability in (0, 1)")
        counted = self._counted()
        log_e, evidence = np.zeros(len(self.null.groups)), []
        for g, layers in enumerate(self.null.groups):
            parameter, excess = counted._fit(g)
            # A row that is free has one of two prior probabilities; log of the mean over them, at the end.
            priors = 0.5, 1.0 / (sum(self.null.pairs(h) for h in layers) + 1)
            totals = np.zeros(2)
            for h in layers:
                pairs, rows, counts = counted._seen(h)
                likelihood = np.zeros(self.null.pairs(h))
                np.add.at(likelihood, pairs, counts * np.log(np.maximum(rows @ parameter, 0.0) + SLACK))
                free, mixture = counted._forecasters(h)
                by_prior = [np.logaddexp(np.log(prior) + free, np.log1p(-prior) + mixture) for prior in priors]
                totals += [a.sum() - likelihood.sum() for a in by_prior]
                evidence.append((by_prior[0] - likelihood).reshape(-1, self.null.model.n_actions))
            log_e[g] = np.logaddexp(*totals) - np.log(2.0) - excess
        return Misspecification(log_e, evidence, self.episodes, level, self.null.shared)

    # ------------------------------------------------------------------------------ numerator

    def _forecasters(self, h: int) -> tuple[Floats, Floats]:
        """Log-probability of what was seen at each pair of layer h, by a free row and by the earlier mixtures."""
        from scipy.special import gammaln

        pairs, _, counts = self._seen(h)
        width = self.null.widths(h)
        totals = np.bincount(pairs, counts, width.size)
        # Krichevsky and Trofimov: the Dirichlet(1/2) probability of the sequence, which its counts determine.
        free = gammaln(width / 2.0) - gammaln(totals + width / 2.0)
        np.add.at(free, pairs, gammaln(counts + 0.5) - gammaln(0.5))
        return free, self.null.model.layers.split(self.forecast)[h].ravel()

    def _counted(self) -> MixtureEvidence:
        """The same with all transitions counted, and what the forecaster gave them added up."""
        if not self.waiting:
            return self
        states = np.array([s for s, _ in self.waiting])
        actions = np.array([a for _, a in self.waiting])
        forecast, layers = self.forecast.copy(), self.null.model.layers
        numbers = [self.triples]
        for h in range(self.null.tested):
            pairs, nexts = states[:, h] * layers.n_actions + actions[:, h], states[:, h + 1]
            np.add.at(forecast, layers.pair_offsets[h] + pairs, np.log(self._forecasts(h, pairs, nexts)))
            numbers.append(self.null.first_triple[h] + pairs * layers.sizes[h + 1] + nexts)
        triples, which = np.unique(np.concatenate(numbers), return_inverse=True)
        counts = np.bincount(which[self.triples.size :], minlength=triples.size)
        counts[which[: self.triples.size]] += self.counts
        return replace(self, waiting=(), triples=triples, counts=counts, forecast=forecast)

    def _forecasts(self, h: int, pairs: Integers, nexts: Integers) -> Floats:
        """What the forecaster gave to transitions of layer h: its mixture, made to sum to one row by row."""
        g = self.null.group_of(h)
        parameter = self.null.families[g].centre if self.fitted is None else self.fitted[g]
        visited, which = np.unique(pairs, return_inverse=True)
        rows, features = self.null.entries(h, visited)
        totals = np.bincount(rows, np.maximum(features @ parameter, LEAST_FORECAST), visited.size)
        given = np.maximum(self.null.features(h, pairs, nexts) @ parameter, LEAST_FORECAST)
        return np.asarray(given / totals[which], dtype=np.float64)

    # ---------------------------------------------------------------------------- denominator

    def _seen(self, h: int) -> tuple[Integers, Floats, Integers]:
        """Distinct transitions of layer h: pair, features, count."""
        begin, end = self.null.first_triple[h : h + 2]
        first, last = np.searchsorted(self.triples, [begin, end])
        pairs, nexts = np.divmod(self.triples[first:last] - begin, self.null.model.layer_sizes[h + 1])
        return pairs, self.null.features(h, pairs, nexts), self.counts[first:last]

    def _seen_by(self, g: int) -> tuple[Floats, Floats]:
        """Features and counts of the distinct transitions of a group of layers."""
        seen = [self._seen(h) for h in self.null.groups[g]]
        return np.concatenate([rows for _, rows, _ in seen]), np.concatenate([n for _, _, n in seen]).astype(np.float64)

    def mixtures_seen(self) -> list[tuple[Floats, Floats]]:
        """For each group of layers with the same weights: base probabilities ``(R, d)`` and counts of what was seen."""
        counted = self._counted()
        found = []
        for g, layers in enumerate(self.null.groups):
            rows, counts = counted._seen_by(g)
            scale = 1.0 if self.null.shared else self.null.model.scales[layers[0]]
            found.append((rows * scale, counts))
        return found

    def _fit(self, g: int) -> tuple[Floats, float]:
        """The likeliest parameter of a group, and a bound on what any other gains over it (in nats)."""
        return self.null.families[g].likeliest(*self._seen_by(g))

    def _likely(self, g: int) -> Floats:
        """What the forecaster believes in: the likeliest parameter of a group, kept away from the boundary."""
        return self.null.families[g].climb(*self._seen_by(g), PRIOR_COUNTS)

    # ---------------------------------------------------------------------------- persistence

    def tree(self) -> dict[str, Any]:
        """For a checkpoint; episodes that wait are saved as they are, so that resuming changes no bit."""
        horizon = self.null.model.horizon
        return {
            "episodes": self.episodes,
            "waiting_states": np.array([s for s, _ in self.waiting], dtype=np.int64).reshape(-1, horizon),
            "waiting_actions": np.array([a for _, a in self.waiting], dtype=np.int64).reshape(-1, horizon),
            "triples": self.triples,
            "counts": self.counts,
            "forecast": self.forecast,
            "fitted": self.fitted,
            "next_fit": self.next_fit,
        }

    @classmethod
    def from_tree(cls, null: Null, tree: dict[str, Any]) -> MixtureEvidence:
        """Read what :meth:`tree` wrote, or raise ValueError where it makes no sense."""
        model, layers = null.model, null.model.layers
        episodes = integer(tree["episodes"], "episodes", 0, ValueError)
        states = _indices(tree["waiting_states"], "waiting_states", (None, layers.horizon), np.array(layers.sizes[:-1]))
        actions = _indices(tree["waiting_actions"], "waiting_actions", states.shape, layers.n_actions)
        triples = _indices(tree["triples"], "triples", (None,), null.first_triple[-1])
        counts = _indices(tree["counts"], "counts", triples.shape, episodes + 1)
        if np.any(np.diff(triples) <= 0) or np.any(counts < 1):
            raise ValueError("triples are not in increasing order, or some count is zero")
        if counts.sum() != null.tested * (episodes - len(states)):
            raise ValueError(f"counts do not add up to the transitions of {episodes - len(states)} episodes")
        forecast = layers.flat_vector(tree["forecast"], "forecast")
        if not np.all((forecast <= 1e-6) & np.isfinite(forecast)):
            raise ValueError("forecast holds something that is not the log of a probability")
        fitted = None if tree["fitted"] is None else float_array(tree["fitted"], "fitted", ValueError)
        if fitted is not None and (fitted.shape != (len(null.groups), model.dim) or not np.isfinite(fitted).all()):
            raise ValueError(f"fitted of shape {fitted.shape}: wrong shape, or entries that are not finite")
        waiting = tuple(zip(states, actions, strict=True))
        next_fit = integer(tree["next_fit"], "next_fit", 1, ValueError)
        return cls(null, episodes, waiting, triples, counts, forecast, fitted, next_fit)


class Null:
    """The model seen as a null hypothesis; nothing here changes with the data."""

    def __init__(self, model: LinearMixtureModel, shared: bool = False) -> None:
        self.model, self.shared = model, shared
        #: Layers with a transition to test: all but the last, which is deterministic.
        self.tested = model.horizon - 1
        sizes = np.array(model.layer_sizes, dtype=np.int64)
        triples = sizes[:-1] * model.n_actions * sizes[1:]
        #: Number of the first transition (s, a, s') of each tested layer, and how many there are in all.
        self.first_triple: Integers = np.append(0, np.cumsum(triples[: self.tested]))
        #: Layers with one parameter: each alone, or all together.
        self.groups: list[list[int]] = [[h] for h in range(self.tested)]
        if shared and self.tested:
            self.groups = [list(range(self.tested))]

    def group_of(self, h: int) -> int:
        """The group of layer h."""
        return 0 if self.shared else h

    def pairs(self, h: int) -> int:
        """Pairs of layer h."""
        return self.model.layer_sizes[h] * self.model.n_actions

    def rows(self, h: int) -> Any:
        """Features of layer h ``(S_h, A, S_{h+1}, d)``; with shared weights in the units of the weights."""
        features = self.model.features[h]
        return like(features, values_of(features) * self.model.scales[h]) if self.shared else features

    def entries(self, h: int, pairs: Integers) -> tuple[Integers, Floats]:
        """The possible transitions of some pairs of layer h: which of the pairs ``(E,)``, and features ``(E, d)``."""
        table, masks = self.model.features[h], self.model.possible
        scale = self.model.scales[h] if self.shared else 1.0
        if isinstance(table, SparseRows):
            lengths = np.diff(table.pointers)[pairs]
            which = np.repeat(np.arange(pairs.size), lengths)
            within = np.arange(which.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            return which, table.values[table.pointers[pairs][which] + within] * scale
        rows = table.reshape(-1, *table.shape[2:])[pairs]
        mask = np.ones(rows.shape[:2], dtype=bool) if masks is None else masks[h].reshape(-1, rows.shape[1])[pairs]
        return np.nonzero(mask)[0], rows[mask] * scale

    def features(self, h: int, pairs: Integers, nexts: Integers) -> Floats:
        """Features of transitions of layer h, ``(n, d)``."""
        table = self.model.features[h]
        scale = self.model.scales[h] if self.shared else 1.0
        if not isinstance(table, SparseRows):
            found: Floats = table.reshape(-1, *table.shape[2:])[pairs, nexts] * scale
            return found
        width = table.shape[2]
        keys, wanted = table.pairs * width + table.nexts, pairs * width + nexts
        place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return np.where((keys[place] == wanted)[:, None], table.values[place], 0.0) * scale

    def widths(self, h: int) -> Integers:
        """How many next states each pair of layer h can have, ``(pairs,)``."""
        table, masks = self.model.features[h], self.model.possible
        if masks is None:
            return np.full(self.pairs(h), table.shape[2])
        found: Integers = sums_of(masks[h]).ravel().astype(np.int64)
        return found

    @cached_property
    def families(self) -> list[_Family]:
        """The kernels of each tested layer; built when first needed, since it may take a linear programme."""
        if self.shared:
            return [_Family([self.rows(h) for h in group], self.model.simplex) for group in self.groups]
        known: dict[int, _Family] = {}  # layers may share one array of features
        for h, features in enumerate(self.model.features[: self.tested]):
            if id(features) not in known:
                known[id(features)] = _Family([self.rows(h)], self.model.simplex)
        return [known[id(features)] for features in self.model.features[: self.tested]]


class _Family:
    """The parameters of a group of layers that make every row a distribution, as far as a model has to.

    { theta: |sums theta - 1| <= tolerance, rows theta >= -tolerance }; with ``simplex`` the rows are theta itself.  The
    norm bound B is left out: a larger family can only make the supremum larger, and the test more careful.
    """

    def __init__(self, features: list[Any], simplex: bool) -> None:
        dim = features[0].shape[3]
        sums = np.concatenate([sums_of(table).reshape(-1, dim) for table in features])
        rows = np.eye(dim) if simplex else np.concatenate([values_of(table).reshape(-1, dim) for table in features])
        rows = rows[(rows != 0.0).any(axis=1)]
        # Coordinates in which some row changes; the others are never seen.
        _, values, directions = np.linalg.svd(rows, full_matrices=False)
        span = directions[values > 1e-10 * values[0]]
        #: Columns span the parameters.
        self._span: Floats = span.T
        self._rows, self._sums = rows, np.unique(sums, axis=0)
        self._simplex = simplex
        particular: Floats = span.T @ np.linalg.lstsq(self._sums @ span.T, np.ones(len(self._sums)), rcond=None)[0]
        # Changes that keep all sums, but for rounding of the features: in these directions the likelihood is climbed.
        # Where that misses some, the climb ends lower, and the bound on what is missing makes up for it.
        _, values, directions = np.linalg.svd(self._sums @ span.T, full_matrices=True)
        rank = int((values > 10.0 * TOLERANCE * values[0]).sum())
        self._basis: Floats = span.T @ directions[rank:].T
        #: Whether some parameter is in the family at all; None where that could not be found out.
        self.exists: bool | None = True
        #: A parameter in the middle: with it, the smallest row entry is (about) as large as it can be.
        self.centre = np.full(dim, particular.sum() / dim) if simplex else self._chebyshev(particular)

    def _chebyshev(self, particular: Floats) -> Floats:
        """Maximise t <= 1 subject to rows theta >= t, theta in the family."""
        width = self._span.shape[1]
        result = self._programme(np.append(np.zeros(width), -1.0), with_margin=True)
        if result.status == 0 and result.x is not None:
            return np.asarray(self._span @ result.x[:-1], dtype=np.float64)
        self.exists = False if result.status == 2 else None
        return particular

    def _programme(self, costs: Floats, with_margin: bool = False) -> Any:
        """Minimise linear costs over the family (and the margin t of its rows, at least -tolerance)."""
        from scipy.optimize import linprog

        rows, sums = self._rows @ self._span, self._sums @ self._span
        margin = [np.ones((len(rows), 1)), np.zeros((2 * len(sums), 1))] if with_margin else []
        table = np.concatenate([-rows, sums, -sums])
        if with_margin:
            table = np.column_stack([table, np.concatenate(margin)])
        least = 0.0 if with_margin else TOLERANCE
        limits = np.concatenate([np.full(len(rows), least), np.full(len(sums), 1.0), np.full(len(sums), -1.0)])
        limits[len(rows) :] += TOLERANCE
        bounds = [(None, None)] * rows.shape[1] + ([(-TOLERANCE, 1.0)] if with_margin else [])
        return linprog(costs, A_ub=table, b_ub=limits, bounds=bounds)

    def _largest(self, gradient: Floats) -> float:
        """An upper bound of <gradient, theta> over the family."""
        if self._simplex:
            return float(self.centre.sum() * (1.0 + SLACK) * gradient.max())
        result = self._programme(-(self._span.T @ gradient))
        return -float(result.fun) * (1.0 + LP_ERROR) if result.status == 0 else np.inf

    def likeliest(self, rows: Floats, counts: Floats) -> tuple[Floats, float]:
        """Maximise sum_i N_i log(<a_i, theta> + slack) by a barrier method.

        The bound on what is missing needs no assumption on how well that went: by Jensen's inequality
        f(theta') - f(theta) <= n log( sum_i (N_i / n) (<a_i, theta'> + slack) / (<a_i, theta> + slack) ), and the
        largest value of the right side over the family is a linear programme.
        """
        total = float(counts.sum())
        if total == 0.0:
            return self.centre, 0.0
        if not self.exists:  # then nothing explains a transition; or we do not know
            return self.centre, np.inf if self.exists is None else -np.inf
        theta = self.climb(rows, counts, BARRIER)
        ratios = counts / total / (np.maximum(rows @ theta, 0.0) + SLACK)
        best = self._largest(rows.T @ ratios) + SLACK * float(ratios.sum())
        return theta, max(total * log(best), 0.0)

    def climb(self, rows: Floats, counts: Floats, barrier: float) -> Floats:
        """Maximise sum_i N_i log(<a_i, theta> + slack) + (barrier d / n_rows) sum_j log(<rows_j, theta> + slack)."""
        theta = self.centre
        if not (self._basis.shape[1] and self.exists):
            return theta
        stacked = np.concatenate([rows, self._rows])
        moves = stacked @ self._basis
        final = barrier * theta.size / len(self._rows)
        weight = max(float(counts.sum()) / len(self._rows), final)
        value = stacked @ theta + SLACK
        while True:
            weights = np.concatenate([counts, np.full(len(self._rows), weight)])
            for _ in range(30):
                scaled = weights / value
                gradient = moves.T @ scaled
                hessian = (moves * (scaled / value)[:, None]).T @ moves
                direction = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
                decrement = float(gradient @ direction)
                change = moves @ direction
                # Damped by the Newton decrement: stays inside, since the objective is self-concordant.
                least = float(min(weights.min(), 1.0))
                step = 1.0 / (1.0 + np.sqrt(max(decrement, 0.0) / least)) if decrement > 0.25 * least else 1.0
                step = min(step, 0.9 / max(float(np.max(-change / value)), 1e-300))
                longer = self._search(weights, value, change, step)
                theta = theta + longer * (self._basis @ direction)
                value = stacked @ theta + SLACK
                if decrement < 1e-3 * weight:
                    break
            if weight <= final:
                return theta
            weight = max(weight / 10.0, final)

    @staticmethod
    def _search(weights: Floats, value: Floats, change: Floats, step: float) -> float:
        """Double a safe step while the objective grows and no row comes near zero."""
        gain = float(weights @ np.log1p(step * change / value))
        while True:
            longer = 2.0 * step
            if longer > 1.0 or np.min(value + longer * change) <= 0.05 * np.min(value):
                return step
            next_gain = float(weights @ np.log1p(longer * change / value))
            if next_gain <= gain:
                return step
            step, gain = longer, next_gain


def _indices(value: Any, what: str, shape: Sequence[int | None], below: Any) -> Integers:
    array = np.asarray(value)
    fits = array.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, array.shape, strict=True))
    if array.dtype != np.int64 or not fits:
        raise ValueError(f"{what} is {array.dtype} of shape {array.shape}, should be int64 of shape {tuple(shape)}")
    if np.any(array < 0) or np.any(array >= below):
        raise ValueError(f"{what} has an entry out of range")
    return array
