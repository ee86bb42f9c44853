"""A reader of numbers, which needs no files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.source.reader import Batch, Closeable, Preview, Reader, ReaderSession, Split, Until


class CountingReader(Reader, frozen=True):
    """Rows ``{"n": 0}`` and on, in batches, of the namespaces in turn.

    Their number is `rows`, or the number in the file `rows_file`, which is read again and again.
    With `released_file`, rows from the number in that file on wait until it is raised.
    """

    rows: int = 0
    namespaces: tuple[str, ...] = ("numbers",)
    batch: int = 1000
    rows_file: str = ""
    released_file: str = ""

    def check(self) -> Preview:
        return Preview("numbers", [("numbers", {"n": 0})])

    def open(self, until: Until) -> ReaderSession:
        return _Counting(self, until)

    def there(self) -> int:
        return _number_in(self.rows_file) if self.rows_file else self.rows

    def released(self) -> int:
        return _number_in(self.released_file) if self.released_file else self.there()


def _number_in(file: str) -> int:
    while not (text := Path(file).read_text()):
        time.sleep(0.001)  # The test writes the file now: it is empty in between.
    return int(text)


class _Counting(Closeable):
    def __init__(self, reader: CountingReader, until: Until) -> None:
        self._reader = reader
        self._until = until
        self._there = reader.there()

    def splits(self) -> Iterable[Split]:
        return [Split("numbers")]

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        reader, at = self._reader, position or 0
        while True:
            end = min(self._there, at + reader.batch)
            if at < end and end > reader.released():
                yield None
            elif at < end:
                names = [reader.namespaces[n % len(reader.namespaces)] for n in range(at, end)]
                records = from_records(
                    [
                        Record(0, 0, Mode.COPY, Op.INSERT, name.encode(), None, b'{"n":%d}' % n)
                        for n, name in zip(range(at, end), names, strict=True)
                    ]
                )
                yield Batch(records, end)
                at = end
            elif self._until is Until.NOW:
                return
            else:
                yield None
                self._there = reader.there()
