"""The trace of a simulation: one line for each event."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

LINES_MAX: Final = 1_000_000
"""The number of lines that a trace keeps: the newest ones."""


class Mark(Enum):
    """The kind of event of a line."""

    EVENT = "*"
    LOST = "x"
    HELD = "="
    STORE = "$"
    NOTE = "-"
    FAULT = "!"
    CLOCK = "~"


LEGEND: Final = """\
Each line: the time in virtual seconds, a mark, the place, the event.
  *  a process handled an event; after => the actions that follow
  x  the network lost a message
  =  the network holds a message back
  $  a store failed or stalled
  -  an event outside the protocol machines
  !  a fault begins or ends
  ~  a wall clock steps
"""


class Line(NamedTuple):
    """One event, and the actions that a machine returned for it."""

    at: float
    mark: Mark
    where: str
    what: object
    actions: tuple[object, ...] = ()

    def __str__(self) -> str:
        actions = " ".join(("  =>", *map(describe, self.actions))) if self.actions else ""
        return f"{self.at:12.6f} {self.mark.value} {self.where:<6} {describe(self.what)}{actions}"


class Trace:
    """The lines of one run, oldest first. Lines are values; they become text when printed."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines: deque[Line] = deque(maxlen=lines_max)

    def add(
        self, at: float, mark: Mark, where: str, what: object, actions: tuple[object, ...] = ()
    ) -> None:
        """Append a line."""
        self._lines.append(Line(at, mark, where, what, actions))

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines)

    def text(self, *, last: int | None = None, hiding: Collection[Mark] = ()) -> str:
        """Return the legend and the newest `last` lines, or all, without the hidden marks."""
        lines = [line for line in self._lines if line.mark not in hiding]
        shown = lines if last is None else lines[-last:]
        return "\n".join([LEGEND, *map(str, shown)]) + "\n"

    def __str__(self) -> str:
        return self.text()


def describe(value: Any) -> str:
    """Return a short text of a value, the same in every run: type names, and fields in order."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, msgspec.Struct):
        fields = [getattr(value, name) for name in value.__struct_fields__]
        return f"{type(value).__name__}({_listed(fields)})"
    if isinstance(value, Mapping):
        pairs = (f"{describe(key)}: {describe(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(describe, value))) + "}"
    if isinstance(value, tuple):
        name = type(value).__name__ if hasattr(value, "_fields") else ""
        return f"{name}({_listed(value)})"
    return str(value)


def _listed(values: Collection[Any]) -> str:
    return ", ".join(describe(value) for value in values)
