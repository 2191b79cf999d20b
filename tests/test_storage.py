"""The file format: what it keeps, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advmdp import CorruptCheckpointError, storage

TREE = {"name": "x", "numbers": [1, 2.5, None, True], "nested": {"a": np.arange(6.0).reshape(2, 3)}}


def test_a_tree_survives(tmp_path):
    storage.write(tmp_path / "t.npz", "thing", TREE)
    read = storage.read(tmp_path / "t.npz", "thing")
    assert read["numbers"] == TREE["numbers"]
    np.testing.assert_array_equal(read["nested"]["a"], TREE["nested"]["a"])


def test_arrays_keep_their_shape(tmp_path):
    for array in (np.array(3.0), np.zeros((0, 2)), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.ones(2, bool)):
        storage.write(tmp_path / "t.npz", "thing", {"a": array})
        read = storage.read(tmp_path / "t.npz", "thing")["a"]
        assert read.shape == array.shape
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    path = tmp_path / "t.npz"
    storage.write(path, "thing", TREE)
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    path.chmod(0o640)
    storage.write(path, "thing", TREE)
    assert path.stat().st_mode & 0o777 == 0o640


def test_equal_content_gives_equal_files(tmp_path):
    for name in ("a.npz", "b.npz"):
        storage.write(tmp_path / name, "thing", TREE)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_numpy_alone_can_open_the_arrays(tmp_path):
    storage.write(tmp_path / "t.npz", "thing", TREE)
    with np.load(tmp_path / "t.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["array_0"], TREE["nested"]["a"])


def test_another_kind_is_refused(tmp_path):
    storage.write(tmp_path / "t.npz", "thing", TREE)
    with pytest.raises(CorruptCheckpointError, match="holds a 'thing', should hold a 'learner'"):
        storage.read(tmp_path / "t.npz", "learner")


def test_a_missing_file_is_reported_as_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        storage.read(tmp_path / "none.npz", "thing")


@pytest.mark.parametrize("node", [object(), {1: 2}, np.array([object()]), {"__array__": 0}, 1j])
def test_what_cannot_be_saved_is_refused_and_leaves_the_old_file(tmp_path, node):
    path = tmp_path / "t.npz"
    storage.write(path, "thing", TREE)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="cannot save"):
        storage.write(path, "thing", {"node": node})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["t.npz"]


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "t.npz"
    storage.write(path, "thing", TREE)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        storage.write(path, "thing", {"other": 1})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["t.npz"]


@pytest.fixture(scope="module")
def good_bytes(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "t.npz"
    storage.write(path, "thing", TREE)
    return path.read_bytes()


@given(st.data())
def test_a_flipped_bit_is_noticed_or_harmless(good_bytes, tmp_path_factory, data):
    position = data.draw(st.integers(0, len(good_bytes) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(good_bytes)
    damaged[position] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(bytes(damaged))
    try:
        read = storage.read(path, "thing")
    except CorruptCheckpointError:
        pass
    else:
        assert read["numbers"] == TREE["numbers"]
        np.testing.assert_array_equal(read["nested"]["a"], TREE["nested"]["a"])


@given(st.data())
def test_a_truncated_file_is_noticed(good_bytes, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "short.npz"
    path.write_bytes(good_bytes[: data.draw(st.integers(0, len(good_bytes) - 1))])
    with pytest.raises(CorruptCheckpointError, match=r"short\.npz"):
        storage.read(path, "thing")


@given(st.binary(max_size=300))
def test_noise_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "noise.npz"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match=r"noise\.npz"):
        storage.read(path, "thing")


def forged(path, array_bytes: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    """A file with a right checksum and an array member of our choice."""
    document = {"format": "advmdp", "version": 1, "kind": "thing", "tree": {"a": {"__array__": 0}}}
    members = {"tree.json": json.dumps(document).encode(), "array_0.npy": array_bytes}
    members["sha256"] = storage._digest(members)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(header: dict, data: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + data


def test_a_small_file_cannot_ask_for_a_large_array(tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**11,)}
    forged(tmp_path / "t.npz", npy(header, b"12345678"))
    with pytest.raises(CorruptCheckpointError, match="array of shape"):
        storage.read(tmp_path / "t.npz", "thing")


def test_compressed_members_are_refused(tmp_path):
    forged(tmp_path / "t.npz", npy({"descr": "<f8", "fortran_order": False, "shape": (0,)}),
           zipfile.ZIP_DEFLATED)  # fmt: skip
    with pytest.raises(CorruptCheckpointError, match="compressed members"):
        storage.read(tmp_path / "t.npz", "thing")


def test_pickled_objects_are_refused(tmp_path):
    forged(tmp_path / "t.npz", npy({"descr": "|O", "fortran_order": False, "shape": (1,)}, b"12345678"))
    with pytest.raises(CorruptCheckpointError, match="array of type object"):
        storage.read(tmp_path / "t.npz", "thing")


def test_a_symbolic_link_stays_one_and_its_file_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.npz", tmp_path / "link.npz"
    link.symlink_to(real)  # which is not there yet
    for value in (1, 2):
        storage.write(link, "k", {"a": value})
        assert link.is_symlink()
        assert storage.read(real, "k") == {"a": value}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["elsewhere", "link.npz", "real.npz"]


def test_a_link_that_leads_to_itself_is_an_error(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"):
        storage.write(tmp_path / "a", "k", {})
    assert (tmp_path / "a").is_symlink()


def test_a_link_in_a_directory_of_results_leads_nowhere(tmp_path):
    """Somebody else may have put it there: what it leads to is none of ours."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    storage.replace(tmp_path / "link", b"results")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "link").read_bytes() == b"results"
