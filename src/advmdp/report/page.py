"""The report as one HTML file: no network, no library, every string escaped."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, cast

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from advmdp.confidence.misspecification import LEVEL
from advmdp.experiments.measures import TRUST
from advmdp.experiments.statistics import mean_curves, verdicts
from advmdp.layered import LayeredMDP
from advmdp.report.figures import COLOURS, make_styles, plot_occupancy, plot_policy
from advmdp.report.results import Results, interval, number, significant
from advmdp.report.worlds import draw_world

#: Pixels per inch of pictures, which are shown at half their size: sharp on any screen.
DPI = 160
#: Drawings of layers with more states than this are a blot.
DRAWN_STATES = 120
#: Of how many worlds, and of how many problems, a page has pictures (about 100 kB each).
PICTURES = 12


def render(results: Results) -> str:
    """The page."""
    css, js = (_asset(name) for name in ("report.css", "report.js"))
    template = _template()
    return template.render(
        css=css,
        js=js,
        policy=f"default-src 'none'; img-src data:; style-src {_source(css)}; script-src {_source(js)}",
        **_texts(results),
        **(_result_parts(results) if len(results.rows) else {"problems": [], "pictures_note": ""}),
        pictures=list(_pictures(results)),
        data=_data(results),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "sort_keys": True}
    return environment.from_string(_asset("report.html.jinja"))


@cache
def _asset(name: str) -> str:
    return files("advmdp.report").joinpath("assets", name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """The one style or script that the page may have, by its hash: nothing that slips into the page can run."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ------------------------------------------------------------------------------------------------ words


def _texts(results: Results) -> dict[str, Any]:
    manifest = results.manifest
    cells = manifest["cells"]
    states = results.states
    done, total = states["done"], len(cells)
    counts = {
        kind: len({cell[kind] for cell in cells.values()})
        for kind in ("learner", "world", "adversary", "seed", "episodes")
    }
    episodes = sorted({cell["episodes"] for cell in cells.values()})
    summary = (
        f"{_count(counts['learner'], 'learner')} on {_count(counts['world'], 'world')} against "
        f"{_count(counts['adversary'], 'adversary')}, {_count(counts['seed'], 'seed')}, "
        f"{' / '.join(f'{k:,}' for k in episodes)} episodes; {done} of {_count(total, 'cell')} done."
    )
    partial = ""
    if done < total:
        rest = ", ".join(f"{states[state]} {state}" for state in ("running", "pending", "failed") if states[state])
        partial = f"Partial results: {done} of {total} cells are done ({rest}). Figures and tables show only those."
    revision = manifest.get("git") or {}
    versions = {name: version for name, version in (manifest.get("versions") or {}).items() if version}
    program = f"advmdp {versions.get('advmdp', 'of unknown version')}"
    if revision:
        changed = ", with changes" if revision.get("changed") else ""
        program += f", revision {str(revision.get('revision'))[:12]}{changed}"
    environment = [
        ("library", program),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items() if name != "advmdp")),
        *((f"machine: {key}", value) for key, value in (manifest.get("machine") or {}).items()),
        *((key, manifest[key]) for key in ("created", "updated") if key in manifest),
        *(("also computed with", _history(entry)) for entry in manifest.get("history", [])),
    ]
    rows = [
        (
            name,
            cell["state"],
            "" if cell["seconds"] is None else f"{cell['seconds']:.1f}",
            "" if cell["episodes_per_second"] is None else number(cell["episodes_per_second"]),
            cell["attempts"],
        )
        for name, cell in cells.items()
    ]
    title = manifest.get("title") or "Experiment"
    return {
        "title": title,
        "version": versions.get("advmdp", ""),
        "summary": summary,
        "partial": partial,
        "alarms": results.alarms,
        "level": f"{LEVEL:.0%}",
        "failed": [{"id": name, **cell} for name, cell in cells.items() if cell["state"] == "failed"],
        "command": f"advmdp run spec.toml --out results   # {program}",
        "spec": results.spec_text,
        "spec_base64": base64.b64encode(results.spec_text.encode()).decode(),
        "environment": environment,
        "cell_columns": ("cell", "state", "seconds", "episodes/s", "attempts"),
        "cell_rows": rows,
    }


def _history(entry: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in (entry.get("versions") or {}).items() if version)
    return f"{versions}; {(entry.get('machine') or {}).get('system', '')}"


def _count(number: int, what: str) -> str:
    plural = what[:-1] + "ies" if what.endswith("y") else what + "s"
    return f"{number} {what if number == 1 else plural}"


