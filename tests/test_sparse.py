"""What is stored sparse behaves like what is stored dense."""

import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse

import advmdp
from advmdp import make_adversary, make_learner, make_world, occupancy
from advmdp._threads import in_pieces
from advmdp.confidence import BoxSet, KnownKernels
from advmdp.errors import InvalidMDPError
from advmdp.layered import LayeredMDP, LinearMDPModel, SparseRows, load_mdp, validation
from advmdp.learners import learners
from advmdp.solvers import mirror_descent_step
from tests.sparse import sparse_table, sparse_tables, sparse_world

WORLDS = {
    "grid": {"height": 3, "width": 4},
    "frozen-lake": {"horizon": 5},
    "queue": {"buffer": 4, "slots": 4},
    "inventory": {},
    "river-swim": {},
    "pricing": {},
    "routing": {},
    "random-mixture": {"layer_sizes": (1, 4, 5, 3, 1), "n_actions": 3, "dim": 3},
}


@pytest.fixture(params=WORLDS)
def pair(request):
    """A world, dense and sparse."""
    world = make_world(request.param, **WORLDS[request.param])
    return world, sparse_world(world)


def losses_of(world, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.random((n, world.n_actions)) for n in world.layer_sizes[:-1]]


def test_kernels_and_features_are_the_same(pair):
    dense, sparse = pair
    assert all(isinstance(table, SparseRows) for table in sparse.kernels[:-1])
    for ours, theirs in zip((*sparse.kernels, *sparse.features), (*dense.kernels, *dense.features), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0.0, atol=1e-15)
        np.testing.assert_array_equal(ours[0, 0], np.asarray(ours)[0, 0])


def test_plans_and_occupancies_are_the_same(pair):
    dense, sparse = pair
    losses = losses_of(dense)
    for function in (occupancy.best_policy, occupancy.worst_policy):
        (policy, value), (_, least) = function(sparse, losses), function(dense, losses)
        assert value == pytest.approx(least, abs=1e-12)
        q, wanted = (occupancy.occupancy_measure(world, policy) for world in (sparse, dense))
        for ours, theirs in zip(q, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-13)
        assert occupancy.expected_loss(dense, policy, losses) == pytest.approx(least, abs=1e-12)


def test_lists_of_matrices_of_scipy_are_kernels_too(pair):
    dense, sparse = pair
    losses = losses_of(dense)
    matrices = [*(table.tocsr() for table in sparse.kernels[:-1]), dense.kernels[-1]]
    assert occupancy.best_policy(matrices, losses)[1] == pytest.approx(occupancy.best_policy(dense, losses)[1])


def test_episodes_are_played_alike(pair):
    dense, sparse = pair
    policy = occupancy.random_policy(dense.layer_sizes, dense.n_actions, np.random.default_rng(1), dense.available)
    losses = losses_of(dense)
    for seed in range(20):
        ours, theirs = (advmdp.play(w, policy, losses, np.random.default_rng(seed)) for w in (sparse, dense))
        np.testing.assert_array_equal(ours.states, theirs.states)
        np.testing.assert_array_equal(ours.actions, theirs.actions)


