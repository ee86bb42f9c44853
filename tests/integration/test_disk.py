"""Disks that are full or fail: a clear error in time, nothing lost, and recovery after."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import tailrace
from tailrace.backend.contract import Change, StorageTopic, TableKey, Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.backend.embedded.layout import RESERVE_BYTES
from tailrace.errors import BackendUnavailable, DiskFull, HubClosed
from tailrace.log.disk import Buffer, Disk
from tailrace.message import Partition
from tests.support.processes import Child, Report
from tests.support.records import P0, P1, TOPIC, append, create, records, values
from tests.support.waiting import until

pytestmark = pytest.mark.part("log")

OTHER = StorageTopic("other", 0, 1)
OTHER_P0 = Partition("other", 0, 0)
BIG = b"x" * 200_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB, of which the reserve takes 16."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tailrace-test", str(mounted)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)


@contextmanager
def _filled(disk: Path) -> Iterator[None]:
    """Fill the rest of the disk with a file of another program."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            with suppress(OSError):
                while True:
                    file.write(b"f" * size)
    assert os.statvfs(disk).f_bfree == 0
    try:
        yield
    finally:
        filler.unlink()


def _append_until(
    backend: EmbeddedBackend, error: type[Exception], partition: Partition, value: bytes
) -> int:
    for number in range(10_000):
        try:
            append(backend, partition, value)
        except error:
            return number
    pytest.fail(f"no {error.__name__} came")


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_segments_on_a_full_disk_lose_nothing_and_continue_when_there_is_space(
    sync: str, small_disk: Path
) -> None:
    hub = small_disk / "hub"
    with closing(EmbeddedBackend.open(hub, sync=sync)) as backend:
        create(backend)
        create(backend, OTHER)
        append(backend, OTHER_P0, *[BIG] * 5)
        stored = _append_until(backend, DiskFull, P0, BIG)
        assert stored > 5
        with pytest.raises(DiskFull, match="free some space"):
            append(backend, P0, b"small")
        assert values(backend, P0) == [BIG] * stored
        # The room of the reserve is there for what makes room.
        backend.store.commit(Change(delete=(OTHER,)))
        append(backend, P0, b"again")
        assert (hub / "hub.reserve").stat().st_size == RESERVE_BYTES
    with closing(EmbeddedBackend.open(hub)) as backend:
        assert values(backend, P0) == [BIG] * stored + [b"again"]


def _write_table(backend: EmbeddedBackend, number: int) -> None:
    backend.commit(Transaction(table={TableKey("t", b"%d" % number): BIG}))


@pytest.mark.parametrize("sync", ["batch", "none"])
def test_a_database_on_a_full_disk_loses_nothing_and_continues_when_there_is_space(
    sync: str, small_disk: Path
) -> None:
    hub = small_disk / "hub"

    with closing(EmbeddedBackend.open(hub, sync=sync)) as backend:
        create(backend)
        stored = 0
        with _filled(small_disk), suppress(DiskFull):
            while stored < 100:
                _write_table(backend, stored)
                stored += 1
        assert len(backend.table.scan("t")) == stored < 100
        append(backend, P0, b"again")
        _write_table(backend, stored)
    with closing(EmbeddedBackend.open(hub)) as backend:
        assert len(backend.table.scan("t")) == stored + 1
        assert values(backend, P0) == [b"again"]
        assert (hub / "hub.reserve").exists()


def test_deleting_a_topic_frees_space_on_a_disk_that_others_filled(small_disk: Path) -> None:
    with closing(EmbeddedBackend.open(small_disk / "hub")) as backend:
        create(backend)
        append(backend, P0, *[BIG] * 10)
        with _filled(small_disk):
            backend.store.commit(Change(delete=(TOPIC,)))
            assert backend.store.commit(Change(create=(TOPIC,)))