def _result_parts(results: Results) -> dict[str, Any]:
    problems = []
    losses_known = "mean_loss" in results.measures
    sentences = verdicts(results.frame) if losses_known else {}
    for (world, adversary), rows in results.problems():
        table = results.printable(world, adversary).drop(columns=["world", "adversary"])
        columns, values = _curve_table(rows)
        problems.append(
            {
                "title": f"{world} / {adversary}",
                "columns": list(table),
                "rows": table.to_numpy().tolist(),
                "curve_columns": columns,
                "curve_rows": values,
                "verdict": sentences.get((world, adversary), ""),
                "short": results.short(world, adversary),
                "bounds_note": results.bounds((world, adversary), rows)[1],
                "trust": [(name, *_curve_table(parts, "trust")) for name, parts in results.trust(rows)],
            }
        )
    parts: dict[str, Any] = {
        "problems": problems,
        "losses_known": losses_known,
        "short_columns": ("learner", "loss per episode", "regret per episode", "ms per episode"),
        "curves_note": "Means over seeds; bands are 95% Student-t intervals, cut where they would squeeze the curves.",
        "table_note": (
            "Means over seeds ± half a 95% Student-t interval. All learners of a seed meet the same losses and luck, "
            f"so differences to {results.baseline} are taken seed by seed; p is that of the paired t-test, adjusted "
            "for the number of rows (Benjamini and Yekutieli). Exponent: b in regret ~ episodes^b over the last nine "
            "tenths of the run, fitted seed by seed. Proved bound: where the theorem holds for a learner as it is set."
        ),
        "pictures_note": (
            f"Of {results.baseline}, first seed. Drawings: the wider an edge, the more probable; the darker a state, "
            "the more often visited. Heat maps: the policy in the last episode, the occupancy measure averaged over "
            "all episodes, and the best fixed policy in hindsight; a block per layer, a row per state (states "
            f"of one name share a row), a column per action (a cross: unavailable). At most {PICTURES} of "
            "each are on this page."
            + "".join(f" {label} cannot be built here, so it is not drawn." for label in results.not_drawn)
        ),
        "scaling": None,
        "profile_note": "",
    }
    if results.scaling is not None:
        table = results.scaling
        parts["scaling_note"] = "b in final regret ~ K^b over runs of different lengths, each with its own constants."
        exponents = [interval(m, h) for m, h in zip(table["exponent"], table["half_width"], strict=True)]
        names = (
            f"{w} / {a} / {n}" for w, a, n in zip(*(table[c] for c in ("world", "adversary", "learner")), strict=True)
        )
        parts["scaling"] = {
            "columns": ("learner", "exponent", "seeds"),
            "rows": list(zip(names, exponents, table["seeds"], strict=True)),
        }
    if results.profile is not None:
        profile = results.profile
        parts["profile_note"] = (
            f"Over all worlds and losses, the share of {profile['runs'].iloc[0]} runs of each learner whose regret is "
            "at most so many times that of uniform play with the same losses: further left is better. Intervals: "
            "Clopper-Pearson, 95%. Only problems that every learner ran count."
        )
        parts["profile_columns"] = ("learner", "multiple of uniform's regret", "share", "95% interval")
        parts["profile_rows"] = [
            (row["learner"], number(row["ratio"]), f"{row['share']:.2f}", f"{row['low']:.2f} to {row['high']:.2f}")
            for row in profile.to_dict("records")
        ]
    return parts


def _curve_table(rows: pd.DataFrame, column: str = "regret") -> tuple[list[str], list[list[str]]]:
    """A column at a few episodes (powers of ten and the last), a column per learner."""
    curves = mean_curves(rows, column)
    last = int(curves["episode"].max())
    shown = sorted({k for k in curves["episode"] if str(k).strip("0") == "1"} | {last})
    values = {(row["learner"], row["episode"]): (row["mean"], row["half_width"]) for row in curves.to_dict("records")}
    learners = list(dict.fromkeys(curves["learner"]))
    table = [
        [f"{k:,}", *(interval(*values[name, k]) if (name, k) in values else "" for name in learners)] for k in shown
    ]
    return ["episodes", *map(str, learners)], table


# ------------------------------------------------------------------------------------- numbers for the curves