def test_a_saved_world_is_the_same_and_shares_what_it_shared(tmp_path, pair):
    _, sparse = pair
    sparse.save(tmp_path / "world.npz")
    again = load_mdp(tmp_path / "world.npz")
    assert again.rows.values.size == sparse.rows.values.size
    for ours, theirs in zip(again.kernels, sparse.kernels, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert len({id(table) for table in again.kernels}) == len({id(table) for table in sparse.kernels})


def test_an_impossible_transition_is_refused(pair):
    _, sparse = pair
    learner = make_learner("planner", sparse.model)
    episode = advmdp.play(sparse, learner.policy, losses_of(sparse), np.random.default_rng(0))
    rows = [table[s, a] for table, s, a in zip(sparse.kernels, episode.states, episode.actions, strict=True)]
    impossible = [(h, int(np.argmin(row))) for h, row in enumerate(rows[:-1]) if row.min() == 0.0]
    if not impossible:
        pytest.skip("everything is possible in this world")
    for h, t in impossible:
        states = episode.states.copy()
        states[h + 1] = t
        with pytest.raises(advmdp.InvalidEpisodeError, match=f"layer {h}, .* next state {t} is impossible"):
            learner.update(advmdp.Episode(states, episode.actions, episode.losses))


#: Learners that count transitions are told which are possible where layers are sparse, and so know more there.
COUNTING = {
    "uob-reps", "delayed-uob-reps", "tsallis-reps-optimistic", "uc-o-reps", "bandit-uc-o-reps", "pomd", "dilated-bonus",
    "dilated-bonus-total",
}  # fmt: skip


#: What a large world is learnt with; the others follow where time allows.
SCALABLE = ("planner", "portfolio", "oppo", "vlsuob-reps-tight, conditional")


def trajectory(world, title, episodes=12):
    name, _, entropy = title.partition(", ")
    adversary = make_adversary("stochastic", world, episodes, seed=3)
    problem = world if learners.get(name).transition == "known" else world.model
    told = {"losses": adversary} if "losses" in learners.options(name) else {}
    learner = make_learner(name, problem, episodes, seed=1, **told, **({"entropy": entropy} if entropy else {}))
    rng, policies = np.random.default_rng(5), []
    for k in range(episodes):
        policies.append(np.concatenate(learner.policy, axis=None))
        losses = world.layers.split(adversary.flat_losses(k))
        learner.update(advmdp.play(world, learner.policy, losses, rng, index=k))
    return np.array(policies)


def all_possible_kernels(world):
    """What sets of learners begin with where layers are sparse; where they are dense it is all kernels whatever."""

    def first(sizes, n_actions, support=None):
        return BoxSet([np.zeros(mask.shape) for mask in world.possible], [1.0 * mask for mask in world.model.possible])

    return first


def cells():
    """Of learners and worlds; all worlds for those that scale."""
    for world in WORLDS:
        for name in (*(name for name in learners.names() if name != "exp3-policies"), SCALABLE[-1]):
            if name in learners.names() and learners.get(name).needs is LinearMDPModel:
                continue  # whose worlds are dense
            if name in COUNTING and world != "random-mixture":
                continue  # they know more where layers are sparse
            quick = world in ("grid", "random-mixture") or name in SCALABLE
            yield pytest.param(name, world, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("name", "world"), list(cells()))
def test_learners_play_alike(name, world, monkeypatch):
    dense = make_world(world, **WORLDS[world])
    ours = trajectory(sparse_world(dense), name)
    monkeypatch.setattr("advmdp.learners.reps.all_kernels", all_possible_kernels(dense))
    # Steps over pairs and triples are certified to a gap of 1e-8: two that begin 1e-16 apart may end at different
    # points that both are, which is 1e-5 in a policy.
    atol = 1e-12 if "reps" not in name or name in SCALABLE else 2e-5
    np.testing.assert_allclose(ours, trajectory(dense, name), rtol=0.0, atol=atol)


def test_a_large_sparse_matrix_stays_sparse_and_a_small_one_does_not():
    n = 300
    ring = scipy.sparse.csr_array(np.eye(n)[np.repeat((np.arange(n) + 1) % n, 2)])
    first = scipy.sparse.csr_array(np.eye(n)[[0, 1]])
    world = LayeredMDP([first, ring, ring, np.ones((n, 2, 1))])
    assert isinstance(world.kernels[1], SparseRows)
    assert world.kernels[1] is world.kernels[2]
    assert isinstance(world.kernels[0], np.ndarray)
    assert world.rows.values.size == 2 * n + 2 * n + 2 * n


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: rows.with_values(np.where(np.arange(rows.values.size) == 3, np.nan, rows.values)),
            "not a finite",
        ),
        (lambda rows: rows.with_values(rows.values * 0.9), "sum to 0.9"),
        (lambda rows: rows.with_values(np.where(np.arange(rows.values.size) == 0, -0.5, rows.values)), "is negative"),
    ],
)
def test_wrong_rows_are_named_with_their_place(change, message):
    tables = sparse_tables(make_world("grid", height=3, width=3).kernels)
    tables[1] = change(tables[1])
    with pytest.raises(InvalidMDPError, match=rf"kernels\[1\], state \d, action \d.*{message}"):
        LayeredMDP(tables)


