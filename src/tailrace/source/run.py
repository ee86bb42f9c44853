"""A run of a source: its reader's rows are appended to the commit log, each once.

Every batch is one transaction under the fence of its split: the records, the dead letters, the
split's new position, its children and its end. So a process that is killed at any time repeats
nothing and loses nothing, and of two runs of a source only the newer one can write.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tailrace.backend.contract import (
    FENCES,
    Change,
    Fence,
    TableKey,
    Transaction,
    raise_fence,
)
from tailrace.clock import Clock, SystemClock
from tailrace.errors import BackendUnavailable, Conflict, Fenced, OutcomeUnknown
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.source.encoded_batch import EncodedBatch, SourceOutput
from tailrace.source.reader import Batch, Closeable, Reader, Split, Until
from tailrace.source.split_state import (
    SplitState,
    entry,
    fence_of,
    find_last,
    key_of,
    split_states,
    stored_fences,
    table_of,
)
from tailrace.topic.composite import check_name
from tailrace.topic.view import commit_following

_ATTEMPTS_MAX: Final = 5
_FENCES_KEPT_MAX: Final = 64
"""The maximum number of fences of removed splits that are kept before they are deleted."""


class SourceRun(Closeable):
    """One run of a source. For one thread.

    Takes the source over: an older run is `Fenced` at its next batch. Call `step` repeatedly; wait
    a little when it returns False, and stop when `done`. After a `retryable` error, the next `step`
    stores the pending batch; after any other error, start a new run.

    `rows`, `bytes` and `bad` count what this run has stored: rows and their bytes in the commit
    log, and dead letters.
    """

    def __init__(
        self,
        hub: Hub,
        name: str,
        reader: Reader,
        commit_log: Topic[Any],
        dead_letters: Topic[Any],
        until: Until,
        clock: Clock | None = None,
    ) -> None:
        self.name = check_name("source", name)
        self.rows = self.bytes = self.bad = 0
        self._backend = hub.backend
        self._output = SourceOutput(name, commit_log, dead_letters)
        self._clock = clock or SystemClock()
        self._states: dict[str, SplitState] = {}
        self._fences: dict[str, Fence] = {}
        self._followers: defaultdict[str, list[str]] = defaultdict(list)
        self._may_start: list[str] = []
        self._open: dict[str, Iterator[Batch | None]] = {}
        self._turns: deque[str] = deque()
        self._pending: tuple[str, Batch] | None = None
        self._stale_fences: list[str] = []
        # Before the reader is opened, so that it never sees data older than the positions.
        self._fence = raise_fence(self._backend.store, table_of(name))
        self._take_over()
        self._session = reader.open(until)
        try:
            self._begin()
        except BaseException:
            self._session.close()
            raise

    @property
    def done(self) -> bool:
        """True if everything within the `Until` of this run was read and stored."""
        return not (self._turns or self._may_start) and self._pending is None

    def step(self) -> bool:
        """Read and store one batch of one split, in turns; False if there is none now."""
        if self._pending is not None:
            self._store(*self._pending)
            return True
        if self._may_start:
            self._start_ready()
        for _ in range(len(self._turns)):
            split_id = self._turns[0]
            try:
                batch = next(self._open[split_id])
            except StopIteration:
                self._turns.popleft()
                continue
            except BaseException:
                # A generator that has raised cannot continue.
                self._open[split_id] = self._opened(split_id)
                raise
            self._turns.rotate(-1)
            if batch is not None:
                self._store(split_id, batch)
                return True
        return False

    def close(self) -> None:
        """End the run. The next run reads again what was read and not stored."""
        self._turns.clear()
        self._open.clear()
        self._pending = None
        self._session.close()
        with contextlib.suppress(BackendUnavailable):
            self._delete_fences(0)

    def _take_over(self) -> None:
        """Raise the fences of all splits, so that no other run can change the positions."""
        while True:
            self._states = split_states(self._backend, self.name)
            missing = self._states.keys() - self._fences.keys()
            if not missing:
                return
            self._raise_fences(missing)

    def _begin(self) -> None:
        """Start all splits that may start; store the first splits before."""
        if not self._states and (splits := tuple(self._session.splits())):
            entries = (entry(self.name, SplitState(split)) for split in splits)
            self._backend.commit(Transaction(table=dict(entries), fence=self._fence))
            self._take_over()
        for state in self._states.values():
            if not state.finished:
                self._add_followers(state.split)
        self._stale_fences += stored_fences(self._backend, self.name) - self._states.keys()
        self._may_start += self._states
        self._start_ready()

    def _raise_fences(self, split_ids: Iterable[str]) -> None:
        """Raise the fences of some splits. `Fenced` if a newer run owns the source."""
        names = {split_id: fence_of(self.name, split_id) for split_id in split_ids}
        writes = {FENCES + name: b"" for name in names.values()}
        owned = {FENCES + self._fence.name: self._fence.epoch}
        try:
            epoch = self._backend.store.commit(Change(expect=owned, writes=writes))
        except Conflict as newer:
            raise Fenced(*self._fence, newer.version) from newer
        self._fences |= {split_id: Fence(name, epoch) for split_id, name in names.items()}

    def _add_followers(self, split: Split) -> None:
        for parent in split.follows:
            self._followers[parent].append(split.id)

    def _start_ready(self) -> None:
        """Open the splits that may start and follow only finished splits."""
        ready = [
            split_id
            for split_id in dict.fromkeys(self._may_start)
            if not self._is_finished(split_id)
            and all(map(self._is_finished, self._states[split_id].split.follows))
        ]
        if missing := [split_id for split_id in ready if split_id not in self._fences]:
            self._raise_fences(missing)
        opened = {split_id: self._opened(split_id) for split_id in ready}
        self._may_start.clear()
        self._open |= opened
        self._turns += opened

    def _opened(self, split_id: str) -> Iterator[Batch | None]:
        state = self._states[split_id]
        last = find_last(self._backend.log, state)
        return self._session.read(state.split, state.position, last, {})

    def _is_finished(self, split_id: str) -> bool:
        """True if a split is finished. A split that is not known was finished and removed."""
        state = self._states.get(split_id)
        return state is None or state.finished

    def _store(self, split_id: str, batch: Batch) -> None:
        self._pending = split_id, batch
        encoded = EncodedBatch(self._output, batch, self._clock.now_ms())
        storing = _Storing(self._states[split_id], batch, encoded)
        for _ in range(_ATTEMPTS_MAX):
            if self._is_committed(storing):
                break
        else:
            raise BackendUnavailable(
                f"a batch of source {self.name!r} was not stored in {_ATTEMPTS_MAX} attempts",
                "run it again",
            )
        self._pending = None
        self.rows += encoded.rows
        self.bytes += encoded.bytes
        self.bad += encoded.bad
        self._apply_stored(storing)

    def _is_committed(self, storing: _Storing) -> bool:
        """Commit a batch; False if it is certainly not stored."""
        views = self._output.views
        try:
            ranges = commit_following(self._backend, views, lambda: self._transaction(storing))
        except OutcomeUnknown:
            return self._is_stored(storing)
        self._output.record_ends(ranges)
        return True

    def _transaction(self, storing: _Storing) -> Transaction:
        before, batch, encoded = storing.before, storing.batch, storing.encoded
        appends, since = encoded.route()
        after = msgspec.structs.replace(
            before,
            position=batch.position,
            rows=before.rows + encoded.rows,
            last=encoded.last or before.last,
            last_checksum=encoded.last_checksum if encoded.last else before.last_checksum,
            finished=batch.finished,
        )
        storing.after = after
        # The last split is kept: without any, the source would start from the beginning.
        storing.removed = batch.finished and (len(self._states) > 1 or bool(batch.children))
        states = [after, *map(SplitState, batch.children)]
        table: dict[TableKey, bytes | None] = dict(entry(self.name, state) for state in states)
        if storing.removed:
            table[key_of(self.name, before.split.id)] = None
        return Transaction(appends, table, self._fences[before.split.id], since=since)

    def _is_stored(self, storing: _Storing) -> bool:
        """True if the batch was stored after all.

        Raises the fence first, so that no commit in flight can store the batch later. `Fenced` if a
        newer run owns the split.
        """
        split_id = storing.before.split.id
        name, epoch = self._fences[split_id]
        key = FENCES + name
        try:
            raised = self._backend.store.commit(Change(expect={key: epoch}, writes={key: b""}))
        except Conflict as newer:
            raise Fenced(name, epoch, newer.version) from newer
        self._fences[split_id] = Fence(name, raised)
        stored = self._backend.table.get(*key_of(self.name, split_id))
        if storing.removed:
            return stored is None
        return stored == entry(self.name, storing.after)[1]

    def _apply_stored(self, storing: _Storing) -> None:
        """Update the states after a commit, and start the splits that may start."""
        split, batch = storing.after.split, storing.batch
        self._states[split.id] = storing.after
        for child in batch.children:
            self._states[child.id] = SplitState(child)
            self._add_followers(child)
        self._may_start += (child.id for child in batch.children)
        if batch.finished:
            self._may_start += self._followers.pop(split.id, ())
            del self._open[split.id]
            self._turns.remove(split.id)
        if storing.removed:
            del self._states[split.id], self._fences[split.id]
            self._stale_fences.append(split.id)
            self._delete_fences(_FENCES_KEPT_MAX)
        self._start_ready()

    def _delete_fences(self, kept_max: int) -> None:
        """Delete the fences of removed splits, if there are more than `kept_max`."""
        if len(self._stale_fences) > kept_max:
            names = (fence_of(self.name, split_id) for split_id in self._stale_fences)
            self._backend.store.commit(Change(writes={FENCES + name: None for name in names}))
            self._stale_fences.clear()


@dataclass(slots=True)
class _Storing:
    """A batch being stored: its split before and after, and True if the split is then removed."""

    before: SplitState
    batch: Batch
    encoded: EncodedBatch
    after: SplitState = field(init=False)
    removed: bool = field(init=False)