def test_a_hub_on_a_full_disk_can_be_opened_to_free_space(small_disk: Path) -> None:
    hub = small_disk / "hub"
    with closing(EmbeddedBackend.open(hub)) as backend:
        create(backend)
        append(backend, P0, *[BIG] * 10)
    (hub / "hub.db-shm").unlink()
    with _filled(small_disk), closing(EmbeddedBackend.open(hub)) as backend:
        assert values(backend, P0) == [BIG] * 10
        backend.store.commit(Change(delete=(TOPIC,)))
    with closing(EmbeddedBackend.open(hub)) as backend:
        create(backend)
        append(backend, P0, b"again")


def _delete_topic(report: Report, hub: Path) -> None:
    with closing(EmbeddedBackend.open(hub)) as backend:
        backend.store.commit(Change(delete=(TOPIC,)))
        report("deleted")


def test_space_that_another_process_frees_is_used(small_disk: Path) -> None:
    hub = small_disk / "hub"
    with closing(EmbeddedBackend.open(hub)) as backend:
        create(backend)
        create(backend, OTHER)
        stored = _append_until(backend, DiskFull, P0, BIG)
        assert values(backend, P0) == [BIG] * stored
        assert Child(_delete_topic, hub).next_report() == "deleted"
        append(backend, OTHER_P0, b"again")


def test_a_new_hub_needs_space_for_its_reserve(small_disk: Path) -> None:
    with _filled(small_disk), pytest.raises(BackendUnavailable):
        EmbeddedBackend.open(small_disk / "hub")
    EmbeddedBackend.open(small_disk / "hub").close()


def test_a_reserve_that_is_not_whole_is_made_whole(tmp_path: Path) -> None:
    reserve = tmp_path / "hub.reserve"
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        create(backend)
        reserve.unlink()
        reserve.write_bytes(b"")  # As of a process that was killed while it made the reserve.
        append(backend, P0, b"a")
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES


def _append_one(report: Report, hub: Path, partition: Partition) -> None:
    with closing(EmbeddedBackend.open(hub, lock_timeout_s=5.0)) as backend:
        report(append(backend, partition, b"by another").start)


def test_a_lock_without_space_for_its_holder_is_not_kept(small_disk: Path) -> None:
    hub = small_disk / "hub"
    far = Partition("wide", 0, 999)
    with closing(EmbeddedBackend.open(hub)) as backend:
        create(backend, StorageTopic("wide", 0, 1000))
        with _filled(small_disk), pytest.raises(DiskFull):
            append(backend, far, b"refused")
        child = Child(_append_one, hub, far)
        assert child.next_report() == 0
        assert append(backend, far, b"by this").start == 1


def _meet_a_file_limit(report: Report, hub: Path, what: str) -> None:
    """Report each append, the error at the limit, and one append without the limit."""
    with closing(EmbeddedBackend.open(hub)) as backend:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
        value = BIG if what == "segments" else b"x"
        table = {} if what == "segments" else {TableKey("t", b"k"): BIG}
        try:
            for _ in range(100):
                backend.commit(Transaction(((P0, records(value)),), table))
                report("stored")
        except BackendUnavailable as error:
            report(type(error).__name__)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        append(backend, P0, b"last")
        report("stored")


@pytest.mark.parametrize(
    ("what", "errors"), [("segments", {"DiskFull"}), ("hub.db", {"BackendUnavailable"})]
)
@pytest.mark.parametrize("sync", ["batch", "none"])
def test_a_file_size_limit_raises_an_error_and_loses_nothing(
    sync: str, what: str, errors: set[str], tmp_path: Path
) -> None:
    with closing(EmbeddedBackend.open(tmp_path, sync=sync)) as backend:
        create(backend)
    child = Child(_meet_a_file_limit, tmp_path, what)
    *stored, error, last = child.rest()
    assert child.exit_code == 0
    assert error in errors
    assert set(stored) == {last} == {"stored"}
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        found = values(backend, P0)
        assert found[-1] == b"last"
        assert len(found) == len(stored) + 1


