"""Confidence radii against numbers computed by hand, and against each other."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp.confidence import radii

# d = 5, S = 20, H = 5, B = 1, zeta = 0.01.
SMALL = {"horizon": 5, "dim": 5, "failure": 0.01, "bound": 1.0}


@pytest.mark.parametrize(("k", "expected"), [(1, 56.07), (2, 15.22), (1000, 20.56), (10**6, 27.43)])
def test_the_printed_radius_is_that_of_lemma_2(k, expected):
    lam = radii.growing_regularisation(k, 20, 5)
    assert radii.paper(k, 20, regularisation=lam, **SMALL) == pytest.approx(expected, abs=0.005)


def test_the_printed_radius_is_not_monotone_in_k():
    values = [radii.paper(k, 20, regularisation=radii.growing_regularisation(k, 20, 5), **SMALL) for k in (1, 2, 10**6)]
    assert values[1] < values[2] < values[0]


def test_the_uniform_radius_adds_a_quarter_of_the_root():
    lam = 9.0
    printed = radii.paper(7, 20, regularisation=lam, **SMALL)
    assert radii.paper_uniform(7, 20, regularisation=lam, **SMALL) == pytest.approx(printed + 0.25 * 3.0)


def test_by_hand_in_one_dimension():
    """Gram 1 + 3 = 4 with lambda 1, H / zeta = e^2, B = 2: everything is a multiple of logarithms of 2."""
    arguments = {"horizon": 1, "dim": 1, "regularisation": 1.0, "failure": np.exp(-2.0), "bound": 2.0}
    log4 = np.log(4.0)
    assert radii.joint(log4, **arguments) == pytest.approx(2.0 + np.sqrt(2.0 + np.log(2.0)))
    assert radii.scalar(log4, **arguments) == pytest.approx(2.0 + 0.5 * np.sqrt(4.0 + log4))
    assert radii.determinant(log4, **arguments) == pytest.approx(2.25 + 4.0 * (2.0 + 2 * np.log(2.0)))
    # S k / (lambda d) = 3 makes the printed radius use the same determinant, 4.
    assert radii.paper(3, 1, **arguments) == pytest.approx(radii.determinant(log4, **arguments))


def test_the_data_dependent_form_never_exceeds_the_printed_one():
    rng = np.random.default_rng(0)
    for _ in range(50):
        dim, n_next, k = (int(v) for v in rng.integers([1, 1, 2], [6, 6, 50]))
        features = rng.normal(size=((k - 1) * n_next, dim))
        features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
        lam = radii.growing_regularisation(k, 2 + n_next, dim)
        gram = features.T @ features + lam * np.eye(dim)
        arguments = {**SMALL, "dim": dim, "regularisation": lam}
        data = radii.determinant(np.linalg.slogdet(gram)[1], **arguments)
        assert data <= radii.paper(k, 2 + n_next, **arguments) + 1e-12


def test_bernstein_widths_by_hand():
    frequency, visits = np.array([[0.25, 0.75], [0.0, 0.0]]), np.array([5.0, 0.0])
    log_term = np.log(10 * 4 * 2 / 0.1)
    widths = radii.bernstein(frequency, visits, 10, 4, 2, 0.1)
    assert widths[0, 0] == pytest.approx(2 * np.sqrt(0.25 * log_term / 4) + 14 * log_term / 12)
    assert widths[1].tolist() == pytest.approx([14 * log_term / 3] * 2)
