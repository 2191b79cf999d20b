"""An experiment as a TOML file: worlds x adversaries x learners x option grids x seeds, expanded into cells.

    title = "Does the radius matter?"
    episodes = 1000                 # or a list: every K is a run of its own, with its own constants
    seeds = 5                       # 0, 1, 2, 3, 4; or a list
    measures = ["widths"]           # further columns, see measures.py
    paired = false                  # true: the first world with the first adversary, the second with the second, ...
    comparators = ["per-episode"]   # regret against changing policies as well, see run
    imports = ["my_worlds"]         # modules that register what is named below
    worlds = ["random-mixture"]     # names, or tables as below
    adversaries = ["switching"]

    [[learners]]
    name = "vlsuob-reps"
    options = { geometry = "box" }
    grid = { radius_scale = [0.1, 1.0] }  # one learner for every value

    [small]                         # keys to replace in the small variant, for a first look and for tests
    episodes = 20

A cell is one run.  Its id says what it is, and nothing else: not how many other cells there are, nor in which order.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from advmdp.adversaries import Adversary, make_adversary
from advmdp.errors import InvalidSpecError
from advmdp.experiments.dynamic_regret import Comparator, check_comparators
from advmdp.experiments.measures import MEASURES, Measures
from advmdp.experiments.runner import Run
from advmdp.layered import LayeredMDP
from advmdp.learners import make_learner
from advmdp.registry import Registry, adversaries, import_modules, learners, worlds
from advmdp.worlds import make_world

#: Options that an experiment sets itself.
RESERVED = {"world": (), "adversary": ("seed",), "learner": ("seed", "losses")}
#: The longest part of an id, and of a value in a label, that is written out.
LONGEST_PART, LONGEST_VALUE = 60, 30
#: Bytes of a spec file.
MOST_SPEC = 2**22
#: Each is a file or two.
MOST_CELLS = 1_000_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Entry(_Strict):
    """A name with options; every combination of the values in ``grid`` is an entry of its own."""

    name: str
    options: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}


class Document(_Strict):
    """What may stand in a spec file."""

    title: str = ""
    episodes: int | list[int]
    seeds: int | list[int]
    measures: list[str] = []
    comparators: list[int | str] = []
    paired: bool = False
    imports: list[str] = []
    worlds: list[Entry]
    adversaries: list[Entry]
    learners: list[Entry]
    small: dict[str, Any] = {}

    @field_validator("worlds", "adversaries", "learners", mode="before")
    @classmethod
    def _names_are_entries(cls, entries: Any) -> Any:
        if not isinstance(entries, list):
            return entries
        return [{"name": entry} if isinstance(entry, str) else entry for entry in entries]


@dataclass(frozen=True)
class Choice:
    """One world, adversary or learner, by name and by those options that differ from the defaults."""

    kind: str
    name: str
    #: As JSON with sorted keys: equal text is equal meaning.
    options_json: str = "{}"
    #: All options with their defaults; None: ask the registry.
    defaults: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options that were given, without those that are the defaults."""
        return cast("dict[str, Any]", json.loads(self.options_json))

    @property
    def slug(self) -> str:
        """Name and options in letters that are safe in a file name."""
        text = "-".join([self.name, *(f"{key}={_short(value)}" for key, value in self.options.items())])
        plain = all(map(_is_plain, (self.name, *self.options, *self.options.values())))
        if plain and "__" not in text and len(text) <= LONGEST_PART:
            return text
        # Not everything can be seen in it: a digest keeps different choices apart.
        safe = re.sub(r"_{2,}", "_", re.sub(r"[^a-z0-9.=_-]+", "-", text.lower())).strip("._-")
        return f"{safe[: LONGEST_PART - 9]}-{_sha256(f'{self.name} {self.options_json}')[:8]}"


