"""What the numbers of a world stand for: checked against the world, kept through a file, out of the model."""

from __future__ import annotations

import numpy as np
import pytest

from advmdp import CorruptCheckpointError, InvalidMDPError, LayeredMDP, Scene, load_mdp, storage

KERNELS = [np.full((1, 2, 2), 0.5), np.ones((2, 2, 1))]


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ({"states": [["a"], ["b"], ["c"]]}, r"scene.states names \[1, 1, 1\] states, the layers have \[1, 2, 1\]"),
        ({"actions": ["go"]}, "scene.actions has 1 names, should have 2"),
        ({"map": ["SF", "G"]}, "should be rows of the same number of letters"),
        ({"map": ["SX"]}, "letters S, F, H or G"),
        ({"map": ["SG"], "states": [[0], [1, 2], ["end"]]}, "layer 1, state 1: cell 2 is not on the map"),
    ],
)
def test_names_must_fit_the_world(scene, message):
    with pytest.raises(InvalidMDPError, match=message):
        LayeredMDP(KERNELS, scene=Scene(**scene))


def test_a_world_without_names_has_an_empty_scene():
    scene = LayeredMDP(KERNELS).scene
    assert (scene.states, scene.actions, scene.map, scene.natural_losses) == (None, None, None, None)


def test_names_cannot_be_changed_by_the_caller():
    states, details = [["a"], ["b", "c"], ["d"]], {"delay": 1.0, "rates": np.ones(2), "links": [["a", "b"]]}
    scene = Scene(states=states, details=details)
    states[1][0], details["delay"], details["rates"][0], details["links"][0][1] = "x", 2.0, 3.0, "y"
    assert scene.states[1][0] == "b"
    assert scene.details["delay"] == 1.0
    assert scene.details["rates"].tolist() == [1.0, 1.0]
    assert scene.details["links"] == (("a", "b"),)
    with pytest.raises(ValueError, match="read-only"):
        scene.details["rates"][0] = 3.0


def test_everything_survives_a_file(tmp_path):
    scene = Scene(
        states=[[0], [(1, 2), "b"], ["end"]],
        actions=("stay", "go"),
        natural_losses="mine",
        details={"rates": np.array([1.0, 2.0]), "links": [["a", "b"]]},
    )
    LayeredMDP(KERNELS, scene=scene).save(tmp_path / "world.npz")
    again = load_mdp(tmp_path / "world.npz").scene
    assert again.states == ((0,), ((1, 2), "b"), ("end",))
    assert again.actions == ("stay", "go")
    assert again.natural_losses == "mine"
    np.testing.assert_array_equal(again.details["rates"], [1.0, 2.0])


def test_a_file_with_a_scene_that_does_not_fit_is_refused(tmp_path):
    tree = {"class": "LayeredMDP", "kernels": KERNELS, "scene": {"actions": ["one"]}}
    storage.write(tmp_path / "world.npz", "mdp", tree)
    with pytest.raises(CorruptCheckpointError, match=r"scene\.actions has 1 names"):
        load_mdp(tmp_path / "world.npz")
