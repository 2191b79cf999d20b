"""The command line."""

from __future__ import annotations

import hashlib
import inspect
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from advmdp import __version__
from advmdp.errors import CorruptCheckpointError, InvalidMDPError, InvalidSpecError, StoreBusyError
from advmdp.experiments.defaults import ADVERSARIES, CHECKPOINT_EVERY, EPISODES, LEARNERS, MEASURES, SEEDS, WORLDS
from advmdp.registry import Registry, adversaries, import_modules, learners, natural_losses, worlds

# What runs experiments, or needs pandas, is imported by the commands that use it: `--help` should not wait for it.
if TYPE_CHECKING:
    from advmdp.experiments import Comparison, Outcome, Spec
    from advmdp.experiments.engines import Engine

QUICK_EPISODES, QUICK_SEEDS = 100, 2

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"advmdp {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.", metavar="")
    ] = False,
) -> None:
    """Online learning in adversarial Markov decision processes: exact regret, the same losses for every learner.

    To begin with:

    - `advmdp compare --quick` plays eight learners, prints a table and writes a report;
    - `advmdp list` says which worlds, adversaries and learners there are, with their options;
    - `advmdp run SPEC` does an experiment of yours (docs/experiments.md), `advmdp resume DIR` goes on with it.

    Results go to folders in runs/. Exit codes: 0 done, 1 something failed (named at the end), 2 bad usage, 130 Ctrl-C.
    """


WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=0,
        show_default=False,
        metavar="N",
        help="Cells at once; default: one per processor. 0: all in this process, for a debugger.",
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", metavar="NAME", help="`local` (processes of this machine) or `ray` (several machines)."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Of a Ray cluster; without it, `--engine ray` starts one here.",
        show_default=False,
    ),
]
CheckpointOption = Annotated[
    float,
    typer.Option(
        "--checkpoint-every", min=0.1, metavar="SECONDS", help="Between checkpoints of a cell: what `kill -9` can cost."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress.", metavar="")]
ImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        show_default=False,
        help="A module of yours that registers worlds, adversaries or learners; may be repeated.",
    ),
]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="NAMES", help="Of the report: html, pdf, png, csv, latex; with commas.")
]


@app.command("compare")
def compare_command(
    worlds_option: Annotated[
        str | None, typer.Option("--worlds", metavar="NAMES", show_default=False, help="Separated by commas.")
    ] = None,
    adversaries_option: Annotated[
        str | None, typer.Option("--adversaries", metavar="NAMES", show_default=False, help="Separated by commas.")
    ] = None,
    learners_option: Annotated[
        str, typer.Option("--learners", metavar="NAMES", show_default=False, help="Separated by commas.")
    ] = ",".join(LEARNERS),
    episodes: Annotated[
        int | None, typer.Option(min=1, metavar="K", help=f"Episodes per run; default {EPISODES}.", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"Runs with different seeds; default {SEEDS}.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="For the results; default: one for these options in runs/.", show_default=False
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help=f"{QUICK_EPISODES} episodes, {QUICK_SEEDS} seeds.")
    ] = False,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    quiet: QuietOption = False,
    modules: ImportOption = None,
) -> None:
    """Compare learners on worlds against the same losses: a table, a report, and the data.

    Prints who lost least and whether that may be a tie; then, best first, the loss of each learner per episode, its
    regret against the best fixed policy in hindsight with 95% intervals over seeds, and what an episode costs. The last
    line is the path of report.html.

    Within a seed all learners meet the same losses and luck. Run again, it computes only what is missing; with more
    seeds, only those. Ctrl-C writes checkpoints. Exit code 1 if cells failed.

    By default:

    - `queue` with losses that are `drifting`, `random-mixture` with `switching`, `routing` with `misleading` ones, made
      against planners (if you name worlds or adversaries, every world meets every adversary);
    - learners portfolio (recommended), planner (what people do instead), vlsuob-reps, vlsuob-reps-tight, lsuob-reps,
      uob-reps, o-reps-bandit and uniform.

    Example: `advmdp compare --worlds grid,inventory --learners uniform,planner,portfolio --episodes 500`
    """
    from advmdp.experiments import run_spec
    from advmdp.experiments.compare import comparison_spec

    episodes = episodes or (QUICK_EPISODES if quick else EPISODES)
    seeds = seeds or (QUICK_SEEDS if quick else SEEDS)
    where, losses = (None if text is None else _names(text) for text in (worlds_option, adversaries_option))
    who = _names(learners_option)
    with _errors_explained():
        import_modules(modules or ())
        spec = comparison_spec(where, losses, who, episodes=episodes, seeds=seeds)
    if out is None:
        # More seeds continue an experiment; anything else, also other defaults, is another one.
        chosen = (where, losses, who, WORLDS, ADVERSARIES, MEASURES)
        out = Path("runs") / f"compare-K{episodes}-{hashlib.sha256(repr(chosen).encode()).hexdigest()[:6]}"
    with _errors_explained():
        outcome = run_spec(spec, out, **_settings(engine, workers, address, checkpoint_every, quiet))
    _end(outcome)