@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    world: Choice
    adversary: Choice
    learner: Choice
    episodes: int
    seed: int
    measures: tuple[str, ...] = ()
    comparators: tuple[Comparator, ...] = ()

    @property
    def id(self) -> str:
        """Stable, readable, and a safe file name."""
        parts = (self.world.slug, self.adversary.slug, self.learner.slug, f"K{self.episodes}", f"s{self.seed}")
        return "__".join(parts)

    @property
    def definition(self) -> str:
        """Everything that the result depends on (the version of this library apart), as JSON."""
        return _canonical(
            {
                **{choice.kind: [choice.name, choice.options] for choice in (self.world, self.adversary, self.learner)},
                "episodes": self.episodes,
                "seed": self.seed,
                "measures": list(self.measures),
                "comparators": list(self.comparators),
            }
        )

    @property
    def fingerprint(self) -> str:
        """Of the definition."""
        return _sha256(self.definition)

    @classmethod
    def from_definition(cls, definition: str) -> Cell:
        """The inverse of :attr:`definition`."""
        tree = json.loads(definition)
        world, adversary, learner = (Choice(kind, tree[kind][0], _canonical(tree[kind][1])) for kind in RESERVED)
        measures, comparators = tuple(tree["measures"]), tuple(tree["comparators"])
        return cls(world, adversary, learner, tree["episodes"], tree["seed"], measures, comparators)

    def build(self) -> Run:
        """The run, ready to play; learners of one seed meet the same losses and luck."""
        mdp = make_world(self.world.name, **self.world.options)
        losses = make_adversary(self.adversary.name, mdp, self.episodes, seed=self.seed, **self.adversary.options)
        options = dict(self.learner.options)
        if "losses" in learners.options(self.learner.name):
            options["losses"] = losses
        learner = make_learner(self.learner.name, mdp, self.episodes, seed=self.seed, **options)
        watch = Measures(self.measures, mdp, learner, self.episodes) if self.measures else None
        return Run(mdp, learner, losses, self.episodes, self.seed, watch=watch, comparators=self.comparators)


