"""Names of a package that are loaded when somebody first asks for them, since what they need is slow to import."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy(package: str, **modules: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: each name comes from its module, or is that module."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return module if module.__name__ == f"{package}.{name}" else getattr(module, name)

    return load
