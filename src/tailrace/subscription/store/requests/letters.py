"""The dead letters of a subscription: the unacknowledged records of its DLQ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.backend.contract import Backend
from tailrace.backend.table_scan import scan_all
from tailrace.delivery.dead_letters.letter import ERROR, POSITION
from tailrace.delivery.dead_letters.mailbox import Mailbox
from tailrace.subscription.shard.attempts import (
    Attempts,
    attempts_table,
    decode_attempts,
    origin_of_key,
)
from tailrace.subscription.shard.moved_record import RESET
from tailrace.subscription.shard.requests.request import LetterPlace
from tailrace.subscription.store.definition import StoredSubscription
from tailrace.subscription.store.ledgers import read_ledger
from tailrace.subscription.store.names import dead_letter_queue
from tailrace.subscription.store.queue_scan import key_places
from tailrace.topic.view import View


class PendingLetter(NamedTuple):
    """A dead letter without its value. `key` is None if it follows no other message.

    `origin` is its position in the topic, `error` the error when it became a dead letter, and
    `time_ms` the time of that.
    """

    place: LetterPlace
    key: bytes | None
    origin: str
    error: str
    time_ms: int


def open_letters(backend: Backend, stored: StoredSubscription) -> Mailbox:
    """Return all dead letters of a subscription."""
    view = View(backend, dead_letter_queue(stored.name), stored.dlq)
    return Mailbox(view, stored.name, ledger=partial(read_ledger, backend, stored))


def read_letters(
    backend: Backend, stored: StoredSubscription, keys: Collection[bytes] = ()
) -> Iterator[PendingLetter]:
    """Yield the dead letters of a subscription, those of each key in order: of some keys, or of
    all and without a key."""
    within = {each for key in keys for each in key_places(stored, key).dlq} if keys else None
    for partition, found in open_letters(backend, stored).unresolved(within):
        records = _of_keys(found, keys) if keys else found
        columns = zip(
            records["offset"].to_pylist(),
            records["key"].to_pylist(),
            _header(records, POSITION),
            _header(records, RESET),
            _header(records, ERROR),
            records["timestamp"].cast(pa.int64()).to_pylist(),
            strict=True,
        )
        for offset, key, position, reset, error, time_ms in columns:
            place = LetterPlace(partition.storage, partition.number, offset)
            origin = f"{position}+r{reset}" if reset else position
            yield PendingLetter(place, key or None, origin, error, time_ms)


def _of_keys(records: pa.RecordBatch, keys: Collection[bytes]) -> pa.RecordBatch:
    """Return the records of some keys."""
    wanted: Any = pa.array(list(keys), records["key"].type)
    mask: Any = pc.is_in(records["key"], value_set=wanted)
    return records.filter(mask)


def read_last_errors(backend: Backend, subscription: str) -> Mapping[str, str]:
    """Return the last error of each message with failed attempts, by origin."""
    found = read_failed_attempts(backend, subscription)
    return {origin: attempts.error for origin, attempts in found.items() if attempts.error}


def read_failed_attempts(backend: Backend, subscription: str) -> Mapping[str, Attempts]:
    """Return the attempts of each message that has any, by origin."""
    return {
        str(origin_of_key(key)): decode_attempts(value)
        for key, value in scan_all(backend.table, attempts_table(subscription))
    }


def letter_position(subscription: str, place: LetterPlace) -> str:
    """Return the position of a letter in DLQ."""
    storage, partition, offset = place
    return f"{dead_letter_queue(subscription)}/{storage}.{partition}@{offset}"


def _header(records: pa.RecordBatch, name: str) -> list[str]:
    found: Any = pc.map_lookup(records["headers"], query_key=pa.scalar(name), occurrence="first")
    return [(each or b"").decode("utf-8", "backslashreplace") for each in found.to_pylist()]
