"""The thread that watches commits, for all sessions of a process.

After a commit, by whomever, it tells the loop what has changed in the store, and wakes those
sessions that wait for records and whose partitions have some. Sessions that wait cost nothing while
nothing is committed.

It also gives the signs of life, because all it ever does is look: a store in which nothing can be
written for a while does not make this process look dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tailrace.backend.contract import Backend, Bounds, Entry, Hold, StorageTopic
from tailrace.errors import HubClosed, UnknownTopic, WatchExpired
from tailrace.group.definition import GROUPS, LEADERS
from tailrace.group.events import Beaten, Event, LeaderFound
from tailrace.group.grants import leader_found, led_by
from tailrace.group.local_session import LocalSession
from tailrace.group.seeking import SEEKS
from tailrace.group.trouble import PASSING, Trouble
from tailrace.message import Partition
from tailrace.topic.composite import TOPICS

REST_S: Final = 0.001
"""How long it rests after a look at the least, so that one look serves many commits."""
REST_MAX_S: Final = 0.05
_REST_FACTOR: Final = 4
"""It rests so many times as long as a look took: watching takes a fifth of a core at most."""
_RETRY_S: Final = 0.5
_LONG_S: Final = 3600.0

_log = logging.getLogger(__name__)


class UnitsChanged(NamedTuple):
    """The units of a group may be others now; None means of any group."""

    group: str | None


class Tide:
    """See the module. Methods other than `run` may be called from any thread.

    `tell` is given what the store says; `check` is given the groups that may have ended: they or
    a topic were deleted.
    """

    def __init__(
        self,
        backend: Backend,
        process: str,
        hold: Hold,
        members: Mapping[str, LocalSession],
        *,
        tell: Callable[[Event | UnitsChanged], None],
        check: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._process = process
        self._hold = hold
        self._members = members
        self._tell = tell
        self._check = check
        self._follower = backend.follower()
        self._mutex = threading.Lock()
        self._awaited: dict[str, dict[Partition, int]] = {}
        self._asked_to_beat: float | None = None
        self._stopped = False
        self._seen = 0
        """The version of the store up to which it has seen everything."""
        self._trouble = Trouble(_log, "watching the hub")

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        """Wake the session, once for each partition that ends beyond its offset, is sealed or gone.

        So do not await one that is known to be sealed. Look once more after this call, before you
        wait.
        """
        with self._mutex:
            self._awaited.setdefault(session, {}).update(offsets)

    def forget(self, session: str) -> None:
        """Wake it no more."""
        with self._mutex:
            self._awaited.pop(session, None)

    def beat(self, sent_at: float) -> None:
        """Give a sign of life, then look what this process leads, and tell `Beaten`."""
        with self._mutex:
            self._asked_to_beat = sent_at
        self._follower.wake()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped = True
        self._follower.wake()

    def close(self) -> None:
        """Give back what it holds, for the case that it never ran."""
        self._follower.close()

    def run(self) -> None:
        """What the thread does."""
        try:
            while not self._stopped:
                self._follower.arm()
                begun = time.monotonic()
                patience_s = _LONG_S if self._look() else _RETRY_S
                ended = time.monotonic()
                rest_s = min(max(REST_S, _REST_FACTOR * (ended - begun)), REST_MAX_S)
                self._follower.wait(patience_s)
                time.sleep(max(0.0, ended + rest_s - time.monotonic()))
        finally:
            self._follower.close()

    def _look(self) -> bool:
        """Look at everything once; False when that did not work."""
        try:
            self._beat_if_asked()
            self._watch_store()
            self._watch_ends()
        except HubClosed:
            raise
        except PASSING as error:
            self._trouble.failed(error)
            return False
        self._trouble.worked()
        return True

    def _beat_if_asked(self) -> None:
        with self._mutex:
            sent_at, self._asked_to_beat = self._asked_to_beat, None
        if sent_at is None or not self._hold.beat():
            return
        self._tell(Beaten(sent_at, led_by(self._backend, self._process)))

    def _watch_store(self) -> None:
        try:
            entries = self._backend.store.watch("", self._seen)
        except WatchExpired as expired:
            entries = self._all_entries(expired.floor)
        for entry in entries:
            self._changed(entry)
            self._seen = max(self._seen, entry.version)

    def _all_entries(self, floor: int) -> list[Entry]:
        """Everything afresh; and for what may be removed, that it is."""
        entries = self._backend.store.scan("")
        there = {entry.key for entry in entries}
        for group in self._groups():
            if LEADERS + group not in there:
                self._tell(LeaderFound(group, None))
            self._check(group)
        self._seen = max(self._seen, floor)
        return entries

    def _groups(self) -> set[str]:
        return {member.group for member in list(self._members.values())}

    def _changed(self, entry: Entry) -> None:
        if entry.key.startswith(LEADERS):
            self._tell(leader_found(entry))
        elif entry.key.startswith(TOPICS):
            self._tell(UnitsChanged(None))
            if entry.value is None:
                for group in self._groups():
                    self._check(group)
        elif entry.key.startswith(SEEKS):
            self._tell(UnitsChanged(entry.key.removeprefix(SEEKS).partition("/")[0]))
        elif entry.key.startswith(GROUPS):
            group = entry.key.removeprefix(GROUPS)
            if entry.value is None:
                self._check(group)
            else:
                self._tell(UnitsChanged(group))

    def _watch_ends(self) -> None:
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
            there = [where for where, offset in offsets.items() if _has_more(bounds, where, offset)]
            if there:
                self._wake(session, {where: offsets[where] for where in there})

    def _bounds(self, storage: StorageTopic) -> list[Bounds]:
        try:
            return self._backend.log.bounds_of(storage)
        except UnknownTopic:
            return []

    def _wake(self, session: str, passed: Mapping[Partition, int]) -> None:
        with self._mutex:
            awaited = self._awaited.get(session, {})
            there = [where for where, offset in passed.items() if awaited.get(where) == offset]
            for where in there:  # the others it has found by itself
                del awaited[where]
        member = self._members.get(session)
        if there and member is not None:
            member.wake(there)


def _has_more(
    bounds: Mapping[tuple[str, int], list[Bounds]], where: Partition, offset: int
) -> bool:
    found = bounds[where.topic, where.storage]
    if where.number >= len(found):
        return True  # deleted: whoever waits has to notice
    return found[where.number].end > offset or found[where.number].sealed