class _FailingDisk(Disk):
    """A disk whose next call of one kind fails."""

    def __init__(self, kind: str, number: int, short_bytes: int = 0) -> None:
        self.kind = kind
        self.number = number
        self.short_bytes = short_bytes
        self.armed = False

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        if self._fails("write"):
            super().write(descriptor, memoryview(data)[: self.short_bytes], position)
            self._raise()
        super().write(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        if self._fails("sync"):
            self._raise()
        super().sync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        if self._fails("sync_directory"):
            self._raise()
        super().sync_directory(directory)

    def _fails(self, kind: str) -> bool:
        fails = self.armed and kind == self.kind
        if fails:
            self.armed = False
        return fails

    def _raise(self) -> None:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("kind", ["sync", "sync_directory"])
def test_after_a_failed_sync_this_process_appends_no_more_until_it_opens_the_hub_again(
    kind: str, tmp_path: Path
) -> None:
    disk = _FailingDisk(kind, errno.EIO)
    with closing(EmbeddedBackend.open(tmp_path, disk=disk)) as backend:
        create(backend)
        append(backend, P0, b"before")
        disk.armed = True
        with pytest.raises(BackendUnavailable, match="nothing was written"):
            append(backend, P1, b"refused")
        assert not disk.armed
        for partition in (P0, P1):
            with pytest.raises(HubClosed, match="open the hub again"):
                append(backend, partition, b"refused too")
        assert (values(backend, P0), values(backend, P1)) == ([b"before"], [])
        child = Child(_append_one, tmp_path, P0)
        assert child.next_report() == 1
        assert values(backend, P0) == [b"before", b"by another"]
    with closing(EmbeddedBackend.open(tmp_path)) as backend:
        append(backend, P1, b"again")
        assert values(backend, P1) == [b"again"]


@pytest.mark.parametrize("short_bytes", [0, 5])
@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, DiskFull), (errno.EIO, BackendUnavailable)]
)
def test_a_write_that_fails_or_falls_short_leaves_nothing_and_the_next_one_is_whole(
    number: int, error: type[Exception], short_bytes: int, tmp_path: Path
) -> None:
    disk = _FailingDisk("write", number, short_bytes)
    with closing(EmbeddedBackend.open(tmp_path, disk=disk)) as backend:
        create(backend)
        append(backend, P0, b"before")
        disk.armed = True
        with pytest.raises(error):
            backend.commit(Transaction(((P0, records(b"a", b"b")), (P1, records(b"c")))))
        assert (values(backend, P0), values(backend, P1)) == ([b"before"], [])
        assert append(backend, P0, b"after").start == 1
        assert values(backend, P0) == [b"before", b"after"]


def test_short_writes_of_the_kernel_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Callable[[int, bytes, int], int] = os.pwrite
    with (tmp_path / "file").open("w+b") as file:
        monkeypatch.setattr(
            os, "pwrite", lambda number, data, at: whole(number, bytes(data)[:7], at)
        )
        Disk().write(file.fileno(), memoryview(bytes(range(100))), 3)
    assert (tmp_path / "file").read_bytes() == bytes(3) + bytes(range(100))


@pytest.mark.parametrize("full_at_start", [False, True])
def test_a_worker_outlives_a_disk_that_is_full_for_a_while(
    small_disk: Path, caplog: pytest.LogCaptureFixture, full_at_start: bool
) -> None:
    handled: list[int] = []
    full = threading.Event()

    def handle(delivery: tailrace.Delivery[int]) -> None:
        handled.append(delivery.value)
        assert full.wait(60)  # so that nothing is acknowledged before

    with tailrace.open(small_disk / "hub") as hub:
        orders = hub.create_topic("orders", int, partitions=1)
        orders.push_many([("k1", number) for number in range(100)])
        consumer = orders.tail(group="billing")
        if not full_at_start:
            consumer.start(handle)
            until(lambda: handled)
        with _filled(small_disk):
            full.set()
            if full_at_start:
                consumer.start(handle)
            until(lambda: "consuming in group billing failed, retrying" in caplog.text)
            assert consumer.running
        until(lambda: len(handled) >= 100)
        consumer.shutdown()
        assert [each.lag for each in hub.group("billing").lag()] == [0]
    assert sorted(set(handled)) == list(range(100))
