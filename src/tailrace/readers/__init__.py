"""The readers of pipelines, ``readers.file("in/*.jsonl")``, and the contract of a reader plug-in.

A reader subclasses `Reader`; `Reader.open` returns a `ReaderSession`, which yields `Batch` after
`Batch`. `tailrace.source.reader` holds the contract.

To add a reader for another system: outside Tailrace, write a package with an entry point of the
group ``tailrace.readers``, as ``docs/writing-plugins.md`` shows. In Tailrace, add a package here,
add its class to the table of built-in readers in `tailrace.pipeline.definition.plugins`, and
describe it in ``docs/readers.md``.
"""

from __future__ import annotations

from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.readers.file.reader import FileReader
from tailrace.readers.topic.reader import TopicReader
from tailrace.source.reader import (
    BadRecord,
    Batch,
    Closeable,
    Preview,
    Push,
    Reader,
    ReaderSession,
    Split,
    Until,
)

__all__ = [
    "BadRecord",
    "Batch",
    "Closeable",
    "FileReader",
    "Preview",
    "Push",
    "Reader",
    "ReaderSession",
    "Record",
    "Split",
    "TopicReader",
    "Until",
    "file",
    "from_records",
    "topic",
]

file = FileReader
topic = TopicReader
