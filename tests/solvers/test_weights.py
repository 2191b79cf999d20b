"""Mixture weights of a layer: the support function of one small set against a conic solver, points and meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp._compiled import kernel
from advmdp.confidence import EllipsoidSet
from advmdp.rows.balls import memory_rows
from advmdp.rows.mixture import attained, largest, weight_sets
from advmdp.solvers.occupancy_bounds import extreme_rows
from tests.solvers import reference


@kernel
def call(weights, w, work, slopes, points, active, memory):
    largest(weights.table[0], w, 1, work, slopes)
    return attained(weights.table[0], w, work, slopes, 0, points, active, memory)


class WeightSet:
    """{mu >= 0, sum mu = 1, |mu / c - centre|_gram <= radius}."""

    def __init__(self, c, centre, gram, radius):
        self.c, self.centre, self.gram, self.radius = c, centre, gram, radius
        self.sets = weight_sets(np.array([c]), centre[None], gram[None], np.array([radius]))
        self.smallest = float(self.sets.smallest[0])

    def largest(self, w):
        """The largest value of w.mu, and a point that attains it."""
        d = len(w)
        work, slopes, active = np.empty((6, 1)), np.empty((d - 1, 1)), np.empty(d, dtype=np.int64)
        memory = np.empty((3 + memory_rows(d - 1), d))
        value = call(self.sets, w[:, None].copy(), work, slopes, True, active, memory)
        mu = memory[0].copy()
        assert value == call(self.sets, w[:, None].copy(), work, slopes, False, active, memory)
        guess = work[3, 0]
        assert d > 3 or guess <= 0.0
        if guess <= 0.0:
            assert work[4, 0] + guess == pytest.approx(value, rel=1e-11, abs=1e-11 * np.ptp(w))
        return value, mu

    def outside(self, mu):
        """By how much a point is outside the set, relative to its size."""
        apart = mu / self.c - self.centre
        beyond = np.sqrt(apart @ self.gram @ apart) - self.radius
        return max(-mu.min(), abs(mu.sum() - 1.0), beyond / max(self.radius, 1.0))

    def by_conic_solver(self, w):
        features = [(self.c * np.eye(len(w)))[None, None], np.ones((len(w), 1, 1, len(w)))]
        rows = EllipsoidSet(features, [self.centre] * 2, [self.gram] * 2, self.radius, simplex=True)
        return float(reference.extreme_rows(rows, 0, w)[0, 0])


def random_set(rng, d, *, condition=1e2, slack=None):
    """With a point of the simplex inside, and, with ``slack``, hardly another one."""
    c = float(10.0 ** rng.uniform(-1.0, 0.5))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    gram = turn @ np.diag(condition ** rng.uniform(0.0, 1.0, d)) @ turn.T
    gram = 0.5 * (gram + gram.T)
    inside = rng.dirichlet(np.full(d, 0.3 if rng.random() < 0.5 else 2.0)) / c
    noise = rng.normal(size=d)
    length = np.sqrt(noise @ gram @ noise)
    radius = float(10.0 ** rng.uniform(-2.0, 1.0))
    centre = inside + noise * (0.9 * rng.random() * radius / length)
    found = WeightSet(c, centre, gram, radius)
    if slack is None or found.smallest == 0.0:
        return found
    return WeightSet(c, centre, gram, radius * found.smallest * (1.0 + slack))


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.sampled_from([1.0, 1e2, 1e6]))
def test_the_value_is_attained_by_a_point_of_the_set(seed, d, condition):
    """Every value is that of a dual problem, hence no smaller than the maximum; a point that attains it proves both."""
    rng = np.random.default_rng(seed)
    weights = random_set(rng, d, condition=condition)
    assert weights.smallest <= 1.0
    for _ in range(5):
        w = rng.normal(size=d)
        value, mu = weights.largest(w)
        assert weights.outside(mu) <= 1e-9
        assert value == pytest.approx(w @ mu, abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_no_point_of_the_set_has_a_larger_value(seed, d):
    rng = np.random.default_rng(seed)
    weights = random_set(rng, d)
    extremes = [weights.largest(rng.normal(size=d))[1] for _ in range(20)]
    points = rng.dirichlet(np.ones(20), 50) @ np.array(extremes)
    for w in rng.normal(size=(5, d)):
        assert (points @ w).max() <= weights.largest(w)[0] + 1e-9


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_a_conic_solver(d, seed):
    rng = np.random.default_rng([d, seed])
    weights = random_set(rng, d)
    for w in rng.normal(size=(3, d)):
        assert weights.largest(w)[0] == pytest.approx(weights.by_conic_solver(w), abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_three_simulators_by_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    weights = random_set(rng, 3)
    side = np.linspace(0.0, 1.0, 401)
    x, y = (axis.ravel() for axis in np.meshgrid(side, side))
    grid = np.stack([x, y, 1.0 - x - y], axis=1)[x + y <= 1.0]
    apart = grid / weights.c - weights.centre
    grid = grid[np.einsum("ni,ij,nj->n", apart, weights.gram, apart) <= weights.radius**2]
    for w in rng.normal(size=(20, 3)):
        value, mu = weights.largest(w)
        assert weights.outside(mu) <= 1e-9
        assert (grid @ w).max(initial=-np.inf) <= value + 1e-12


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.sampled_from([1e-12, 1e-9, 1e-6, 1e-3]))
def test_a_set_that_only_just_touches_the_simplex_has_points(seed, d, slack):
    """The centre is outside, often; the set is thin, and its extremes are close to each other."""
    rng = np.random.default_rng(seed)
    weights = random_set(rng, d, slack=slack)
    w = rng.normal(size=d)
    high, mu = weights.largest(w)
    low = -weights.largest(-w)[0]
    assert high >= low - 1e-9
    assert weights.outside(mu) <= 1e-8
    assert w @ mu <= high + 1e-9


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_badly_scaled_grams_keep_upper_bounds_within_the_simplex(seed, d):
    rng = np.random.default_rng(seed)
    weights = random_set(rng, d, condition=1e12)
    for w in rng.normal(size=(5, d)):
        value, mu = weights.largest(w)
        assert weights.outside(mu) <= 1e-6
        assert w @ mu - 1e-9 <= value <= w.max()
        assert value - w @ mu <= 1e-4


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_functions_without_a_direction_have_their_constant_value(d):
    weights = random_set(np.random.default_rng(d), d)
    for constant in (0.0, 0.3, -7.0, 1e-300):
        value, mu = weights.largest(np.full(d, constant))
        assert value == constant
        assert weights.outside(mu) <= 1e-9


def test_a_radius_of_zero_leaves_the_centre():
    centre = np.array([0.2, 0.5, 0.3])
    weights = WeightSet(1.0, centre, np.diag([1.0, 2.0, 3.0]), 0.0)
    w = np.array([1.0, -2.0, 0.5])
    assert weights.largest(w)[0] == pytest.approx(w @ centre, abs=1e-12)
    assert WeightSet(1.0, centre + 0.1, np.eye(3), 0.0).smallest == np.inf
    assert WeightSet(1.0, np.array([1.2, -0.2, 0.0]), np.eye(3), 0.0).smallest == np.inf


def test_a_large_radius_leaves_the_simplex():
    weights = WeightSet(2.0, np.full(4, 0.125), np.eye(4), 100.0)
    w = np.array([0.1, 0.7, -0.3, 0.7])
    value, mu = weights.largest(w)
    assert value == 0.7
    assert mu[1] + mu[3] == pytest.approx(1.0)


def test_a_ball_inside_the_simplex_by_its_formula():
    centre = np.full(3, 1.0 / 3.0)
    weights = WeightSet(1.0, centre, np.eye(3), 0.1)
    w = np.array([1.0, 0.0, 0.0])
    assert weights.largest(w)[0] == pytest.approx(1.0 / 3.0 + 0.1 * np.sqrt(2.0 / 3.0), abs=1e-15)


def test_a_side_of_the_simplex_by_its_formula():
    """The ball around the middle of a side: the best of the third simulator is on the sphere, the worst on the side."""
    weights = WeightSet(1.0, np.array([0.5, 0.5, 0.0]), np.eye(3), 0.2)
    w = np.array([0.0, 1.0, -1.0])
    # On mu_3 = 0 the points are (0.5 - x, 0.5 + x, 0), 2 x^2 <= 0.04.
    assert weights.largest(w)[0] == pytest.approx(0.5 + 0.2 / np.sqrt(2.0), abs=1e-14)


def test_small_differences_are_as_exact_as_large_ones():
    weights = random_set(np.random.default_rng(3), 4)
    w = np.array([0.3, -1.0, 0.2, 0.9])
    assert weights.largest(1e-40 * w)[0] == pytest.approx(1e-40 * weights.largest(w)[0], rel=1e-12)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_where_the_ball_touches_a_vertex_or_a_side_the_value_grows_with_the_radius(d):
    """Rounding there must not lose the point that touches: the value would fall to that of another one."""
    factors = 1.0 + np.array([-1e-9, -1e-11, -1e-13, -1e-15, -2e-16, 0.0, 3e-16, 1e-15, 1e-13, 1e-11, 1e-9])
    for seed in range(1500):
        rng = np.random.default_rng([d, seed])
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        gram = (turn * np.geomspace(1.0, rng.choice([1.0, 1e2, 1e6, 1e10]), d)) @ turn.T
        gram, centre, i = 0.5 * (gram + gram.T), rng.dirichlet(np.ones(d)), int(rng.integers(d))
        if rng.random() < 0.5:
            away = np.eye(d)[i] - centre
        else:  # the next point of the plane sum mu = 1 with mu_i = 0
            sides = np.array([np.eye(d)[i], np.ones(d)])
            across = np.linalg.solve(gram, sides.T)
            away = across @ np.linalg.solve(sides @ across, np.array([0.0, 1.0]) - sides @ centre)
        w, touching = rng.choice([-1.0, 1.0]) * np.eye(d)[i], float(np.sqrt(away @ gram @ away))
        features = [np.eye(d)[None, None], np.full((d, 1, 1, d), 1.0 / d)]
        sets = [EllipsoidSet(features, [centre] * 2, [gram] * 2, f * touching, simplex=True) for f in factors]
        values = np.array([extreme_rows(weights, 0, w)[0, 0] for weights in sets])
        assert (values >= np.maximum.accumulate(values) - 1e-7).all(), (seed, values)
