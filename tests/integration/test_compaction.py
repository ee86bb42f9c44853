"""Compaction of partitions: the records to keep stay, wherever a compaction is interrupted."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.backend.capabilities import Compacted
from tailrace.backend.contract import Change, Transaction
from tailrace.backend.embedded import EmbeddedBackend, compaction, folding, writer
from tailrace.backend.embedded.read_only import ReadOnlyBackend
from tailrace.backend.embedded.time_search import FoldedEntries
from tailrace.errors import Busy, CorruptBatch, DiskFull, HubClosed, UnknownTopic
from tailrace.log.disk import Buffer, Disk
from tailrace.topic.consumers import low_mark, register
from tailrace.topic.ledger import Progress
from tests.integration.compaction_example import (
    AFTER,
    BEFORE,
    check_whole,
    make_example,
    offsets,
    open_hub,
    push,
)
from tests.support.counts import count
from tests.support.processes import Child, Report, StopAt, await_stop, continued_after
from tests.support.records import P0, TOPIC, columns, create, read, record

pytestmark = pytest.mark.part("pipelines")


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_records_14_15_and_16_of_the_example_log_survive(sync: str, tmp_path: Path) -> None:
    make_example(tmp_path, sync)
    with closing(open_hub(tmp_path)) as backend:
        before = {found.offset: found for found in read(backend, P0)}
        done = backend.compact(P0, lambda: 17)
        assert done == Compacted(1, 1, 17, 3, 17 * 31, 3 * 31)
        assert offsets(backend) == [14, 15, 16, *range(17, 28)]
        assert {found.offset: found for found in read(backend, P0)}.items() <= before.items()
        assert backend.log.bounds(P0)[:2] == (0, 28)
        assert backend.log.whole_from(P0) == 17
        check_whole(backend)
        assert backend.compact(P0, lambda: 28) == Compacted(1, 0, 3, 3, 3 * 31, 3 * 31)
        push(backend, "Z")
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == [14, 15, 16, *range(17, 29)]
        check_whole(backend)


def test_records_that_a_consumer_needs_before_the_commit_are_not_dropped(tmp_path: Path) -> None:
    make_example(tmp_path)

    def come_late(point: str) -> None:
        if point == "compaction-synced":
            register(backend.store, P0.topic, "late")

    with closing(open_hub(tmp_path, reach=come_late)) as backend:
        register(backend.store, P0.topic, "early")
        progress = Progress("early", P0)
        progress.ack(0, 17)
        backend.commit(Transaction(table=progress.writes()))
        done = backend.compact(P0, lambda: low_mark(backend, P0))
        assert (done.segments, done.rewritten) == (1, 0)
        assert offsets(backend) == list(range(28))
        check_whole(backend)


def test_the_commit_before_files_are_deleted_is_synced_under_every_policy(tmp_path: Path) -> None:
    make_example(tmp_path)
    synchronous: list[object] = []

    def below() -> int:
        """Asked last in the middle of that commit."""
        synchronous.append(backend._opened().database.writer.pragma("synchronous"))
        return 17

    with closing(open_hub(tmp_path, sync="none")) as backend:
        assert backend.compact(P0, below).rewritten == 1
        normal, full = 1, 2
        assert (synchronous[0], synchronous[-1]) == (normal, full)


@pytest.mark.parametrize(("below", "survivors"), [(0, 17), (16, 17), (17, 3), (10**9, 3)])
def test_only_full_segments_wholly_below_are_compacted(
    below: int, survivors: int, tmp_path: Path
) -> None:
    make_example(tmp_path)
    with closing(open_hub(tmp_path)) as backend:
        assert backend.compact(P0, lambda: below).records_after in (0, survivors)
        assert offsets(backend) == BEFORE[17 - survivors :]


def test_every_segment_keeps_the_last_of_its_keys(tmp_path: Path) -> None:
    with closing(open_hub(tmp_path, sync="none")) as backend:
        create(backend)
        for keys in ("AAB", "BBA", "CCC"):
            push(backend, keys * 5 + "AB")
        push(backend, "A")
        done = backend.compact(P0, lambda: 51)
        assert (done.segments, done.rewritten, done.records_before) == (3, 3, 51)
        assert offsets(backend) == [15, 16, 32, 33, 48, 49, 50, 51]
        check_whole(backend)


def test_a_search_by_time_continues_in_the_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FOLD_ABOVE", 4)
    monkeypatch.setattr(folding, "FOLD_COUNT", 4)
    make_example(tmp_path)
    with closing(open_hub(tmp_path)) as backend, closing(ReadOnlyBackend.open(tmp_path)) as reader:
        times = reader.log.time_bounds(P0)
        assert times is not None
        folded, rows_read = reader.log._folded, []

        def compact_behind(*arguments: Any) -> FoldedEntries:
            found = folded(*arguments)
            rows_read.append(found)
            backend.compact(P0, lambda: 17)
            return found

        reader._segments.clear()  # Otherwise the old files stay open and can be read.
        monkeypatch.setattr(reader.log, "_folded", compact_behind)
        span = reader.log.offsets_between(P0, times.least_ms, times.greatest_ms + 1)
        assert len(rows_read) == 2
        assert span == (14, 28)
        assert reader.log.time_bounds(P0) == times


def test_a_segment_with_nothing_to_drop_is_left_alone(tmp_path: Path) -> None:
    with closing(open_hub(tmp_path, sync="none")) as backend:
        create(backend)
        push(backend, "ABCDEFGHIJKLMNOPQ" + "A")
        (closed, _) = backend.log.segments(P0)
        inode = closed.log_path.stat().st_ino
        assert backend.compact(P0, lambda: 17).rewritten == 0
        assert backend.log.segments(P0)[0] == closed
        assert closed.log_path.stat().st_ino == inode
        assert backend.log.whole_from(P0) == 0


def test_folded_batches_and_thousands_of_runs_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FOLD_ABOVE", 40)
    monkeypatch.setattr(folding, "FOLD_COUNT", 16)
    monkeypatch.setattr(compaction, "BLOCK_ENTRIES", 100)
    chance = random.Random(3)
    expected: dict[bytes, int] = {}
    with closing(EmbeddedBackend.open(tmp_path, sync="none", segment_bytes=200_000)) as backend:
        create(backend)
        rows = 0
        while rows < 8000:
            size = chance.choice((1, 1, 1, 1, 300))
            keys = [b"%d" % chance.randrange(3000) for _ in range(size)]
            batch = columns([record(b"x" * chance.randrange(20), key) for key in keys])
            backend.commit(Transaction(((P0, batch),)))
            rows += size
        segments = backend.log.segments(P0)
        (first, second) = segments[:2]
        assert first.index_bytes, "nothing was folded"
        expected = {found.key or b"": found.offset for found in read(backend, P0, 0, second.base)}
        rest = [found.offset for found in read(backend, P0, second.base)]
        backend.compact(P0, lambda: second.base)
        entries = [entry for _, found in backend.log.entries(P0) for entry in found]
        runs = [entry for entry in entries if entry.base < second.base]
        assert len(runs) > 500
        assert offsets(backend) == sorted(expected.values()) + rest
        for offset in chance.sample(sorted(expected.values()), 50):
            assert read(backend, P0, offset, offset + 1)[0].offset == offset
        check_whole(backend)


def test_extents_follow_a_compaction(tmp_path: Path) -> None:
    make_example(tmp_path)
    with closing(open_hub(tmp_path)) as backend:
        stale = backend.log.extents(P0, 0, 17)
        backend.compact(P0, lambda: 17)
        extents = backend.log.extents(P0, 0, 20)
        found = [
            offset
            for extent in extents
            for batch in extent.read(0, 20)
            for offset in batch["offset"].to_pylist()
        ]
        assert found == [14, 15, 16, 17, 18, 19]
        with pytest.raises(CorruptBatch, match="the file is missing"):
            list(stale[0].read(0, 17))


def test_an_unknown_partition_is_refused(tmp_path: Path) -> None:
    with closing(open_hub(tmp_path)) as backend, pytest.raises(UnknownTopic):
        backend.compact(P0, lambda: 1)


def _compact_and_stop(report: Report, directory: Path, point: str) -> None:
    stop = StopAt(report)
    with closing(open_hub(directory, reach=stop)) as backend:
        stop.point = point
        report(backend.compact(P0, lambda: 17))


@pytest.mark.parametrize("point", ["compaction-written", "compaction-synced"])
def test_other_processes_open_append_and_read_during_a_compaction(
    point: str, tmp_path: Path
) -> None:
    make_example(tmp_path)
    child = Child(_compact_and_stop, tmp_path, point)
    with continued_after(await_stop(child)), closing(open_hub(tmp_path)) as backend:
        push(backend, "Z")
        assert offsets(backend) == [*BEFORE, 28]
        with pytest.raises(Busy, match=f"process {child.pid}"):
            backend.compact(P0, lambda: 17)
    assert child.next_report().rewritten == 1
    with closing(open_hub(tmp_path)) as backend:
        assert offsets(backend) == [*AFTER, 28]
        check_whole(backend)


def test_a_reader_with_open_old_files_continues_and_sees_the_new_ones(
    tmp_path: Path,
) -> None:
    make_example(tmp_path)
    with closing(open_hub(tmp_path)) as reader, closing(open_hub(tmp_path)) as backend:
        first = reader.log.read(P0, 0, 100)
        found = list(reader.log.entries(P0))
        backend.compact(P0, lambda: 17)
        (segment, entries), *_ = found
        batch, damage = segment.read(entries)
        assert damage is None
        assert batch is not None
        assert batch["offset"].to_pylist() == BEFORE[: batch.num_rows]
        after = reader.log.read(P0, first.next_offset, 1 << 20)
        assert after.records["offset"].to_pylist()[:3] == [14, 15, 16]
        assert offsets(reader) == AFTER


def _read_again_and_again(report: Report, directory: Path) -> None:
    """Child: check that each read returns one whole generation."""
    with closing(open_hub(directory)) as backend:
        report("started")
        while True:
            found = offsets(backend)
            assert found in (BEFORE, AFTER), found
            assert [damage for _, damage in backend.log.verify(P0) if damage is not None] == []
            if found == AFTER:
                report("seen")
                return


def test_readers_of_other_processes_see_the_state_before_or_after(tmp_path: Path) -> None:
    for number in range(count("compactions_read", test=5, soak=100)):
        directory = tmp_path / str(number)
        make_example(directory)
        readers = [Child(_read_again_and_again, directory) for _ in range(2)]
        assert [child.next_report() for child in readers] == ["started"] * 2
        with closing(open_hub(directory)) as backend:
            backend.compact(P0, lambda: 17)
        assert [child.next_report() for child in readers] == ["seen"] * 2


def test_concurrent_compactions_in_threads_compact_once(tmp_path: Path) -> None:
    make_example(tmp_path)
    outcomes: list[object] = []

    def compact(backend: EmbeddedBackend) -> None:
        try:
            outcomes.append(backend.compact(P0, lambda: 17).rewritten)
        except Busy:
            outcomes.append("busy")

    with closing(open_hub(tmp_path)) as one, closing(open_hub(tmp_path)) as other:
        threads = [threading.Thread(target=compact, args=(b,)) for b in (one, one, other, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert outcomes.count(1) == 1
        assert offsets(one) == offsets(other) == AFTER
        check_whole(one)


def test_a_topic_deleted_meanwhile_stays_deleted(tmp_path: Path) -> None:
    make_example(tmp_path)

    def delete(reached: str) -> None:
        if reached == "compaction-synced":
            with closing(open_hub(tmp_path)) as other:
                other.store.commit(Change(delete=(TOPIC,)))
                create(other)
                push(other, "Z")

    with closing(open_hub(tmp_path, reach=delete)) as backend:
        assert backend.compact(P0, lambda: 17).rewritten == 0
        assert offsets(backend) == [0]
        check_whole(backend)


def test_damaged_records_are_named_and_never_dropped(tmp_path: Path) -> None:
    make_example(tmp_path)
    with closing(open_hub(tmp_path)) as backend:
        path = backend.log.segments(P0)[0].log_path
        data = bytearray(path.read_bytes())
        data[5 * 31 + 30] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptBatch, match="checksum") as caught:
            backend.compact(P0, lambda: 17)
        assert caught.value.first == 5
        assert path.read_bytes() == data
        assert backend.log.whole_from(P0) == 0
        data[5 * 31 + 30] ^= 1
        path.write_bytes(data)
        assert backend.compact(P0, lambda: 17).rewritten == 1


class _FailingDisk(Disk):
    """Fails at the n-th write or sync of a new generation."""

    def __init__(self) -> None:
        self.left = -1
        self.error = 0

    def _count(self, descriptor: int) -> None:
        if self.left >= 0 and "-1." in os.readlink(f"/proc/self/fd/{descriptor}"):
            if self.left == 0:
                raise OSError(self.error, os.strerror(self.error))
            self.left -= 1

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        self._count(descriptor)
        super().write(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        self._count(descriptor)
        super().sync(descriptor)


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[EmbeddedBackend, _FailingDisk]]:
    make_example(tmp_path)
    disk = _FailingDisk()
    with closing(open_hub(tmp_path, disk=disk)) as backend:
        yield backend, disk


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_full_disk_in_the_middle_leaves_all_as_it_was(
    writes: int, failing: tuple[EmbeddedBackend, _FailingDisk]
) -> None:
    backend, disk = failing
    disk.left, disk.error = writes, errno.ENOSPC
    with pytest.raises(DiskFull):
        backend.compact(P0, lambda: 17)
    assert offsets(backend) == BEFORE
    check_whole(backend)
    disk.left = -1
    assert backend.compact(P0, lambda: 17).rewritten == 1
    assert offsets(backend) == AFTER


def test_a_failed_sync_leaves_all_as_it_was_and_stops_writes_of_this_process(
    failing: tuple[EmbeddedBackend, _FailingDisk], tmp_path: Path
) -> None:
    backend, disk = failing
    disk.left, disk.error = 3, errno.EIO
    with pytest.raises(OSError, match="could not be written"):
        backend.compact(P0, lambda: 17)
    assert offsets(backend) == BEFORE
    check_whole(backend)
    with pytest.raises(HubClosed):
        push(backend, "Z")
    with closing(open_hub(tmp_path)) as other:
        assert other.compact(P0, lambda: 17).rewritten == 1
