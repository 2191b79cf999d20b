"""Loss sequences: in [0, 1], reproducible in any order, and what their names say."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import (
    Adversary,
    ConcurrentUseError,
    InvalidEpisodeError,
    InvalidMDPError,
    InvalidSpecError,
    TabularModel,
    make_adversary,
    make_learner,
    make_world,
    storage,
)
from advmdp.adversaries import random_walk
from advmdp.experiments.runner import Run
from advmdp.registry import adversaries
from advmdp.seeding import IndexedGenerator, Stream, generator

WORLD = make_world("frozen-lake", map=["SFH", "FFG"], horizon=4)
OPTIONS = [
    ("natural-losses", {}),
    ("fixed", {}),
    ("stochastic", {}),
    ("stochastic", {"distribution": "beta"}),
    ("switching", {"period": 3}),
    ("drifting", {"period": 7.5}),
    ("random-walk", {"step": 0.4}),
    ("corrupted", {"fraction": 0.3}),
    ("misleading", {"trap": 6}),
]

#: All that can be made without being given losses.
DRAWN = sorted(set(adversaries.names()) - {"from-array", "from-file"})


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_losses_are_reproducible_in_any_order(name, options):
    one = make_adversary(name, WORLD, 20, seed=5, **options)
    forward = [np.concatenate([t.ravel() for t in one.losses(k)]) for k in range(20)]
    other = make_adversary(name, WORLD, 20, seed=5, **options)
    for k in (19, 3, 3, 0, 11):
        np.testing.assert_array_equal(other.flat_losses(k), forward[k])
    assert all(((table >= 0) & (table <= 1)).all() for table in forward)
    assert one.oblivious


@pytest.fixture
def hasty_threads():
    """Threads that take turns all the time, so that one often comes between two steps of another."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_threads_may_share_losses_that_do_not_react(name, options, monkeypatch):
    monkeypatch.setattr(random_walk, "BLOCK", 4)
    monkeypatch.setattr(random_walk, "CHECKPOINTS", 4)
    shared, alone = (make_adversary(name, WORLD, 400, seed=5, **options) for _ in range(2))
    expected = [alone.flat_losses(k).copy() for k in range(120)]
    orders = [np.random.default_rng(seed).integers(120, size=300).tolist() for seed in range(4)]

    def wrong(order):
        return [k for k in order if not np.array_equal(shared.flat_losses(k), expected[k])]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong, orders)) == [[]] * 4


def test_losses_that_react_belong_to_one_thread(monkeypatch):
    adversary = make_adversary("adaptive", WORLD, 10)
    inside, go_on = threading.Event(), threading.Event()

    def wait(self, k, usage):
        inside.set()
        assert go_on.wait(10.0)
        return usage

    monkeypatch.setattr(type(adversary), "_react", wait)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(adversary.flat_losses, 0)
        assert inside.wait(10.0)
        with pytest.raises(ConcurrentUseError, match="'adaptive' is being updated by another thread"):
            adversary.observe([0, 0, 0, 0], [0, 0, 0, 0])
        go_on.set()
        assert not asked.result().any()
    assert adversary.observed == 0
    adversary.observe([0, 0, 0, 0], [0, 0, 0, 0])
    assert adversary.observed == 1


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_losses_depend_on_the_seed_and_not_on_k(name, options):
    short = make_adversary(name, WORLD, 5, seed=1, **options)
    long = make_adversary(name, WORLD, 5000, seed=1, **options)
    other = make_adversary(name, WORLD, 5, seed=2, **options)
    np.testing.assert_array_equal(short.flat_losses(4), long.flat_losses(4))
    assert not np.array_equal(short.flat_losses(4), other.flat_losses(4))


