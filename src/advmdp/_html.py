"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def facts(caption: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A table of names and values, whatever characters they hold."""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"


def shortened(values: Sequence[Any], most: int = 12) -> str:
    """The values with commas; of many, the first and the last ones."""
    if len(values) > most:
        values = [*values[: most // 2], "…", *values[-(most // 2) :]]
    return ", ".join(str(value) for value in values)