@app.command("run")
def run_command(
    spec_path: Annotated[Path, typer.Argument(metavar="SPEC", help="A TOML file; see docs/experiments.md.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For the results; default: runs/ and the name of SPEC.", show_default=False),
    ] = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    quiet: QuietOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Only print the cells, and about how long.")
    ] = False,
    small: Annotated[
        bool, typer.Option("--small", metavar="", help="The spec's small variant, for a first look.")
    ] = False,
    formats: FormatOption = "html",
    modules: ImportOption = None,
) -> None:
    """Run every cell of a spec that its folder does not hold yet, print the table of `compare`, and write the report.

    A spec combines worlds, adversaries, learners, options and seeds; each combination is a cell. Results do not depend
    on the number of workers, the engine, or interruptions. A longer spec (more seeds, learners, worlds) adds to the
    folder; one that contradicts it is refused, with the difference.

    Ctrl-C writes checkpoints and ends with exit code 130; the same command, or `advmdp resume`, goes on from there.
    Exit code 1 if cells failed, 2 if the spec makes no sense or contradicts the folder.

    Example: `advmdp run experiments/radius.toml --out runs/radius --workers 2`
    """
    from advmdp.experiments import Spec, run_spec

    out = out or Path("runs") / (spec_path.stem + ("-small" if small else ""))
    wanted = _formats(formats)
    with _errors_explained():
        import_modules(modules or ())
        spec = Spec.read(spec_path).small() if small else Spec.read(spec_path)
        spec = spec.importing(modules or ())
        if dry_run:
            spec.check()
            _print_plan(spec, out, workers)
            return
        outcome = run_spec(spec, out, **_settings(engine, workers, address, checkpoint_every, quiet))
    _end(outcome, wanted)


@app.command("resume")
def resume_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an experiment.")],
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    checkpoint_every: CheckpointOption = CHECKPOINT_EVERY,
    quiet: QuietOption = False,
    formats: FormatOption = "html",
    modules: ImportOption = None,
) -> None:
    """Go on with an experiment: cells that were interrupted, failed, never began, or are damaged.

    The folder holds the spec. Interrupted cells go on from their last checkpoint, and end with the same numbers as if
    nothing had happened, bit for bit. The report is written again. Exit code 1 if cells failed.

    Example: `advmdp resume runs/radius`
    """
    from advmdp.experiments import resume

    wanted = _formats(formats)
    with _errors_explained():
        import_modules(modules or ())
        outcome = resume(directory, **_settings(engine, workers, address, checkpoint_every, quiet))
    _end(outcome, wanted)


@app.command("report")
def report_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of an experiment, finished or not.")],
    formats: FormatOption = "html",
    modules: ImportOption = None,
) -> None:
    """Write the report of an experiment from what is there.

    `html` is one page that needs no network, `DIR/report.html`; pdf and png are its figures, csv and latex its tables,
    in `DIR/report/`. It may be asked for while the experiment runs; the page then says what is missing. No module that
    the spec names is imported: worlds of yours are drawn only with `--import`.

    Example: `advmdp report runs/radius --format html,pdf`
    """
    from advmdp.experiments import Store

    with _errors_explained():
        import_modules(modules or ())
        Store(directory)
        _write_report(directory, _formats(formats))