def test_unavailable_actions_have_the_rows_of_available_ones():
    world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2)
    masks = [np.array([[True, True]]), np.array([[True, False], [False, True], [True, True]]), np.ones((3, 2), bool)]
    dense, sparse = (LayeredMDP(tables, masks) for tables in (world.kernels, sparse_tables(world.kernels)))
    for ours, theirs in zip(sparse.kernels, dense.kernels, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), theirs)
    assert sparse.layers.counted == dense.layers.counted


def test_base_kernels_with_other_supports_are_mixed_on_their_union(monkeypatch):
    monkeypatch.setattr(validation, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(validation, "DENSE_SHARE", 1.1)
    rng = np.random.default_rng(0)
    shapes = [(1, 2, 4), (4, 2, 5), (5, 2, 1)]
    bases = []
    for _ in range(3):
        kernels = [rng.random(shape) * (rng.random(shape) < 0.5) for shape in shapes[:-1]]
        for kernel in kernels:
            kernel[..., 0] += 0.1
            kernel /= kernel.sum(axis=2, keepdims=True)
        bases.append([*kernels, np.ones(shapes[-1])])
    matrices = [[scipy.sparse.csr_array(k.reshape(-1, k.shape[2])) for k in base] for base in bases]
    dense = advmdp.LinearMixtureMDP.from_kernels(bases, [0.5, 0.3, 0.2])
    sparse = advmdp.LinearMixtureMDP.from_kernels(matrices, [0.5, 0.3, 0.2])
    assert isinstance(sparse.features[1], SparseRows)
    for ours, theirs in zip((*sparse.features, *sparse.kernels), (*dense.features, *dense.kernels), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0.0, atol=1e-15)
    assert sparse.bound == pytest.approx(dense.bound)


def test_results_are_the_same_bits_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr("advmdp._threads.LEAST_WORK", 5)
    world = sparse_world(make_world("random-mixture", layer_sizes=(1, 40, 40, 1), n_actions=3, dim=2))
    losses, found = losses_of(world), []
    for threads in (1, 2, 3):
        advmdp.use_threads(threads)
        try:
            policy, value = occupancy.best_policy(world, losses)
            learner = make_learner("portfolio", world.model)
            for k in range(3):
                learner.update(advmdp.play(world, learner.policy, losses, np.random.default_rng(k), index=k))
            found.append((value, np.concatenate(policy, axis=None), np.concatenate(learner.policy, axis=None)))
        finally:
            advmdp.use_threads(1)
    for value, policy, learnt in found[1:]:
        assert value == found[0][0]
        np.testing.assert_array_equal(policy, found[0][1])
        np.testing.assert_array_equal(learnt, found[0][2])


def test_callers_in_several_threads_do_not_wait_for_one_another(monkeypatch):
    """One of them has the helpers at a time; the others do without."""
    monkeypatch.setattr("advmdp._threads.LEAST_WORK", 5)
    world = sparse_world(make_world("random-mixture", layer_sizes=(1, 40, 40, 1), n_actions=3, dim=2))
    tables = [losses_of(world, seed) for seed in range(4)]
    expected = [occupancy.best_policy(world, losses)[1] for losses in tables]
    advmdp.use_threads(2)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: occupancy.best_policy(world, tables[i % 4])[1], range(200)))
    finally:
        advmdp.use_threads(1)
    assert found == expected * 50


