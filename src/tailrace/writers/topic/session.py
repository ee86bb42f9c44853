"""An attempt to write to a topic: each batch and its offsets are one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from tailrace.backend.contract import TableKey, Transaction
from tailrace.errors import Busy, InvalidValue, MessageTooLarge, OutcomeUnknown
from tailrace.hub.topic import Topic
from tailrace.pipeline.offsets import Offsets, intersect_ranges
from tailrace.pipeline.transform.rows import RowError, Rows
from tailrace.pipeline.writer import Attempt, RefusedRecord, Staged
from tailrace.topic.routed_batch import RoutedBatch
from tailrace.topic.view import commit_following
from tailrace.writers.bisect_refused import accepted_ranges, accepted_rows, find_refused
from tailrace.writers.topic.applied import AppliedOffsets, AttemptNumber
from tailrace.writers.topic.keys import KeyChoice, with_keys

COMMITS_MAX: Final = 5
"""Number of commits of a batch while the outcome of the commit is unknown."""


class TopicSession:
    """A `WriterSession` under a fence: it fails with `Fenced` once a newer attempt has begun.

    Offsets without rows are committed with the next rows, or at the end. Commits run within
    `reopening`, which translates the errors of a hub that closed itself.
    """

    def __init__(
        self,
        topic: Topic[Any],
        key: KeyChoice,
        attempt: Attempt,
        applied: AppliedOffsets,
        valid_while: Mapping[str, int],
        reopening: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._topic = topic
        self._key = key
        self._offsets = attempt.offsets
        self._number = AttemptNumber(attempt.epoch, attempt.number)
        self._applied = applied
        self._valid_while = valid_while
        self._reopening = reopening
        self._uncommitted: list[Offsets] = []
        self._fence = applied.take_over(self._number, valid_while)

    def applied(self) -> Sequence[Offsets]:
        """Return which of the attempt's offsets the topic already has."""
        return intersect_ranges(self._applied.ranges(), self._offsets)

    def write(self, rows: Rows, offsets: Offsets) -> Sequence[RefusedRecord]:
        """Append the rows; return the records that the topic refuses."""
        refused: list[RefusedRecord] = []
        try:
            batch = self._route(rows)
        except RowError:
            refused = find_refused(rows, self._route)
            batch = self._route(accepted_rows(rows, refused))
        accepted = [*self._uncommitted, *accepted_ranges(offsets, refused)]
        if batch is not None:
            self._commit(batch, accepted)
        self._uncommitted = [] if batch is not None else accepted
        return refused

    def finish(self) -> Sequence[Staged]:
        """Commit the offsets without rows; nothing is staged."""
        if self._uncommitted:
            self._commit(None, self._uncommitted)
        self._uncommitted = []
        return ()

    def close(self) -> None:
        """Do nothing: the session does not own the hub."""

    def _route(self, rows: Rows) -> RoutedBatch | None:
        if not len(rows):
            return None
        try:
            return self._topic.builder.columns(with_keys(rows, self._key))
        except (InvalidValue, MessageTooLarge) as error:
            raise RowError(rows.offsets[0], str(error)) from error

    def _commit(self, batch: RoutedBatch | None, accepted: Sequence[Offsets]) -> None:
        """Commit records with their offsets. If the outcome is unknown, read the stored offsets."""
        with self._reopening():
            self._commit_once(batch, accepted)

    def _commit_once(self, batch: RoutedBatch | None, accepted: Sequence[Offsets]) -> None:
        for _ in range(COMMITS_MAX):
            try:
                self._send(batch, self._applied.writes_for(accepted))
            except OutcomeUnknown:
                self._fence = self._applied.take_over(self._number, self._valid_while)
                if all(map(self._applied.holds, accepted)):
                    return
            else:
                self._applied.saved()
                return
        raise Busy(
            f"the outcome of a commit to topic {self._topic.name!r} is still unknown",
            "try again later",
        )

    def _send(self, batch: RoutedBatch | None, writes: Mapping[TableKey, bytes | None]) -> None:
        view = self._topic.view

        def build() -> Transaction:
            target = view.target
            appends = batch.route(target) if batch is not None else ()
            return Transaction(appends, writes, self._fence, since=target.since)

        commit_following(view.backend, {view.topic: view}, build)
