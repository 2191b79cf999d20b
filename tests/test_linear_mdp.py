"""Linear MDPs as data: what is accepted, what a learner may know, files, and losses that are linear in features."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advmdp import (
    InvalidMDPError,
    InvalidSpecError,
    LayeredMDP,
    LinearMDP,
    LinearMDPModel,
    Scene,
    load_mdp,
    make_adversary,
    make_learner,
    make_world,
    run,
)
from tests.test_layered import reachable_objects

WORLD = make_world("linear-mdp", layer_sizes=(1, 3, 2, 1), n_actions=2, dim=2, seed=1)


def parts(**changes):
    features = [table.copy() for table in WORLD.features]
    measures = [table.copy() for table in WORLD.measures]
    return {"features": features, "measures": measures, **changes}


def test_kernels_are_products_of_features_and_measures():
    for h in range(WORLD.horizon - 1):
        for s, a in np.ndindex(*WORLD.features[h].shape[:2]):
            row = [WORLD.features[h][s, a] @ WORLD.measures[h][:, t] for t in range(WORLD.layer_sizes[h + 1])]
            np.testing.assert_allclose(WORLD.kernels[h][s, a], row, atol=1e-12)
    assert (WORLD.kernels[-1] == 1.0).all()
    assert WORLD.dim == WORLD.model.dim == 2


def test_the_bound_holds_for_every_function_of_the_next_state():
    rng = np.random.default_rng(0)
    for measure in WORLD.measures[:-1]:
        for _ in range(100):
            assert np.linalg.norm(measure @ rng.random(measure.shape[1])) <= WORLD.bound
    assert WORLD.bound == pytest.approx(np.sqrt(2.0))  # that of distributions, at V = 1


def change(layer, where, value):
    def changed():
        features = parts()["features"]
        features[layer][where] = value
        return features

    return changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": []}, "features is empty"),
        ({"features": 3}, "features is 3, should be a list of arrays"),
        ({"features": [np.ones((1, 2))]}, r"features\[0\] has shape \(1, 2\), should be \(S_h, A, d\)"),
        ({"features": [*WORLD.features[:2], np.ones((2, 2, 3))]}, r"features\[2\] has shape .*should be \(S_h, 2, 2\)"),
        ({"features": change(1, (2, 1, 0), np.nan)()}, r"features\[1\], state 2, action 1: norm nan, should be"),
        ({"features": change(1, (2, 1), 1.0)()}, r"features\[1\], state 2, action 1: norm 1\.41421, should be"),
        ({"features": change(1, (2, 1), 0.1)()}, r"features\[1\], state .*: no parameter makes the rows .* sum to 1"),
        ({"features": [WORLD.features[1], *WORLD.features[1:]]}, "layer 0 has 3 states"),
        ({"measures": 1}, "measures has no layers, features have 3"),
        ({"measures": WORLD.measures[:2]}, "measures has 2 layers, features have 3"),
        ({"measures": [*WORLD.measures[:2], np.ones((3, 1))]}, r"measures\[2\] has shape \(3, 1\), should be \(2, 1\)"),
        ({"measures": [np.full((2, 3), np.inf), *WORLD.measures[1:]]}, r"measures\[0\], coordinate 0, next state 0"),
        ({"measures": [np.ones((2, 3)), *WORLD.measures[1:]]}, r"the kernel <features, measures>\[0\].*sum to 3"),
        ({"measures": [WORLD.measures[0] - [[0.5, 0, -0.5]], *WORLD.measures[1:]]}, r"probability .* is negative"),
        ({"bound": 0.5}, r"bound is 0\.5, but some .* is at least 1\.41421"),
        ({"bound": -1.0}, "bound is -1.0, should be a finite number > 0"),
        ({"available": [[[True, True]]]}, "available has 1 layers, should have 3 like features"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(InvalidMDPError, match=message):
        LinearMDP(**parts(**changes))


def test_a_world_survives_a_file_and_loses_actions(tmp_path):
    masks = [np.array([[True, False]] * n) for n in WORLD.layer_sizes[:-1]]
    for world in (WORLD, WORLD.restricted(masks)):
        world.save(tmp_path / "world.npz")
        again = load_mdp(tmp_path / "world.npz")
        assert type(again) is LinearMDP
        assert again.bound == world.bound
        assert again.scene.natural_losses == "linear"
        for name in ("features", "measures", "kernels", "available"):
            for ours, theirs in zip(getattr(world, name), getattr(again, name), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(world.features[1][:, 1], world.features[1][:, 0])  # says nothing of what is not there
    assert "features of pairs" in WORLD.model._repr_html_()


def test_a_model_knows_features_and_no_measures():
    truth = {table.tobytes() for table in WORLD.measures[:-1]} | {table.tobytes() for table in WORLD.kernels[:-1]}
    held = reachable_objects(WORLD.model)
    assert not any(isinstance(node, np.ndarray) and node.tobytes() in truth for node in held)
    assert isinstance(WORLD.model, LinearMDPModel)
    with pytest.raises(ValueError, match="read-only"):
        WORLD.features[0][0, 0, 0] = 1.0


@pytest.mark.parametrize("name", ["uob-reps", "planner", "portfolio", "o-reps-bandit", "mdp-e"])
def test_tabular_learners_play_in_a_linear_mdp_as_in_its_kernels(name):
    """They see the shape (or the kernels) of both alike."""
    plain = LayeredMDP(WORLD.kernels)
    found = []
    for world in (WORLD, plain):
        adversary = make_adversary("stochastic", world, 30)
        found.append(run(world, make_learner(name, world, 30), adversary, 30, progress=False).regret)
    np.testing.assert_allclose(*found, atol=1e-9)


@pytest.mark.parametrize("name", ["oppo", "vlsuob-reps-tight", "ucrl-vtr"])
def test_learners_of_mixtures_say_what_they_need(name):
    with pytest.raises(InvalidSpecError, match="needs a LinearMixtureModel, not a LinearMDPModel"):
        make_learner(name, WORLD, 10)


# ------------------------------------------------------------------------------------------ linear losses


@pytest.mark.parametrize("kind", ["drifting", "switching", "stochastic", "fixed"])
def test_natural_losses_are_linear_in_the_features(kind):
    world = make_world("linear-mdp", layer_sizes=(1, 6, 1), n_actions=3, dim=2)
    adversary = make_adversary("natural-losses", world, 100, kind=kind, period=10, seed=3)
    seen = []
    for k in (0, 1, 9, 10, 99):
        for table, phi in zip(adversary.losses(k), world.features, strict=True):
            fit, *_ = np.linalg.lstsq(phi.reshape(-1, 2), table.ravel(), rcond=None)
            np.testing.assert_allclose(phi @ fit, table, atol=1e-12)
            assert ((table >= 0.0) & (table <= 1.0)).all()
        seen.append(adversary.flat_losses(k))
    np.testing.assert_array_equal(adversary.flat_losses(9), seen[2])
    changes = [not np.array_equal(one, other) for one, other in itertools.pairwise(seen)]
    expected = {"fixed": [False] * 4, "switching": [False, False, True, True], "drifting": [True] * 4}
    assert changes == expected[kind] if kind in expected else any(changes)


def test_the_mean_of_stochastic_losses_is_that_of_fixed_ones():
    adversaries = [make_adversary("natural-losses", WORLD, 3000, kind=kind, seed=3) for kind in ("stochastic", "fixed")]
    mean = np.mean([adversaries[0].flat_losses(k) for k in range(3000)], axis=0)
    np.testing.assert_allclose(mean, adversaries[1].flat_losses(0), atol=0.05)


def test_linear_losses_need_shares():
    with pytest.raises(InvalidSpecError, match="kind is 'odd', should be 'drifting'"):
        make_adversary("natural-losses", WORLD, 10, kind="odd")
    signed = LinearMDP(
        [-table for table in WORLD.features], [-table for table in WORLD.measures], scene=Scene(natural_losses="linear")
    )
    for world in (signed, LayeredMDP(WORLD.kernels, scene=Scene(natural_losses="linear"))):
        with pytest.raises(InvalidSpecError, match="need a LinearMDP whose features are shares"):
            make_adversary("natural-losses", world, 10)
