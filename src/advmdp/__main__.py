"""``python -m advmdp`` is the command line."""

from __future__ import annotations

from advmdp.cli import app

if __name__ == "__main__":
    app(prog_name="advmdp")
