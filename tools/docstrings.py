"""What our docstrings say in reStructuredText and in comments, for the reference.

A griffe extension (mkdocs.yml, ``extensions`` of mkdocstrings) takes ``#:`` comments above an attribute for its
docstring; an mkdocs hook shows ``:func:`name``` as ``name``.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

from griffe import Attribute, Docstring, Extension

ROLE = re.compile(r":(?:class|func|mod|meth|attr|data):(?=<code>)")


class AttributeComments(Extension):
    """``#:`` comments as docstrings."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Read the lines above an attribute that has no docstring (a griffe event)."""
        if attr.docstring is not None or attr.lineno is None or not str(attr.filepath).endswith(".py"):
            return
        lines: list[str] = []
        number = attr.lineno - 1
        while (line := linecache.getline(str(attr.filepath), number).strip()).startswith("#:"):
            lines.insert(0, line.removeprefix("#:").strip())
            number -= 1
        if lines:
            attr.docstring = Docstring("\n".join(lines), lineno=number + 1, parent=attr)


def on_page_content(content: str, **_: Any) -> str:
    """Drop the roles of Sphinx, which mean nothing here (an mkdocs event)."""
    return ROLE.sub("", content)
