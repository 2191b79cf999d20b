"""What every test shares: one thread, fixed examples, and which slow tests a quick run takes."""

from __future__ import annotations

import os

# Before numpy is imported: a BLAS that spreads over the cores slows two pytest workers down, and
# its reductions then depend on the number of threads.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import hashlib
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None, max_examples=1000)
settings.load_profile("ci")  # `pytest --hypothesis-profile=explore` looks for new counterexamples

SLOW_SAMPLE_SEED = "advmdp-1"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("advmdp")
    group.addoption(
        "--slow-sample",
        type=int,
        metavar="N",
        help="of the tests marked slow run only N, always the same ones (default: all of them)",
    )


def slow_sample(node_ids: list[str], size: int) -> set[str]:
    """Take the ``size`` ids whose seeded hash is smallest.

    A hash and not a shuffle, so that a test added elsewhere replaces at most one of the sample.
    """

    def rank(node_id: str) -> bytes:
        return hashlib.sha256(f"{SLOW_SAMPLE_SEED}:{node_id}".encode()).digest()

    return set(sorted(node_ids, key=rank)[:size])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    size = config.getoption("--slow-sample")
    if size is None:
        return
    slow = {item.nodeid for item in items if item.get_closest_marker("slow")}
    left_out = slow - slow_sample(list(slow), size)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.fixture(autouse=True)
def registries_as_they_were():
    """What a test (or an example of the docs) registers is gone after it."""
    from advmdp.registry import adversaries, learners, natural_losses, worlds

    registries = (worlds, adversaries, learners, natural_losses)
    before = [dict(registry._entries) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The documentation without the API reference, which takes most of the time; `make docs` builds all of it."""
    import logging

    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    logging.getLogger("mkdocs").setLevel(logging.ERROR)  # links into the reference lead nowhere here
    mkdocs = Path(__file__).resolve().parents[1] / "mkdocs.yml"
    build(load_config(str(mkdocs), site_dir=str(folder), strict=False, plugins=["search", "offline"]))
    return folder


@pytest.fixture
def plugin(monkeypatch):
    """Installs a package of misbehaving learners, for this process and for the workers that it starts."""
    from advmdp.registry import learners
    from tests.experiments.specs import PLUGIN

    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setattr(learners, "_loaded_entry_points", False)
