"""The membership of a task: its entry among the tasks of its source, and who of them is alive."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.backend.contract import Backend
from tailrace.clock import Clock
from tailrace.group.runtime.liveness import Liveness
from tailrace.group.store import presence
from tailrace.source.names import task_group


class Membership:
    """One task among the tasks of a source. `process` is the name that its process holds."""

    def __init__(
        self, backend: Backend, source: str, task: str, process: str, clock: Clock, lease_s: float
    ) -> None:
        self._backend = backend
        self._group = task_group(source)
        self._task = task
        self._process = process
        self._clock = clock
        self._liveness = Liveness(backend.beats, clock, lease_s)

    def enter(self) -> None:
        """Become a member."""
        now_ms = self._clock.now_ms()
        presence.enter(self._backend, self._group, self._task, self._process, now_ms)

    def leave(self) -> None:
        """Be a member no longer."""
        presence.leave(self._backend, self._group, self._task)

    def remove(self, tasks: Iterable[str]) -> None:
        """Remove other tasks, which then join again."""
        for task in tasks:
            presence.leave(self._backend, self._group, task)

    def is_entered(self) -> bool:
        """True if the task is a member: nobody has removed it as dead."""
        key = presence.members_prefix(self._group) + self._task
        return self._backend.store.get(key) is not None

    def live_members(self) -> frozenset[str]:
        """Return the live members; remove the dead ones, so that they notice it if they wake."""
        alive: set[str] = set()
        dead: dict[str, bool] = {self._process: False}
        for member in presence.members(self._backend, self._group):
            if member.process not in dead:
                dead[member.process] = self._liveness.probe(member.process) is not None
            if dead[member.process]:
                presence.leave(self._backend, self._group, member.session)
            else:
                alive.add(member.session)
        return frozenset(alive)