@pytest.mark.parametrize("world", ["inventory", "pricing", "queue", "river-swim"])
def test_the_losses_of_practical_worlds_may_be_asked_for_in_any_order(world):
    mdp = make_world(world)
    forward, other = (make_adversary("natural-losses", mdp, 900, seed=5, period=50) for _ in range(2))
    tables = [forward.flat_losses(k).copy() for k in range(0, 900, 60)]
    assert not np.array_equal(tables[0], tables[1])
    for place in np.random.default_rng(0).permutation(len(tables)).tolist():
        np.testing.assert_array_equal(other.flat_losses(60 * place), tables[place])


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
        ("drifting", {"amplitude": 0.6}, "amplitude is 0.6"),
        ("drifting", {"period": 0.0}, "period is 0.0"),
        ("random-walk", {"step": -0.1}, "step is -0.1"),
        ("corrupted", {"fraction": 1.1}, "fraction is 1.1"),
        ("misleading", {"trap": -1}, "trap is -1"),
        ("adaptive", {"strength": 2.0}, "strength is 2.0"),
        ("adaptive", {"strength": None}, r"strength is None, should be a number in \[0, 1\]"),
        ("drifting", {"period": "week"}, "period is 'week', should be a finite number > 0"),
        ("corrupted", {"fraction": True}, "fraction is True, should be a number in"),
        ("adaptive", {"memory": 0}, "memory is 0"),
        ("from-file", {"path": "x.txt"}, "x.txt: its name ends with '.txt', should end with .npy"),
    ],
)
def test_bad_options_are_rejected(name, options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_adversary(name, WORLD, 10, **options)


@pytest.mark.parametrize("episodes", [0, 2.5, True, np.inf])
@pytest.mark.parametrize("name", DRAWN)
def test_a_run_needs_episodes(name, episodes):
    with pytest.raises(InvalidSpecError, match=r"episodes is .*, should be an integer >= 1"):
        make_adversary(name, WORLD, episodes)


@pytest.mark.parametrize("seed", [None, -1, 1.5])
@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_is_needed_so_that_losses_can_be_repeated(name, seed):
    with pytest.raises(InvalidSpecError, match=r"seed is .*, should be an integer >= 0"):
        make_adversary(name, WORLD, 5, seed=seed)


@pytest.mark.parametrize("name", sorted({name for name, _ in OPTIONS} - {"fixed"}))
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


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        ([0, 0, 9, 0], [0, 0, 0, 0], "layer 2: there is no state 9 with an action 0"),
        ([0, 0, 0, 0], [0, -1, 0, 0], "layer 1: there is no state 0 with an action -1"),
        ([0, 0, 0], [0, 0, 0], "the trajectory has 3 states and 3 actions, not 4"),
    ],
)
def test_a_trajectory_that_cannot_be_is_not_noted(states, actions, message):
    adversary = make_adversary("adaptive", WORLD, 30, strength=1.0)
    with pytest.raises(InvalidEpisodeError, match=message):
        adversary.observe(np.array(states), np.array(actions))
    assert (adversary.flat_losses(0) == 0).all()  # as before


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
    with pytest.raises(InvalidSpecError, match=r"LinearMixtureMDP has no natural losses .* for: .*routing.*terrain"):
        make_adversary("natural-losses", make_world("random-mixture"), 10)
    with pytest.raises(InvalidSpecError, match=r"natural losses 'terrain' has no option 'x'; it has: drift, period"):
        make_adversary("natural-losses", WORLD, 10, x=1)


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.5), st.floats(0.1, 1e6), st.integers(0, 10**12))
def test_drifting_losses_stay_in_range(seed, amplitude, period, k):
    losses = make_adversary("drifting", WORLD, 5, seed=seed, amplitude=amplitude, period=period).flat_losses(k)
    assert losses.min() >= 0
    assert losses.max() <= 1


def test_drifting_losses_return_after_a_period():
    adversary = make_adversary("drifting", WORLD, 5, period=40)
    np.testing.assert_allclose(adversary.flat_losses(3), adversary.flat_losses(43), atol=1e-12)
    half = adversary.flat_losses(3) + adversary.flat_losses(23)  # opposite phases: twice the level
    np.testing.assert_allclose(half, adversary.flat_losses(10) + adversary.flat_losses(30), atol=1e-12)
    assert np.abs(adversary.flat_losses(0) - adversary.flat_losses(20)).max() > 0.3


