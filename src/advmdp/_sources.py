"""Which sources a kernel is compiled from: what numba has cached of it is fresh as long as they are the same.

Numba looks at the date of the function's own file, and names its files after the function's qualified name: a
fingerprint of what it calls goes there.  So no file of an earlier version is read either: it might name modules that
are gone.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any


def sealed(function: Any) -> Any:
    """The function, with the fingerprint in its qualified name."""
    function.__qualname__ += f"_{fingerprint(function.__module__)[:16]}"
    return function


@cache
def fingerprint(module: str) -> str:
    """Of the way we compile and of all that :func:`needed` lists."""
    return hashlib.sha256("".join(sources()[name] for name in sorted(needed(module))).encode()).hexdigest()


def needed(module: str) -> list[str]:
    """Modules whose kernels those of a module may call, itself among them; all of them if it is not ours."""
    found = ["advmdp._compiled", *([module] if module in graph() else sorted(graph()))]
    for name in found:
        found += sorted(graph().get(name, set()).difference(found))  # which the loop comes to as well
    return found


@cache
def graph() -> dict[str, set[str]]:
    """For each module with kernels, those that it imports from, and those with bodies of its chosen kernels."""
    kernels = {name: text for name, text in sources().items() if "\nfrom advmdp._compiled import" in text}
    found = {module: {_home(module, name) for name in imports(module)} & kernels.keys() for module in kernels}
    for module, text in kernels.items():
        for name in re.findall(r"@body_of\((\w+)", text):
            found[_home(module, name)].add(module)
    return found


@cache
def imports(module: str) -> dict[str, str]:
    """Where a module has each name from that it imports from the package."""
    found = re.findall(r"^from (advmdp[\w.]*) import (\([^)]*\)|[^\n]*)", sources()[module], re.MULTILINE)
    return {name: source for source, names in found for name in re.findall(r"\w+", names)}


def _home(module: str, name: str) -> str:
    """Where a name comes from: the module itself may be what is imported, and a package may only pass it on."""
    source = imports(module).get(name, "")
    return f"{source}.{name}" if f"{source}.{name}" in sources() else _home(source, name) if source else module


@cache
def sources() -> dict[str, str]:
    """The texts of all modules of the package."""
    root = Path(__file__).parents[1]
    names = {file: ".".join(file.relative_to(root).with_suffix("").parts) for file in root.glob("advmdp/**/*.py")}
    return {name.removesuffix(".__init__"): file.read_text("utf-8") for file, name in names.items()}
