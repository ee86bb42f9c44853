"""A writer that a pipeline did not have before: where it begins."""

from __future__ import annotations

from tailrace.backend.contract import Log
from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import ConfigError
from tailrace.message import Partition
from tailrace.pipeline.books import Books
from tailrace.pipeline.definition import Start, WriterDefinition
from tailrace.pipeline.offsets import Offsets
from tailrace.topic.consumers import consumers, forget, register


def enrol(books: Books, definition: WriterDefinition) -> None:
    """Register a writer as a consumer of the commit log, unless it is one.

    One that begins with the latest record has everything before it acknowledged, and one that
    begins with the earliest is refused where compaction has dropped some: `ConfigError`.
    """
    store, topic = books.backend.store, books.view.topic
    if str(books.name) in consumers(store, topic):
        return
    books.take()
    if definition.start is Start.LATEST:
        if books.is_new:
            _skip_all(books)
        register(store, topic, str(books.name))
        return
    # First of all nothing more may be compacted.
    register(store, topic, str(books.name))
    try:
        for partition in books.progress:
            _check_whole(books.backend.log, partition, definition.name)
    except ConfigError:
        forget(store, topic, str(books.name))
        raise


def _skip_all(books: Books) -> None:
    for partition in books.progress:
        end = books.backend.log.bounds(partition).end
        books.skip(partition, Offsets(0, end))
    books.commit(plan=books.plan)


def _check_whole(log: Log, partition: Partition, writer: str) -> None:
    if not isinstance(log, EmbeddedLog):
        return
    whole_from = log.compacted_below(partition)
    if whole_from:
        end = log.bounds(partition).end
        raise ConfigError(
            f"writer.{writer}.start: records of {partition} before {whole_from:,} were compacted",
            f"it is whole from {whole_from:,} to {end:,}",
            'begin there: start = "latest"',
        )
