"""The transaction of one batch: its records, the state of its split, and its children."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from tailrace.backend.contract import FENCES, Change, Fence, TableKey, Transaction
from tailrace.errors import BackendUnavailable, Conflict, Fenced, OutcomeUnknown
from tailrace.source.encoded_batch import EncodedBatch, SourceOutput
from tailrace.source.reader import Batch
from tailrace.source.split_state import SplitState, report_entry, state_entry, state_key
from tailrace.topic.view import commit_following

_ATTEMPTS_MAX: Final = 5


class BatchCommit:
    """A batch of a split that is being stored.

    `before` and `after` are the states of the split. `fence` is that of the unit; it is raised to
    find an unknown outcome.
    """

    def __init__(
        self,
        output: SourceOutput,
        before: SplitState,
        fence: Fence,
        batch: Batch,
        encoded: EncodedBatch,
    ) -> None:
        self.after = before
        self.fence = fence
        self._output = output
        self._backend = output.commit_log.backend
        self._before = before
        self.batch = batch
        self.encoded = encoded
        self._token = secrets.token_bytes(8)
        self._is_unknown = False

    def store(self) -> None:
        """Store the batch once. `Fenced` if a newer owner has the unit.

        After an error it may be called again: it first finds whether the batch was stored.
        """
        for _ in range(_ATTEMPTS_MAX):
            if (self._is_unknown and self._is_stored()) or self._is_committed():
                return
        raise BackendUnavailable(
            f"a batch of source {self._output.source!r} was not stored in {_ATTEMPTS_MAX} attempts",
            "run it again",
        )

    def _is_committed(self) -> bool:
        """Commit; False if the outcome is unknown."""
        try:
            ranges = commit_following(self._backend, self._output.views, self._transaction)
        except OutcomeUnknown:
            self._is_unknown = True
            return False
        self._output.record_ends(ranges)
        return True

    def _transaction(self) -> Transaction:
        before, batch, encoded = self._before, self.batch, self.encoded
        source = self._output.source
        appends, since = encoded.route()
        self.after = msgspec.structs.replace(
            before,
            position=batch.position,
            rows=before.rows + encoded.rows,
            last=encoded.last or before.last,
            last_checksum=encoded.last_checksum if encoded.last else before.last_checksum,
            finished=batch.finished,
            lag=batch.lag,
            batches=before.batches + 1,
        )
        table: dict[TableKey, bytes | None] = dict([state_entry(source, self.after)])
        parent = before.split.id
        table.update(report_entry(source, child, parent) for child in batch.children)
        return Transaction(appends, table, self.fence, since=since)

    def _is_stored(self) -> bool:
        """True if the batch was stored after all.

        Raises the fence first, so that no commit in flight can store the batch later.
        """
        name, epoch = self.fence
        key = FENCES + name
        change = Change(expect={key: epoch}, writes={key: self._token})
        try:
            raised = self._backend.store.commit(change)
        except Conflict as newer:
            entry = self._backend.store.get(key)
            if entry is None or entry.value != self._token:
                raise Fenced(name, epoch, newer.version) from newer
            raised = entry.version  # an earlier attempt, whose answer was lost
        self.fence = Fence(name, raised)
        source = self._output.source
        stored = self._backend.table.get(*state_key(source, self._before.split.id))
        self._is_unknown = False
        return stored == state_entry(source, self.after)[1]
