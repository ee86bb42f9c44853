"""How far each namespace of a source is, and how fast it is read, from the table of the source."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from tailrace.backend.contract import Backend, Log
from tailrace.message import Mode
from tailrace.source.report import NamespaceProgress, NamespaceState
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import SplitState, find_last, read_splits

WINDOW_S: Final = 5.0
"""Rates are those of about this time before."""


class NamespaceMeter:
    """Looks at the namespaces of a source again and again. For one thread.

    The first look knows no rates.
    """

    def __init__(self, backend: Backend, source: str, monotonic: Callable[[], float]) -> None:
        self._backend = backend
        self._source = source
        self._monotonic = monotonic
        self._rows: dict[str, int] = {}
        self._counted: defaultdict[str, int] = defaultdict(int)
        self._looks: deque[tuple[float, dict[str, int]]] = deque()
        self._copied: dict[str, int | None] = {}

    def look(self) -> tuple[NamespaceProgress, ...]:
        """Return the namespaces that splits name, by name."""
        return self.measure(SplitGraph.of(read_splits(self._backend, self._source)))

    def measure(self, graph: SplitGraph) -> tuple[NamespaceProgress, ...]:
        """Return the namespaces of the splits of a table that was just read."""
        by_name: defaultdict[str, list[SplitState]] = defaultdict(list)
        for state in graph.states.values():
            if state.split.namespace:
                by_name[state.split.namespace].append(state)
        self._count(by_name)
        return tuple(self._progress(name, by_name[name], graph) for name in sorted(by_name))

    def _count(self, by_name: dict[str, list[SplitState]]) -> None:
        """Add the rows that were read since the last look."""
        rows: dict[str, int] = {}
        for name, states in by_name.items():
            for state in states:
                rows[state.split.id] = state.rows
                if self._looks:
                    self._counted[name] += max(0, state.rows - self._rows.get(state.split.id, 0))
        self._rows = rows
        now = self._monotonic()
        self._looks.append((now, dict(self._counted)))
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW_S:
            self._looks.popleft()

    def _progress(
        self, name: str, states: list[SplitState], graph: SplitGraph
    ) -> NamespaceProgress:
        copies = [each for each in states if each.split.rows_expected is not None]
        expected = sum(each.split.rows_expected or 0 for each in copies) if copies else None
        rows = sum(each.rows for each in copies or states)
        if copies and all(each.finished for each in copies):
            expected = rows = self._rows_of_copy(name, copies, rows)
        unfinished = [each for each in states if not each.finished]
        lags = [each.lag for each in unfinished if each.lag is not None]
        return NamespaceProgress(
            namespace=name,
            state=_state(unfinished, graph),
            rows=rows,
            rows_expected=expected,
            rows_per_second=self._rate(name),
            lag=sum(lags) if lags else None,
        )

    def _rows_of_copy(self, name: str, copies: Iterable[SplitState], rows: int) -> int:
        """Return the rows of a copy that is done: splits that it had may have been removed."""
        if name not in self._copied:
            log = self._backend.log
            known = (completed_rows(log, each) for each in copies if each.last is not None)
            self._copied[name] = next((each for each in known if each is not None), None)
        copied = self._copied[name]
        return rows if copied is None else copied

    def _rate(self, name: str) -> float | None:
        (first, before), (last, now) = self._looks[0], self._looks[-1]
        if last <= first:
            return None
        return (now.get(name, 0) - before.get(name, 0)) / (last - first)


def _state(unfinished: Sequence[SplitState], graph: SplitGraph) -> NamespaceState:
    if not unfinished:
        return NamespaceState.FINISHED
    if all(graph.waits_for(each.split.id) for each in unfinished):
        return NamespaceState.WAITING
    if any(each.split.rows_expected is not None for each in unfinished):
        return NamespaceState.COPYING
    return NamespaceState.FOLLOWING


def completed_rows(log: Log, state: SplitState) -> int | None:
    """Return the rows that the Complete record of a split counts; None if it has stored none."""
    record = find_last(log, state)
    if record is None or record.mode != Mode.COMPLETE:
        return None
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(record.value, type=dict[str, int]).get("rows")
    return None
