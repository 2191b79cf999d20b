"""The block-tridiagonal factorisation against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advmdp._compiled import kernel
from advmdp.solvers import tridiagonal
from advmdp.solvers.layout import make_layout


@kernel
def factor_and_solve(layout, diag, off, scratch, x):
    replaced = tridiagonal.factor(layout, diag, off, scratch)
    tridiagonal.solve(layout, diag, off, x)
    return replaced


@kernel
def solve_by_gradients(layout, diag, off, given, scale, tolerance, limit, vectors, x):
    return tridiagonal.solve_by_gradients(
        layout, diag, off, given, scale, tolerance, limit, vectors[0], vectors[1], vectors[2], vectors[3], x
    )


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def blocks_of(sizes, matrix):
    """Layout, diagonal blocks and off-diagonal ones of a dense matrix that is zero elsewhere."""
    at, nothing = offsets(sizes), [0] * (len(sizes) - 1)
    blocks = [matrix[at[h] : at[h + 1], at[h] : at[h + 1]].ravel() for h in range(len(sizes))]
    couplings = [matrix[at[h] : at[h + 1], at[h + 1] : at[h + 2]].ravel() for h in range(len(sizes) - 1)]
    layout = make_layout((*sizes, 1), 1, nothing, nothing)
    return layout, np.concatenate(blocks), np.concatenate([np.empty(0), *couplings])


def solved(sizes, matrix, x):
    """The solution of a dense system, and the replaced pivots."""
    found = x.copy()
    replaced = factor_and_solve(*blocks_of(sizes, matrix), np.zeros(max(sizes) ** 2), found)
    return found, replaced


def random_system(sizes, seed):
    """Positive definite, block tridiagonal: a Gram matrix of vectors that touch two neighbouring layers each."""
    rng, at = np.random.default_rng(seed), offsets(sizes)
    matrix = np.zeros((at[-1], at[-1]))
    for h in range(len(sizes)):
        touched = slice(at[h], at[min(h + 2, len(sizes))])
        vectors = rng.normal(size=(2 * (touched.stop - touched.start) + 1, touched.stop - touched.start))
        matrix[touched, touched] += vectors.T @ vectors
    return matrix, rng.normal(size=at[-1])


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 14), min_size=1, max_size=5), seed=st.integers(0, 10_000))
def test_solutions_are_those_of_dense_linear_algebra(sizes, seed):
    matrix, x = random_system(sizes, seed)
    found, replaced = solved(sizes, matrix, x)
    assert replaced == 0
    np.testing.assert_allclose(found, np.linalg.solve(matrix, x), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("width", [31, 64, 97])
def test_wide_layers_are_eliminated_in_groups_without_losing_a_row(width):
    sizes = [1, width, width + 1, width]
    matrix, x = random_system(sizes, width)
    found, _ = solved(sizes, matrix, x)
    np.testing.assert_allclose(matrix @ found, x, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 14), min_size=1, max_size=5), seed=st.integers(0, 10_000))
def test_conjugate_gradients_say_whether_they_have_solved_a_system(sizes, seed):
    """The last entry is the terminal state's.  Only the upper triangles are read."""
    matrix, x = random_system(sizes, seed)
    layout, diag, off = blocks_of(sizes, np.triu(matrix))
    scale = np.exp(np.random.default_rng(seed).normal(size=len(x) + 1))
    for limit in (0, 1, 200):
        found, vectors = np.full(len(x) + 1, np.nan), np.zeros((4, len(x) + 1))
        good = solve_by_gradients(layout, diag, off, np.append(x, 0.0), scale, 1e-9, limit, vectors, found)
        assert good == (limit == 200)
    assert np.abs((matrix @ found[:-1] - x) * scale[:-1]).max() < 1e-8
    np.testing.assert_allclose(found[:-1], np.linalg.solve(matrix, x), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lost", range(7))
def test_a_price_that_the_system_does_not_determine_stays_where_it_is(lost):
    """Wherever it stands among the rows that are eliminated together."""
    matrix, x = random_system([7], 3)
    matrix[lost, :] = matrix[:, lost] = 0.0
    found, replaced = solved([7], matrix, x)
    others = np.delete(np.arange(7), lost)
    assert replaced == 1
    assert abs(found[lost]) < 1e-150
    np.testing.assert_allclose(found[others], np.linalg.solve(matrix[np.ix_(others, others)], x[others]), rtol=1e-9)
