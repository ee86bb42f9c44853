"""Compactions killed at every step: the partition is as before or as after."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend, leftovers
from tailrace.errors import CorruptBatch
from tailrace.message import Partition
from tests.integration.compaction_example import (
    AFTER,
    BEFORE,
    EXAMPLE,
    check_whole,
    make_example,
    offsets,
    open_hub,
    push,
)
from tests.support.counts import count
from tests.support.evidence import RecordEvidence
from tests.support.processes import Child, Report, StopAt, await_stop, continued_after
from tests.support.records import P0, P1, create, read, record

pytestmark = pytest.mark.part("pipelines")

POINTS_BEFORE = (*("compaction-written", "compaction-synced", "compaction-locked", "commit"),)
POINTS_BEHIND = ("compaction-swapped", "compaction-unlinked")

KILLS_PER_HUB = 25
"""Each kill is followed by a check of the whole hub, so a hub of all kills would take too long."""


def _compact_and_die(report: Report, directory: Path, point: str) -> None:
    def reach(reached: str) -> None:
        if armed and reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    armed = False
    backend = open_hub(directory, reach=reach)
    armed = True
    backend.compact(P0, lambda: 17)


@pytest.mark.parametrize("bystander", [True, False])
@pytest.mark.parametrize("sync", ["batch", "none"])
@pytest.mark.parametrize("point", [*POINTS_BEFORE, *POINTS_BEHIND])
def test_a_kill_at_each_point_leaves_the_partition_as_before_or_as_after(
    point: str, sync: str, bystander: bool, tmp_path: Path
) -> None:
    make_example(tmp_path, sync)
    other = open_hub(tmp_path) if bystander else None
    if other is not None:
        assert offsets(other) == BEFORE
    child = Child(_compact_and_die, tmp_path, point)
    assert list(child.rest()) == []
    assert child.exit_code == -9
    expected = BEFORE if point in POINTS_BEFORE else AFTER
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == expected
        check_whole(backend)
        if other is not None:
            assert offsets(other) == expected
            other.close()
        backend.compact(P0, lambda: 17)
        assert offsets(backend) == AFTER
        check_whole(backend)
        push(backend, "Z")
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == [*AFTER, 28]


@pytest.mark.parametrize("point", POINTS_BEFORE)
def test_the_next_compaction_removes_files_of_a_killed_process(point: str, tmp_path: Path) -> None:
    make_example(tmp_path)
    with closing(open_hub(tmp_path)) as backend:
        assert list(Child(_compact_and_die, tmp_path, point).rest()) == []
        assert len(list(tmp_path.glob("topics/*/*/*-1.log"))) == 1
        assert backend.compact(P0, lambda: 17).rewritten == 1
        assert offsets(backend) == AFTER
        check_whole(backend)


def _die_inside_commit(report: Report, directory: Path) -> None:
    """Child: be killed inside the COMMIT of a swap, its frames in the WAL but not in its index."""
    index = os.open(directory / "hub.db-shm", os.O_RDWR)  # never closed: SQLite has locks on it
    before = b""

    def reach(reached: str) -> None:
        nonlocal before
        if reached == "commit":
            before = os.pread(index, os.fstat(index).st_size, 0)
        elif reached == "compaction-swapped":
            os.pwrite(index, before, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    open_hub(directory, reach=reach).compact(P0, lambda: 17)


def _open_and_die(report: Report, directory: Path, *, commits_first: bool) -> None:
    if not commits_first:
        leftovers.touch = lambda _: None  # type: ignore[attr-defined, assignment]
    report(offsets(open_hub(directory)))
    os.kill(os.getpid(), signal.SIGKILL)


def _keep_open(report: Report, directory: Path) -> None:
    with closing(open_hub(directory)):
        report("open")
        signal.pause()


def _leave_orphans(directory: Path, sync: str) -> Child:
    make_example(directory, sync)
    bystander = Child(_keep_open, directory)
    assert bystander.next_report() == "open"
    assert list(Child(_die_inside_commit, directory).rest()) == []
    return bystander


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_files_that_frames_of_a_killed_process_may_yet_name_are_not_removed(
    sync: str, tmp_path: Path
) -> None:
    bystander = _leave_orphans(tmp_path, sync)
    second = Child(_open_and_die, tmp_path, commits_first=True)
    assert list(second.rest()) == [BEFORE], "to the second process the swap never happened"
    list(bystander.kill())
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == BEFORE
        check_whole(backend)


def test_without_the_small_commit_the_same_steps_lose_records(tmp_path: Path) -> None:
    bystander = _leave_orphans(tmp_path, "none")
    second = Child(_open_and_die, tmp_path, commits_first=False)
    assert list(second.rest()) == [BEFORE]
    list(bystander.kill())
    with closing(open_hub(tmp_path)) as backend, pytest.raises(CorruptBatch):
        offsets(backend)


def test_a_swap_whose_frames_come_back_is_whole(tmp_path: Path) -> None:
    list(_leave_orphans(tmp_path, "none").kill())
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == AFTER
        check_whole(backend)


def test_leftovers_of_a_locked_partition_stay_until_the_next_open(tmp_path: Path) -> None:
    make_example(tmp_path)
    child = Child(_append_and_stop, tmp_path, "locked")
    directory = next(tmp_path.glob("topics/*/*"))
    stray, foreign = directory / f"{0:020d}-1.log", directory / "notes.txt"
    with continued_after(await_stop(child)):
        stray.write_bytes(b"left")
        foreign.write_text("not ours")
        open_hub(tmp_path).close()
        assert stray.exists()
    assert child.next_report() == "appended"
    open_hub(tmp_path).close()
    assert not stray.exists()
    assert foreign.exists()


def test_a_segment_that_is_being_started_is_not_taken_for_a_leftover(tmp_path: Path) -> None:
    with closing(open_hub(tmp_path, sync="none")) as backend:
        create(backend)
        push(backend, EXAMPLE)
    child = Child(_append_and_stop, tmp_path, "written")
    with continued_after(await_stop(child)):
        open_hub(tmp_path).close()
    assert child.next_report() == "appended"
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == [*range(17), 17]


def _append_and_stop(report: Report, directory: Path, point: str) -> None:
    stop = StopAt(report)
    backend = open_hub(directory, reach=stop)
    stop.point = point
    push(backend, "Z")
    report("appended")


def _push_and_compact(report: Report, directory: Path, seed: int) -> None:
    """Child: append and compact in a loop, and report each record before and after its append."""
    chance = random.Random(seed)
    backend = EmbeddedBackend.open(directory, segment_bytes=chance.choice((200, 2000)))
    report("started")
    while True:
        partition = chance.choice((P0, P1))
        keys = [b"%d" % chance.randrange(4) for _ in range(chance.choice((1, 1, 5)))]
        batch = tuple(record(b"%d" % chance.randrange(10**9), key) for key in keys)
        (landed,) = backend.commit(Transaction(((partition, batch),)))
        report((landed, [(row.key, row.value) for row in batch]))
        if chance.random() < 0.3:
            backend.compact(partition, partial(getattr, landed, "end"))


def _violations(
    backend: EmbeddedBackend, reported: dict[Partition, dict[int, tuple[bytes, bytes]]]
) -> Iterator[str]:
    for partition, records in reported.items():
        found = {row.offset: (row.key, row.value) for row in read(backend, partition)}
        for offset, stored in records.items():
            if found.get(offset, stored) != stored:
                yield f"{partition}@{offset} is {found[offset]}, not {stored}"
        for info in backend.log.segments(partition):
            held = {o: r for o, r in records.items() if info.base <= o < info.end_offset}
            kept = (
                held
                if not info.generation
                else {
                    offset: held[offset]
                    for offset in {
                        key: offset for offset, (key, _) in sorted(held.items())
                    }.values()
                }
            )
            # What was on its way when it was killed may follow, and be the last of its key.
            newer = {found[o][0] for o in found if o >= info.base and o not in records}
            lost = [o for o, (key, _) in kept.items() if o not in found and key not in newer]
            if lost:
                yield f"{partition}: {lost} are lost of generation {info.generation}"
        check_whole(backend, partition)


def _kill_compactions(directory: Path, seeds: Iterable[int]) -> Iterator[str]:
    """Kill a child for each seed, all in one new hub, and yield the violations after each kill."""
    reported: dict[Partition, dict[int, tuple[bytes, bytes]]] = {P0: {}, P1: {}}
    with closing(EmbeddedBackend.open(directory, sync="none")) as backend:
        create(backend)
    for seed in seeds:
        chance = random.Random(seed)
        bystander = EmbeddedBackend.open(directory) if chance.random() < 0.5 else None
        child = Child(_push_and_compact, directory, seed)
        assert child.next_report() == "started"
        reports = [child.next_report() for _ in range(chance.randrange(40))]
        reports += child.reports_for(chance.uniform(0.0, 0.02))
        for landed, rows in [*reports, *child.kill()]:
            reported[landed.partition].update(enumerate(rows, landed.start))
        with closing(EmbeddedBackend.open(directory)) as backend:
            yield from (f"seed {seed}: {violation}" for violation in _violations(backend, reported))
        if bystander is not None:
            bystander.close()


def test_a_kill_at_any_instant_of_appends_and_compactions_loses_nothing_that_must_stay(
    tmp_path: Path, record_evidence: RecordEvidence
) -> None:
    kills = count("compaction_kills", test=15, soak=250)
    seed = random.randrange(10**6)
    violations: list[str] = []
    for first in range(0, kills, KILLS_PER_HUB):
        seeds = range(seed + first, seed + min(kills, first + KILLS_PER_HUB))
        violations += _kill_compactions(tmp_path / str(first), seeds)
    record_evidence("pipelines", "kill -9 of compactions", kills, [seed], len(violations))
    assert violations == []
    assert list(tmp_path.glob("*/topics/*/*/*-1.log")), "nothing was compacted"
