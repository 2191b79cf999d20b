"""UOB-, LSUOB- and VLSUOB-REPS: every step against a conic solver, invariants, special cases, coverage."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from advmdp import (
    CorruptCheckpointError,
    Episode,
    InvalidSpecError,
    TabularModel,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    run,
    storage,
)
from advmdp.confidence import KnownKernels
from advmdp.confidence.known import NothingKept
from advmdp.episodes import play
from advmdp.experiments.runner import proved_bound
from advmdp.learners.options import StepOptions
from advmdp.learners.parts.losses import UpperOccupancy
from advmdp.learners.parts.steps import MirrorDescent
from advmdp.learners.reps import Parts, RepsLearner
from advmdp.solvers import lower_occupancy, upper_occupancy
from advmdp.theory import bounds
from tests.solvers import reference
from tests.test_registry import Secretive

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)
VARIANTS = {
    "vlsuob-reps": ("vlsuob-reps", {}),
    "vlsuob-reps, determinant": ("vlsuob-reps", {"radius": "determinant"}),
    "vlsuob-reps, uniform": ("vlsuob-reps", {"radius": "paper-uniform"}),
    "vlsuob-reps, boxes": ("vlsuob-reps", {"geometry": "box", "radius": "joint"}),
    "vlsuob-reps, narrow boxes": ("vlsuob-reps", {"geometry": "box", "radius": "joint", "radius_scale": 0.2}),
    "vlsuob-reps, triples": ("vlsuob-reps", {"geometry": "box", "entropy": "triples", "radius": "joint"}),
    "vlsuob-reps, narrow": ("vlsuob-reps", {"radius": "joint", "radius_scale": 0.2}),
    "vlsuob-reps-tight": ("vlsuob-reps-tight", {}),
    "lsuob-reps": ("lsuob-reps", {}),
    "lsuob-reps, boxes": ("lsuob-reps", {"geometry": "box"}),
    "uob-reps": ("uob-reps", {}),
    "uob-reps, narrow": ("uob-reps", {"radius_scale": 0.03}),
}
each_variant = pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS.keys())


def episodes_of(learner, mdp, episodes, seed=0, adversary="stochastic"):
    """Play, yielding the learner before and the episode it is about to be told."""
    losses = make_adversary(adversary, mdp, episodes, seed=seed)
    rng = np.random.default_rng(seed)
    for k in range(episodes):
        episode = play(mdp, learner.policy, losses.losses(k), rng, index=k)
        yield episode
        learner.update(episode)


def expected_radius(learner, k, log_determinant, lam):
    """beta_k of P_k written out, k from 1."""
    S, H, d = TINY.n_states, TINY.horizon, TINY.dim
    B, zeta = TINY.bound, 0.05
    if learner.name == "lsuob-reps":
        return B + 0.5 * np.sqrt(2 * np.log((H - 1) / zeta) + log_determinant)
    if learner.radius == "joint":
        return B + np.sqrt(np.log((H - 1) / zeta) + 0.5 * log_determinant)
    if learner.radius == "determinant":
        information = 0.5 * (log_determinant - d * np.log(lam))
        return (B + 0.25) * np.sqrt(lam) + 4 / np.sqrt(lam) * (np.log(H / zeta) + d * np.log(2) + information)
    slack = {"paper": 0.25, "paper-uniform": 0.5}[learner.radius]
    growth = 2 * np.log(H / zeta) + d * np.log(4 + 4 * S * k / (lam * d))
    return (B + slack) * np.sqrt(lam) + 2 / np.sqrt(lam) * growth


def check_against_history(learner, history):
    """The estimate and the radii of P_{k+1} from all k episodes of the history, from scratch."""
    k = len(history) + 1
    constant = learner.name == "lsuob-reps" or learner.radius == "joint"
    lam = 1.0 if constant else TINY.dim * np.log(k * TINY.n_states)
    for h in range(TINY.horizon - 1):
        gram, target = np.zeros((TINY.dim, TINY.dim)), np.zeros(TINY.dim)
        for episode in history:
            rows = TINY.features[h][episode.states[h], episode.actions[h]]
            following = episode.states[h + 1]
            if learner.name == "lsuob-reps":
                chosen = int(np.argmax([row @ np.linalg.solve(gram + np.eye(TINY.dim), row) for row in rows]))
                gram, target = (
                    gram + np.outer(rows[chosen], rows[chosen]),
                    target + rows[chosen] * (chosen == following),
                )
            else:
                gram, target = gram + rows.T @ rows, target + rows[following]
        gram = gram + lam * np.eye(TINY.dim)
        np.testing.assert_allclose(learner.estimate.grams[h], gram, atol=1e-10)
        np.testing.assert_allclose(learner.estimate.centres[h], np.linalg.solve(gram, target), atol=1e-10)
        radius = learner.radius_scale * expected_radius(learner, k, np.linalg.slogdet(gram)[1], lam)
        if learner.geometry == "ellipsoid" and learner._now.state.enlargement == 1.0:
            assert learner.confidence_set.radius[h] == pytest.approx(radius, rel=1e-10)
            np.testing.assert_allclose(learner.confidence_set.grams[h], gram, atol=1e-10)
        if learner.geometry == "box" and learner._now.state.enlargement == 1.0:
            features = TINY.features[h]
            centre = features @ np.linalg.solve(gram, target)
            width = radius * np.sqrt(np.einsum("satd,de,sate->sat", features, np.linalg.inv(gram), features))
            np.testing.assert_allclose(learner.confidence_set.lower[h], np.maximum(centre - width, 0.0), atol=1e-10)
            np.testing.assert_allclose(learner.confidence_set.upper[h], np.minimum(centre + width, 1.0), atol=1e-10)
        assert learner.radii[h] == pytest.approx(learner._now.state.enlargement * radius, rel=1e-10)


def check_against_conic_solver(name, options, episodes, every):
    """Every step (or some) of a run against a conic solver that starts from the learner's own state."""
    learner = make_learner(name, TINY, episodes, **options)
    losses = make_adversary("stochastic", TINY, episodes)
    rng = np.random.default_rng(0)
    history = []
    for k in range(episodes):
        q, policy, before = learner.q, learner.policy, learner.confidence_set
        kernels = learner._now.state.step.kernels
        told = play(TINY, policy, losses.losses(k), rng, index=k)
        learner.update(told)
        history.append(told)
        if k % every:
            continue
        estimate = learner.loss_estimate
        for h, (s, a) in enumerate(zip(told.states, told.actions, strict=True)):
            u = reference.occupancy_bound(before, policy, h, s)
            ours = upper_occupancy(before, policy, [(h, s)])[0]
            assert ours == pytest.approx(u, abs=1e-7)
            lhat = told.losses[h] / (policy[h][s, a] * ours + learner.exploration)
            assert estimate[h][s, a] == pytest.approx(lhat, rel=1e-12)
        assert sum(np.count_nonzero(table) for table in estimate) <= TINY.horizon
        step = reference.mirror_step(learner.confidence_set, q, estimate, learner.step_size, kernels=kernels)
        assert learner.last_step.value == pytest.approx(step.value, abs=1e-7)
        for ours, theirs in zip(learner.q, step.q, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        if hasattr(learner, "estimate"):
            check_against_history(learner, history)


@each_variant
def test_steps_equal_a_conic_solver_restarted_from_the_learners_own_state(name, options):
    check_against_conic_solver(name, options, 40, every=5)


@pytest.mark.slow
@each_variant
def test_every_step_of_a_longer_run_equals_a_conic_solver(name, options):
    check_against_conic_solver(name, options, 200, every=1)


@each_variant
def test_the_occupancy_measure_stays_below_its_upper_bound(name, options):
    """q_k <= u_k at every state, whatever the data; and sum u_k lhat_k <= H."""
    learner = make_learner(name, TINY, 60, **options)
    upper, policy = None, learner.policy
    for _ in episodes_of(learner, TINY, 60):
        if upper is not None:
            pairs = [u[:, None] * pi * lhat for u, pi, lhat in zip(upper, policy, learner.loss_estimate, strict=True)]
            assert sum(float(table.sum()) for table in pairs) <= TINY.horizon + 1e-9
        upper, policy = upper_occupancy(learner.confidence_set, learner.policy), learner.policy
        for table, u in zip(learner.q, upper, strict=True):
            assert (table.sum(axis=1) <= u + 1e-9).all()
            assert table.sum() == pytest.approx(1.0, abs=1e-12)


def test_after_a_log_the_occupancy_measure_is_in_the_new_set():
    """The uniform q_1 is in the set of all kernels, and not in one around the truth."""
    rng = np.random.default_rng(0)
    learner = make_learner("vlsuob-reps-tight", TINY, 60, radius_scale=0.2)
    first = learner.q
    played = [play(TINY, learner.policy, first, rng) for _ in range(400)]
    learner.observe_transitions([told.states for told in played], [told.actions for told in played])
    for q, before, u in zip(learner.q, first, upper_occupancy(learner.confidence_set, learner.policy), strict=True):
        assert (q.sum(axis=1) <= u + 1e-9).all()
        assert q.shape[0] == 1 or (before.sum(axis=1) > u + 1e-3).any()


def test_narrow_bernstein_boxes_bind():
    """The variant above that is called narrow does meet active bounds; with the source's constants few ever are."""
    learner = make_learner("uob-reps", TINY, 60, radius_scale=0.03)
    for _ in episodes_of(learner, TINY, 60):
        pass
    widths = [high - low for low, high in zip(*learner.confidence_set.hull(), strict=True)][:-1]
    assert min(float(width.min()) for width in widths) < 0.5


def test_uob_reps_has_the_boxes_of_its_epoch_and_steps_over_triples():
    """Frequencies and half-widths from the whole history, epochs from the rule of its page.

    The scale is so small that a pair that was never seen would have narrow boxes, if it had not all distributions.
    """
    learner = make_learner("uob-reps", TINY, 300, radius_scale=0.01)
    confidence = np.log(300 * TINY.n_states * TINY.n_actions / 0.05)
    seen = [np.zeros(table.shape) for table in TINY.kernels[:-1]]
    start = [table.copy() for table in seen]
    for told in episodes_of(learner, TINY, 300):
        for h, (counts, then) in enumerate(zip(seen, start, strict=True)):
            visits = then.sum(axis=2, keepdims=True)
            frequency, spread = then / np.maximum(visits, 1.0), np.maximum(visits - 1.0, 1.0)
            width = 0.01 * (2.0 * np.sqrt(frequency * confidence / spread) + 14.0 * confidence / (3.0 * spread))
            lower, upper = ((frequency + side * width).clip(0.0, 1.0) for side in (-1.0, 1.0))
            np.testing.assert_allclose(learner.confidence_set.lower[h], np.where(visits > 0, lower, 0.0), atol=1e-12)
            np.testing.assert_allclose(learner.confidence_set.upper[h], np.where(visits > 0, upper, 1.0), atol=1e-12)
            counts[told.states[h], told.actions[h], told.states[h + 1]] += 1.0
        pairs = [(now.sum(axis=2), then.sum(axis=2)) for now, then in zip(seen, start, strict=True)]
        if any((now >= np.maximum(1.0, 2.0 * then)).any() for now, then in pairs):
            start = [table.copy() for table in seen]
    assert learner.empty_sets == 0
    assert learner._now.state.step.kernels is not None  # of the measure over triples


def test_the_imaginary_next_state_does_not_depend_on_the_real_one():
    """Whatever the next states of an episode, the regressors that it adds are the same."""
    moments = []
    for last in range(TINY.layer_sizes[2]):
        learner = make_learner("lsuob-reps", TINY, 10)
        for episode in ([0, 1, 2], [0, 0, 1]):
            learner.update(Episode(episode, [1, 0, 1], [0.5] * 3))
        learner.update(Episode([0, 1, last], [0, 1, 0], [0.5] * 3))
        moments.append(learner._now.state.data.sums.moments[1])
    assert all(np.array_equal(moments[0], other) for other in moments[1:])


@each_variant
def test_optimism_on_the_confidence_event(name, options):
    """Where the truth is in the set, the true occupancy lies between the lower and the upper bound."""
    learner = make_learner(name, TINY, 40, **options)
    inside = 0
    for _ in episodes_of(learner, TINY, 40):
        if learner.confidence_set.contains(TINY.kernels, 1e-7):
            inside += 1
            q = occupancy.occupancy_measure(TINY, learner.policy)
            upper = upper_occupancy(learner.confidence_set, learner.policy)
            lower = lower_occupancy(learner.confidence_set, learner.policy)
            for table, low, high in zip(q, lower, upper, strict=True):
                assert (table.sum(axis=1) <= high + 1e-7).all()
                assert (table.sum(axis=1) >= low - 1e-7).all()
    # With the theory's radius the truth stays inside; a radius that is scaled down has no such guarantee.
    assert inside == 40 if "radius_scale" not in options else inside >= 20


def test_the_set_of_the_main_text_would_break_the_bound():
    """Mirror steps over P_k instead of P_{k+1} leave q_{k+1} above u_{k+1} somewhere: the reason for E1."""

    class Printed(type(make_learner("vlsuob-reps", TINY, 1))):
        def _learn(self, state, episode):
            learned = super()._learn(state, episode)
            step = self.parts.step.advance(state.step, state.set, learned.loss_estimate, state.k)
            return learned._replace(step=step, policy=step.policy)

    excess = 0.0
    for seed in range(4):
        learner = Printed(TINY.model, 60, radius="joint", radius_scale=0.3)
        for _ in episodes_of(learner, TINY, 60, seed=seed):
            upper = upper_occupancy(learner.confidence_set, learner.policy)
            for table, u in zip(learner.q, upper, strict=True):
                excess = max(excess, float((table.sum(axis=1) - u).max()))
    assert excess > 1e-4


def test_with_one_layer_it_is_exp3_ix():
    """H = 1: q is the softmax of -eta times the summed loss estimates."""
    world = make_world("random-mixture", layer_sizes=(1, 1), n_actions=4, dim=1)
    learner = make_learner("vlsuob-reps", world, 50)
    total = np.zeros(4)
    for episode in episodes_of(learner, world, 50):
        weights = np.exp(-learner.step_size * (total - total.min()))
        np.testing.assert_allclose(learner.policy[0][0], weights / weights.sum(), atol=1e-9)
        action = episode.actions[0]
        total[action] += episode.losses[0] / (learner.policy[0][0, action] + learner.exploration)


def test_with_known_kernels_it_is_bandit_o_reps():
    """Sets that hold the truth alone: u = q, and each step is O-REPS's on the true kernels."""

    class Known(RepsLearner):
        name = "known"
        Options = StepOptions

        def _parts(self):
            self._tune(eta=bounds.step_size(*self._sizes(), 0.05), gamma=0.0)
            return Parts(
                NothingKept(),
                lambda data: truth,
                UpperOccupancy(lambda k: 0.0),
                MirrorDescent(self._problem, lambda k: self.step_size),
            )

        def _first_set(self):
            return truth

    truth = KnownKernels(TINY.kernels)
    learner = Known(TINY.model, 30)
    log_q, last, occupied = [np.log(table) for table in learner.q], None, None
    for k, episode in enumerate(episodes_of(learner, TINY, 30)):
        if last is not None:
            # O-REPS of the last episode, step by step: importance weights with the true occupancy measure.
            lhat = [np.zeros_like(table) for table in log_q]
            for h, (s, a) in enumerate(zip(last.states, last.actions, strict=True)):
                lhat[h][s, a] = last.losses[h] / occupied[h][s, a]
            if k > 1:
                o_reps = reference.mirror_step(truth, [np.exp(table) for table in log_q], lhat, learner.step_size)
                for ours, theirs in zip(learner.q, o_reps.q, strict=True):
                    np.testing.assert_allclose(ours, theirs, atol=1e-5)
            for ours, true in zip(learner.q, occupancy.occupancy_measure(TINY, learner.policy), strict=True):
                np.testing.assert_allclose(ours, true, atol=1e-9)
        log_q = [np.log(table) for table in learner.q]
        last, occupied = episode, occupancy.occupancy_measure(TINY, learner.policy)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps", "uob-reps"])
def test_a_learner_needs_a_model_only(name):
    for problem in (TINY.model, Secretive(TINY)):
        learner = make_learner(name, problem, 5)
        for _ in episodes_of(learner, TINY, 5):
            pass
        assert learner.episodes_seen == 5


def test_constants_are_those_of_the_theorem():
    learner = make_learner("vlsuob-reps", TINY, 1000)
    n_states, n_actions, horizon = TINY.n_states, TINY.n_actions, TINY.horizon
    expected = np.sqrt(horizon * np.log(horizon * n_states * n_actions / 0.05) / (1000 * n_states * n_actions))
    assert learner.step_size == pytest.approx(expected)
    assert learner.exploration == pytest.approx(expected)
    assert learner.zeta == 0.05
    assert make_learner("vlsuob-reps", TINY, 1000, eta=0.5, gamma=0.1).step_size == 0.5
    for k in (1, 2, 7):
        assert learner._regularisation(k) == pytest.approx(1.0 if k == 1 else 2 * np.log(k * n_states))


def test_updates_beyond_the_horizon_warn_once():
    learner = make_learner("vlsuob-reps-tight", TINY, 3)
    generator = episodes_of(learner, TINY, 6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in generator:
            pass
    assert [str(w.message).startswith("learner 'vlsuob-reps-tight' was made for 3") for w in caught] == [True]


def test_an_empty_set_is_enlarged_and_counted():
    learner = make_learner("vlsuob-reps", TINY, 50, radius="joint", radius_scale=1e-3)
    for _ in episodes_of(learner, TINY, 50):
        assert len(learner.confidence_set.empty_pairs()) == 0
        if learner.radii is not None:
            np.testing.assert_array_equal(learner.radii, learner.confidence_set.radius[:-1])
    assert learner.empty_sets > 0
    wide = make_learner("vlsuob-reps", TINY, 50)
    for _ in episodes_of(wide, TINY, 50):
        pass
    assert wide.empty_sets == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"geometry": "ball"}, "geometry is 'ball', should be 'ellipsoid' or 'box'"),
        ({"entropy": "triples"}, "entropy 'triples' goes with geometry 'box'"),
        ({"radius": "huge"}, "radius is 'huge', should be one of paper"),
        ({"radius_scale": 0.0}, "radius_scale is 0.0"),
        ({"radius_scale": 1e-300}, "radius_scale is 1e-300, should be a number above 1e-10"),
        ({"eta": -1.0}, "eta is -1.0"),
        ({"zeta": 1.0}, "zeta is 1.0"),
        ({"lam": 0.0}, "lam is 0.0"),
        ({"lam": -1.0, "radius": "joint"}, "lam is -1.0"),
        ({"geometry": "box", "simplex": True}, "simplex=True needs geometry 'ellipsoid'"),
        ({"simplex": "no"}, "simplex is 'no', should be True or False"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_learner("vlsuob-reps", TINY, 10, **options)


def test_lsuob_has_no_conditional_step():
    with pytest.raises(InvalidSpecError, match="entropy is 'conditional', should be 'pairs' or 'triples'"):
        make_learner("lsuob-reps", TINY, 10, entropy="conditional")


def test_lsuob_needs_a_constant_regularisation():
    with pytest.raises(InvalidSpecError, match="lam is None, should be a number > 0"):
        make_learner("lsuob-reps", TINY, 10, lam=None)


def saved_tree(name, path):
    learner = make_learner(name, TINY, 10)
    for _ in episodes_of(learner, TINY, 4):
        pass
    learner.save(path)
    return storage.read(path, "learner")


NONSENSE_STATES = {
    "negative moments": ("vlsuob-reps", lambda s: s["data"].update(moments=-s["data"]["moments"])),
    "moments that are NaN": ("lsuob-reps", lambda s: s["data"].update(moments=s["data"]["moments"] * np.nan)),
    "a layer too many": ("vlsuob-reps", lambda s: s["data"].update(targets=np.zeros((9, 2)))),
    "log q too short": ("vlsuob-reps", lambda s: s["step"].update(log_q=s["step"]["log_q"][1:])),
    "log q that is NaN": ("vlsuob-reps", lambda s: s["step"].update(log_q=s["step"]["log_q"] * np.nan)),
    "log q of no measure": ("vlsuob-reps", lambda s: s["step"].update(log_q=0.0 * s["step"]["log_q"])),
    "a warm start that is NaN": ("vlsuob-reps", lambda s: s["step"].update(warm={"chi": np.array([np.nan])})),
    "a count in words": ("vlsuob-reps", lambda s: s.update(empty_sets="many")),
    "counts of another shape": ("uob-reps", lambda s: s["data"].update(transitions=[np.zeros((9, 9, 9))] * 2)),
    "counts below zero": ("uob-reps", lambda s: s["data"]["transitions"][0].__isub__(5.0)),
    "kernels that are none": ("uob-reps", lambda s: s["step"].update(kernels=[np.zeros((1, 2, 2))])),
}


@pytest.mark.parametrize(("name", "spoil"), NONSENSE_STATES.values(), ids=NONSENSE_STATES.keys())
def test_a_checkpoint_with_a_valid_checksum_and_no_sense_is_refused(tmp_path, name, spoil):
    path = tmp_path / "learner.npz"
    tree = saved_tree(name, path)
    load_learner(path)
    spoil(tree["state"])
    storage.write(path, "learner", tree)
    with pytest.raises(CorruptCheckpointError, match="does not describe a learner"):
        load_learner(path)


def test_the_proved_bound_stands_in_the_frame_where_it_is_proved():
    adversary = make_adversary("stochastic", TINY, 50)
    for options, proved in (({}, True), ({"radius_scale": 0.5}, False), ({"eta": 0.1}, False)):
        result = run(TINY, make_learner("vlsuob-reps", TINY, 50, **options), adversary, 50)
        assert result.options["radius_scale"] == options.get("radius_scale", 1.0)
        assert result.frame["bound"].iloc[:-1].isna().all()
        assert np.isfinite(result.frame["bound"].iloc[-1]) == proved
    sizes = (TINY.n_states, TINY.n_actions, TINY.horizon, 50, TINY.dim, 0.05, TINY.bound)
    result = run(TINY, make_learner("vlsuob-reps", TINY, 50), adversary, 50)
    assert result.frame["bound"].iloc[-1] == bounds.vlsuob_reps(*sizes).value


def test_a_variant_has_the_bound_of_its_own_row_or_none():
    shared = make_world("random-mixture", layer_sizes=(1, 2, 2, 1), n_actions=2, dim=2, seed=0, shared=True)
    table = TabularModel(shared.layer_sizes, shared.n_actions)
    sizes = (shared.n_states, shared.n_actions, shared.horizon, 20, shared.dim, 0.05)
    tight = "vlsuob-reps-tight"
    cases = (
        (tight, shared, {}, bounds.vlsuob_reps_tight(*sizes, shared.bound)),
        (tight, shared, {"shared": True}, bounds.vlsuob_reps_tight_shared(*sizes)),
        (tight, shared, {"entropy": "conditional"}, bounds.vlsuob_reps_tight_conditional(*sizes, shared.bound)),
        (tight, shared, {"entropy": "conditional", "shared": True}, None),
        ("vlsuob-reps", shared, {"entropy": "conditional"}, None),
        (tight, shared, {"entropy": "triples", "geometry": "box"}, None),
        ("portfolio", shared, {}, bounds.portfolio_shared(*sizes)),
        ("portfolio", shared, {"shared": False}, bounds.portfolio(*sizes, shared.bound)),
        ("portfolio", shared, {"premium": False}, None),
        ("portfolio", table, {}, None),
    )
    for name, problem, options, bound in cases:
        found = proved_bound(make_learner(name, problem, 20, **options), 20)
        assert found == bound.value if bound is not None else np.isnan(found), (name, options)


@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps"])
def test_linear_mixture_learners_refuse_a_tabular_model(name):
    with pytest.raises(InvalidSpecError, match=f"learner '{name}' needs a LinearMixtureModel"):
        make_learner(name, TabularModel((1, 2, 1), 2), 10)


def coverage(name, options, runs, episodes):
    """Share of runs in which the truth was ever outside the set."""
    missed = 0
    for seed in range(runs):
        world = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=2, dim=2, seed=seed)
        learner = make_learner(name, world, episodes, **options)
        outside = False
        for _ in episodes_of(learner, world, episodes, seed=seed):
            if learner.radii is None:
                continue
            estimate = learner.estimate
            # The radius that was asked for: an empty set is enlarged, which would hide that it was too small.
            for h, radius in enumerate(learner.radii / learner._now.state.enlargement):
                error = world.theta[h] - estimate.centres[h]
                outside = outside or np.sqrt(error @ estimate.grams[h] @ error) > radius
        missed += outside
    return missed / runs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vlsuob-reps", "vlsuob-reps-tight", "lsuob-reps"])
