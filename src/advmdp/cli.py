"""The command line."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from advmdp import __version__
from advmdp.errors import InvalidSpecError
from advmdp.experiments import Comparison, compare
from advmdp.registry import Registry, adversaries, learners, worlds
from advmdp.report import comparison_figure
from advmdp.theory import bounds, lemmas

app = typer.Typer(
    help="Online learning in adversarial Markov decision processes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"advmdp {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Online learning in adversarial Markov decision processes."""


@app.command("compare")
def compare_command(
    worlds_option: Annotated[
        str, typer.Option("--worlds", help="World names, separated by commas.")
    ] = "random-mixture,grid",
    adversaries_option: Annotated[
        str, typer.Option("--adversaries", help="Adversary names, separated by commas.")
    ] = "stochastic,switching",
    learners_option: Annotated[
        str, typer.Option("--learners", help="Learner names, separated by commas.")
    ] = "uniform,uob-reps,lsuob-reps,vlsuob-reps,vlsuob-reps-tight,hindsight",
    episodes: Annotated[int, typer.Option(min=1, help="Episodes per run, K.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Runs with different seeds.")] = 3,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/compare"),
    quick: Annotated[bool, typer.Option("--quick", help="100 episodes.")] = False,
) -> None:
    """Compare learners on worlds against the same losses: a table, a figure, and the data.

    Example: `advmdp compare --worlds grid --learners uniform,ftl --episodes 1000`
    """
    if quick:
        episodes = 100
    names = {
        registry.kind: _names(registry, text)
        for registry, text in (
            (worlds, worlds_option),
            (adversaries, adversaries_option),
            (learners, learners_option),
        )
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be made: {error}", param_hint="--out") from error
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        result = compare(
            names["world"],
            names["adversary"],
            names["learner"],
            episodes=episodes,
            seeds=seeds,
            report=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )
    console.print(_comparison_table(result, episodes, seeds))
    result.frame.to_parquet(out / "regret.parquet", index=False)
    comparison_figure(result.frame).savefig(out / "regret.png", dpi=150)
    console.print(f"figure: {out / 'regret.png'}", soft_wrap=True)
    console.print(f"data:   {out / 'regret.parquet'}", soft_wrap=True)


@app.command("list")
def list_command() -> None:
    """List worlds, adversaries and learners with their options.

    Example: `advmdp list`
    """
    console = Console()
    for registry in (worlds, adversaries, learners):
        table = Table(title=f"{registry.group.removeprefix('advmdp.')}", title_justify="left")
        table.add_column("name", style="bold", no_wrap=True)
        if registry is learners:
            table.add_column("feedback")
            table.add_column("transition")
        table.add_column("what it is")
        table.add_column("options")
        for name in registry.names():
            entry = registry.get(name)
            setting = (
                [getattr(entry, "feedback", "?"), getattr(entry, "transition", "?")] if registry is learners else []
            )
            summary = (inspect.getdoc(entry) or "").split("\n\n")[0].replace("\n", " ")
            table.add_row(name, *setting, summary.replace("``", ""), _options(registry, name))
        console.print(table)


@app.command("bounds")
def bounds_command(
    n_states: Annotated[int, typer.Option("--S", min=2, help="States, first and terminal one included.")],
    n_actions: Annotated[int, typer.Option("--A", min=1, help="Actions.")],
    horizon: Annotated[int, typer.Option("--H", min=1, help="Actions per episode.")],
    episodes: Annotated[int, typer.Option("--K", min=1, help="Episodes.")],
    dim: Annotated[int, typer.Option("--d", min=1, help="Coordinates of the features.")],
    zeta: Annotated[float, typer.Option(help="Failure probability.")] = 0.05,
    bound: Annotated[float, typer.Option("--B", help="Bound on the norm of the parameters.")] = 1.0,
) -> None:
    """Print every proved regret bound for these sizes, and from which K on it says anything.

    Example: `advmdp bounds --S 20 --A 4 --H 5 --K 100000 --d 3`
    """
    sizes = (n_states, n_actions, horizon, episodes, dim, zeta, bound)
    try:
        rows = bounds.table(*sizes).to_dict("records")
    except InvalidSpecError as error:
        raise typer.BadParameter(str(error)) from error
    console = Console()
    table = Table(title=f"regret bounds; the trivial one, H K, is {horizon * episodes:.2g}", title_justify="left")
    for column in ("", "setting"):
        table.add_column(column, no_wrap=True)
    for column in ("order", "explicit", "from K"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["name"]),
            f"{row['feedback']}, {row['transition']}",
            f"{row['order']:.1e}",
            f"{row['value']:.1e}" if row["explicit"] else "",
            "" if math.isnan(row["vacuous until"]) else f"{row['vacuous until']:.1e}",
        )
    console.print(table)
    best = bounds.smallest(*sizes)
    console.print("setting: losses seen, transition. order: without constants and logarithms. explicit: with the")
    console.print("constants of the proof. from K: below this it exceeds H K and says nothing.")
    console.print(f"smallest order for bandit feedback and unknown transition: {best.name}, {best.formula}")


