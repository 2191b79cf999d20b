"""The reference lists every public name, and every public name is documented, with shapes where it takes arrays."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import griffe

from tools.docstrings import AttributeComments, on_page_content

ROOT = Path(__file__).resolve().parents[1]
#: Packages whose ``__all__`` is public, and modules of which everything without an underscore is.
PACKAGES = (
    "advmdp",
    "advmdp.adversaries",
    "advmdp.confidence",
    "advmdp.experiments",
    "advmdp.learners",
    "advmdp.process",
    "advmdp.report",
    "advmdp.solvers",
    "advmdp.theory.lemmas",
    "advmdp.worlds",
)
MODULES = (
    "advmdp.confidence.counts",
    "advmdp.confidence.likelihood",
    "advmdp.confidence.linear_mdp",
    "advmdp.confidence.radii",
    "advmdp.confidence.regression",
    "advmdp.confidence.values",
    "advmdp.constants",
    "advmdp.errors",
    "advmdp.experiments.statistics",
    "advmdp.learners.options",
    "advmdp.learners.parts.experts",
    "advmdp.learners.parts.linear",
    "advmdp.learners.parts.losses",
    "advmdp.learners.parts.planning",
    "advmdp.learners.parts.predictors",
    "advmdp.learners.parts.safe",
    "advmdp.learners.planner",
    "advmdp.learners.portfolio",
    "advmdp.learners.reps",
    "advmdp.registry",
    "advmdp.storage",
    "advmdp.testing",
    "advmdp.theory.bounds",
    "advmdp.theory.decomposition",
)
OCCUPANCY = (
    "occupancy_measure", "policy_of", "expected_loss", "best_policy", "worst_policy", "uniform_policy", "random_policy",
)  # fmt: skip
ESTIMATORS = ("RidgeSums", "RidgeEstimate", "AllNextStates", "OneNextState", "ValueTargets", "EpochCounts")


def public_objects() -> dict[str, object]:
    """Where it is defined -> every public function and class."""
    found: list[object] = []
    for name in PACKAGES:
        package = importlib.import_module(name)
        found += [getattr(package, each) for each in package.__all__]
    for name in MODULES:
        module = importlib.import_module(name)
        found += [each for key, each in vars(module).items() if not key.startswith("_") and defined_in(each, name)]
    for module_name, names in (("advmdp.occupancy", OCCUPANCY), ("advmdp.confidence.estimators", ESTIMATORS)):
        module = importlib.import_module(module_name)
        found += [getattr(module, each) for each in names]
    return {
        f"{each.__module__}.{each.__qualname__}": each
        for each in found
        if inspect.isfunction(each) or inspect.isclass(each)
    }


def defined_in(thing: object, module: str) -> bool:
    return (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module


PUBLIC = public_objects()
ARRAYS = re.compile(r"ArrayLike|FloatArray|IntArray|NDArray|ndarray|Floats|Table\b|Kernels")
#: How docstrings say shapes; "as for" and "arguments of" refer to another one.
SHAPES = re.compile(r"\((?:S_h|H|K|d|count|\.\.\.)[^)]*\)|shape|list over|lists over|arguments of :func:|flat")


def test_there_are_many():
    assert len(PUBLIC) > 120


def test_the_reference_lists_every_public_name():
    listed = {
        name
        for page in (ROOT / "docs" / "reference").glob("*.md")
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    }
    missing = [name for name in PUBLIC if name not in listed and name.rsplit(".", 1)[0] not in listed]
    assert not missing, "add `::: name` to a page in docs/reference/"


def members(thing: object) -> list[str]:
    """Public methods and properties that a class defines itself."""
    if not inspect.isclass(thing):
        return []
    return [
        key
        for key, member in vars(thing).items()
        if not key.startswith("_")
        and (isinstance(member, property) or inspect.isfunction(getattr(member, "__func__", member)))
    ]


def test_every_public_name_is_documented():
    bare = []
    for name, thing in PUBLIC.items():
        text = thing.__doc__ or ""
        if not text.strip() or text.startswith(f"{name.rsplit('.', 1)[1]}("):  # that of dataclasses is no docstring
            bare.append(name)
        for key in members(thing):  # a method may be documented where it is declared
            if not any(getattr(getattr(base, key, None), "__doc__", None) for base in thing.__mro__):
                bare.append(f"{name}.{key}")
    assert not bare


def test_shapes_are_given_where_arrays_are_taken_or_returned():
    without = []
    for name, thing in PUBLIC.items():
        function = vars(thing).get("__init__") if inspect.isclass(thing) else thing
        hints = " ".join(str(hint) for hint in getattr(function, "__annotations__", {}).values())
        text = inspect.getdoc(thing) or ""
        if dataclasses.is_dataclass(thing):  # fields may be described where they are declared
            text += inspect.getsource(thing)
        if ARRAYS.search(hints) and not SHAPES.search(text):
            without.append(name)
    assert not without, "their docstrings should say the shapes of arrays"


def test_comments_of_fields_reach_the_reference():
    extensions = griffe.load_extensions(AttributeComments())
    module = griffe.load("advmdp.confidence.estimators", search_paths=[ROOT / "src"], extensions=extensions)
    assert module["RidgeEstimate.centres"].docstring.value == "theta_h, shape (H - 1, d)."
    assert module["RidgeEstimate.inverse_grams"].docstring.value.startswith("Inverses of")  # a docstring stays


def test_roles_of_another_tool_are_not_shown():
    assert on_page_content("see :func:<code>f</code> and x:<code>y</code>") == "see <code>f</code> and x:<code>y</code>"