def plain_walk(seed, step, episodes):
    """The walk in one sweep, reflected step by step: the oracle for checkpoints and folding."""
    position = generator(seed, Stream.ADVERSARY).random(WORLD.layers.n_pairs)
    draws = IndexedGenerator(seed, Stream.ADVERSARY)
    direction = np.ones_like(position)
    for block in range(-(-episodes // random_walk.BLOCK)):
        for noise in step * draws.at(block).standard_normal((random_walk.BLOCK, position.size)):
            position = position + direction * noise
            while ((position < 0) | (position > 1)).any():
                direction = np.where((position < 0) | (position > 1), -direction, direction)
                position = np.where(position < 0, -position, np.where(position > 1, 2 - position, position))
            yield position


def test_a_random_walk_is_the_reflected_one():
    adversary = make_adversary("random-walk", WORLD, 300, step=0.5, seed=6)
    for k, table in zip(range(300), plain_walk(6, 0.5, 300), strict=False):
        np.testing.assert_allclose(adversary.flat_losses(k), table, atol=1e-12)


def test_a_random_walk_keeps_few_tables_and_replays_the_same_bits(monkeypatch):
    monkeypatch.setattr(random_walk, "CHECKPOINTS", 4)
    one, two = (make_adversary("random-walk", WORLD, 10**6, seed=3) for _ in range(2))
    forward = {k: one.flat_losses(k).copy() for k in range(0, 3000, 37)}
    assert len(one._checkpoints) <= 4
    for k in np.random.default_rng(0).permutation(list(forward)):
        np.testing.assert_array_equal(two.flat_losses(int(k)), forward[int(k)])
        assert len(two._checkpoints) <= 4


def test_going_forward_never_replays_the_walk():
    adversary = make_adversary("random-walk", WORLD, 10**5, seed=3)
    drawn = []
    at = adversary._draws.at
    adversary._draws.at = lambda block: drawn.append(block) or at(block)
    for k in range(0, 300 * random_walk.BLOCK, 16):
        adversary.flat_losses(k)
    assert drawn == list(range(300))


@pytest.mark.parametrize("fraction", [0.0, 0.035, 0.29, 0.3, 0.57, 1.0])  # 100 * 0.29 < 29 in binary
def test_the_budget_of_corruption_is_kept(fraction):
    adversary = make_adversary("corrupted", WORLD, 1000, fraction=fraction, seed=8)
    spoilt = [adversary.is_corrupted(k) for k in range(1000)]
    assert sum(spoilt) == round(1000 * fraction)
    for start in range(0, 1000, 100):
        assert abs(sum(spoilt[start : start + 100]) - 100 * fraction) < 1


def test_corrupted_episodes_turn_the_means_round():
    adversary = make_adversary("corrupted", WORLD, 6000, fraction=0.5, seed=8)
    draws = np.array([adversary.flat_losses(k) for k in range(6000)])
    spoilt = np.array([adversary.is_corrupted(k) for k in range(6000)])
    means = draws[~spoilt].mean(axis=0)
    np.testing.assert_allclose(draws[spoilt].mean(axis=0), 1 - means, atol=14 * 0.5 / np.sqrt(3000))
    assert np.ptp(means) > 0.5


def test_one_action_of_every_state_is_dear_in_the_trap_and_cheap_after_it():
    adversary = make_adversary("misleading", WORLD, 2000, trap=1000, seed=3)
    draws = np.array([adversary.flat_losses(k) for k in range(2000)]).reshape(2000, -1, WORLD.n_actions)
    trapped, after = draws[:1000].mean(axis=0), draws[1000:].mean(axis=0)
    good = trapped == 1.0
    assert (good.sum(axis=1) == 1).all()
    assert len(set(good.argmax(axis=1))) > 1
    np.testing.assert_allclose(after[good], 0.1, atol=0.05)
    np.testing.assert_allclose([trapped[~good], after[~good]], 0.5, atol=0.08)


def test_good_actions_are_among_those_that_exist():
    available = [[[True, False, True]], [[False, True, False], [True, True, False]]]
    model = TabularModel((1, 2, 1), 3, available=available)
    for seed in range(5):
        adversary = make_adversary("misleading", model, 30, trap=30, seed=seed)
        always_dear = np.min([adversary.flat_losses(k) for k in range(30)], axis=0) == 1.0
        assert (always_dear.reshape(-1, 3).sum(axis=1) == 1).all()
        assert (model.layers.uniform_policy[always_dear] > 0.0).all()


def test_misleading_losses_leave_the_planner_worse_off_than_playing_at_random():
    world = make_world("random-mixture", layer_sizes=[1, 3, 3, 1], n_actions=3, dim=2)

    def regret(learner):
        losses = make_adversary("misleading", world, 400, trap=40, seed=1)
        return Run(world, make_learner(learner, world, 400, seed=1), losses, 400, 1)

    runs = {name: regret(name) for name in ("portfolio", "planner", "uniform")}
    for one in runs.values():
        one.play()
    final = {name: one.result().regret[-1] for name, one in runs.items()}
    assert final["portfolio"] < 0.7 * final["uniform"] < final["uniform"] < final["planner"]


def recorded(episodes=6):
    rng = np.random.default_rng(1)
    return [rng.random((episodes, n, WORLD.n_actions)) for n in WORLD.layer_sizes[:-1]]


def flat(tables):
    return np.concatenate([table.reshape(len(table), -1) for table in tables], axis=1)


def rows_of(tables):
    return pd.DataFrame(
        [(k, h, s, a, table[k, s, a]) for h, table in enumerate(tables) for k, s, a in np.ndindex(table.shape)],
        columns=["episode", "layer", "state", "action", "loss"],
    ).sample(frac=1.0, random_state=3)


def test_recorded_losses_come_back(tmp_path):
    tables = recorded()
    np.save(tmp_path / "l.npy", flat(tables))
    np.savez(tmp_path / "l.npz", **{f"layer_{h}": table for h, table in enumerate(tables)})
    rows_of(tables).to_csv(tmp_path / "l.csv", index=False)
    rows_of(tables).to_parquet(tmp_path / "l.parquet")
    made = [
        make_adversary("from-array", WORLD, 6, losses=tables),
        make_adversary("from-array", WORLD, 6, losses=flat(tables)),
        *(
            make_adversary("from-file", WORLD, 6, path=tmp_path / f"l.{end}")
            for end in ("npy", "npz", "csv", "parquet")
        ),
    ]
    for adversary in made:
        for k in (5, 0, 3):
            for ours, table in zip(adversary.losses(k), tables, strict=True):
                np.testing.assert_allclose(ours, table[k], rtol=1e-15)
        with pytest.raises(InvalidSpecError, match="episode is 6, should be below 6"):
            adversary.losses(6)
    assert isinstance(made[2]._tables.base, np.memmap)  # left on the disk


def test_recorded_losses_may_be_repeated():
    tables = recorded(3)
    with pytest.raises(InvalidSpecError, match=r"losses has tables for 3 episodes, should have 5 \(or repeat=True\)"):
        make_adversary("from-array", WORLD, 5, losses=tables)
    adversary = make_adversary("from-array", WORLD, 5, losses=tables, repeat=True)
    np.testing.assert_array_equal(adversary.flat_losses(4), flat(tables)[1])


def spoil(tables, value):
    tables[1][4, 0, 2] = value
    return tables


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (spoil(recorded(), 1.5), r"losses, episode 4, layer 1, state 0, action 2: loss 1\.5 is outside \[0, 1\]"),
        (spoil(recorded(), np.nan), r"episode 4, layer 1, state 0, action 2: loss nan"),
        (recorded()[:2], "losses has 2 layers, should be a list over 4 layers"),
        (flat(recorded())[:, 1:], r"losses has shape \(6, \d+\), should be \(episodes, "),
        ([table[:, :, 0:2] for table in recorded()], r"losses\[0\] has shape \(6, 1, 2\), should be \(6, 1, 4\)"),
        (np.zeros((2, 2, 2)), r"losses has shape \(2, 2, 2\), should be a list"),
    ],
)
def test_bad_arrays_are_rejected_with_their_place(losses, message):
    with pytest.raises(InvalidMDPError, match=message):
        make_adversary("from-array", WORLD, 6, losses=losses)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop(columns="loss"), "it has the columns .*, should have"),
        (lambda rows: rows.iloc[1:], r"it has \d+ rows, should have one for each of 6 episodes and \d+ pairs"),
        (lambda rows: pd.concat([rows.iloc[1:], rows.iloc[1:2]]), "should have one for each"),
        (lambda rows: rows.assign(action=7), "action 7 does not exist in this world"),
        (lambda rows: rows.assign(layer=-1), "column layer should hold integers >= 0"),
        (lambda rows: rows.assign(loss=2.0), "episode 0, layer 0, state 0, action 0: loss 2.0 is outside"),
    ],
)
def test_bad_files_are_rejected(tmp_path, change, message):
    change(rows_of(recorded())).to_csv(tmp_path / "l.csv", index=False)
    with pytest.raises(InvalidMDPError, match=r"l\.csv: .*" + message):
        make_adversary("from-file", WORLD, 6, path=tmp_path / "l.csv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.npz", b"PK\x03\x04 cut short", "it is no file of numbers"),
        ("l.csv", b"", "it is no table"),
        ("l.parquet", b"PAR1", "it is no table"),
        ("l.csv", b"episode,layer,state,action,loss\n0,0,0,0,dear\n", "column loss should hold numbers"),
    ],
)
def test_broken_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidMDPError, match=rf"{name}: {message}"):
        make_adversary("from-file", WORLD, 6, path=tmp_path / name)


