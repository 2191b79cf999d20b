"""The documentation site: every page can be found, formulas are understood, nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tools.mathml import to_mathml
from tools.navigation import expanded, listed
from tools.offline import ELSEWHERE, in_page, in_style, loaded_from_elsewhere

ROOT = Path(__file__).resolve().parents[1]
MKDOCS = ROOT / "mkdocs.yml"


def test_every_page_is_in_the_navigation_once():
    pages = listed(expanded(load_config(str(MKDOCS)).nav, ROOT / "docs"))
    there = [str(path.relative_to(ROOT / "docs")) for path in sorted(ROOT.glob("docs/**/*.md"))]
    missing = sorted(set(there) - set(pages) - {"test-results.md"})
    assert not missing, f"add to `nav` in mkdocs.yml, in the section where a reader would look: {missing}"
    assert not sorted(set(pages) - set(there)), "in `nav` of mkdocs.yml, but not in docs/"
    assert len(pages) == len(set(pages))


def test_a_star_stands_for_the_pages_of_a_folder_that_are_not_listed(tmp_path):
    for name in ("index", "b", "a"):
        (tmp_path / "study").mkdir(exist_ok=True)
        (tmp_path / "study" / f"{name}.md").touch()
    nav = ["home.md", {"Study": ["study/index.md", "study/*"]}]
    assert expanded(nav, tmp_path) == ["home.md", {"Study": ["study/index.md", "study/a.md", "study/b.md"]}]


# --- formulas ---------------------------------------------------------------------------------------------------


def without_attributes(mathml: str) -> str:
    return re.sub(r"<(\w+)[^>]*?(/?)>", r"<\1\2>", mathml)


def test_limits_stand_below_their_operator_in_displayed_formulas_only():
    latex = r"\max_a x"
    assert "<munder><mi>max</mi><mi>a</mi></munder>" in without_attributes(to_mathml(latex, display=True))
    assert "<msub><mi>max</mi><mi>a</mi></msub>" in without_attributes(to_mathml(latex, display=False))


def test_delimiters_know_their_side():
    formula = to_mathml(r"\langle q, \ell \rangle", display=False)
    assert re.findall(r'form="(\w+)"', formula) == ["prefix", "postfix"]


def test_names_of_functions_stand_apart_and_slashes_do_not():
    formula = without_attributes(to_mathml(r"\frac12\log x + w/8", display=False))
    assert "</mfrac><mspace/><mi>log</mi><mspace/><mi>x</mi>" in formula
    assert 'lspace="0"' in to_mathml("w/8", display=False)


def test_an_indicator_is_a_letter_of_its_own():
    assert "<mn>\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}</mn>" in to_mathml(r"\mathbb{1}\{x\}", display=False)


def test_a_formula_keeps_its_source_for_readers_that_do_not_see():
    assert 'alttext="a &lt; b"' in to_mathml("a < b", display=False)


@pytest.mark.parametrize(
    ("latex", "complaint"),
    [
        (r"\nonsense x", "unknown command"),
        (r"\frac{a}", "two arguments"),
        (r"\sqrt{", "NoAvailableTokensError"),
        (r"\lVert x", "MissingRight"),
        (r"a & b", "not well-formed"),
        (r"\mathcal P", "write braces"),
    ],
)
def test_a_formula_that_is_not_understood_is_refused(latex, complaint):
    with pytest.raises(ValueError, match=complaint):
        to_mathml(latex, display=True)


def test_a_bad_formula_fails_the_build_and_is_named(tmp_path, caplog):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\nSo $a + \\nonsense b$ is.\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: test\ntheme: {{name: mkdocs}}\nhooks: [{ROOT / 'tools' / 'mathml.py'}]\n"
        "markdown_extensions: [{pymdownx.arithmatex: {generic: true}}]\n",
        encoding="utf-8",
    )
    config = load_config(str(tmp_path / "mkdocs.yml"), site_dir=str(tmp_path / "site"))
    with pytest.raises(Abort):
        build(config)
    assert "index.md: formula 'a + \\\\nonsense b': unknown command \\nonsense" in caplog.messages


# --- nothing from elsewhere -------------------------------------------------------------------------------------


def test_what_a_page_loads_is_seen_and_what_it_links_to_is_not():
    page = """<a href="https://a.org">x</a><img src="//b.org/x.png"><link rel="stylesheet" href="HTTPS://c.org/s.css">
    <style>@import "https://d.org/d.css"; p { background: url(https://e.org/e.png) }</style>
    <p style="background: url('//f.org/f.png')"></p><script src="js/own.js"></script>
    <img src="data:image/png;base64,//8=">
    """
    elsewhere = [address for address in in_page(page) if ELSEWHERE.match(address)]
    assert [re.sub(r".*//(\w).*", r"\1", address) for address in elsewhere] == ["b", "c", "d", "e", "f"]
    assert in_style("a { background: url(data:image/svg+xml;x) }") == ["data:image/svg+xml;x"]


def test_no_page_loads_anything_from_another_host(site):
    assert len(list(site.rglob("*.html"))) > 30
    assert loaded_from_elsewhere(site) == []


def test_no_formula_is_left_as_source(site):
    for page in site.rglob("*.html"):
        assert 'class="arithmatex"' not in page.read_text(encoding="utf-8"), page
