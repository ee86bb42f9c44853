"""Rows of a pipeline, from documents."""

from __future__ import annotations

import json
from typing import Any

from tailrace.log.record import Record
from tailrace.log.schema import from_records
from tailrace.message import Mode, Op
from tailrace.pipeline.transform.rows import Rows


def record(
    offset: int,
    document: Any,
    namespace: str = "orders",
    op: Op = Op.INSERT,
    mode: Mode = Mode.SYNC,
    headers: dict[str, bytes] | None = None,
) -> Record:
    value = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Record(offset, 0, mode, op, namespace.encode(), headers, value)


def rows(*documents: Any, namespace: str = "orders") -> Rows:
    """Return a row for each document, at the offsets 0, 1, 2, …"""
    return Rows(from_records([record(i, each, namespace) for i, each in enumerate(documents)]))


def rows_of(*records: Record) -> Rows:
    return Rows(from_records(records))


def values(of: Rows) -> list[Any]:
    """Return the documents as a writer decodes them from the records."""
    return list(Rows(of.encoded).documents)
