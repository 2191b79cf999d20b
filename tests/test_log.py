"""What the library says is logged; a program without logging shows it, and everybody can silence it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from advmdp.experiments.sweep import Display

SHOWN = "advmdp: warming up uniform (1 of 1)\n"


def errors(code: str) -> str:
    """What a fresh process writes to its error stream, after these lines, when a learner is warmed up."""
    code = f'import logging, sys, advmdp\n{code}\nadvmdp.warm_up("uniform")'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return "".join(line for line in done.stderr.splitlines(keepends=True) if "compiling" not in line)


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("", SHOWN),
        ("logging.getLogger('advmdp').setLevel('WARNING')", ""),
        ("logging.basicConfig()", ""),  # which wants warnings only
        ("logging.basicConfig(level='INFO', format='%(name)s|%(message)s')", "advmdp|warming up uniform (1 of 1)\n"),
        (
            "logging.getLogger('advmdp').addHandler(logging.StreamHandler(sys.stdout))\n"
            "logging.getLogger('advmdp').setLevel('INFO')",
            "",
        ),
    ],
    ids=["a program without logging", "silenced", "warnings only", "all", "a handler of its own"],
)
def test_a_message_is_shown_once_or_not_at_all(code, shown):
    assert errors(code) == shown


def test_what_an_experiment_remarks_is_logged_where_nothing_displays_it(caplog):
    caplog.set_level("INFO", logger="advmdp")
    Display().log("a checkpoint was damaged")
    assert caplog.messages == ["a checkpoint was damaged"]
