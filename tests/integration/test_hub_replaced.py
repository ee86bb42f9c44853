"""A hub that was removed or replaced under a process: every write and read of it is an error."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

import tailrace
from tailrace.backend.contract import Transaction
from tailrace.backend.embedded import EmbeddedBackend
from tailrace.errors import Error, HubReplaced
from tailrace.hub.hub import Hub
from tailrace.hub.topic import Topic
from tailrace.message import Partition
from tailrace.operations.topic.tail import open_range, tail
from tailrace.topic.offset_spec import Extreme
from tests.support.pipelines.counting_reader import CountingReader
from tests.support.pipelines.recording_writer import RecordingWriter, delivered
from tests.support.processes import Child, Report, ended_well, fork
from tests.support.records import records
from tests.support.waiting import in_thread, until

pytestmark = pytest.mark.part("log")

ENDS_S = 10.0
"""By then a consumer that does not notice the removal is not going to."""


def _remove(hub: Path) -> None:
    """Remove a hub, whose processes may create and remove files in it meanwhile."""
    while hub.exists():
        shutil.rmtree(hub, ignore_errors=True)


def _move(hub: Path) -> None:
    hub.rename(hub.with_name("moved"))


def _remove_and_create(hub: Path) -> None:
    _remove(hub)
    _create(hub)


def _move_and_create(hub: Path) -> None:
    _move(hub)
    _create(hub)


def _restore_directory(hub: Path) -> None:
    _move(hub)
    shutil.copytree(hub.with_name("backup"), hub)


def _restore_files(hub: Path) -> None:
    """Replace each file, as `tar` and `rsync` do."""
    backup = hub.with_name("backup")
    for file in sorted(path for path in backup.rglob("*") if path.is_file()):
        there = hub / file.relative_to(backup)
        shutil.copy2(file, there.with_name("new"))
        there.with_name("new").replace(there)


def _restore_database(hub: Path) -> None:
    shutil.copy2(hub.with_name("backup") / "hub.db", hub / "new")
    (hub / "new").replace(hub / "hub.db")


def _remove_wal(hub: Path) -> None:
    (hub / "hub.db-wal").unlink()


REPLACEMENTS = [
    *(_remove, _move, _remove_and_create, _move_and_create),
    *(_restore_directory, _restore_files, _restore_database, _remove_wal),
]
replacements = pytest.mark.parametrize(
    "replace", REPLACEMENTS, ids=[each.__name__[1:] for each in REPLACEMENTS]
)


def _create(directory: Path) -> None:
    """Create a hub in another process: SQLite shares state among the connections of a process."""
    assert list(Child(_create_hub, directory).rest()) == ["created"]


def _create_hub(report: Report, directory: Path) -> None:
    with tailrace.open(directory, sync="none") as hub:
        hub.create_topic("orders", bytes, partitions=1).push(b"of the new hub")
    report("created")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "hub"
    with tailrace.open(directory, sync="none") as hub:
        topic = hub.create_topic("orders", bytes, partitions=1)
        for number in range(3):
            topic.push(b"%d" % number, key="c1")
    shutil.copytree(directory, tmp_path / "backup")
    return directory


@pytest.fixture
def hub(path: Path) -> Iterator[Hub]:
    hub = tailrace.open(path)
    yield hub
    with suppress(Error):
        hub.close()


@pytest.fixture
def orders(hub: Hub) -> Topic[bytes]:
    topic = hub.topic("orders", bytes)
    topic.push(b"stored", key="c1")
    return topic


def _files(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in directory.rglob("*")
        if file.is_file()
    }


def _transact(hub: Hub) -> None:
    with hub.transaction() as transaction:
        transaction.push("orders", b"lost")


def _embedded(hub: Hub) -> EmbeddedBackend:
    assert isinstance(hub.backend, EmbeddedBackend)
    return hub.backend


def _produce(topic: Topic[bytes], name: str | None) -> None:
    with topic.producer(name=name) as producer:
        producer.push(b"lost")


@replacements
def test_every_write_and_read_of_a_replaced_hub_is_an_error(
    replace: Callable[[Path], None], path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    named = orders.producer(name="shop")
    replace(path)
    calls: list[Callable[[], object]] = [
        lambda: orders.push(b"lost", key="c1"),
        lambda: orders.push_many([("c1", b"lost")]),
        lambda: _produce(orders, None),
        lambda: named.push(b"lost").result(),
        lambda: _transact(hub),
        lambda: hub.create_topic("returns"),
        lambda: hub.delete_topic("orders"),
        hub.topics,
        lambda: orders.reader().poll(),
        lambda: hub.tail("orders", group="billing"),
        lambda: _embedded(hub).compact(Partition("orders", 0, 0), lambda: 2**62),
        hub.backend.follower,
        lambda: hub.backend.hold("compaction/1", "a test"),
        lambda: hub.backend.holder("compaction/1"),
    ]
    for call in calls:
        with pytest.raises(HubReplaced) as raised:
            call()
        assert str(path) in str(raised.value)
        assert not raised.value.retryable
    with pytest.raises(HubReplaced):
        named.close()


@pytest.mark.parametrize(
    "replace", [_remove_and_create, _restore_directory], ids=["created", "restored"]
)
def test_the_hub_that_is_there_now_is_left_unchanged(
    replace: Callable[[Path], None], path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    with hub.tail("orders", group="billing", ack="manual") as consumer:
        delivery = next(iter(consumer))
        replace(path)
        before = _files(path)
        delivery.ack()
        for number in range(3):
            with pytest.raises(HubReplaced):
                orders.push(b"x" * 100 * number)
    with suppress(Error):
        hub.close()
    assert _files(path) == before


def test_a_removed_hub_is_not_made_again_by_a_push_that_begins_a_segment(path: Path) -> None:
    settings = tailrace.HubSettings.of(segment_bytes=64)
    hub = tailrace.open(path, settings=settings)
    topic = hub.topic("orders", bytes)
    topic.push(b"x" * 64)
    _remove(path)
    with pytest.raises(HubReplaced):
        topic.push(b"x" * 64)
    hub.close()
    assert not path.exists()


def test_the_error_tells_a_restored_backup_from_another_hub(
    path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    _restore_directory(path)
    with pytest.raises(HubReplaced, match=r"of the same hub \(id .*a backup was restored"):
        orders.push(b"lost")
    _remove_and_create(path)
    with pytest.raises(HubReplaced, match="another hub is there now"):
        orders.push(b"lost")
    _remove(path)
    with pytest.raises(HubReplaced, match=f"{path} no longer exists"):
        orders.push(b"lost")


def test_a_hub_that_is_moved_back_continues(path: Path, orders: Topic[bytes]) -> None:
    _move(path)
    with pytest.raises(HubReplaced):
        orders.push(b"lost")
    path.with_name("moved").rename(path)
    assert orders.push(b"stored").offset == 4


@pytest.mark.parametrize("name", [".log", "topics"])
def test_a_push_into_a_removed_segment_is_an_error(
    name: str, path: Path, orders: Topic[bytes]
) -> None:
    if name == "topics":
        _remove(path / name)
    else:
        next((path / "topics").rglob("*.log")).unlink()
    with pytest.raises(HubReplaced, match=r"\.log was removed"):
        orders.push(b"lost")


def test_closing_a_hub_is_quiet_after_a_producer_has_raised_the_error(
    path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    producer = orders.producer()
    _remove(path)
    producer.push(b"lost")
    with pytest.raises(HubReplaced):
        producer.flush()
    hub.close()


@replacements
def test_a_consumer_that_waits_wakes_and_raises(
    replace: Callable[[Path], None], path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    ended: list[BaseException] = []
    seen = threading.Event()

    def consume() -> None:
        try:
            for delivery in hub.tail("orders", group="billing"):
                if delivery.value == b"stored":
                    seen.set()
        except Error as error:
            ended.append(error)

    in_thread(consume)
    assert seen.wait(ENDS_S)
    replace(path)
    until(lambda: ended, "the consumer did not end", ENDS_S)
    assert isinstance(ended[0], HubReplaced)


@replacements
def test_a_handler_thread_ends_with_the_error(
    replace: Callable[[Path], None], path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    handled = threading.Event()
    consumer = hub.tail("orders", group="billing").start(lambda _: handled.set())
    assert handled.wait(ENDS_S)
    replace(path)
    with pytest.raises(HubReplaced):
        assert consumer.wait("10s"), "the consumer did not end"


def test_an_acknowledgement_that_waits_raises(path: Path, hub: Hub, orders: Topic[bytes]) -> None:
    with hub.tail("orders", group="billing", ack="manual") as consumer:
        delivery = next(iter(consumer))
        _remove(path)
        with pytest.raises(HubReplaced):
            delivery.ack(wait=True)


def test_a_saver_of_progress_ends_the_consumer(path: Path, hub: Hub, orders: Topic[bytes]) -> None:
    with hub.tail("orders", group="billing", ack="manual") as consumer:
        first = next(iter(consumer))
        _remove(path)
        first.ack()
        with pytest.raises(HubReplaced):
            for _ in consumer:
                pass


def test_a_tail_that_waits_for_more_raises(path: Path, hub: Hub, orders: Topic[bytes]) -> None:
    topic, wanted = open_range(hub, "orders", Extreme.EARLIEST, None)
    batches = tail(topic, wanted)
    assert next(batches)
    _remove(path)
    with pytest.raises(HubReplaced):
        for _ in batches:
            pass


def _consume(report: Report, directory: Path) -> None:
    with tailrace.open(directory) as hub:
        try:
            for delivery in hub.tail("orders", group="billing"):
                report(delivery.value)
        except Error as error:
            report(error)


def test_consumers_in_other_processes_end_too(path: Path, hub: Hub, orders: Topic[bytes]) -> None:
    child = Child(_consume, path)
    while child.next_report() != b"stored":
        pass
    _move_and_create(path)
    assert isinstance(child.next_report(ENDS_S), HubReplaced)


def test_a_child_forked_after_the_removal_gets_the_error(
    path: Path, hub: Hub, orders: Topic[bytes]
) -> None:
    _remove_and_create(path)
    before = _files(path)

    def push() -> None:
        with pytest.raises(HubReplaced):
            orders.push(b"lost")
        with pytest.raises(HubReplaced):
            orders.reader().poll()

    assert ended_well(fork(push))
    _remove(path)
    assert before
    assert ended_well(fork(push))


def test_a_hub_removed_while_a_push_is_being_written_is_an_error(path: Path) -> None:
    def remove(point: str) -> None:
        if point == "written":
            _remove(path)

    append = Transaction(((Partition("orders", 0, 0), records(b"lost")),))
    with (
        closing(EmbeddedBackend.open(path, reach=remove)) as backend,
        pytest.raises(HubReplaced, match="no longer exists"),
    ):
        backend.commit(append)


def test_a_segment_of_a_hub_that_was_replaced_after_the_first_check_is_not_written(
    path: Path,
) -> None:
    def replace(point: str) -> None:
        if point == "locked":
            _restore_directory(path)

    append = Transaction(((Partition("orders", 0, 0), records(b"lost")),))
    with closing(EmbeddedBackend.open(path, reach=replace)) as backend:
        with pytest.raises(HubReplaced):
            backend.commit(append)
        assert _files(path) == _files(path.with_name("backup"))


def test_a_compaction_of_a_hub_that_was_replaced_meanwhile_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "hub"
    settings = tailrace.HubSettings.of(segment_bytes=256)
    with tailrace.open(path, sync="none", settings=settings) as hub:
        topic = hub.create_topic("orders", bytes, partitions=1)
        for number in range(20):
            topic.push(b"%d" % number * 20, key="c1")

    before: dict[str, str] = {}

    def replace(point: str) -> None:
        if point == "compaction-locked":
            _move_and_create(path)
            before.update(_files(path))

    with closing(EmbeddedBackend.open(path, reach=replace)) as backend:
        with pytest.raises(HubReplaced):
            backend.compact(Partition("orders", 0, 0), lambda: 2**62)
        assert _files(path) == before


def _checkpoint(directory: Path) -> Path:
    """Move all of the write-ahead log into the database, and return the database."""
    connection = apsw.Connection(str(directory / "hub.db"))
    connection.execute("SELECT value FROM meta").fetchall()  # Begins to use the log.
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert (directory / "hub.db-wal").stat().st_size == 0
    connection.close()
    return directory / "hub.db"


def test_another_database_copied_over_the_hubs_is_found_by_the_next_connection(
    path: Path, hub: Hub, tmp_path: Path
) -> None:
    def read() -> None:
        with pytest.raises(HubReplaced, match="another hub is there now"):
            hub.topics()

    _create(tmp_path / "other")
    assert hub.topics() == ["orders"]
    shutil.copyfile(_checkpoint(tmp_path / "other"), _checkpoint(path))
    assert ended_well(fork(read)), "a forked child opens its own connections"


@replacements
def test_a_hub_replaced_while_a_push_waits_for_the_commit_lock_is_an_error(
    replace: Callable[[Path], None], path: Path, orders: Topic[bytes]
) -> None:
    failed: list[BaseException] = []

    def push() -> None:
        try:
            orders.push(b"lost")
        except Error as error:
            failed.append(error)

    with (path / "hub.commit").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        in_thread(push)
        until(lambda: _waits_for_a_lock(path), "the push does not wait for the lock")
        replace(path)
    until(lambda: failed, "the push did not end", ENDS_S)
    assert isinstance(failed[0], HubReplaced)


def _waits_for_a_lock(path: Path) -> bool:
    """True if a process waits for the lock of the commit file, as the kernel lists it."""
    inode = (path / "hub.commit").stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{inode} " in line for line in lines)


@pytest.mark.parametrize("replace", [_remove, _move_and_create], ids=["removed", "replaced"])
def test_a_running_pipeline_ends_with_the_error_as_if_nobody_had_stopped_it(
    replace: Callable[[Path], None],
    path: Path,
    hub: Hub,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows_file, ended = tmp_path / "rows", list[BaseException]()
    seen: list[tailrace.RunProgress] = []
    rows_file.write_text("100")
    (tmp_path / "sink").mkdir()
    lake = tailrace.Pipeline("lake", CountingReader(rows_file=str(rows_file)))
    lake.write("crm", RecordingWriter(str(tmp_path / "sink")), engine="direct")

    def run() -> None:
        try:
            lake.run(hub, progress=seen.append)
        except Error as error:
            ended.append(error)

    in_thread(run)
    until(lambda: len(delivered(tmp_path / "sink")) == 100)
    replace(path)
    rows_file.write_text("200")
    until(lambda: ended, "the pipeline did not end")
    assert isinstance(ended[0], HubReplaced)
    assert len(delivered(tmp_path / "sink")) == 100
    assert seen
    assert not any(each.stopping for each in seen)
    (line,) = [each for each in caplog.records if each.name == "tailrace.pipeline.run"]
    assert line.getMessage().startswith(f"pipeline lake ends: the hub {path} was removed or")
    assert all(each.exc_info is None for each in caplog.records)
