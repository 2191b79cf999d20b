"""Actions that are not always available: in worlds, models, planning, steps, learners, environments and pictures."""

from __future__ import annotations

import itertools

import gymnasium
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from advmdp import (
    Episode,
    InvalidEpisodeError,
    InvalidMDPError,
    LayeredMDP,
    LinearMixtureMDP,
    LinearMixtureModel,
    TabularModel,
    load_learner,
    load_mdp,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
)
from advmdp.confidence import BoxSet, EllipsoidSet, KnownKernels, L1Set
from advmdp.envs import AdversarialMDPEnv
from advmdp.registry import learners
from advmdp.report import draw_world, plot_policy
from advmdp.solvers import conditional_step, lower_occupancy, mirror_descent_step, upper_occupancy
from tests.strategies import suited

SIZES, A = (1, 3, 4, 3, 1), 4


def random_masks(rng, sizes=SIZES, n_actions=A, share=0.5):
    masks = [rng.random((n, n_actions)) < share for n in sizes[:-1]]
    for mask in masks:
        mask[np.arange(len(mask)), rng.integers(n_actions, size=len(mask))] = True
    return masks


def random_kernels(rng, sizes=SIZES, n_actions=A):
    return [rng.dirichlet(np.ones(m), size=(n, n_actions)) for n, m in itertools.pairwise(sizes)]


def small_world(seed=0):
    rng = np.random.default_rng(seed)
    masks = random_masks(rng)
    bases = [random_kernels(rng) for _ in range(3)]
    return LinearMixtureMDP.from_kernels(bases, [0.2, 0.3, 0.5], available=masks), masks


def all_policies(masks):
    """Every deterministic policy over available actions."""
    choices = [np.flatnonzero(row) for mask in masks for row in mask]
    for actions in itertools.product(*choices):
        rows = np.eye(masks[0].shape[1])[list(actions)]
        yield np.split(rows, np.cumsum([len(mask) for mask in masks])[:-1])


def largest_unavailable(tables, masks):
    return max(
        float(np.abs(np.asarray(table)[~mask]).max(initial=0.0)) for table, mask in zip(tables, masks, strict=True)
    )


# ------------------------------------------------------------------------------------ worlds and models


def test_rows_of_unavailable_actions_are_ignored():
    rng = np.random.default_rng(1)
    masks, kernels = random_masks(rng), random_kernels(rng)
    for kernel, mask in zip(kernels, masks, strict=True):
        kernel[~mask] = np.nan
    mdp = LayeredMDP(kernels, masks)
    for given_rows, kept, mask in zip(kernels, mdp.kernels, masks, strict=True):
        np.testing.assert_allclose(kept[mask], given_rows[mask], atol=1e-15)
        assert np.isfinite(kept).all()
    assert all((a == b).all() for a, b in zip(mdp.available, masks, strict=True))
    assert all((a == b).all() for a, b in zip(mdp.model.available, masks, strict=True))


def test_a_state_that_only_unavailable_actions_reach_is_not_counted():
    to_first, to_second = [1.0, 0.0], [0.0, 1.0]
    kernels = [np.array([[to_first, to_second]]), np.ones((2, 2, 1))]
    mdp = LayeredMDP(kernels, [[[True, False]], np.ones((2, 2), dtype=bool)])
    # Pairs: one in the first state, two in the one state that is reached.  S has the terminal state too.
    assert mdp.layers.counted == (3, 1.5, 3, 2)
    assert LayeredMDP(kernels).layers.counted == (4, 2, 6, 2)


def test_the_same_kernel_under_different_masks_is_not_stored_once():
    rows = np.array([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    first, last = np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))
    able = np.ones((2, 2), dtype=bool)
    mdp = LayeredMDP([first, rows, rows, last], [[[True, True]], [[True, False], [True, True]], able, able])
    assert mdp.kernels[1][0, 1].tolist() == [1.0, 0.0]
    assert mdp.kernels[2][0, 1].tolist() == [0.0, 1.0]


