"""Every ``python`` block and every ``$ advmdp`` command in README.md and docs/ is executed.

The blocks of one file share a namespace and an empty working directory and run from top to bottom,
as a reader would run them. ``<!-- no-run: reason -->`` on the line before a block leaves it out.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
PAGES = [path for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))] if path.exists()]

FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ ]*\{?[ .]*(?P<language>\w*)")
NO_RUN = re.compile(r"<!--\s*no-run:\s*\S.*-->")


@dataclass(frozen=True)
class Block:
    language: str
    line: int  # of the first line inside the fence, counted from 1
    source: str


def executable_blocks(markdown: str) -> list[Block]:
    """The fenced ``python`` and ``console`` blocks of a page that are not marked ``no-run``."""
    blocks = []
    lines = markdown.splitlines()
    previous = ""  # the last line with text before the fence
    position = 0
    while position < len(lines):
        opening = FENCE.match(lines[position])
        if opening is None:
            previous = lines[position].strip() or previous
            position += 1
            continue
        start = position = position + 1
        closing = re.compile(rf"\s*{re.escape(opening['fence'])}+\s*$")
        while position < len(lines) and not closing.match(lines[position]):
            position += 1
        language = {"py": "python"}.get(opening["language"], opening["language"])
        if language in ("python", "console") and not NO_RUN.fullmatch(previous):
            body = [line.removeprefix(opening["indent"]) for line in lines[start:position]]
            blocks.append(Block(language, start + 1, "\n".join(body) + "\n"))
        previous = ""
        position += 1
    return blocks


def advmdp_commands(console: str) -> list[list[str]]:
    """The arguments of every ``$ advmdp ...`` line; a backslash at the end continues it."""
    joined = console.replace("\\\n", " ")
    commands = [shlex.split(line[2:]) for line in joined.splitlines() if line.startswith("$ ")]
    return [command[1:] for command in commands if command and command[0] == "advmdp"]


def run_page(path: Path) -> None:
    """Execute a page in the current directory; tracebacks point at the lines of the page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in executable_blocks(path.read_text(encoding="utf-8")):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.source, str(path), "exec"), namespace)
            continue
        for arguments in advmdp_commands(block.source):
            from advmdp.cli import app

            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, (
                f"{path.name}:{block.line}: advmdp {shlex.join(arguments)} ended with "
                f"{result.exit_code}\n{result.output}\n{result.exception!r}"
            )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs_as_printed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(path)


EXAMPLE = """\
```python
total = 1
```

    ~~~ py
    total += 1
    ~~~

<!-- no-run: needs a cluster -->

```python
raise RuntimeError
```

```text
not code
```

```console
$ make run
$ advmdp list \\
    --kind "learners"
$ pip list
```
"""


def test_blocks_are_found_with_their_lines() -> None:
    python, indented, console = executable_blocks(EXAMPLE)
    assert python == Block("python", 2, "total = 1\n")
    assert indented == Block("python", 6, "total += 1\n")
    assert console.line == 20
    assert advmdp_commands(console.source) == [["list", "--kind", "learners"]]


def test_no_run_needs_a_reason() -> None:
    block = "```python\nx = 1\n```\n"
    assert len(executable_blocks("<!-- no-run: -->\n" + block)) == 1
    assert len(executable_blocks("<!-- no-run: needs Ray -->\n" + block)) == 0
    # ... and it covers one block only.
    assert len(executable_blocks("<!-- no-run: needs Ray -->\n" + block + block)) == 1


def test_a_broken_page_fails_at_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run_page(page)
    assert failure.traceback[-1].lineno + 1 == 8


def test_a_failing_command_fails_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ advmdp no-such-command\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:2: advmdp no-such-command ended with 2"):
        run_page(page)
