"""A hub that is opened read-only: everything can be read, and nothing is written."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from pyspark.sql.types import StructType

import tailrace
import tailrace.aio
from tailrace.errors import BackendUnavailable, Error, IncompatibleHub, ReadOnlyHub, UnknownHub
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.spark.batch import BatchReader
from tailrace.spark.hubs import close_hub_at
from tailrace.spark.source import TailraceSource
from tailrace.spark.stream import StreamReader
from tests.support.command_line import CommandLine
from tests.support.processes import Child, Report, ended_well, fork
from tests.support.users import API, STRANGER, become, directory_for_all, needs_root

pytestmark = pytest.mark.part("log")

_NEW_MOUNTS = 0x20000
"""The flag of `unshare` for mounts that only the calling process sees."""

READS = (
    ("status",),
    ("tail", "orders", "--exit"),
    ("tail", "orders/0.0", "--exit"),
    ("explain", "orders/0.0"),
    ("topic", "list"),
    ("topic", "show", "orders"),
    ("lag",),
    ("group", "list"),
    ("group", "show", "billing"),
    ("group", "history", "billing"),
    ("segment", "list", "orders/0.0"),
    ("segment", "verify", "orders/0.0"),
    ("hub", "info"),
    ("audit",),
    ("pipeline", "status"),
)
WRITES = (
    ("push", "orders", "lost"),
    ("topic", "create", "returns"),
    ("topic", "delete", "orders", "--yes"),
    ("tail", "orders", "--group", "billing", "--exit"),
    ("group", "delete", "billing", "--yes"),
    ("hub", "accept-gaps"),
)


@pytest.fixture
def path() -> Iterator[Path]:
    with directory_for_all() as made:
        _fill(made / "hub")
        yield made / "hub"


def _fill(directory: Path) -> None:
    settings = tailrace.HubSettings.of(segment_bytes=256)
    with tailrace.open(directory, sync="none", settings=settings) as hub:
        topic = hub.create_topic("orders", bytes, partitions=1)
        for number in range(20):
            topic.push(b"%d" % number, key=f"c{number % 3}")
        for _ in hub.tail("orders", group="billing", until="end"):
            pass


def _files(directory: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file.relative_to(directory)): (
            hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "",
            file.stat().st_mtime_ns,
        )
        for file in (directory, *directory.rglob("*"))
    }


def _values(hub: Hub) -> list[bytes]:
    reader = hub.topic("orders", bytes).reader()
    found: list[Any] = []
    while reads := reader.poll():
        for read in reads:
            found += read.records["value"].to_pylist()
    return found


def test_everything_can_be_read_and_no_file_changes(path: Path) -> None:
    before = _files(path)
    _run_reads(path)
    assert _files(path) == before


def test_every_write_is_refused_with_the_way_to_open_the_hub_for_writing(path: Path) -> None:
    before = _files(path)
    for command in WRITES:
        result = CommandLine(path).run("--read-only", *command, status=1)
        assert f"ReadOnlyHub: the hub {path} is open read-only" in result.stderr
        assert f"tailrace.open('{path}'), or omit --read-only" in result.stderr
    assert _files(path) == before


def test_every_write_in_python_is_refused(path: Path) -> None:
    with tailrace.open(path, mode="ro") as hub:
        topic = hub.topic("orders", bytes)
        calls: list[Callable[[], object]] = [
            lambda: topic.push(b"lost"),
            lambda: topic.push_many([("c1", b"lost")]),
            lambda: _produce(topic),
            lambda: topic.producer(name="shop"),
            lambda: topic.scale(4),
            lambda: hub.create_topic("returns"),
            lambda: hub.delete_topic("orders"),
            lambda: list(hub.tail("orders", group="billing")),
            lambda: hub.tail("orders", group="new"),
            lambda: hub.backend.hold("name", "owner"),
            lambda: _compact(hub),
        ]
        for call in calls:
            with pytest.raises(ReadOnlyHub, match="nothing was written"):
                call()
        with pytest.raises(ReadOnlyHub), hub.transaction() as transaction:
            transaction.push("orders", b"lost")
        assert len(_values(hub)) == 20


def _produce(topic: Topic[bytes]) -> None:
    with topic.producer() as producer:
        producer.push(b"lost")


def _compact(hub: Hub) -> None:
    backend: Any = hub.backend
    backend.compact(Partition("orders", 0, 0), lambda: 2**62)


def test_a_directory_without_a_hub_is_not_made_one(tmp_path: Path) -> None:
    for options in ({"create": False}, {"mode": "ro"}):
        for name in ("missing", "missing/below", ""):
            chosen: Any = options
            with pytest.raises(UnknownHub) as raised:
                tailrace.open(tmp_path / name, **chosen)
            assert f"no hub in {tmp_path / name}" in str(raised.value)
            assert f"tailrace --hub {tmp_path / name} topic create NAME" in str(raised.value)
    assert list(tmp_path.iterdir()) == []
    CommandLine(tmp_path / "missing").run("topic", "create", "orders", "--read-only", status=1)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_hub_opens_without_creating(path: Path) -> None:
    with tailrace.open(path, create=False) as hub:
        assert len(_values(hub)) == 20


def test_an_unknown_mode_is_refused(path: Path) -> None:
    mode: Any = "r"
    with pytest.raises(tailrace.InvalidValue, match="valid: rw or ro"):
        tailrace.open(path, mode=mode)


def test_commits_of_other_processes_are_seen_and_waited_for(path: Path) -> None:
    with tailrace.open(path, mode="ro") as hub, tailrace.open(path) as writer:
        assert len(_values(hub)) == 20
        follower = hub.backend.follower()
        follower.arm()
        writer.topic("orders", bytes).push(b"new")
        assert follower.wait(20)
        follower.close()
        assert _values(hub)[-1] == b"new"


@pytest.mark.parametrize("order", ["writer first", "reader first"])
def test_a_process_may_have_a_hub_open_both_ways(order: str, path: Path) -> None:
    reader = tailrace.open(path, mode="ro") if order == "reader first" else None
    assert reader is None or len(_values(reader)) == 20
    with tailrace.open(path) as writer:
        reader = reader or tailrace.open(path, mode="ro")
        assert len(_values(reader)) == 20
        writer.topic("orders", bytes).push(b"new")
        assert len(_values(reader)) == 21
    with tailrace.open(path) as writer:
        writer.topic("orders", bytes).push(b"newer")
    assert len(_values(reader)) == 22
    reader.close()


def test_a_forked_child_can_read(path: Path) -> None:
    with tailrace.open(path, mode="ro") as hub:
        assert len(_values(hub)) == 20

        def read() -> None:
            assert len(_values(hub)) == 20

        assert ended_well(fork(read))


@pytest.mark.parametrize("left", [("hub.db", "hub.db-wal"), ("hub.db", "hub.db-wal", "hub.db-shm")])
def test_a_backup_with_the_database_and_the_segments_alone_can_be_read(
    left: tuple[str, ...], path: Path
) -> None:
    backup = path.with_name("backup")
    backup.mkdir()
    for name in left:
        shutil.copy2(path / name, backup / name)
    shutil.copytree(path / "topics", backup / "topics")
    before = _files(backup)
    with tailrace.open(backup, mode="ro") as hub:
        assert len(_values(hub)) == 20
        hub.backend.follower().close()
        assert _files(backup) == before
        with tailrace.open(backup) as writer:
            writer.topic("orders", bytes).push(b"new")
            assert _values(hub)[-1] == b"new"


def test_a_hub_whose_database_another_program_opened_and_closed_can_still_be_read(
    path: Path,
) -> None:
    with tailrace.open(path, mode="ro") as hub:
        count = "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]);"
        count += " print(d.execute('SELECT count(*) FROM meta').fetchone()); d.close()"
        subprocess.run([sys.executable, "-c", count, path / "hub.db"], check=True)
        assert not (path / "hub.db-wal").exists()
        assert len(_values(hub)) == 20


def test_a_hub_of_an_older_format_says_how_to_upgrade_it(path: Path) -> None:
    database = apsw.Connection(str(path / "hub.db"))
    database.execute("UPDATE meta SET value = 1 WHERE name = 'format'")
    database.close()
    with pytest.raises(IncompatibleHub, match="open it once for writing, which upgrades it"):
        tailrace.open(path, mode="ro")


def _run_reads(path: Path) -> None:
    for command in READS:
        CommandLine(path).run(*command, "--read-only")


def _read_as_stranger(report: Report, path: Path) -> None:
    _run_reads(path)  # Imports the modules, which the other user may not be able to read.
    become(STRANGER)
    try:
        with tailrace.open(path, mode="ro") as hub:
            report(len(_values(hub)))
            _run_reads(path)
            follower = hub.backend.follower()
            follower.arm()
            report("waiting")
            assert follower.wait(20)
            report(len(_values(hub)))
    except Error as error:
        report(error)


@needs_root
@pytest.mark.parametrize("alive", [True, False], ids=["with a writer", "without a writer"])
def test_a_user_who_may_only_read_sees_all_of_it(alive: bool, path: Path) -> None:
    for each in (path, *path.rglob("*")):
        os.chown(each, API, API)
    path.chmod(0o711)
    writer = tailrace.open(path) if alive else None
    child = Child(_read_as_stranger, path)
    assert child.next_report() == 20
    assert child.next_report() == "waiting"
    writer = writer or tailrace.open(path)
    writer.topic("orders", bytes).push(b"new")
    assert child.next_report() == 21
    writer.close()


def _open_as_stranger(report: Report, path: Path) -> None:
    become(STRANGER)
    try:
        tailrace.open(path, mode="ro")
    except Error as error:
        report(error)


@needs_root
def test_a_user_who_may_not_read_is_told_whose_the_files_are(path: Path) -> None:
    (path / "hub.db").chmod(0o600)
    error = Child(_open_as_stranger, path).next_report()
    assert isinstance(error, BackendUnavailable)
    assert f"user uid {STRANGER} may not read {path}/hub.db: it belongs to root" in str(error)
    path.chmod(0o700)
    assert isinstance(Child(_open_as_stranger, path).next_report(), BackendUnavailable)


def _read_a_read_only_mount(report: Report, path: Path, mounted: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS):
        report("not allowed")
        return
    private = ["mount", "--make-rprivate", "/"]
    bind = ["mount", "--bind", str(path), str(mounted)]
    for command in (private, bind, ["mount", "-o", "remount,ro,bind", str(mounted)]):
        if subprocess.run(command, check=False).returncode:
            report("not allowed")
            return
    _run_reads(mounted)
    report(CommandLine(mounted).run("push", "orders", "lost", status=1).stderr)


@needs_root
def test_a_hub_on_a_read_only_mount_is_read_and_not_written(path: Path) -> None:
    mounted = path.with_name("mounted")
    mounted.mkdir()
    refused = Child(_read_a_read_only_mount, path, mounted).next_report()
    if refused == "not allowed":
        pytest.skip("this container may not mount")
    assert f"ReadOnlyHub: {mounted}" in refused
    assert "is on a read-only file system" in refused
    assert "--read-only" in refused


def _plan_with_spark(path: Path) -> int:
    options = {"hub": str(path), "subscribe": "orders"}
    schema = TailraceSource(options).schema()
    assert isinstance(schema, StructType)
    reader = BatchReader(options, schema)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return sum(batch.num_rows for batch in batches)


def _stream_with_spark(path: Path) -> int:
    options = {"hub": str(path), "subscribe": "orders", "startingOffsets": "earliest"}
    schema = TailraceSource(options).schema()
    assert isinstance(schema, StructType)
    reader = StreamReader(options, schema)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return sum(batch.num_rows for batch in batches)


def _read_with_spark_as_stranger(report: Report, read: Callable[[Path], int], path: Path) -> None:
    read(path)  # Imports the modules, which the other user may not be able to read.
    close_hub_at(str(path), "ro")
    become(STRANGER)
    report(read(path))


@needs_root
@pytest.mark.parametrize("read", [_plan_with_spark, _stream_with_spark], ids=["batch", "stream"])
def test_spark_reads_a_hub_that_its_user_may_not_write(
    read: Callable[[Path], int], path: Path
) -> None:
    before = _files(path)
    assert Child(_read_with_spark_as_stranger, read, path).next_report() == 20
    assert _files(path) == before


def test_an_unknown_topic_of_a_read_only_hub_is_not_created(path: Path) -> None:
    settings = tailrace.HubSettings.of(auto_create=True)
    hub = tailrace.open(path, mode="ro", settings=settings)
    with hub, pytest.raises(tailrace.UnknownTopic, match="did you mean 'orders'"):
        hub.topic("order")


def test_a_completion_writes_nothing(path: Path) -> None:
    before = _files(path)
    completing = {
        "_TAILRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "tailrace topic show ",
        "COMP_CWORD": "3",
    }
    assert "orders" in CommandLine(path).run(env=completing).stdout
    assert _files(path) == before


def test_asyncio_opens_a_hub_read_only(path: Path) -> None:
    async def read() -> list[str]:
        async with tailrace.aio.open(path, mode="ro") as hub:
            with pytest.raises(ReadOnlyHub):
                await hub.create_topic("returns")
            return await hub.topics()

    assert "orders" in asyncio.run(read())
    with pytest.raises(UnknownHub):
        asyncio.run(_open_missing(path.with_name("missing")))


async def _open_missing(path: Path) -> None:
    await tailrace.aio.open(path, create=False)