def test_sparse_kernels_equal_dense_ones():
    rng = np.random.default_rng(2)
    masks, kernels = random_masks(rng), random_kernels(rng)
    sparse = [scipy.sparse.csr_array(kernel.reshape(-1, kernel.shape[2])) for kernel in kernels]
    one, other = LayeredMDP(kernels, masks), LayeredMDP(sparse, masks, n_actions=A)
    for a, b in zip(one.kernels, other.kernels, strict=True):
        np.testing.assert_array_equal(a, b)
    models = [LinearMixtureModel.from_kernels([k, k[::1]], available=masks) for k in (kernels, sparse)]
    for a, b in zip(models[0].features, models[1].features, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InvalidMDPError, match=r"kernels\[1\] is a sparse matrix of shape \(11, 4\)"):
        LayeredMDP([sparse[0], sparse[1][:11], *sparse[2:]])
    with pytest.raises(InvalidMDPError, match="n_actions is 3, but kernels have 4"):
        LayeredMDP(sparse, n_actions=3)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (7, "available is 7"),
        ([np.ones((1, 2))], "available has 1 layers"),
        ([np.ones((1, 2)), np.ones((2, 3))], r"available\[1\] has shape \(2, 3\), should be \(2, 2\)"),
        ([np.ones((1, 2)), [[True, False], [False, False]]], r"available\[1\], state 1: no action is available"),
        ([np.ones((1, 2)), [[0.5, 1.0], [1.0, 1.0]]], r"available\[1\] has shape \(2, 2\) and type float64"),
        ([np.ones(2), np.ones((2, 2))], r"available\[0\] has shape \(2,\)"),
    ],
)
def test_masks_that_make_no_sense_are_refused(masks, message):
    kernels = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]
    for build in (
        lambda: LayeredMDP(kernels, masks),
        lambda: TabularModel((1, 2, 1), 2, masks),
        lambda: LinearMixtureModel.from_kernels([kernels], available=masks),
        lambda: LayeredMDP(kernels).restricted(masks),
    ):
        with pytest.raises(InvalidMDPError, match=message):
            build()


def test_masks_survive_a_file(tmp_path):
    world, masks = small_world()
    for mdp in (world, LayeredMDP(world.kernels, masks)):
        mdp.save(tmp_path / "world.npz")
        loaded = load_mdp(tmp_path / "world.npz")
        assert all((a == b).all() for a, b in zip(loaded.available, masks, strict=True))
        assert loaded.layers.counted == mdp.layers.counted


def test_a_restricted_world_has_no_action_that_it_did_not_have():
    world, masks = small_world()
    again = world.restricted([np.ones((n, A), dtype=bool) for n in SIZES[:-1]])
    assert all((a == b).all() for a, b in zip(again.available, masks, strict=True))


def test_a_mask_of_ones_is_no_mask():
    world, _ = small_world()
    full = [np.ones((n, A), dtype=bool) for n in SIZES[:-1]]
    assert LayeredMDP(world.kernels, full).layers.available is None


def test_worlds_have_options_with_masks():
    shop = make_world("inventory", only_what_fits=True)
    for mask, stocks in zip(shop.available, shop.scene.states, strict=False):
        assert (mask == (np.array(stocks)[:, None] + np.arange(5) <= 8)).all()
    mixture = make_world("random-mixture", unavailable=0.5)
    assert 0.3 < 1.0 - np.concatenate(mixture.available, axis=None).mean() < 0.5
    for options in ({}, {"unavailable": 0.0}):
        assert make_world("random-mixture", **options).layers.available is None


# ------------------------------------------------------------------------------------------- planning


@given(st.integers(0, 10**6))
def test_the_best_policy_is_the_best_available_one(seed):
    rng = np.random.default_rng(seed)
    sizes = (1, 2, 2, 1)
    masks, kernels = random_masks(rng, sizes, 3), random_kernels(rng, sizes, 3)
    losses = [rng.standard_normal((n, 3)) for n in sizes[:-1]]
    mdp = LayeredMDP(kernels, masks)
    values = [occupancy.expected_loss(mdp, policy, losses) for policy in all_policies(masks)]
    for kernel_list, mask in ((mdp, None), (kernels, masks)):
        best, least = occupancy.best_policy(kernel_list, losses, mask)
        worst, most = occupancy.worst_policy(kernel_list, losses, mask)
        assert (least, most) == pytest.approx((min(values), max(values)), abs=1e-12)
        assert largest_unavailable(best, masks) == largest_unavailable(worst, masks) == 0.0


def test_policies_by_name_take_available_actions_only():
    rng = np.random.default_rng(3)
    masks = random_masks(rng)
    for policy in (
        occupancy.uniform_policy(SIZES, A, masks),
        occupancy.random_policy(SIZES, A, rng, masks),
        occupancy.policy_of([np.zeros(mask.shape) for mask in masks], masks),
    ):
        assert largest_unavailable(policy, masks) == 0.0
        assert all(np.allclose(table.sum(axis=1), 1.0) for table in policy)


