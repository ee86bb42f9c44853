"""A hub with simulated tasks that share a source, and faults.

    world = SourceWorld(seed=7, script=script, faults=Faults(crash_every_s=5))
    for name in ("a", "b", "c"):
        world.task_process(name).read()
    world.run(30)
    world.run_until_read()

Every guarantee of sources is checked at every commit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from tailrace.backend.contract import Change
from tailrace.group.protocol.times import Times
from tailrace.source.catalog import SourceEntry, register_source
from tailrace.source.reader import Until
from tailrace.source.split_graph import SplitGraph
from tailrace.source.split_state import read_splits
from tailrace.source.task.machine import TaskMachine
from tailrace.testing.faults import Faults
from tailrace.testing.groups.consumer import SimulatedProcess
from tailrace.testing.groups.world import CHECK_S, GroupWorld
from tailrace.testing.sources.checks import SourceChecks, partition_order
from tailrace.testing.sources.process import TaskOptions, TaskProcess
from tailrace.testing.sources.script import SourceScript

MESSAGE_BYTES: Final = 4000
"""The most bytes of a message of the sync topic: few, so that messages have parts."""


class SourceWorld(GroupWorld):
    """A simulated hub with one source, which reads what its script says."""

    def __init__(
        self,
        seed: int,
        script: SourceScript,
        faults: Faults | None = None,
        *,
        until: Until = Until.STOPPED,
        partitions: int = 1,
        times: Times | None = None,
    ) -> None:
        super().__init__(seed, faults, times=times)
        self.script = script
        self.commit_log, self.dead_letters = "log", "letters"
        self.options = TaskOptions("shop", until, self.times.lease_s, MESSAGE_BYTES)
        self.reader_failure = 0.0
        """The part of the reads of splits that fail."""
        self.source_checks = SourceChecks(
            self.simulation, self.storage, "shop", self.commit_log, script
        )
        self.storage.on_commit = self.source_checks.committed
        self.topic(self.commit_log, partitions=partitions)
        self.topic(self.dead_letters, partitions=1)
        entry = SourceEntry("shop.commits", "shop.dead-letters", "ScriptReader", 0)
        register_source(self.storage.store, "shop", entry)

    def task_process(self, name: str) -> TaskProcess:
        """Return the process of this name; start it if it does not exist."""
        process = self.process(name)
        assert isinstance(process, TaskProcess)
        return process

    @property
    def task_processes(self) -> list[TaskProcess]:
        """All processes."""
        return [self.task_process(name) for name in self.processes]

    def machines(self) -> dict[str, TaskMachine]:
        """Return the machines of the tasks that read, by the names of the tasks."""
        tasks = [each.task for each in self.task_processes if each.alive]
        return {
            task.id: task.machine for task in tasks if task is not None and task.machine is not None
        }

    def leader_task(self) -> TaskProcess | None:
        """Return the process of the leader task, by what it knows."""
        for process in self.task_processes:
            if process.alive and process.task is not None:
                machine = process.task.machine
                if machine is not None and machine.is_leader:
                    return process
        return None

    def heal(self) -> None:
        """End all faults."""
        super().heal()
        self.reader_failure = self.options.pausing = 0.0

    def run_until_read(self, *, within_s: float = 120.0) -> float:
        """End all faults, and let time pass until everything was read and the tasks agree.

        Returns the seconds it took. `Violation` if it takes longer.
        """
        self.heal()
        begun = self.now
        while (left_s := begun + within_s - self.now) > 0 and self.unread():
            self.simulation.run(min(left_s, CHECK_S))
        if unread := self.unread():
            raise self.simulation.violation(f"after {within_s:g} s " + "; ".join(unread[:8]))
        self.check_log()
        return self.now - begun

    def check_log(self) -> None:
        """Check that the commit log has each row once, and those of a split in order."""
        found: Counter[bytes] = Counter()
        for partition, records in self.storage.records.items():
            if partition.topic == self.commit_log:
                found.update(record.value for record in records)
                if late := partition_order(partition, records):
                    raise self.simulation.violation("; ".join(late))
        stored = self.source_checks.states.items()
        expected = [
            row
            for each, state in stored
            for number in range(state.position)
            for row in self.script.rows(each, number)
        ]
        if found != Counter(expected):
            raise self.simulation.violation("the commit log has not every row once")

    # What is left to do.

    def unread(self) -> list[str]:
        """Describe what was not read, and what the tasks do not agree on."""
        found = [f"{each} was not read" for each in self.source_checks.pending]
        wanted = [each for each in self.task_processes if each.wanted]
        if self.options.ends:
            found += [f"{each.name} has not ended" for each in wanted]
            return found
        machines = self.machines()
        if len(machines) != len(wanted):
            found.append(f"{len(machines)} tasks of {len(wanted)} read")
        if not found:
            found += self._disagreements(machines)
        return found or self._unneeded(machines)

    def _disagreements(self, machines: dict[str, TaskMachine]) -> list[str]:
        found = []
        if machines and sum(each.is_leader for each in machines.values()) != 1:
            found.append("there is not one leader")
        for name, machine in machines.items():
            if machine.rebalancing or machine.members != machines.keys():
                found.append(f"{name} knows {sorted(machine.members)} as members")
            for what, units in (("shares", machine.share), ("claims", machine.claiming)):
                if units:
                    found.append(f"{name} {what} {sorted(units)}")
        loads = {
            name: sum(status.is_load for status in machine.units.values())
            for name, machine in machines.items()
        }
        if loads and max(loads.values()) - min(loads.values()) > 1:
            found.append(f"the loads are {loads}")
        return found

    def _unneeded(self, machines: dict[str, TaskMachine]) -> list[str]:
        """Describe the units that not one task lists, and the splits that should be removed."""
        graph = SplitGraph.of(read_splits(self.storage, self.options.source))
        lists: defaultdict[str, list[str]] = defaultdict(list)
        for name, machine in machines.items():
            for unit in machine.units:
                lists[unit].append(name)
        units = graph.units().keys()
        found = [
            f"{unit} is listed by {lists[unit] or 'nobody'}"
            for unit in sorted(units | lists.keys())
            if machines and (len(lists[unit]) != 1 or unit not in units)
        ]
        if machines:
            found += [f"{each} is not removed" for each in sorted(graph.removable())]
        return found

    # Events of the storage.

    def _make_process(self, name: str) -> SimulatedProcess:
        return TaskProcess(self, name)

    def _changed(self, change: Change, version: int) -> None:
        self.source_checks.changed(change, version)
        super()._changed(change, version)