@app.command("list")
def list_command(modules: ImportOption = None) -> None:
    """List worlds, adversaries, natural losses and learners with their options.

    Options are given as `option=default`; in a spec they go to `options`, in Python to `make_world`, `make_adversary`
    and `make_learner`. What an option means is in the docstring (`help(...)`) and in docs/.

    Example: `advmdp list | less`
    """
    with _errors_explained():
        import_modules(modules or ())
    console = Console(highlight=False)
    for registry in (worlds, adversaries, natural_losses, learners):
        console.rule(registry.group.removeprefix("advmdp.").replace("_", " "), align="left")
        for name in registry.names():
            entry = registry.get(name)
            title = Text(name, style="bold")
            if registry is learners:
                feedback, transition = getattr(entry, "feedback", "?"), getattr(entry, "transition", "?")
                title.append(f"  {feedback} feedback, {transition} transition", style="not bold italic")
            console.print(title)
            summary = (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ").replace("``", "")
            for text in (Text(summary), Text(_options(registry, name), style="cyan")):
                if text:
                    console.print(Padding(text, (0, 0, 0, 4)))


@app.command("bounds")
def bounds_command(
    n_states: Annotated[int, typer.Option("--S", metavar="N", min=2, help="States, first and terminal one included.")],
    n_actions: Annotated[int, typer.Option("--A", metavar="N", min=1, help="Actions.")],
    horizon: Annotated[int, typer.Option("--H", metavar="N", min=1, help="Actions per episode.")],
    episodes: Annotated[int, typer.Option("--K", metavar="N", min=1, help="Episodes.")],
    dim: Annotated[int, typer.Option("--d", metavar="N", min=1, help="Coordinates of the features.")],
    zeta: Annotated[float, typer.Option(metavar="P", help="Failure probability.")] = 0.05,
    bound: Annotated[float, typer.Option("--B", metavar="X", help="Bound on the norm of the parameters.")] = 1.0,
) -> None:
    """Print every proved regret bound for these sizes, and from which K on it says anything.

    A bound above H K, the most that can be lost, says nothing; most need millions of episodes to fall below.

    Example: `advmdp bounds --S 20 --A 4 --H 5 --K 100000 --d 3`
    """
    from advmdp.theory import bounds

    sizes = (n_states, n_actions, horizon, episodes, dim, zeta, bound)
    try:
        rows = bounds.table(*sizes).to_dict("records")
    except InvalidSpecError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    title = f"regret bounds; the trivial one, H K, is {horizon * episodes:.2g}"
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )  # 80 columns, with long names
    for column in ("", "setting"):
        table.add_column(column, no_wrap=True)
    for column in ("order", "explicit", "from K"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["name"]),
            f"{row['feedback']}, {row['transition']}" + (" *" if row["losses"] == "stochastic" else ""),
            f"{row['order']:.1e}",
            f"{row['value']:.1e}" if row["explicit"] else "",
            "" if math.isnan(row["vacuous until"]) else f"{row['vacuous until']:.1e}",
        )
    console.print(table)
    best = bounds.smallest(*sizes)
    console.print("setting: losses seen, transition; * for stochastic losses only. order: without constants and")
    console.print("logarithms. explicit: with the constants of the proof. from K: below this it exceeds H K and says")
    console.print("nothing.")
    console.print(f"smallest order for bandit feedback and unknown transition: {best.name}, {best.formula}")