def test_the_truth_stays_in_the_sets_of_full_runs(name):
    assert coverage(name, {}, 50, 150) <= 0.05


@pytest.mark.slow
def test_the_coverage_harness_notices_sets_that_are_too_small():
    assert coverage("vlsuob-reps-tight", {"radius_scale": 0.1}, 20, 100) > 0.5


@pytest.mark.slow
def test_average_regret_falls_with_the_constants_of_the_theory():
    """Layers 1-4-4-4-1, A = 4, d = 2, Bernoulli losses, seeds 0-9."""
    averages = {}
    for episodes in (2000, 8000):
        for name in ("vlsuob-reps", "uniform"):
            regrets = []
            for seed in range(10):
                world = make_world("random-mixture", layer_sizes=(1, 4, 4, 4, 1), n_actions=4, dim=2, seed=seed)
                adversary = make_adversary("stochastic", world, episodes, seed=seed)
                learner = make_learner(name, world, episodes, seed=seed)
                regrets.append(run(world, learner, adversary, episodes, seed=seed).regret[-1])
            averages[name, episodes] = np.mean(regrets) / episodes
    assert averages["vlsuob-reps", 8000] <= 0.7 * averages["vlsuob-reps", 2000]
    assert averages["vlsuob-reps", 8000] < 0.5 * averages["uniform", 8000]
