"""No page of the documentation loads anything from another host: checked on every build, as an mkdocs hook."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ELSEWHERE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
STYLE_LOADS = re.compile(r"@import\s+(?:url\()?['\"]?([^'\")\s;]+)|url\(\s*['\"]?([^'\")]+)", re.IGNORECASE)
LOADING = ("src", "srcset", "data", "poster", "background", "formaction", "action", "xlink:href")


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.in_style = tag == "style"
        for name, value in attrs:
            if name in LOADING or (name == "href" and tag not in ("a", "area")):
                self.found.append(value or "")
            elif name == "style":
                self.found += in_style(value or "")

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.found += in_style(data)


def in_style(text: str) -> list[str]:
    """The addresses that a style sheet loads."""
    return [first or second for first, second in STYLE_LOADS.findall(text)]


def in_page(text: str) -> list[str]:
    """The addresses that a page loads by itself; what a reader may click on is not among them."""
    parser = _Loads()
    parser.feed(text)
    return parser.found


def loaded_from_elsewhere(site: Path) -> list[str]:
    """``file: address`` for everything that a page or style sheet under ``site`` loads from a host."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css"):
            addresses = (in_page if path.suffix == ".html" else in_style)(path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(site)}: {address}" for address in addresses if ELSEWHERE.match(address)]
    return found


def on_post_build(*, config: MkDocsConfig, **_: Any) -> None:
    """Fail a build that would fetch something when it is read (an mkdocs event)."""
    found = loaded_from_elsewhere(Path(config.site_dir))
    if found:
        raise PluginError("loaded from another host:\n  " + "\n  ".join(found))
