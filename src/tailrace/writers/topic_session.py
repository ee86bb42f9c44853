"""An attempt to write into a topic: each batch and its offsets in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace.backend.contract import TableKey, Transaction
from tailrace.errors import Busy, InvalidValue, MessageTooLarge, OutcomeUnknown
from tailrace.pipeline.offsets import Offsets
from tailrace.pipeline.rows import RowError, Rows
from tailrace.pipeline.writer import Attempt, Failure, Staged
from tailrace.topic.shipment import Shipment
from tailrace.topic.topic import Topic
from tailrace.topic.view import commit_following
from tailrace.writers.applied import Applied, Turn
from tailrace.writers.keys import KeyChoice, rekeyed
from tailrace.writers.refusals import between, refused, without

COMMITS_MAX: Final = 5
"""How often a batch is committed again, after looking, when the outcome was unknown."""


class TopicSession:
    """Writes under a fence, so it ends with `Fenced` once a newer attempt has begun.

    Offsets of which nothing is left are committed with the next rows, or at the end.
    """

    def __init__(
        self,
        topic: Topic[Any],
        key: KeyChoice,
        attempt: Attempt,
        applied: Applied,
        valid_while: Mapping[str, int],
    ) -> None:
        self._topic = topic
        self._key = key
        self._offsets = attempt.offsets
        self._turn = Turn(attempt.epoch, attempt.number)
        self._applied = applied
        self._valid_while = valid_while
        self._waiting: list[Offsets] = []
        self._fence = applied.take_over(self._turn, valid_while)

    def applied(self) -> Sequence[Offsets]:
        """What the topic already has of the attempt's offsets."""
        start, end = self._offsets
        held = self._applied.ranges()
        clipped = [Offsets(max(first, start), min(after, end)) for first, after in held]
        return [offsets for offsets in clipped if offsets.start < offsets.end]

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[Failure]:
        """Append the rows, but not those that the topic does not take."""
        failures: list[Failure] = []
        try:
            shipment = self._shipment(rows)
        except RowError:
            failures = refused(rows, self._shipment)
            shipment = self._shipment(without(rows, failures))
        taken = [*self._waiting, *between(offsets, failures)]
        if shipment is not None:
            self._commit(shipment, taken)
        self._waiting = [] if shipment is not None else taken
        return failures

    def finish(self) -> Sequence[Staged]:
        """Commit the offsets that wait; nothing is staged."""
        if self._waiting:
            self._commit(None, self._waiting)
        self._waiting = []
        return ()

    def close(self) -> None:
        """Nothing to give back: the hub is not the session's."""

    def _shipment(self, rows: Rows) -> Shipment | None:
        if not len(rows):
            return None
        try:
            return self._topic.intake.columns(rekeyed(rows, self._key))
        except (InvalidValue, MessageTooLarge) as error:
            raise RowError(rows.offsets[0], str(error)) from error

    def _commit(self, shipment: Shipment | None, taken: Sequence[Offsets]) -> None:
        """Store records with offsets; look, when it is not known whether they are stored."""
        for _ in range(COMMITS_MAX):
            try:
                self._send(shipment, self._applied.adding(taken))
            except OutcomeUnknown:
                self._fence = self._applied.take_over(self._turn, self._valid_while)
                if all(map(self._applied.holds, taken)):
                    return
            else:
                self._applied.saved()
                return
        raise Busy(f"a commit to topic {self._topic.name!r} was not settled", "try again later")

    def _send(self, shipment: Shipment | None, writes: Mapping[TableKey, bytes | None]) -> None:
        view = self._topic.view

        def build() -> Transaction:
            target = view.target
            appends = shipment.route(target) if shipment is not None else ()
            return Transaction(appends, writes, self._fence, since=target.since)

        commit_following(view.backend, {view.topic: view}, build)
