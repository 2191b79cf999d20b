"""Hostile files: trees with a right checksum, in which something was exchanged for something else, and plain damage."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np

#: What an attacker, or a fault, might put in the place of anything.
REPLACEMENTS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63 - 1, 10**30, -(10**30), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "uniform", "vlsuob-reps", "../../etc/passwd", "\x00",
    "\N{SNOWMAN}", [], [[]], [None], [1, 10**9, 1], {}, {"a": {}},
    {"__array__": 0}, np.zeros(0), np.zeros((0, 3)), np.array(1.0), np.full(3, np.nan), np.array([1, 2, 3]),
    np.array([-1, 2**62]), np.array([True, False]), np.array(["a", "b"]), np.zeros((1, 1, 1, 1, 1)),
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
    return result, "; ".join(changes)


def _changed(value: Any, rng: np.random.Generator) -> tuple[Any, str]:
    choice = rng.integers(4)
    if choice == 0:
        return None, "removed"
    if isinstance(value, np.ndarray) and value.size and choice >= 2:
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
