"""``folder/*`` in the navigation of mkdocs.yml: all pages of a folder that are not listed themselves.

For folders that programs write into, such as docs/study; elsewhere the order of pages is a decision.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


def listed(nav: Any) -> list[str]:
    """The pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [page for item in items for page in listed(item)]


def expanded(nav: Any, docs: Path) -> Any:
    """The navigation with every ``folder/*`` replaced by pages."""
    named = set(listed(nav))

    def expand(item: Any) -> list[Any]:
        if isinstance(item, str) and item.endswith("/*"):
            pages = (str(path.relative_to(docs)) for path in sorted(docs.glob(f"{item}.md")))
            return [page for page in pages if page not in named]
        if isinstance(item, dict):
            return [{title: each if isinstance(each, str) else expand_all(each) for title, each in item.items()}]
        return [item]

    def expand_all(items: list[Any]) -> list[Any]:
        return [each for item in items for each in expand(item)]

    return expand_all(nav)


def on_config(config: MkDocsConfig, **_: Any) -> MkDocsConfig:
    """Before pages are collected (an mkdocs event)."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config
