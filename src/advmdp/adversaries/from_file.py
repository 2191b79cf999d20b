"""Losses that were recorded in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from advmdp.adversaries.from_array import FromArray
from advmdp.errors import InvalidMDPError, InvalidSpecError
from advmdp.layered import FloatArray, LayeredMDP, Layers, TabularModel
from advmdp.registry import register_adversary

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
    match file.suffix:
        case ".npy":
            return _load(file, mmap_mode="r")
        case ".npz":
            with file.open("rb") as stream:
                if not is_zipfile(stream):
                    raise InvalidMDPError("it is no file of numbers (no .npz archive, or cut short)")
            with _load(file) as members:
                names = [f"layer_{h}" for h in range(layers.horizon)]
                if sorted(members) != sorted(names):
                    raise InvalidMDPError(f"it holds {sorted(members)}, should hold {names}")
                return [members[name] for name in names]
        case ".csv" | ".parquet":
            return _from_rows(file, layers)
    raise InvalidSpecError(f"its name ends with {file.suffix!r}, should end with .npy, .npz, .csv or .parquet")


def _load(file: Path, **options: Any) -> Any:
    try:
        return np.load(file, allow_pickle=False, **options)
    except (ValueError, EOFError) as error:
        raise InvalidMDPError(f"it is no file of numbers ({error})") from error


def _from_rows(file: Path, layers: Layers) -> FloatArray:
    import pandas as pd

    try:
        rows = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    except ValueError as error:  # what pandas and arrow raise for files that are none of theirs
        raise InvalidMDPError(f"it is no table ({error})") from error
    if not set(_COLUMNS) <= set(rows.columns):
        raise InvalidMDPError(f"it has the columns {list(rows.columns)}, should have {_COLUMNS}")
    for column in _COLUMNS[:-1]:
        if rows[column].dtype.kind not in "iu" or (rows[column] < 0).any():
            raise InvalidMDPError(f"column {column} should hold integers >= 0")
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
