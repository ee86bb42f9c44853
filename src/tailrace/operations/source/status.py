"""Sources with their states, looked at again and again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tailrace.hub.hub import Hub
from tailrace.operations.source.describe import SourceView, SourceWatch
from tailrace.operations.source.health import is_well, judge_source


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source, its state, the reason, and since when it has the state, if that is known."""

    state: str
    why: str
    since: datetime | None
    well: bool
    source: SourceView


class SourceStatusWatch:
    """Looks at the sources of a hub: rates are known from the second look on."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._watch = SourceWatch(hub)

    def look(self, name: str | None = None) -> list[SourceStatus]:
        """Return all sources, or the one of a name. Raises `UnknownSource`."""
        return [self._status(view) for view in self._watch.look(name)]

    def _status(self, view: SourceView) -> SourceStatus:
        health = judge_source(self._hub, view)
        state = health.state
        return SourceStatus(state.value, health.why, health.since, is_well(state), view)
