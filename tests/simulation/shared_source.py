"""A scripted source that tasks share in a simulation, and who owns what in it."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.backend.contract import FENCES
from tailrace.source.reader import Split, Until
from tailrace.source.split_state import fence_of
from tailrace.source.task.machine import TaskMachine
from tailrace.testing.faults import Faults
from tailrace.testing.process import Life
from tailrace.testing.sources.process import TaskProcess
from tailrace.testing.sources.script import ScriptedBatch, SourceScript
from tailrace.testing.sources.world import SourceWorld

READ_S = 60.0


def a_source(
    script: SourceScript,
    processes: str = "ab",
    *,
    seed: int = 1,
    faults: Faults | None = None,
    until: Until = Until.STOPPED,
) -> SourceWorld:
    """Return a world with a task in each process, which all are members."""
    world = SourceWorld(seed, script, faults, until=until)
    for name in processes:
        world.task_process(name).read()
    world.run_until(lambda: agreed(world), within_s=READ_S, what="an epoch of all tasks")
    return world


def agreed(world: SourceWorld) -> bool:
    """True if every task knows all others as members, of one epoch, and no unit moves."""
    machines = world.machines()
    wanted = [each for each in world.task_processes if each.wanted]
    epochs = {machine.epoch for machine in machines.values()}
    return (
        len(machines) == len(wanted)
        and len(epochs) == 1
        and all(each.members == machines.keys() for each in machines.values())
        and not any(each.share or each.claiming for each in machines.values())
        and any(each.units for each in machines.values())
    )


def long(split_id: str, batches: int = 1, *, every_s: float = 1.0) -> tuple[ScriptedBatch, ...]:
    """Return the batches of a split without an end."""
    return tuple(ScriptedBatch(1, at_s=every_s * number) for number in range(batches))


def splitting(children: Iterable[Split], at_s: float) -> tuple[ScriptedBatch, ...]:
    """Return the batches of a split that reports its children in its last batch, at a time."""
    return (
        ScriptedBatch(2),
        ScriptedBatch(1, at_s=at_s / 2),
        ScriptedBatch(1, tuple(children), at_s, finished=True),
    )


def machine_of(process: TaskProcess) -> TaskMachine:
    """Return the machine of the task of a process."""
    assert process.task is not None
    assert process.task.machine is not None
    return process.task.machine


def owner_of(world: SourceWorld, unit: str) -> TaskProcess:
    """Return the process whose task owns a unit."""
    return next(
        process
        for process in world.task_processes
        if process.alive and process.task is not None and unit in machine_of(process).units
    )


def other_than(world: SourceWorld, process: TaskProcess) -> TaskProcess:
    """Return another process."""
    return next(each for each in world.task_processes if each is not process)


def leader(world: SourceWorld) -> TaskProcess:
    """Return the process of the leader task, which is not paused."""
    return next(
        process
        for process in world.task_processes
        if process.life is Life.RUNNING
        and process.task is not None
        and machine_of(process).is_leader
    )


def stored(world: SourceWorld, split_id: str) -> int:
    """Return the number of the batches of a split that are stored."""
    state = world.source_checks.states.get(split_id)
    return 0 if state is None else state.position


def run_until_stored(world: SourceWorld, split_id: str, batches: int) -> None:
    """Let time pass to the instant at which a batch is stored. Its task does not know it yet."""
    what = f"batch {batches} of {split_id}"
    world.run_until(lambda: stored(world, split_id) >= batches, within_s=READ_S, what=what)


def fence_epoch(world: SourceWorld, unit: str) -> int:
    """Return the epoch of the fence of a unit."""
    entry = world.storage.store.get(FENCES + fence_of(world.options.source, unit))
    return 0 if entry is None else entry.version
