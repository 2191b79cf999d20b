"""What a store reads is looked at before it is believed: sizes before memory is taken, then names, types and values.

A checksum says that a file is what somebody wrote, not that it makes sense.  Each function raises ValueError and says
what is wrong; the store knows the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from advmdp._checks import float_array
from advmdp.experiments.spec import Cell
from advmdp.layered import FloatArray

#: Bytes of the rows of one cell, uncompressed: a hundred times those of a run of 10^9 episodes with all measures.
MOST_ROW_BYTES = 2**24
#: Columns by which rows are told apart, and those that every run has.
KEYS = ("cell", "world", "adversary", "learner", "seed", "episodes")
COLUMNS = ("episode", "loss", "cumulative_loss", "observed_loss", "regret", "bound")
#: Allowed for rounding.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Final:
    """What a cell ends with, each a list over layers of tables ``(S_h, A)``.

    ``policy`` and ``occupancy`` (its true occupancy measure) are those of the last episode, ``mean_occupancy`` is the
    average over all episodes, ``best_policy`` the best fixed policy in hindsight.
    """

    policy: list[FloatArray]
    occupancy: list[FloatArray]
    mean_occupancy: list[FloatArray]
    best_policy: list[FloatArray]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Timing(_Strict):
    seconds: float = Field(ge=0.0)
    processor_seconds: float = Field(ge=0.0)
    episodes_per_second: float = Field(ge=0.0)
    attempts: int = Field(ge=0, lt=2**31)
    version: str


class _Line(_Strict):
    """A cell in the manifest."""

    world: str
    adversary: str
    learner: str
    seed: int = Field(ge=0)
    episodes: int = Field(ge=1)
    state: Literal["pending", "running", "done", "failed"]
    attempts: int = Field(ge=0, lt=2**31)
    seconds: float | None = Field(ge=0.0)
    processor_seconds: float | None = Field(ge=0.0)
    episodes_per_second: float | None = Field(ge=0.0)
    error: str | None
    version: str | None = None


class _Git(_Strict):
    revision: str
    changed: bool


class _Environment(_Strict):
    versions: dict[str, str | None] | None
    git: _Git | None
    machine: dict[str, str | int | None] | None


class _Signature(_Strict):
    defaults: dict[str, Any]
    required: list[str]


class _Manifest(_Environment):
    format: Literal[1]
    title: str
    seeds: list[int]
    spec_sha256: list[str]
    cells: dict[str, _Line]
    engine: dict[str, str | int] | None
    history: list[_Environment]
    signatures: dict[str, dict[str, _Signature]] = {}
    created: str = ""
    updated: str = ""


_MANIFEST = TypeAdapter(_Manifest)


def check_manifest(manifest: Any) -> None:
    """Whether everything is there that readers of a manifest rely on."""
    _MANIFEST.validate_python(manifest)


def check_record(tree: Mapping[str, Any]) -> Final:
    """What makes a cell count: its timing, the digest of its rows, its tables; returns these."""
    timing_of(tree)
    if not isinstance(tree["rows_sha256"], str):
        raise ValueError(f"rows_sha256 is {tree['rows_sha256']!r}, should be a text")
    tables = {name: _tables(name, tree[name]) for name in Final.__dataclass_fields__}
    shapes = {tuple(table.shape for table in layers) for layers in tables.values()}
    if len(shapes) > 1:
        raise ValueError(f"its tables have the shapes {sorted(shapes)}, should have the same")
    for name in ("policy", "best_policy"):
        if any((np.abs(table.sum(axis=1) - 1.0) > TOLERANCE).any() for table in tables[name]):
            raise ValueError(f"{name} has a row that does not sum to one")
    for name in ("occupancy", "mean_occupancy"):
        if any(abs(table.sum() - 1.0) > TOLERANCE for table in tables[name]):
            raise ValueError(f"{name} has a layer that does not sum to one")
    return Final(**tables)


def timing_of(tree: Mapping[str, Any]) -> dict[str, Any]:
    """How long a cell took, and who computed it; what else may stand there is none of ours."""
    return _Timing.model_validate(tree["timing"]).model_dump()


def _tables(name: str, layers: Any) -> list[FloatArray]:
    if not isinstance(layers, list) or not layers:
        raise ValueError(f"{name} is a {type(layers).__name__}, should be a list over layers")
    tables = [float_array(table, f"{name}[{h}]", ValueError) for h, table in enumerate(layers)]
    for h, table in enumerate(tables):
        if table.ndim != 2 or not table.size or not ((table >= 0.0) & (table <= 1.0 + TOLERANCE)).all():
            raise ValueError(f"{name}[{h}] of shape {table.shape} should be a table of probabilities")
    return tables


def read_rows(content: bytes, cell: Cell, horizon: int) -> pd.DataFrame:
    """The rows of a cell out of the bytes of a Parquet file."""
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        metadata, schema = file.metadata, file.schema_arrow
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        size = max(metadata.num_rows * 8 * len(schema), sum(group.total_byte_size for group in groups))
        if size > MOST_ROW_BYTES:
            raise ValueError(
                f"its {metadata.num_rows} rows and {len(schema)} columns would take {size} bytes of memory, "
                f"should take at most {MOST_ROW_BYTES}"
            )
        _check_schema(schema, cell)
        frame: pd.DataFrame = file.read().to_pandas(ignore_metadata=True)
    _check_values(frame, cell, horizon)
    return frame


def _check_schema(schema: pa.Schema, cell: Cell) -> None:
    comparators = [f"regret_{_name_of(comparator)}" for comparator in cell.comparators]
    missing = [name for name in (*COLUMNS, *comparators) if name not in schema.names]
    taken = [name for name in schema.names if name in KEYS or "." in name or schema.names.count(name) > 1]
    if missing or taken:
        raise ValueError(f"it has the columns {schema.names}" + (f", without {missing}" if missing else ""))
    for field in schema:
        wanted = pa.int64() if field.name == "episode" else pa.float64()
        if field.type != wanted:
            raise ValueError(f"column {field.name} holds {field.type}, should hold {wanted}")


def _name_of(comparator: Any) -> str:
    return "per_episode" if comparator == "per-episode" else f"{comparator}_switches"


def _check_values(frame: pd.DataFrame, cell: Cell, horizon: int) -> None:
    episode = frame["episode"].to_numpy()
    if episode.dtype != np.int64 or not episode.size or episode[0] < 1 or (np.diff(episode) < 1).any():
        raise ValueError("column episode should grow from 1 or more")
    if episode[-1] != cell.episodes:
        raise ValueError(f"its last row is of episode {episode[-1]}, should be of {cell.episodes}")
    most = horizon * (1.0 + TOLERANCE)
    bounds: dict[str, tuple[Any, Any]] = {
        "loss": (0.0, most),
        "cumulative_loss": (0.0, most * episode),
        "observed_loss": (0.0, most * episode),
    }
    for name in frame:
        if name in bounds or str(name).startswith("regret"):
            low, high = bounds.get(str(name), (-most * episode, most * episode))
            values = frame[name].to_numpy()
            if not ((values >= low - TOLERANCE) & (values <= high + TOLERANCE)).all():
                raise ValueError(f"column {name} has entries that losses in [0, 1] cannot give")


def json_of(content: bytes) -> Any:
    """What a JSON file says; ValueError where it is none, also if it is nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
