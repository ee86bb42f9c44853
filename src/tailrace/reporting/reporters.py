"""The parts of a process that report about a hub: workers, consumers, producers, pipelines.

They count by themselves, mostly in plain attributes, and are read when somebody asks. So metrics
that nobody asks for cost next to nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from tailrace.reporting.metric import MetricKind
from tailrace.reporting.sample import Sample, summed

_log: Final = logging.getLogger("tailrace.metrics")


class Reporter(Protocol):
    """A part of the process that reports. Any thread may call it, at any time."""

    def report(self) -> Iterable[Sample]:
        """Return its samples of now. A bounded time, and nothing for which the hub waits."""

    def unready(self) -> str | None:
        """Return why it does not work yet, or not any more, in a few words; None if it works."""


class SharedReporter(Reporter, Protocol):
    """A reporter that all parts of the process share."""

    def forget(self) -> None:
        """Count from 0: in a forked child, where a lock may be held for ever."""


R = TypeVar("R", bound=SharedReporter)


class Reporters:
    """What reports about one hub in this process. Any thread may use it.

    It keeps no reporter alive, except those that it has made itself.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._living: WeakSet[Reporter] = WeakSet()
        self._kept: dict[Hashable, SharedReporter] = {}
        self._past: list[Sample] = []
        """The counts of reporters that have ended: a counter never falls."""

    def add(self, reporter: Reporter) -> None:
        """Ask a reporter from now on, until `retire`, or until nothing else uses it."""
        with self._mutex:
            self._living.add(reporter)

    def retire(self, reporter: Reporter) -> None:
        """Keep the counts of a reporter that ends, and ask it no more."""
        samples = _asked(reporter)
        with self._mutex:
            if reporter in self._living:
                self._living.discard(reporter)
                past = summed([*self._past, *samples])
                self._past = [each for each in past if each.metric.kind is not MetricKind.GAUGE]

    @contextmanager
    def reporting(self, reporter: Reporter) -> Iterator[None]:
        """Ask a reporter during the block, and keep its counts."""
        self.add(reporter)
        try:
            yield
        finally:
            self.retire(reporter)

    def shared(self, name: Hashable, make: Callable[[], R]) -> R:
        """Return the reporter of a name, which all parts of the process share. It never ends."""
        with self._mutex:
            found = self._kept.get(name)
            if found is None:
                found = self._kept[name] = make()
            return cast("R", found)

    def samples(self) -> list[Sample]:
        """Return the samples of all reporters, summed up by series."""
        past, reporters = self._all()
        return summed([*past, *(sample for each in reporters for sample in _asked(each))])

    def unready(self) -> str | None:
        """Return why a reporter does not work; None if all work."""
        for reporter in self._all()[1]:
            try:
                reason = reporter.unready()
            except Exception as error:
                reason = str(error)
            if reason is not None:
                return reason
        return None

    def abandon(self) -> None:
        """In a forked child: forget the reporters of the parent, and what was counted."""
        self._mutex = threading.Lock()
        self._living, self._past = WeakSet(), []
        for reporter in self._kept.values():
            reporter.forget()

    def _all(self) -> tuple[list[Sample], list[Reporter]]:
        with self._mutex:
            return self._past, [*self._kept.values(), *self._living]


def _asked(reporter: Reporter) -> list[Sample]:
    try:
        return list(reporter.report())
    except Exception:
        _log.exception("%s could not report its metrics", type(reporter).__name__)
        return []


_reporters: WeakKeyDictionary[Any, Reporters] = WeakKeyDictionary()
_mutex = threading.Lock()


def reporters_of(hub: object) -> Reporters:
    """Return what reports about a hub, given by its backend, in this process."""
    with _mutex:
        found = _reporters.get(hub)
        if found is None:
            found = _reporters[hub] = Reporters()
        return found


def _abandon_all() -> None:
    """In a forked child, which has counted nothing yet."""
    global _mutex  # noqa: PLW0603
    _mutex = threading.Lock()
    for reporters in list(_reporters.values()):
        reporters.abandon()


os.register_at_fork(after_in_child=_abandon_all)
