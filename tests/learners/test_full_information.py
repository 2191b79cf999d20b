"""Learners that see all losses: updates against slow references and a conic solver, theorems on paths, orderings."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from advmdp import (
    InvalidSpecError,
    LinearMixtureMDP,
    load_learner,
    make_adversary,
    make_learner,
    make_world,
    occupancy,
    play,
    run,
    storage,
)
from advmdp.confidence import KnownKernels
from advmdp.errors import CorruptCheckpointError
from advmdp.testing import check_learner
from advmdp.theory import bounds
from tests.learners.policy_references import Oppo, Powers, softmax
from tests.learners.test_reps import episodes_of
from tests.solvers import reference

TINY = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2, seed=1)
LONG = make_world("random-mixture", layer_sizes=(1, 3, 2, 2, 1), n_actions=3, dim=3, seed=2)


def chain(slip):
    """Three steps between two states."""
    middle = np.array([[[1 - slip, slip], [0.5, 0.5]], [[slip, 1 - slip], [0.9 - slip / 2, 0.1 + slip / 2]]])
    return [middle[:1], middle, middle, np.ones((2, 2, 1))]


CHAINS = chain(0.1), chain(0.6)
SHARED = LinearMixtureMDP.from_kernels(CHAINS, [0.3, 0.7], shared=True)


def inner(tables, others):
    return sum(float((a * b).sum()) for a, b in zip(tables, others, strict=True))


def assert_close(tables, others, **tolerance):
    for ours, theirs in zip(tables, others, strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerance)


def uniform(world):
    return [np.full((n, world.n_actions), 1.0 / (world.n_actions * n)) for n in world.layer_sizes[:-1]]


# --------------------------------------------------------------------------------------- vls-o-reps


@pytest.mark.parametrize("scale", [1.0, 0.2])
@pytest.mark.parametrize("entropy", ["pairs", "conditional"])
def test_steps_of_vls_o_reps_equal_a_conic_solver_over_sets_from_the_whole_history(entropy, scale):
    world, K, S, A, H = TINY, 24, 7, 2, 3
    learner = make_learner("vls-o-reps", world, K, entropy=entropy, radius_scale=scale)
    eta = np.sqrt(8 * np.log(S * A / H) / K) if entropy == "pairs" else np.sqrt(8 * np.log(A) / (H * K))
    assert learner.step_size == pytest.approx(eta, rel=1e-12)
    moments, targets = [np.eye(2) for _ in range(H - 1)], [np.zeros(2) for _ in range(H - 1)]
    for k, told in enumerate(episodes_of(learner, world, K)):
        before, q = learner.confidence_set, learner.q
        if k:
            for h, (gram, b) in enumerate(zip(moments, targets, strict=True)):
                np.testing.assert_allclose(learner.estimate.grams[h], gram, rtol=1e-10)
                np.testing.assert_allclose(learner.estimate.centres[h], np.linalg.solve(gram, b), atol=1e-10)
                beta = world.bound + np.sqrt(np.log((H - 1) / 0.05) + 0.5 * np.linalg.slogdet(gram)[1])
                enlarged = learner._now.state.enlargement  # in the first episodes of the narrow variant
                assert learner.radii[h] == pytest.approx(enlarged * scale * beta, rel=1e-9)
        for h in range(H - 1):
            rows = world.features[h][told.states[h], told.actions[h]]
            moments[h], targets[h] = moments[h] + rows.T @ rows, targets[h] + rows[told.states[h + 1]]
        if k % 5 == 4:
            copy = make_learner("vls-o-reps", world, K, entropy=entropy, radius_scale=scale)
            copy.set_state(learner.state())
            copy.update(told)
            conditional = entropy == "conditional"
            over = before if conditional else copy.confidence_set
            step = reference.mirror_step(over, q, told.loss_table, eta, conditional=conditional)
            theirs = [table / table.sum(axis=1, keepdims=True) for table in step.q]
            assert_close(copy.policy, theirs, atol=2e-4)


def test_what_vls_o_reps_loses_by_its_steps_is_below_its_bound_on_every_path():
    """REGRET, with <q_k, l_k> for the measure that was chosen; simulators that agree leave no room for optimism."""
    K, kernels = 80, [np.array(table) for table in LONG.kernels]
    world = LinearMixtureMDP.from_kernels([kernels, kernels], [0.5, 0.5])
    for seed, entropy in product(range(2), ("pairs", "conditional")):
        learner = make_learner("vls-o-reps", world, K, entropy=entropy)
        losses = make_adversary("switching", world, K, seed=seed, period=40)
        total, chosen, rng = [np.zeros_like(table) for table in losses.losses(0)], 0.0, np.random.default_rng(seed)
        for k in range(K):
            told = play(world, learner.policy, losses.losses(k), rng, index=k)
            if k:  # the first set is of all kernels
                chosen += inner(learner.q, told.loss_table)
            else:
                chosen += inner(occupancy.occupancy_measure(world, learner.policy), told.loss_table)
            learner.update(told)
            total = [a + b for a, b in zip(total, told.loss_table, strict=True)]
        best = occupancy.best_policy(world.kernels, total)[1]
        function = bounds.vls_o_reps if entropy == "pairs" else bounds.vls_o_reps_conditional
        regret = dict(function(world.n_states, 3, 4, K, 2).terms)["REGRET"]
        assert 0.0 < chosen - best <= regret


# -------------------------------------------------------------------------------- ensembles of step sizes


def changing_steps(world, K, ratio):
    S, A, H = world.n_states, world.n_actions, world.horizon
    L = H * np.log(S * A / H)
    first = np.sqrt(8 * (L + H) / (H * K))
    last = np.sqrt(8 * (2 * L + H + H * K * np.log(S * A * (K + 1))) / (H * K))
    count = 1 + int(np.ceil(np.log(last / first) / np.log(ratio)))
    return first * ratio ** np.arange(count)


@pytest.mark.parametrize(
    ("name", "ratio", "options"),
    [
        ("do-reps", 2.0, {}),
        ("occupancy-ensemble", 4.0, {"radius_scale": 1e-3}),
        ("occupancy-ensemble", 4.0, {"regression": "states", "radius_scale": 0.2}),
    ],
    ids=["do-reps", "values", "states"],
)
def test_base_steps_equal_a_conic_solver_and_weights_are_those_of_hedge(name, ratio, options):
    K, H = 24, TINY.horizon
    learner = make_learner(name, TINY, K, **options)
    etas = changing_steps(TINY, K, ratio)
    np.testing.assert_allclose(learner.step_sizes, etas, rtol=1e-12)
    epsilon, mu = np.sqrt(8 * np.log(len(etas)) / K) / H, 1 / (K + 1)
    losses, rng, total = make_adversary("switching", TINY, K, period=8), np.random.default_rng(0), np.zeros(len(etas))
    for k in range(K):
        base = learner.base_q
        told = play(TINY, learner.policy, losses.losses(k), rng, index=k)
        learner.update(told)
        total += [inner(q, told.loss_table) for q in base]
        weights = softmax(-epsilon * total[None])[0]
        np.testing.assert_allclose(learner.weights, weights, rtol=1e-9)
        assert_close(learner.q, [sum(w * q[h] for w, q in zip(weights, learner.base_q, strict=True)) for h in range(H)],
                     atol=1e-12)  # fmt: skip
        if k % 9 == 8:
            over = KnownKernels(TINY.kernels) if name == "do-reps" else learner.confidence_set
            for i, q in enumerate(base):
                prior = [(1 - mu) * a + mu * b for a, b in zip(q, uniform(TINY), strict=True)]
                step = reference.mirror_step(over, prior, told.loss_table, etas[i])
                assert_close(learner.base_q[i], step.q, atol=2e-4)


def test_dynamic_regret_of_every_base_and_of_do_reps_is_below_its_theorem():
    """Against the best policy of each of a few blocks, and of each episode; P is measured, not bounded."""
    K, world = 64, LONG
    S, A, H = world.n_states, world.n_actions, world.horizon
    L = sum(np.log(n * A) for n in world.layer_sizes[:-1])
    for seed, block in product(range(3), (64, 16, 4, 1)):
        learner, rng = make_learner("do-reps", world, K), np.random.default_rng(seed)
        tables = [[rng.random((n, A)) ** 3 for n in world.layer_sizes[:-1]] for _ in range(K // block)]
        best = [occupancy.occupancy_measure(world, occupancy.best_policy(world.kernels, t)[0]) for t in tables]
        bases, own, comparator = np.zeros(len(learner.step_sizes)), 0.0, 0.0
        for k in range(K):
            losses = tables[k // block]
            own += inner(learner.q, losses)
            bases += [inner(q, losses) for q in learner.base_q]
            comparator += inner(best[k // block], losses)
            learner.update(play(world, learner.policy, losses, rng, index=k))
        path = sum(np.abs(a - b).sum() for one, two in pairwise(best) for a, b in zip(one, two, strict=True))
        divergence = (1 + (path > 0)) * L + H + 0.5 * path * np.log(max(world.layer_sizes) * A * (K + 1))
        each = H + divergence / learner.step_sizes + learner.step_sizes * H * K / 8
        assert (bases - comparator <= each).all()
        assert own - bases.min() <= H * np.sqrt(K * np.log(len(bases)) / 2)
        bound = bounds.do_reps(S, A, H, K, path_length=path)
        assert own - comparator <= bound.value
        assert dict(bound.terms)["SHARES"] == H


# ------------------------------------------------------------------------------------------ regressions of values


class PowersDynamicReference(Powers):
    """The policy by its recursion, where POWERS has a closed form."""

    path = None

    @property
    def eta(self):
        H, A, K = self.H, self.A, self.K
        path = 2 * H if self.path is None else self.path
        divergence = H * np.log(A) + H + path / 2 * np.log(A * (K + 1))
        return np.sqrt(8 * divergence / (K * sum(m**2 for m in range(1, H + 1))))

    @property
    def policy(self):
        if not hasattr(self, "mixed"):
            self.mixed = [np.full_like(total, 1 / self.A) for total in self.summed]
        return self.mixed

    def update(self, episode):
        super().update(episode)
        mu, moved = 1 / (self.K + 1), []
        for pi, q in zip(self.policy, self.values, strict=True):
            weights = pi * np.exp(-self.eta * q)
            moved.append((1 - mu) * weights / weights.sum(axis=1, keepdims=True) + mu / self.A)
        self.mixed = moved


@pytest.mark.parametrize(("scale", "path"), [(1.0, None), (2e-4, 0.0), (2e-4, 30.0)])
def test_every_update_of_powers_dynamic_equals_the_slow_reference(scale, path):
    episodes = 50
    learner = make_learner("powers-dynamic", LONG, episodes, radius_scale=scale, path_length=path)
    slow = PowersDynamicReference(LONG, episodes, scale=scale)
    slow.path = path
    for told in episodes_of(learner, LONG, episodes, adversary="switching"):
        assert_close(learner.policy, slow.policy, atol=1e-9)
        slow.update(told)
    assert_close(learner.action_values, slow.values, atol=1e-8)
    assert learner.step_size == pytest.approx(slow.eta, rel=1e-12)


def test_the_weights_of_powers_dynamic_lose_at_most_what_its_theorem_says():
    """sum_k sum_s q*_k(s) <pi_k - pi*_k, Q_k>(s), for comparators that change often, seldom and never."""
    K, world = 60, LONG
    A, H = world.n_actions, world.horizon
    for seed, block in product(range(3), (60, 15, 3)):
        learner, rng = make_learner("powers-dynamic", world, K, radius_scale=2e-4), np.random.default_rng(seed)
        tables = [[(rng.random((n, A)) < 0.5) * 1.0 for n in world.layer_sizes[:-1]] for _ in range(K // block)]
        best = [occupancy.best_policy(world.kernels, table)[0] for table in tables]
        measures = [occupancy.occupancy_measure(world, policy) for policy in best]
        regret = 0.0
        for k in range(K):
            policy = learner.policy
            learner.update(play(world, policy, tables[k // block], rng, index=k))
            for pi, star, q, values in zip(
                policy, best[k // block], measures[k // block], learner.action_values, strict=True
            ):
                regret += (q.sum(axis=1) * ((pi - star) * values).sum(axis=1)).sum()
        path = sum(np.abs(a - b).sum() for one, two in pairwise(measures) for a, b in zip(one, two, strict=True))
        bound = bounds.powers_dynamic(world.n_states, A, H, K, 3, path_length=path)
        assert regret <= dict(bound.terms)["WEIGHTS"]


class Played:
    """In place of the policy of a reference: that of the learner."""

    @property
    def policy(self):
        return self.given

    def follow(self, policy, episode):
        self.given = policy
        self.update(episode)


class EnsembleReference(Played, Powers):
    """The regression of POWERS under the policies that were played."""

    radius_of_sets = property(lambda self: self.radius(0, None))


class HigherMomentsReference(Played, Oppo):
    """All powers of V / H, each step appended to a list; one list for all layers where weights are shared."""

    def __init__(self, mdp, episodes, scale):
        super().__init__(mdp, episodes, scale=scale)
        d, H = mdp.dim, self.H
        self.shared = mdp.model.shared
        self.units = np.array(mdp.model.scales[:-1]) if self.shared else np.ones(H - 1)
        self.B = 1.0 if self.shared else mdp.bound
        self.lam, self.M = self.B**-2, 1 + int(np.ceil(np.log2(7 * episodes * H)))
        self.alpha2, self.gamma2 = d / (episodes * H), 1 / np.sqrt(d)
        self.levels = [[[] for _ in range(self.M)] for _ in range(H - 1)]
        if self.shared:
            self.levels = self.levels[:1] * (H - 1)
        self.length = max(
            np.linalg.norm(self.phi(h, s, a, np.ones(self.sizes[h + 1])))  # features are not negative
            for h in range(H - 1)
            for s, a in product(range(self.sizes[h]), range(self.A))
        ) * max(self.units)

    def beta(self):
        d, n = self.mdp.dim, (len(self.history) + 1) * self.H
        events = self.M * (1 if self.shared else self.H - 1)
        iota = np.log(32 * (1 + np.log(self.gamma2 / np.sqrt(self.alpha2))) * n**2 * events / self.zeta)
        growth = d * np.log(1 + n * self.length**2 / (self.alpha2 * d * self.lam))
        return np.sqrt(self.lam) * self.B + 12 * np.sqrt(growth * iota) + 30 * iota / self.gamma2

    def start_from(self, thetas, weights):
        for h, (theta, weight) in enumerate(zip(thetas, weights, strict=True)):
            if h == 0 or not self.shared:
                for level in self.levels[h]:
                    level.extend(self.past(theta / self.units[h], weight))

    def optimistic(self, losses, state_value):
        values, following = [None] * self.H, np.zeros(1)
        for h in reversed(range(self.H)):
            values[h] = np.array(losses[h])
            if h < self.H - 1:
                gram, theta = self.ridge(self.levels[h][0])
                for s, a in product(range(self.sizes[h]), range(self.A)):
                    x = self.units[h] * self.phi(h, s, a, following)
                    ahead = x @ theta - self.scale * self.beta() * np.sqrt(x @ np.linalg.solve(gram, x))
                    values[h][s, a] += min(max(ahead, 0), self.H - 1 - h)
            following = state_value(h, values[h])
        return values

    def regress(self, episode, V):
        beta, H, M = self.beta(), self.H, self.M
        before = [[self.ridge(level) for level in levels] for levels in self.levels]
        for h in range(H - 1):
            s, a, following = episode.states[h], episode.actions[h], episode.states[h + 1]
            powers = [(V[h + 1] / H) ** (2**m) for m in range(M)]
            xs = [self.units[h] * self.phi(h, s, a, power) for power in powers]
            means = [np.clip(x @ theta, 0, 1) for x, (_, theta) in zip(xs, before[h], strict=True)]
            widths = [np.sqrt(x @ np.linalg.solve(gram, x)) for x, (gram, _) in zip(xs, before[h], strict=True)]
            now = [self.ridge(level)[0] for level in self.levels[h]]
            for m in range(M):
                known = 1.0
                if m < M - 1:
                    known = means[m + 1] - means[m] ** 2 + min(1, 2 * beta * widths[m]) + min(1, beta * widths[m + 1])
                uncertain = np.sqrt(xs[m] @ np.linalg.solve(now[m], xs[m]))
                square = max(known, self.alpha2, self.gamma2 * uncertain)
                self.levels[h][m].append((xs[m], powers[m][following], 1 / square))


def slow_regression(name, world, episodes):
    return (HigherMomentsReference if name == "hf-o2ps" else EnsembleReference)(world, episodes, scale=1.0)


def sums_of(lists):
    """Moments and targets of lists of (x, y, weight)."""
    moments = [sum(w * np.outer(x, x) for x, _, w in data) for data in lists]
    return {"moments": np.array(moments), "targets": np.array([sum(w * y * x for x, y, w in data) for data in lists])}


def with_past(tree, slow):
    """The state of a learner, with what a reference has seen."""
    if isinstance(slow, HigherMomentsReference):
        each = [sums_of(levels) for levels in (slow.levels[:1] if slow.shared else slow.levels)]
        past = {name: np.array([sums[name] for sums in each]) for name in ("moments", "targets")}
    else:
        past = {"sums": sums_of(slow.data), "square_sums": sums_of(slow.squares)}
    return {**tree, "state": {**tree["state"], "data": {**past, "episodes": 0}}}


@pytest.mark.parametrize(
    ("name", "world"),
    [("occupancy-ensemble", LONG), ("hf-o2ps", TINY), ("hf-o2ps", SHARED)],
    ids=["occupancy-ensemble", "hf-o2ps", "hf-o2ps, shared"],
)
def test_estimates_and_sets_equal_those_of_the_slow_regression(name, world):
    """After a long past that told the truth: at the constants of the sources a run from nothing learns nothing."""
    episodes, weight = 12, 1e7 if name == "occupancy-ensemble" else 1e8
    learner, slow, future = make_learner(name, world, episodes), slow_regression(name, world, episodes), set()
    thetas = np.array(world.theta[:-1])
    slow.start_from(thetas, np.full(len(thetas), weight))
    learner.set_state(with_past(learner.state(), slow))
    for told in episodes_of(learner, world, episodes, adversary="switching"):
        state = learner._now.state
        flat = world.layers.flatten(told.loss_table)
        values = learner._estimator.optimistic(state.data, 1.0, flat, state.policy)
        policy, q = learner.policy, learner.q
        slow.follow(policy, told)
        assert_close(world.layers.split(values), slow.values, atol=1e-8)
        # What the file says of why the sets are enough: the chosen measure costs at least the optimistic value.
        assert inner(q, told.loss_table) >= float((policy[0] * slow.values[0]).sum()) - 1e-6
        future |= set(np.round(slow.values[0] - told.loss_table[0], 2).ravel())
    assert len(future) > 5  # what follows is seen, not clipped away
    assert learner.empty_sets == 0
    chosen = [levels[0] for levels in slow.levels] if name == "hf-o2ps" else slow.data
    regressed = chosen[:1] if world.model.shared else chosen
    for h, data in enumerate(regressed):
        gram, theta = slow.ridge(data)
        np.testing.assert_allclose(learner.estimate.grams[h] - gram, 0.0, atol=1e-6)
        np.testing.assert_allclose(learner.estimate.centres[h], theta, atol=1e-9)
    expected = slow.beta() if name == "hf-o2ps" else slow.radius_of_sets
    np.testing.assert_allclose(learner.radii, expected, rtol=1e-12)


def test_steps_of_hf_o2ps_equal_a_conic_solver():
    episodes = 15
    learner = make_learner("hf-o2ps", SHARED, episodes, radius_scale=1e-4)
    rng, losses = np.random.default_rng(0), make_adversary("stochastic", SHARED, episodes)
    for k in range(episodes):
        q, told = learner.q, play(SHARED, learner.policy, losses.losses(k), rng, index=k)
        learner.update(told)
        if k % 5 == 4:
            step = reference.mirror_step(learner.confidence_set, q, told.loss_table, learner.step_size)
            assert_close(learner.q, step.q, atol=2e-4)


@pytest.mark.parametrize("name", ["hf-o2ps", "vls-o-reps", "occupancy-ensemble"])
def test_they_conform_where_weights_are_shared(name):
    check_learner(lambda problem, episodes, seed: make_learner(name, problem, episodes, seed=seed), mdp=SHARED)


@pytest.mark.parametrize("name", ["hf-o2ps", "occupancy-ensemble"])
def test_at_the_constants_of_the_source_the_set_is_all_mixtures(name):
    """What the page says of feasible K: the truth is inside, and so is every mixture."""
    learner = make_learner(name, SHARED, 300)
    for _ in episodes_of(learner, SHARED, 300):
        pass
    for weights in ([1.0, 0.0], [0.0, 1.0], [0.3, 0.7]):
        mixed = [weights[0] * one + weights[1] * two for one, two in zip(*CHAINS, strict=True)]
        assert learner.confidence_set.contains(mixed, 1e-6)


# ------------------------------------------------------------------------------------------------- orderings


def regret_of(name, seed, kind="stochastic", switches=None, **options):
    world, K = make_world("random-mixture", layer_sizes=(1, 3, 3, 1), n_actions=3, dim=2, seed=seed), 400
    changes = {"period": 100} if kind == "switching" else {}
    adversary = make_adversary(kind, world, K, seed=seed, **changes)
    comparators = () if switches is None else (switches,)
    result = run(world, make_learner(name, world, K, **options), adversary, K, seed=seed, comparators=comparators)
    column = "regret" if switches is None else f"regret_{switches}_switches"
    return float(result.frame[column].iloc[-1])


@pytest.mark.parametrize("seed", range(2))
def test_seeing_all_losses_beats_seeing_those_of_visited_pairs(seed):
    for entropy in ("pairs", "conditional"):
        assert regret_of("vls-o-reps", seed, entropy=entropy) < 0.6 * regret_of("vlsuob-reps-tight", seed)


@pytest.mark.parametrize("seed", range(2))
def test_ensembles_of_step_sizes_follow_losses_that_switch(seed):
    """Against the best sequence with one switch per change; one step size is for losses that do not change."""
    assert regret_of("do-reps", seed, "switching", 3) < 0.5 * regret_of("o-reps", seed, "switching", 3)
    ensemble = [regret_of("occupancy-ensemble", seed, "switching", 3, regression=r) for r in ("values", "states")]
    assert max(ensemble) < 0.5 * regret_of("vls-o-reps", seed, "switching", 3)


@pytest.mark.parametrize("seed", range(2))
def test_policies_mixed_with_uniform_ones_follow_losses_that_switch(seed):
    assert regret_of("powers-dynamic", seed, "switching", 3) < 0.8 * regret_of("powers", seed, "switching", 3)


def test_sets_that_learn_have_half_the_regret_where_dynamics_matter():
    """The grid: with the constants of its source the ensemble never leaves the set of all mixtures."""
    world, K = make_world("grid", height=3, width=3), 600
    losses = make_adversary("stochastic", world, K, seed=1)
    values, states = (
        run(world, make_learner("occupancy-ensemble", world, K, regression=kind), losses, K, seed=1).regret[-1]
        for kind in ("values", "states")
    )
    assert 0.0 < states < 0.5 * values


# -------------------------------------------------------------------------------------------------- solvers


# -------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vls-o-reps", {"entropy": "triples"}, "entropy is 'triples', should be 'pairs' or 'conditional'"),
        ("powers-dynamic", {"path_length": -1.0}, "path_length is -1.0, should be a number >= 0"),
        ("occupancy-ensemble", {"regression": "none"}, "regression is 'none', should be 'values' or 'states'"),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options, message):
    with pytest.raises(InvalidSpecError, match=message):
        make_learner(name, TINY, 10, **options)


@pytest.mark.parametrize("change", ["moments", "targets", "episodes"])
def test_a_file_of_moments_that_makes_no_sense_is_refused(change, tmp_path):
    path, learner = tmp_path / "learner.npz", make_learner("hf-o2ps", TINY, 20)
    for _ in episodes_of(learner, TINY, 3):
        pass
    learner.save(path)
    tree = storage.read(path, "learner")
    data = tree["state"]["data"]
    wrong = {"moments": -data["moments"], "targets": data["targets"][:1], "episodes": -1}[change]
    state = {**tree["state"], "data": {**data, change: wrong}}
    storage.write(path, "learner", {**tree, "state": state})
    with pytest.raises(CorruptCheckpointError, match="does not describe a learner"):
        load_learner(path)