class Spec:
    """A spec file that makes sense: names, options and values are known, nothing is said twice.

    Whether learners, worlds and adversaries fit together is the question of :meth:`check`, which builds them.

    Parameters
    ----------
    text
        In TOML.
    source
        Where it is from, for messages.
    remembered
        The :attr:`signatures` of an experiment that is only read: then none of its modules is imported, and names that
        are not known here are looked up in it.
    """

    def __init__(
        self, text: str, source: str = "spec", remembered: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.text = text
        try:
            document = Document.model_validate(tomllib.loads(text))
        except ValidationError as error:
            raise InvalidSpecError(f"{source}: " + "; ".join(_problems(error))) from error
        except (ValueError, RecursionError) as error:  # of numbers that are too long, and of brackets that are too deep
            raise InvalidSpecError(f"{source} is not TOML: {error}") from error
        try:
            self.title = document.title
            self.episodes = _integers("episodes", document.episodes, 1)
            self.seeds = _seeds(document.seeds)
            self.measures = _measures(document.measures)
            _no_repetition("comparators", document.comparators)
            self.comparators = check_comparators(cast("list[Comparator]", document.comparators))
            if remembered is None:
                import_modules(document.imports)
            known = remembered or {}
            self.worlds = _choices(worlds, "worlds", document.worlds, known)
            self.adversaries = _choices(adversaries, "adversaries", document.adversaries, known)
            self.learners = _choices(learners, "learners", document.learners, known)
            self.paired = document.paired
            if self.paired and len(self.worlds) != len(self.adversaries):
                counts = f"{len(self.worlds)} worlds and {len(self.adversaries)} adversaries"
                raise InvalidSpecError(f"paired: there are {counts}, should be as many of both")
            parts = (self.worlds, self.adversaries, self.learners, self.episodes, self.seeds)
            _not_too_many("worlds x adversaries x learners x episodes x seeds", math.prod(map(len, parts)))
        except InvalidSpecError as error:
            raise InvalidSpecError(f"{source}: {error}") from error
        self._labels = {
            choice: label
            for choices in (self.worlds, self.adversaries, self.learners)
            for choice, label in zip(choices, labels_of(choices), strict=True)
        }

    @classmethod
    def read(cls, path: str | Path) -> Spec:
        """The spec in a file."""
        try:
            with open(path, "rb") as file:
                content = file.read(MOST_SPEC + 1)
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSpecError(f"{path} cannot be read: {error}") from error
        if len(content) > MOST_SPEC:
            raise InvalidSpecError(f"{path} is longer than {MOST_SPEC} bytes, which no spec is")
        return cls(text, str(path))

    def small(self) -> Spec:
        """The variant that the table ``small`` describes."""
        document = tomllib.loads(self.text)
        changes = document.pop("small", None)
        if not changes:
            raise InvalidSpecError("the spec has no table 'small', so no small variant")
        return Spec(to_toml(document | changes), "the small variant")

    def importing(self, modules: Sequence[str]) -> Spec:
        """The spec that imports these modules too: what is kept of an experiment can then be repeated as it is."""
        document = tomllib.loads(self.text)
        named = document.get("imports", [])
        more = [module for module in dict.fromkeys(modules) if module not in named]
        if not more:
            return self
        if named:
            return Spec(to_toml(document | {"imports": [*named, *more]}))
        return Spec(to_toml({"imports": more}) + self.text)

    @property
    def signatures(self) -> dict[str, dict[str, Any]]:
        """By kind and name, the options of all that is used: with them a spec can be read where these are unknown."""
        return {
            choices[0].kind: {choice.name: _remembered(choice.defaults or {}) for choice in choices}
            for choices in (self.worlds, self.adversaries, self.learners)
        }

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every combination; all learners of a seed stand together."""
        together = zip(self.worlds, self.adversaries, strict=True) if self.paired else None
        problems = together or itertools.product(self.worlds, self.adversaries)
        combinations = itertools.product(problems, self.episodes, self.seeds, self.learners)
        return tuple(
            Cell(world, adversary, learner, episodes, seed, self.measures, self.comparators)
            for (world, adversary), episodes, seed, learner in combinations
        )

    def labels(self, cell: Cell) -> dict[str, str]:
        """Unique short names of a cell's world, adversary and learner within this spec.

        The name alone where it is unique, else with the options that make the difference.  Runs of different lengths
        are different problems, so K joins the adversary's label if it varies.
        """
        labels = {c.kind: self._labels[c] for c in (cell.world, cell.adversary, cell.learner)}
        if len(self.episodes) > 1:
            labels["adversary"] += f"[K={cell.episodes}]"
        return labels

    def varying(self, cell: Cell) -> dict[str, Any]:
        """The values, in this cell, of K and of options that are not the same in all cells."""
        values: dict[str, Any] = {"episodes": cell.episodes} if len(self.episodes) > 1 else {}
        for choice in (cell.world, cell.adversary, cell.learner):
            for option in self._varying_options[choice.kind]:
                value = choice.options.get(option, _default(choice, option))
                plain = value is None or isinstance(value, (bool, int, float, str))
                values[f"{choice.kind}.{option}"] = value if plain else _canonical(value)
        return values

    @cached_property
    def _varying_options(self) -> dict[str, list[str]]:
        varying = {}
        for choices in (self.worlds, self.adversaries, self.learners):
            options = sorted({option for choice in choices for option in choice.options})
            varying[choices[0].kind] = [o for o in options if len({_value_text(c, o) for c in choices}) > 1]
        return varying

    def check(self) -> None:
        """Build every world, every adversary and every learner once; what does not fit together is named."""
        for i, world in enumerate(self.worlds):
            mdp: LayeredMDP = _built(f"worlds[{i}]", world, make_world)
            on_it = f"on worlds[{i}] ({world.name})"
            reacting: dict[str, int] = {}
            for j, adversary in enumerate(self.adversaries):
                where = f"adversaries[{j}]"
                losses: Adversary = _built(where, adversary, make_adversary, mdp, max(self.episodes), on=on_it)
                if not losses.oblivious:
                    reacting.setdefault(adversary.name, j)
            for j, learner in enumerate(self.learners):
                where, extra = f"learners[{j}]", {}
                if "losses" in learners.options(learner.name):
                    for name, number in reacting.items():
                        raise InvalidSpecError(
                            f"{where} ({learner.name}) is told the losses beforehand, but those of "
                            f"adversaries[{number}] ({name}) react to the learner; leave one of the two out"
                        )
                    extra["losses"] = [np.zeros((n, mdp.n_actions)) for n in mdp.layer_sizes[:-1]]
                for episodes in self.episodes:
                    _built(where, learner, make_learner, mdp, episodes, on=on_it, **extra)


def labels_of(choices: Sequence[Choice]) -> list[str]:
    """Names, with the options that tell equal names apart: ``vlsuob-reps[radius_scale=0.1]``."""
    by_name: dict[str, list[Choice]] = defaultdict(list)
    for choice in choices:
        by_name[choice.name].append(choice)
    labels = []
    for choice in choices:
        rivals = by_name[choice.name]
        options = sorted({option for rival in rivals for option in rival.options})
        differing = [option for option in options if len({_value_text(rival, option) for rival in rivals}) > 1]
        values = ",".join(f"{option}={_short(json.loads(_value_text(choice, option)))}" for option in differing)
        labels.append(f"{choice.name}[{values}]" if values else choice.name)
    return labels


def to_toml(document: Mapping[str, Any]) -> str:
    """A spec file from plain values (a JSON string, number, array is a TOML one)."""
    return "".join(f"{_toml_key(key)} = {_toml(value)}\n" for key, value in document.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf, -inf, nan
    # JSON but for this: TOML has no surrogate pairs, and wants the last control character escaped as well.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


def _built(place: str, choice: Choice, build: Callable[..., Any], *arguments: Any, on: str = "", **extra: Any) -> Any:
    """What a choice names; an error says where in the spec it stands."""
    try:
        return build(choice.name, *arguments, **choice.options, **extra)
    except (ValueError, TypeError, OSError) as error:
        raise InvalidSpecError(f"{place} ({choice.name}) {on}".rstrip() + f": {error}") from error


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_input=True):
        place = ""
        for part in problem["loc"]:
            if isinstance(part, int):
                place += f"[{part}]"
            elif part not in ("int", "list[int]"):  # the branches of `int | list[int]`
                place += f".{part}" if place else str(part)
        match problem["type"]:
            case "extra_forbidden":
                known = Entry if "." in place else Document
                yield f"unknown key {place!r}; the keys here are: {', '.join(known.model_fields)}"
            case "missing":
                yield f"the key {place!r} is missing"
            case _:
                yield f"{place} is {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _integers(key: str, value: int | list[int], low: int) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise InvalidSpecError(f"{key} is empty, should have at least one value")
    for number in values:
        if number < low:
            raise InvalidSpecError(f"{key} is {value}, should be an integer >= {low} or a list of such")
    _no_repetition(key, values)
    return tuple(values)


def _seeds(value: int | list[int]) -> tuple[int, ...]:
    if isinstance(value, list):
        return _integers("seeds", value, 0)
    if value < 1:
        raise InvalidSpecError(f"seeds is {value}, should be a number of seeds >= 1 or a list of seeds")
    _not_too_many("seeds", value)
    return tuple(range(value))


def _not_too_many(what: str, count: int) -> None:
    """Before anything is expanded: a short spec cannot ask for more than a machine can hold."""
    if count > MOST_CELLS:
        raise InvalidSpecError(f"{what} makes {count} runs, should make at most {MOST_CELLS}")


def _measures(names: list[str]) -> tuple[str, ...]:
    for name in names:
        if name not in MEASURES:
            raise InvalidSpecError(f"measures has {name!r}; there are: {', '.join(MEASURES)}")
    _no_repetition("measures", names)
    return tuple(sorted(names))


def _no_repetition(key: str, values: Sequence[Any]) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise InvalidSpecError(f"{key} has {twice[0]!r} twice: equal runs are not independent samples")


def _signature(registry: Registry[Any], name: str, known: Mapping[str, Mapping[str, Any]]) -> tuple[Any, bool]:
    """The options of an entry with their defaults, and whether it takes others; by heart where the registry fails."""
    try:
        parameters = inspect.signature(registry.get(name)).parameters.values()
        return registry.options(name), any(p.kind is p.VAR_KEYWORD for p in parameters)
    except InvalidSpecError as error:
        if name in known.get(registry.kind, {}):
            saved = known[registry.kind][name]
            return {**saved["defaults"], **dict.fromkeys(saved["required"], inspect.Parameter.empty)}, True
        raise InvalidSpecError(
            f"{error}; a module of yours that registers it is named by `imports = [...]` in the spec, or by --import"
        ) from error


def _remembered(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`_signature` needs, as plain data."""
    given = {option: default for option, default in defaults.items() if default is not inspect.Parameter.empty}
    plain = {option: json.loads(_text_of(default)) for option, default in given.items()}
    return {"defaults": plain, "required": [option for option in defaults if option not in given]}


def _choices(
    registry: Registry[Any], key: str, entries: list[Entry], known: Mapping[str, Mapping[str, Any]]
) -> tuple[Choice, ...]:
    """The entries with their grids expanded, each option known, no two the same."""
    if not entries:
        raise InvalidSpecError(f"{key} is empty, should name at least one; there are: {', '.join(registry.names())}")
    found: dict[Choice, str] = {}
    for number, entry in enumerate(entries):
        place = f"{key}[{number}]"
        try:
            defaults, takes_any = _signature(registry, entry.name, known)
        except InvalidSpecError as error:
            raise InvalidSpecError(f"{place}.name: {error}") from error
        choosable = [option for option in defaults if option not in RESERVED[registry.kind]]
        for table, option in [("options", o) for o in entry.options] + [("grid", o) for o in entry.grid]:
            if option in RESERVED[registry.kind]:
                raise InvalidSpecError(f"{place}.{table}.{option}: an experiment sets this itself, from its seeds")
            if option not in defaults and not takes_any:
                raise InvalidSpecError(
                    f"{place}.{table}.{option}: {registry.kind} {entry.name!r} has no such option; "
                    f"it has: {', '.join(choosable) or 'none'}"
                )
            if table == "grid" and option in entry.options:
                raise InvalidSpecError(f"{place}: {option} stands in options and in grid, should stand in one of them")
            if table == "grid" and not entry.grid[option]:
                raise InvalidSpecError(f"{place}.grid.{option} is empty, should be a list of values")
        for option in choosable:
            if defaults[option] is inspect.Parameter.empty and option not in {**entry.options, **entry.grid}:
                raise InvalidSpecError(f"{place}: {registry.kind} {entry.name!r} needs the option {option!r}")
        _not_too_many(f"{place}.grid", math.prod(map(len, entry.grid.values())))
        for values in itertools.product(*entry.grid.values()):
            given = {**entry.options, **dict(zip(entry.grid, values, strict=True))}
            given = {o: float(v) if type(v) is int and type(defaults.get(o)) is float else v for o, v in given.items()}
            options = {o: v for o, v in given.items() if o not in defaults or not _same(v, defaults[o])}
            choice = Choice(registry.kind, entry.name, _canonical(options, place), defaults)
            if choice in found:
                raise InvalidSpecError(
                    f"{place}: {entry.name!r} with options {options} is also {found[choice]}: equal runs are not "
                    "independent samples"
                )
            found[choice] = place
    return tuple(found)


def _same(value: Any, default: Any) -> bool:
    """Whether a value is the default; 1 is not True, and a tuple in a signature is a list in a file."""
    if isinstance(value, bool) or isinstance(default, bool):
        return value is default
    if isinstance(default, tuple):
        default = list(default)
    return type(value) in (int, float, str, list, dict) and bool(np.all(value == default))


def _default(choice: Choice, option: str) -> Any:
    registry = {"world": worlds, "adversary": adversaries, "learner": learners}[choice.kind]
    known = registry.options(choice.name) if choice.defaults is None else choice.defaults
    default = known.get(option)
    return None if default is inspect.Parameter.empty else default


def _value_text(choice: Choice, option: str) -> str:
    """The value of an option, given or default, as text that is equal for equal values."""
    return _text_of(choice.options[option] if option in choice.options else _default(choice, option))


def _text_of(value: Any) -> str:
    """A value as JSON, what JSON does not have by its name."""
    try:
        return _canonical(value)
    except InvalidSpecError:
        return json.dumps(repr(value))


def _is_plain(value: Any) -> bool:
    """Whether a name or value can stand in an id as it is, and means the same to every reader."""
    if isinstance(value, str):
        return re.fullmatch(r"[a-z][a-z0-9_-]*[a-z0-9]|[a-z]", value) is not None and value not in ("true", "false")
    if isinstance(value, list):  # sizes, written 1-8-8-1
        return len(value) > 1 and all(type(item) is int and item >= 0 for item in value)
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _short(value: Any) -> str:
    """A value in a label or an id: as it is, or by its digest where it is long."""
    text = value if isinstance(value, str) else _canonical(value).replace('"', "").strip("[]").replace(",", "-")
    return text if len(text) <= LONGEST_VALUE else _sha256(_canonical(value))[:8]


def _canonical(value: Any, place: str = "value") -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except TypeError as error:
        raise InvalidSpecError(f"{place}: {error}; should be text, numbers, booleans, lists and tables") from error


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
