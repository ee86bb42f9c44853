"""The thread that watches commits, for all sessions of a process.

After a commit of any process it posts the changes of the store to the loop, and wakes the sessions
that wait for records of partitions which now have some. Sessions that wait cost nothing while
nothing is committed.

The thread also sends the heartbeats of the process, because it only reads: a store that accepts no
writes for a while does not make the process appear dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Bounds, Entry, Hold, StorageTopic
from tailrace.errors import HubClosed, UnknownTopic, WatchExpired
from tailrace.group.outage import TRANSIENT, Outage
from tailrace.group.protocol.events import Beaten, Event, LeaderFound
from tailrace.group.runtime.contract import LocalSession
from tailrace.group.store.definition import LEADERS
from tailrace.group.store.grants import leader_found, led_by
from tailrace.group.store.unit_source import Concern, UnitSource, UnitSources
from tailrace.message import Partition

REST_S: Final = 0.001
"""The shortest pause after a poll, so that one poll serves many commits."""
REST_MAX_S: Final = 0.05
_REST_FACTOR: Final = 4
"""The pause is this many times as long as the poll: watching uses at most a fifth of a core."""
_RETRY_S: Final = 0.5
_LONG_S: Final = 3600.0

_log = logging.getLogger(__name__)


class UnitsChanged(NamedTuple):
    """The units of a group may have changed; None means of every group."""

    group: str | None


class StoreWatcher:
    """The watcher of one process. Any thread may call its methods, except `run`.

    `post` receives the changes of the store. `check` receives the groups that may have ended,
    because the group or a topic was deleted.
    """

    def __init__(
        self,
        backend: Backend,
        process: str,
        hold: Hold,
        members: Mapping[str, LocalSession],
        sources: UnitSources,
        *,
        post: Callable[[Event | UnitsChanged], None],
        check: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._process = process
        self._hold = hold
        self._members = members
        self._sources = sources
        self._post = post
        self._check = check
        self._follower = backend.follower()
        self._mutex = threading.Lock()
        self._awaited: dict[str, dict[Partition, int]] = {}
        self._beat_requested_at: float | None = None
        self._stopped = threading.Event()
        self._seen = 0
        """The version of the store up to which every change was posted."""
        self._outage = Outage(_log, "watching the hub")

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        """Wake the session once for each partition that ends beyond its offset, is sealed or was
        deleted.

        Do not await a partition that is known to be sealed. After this call, poll the partitions
        once more before waiting.
        """
        with self._mutex:
            self._awaited.setdefault(session, {}).update(offsets)

    def forget(self, session: str) -> None:
        """Stop waking a session."""
        with self._mutex:
            self._awaited.pop(session, None)

    def beat(self, sent_at: float) -> None:
        """Send a heartbeat, then read which groups this process leads, and post `Beaten`."""
        with self._mutex:
            self._beat_requested_at = sent_at
        self._follower.wake()

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()
        self._follower.wake()

    def close(self) -> None:
        """Release its resources if `run` was never called."""
        self._follower.close()

    def run(self) -> None:
        """Watch until `stop` is called."""
        try:
            while not self._stopped.is_set():
                self._follower.arm()
                begun = time.monotonic()
                patience_s = _LONG_S if self._poll() else _RETRY_S
                ended = time.monotonic()
                rest_s = min(max(REST_S, _REST_FACTOR * (ended - begun)), REST_MAX_S)
                self._follower.wait(patience_s)
                self._stopped.wait(max(0.0, ended + rest_s - time.monotonic()))
        finally:
            self._follower.close()

    def _poll(self) -> bool:
        """Read every change once. False if the backend failed."""
        try:
            self._beat_if_requested()
            self._poll_store()
            self._poll_ends()
        except HubClosed:
            raise
        except TRANSIENT as error:
            self._outage.failed(error)
            return False
        self._outage.worked()
        return True

    def _beat_if_requested(self) -> None:
        with self._mutex:
            sent_at, self._beat_requested_at = self._beat_requested_at, None
        if sent_at is None or not self._hold.beat():
            return
        self._post(Beaten(sent_at, led_by(self._backend, self._process)))

    def _poll_store(self) -> None:
        try:
            entries = self._backend.store.watch("", self._seen)
        except WatchExpired as expired:
            entries = self._all_entries(expired.floor)
        sources = list(self._sources)
        for entry in entries:
            self._changed(entry, sources)
            self._seen = max(self._seen, entry.version)

    def _all_entries(self, floor: int) -> list[Entry]:
        """Read the whole store, and report leaders and groups that may have been removed: the store
        no longer lists those removals."""
        entries = self._backend.store.scan("")
        present = {entry.key for entry in entries}
        for group in self._groups():
            if LEADERS + group not in present:
                self._post(LeaderFound(group, None, floor))
            self._check(group)
        for member in list(self._members.values()):
            member.store_changed()
        self._seen = max(self._seen, floor)
        return entries

    def _groups(self) -> set[str]:
        return {member.group for member in list(self._members.values())}

    def _changed(self, entry: Entry, sources: Iterable[UnitSource]) -> None:
        if entry.key.startswith(LEADERS):
            self._post(leader_found(entry))
            return
        for source in sources:
            concern = source.concerns(entry)
            if concern is not None:
                self._report(concern)

    def _report(self, concern: Concern) -> None:
        if concern.units_changed:
            self._post(UnitsChanged(concern.group))
        if concern.may_have_ended:
            for group in self._groups() if concern.group is None else (concern.group,):
                self._check(group)
        if concern.sessions_concerned:
            for member in list(self._members.values()):
                if concern.group in (None, member.group):
                    member.store_changed()

    def _poll_ends(self) -> None:
        with self._mutex:
            awaited = [(session, dict(ends)) for session, ends in self._awaited.items()]
        numbers: defaultdict[tuple[str, int], int] = defaultdict(int)
        for _, offsets in awaited:
            for topic, storage, number in offsets:
                numbers[topic, storage] = max(numbers[topic, storage], number + 1)
        bounds = {
            storage: self._bounds(StorageTopic(*storage, count))
            for storage, count in numbers.items()
        }
        for session, offsets in awaited:
            ready = [where for where, offset in offsets.items() if _is_ready(bounds, where, offset)]
            if ready:
                self._wake(session, {where: offsets[where] for where in ready})

    def _bounds(self, storage: StorageTopic) -> list[Bounds]:
        try:
            return self._backend.log.bounds_of(storage)
        except UnknownTopic:
            return []

    def _wake(self, session: str, passed: Mapping[Partition, int]) -> None:
        with self._mutex:
            awaited = self._awaited.get(session, {})
            ready = [where for where, offset in passed.items() if awaited.get(where) == offset]
            for where in ready:  # the session has found the others by itself
                del awaited[where]
        member = self._members.get(session)
        if ready and member is not None:
            member.wake(ready)


def _is_ready(
    bounds: Mapping[tuple[str, int], list[Bounds]], where: Partition, offset: int
) -> bool:
    found = bounds[where.topic, where.storage]
    if where.number >= len(found):
        return True  # deleted, which the session has to find out
    return found[where.number].end > offset or found[where.number].sealed