def test_a_policy_that_takes_an_unavailable_action_is_refused():
    world, masks = small_world()
    policy = [np.full(mask.shape, 1.0 / A) for mask in masks]
    h, (s, a) = next((h, np.argwhere(~mask)[0]) for h, mask in enumerate(masks) if not mask.all())
    place = f"layer {h}, state {s}, action {a}: probability 0.25 of an unavailable action"
    with pytest.raises(InvalidMDPError, match=place):
        occupancy.occupancy_measure(world, policy)
    with pytest.raises(InvalidMDPError, match=place):
        play(world, policy, policy, np.random.default_rng(0))
    with pytest.raises(InvalidMDPError, match=f"start, {place}"):
        make_learner("oppo", world, 10, start=policy)


def test_an_episode_with_an_unavailable_action_is_refused():
    model = TabularModel((1, 2, 1), 3, [[[False, True, True]], np.ones((2, 3))])
    learner = make_learner("uniform", model, 10)
    for tell in (
        lambda: learner.update(Episode([0, 1], [0, 1], [0.5, 0.5])),
        lambda: learner.observe_transitions([0, 1], [0, 1]),
    ):
        with pytest.raises(
            InvalidEpisodeError, match=r"layer 0, state 0, action 0: this action is unavailable.*\[1, 2\]"
        ):
            tell()
    assert {learner.act(0, 0) for _ in range(50)} == {1, 2}


# ---------------------------------------------------------------------------------------------- steps


def sets_of(rng, kernels, masks):
    """A set of each kind, whose rows at unavailable pairs are nothing to rely on."""
    centres = [np.clip(k + 0.02 * rng.standard_normal(k.shape), 0.0, 1.0) for k in kernels]
    centres = [c / c.sum(axis=2, keepdims=True) for c in centres]
    boxes = BoxSet([c - 0.1 for c in centres], [c + 0.1 for c in centres])
    balls = L1Set(centres, [rng.uniform(0.0, 0.4, size=c.shape[:2]) for c in centres])
    features = [rng.dirichlet(np.ones(k.shape[2]), size=(*k.shape[:2], 3)).transpose(0, 1, 3, 2) / 2 for k in kernels]
    theta = np.array([2.0, 2.0, 2.0]) / 3
    grams = [np.diag(rng.uniform(5.0, 20.0, size=3)) for _ in kernels]
    ellipsoids = [EllipsoidSet(features, [theta] * len(kernels), grams, 0.8, simplex) for simplex in (False, True)]
    return {
        "known": KnownKernels(kernels),
        "box": boxes,
        "l1": balls,
        "ellipsoid": ellipsoids[0],
        "simplex": ellipsoids[1],
    }


