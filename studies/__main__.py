"""``python -m studies NAME...``: compute what is missing of these studies, analyse it, write what is published."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from advmdp import storage
from advmdp.experiments.progress import display_for
from studies import common


def main() -> int:
    """Parse, compute, analyse, write."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(common.STUDIES)}; by default all")
    parser.add_argument("--small", action="store_true", help="the quick variants, written to a temporary directory")
    parser.add_argument("--workers", type=int, default=None, metavar="N", help="processes; by default all processors")
    parser.add_argument(
        "--only-analyse",
        action="store_true",
        help="no runs: from those in runs/, else from the table",
    )
    parser.add_argument("--runs", type=Path, default=common.RUNS, metavar="DIR", help="where the runs are (runs/)")
    arguments = parser.parse_args()
    names = arguments.names or list(common.STUDIES)
    if unknown := set(names) - set(common.STUDIES):
        parser.error(f"unknown study {', '.join(sorted(unknown))}; the studies are {', '.join(common.STUDIES)}")
    if arguments.small and arguments.only_analyse:
        parser.error("the runs of small variants are not kept: there is nothing to analyse")

    display = display_for(Console(stderr=True), quiet=False)
    runs, docs = arguments.runs, common.DOCS
    if arguments.small:
        directory = Path(tempfile.mkdtemp(prefix="advmdp-studies-"))
        runs, docs = directory / "runs", directory
    for name in names:
        if not arguments.only_analyse:
            common.compute(name, runs, small=arguments.small, workers=arguments.workers, display=display)
        there = any((runs / spec).exists() for spec in common.module(name).SPECS)
        print(common.describe({name: common.analyse(name, runs if there else None, docs)}), flush=True)
    if not arguments.small:
        for page in ("index", *names):
            if (docs / f"{page}.md").exists():
                storage.replace(docs / f"{page}.md", common.with_results(page).encode())
    print(f"written to {docs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
