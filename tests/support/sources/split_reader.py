"""A reader of numbers in several splits, which any tasks share. It needs no files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.source.reader import Batch, Closeable, Preview, Reader, ReaderSession, Split, Until


class SplitReader(Reader, frozen=True):
    """Rows ``{"s":"a","n":0}`` and on, in batches, of the namespace of each split.

    A split has `rows` rows. With `rows_file` the number in that file, which is read again and
    again, is that of every split, and no split is ever finished. Each batch takes `delay_s`. The
    splits of `after` begin when all of `splits` are finished; `unmet` follows a split that nobody
    reports.
    """

    splits: tuple[str, ...] = ("a", "b", "c", "d")
    rows: int = 10
    after: tuple[str, ...] = ()
    unmet: bool = False
    batch: int = 5
    delay_s: float = 0.0
    rows_file: str = ""

    def check(self) -> Preview:
        return Preview("numbers", [("a", {"n": 0})])

    def open(self, until: Until) -> ReaderSession:
        return _Numbers(self, until)

    def there(self) -> int:
        # Empty for the moment in which a test writes it.
        return int(Path(self.rows_file).read_text() or 0) if self.rows_file else self.rows


class _Numbers(Closeable):
    def __init__(self, reader: SplitReader, until: Until) -> None:
        self._reader = reader
        self._until = until

    def splits(self) -> Iterable[Split]:
        reader = self._reader
        expected = None if reader.rows_file else reader.rows
        for name in reader.splits:
            yield Split(name, kept=True, namespace=name, rows_expected=expected)
        for name in reader.after:
            yield Split(name, follows=reader.splits, namespace=name)
        if reader.unmet:
            yield Split("unmet", follows=("never",), namespace="unmet")

    def read(
        self, split: Split, position: Any, last: Record | None, followed: Mapping[str, Any]
    ) -> Iterator[Batch | None]:
        reader, at = self._reader, position or 0
        there = reader.there()
        while True:
            if at < there:
                end = min(there, at + reader.batch)
                time.sleep(reader.delay_s)
                finished = end == there and not reader.rows_file
                yield Batch(_records(split.id, range(at, end)), end, finished=finished)
                at = end
                if finished:
                    return
            elif self._until is Until.NOW:
                return
            else:
                yield None
                there = reader.there()


def _records(split: str, numbers: range) -> Any:
    return from_records(
        [
            Record(
                0,
                0,
                Mode.COPY,
                Op.INSERT,
                split.encode(),
                None,
                b'{"s":"%s","n":%d}' % (split.encode(), n),
            )
            for n in numbers
        ]
    )