def restricted_problem(confidence_set, masks, q, loss, step_size, previous=None):
    """min step <x, loss> + KL(x || q) by CVXPY, whose variables y(s, a, s') are of available pairs alone."""
    import cvxpy

    objective, constraints, inflow = 0.0, [], None
    sizes = confidence_set.layer_sizes
    for h, mask in enumerate(masks):
        following = [0.0] * sizes[h + 1]
        for s in range(sizes[h]):
            masses = []
            for a in np.flatnonzero(mask[s]):
                y = cvxpy.Variable(sizes[h + 1], nonneg=True)
                x = cvxpy.sum(y)
                masses.append(x)
                constraints += rows_by_hand(cvxpy, confidence_set, h, s, a, x, y)
                objective += step_size * loss[h][s, a] * x
                if previous is None or h == len(masks) - 1:
                    objective += cvxpy.kl_div(x, q[h][s, a])
                else:
                    objective += cvxpy.sum(cvxpy.kl_div(y, q[h][s, a] * previous[h][s, a]))
                following = [f + y[t] for t, f in enumerate(following)]
            constraints.append(sum(masses) == (1.0 if inflow is None else inflow[s]))
        inflow = following
    unavailable = sum(float(table[~mask].sum()) for table, mask in zip(q, masks, strict=True))
    problem = cvxpy.Problem(cvxpy.Minimize(objective), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert unavailable == 0.0
    return problem.value


def rows_by_hand(cvxpy, confidence_set, h, s, a, x, y):
    if h == confidence_set.horizon - 1:
        return []
    if isinstance(confidence_set, KnownKernels):
        return [y == x * confidence_set.kernels[h][s, a]]
    if isinstance(confidence_set, BoxSet):
        return [y >= confidence_set.lower[h][s, a] * x, y <= confidence_set.upper[h][s, a] * x]
    if isinstance(confidence_set, L1Set):
        return [cvxpy.norm1(y - confidence_set.centres[h][s, a] * x) <= confidence_set.radii[h][s, a] * x]
    theta = cvxpy.Variable(confidence_set.dim, nonneg=confidence_set.simplex)
    root = np.linalg.cholesky(confidence_set.grams[h]).T
    return [
        y == confidence_set.features[h][s, a] @ theta,
        cvxpy.norm(root @ (theta - confidence_set.centres[h] * x)) <= confidence_set.radius[h] * x,
    ]


@pytest.mark.parametrize(
    ("kind", "entropy"),
    [*itertools.product(["known", "box", "ellipsoid", "simplex"], ["pairs"]),
     *itertools.product(["known", "box", "l1"], ["triples"])],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_steps_agree_with_a_conic_solver_on_the_restricted_problem(kind, entropy, seed):
    rng = np.random.default_rng([seed, 5])
    sizes = (1, 2, 3, 1)
    masks, kernels = random_masks(rng, sizes), random_kernels(rng, sizes)
    confidence_set = sets_of(rng, kernels, masks)[kind]
    q = [np.where(mask, rng.uniform(0.1, 1.0, size=mask.shape), 0.0) for mask in masks]
    q = [table / table.sum() for table in q]
    loss = [rng.uniform(-1.0, 2.0, size=mask.shape) for mask in masks]
    previous = random_kernels(rng, sizes) if entropy == "triples" else None
    step = mirror_descent_step(
        confidence_set, q, loss, 0.7, entropy=entropy, kernels=previous, available=masks
    )  # fmt: skip
    expected = restricted_problem(confidence_set, masks, q, loss, 0.7, previous)
    assert step.value == pytest.approx(expected, abs=1e-6)
    assert largest_unavailable(step.q, masks) == 0.0
    assert step.gap <= 1e-8
    # It is the occupancy measure of its policy under kernels of the set.
    policy = occupancy.policy_of(step.q, masks)
    measure = occupancy.occupancy_measure(step.kernels, policy)
    for found, again in zip(step.q, measure, strict=True):
        np.testing.assert_allclose(found, again, atol=1e-9)
    # What is said by log q = -inf is the same.
    with np.errstate(divide="ignore"):
        log_q = [np.log(table) for table in q]
    again = mirror_descent_step(confidence_set, None, loss, 0.7, log_q=log_q, entropy=entropy, kernels=previous)
    assert again.value == step.value


@pytest.mark.parametrize("kind", ["known", "box", "ellipsoid", "simplex"])
def test_duplicating_an_available_action_gives_the_same_value(kind):
    """What the manual used to advise, with the mass shared evenly: the values agree, though not where the mass goes."""
    rng = np.random.default_rng(9)
    sizes = (1, 3, 3, 1)
    masks, kernels = random_masks(rng, sizes), random_kernels(rng, sizes)
    confidence_set = sets_of(rng, kernels, masks)[kind]
    q = [np.where(mask, rng.uniform(0.1, 1.0, size=mask.shape), 0.0) for mask in masks]
    q = [table / table.sum() for table in q]
    loss = [rng.uniform(0.0, 2.0, size=mask.shape) for mask in masks]
    step = mirror_descent_step(confidence_set, q, loss, 0.7, available=masks)
    source = [np.where(mask, np.arange(A), mask.argmax(axis=1)[:, None]) for mask in masks]
    copies = [np.array([np.bincount(row, minlength=A)[row] for row in layer]) for layer in source]
    spread = [np.take_along_axis(t, s, axis=1) / c for t, s, c in zip(q, source, copies, strict=True)]
    doubled = [np.take_along_axis(t, s, axis=1) for t, s in zip(loss, source, strict=True)]
    other = mirror_descent_step(confidence_set.with_rows_of(source), spread, doubled, 0.7)
    assert other.value == pytest.approx(step.value, abs=1e-7)


def test_an_empty_row_set_of_an_unavailable_action_does_no_harm():
    lower, upper = [np.zeros((1, 2, 2)), np.ones((2, 2, 1))], [np.ones((1, 2, 2)), np.ones((2, 2, 1))]
    upper[0][0, 1] = 0.0  # no distribution is below
    q, loss = [np.array([[1.0, 0.0]]), np.full((2, 2), 0.25)], [np.ones((1, 2)), np.zeros((2, 2))]
    masks = [[[True, False]], np.ones((2, 2))]
    step = mirror_descent_step(BoxSet(lower, upper), q, loss, 1.0, available=masks)
    assert step.q[0].tolist() == [[1.0, 0.0]]
    with pytest.raises(InvalidMDPError, match="empty pairs, the first at layer 0, state 0, action 1"):
        mirror_descent_step(BoxSet(lower, upper), [np.full((1, 2), 0.5), q[1]], loss, 1.0)


@pytest.mark.parametrize("kind", ["known", "box", "l1", "ellipsoid"])
def test_occupancy_bounds_see_available_actions_only(kind):
    """The rows of unavailable pairs change nothing: neither the bounds nor the conditional step."""
    rng = np.random.default_rng(4)
    masks, kernels = random_masks(rng), random_kernels(rng)
    confidence_set = sets_of(rng, kernels, masks)[kind]
    source = [np.where(mask, np.arange(A), mask.argmax(axis=1)[:, None]) for mask in masks]
    other = confidence_set.with_rows_of(source)
    policy = occupancy.random_policy(SIZES, A, rng, masks)
    for bound in (upper_occupancy, lower_occupancy):
        for one, two in zip(bound(confidence_set, policy), bound(other, policy), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-12)
    with np.errstate(divide="ignore"):
        log_policy = np.log(np.concatenate(policy, axis=None))
    cost = rng.uniform(0.0, 1.0, size=log_policy.size)
    steps = [conditional_step(one, log_policy, cost) for one in (confidence_set, other)]
    assert steps[0].value == pytest.approx(steps[1].value, abs=1e-12)
    assert (steps[0].policy[~np.concatenate(masks, axis=None)] == 0.0).all()


# ------------------------------------------------------------------------------------------- learners


def options_for(name, world):
    return {"losses": [np.ones((n, world.n_actions)) for n in world.layer_sizes[:-1]]} if name == "hindsight" else {}


@pytest.mark.parametrize("name", learners.names())
def test_no_learner_takes_an_unavailable_action(name, tmp_path):
    world, masks = small_world(7)
    world = suited(name, world)
    learner = make_learner(name, world, 12, **options_for(name, world))
    adversary = make_adversary("switching", world, 12, seed=1)
    rng = np.random.default_rng(0)
    for k in range(12):
        assert largest_unavailable(learner.policy, masks) == 0.0
        learner.update(play(world, learner.policy, adversary.losses(k), rng, index=k))
        if learner.q is not None:
            assert largest_unavailable(learner.q, masks) == 0.0
    learner.save(tmp_path / "learner.npz")
    loaded = load_learner(tmp_path / "learner.npz")
    for one, other in zip(learner.policy, loaded.policy, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name", ["vlsuob-reps-tight", "uob-reps", "uc-o-reps", "o-reps", "portfolio", "oppo", "mdp-e", "pomd"]
)
def test_a_copied_action_that_is_unavailable_changes_nothing(name):
    """A world whose last action is a copy of the first, taken away, is the world without it."""
    rng = np.random.default_rng(11)
    bases = [random_kernels(rng, SIZES, 3) for _ in range(2)]
    wide = [[np.concatenate([k, k[:, :1]], axis=1) for k in base] for base in bases]
    masks = [np.tile([True, True, True, False], (n, 1)) for n in SIZES[:-1]]
    worlds = [
        LinearMixtureMDP.from_kernels(bases, [0.4, 0.6]),
        LinearMixtureMDP.from_kernels(wide, [0.4, 0.6], available=masks),
    ]
    pair = [make_learner(name, world, 30, seed=3) for world in worlds]
    for k in range(30):
        table = [rng.random((n, 3)) for n in SIZES[:-1]]
        tables = [table, [np.concatenate([t, rng.random((len(t), 1))], axis=1) for t in table]]
        for world, learner, losses in zip(worlds, pair, tables, strict=True):
            learner.update(play(world, learner.policy, losses, np.random.default_rng(k), index=k))
        for one, other in zip(pair[0].policy, pair[1].policy, strict=True):
            np.testing.assert_allclose(one, other[:, :3], atol=2e-5)
            assert (other[:, 3] == 0.0).all()


def test_bounds_and_regret_are_those_of_available_pairs():
    rng = np.random.default_rng(12)
    kernels = random_kernels(rng, SIZES, 2)
    wide = [np.concatenate([k, k], axis=1) for k in kernels]
    masks = [np.tile([True, True, False, False], (n, 1)) for n in SIZES[:-1]]
    worlds = [LayeredMDP(kernels), LayeredMDP(wide, masks)]
    table = [rng.random((n, 4)) for n in SIZES[:-1]]
    for name in ("o-reps", "o-reps-bandit", "mdp-e", "uc-o-reps"):
        results = []
        for world in worlds:
            losses = [t[:, : world.n_actions] for t in table]
            adversary = make_adversary("fixed", world, 20, losses=losses)
            results.append(run(world, make_learner(name, world, 20), adversary, 20, comparators=[2, "per-episode"]))
        one, other = (result.frame.iloc[-1] for result in results)
        assert other["bound"] == pytest.approx(one["bound"])
        for column in ("regret", "loss", *[c for c in one.index if "dynamic" in c]):
            assert other[column] == pytest.approx(one[column], abs=1e-6)
        assert results[0].baselines == pytest.approx(results[1].baselines)


# -------------------------------------------------------------------------- environments and pictures


def test_environments_tell_the_mask_and_refuse_the_rest():
    world, masks = small_world()
    env = AdversarialMDPEnv(world, make_adversary("stochastic", world, 5))
    _, info = env.reset(seed=0)
    over = False
    while not over:
        layer, state = info["layer"], info["state"]
        assert (info["action_mask"] == masks[layer][state]).all()
        for action in np.flatnonzero(info["action_mask"] == 0):
            with pytest.raises(
                InvalidEpisodeError, match=f"layer {layer}, state {state}: action {action} is unavailable"
            ):
                env.step(action)
        _, _, over, _, info = env.step(env.action_space.sample(info["action_mask"]))
    assert not info["action_mask"].any()


def taxi():
    return gymnasium.make(max(name for name in gymnasium.registry if name.startswith("Taxi-v")))


def test_the_mask_of_a_gymnasium_environment_is_read():
    env = taxi()
    mdp, losses = LayeredMDP.from_gymnasium(env, 3)
    for mask, states, over in zip(mdp.available[1:], mdp.scene.states[1:], mdp.scene.details["over"][1:], strict=False):
        for row, state, ended in zip(mask, states, over, strict=True):
            wanted = np.ones(6) if ended else env.unwrapped.action_mask(state)
            assert (row == wanted).all()
    assert largest_unavailable(occupancy.best_policy(mdp, losses)[0], mdp.available) == 0.0


class Corridor(gymnasium.Env):
    """Three cells in a row; left and right, and a wall at each end that the mask knows of."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(3)
    P = {s: {a: [(1.0, min(max(s + 2 * a - 1, 0), 2), -1.0, False)] for a in range(2)} for s in range(3)}  # noqa: RUF012
    start_state_index = 1
    s = 1

    def mask(self):
        return np.array([self.s > 0, self.s < 2], dtype=np.int8)

    def reset(self, *, seed=None, options=None):
        self.s = 1
        return self.s, {"action_mask": self.mask()}

    def step(self, action):
        self.s = self.P[self.s][action][0][1]
        return self.s, -1.0, False, False, {"action_mask": self.mask()}


class CorridorWithTable(Corridor):
    action_masks = np.array([[0, 1], [1, 1], [1, 0]])


class CorridorWithFunction(Corridor):
    def action_masks(self):
        return self.mask()


@pytest.mark.parametrize("kind", [Corridor, CorridorWithTable, CorridorWithFunction])
def test_masks_come_from_info_a_table_or_a_function(kind):
    mdp, _ = LayeredMDP.from_gymnasium(kind(), 3)
    assert mdp.scene.states[1] == (0, 2)
    assert mdp.available[1].tolist() == [[False, True], [True, False]]
    assert mdp.scene.states[2] == (1,)


def test_a_mask_that_makes_no_sense_is_refused():
    env = CorridorWithTable()
    env.action_masks = np.array([[0, 0], [1, 1], [1, 0]])
    with pytest.raises(InvalidMDPError, match="CorridorWithTable: the action mask of state 0"):
        LayeredMDP.from_gymnasium(env, 3)


def test_pictures_show_what_is_unavailable():
    world, masks = small_world()
    ax = Figure().subplots()
    plot_policy(ax, world.layers.split(world.layers.uniform_policy), world.available)
    crosses = sum(len(line.get_xdata()) for line in ax.lines)
    assert crosses == sum(int((~mask).sum()) for mask in masks)
    assert draw_world(world).has_data()
