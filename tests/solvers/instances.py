"""Seeded instances of the two optimisation steps: ordinary ones, and ones built to break a solver.

An instance is a function of (family, seed) alone. Families: ``ellipsoid``, ``simplex``, ``box``, ``l1``,
``known``. Ordinary instances vary sizes, radii and the structure of the rows; harsh ones also have
occupancies far below the range of floating point, large losses, and sets that are only just empty or
only just not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advmdp.confidence import BoxSet, ConfidenceSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.layered.rows import SparseRows

FAMILIES = ("ellipsoid", "simplex", "box", "l1", "known")
STRUCTURES = ("dense", "sparse", "deterministic", "rank-deficient", "signed", "uneven-sums")


@dataclass(frozen=True)
class Instance:
    """One mirror step: from q (given by its logarithm) along the loss, within the set."""

    name: str
    confidence_set: ConfidenceSet
    log_q: list[np.ndarray]
    loss: list[np.ndarray]
    step_size: float
    kernels: list[np.ndarray]
    """The kernels of the previous iterate, the prior of the triple entropy; positive where allowed."""
    truth: list[np.ndarray]
    empty: bool = False
    """Whether the set was built to have an empty pair."""

    @property
    def q(self) -> list[np.ndarray]:
        return [np.exp(values) for values in self.log_q]


def ordinary(family: str, seed: int) -> Instance:
    """A random instance within the range that a conic solver handles."""
    rng = _generator(family, seed, harsh=False)
    confidence_set, truth, label = _random_set(family, rng, STRUCTURES)
    log_q = _log_occupancy(rng, truth, depth=float(rng.choice([1.0, 4.0])))
    loss = [rng.random(q.shape) * (rng.random(q.shape) < 0.7) for q in log_q]
    step_size = float(10.0 ** rng.uniform(-2.0, 0.7))
    return Instance(
        f"{family}-{seed}-{label}", confidence_set, log_q, loss, step_size,
        _prior(rng, truth, confidence_set), truth,
    )  # fmt: skip


def harsh(family: str, seed: int) -> Instance:
    """An instance at the edge: deep occupancies, large losses, thin, point-like or empty sets."""
    rng = _generator(family, seed, harsh=True)
    structures = ("deterministic", "deterministic", "signed", "rank-deficient", *STRUCTURES)
    confidence_set, truth, label = _random_set(family, rng, structures, harsh=True)
    edge = rng.choice(["plain", "plain", "plain", "just-empty", "just-nonempty", "touching"])
    empty = False
    if family not in ("l1", "known") and edge != "plain":
        multiple = confidence_set.smallest_radius_multiple()
        if 0.0 < multiple < np.inf:
            factor = {
                "just-empty": 1.0 - 10.0 ** rng.uniform(-6.0, -2.0),
                "just-nonempty": 1.0 + 10.0 ** rng.uniform(-6.0, -2.0),
                "touching": 1.0 + 10.0 ** rng.uniform(-9.0, -7.0),
            }[str(edge)]
            confidence_set = confidence_set.enlarged(multiple * factor)
            empty = edge == "just-empty"
            label = f"{label}-{edge}"
    depth = float(rng.choice([1.0, 30.0, 300.0, 900.0]))
    log_q = _log_occupancy(rng, truth, depth)
    largest = float(rng.choice([0.0, 1e-6, 1.0, 50.0]))
    density = float(rng.choice([0.1, 1.0]))
    loss = [rng.random(q.shape) * (rng.random(q.shape) < density) for q in log_q]
    return Instance(
        f"{family}-{seed}-{label}-depth{depth:g}-loss{largest:g}", confidence_set, log_q, loss,
        largest, _prior(rng, truth, confidence_set), truth, empty,
    )  # fmt: skip


def _generator(family: str, seed: int, *, harsh: bool) -> np.random.Generator:
    return np.random.default_rng([FAMILIES.index(family), int(harsh), seed])


def _random_set(
    family: str, rng: np.random.Generator, structures: tuple[str, ...], *, harsh: bool = False
) -> tuple[ConfidenceSet, list[np.ndarray], str]:
    """A set that contains the returned kernel."""
    horizon = int(rng.integers(1, 9))
    widest = 12 if rng.random() < 0.5 else 5
    sizes = [1, *(int(n) for n in rng.integers(1, widest + 1, size=horizon - 1)), 1]
    n_actions = int(rng.integers(1, 7))
    dim = int(rng.integers(1, 11))
    structure = str(rng.choice(structures))
    if family == "simplex" and structure in ("signed", "uneven-sums"):
        structure = "dense"
    features, theta = _mixture(rng, sizes, n_actions, dim, structure)
    truth = [np.clip(phi @ weight, 0.0, None) for phi, weight in zip(features, theta, strict=True)]
    truth = [kernel / kernel.sum(axis=2, keepdims=True) for kernel in truth]
    if family in ("ellipsoid", "simplex"):
        confidence_set: ConfidenceSet = _ellipsoid(rng, features, theta, family == "simplex")
    elif family == "box":
        confidence_set = _box(rng, truth, thin=harsh)
    elif family == "l1":
        radii = [
            10.0 ** rng.uniform(-3.0, 0.5, kernel.shape[:2])
            * (rng.random(kernel.shape[:2]) < 0.9)
            for kernel in truth
        ]  # fmt: skip
        centres = [
            _towards(kernel, rng.dirichlet(np.ones(kernel.shape[2]), kernel.shape[:2]), radius)
            for kernel, radius in zip(truth, radii, strict=True)
        ]
        confidence_set = L1Set(centres, radii)
    else:
        confidence_set = KnownKernels(truth)
    return confidence_set, truth, structure


def _towards(kernel: np.ndarray, other: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Move each row towards another one by at most its radius in the l1 norm."""
    distance = np.abs(other - kernel).sum(axis=2)
    share = np.minimum(1.0, 0.9 * radius / np.maximum(distance, 1e-300))[:, :, None]
    return (1.0 - share) * kernel + share * other


