"""Records that Tailrace stored again: redelivered dead letters, and copies of replays.

A dead letter for one consumer alone has the header `FOR`, with the full name of its consumer. If
the consumer is a group, it also has the header `ORIGIN`. A message that a replay has pushed again
has the header `REPLAYED`. All are for Tailrace: messages and deliveries do not show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.schema import HEADERS
from tailrace.reserved_names import INTERNAL_PREFIX

FOR: Final = f"{INTERNAL_PREFIX}for"
"""The full name of the consumer that alone may process the record: ``lake/crm``, ``billing``."""

ORIGIN: Final = f"{INTERNAL_PREFIX}origin"
"""The position that the record had at first."""

REPLAYED: Final = f"{INTERNAL_PREFIX}replayed"
"""The id of the replay that has pushed the record again."""

_HIDDEN: Final = frozenset((FOR, ORIGIN, REPLAYED))


def addressees_of(headers: pa.Array[Any]) -> Any:
    """Return, for each record, the consumer that alone may process it, or null; None if no record
    names one.

    `headers` is the column of the headers.
    """
    if not _occurs(headers, FOR):
        return None
    return pc.map_lookup(headers, query_key=pa.scalar(FOR), occurrence="first")


def replays_of(headers: pa.Array[Any]) -> Any:
    """Return, for each record, the replay that has pushed it again, or null; None if no record
    names one.

    `headers` is the column of the headers.
    """
    if not _occurs(headers, REPLAYED):
        return None
    return pc.map_lookup(headers, query_key=pa.scalar(REPLAYED), occurrence="first")


def replay_in(headers: Mapping[str, bytes]) -> str | None:
    """Return the replay that has pushed a record again; None for other records."""
    found = headers.get(REPLAYED)
    return None if found is None else found.decode("utf-8", "backslashreplace")


def shown_headers(headers: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return the headers that users see: the same mapping if they see all."""
    if _HIDDEN.isdisjoint(headers):
        return headers
    return {name: value for name, value in headers.items() if name not in _HIDDEN}


def with_shown_headers(records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records with the headers that users see: the same batch if they see all."""
    headers = records["headers"]
    if not any(_occurs(headers, name) for name in _HIDDEN):
        return records
    kept = [
        [pair for pair in pairs or () if pair[0] not in _HIDDEN] for pairs in headers.to_pylist()
    ]
    column = pa.array([pairs or None for pairs in kept], HEADERS)
    return records.set_column(records.schema.get_field_index("headers"), "headers", column)


def origin_of(headers: Mapping[str, bytes]) -> str | None:
    """Return the position that a redelivered record had at first; None for other records."""
    found = headers.get(ORIGIN)
    return None if found is None else found.decode("utf-8", "backslashreplace")


def _occurs(headers: pa.Array[Any], name: str) -> bool:
    if headers.null_count == len(headers):
        return False
    names: Any = headers
    return bool(pc.index(names.keys, pa.scalar(name)).as_py() >= 0)
