"""A spec says what it means, and an error says where."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import Adversary, InvalidSpecError
from advmdp.experiments import Cell, Spec
from advmdp.experiments.spec import Choice, to_toml
from advmdp.registry import register_adversary, register_world
from advmdp.worlds import make_world
from tests.experiments.specs import small_spec

GOOD = """\
episodes = 5
seeds = 2
worlds = ["grid"]
adversaries = ["fixed"]
learners = ["uniform"]
"""


def test_a_spec_is_every_combination_with_seeds_together():
    spec = Spec(
        'episodes = [5, 10]\nseeds = [3, 1]\nworlds = ["grid", "random-mixture"]\nadversaries = ["fixed"]\n'
        '[[learners]]\nname = "uniform"\n[[learners]]\nname = "vlsuob-reps"\n'
        'options = { geometry = "box" }\ngrid = { radius_scale = [0.1, 1.0], eta = [0.5] }\n'
    )
    assert len(spec.cells) == 2 * 2 * 2 * 3
    assert [cell.seed for cell in spec.cells[:6]] == [3, 3, 3, 1, 1, 1]
    assert [cell.learner.options for cell in spec.cells[:3]] == [
        {},
        {"geometry": "box", "radius_scale": 0.1, "eta": 0.5},
        {"geometry": "box", "eta": 0.5},  # a default that is spelled out is still the default
    ]
    assert spec.cells[0].id == "grid__fixed__uniform__K5__s3"
    assert spec.cells[1].id == "grid__fixed__vlsuob-reps-eta=0.5-geometry=box-radius_scale=0.1__K5__s3"
    assert spec.labels(spec.cells[1]) == {
        "world": "grid",
        "adversary": "fixed[K=5]",
        "learner": "vlsuob-reps[radius_scale=0.1]",
    }
    assert spec.varying(spec.cells[2])["learner.radius_scale"] == 1.0
    assert spec.varying(spec.cells[2])["episodes"] == 5


def test_paired_worlds_and_adversaries_meet_one_to_one():
    worlds = ["grid", "queue"]
    spec = small_spec(paired=True, worlds=worlds, adversaries=["drifting", "fixed"], learners=["uniform"])
    assert [(c.world.name, c.adversary.name, c.seed) for c in spec.cells] == [
        ("grid", "drifting", 0), ("grid", "drifting", 1), ("queue", "fixed", 0), ("queue", "fixed", 1)
    ]  # fmt: skip
    assert len(small_spec(worlds=worlds, adversaries=["drifting", "fixed"], learners=["uniform"]).cells) == 8
    with pytest.raises(InvalidSpecError, match="paired: there are 2 worlds and 1 adversaries, should be as many"):
        small_spec(paired=True, worlds=worlds)


def test_ids_and_fingerprints_do_not_depend_on_what_else_is_in_the_spec():
    few = {cell.id: cell.fingerprint for cell in small_spec().cells}
    learners = ["uob-reps", {"name": "vlsuob-reps-tight", "grid": {"radius_scale": [1.0, 0.5]}}, "uniform"]
    many = {cell.id: cell.fingerprint for cell in small_spec(seeds=[7, 1, 0], learners=learners).cells}
    assert few.items() <= many.items()


def test_a_cell_survives_as_its_definition():
    for cell in small_spec(measures=["widths"]).cells:
        assert Cell.from_definition(cell.definition) == cell


# Few letters, so that texts that look alike are found.
names = st.text("ab-_=1.", min_size=1, max_size=8) | st.text(min_size=1, max_size=80)
values = (
    st.sampled_from(["1", 1, 1.0, True, "true", None, [1], [[1]], [1, 2], "1-2", [1, -2], "1-b=1", "A", "a"])
    | st.text(max_size=60)
    | st.floats()
)
options = st.dictionaries(st.text("ab-=", max_size=3) | st.text(max_size=5), values, max_size=3)


@given(st.lists(st.tuples(names, options), min_size=2, max_size=2))
def test_ids_are_safe_file_names_and_different_for_different_choices(pairs):
    one, other = (Choice("learner", name, json.dumps(given, sort_keys=True)) for name, given in pairs)
    for choice in (one, other):
        assert re.fullmatch(r"[a-z0-9.=_-]{1,60}", choice.slug)
        assert not choice.slug.startswith(".")
        assert "__" not in choice.slug
    assert (one.slug == other.slug) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "1"}, {"a": 1}),
        ({"a": "true"}, {"a": True}),
        ({"a": [1]}, {"a": 1}),
        ({"a": "x-b=1"}, {"a": "x", "b": 1}),
    ],
)
def test_values_that_look_alike_have_different_ids(one, other):
    slugs = {Choice("learner", "name", json.dumps(given, sort_keys=True)).slug for given in (one, other)}
    assert len(slugs) == 2


@given(st.dictionaries(st.text(max_size=5), st.recursive(
    st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.booleans() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)))  # fmt: skip
def test_what_is_written_as_toml_is_read_as_the_same(document):
    assert tomllib.loads(to_toml(document)) == document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nonsense = 1", "unknown key 'nonsense'; the keys here are: title, episodes"),
        (("seeds = 2", ""), "the key 'seeds' is missing"),
        (("episodes = 5", "episodes = 0"), "episodes is 0, should be an integer >= 1"),
        (("episodes = 5", "episodes = true"), "episodes is True"),
        (("episodes = 5", "episodes = 2.5"), "episodes is 2.5"),
        (("episodes = 5", "episodes = []"), "episodes is empty"),
        (("seeds = 2", "seeds = 0"), "seeds is 0"),
        (("seeds = 2", "seeds = 9223372036854775807"), "seeds makes 9223372036854775807 runs, should make at most"),
        (("5\nseeds = 2", "[5, 6]\nseeds = 800_000"), "learners x episodes x seeds makes 1600000 runs"),
        (("seeds = 2", "seeds = [1, 1]"), "seeds has 1 twice"),
        (("seeds = 2", "seeds = [-1]"), "seeds is .-1."),
        ('measures = ["width"]', r"measures has .width.; there are: .*decomposition, .*widths"),
        (('"grid"', '"gird"'), r"worlds\[0\].name: unknown world 'gird' \(did you mean 'grid'"),
        (('["uniform"]', "[]"), r"learners is empty, should name at least one; there are: .*ftl"),
        (('["uniform"]', '"uniform"'), "learners is 'uniform': input should be a valid list"),
        (('["uniform"]', '["uniform", "uniform"]'), r"learners\[1\]: 'uniform' with options {} is also learners\[0\]"),
        (('"uniform"', '{ nam = "uniform" }'), r"key 'learners\[0\].nam'; the keys here are: name, options, grid"),
        (('"uniform"', '{ name = "uob-reps", options = { et = 1 } }'), "has no such option; it has: eta, radius_scale"),
        (('"uniform"', '{ name = "uniform", options = { seed = 1 } }'), "options.seed: an experiment sets this"),
        (('"uniform"', '{ name = "hindsight", options = { losses = [] } }'), "options.losses: an experiment sets this"),
        (('"uniform"', '{ name = "uob-reps", grid = { eta = [] } }'), r"learners\[0\].grid.eta is empty"),
        (
            ('"uniform"', '{ name = "uob-reps", grid = { eta = [1] }, options = { eta = 1 } }'),
            "eta stands in options and in grid",
        ),
        (('"uniform"', '{ name = "uob-reps", options = { eta = 1979-05-27 } }'), "date is not JSON serializable"),
        (("episodes = 5", "episodes = "), "is not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_key_and_the_choices(change, message):
    text = GOOD + change if isinstance(change, str) else GOOD.replace(*change)
    with pytest.raises(InvalidSpecError, match=message):
        Spec(text)


def test_impossible_values_are_named_by_those_who_know():
    text = GOOD.replace('"uniform"', '"uniform", { name = "uob-reps", options = { eta = -1.0 } }')
    with pytest.raises(InvalidSpecError, match=r"learners\[1\] \(uob-reps\) on worlds\[0\] \(grid\): eta is -1.0"):
        Spec(text).check()
    with pytest.raises(InvalidSpecError, match=r"worlds\[0\] \(grid\): height is 0"):
        Spec(GOOD.replace('"grid"', '{ name = "grid", options = { height = 0 } }')).check()
    Spec(GOOD).check()


def test_impossible_combinations_are_named():
    @register_adversary("test-reacting")
    class Reacting(Adversary):
        oblivious = False

        def __init__(self, mdp, episodes, *, seed=0):
            super().__init__(mdp, episodes)

    @register_world("test-tabular")
    def tabular():
        from advmdp import LayeredMDP

        return LayeredMDP(make_world("grid").kernels)

    told = GOOD.replace('"uniform"', '"uniform", "hindsight"').replace('"fixed"', '"fixed", "test-reacting"')
    with pytest.raises(InvalidSpecError, match=r"learners\[1\] \(hindsight\) is told .* adversaries\[1\] \(test-reac"):
        Spec(told).check()
    mixture = GOOD.replace('"uniform"', '"vlsuob-reps"').replace('"grid"', '"test-tabular"')
    with pytest.raises(InvalidSpecError, match=r"learners\[0\] .vlsuob-reps. on worlds\[0\] .* needs a LinearMixture"):
        Spec(mixture).check()


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InvalidSpecError, match=r"missing\.toml cannot be read"):
        Spec.read(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpecError, match="cannot be read"):
        Spec.read(tmp_path / "binary.toml")


def test_a_grid_that_explodes_is_refused_before_it_is_expanded():
    grid = ", ".join(f"o{i} = [{', '.join(map(str, range(10)))}]" for i in range(12))
    text = GOOD.replace('"grid"', f'{{ name = "w", grid = {{ {grid} }} }}')

    @register_world("w")
    def anything(**options):
        raise AssertionError("never built")

    with pytest.raises(InvalidSpecError, match=r"worlds\[0\]\.grid makes 1000000000000 runs, should make at most"):
        Spec(text)


def test_a_spec_keeps_the_modules_that_the_command_line_imports():
    text = 'episodes = 3\nseeds = 1\nworlds = ["grid"]\nadversaries = ["stochastic"]\nlearners = ["uniform"]\n'
    assert Spec(text).importing(()).text == text
    once = Spec(text).importing(["json", "math", "json"])
    assert tomllib.loads(once.text) == {"imports": ["json", "math"]} | tomllib.loads(text)
    assert tomllib.loads(once.importing(["math", "ast"]).text)["imports"] == ["json", "math", "ast"]
    assert once.cells == Spec(text).cells
