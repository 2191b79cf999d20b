r"""Formulas of the documentation become MathML when the site is built, so that a page needs no script and no network.

mkdocs calls `on_page_content` (see `hooks` in mkdocs.yml) after ``pymdownx.arithmatex`` has found ``$...$``,
``$$...$$``, ``\(...\)`` and ``\[...\]``. A formula that is not understood ends the build with its page and its text.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*(?:\\\(|\\\[)(?P<latex>.*?)(?:\\\)|\\\])\s*</(?P=tag)>', re.DOTALL
)
#: Delimiters that say which side they are on; with \left and \right their MathML says so too.
LEFT = re.compile(r"(?<!\\left)(?<![Bb]igl)(?<![Bb]iggl)(\\lvert|\\lVert|\\langle|\\lceil|\\lfloor)(?![a-zA-Z])")
RIGHT = re.compile(r"(?<!\\right)(?<![Bb]igr)(?<![Bb]iggr)(\\rvert|\\rVert|\\rangle|\\rceil|\\rfloor)(?![a-zA-Z])")
ARG = re.compile(r"\\arg\s*\\(min|max)(?![a-zA-Z])")
#: Names that take an index below them in a displayed formula, and names that take none.
LIMITS = {"max", "min", "sup", "inf", "lim", "argmin", "argmax"}
FUNCTIONS = {*LIMITS, "log", "exp", "det", "cosh", "sin", "cos", "Pr", "rank"}
#: An inline formula with more characters than this may be wider than a phone.
LONG = 40
STACKED = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", NAMESPACE)


def to_mathml(latex: str, display: bool) -> str:
    """One formula; ValueError says what is not understood."""
    source = latex.strip()
    prepared = LEFT.sub(r"\\left\1", source)
    prepared = RIGHT.sub(r"\\right\1", prepared)
    prepared = ARG.sub(r"\\operatorname{arg\1}", prepared)
    try:
        text = convert(prepared, display="block" if display else "inline")
    except Exception as error:  # the converter has a dozen kinds, most of them without a message
        raise ValueError(f"{type(error).__name__} {error}".strip()) from error
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:  # an & outside of a table
        raise ValueError(f"{error} in {text}") from error
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    for element in root.iter():
        if element.get("mathvariant") == "double-struck" and (element.text or "").isdigit():
            element.text = "".join(chr(0x1D7D8 + int(digit)) for digit in element.text or "")
            del element.attrib["mathvariant"]
        _check(element)
        _mend(element, display)
    root.set("xmlns", NAMESPACE)
    root.set("alttext", source)
    return ElementTree.tostring(root, encoding="unicode")


def _check(element: ElementTree.Element) -> None:
    """What the converter passes through, or browsers ignore, without a word."""
    text = element.text or ""
    if element.tag != "mtext" and "\\" in text:
        raise ValueError(f"unknown command {text}")
    if element.tag != "mtext" and text == "&":
        raise ValueError("& outside of a table (use align*, array or cases)")
    if element.get("mathvariant", "normal") != "normal":
        raise ValueError(
            f"browsers ignore mathvariant={element.get('mathvariant')}: write braces, as in \\mathcal{{P}}"
        )
    if element.tag == "mfrac" and len(element) != 2:
        raise ValueError("\\frac needs two arguments")


def _mend(element: ElementTree.Element, display: bool) -> None:
    """Relations, names of functions and limits, where the converter takes them for something else."""
    for position in reversed(range(len(element))):
        child = element[position]
        text = child.text or ""
        if child.tag == "mi" and len(text) == 1 and not text.isalnum() and text not in "∞∂∇\N{PRIME}…∅":
            child.tag = "mo"
        if (
            display
            and child.tag in STACKED
            and (child[0].text or "") in LIMITS | set("∑∏\N{N-ARY UNION}\N{N-ARY INTERSECTION}")
        ):
            child.tag = STACKED[child.tag]
        if element.tag == "mrow" and _is_function(child) and position + 1 < len(element):
            following = element[position + 1]
            first = following[0] if following.tag == "mrow" and len(following) else following
            if _is_function(first) or first.tag not in ("mo", "mspace"):
                element.insert(position + 1, ElementTree.Element("mspace", width="0.167em"))
        if element.tag == "mrow" and position > 0 and _is_function(child):
            before = element[position - 1]
            if before.tag not in ("mo", "mspace") and not _is_function(before):
                element.insert(position, ElementTree.Element("mspace", width="0.167em"))
    if element.text == "\N{PRIME}":
        element.set("mathsize", "125%")  # fonts draw it for a superscript already, and browsers shrink it again
    if element.tag == "mo" and element.text == "/":
        element.attrib.update(lspace="0", rspace="0")
    if element.tag in ("mi", "mo") and (element.text or "") in FUNCTIONS:
        element.tag = "mi"  # an mo would be spaced like a plus
        element.text = (element.text or "").replace("arg", "arg\N{NO-BREAK SPACE}")
        element.attrib.clear()


def _is_function(element: ElementTree.Element) -> bool:
    while element.tag in (*STACKED, *STACKED.values()):
        element = element[0]
    return element.tag in ("mi", "mo") and (element.text or "") in FUNCTIONS


def on_page_content(content: str, *, page: Page, **_: Any) -> str:
    """Replace the formulas of a page (an mkdocs event)."""

    def replace(match: re.Match[str]) -> str:
        latex, display = html.unescape(match["latex"]), match["tag"] == "div"
        try:
            formula = to_mathml(latex, display)
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: formula {latex.strip()!r}: {error}") from error
        # A wide formula scrolls by itself. Its letters, one by one, are of no use to the search.
        if display:
            return f'<div class="formula" tabindex="0" data-search-exclude>{formula}</div>'
        return f'<span class="formula-long">{formula}</span>' if len(latex) > LONG else formula

    return FORMULA.sub(replace, content)
