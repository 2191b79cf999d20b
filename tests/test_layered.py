"""Worlds and models: what is accepted, what is rejected and how, and what survives a file."""

from __future__ import annotations

import gc
import itertools
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from hypothesis import given

from advmdp import (
    CorruptCheckpointError,
    InvalidMDPError,
    LayeredMDP,
    LinearMixtureMDP,
    LinearMixtureModel,
    TabularModel,
    load_mdp,
    make_world,
    storage,
)
from advmdp.seeding import Stream, generator
from tests.strategies import generators, mixture_worlds, random_kernels


def good_kernels() -> list[np.ndarray]:
    """Layers 1-2-3-1 with two actions."""
    rng = np.random.default_rng(0)
    sizes = [1, 2, 3, 1]
    return [rng.dirichlet(np.ones(m), size=(n, 2)) for n, m in itertools.pairwise(sizes)]


def altered(layer: int, index: tuple[int, ...], value: float) -> list[np.ndarray]:
    kernels = good_kernels()
    kernels[layer][index] = value
    return kernels


BAD_KERNELS = {
    "no layers": ([], "kernels is empty"),
    "not an array": ([[["a"]]], r"kernels\[0\] is not an array of numbers"),
    "ragged rows": ([[[[1.0], [0.5, 0.5]]]], r"kernels\[0\] is not an array of numbers"),
    "wrong number of axes": ([np.ones((1, 2))], r"kernels\[0\] has shape \(1, 2\), should be \(S_h, A"),
    "two first states": ([np.ones((2, 2, 1))], "layer 0 has 2 states: the first and the last"),
    "two last states": ([np.full((1, 2, 2), 0.5)], "layer 1 has 2 states: the first and the last"),
    "no states in a layer": ([np.ones((1, 2, 0)), np.ones((0, 2, 1))], "the number of states in layer 1 is 0"),
    "no actions": ([np.ones((1, 0, 1))], "n_actions is 0"),
    "layers that do not fit": (
        [good_kernels()[0], np.full((3, 2, 3), 1 / 3), good_kernels()[2]],
        r"kernels\[1\] has 3 states, but kernels\[0\] leads to 2",
    ),
    "another number of actions": (
        [good_kernels()[0], np.full((2, 3, 3), 1 / 3), good_kernels()[2]],
        r"kernels\[1\] has 3 actions, kernels\[0\] has 2",
    ),
    "NaN": (altered(1, (1, 0, 2), np.nan), r"kernels\[1\], state 1, action 0, next state 2: value nan"),
    "infinity": (altered(1, (0, 1, 1), np.inf), r"kernels\[1\], state 0, action 1, next state 1: value inf"),
    "negative probability": (
        altered(1, (1, 1, 0), -0.25),
        r"kernels\[1\], state 1, action 1, next state 0: probability -0.25 is negative",
    ),
    "row sum": (altered(2, (2, 1, 0), 0.9), r"kernels\[2\], state 2, action 1: probabilities sum to 0.9"),
    "row sum off by 2e-9": (altered(2, (2, 1, 0), 1 + 2e-9), "probabilities sum to 1.000000002"),
}


@pytest.mark.parametrize(("kernels", "message"), BAD_KERNELS.values(), ids=BAD_KERNELS.keys())
def test_bad_kernels_are_rejected_with_their_place(kernels, message):
    with pytest.raises(InvalidMDPError, match=message):
        LayeredMDP(kernels)


def mixture_arguments() -> dict:
    world = LinearMixtureMDP.from_kernels([good_kernels(), good_kernels()], [0.3, 0.7])
    return {
        "features": [f.copy() for f in world.features],
        "theta": [t.copy() for t in world.theta],
        "bound": world.bound,
        "simplex": True,
    }


def with_change(**changes):
    """Mixture arguments with entries replaced: name -> function of the old value."""
    arguments = mixture_arguments()
    for name, change in changes.items():
        arguments[name] = change(arguments[name])
    return arguments


def put(layer, index, value):
    def change(arrays):
        arrays[layer][index] = value
        return arrays

    return change


