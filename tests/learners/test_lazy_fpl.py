"""Lazy follow the perturbed leader: recomputed from the history, its stability, its bound, what laziness costs."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import InvalidSpecError, make_adversary, make_learner, make_world, occupancy, run
from advmdp.experiments.statistics import mean_and_interval
from advmdp.learners.lazy_fpl import cube_root
from advmdp.seeding import IndexedGenerator, Stream
from advmdp.testing import check_learner
from advmdp.theory import bounds
from tests.learners.test_learners import Alternating
from tests.learners.test_reps import episodes_of

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)
S, A, H = 7, 2, 3
D = np.log(2) + np.log(4) + np.log(6)


def test_it_conforms():
    check_learner(lambda problem, episodes, seed: make_learner("lazy-fpl", problem, episodes, seed=seed))


@pytest.mark.parametrize("block", [None, 1, 5])
def test_policies_are_recomputed_from_the_whole_history(block):
    """Lengths ceil(m^(1/3)) are 1, then seven times 2, then nineteen times 3."""
    lengths = iter([1, *[2] * 7, *[3] * 19] if block is None else [block] * 60)
    learner, tables, number, squares, left = make_learner("lazy-fpl", TINY, block=block, seed=3), [], 0, 0.0, 0
    draws, changes, previous = IndexedGenerator(3, Stream.LEARNER), 0, None
    for told in episodes_of(learner, TINY, 60):
        if left == 0:
            left, number = next(lengths), number + 1
            squares += left**2
            scale = np.sqrt(2 * (S - 1) * H * squares / D)
            z = TINY.layers.split(scale * draws.at(number).exponential(size=TINY.layers.n_pairs))
            total = [sum((t[h] for t in tables), np.zeros_like(z[h])) - z[h] for h in range(H)]
            best, _ = occupancy.best_policy(TINY, total)
        for ours, theirs in zip(learner.policy, best, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        changes += previous is not None and learner.flat_policy is not previous
        previous, left = learner.flat_policy, left - 1
        tables.append([np.asarray(table) for table in told.loss_table])
    assert changes == number - 1  # lazy: the same object inside a block


def test_cube_roots_are_exact():
    for m in range(1, 200):
        assert cube_root(m) == min(n for n in range(1, 10) if n**3 >= m)
    assert [cube_root(10**18 + i) for i in (0, 1)] == [10**6, 10**6 + 1]


@pytest.mark.parametrize("block", [0, 1.5, "long"])
def test_a_block_must_be_a_number_of_episodes(block):
    with pytest.raises(InvalidSpecError, match="block"):
        make_learner("lazy-fpl", TINY, block=block)


def test_one_more_loss_moves_the_expected_leader_no_further_than_the_proof_says():
    """E<q(L), l> - E<q(L + l), l> <= eps (S - 1) H, with the same perturbations on both sides."""
    rng = np.random.default_rng(0)
    for eps in (0.05, 0.3):
        moved, zs = [], rng.exponential(size=(400, TINY.layers.n_pairs)) / eps
        past = rng.random(TINY.layers.n_pairs) * 5
        loss = (rng.random(TINY.layers.n_pairs) < 0.5).astype(float)
        for z in zs:
            found = [
                TINY.layers.flatten(
                    occupancy.occupancy_measure(TINY, occupancy.best_policy(TINY, TINY.layers.split(L - z))[0])
                )
                for L in (past, past + loss)
            ]
            moved.append((found[0] - found[1]) @ loss)
        mean, half = mean_and_interval(np.array(moved))
        assert min(moved) >= 0.0  # the leader never moves towards what became dearer
        assert mean + half <= eps * (S - 1) * H


def final_regret(world, adversary, episodes, seed, name="lazy-fpl", **options):
    result = run(world, make_learner(name, world, episodes, seed=seed, **options), adversary, episodes, progress=False)
    return float(result.regret[-1]), float(result.frame["bound"].iloc[-1])


def test_regret_is_below_its_bound_where_the_leader_without_perturbation_fails():
    episodes, regrets = 400, []
    adversary = Alternating(TINY, episodes)
    for seed in range(8):
        regret, bound = final_regret(TINY, adversary, episodes, seed)
        regrets.append(regret)
    mean, half = mean_and_interval(np.array(regrets))
    assert bound == bounds.lazy_fpl(S, A, H, episodes).value
    assert mean + half <= bound
    assert mean + half < 0.5 * final_regret(TINY, adversary, episodes, 0, "ftl")[0]


@pytest.mark.parametrize("K", [1, 2, 7, 100, 5000])
def test_the_bound_counts_enough_for_the_blocks(K):
    """T, the sum of squared lengths of the blocks begun by K, is at most t (K + t)."""
    played, m, squares = 0, 0, 0
    while played < K:
        m += 1
        played += cube_root(m)
        squares += cube_root(m) ** 2
    value = bounds.lazy_fpl(S, A, H, K).value
    least = 2 * np.sqrt(2 * D * (S - 1) * H * squares)
    assert least <= value <= 3.5 * least


def test_laziness_costs():
    """Blocks of 20 against blocks of one, whose bound is smaller by sqrt(20)."""
    world, differences = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2), []
    for seed in range(15):
        adversary = make_adversary("switching", world, 1000, period=40, seed=seed)
        lazy, eager = (final_regret(world, adversary, 1000, seed, block=block)[0] for block in (20, 1))
        differences.append(lazy - eager)
    mean, half = mean_and_interval(np.array(differences))
    assert mean - half > 0.0
