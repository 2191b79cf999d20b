"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def facts(caption: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A table of names and values, whatever characters they hold."""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table><caption>{escape(caption)}</caption>{lines}</table>"


def shortened(values: Sequence[Any]) -> str:
    """The values with commas; of more than twelve, the first and the last six."""
    if len(values) > 12:
        values = [*values[:6], "…", *values[-6:]]
    return ", ".join(str(value) for value in values)
