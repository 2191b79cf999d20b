"""Losses that were recorded in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np

from advmdp import storage
from advmdp.adversaries.from_array import FromArray
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, Layers, TabularModel
from advmdp.registry import register_adversary

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ["episode", "layer", "state", "action", "loss"]


@register_adversary("from-file")
class FromFile(FromArray):
    """The tables of a file, one per episode; see ``from-array``.

    Parameters
    ----------
    path
        ``.npy``: one array ``(K, pairs)``, left on the disk and read table by table.  ``.npz``: arrays
        ``layer_0``, ``layer_1``, ... of shape ``(K, S_h, A)``.  ``.csv`` or ``.parquet``: one row for every episode
        (from 0) and pair, in any order, with the columns episode, layer, state, action, loss.
    repeat, seed
        As for ``from-array``.
    """

    def __init__(
        self,
        mdp: LayeredMDP | TabularModel,
        episodes: int,
        *,
        path: str | os.PathLike[str],
        repeat: bool = False,
        seed: int = 0,
    ) -> None:
        file = Path(path)
        try:
            super().__init__(mdp, episodes, losses=_read(file, mdp.layers), repeat=repeat, seed=seed)
        except (InvalidMDPError, InvalidSpecError) as error:
            raise type(error)(f"{file}: {error}") from error


def _read(file: Path, layers: Layers) -> Any:
    readers = {".npy": _mapped, ".npz": _members, ".csv": _csv, ".parquet": _parquet}
    if file.suffix not in readers:
        raise InvalidSpecError(f"its name ends with {file.suffix!r}, should end with .npy, .npz, .csv or .parquet")
    file.stat()  # a file that is not there is said to be missing, not broken
    try:
        found = readers[file.suffix](file, layers)
    except (InvalidMDPError, PermissionError):
        raise
    except MemoryError as error:
        raise InvalidMDPError(f"it needs more memory than there is ({error}); a .npy file stays on the disk") from error
    except Exception as error:  # whatever numpy, pandas and arrow raise for files that are none of theirs
        kind = "file of numbers" if file.suffix in (".npy", ".npz") else "table"
        raise InvalidMDPError(f"it is no {kind} ({error})") from error
    return _from_rows(found, layers) if file.suffix in (".csv", ".parquet") else found


def _mapped(file: Path, layers: Layers) -> Any:
    return np.load(file, mmap_mode="r", allow_pickle=False)


def _members(file: Path, layers: Layers) -> list[Any]:
    names = [f"layer_{h}" for h in range(layers.horizon)]
    with ZipFile(file) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        if sorted(entries) != sorted(names):
            raise InvalidMDPError(f"it holds {sorted(entries)}, should hold {names}")
        if sum(entry.compress_size for entry in entries.values()) > file.stat().st_size:
            raise InvalidMDPError("it is no file of numbers (its members claim to be larger than itself)")
        _check_size(file, sum(entry.file_size for entry in entries.values()))
        return [storage.array(archive.read(entries[name])) for name in names]


def _csv(file: Path, layers: Layers) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(file)


def _parquet(file: Path, layers: Layers) -> pd.DataFrame:
    from pyarrow import parquet, types

    with parquet.ParquetFile(file) as source:
        schema = source.schema_arrow
        columns = [name for name in _COLUMNS if name in schema.names]
        for name in columns:
            kind = schema.field(name).type
            if not (types.is_integer(kind) or types.is_floating(kind)):
                raise InvalidMDPError(f"column {name} should hold numbers, its type is {kind}")
        _check_size(file, source.metadata.num_rows * 8 * len(_COLUMNS))
        rows: pd.DataFrame = source.read(columns).to_pandas(ignore_metadata=True)
        return rows


def _check_size(file: Path, size: int) -> None:
    """Compressed files say how large they become: a small one that becomes very large holds no losses."""
    most = 2**25 + 100 * file.stat().st_size
    if size > most:
        raise InvalidMDPError(f"it would take {size} bytes of memory, too many for its length; give a .npy file")


def _from_rows(rows: pd.DataFrame, layers: Layers) -> FloatArray:
    if not set(_COLUMNS) <= set(rows.columns):
        raise InvalidMDPError(f"it has the columns {list(rows.columns)}, should have {_COLUMNS}")
    for column in _COLUMNS[:-1]:
        if rows[column].dtype.kind not in "iu" or (rows[column] < 0).any() or (rows[column] >= 2**31).any():
            raise InvalidMDPError(f"column {column} should hold integers >= 0, below 2**31")
    if rows["loss"].dtype.kind not in "iuf":
        raise InvalidMDPError(f"column loss should hold numbers, its type is {rows['loss'].dtype}")
    episode, layer, state, action = (rows[column].to_numpy(np.int64) for column in _COLUMNS[:-1])
    sizes = np.asarray(layers.sizes[:-1])
    exists = (layer < layers.horizon) & (action < layers.n_actions)
    exists[exists] = state[exists] < sizes[layer[exists]]
    if not exists.all():
        row = int(np.argmin(exists))
        raise InvalidMDPError(
            f"row {row}: layer {layer[row]}, state {state[row]}, action {action[row]} does not exist in this world"
        )
    count = int(episode.max()) + 1 if len(rows) else 0
    pair = layers.pair_offsets[layer] + state * layers.n_actions + action
    places = episode * layers.n_pairs + pair
    if len(rows) != count * layers.n_pairs or np.unique(places).size != places.size:
        raise InvalidMDPError(
            f"it has {len(rows)} rows, should have one for each of {count} episodes and {layers.n_pairs} pairs"
        )
    tables = np.empty(count * layers.n_pairs)
    tables[places] = rows["loss"].to_numpy(np.float64)
    return tables.reshape(count, layers.n_pairs)