def _mixture(
    rng: np.random.Generator, sizes: list[int], n_actions: int, dim: int, structure: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Features of d base kernels, changed to the structure, and parameters that give a kernel."""
    features, parameters = [], []
    for h in range(len(sizes) - 1):
        shape = (sizes[h], n_actions)
        concentration = 0.2 if rng.random() < 0.3 else 1.0
        base = rng.dirichlet(np.full(sizes[h + 1], concentration), size=(dim, *shape))
        weights = rng.dirichlet(np.ones(dim))
        if structure == "sparse":
            # The same next states are out of reach for every base kernel.
            keep = rng.random((*shape, sizes[h + 1])) < 0.5
            keep[..., 0] |= ~keep.any(axis=2)
            base = base * keep + 1e-300 * keep
            base /= base.sum(axis=3, keepdims=True)
        elif structure == "deterministic":
            chosen = rng.integers(sizes[h + 1], size=(dim, *shape))
            base = np.eye(sizes[h + 1])[chosen]
            weights = np.eye(dim)[rng.integers(dim)]
        elif structure == "rank-deficient":
            base = base[rng.integers(max(1, dim // 2), size=dim)]
        phi = np.moveaxis(base, 0, -1)
        theta = weights
        if structure == "signed":
            turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
            phi, theta = phi @ turn, turn.T @ weights
        elif structure == "uneven-sums" and dim > 1:
            # A coordinate that no valid kernel needs, whose sum over next states differs by pair.
            phi = phi.copy()
            phi[..., 0] = rng.normal(size=phi.shape[:3])
            theta = np.concatenate([[0.0], rng.dirichlet(np.ones(dim - 1))])
        norm = float(np.linalg.norm(phi, axis=3).max())
        features.append(np.ascontiguousarray(phi / norm))
        parameters.append(theta * norm)
    return features, parameters


def _ellipsoid(
    rng: np.random.Generator,
    features: list[np.ndarray],
    theta: list[np.ndarray],
    simplex: bool,
) -> EllipsoidSet:
    """Gram matrices of some visited pairs; the truth lies inside, up to nine tenths of the radius."""
    dim = features[0].shape[3]
    radius = float(10.0 ** rng.uniform(-3.0, 3.0))
    visits = 10.0 ** rng.uniform(0.0, 5.0)
    centres, grams = [], []
    for phi, weight in zip(features, theta, strict=True):
        rows = phi.reshape(-1, dim)[rng.integers(phi.size // dim, size=3 * dim)]
        gram = np.eye(dim) + visits * (rows.T @ rows) / (3 * dim)
        noise = np.linalg.solve(np.linalg.cholesky(gram).T, rng.normal(size=dim))
        length = np.sqrt(noise @ gram @ noise)
        centres.append(weight + noise * (0.9 * rng.random() * radius / length))
        grams.append(gram)
    return EllipsoidSet(features, centres, grams, radius, simplex)


def _box(rng: np.random.Generator, truth: list[np.ndarray], *, thin: bool) -> BoxSet:
    """Intervals, not clipped to [0, 1], that contain the truth off their centres."""
    lower, upper = [], []
    for kernel in truth:
        width = 10.0 ** rng.uniform(-3.0, 0.0) * rng.random(kernel.shape)
        width *= rng.random(kernel.shape) < (0.6 if thin else 0.9)
        shift = rng.uniform(-0.95, 0.95, kernel.shape) * width
        lower.append(kernel + shift - width)
        upper.append(kernel + shift + width)
    return BoxSet(lower, upper)


def _log_occupancy(rng: np.random.Generator, truth: list[np.ndarray], depth: float) -> list[np.ndarray]:
    """log q of a policy whose log-probabilities go down to about -depth, on a mixed kernel; each layer
    is normalised. Every pair keeps some mass, as after any number of mirror steps."""
    log_q = []
    log_state = np.zeros(1)
    for kernel in truth:
        logits = -depth * rng.random(kernel.shape[:2]) ** 2
        log_policy = logits - _log_sum(logits, axis=1)[:, None]
        layer = log_state[:, None] + log_policy
        layer = layer - _log_sum(layer.ravel(), axis=0)
        log_q.append(layer)
        with np.errstate(divide="ignore"):
            log_kernel = np.log(kernel + 1e-3 / kernel.shape[2])
        log_state = _log_sum((layer[:, :, None] + log_kernel).reshape(-1, kernel.shape[2]), axis=0)
    return log_q


def _log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    top = values.max(axis=axis, keepdims=True)
    return np.squeeze(top, axis=axis) + np.log(np.exp(values - top).sum(axis=axis))


def _prior(rng: np.random.Generator, truth: list[np.ndarray], confidence_set: ConfidenceSet) -> list[np.ndarray]:
    """A kernel near the truth that is positive wherever the set allows a positive entry."""
    if isinstance(confidence_set, KnownKernels):
        return truth
    mixed = []
    for kernel in truth:
        other = rng.dirichlet(np.ones(kernel.shape[2]), kernel.shape[:2])
        mixed.append(0.8 * kernel + 0.2 * other)
    return mixed


# The same sets by their possible transitions alone ------------------------------------------------------


def sparse_rows(table: np.ndarray, possible: np.ndarray) -> SparseRows:
    """A table (S_h, A, S_{h+1}) or (S_h, A, S_{h+1}, d) on the support (S_h, A, S_{h+1})."""
    n, n_actions, m = possible.shape
    pairs, nexts = np.nonzero(possible.reshape(n * n_actions, m))
    pointers = np.searchsorted(pairs, np.arange(n * n_actions + 1)).astype(np.int64)
    return SparseRows(pointers, nexts.astype(np.int32), table[possible].copy(), table.shape)


def on_supports(confidence_set: ConfidenceSet, *, first_dense: bool = False) -> ConfidenceSet:
    """The same set with sparse layers.  Of balls in the l1 norm, which move mass anywhere, all entries are stored."""
    start = 1 if first_dense else 0

    def stored(tables: list[np.ndarray], possible: list[np.ndarray]) -> list[np.ndarray | SparseRows]:
        return [
            table if h < start else sparse_rows(table, support)
            for h, (table, support) in enumerate(zip(tables, possible, strict=True))
        ]

    if isinstance(confidence_set, EllipsoidSet):
        features = confidence_set.features
        return EllipsoidSet(
            stored(features, [(table != 0.0).any(axis=3) for table in features]),
            list(confidence_set.centres), list(confidence_set.grams), confidence_set.radius, confidence_set.simplex,
        )  # fmt: skip
    if isinstance(confidence_set, BoxSet):
        lower, upper = confidence_set._given
        possible = [(low != 0.0) | (high != 0.0) for low, high in zip(lower, upper, strict=True)]
        return BoxSet(stored(lower, possible), stored(upper, possible))
    if isinstance(confidence_set, L1Set):
        everywhere = [np.ones(centre.shape, dtype=np.bool_) for centre in confidence_set.centres]
        return L1Set(stored(confidence_set.centres, everywhere), confidence_set.radii)
    assert isinstance(confidence_set, KnownKernels)
    return KnownKernels(stored(confidence_set.kernels, [kernel > 0.0 for kernel in confidence_set.kernels]))