def _data(results: Results) -> dict[str, Any]:
    measures: list[dict[str, Any]] = [
        {"key": column, "column": column, "label": label} for column, label in results.measures.items()
    ]
    measures.insert(1, {"key": "over_sqrt", "column": "regret", "label": "regret / √episodes", "over_sqrt": True})
    styles = {
        name: {"colour": COLOURS.index(style.colour), "dashes": style.dashes}
        for name, style in make_styles(results.learners).items()
    }
    problems = []
    for key, rows in results.problems():
        curves = {column: list(_series(rows, column)) for column in results.measures}
        for name, bound in results.bounds(key, rows)[0].groupby("learner", sort=False):
            label, nothing = f"proved bound of {name}", [None] * len(bound)
            styles[label] = {"colour": styles[str(name)]["colour"], "dashes": (1.2, 1.2)}
            points = {"x": bound["episode"].tolist(), "y": significant(bound["bound"]), "low": nothing, "high": nothing}
            curves["regret"].append({"learner": label, "of": name, **points})
        trust = [list(_series(parts, "trust")) for _, parts in results.trust(rows)]
        problems.append({"title": " / ".join(key), "curves": curves, "trust": trust})
    experts = [str(name) for name in results.frame if str(name).startswith(TRUST)]
    for name, style in make_styles(experts).items():
        styles[name] = {"colour": COLOURS.index(style.colour), "dashes": style.dashes}
    data: dict[str, Any] = {
        "measures": measures,
        "learners": results.learners,
        "experts": experts,
        "styles": styles,
        "problems": problems,
        "profile": None,
    }
    if results.profile is not None:
        profile = results.profile
        steps = [
            {
                "learner": name,
                "x": significant(curve["ratio"]),
                "y": significant(curve["share"]),
                "low": significant(curve["low"]),
                "high": significant(curve["high"]),
            }
            for name, curve in profile.groupby("learner", sort=False)
        ]
        ends = [min(0.0, 1.05 * profile["ratio"].min()), max(1.0, 1.05 * profile["ratio"].max())]
        data["profile"] = {"reference": "uniform", "series": steps, "range": significant(ends)}
    return data


def _series(rows: pd.DataFrame, column: str) -> Iterator[dict[str, Any]]:
    for learner, curve in mean_curves(rows, column).groupby("learner", sort=False):
        yield {
            "learner": learner,
            "x": curve["episode"].tolist(),
            "y": significant(curve["mean"]),
            "low": significant(curve["mean"] - curve["half_width"]),
            "high": significant(curve["mean"] + curve["half_width"]),
        }


# --------------------------------------------------------------------------------------------- pictures


def _pictures(results: Results) -> Iterator[dict[str, Any]]:
    for title, figure in islice(world_figures(results), PICTURES):
        yield _picture(figure, title, f"drawing of {title}")
    for (world, adversary), final in islice(results.finals.items(), PICTURES):
        text = f"heat maps of policies and occupancy on {world} against {adversary}"
        yield _picture(policy_figure(final, results.worlds.get(world)), f"{world} / {adversary}", text)


def world_figures(results: Results) -> Iterator[tuple[str, Figure]]:
    """Every world as its last policy plays it (uniform play until a run is finished), if it is small enough to read."""
    played = {world: (adversary, final) for (world, adversary), final in reversed(list(results.finals.items()))}
    for label, mdp in results.worlds.items():
        if mdp is None or (sum(mdp.layer_sizes) > DRAWN_STATES and mdp.scene.map is None):
            continue
        adversary, final = played.get(label, (None, None))
        title = f"{label}, played uniformly" if final is None else f"{label}, last policy against {adversary}"
        yield title, cast("Figure", draw_world(mdp, policy=None if final is None else final.policy).figure)


def policy_figure(final: Any, mdp: LayeredMDP | None = None) -> Figure:
    """The last policy, the mean occupancy measure and the best policy in hindsight, side by side."""
    world: dict[str, Any] = {} if mdp is None else {"available": mdp.available, "scene": mdp.scene}
    # Fixed margins: that the panels are alike is known, and to find out takes a second for each.
    figure = Figure(figsize=(13.0, 3.4))
    left, middle, right = figure.subplots(
        1, 3, sharey=True, gridspec_kw={"left": 0.07, "right": 0.97, "bottom": 0.16, "top": 0.9, "wspace": 0.15}
    )
    plot_policy(left, final.policy, **world)
    plot_occupancy(middle, final.mean_occupancy, **world)
    plot_policy(right, final.best_policy, **world)
    for ax, title in ((left, "last policy"), (middle, "mean occupancy"), (right, "best in hindsight")):
        ax.set_title(title, fontsize=11)
    return figure


def _picture(figure: Figure, title: str, alt: str) -> dict[str, Any]:
    width, height = (round(inches * DPI / 2) for inches in figure.get_size_inches())
    png = base64.b64encode(image(figure, "png")).decode()
    wide = width > 2 * height
    return {"title": title, "alt": alt, "png": png, "width": width, "height": height, "wide": wide}


def image(figure: Figure, kind: str) -> bytes:
    """A figure as PNG or PDF, without the time at which it was made."""
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
