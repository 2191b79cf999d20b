"""Hostile files: contents in which something was exchanged for something else (whoever writes them gives them a right
checksum), and plain damage."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pyarrow as pa


def nested(depth: int) -> list:
    """A list in a list in a list."""
    result: list = []
    for _ in range(depth):
        result = [result]
    return result


#: What an attacker, or a fault, might put in the place of anything.
REPLACEMENTS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 10**30, -(10**30), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "uniform", "vlsuob-reps", "../../etc/passwd", "\x00",
    "\N{SNOWMAN}", [], [[]], [None], [1, 10**9, 1], {}, {"a": {}},
    {"__array__": 0}, np.zeros(0), np.zeros((0, 3)), np.array(1.0), np.full(3, np.nan), np.array([1, 2, 3]),
    np.array([-1, 2**62]), np.array([True, False]), np.array(["a", "b"]), np.zeros((1, 1, 1, 1, 1)),
    nested(80), "x" * 100_000, [0] * 10_000, {str(i): i for i in range(1000)}, "1" * 5000,
)  # fmt: skip


def places(tree: Any, path: tuple = ()) -> list[tuple]:
    """Every place in a tree, by the keys that lead to it."""
    found = [path] if path else []
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


def spoiled(tree: dict, rng: np.random.Generator) -> tuple[dict, str]:
    """A copy with one to three changes, and what they were."""
    result, changes = copy.deepcopy(tree), []
    for _ in range(rng.integers(1, 4)):
        everywhere = places(result)
        if not everywhere:
            break
        *path, last = everywhere[rng.integers(len(everywhere))]
        parent = result
        for key in path:
            parent = parent[key]
        parent[last], what = _changed(parent[last], rng)
        changes.append(f"{'.'.join(map(str, [*path, last]))}: {what}")
        if what == "removed":
            del parent[last]
        elif rng.random() < 0.1:  # and something that does not belong there
            extra = copy.deepcopy(REPLACEMENTS[rng.integers(len(REPLACEMENTS))])
            if isinstance(parent, dict):
                parent[f"{last}_too"] = extra
            else:
                parent.append(extra)
            changes[-1] += ", and one more"
    return result, "; ".join(changes)


def _changed(value: Any, rng: np.random.Generator) -> tuple[Any, str]:
    choice = rng.integers(4)
    if choice == 0:
        return None, "removed"
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiubc" and value.size and choice >= 2:
        array = np.array(value)
        kind = rng.integers(5)
        if kind == 0:
            return array.ravel()[:-1], "one entry less"
        if kind == 1:
            return array.T[..., None], "another shape"
        if kind == 2:
            with warnings.catch_warnings():  # what was made complex before loses a part
                warnings.simplefilter("ignore")
                return array.astype(rng.choice(["i8", "f4", "f8", "c16", "u1"])), "another type"
        flat = array.ravel()
        if array.dtype.kind in "fiu":
            new = rng.choice(
                [0, -1, 1, 2**40, -(2**40)] if array.dtype.kind in "iu" else [np.nan, np.inf, -1e300, 1e300, -1.0, 0.0]
            )
            with np.errstate(all="ignore"):
                flat[rng.integers(flat.size)] = np.array(new).astype(array.dtype)
            return flat.reshape(array.shape), f"one entry {new}"
    if isinstance(value, int | float) and not isinstance(value, bool) and choice >= 2:
        new = [value + 1, -value, value * 10**6, float(value), value / 3][rng.integers(5)]
        return new, f"{value} becomes {new}"
    new = REPLACEMENTS[rng.integers(len(REPLACEMENTS))]
    return copy.deepcopy(new), f"becomes {new!r}"


def spoiled_rows(table: pa.Table, rng: np.random.Generator) -> tuple[pa.Table, str]:
    """A table with another schema, other types, other values or another length, and what was done."""
    place = int(rng.integers(table.num_columns))
    name, column = table.column_names[place], table.column(place)
    row = int(rng.integers(table.num_rows))
    values = column.to_pylist()
    match rng.integers(10):
        case 0:
            return table.drop_columns([name]), f"without {name}"
        case 1:
            other = ["cell", "world", "episodes", "learner.radius_scale", "", "x" * 500, "\N{SNOWMAN}"][rng.integers(7)]
            return table.append_column(other, column), f"{name} once more as {other[:9]}"
        case 2:
            names = list(table.column_names)
            names[place] = names[int(rng.integers(len(names)))]
            return table.rename_columns(names), f"{name} called {names[place]}"
        case 3:
            types = [pa.string(), pa.float32(), pa.int8(), pa.bool_(), pa.int64(), pa.float64(), pa.large_string()]
            new = types[rng.integers(len(types))]
            return table.set_column(place, name, column.cast(new, safe=False)), f"{name} as {new}"
        case 4:
            odd = [
                pa.array([[value] for value in values]), pa.array([{"a": value} for value in values]),
                pa.array([b"\x00"] * len(values)), pa.array([None] * len(values)), column.dictionary_encode(),
                pa.array(values).cast(pa.int64(), safe=False).cast(pa.timestamp("ns")),
            ][rng.integers(6)]  # fmt: skip
            return table.set_column(place, name, odd), f"{name} as {odd.type}"
        case 5 | 6 | 7:
            integers = pa.types.is_integer(column.type)
            choices = (
                [0, -1, None, 2**62, -(2**63), values[0]] if integers else [np.nan, np.inf, 1e308, -1e308, None, -1.0]
            )
            values[row] = choices[rng.integers(len(choices))]
            changed = pa.array(values, column.type, from_pandas=False)
            return table.set_column(place, name, changed), f"{name}[{row}] = {values[row]}"
        case 8:
            order = [[], [row], list(range(table.num_rows))[::-1], [*range(table.num_rows), row]][rng.integers(4)]
            return table.take(pa.array(order, pa.int64())), f"{len(order)} rows"
        case _:
            many = pa.array(np.zeros(3_000_000))
            huge = pa.table({n: many.cast(table.schema.field(n).type) for n in table.column_names[:3]})
            return huge, "millions of rows"


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Truncated, with flipped bits, with a piece of zeros, doubled, or noise."""
    kind = rng.integers(5)
    if kind == 0:
        return content[: rng.integers(len(content))]
    if kind == 1:
        array = np.frombuffer(content, dtype=np.uint8).copy()
        places = rng.integers(array.size, size=rng.integers(1, 9))
        array[places] ^= (1 << rng.integers(0, 8, size=places.size)).astype(np.uint8)
        return array.tobytes()
    if kind == 2:
        array = bytearray(content)
        start = rng.integers(len(array))
        array[start : start + 512] = bytes(len(array[start : start + 512]))
        return bytes(array)
    return content + content if kind == 3 else rng.bytes(rng.integers(1, 400))