def test_files_that_could_run_code_are_not_read(tmp_path):
    np.save(tmp_path / "l.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidMDPError, match="it is no file of numbers"):
        make_adversary("from-file", WORLD, 6, path=tmp_path / "l.npy")


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_losses_do_not_depend_on_the_learners_draws(name, options):
    """Two learners that play quite differently meet the same losses."""
    met = []
    for learner_seed in (1, 2):
        adversary = make_adversary(name, WORLD, 15, seed=5, **options)
        met.append(walk(adversary, learner_seed, 15))
    np.testing.assert_array_equal(*met)


@pytest.mark.parametrize(
    ("world", "name"), [("routing", "natural-losses"), ("grid", "adaptive"), ("grid", "random-walk")]
)
def test_an_interrupted_run_against_any_adversary_equals_the_whole_one(tmp_path, world, name):
    mdp = make_world(world)

    def new_run():
        losses = make_adversary(name, mdp, 60, seed=2)
        return Run(mdp, make_learner("ftl", mdp, 60, seed=1), losses, 60, seed=3)

    whole, first, second = new_run(), new_run(), new_run()
    whole.play()
    first.play(25)
    storage.write(tmp_path / "run.npz", "run", first.state())
    second.set_state(storage.read(tmp_path / "run.npz", "run"))
    second.play()
    pd.testing.assert_frame_equal(second.result().frame, whole.result().frame, check_exact=True)
