"""Bringing a writer's ledger and its sink into agreement, when it is taken over."""

from __future__ import annotations

from tailrace.hub import Hub
from tailrace.message import Partition
from tailrace.pipeline.books import Books
from tailrace.pipeline.writer import Writer, stream_name


def forget_rewound(books: Books, writer: Writer, hub: Hub) -> None:
    """Let the sink's own record know where an operator rewound the writer to."""
    if books.rewind is None:
        return
    for text, offset in books.rewind.offsets.items():
        writer.forget(str(books.name), _stream(books, Partition.parse(text)), offset, hub)
    books.rewound()


def reconcile(books: Books, writer: Writer, hub: Hub) -> None:
    """Acknowledge what the sink says it holds; and where it keeps a record, nothing else but what
    it was never to be given. Not stored by this."""
    for partition, progress in books.progress.items():
        held = writer.applied(str(books.name), _stream(books, partition), hub)
        if held is None:
            continue
        if writer.keeps_record:
            progress.reset(0)
            progress.merge(books.skipped[partition])
        for offsets in held:
            progress.ack(*offsets)


def _stream(books: Books, partition: Partition) -> str:
    return stream_name(books.view.definition.identity, partition)
