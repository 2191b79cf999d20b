"""Worlds and models as plain data, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from advmdp import storage
from advmdp.errors import CorruptCheckpointError
from advmdp.layered.mdps import LayeredMDP, LinearMDP, LinearMixtureMDP
from advmdp.layered.models import LinearMDPModel, LinearMixtureModel, TabularModel
from advmdp.layered.rows import rows_from_tree
from advmdp.scene import Scene


def load_mdp(path: str | os.PathLike[str]) -> LayeredMDP:
    """Read a world that :meth:`LayeredMDP.save` wrote; nothing in the file can run code."""
    classes = {cls.__name__: cls for cls in (LayeredMDP, LinearMixtureMDP, LinearMDP)}
    mdp: LayeredMDP = _rebuild(path, storage.read(path, "mdp"), classes)
    return mdp


def problem_tree(problem: TabularModel | LayeredMDP) -> dict[str, Any]:
    """A model or world as plain data for :mod:`advmdp.storage`."""
    return {"class": type(problem).__name__, **problem._tree()}


def problem_from_tree(path: str | os.PathLike[str], tree: dict[str, Any]) -> Any:
    """The inverse of :func:`problem_tree`; ``path`` is named in errors."""
    classes = (TabularModel, LinearMixtureModel, LinearMDPModel, LayeredMDP, LinearMixtureMDP, LinearMDP)
    return _rebuild(path, tree, {cls.__name__: cls for cls in classes})


def _rebuild(path: str | os.PathLike[str], tree: dict[str, Any], classes: dict[str, Any]) -> Any:
    arguments = {key: value for key, value in tree.items() if key != "class"}
    try:
        if "scene" in arguments:
            arguments["scene"] = Scene(**arguments["scene"])
        for name in ("kernels", "features", "support"):
            if isinstance(arguments.get(name), list):
                arguments[name] = _tables(arguments[name], name)
        return classes[tree["class"]](**arguments)
    except MemoryError:
        raise
    except Exception as error:
        raise CorruptCheckpointError(f"{Path(path)}: does not describe a valid world or model ({error})") from error


def _tables(entries: list[Any], name: str) -> list[Any]:
    """Layers of rows out of a file; what had the same arrays there is one object here."""
    built: dict[tuple[int, ...], Any] = {}
    tables = []
    for h, entry in enumerate(entries):
        if isinstance(entry, dict):
            key = tuple(id(entry.get(part)) for part in ("pointers", "nexts", "values"))
            if key not in built:
                built[key] = rows_from_tree(entry, f"{name}[{h}]")
            entry = built[key]
        tables.append(entry)
    return tables
