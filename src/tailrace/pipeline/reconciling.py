"""Bringing a writer's ledger and its sink into agreement, when it is taken over."""

from __future__ import annotations

from tailrace.backend.embedded.reading import EmbeddedLog
from tailrace.errors import Error
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
    it was never to be given. Not stored by this.

    An `Error` where the record ends before what compaction has dropped, as that of a sink does
    which was restored from a backup: what lies between can no longer be delivered.
    """
    for partition, progress in books.progress.items():
        held = writer.applied(str(books.name), _stream(books, partition), hub)
        if held is None:
            continue
        if writer.keeps_record:
            progress.reset(0)
            progress.merge(books.skipped[partition])
        for offsets in held:
            progress.ack(*offsets)
        if writer.keeps_record:
            _check_deliverable(books, partition, progress.highest + 1)


def _check_deliverable(books: Books, partition: Partition, start: int) -> None:
    log = books.backend.log
    whole_from = log.compacted_below(partition) if isinstance(log, EmbeddedLog) else 0
    if start < whole_from:
        lost = f"{partition}@{start}-{whole_from - 1}"
        raise Error(
            f"the sink does not have {lost}, and of that the commit log has only what compaction"
            " has left",
            "restore a newer copy of the sink, or go on without it: "
            f"tailrace pipeline ack {books.name} {lost} --reason TEXT",
        )


def _stream(books: Books, partition: Partition) -> str:
    return stream_name(books.view.definition.identity, partition)
