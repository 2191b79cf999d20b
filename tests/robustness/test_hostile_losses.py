"""Files of recorded losses, which come from elsewhere: damaged, lying about their size, or holding other things."""

from __future__ import annotations

import io
import tracemalloc
import warnings
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from advmdp import InvalidMDPError, InvalidSpecError, make_adversary, make_world
from tests.robustness.hostile import damaged, spoiled, spoiled_rows

WORLD = make_world("random-mixture", layer_sizes=(1, 2, 3, 1), n_actions=2, dim=2)
EPISODES = 6
LARGEST_MEMORY = 64 * 2**20


def good_files():
    rng = np.random.default_rng(0)
    tables = [rng.random((EPISODES, size, 2)) for size in (1, 2, 3)]
    members = {f"layer_{h}": table for h, table in enumerate(tables)}
    rows = pd.DataFrame(
        [(k, h, s, a, table[k, s, a]) for h, table in enumerate(tables) for k, s, a in np.ndindex(table.shape)],
        columns=["episode", "layer", "state", "action", "loss"],
    )
    writers = {
        "plain.npz": lambda file: np.savez(file, **members),
        "small.npz": lambda file: np.savez_compressed(file, **members),
        "table.npy": lambda file: np.save(file, np.concatenate([t.reshape(EPISODES, -1) for t in tables], axis=1)),
        "rows.csv": lambda file: rows.to_csv(file, index=False),
        "rows.parquet": lambda file: rows.to_parquet(file),
    }
    contents = {}
    for name, write in writers.items():
        buffer = io.BytesIO()
        write(buffer)
        contents[name] = buffer.getvalue()
    return contents


GOOD = good_files()


def read(path):
    """Whatever was let in has losses in [0, 1] for every episode."""
    adversary = make_adversary("from-file", WORLD, EPISODES, path=path)
    for k in range(EPISODES):
        losses = adversary.flat_losses(k)
        assert losses.shape == (WORLD.layers.n_pairs,)
        assert ((losses >= 0.0) & (losses <= 1.0)).all()


def attack(count, seed, tmp_path):
    """Damage the good files in turn; returns how many were refused."""
    refused = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        name = list(GOOD)[number % len(GOOD)]
        path = tmp_path / name
        path.write_bytes(damaged(GOOD[name], rng))
        tracemalloc.start()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(path)
        except (InvalidMDPError, InvalidSpecError) as error:
            refused += name in str(error)
        except Exception as error:
            raise AssertionError(f"{name}, damage {number}: {type(error).__name__}: {error}") from error
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < LARGEST_MEMORY, f"{name}, damage {number} took {peak / 2**20:.0f} MiB"
    return refused


@pytest.mark.parametrize("name", GOOD)
def test_good_files_are_read(name, tmp_path):
    (tmp_path / name).write_bytes(GOOD[name])
    read(tmp_path / name)


def test_damaged_losses_are_refused_or_sound(tmp_path):
    assert attack(1_000, 1, tmp_path) > 500


@pytest.mark.slow
def test_many_damaged_losses_are_refused_or_sound(tmp_path):
    assert attack(10_000, 2, tmp_path) > 5_000


def spoiled_file(name, rng):
    """A good file of its kind with other contents: tables of other shapes, types and values, other members, columns."""
    buffer = io.BytesIO()
    if name.endswith(".npz"):
        with np.load(io.BytesIO(GOOD[name])) as members:
            tree, changes = spoiled(dict(members), rng)
        {"plain.npz": np.savez, "small.npz": np.savez_compressed}[name](
            buffer, **{key: np.asarray(value) for key, value in tree.items()}
        )
    elif name.endswith(".npy"):
        tree, changes = spoiled({"table": np.load(io.BytesIO(GOOD[name]))}, rng)
        np.save(buffer, np.asarray(tree["table"]))
    else:
        table, changes = spoiled_rows(pq.read_table(pa.BufferReader(GOOD["rows.parquet"])), rng)
        if name.endswith(".csv"):
            table.slice(0, 100_000).to_pandas().to_csv(buffer, index=False)
        else:
            pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue(), changes


