"""Loss sequences: in [0, 1], reproducible in any order, and what their names say."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import Adversary, InvalidMDPError, InvalidSpecError, make_adversary, make_world, storage
from advmdp.registry import adversaries

WORLD = make_world("frozen-lake", map=["SFH", "FFG"], horizon=4)
OPTIONS = [
    ("natural-losses", {}),
    ("fixed", {}),
    ("stochastic", {}),
    ("stochastic", {"distribution": "beta"}),
    ("switching", {"period": 3}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_losses_are_reproducible_in_any_order(name, options):
    one = make_adversary(name, WORLD, 20, seed=5, **options)
    forward = [np.concatenate([t.ravel() for t in one.losses(k)]) for k in range(20)]
    other = make_adversary(name, WORLD, 20, seed=5, **options)
    for k in (19, 3, 3, 0, 11):
        np.testing.assert_array_equal(other.flat_losses(k), forward[k])
    assert all(((table >= 0) & (table <= 1)).all() for table in forward)
    assert one.oblivious


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_losses_depend_on_the_seed_and_not_on_k(name, options):
    short = make_adversary(name, WORLD, 5, seed=1, **options)
    long = make_adversary(name, WORLD, 5000, seed=1, **options)
    other = make_adversary(name, WORLD, 5, seed=2, **options)
    np.testing.assert_array_equal(short.flat_losses(4), long.flat_losses(4))
    assert not np.array_equal(short.flat_losses(4), other.flat_losses(4))


def test_a_fixed_table_is_the_one_given():
    table = [np.full((n, WORLD.n_actions), 0.25) for n in WORLD.layer_sizes[:-1]]
    adversary = make_adversary("fixed", WORLD, 5, losses=table)
    assert all((t == 0.25).all() for t in adversary.losses(3))
    table[1][0, 1] = 1.5
    with pytest.raises(InvalidMDPError, match=r"losses, layer 1, state 0, action 1: loss 1\.5 is outside"):
        make_adversary("fixed", WORLD, 5, losses=table)


@pytest.mark.parametrize("distribution", ["bernoulli", "beta"])
def test_stochastic_losses_have_their_means(distribution):
    adversary = make_adversary("stochastic", WORLD, 4000, distribution=distribution, seed=3)
    draws = np.array([adversary.flat_losses(k) for k in range(4000)])
    means = np.concatenate([t.ravel() for t in adversary.means])
    # Seven standard errors of a variable in [0, 1], over some twenty entries.
    np.testing.assert_allclose(draws.mean(axis=0), means, atol=7 * 0.5 / np.sqrt(4000))
    if distribution == "bernoulli":
        assert set(np.unique(draws)) == {0.0, 1.0}
    correlation = np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]
    assert abs(correlation) < 0.1


def test_beta_losses_with_extreme_means_are_constant():
    means = [np.zeros((n, WORLD.n_actions)) for n in WORLD.layer_sizes[:-1]]
    means[0][0, 1] = 1.0
    adversary = make_adversary("stochastic", WORLD, 9, means=means, distribution="beta")
    assert adversary.losses(7)[0].tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_switching_changes_exactly_every_period():
    adversary = make_adversary("switching", WORLD, 12, period=4)
    tables = [adversary.flat_losses(k) for k in range(12)]
    changed = [not np.array_equal(tables[k], tables[k - 1]) for k in range(1, 12)]
    assert [k + 1 for k, c in enumerate(changed) if c] == [4, 8]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("switching", {"period": 0}, "period is 0"),
        ("stochastic", {"distribution": "gauss"}, "distribution is 'gauss'"),
        ("stochastic", {"concentration": -1.0}, "concentration is -1.0"),
    ],
)
def test_bad_options_are_rejected(name, options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_adversary(name, WORLD, 10, **options)


@pytest.mark.parametrize("episodes", [0, 2.5, True, np.inf])
@pytest.mark.parametrize("name", adversaries.names())
def test_a_run_needs_episodes(name, episodes):
    with pytest.raises(InvalidSpecError, match=r"episodes is .*, should be an integer >= 1"):
        make_adversary(name, WORLD, episodes)


@pytest.mark.parametrize("seed", [None, -1, 1.5])
@pytest.mark.parametrize("name", adversaries.names())
def test_a_seed_is_needed_so_that_losses_can_be_repeated(name, seed):
    with pytest.raises(InvalidSpecError, match=r"seed is .*, should be an integer >= 0"):
        make_adversary(name, WORLD, 5, seed=seed)


@pytest.mark.parametrize("name", ["stochastic", "switching", "natural-losses"])
def test_there_is_no_episode_before_the_first(name):
    with pytest.raises(InvalidSpecError, match="episode is -1, should be an integer >= 0"):
        make_adversary(name, WORLD, 5).flat_losses(-1)


def test_a_user_may_define_losses_as_ragged_lists():
    class Mine(Adversary):
        def losses(self, k):
            return [np.full((n, WORLD.n_actions), k / 10) for n in self.layers.sizes[:-1]]

    assert (Mine(WORLD, 5).flat_losses(3) == 0.3).all()
    with pytest.raises(NotImplementedError, match="should define losses or flat_losses"):
        Adversary(WORLD, 5).flat_losses(0)


def walk(adversary, learner_seed, episodes):
    """The losses that an adversary charges a learner who walks at random."""
    rng = np.random.default_rng(learner_seed)
    seen = []
    for k in range(episodes):
        seen.append(adversary.flat_losses(k).copy())
        states = [int(rng.integers(size)) for size in WORLD.layer_sizes[:-1]]
        adversary.observe(np.array(states), rng.integers(WORLD.n_actions, size=WORLD.horizon))
    return np.array(seen)


def test_adaptive_losses_depend_on_the_past_only():
    one, two = (make_adversary("adaptive", WORLD, 30, seed=4) for _ in range(2))
    same = walk(one, 1, 10)
    np.testing.assert_array_equal(walk(two, 1, 10), same)
    # The same past, then another future: the next table is the same, later ones are not.
    np.testing.assert_array_equal(one.flat_losses(10), two.flat_losses(10))
    states = np.zeros(WORLD.horizon, dtype=int)
    one.observe(states, np.zeros(WORLD.horizon, dtype=int))
    two.observe(states, np.ones(WORLD.horizon, dtype=int))
    assert not np.array_equal(one.flat_losses(11), two.flat_losses(11))
    assert same.min() >= 0
    assert same.max() <= 1


def test_adaptive_raises_what_was_visited_most():
    adversary = make_adversary("adaptive", WORLD, 30, strength=1.0)
    assert (adversary.flat_losses(0) == 0).all()
    for action in (0, 0, 1):
        adversary.observe(np.zeros(WORLD.horizon, dtype=int), np.full(WORLD.horizon, action))
    for table in adversary.losses(3):
        assert table[0, 0] == 1.0
        assert 0.0 < table[0, 1] < 1.0
        assert (table[0, 2:] == 0).all()
    adversary.reset()
    assert (adversary.flat_losses(0) == 0).all()


def test_losses_that_react_are_known_for_the_next_episode_only():
    with pytest.raises(InvalidSpecError, match="episode 3 is asked for after 0 were observed"):
        make_adversary("adaptive", WORLD, 30).flat_losses(3)


def test_an_interrupted_run_goes_on_with_the_same_losses(tmp_path):
    whole = walk(make_adversary("adaptive", WORLD, 30, seed=2), 7, 20)
    first, second = (make_adversary("adaptive", WORLD, 30, seed=2) for _ in range(2))
    walk(first, 7, 12)
    storage.write(tmp_path / "state.npz", "adversary", first.state())
    second.set_state(storage.read(tmp_path / "state.npz", "adversary"))
    np.testing.assert_array_equal(second.flat_losses(12), whole[12])
    assert make_adversary("fixed", WORLD, 30).state() == {}
    with pytest.raises(NotImplementedError, match=r"Fixed saves \['observed', 'usage'\] and should define set_state"):
        make_adversary("fixed", WORLD, 30).set_state(first.state())


def test_a_world_without_natural_losses_says_so():
    with pytest.raises(InvalidSpecError, match=r"this LinearMixtureMDP has no natural losses .* for: frozen-lake"):
        make_adversary("natural-losses", make_world("random-mixture"), 10)
    with pytest.raises(
        InvalidSpecError, match=r"natural losses 'frozen-lake' has no option 'x'; it has: drift, period"
    ):
        make_adversary("natural-losses", WORLD, 10, x=1)
