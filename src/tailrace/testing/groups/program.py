"""What runs in a simulated process that takes part in groups: a `Registry`, and around it what
`tailrace.group.runtime` is in a real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tailrace.backend.contract import Change
from tailrace.errors import UnknownGroup
from tailrace.group import grants
from tailrace.group.actions import (
    Action,
    Beat,
    CommitGrants,
    Departed,
    Drain,
    Drop,
    Elect,
    Install,
    Look,
    Probe,
    ReadGrants,
    ReadUnits,
    Record,
    Resign,
    Send,
)
from tailrace.group.carrying_out import StoreActions, Wanted
from tailrace.group.definition import GROUPS, LEADERS
from tailrace.group.events import (
    Beaten,
    Died,
    Event,
    Received,
    Subscribed,
    Tick,
    Unsubscribed,
)
from tailrace.group.probing import HOLDS, Probing
from tailrace.group.registry import Registry
from tailrace.group.seeking import SEEKS
from tailrace.message import Partition
from tailrace.testing.groups.handling import Consuming, Handling
from tailrace.testing.groups.session import SimulatedSession
from tailrace.testing.groups.worker import Worker
from tailrace.testing.process import Process
from tailrace.topic.composite import TOPICS

if TYPE_CHECKING:
    from tailrace.testing.groups.world import GroupWorld

_RETRY_S = 0.5


class GroupProgram:
    """One life of a process. Implements `tailrace.testing.process.Program`."""

    tick = Tick()

    def __init__(self, world: GroupWorld, process: Process) -> None:
        self.machine = Registry(process.token, world.times)
        self.sessions: dict[str, SimulatedSession] = {}
        self._world = world
        self._process = process
        self._backend = world.store_of(process.name)
        self._hold = world.ground.hold(HOLDS + process.token, process.token)
        self._random = world.simulation.random(f"threads of {process.token}")
        self._store = self._make_worker()
        self._tide = self._make_worker()
        self._probing = Probing(self._backend.beats, process.clock, world.times.lease_s)
        self._waiting: dict[Wanted, None] = {}
        self._actions = StoreActions(self._backend, process.token)
        self._changed: dict[str, None] = {}
        self._looking = False

    def _make_worker(self) -> Worker:
        return Worker(self._world.simulation, self._process, self._backend, self._random)

    @property
    def workers(self) -> list[Worker]:
        """Those that may be at the store."""
        return [self._store, *(session.worker for session in self.sessions.values())]

    # Sessions.

    def subscribe(self, name: str, consuming: Consuming) -> SimulatedSession:
        """A new session of this process."""
        world = self._world
        handling = Handling(consuming, world.ground, world.checks, world.decode)
        session = SimulatedSession(
            f"{self._process.token}/{name}",
            consuming,
            self._process,
            world.ground,
            self._backend,
            self._make_worker(),
            world.checks,
            self.machine.until,
            handling,
            self._random,
        )
        self.sessions[session.id] = session
        self._process.tell(Subscribed(session.id, session.group, consuming.revoke_timeout_s))
        return session

    def unsubscribe(self, session: str) -> None:
        """A session leaves as it should."""
        self._process.tell(Unsubscribed(session))

    def kill(self, session: str) -> None:
        """A session is gone without a word."""
        self.sessions.pop(session).departed()
        self._process.tell(Died(session))

    # What the process wants of it.

    def receive(self, sender: str, message: Any) -> Received:
        """A message of another process."""
        return Received(sender, message)

    def end(self) -> None:
        """The process died: nobody holds its name any more."""
        self._hold.release()
        for session in self.sessions.values():
            session.departed()
        self.sessions.clear()

    def perform(self, action: Action) -> None:
        """Carry out an action of the registry."""
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
                    self.sessions.pop(session).departed()
            case Beat(sent_at):
                self._tide.do(lambda: self._beat(sent_at))
            case Probe(process):
                self._tide.do(lambda: self._probe(process))
            case Record():
                self._world.recorded(self._process.name, action)
            case Look() | Elect() | Resign() | ReadUnits() | ReadGrants() | CommitGrants():
                self._submit(action)

    # The store.

    def _submit(self, action: Wanted) -> None:
        """Have an action carried out, once if it waits already."""
        if action in self._waiting:
            return
        self._waiting[action] = None

        def work() -> Callable[[], None] | None:
            del self._waiting[action]
            try:
                event = self._actions.carry_out(action)
            except UnknownGroup:
                return None
            return None if event is None else lambda: self._process.tell(event)

        self._store.do(work)

    # The tide.

    def _beat(self, sent_at: float) -> Callable[[], None] | None:
        if not self._hold.beat():
            return None
        led = grants.led_by(self._backend, self._process.token)
        return lambda: self._process.tell(Beaten(sent_at, led))

    def _probe(self, process: str) -> Callable[[], None] | None:
        found = self._probing.look(process)
        return None if found is None else lambda: self._process.tell(found)

    def stir(self, change: Change) -> None:
        """Something was committed to the store."""
        keys = [key for key in change.writes if key.startswith((LEADERS, TOPICS, SEEKS, GROUPS))]
        if keys:
            self._changed.update(dict.fromkeys(keys))
            self._look_soon()
        if change.seal:
            sealed = [
                Partition(topic, storage, number)
                for topic, storage, partitions in change.seal
                for number in range(partitions)
            ]
            self._process.after(self._random.uniform(0, 0.002), lambda: self.wake(sealed))

    def wake(self, partitions: list[Partition]) -> None:
        """Partitions have more records, or an end."""
        for session in self.sessions.values():
            session.wake(partitions)

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._tide.do(self._look, otherwise=self._look_later)

    def _look_later(self) -> None:
        self._process.after(_RETRY_S, self._look_soon)

    def _look(self) -> Callable[[], None]:
        self._looking = False
        found: list[Event] = []
        stale: dict[str, None] = {}
        for key in list(self._changed):
            if key.startswith(LEADERS):
                found.append(grants.look(self._backend, key.removeprefix(LEADERS)))
            elif key.startswith(TOPICS):
                stale.update(dict.fromkeys(self.machine.leads))
            else:
                stale[key.split("/")[1]] = None
            del self._changed[key]

        def told() -> None:
            for event in found:
                self._process.tell(event)
            for group in stale:
                if group in self.machine.leads:
                    self._submit(ReadUnits(group))

        return told
