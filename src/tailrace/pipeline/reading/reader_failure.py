"""Why the reader of a pipeline failed, stored in the hub until it reads again.

table readers/lake, key failure: the time and the error
"""

from __future__ import annotations

import msgspec

from tailrace.backend.contract import Backend, TableKey, Transaction


class ReaderFailure(msgspec.Struct, frozen=True):
    """The time and the error of a failed reader."""

    since_ms: int
    error: str


def find_failure(backend: Backend, pipeline: str) -> ReaderFailure | None:
    """Return why the reader of a pipeline failed; None if it did not, or has read again since."""
    stored = backend.table.get(*_key(pipeline))
    return None if stored is None else msgspec.json.decode(stored, type=ReaderFailure)


def store_failure(backend: Backend, pipeline: str, failure: ReaderFailure) -> None:
    """Store the failure. Only for the process that runs the pipeline."""
    backend.commit(Transaction(table={_key(pipeline): msgspec.json.encode(failure)}))


def clear_failure(backend: Backend, pipeline: str) -> None:
    """Remove the failure, because the reader reads again.

    Only for the process that runs the pipeline.
    """
    if find_failure(backend, pipeline) is not None:
        backend.commit(Transaction(table={_key(pipeline): None}))


def _key(pipeline: str) -> TableKey:
    return TableKey(f"readers/{pipeline}", b"failure")