@pytest.mark.parametrize("failing", [0, 1])
def test_nobody_waits_for_a_piece_that_failed(failing, monkeypatch):
    monkeypatch.setattr("advmdp._threads.LEAST_WORK", 5)
    values = np.empty((2, 40))
    world = sparse_world(make_world("random-mixture", layer_sizes=(1, 40, 40, 1), n_actions=3, dim=2))
    flat = np.concatenate(losses_of(world), axis=None)

    def work(piece, pieces, meeting):
        assert pieces == 2
        if piece == failing:
            raise KeyboardInterrupt
        policy = np.empty_like(flat)
        occupancy.backward_greedy(
            tuple(world.rows), world.layers.size_array, 3, flat, policy, values, piece, pieces, meeting
        )

    advmdp.use_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_pieces(work, 2, 100)
    finally:
        advmdp.use_threads(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_process_has_helpers_of_its_own(monkeypatch):
    monkeypatch.setattr("advmdp._threads.LEAST_WORK", 5)
    world = sparse_world(make_world("random-mixture", layer_sizes=(1, 40, 40, 1), n_actions=3, dim=2))
    losses = losses_of(world)
    advmdp.use_threads(2)
    try:
        expected = occupancy.best_policy(world, losses)[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that threads and forks do not go together is what this is about
            child = os.fork()
        if child == 0:
            os._exit(0 if occupancy.best_policy(world, losses)[1] == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        advmdp.use_threads(1)


def test_a_dense_table_of_a_huge_layer_is_refused_before_it_is_made():
    rows = SparseRows(np.zeros(10**6 + 1, dtype=np.int64), np.empty(0, np.int32), np.empty(0), (10**6, 1, 10**6))
    with pytest.raises(InvalidMDPError, match="GiB of memory"):
        np.asarray(rows)


def test_rows_of_a_table_are_found_again():
    table = np.random.default_rng(0).random((3, 2, 4)) * (np.random.default_rng(1).random((3, 2, 4)) < 0.5)
    rows = sparse_table(table)
    np.testing.assert_array_equal(np.asarray(rows), table)
    np.testing.assert_allclose(rows.sums(), table.sum(axis=2))
    assert rows[2, 1, 3] == table[2, 1, 3]
    with pytest.raises(IndexError):
        rows[3, 0]


@pytest.mark.parametrize("name", ["vlsuob-reps-tight", "uob-reps", "o-reps"])
def test_learners_that_need_dense_tables_say_so_before_the_first_episode(name, monkeypatch):
    monkeypatch.setattr("advmdp.confidence.base.LARGEST_DENSE", 10)
    world = sparse_world(make_world("grid", height=3, width=3))
    with pytest.raises(advmdp.InvalidSpecError, match=r"dense tables of .* entropy='conditional'"):
        make_learner(name, world if name == "o-reps" else world.model, 10)
    if name == "vlsuob-reps-tight":
        make_learner(name, world.model, 10, entropy="conditional")


def test_a_conditional_step_over_a_sparse_set_gives_its_kernels_and_can_be_written_down(tmp_path):
    world = make_world("grid", height=3, width=3)
    losses = losses_of(world)
    q = occupancy.occupancy_measure(world, occupancy.uniform_policy(world.layer_sizes, world.n_actions))
    ours, theirs = (
        mirror_descent_step(KnownKernels(tables), q, losses, 1.0, entropy="conditional")
        for tables in (sparse_tables(world.kernels), world.kernels)
    )
    for found, expected in zip(ours.kernels, theirs.kernels, strict=True):
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0.0, atol=1e-15)
    with pytest.raises(advmdp.SolverError) as caught:
        mirror_descent_step(
            KnownKernels(sparse_tables(world.kernels)), q, losses, 1.0, entropy="conditional", tolerance=-1
        )
    caught.value.save(tmp_path / "step.npz")
    with np.load(tmp_path / "step.npz") as saved:
        np.testing.assert_array_equal(saved["kernels_1_nexts"], sparse_tables(world.kernels)[1].nexts)
