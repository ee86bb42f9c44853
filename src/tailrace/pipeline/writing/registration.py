"""The registration of a new writer, and where it starts."""

from __future__ import annotations

from tailrace.backend.contract import Log
from tailrace.errors import ConfigError
from tailrace.message import Partition
from tailrace.pipeline.definition.definition import WriterDefinition
from tailrace.pipeline.definition.settings import Start
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.writing.writer_ledger import WriterLedger
from tailrace.topic.consumers import consumers, register, unregister


def register_writer(ledger: WriterLedger, definition: WriterDefinition) -> None:
    """Register a writer as a consumer of the commit log, unless it is registered.

    A writer that starts at the latest record acknowledges all records before. A writer that starts
    at the earliest record is refused if compaction has removed records: `ConfigError`.
    """
    store, topic = ledger.backend.store, ledger.view.topic
    if str(ledger.name) in consumers(store, topic):
        return
    ledger.take_over()
    if definition.settings.start is Start.LATEST:
        if ledger.is_new:
            _skip_all(ledger)
        register(store, topic, str(ledger.name))
        return
    # Before the check, so that compaction removes no more records.
    register(store, topic, str(ledger.name))
    try:
        for partition in ledger.progress:
            _check_whole(ledger.backend.log, partition, definition.name)
    except ConfigError:
        unregister(store, topic, str(ledger.name))
        raise


def _skip_all(ledger: WriterLedger) -> None:
    for partition in ledger.progress:
        end = ledger.backend.log.bounds(partition).end
        ledger.skip(partition, Offsets(0, end))
    ledger.commit(plan=ledger.plan)


def _check_whole(log: Log, partition: Partition, writer: str) -> None:
    whole_from = log.whole_from(partition)
    if whole_from:
        end = log.bounds(partition).end
        raise ConfigError(
            f"writer.{writer}.start: records of {partition} before {whole_from:,} were compacted",
            f"only {whole_from:,} to {end:,} is complete",
            'start at the end instead: start = "latest"',
        )
