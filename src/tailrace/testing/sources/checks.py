"""The invariants of a simulated source, checked at every commit against its script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from tailrace.backend.contract import FENCES, Change, Transaction
from tailrace.log.record import Record
from tailrace.message import Partition
from tailrace.source.reader import Split
from tailrace.source.split_state import SplitState, fence_of, table_of, unit_of
from tailrace.source.task.driver import StoredEpoch
from tailrace.testing.groups.storage import Appends, SimulatedStorage
from tailrace.testing.simulation import Simulation, Violation
from tailrace.testing.sources.script import SourceScript
from tailrace.testing.trace import Mark

_NOBODY = "nobody"


class SourceChecks:
    """The guarantees of a source that tasks share, checked for one world.

    `states` are the splits that were read, `reports` those that are known, by the parents that
    reported them. Both keep what was removed from the table.
    """

    def __init__(
        self,
        simulation: Simulation,
        storage: SimulatedStorage,
        source: str,
        commit_log: str,
        script: SourceScript,
    ) -> None:
        self.states: dict[str, SplitState] = {}
        self.reports: dict[str, set[str]] = {}
        self.removed: set[str] = set()
        self.rows = 0
        self._simulation = simulation
        self._storage = storage
        self._source = source
        self._commit_log = commit_log
        self._script = script
        self._actor = _NOBODY

    @contextmanager
    def acting(self, task: str) -> Iterator[None]:
        """Know that commits are those of this task."""
        before, self._actor = self._actor, task
        try:
            yield
        finally:
            self._actor = before

    @property
    def pending(self) -> list[str]:
        """The splits that were not read to the end of their scripts."""
        return sorted(
            each
            for each in self._script.readable()
            if each not in self.states
            or self.states[each].position != len(self._script.batches[each])
        )

    def violation(self, what: str) -> Violation:
        """Return a violation, with the task that acts."""
        return self._simulation.violation(f"{self._actor}: {what}")

    # Commits.

    def committed(self, transaction: Transaction, appended: Appends) -> None:
        """Check a transaction: it is a batch of a split, the first splits, or a removal."""
        table = table_of(self._source)
        writes = {key.key: value for key, value in transaction.table.items() if key.table == table}
        values = self._values(appended)
        if not writes:
            if values:
                raise self.violation(f"appends {values} without a position")
            return
        self._check_fence(transaction)
        states, reports, removed = [], [], []
        for key, value in writes.items():
            name, between, parent = key.decode().partition("\0")
            if not name:
                continue
            if value is None:
                removed.append((name, bool(between)))
            elif between:
                reports.append((msgspec.json.decode(value, type=Split), parent))
            else:
                states.append(msgspec.json.decode(value, type=SplitState))
        for state in states:
            self._check_owner(state, transaction)
        for state in states:
            self._stored(state, values, [child for child, _ in reports])
        for child, parent in reports:
            self._reported(child, parent, {each.split.id for each in states})
        for name in sorted({name for name, _ in removed}):
            self._removed(name)

    def _values(self, appended: Appends) -> list[bytes]:
        records: list[Record] = []
        for partition, each in appended:
            if partition.topic == self._commit_log:
                records += each
        return [record.value for record in sorted(records, key=_row)]

    def _check_fence(self, transaction: Transaction) -> None:
        fence = transaction.fence
        entry = None if fence is None else self._storage.store.get(FENCES + fence.name)
        if fence is None or entry is None or entry.version != fence.epoch:
            raise self.violation(f"writes under {fence}, which is not the newest")

    def _check_owner(self, state: SplitState, transaction: Transaction) -> None:
        fence = fence_of(self._source, unit_of(state.split))
        if transaction.fence is None or transaction.fence.name != fence:
            raise self.violation(f"writes {state.split.id} under {transaction.fence}")

    def _stored(
        self,
        after: SplitState,
        values: Sequence[bytes],
        children: Sequence[Split],
    ) -> None:
        """Check the state of a split: it is the one after its next batch, which is stored too."""
        split_id = after.split.id
        number = 0 if split_id not in self.states else self.states[split_id].position
        self._trace(f"stores batch {number} of {split_id}")
        if split_id in self.removed:
            raise self.violation(f"{split_id} was removed, and is stored again")
        if split_id not in self.reports:
            raise self.violation(f"{split_id} is stored, and nobody reported it")
        if after.position != number + 1 or number >= len(self._script.batches[split_id]):
            raise self.violation(f"{split_id} is stored at {after.position} after {number}")
        waits = [each for each in after.split.follows if not self._is_finished(each)]
        if waits:
            raise self.violation(f"{split_id} is read while {waits} are not finished")
        batch = self._script.batches[split_id][number]
        if values != self._script.rows(split_id, number):
            raise self.violation(f"batch {number} of {split_id} appends {values}")
        if tuple(children) != batch.children or after.finished != batch.finished:
            raise self.violation(f"batch {number} of {split_id} is stored with {children}")
        self.states[split_id] = after
        self.rows += len(values)

    def _reported(self, child: Split, parent: str, stored: set[str]) -> None:
        if child != self._script.splits[child.id]:
            raise self.violation(f"{child.id} is reported as {child}")
        if child.id in self.removed or child.id in self.states:
            raise self.violation(f"{child.id} is reported by {parent!r} after it was read")
        if parent not in (stored or {""}):
            raise self.violation(f"{child.id} is reported under the name of {parent!r}")
        self.reports.setdefault(child.id, set()).add(parent)

    def _removed(self, split_id: str) -> None:
        """Check a split that is removed: it is finished, and all that follow it are."""
        self._trace(f"removes {split_id}")
        if split_id in self.removed:
            return
        if not self._is_finished(split_id) or self._script.splits[split_id].kept:
            raise self.violation(f"{split_id} is removed, and is needed")
        for follower in self._script.followers.get(split_id, ()):
            if not self._is_finished(follower):
                raise self.violation(f"{split_id} is removed, and {follower} follows it")
        self.removed.add(split_id)

    def _is_finished(self, split_id: str) -> bool:
        state = self.states.get(split_id)
        return state is not None and state.finished

    # Fences.

    def changed(self, change: Change, version: int) -> None:
        """Check a change of the store: who raises a fence is a member in the present epoch."""
        prefix = FENCES + fence_of(self._source, "")
        for key, value in change.writes.items():
            if not key.startswith(prefix):
                continue
            unit = key.removeprefix(prefix)
            if value is None:
                left = [each for each in self._known() if unit_of(each) == unit]
                if left:
                    raise self.violation(f"deletes the fence of {unit}, which has splits")
            elif key not in change.expect and self._actor not in self._members():
                raise self.violation(f"takes {unit}, and is not in the present epoch")

    def _known(self) -> list[Split]:
        return [self._script.splits[each] for each in self.reports if each not in self.removed]

    def _members(self) -> tuple[str, ...]:
        entry = self._storage.store.get(FENCES + table_of(self._source))
        if entry is None or not entry.value:
            return ()
        return msgspec.json.decode(entry.value, type=StoredEpoch).members

    def _trace(self, what: str) -> None:
        self._simulation.record(Mark.NOTE, self._actor, what)


def _row(record: Record) -> int:
    return int(record.value.rpartition(b":")[2])


def partition_order(partition: Partition, records: Sequence[Record]) -> list[str]:
    """Return the splits of which a partition has rows out of order."""
    newest: dict[bytes | None, int] = {}
    wrong = []
    for record in records:
        row = _row(record)
        if row < newest.get(record.key, 0):
            wrong.append(f"{partition} has {record.value!r} late")
        newest[record.key] = row + 1
    return wrong
