"""Names for worlds, adversaries and learners: ours, and those that other packages add.

A user's class or function joins a registry by decorator, ``@register_world("my-world")``, or by an entry
point of their package in the group ``advmdp.worlds``, ``advmdp.adversaries`` or ``advmdp.learners``.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from advmdp.errors import InvalidSpecError

T = TypeVar("T", bound=Callable[..., Any])


class Registry(Generic[T]):
    """A table from names to the functions or classes that build what is named."""

    def __init__(self, kind: str, positional: int) -> None:
        self.kind = kind
        self.group = f"advmdp.{'adversaries' if kind == 'adversary' else kind + 's'}"
        # Arguments that come before the options of an entry.
        self._positional = positional
        self._entries: dict[str, T] = {}
        self._loaded_entry_points = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that enters a function or class under a name that is still free."""

        def enter(entry: T) -> T:
            if self._entries.get(name, entry) is not entry:
                raise InvalidSpecError(f"{self.kind} {name!r} is already registered")
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
            raise InvalidSpecError(
                f"unknown {self.kind} {name!r}{hint}; there are: {', '.join(self.names())}"
            )
        return self._entries[name]

    def options(self, name: str) -> dict[str, Any]:
        """The options of an entry with their defaults (``inspect.Parameter.empty`` where required)."""
        parameters = list(inspect.signature(self.get(name)).parameters.values())
        return {p.name: p.default for p in parameters[self._positional :] if p.name != "seed"}

    def make(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Build what is named; an unknown or missing option is an error that names the valid ones."""
        entry = self.get(name)
        known = self.options(name)
        for option in options:
            if option not in known and option not in inspect.signature(entry).parameters:
                raise InvalidSpecError(
                    f"{self.kind} {name!r} has no option {option!r}; it has: {', '.join(known) or 'none'}"
                )
        missing = [
            option
            for option, default in known.items()
            if default is inspect.Parameter.empty and option not in options
        ]
        if missing:
            raise InvalidSpecError(f"{self.kind} {name!r} needs the option {missing[0]!r}")
        return entry(*arguments, **options)

    def _load_entry_points(self) -> None:
        if self._loaded_entry_points:
            return
        self._loaded_entry_points = True
        for point in entry_points(group=self.group):
            self.register(point.name)(point.load())


worlds: Registry[Callable[..., Any]] = Registry("world", positional=0)
adversaries: Registry[Callable[..., Any]] = Registry("adversary", positional=2)
learners: Registry[Callable[..., Any]] = Registry("learner", positional=2)

register_world = worlds.register
register_adversary = adversaries.register
register_learner = learners.register