BAD_MIXTURES = {
    "features of norm above one": (
        with_change(features=put(1, (1, 0, 2), 0.9)),
        r"features\[1\], state 1, action 0, next state 2: norm 1.27279, should be at most 1",
    ),
    "NaN feature": (
        with_change(features=put(0, (0, 1, 1, 1), np.nan)),
        r"features\[0\], state 0, action 1, next state 1, coordinate 1: value nan",
    ),
    "theta above its bound": (
        with_change(bound=lambda b: 0.8 * b, theta=lambda t: [np.array([t_h.sum(), 0.0]) for t_h in t]),
        r"theta\[0\] has norm [0-9.]+, should be at most bound",
    ),
    "bound not positive": (with_change(bound=lambda b: 0.0), "bound is 0.0, should be a finite number > 0"),
    "bound not a number": (with_change(bound=lambda b: np.nan), "bound is nan"),
    "NaN in theta": (with_change(theta=put(1, 0, np.nan)), r"theta\[1\] = .* not a finite number"),
    "theta too short": (
        with_change(theta=lambda t: [*t[:1], t[1][:1], t[2]]),
        r"theta\[1\] has shape \(1,\), should be \(2,\)",
    ),
    "theta for too few layers": (with_change(theta=lambda t: t[:-1]), "theta has 2 layers, features have 3"),
    "kernel with negative entries": (
        # The two coordinates of a feature are equal here, so these parameters only differ in the kernel
        # where the features do.
        with_change(
            features=put(1, (0, 0, 0, 0), 0.0),
            simplex=lambda s: False,
            theta=put(1, slice(None), (9.0, -9.0)),
            bound=lambda b: 100.0,
        ),
        r"<features, theta>\[1\], state 0, action 0, next state 0: probability -[0-9.]+ is negative",
    ),
    "kernel whose rows do not sum to one": (
        with_change(theta=lambda t: [t[0], 0.5 * t[1], t[2]]),
        r"the kernel <features, theta>\[1\], state 0, action 0: probabilities sum to 0.5, should be 1",
    ),
    "negative features of a simplex": (
        with_change(features=put(1, (1, 1, 0, 0), -0.1)),
        r"features\[1\], state 1, action 1, next state 0, coordinate 0: value -0.1 is negative",
    ),
    "feature sums that differ in a simplex": (
        with_change(features=put(1, (1, 1, 0, 0), 0.0)),
        r"features\[1\], state 1, action 1: sums over next states .*, should be [0-9.]+ > 0 in every",
    ),
    "negative theta in a simplex": (
        with_change(
            features=lambda f: [np.repeat(a[..., :1], 2, axis=3) for a in f],
            theta=lambda t: [np.array([t_h.sum() + 1.0, -1.0]) for t_h in t],
            bound=lambda b: 100.0,
        ),
        r"theta\[0\] has entry -1, should be >= 0 since simplex=True",
    ),
    "different dimensions": (
        with_change(features=lambda f: [f[0], f[1][..., :1], f[2]]),
        r"features have \[1, 2\] coordinates in different layers",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_MIXTURES.values(), ids=BAD_MIXTURES.keys())
def test_bad_mixtures_are_rejected_with_their_place(arguments, message):
    LinearMixtureMDP(**mixture_arguments())  # the unaltered arguments are fine
    with pytest.raises(InvalidMDPError, match=message):
        LinearMixtureMDP(**arguments)


def test_data_cannot_be_changed_from_outside_or_inside():
    kernels = good_kernels()
    mdp = LayeredMDP(kernels)
    before = [k.copy() for k in mdp.kernels]
    kernels[1][:] = 0.0
    assert all(np.array_equal(a, b) for a, b in zip(before, mdp.kernels, strict=True))
    with pytest.raises(ValueError, match="read-only"):
        mdp.kernels[1][0, 0, 0] = 0.5
    world = make_world("random-mixture")
    for arrays in (world.features, world.theta, world.model.features):
        with pytest.raises(ValueError, match="read-only"):
            arrays[0].flat[0] = 0.5


def test_read_only_flags_cannot_be_set_back():
    world = make_world("random-mixture")
    for array in (world.features[0], world.theta[0], world.kernels[0]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_a_view_kept_by_the_caller_cannot_change_the_model():
    features = np.full((1, 2, 2, 1), 0.5)
    view = features[:]
    features.flags.writeable = False
    model = LinearMixtureModel([features, np.ones((2, 2, 1, 1))], bound=1.0)
    view[:] = 99.0
    assert model.features[0].max() == 0.5


def test_layers_may_come_from_a_lazy_sequence():
    """Entries that exist only while they are looked at must not be taken for one another."""
    features = np.stack([np.full((2, 2, 2, 1), 0.5), np.full((2, 2, 2, 1), 0.25)])
    with pytest.raises(InvalidMDPError, match="layer 0 has 2 states"):
        LinearMixtureModel(features, bound=4.0)


MODELS_WITHOUT_A_TRUTH = {
    "rows that sum to different numbers": (
        {"features": [[[[[0.5], [0.5]], [[0.25], [0.25]]]], np.ones((2, 2, 1, 1))], "bound": 1.0},
        r"features\[0\], state 0, action .: no parameter makes the rows of this layer sum to 1",
    ),
    "zero features": (
        {"features": [np.zeros((1, 1, 2, 3)), np.ones((2, 1, 1, 3))], "bound": 1.0},
        "no parameter makes the rows",
    ),
    "simplex, sums that differ between pairs": (
        {"features": [[[[[0.5], [0.5]], [[0.25], [0.25]]]], np.ones((2, 2, 1, 1))], "bound": 1.0, "simplex": True},
        r"features\[0\], state 0, action 1: sums over next states \[0.5\], should be 1 > 0",
    ),
    "simplex, a bound that no weights respect": (
        {"features": [np.full((1, 1, 2, 1), 0.5), np.ones((2, 1, 1, 1))], "bound": 0.01, "simplex": True},
        "bound is 0.01, but every parameter of layer 0 has norm at least 1",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), MODELS_WITHOUT_A_TRUTH.values(), ids=MODELS_WITHOUT_A_TRUTH.keys())
def test_models_that_no_parameter_satisfies_are_rejected(arguments, message):
    with pytest.raises(InvalidMDPError, match=message):
        LinearMixtureModel(**arguments)


NONSENSE = {
    "kernels None": lambda: LayeredMDP(None),
    "kernels of text": lambda: LayeredMDP([[["1.0"]]]),
    "complex kernels": lambda: LayeredMDP([np.ones((1, 1, 1), dtype=complex)]),
    "layer sizes a number": lambda: TabularModel(3, 2),
    "layer sizes fractional": lambda: TabularModel((1, 2.0, 1), 2),
    "actions a bool": lambda: TabularModel((1, 2, 1), True),
    "base kernels None": lambda: LinearMixtureModel.from_kernels(None),
    "theta of text": lambda: LinearMixtureMDP([np.ones((1, 1, 1, 1))], [["a"]]),
    "theta None": lambda: LinearMixtureMDP([np.ones((1, 1, 1, 1))], None),
    "bound of text": lambda: LinearMixtureModel([np.ones((1, 1, 1, 1))], "1.5"),
    "bound too large for a float": lambda: LinearMixtureModel([np.ones((1, 1, 1, 1))], 10**400),
    "weights of text": lambda: LinearMixtureMDP.from_kernels([[np.ones((1, 1, 1))]], ["a"]),
}


@pytest.mark.parametrize("build", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_raises_the_error_of_the_contract(build):
    with pytest.raises(InvalidMDPError):
        build()


def test_shape_is_reported():
    mdp = LayeredMDP(good_kernels())
    assert mdp.layer_sizes == (1, 2, 3, 1)
    assert (mdp.horizon, mdp.n_states, mdp.n_actions) == (3, 7, 2)
    assert isinstance(mdp.model, TabularModel)


def reachable_objects(root):
    """Everything that can be reached from an object by attributes, items and array bases."""
    seen, queue = {}, [root]
    while queue:
        node = queue.pop()
        if id(node) in seen or isinstance(node, type | types.ModuleType | types.FunctionType):
            continue
        seen[id(node)] = node
        queue.extend(gc.get_referents(node))
        if isinstance(node, np.ndarray) and node.base is not None:
            queue.append(node.base)
    return list(seen.values())


def test_a_model_holds_nothing_of_the_truth():
    world = make_world("random-mixture", layer_sizes=(1, 3, 2, 1), dim=2)
    assert world.model.possible is not None  # cached attributes are looked through as well
    truth = {array.tobytes() for array in (*world.theta, *world.kernels[:-1], world.rows.values)}
    held = reachable_objects(world.model)
    assert not any(node is world for node in held)
    assert not any(isinstance(node, np.ndarray) and node.tobytes() in truth for node in held)
    assert any(node is world for node in reachable_objects([world]))  # the search does find things


@given(mixture_worlds())
def test_mixture_kernels_are_the_weighted_base_kernels(world):
    for h in range(world.horizon - 1):
        np.testing.assert_allclose(world.features[h] @ world.theta[h], world.kernels[h], atol=1e-12)
        norms = np.linalg.norm(world.features[h], axis=3)
        assert norms.max() <= 1 + 1e-12
        assert np.linalg.norm(world.theta[h]) <= world.bound + 1e-12


@given(mixture_worlds())
def test_bound_of_a_mixture_does_not_depend_on_its_weights(world):
    scale = [f.sum(axis=2).max() for f in world.features[:-1]]  # every base row sums to 1 / c_h
    base = [
        [f[..., i] / s for f, s in zip(world.features[:-1], scale, strict=True)] + [world.kernels[-1]]
        for i in range(world.dim)
    ]
    corner = np.eye(world.dim)[0]
    assert LinearMixtureMDP.from_kernels(base, corner).bound == pytest.approx(world.bound)
    assert LinearMixtureModel.from_kernels(base).bound == pytest.approx(world.bound)


def test_weights_that_are_not_a_distribution_are_rejected():
    for weights in ([0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]):
        with pytest.raises(InvalidMDPError, match="weights of layer 0"):
            LinearMixtureMDP.from_kernels([good_kernels(), good_kernels()], weights)
    with pytest.raises(InvalidMDPError, match="weights have shape"):
        LinearMixtureMDP.from_kernels([good_kernels(), good_kernels()], [1.0])


# ------------------------------------------------------------------------------------ shared weights


def two_bases() -> list[list[np.ndarray]]:
    """Two kernels of layers 1-2-3-1 whose features have another scale in each layer."""
    rng = np.random.default_rng(5)
    return [[rng.dirichlet(np.ones(m), size=(n, 2)) for n, m in itertools.pairwise([1, 2, 3, 1])] for _ in range(2)]


@pytest.mark.parametrize(
    ("weights", "shared", "expected"),
    [
        ([0.3, 0.7], None, True),
        ([0.3, 0.7], False, False),
        ([[0.3, 0.7]] * 3, None, False),  # the same by chance, as far as one can know
        ([[0.3, 0.7]] * 3, True, True),
    ],
)
def test_weights_are_shared_if_that_was_said_or_one_vector_was_given(weights, shared, expected):
    world = LinearMixtureMDP.from_kernels(two_bases(), weights, shared)
    assert world.model.shared is expected
    other = LinearMixtureMDP.from_kernels(two_bases(), [0.3, 0.7])
    for ours, theirs in zip((*world.features, *world.theta), (*other.features, *other.theta), strict=True):
        np.testing.assert_array_equal(ours, theirs)  # nothing else depends on it


def test_scales_lead_back_to_base_kernels_and_weights():
    world, bases = LinearMixtureMDP.from_kernels(two_bases(), [0.3, 0.7]), two_bases()
    assert len(set(world.model.scales[:-1])) == 2
    assert max(world.model.scales) == world.bound
    for h, scale in enumerate(world.model.scales):
        np.testing.assert_allclose(world.features[h] * scale, np.stack([base[h] for base in bases], axis=3), rtol=1e-12)
        np.testing.assert_allclose(world.theta[h] / scale, [0.3, 0.7], rtol=1e-12)
    assert LinearMixtureModel.from_kernels(bases).scales == world.model.scales
    assert LinearMixtureModel(world.features, world.bound).scales == (1.0, 1.0, 1.0)


def test_models_say_whether_weights_are_shared():
    def step(layer, state, action, rng):
        return int(rng.integers(0, 2))

    for shared in (False, True):
        assert LinearMixtureModel.from_kernels(two_bases(), shared=shared).shared is shared
        sampled = LinearMixtureModel.from_simulators([step, step], (1, 2, 2, 1), 2, samples=5, shared=shared)
        assert sampled.shared is shared
    assert not LinearMixtureModel.from_kernels(two_bases()).shared


@pytest.mark.parametrize("layer", [1, 2])
def test_weights_that_differ_are_not_shared(layer):
    weights = [[0.3, 0.7]] * layer + [[0.4, 0.6]] * (3 - layer)
    with pytest.raises(
        InvalidMDPError, match=rf"weights of layer {layer} are \[0\.4 0\.6\].*layer 0 are \[0\.3 0\.7\]"
    ):
        LinearMixtureMDP.from_kernels(two_bases(), weights, shared=True)


def test_parameters_that_differ_are_not_shared():
    world = LinearMixtureMDP.from_kernels(two_bases(), [[0.3, 0.7], [0.4, 0.6], [0.3, 0.7]])
    with pytest.raises(InvalidMDPError, match="the mixture weights of layer 1 are"):
        LinearMixtureMDP(world.features, world.theta, shared=True, scales=world.model.scales)


def test_features_of_unlike_scale_cannot_share_weights():
    model = LinearMixtureModel.from_kernels(two_bases())
    with pytest.raises(InvalidMDPError, match=r"features\[1\] \* scales\[1\] sum to .* since shared=True"):
        LinearMixtureModel(model.features, model.bound, simplex=True, shared=True)
    assert LinearMixtureModel(model.features, model.bound, True, shared=True, scales=model.scales).shared


@pytest.mark.parametrize("scales", [[1.0], [1.0, 0.0, 1.0], [1.0, np.inf, 1.0], "abc", 2.0])
def test_scales_are_one_number_per_layer(scales):
    model = LinearMixtureModel.from_kernels(two_bases())
    with pytest.raises(InvalidMDPError, match="scales"):
        LinearMixtureModel(model.features, model.bound, scales=scales)


def test_what_is_shared_survives_a_file_and_older_files_know_nothing_of_it(tmp_path):
    world = LinearMixtureMDP.from_kernels(two_bases(), [0.3, 0.7])
    world.save(tmp_path / "world.npz")
    model = load_mdp(tmp_path / "world.npz").model
    assert model.shared
    assert model.scales == world.model.scales
    tree = storage.read(tmp_path / "world.npz", "mdp")
    storage.write(tmp_path / "old.npz", "mdp", {k: v for k, v in tree.items() if k not in ("shared", "scales")})
    model = load_mdp(tmp_path / "old.npz").model
    assert not model.shared
    assert model.scales == (1.0, 1.0, 1.0)


def test_base_kernels_of_different_shape_are_rejected():
    other = [np.ones((1, 2, 1))]
    with pytest.raises(InvalidMDPError, match="base kernel 1 has layers"):
        LinearMixtureModel.from_kernels([good_kernels(), other])
    with pytest.raises(InvalidMDPError, match="base kernel 1: kernels"):
        LinearMixtureModel.from_kernels([good_kernels(), altered(1, (0, 0, 0), 7.0)])


def test_simulators_become_their_kernels():
    truth = [good_kernels(), [k[:, ::-1] for k in good_kernels()]]

    def simulator(kernels):
        return lambda h, s, a, rng: int(rng.choice(kernels[h].shape[2], p=kernels[h][s, a]))

    model = LinearMixtureModel.from_simulators([simulator(k) for k in truth], (1, 2, 3, 1), 2, samples=4000, seed=1)
    exact = LinearMixtureModel.from_kernels(truth)
    assert model.simplex
    for sampled, known in zip(model.features, exact.features, strict=True):
        # Features are divided by their largest norm, which is sampled too: compare the kernels.
        rows, true_rows = (features / features.sum(axis=2, keepdims=True) for features in (sampled, known))
        np.testing.assert_allclose(rows, true_rows, atol=6 * 0.5 / np.sqrt(4000))
    again = LinearMixtureModel.from_simulators([simulator(k) for k in truth], (1, 2, 3, 1), 2, samples=4000, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(model.features, again.features, strict=True))


@pytest.mark.parametrize("answer", [3, -1, 1.0, True, None])
def test_a_simulator_that_answers_nonsense_is_named(answer):
    def step(layer, state, action, rng):
        return answer if layer == 1 else 0

    with pytest.raises(InvalidMDPError, match="simulator 0, layer 1, state 0, action 0: next state is"):
        LinearMixtureModel.from_simulators([step], (1, 2, 3, 1), 2, samples=3)


def test_a_transition_that_was_never_sampled_is_not_refused():
    model = LinearMixtureModel.from_simulators([lambda h, s, a, rng: 0], (1, 2, 1), 1, samples=5)
    assert model.possible is None
    exact = LinearMixtureModel.from_kernels([[np.array([[[1.0, 0.0]]]), np.ones((2, 1, 1))]])
    assert exact.possible[0].tolist() == [[[True, False]]]


def test_simulators_draw_from_a_stream_of_their_own():
    used = [generator(0, purpose).random() for purpose in Stream]
    drawn = []
    LinearMixtureModel.from_simulators([lambda h, s, a, rng: drawn.append(rng.random()) or 0] * 5, (1, 2, 1), 1, 1)
    assert len({*used, *drawn}) == len(Stream) + 5


def test_impossible_transitions_are_known_from_features():
    world = make_world("grid", height=3, width=3)
    possible = world.model.possible
    assert possible[1].sum() == (world.kernels[1] > 0).sum()
    assert TabularModel((1, 2, 1), 2).possible is None


@given(generators())
def test_any_world_survives_a_file_bit_for_bit(tmp_path_factory, rng):
    path = tmp_path_factory.getbasetemp() / "world.npz"
    mdp = LayeredMDP(random_kernels(rng, [1, 9, 20, 1], 3))
    mdp.save(path)
    loaded = load_mdp(path)
    assert all(np.array_equal(a, b) for a, b in zip(mdp.kernels, loaded.kernels, strict=True))


def test_worlds_survive_a_file(tmp_path):
    for mdp in (LayeredMDP(good_kernels()), make_world("grid"), make_world("random-mixture")):
        mdp.save(tmp_path / "world.npz")
        loaded = load_mdp(tmp_path / "world.npz")
        assert type(loaded) is type(mdp)
        assert all(np.array_equal(a, b) for a, b in zip(mdp.kernels, loaded.kernels, strict=True))
        if isinstance(mdp, LinearMixtureMDP):
            assert loaded.bound == mdp.bound
            assert loaded.model.simplex == mdp.model.simplex
            assert all(np.array_equal(a, b) for a, b in zip(mdp.theta, loaded.theta, strict=True))


def test_a_file_of_another_kind_is_refused(tmp_path):
    storage.write(tmp_path / "x.npz", "mdp", {"class": "LayeredMDP", "kernels": [np.ones((2, 1, 1))]})
    with pytest.raises(CorruptCheckpointError, match=r"x\.npz: does not describe a valid world"):
        load_mdp(tmp_path / "x.npz")


def test_layers_that_share_an_array_share_its_memory(tmp_path):
    middle = np.full((50, 2, 50), 1 / 50)
    kernels = [np.full((1, 2, 50), 1 / 50), *[middle] * 40, np.ones((50, 2, 1))]
    mdp = LayeredMDP(kernels)
    assert mdp.rows.values.size < 3 * middle.size
    mdp.save(tmp_path / "shared.npz")
    assert (tmp_path / "shared.npz").stat().st_size < 3 * middle.nbytes
    assert load_mdp(tmp_path / "shared.npz").rows.values.size == mdp.rows.values.size


def test_a_large_grid_builds_within_one_gibibyte():
    """20 x 20 over 38 steps, and the same number of cells without the layers' sparsity."""
    program = (
        "import numpy as np, re\n"
        "from advmdp import make_world, LinearMixtureMDP\n"
        "world = make_world('grid', height=20, width=20)\n"
        "assert world.horizon == 38 and world.n_states == 400\n"
        "rows = np.full((400, 4, 400), 1 / 400)\n"
        "kernels = [np.full((1, 4, 400), 1 / 400)] + [rows] * 36 + [np.ones((400, 4, 1))]\n"
        "LinearMixtureMDP.from_kernels([kernels] * 3, [0.2, 0.3, 0.5])\n"
        # Not getrusage: its maximum outlives exec, so that it would be that of the process that runs the tests.
        "print(re.search('VmHWM:.*', open('/proc/self/status').read())[0])\n"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kibibytes = int(re.findall(r"\d+", output.stdout)[-1])
    assert kibibytes < 2**20