@app.command("verify")
def verify_command(
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the simulated data.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", metavar="", help="At most 20 trials each.")] = False,
) -> None:
    """Check the learners that ship, and every lemma of the paper and of docs/strong-learners.md, each beside a control
    that must fail.

    Sets, upper occupancy bounds, loss estimates and steps of the learners are compared with a second computation; the
    control of such a check is wrong learners, all of which it must notice. Where a printed statement is false, the
    corrected one is checked and a counterexample to the printed one is shown (E1, E2, ... are the numbers of
    docs/errata.md). Exit code 1 if a statement is violated, or if a check cannot fail and does not say so.

    Example: `advmdp verify --quick`
    """
    from advmdp.theory import lemmas

    console, begun = Console(), time.perf_counter()
    table = Table(title="learners and lemmas on simulated data", title_justify="left", show_lines=True)
    table.add_column("lemma: statement that was checked", ratio=1)
    for column in ("trials", "allowed", "seen", "worst ratio", "seen in control"):
        table.add_column(column, justify="right", width=max(map(len, column.split())))
    table.add_column("verdict", width=9)
    results, failed = [], []
    with Progress(TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(lemmas.CHECKS))
        for check in lemmas.CHECKS:
            bar.update(task, description=check.name)
            try:
                result = check.run(seed, 20 if quick else None)
            except Exception as error:  # a wrong learner may break anywhere: the verdicts of the others still count
                failed.append(f"{check.name} (raised {type(error).__name__})")
                bar.advance(task)
                continue
            results.append(result)
            table.add_row(
                f"[bold]{escape(result.name)}[/]\n{escape(result.statement)}",
                str(result.trials),
                str(result.violations_allowed),
                str(result.violations),
                f"{result.tightness:.2g}",
                str(result.control_violations),
                result.verdict,
            )
            bar.advance(task)
    console.print(table)
    refuted = [result.refutation for result in results if result.refutation is not None]
    refuted = sorted([*refuted, *lemmas.refutations()], key=lambda printed: int(printed.erratum[1:]))
    for printed in refuted:
        console.print(
            escape(
                f"{printed.erratum}: printed as {printed.printed}. Counterexample: {printed.counterexample}: "
                f"{printed.left:.6g} > {printed.right:.6g}"
            )
        )
    idle = [result.name for result in results if result.vacuous and result.holds]
    if idle:
        console.print(f"cannot fail in runs of this length, and say nothing: {', '.join(idle)}")
    console.print(f"{len(results)} checks in {time.perf_counter() - begun:.0f} s")
    failed += [result.name for result in results if not result.holds]
    failed += [printed.erratum for printed in refuted if not printed.refuted]
    if failed:
        console.print(f"not as they should be: {', '.join(failed)}")
        raise typer.Exit(1)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _formats(text: str) -> tuple[str, ...]:
    from advmdp.report.write import FORMATS

    names = _names(text)
    for name in names or [text]:
        if name not in FORMATS:
            raise typer.BadParameter(f"there is no format {name!r}; there are: {', '.join(FORMATS)}")
    return tuple(names)


