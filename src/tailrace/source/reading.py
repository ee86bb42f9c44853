"""Reading the splits of some units of a source, and storing what was read.

Whoever owns units reads them by a `SplitReading`: a run that reads a whole source alone, or a task
that shares the source with others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tailrace.backend.contract import FENCES, Change, Fence, TableKey, Transaction
from tailrace.clock import Clock
from tailrace.errors import BackendUnavailable, Conflict, Fenced
from tailrace.source.batch_commit import BatchCommit
from tailrace.source.changes import Changes
from tailrace.source.checked_batch import checked_batch, checked_first_splits
from tailrace.source.encoded_batch import EncodedBatch, SourceOutput
from tailrace.source.open_splits import OpenSplits
from tailrace.source.reader import Batch, ReaderSession, Split, Until
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import (
    SplitState,
    StoredSplits,
    begun_key,
    fence_of,
    is_bound,
    read_some,
    read_splits,
    report_entry,
    report_key,
    state_key,
    unit_of,
)
from tailrace.source.unit_status import UnitStatus

_FENCES_KEPT_MAX: Final = 64
"""The maximum number of fences of removed units that are kept before they are deleted."""

_FEW: Final = 8

_FINISHED_READ_MAX: Final = 100
"""How many finished splits of others are read one by one, before all are read at once."""

CHECK_S: Final = 1.0
"""How often the splits are read again that other tasks own, while own splits wait for them."""

SWEEP_S: Final = 1.0
"""How long a task that has heard of a finished split waits before it looks for splits to remove."""

SWEEP_EVERY: Final = 20.0
"""Looking for splits to remove takes at most one part in so many of the time."""


class SplitReading:
    """The splits of some units, being read. For one thread.

    Call `step` repeatedly; wait a little when it returns False. After a `retryable` error, the next
    `step` stores the pending batch. `rows`, `bytes` and `bad` count what was stored: rows and their
    bytes in the commit log, and dead letters.
    """

    def __init__(
        self, output: SourceOutput, session: ReaderSession, until: Until, clock: Clock
    ) -> None:
        self.rows = self.bytes = self.bad = 0
        self._changes = Changes()
        self._output = output
        self._source = output.source
        self._backend = output.commit_log.backend
        self._session = session
        self._clock = clock
        removed_early = read_some(self._backend, self._source, ()).removed_early
        self._graph = SplitGraph(removed_early=removed_early)
        self._fences: dict[str, Fence] = {}
        self._splits: dict[str, set[str]] = {}
        self._statuses: dict[str, UnitStatus] = {}
        self._blocked: set[str] = set()
        self._open = OpenSplits(self._backend.log, session, self._graph, until, clock)
        self._pending: BatchCommit | None = None
        self._check_at = self._sweep_at = 0.0
        self._others_due = self._sweep_due = False
        self._stale_fences: list[str] = []

    # Units.

    @property
    def units(self) -> Mapping[str, UnitStatus]:
        """The units that are owned, with what is left to do in each."""
        self._update_statuses()
        return self._statuses

    @property
    def changes(self) -> Changes:
        """What has changed since `take_changes`."""
        self._update_statuses()
        return self._changes

    def take_changes(self) -> Changes:
        """Return what has changed since the last call."""
        taken = self.changes
        self._changes = Changes()
        return taken

    def store_first_splits(self, fence: Fence) -> None:
        """Store the first splits of a source that has none. `Fenced` if the fence is not the
        newest."""
        begun = begun_key(self._source)
        table: dict[TableKey, bytes | None] = {begun: b""}
        first = checked_first_splits(self._session.splits())
        table.update(report_entry(self._source, split) for split in first)
        with contextlib.suppress(Conflict):  # another task has stored them
            self._backend.commit(Transaction(table=table, fence=fence, absent=(begun,)))

    def claim(self, units: Iterable[str], epoch: Fence) -> None:
        """Take units over, in the given epoch of the source. Fences any earlier owner.

        A unit without splits is not owned: it was removed. `Fenced` if the epoch is not the
        present one.
        """
        names = {unit: fence_of(self._source, unit) for unit in units}
        self.release(names)
        writes = {FENCES + name: b"" for name in names.values()}
        try:
            number = self._backend.store.commit(
                Change(expect={FENCES + epoch.name: epoch.epoch}, writes=writes)
            )
        except Conflict as newer:
            raise Fenced(*epoch, newer.version) from newer
        # After the fences were raised: nobody else can change these splits any more.
        stored = self._read(names)
        found = SplitGraph.of(stored).units()
        for unit, name in names.items():
            if unit in found:
                self._splits[unit] = set(found[unit])
                self._fences[unit] = Fence(name, number)
                self._graph.add(stored, found[unit])
                self._open.add(found[unit])
                self._open.changed.add(unit)
            else:
                self._stale_fences.append(unit)
        self._others_due = self._sweep_due = True
        with contextlib.suppress(BackendUnavailable, OSError):  # the next step does it then
            self._open_splits()

    def _read(self, units: Collection[str]) -> StoredSplits:
        """Read the splits of some units. Of few units, without reading the whole table."""
        if len(units) > _FEW or any(map(is_bound, units)):
            return read_splits(self._backend, self._source)
        return read_some(self._backend, self._source, units)

    def release(self, units: Iterable[str]) -> None:
        """Read units no longer. What was read and is not stored is read again by the next owner."""
        for unit in list(units):
            self._forget(unit)

    def check_owned(self, units: Iterable[str]) -> None:
        """Release those of these units that have a newer owner."""
        for unit in units:
            if self._pending is not None and unit_of(self._pending.after.split) == unit:
                continue  # its commit may have raised the fence, and finds a newer owner itself
            fence = self._fences.get(unit)
            entry = None if fence is None else self._backend.store.get(FENCES + fence.name)
            if fence is not None and (entry is None or entry.version != fence.epoch):
                self._lose(unit)

    def delete_later(self, units: Iterable[str]) -> None:
        """Delete the fences of units that were removed, some time."""
        self._stale_fences += units

    def check_waiting(self) -> None:
        """Have the next `step` look whether splits that wait may start."""
        self._others_due = True

    def learn(self, stored: StoredSplits) -> None:
        """Learn from the whole table which splits are finished that own ones wait for."""
        followed = {
            each for split_id in self._open.waiting for each in self._graph.waits_for(split_id)
        }
        states = stored.states
        self._add_finished(stored, [each for each in followed if each in states])

    def sweep(self) -> None:
        """Have a `step` within `SWEEP_S` look for finished splits that nothing needs any more."""
        if not self._sweep_due:
            self._sweep_at = max(self._sweep_at, self._clock.monotonic() + SWEEP_S)
            self._sweep_due = True

    @property
    def failing(self) -> bool:
        """True if the last read of some split was an error; it is read again later."""
        return self._open.failing

    @property
    def done(self) -> bool:
        """True if everything of the owned units was read and stored, within the `Until`."""
        return self._open.done and self._pending is None

    def step(self) -> bool:
        """Read and store one batch of one split, in turns; False if there is none now.

        `Fenced` if a newer owner has the unit of a batch; the unit is released then.
        """
        if self._pending is not None:
            self._store(self._pending)
            return True
        if self._clock.monotonic() >= self._check_at:
            self.check_waiting()
        self._open_splits()
        found = self._open.next_batch()
        if found is not None:
            self._take(*found)
        if self._sweep_due and self._clock.monotonic() >= self._sweep_at:
            self._remove_unneeded()
        return found is not None

    def close(self) -> None:
        """Release everything."""
        self._pending = None
        self.release(list(self._splits))
        with contextlib.suppress(BackendUnavailable):
            self._delete_fences(0)

    # Splits.

    def _forget(self, unit: str) -> None:
        for split_id in self._splits.pop(unit, ()):
            self._open.close(split_id)
            if self._pending is not None and self._pending.after.split.id == split_id:
                self._pending = None
        self._fences.pop(unit, None)
        self._open.changed.discard(unit)
        for known in (self._statuses, self._changes.statuses):
            known.pop(unit, None)

    def _lose(self, unit: str) -> None:
        """Release a unit that a newer owner has."""
        self._forget(unit)
        self._changes.lost.add(unit)

    def _open_splits(self) -> None:
        """Open the splits that may start. Reads those that they wait for and others own, if it is
        time to."""
        if self._others_due:
            begun = self._clock.monotonic()
            self._read_followed()
            ended = self._clock.monotonic()
            self._check_at = ended + max(CHECK_S, SWEEP_EVERY * (ended - begun))
            self._others_due = False
        self._open.open_due()

    def _read_followed(self) -> None:
        """Find which splits are finished that own ones wait for and others own.

        Of each own split, those that it follows are read in turn, up to one that is not finished.
        """
        unfinished: set[str] = set()
        finished = 0
        for split_id in sorted(self._open.waiting):
            for each in self._graph.states[split_id].split.follows:
                if self._graph.is_finished(each):
                    continue
                if each in unfinished or self._owns(each):
                    break
                self._add_finished(read_some(self._backend, self._source, [each]), [each])
                if not self._graph.is_finished(each):
                    unfinished.add(each)
                    break
                finished += 1
                if finished == _FINISHED_READ_MAX:
                    self.learn(read_splits(self._backend, self._source))

    def _add_finished(self, stored: StoredSplits, split_ids: Iterable[str]) -> None:
        """Learn which of these splits, of others, are finished."""
        states = stored.states
        finished = [each for each in split_ids if each in states and states[each].finished]
        self._graph.add(stored, finished)
        self._open.due = self._open.due or bool(finished)

    def _update_statuses(self) -> None:
        """Find the statuses of the units that have changed, and of those that are blocked."""
        for unit in sorted(self._open.changed | self._blocked):
            if unit in self._splits:
                status = self._open.status(unit)
                if self._statuses.get(unit) is not status:
                    self._statuses[unit] = self._changes.statuses[unit] = status
            (self._blocked.add if self._open.is_blocked(unit) else self._blocked.discard)(unit)
        self._open.changed.clear()

    def _owns(self, split_id: str) -> bool:
        state = self._graph.states.get(split_id)
        return state is not None and split_id in self._splits.get(unit_of(state.split), ())

    # Storing.

    def _take(self, split_id: str, batch: Batch) -> None:
        """Store a batch."""
        before = self._graph.states[split_id]
        try:
            batch = checked_batch(before.split, batch)
            encoded = EncodedBatch(self._output, batch, self._clock.now_ms())
        except BaseException:
            # The split would go on after a batch that nobody stores.
            self._open.postpone(split_id)
            raise
        fence = self._fences[unit_of(before.split)]
        self._pending = BatchCommit(self._output, before, fence, batch, encoded)
        self._store(self._pending)

    def _store(self, commit: BatchCommit) -> None:
        unit = unit_of(commit.after.split)
        try:
            commit.store()
        except Fenced:
            self._lose(unit)
            raise
        self._fences[unit] = commit.fence
        self._pending = None
        self.rows += commit.encoded.rows
        self.bytes += commit.encoded.bytes
        self.bad += commit.encoded.bad
        self._apply_stored(commit.after, commit.batch)

    def _apply_stored(self, after: SplitState, batch: Batch) -> None:
        """Update the states after a commit, and start the splits that may start."""
        split_id = after.split.id
        self._graph.states[split_id] = after
        for child in batch.children:
            self._add_child(child, split_id)
        if batch.finished:
            self._open.finish(split_id)
            self._sweep_due = True

    def _add_child(self, child: Split, parent: str) -> None:
        unit = unit_of(child)
        owned = self._splits.get(unit)
        if owned is None:
            self._changes.reported.add(unit)
        elif child.id not in owned:
            owned.add(child.id)
            self._graph.states[child.id] = SplitState(child)
            self._graph.parents[child.id] = {parent}
            self._open.add([child.id])
            self._others_due = True

    # Removing.

    def _remove_unneeded(self) -> None:
        """Remove the own splits that are finished and that nothing follows any more."""
        own = {each for splits in self._splits.values() for each in splits}
        finished = sorted(each for each in own if self._graph.is_finished(each))
        if finished:
            begun = self._clock.monotonic()
            # Finished before the table is read, page by page: so all that follow them are seen.
            graph = SplitGraph.of(read_splits(self._backend, self._source))
            removable = set(graph.removable())
            if unneeded := [each for each in finished if each in removable]:
                self._remove(graph, unneeded)
            # Also those that an earlier commit removed, whose outcome was unknown.
            self._drop(each for each in finished if each not in graph.states)
            ended = self._clock.monotonic()
            self._sweep_at = ended + SWEEP_EVERY * (ended - begun)
        self._sweep_due = False
        self._delete_fences(_FENCES_KEPT_MAX)

    def _remove(self, graph: SplitGraph, split_ids: list[str]) -> None:
        """Remove own finished splits. Nobody writes them any more, so one fence is enough."""
        table: dict[TableKey, bytes | None] = {}
        for split_id in split_ids:
            table[state_key(self._source, split_id)] = None
            for parent in graph.parents[split_id]:
                table[report_key(self._source, split_id, parent)] = None
        unit = unit_of(graph.states[split_ids[0]].split)
        try:
            self._backend.commit(Transaction(table=table, fence=self._fences[unit]))
        except Fenced:
            self._lose(unit)
            raise
        self._drop(split_ids)

    def _drop(self, split_ids: Iterable[str]) -> None:
        """Forget own splits that were removed."""
        for split_id in split_ids:
            unit = unit_of(self._graph.states[split_id].split)
            self._splits[unit].discard(split_id)
            self._graph.discard(split_id)
            if not self._splits[unit]:
                self._forget(unit)
                self._changes.removed.add(unit)
                self._stale_fences.append(unit)

    def _delete_fences(self, kept_max: int) -> None:
        """Delete the fences of removed units, if there are more than `kept_max`."""
        if len(self._stale_fences) > kept_max:
            names = (fence_of(self._source, unit) for unit in self._stale_fences)
            self._backend.store.commit(Change(writes={FENCES + name: None for name in names}))
            self._stale_fences.clear()
