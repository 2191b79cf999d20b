"""Random worlds, policies and losses for property tests."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from advmdp import LayeredMDP, LinearMDPModel, LinearMixtureMDP, make_world
from advmdp.registry import learners


@st.composite
def generators(draw: st.DrawFn) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def random_kernels(rng: np.random.Generator, sizes: list[int], n_actions: int) -> list[np.ndarray]:
    """Rows from uniform to deterministic; some entries are exactly zero."""
    kernels = []
    for n, m in itertools.pairwise(sizes):
        rows = rng.dirichlet(np.full(m, rng.choice([0.1, 1.0])), size=(n, n_actions))
        rows[rows < 0.05] = 0.0
        kernels.append(rows / rows.sum(axis=2, keepdims=True))
    return kernels


@st.composite
def tiny_worlds(draw: st.DrawFn) -> LayeredMDP:
    inner = draw(st.lists(st.integers(1, 3), max_size=3))
    n_actions = draw(st.integers(1, 3 if sum(inner) <= 5 else 2))
    return LayeredMDP(random_kernels(draw(generators()), [1, *inner, 1], n_actions))


@st.composite
def mixture_worlds(draw: st.DrawFn) -> LinearMixtureMDP:
    sizes = [1, *draw(st.lists(st.integers(1, 4), max_size=3)), 1]
    n_actions, dim = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rng = draw(generators())
    kernels = [random_kernels(rng, sizes, n_actions) for _ in range(dim)]
    return LinearMixtureMDP.from_kernels(kernels, rng.dirichlet(np.ones(dim), size=len(sizes) - 1))


def suited(name: str, world: LayeredMDP) -> LayeredMDP:
    """The world, or for a learner of linear MDPs one of the same shape."""
    if learners.get(name).needs is not LinearMDPModel:
        return world
    linear = make_world("linear-mdp", layer_sizes=world.layer_sizes, n_actions=world.n_actions, dim=2)
    return linear.restricted(world.available)
