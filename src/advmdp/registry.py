"""Names for worlds, adversaries and learners: ours, and those that other packages add.

A user's class or function joins a registry by decorator, ``@register_world("my-world")``, in a module that is imported
(:func:`import_modules`), or by an entry point of their package in the group ``advmdp.worlds``, ``advmdp.adversaries``,
``advmdp.learners`` or ``advmdp.natural_losses``.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from advmdp.errors import InvalidSpecError

#: Modules that were imported by name, for worker processes to do the same.
imported: list[str] = []

T = TypeVar("T", bound=Callable[..., Any])

_PLURALS = {"adversary": "adversaries", "natural losses": "natural_losses"}


class Registry(Generic[T]):
    """A table from names to the functions or classes that build what is named."""

    def __init__(self, kind: str, positional: int, hidden: tuple[str, ...] = ()) -> None:
        self.kind = kind
        # Arguments that are no options: what every entry may take, and no spec can say.
        self._hidden = hidden
        self.group = f"advmdp.{_PLURALS.get(kind, kind + 's')}"
        # Arguments that come before the options of an entry.
        self._positional = positional
        self._entries: dict[str, T] = {}
        self._loaded_entry_points = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that enters a function or class under a name.

        The name must be free, unless the same definition is entered again (a notebook cell run twice).  A class with
        a ``name`` of its own must agree; one without is given it.
        """

        def enter(entry: T) -> T:
            known = self._entries.get(name)
            if known is not None and _origin(known) != _origin(entry):
                raise InvalidSpecError(f"{self.kind} {name!r} is already registered")
            if isinstance(entry, type):
                if entry.__dict__.get("name", name) != name:
                    raise InvalidSpecError(f"{self.kind} {name!r}: the class calls itself {entry.__dict__['name']!r}")
                setattr(entry, "name", name)  # noqa: B010 (typed as any callable)
            self._entries[name] = entry
            return entry

        return enter

    def names(self) -> list[str]:
        """All names, in alphabetical order."""
        self._load_entry_points()
        return sorted(self._entries)

    def get(self, name: str) -> T:
        """The entry of that name; otherwise an error that lists the choices."""
        if name not in self._entries:
            self._load_entry_points()
        if name not in self._entries:
            close = difflib.get_close_matches(str(name), self._entries, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidSpecError(f"unknown {self.kind} {name!r}{hint}; there are: {', '.join(self.names())}")
        return self._entries[name]

    def options(self, name: str) -> dict[str, Any]:
        """The options of an entry with their defaults (``inspect.Parameter.empty`` where required)."""
        parameters = list(inspect.signature(self.get(name)).parameters.values())
        own = (p for p in parameters[self._positional :] if p.kind is not p.VAR_KEYWORD)
        return {p.name: p.default for p in own if p.name not in self._hidden}

    def make(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Build what is named; an unknown or missing option is an error that names the valid ones."""
        entry = self.get(name)
        known = self.options(name)
        takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(entry).parameters.values())
        for option in options:
            if option not in known and option not in self._hidden and not takes_any:
                raise InvalidSpecError(
                    f"{self.kind} {name!r} has no option {option!r}; it has: {', '.join(known) or 'none'}"
                )
        for option, default in known.items():
            if default is inspect.Parameter.empty and option not in options:
                raise InvalidSpecError(f"{self.kind} {name!r} needs the option {option!r}")
        try:
            return entry(*arguments, **options)
        except MemoryError as error:
            given = ", ".join(f"{option}={value!r}" for option, value in options.items())
            raise InvalidSpecError(
                f"{self.kind} {name!r} ({given}) needs more memory than there is: {error or 'nobody knows how much'}"
            ) from error

    def _load_entry_points(self) -> None:
        if self._loaded_entry_points:
            return
        self._loaded_entry_points = True
        for point in entry_points(group=self.group):
            try:
                self.register(point.name)(point.load())
            except Exception as error:  # somebody else's package must not take ours down
                warnings.warn(f"{self.kind} {point.name!r} ({point.value}) could not be loaded: {error}", stacklevel=3)


def import_modules(names: Iterable[str]) -> None:
    """Import modules for what they register; they may lie in the working directory."""
    for name in names:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # the last place, so that nothing there hides a package
        try:
            importlib.import_module(name)
        except Exception as error:  # it is somebody else's
            raise InvalidSpecError(
                f"the module {name!r} cannot be imported ({type(error).__name__}: {error}); it should lie in the "
                "working directory, or be installed"
            ) from error
        if name not in imported:
            imported.append(name)


def _origin(entry: Any) -> tuple[str, str]:
    return entry.__module__, entry.__qualname__


worlds: Registry[Callable[..., Any]] = Registry("world", positional=0)
adversaries: Registry[Callable[..., Any]] = Registry("adversary", positional=2)
learners: Registry[Callable[..., Any]] = Registry("learner", positional=2, hidden=("start", "watch"))

#: What a kind of world costs by nature, under the name that its :class:`advmdp.scene.Scene` gives.
natural_losses: Registry[Callable[..., Any]] = Registry("natural losses", positional=2)

register_world = worlds.register
register_adversary = adversaries.register
register_learner = learners.register
register_natural_losses = natural_losses.register
