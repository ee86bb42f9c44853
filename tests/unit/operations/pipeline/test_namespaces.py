"""The progress of a pipeline's writers by namespace."""

from __future__ import annotations

from tailrace.backend.contract import Transaction
from tailrace.log.record import Record
from tailrace.operations.pipeline.namespaces import namespace_offsets
from tailrace.pipeline.writing.writer_ledger import WriterLedger, WriterName
from tests.support.pipelines.lake import LOG, Lake

EXAMPLE = "AABBAABBCACBAACBAAABBAABBCAC"


def push_example(lake: Lake) -> None:
    """Push the example log, and acknowledge some of its offsets for the writer c0."""
    lake.rows = 0
    lake.writers = ("c0",)
    assert lake.run()
    records = tuple(Record(0, 0, 0, 0, key.encode(), None, b"{}") for key in EXAMPLE)
    lake.hub.backend.commit(Transaction(((LOG, records),)))
    ledger = WriterLedger(
        lake.hub.backend, WriterName("lake", "c0"), lake.hub.topic("lake.commits").view
    )
    ledger.take_over()
    ledger.progress[LOG].ack(0, 24)
    ledger.progress[LOG].ack(25, 28)
    ledger.commit(plan=None)


def test_the_offsets_of_namespaces_are_shown_with_the_hole_at_24(
    lake: Lake,
) -> None:
    push_example(lake)
    rows = namespace_offsets(lake.hub, "lake")
    assert [(r.namespace, r.acknowledged, r.waiting, r.holes) for r in rows] == [
        ("A", 26, 0, ()),
        ("B", 23, 1, (24,)),
        ("C", 27, 0, ()),
    ]


def test_namespaces_that_a_writer_does_not_get_are_left_out(lake: Lake) -> None:
    lake.namespaces = ("User", "FooUser", "Order")
    lake.options = {"namespace": "/User/"}
    assert lake.run()
    rows = namespace_offsets(lake.hub, "lake")
    assert [(r.namespace, r.acknowledged) for r in rows] == [("FooUser", 13), ("User", 15)]
