"""The program of a simulated process with consumers: a `Registry`, and the parts around it that
`tailrace.group.runtime` has in a real process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from tailrace.backend.contract import Change, Entry
from tailrace.errors import UnknownGroup
from tailrace.group.protocol.actions import (
    Action,
    Beat,
    CommitGrants,
    Departed,
    Drain,
    Drop,
    Elect,
    FindLeader,
    Install,
    Probe,
    ReadGrants,
    ReadUnits,
    Resign,
    Send,
    WriteHistory,
)
from tailrace.group.protocol.events import (
    Beaten,
    Died,
    Event,
    Received,
    Tick,
)
from tailrace.group.protocol.registry import Registry
from tailrace.group.runtime.contract import LocalSession
from tailrace.group.runtime.liveness import Liveness
from tailrace.group.runtime.store_actions import GroupAction, StoreActions
from tailrace.group.store import grants
from tailrace.group.store.definition import LEADERS
from tailrace.group.store.partition_units import PartitionUnits
from tailrace.group.store.presence import HOLDS
from tailrace.group.store.unit_source import Concern, UnitSource, UnitSources
from tailrace.message import Partition
from tailrace.testing.groups.handling import ConsumingOptions, HandlerCaller
from tailrace.testing.groups.session import SimulatedSession
from tailrace.testing.groups.worker import Worker
from tailrace.testing.process import Process
from tailrace.testing.unreliable import UnreliableBackend

if TYPE_CHECKING:
    from tailrace.testing.groups.world import GroupWorld

_RETRY_S: Final = 0.5


class ProgramSession(LocalSession, Protocol):
    """A session of a simulated process, as its program uses it."""

    @property
    def worker(self) -> Worker:
        """The thread of the session that works with the store."""

    @property
    def progress_interval_s(self) -> float:
        """How soon progress is saved."""

    def start(self) -> None:
        """Join the group."""

    def leave(self) -> None:
        """Leave the group in an orderly way."""


class GroupProgram:
    """One life of a process. Implements `tailrace.testing.process.Program`."""

    tick = Tick()

    def __init__(self, world: GroupWorld, process: Process) -> None:
        self.machine = Registry(process.token, world.times)
        self.sessions: dict[str, ProgramSession] = {}
        self._world = world
        self._process = process
        self._backend = world.store_of(process.name)
        self._hold = world.storage.hold(HOLDS + process.token, process.token)
        self._random = world.simulation.random(f"threads of {process.token}")
        self._store = self.make_worker()
        self._watcher = self.make_worker()
        self._probing = Liveness(self._backend.beats, process.clock, world.times.lease_s)
        self._waiting: dict[GroupAction, None] = {}
        self._sources = UnitSources(PartitionUnits(self._backend))
        self._actions = StoreActions(self._backend, process.token, self._sources)
        self._changed: dict[str, Entry] = {}
        self._awaited: dict[Partition, dict[str, int]] = {}
        self._reading = False

    @property
    def backend(self) -> UnreliableBackend:
        """The backend as this process sees it."""
        return self._backend

    @property
    def random(self) -> Random:
        """The random numbers of its threads."""
        return self._random

    def make_worker(self) -> Worker:
        """Return another thread that works with the store."""
        return Worker(self._world.simulation, self._process, self._backend, self._random)

    @property
    def workers(self) -> list[Worker]:
        """The workers that may be at the store."""
        return [self._store, *(session.worker for session in self.sessions.values())]

    # Sessions.

    def subscribe(self, name: str, consuming: ConsumingOptions) -> SimulatedSession:
        """Start a session in this process."""
        world = self._world
        caller = HandlerCaller(consuming, world.storage, world.checks, world.decode)
        session = SimulatedSession(
            f"{self._process.token}/{name}",
            consuming,
            self._process,
            self,
            world.storage,
            self._backend,
            self.make_worker(),
            world.checks,
            caller,
            self._random,
        )
        self.add(session)
        return session

    def add(self, session: ProgramSession, source: UnitSource | None = None) -> None:
        """Start a session. Its group may have units of another source."""
        if source is not None:
            self._sources.add(session.group, source)
        self.sessions[session.id] = session
        session.start()

    def unsubscribe(self, session: str) -> None:
        """Let a session leave in an orderly way."""
        if session in self.sessions:
            self.sessions[session].leave()

    def kill(self, session: str) -> None:
        """End a session that does not leave, unless it has ended."""
        if session in self.sessions:
            self.leave(session)
            self._process.post(Died(session))

    # The runtime, as sessions see it.

    def post(self, event: Event) -> None:
        """Queue an event for the registry."""
        self._process.post(event)

    def until(self, session: str) -> float:
        """Return the time, by the clock of the process, until which a session may deliver."""
        return self.machine.until(session)

    def await_records(self, session: str, offsets: Mapping[Partition, int]) -> None:
        """Wake a session, once, when a partition has records beyond its offset, or is sealed."""
        for partition, offset in offsets.items():
            self._awaited.setdefault(partition, {})[session] = offset

    def progress_due(self, session: str) -> None:
        """Have a session save its progress within its interval."""
        if session in self.sessions:
            interval_s = self.sessions[session].progress_interval_s
            self._process.after(interval_s, lambda: self._save(session))

    def save_soon(self, session: str) -> None:
        """Have a session save its progress at once."""
        self._process.after(0.0, lambda: self._save(session))

    def leave(self, session: str) -> None:
        """Forget a session."""
        self.sessions.pop(session).departed()

    def _save(self, session: str) -> None:
        if session in self.sessions:
            self.sessions[session].save()

    # A program, as its process sees it.

    def receive(self, sender: str, message: Any) -> Received:
        """Return the event for a message of another process."""
        return Received(sender, message)

    def end(self) -> None:
        """Release the name of the process, which has died, and end its sessions."""
        self._hold.release()
        for session in self.sessions.values():
            session.departed()
        self.sessions.clear()

    def perform(self, action: Action) -> None:
        """Execute an action of the registry."""
        match action:
            case Send(process, message):
                self._world.network.send(self._process, process, message)
            case Install(session, unit, epoch):
                if session in self.sessions:
                    self.sessions[session].install(unit, epoch)
            case Drain(session, unit, epoch):
                if session in self.sessions:
                    self.sessions[session].drain(unit, epoch)
            case Drop(session, unit, epoch):
                if session in self.sessions:
                    self.sessions[session].drop(unit, epoch)
            case Departed(session):
                if session in self.sessions:
                    self.leave(session)
            case Beat(sent_at):
                self._watcher.do(lambda: self._beat(sent_at))
            case Probe(process):
                self._watcher.do(lambda: self._probe(process))
            case WriteHistory():
                self._world.recorded(self._process.name, action)
            case FindLeader() | Elect() | Resign() | ReadUnits() | ReadGrants() | CommitGrants():
                self._submit(action)

    # The store.

    def _submit(self, action: GroupAction) -> None:
        """Queue an action for the store, unless it is queued already."""
        if action in self._waiting:
            return
        self._waiting[action] = None

        def work() -> Callable[[], None] | None:
            del self._waiting[action]
            try:
                event = self._actions.execute(action)
            except UnknownGroup:
                return None
            return None if event is None else lambda: self._process.post(event)

        self._store.do(work)

    # The store watcher.

    def _beat(self, sent_at: float) -> Callable[[], None] | None:
        if not self._hold.beat():
            return None
        led = grants.led_by(self._backend, self._process.token)
        return lambda: self._process.post(Beaten(sent_at, led))

    def _probe(self, process: str) -> Callable[[], None] | None:
        found = self._probing.probe(process)
        return None if found is None else lambda: self._process.post(found)

    def store_changed(self, change: Change) -> None:
        """React to a commit to the store."""
        entries = [Entry(key, value, 0) for key, value in change.writes.items()]
        concerns = [source.concerns(entry) for source in self._sources for entry in entries]
        concerned = {each.group for each in concerns if each and each.sessions_concerned}
        for session in self.sessions.values():
            if session.group in concerned:
                session.store_changed()
        changed = {entry.key: entry for entry in entries if self._is_watched(entry)}
        if changed:
            self._changed.update(changed)
            self._read_soon()
        if change.seal:
            sealed = [
                Partition(topic, storage, number)
                for topic, storage, partitions in change.seal
                for number in range(partitions)
            ]
            self.wake_soon(sealed)

    def _is_watched(self, entry: Entry) -> bool:
        return entry.key.startswith(LEADERS) or bool(self._concerns(entry))

    def _concerns(self, entry: Entry) -> list[Concern]:
        found = [source.concerns(entry) for source in self._sources]
        return [concern for concern in found if concern is not None]

    def wake_soon(self, partitions: Iterable[Partition]) -> None:
        """Wake the sessions that await these partitions, which have more records or an end."""
        awaited = [partition for partition in partitions if partition in self._awaited]
        if awaited:
            self._process.after(self._random.uniform(0, 0.002), lambda: self._wake(awaited))

    def _wake(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            bounds = self._world.storage.log.bounds(partition)
            for session, offset in list(self._awaited.get(partition, {}).items()):
                if bounds.end > offset or bounds.sealed:
                    del self._awaited[partition][session]
                    if session in self.sessions:
                        self.sessions[session].wake([partition])

    def _read_soon(self) -> None:
        if not self._reading:
            self._reading = True
            self._watcher.do(self._read, otherwise=self._read_later)

    def _read_later(self) -> None:
        self._process.after(_RETRY_S, self._read_soon)

    def _read(self) -> Callable[[], None]:
        self._reading = False
        found: list[Event] = []
        stale: dict[str, None] = {}
        for key, entry in list(self._changed.items()):
            if key.startswith(LEADERS):
                found.append(grants.find_leader(self._backend, key.removeprefix(LEADERS)))
            for concern in self._concerns(entry):
                if concern.units_changed:
                    group = concern.group
                    stale.update(dict.fromkeys(self.machine.leads if group is None else [group]))
            del self._changed[key]

        def answered() -> None:
            for event in found:
                self._process.post(event)
            for group in stale:
                if group in self.machine.leads:
                    self._submit(ReadUnits(group))

        return answered
