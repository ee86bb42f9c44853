"""The processes of a `SourceWorld`, over all their lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.hub.hub import Hub
from tailrace.source.encoded_batch import SourceOutput
from tailrace.source.reader import Until
from tailrace.source.reading import SplitReading
from tailrace.source.task.leader_unit import LeaderUnit
from tailrace.testing.groups.consumer import SimulatedProcess
from tailrace.testing.groups.program import GroupProgram
from tailrace.testing.sources.reader import ScriptedSession
from tailrace.testing.sources.task import SimulatedTask

if TYPE_CHECKING:
    from tailrace.testing.sources.world import SourceWorld


@dataclass(slots=True)
class TaskOptions:
    """The options of the tasks of a simulated source.

    `pausing` is the part of the decisions after which the process pauses, before it acts.
    """

    source: str
    until: Until
    lease_s: float
    message_bytes_max: int
    pausing: float = 0.0

    @property
    def ends(self) -> bool:
        """True if the tasks end when everything was read."""
        return self.until is Until.NOW


class TaskProcess(SimulatedProcess):
    """A process of a `SourceWorld`. Its task joins again when the process restarts."""

    def __init__(self, world: SourceWorld, name: str) -> None:
        super().__init__(world, name)
        self._sources = world
        self._joined = 0
        self._splits: SplitReading | None = None
        self._wanted = False
        self.done = False
        """True if its task has read everything within its `Until`."""
        self.task: SimulatedTask | None = None

    @property
    def wanted(self) -> bool:
        """True if the process has a task whenever it is alive."""
        return self._wanted and not self.done

    def read(self) -> None:
        """Read the source, now and after every restart."""
        self._wanted = True
        if self.alive and self.task is None:
            self._join()

    def leave(self) -> None:
        """Stop reading in an orderly way. `read` has it read again."""
        self._wanted = False
        if self.alive and self.task is not None:
            self.task.leave()

    def start(self) -> None:
        """Begin a new life."""
        super().start()
        self.task = None
        self._splits = None
        if self.wanted:
            self._join()

    def _join(self) -> None:
        self._joined += 1
        world, program = self._sources, self.program
        self.task = SimulatedTask(
            f"{self.token}/{self._joined}",
            world.options,
            self,
            program,
            world.simulation,
            world.source_checks,
            self._reading,
            self._left,
        )
        program.add(self.task, LeaderUnit(program.backend))

    def _left(self, task: SimulatedTask) -> None:
        """Join again as a new task, unless the run has ended."""
        self.program.sessions.pop(task.id, None)
        self.task = None
        self.done = self.done or task.done
        if not task.rejoins:
            self._splits = None
        if self.wanted:
            self._join()

    def _reading(self) -> SplitReading:
        """Return the reading of this run; open it if it is not open."""
        if self._splits is None:
            world = self._sources
            hub = Hub.from_backend(self.program.backend, clock=self.clock)
            output = SourceOutput(
                world.options.source, hub.topic(world.commit_log), hub.topic(world.dead_letters)
            )
            session = ScriptedSession(
                world.simulation,
                world.script,
                world.options.until,
                self.program.random,
                lambda: world.reader_failure,
            )
            self._splits = SplitReading(output, session, world.options.until, self.clock)
        return self._splits

    def _make(self, process: object) -> GroupProgram:
        return GroupProgram(self._sources, self)
