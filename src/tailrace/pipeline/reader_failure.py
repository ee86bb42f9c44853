"""Why the reader of a pipeline stopped, kept in the hub until it reads again.

readers/lake      failure    when, and what it said
"""

from __future__ import annotations

import msgspec

from tailrace.backend.contract import Backend, TableKey, Transaction


class ReaderFailure(msgspec.Struct, frozen=True):
    """When a reader failed, and what it said."""

    since_ms: int
    error: str


def find_failure(backend: Backend, pipeline: str) -> ReaderFailure | None:
    """Why the reader of a pipeline stopped; None when it did not, or has read again since."""
    stored = backend.table.get(*_key(pipeline))
    return None if stored is None else msgspec.json.decode(stored, type=ReaderFailure)


def store_failure(backend: Backend, pipeline: str, failure: ReaderFailure) -> None:
    """Keep it. For whoever holds the pipeline."""
    backend.commit(Transaction(table={_key(pipeline): msgspec.json.encode(failure)}))


def clear_failure(backend: Backend, pipeline: str) -> None:
    """It reads again. For whoever holds the pipeline."""
    if find_failure(backend, pipeline) is not None:
        backend.commit(Transaction(table={_key(pipeline): None}))


def _key(pipeline: str) -> TableKey:
    return TableKey(f"readers/{pipeline}", b"failure")