@contextmanager
def _errors_explained() -> Iterator[None]:
    """Bad usage ends with exit code 2, trouble with the folder with 1, Ctrl-C with 130; all say what to do."""
    try:
        yield
    except KeyboardInterrupt as error:  # before the first cell, or after the last
        Console(stderr=True).print("interrupted; the same command goes on from what is there")
        raise typer.Exit(130) from error
    except (InvalidSpecError, InvalidMDPError) as error:
        raise typer.BadParameter(str(error)) from error
    except (CorruptCheckpointError, StoreBusyError, OSError) as error:
        Console(stderr=True).print(f"Error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


def _settings(
    engine: str, workers: int | None, address: str | None, checkpoint_every: float, quiet: bool
) -> dict[str, Any]:
    """How to run, for :func:`run_spec` and :func:`resume`."""
    from advmdp.experiments.progress import display_for

    chosen: Engine | None = None
    if engine == "ray":
        from advmdp.experiments.ray_engine import RayEngine

        chosen = RayEngine(address, workers)
    elif address is not None:
        raise typer.BadParameter("--address goes with --engine ray")
    display = display_for(Console(stderr=True), quiet)
    return {"engine": chosen, "workers": workers, "checkpoint_every": checkpoint_every, "display": display}


def _end(outcome: Outcome, formats: tuple[str, ...] = ("html",)) -> None:
    """Print what came out, say how it ended, write the report, and end with the right code."""
    from advmdp.experiments import Comparison, Store

    with _errors_explained():
        store = Store(outcome.directory)
        finished = any(map(store.is_done, store.cells()))
        if finished:
            result, output = Comparison.of(store), Console()
            for sentence in result.verdicts():
                output.print(f"{sentence}.", markup=False, highlight=False)
            output.print(_comparison_table(result))
    console = Console(stderr=True)
    for cell_id, error in outcome.failed.items():
        console.print(f"failed: {cell_id}: {error.strip().splitlines()[-1]}", markup=False, soft_wrap=True)
    if outcome.interrupted:
        console.print(
            f"{outcome.interrupted}: {outcome.left} cells are left; go on with: advmdp resume {outcome.directory}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(128 + signal.Signals[outcome.interrupted])
    if finished:
        with _errors_explained():
            _write_report(outcome.directory, formats)
    if outcome.failed:
        where = outcome.directory / "manifest.json"
        console.print(f"{len(outcome.failed)} cells failed; their errors are in {where}", markup=False, soft_wrap=True)
        raise typer.Exit(1)


def _write_report(directory: Path, formats: tuple[str, ...]) -> None:
    from advmdp.report import write_report

    path = write_report(directory, formats=formats)
    Console().print(f"report: {path}", markup=False, highlight=False, soft_wrap=True)


def _print_plan(spec: Spec, out: Path, workers: int | None) -> None:
    """The cells, and how long they may take."""
    from advmdp.experiments import Store
    from advmdp.experiments.progress import duration, probe
    from advmdp.experiments.store import is_subset
    from advmdp.experiments.sweep import available_processors

    store = Store(out) if (out / "spec.toml").is_file() else None
    if store is not None:
        is_subset(out, spec, [])  # refuses what the run would refuse
    todo = [cell for cell in spec.cells if store is None or not store.is_done(cell)]
    with Console(stderr=True).status("measuring how long an episode takes ..."):
        pace, probed = probe(todo, store)
    console = Console()
    seconds = 0.0
    for cell in todo:
        expected = cell.episodes * (pace.seconds_per_episode(cell) or 0.0)
        seconds += expected
        console.print(f"{cell.id}  {duration(expected)}", markup=False, highlight=False, soft_wrap=True)
    count = min(max(1, available_processors() if workers is None else workers), max(1, len(todo)))
    source = f"{probed} kinds of cells played for a moment" if probed else "the finished cells of that folder"
    console.print(
        f"{len(todo)} of {len(spec.cells)} cells to compute: about {duration(seconds / count)} with {count} workers "
        f"(estimated from {source})",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _options(registry: Registry[Any], name: str) -> str:
    return ", ".join(
        option if default is inspect.Parameter.empty else f"{option}={default!r}"
        for option, default in registry.options(name).items()
    )


def _comparison_table(result: Comparison) -> Table:
    rows = result.table()
    seeds, episodes = ("-".join(f"{count:,}" for count in sorted(set(rows[what]))) for what in ("seeds", "episodes"))
    table = Table(
        title=f"per episode: means over {episodes} episodes, {seeds} seed{'' if seeds == '1' else 's'}",
        title_justify="left",
        caption="regret: loss minus that of the best fixed policy in hindsight, ± half a 95% Student-t interval over "
        "seeds. ms: of a processor. * is told the transition.",
        caption_justify="left",
    )
    table.add_column("world / losses", overflow="fold")
    for column in ("loss", "regret", "ms"):
        table.add_column(column, justify="right", no_wrap=True)
    for problem, group in rows.groupby(["world", "adversary"], sort=False):
        table.add_section()
        table.add_row(f"[bold]{escape(' / '.join(map(str, problem)))}[/]")
        for row in group.sort_values("loss_per_episode", kind="stable").to_dict("records"):
            name = row["learner"].split("[")[0]  # labels have the options that differ
            told = name in learners.names() and getattr(learners.get(name), "transition", "") == "known"
            half = row["half_width"] / row["episodes"]
            table.add_row(
                f"  {escape(row['learner'])}{' *' if told else ''}",
                f"{row['loss_per_episode']:.3f}",
                f"{row['regret'] / row['episodes']:z.3f}" + ("" if math.isnan(half) else f" ± {half:.3f}"),
                f"{row['milliseconds']:.2f}",
            )
    return table
