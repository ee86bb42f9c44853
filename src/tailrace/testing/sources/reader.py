"""The reader of a scripted system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.source.reader import Batch, Closeable, Split, Until
from tailrace.testing.simulation import Simulation
from tailrace.testing.sources.script import ScriptedBatch, SourceScript


class ReaderBroke(Exception):
    """The simulated system does not answer."""


class ScriptedSession(Closeable):
    """An opened reader of a scripted system. A position is the number of batches read.

    The part `failure` of its reads raises `ReaderBroke`.
    """

    def __init__(
        self,
        simulation: Simulation,
        script: SourceScript,
        until: Until,
        random: Random,
        failure: Callable[[], float],
    ) -> None:
        self._simulation = simulation
        self._script = script
        self._until = until
        self._random = random
        self._failure = failure

    def splits(self) -> tuple[Split, ...]:
        """Return the first splits."""
        return self._script.first

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        """Yield the batches of a split. Checks what it was given."""
        number = 0 if position is None else position
        value = None if last is None else last.value
        expected = self._script.last_row(split.id, number)
        assert value == expected, f"{split.id} is read with last {value!r} instead of {expected!r}"
        ends = {each: len(self._script.batches[each]) for each in split.follows}
        assert dict(followed) == ends, f"{split.id} is read with {dict(followed)}, not {ends}"
        return self._batches(split.id, number)

    def _batches(self, split_id: str, start: int) -> Iterator[Batch | None]:
        for number, batch in enumerate(self._script.batches[split_id][start:], start):
            while self._simulation.now < batch.at_s:
                if batch.ends or self._until is Until.NOW:
                    return
                yield None
            if self._random.random() < self._failure():
                raise ReaderBroke(f"{split_id} does not answer")
            yield self._batch(split_id, number, batch)
        while self._until is Until.STOPPED and not self._script.finishes(split_id):
            yield None

    def _batch(self, split_id: str, number: int, batch: ScriptedBatch) -> Batch:
        rows = [
            Record(0, 0, Mode.SYNC, Op.INSERT, split_id.encode(), None, value)
            for value in self._script.rows(split_id, number)
        ]
        return Batch(
            from_records(rows) if rows else None,
            number + 1,
            children=batch.children,
            finished=batch.finished,
        )