def attack_contents(name, count, seed, tmp_path):
    """Files that are valid in form; returns how many were refused."""
    refused = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                content, changes = spoiled_file(name, rng)
        except (TypeError, ValueError, KeyError, RuntimeError, OverflowError, pa.ArrowException):
            continue  # not even a file of this kind can hold this
        (tmp_path / name).write_bytes(content)
        held = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                read(tmp_path / name)
        except (InvalidMDPError, InvalidSpecError) as error:
            if name not in str(error):
                raise AssertionError(f"{name} {number} ({changes}): not named in {error}") from error
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name} {number} ({changes}): {type(error).__name__}: {error}") from error
        finally:
            peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - held
            tracemalloc.stop()
        assert peak < LARGEST_MEMORY, f"{name} {number} ({changes}) took {peak / 2**20:.0f} MiB"
    return refused


@pytest.mark.parametrize("name", GOOD)
def test_losses_that_are_valid_in_form_are_refused_or_sound(name, tmp_path):
    assert attack_contents(name, 60, 3, tmp_path) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD)
def test_many_losses_that_are_valid_in_form_are_refused_or_sound(name, tmp_path):
    assert attack_contents(name, 1_000, 4, tmp_path) > 300


def npz(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(shape, content=b"", descr="<f8", fortran=False):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": fortran, "shape": shape})
    return buffer.getvalue() + content


def layers(content):
    return {f"layer_{h}.npy": content for h in range(3)}


def constant_rows(count):
    """So many equal rows in a few kilobytes."""
    run = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int8)), pa.array([0]))
    buffer = io.BytesIO()
    table = pa.table(
        dict.fromkeys(["episode", "layer", "state", "action"], run.cast(pa.int64()))
        | {"loss": pa.array(np.zeros(count))}
    )
    pq.write_table(table, buffer, compression="zstd", row_group_size=count)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.npz", lambda: npz(layers(npy((10**11, 1, 2))))),
        ("b.npz", lambda: npz(layers(npy((10**6, 1, 2), bytes(16 * 10**6))), zipfile.ZIP_DEFLATED)),
        ("c.npy", lambda: npy((10**11, 12))),
        ("d.npy", lambda: npy((10**30, 12))),
        ("e.parquet", lambda: constant_rows(1_000_000)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_small_file_cannot_ask_for_a_large_array(name, make, tmp_path):
    content = make()
    assert len(content) < 2**20
    (tmp_path / name).write_bytes(content)
    tracemalloc.start()
    held = pa.total_allocated_bytes()
    try:
        with pytest.raises(InvalidMDPError, match=name):
            read(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < LARGEST_MEMORY
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() <= held


def test_a_member_that_claims_to_be_longer_than_its_file_is_refused(tmp_path):
    content = bytearray(GOOD["plain.npz"])
    content[content.index(b"PK\x01\x02") + 23] ^= 0x10  # 2**28 in the compressed size of the first member
    (tmp_path / "l.npz").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMDPError, match="claim to be larger"):
            read(tmp_path / "l.npz")
        assert tracemalloc.get_traced_memory()[1] < LARGEST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("objects.npz", npz(layers(npy((1,), b"12345678", "|O")))),
        ("text.npz", npz(layers(npy((1,), b"1234", "<U1")))),
        ("plain-text.npz", npz(layers(b"hello"))),
        ("wrapped.csv", b"episode,layer,state,action,loss\n0,18446744073709551615,0,0,0.5\n"),
        ("huge.csv", b"episode,layer,state,action,loss\n9223372036854775807,0,0,0,0.5\n"),
        ("binary.csv", bytes(range(256)) * 4),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_things_are_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidMDPError, match=name):
        read(tmp_path / name)


def test_arrays_in_the_order_of_fortran_are_read(tmp_path):
    tables = {f"layer_{h}": np.asfortranarray(np.random.default_rng(h).random((EPISODES, h + 1, 2))) for h in range(3)}
    np.savez(tmp_path / "f.npz", **tables)
    adversary = make_adversary("from-file", WORLD, EPISODES, path=tmp_path / "f.npz")
    np.testing.assert_array_equal(adversary.losses(4)[2], tables["layer_2"][4])


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read(tmp_path / "nowhere.csv")
