"""Intervals for mixture weights: the shadows of a likelihood set, against a grid, and as often right as they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import InvalidSpecError
from advmdp.confidence.likelihood import weight_intervals

ZETA = 0.05


def drawn(rng, dim, transitions, weights, rows=6, width=3):
    """Base probabilities of the transitions that a mixture made, each of its rows met at random."""
    kernels = rng.dirichlet(np.ones(width), size=(rows, dim))
    kernels[0, 0] = np.eye(width)[0]  # zeros too
    met = rng.integers(rows, size=transitions)
    mixed = np.einsum("rdt,d->rt", kernels, weights)
    nexts = (rng.random(transitions)[:, None] > np.cumsum(mixed[met], axis=1)).sum(axis=1).clip(max=width - 1)
    return kernels[met, :, nexts]


def counted(vectors):
    return np.unique(vectors, axis=0, return_counts=True)


def level(vectors, counts, best):
    dim = vectors.shape[1]
    telling = (vectors != vectors[:, :1]).any(axis=1)
    return best - 0.5 * (dim - 1) * np.log(counts[telling].sum() + 1.0) - np.log(2.0) - np.log(1.0 / ZETA)


@pytest.mark.parametrize(("dim", "step"), [(2, 1e-4), (3, 4e-3)])
@pytest.mark.parametrize("transitions", [1, 7, 60, 400])
def test_ends_are_those_that_a_grid_finds(dim, step, transitions):
    rng = np.random.default_rng(transitions)
    vectors, counts = counted(drawn(rng, dim, transitions, rng.dirichlet(np.ones(dim))))
    ticks = np.arange(0.0, 1.0 + step / 2, step)
    grid = np.array([point for point in itertools.product(ticks, repeat=dim - 1) if sum(point) <= 1.0 + 1e-12])
    grid = np.column_stack([grid, 1.0 - grid.sum(axis=1)]).clip(min=0.0)
    with np.errstate(divide="ignore"):
        values = np.log(grid @ vectors.T) @ counts
    inside = grid[values >= level(vectors, counts, values.max())]
    weights, low, high = weight_intervals(vectors, counts.astype(float), ZETA)
    assert np.abs(low - inside.min(axis=0)).max() <= 2.0 * step
    assert np.abs(high - inside.max(axis=0)).max() <= 2.0 * step
    assert (low <= weights + 1e-12).all()
    assert (weights <= high + 1e-12).all()


@pytest.mark.parametrize("dim", [2, 3])
def test_the_truth_is_inside_at_all_times(dim):
    misses = narrow = 0
    for run in range(40):
        rng = np.random.default_rng((dim, run))
        truth = rng.dirichlet(np.ones(dim))
        vectors = drawn(rng, dim, 300, truth)
        missed = closer = False
        for n in (1, 3, 10, 30, 100, 300):
            weights, low, high = weight_intervals(*(x.astype(float) for x in counted(vectors[:n])), ZETA)
            missed |= bool(((truth < low) | (truth > high)).any())
            near = 0.25
            closer |= bool(
                ((truth < weights + near * (low - weights)) | (truth > weights + near * (high - weights))).any()
            )
        misses += missed
        narrow += closer
    assert misses <= 2
    assert narrow >= 20  # control: intervals of a quarter of the width are too narrow


def test_what_all_kernels_agree_on_says_nothing():
    vectors, counts = np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([1000.0, 5.0])
    with_them, without = weight_intervals(vectors, counts, ZETA), weight_intervals(vectors[1:], counts[1:], ZETA)
    assert all(np.array_equal(a, b) for a, b in zip(with_them, without, strict=True))
    weights, low, high = weight_intervals(vectors[:1], counts[:1], ZETA)
    assert (weights.tolist(), low.tolist(), high.tolist()) == ([0.5, 0.5], [0.0, 0.0], [1.0, 1.0])


def test_one_kernel_leaves_no_doubt():
    weights, low, high = weight_intervals(np.array([[0.3]]), np.array([4.0]), ZETA)
    assert (weights[0], low[0], high[0]) == (1.0, 1.0, 1.0)


def test_a_transition_that_one_kernel_excludes_excludes_its_weight_of_one():
    _, low, high = weight_intervals(np.array([[0.0, 0.5]]), np.array([1.0]), ZETA)
    assert high[0] < 1.0
    assert low[1] > 0.0


def test_zeta_is_a_probability():
    with pytest.raises(InvalidSpecError, match="zeta is 0, should be a probability"):
        weight_intervals(np.array([[0.3, 0.7]]), np.array([4.0]), 0)
