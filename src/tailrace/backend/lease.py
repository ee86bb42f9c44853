"""Leases: who may act for now, agreed on by entries of any store.

A holder takes an entry, renews it well within its duration, and stops acting by itself when a
renewal does not get through. Everyone else judges expiry by one rule: the entry did not change for
its duration on the observer's own monotonic clock. Wall clocks of two hosts are never compared.

A lease decides how soon work moves on, not who may write: a process that was stopped and wakes may
still believe that it holds one. Writes are guarded by a fence, or by expecting the entry to have
the holder's `version`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tailrace.backend.contract import Change, Entry, Store
from tailrace.clock import Clock
from tailrace.errors import Conflict, DecodeError, Fenced, InvalidValue


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """What the entry of a lease holds, as JSON.

    `epoch` is the version of the commit that took it. That commit cannot know its own version, so
    it writes 0, and `of` fills it in.
    """

    owner: str
    duration_ms: int
    epoch: int = 0
    renewals: int = 0

    @classmethod
    def of(cls, entry: Entry) -> LeaseState:
        """Read an entry."""
        try:
            state = msgspec.json.decode(entry.value or b"", type=cls)
        except msgspec.DecodeError as error:
            raise DecodeError(entry.key, "a lease", str(error)) from error
        return state if state.epoch else msgspec.structs.replace(state, epoch=entry.version)

    def encoded(self) -> bytes:
        """The value of the entry."""
        return msgspec.json.encode(self)


class Sighting(NamedTuple):
    """A lease as an observer saw it, and for how long by then it had seen it unchanged."""

    state: LeaseState
    version: int
    unchanged_s: float

    @property
    def expired(self) -> bool:
        """Whether it stood still for its whole duration."""
        return self.unchanged_s * 1000 >= self.state.duration_ms


class LeaseObserver:
    """Watches leases of others by looking again and again. For one thread.

    Only time between the end of one look and the beginning of the next counts. Time in which a look
    blocked, or around one that failed, says nothing about the holder, who may have been cut off
    from the store in the same way.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self._seen: dict[str, Sighting] = {}
        self._looked_at: dict[str, float] = {}

    def look(self, key: str) -> Sighting | None:
        """The lease now, or None when nobody has it. Raises what the store raises."""
        last_look = self._looked_at.pop(key, None)
        begun = self.clock.monotonic()
        entry = self.store.get(key)
        if entry is None:
            self._seen.pop(key, None)
            return None
        seen = self._seen.get(key)
        if seen is None or seen.version != entry.version:
            seen = Sighting(LeaseState.of(entry), entry.version, 0.0)
        elif last_look is not None:
            seen = seen._replace(unchanged_s=seen.unchanged_s + begun - last_look)
        self._seen[key] = seen
        self._looked_at[key] = self.clock.monotonic()
        return seen

    def expired(self, key: str) -> bool:
        """Whether the lease may be taken: nobody has it, or it stood still for its duration."""
        sighting = self.look(key)
        return sighting is None or sighting.expired


class Lease:
    """A lease that was taken. For one thread.

    `epoch` stays the same over renewals and is higher than that of every earlier holder. `version`
    is that of the last renewal, to be expected by a `Change` that only the holder may make.
    """

    __slots__ = ("_clock", "_renewed_at", "_state", "_store", "key", "version")

    def __init__(self, observer: LeaseObserver, key: str, entry: Entry, renewed_at: float) -> None:
        self._store = observer.store
        self._clock = observer.clock
        self._state = LeaseState.of(entry)
        self._renewed_at: float | None = renewed_at
        self.key = key
        self.version = entry.version

    @classmethod
    def take(cls, observer: LeaseObserver, key: str, owner: str, duration_ms: int) -> Lease | None:
        """Take it if nobody has it or the observer saw it expire; None if another has it.

        `owner` names this holder alone. Raises what the store raises; a take whose outcome is
        unknown expires like any other.
        """
        if duration_ms <= 0:
            raise InvalidValue("duration_ms", duration_ms, "1 or more")
        sighting = observer.look(key)
        if sighting is not None and not sighting.expired:
            return None
        value = LeaseState(owner=owner, duration_ms=duration_ms).encoded()
        begun = observer.clock.monotonic()
        expected = 0 if sighting is None else sighting.version
        try:
            version = observer.store.commit(Change(expect={key: expected}, writes={key: value}))
        except Conflict:
            return None
        return cls(observer, key, Entry(key, value, version), begun)

    @property
    def owner(self) -> str:
        """Who took it."""
        return self._state.owner

    @property
    def epoch(self) -> int:
        """The version of the commit that took it."""
        return self._state.epoch

    def held(self, now: float) -> bool:
        """Whether it surely has not expired for anyone at `now`, by this process's monotonic clock.

        Counted from before the last renewal was sent, so it ends before any observer's patience.
        """
        return (
            self._renewed_at is not None
            and (now - self._renewed_at) * 1000 < self._state.duration_ms
        )

    def renew(self) -> None:
        """Hold it for its duration from now on. `Fenced` when someone else has it or took it away.

        Any other error leaves it as it was: try again while `held`.
        """
        begun = self._clock.monotonic()
        state = msgspec.structs.replace(self._state, renewals=self._state.renewals + 1)
        try:
            self.version = self._commit(state.encoded())
        except Conflict as conflict:
            self._renewed_at = None
            raise Fenced(self.key, self.epoch, conflict.version) from conflict
        self._state = state
        self._renewed_at = begun

    def release(self) -> None:
        """Give it up, so that another may take it at once; does nothing where it was lost."""
        self._renewed_at = None
        try:
            self._commit(None)
        except Conflict:
            return

    def _commit(self, value: bytes | None) -> int:
        """Write the entry if it is this holder's, also by a renewal whose outcome was unknown."""
        try:
            return self._write(value)
        except Conflict as conflict:
            if conflict.value is None:
                raise
            found = LeaseState.of(Entry(self.key, conflict.value, conflict.version))
            if (found.owner, found.epoch) != (self.owner, self.epoch):
                raise
            self.version = conflict.version
            return self._write(value)

    def _write(self, value: bytes | None) -> int:
        change = Change(expect={self.key: self.version}, writes={self.key: value})
        return self._store.commit(change)
