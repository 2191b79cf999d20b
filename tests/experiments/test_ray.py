"""The same cells on a real Ray cluster of two nodes, one of which goes away in the middle."""

from __future__ import annotations

import os
import signal

import pytest

from advmdp import InvalidSpecError
from advmdp.experiments import Store, load, resume, run_spec
from advmdp.experiments.ray_engine import RayEngine
from tests.experiments.specs import PLUGIN, Recorder, small_spec

pytest.importorskip("ray", reason="the extra `ray` is not installed")

# The two slow ones, five seconds each, begin together, one on each node.
SLOW = ["test-slow", {"name": "test-slow", "options": {"marker": "another"}}]
SPEC = {"learners": [*SLOW, "vlsuob-reps-tight", "uniform"], "episodes": 500, "seeds": 1}


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with one processor each, which find the package of misbehaving learners."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    paths = [str(PLUGIN), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    from ray.cluster_utils import Cluster

    # Quicker than the default to notice that a node is gone.
    health = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "_system_config": health})
    try:
        yield cluster, cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    finally:
        cluster.shutdown()


def test_a_sweep_survives_the_loss_of_a_node_and_equals_the_local_one(tmp_path, plugin, cluster, monkeypatch):
    nodes, second = cluster

    class Sabotage(Recorder):
        """Removes the second node when both have begun to play."""

        removed = False

        def progress(self, cell, played):
            super().progress(cell, played)
            begun = {name for name, count in self.events if isinstance(count, int) and count > 10}
            over = {name for name, state in self.events if state == "done"}
            if len(begun - over) == 2 and not self.removed:
                self.removed = True
                nodes.remove_node(second, allow_graceful=False)

    display = Sabotage()
    spec = small_spec(**SPEC)
    engine = RayEngine(nodes.address)
    outcome = run_spec(spec, tmp_path / "ray", engine=engine, checkpoint_every=0.2, display=display)
    assert (outcome.computed, outcome.failed, outcome.left) == (4, {}, 0)
    assert display.removed
    assert any("its Ray task was lost" in line for line in display.logs)
    attempts = [entry["attempts"] for entry in Store(tmp_path / "ray").manifest["cells"].values()]
    assert sorted(attempts) == [1, 1, 1, 2]

    monkeypatch.setenv("ADVMDP_TEST_SLEEP", "0")  # in this process
    run_spec(spec, tmp_path / "local", workers=0)
    expected = load(tmp_path / "local")
    assert load(tmp_path / "ray").equals(expected)

    # On the node that is left: Ctrl-C, then on without Ray.
    class CtrlC(Recorder):
        def progress(self, cell, played):
            if played > 100:
                os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "stopped"
    outcome = run_spec(spec, out, engine=RayEngine(nodes.address), checkpoint_every=0.2, display=CtrlC())
    assert (outcome.interrupted, outcome.left) == ("SIGINT", 4)
    assert list((out / "checkpoints").iterdir())
    assert resume(out, workers=0).computed == 4
    assert load(out).equals(expected)


def test_arguments_are_checked_before_anything_is_started():
    with pytest.raises(InvalidSpecError, match="workers is 0, should be at least 1 with engine 'ray'"):
        RayEngine(workers=0)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:1"])
def test_an_address_where_no_cluster_is_is_refused_at_once(tmp_path, address):
    with pytest.raises(InvalidSpecError, match=f"--address {address} is of no use"):
        run_spec(small_spec(), tmp_path / "out", engine=RayEngine(address))
