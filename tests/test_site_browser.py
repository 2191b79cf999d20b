"""The documentation site in a real browser: it fits a phone, asks nobody for anything, and can be searched."""

from __future__ import annotations

import functools
import http.server
import threading
import time
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.browser import asked_for, chromium, forget_logs, show
from tools.offline import loaded_from_elsewhere

PHONE, DESKTOP = 390, 1400


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def pages(site: Path) -> list[str]:
    return sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))


def test_no_page_is_wider_than_a_phone_or_asks_another_host(browser, site, address):
    forget_logs(browser)
    too_wide = []
    for page in pages(site):
        show(browser, address + page, PHONE)
        if browser.execute_script("return document.documentElement.scrollWidth") > PHONE:
            too_wide.append(page)
    assert not too_wide, "these scroll sideways at 390 px"
    asked = {url for url in asked_for(browser) if not url.startswith(("data:", "blob:"))}
    assert len(asked) > 30
    assert {url for url in asked if not url.startswith(address)} == set()
    severe = [entry["message"] for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert severe == []


@pytest.mark.slow  # most of the time is the API reference; `make docs` builds it as well
def test_the_reference_fits_a_phone_too(browser, tmp_path):
    mkdocs = Path(__file__).resolve().parents[1] / "mkdocs.yml"
    build(load_config(str(mkdocs), site_dir=str(tmp_path), strict=True))
    assert loaded_from_elsewhere(tmp_path) == []
    for page in sorted((tmp_path / "reference").glob("*.html")):
        show(browser, page.as_uri(), PHONE)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE, page.name


def found(browser, word: str) -> str:
    """The titles that the search finds for a word; it works in the background, so wait for it."""
    browser.execute_script(
        """const field = document.querySelector("input.md-search__input");
        field.focus(); field.value = arguments[0]; field.dispatchEvent(new KeyboardEvent("keyup", { key: "x" }));
        field.dispatchEvent(new Event("input"));""",
        word,
    )
    titles = "return [...document.querySelectorAll('.md-search-result__item h1')].map((t) => t.textContent).join('; ')"
    deadline = time.monotonic() + 10
    while not (text := browser.execute_script(titles)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return text


def test_the_search_works_with_a_server_and_from_the_disk(browser, site, address):
    show(browser, address + "index.html")
    assert "joint radius" in found(browser, "Hoeffding")
    show(browser, (site / "index.html").as_uri())
    assert "joint radius" in found(browser, "Hoeffding")
