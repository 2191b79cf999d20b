"""Every example in a docstring is true; that every public name has one, with shapes, is tests/test_reference.py."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import advmdp

#: Examples of these would need a cluster.
MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(advmdp.__path__, "advmdp.")
    if info.name not in ("advmdp.__main__", "advmdp.experiments.ray_engine")
)
FINDER = doctest.DocTestFinder(exclude_empty=True)


def examples() -> list[doctest.DocTest]:
    modules = [importlib.import_module(name) for name in MODULES]
    return [test for module in modules for test in FINDER.find(module, module.__name__) if test.examples]


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name.removeprefix("advmdp."))
def test_the_examples_of_a_docstring_are_true(test):
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_what_people_call_first_has_an_example():
    tested = {test.name for test in examples()}
    for name in (
        "advmdp.worlds.make_world",
        "advmdp.adversaries.make_adversary",
        "advmdp.learners.base.make_learner",
        "advmdp.layered.models.LinearMixtureModel.from_kernels",
        "advmdp.layered.models.LinearMixtureModel.from_simulators",
        "advmdp.episodes.Episode",
        "advmdp.episodes.play",
        "advmdp.experiments.runner.run",
        "advmdp.experiments.compare.compare",
        "advmdp.testing",
    ):
        assert name in tested
