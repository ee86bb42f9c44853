"""A reader of two scripted splits, of which one raises errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tailrace.log.record import Record
from tailrace.source.reader import Batch, Preview, Split
from tests.unit.source.scripted_reader import ScriptedReader, ScriptedReading, rows


class Failing(ScriptedReading):
    """Split `a` raises what `error` returns, as long as it returns something."""

    error: Callable[[], Exception | None] = staticmethod(lambda: None)
    reads = 0

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        for batch in self._script[split.id][position or 0 :]:
            if split.id == "a":
                self.reads += 1
                if error := self.error():
                    raise error
            yield batch


class PreviewedReader(ScriptedReader, frozen=True):
    def check(self) -> Preview:
        return Preview("a script", [("ns", {})])


def script(count: int) -> dict[str, list[Batch | None]]:
    return {
        name: [
            Batch(rows(f"{name}{n}"), n + 1, finished=n == count - 1, children=())
            for n in range(count)
        ]
        for name in "ab"
    }


def failing(*, times: int, error: Exception, count: int = 5) -> Failing:
    reading = Failing(script(count), (Split("a"), Split("b")))
    errors = iter([error] * times)
    reading.error = lambda: next(errors, None)
    return reading