@app.command("verify")
def verify_command(
    seed: Annotated[int, typer.Option(min=0, help="Of the simulated data.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="At most 20 trials each.")] = False,
) -> None:
    """Check every lemma of the paper on simulated data, each beside a control that must fail.

    Where a printed statement is false, the corrected one is checked and a counterexample to the printed one is shown.
    Exit code 1 if a statement is violated, or if a check cannot fail.

    Example: `advmdp verify --quick`
    """
    console = Console()
    table = Table(title="lemmas on simulated data", title_justify="left", show_lines=True)
    table.add_column("lemma: statement that was checked", ratio=1)
    for column in ("trials", "allowed", "seen", "worst ratio", "seen in control"):
        table.add_column(column, justify="right", width=max(map(len, column.split())))
    table.add_column("verdict", width=9)
    results = []
    with Progress(TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(lemmas.CHECKS))
        for check in lemmas.CHECKS:
            bar.update(task, description=check.name)
            result = check.run(seed, 20 if quick else None)
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
    for result in results:
        if result.refutation is not None:
            printed = result.refutation
            console.print(
                escape(
                    f"{result.name}: printed as {printed.printed}. Counterexample: {printed.counterexample}: "
                    f"{printed.left:.6g} > {printed.right:.6g}"
                )
            )
    failed = [result.name for result in results if not result.holds]
    if failed:
        console.print(f"not as they should be: {', '.join(failed)}")
        raise typer.Exit(1)


def _names(registry: Registry[Any], text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        for name in names:
            registry.get(name)
        if not names:
            raise InvalidSpecError(f"no {registry.kind} given; there are: {registry.names()}")
    except InvalidSpecError as error:
        raise typer.BadParameter(str(error)) from error
    return names


def _options(registry: Registry[Any], name: str) -> str:
    return ", ".join(
        option if default is inspect.Parameter.empty else f"{option}={default!r}"
        for option, default in registry.options(name).items()
    )


def _comparison_table(result: Comparison, episodes: int, seeds: int) -> Table:
    table = Table(
        title=f"regret after {episodes:,} episodes, mean of {seeds} seeds and 95% Student-t interval",
        title_justify="left",
    )
    table.add_column("world / adversary", no_wrap=True)
    for column in ("regret", "of uniform's", "episodes/s"):
        table.add_column(column, justify="right", no_wrap=True)
    previous = ""
    for row in result.table().to_dict("records"):
        problem = f"{row['world']} / {row['adversary']}"
        if problem != previous:
            table.add_section()
            table.add_row(f"[bold]{problem}[/]")
        interval = "" if math.isnan(row["half_width"]) else f" ± {row['half_width']:,.0f}"
        ratio = row["ratio_to_uniform"]
        table.add_row(
            f"  {row['learner']}",
            f"{_tidy(row['regret']):,.0f}{interval}",
            "" if math.isnan(ratio) else f"{_tidy(ratio):.2f}",
            f"{row['episodes_per_second']:,.0f}",
        )
        previous = problem
    return table


def _tidy(value: float) -> float:
    """Rounding errors below what is printed become a plain zero, not a negative one."""
    return value if abs(value) > 1e-6 else 0.0
