"""Idempotent producers: a fence on the producer's name, and a number beside its records.

The table ``producers/TOPIC/IDENTITY`` has, per name, the number of its stored messages, written in
the commit that stores them. A producer that opens a name raises its fence and then reads the
number, so no message of an earlier owner can be stored after that. After a commit of unknown
outcome the owner opens its own name again, which shows the outcome.
"""

from __future__ import annotations

from typing import Final

from tailrace.backend.contract import (
    FENCES,
    Backend,
    Change,
    Fence,
    TableKey,
    Transaction,
    raise_fence,
)
from tailrace.errors import BackendUnavailable, Conflict, Fenced, OutcomeUnknown
from tailrace.log.record import decode_records
from tailrace.message import Receipts
from tailrace.topic.composite import check_name
from tailrace.topic.reading import find_run
from tailrace.topic.routed_batch import Part, RoutedBatch
from tailrace.topic.view import View, commit_following

ATTEMPTS_MAX: Final = 5
"""The number of attempts to send a batch whose earlier attempts turned out not to be stored."""


class ProducerName:
    """A name that this producer owns, until a newer producer opens it."""

    __slots__ = ("_backend", "_key", "fence", "stored")

    def __init__(self, backend: Backend, topic: str, identity: str, name: str) -> None:
        """Open the name: from now on every earlier owner of it is `Fenced`."""
        self._backend = backend
        self._key = TableKey(
            producers_table(topic, identity), check_name("producer", name).encode()
        )
        self.fence = raise_fence(backend.store, f"producer/{topic}/{name}")
        self.stored = self._read()

    def send(self, view: View, batch: RoutedBatch) -> Receipts:
        """Store a batch and the number that follows from it exactly once, after unknown outcomes
        too."""
        after = self.stored + len(batch)
        log = self._backend.log
        sent: list[tuple[Part, int]] = []

        def build() -> Transaction:
            target = view.target
            parts = batch.route(target)
            sent[:] = [(part, log.bounds(part[0]).end) for part in parts]
            numbers = {self._key: after.to_bytes(8)}
            return Transaction(parts, numbers, self.fence, since=target.since)

        for _ in range(ATTEMPTS_MAX):
            try:
                ranges = commit_following(self._backend, {view.topic: view}, build)
            except OutcomeUnknown:
                self._reopen()
                if self.stored != after:
                    continue
                ranges = [
                    find_run(log, where, end, decode_records(records.data))
                    for (where, records), end in sent
                ]
            self.stored = after
            return batch.receipts(ranges)
        raise BackendUnavailable(
            f"a batch was not stored in {ATTEMPTS_MAX} attempts", "open the name again"
        )

    def _reopen(self) -> None:
        """Make sure that no commit in progress can still be stored, and read the number.

        `Fenced` if a newer producer has the name.
        """
        key = FENCES + self.fence.name
        try:
            epoch = self._backend.store.commit(
                Change(expect={key: self.fence.epoch}, writes={key: b""})
            )
        except Conflict as newer:
            raise Fenced(self.fence.name, self.fence.epoch, newer.version) from newer
        self.fence = Fence(self.fence.name, epoch)
        self.stored = self._read()

    def _read(self) -> int:
        return int.from_bytes(self._backend.table.get(*self._key) or b"")


def producers_table(topic: str, identity: str) -> str:
    """Return the table with the numbers of a topic's named producers."""
    return f"producers/{topic}/{identity}"
